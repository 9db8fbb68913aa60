package autoscale

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func some(v int64) trace.Opt[int64] { return trace.Some(v) }

// TestIdleOverheadIsMilliseconds: of waits of 1 to 21 ms the fifth percentile is the second, 2 ms.
func TestIdleOverheadIsMilliseconds(t *testing.T) {
	run := &trace.Run{Requests: []trace.Request{{}, {ArrivedNs: some(9)}, {QueuedNs: some(9)}, {ArrivedNs: some(5e6), QueuedNs: some(4e6)}}}
	if ms, ok := idleOverheadMs(run); ok || ms != 0 {
		t.Errorf("no pair of stamps in order: got %g ms, %v", ms, ok)
	}
	for i := range int64(21) {
		run.Requests = append(run.Requests, trace.Request{ArrivedNs: some(7e9), QueuedNs: some(7e9 + (i+1)*1e6)})
	}
	if ms, ok := idleOverheadMs(run); !ok || math.Abs(ms-2) > 1e-9 {
		t.Errorf("got %g ms, %v, want 2", ms, ok)
	}
	run = &trace.Run{Requests: []trace.Request{{ArrivedNs: some(7), QueuedNs: some(7)}}}
	if ms, ok := idleOverheadMs(run); !ok || ms != 0 {
		t.Errorf("queued at once: got %g ms, %v", ms, ok)
	}
}

func TestLimitsOfAnEngine(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.MaxNumSeqs = 100
	d.Engine.MaxNumBatchedTokens = 3000
	d.Engine.BlockSize = 16
	d.Engine.KVBlocksGPU = some(500)
	l := limitsOf(d, &Options{})
	if l.MaxBatch != 100 || l.MaxBatchedTokens != 3000 || l.KVTokens == nil || *l.KVTokens != 8000 {
		t.Errorf("got %+v, want 100 requests, 3000 tokens a step, 8000 in KV", l)
	}
}

// TestSamplesOfRecords: arrival, first and last token of stock spans and of clients.
func TestSamplesOfRecords(t *testing.T) {
	us := trace.Some[float64]
	stock := trace.Request{StartWallNs: some(1e9), StockTTFTUs: us(2000), StockDecodeUs: us(5000), PromptTokens: some(30), OutputTokens: some(4)}
	want := sample{ArrivedNs: 1e9, FirstNs: 1e9 + 2e6, LastNs: 1e9 + 7e6, Prompt: 30, Output: 4, OK: true}
	if got, ok := stockSample(&stock); !ok || got != want {
		t.Errorf("got %+v, %v, want %+v", got, ok, want)
	}
	for name, change := range map[string]func(r *trace.Request){
		"TTFT":   func(r *trace.Request) { r.StockTTFTUs.OK = false },
		"decode": func(r *trace.Request) { r.StockDecodeUs.OK = false },
		"prompt": func(r *trace.Request) { r.PromptTokens.OK = false },
		"output": func(r *trace.Request) { r.OutputTokens.OK = false },
		"token":  func(r *trace.Request) { r.OutputTokens.V = 0 },
	} {
		r := stock
		change(&r)
		if got, ok := stockSample(&r); !ok || got.OK {
			t.Errorf("without %s: got %+v, %v, want an arrival only", name, got, ok)
		}
	}
	stock.StartWallNs.OK = false
	if _, ok := stockSample(&stock); ok {
		t.Error("a span without a start is a sample")
	}
	client := trace.ObservedRequest{SendNs: some(10), FirstChunkNs: some(20), LastChunkNs: some(30), QueuedNs: some(11), EngineFirstNs: some(18), EngineLastNs: some(29),
		PromptTokens: some(5), OutputTokens: some(2), Success: trace.Some(true)}
	for _, c := range []struct {
		name   string
		change func(o *trace.ObservedRequest)
		want   sample
	}{
		{"client", func(o *trace.ObservedRequest) {}, sample{ArrivedNs: 10, FirstNs: 20, LastNs: 30, Prompt: 5, Output: 2, OK: true}},
		{"engine's clock", func(o *trace.ObservedRequest) { o.FirstChunkNs.OK = false }, sample{ArrivedNs: 11, FirstNs: 18, LastNs: 29, Prompt: 5, Output: 2, OK: true}},
		{"no send", func(o *trace.ObservedRequest) { o.SendNs.OK = false }, sample{ArrivedNs: 11, FirstNs: 18, LastNs: 29, Prompt: 5, Output: 2, OK: true}},
		{"failed", func(o *trace.ObservedRequest) { o.Success.V = false }, sample{ArrivedNs: 10, FirstNs: 20, LastNs: 30, Prompt: 5, Output: 2}},
		{"aborted", func(o *trace.ObservedRequest) { o.Aborted = trace.Some(true) }, sample{ArrivedNs: 10, FirstNs: 20, LastNs: 30, Prompt: 5, Output: 2}},
		{"no output", func(o *trace.ObservedRequest) { o.OutputTokens.V = 0 }, sample{ArrivedNs: 10, FirstNs: 20, LastNs: 30, Prompt: 5}},
		{"no last chunk", func(o *trace.ObservedRequest) { o.LastChunkNs = trace.Opt[int64]{} }, sample{ArrivedNs: 10, FirstNs: 20, Prompt: 5, Output: 2}},
	} {
		o := client
		c.change(&o)
		got, n := fromObserved([]trace.ObservedRequest{o, {}})
		if n != 1 || len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: got %+v and %d without a start, want %+v and 1", c.name, got, n, c.want)
		}
	}
}

