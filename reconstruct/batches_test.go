package reconstruct

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// journeyOf is a request by its steps: QUEUED and SCHEDULED, FIRST_TOKEN, FINISHED; a step of 0 was not recorded.
func journeyOf(id string, prompt, output, scheduled, first, finished int64) trace.Request {
	opt := func(v int64) trace.Opt[int64] { return trace.Opt[int64]{V: v, OK: v != 0} }
	return trace.Request{CoreID: trace.Some(id), PromptTokens: trace.Some(prompt), OutputTokens: trace.Some(output), QueuedStep: trace.Some(scheduled - 1),
		ScheduledStep: opt(scheduled), FirstTokenStep: opt(first), FinishedStep: opt(finished), ScheduledNs: trace.Some(scheduled),
		FinishStatus: trace.Some(trace.FinishLength)}
}

// two are a prompt of 12 tokens cut by a budget of 10, and one of 5 that joins its decodes.
func two() []trace.Request {
	return []trace.Request{journeyOf("a", 12, 3, 1, 2, 4), journeyOf("b", 5, 2, 3, 3, 4)}
}

// summary is a step as the engine counted it.
func summary(id, prefills, prefillTokens, decodes int64) trace.Step {
	return trace.Step{ID: id, NumPrefillReqs: int32(prefills), PrefillTokens: int32(prefillTokens), NumDecodeReqs: int32(decodes), DecodeTokens: int32(decodes),
		ScheduledTokens: int32(prefillTokens + decodes)}
}

// summaries are the steps of two.
func summaries() []trace.Step {
	return []trace.Step{summary(1, 1, 10, 0), summary(2, 1, 2, 0), summary(3, 1, 5, 1), summary(4, 0, 0, 2)}
}

// engine has a budget of 10 tokens a step.
func engine(change func(*vllm.Engine)) *vllm.Engine {
	e := &vllm.Engine{VLLMVersion: "0.11.0", MaxNumBatchedTokens: 10, MaxNumSeqs: 8, ChunkedPrefill: true}
	if change != nil {
		change(e)
	}
	return e
}

// batchesOf are the batches of the steps 1 to 4 as text: request{computed new}, or why the batch is unknown.
func batchesOf(requests []trace.Request, r Recording) []string {
	if r.Engine == nil {
		r.Engine = engine(nil)
	}
	r.First, r.Last = 1, 4
	b := FromJourneys(Lives(requests, r.Engine, r.Last), r)
	reasons := b.Reasons()
	walk := b.Walk()
	var out []string
	for k, why := range reasons {
		members := walk.AppendMembers(nil, int64(k)+1)
		if why != Known {
			out = append(out, short(why))
			continue
		}
		text := ""
		for _, m := range members {
			text += fmt.Sprintf("%s{%d %d}", m.CoreID, m.Computed, m.New)
		}
		out = append(out, text)
	}
	b.Release()
	return out
}

// short is a name for each reason.
func short(why Reason) string {
	names := map[Reason]string{PreemptedRequest: "preempted", InconsistentRequest: "inconsistent", PrefillUnknown: "prefill", CachedUnknown: "cached",
		Unconfirmed: "unconfirmed", Contradicted: "contradicted"}
	return names[why]
}

