package rows

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestSumsFromTotals: what a step's totals give: variation, contexts from blocks, cached shares, sums, and the totals
// that give none.
func TestSumsFromTotals(t *testing.T) {
	for name, c := range map[string]struct {
		v    []float64
		want float64
	}{"none": {nil, 0}, "one": {[]float64{7}, 0}, "1 and 3": {[]float64{1, 3}, 0.25}, "mean 0": {[]float64{-1, 1}, 0}, "2, 4, 9": {[]float64{2, 4, 9}, 26.0 / 3 / 25}} {
		if got := squaredVariation(c.v); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: got %g, want %g", name, got, c.want)
		}
	}
	step := trace.Step{BlocksTotal: 100, BlocksFree: 60, NumDecodeReqs: 3, NumPrefillReqs: 1, PrefillTokens: 50}
	// 40 blocks of 16 tokens, of which half a block of four sequences is empty, less the prompt.
	if got := contextFromBlocks(&step, 16); got != 640-30-50 {
		t.Errorf("got a context of %g", got)
	}
	step.PrefillTokens = 609
	if got := contextFromBlocks(&step, 16); got != 3 {
		t.Errorf("a long prompt: got %g, want a token for each decode", got)
	}
	if step.NumDecodeReqs = 0; contextFromBlocks(&step, 16) != 0 {
		t.Error("no decodes have a context")
	}
	for want, s := range map[float64]*trace.Snapshot{0: {}, 0.25: {PromptTokens: 8, EffectivePromptLen: trace.Some(int64(6)), ComputedTokens: 4}, 0.5: {PromptTokens: 8, ComputedTokens: 4}, 1: {PromptTokens: 8, ComputedTokens: 9}} {
		if got := prefixHit11(s); got != want {
			t.Errorf("%+v: got %g, want %g", s, got, want)
		}
	}
	d := testDeployment()
	d.Engine.ChunkedPrefill = false
	whole := &trace.Step{NumPrefillReqs: 2, PrefillTokens: 30, NumDecodeReqs: 3, DecodeTokens: 3, ScheduledTokens: 33, BlocksTotal: 100, BlocksFree: 60}
	in, why := summary11(whole, d, 0.5, false)
	if why != reconstruct.Known || in.PrefillTokens != 30 || in.DecodeTokens != 3 || in.ScheduledTokens != 33 || in.NumPrefillReqs != 2 || in.NumDecodeReqs != 3 || in.NumSampledSeqs != 5 ||
		in.DecodeContextTokens != 640-37.5-30 || in.KVReadTokens != 640-37.5 || in.PrefillCausalWork != features.CausalFromTotals(30, 2, 0.5) {
		t.Errorf("got %+v, %q", in, why)
	}
	d.Engine.ChunkedPrefill = true
	if _, why := summary11(whole, d, 0.5, false); why != reconstruct.ChunkedTotals {
		t.Errorf("prompts in chunks: got %q", why)
	}
	if _, why := summary11(whole, d, 0.5, true); why != reconstruct.Known {
		t.Errorf("whole prompts: got %q", why)
	}
	decodes := &trace.Step{NumDecodeReqs: 3, DecodeTokens: 3, ScheduledTokens: 3}
	if _, why := summary11(decodes, d, 0.5, false); why != reconstruct.Known {
		t.Errorf("decodes alone: got %q", why)
	}
	if decodes.DecodeTokens = 4; true {
		if _, why := summary11(decodes, d, 0.5, false); why != reconstruct.RecomputedTotals {
			t.Errorf("more tokens than decodes: got %q", why)
		}
	}
}

