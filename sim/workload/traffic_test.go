package workload

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// TestTraffic: of 20,000 requests the drawn means and spreads, the rate and the cached share are those asked for, within
// three standard errors; lengths are cut at three quarters and one quarter of the longest request.
func TestTraffic(t *testing.T) {
	base := Traffic{Shape: Lengths{Prompt: 200, Output: 50, PromptCV2: 1, OutputCV2: 0.25, Cached: 50}, PromptLaw: LogNormalLaw, OutputLaw: LogNormalLaw, RateRPS: 8, Requests: 20_000, Seed: 7}
	requests, drawn := base.Draw()
	for _, c := range []struct {
		name           string
		got, want, tol float64
	}{
		{"rate", base.DrawnRate(), 8, 0.17}, {"prompt", drawn.Prompt, 199.5, 4.5}, {"output", drawn.Output, 49.5, 0.6}, {"prompt CV2", drawn.PromptCV2, 1, 0.15},
		{"output CV2", drawn.OutputCV2, 0.25, 0.02}, {"cached", drawn.Cached, drawn.Prompt / 4, 1e-9}, {"last arrival, s", float64(requests[19_999].ArrivalUs) / 1e6, 2500, 54},
	} {
		if math.Abs(c.got-c.want) > c.tol {
			t.Errorf("%s: got %g, want %g +- %g", c.name, c.got, c.want, c.tol)
		}
	}
	for i := range requests {
		if r := &requests[i]; r.CachedTokens.V != r.PromptTokens/4 || r.PromptTokens < 1 || r.OutputTokens < 1 {
			t.Fatalf("request %d: got %+v", i, r)
		}
	}
	// The same lengths at another rate.
	faster := base
	faster.RateRPS = 16
	other, _ := faster.Draw()
	for i := range requests {
		if other[i].PromptTokens != requests[i].PromptTokens || math.Abs(float64(requests[i].ArrivalUs)/2-float64(other[i].ArrivalUs)) > 1.5 {
			t.Fatalf("request %d at twice the rate: got %+v, want %+v", i, other[i], requests[i])
		}
	}
	short := base
	short.Shape.Cached, short.Longest = 0, 40
	cut, _ := short.Draw()
	most := [2]int64{}
	for i := range cut {
		most[0] = max(most[0], cut[i].PromptTokens)
		most[1] = max(most[1], cut[i].OutputTokens)
		if cut[i].CachedTokens.OK {
			t.Fatal("nothing is cached")
		}
	}
	if most != [2]int64{30, 10} {
		t.Errorf("got at most %v tokens, want 30 and 10", most)
	}
	for _, c := range []struct {
		law  Law
		u    float64
		want int64
	}{{ConstantLaw, 0.9, 100}, {ExponentialLaw, 1 - math.Exp(-2), 200}, {ExponentialLaw, 0, 1}, {LogNormalLaw, 0.5, 71}} {
		if got := lengthOf(c.law, 100, 1, c.u); got != c.want {
			t.Errorf("%s at %g: got %d, want %d", c.law, c.u, got, c.want)
		}
	}
	chat := ChatTraffic(testkit.Llama8B(), 300, 70)
	want := Traffic{Shape: Lengths{Prompt: 300, Output: 70, PromptCV2: 1, OutputCV2: 0.5}, PromptLaw: LogNormalLaw, OutputLaw: LogNormalLaw, RateRPS: 1_000_000, Requests: 2560, Seed: 1, Longest: 8192}
	if chat != want {
		t.Errorf("got %+v, want %+v", chat, want)
	}
}

// constantStep is a latency model of 10 ms a step.
type constantStep struct{}

func (constantStep) StepUs(*sim.Batch) (float64, error) { return 10_000, nil }
func (constantStep) Features() []float64                { return nil }

// TestCapacity: an engine of 4 sequences serves 80 requests of 4 tokens each, in steps of 10 ms. Two of them come 10 ms
// before the others, so two seats finish at 40, 80, ... 800 ms and two at 50, 90, ... 810. The last requests are scheduled
// at 770: until then each of the first two seats finishes 18 after its first one, and each of the others 19. Of three
// requests, which all run at once, the last finishes at 50 ms.
func TestCapacity(t *testing.T) {
	dep := testkit.Small(100)
	traffic := Traffic{Shape: Lengths{Prompt: 8, Output: 4}, PromptLaw: ConstantLaw, OutputLaw: ConstantLaw, RateRPS: 1e6, Seed: 1}
	for requests, want := range map[int]float64{80: (2*18 + 2*19) / 0.73, 3: 3 / 0.05} {
		traffic.Requests = requests
		got, err := traffic.Capacity(dep, constantStep{})
		if err != nil || math.Abs(got-want) > 0.1 {
			t.Errorf("%d requests: got %g and %v, want %g", requests, got, err, want)
		}
	}
	traffic.Shape.Prompt = 5000 // longer than max_model_len
	if got, err := traffic.Capacity(dep, constantStep{}); !errors.Is(err, ErrNothingFinished) && err == nil {
		t.Errorf("requests that are too long: got %g", got)
	}
}

