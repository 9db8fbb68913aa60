package predict

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestEstimatesByHand: means with their intervals, and with six replications the regression on the excess of arrivals.
func TestEstimatesByHand(t *testing.T) {
	of := func(s *Sample) float64 { return s.ServedS }
	samples := func(values, excess []float64) (out []*Sample) {
		for i := range values {
			out = append(out, &Sample{ServedS: values[i], excess: excess[i], TTFT: make([]float64, 10)})
		}
		return out
	}
	if got := ValueOf(samples([]float64{7}, []float64{0.1}), of); got != (Value{7, 7, 7}) {
		t.Errorf("one replication: got %+v", got)
	}
	three := samples([]float64{6, 8, 10}, []float64{-0.1, 0, 0.1})
	half := stat.StudentT(0.975, 2) * 2 / math.Sqrt(3)
	if got := ValueOf(three, of); !near(got.Value, 8) || !near(got.Low, 8-half) || !near(got.High, 8+half) {
		t.Errorf("three: got %+v, want 8 +- %g", got, half)
	}
	// Values 10 + 20 x excess +- 1: the mean excess is 0.05 and the squares of the excess about it are 0.175.
	excess := []float64{-0.2, -0.1, 0, 0.1, 0.2, 0.3}
	values := []float64{7, 7, 11, 11, 13, 17}
	e := estimateOf(samples(values, excess), of)
	mean := 11.0
	products := -0.25*-4 + -0.15*-4 + -0.05*0 + 0.05*0 + 0.15*2 + 0.25*6
	slope := products / 0.175
	squares := 0.0
	for i, x := range excess {
		off := values[i] - mean - slope*(x-0.05)
		squares += off * off
	}
	residual := math.Sqrt(squares / 4)
	wantHalf := stat.StudentT(0.975, 4) * residual * math.Sqrt(1./6+0.05*0.05/0.175)
	if !near(e.slope, slope) || !near(e.mean, mean-slope*0.05) || !near(e.residual, residual) || !near(e.half, wantHalf) {
		t.Errorf("got %+v, want %g +- %g, slope %g, residual %g", e, mean-slope*0.05, wantHalf, slope, residual)
	}
	if got := estimateOf(samples(values[:5], excess[:5]), of); got.slope != 0 {
		t.Errorf("five replications: got %+v", got)
	}
	if got := estimateOf(samples(values, make([]float64, 6)), of); got.slope != 0 || !near(got.mean, 11) {
		t.Errorf("no excess: got %+v", got)
	}
	values[0] = math.Inf(1)
	if got := estimateOf(samples(values, excess), of); got.slope != 0 {
		t.Errorf("an infinite value: got %+v", got)
	}
	// A repetition of 40 requests where a replication has 10, at most 10 % wide.
	same := samples([]float64{6, 8, 10}, make([]float64, 3))
	perReplication := estimateOf(same, of)
	own := half / 1.96
	repeated := 1.96 * math.Sqrt(perReplication.residual*perReplication.residual*10/40+own*own)
	if got := Widened(same, of, 40, 10); !near(got.High-8, math.Max(half, repeated)) || !near(8-got.Low, got.High-8) {
		t.Errorf("got %+v, want 8 +- %g", got, repeated)
	}
	if got := Widened(samples([]float64{8, 8.1, 7.9}, make([]float64, 3)), of, 1, 0.1); !near(got.High-got.Value, 0.4) {
		t.Errorf("no wider than 10 %%: got %+v", got)
	}
}