// TestPromptsThatBegin: in which steps the totals determine how many prompts began, with and without the first decodes
// that an asynchronous engine counts as prompts.
func TestPromptsThatBegin(t *testing.T) {
	prompts := func(id, reqs, tokens int64) trace.Step {
		return trace.Step{ID: id, NumPrefillReqs: int32(reqs), PrefillTokens: int32(tokens), ScheduledTokens: int32(tokens)}
	}
	for name, c := range map[string]struct {
		steps  []trace.Step
		change func(d *deploy.Deployment)
		async  []int32
		sync   []int32
	}{
		"one prompt":        {[]trace.Step{prompts(1, 0, 0), prompts(2, 1, 40), prompts(3, 1, 1)}, nil, []int32{0, 1, 0}, []int32{0, 1, 1}},
		"two, then another": {[]trace.Step{prompts(1, 0, 0), prompts(2, 2, 40), prompts(3, 3, 32)}, nil, []int32{0, 2, 1}, []int32{0, 2, 3}},
		"the first step":    {[]trace.Step{prompts(1, 1, 40), prompts(2, 1, 1)}, nil, []int32{-1, -1}, []int32{-1, 1}},
		"after a gap":       {[]trace.Step{prompts(1, 0, 0), prompts(3, 1, 40)}, nil, []int32{0, -1}, []int32{0, -1}},
		"a full step":       {[]trace.Step{prompts(1, 0, 0), prompts(2, 1, 8192), prompts(3, 1, 40)}, nil, []int32{0, -1, -1}, []int32{0, -1, -1}},
		"nearly full":       {[]trace.Step{prompts(1, 0, 0), prompts(2, 1, 8191)}, nil, []int32{0, 1}, []int32{0, 1}},
		"long prompts":      {[]trace.Step{prompts(1, 0, 0), prompts(2, 1, 40)}, func(d *deploy.Deployment) { d.Engine.LongPrefillThreshold = 1 }, []int32{0, -1}, []int32{0, -1}},
		"too few tokens":    {[]trace.Step{prompts(1, 0, 0), prompts(2, 2, 1)}, nil, []int32{0, -1}, []int32{0, -1}},
		"fewer than first":  {[]trace.Step{prompts(1, 0, 0), prompts(2, 2, 40), prompts(3, 1, 1)}, nil, []int32{0, 2, -1}, []int32{0, 2, 1}},
	} {
		d := testDeployment()
		if c.change != nil {
			c.change(d)
		}
		for async, want := range map[bool][]int32{true: c.async, false: c.sync} {
			d.Engine.AsyncScheduling = trace.Some(async)
			if got := promptStarts(c.steps, d); !slices.Equal(got, want) {
				t.Errorf("%s, asynchronous %v: got %v, want %v", name, async, got, want)
			}
		}
	}
	s := relabelled(trace.Step{NumPrefillReqs: 3, PrefillTokens: 32, NumDecodeReqs: 5, DecodeTokens: 5}, 1)
	if s.NumPrefillReqs != 1 || s.PrefillTokens != 30 || s.NumDecodeReqs != 7 || s.DecodeTokens != 7 {
		t.Errorf("got %+v, want two first decodes among the decodes", s)
	}
}

// TestWarmUpByHand: the tenth step and those before it, or the phase of that name.
func TestWarmUpByHand(t *testing.T) {
	s := &Steps{Run: &trace.Run{}, Dep: &deploy.Deployment{}}
	if w := s.newWarmUp(); w.isWarmUp(0, 1) || w.byPhase {
		t.Errorf("no steps: got %+v", w)
	}
	for id := range int64(20) {
		s.Run.Steps = append(s.Run.Steps, trace.Step{ID: 5 + id})
	}
	w := s.newWarmUp()
	for id, want := range map[int64]bool{4: true, 14: true, 15: false} {
		if w.isWarmUp(0, id) != want {
			t.Errorf("step %d: got %v", id, !want)
		}
	}
	s.Run.Slice = &trace.Slice{FromNs: 5, FirstNs: 1}
	if w := s.newWarmUp(); w.isWarmUp(0, 5) {
		t.Error("a later slice has a warm-up")
	}
	s.Run.Slice = nil
	s.Dep.Phases = []deploy.Phase{{Name: "a", StartNs: 0, EndNs: 10}, {Name: deploy.WarmupPhase, StartNs: 10, EndNs: 20}}
	w = s.newWarmUp()
	for ns, want := range map[int64]bool{9: false, 10: true, 19: true, 20: false} {
		if w.isWarmUp(ns, 5) != want {
			t.Errorf("%d ns: got %v", ns, !want)
		}
	}
}