// TestRecloseCalls: two clients: the first two calls keep their arrivals, later ones follow answers after the recorded think
// times, rounded up to us; further samples of a call go with its first.
func TestRecloseCalls(t *testing.T) {
	requests := make([]sim.Request, 6)
	for i := range requests {
		requests[i].ArrivalUs = int64(100 + i)
	}
	calls := []Call{{[]int{0}, 100_000, 200_000}, {[]int{1, 2}, 101_000, 300_000}, {[]int{3}, 205_001, 400_000}, {[]int{4, 5}, 300_000, 500_000}}
	loop, err := RecloseCalls(requests, calls, 2)
	if err != nil || loop.Clients != 2 {
		t.Fatalf("got %+v and %v", loop, err)
	}
	type shape struct {
		arrival, think int64
		queued         bool
		loop, with     int
	}
	for i, want := range []shape{{100, 0, false, 1, 0}, {101, 0, false, 1, 0}, {101, 0, false, 0, 2}, {0, 6, true, 1, 0}, {0, 0, true, 1, 0}, {0, 0, false, 0, 5}} {
		r := &requests[i]
		if got := (shape{r.ArrivalUs, r.ThinkUs, r.Queued, int(r.Loop), int(r.With)}); got != want {
			t.Errorf("request %d: got %+v, want %+v", i, got, want)
		}
	}
	if _, err := RecloseCalls(requests, calls, -1); err == nil {
		t.Error("a negative number of clients was accepted")
	}
}

// TestArrivalNs: the arrival of a request, else 7 us before it was queued, or when it was queued.
func TestArrivalNs(t *testing.T) {
	some := trace.Some[int64]
	both := &trace.Request{ArrivedNs: some(50_000), QueuedNs: some(90_000)}
	queued := &trace.Request{QueuedNs: some(90_000)}
	for _, c := range []struct {
		r    *trace.Request
		opt  RunOptions
		want int64
		ok   bool
	}{
		{both, RunOptions{MissingArrivalUs: 7}, 50_000, true}, {both, RunOptions{Queued: true}, 90_000, true}, {queued, RunOptions{MissingArrivalUs: 7}, 83_000, true},
		{&trace.Request{}, RunOptions{MissingArrivalUs: 7}, -7000, false},
	} {
		if got, ok := arrivalNs(c.r, c.opt); got != c.want || ok != c.ok {
			t.Errorf("%+v: got %d, %t, want %d", c.opt, got, ok, c.want)
		}
	}
}

// TestScale: at twice the rate requests arrive in half the time, and no client leaves before it has sent.
func TestScale(t *testing.T) {
	w := &Workload{Requests: []sim.Request{{ArrivalUs: 1000, AbortAtUs: trace.Some(int64(3000))}, {ArrivalUs: 5000, AbortAtUs: trace.Some(int64(4000))}, {ArrivalUs: 7000}}}
	w.Scale(2)
	for i, want := range [][2]int64{{500, 1500}, {2500, 2500}, {3500, 0}} {
		if r := w.Requests[i]; r.ArrivalUs != want[0] || r.AbortAtUs.V != want[1] {
			t.Errorf("request %d: got %+v, want %v", i, r, want)
		}
	}
	p := prefixes{ids: map[string]uint64{}}
	if a, b, c := p.groupID("x"), p.groupID("y"), p.groupID("x"); a != 1 || b != 2 || c != 1 {
		t.Errorf("got the groups %d, %d and %d", a, b, c)
	}
}

// TestLengthTable: arrivals in seconds count from the first, lengths are at least 1, and what is refused.
func TestLengthTable(t *testing.T) {
	w, err := readLengthTable([]byte("arrived_at,num_prefill_tokens,num_decode_tokens\n1000.5,100,20\n1002,1,1\n"), "t.csv")
	if err != nil || len(w.Requests) != 2 || w.Requests[0].ArrivalUs != 0 || w.Requests[1].ArrivalUs != 1_500_000 || w.Requests[0].PromptTokens != 100 || w.Requests[0].OutputTokens != 20 ||
		w.Requests[1].ID != "2" {
		t.Errorf("got %+v and %v", w, err)
	}
	for _, row := range []string{"1,0,5", "1,5,0", "-1,5,5", "x,5,5", "1e18,5,5"} {
		if _, err := readLengthTable([]byte("arrived_at,num_prefill_tokens,num_decode_tokens\n"+row+"\n"), "t.csv"); err == nil {
			t.Errorf("%s was read", row)
		}
	}
}

// TestSpecRanges: the parameters of arrivals at both ends of their ranges, and just beyond.
func TestSpecRanges(t *testing.T) {
	client := func(change func(c *specClient)) error {
		rate := 0.5
		c := specClient{RateFraction: rate}
		c.Arrival.Process = "gamma"
		change(&c)
		err := c.checkClient(&specV2{AggregateRate: 10})
		if err != nil && len(err.Error()) > 5 && err.Error()[:5] == "input" {
			return nil // the lengths are checked last
		}
		return err
	}
	ptr := testkit.Ptr
	for _, c := range []struct {
		name        string
		set         func(c *specClient, v float64)
		lo, hi      float64
		below, over float64
	}{
		{"cv", func(c *specClient, v float64) { c.Arrival.CV = ptr(v) }, 0.01, 10.4, 0.0099, 10.41},
		{"shape", func(c *specClient, v float64) { c.Arrival.Shape = ptr(v) }, 0.001, 1_000_000, 0.00099, 1_000_001},
		{"scale", func(c *specClient, v float64) { c.Arrival.ScaleUs = ptr(v) }, 0.000001, 1e15, 0.00000099, 1.01e15},
	} {
		for v, ok := range map[float64]bool{c.lo: true, c.hi: true, c.below: false, c.over: false} {
			if err := client(func(s *specClient) { c.set(s, v) }); (err == nil) != ok {
				t.Errorf("arrival.%s %g: got %v", c.name, v, err)
			}
		}
	}
}

// TestTableOfUnknownColumns: a CSV with other columns is not read as a generator in YAML.
func TestTableOfUnknownColumns(t *testing.T) {
	_, _, err := Read([]byte("time,in,out\n0,100,20\n"), "t.csv")
	if err == nil || !strings.Contains(err.Error(), "columns: got time,in,out, want prompt and output") {
		t.Errorf("got %v, want an error about the columns", err)
	}
}