// TestTargetsByHand: statistics and shares at the ends of their ranges.
func TestTargetsByHand(t *testing.T) {
	for figure, want := range map[string]float64{"": 0.9, "mean": 0, "p50": 0.5, "p1": 0.01, "p99.9": 0.999, "p0.99": -1, "p99.91": -1, "50": -1, "px": -1, "p": -1} {
		if got, ok := parseFigure(figure); ok != (want >= 0) || ok && !near(got, want) {
			t.Errorf("%q: got %g, %v", figure, got, ok)
		}
	}
	for text, want := range map[string]float64{"95%": 0.95, "95": 0.95, "0.95": 0.95, "1": 1, "100%": 1, "0.5%": 0.005, "0": -1, "101%": -1, "-1": -1, "x": -1} {
		if got, err := parseShare(text); (err == nil) != (want >= 0) || err == nil && !near(got, want) {
			t.Errorf("%q: got %g, %v", text, got, err)
		}
	}
	for metric, want := range map[string]float64{TTFT: 0.5, TPOT: 0.2, ITL: 0.2, E2E: 0.3} {
		if got := (Errors{TTFT: 0.5, TPOT: 0.2, E2E: 0.3}).Of(metric); got != want {
			t.Errorf("%s: got %g", metric, got)
		}
		if got := EqualErrors(-0.1).Of(metric); got != -0.1 {
			t.Errorf("equal errors of %s: got %g", metric, got)
		}
	}
	for tokens, want := range map[int64][2]int64{1000: {980, 1020}, 1024: {1003, 1045}, 350: {343, 357}, 50: {49, 51}, 8: {7, 9}, 3: {2, 4}, 2: {2, 2}, 1: {1, 1}} {
		if got := spread(tokens); got.Min != want[0] || got.Max != want[1] || got.Kind != "uniform" {
			t.Errorf("%d tokens: got %+v", tokens, got)
		}
	}
	requests := []sim.Request{{ID: "a"}, {ID: "b", After: 1, Hashes: []uint64{5}}}
	for n, want := range map[int]int{1: 2, 2: 2, 3: 4, 4: 4, 5: 6} {
		got := repeated(slices.Clone(requests), n)
		if len(got) != want {
			t.Errorf("at least %d: got %d", n, len(got))
		}
		if want > 2 && (got[3].ID != "b+3" || got[3].After != 3 || got[3].Hashes[0] != 5^2<<40 || got[2].After != 0 || requests[1].Hashes[0] != 5) {
			t.Errorf("got %+v", got[3])
		}
	}
}

// TestStretchesByHand: how many requests come before and after those that are measured.
func TestStretchesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		load          Load
		before, after int
		meanSpanS     float64
	}{
		"arrivals": {Load{RateRPS: 3, InputTokens: 10, OutputTokens: 5}, 8, 8, 4. / 3}, // 7.5 in 2.5 s
		"clients":  {Load{Clients: 5, InputTokens: 10, OutputTokens: 5}, 10, 7, 0},
	} {
		s, err := c.load.Stretch(1, 5, 2.5, 1)
		if err != nil || s.from != c.before || s.until != c.before+5 || len(s.Requests) != c.before+5+c.after || !near(s.meanSpanS, c.meanSpanS) {
			t.Errorf("%s: got %d to %d of %d, %g s, %v", name, s.from, s.until, len(s.Requests), s.meanSpanS, err)
		}
		measured := 0
		for i := range s.Requests {
			if !s.Requests[i].Unmeasured {
				measured++
			}
		}
		if measured != 5 || s.Requests[c.before].Unmeasured || !s.Requests[c.before+5].Unmeasured {
			t.Errorf("%s: got %d measured", name, measured)
		}
		start, err := c.load.Start(1, 2.5)
		first := map[string]int{"arrivals": 8, "clients": 5}[name]
		if err != nil || start.from != 0 || start.until != first {
			t.Errorf("%s: the start has %d to %d, %v", name, start.from, start.until, err)
		}
	}
	if _, err := (&Load{Clients: 5}).Start(1, 1); err == nil {
		t.Error("a load without lengths starts")
	}
	w := &workload.Workload{Requests: []sim.Request{{PromptTokens: 5}, {PromptTokens: 6, ArrivalUs: 4}, {PromptTokens: 7, ArrivalUs: 3}}}
	l := &Load{Workload: w}
	for tokens, want := range map[int64]int{5: 3, 6: 2, 7: 1, 8: 0} {
		if got := l.CountLonger(tokens); got != want {
			t.Errorf("longer than %d: got %d", tokens, got)
		}
	}
	if lastArrivalUs(w.Requests) != 4 || !l.IsRecording() || !(&Load{Workload: w, RateRPS: 3}).IsRecording() || (&Load{Workload: w, Clients: 3}).IsRecording() || (&Load{}).IsRecording() {
		t.Error("a recording is a workload without clients")
	}
	l = &Load{CachedShare: 0.5}
	if l.markCached(w.Requests); w.Requests[0].CachedTokens != trace.Some[int64](2) || w.Requests[2].CachedTokens != trace.Some[int64](3) {
		t.Errorf("got %+v", w.Requests)
	}
	l = &Load{Workload: w, Clients: 2}
	s, err := l.drawWorkload(1, 3, 0.5)
	if err != nil || s.from != 4 || s.until != len(s.Requests)-4 || len(s.Requests) != 12 {
		t.Errorf("clients: got %d to %d of %d, %v", s.from, s.until, len(s.Requests), err)
	}
	l = &Load{Workload: w, RateRPS: 1000}
	if s, err = l.drawWorkload(1, 3, 0); err != nil || lastArrivalUs(s.Requests) != 3000 {
		t.Errorf("three requests at 1000 per s: the last comes at %d us, %v", lastArrivalUs(s.Requests), err)
	}
}