// TestBatchesByHand has one change of the recording in each case.
func TestBatchesByHand(t *testing.T) {
	known := []string{"a{0 10}", "a{10 2}", "a{12 1}b{0 5}", "a{13 1}b{5 1}"}
	edit := func(change func(r []trace.Request)) []trace.Request {
		r := two()
		change(r)
		return r
	}
	caching := engine(func(e *vllm.Engine) { e.PrefixCaching = true })
	for _, c := range []struct {
		name     string
		requests []trace.Request
		r        Recording
		want     []string
	}{
		{"without summaries", two(), Recording{}, known},
		{"with summaries", two(), Recording{Summaries: summaries()}, known},
		{"a summary of another batch", two(), Recording{Summaries: []trace.Step{summary(3, 1, 5, 2)}}, []string{"unconfirmed", "unconfirmed", "contradicted", "unconfirmed"}},
		{"between it and a good one", two(), Recording{Summaries: []trace.Step{summary(2, 1, 2, 0), summary(4, 0, 0, 3)}},
			[]string{"a{0 10}", "a{10 2}", "unconfirmed", "contradicted"}},
		{"another number of prompt tokens", two(), Recording{Summaries: []trace.Step{summary(3, 1, 6, 0)}}, []string{"unconfirmed", "unconfirmed", "contradicted", "unconfirmed"}},
		{"a first decode labelled as a prefill", two(), Recording{Summaries: []trace.Step{summary(3, 2, 6, 0)}}, known},
		{"a later decode labelled so", two(), Recording{Summaries: []trace.Step{summary(4, 2, 2, 0)}}, []string{"unconfirmed", "unconfirmed", "unconfirmed", "contradicted"}},
		{"a summary with fewer prompt tokens", two(), Recording{Summaries: []trace.Step{summary(1, 1, 9, 0)}}, []string{"prefill", "prefill", "a{12 1}b{0 5}", "a{13 1}b{5 1}"}},
		{"journeys may be missing", two(), Recording{Lost: []StepRange{{3, 5}}}, []string{"a{0 10}", "a{10 2}", "unconfirmed", "unconfirmed"}},
		{"and summaries confirm the steps", two(), Recording{Lost: []StepRange{{3, 5}}, Summaries: summaries()}, known},
		{"journeys may be missing while the prompt is cut", two(), Recording{Lost: []StepRange{{1, 2}}}, []string{"prefill", "prefill", "a{12 1}b{0 5}", "a{13 1}b{5 1}"}},
		{"the prompt ends too early", edit(func(r []trace.Request) { r[0].PromptTokens.V = 10 }), Recording{}, []string{"prefill", "prefill", "a{10 1}b{0 5}", "a{11 1}b{5 1}"}},
		{"the prompt does not end in time", edit(func(r []trace.Request) { r[0].PromptTokens.V = 21 }), Recording{}, []string{"prefill", "prefill", "a{21 1}b{0 5}", "a{22 1}b{5 1}"}},
		{"no room beside the decode", edit(func(r []trace.Request) { r[1].PromptTokens.V = 10 }), Recording{}, []string{"a{0 10}", "a{10 2}", "prefill", "a{13 1}b{10 1}"}},
		{"just room", edit(func(r []trace.Request) { r[1].PromptTokens.V = 9 }), Recording{}, []string{"a{0 10}", "a{10 2}", "a{12 1}b{0 9}", "a{13 1}b{9 1}"}},
		{"preempted", edit(func(r []trace.Request) { r[1].Preemptions = trace.Some[int64](1) }), Recording{}, []string{"a{0 10}", "a{10 2}", "preempted", "preempted"}},
		{"the prompt of a request after the last step does not end in time", append(two(), journeyOf("c", 99, 2, 9, 9, 10)), Recording{}, known},
		{"one that was aborted after the last step", append(two(), journeyOf("c", 12, 0, 9, 0, 9)), Recording{}, known},
		{"events lost", edit(func(r []trace.Request) { r[1].DroppedEvents = 1 }), Recording{}, []string{"a{0 10}", "a{10 2}", "inconsistent", "inconsistent"}},
		{"no FINISHED", edit(func(r []trace.Request) { r[1].FinishedStep = trace.Opt[int64]{} }), Recording{}, []string{"a{0 10}", "a{10 2}", "inconsistent", "inconsistent"}},
		{"never ran", edit(func(r []trace.Request) {
			r[1].ScheduledStep, r[1].FirstTokenStep = trace.Opt[int64]{}, trace.Opt[int64]{}
		}), Recording{},
			[]string{"a{0 10}", "a{10 2}", "a{12 1}", "a{13 1}"}},
		{"only a client's row", edit(func(r []trace.Request) { r[1].CoreID = trace.Opt[string]{} }), Recording{}, []string{"a{0 10}", "a{10 2}", "a{12 1}", "a{13 1}"}},
		{"a prefix cache", two(), Recording{Engine: caching}, []string{"cached", "cached", "cached", "a{13 1}b{5 1}"}},
		{"counted hits", edit(func(r []trace.Request) { r[0].PromptTokens.V, r[1].PromptTokens.V = 20, 9 }), Recording{Engine: caching, Summaries: summaries()},
			[]string{"a{8 10}", "a{18 2}", "a{20 1}b{4 5}", "a{21 1}b{9 1}"}},
		{"recorded hits", edit(func(r []trace.Request) {
			r[0].CachedTokens, r[1].CachedTokens = trace.Some[int64](1), trace.Some[int64](4)
		}), Recording{Engine: caching},
			[]string{"a{1 10}", "a{11 1}", "a{12 1}b{4 1}", "a{13 1}b{5 1}"}},
		{"aborted in its first step", edit(func(r []trace.Request) {
			r[1] = journeyOf("b", 12, 0, 3, 0, 3)
			r[1].FinishStatus = trace.Some(trace.FinishAborted)
		}), Recording{}, []string{"a{0 10}", "a{10 2}", "unconfirmed", "a{13 1}"}},
		{"aborted there, confirmed", edit(func(r []trace.Request) {
			r[1] = journeyOf("b", 12, 0, 3, 0, 3)
			r[1].FinishStatus = trace.Some(trace.FinishAborted)
		}), Recording{Summaries: []trace.Step{summary(3, 1, 9, 1)}}, []string{"a{0 10}", "a{10 2}", "a{12 1}b{0 9}", "a{13 1}"}},
		{"aborted after its prompt had ended", edit(func(r []trace.Request) {
			r[1].FirstTokenStep, r[1].FinishStatus = trace.Opt[int64]{}, trace.Some(trace.FinishAborted)
		}), Recording{}, []string{"a{0 10}", "a{10 2}", "prefill", "prefill"}},
		{"a long prompt threshold", two(), Recording{Engine: engine(func(e *vllm.Engine) { e.LongPrefillThreshold = 6 })},
			[]string{"a{0 6}", "a{6 6}", "a{12 1}b{0 5}", "a{13 1}b{5 1}"}},
		{"no chunks", edit(func(r []trace.Request) { r[0] = journeyOf("a", 12, 4, 1, 1, 4) }), Recording{Engine: engine(func(e *vllm.Engine) { e.ChunkedPrefill = false })},
			[]string{"a{0 12}", "a{12 1}", "a{13 1}b{0 5}", "a{14 1}b{5 1}"}},
	} {
		if got := batchesOf(c.requests, c.r); !slices.Equal(got, c.want) {
			t.Errorf("%s: got  %s\nwant %s", c.name, strings.Join(got, ", "), strings.Join(c.want, ", "))
		}
	}
}