func TestSpansOfPhases(t *testing.T) {
	judged := &rows.LoadVerdicts{Phases: []rows.PhaseVerdict{
		{Name: "a", StartNs: 0, EndNs: 50}, {Name: "b", StartNs: 50, EndNs: 999, Load: deploy.LoadClosed},
		{Name: "c", StartNs: 60, EndNs: 70, LoadVerdict: rows.LoadVerdict{Saturated: true}},
	}}
	samples := []sample{{ArrivedNs: 10}, {ArrivedNs: 90}}
	first, last := arrivalSpan(samples)
	want := []Span{
		{Phase: "a", StartNs: first, EndNs: 50}, {Phase: "b", StartNs: 50, EndNs: last, Drop: closedLoop}, {Phase: "c", StartNs: 60, EndNs: 70, Drop: saturatedWindow},
	}
	if got := spansOf(samples, judged); !reflect.DeepEqual(got, want) || first != 10 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestSumsOfPredictions: a bias of -20 % is made up for by a factor of 1/0.8.
func TestSumsOfPredictions(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		e    *result.Errors
		want float64
	}{{nil, 1}, {&result.Errors{}, 1}, {&result.Errors{Bias: v(-0.2)}, 1.25}, {&result.Errors{Bias: v(0.25)}, 0.8}, {&result.Errors{Bias: v(-1)}, 1}} {
		if got := meanScale(c.e); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: got %g, want %g", c.e, got, c.want)
		}
	}
}

func TestBatchesOfALine(t *testing.T) {
	for largest, want := range map[int64][]int64{1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 4: {1, 2, 4}, 9: {1, 2, 4, 8, 9}} {
		if got := batchSizes(largest); !slices.Equal(got, want) {
			t.Errorf("%d: got %v, want %v", largest, got, want)
		}
	}
}

func TestTrackVerdicts(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		accepted, out int
		nis           *float64
		want          string
	}{
		{0, 9, v(2), "no window was accepted"}, {1, 4, v(2), "locked out: the last 4 windows were all rejected"}, {1, 3, v(2), "consistent"},
		{1, 0, nil, "a refit, no filter"}, {1, 0, v(0.99), "underconfident"}, {1, 0, v(1), "consistent"}, {1, 0, v(4), "consistent"}, {1, 0, v(4.01), "overconfident"},
	} {
		s := &queueTrack{}
		s.Accepted = c.accepted
		s.LockedOut = c.out
		s.MeanNIS = c.nis
		if got := trackVerdict(s); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: got %q, want %q", c, got, c.want)
		}
	}
}