// TestPartsOfTTFTByHand: two requests, of which the first waits in the front end, in the queue and for the running step.
func TestPartsOfTTFTByHand(t *testing.T) {
	us := trace.Some[int64]
	w := &stepParts{steps: map[int64][library.NumTimeParts]float64{3: {library.LinearTime: 100}, 4: {library.LinearTime: 200, library.LaunchTime: 50}, 5: {library.LinearTime: 1e9}}}
	r := sim.RequestResult{ArrivalUs: 1000, EnqueuedUs: us(1300), ScheduledUs: us(2000), FirstTokenUs: us(3000), FirstStep: 4}
	r.ScheduledStep = 3
	res := &sim.Result{Requests: []sim.RequestResult{r, r, r, r}}
	res.Requests[1].Preemptions = 1
	res.Requests[2].ScheduledStep = 0
	s := &Stretch{Requests: make([]sim.Request, 4)}
	s.Requests[3].Unmeasured = true
	var got requestParts
	w.addRequests(s, res, &got)
	ttft, _ := r.TTFTUs()
	want := requestParts{requests: 1, frontUs: ttft - 1700, queueUs: 700, waitUs: 1000 - 350}
	want.stepsUs[library.LinearTime], want.stepsUs[library.LaunchTime] = 300, 50
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	res.Requests[3].ScheduledStep = 1
	s.Requests[3].Unmeasured = false
	if w.addRequests(s, res, &got); got.requests != 3 {
		t.Errorf("got %g requests", got.requests)
	}
	var list []string
	for i := range numShares {
		list = append(list, resourceOf(shareNames[i]))
	}
	if !slices.Equal(list, []string{"memory bandwidth", "memory bandwidth", "compute", "interconnect", "launches and host work", "launches and host work"}) {
		t.Errorf("got %q", list)
	}
	b := &stepBreakdown{us: [numShares]float64{1, 2, 3, 4, 5, 5}}
	for i, share := range b.shares() {
		if share.Name != shareNames[i] || !near(share.Share, b.us[i]/20) {
			t.Errorf("got %+v", share)
		}
	}
	if (&stepBreakdown{}).shares() != nil || (*stepBreakdown)(nil).shares() != nil {
		t.Error("no step has shares")
	}
}

