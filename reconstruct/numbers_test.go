package reconstruct

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestClustersThatAreNoSteps: each figure at its limit and just beyond.
func TestClustersThatAreNoSteps(t *testing.T) {
	good := ChunkQuality{Clusters: 100, WholeShare: 0.95, TokenShare: 1, JitterUs: [3]float64{1000, 9e9, 9e9}, StepUs: 10_000}
	for want, change := range map[string]func(q *ChunkQuality){
		"":                                       func(*ChunkQuality) {},
		"too few of them":                        func(q *ChunkQuality) { q.Clusters = 99 },
		"chunks are not tokens, or some answers": func(q *ChunkQuality) { q.TokenShare = 1.0201 },
		"chunks are not tokens, or some answers have": func(q *ChunkQuality) { q.TokenShare = 0.9799 },
		"requests run through clusters without a":     func(q *ChunkQuality) { q.WholeShare = 0.9499 },
		"chunks of a step come too far apart":         func(q *ChunkQuality) { q.JitterUs[0] = 1001 },
	} {
		q := good
		change(&q)
		if got := q.Problem(); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%+v: got %q, want %q", q, got, want)
		}
	}
	for _, share := range []float64{0.9801, 1.0199} {
		q := good
		if q.TokenShare = share; q.Problem() != "" {
			t.Errorf("%g chunks a token: got %q", share, q.Problem())
		}
	}
}