// TestPhasesOfARun: phases but the warm-up, open unless they say otherwise; a run without phases is one.
func TestPhasesOfARun(t *testing.T) {
	dep := &deploy.Deployment{Phases: []deploy.Phase{{Name: deploy.WarmupPhase, EndNs: 5}, {Name: "a", StartNs: 5, EndNs: 9}, {Name: "b", StartNs: 9, EndNs: 12, Load: deploy.LoadClosed}}}
	got := PhasesOf(&trace.Run{}, dep)
	if len(got) != 2 || got[0].Name != "a" || got[0].Load != deploy.LoadOpen || got[1].Load != deploy.LoadClosed {
		t.Errorf("got %+v", got)
	}
	if got := PhasesOf(&trace.Run{}, &deploy.Deployment{Phases: dep.Phases[:1]}); len(got) != 0 {
		t.Errorf("a warm-up alone: got %+v", got)
	}
	if got := PhasesOf(&trace.Run{}, &deploy.Deployment{}); len(got) != 1 || got[0].Name != "" || got[0].Load != deploy.LoadOpen || got[0].StartNs != -got[0].EndNs || got[0].EndNs < math.MaxInt64/4 {
		t.Errorf("no phases: got %+v", got)
	}
	v := &LoadVerdicts{Phases: []PhaseVerdict{{Name: "a", StartNs: 1, EndNs: 2}, {Name: "b", StartNs: 3, EndNs: 4, Load: deploy.LoadClosed}, {Name: "c", StartNs: 5, EndNs: 6}}}
	v.Run.Checks = []result.SaturationCheck{{Name: "x", Hit: true}, {Name: "y"}}
	v.Phases[1].Saturated, v.Phases[2].Saturated = true, true
	if got := v.Spans(); !slices.Equal(got, []Span{{StartNs: 5, EndNs: 6}}) {
		t.Errorf("got spans %v", got)
	}
	if v.Phase("c").Saturated != true || v.Phase("a").Saturated || !slices.Equal(v.Phase("d").Hits(), []string{"x"}) {
		t.Errorf("got %+v", v.Phase("d"))
	}
	// Sixty calm requests, then sixty that pile up.
	calm, full := load(60, flat(100), flat(900)), load(60, func(i int) float64 { return 100 * (1 + float64(i)/20) }, rising)
	run := &trace.Run{ID: "r", Requests: calm.Requests}
	for _, r := range full.Requests {
		for _, at := range []*trace.Opt[int64]{&r.ArrivedNs, &r.FirstTokenNs, &r.FinishedNs, &r.DepartedNs} {
			at.V += 1000e9
		}
		run.Requests = append(run.Requests, r)
	}
	second := deploy.Phase{Name: "second", StartNs: 1000e9, EndNs: 1059e9} // without the last
	dep.Phases = []deploy.Phase{{Name: "first", StartNs: 0, EndNs: 1000e9}, second}
	reason, spans := JudgeLoad(run, dep)
	if reason != "" || !slices.Equal(spans, []Span{{StartNs: second.StartNs, EndNs: second.EndNs}}) {
		t.Errorf("got %q and %v", reason, spans)
	}
	verdicts := VerdictsOf(run, dep)
	if verdicts.Run.Saturated || verdicts.Phases[0].Requests != 60 || verdicts.Phases[1].Requests != 59 || verdicts.Phases[0].Saturated || len(verdicts.Run.Hits()) < 2 {
		t.Errorf("got %+v", verdicts)
	}
	dep.Phases = dep.Phases[1:]
	if reason, spans := JudgeLoad(run, dep); reason == "" || spans != nil {
		t.Errorf("that phase alone: got %q and %v", reason, spans)
	}
}