// TestSamplesByHand: three measured requests in 10 s, of which one got no answer, and one before them.
func TestSamplesByHand(t *testing.T) {
	us := trace.Some[int64]
	answered := func(at, first, left, tokens int64) sim.RequestResult {
		return sim.RequestResult{ArrivalUs: at * 1e6, QueuedUs: us(at * 1e6), FirstTokenUs: us(first * 1e6), FinishedUs: us(left * 1e6), DepartedUs: us(left * 1e6), OutputTokens: tokens, Outcome: sim.OutcomeFinished}
	}
	results := []sim.RequestResult{answered(0, 2, 12, 11), answered(10, 11, 14, 4), {ArrivalUs: 15e6, QueuedUs: us(15e6), Outcome: sim.OutcomeUnfinished}, answered(20, 22, 30, 5)}
	s := &Stretch{Requests: make([]sim.Request, 4), meanSpanS: 8}
	s.Requests[0].Unmeasured = true
	m := NewSample(results, []*sim.Result{{}}, s)
	if !slices.Equal(m.TTFT, []float64{1000, 2000}) || !slices.Equal(m.E2E, []float64{4000, 10_000}) || !slices.Equal(m.TPOT, []float64{1000, 2000}) || m.lost != 1 {
		t.Errorf("got %v, %v, %v, %d lost", m.TTFT, m.E2E, m.TPOT, m.lost)
	}
	// From the first answer at 14 s to the last at 30 one more was answered; in flight from 10 to 20 s were the first for 2,
	// the second for 4 and the third for 5.
	if m.ServedS != 16 || m.Served != 1 || m.Tokens != 5 || !near(m.MeanInFlight, 1.1) || !near(m.excess, 1-10./8) {
		t.Errorf("got %g s, %d, %d tokens, %g in flight, an excess of %g", m.ServedS, m.Served, m.Tokens, m.MeanInFlight, m.excess)
	}
	for _, c := range []struct {
		metric   string
		quantile float64
		want     float64
	}{{TTFT, 0.5, 2000}, {TTFT, 0.25, 1500}, {TTFT, 0, math.Inf(1)}, {E2E, 0.5, 10_000}, {TPOT, 0.5, 2000}} {
		if got := m.Figure(c.metric, c.quantile); got != c.want {
			t.Errorf("%s %g: got %g, want %g", c.metric, c.quantile, got, c.want)
		}
	}
	if got := m.Goodput([]Target{{Metric: TTFT, LimitMs: 1000}, {Metric: E2E, LimitMs: 4000}}); !near(got, 1./3) {
		t.Errorf("got a goodput of %g", got)
	}
	if got := m.Goodput([]Target{{Metric: TPOT, LimitMs: 999}}); got != 0 {
		t.Errorf("got a goodput of %g", got)
	}
	first := m.ascending(TTFT)
	if again := m.ascending(TTFT); &first[0] != &again[0] {
		t.Error("the values are sorted again")
	}
}

