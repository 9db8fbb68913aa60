package logged

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// filling returns a filler of passes with these iterations, on an asynchronous deployment with a budget of 2,048 tokens.
func filling(t *testing.T, its ...trace.Iteration) *filler {
	t.Helper()
	for i := range its {
		if its[i].Index == 0 {
			its[i].Index = int64(i + 1)
		}
	}
	dep := deployment(t, asynchronous(true))
	return &filler{run: &trace.Run{ID: "r", Iterations: its}, dep: dep, out: &trace.Aggregate{}, passes: passesOf(its, dep, false)}
}

// TestCountsOfPasses: the counts of passes, which of them follow the one before, and which may have cut a prompt.
func TestCountsOfPasses(t *testing.T) {
	f := filling(t, trace.Iteration{ContextReqs: 2, ContextTokens: 2047},
		trace.Iteration{ContextReqs: 1, ContextTokens: 500},
		trace.Iteration{ContextReqs: 2, ContextTokens: 2048},
		trace.Iteration{ContextReqs: 1, ContextTokens: 7},
		trace.Iteration{GenerationReqs: 3, GenerationTokens: 5},
		trace.Iteration{Index: 9, GenerationReqs: 3, GenerationTokens: 3},
		trace.Iteration{Index: 10})
	var got []string
	for _, p := range f.passes {
		got = append(got, fmt.Sprint(p.prefills, p.prefillTokens, p.decodes, p.cutPrompts, p.next, p.follows, p.recompute))
	}
	want := []string{"2 2047 0 0 false false false", "1 500 0 0 true false false", "2 2048 0 1 true false false", "1 7 0 0 true true false",
		"0 0 3 0 true true true", "0 0 3 0 false false false", "0 0 0 0 true false false"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	drafts := passesOf([]trace.Iteration{{GenerationReqs: 3, GenerationTokens: 8}}, f.dep, true)
	if p := drafts[0]; p.drafted != 5 || p.recompute || p.stepTotals().Decode != 8 || p.stepTotals().Sampled != 8 {
		t.Errorf("drafts: got %+v", p)
	}
	totals := f.passes[2].stepTotals()
	if want := (trace.StepTotals{Known: true, Prefill: 2048, PrefillReqs: 2, Sampled: 1}); totals != want {
		t.Errorf("got %+v, want %+v", totals, want)
	}
	if f.passes[4].stepTotals().Known {
		t.Error("a pass that recomputes is known")
	}
}

// TestFirstDecodesThatAreContexts: five prompts that end are each followed by a context request of one token: its first decode.
func TestFirstDecodesThatAreContexts(t *testing.T) {
	made := func(pairs, exact int) *filler {
		var its []trace.Iteration
		for i := range pairs {
			one := int64(1)
			if i >= exact {
				one = 3
			}
			its = append(its, trace.Iteration{ContextReqs: 1, ContextTokens: 100}, trace.Iteration{ContextReqs: 1, ContextTokens: one, GenerationReqs: 2, GenerationTokens: 2})
		}
		f := filling(t, its...)
		f.relabelFirstDecodes()
		return f
	}
	f := made(5, 5)
	if p := f.passes[1]; p.prefills != 0 || p.prefillTokens != 0 || p.decodes != 3 || !p.follows || p.cutPrompts != 0 {
		t.Errorf("first decode: got %+v", p)
	}
	if p := f.passes[0]; p.prefills != 1 || p.prefillTokens != 100 || p.decodes != 0 {
		t.Errorf("prompt: got %+v", p)
	}
	if len(f.out.Findings) != 1 || f.out.Findings[0].Code != codeFilledIn || f.out.Findings[0].Message != "r: the log counts first decodes as context requests; they are taken for decodes" {
		t.Errorf("got %v", f.out.Findings)
	}
	for name, few := range map[string]*filler{"four": made(4, 4), "too rare": made(11, 0), "one of 19": made(10, 1)} {
		if p := few.passes[1]; p.prefills != 1 || p.decodes != 2 || len(few.out.Findings) != 0 {
			t.Errorf("%s: got %+v, %v", name, p, few.out.Findings)
		}
	}
	// Of 18 whose prompts end, two are enough: the others have three tokens of which one is a first decode.
	if f := made(10, 2); len(f.out.Findings) != 1 || f.passes[19].prefills != 0 || f.passes[19].decodes != 2+1+2 {
		t.Errorf("two of 18: got %+v, %v", f.passes[19], f.out.Findings)
	}
}

// TestContextsOfATrace: sums of a forward-pass trace, with a first decode that it labels context; and of unequal prompts.
func TestContextsOfATrace(t *testing.T) {
	some := trace.Some[int64]
	f := filling(t, trace.Iteration{ContextReqs: 2, ContextTokens: 30, ContextKVTokens: some(100), GenerationReqs: 3, GenerationTokens: 3, DecodeKVTokens: some(600)},
		trace.Iteration{GenerationReqs: 1, GenerationTokens: 1, DecodeKVTokens: some(70)},
		trace.Iteration{ContextReqs: 2, ContextTokens: 30, ContextKVTokens: some(10), PromptVariance: trace.Some(100.0), DecodeKVTokens: some(0)})
	f.passes[0].prefills, f.passes[0].decodes = 1, 4
	f.contextsFromTrace()
	// One of two contexts, of 50 tokens in the mean, is a decode; four decodes attend to their own token too.
	if p := f.passes[0]; p.decodeContext != 600+50+4 || p.prefillContext != 50 || p.causalWork != (30*30+30)/2+50*30 {
		t.Errorf("got %+v", p)
	}
	if p := f.passes[1]; p.decodeContext != 71 || p.prefillContext != 0 || p.causalWork != 0 {
		t.Errorf("got %+v", p)
	}
	// 20 tokens a prompt in the mean, with a variance of 100: a quarter of its square. 30^2/2 * 1.25 + 30 halves.
	if p := f.passes[2]; p.prefillContext != 10 || math.Abs(p.causalWork-((450*1.25+30)/2+10*30/2)) > 1e-9 {
		t.Errorf("got %+v", p)
	}
	p := f.passes[2]
	for variance, want := range map[float64]float64{400: 1, 500: 1, 200: 0.5} { // two prompts vary by 1 at most
		p.it.PromptVariance.V = variance
		if got := p.promptVariation(); got != want {
			t.Errorf("variance %g: got %g, want %g", variance, got, want)
		}
	}
	p.prefills = 1
	if got := p.promptVariation(); got != 0 {
		t.Errorf("one prompt: got %g", got)
	}
}

// TestBalanceOfContexts: prompts of 100 and 200 tokens, a prompt that the budget cuts, and requests that finish.
func TestBalanceOfContexts(t *testing.T) {
	f := filling(t,
		trace.Iteration{ContextReqs: 2, ContextTokens: 300},
		trace.Iteration{GenerationReqs: 2, GenerationTokens: 2},                                               // 300 in KV
		trace.Iteration{GenerationReqs: 1, GenerationTokens: 1},                                               // half of 302
		trace.Iteration{ContextReqs: 1, ContextTokens: 2047, GenerationReqs: 1, GenerationTokens: 1},          // cut
		trace.Iteration{ContextReqs: 2, ContextTokens: 2047, GenerationReqs: 1, GenerationTokens: 1},          // one ends, the next is cut
		trace.Iteration{ContextReqs: 1, ContextTokens: 10, GenerationReqs: 2, GenerationTokens: 2},            // ends
		trace.Iteration{Index: 20, ContextReqs: 1, ContextTokens: 10, GenerationReqs: 2, GenerationTokens: 2}) // after a gap
	f.balanceContexts()
	var contexts, prefill, work []float64
	for _, p := range f.passes {
		contexts = append(contexts, p.decodeContext)
		prefill = append(prefill, p.prefillContext)
		work = append(work, p.causalWork)
	}
	const half = 2047.0 / 2
	// 152 after pass 2; the cut prompt counts when it has ended, with half of the tokens of its second pass.
	if want := []float64{0, 302, 152, 153, 154, 154 + half + 2047 + 2 - 1 + 1, 2}; !slices.Equal(contexts, want) {
		t.Errorf("contexts: got %v, want %v", contexts, want)
	}
	if want := []float64{0, 0, 0, 0, 2047, half, 0}; !slices.Equal(prefill, want) {
		t.Errorf("of prompts: got %v, want %v", prefill, want)
	}
	causal := func(tokens, reqs float64) float64 { return (tokens*tokens/reqs + tokens) / 2 }
	if want := []float64{causal(300, 2), 0, 0, causal(2047, 1), causal(2047, 2) + 2047*half, causal(10, 1) + half*10, causal(10, 1)}; !slices.Equal(work, want) {
		t.Errorf("work: got %v, want %v", work, want)
	}
}

// TestSourcesOfContexts: the best source that a run has, and what is said of it.
func TestSourcesOfContexts(t *testing.T) {
	for _, c := range []struct {
		name, source, says string
		usage              bool
		kv                 bool
	}{
		{"trace", contextsTrace, "contexts of the decodes come from the trace's own sums", false, true},
		{"usage", contextsUsage, "contexts of the decodes come from the KV usage of the lines", true, false},
		{"nothing", contextsMean, "the contexts of the decodes are not recorded: one mean of 101 tokens is taken for all", false, false},
	} {
		its := []trace.Iteration{{ContextReqs: 1, ContextTokens: 100}, {GenerationReqs: 1, GenerationTokens: 1}}
		for i := range its {
			if c.usage {
				its[i].KVUsage = trace.Some(0.5)
			}
			if c.kv {
				its[i].DecodeKVTokens = trace.Some(int64(40 * i))
			}
		}
		f := filling(t, its...)
		f.dep.Engine.KVBlocksGPU = trace.Some(int64(1000))
		f.dep.Engine.PrefixCaching = false
		f.fillContexts()
		if f.out.Contexts != c.source || len(f.out.Findings) != 1 || f.out.Findings[0].Message[:3] != "r: " || !strings.HasPrefix(f.out.Findings[0].Message[3:], c.says) {
			t.Errorf("%s: got %s, %v", c.name, f.out.Contexts, f.out.Findings)
		}
		if shared := strings.Contains(f.out.Findings[0].Message, "share count once"); shared {
			t.Errorf("%s: got %v", c.name, f.out.Findings)
		}
		if c.usage {
			f = filling(t, its...)
			f.dep.Engine.KVBlocksGPU = trace.Some(int64(1000))
			f.dep.Engine.PrefixCaching = true
			if f.fillContexts(); !strings.Contains(f.out.Findings[0].Message, "blocks that requests share count once") {
				t.Errorf("%s with a prefix cache: got %v", c.name, f.out.Findings)
			}
		}
	}
	f := filling(t, trace.Iteration{GenerationReqs: 2}, trace.Iteration{GenerationReqs: 4}, trace.Iteration{GenerationReqs: 1}, trace.Iteration{})
	f.setContexts([]float64{0, 400, 0, 0})
	if got := []float64{f.passes[0].decodeContext, f.passes[1].decodeContext, f.passes[2].decodeContext, f.passes[3].decodeContext}; !slices.Equal(got, []float64{0, 400, 100, 0}) {
		t.Errorf("got %v", got)
	}
}

// TestWaitingByQueueingDelays: three requests wait from 10 to 30 ms, 20 to 30 ms and 40 to 45 ms.
func TestWaitingByQueueingDelays(t *testing.T) {
	const ms = 1_000_000
	made := func() *filler {
		f := filling(t, trace.Iteration{GenerationReqs: 1})
		f.out.OffsetNs = trace.Some(int64(0))
		for _, at := range [][2]int64{{10, 30}, {20, 30}, {40, 45}} {
			f.run.Observed = append(f.run.Observed, trace.ObservedRequest{QueueUs: trace.Some(float64(at[1]-at[0]) * 1000), ServerTTFTUs: trace.Some(2000.0),
				FirstChunkNs: trace.Some((at[1] + 2) * ms)})
		}
		for _, at := range []int64{5, 10, 15, 25, 30, 42, 50} {
			f.run.Steps = append(f.run.Steps, trace.Step{TsStartNs: at * ms, WaitingDepth: 99})
		}
		return f
	}
	waiting := func(f *filler) (out []int64) {
		f.countWaiting()
		for _, s := range f.run.Steps {
			out = append(out, int64(s.WaitingDepth))
		}
		return out
	}
	f := made()
	if got := waiting(f); !slices.Equal(got, []int64{0, 1, 1, 2, 0, 1, 0}) {
		t.Errorf("got %v", got)
	}
	if len(f.out.Findings) != 1 || f.out.Findings[0].Message != "r: the number of waiting requests comes from the queueing delays of 3 requests, as the server stated them" {
		t.Errorf("got %v", f.out.Findings)
	}
	for name, change := range map[string]func(f *filler){
		"logged":   func(f *filler) { f.passes[0].it.QueuedContext = trace.Some(int64(0)) },
		"apart":    func(f *filler) { f.out.OffsetNs.OK = false },
		"few":      func(f *filler) { f.run.Observed[1].QueueUs.OK = false },
		"no delay": func(f *filler) { f.run.Observed = nil },
	} {
		f = made()
		change(f)
		if got := waiting(f); !slices.Equal(got, []int64{99, 99, 99, 99, 99, 99, 99}) || len(f.out.Findings) != 0 {
			t.Errorf("%s: got %v, %v", name, got, f.out.Findings)
		}
	}
	f = made()
	for range 60 { // 60 of 63 state it, 95 %
		f.run.Observed = append(f.run.Observed, f.run.Observed[0])
	}
	for i := range 3 {
		f.run.Observed[i+3].QueueUs.OK = false
	}
	if got := waiting(f); got[1] != 58 {
		t.Errorf("95 %%: got %v", got)
	}
}

// TestStepsOfPasses: the summary of a pass, of a dummy pass, and steps that coarse stamps do not tell apart.
func TestStepsOfPasses(t *testing.T) {
	some := trace.Some[int64]
	it := trace.Iteration{QueuedContext: some(3), QueuedDecode: some(4), KVUsage: trace.Some(0.25), StampNs: some(77), StampWall: true}
	p := pass{it: &it, startNs: 55, prefills: 2, decodes: 5, prefillTokens: 100}
	want := trace.Step{ID: 8, TsStartNs: 55, RunningDepth: 7, WaitingDepth: 7, NumPrefillReqs: 2, NumDecodeReqs: 5, PrefillTokens: 100, DecodeTokens: 5, ScheduledTokens: 105,
		KVUsage: 0.25, BlocksTotal: 1000, BlocksFree: 750, WallNs: 77}
	if got := p.summary(8, 1000); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	it.Dummy, it.StampWall = true, false
	want.RunningDepth, want.ScheduledTokens, want.PrefillTokens, want.DecodeTokens, want.WallNs = 0, 0, 0, 0, 0
	if got := p.summary(8, 1000); got != want {
		t.Errorf("dummy: got %+v, want %+v", got, want)
	}
	if got := p.stepTotals(); got != (trace.StepTotals{Known: true}) {
		t.Errorf("dummy: got %+v", got)
	}
	it.Dummy = false
	it.EncoderInputs = some(1)
	if got := p.stepTotals(); got.Known || !got.Encoder {
		t.Errorf("encoder: got %+v", got)
	}

	const unit = 10_000_000 // of the stamps, ns: rows of at least 200 ms
	steps := func(coarse bool, time string) []int64 {
		f := filling(t, trace.Iteration{StampStepNs: some(unit)})
		a := &timeAudit{time: time, coarse: coarse}
		for _, s := range []trace.Step{{TsStartNs: 0, ScheduledTokens: 1}, {TsStartNs: 20*unit - 1, ScheduledTokens: 1}, {TsStartNs: 20 * unit, ScheduledTokens: 1},
			{TsStartNs: 21 * unit}, {TsStartNs: 22 * unit, ScheduledTokens: 1}, {TsStartNs: 5, ScheduledTokens: 0}} {
			f.appendStep(a, s)
		}
		var at []int64
		for _, s := range f.run.Steps {
			if s.TsEndNs != s.TsStartNs {
				t.Errorf("got %+v", s)
			}
			at = append(at, s.TsStartNs)
		}
		return at
	}
	if got := steps(true, timeCadence); !slices.Equal(got, []int64{0, 20 * unit, 21 * unit, 22 * unit, 22 * unit}) {
		t.Errorf("coarse: got %v", got)
	}
	all := []int64{0, 20*unit - 1, 20 * unit, 21 * unit, 22 * unit, 22 * unit}
	if got := steps(false, timeCadence); !slices.Equal(got, all) {
		t.Errorf("precise: got %v", got)
	}
	if got := steps(true, timeElapsed); !slices.Equal(got, all) {
		t.Errorf("elapsed: got %v", got)
	}
	if got := steps(true, timeTicks); len(got) != 0 {
		t.Errorf("ticks: got %v", got)
	}
	f := filling(t, make([]trace.Iteration, 20)...)
	if got := f.tickEvery(); got != 1 {
		t.Errorf("no ticks: got %d", got)
	}
	f.passes[0].tick, f.passes[6].tick, f.passes[12].tick = true, true, true // 20 passes in 3.3 ticks
	if got := f.tickEvery(); got != 4 {
		t.Errorf("got %d, want 4", got)
	}
}

// TestRecordsThatAreNoPasses: samples, passes of several tokens a request, and encoders.
func TestRecordsThatAreNoPasses(t *testing.T) {
	some := trace.Some[int64]
	plain := trace.Iteration{GenerationReqs: 1, GenerationTokens: 1}
	several := trace.Iteration{GenerationReqs: 1, GenerationTokens: 2}
	sampled := plain
	sampled.Sampled = true
	encoder := trace.Iteration{ContextReqs: 3, EncoderInputs: some(1)}
	for _, c := range []struct {
		name, refused, says string
		its                 []trace.Iteration
		drafts              bool
	}{
		{"passes", "", "", []trace.Iteration{plain, plain}, false},
		{"samples", "1 of 2 records are samples", "", []trace.Iteration{plain, sampled}, false},
		{"half recompute", "", "r: 1 passes recompute preempted requests", []trace.Iteration{plain, several}, false},
		{"most recompute", "2 of 3 passes with decodes have more tokens than requests: speculative decoding", "", []trace.Iteration{plain, several, several}, false},
		{"drafts", "", "", []trace.Iteration{plain, several, several}, true},
		{"encoders", "", "r: 2 of 3 passes, with 6 prompts, also ran a multimodal encoder", []trace.Iteration{plain, encoder, encoder}, false},
	} {
		f := filling(t, c.its...)
		f.out.Drafts = c.drafts
		why := f.checkRecords()
		if (why == nil) != (c.refused == "") || why != nil && (why.Code != codeNoStepTimes || !strings.Contains(why.Error(), c.refused)) {
			t.Errorf("%s: got %v", c.name, why)
		}
		got := ""
		for _, finding := range f.out.Findings {
			got += finding.Message
		}
		if !strings.HasPrefix(got, c.says) || (c.says == "") != (got == "") {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
	f := filling(t, plain)
	if got := f.allPasses(); !strings.HasPrefix(got, "set DYN_FPM_MODE=full") {
		t.Errorf("got %q", got)
	}
	f.passes[0].it.Form = trace.IterationSGLang
	if got := f.allPasses(); !strings.HasPrefix(got, "start SGLang with --decode-log-interval 1") {
		t.Errorf("got %q", got)
	}
}

// TestRequestsOfClients: the requests of several answers, of drafts and of answers in one piece, as the passes have them.
func TestRequestsOfClients(t *testing.T) {
	some := trace.Some[int64]
	f := filling(t, trace.Iteration{GenerationReqs: 1})
	f.isFromChunks = true
	f.out.Drafts = true
	o := trace.ObservedRequest{PromptTokens: some(10), OutputTokens: some(13), CachedTokens: some(4), FirstChunkNs: some(5), LastChunkNs: some(9), TTFTUs: trace.Some(2.0),
		ChunkGapsUs: []float64{1, 1, 1, 1}}
	several := o
	several.N, several.FirstChunkNs, several.ChunkGapsUs = some(3), some(7), nil
	whole := o
	whole.FirstChunkNs.OK, whole.ChunkGapsUs = false, nil
	whole.FirstChunkNs.V = 1
	unknown := o
	unknown.PromptTokens.OK = false
	without := o
	without.LastChunkNs.OK = false
	empty := o
	empty.OutputTokens = some(0)
	two := o
	two.FirstChunkNs.V, two.ChunkGapsUs = 8, []float64{1}
	f.run.Observed = []trace.ObservedRequest{o, several, whole, unknown, without, empty, two}
	f.alignClients(&timeAudit{time: timeCadence})
	var got []string
	for _, r := range f.requests {
		got = append(got, fmt.Sprint(r.prompt, r.output, r.each, r.firstNs, r.lastNs, r.ttftUs, r.done, r.whole))
	}
	// 13 tokens in 5 chunks: the 12 after the first in 4 passes of 3.
	if want := []string{"10 13 1 1 9 2 4 true", "10 5 3 5 9 2 4 false", "10 4 1 7 9 2 4 false", "10 4 1 7 9 2 4 false", "10 4 1 7 9 2 4 false", "10 2 12 8 9 2 4 false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if f.out.OffsetNs != trace.Some(int64(0)) {
		t.Errorf("got the offset %v", f.out.OffsetNs)
	}
	f = filling(t, trace.Iteration{GenerationReqs: 1})
	for _, ended := range []int64{5, 3, 4} {
		f.run.Observed = append(f.run.Observed, trace.ObservedRequest{PromptTokens: some(10), OutputTokens: some(2), Iteration: some(ended)})
	}
	f.alignClients(&timeAudit{time: timeCadence})
	if len(f.requests) != 3 || f.requests[0].ended.V != 3 || f.requests[2].ended.V != 5 || f.out.OffsetNs.OK {
		t.Errorf("without stamps: got %+v", f.requests)
	}
}

// TestShareOfOthers: of 20 decodes of the passes, clients know 12, and when that is too few for one mean context.
func TestShareOfOthers(t *testing.T) {
	some := trace.Some[int64]
	made := func(output int64) *filler {
		f := filling(t, trace.Iteration{GenerationReqs: 15}, trace.Iteration{GenerationReqs: 5}, trace.Iteration{GenerationReqs: 50})
		for i := range f.passes {
			f.passes[i].hasEnd, f.passes[i].endNs = true, int64(100*(i+1))
		}
		f.out.OffsetNs, f.out.Contexts = trace.Some(int64(0)), contextsMean
		f.run.Observed = []trace.ObservedRequest{{OutputTokens: some(output), SendNs: some(100), FirstChunkNs: some(150), LastChunkNs: some(200)}}
		return f
	}
	f := made(13)
	if f.measureOtherClients(); math.Abs(f.out.Others-0.4) > 1e-12 {
		t.Errorf("got %g, want 0.4", f.out.Others)
	}
	why := f.checkClientCounts()
	if why == nil || why.Code != codeNoStepTimes || !strings.Contains(why.Error(), "0 of 1 requests of clients have several answers, failed, were left early or not streamed, and no "+
		"result shows 40 % of the decodes") {
		t.Errorf("got %v", why)
	}
	f = made(20) // 19 of 20: 5 %
	if f.measureOtherClients(); math.Abs(f.out.Others-0.05) > 1e-12 || f.checkClientCounts() != nil && f.out.Others <= trace.MostGuessed {
		t.Errorf("got %g, %v", f.out.Others, f.checkClientCounts())
	}
	f = made(21)
	f.run.Observed[0].FirstChunkNs.OK = false
	if f.measureOtherClients(); f.out.Others != 0 || f.checkClientCounts() == nil || !strings.Contains(f.checkClientCounts().Error(), "1 of 1 requests") {
		t.Errorf("not streamed: got %g, %v", f.out.Others, f.checkClientCounts())
	}
	f.out.Contexts = contextsUsage
	if why := f.checkClientCounts(); why != nil {
		t.Errorf("contexts known: got %v", why)
	}
	f.out.Contexts = contextsMean
	f.run.Observed[0].SendNs.OK = false
	if why := f.checkClientCounts(); why != nil {
		t.Errorf("no start: got %v", why)
	}
	for uncounted, want := range map[int]bool{5: false, 6: true} { // of 100: a twentieth may be
		f := made(21)
		for i := 1; i < 100; i++ {
			o := f.run.Observed[0]
			o.FirstChunkNs.OK = i > uncounted
			f.run.Observed = append(f.run.Observed, o)
		}
		if why := f.checkClientCounts(); (why != nil) != want {
			t.Errorf("%d of 100 not streamed: got %v", uncounted, why)
		}
	}
	f = made(13)
	f.run.Observed[0].OutputTokens.OK = false
	if f.measureOtherClients(); f.out.Others != 0 {
		t.Errorf("uncounted: got %g", f.out.Others)
	}
	f = made(13)
	f.out.OffsetNs.OK = false
	if f.measureOtherClients(); math.Abs(f.out.Others-(1-12.0/70)) > 1e-12 {
		t.Errorf("apart: got %g", f.out.Others)
	}
}

// TestRefusedElapsed: why elapsed is no step time, by what was found first.
func TestRefusedElapsed(t *testing.T) {
	f := filling(t, trace.Iteration{})
	for _, c := range []struct {
		e    elapsedEvidence
		sync bool
		want string
	}{
		{elapsedEvidence{}, true, "nothing shows that the engine is synchronous"},
		{elapsedEvidence{lag: 1, isConclusive: true, isOver: true, isAsync: true, unlike: 1, below: 1}, false, "scheduling is asynchronous by run.yaml"},
		{elapsedEvidence{lag: 2, isConclusive: true, isOver: true, unlike: 1, below: 1}, false, "it follows the batch 2 lines earlier"},
		{elapsedEvidence{lag: 2, isOver: true, unlike: 0.75, below: 1}, false, "no batch explains it, the counts of the best line are off by 75 %"},
		{elapsedEvidence{isConclusive: true, unlike: unlikeMax}, true, "nothing shows that the engine is synchronous"},
		{elapsedEvidence{lag: 2, isOver: true, below: 0.5}, false, "50 % of the values lie below the time"},
		{elapsedEvidence{below: 0.1 + 0.001}, false, "of the values lie below"},
		{elapsedEvidence{isConclusive: true, below: 0.1 + 0.001}, true, "of the values lie below"},
		{elapsedEvidence{isConclusive: true, isOver: true, below: 0.1}, false, "the values sum up to more than the time that passed"},
	} {
		if got := c.e.contradictsSync(); got == c.sync {
			t.Errorf("%+v contradicts a synchronous engine: got %t", c.e, got)
		}
		if got := f.refusedElapsed(c.e); got.Code != codeNoStepTimes || !strings.Contains(got.Error(), "elapsed is no step time: ") || !strings.Contains(got.Error(), c.want) {
			t.Errorf("got %v, want %q", got, c.want)
		}
	}
	f.dep.Engine.VLLMVersion = "dev"
	f.dep.Engine.AsyncScheduling = trace.Opt[bool]{}
	got := f.refusedElapsed(elapsedEvidence{isAsync: true})
	if !strings.Contains(got.Error(), "no release and no async_scheduling is stated") || !strings.Contains(got.Hint, "state vllm.version") {
		t.Errorf("got %v, hint %q", got, got.Hint)
	}
	f.passes[0].it.Form = trace.IterationSGLang
	if got := f.refusedElapsed(elapsedEvidence{isAsync: true}); !strings.Contains(got.Error(), "SGLang's lines state none") {
		t.Errorf("got %v", got)
	}
}

// TestAuditOfChunks: passes found behind clients' chunks have the clients' clock, and elapsed times of another unit are refused.
func TestAuditOfChunks(t *testing.T) {
	f := filling(t, trace.Iteration{StampNs: trace.Some(int64(1)), StampStepNs: trace.Some(int64(1))})
	f.isFromChunks = true
	if a := f.auditTimes(); a.time != timeCadence || a.figures.Time != timeCadence || a.refused != nil {
		t.Errorf("got %+v", a)
	}
	over := stamped(5e6, 1000, 2000, 3000, 4000)
	over.run = &trace.Run{ID: "r"}
	if a := over.auditTimes(); a.refused == nil || a.refused.Code != codeNoStepTimes || !strings.Contains(a.refused.Error(), "the values sum up to 5 times the time") {
		t.Errorf("got %v", a.refused)
	}
}