// TestDecodesThatWereNotCounted: an asynchronous engine runs the step after EOS; the summary tells whether it did.
func TestDecodesThatWereNotCounted(t *testing.T) {
	async := engine(func(e *vllm.Engine) { e.AsyncScheduling = trace.Some(true) })
	requests := []trace.Request{journeyOf("a", 5, 2, 1, 1, 2), journeyOf("b", 5, 4, 1, 1, 4)}
	requests[0].FinishStatus = trace.Some(trace.FinishStopped)
	for decodes, want := range map[int64]string{2: "a{6 1}b{6 1}", 1: "b{6 1}"} {
		got := batchesOf(requests, Recording{Engine: async, Summaries: []trace.Step{summary(3, 0, 0, decodes)}})
		if got[2] != want || got[3] != "b{7 1}" {
			t.Errorf("%d decodes: got %v, want %s", decodes, got, want)
		}
	}
}

func TestCountMembers(t *testing.T) {
	lives := Lives(two(), engine(nil), 4)
	for _, c := range []struct{ first, last, want int64 }{{1, 4, 6}, {2, 3, 3}, {4, 9, 2}, {5, 9, 0}} {
		if got := CountMembers(lives, c.first, c.last); got != c.want {
			t.Errorf("steps %d to %d: got %d, want %d", c.first, c.last, got, c.want)
		}
	}
	if lives[0].FirstStep() != 1 || lives[0].LastStep() != 4 {
		t.Errorf("got steps %d to %d", lives[0].FirstStep(), lives[0].LastStep())
	}
	lost := two()
	lost[0].DroppedEvents = 1
	lost[0].FinishedStep = trace.Opt[int64]{}
	unknown := Lives(lost, engine(nil), 9)
	if unknown[0].FirstStep() != 1 || unknown[0].LastStep() != 9 || CountMembers(unknown, 1, 4) != 2 {
		t.Errorf("events lost: got steps %d to %d, %d members", unknown[0].FirstStep(), unknown[0].LastStep(), CountMembers(unknown, 1, 4))
	}
}

func TestCountsOfAStep(t *testing.T) {
	c := Counts{Prefills: 3, PrefillTokens: 10, Decodes: 4, DecodeTokens: 5}
	if got, want := c.Relabel(2), (Counts{Prefills: 1, PrefillTokens: 8, Decodes: 6, DecodeTokens: 7}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, v := range []struct {
		c           Counts
		ended, want int64
	}{{c, 1, 1}, {c, 9, 3}, {Counts{Prefills: 3, PrefillTokens: 2}, 9, 2}} {
		if got := v.c.FirstDecodes(v.ended); got != v.want {
			t.Errorf("%+v after %d prompts: got %d first decodes, want %d", v.c, v.ended, got, v.want)
		}
	}
	if c.MayCutPrompt(16) || !c.MayCutPrompt(15) || (Counts{DecodeTokens: 15}).MayCutPrompt(15) {
		t.Error("a prompt may be cut where the step uses its whole budget")
	}
	for _, v := range []struct {
		b               Budget
		remaining, want int64
	}{
		{Budget{Left: 10, Chunked: true}, 12, 10}, {Budget{Left: 10, Chunked: true}, 7, 7}, {Budget{Left: -3, Chunked: true}, 7, 0},
		{Budget{Left: 10, Threshold: 4, Chunked: true}, 7, 4}, {Budget{Left: 3, Threshold: 4, Chunked: true}, 7, 3}, {Budget{Left: 10}, 12, 12},
	} {
		if got := v.b.Chunk(v.remaining); got != v.want {
			t.Errorf("%+v of %d: got %d, want %d", v.b, v.remaining, got, v.want)
		}
	}
	for prompt, want := range map[int64]int64{0: 0, 16: 0, 17: 1, 32: 1, 33: 2} {
		if got := MaxCachedBlocks(prompt, 16); got != want {
			t.Errorf("a prompt of %d: got %d cached blocks, want %d", prompt, got, want)
		}
	}
}