// TestEdgesOfAQuestion: batches and requests just at and just beyond each limit of an engine: 3 requests, 50 tokens, contexts of 100, 20 blocks of 16.
func TestEdgesOfAQuestion(t *testing.T) {
	d := testkit.Small(20, func(e *vllm.Engine) {
		e.MaxNumSeqs, e.MaxNumBatchedTokens, e.BlockSize, e.MaxModelLen = 3, 50, 16, trace.Some[int64](100)
	})
	chunk := func(computed, n int64) trace.Chunk {
		return trace.Chunk{Computed: computed, Prompt: computed + n, New: n}
	}
	for _, c := range []struct {
		name  string
		batch []trace.Chunk
		want  string
	}{
		{"at all limits", []trace.Chunk{chunk(52, 48), chunk(95, 1), chunk(95, 1)}, ""},
		{"a context too long", []trace.Chunk{chunk(100, 1)}, "--step: got a context of 101 tokens, want at most 100, the longest of the model"},
		{"a request too many", []trace.Chunk{chunk(0, 1), chunk(0, 1), chunk(0, 1), chunk(0, 1)}, "--step: got 4 requests, want at most max_num_seqs, 3"},
		{"a token too many", []trace.Chunk{chunk(0, 50), chunk(0, 1)}, "--step: got 51 tokens, want at most max_num_batched_tokens, 50"},
	} {
		got := ""
		if err := checkBatch(d, c.batch); err != nil {
			got = strings.TrimPrefix(err.Error(), "bad_sim_config: ")
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		blocks int64
		want   string
	}{{13, ""}, {12, "--step: got contexts of 13 KV blocks, want at most the 12 of the cache"}} { // 6 of 96 tokens, 7 of 97
		d.Engine.KVBlocksGPU.V = c.blocks
		got := ""
		if err := checkBatch(d, []trace.Chunk{chunk(95, 1), chunk(96, 1)}); err != nil {
			got = strings.TrimPrefix(err.Error(), "bad_sim_config: ")
		}
		if got != c.want {
			t.Errorf("%d blocks: got %q, want %q", c.blocks, got, c.want)
		}
	}
	// A model with layers of several kinds, of which one group has full attention: a request also takes blocks for windows.
	windows, _, err := (&Question{Model: "openai/gpt-oss-20b", Hardware: "H100", Concurrency: 1, InputTokens: 1, OutputTokens: 1}).Deployment()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		blocks int64
		want   string
	}{{87, ""}, {86, "--step: got contexts of 87 KV blocks, want at most the 86 of the cache"}} { // 63 + 9 of 1000 tokens, 7 + 8 of 100
		windows.Engine.KVBlocksGPU = trace.Some(c.blocks)
		got := ""
		if err := checkBatch(windows, []trace.Chunk{chunk(999, 1), chunk(99, 1)}); err != nil {
			got = strings.TrimPrefix(err.Error(), "bad_sim_config: ")
		}
		if got != c.want {
			t.Errorf("with windows, %d blocks: got %q, want %q", c.blocks, got, c.want)
		}
	}
	d.Engine.KVBlocksGPU.V = 20
	for _, c := range []struct {
		input, output, blocks int64
		want                  string
	}{
		{60, 40, 20, ""}, {61, 40, 20, "--input-len, --output-len: got 101 tokens together, want at most 100, the longest of the model"},
		{60, 36, 6, ""}, {60, 37, 6, "KV cache: got room for 96 tokens, want 60 and 37 of one request"},
	} {
		d.Engine.KVBlocksGPU.V = c.blocks
		p := &Prediction{InputTokens: c.input, OutputTokens: c.output}
		got := ""
		if err := new(Question).fitCache(p, d); err != nil {
			got = strings.TrimPrefix(strings.TrimPrefix(err.Error(), "bad_sim_config: "), "bad_hardware: ")
		}
		if got != c.want || p.KVTokens != 16*c.blocks && c.input < 61 {
			t.Errorf("%+v: got %q, %d tokens", c, got, p.KVTokens)
		}
	}
}

// TestDeploymentsOfQuestions: what --vllm and the flags beside it may say.
func TestDeploymentsOfQuestions(t *testing.T) {
	const llama = "meta-llama/Llama-3.1-8B-Instruct"
	for _, c := range []struct {
		serve, model string
		set          []string
		want         string // the error, else the size and the version
	}{
		{"--tensor-parallel-size 2", llama, nil, "tp 2, 0.24.0"},
		{"vllm serve " + llama + " --tensor-parallel-size 2", "", nil, "tp 2, 0.24.0"},
		{"serve " + llama + " --tensor-parallel-size 2", "", nil, "tp 2, 0.24.0"},
		{"python -m vllm.entrypoints.openai.api_server --model " + llama + " --tensor-parallel-size 4", "", nil, "tp 4, 0.24.0"},
		{"docker run vllm/vllm-openai:v0.21.0 --model " + llama + " --tensor-parallel-size 4", "", nil, "tp 4, 0.21.0"},
		{"", llama, []string{"tensor_parallel_size=8", "vllm.version=0.20.0"}, "tp 8, 0.20.0"},
		{"--tensor-parallel-size 2", llama, []string{"tensor_parallel_size=2"}, "tp 2, 0.24.0"},
		{"--tensor-parallel-size 2", llama, []string{"tensor_parallel_size=4"}, "bad_knobs: tensor_parallel_size: got 2 in --vllm and 4 beside it"},
		{"serve Qwen/Qwen3-8B", llama, nil, "bad_knobs: model.id: got Qwen/Qwen3-8B in --vllm and " + llama + " beside it"},
	} {
		d, findings, err := (&Question{Model: c.model, Hardware: "H100", Serve: c.serve, Set: c.set}).Deployment()
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("tp %d, %s", d.TP, d.Engine.VLLMVersion)
		}
		if got != c.want {
			t.Errorf("%q, %q: got %q, want %q (%v)", c.serve, c.set, got, c.want, findings)
		}
	}
	_, findings, err := (&Question{Model: "Qwen/QwQ-32B", Hardware: "H100"}).Deployment()
	if err != nil || !slices.ContainsFunc(findings, func(f trace.Finding) bool {
		return f.Message == "Qwen/QwQ-32B has the layers of Qwen/Qwen2.5-32B-Instruct, whose configuration is taken"
	}) {
		t.Errorf("got %v, %v", findings, err)
	}
	p, err := (&Question{Model: llama, Hardware: "H100", RateRPS: 7, InputTokens: 100, OutputTokens: 10}).Plan(context.Background(), []trace.Chunk{{Computed: 9, Prompt: 10, New: 1}, {Computed: 9, Prompt: 10, New: 1}})
	if err != nil || p.Concurrency != 2 || p.RateRPS != 0 || p.Step == nil || p.Bound {
		t.Errorf("got %+v, %v", p, err)
	}
}