// TestStatedDelaysByHand: which requests of clients make rows of the delays that a server stated, and their values.
func TestStatedDelaysByHand(t *testing.T) {
	good := func(id string, queuedMs int64) trace.ObservedRequest {
		// Queued for 3 ms, its first token 7 ms after that and, at the client, 1 ms later; sent 15 ms before.
		first := queuedMs*ms + 11*ms
		return trace.ObservedRequest{ID: id, PromptTokens: trace.Some(int64(100)), Success: trace.Some(true), SendNs: trace.Some(first - 15*ms), FirstChunkNs: trace.Some(first),
			LastChunkNs: trace.Some(first + 50*ms), TTFTUs: trace.Some(15_000.0), QueueUs: trace.Some(3000.0), ServerTTFTUs: trace.Some(7000.0)}
	}
	for name, c := range map[string]struct {
		change func(o *trace.ObservedRequest)
		code   trace.Code // why it makes no row of an admission
		queue  trace.Code // nor of a queueing delay
	}{
		"good":           {func(*trace.ObservedRequest) {}, "", ""},
		"no prompt":      {func(o *trace.ObservedRequest) { o.PromptTokens.OK = false }, codeNoTarget, codeNoTarget},
		"failed":         {func(o *trace.ObservedRequest) { o.Success.V = false }, codeNoTarget, codeNoTarget},
		"no first chunk": {func(o *trace.ObservedRequest) { o.FirstChunkNs.OK = false }, codeNoTarget, codeNoTarget},
		"no TTFT":        {func(o *trace.ObservedRequest) { o.TTFTUs.OK = false }, codeNoTarget, ""},
		"a shorter TTFT": {func(o *trace.ObservedRequest) { o.TTFTUs.V = 6999 }, codeNoTarget, ""},
		"before steps":   {func(o *trace.ObservedRequest) { o.FirstChunkNs.V = 15 * ms }, codeNoTarget, codeNoTarget},
		"warm-up":        {func(o *trace.ObservedRequest) { o.FirstChunkNs.V = 60 * ms }, codeWarmUp, codeWarmUp},
		"saturated":      {func(o *trace.ObservedRequest) { o.FirstChunkNs.V = 420 * ms }, Saturated, Saturated},
		"nothing stated": {func(o *trace.ObservedRequest) { o.QueueUs.OK = false }, "-", "-"},
	} {
		odd := good("odd", 300)
		c.change(&odd)
		run := &trace.Run{ID: "r", Steps: stepsEvery10ms(60), Observed: []trace.ObservedRequest{good("usual", 200), odd}}
		for target, want := range map[string]trace.Code{coeff.Admission: c.code, coeff.Queue: c.queue, coeff.Overhead: c.code} {
			if name == "a shorter TTFT" && target == coeff.Overhead {
				continue
			}
			got := alphaOf(t, run, testDeployment(), Options{Target: target, Saturated: []Span{{StartNs: 400 * ms, EndNs: 450 * ms}}})
			kept, read := 2, 2
			if want != "" {
				kept = 1
			}
			if want == "-" {
				read = 1
			}
			if got.Kept != kept || got.Read != read || want != "" && want != "-" && got.DroppedFor(want) != 1 {
				t.Errorf("%s, %s: got %d of %d rows, dropped %v", name, target, got.Kept, got.Read, got.Dropped)
			}
			y := map[string]float64{coeff.Admission: 8000, coeff.Queue: 3000, coeff.Overhead: 5000}[target]
			if got.Y[0] != y || got.FirstStep[0] != 20 || got.Regime[0] != Waiting || got.ID[0] != "usual" || got.TimeNs[0] != 201*ms {
				t.Errorf("%s, %s: got %g us at %d ns, joined to step %d", name, target, got.Y[0], got.TimeNs[0], got.FirstStep[0])
			}
		}
	}
}

// TestRangesOfDelays: features of training rows widen the range, those of the hold-out do not, and rows that thinning drops do.
func TestRangesOfDelays(t *testing.T) {
	run := &trace.Run{ID: "r", Steps: stepsEvery10ms(100)}
	for i := range 40 {
		r := request(string(rune('A'+i)), int64(200+15*i)*ms, int64(230+15*i)*ms)
		r.PromptTokens.V = int64(100 + i)
		run.Requests = append(run.Requests, r)
	}
	all := alphaOf(t, run, testDeployment(), Options{Target: coeff.Queue, Split: 0.5})
	held := 0
	lo, hi := repeated(all.P, math.Inf(1)), repeated(all.P, math.Inf(-1))
	for i := range all.Kept {
		if all.HoldOut[i] {
			held++
			continue
		}
		for j, v := range all.Row(i) {
			lo[j], hi[j] = math.Min(lo[j], v), math.Max(hi[j], v)
		}
	}
	if held == 0 || held == all.Kept || !slices.Equal(all.Min, lo) || !slices.Equal(all.Max, hi) {
		t.Errorf("%d of %d rows held out: got ranges %v to %v, want %v to %v", held, all.Kept, all.Min, all.Max, lo, hi)
	}
	thin := alphaOf(t, run, testDeployment(), Options{Target: coeff.Queue, Split: 0.5, Stride: 4})
	if thin.Kept >= all.Kept/2 || !slices.Equal(thin.Min, lo) || !slices.Equal(thin.Max, hi) || thin.DroppedFor(codeRowsThinned) != all.Kept-thin.Kept {
		t.Errorf("every fourth: got %d rows, ranges %v to %v", thin.Kept, thin.Min, thin.Max)
	}
	if lo, hi := Ranges(nil); lo != nil || hi != nil {
		t.Errorf("no table: got %v to %v", lo, hi)
	}
	inf := math.Inf(1)
	lo, hi = Ranges([]*Table{{P: 2, Min: []float64{3, inf}, Max: []float64{5, -inf}}, {P: 2, Min: []float64{1, inf}, Max: []float64{4, -inf}}})
	if !slices.Equal(lo, []float64{1, 0}) || !slices.Equal(hi, []float64{5, 0}) {
		t.Errorf("two tables: got %v to %v", lo, hi)
	}
}