// TestStepsOfARequest: the steps in which a request may have run, by what is recorded of it.
func TestStepsOfARequest(t *testing.T) {
	none := trace.Opt[int64]{}
	some := trace.Some[int64]
	for _, c := range []struct {
		name    string
		isAsync bool
		change  func(q *trace.Request)
		why     Reason
		steps   [2]int64 // -1: it never ran
	}{
		{"whole", false, func(*trace.Request) {}, Known, [2]int64{9, 13}},
		{"preempted", false, func(q *trace.Request) { q.Preemptions = some(1) }, PreemptedRequest, [2]int64{9, 13}},
		{"preempted 0 times", false, func(q *trace.Request) { q.Preemptions = some(0) }, Known, [2]int64{9, 13}},
		{"preempted, asynchronous", true, func(q *trace.Request) { q.Preemptions = some(1) }, PreemptedRequest, [2]int64{9, 14}},
		{"events lost", false, func(q *trace.Request) { q.DroppedEvents = 1 }, InconsistentRequest, [2]int64{9, 13}},
		{"no SCHEDULED", false, func(q *trace.Request) { q.ScheduledStep = none }, InconsistentRequest, [2]int64{10, 13}},
		{"no FINISHED", false, func(q *trace.Request) { q.FinishedStep = none }, InconsistentRequest, [2]int64{9, 100}},
		{"no FINISHED, scheduled after the run", false, func(q *trace.Request) { q.FinishedStep, q.ScheduledStep, q.FirstTokenStep = none, some(105), some(106) }, InconsistentRequest, [2]int64{105, 105}},
		{"QUEUED alone", false, func(q *trace.Request) { q.FinishedStep, q.ScheduledStep, q.FirstTokenStep = none, none, none }, InconsistentRequest, [2]int64{8, 100}},
		{"nothing", false, func(q *trace.Request) {
			q.FinishedStep, q.ScheduledStep, q.FirstTokenStep, q.QueuedStep = none, none, none, none
		}, InconsistentRequest, [2]int64{0, 100}},
		{"it ended while it waited", false, func(q *trace.Request) { q.ScheduledStep, q.FirstTokenStep = none, none }, Known, [2]int64{-1, -1}},
		{"it ended while it waited, events lost", false, func(q *trace.Request) { q.ScheduledStep, q.FirstTokenStep, q.DroppedEvents = none, none, 1 }, InconsistentRequest, [2]int64{8, 13}},
		{"no prompt length", false, func(q *trace.Request) { q.PromptTokens = none }, InconsistentRequest, [2]int64{9, 13}},
		{"a prompt of 0 tokens", false, func(q *trace.Request) { q.PromptTokens = some(0) }, InconsistentRequest, [2]int64{9, 13}},
		{"no output length", false, func(q *trace.Request) { q.OutputTokens = none }, InconsistentRequest, [2]int64{9, 13}},
		{"an output of 0 tokens", false, func(q *trace.Request) { q.OutputTokens, q.FinishedStep = some(0), some(9) }, InconsistentRequest, [2]int64{9, 9}},
		{"the first token before it was scheduled", false, func(q *trace.Request) { q.FirstTokenStep, q.FinishedStep = some(8), some(11) }, InconsistentRequest, [2]int64{9, 11}},
		{"no first token", false, func(q *trace.Request) { q.FirstTokenStep = none }, InconsistentRequest, [2]int64{9, 13}},
		{"aborted before it", false, func(q *trace.Request) { q.FirstTokenStep, q.FinishStatus = none, trace.Some(trace.FinishAborted) }, Known, [2]int64{9, 13}},
		{"an error before it", false, func(q *trace.Request) { q.FirstTokenStep, q.FinishStatus = none, trace.Some(trace.FinishError) }, Known, [2]int64{9, 13}},
		{"aborted before it was scheduled", false, func(q *trace.Request) {
			q.FirstTokenStep, q.FinishedStep, q.FinishStatus = none, some(8), trace.Some(trace.FinishAborted)
		}, InconsistentRequest, [2]int64{9, 9}},
		{"aborted early", false, func(q *trace.Request) { q.FinishedStep, q.FinishStatus = some(12), trace.Some(trace.FinishAborted) }, InconsistentRequest, [2]int64{9, 12}},
		{"as many steps as may be", false, func(q *trace.Request) { q.OutputTokens, q.FinishedStep = some(1<<23-1), some(9+1<<23-1) }, Known, [2]int64{9, 9 + 1<<23 - 1}},
		{"more steps", false, func(q *trace.Request) { q.OutputTokens, q.FinishedStep = some(1<<23), some(9+1<<23) }, InconsistentRequest, [2]int64{0, 100}},
		{"more steps to the first token", false, func(q *trace.Request) { q.FirstTokenStep = some(9 + 1<<23) }, InconsistentRequest, [2]int64{0, 100}},
		{"a step of 40 bits", false, func(q *trace.Request) { q.QueuedStep = some(1 << 40) }, Known, [2]int64{9, 13}},
		{"a larger one", false, func(q *trace.Request) { q.QueuedStep = some(1<<40 + 1) }, InconsistentRequest, [2]int64{0, 100}},
		{"a negative one", false, func(q *trace.Request) { q.QueuedStep = some(-1) }, InconsistentRequest, [2]int64{0, 100}},
		{"step 0", false, func(q *trace.Request) { q.QueuedStep = some(0) }, Known, [2]int64{9, 13}},
	} {
		q := journeyOf("r", 5, 4, 9, 10, 13)
		q.QueuedStep = some(8)
		c.change(&q)
		r := &lifeReader{isAsync: c.isAsync, lastStep: 100}
		l, ok := r.readLife(&q)
		if !ok {
			l.scheduled, l.lastRun = -1, -1
		}
		if got := [2]int64{l.FirstStep(), l.LastStep()}; l.unknown != c.why || got != c.steps {
			t.Errorf("%s: got steps %v, %q; want %v, %q", c.name, got, l.unknown, c.steps, c.why)
		}
	}
	r := &lifeReader{prefixCaching: true}
	q := journeyOf("r", 5, 4, 9, 10, 13)
	for cached, want := range map[int64]trace.Opt[int64]{-1: none, 0: some(0), 3: some(3)} {
		q.CachedTokens = some(cached)
		if l, _ := r.readLife(&q); l.cached != want {
			t.Errorf("%d cached tokens: got %v", cached, l.cached)
		}
	}
	if CachedTokens(none, true).OK || CachedTokens(none, false) != some(0) || CachedTokens(some(7), false) != some(7) {
		t.Error("without a prefix cache nothing is cached, unless it is recorded")
	}
	// Lives are in the order of their first step, then of their times.
	a, b, c := journeyOf("a", 5, 4, 9, 10, 13), journeyOf("b", 5, 4, 9, 10, 13), journeyOf("c", 5, 4, 8, 10, 13)
	a.ScheduledNs, b.ScheduledNs = some(2), some(1)
	var order []string
	for _, l := range Lives([]trace.Request{a, b, c}, engine(nil), 20) {
		order = append(order, l.id)
	}
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("got the order %v", order)
	}
}