// TestDrawnWorkloads: a recording keeps its times, is scaled to a rate, or is refused without arrivals and a rate.
func TestDrawnWorkloads(t *testing.T) {
	recorded := func(at ...int64) *workload.Workload {
		w := &workload.Workload{}
		for _, us := range at {
			w.Requests = append(w.Requests, sim.Request{PromptTokens: 5, MaxTokens: 3, OutputTokens: 3, ArrivalUs: us})
		}
		return w
	}
	for _, c := range []struct {
		name string
		w    *workload.Workload
		rate float64
		want int64 // us, of the last arrival; -1: drawn; -2: an error
	}{{"as recorded", recorded(0, 1e6, 4e6), 0, 4e6}, {"scaled to 3 per s", recorded(0, 1e6, 4e6), 3, 1e6}, {"drawn", recorded(0, 0, 0), 3, -1}, {"no arrivals", recorded(0, 0, 0), 0, -2}} {
		s, err := (&Load{Workload: c.w, RateRPS: c.rate}).drawWorkload(1, 3, 0)
		switch {
		case c.want == -2:
			if err == nil || !strings.Contains(err.Error(), "workload: got requests without arrivals, want a rate or clients") {
				t.Errorf("%s: got %v", c.name, err)
			}
		case err != nil:
			t.Errorf("%s: got %v", c.name, err)
		case c.want >= 0 && lastArrivalUs(s.Requests) != c.want || c.want < 0 && lastArrivalUs(s.Requests) == 0 || (s.drawnExcess != 0) != (c.want < 0):
			t.Errorf("%s: the last comes at %d us, an excess of %g", c.name, lastArrivalUs(s.Requests), s.drawnExcess)
		}
	}
}

// TestWidenedByHand: what another hundred requests may show besides the interval of the mean.
func TestWidenedByHand(t *testing.T) {
	var samples []*Sample
	for _, ms := range []float64{100, 110, 120, 130} {
		samples = append(samples, &Sample{TTFT: []float64{ms, ms}, lost: 1})
	}
	of := func(s *Sample) float64 { return s.TTFT[0] }
	e := estimateOf(samples, of)
	for requests, widest := range map[int]float64{1: 100, 100: 100, 50: 0.2, 1e9: 100} {
		own := e.half / 1.96
		half := 1.96 * math.Sqrt((e.residual*e.residual*3+e.slope*e.slope)/float64(requests)+own*own)
		half = math.Max(e.half, math.Min(half, widest/2*115))
		if got := Widened(samples, of, requests, widest); !near(got.Value, 115) || !near(got.Low, 115-half) || !near(got.High, 115+half) {
			t.Errorf("%d requests: got %+v, want 115 +- %g", requests, got, half)
		}
	}
}