// TestBlocksOfARun: a block is that of a phase's recorded part, with the longest request that arrives in it.
func TestBlocksOfARun(t *testing.T) {
	run := &trace.Run{ID: "r", Steps: stepsEvery10ms(10), Requests: []trace.Request{request("a", 20*ms, 40*ms), request("b", 60*ms, 63*ms)}}
	dep := &deploy.Deployment{Phases: []deploy.Phase{{Name: "p", StartNs: 0, EndNs: 50 * ms}, {Name: "q", StartNs: 50 * ms, EndNs: 900 * ms}, {Name: "later", StartNs: 900 * ms, EndNs: 950 * ms}}}
	got := Blocks(run, dep)
	if len(got) != 2 || got[0].Run != "r" || got[0].Phase != "p" || got[1].Phase != "q" {
		t.Fatalf("got %+v", got)
	}
	next := []result.CrossBlocks{{Phase: "q", EmbargoNs: got[1].EmbargoNs + 5}, {Phase: "p", EmbargoNs: 0}}
	joined := JoinBlocks([]result.CrossBlocks{got[0], got[1]}, next)
	if len(joined) != 2 || joined[0].EmbargoNs != got[0].EmbargoNs || joined[1].EmbargoNs != got[1].EmbargoNs+5 {
		t.Errorf("joined: got %+v", joined)
	}
	if joined := JoinBlocks(nil, next); len(joined) != 2 || joined[0].Phase != "q" {
		t.Errorf("the first slice: got %+v", joined)
	}
	if Blocks(&trace.Run{}, dep) != nil {
		t.Error("an empty run has blocks")
	}
	run.Aggregate = &trace.Aggregate{}
	if got := Blocks(run, dep); got != nil {
		t.Errorf("steps on another clock: got %+v", got)
	}
	run.Aggregate.OffsetNs = trace.Some(int64(0))
	if got := Blocks(run, dep); len(got) != 2 {
		t.Errorf("steps on a known clock: got %+v", got)
	}
}

// TestCodesOfErrors: a feature's own code, and that of an input for any other error.
func TestCodesOfErrors(t *testing.T) {
	for want, err := range map[trace.Code]error{"x": trace.Errorf("x", "a"), features.BadInput: errors.New("b")} {
		if got := codeOf(err); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := codeOf(trace.Errorf("", "a")); got != features.BadInput {
		t.Errorf("no code: got %s", got)
	}
	run := &trace.Run{Steps: []trace.Step{{ID: 4, NumPreempted: 1, RunningDepth: 2}, {ID: 7}}}
	b := &betaBuilder{s: &Steps{Run: run}, ema: []float64{0.25, 0.5}}
	for id, want := range map[int64]float64{3: 0, 4: 0.25, 6: 0.25, 7: 0.5, 99: 0.5} {
		if got := b.averageAt(id); got != want {
			t.Errorf("step %d: got %g, want %g", id, got, want)
		}
	}
	for steps, want := range map[*Steps]bool{{Run: &trace.Run{}}: false, {Run: run}: false, {Run: &trace.Run{Steps: []trace.Step{{ID: 4}, {ID: 8}}}}: true} {
		if got := isSparse(steps); got != want {
			t.Errorf("%+v: got sparse %v", steps.Run.Steps, got)
		}
	}
	ends := lastEnds([]trace.Request{{APISpanID: trace.Some("a"), FinishedNs: trace.Some(int64(5))}, {APISpanID: trace.Some("a"), FinishedNs: trace.Some(int64(9))}, {APISpanID: trace.Some("a"), FinishedNs: trace.Some(int64(7))},
		{APISpanID: trace.Some("b")}, {FinishedNs: trace.Some(int64(11))}, {APISpanID: trace.Some("c"), FinishedNs: trace.Some(int64(0))}})
	if len(ends) != 2 || ends["a"] != (lastEnd{9, 1}) || ends["c"] != (lastEnd{0, 5}) {
		t.Errorf("got %v", ends)
	}
}