// TestGuessesSolveTheirEquations: with alpha, beta and gamma the time to the first token of P prompt tokens is
// alpha + (beta+gamma)*P, and that between the tokens alpha + beta + gamma*(P + half the output).
func TestGuessesSolveTheirEquations(t *testing.T) {
	w := &window{RateRPS: 2, Shape: shape{Prompt: 100, Output: 19}}
	ms := func(alpha, beta, gamma float64) {
		w.TTFTMs = alpha + (beta+gamma)*100
		w.ITLMs = alpha + beta + gamma*(100+10)
	}
	near := func(name string, got, want []float64) {
		t.Helper()
		for i := range want {
			if len(got) != len(want) || math.Abs(got[i]-want[i]) > 1e-9*math.Max(1, math.Abs(want[i])) {
				t.Errorf("%s: got %v, want %v", name, got, want)
				return
			}
		}
	}
	ms(8, 0.05, 0.001)
	near("by the gamma before", guessParameters(wvA3P, w, []float64{1, 1, 0.001}), []float64{8, 0.05, 0.001})
	// Nine tenths of 10 ms are the constant, so beta + gamma is (TTFT - 9)/100: 0.005, which is below gamma, or 0.11.
	w.TTFTMs = 9.5
	w.ITLMs = 10
	near("without one", guessParameters(wvA3P, w, nil), defaultState)
	w.TTFTMs = 20
	both := (20.0 - 9) / 100
	gamma := (10 - 9 - both) / 109
	near("without one", guessParameters(wvA3P, w, nil), []float64{9, both - gamma, gamma})
	// A prompt of 2 and an answer of 1 token: beta is TTFT - ITL + gamma, alpha ITL - beta - 3 gamma.
	near("alpha is 0", guessParameters(wvA3P, &window{TTFTMs: 11, ITLMs: 10, Shape: shape{Prompt: 2, Output: 1}}, []float64{1, 2, 3}), []float64{1, 2, 3})
	near("beta is 0", guessParameters(wvA3P, &window{TTFTMs: 10, ITLMs: 12, Shape: shape{Prompt: 2, Output: 1}}, []float64{1, 2, 2}), []float64{1, 2, 2})
	near("an impossible one", guessParameters(wvA3P, w, []float64{1, 2, 5}), []float64{1, 2, 5})
	// In the older form: 2 a second take 20 + 18*10 ms, 0.4 are in service, which counts as one.
	near("older", guessParameters(wvA4P, w, nil), []float64{9, 1, 18, 2.0 / 100})
	w.RateRPS = 20
	near("older, four in service", guessParameters(wvA4P, w, nil), []float64{9, 1.0 / 4, 18, 2.0 / 400})
}

// TestJackknifeByHand: the fits 1, 2, 3 and 6 have squared deviations of 14, of which three quarters are the variance.
func TestJackknifeByHand(t *testing.T) {
	fits := [][]float64{{1, 10}, {2, 10}, nil, {3, 10}, {6, 10}}
	without := func(g int) []float64 { return fits[g] }
	half := jackknife(5, without)
	if len(half) != 2 || math.Abs(half[0]-3.182446305*math.Sqrt(14*0.75)) > 1e-6 || half[1] != 0 {
		t.Errorf("got %v", half)
	}
	if half := jackknife(4, without); half != nil {
		t.Errorf("three fits: got %v, want nothing", half)
	}
}

// TestLineValidity: contexts at the depths of the fit, chunks up to the prompt or one token below the budget.
func TestLineValidity(t *testing.T) {
	c := result.FitConfig{Covered: &result.Covered{PromptTokens: 11, OutputTokens: 12, Running: 13}}
	v := lineValidity(c, export.Lengths{Prompt: 300, Output: 200}, [2]int64{2, 64}, 512)
	depth := func(i int) int64 { return trace.Int(400 * iterationDepths[i]) }
	if v.Requests != [2]int64{2, 64} || v.ContextTokens != [2]int64{depth(0), depth(2)} || v.ChunkTokens != [2]int64{0, 300} ||
		v.LongestPrompt != 11 || v.LongestOutput != 12 || v.MostRunning != 13 {
		t.Errorf("got %+v", v)
	}
	v = lineValidity(result.FitConfig{}, export.Lengths{Prompt: 0, Output: 2}, [2]int64{1, 1}, 512)
	if v.ChunkTokens != [2]int64{0, 1} || v.LongestPrompt != 0 {
		t.Errorf("no prompt: got %+v", v)
	}
	if v := lineValidity(result.FitConfig{}, export.Lengths{Prompt: 900}, [2]int64{1, 1}, 512); v.ChunkTokens != [2]int64{0, 511} {
		t.Errorf("a prompt beyond the budget: got %+v", v)
	}
}