// TestRangesOfParts: two requests; queueing and steps with the stated error of ITL, the front end with 1.645 standard
// errors of the host's, launches with those of the launches. A part below half a microsecond is left out.
func TestRangesOfParts(t *testing.T) {
	p := &Prediction{Step: &library.Step{Layers: 3, GPU: &library.GPU{}}, Trust: &simulate.Trust{Intervals90: &library.Intervals{TTFT: 0.25, ITL: 0.125}}}
	p.Hardware = "H100"
	learned := library.Learned()
	_, host := learned.Value(library.NumStep, p.Hardware)
	_, launch := p.Step.LaunchUs(learned)
	r := &requestParts{requests: 2, frontUs: 40_000, queueUs: 8000, waitUs: 0.9}
	r.stepsUs[library.LinearTime], r.stepsUs[library.LaunchTime] = 2000, 6000
	want := []TTFTPart{{Name: partFrontEnd, MeanMs: 20, LowMs: max(0, 20-1.645*host/1e3), HighMs: 20 + 1.645*host/1e3}, {Name: partQueueing, MeanMs: 4, LowMs: 3.5, HighMs: 4.5},
		{Name: stepPartNames[library.LinearTime], MeanMs: 1, LowMs: 0.875, HighMs: 1.125}, {Name: stepPartNames[library.LaunchTime], MeanMs: 3, LowMs: max(0, 3-1.645*launch/1e3), HighMs: 3 + 1.645*launch/1e3}}
	got := r.ranged(p)
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for _, w := range want {
		i := slices.IndexFunc(got, func(x TTFTPart) bool { return x.Name == w.Name })
		if i < 0 || !near(got[i].MeanMs, w.MeanMs) || !near(got[i].LowMs, w.LowMs) || !near(got[i].HighMs, w.HighMs) {
			t.Errorf("got %+v, want %+v", got, w)
		}
	}
	if got := (&requestParts{}).ranged(p); got != nil {
		t.Errorf("no request: got %+v", got)
	}
	p.Trust.Intervals90 = nil
	if e := p.StatedErrors(nil); e.TTFT != learned.Unseen.TTFT || e.TPOT != learned.Unseen.ITL {
		t.Errorf("without intervals: got %+v", e)
	}
}

// TestErrorOfE2E: E2E is off by as much as TTFT and the gaps after it are, each by its share of the answers' time; with no
// answer the larger of both bounds it.
func TestErrorOfE2E(t *testing.T) {
	p := &Prediction{Trust: &simulate.Trust{Intervals90: &library.Intervals{TTFT: 0.6, ITL: 0.1, E2E: 0.09}}}
	long := &Sample{TTFT: []float64{100, 300}, E2E: []float64{1000, 3000}} // a tenth of it is TTFT
	short := &Sample{TTFT: []float64{600}, E2E: []float64{1000}}           // with the long ones a fifth
	for _, c := range []struct {
		samples []*Sample
		want    float64
	}{
		{[]*Sample{long}, 0.1*0.6 + 0.9*0.1},
		{[]*Sample{long, short}, 0.2*0.6 + 0.8*0.1},
		{nil, 0.6},
		{[]*Sample{{}}, 0.6},
	} {
		if got := p.StatedErrors(c.samples); got.TTFT != 0.6 || got.TPOT != 0.1 || !near(got.E2E, c.want) {
			t.Errorf("got %+v, want %g for E2E", got, c.want)
		}
	}
}

// TestWarmUpsByHand: a warm-up lasts as long as that of an idle server, but brings at most 2 x 3 requests for each of 10
// seats of 2 ranks, which at 1,000 requests/s is 0.12 s.
func TestWarmUpsByHand(t *testing.T) {
	p := &Prediction{MaxNumSeqs: 10, DP: 2}
	for _, c := range []struct {
		load Load
		want float64 // s
	}{
		{Load{RateRPS: 60}, 2},
		{Load{RateRPS: 61}, 120. / 61},
		{Load{RateRPS: 1000}, 0.12},
		{Load{Clients: 1000}, 2},
	} {
		if got := p.SteadyState(c.load, 1, 2, 400); !near(got.WarmUpS, c.want) || got.idleS != 2 || got.Measured != 400 {
			t.Errorf("%g requests/s, %d clients: got %+v, want a warm-up of %g s", c.load.RateRPS, c.load.Clients, got, c.want)
		}
	}
}