// TestLongPrompts: a prompt in 4096 steps has chunks, one in 4097 has none.
func TestLongPrompts(t *testing.T) {
	for steps, want := range map[int64]Reason{4096: Known, 4097: PrefillUnknown} {
		e := engine(func(e *vllm.Engine) { e.MaxNumBatchedTokens = 1 })
		b := FromJourneys(Lives([]trace.Request{journeyOf("a", steps, 1, 1, steps, steps)}, e, steps), Recording{Engine: e, First: 1, Last: steps})
		if why := b.Reasons(); why[0] != want || why[steps-1] != want || b.Len() != int(steps) || !b.HasLives() || b.Summary(0) != -1 {
			t.Errorf("%d steps: got %q", steps, why[0])
		}
	}
}

// TestBatchesOfChunks: two prompts that end in one cluster, rows without times, and how far apart the chunks of a cluster may be.
func TestBatchesOfChunks(t *testing.T) {
	// Both prompts end in the seventh step; that of 120 tokens fills the step before, beside a decode.
	first, second, third := stream(5000, 40, 1, 119), stream(55_000, 70, 7, 3), stream(45_000, 120, 7, 3)
	steps, q := FromChunks([]trace.ObservedRequest{first, second, third}, &vllm.Engine{MaxNumBatchedTokens: 100})
	if q.Problem() != "" || q.TokenShare != 1 {
		t.Fatalf("got %+v: %s", q, q.Problem())
	}
	show := func(s *trace.Iteration) string {
		return fmt.Sprint(s.ContextReqs, s.ContextTokens, s.ContextKVTokens.V, s.PromptVariance.V, s.PromptVariance.OK, s.GenerationReqs, s.GenerationTokens, s.DecodeKVTokens.V)
	}
	for at, want := range map[int]string{5: "1 99 0 0 true 1 1 44", 6: "2 91 99 625 true 1 1 45", 7: "0 0 0 0 false 3 3 236"} {
		if got := show(&steps[at]); got != want {
			t.Errorf("step %d: got %s, want %s", at, got, want)
		}
	}
	// Before the last request without times was sent, no batch is known.
	hidden := trace.ObservedRequest{LoadOnly: trace.Some(true), SendNs: trace.Some(int64(500e6))}
	steps, _ = FromChunks([]trace.ObservedRequest{first, hidden}, &vllm.Engine{MaxNumBatchedTokens: 100})
	if len(steps) != 119-50 || steps[0].Index != 51 {
		t.Errorf("got %d steps from %d on, want those after 0.5 s", len(steps), steps[0].Index)
	}
	// A prompt is not computed before it was sent.
	late := stream(61_000, 150, 7, 3)
	steps, _ = FromChunks([]trace.ObservedRequest{first, late}, &vllm.Engine{MaxNumBatchedTokens: 100})
	if steps[5].ContextReqs != 0 || steps[6].Index != 9 {
		t.Errorf("got %+v and %+v, want hidden steps before the seventh", steps[5], steps[6])
	}
	// Of gaps of 10 ms a cluster has chunks up to 5 ms apart.
	for apart, want := range map[int64]int{5000: 6, 5001: 7} {
		near := stream(5000, 40, 7, 3)
		near.FirstChunkNs.V += apart * 1000
		steps, _ := FromChunks([]trace.ObservedRequest{first, near}, &vllm.Engine{MaxNumBatchedTokens: 100})
		if got := slices.IndexFunc(steps[1:], func(it trace.Iteration) bool { return it.ContextReqs > 0 }) + 1; got != want {
			t.Errorf("%d us apart: got the prompt in step %d, want %d", apart, got, want)
		}
	}
}