// TestOptionsOfADemand: an accelerator counts once, unless the parameters choose; every device needs a cost; tokens per
// second are an alternative to a rate.
func TestOptionsOfADemand(t *testing.T) {
	server := func(id, model, device string, count int64) QueueServer {
		return QueueServer{ID: id, Model: model, Accelerator: device, AccCount: count}
	}
	q := &Queue{Flavour: string(wvA3P), Servers: []QueueServer{server("a", "m", "H100", 1), server("b", "m", "H100", 1), server("c", "m", "H100", 2), server("d", "other", "L4", 1)}}
	p := &Problem{UnitCost: map[string]float64{"H100": 5}}
	for _, c := range []struct {
		name string
		s    problemServer
		want string
	}{
		{"twice", problemServer{Model: "m"}, ""},
		{"below 0", problemServer{Model: "m", TPS: -1}, "got tps -1 and rate_rps 0, want one of them"},
		{"too much", problemServer{Model: "m", TPS: 1e8 * 2}, "want one of them"},
		{"both", problemServer{Model: "m", TPS: 1, Demand: Demand{RateRPS: 2}}, "got tps 1 and rate_rps 2, want one of them"},
		{"no cost", problemServer{Model: "other"}, `unit_cost: got none for "L4"`},
	} {
		_, found, err := p.demand(&c.s, q)
		if c.want == "" {
			// None has parameters, so that each is a finding.
			if err == nil && len(found) == 0 {
				t.Errorf("%s: no finding", c.name)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestSeatsByHand: a request of 100 prompt and 50 answer tokens holds 125 KV tokens on average if all answers are alike,
// and takes 50 steps and 149 tokens.
func TestSeatsByHand(t *testing.T) {
	m := &model{shape: shape{Prompt: 100, Output: 50}, limits: Limits{MaxBatch: 64, MaxBatchedTokens: 1000}}
	check := func(name string, want int) {
		t.Helper()
		if got := m.correctedSeats(); got != want {
			t.Errorf("%s: got %d seats, want %d", name, got, want)
		}
	}
	if got := m.residentTokens(); got != 125 {
		t.Errorf("got %g tokens in service, want 125", got)
	}
	m.shape.OutputCV2 = 0.5
	if got := m.residentTokens(); got != 137.5 {
		t.Errorf("spread answers: got %g tokens in service, want 137.5", got)
	}
	m.shape.OutputCV2 = 0
	check("max_num_seqs", 64)
	kv := 2500.0
	m.limits.KVTokens = &kv
	check("KV cache", 20)
	kv = 2499
	check("a token less", 19)
	kv = 1
	check("hardly any cache", 1)
	kv = 0
	check("an unknown cache", 64)
	m.limits.KVTokens = nil
	// 60 tokens a step: a prompt takes 2 steps, so that 60*(2+49) tokens are 20.5 requests.
	m.limits.MaxBatchedTokens = 60
	check("token budget", 20)
	m.limits.MaxBatchedTokens = 100
	check("a prompt a step", 100*50/149)
	m.shape = shape{Prompt: 0, Output: 1}
	check("nothing to compute", 64)
}

// TestEffectiveParameters: an interval where there is one, what is held, and the shift from the physical value.
func TestEffectiveParameters(t *testing.T) {
	f := &fitted{X: []float64{8, 0.5, 0.25}, Lo: []float64{7, math.NaN(), 0.2}, Hi: []float64{9, math.NaN(), 0.3}, Held: []bool{false, true, false},
		PriorPart: []float64{0.125, math.NaN(), 0}}
	s := &Server{}
	got := s.effective(wvA3P, f)
	names, unit := wvA3P.Parameters(), units(wvA3P)
	for i, q := range got {
		if q.Name != names[i] || q.Unit != unit[i] || q.Value != f.X[i] || q.Shift != nil || q.Floor != nil || q.Utilisation != nil {
			t.Errorf("%d: got %+v", i, q)
		}
	}
	if *got[0].CI95 != [2]float64{7, 9} || got[1].CI95 != nil || *got[2].CI95 != [2]float64{0.2, 0.3} {
		t.Errorf("intervals: got %+v", got)
	}
	if got[0].Identified != measured || got[1].Identified != held || *got[0].PriorShare != 0.125 || got[1].PriorShare != nil || *got[2].PriorShare != 0 {
		t.Errorf("sources: got %+v", got)
	}
	s.Physical = &Physical{Params: params{AlphaMs: 4, BetaMs: 0.25, GammaMs: 1}, Floor: [3]float64{2, 0.125, 0.5}}
	got = s.effective(wvA3P, f)
	for i, want := range []struct{ shift, floor, use float64 }{{2, 2, 0.25}, {2, 0.125, 0.25}, {0.25, 0.5, 2}} {
		if q := got[i]; *q.Shift != want.shift || *q.Floor != want.floor || *q.Utilisation != want.use {
			t.Errorf("%d: got %g, %g and %g, want %+v", i, *q.Shift, *q.Floor, *q.Utilisation, want)
		}
	}
	// The form of four: 0.25 + 1*(10 + 4/2) a request and 0.25 + 1 a token.
	s.Physical.Prompt, s.Physical.Output = 10, 4
	four := &fitted{X: []float64{8, 24.5, 2, 5}, Lo: []float64{1, 1, 1, 1}, Hi: []float64{2, 2, 2, 2}, Held: make([]bool, 4), PriorPart: make([]float64, 4)}
	for i, q := range s.effective(wvA4P, four) {
		if want := []float64{2, 2, 0.5, 4}[i]; *q.Shift != want || q.Floor != nil || q.Utilisation != nil {
			t.Errorf("four, %d: got %+v with a shift of %g, want %g", i, q, *q.Shift, want)
		}
	}
}
