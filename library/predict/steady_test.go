package predict

import (
	"context"
	"math"
	"testing"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func TestLongerWarmUp(t *testing.T) {
	for _, c := range []struct {
		name        string
		e2eMs       []float64
		hadS, idleS float64
		saturated   bool
		needsS      float64
		isLonger    bool
	}{
		{name: "twice the answers", e2eMs: []float64{4000, 6000}, hadS: 9, idleS: 9, needsS: 10, isLonger: true},
		{name: "long enough", e2eMs: []float64{4000, 6000}, hadS: 10, idleS: 9, needsS: 10},
		{name: "at most of the idle server's", e2eMs: []float64{90_000}, hadS: 3, idleS: 3, needsS: 20, isLonger: true},
		{name: "at most 300 s", e2eMs: []float64{900_000}, hadS: 60, idleS: 60, needsS: 300, isLonger: true},
		{name: "saturated", e2eMs: []float64{90_000}, hadS: 3, idleS: 3, saturated: true, needsS: 3},
		{name: "no answers", hadS: 3, idleS: 3, needsS: 3},
	} {
		st := &SteadyState{WarmUpS: c.hadS, idleS: c.idleS, load: Load{Clients: 1}}
		isLonger := st.Lengthen(&Sample{E2E: c.e2eMs, Saturated: c.saturated, startS: c.hadS}) // all clients have started
		if math.Abs(st.WarmUpS-c.needsS) > 1e-9 || isLonger != c.isLonger {
			t.Errorf("%s: got %g s, %t, want %g s, %t", c.name, st.WarmUpS, isLonger, c.needsS, c.isLonger)
		}
	}
}

// TestLoopThatIsMeasuredTooEarly: measuring begins when four fifths of the clients have started, or one request of each
// later.
func TestLoopThatIsMeasuredTooEarly(t *testing.T) {
	for _, c := range []struct {
		startS float64
		want   int
	}{{7.9, 16}, {8, 0}, {12, 0}} {
		st := &SteadyState{WarmUpS: 10, Measured: 5, idleS: 9, load: Load{Clients: 16, InputTokens: 100, OutputTokens: 10}}
		sample := &Sample{E2E: []float64{5000}, startS: c.startS}
		if changed := st.Lengthen(sample); changed != (c.want > 0) || st.load.Before != c.want || st.WarmUpS != 10 {
			t.Errorf("from %g s on: got %t, %d requests more and a warm-up of %g s, want %d", c.startS, changed, st.load.Before, st.WarmUpS, c.want)
		}
		if c.want > 0 && st.Lengthen(sample) {
			t.Errorf("from %g s on: repeated again", c.startS)
		}
		s, err := st.Stretch(1, 1)
		if err != nil || s.from != 2*16+c.want {
			t.Errorf("from %g s on: the first measured request is %d, %v", c.startS, s.from, err)
		}
	}
}

// TestLittlesLawOfAFullLoop: where the KV cache runs a third of the clients' requests at once, the answers of the steady
// state take as long as all clients wait for them: clients / throughput.
func TestLittlesLawOfAFullLoop(t *testing.T) {
	q := onL4(120, 0)
	q.InputTokens = 1000
	q.OutputTokens = 60
	p, err := q.Predict(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.KVPeakShare < 0.9 {
		t.Fatalf("got %g of the KV cache in use, want a full one", p.KVPeakShare)
	}
	inFlight := p.RequestsPerS * *p.E2E.Mean / 1e3
	if math.Abs(inFlight/120-1) > 0.03 {
		t.Errorf("got %g requests in the system at %g requests/s and %g ms, want 120", inFlight, p.RequestsPerS, *p.E2E.Mean)
	}
}

// TestRestartByHand: an answer of an idle server takes 1 s, 10 requests arrive each second, and 100 may run at once.
func TestRestartByHand(t *testing.T) {
	for _, c := range []struct {
		name           string
		e2eS, inFlight float64
		start          int // requests in flight when the simulation began
		want           int // when it is to begin again; 0: it was in its steady state
		wantS          float64
	}{
		// 20 requests add 1 s: b = 0.05 s, n = 10/(1 - 0.5). Half of the difference stays for each of 1.5 answers.
		{"from idle", 2, 20, 0, 20, 4},
		{"from the steady state", 2, 20, 20, 0, 0},
		// 0.35 of a difference of 15 % is 5 %.
		{"from a little less", 2, 20, 18, 0, 0},
		{"from more", 2, 20, 30, 20, 4},
		// 0.09 of the difference stays for each of 2.7 answers.
		{"light load", 1.1, 11, 0, 0, 0},
		// b = 3/20 s: no number of requests is served at this rate. It begins with four fifths of the seats.
		{"overload", 4, 20, 0, 80, 16},
		{"overload again", 4, 20, 80, 0, 0},
	} {
		st := &SteadyState{WarmUpS: 3, Measured: 1000, idleS: 3, seats: 100, load: Load{RateRPS: 10, InFlight: c.start}}
		changed := st.Lengthen(&Sample{E2E: []float64{c.e2eS * 1e3}, MeanInFlight: c.inFlight})
		if c.want == 0 {
			if changed {
				t.Errorf("%s: got %+v, want no change", c.name, st)
			}
			continue
		}
		if !changed || st.load.InFlight != c.want || !near(st.WarmUpS, c.wantS) {
			t.Errorf("%s: got %d in flight and %g s, want %d and %g s", c.name, st.load.InFlight, st.WarmUpS, c.want, c.wantS)
		}
	}
	// With more than half of the seats taken, 4/0.05 sqrt(100) requests are measured, which show an overload of 5 %; unless
	// it is clearly more.
	st := &SteadyState{WarmUpS: 3, Measured: 500, idleS: 3, seats: 100, load: Load{RateRPS: 40, InFlight: 60}}
	full := &Sample{E2E: []float64{1500}, MeanInFlight: 60, ServedS: 10, Served: 320, Saturated: true}
	if st.Lengthen(full); st.Measured != 500 {
		t.Errorf("40 requests/s, 32 served: got %d measured, want 500", st.Measured)
	}
	full.Served = 350
	if st.Lengthen(full); st.Measured != 800 {
		t.Errorf("40 requests/s, 35 served: got %d measured, want 800", st.Measured)
	}
}

// TestBeginLikeByHand: on a server of 100 seats whose idle answer takes 1 s, and 0.05 s more with each request, 10 requests/s
// are 20 in the system, and 15/s 60, which need as long a simulation as the other load. The server does not do 25/s.
func TestBeginLikeByHand(t *testing.T) {
	known := &SteadyState{Measured: 800, riseS: 0.05, load: Load{RateRPS: 14, Tail: 200}}
	for _, c := range []struct {
		name                     string
		load                     Load
		other                    *SteadyState
		inFlight, measured, tail int
		warmUpS                  float64
	}{
		{"half free", Load{RateRPS: 10}, known, 20, 500, 0, 4},
		{"nearly full", Load{RateRPS: 15}, known, 60, 800, 200, 8},
		{"overload", Load{RateRPS: 25}, known, 80, 500, 0, 6.4},
		{"nothing is known", Load{RateRPS: 10}, &SteadyState{}, 0, 500, 0, 3},
		{"closed loop", Load{Clients: 10}, known, 0, 500, 0, 3},
	} {
		st := &SteadyState{WarmUpS: 3, Measured: 500, idleS: 3, seats: 100, load: c.load}
		st.BeginLike(c.other)
		if st.load.InFlight != c.inFlight || st.Measured != c.measured || st.load.Tail != c.tail || !near(st.WarmUpS, c.warmUpS) {
			t.Errorf("%s: got %d in flight, %d measured, a tail of %d and %g s, want %d, %d, %d and %g s",
				c.name, st.load.InFlight, st.Measured, st.load.Tail, st.WarmUpS, c.inFlight, c.measured, c.tail, c.warmUpS)
		}
	}
}

// TestStartWith: of the k-th of n requests in flight k/n of the answer is made, and all tokens but one are in the cache.
func TestStartWith(t *testing.T) {
	l := Load{RateRPS: 100, InputTokens: 1000, OutputTokens: 400, InFlight: 8}
	s, err := l.Stretch(1, 20, 0.1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Requests) != 8+10+20+10 || s.from != 18 || s.until != 38 {
		t.Fatalf("got %d requests, of which %d to %d are measured, want 48, 18 to 38", len(s.Requests), s.from, s.until)
	}
	for i := range 8 {
		r := &s.Requests[i]
		all := float64(r.PromptTokens+r.OutputTokens) - 1000 // prompts and outputs vary by a tenth
		if made := float64(r.PromptTokens) - 1000; math.Abs(made/all-(float64(i)+0.5)/8) > 0.3 || r.CachedTokens.V != r.PromptTokens-1 || r.ArrivalUs != 0 {
			t.Errorf("%d: got %+v", i, r)
		}
	}
	if s.Requests[0].OutputTokens < 8*s.Requests[7].OutputTokens {
		t.Errorf("got %d and %d output tokens left, want 15 to 1", s.Requests[0].OutputTokens, s.Requests[7].OutputTokens)
	}
	if s.Requests[8].ArrivalUs == 0 || s.Requests[8].CachedTokens.OK {
		t.Errorf("got %+v, want an arrival of its own", s.Requests[8])
	}
}

// TestHighestLoadOfLongAnswers: what a server does in a closed loop of many clients it also does at a rate, though it takes
// many answers until so many requests run. A load of which each answer is as long as a third of what is measured is no
// overload.
func TestHighestLoadOfLongAnswers(t *testing.T) {
	q := DefaultQuestion()
	q.Model = "Qwen/Qwen3-8B"
	q.Hardware = "H100"
	q.InputTokens = 100
	q.OutputTokens = 600
	q.Serve = "--max-num-seqs 256"
	q.Concurrency = 200
	loop, err := q.Predict(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	q.Concurrency = 0
	q.RateRPS = 0.97 * loop.RequestsPerS
	open, err := q.Predict(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if open.Saturated || math.Abs(open.RequestsPerS/q.RateRPS-1) > 0.03 {
		t.Errorf("%g of %g requests/s are served, want all: a loop of 200 clients gets %g", open.RequestsPerS, q.RateRPS, loop.RequestsPerS)
	}
	q.RateRPS = 1.3 * loop.RequestsPerS
	if open, err = q.Predict(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !open.Saturated {
		t.Errorf("%g of %g requests/s are served, want an overload: a loop of 200 clients gets %g", open.RequestsPerS, q.RateRPS, loop.RequestsPerS)
	}
}

// TestPartsOfAnswers: of the answers that overlap 10 to 20 us, one is whole in it, and half and a quarter of two others. One
// that ends later in 3 us takes 7 us, the mean of the two that end in time.
func TestPartsOfAnswers(t *testing.T) {
	var requests []sim.RequestResult
	for _, s := range [][2]int64{{11, 15}, {5, 15}, {15, 35}, {1, 9}, {20, 21}} {
		requests = append(requests, sim.RequestResult{ScheduledUs: trace.Some(s[0]), DepartedUs: trace.Some(s[1]), OutputTokens: 100,
			Outcome: sim.OutcomeFinished})
	}
	check := func(name string, served int, tokens int64) {
		t.Helper()
		m := &Sample{}
		m.countParts(requests, 10, 20)
		if m.Served != served || m.Tokens != tokens {
			t.Errorf("%s: got %d requests and %d tokens, want %d and %d", name, m.Served, m.Tokens, served, tokens)
		}
	}
	requests = append(requests, sim.RequestResult{ScheduledUs: trace.Some[int64](11), DepartedUs: trace.Some[int64](12)}, sim.RequestResult{})
	check("1.75 answers", 2, 175)
	requests = append(requests, sim.RequestResult{ScheduledUs: trace.Some[int64](18), DepartedUs: trace.Some[int64](21), OutputTokens: 700,
		Outcome: sim.OutcomeFinished})
	check("2 of 7 us more", 2, 375)
}

// TestThroughputOfAnOverload: an overloaded server does about the same whatever the overload is, though its batch ends in
// waves.
func TestThroughputOfAnOverload(t *testing.T) {
	q := DefaultQuestion()
	q.Model = "Qwen/Qwen3-8B"
	q.Hardware = "H100"
	q.InputTokens = 1000
	q.OutputTokens = 600
	var served []float64
	for _, rate := range []float64{15.9, 36} {
		q.RateRPS = rate
		p, err := q.Predict(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !p.Saturated {
			t.Errorf("%g requests/s: not saturated", rate)
		}
		served = append(served, p.RequestsPerS)
	}
	if math.Abs(served[0]/served[1]-1) > 0.1 {
		t.Errorf("got %g and %g requests/s, want about the same", served[0], served[1])
	}
}

func TestFallBehind(t *testing.T) {
	samples := func(grew float64, behind ...float64) (out []*Sample) {
		for _, b := range behind {
			out = append(out, &Sample{grew: grew, behind: b})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		samples []*Sample
		want    string
	}{
		{"each a little", samples(0.06, 0.05, 0.06, 0.07, 0.06), brokenSaturated},
		{"by chance", samples(0.06, -0.05, 0.06, 0.17, 0.06), ""},
		{"fewer arrive", samples(0.04, 0.09, 0.10, 0.11, 0.10), ""},
		{"one", samples(0.06, 0.06), ""},
	} {
		if got := Broken(c.samples, &Targets{}); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestSmallOverload: prompts that the server computes one after the other make a queue that varies so much that no single
// simulation shows an overload of a tenth. All of them do.
func TestSmallOverload(t *testing.T) {
	q := DefaultQuestion()
	q.Model = "Qwen/Qwen3-8B"
	q.Hardware = "H100"
	q.InputTokens = 8000
	q.OutputTokens = 10
	q.Concurrency = 64
	loop, err := q.Predict(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	q.Concurrency = 0
	for _, c := range []struct {
		ofLoop float64
		want   bool
	}{{0.95, false}, {1.07, true}} {
		q.RateRPS = c.ofLoop * loop.RequestsPerS
		p, err := q.Predict(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if p.Saturated != c.want {
			t.Errorf("%g of %g requests/s are served: saturated %t, want %t: a loop of 64 clients gets %g", p.RequestsPerS, q.RateRPS, p.Saturated,
				c.want, loop.RequestsPerS)
		}
	}
}
