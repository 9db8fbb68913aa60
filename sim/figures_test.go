package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/vllm"
)

// TestCadence: prefills are delayed until three steps have executed since the last one with a prefill, or in all but every third
// iteration of ranks in lockstep, if a request decodes.
func TestCadence(t *testing.T) {
	decode, chunk := &seq{}, &seq{chunk: true}
	for _, c := range []struct {
		name      string
		c         cadence
		running   []*seq
		iteration int64
		want      bool
	}{
		{"one step after a prefill", cadence{interval: 3, executed: 5, lastPrefill: 4}, []*seq{decode}, 0, true},
		{"two steps after it", cadence{interval: 3, executed: 6, lastPrefill: 4}, []*seq{decode}, 0, false},
		{"every step", cadence{interval: 1, executed: 5, lastPrefill: 5}, []*seq{decode}, 0, false},
		{"every other step", cadence{interval: 2, executed: 5, lastPrefill: 5}, []*seq{decode}, 0, true},
		{"requests wait for room", cadence{interval: 3, executed: 5, lastPrefill: 4, bound: true}, []*seq{decode}, 0, false},
		{"no request decodes", cadence{interval: 3, executed: 5, lastPrefill: 4}, []*seq{chunk}, 0, false},
		{"one of two decodes", cadence{interval: 3, executed: 5, lastPrefill: 4}, []*seq{chunk, decode}, 0, true},
		{"nothing runs", cadence{interval: 3, executed: 5, lastPrefill: 4}, nil, 0, false},
		{"in lockstep", cadence{interval: 3, executed: 9, shared: true}, []*seq{decode}, 4, true},
		{"in lockstep, the third", cadence{interval: 3, executed: 5, lastPrefill: 4, shared: true}, []*seq{decode}, 6, false},
	} {
		c.c.hold, c.c.continues, c.c.admits = true, true, true
		if c.c.begin(c.running, c.iteration); c.c.hold != c.want || c.c.continues || c.c.admits {
			t.Errorf("%s: got %+v, want a delay %v", c.name, c.c, c.want)
		}
	}
	for _, c := range []struct {
		tokens            int64
		continues, admits bool
		executed, last    int64
	}{{0, false, false, 5, 2}, {1, false, false, 6, 2}, {9, true, false, 6, 6}, {9, false, true, 6, 6}} {
		got := cadence{executed: 5, lastPrefill: 2, continues: c.continues, admits: c.admits}
		if got.end(c.tokens); got.executed != c.executed || got.lastPrefill != c.last {
			t.Errorf("a step of %d tokens: got %+v, want %+v", c.tokens, got, c)
		}
	}
	for _, c := range []struct {
		waiting            int
		long               int64
		notAlone, adaptive bool
		want               int64
	}{{2, 10, false, false, 10}, {0, 10, false, false, 10}, {0, 10, true, false, 0}, {1, 10, true, false, 10}, {1, 10, true, true, 50}, {2, 40, true, true, 40}, {1, 0, true, true, 0}} {
		e := &Engine{running: []*seq{decode}}
		e.longPrefill = c.long
		e.rules.ThresholdNotAlone, e.rules.ThresholdAdaptive = c.notAlone, c.adaptive
		e.cfg.Deployment = &deploy.Deployment{}
		e.cfg.Deployment.Engine.MaxNumBatchedTokens = 100
		for range c.waiting {
			e.waiting.push(&seq{})
		}
		if got := e.prefillThreshold(); got != c.want {
			t.Errorf("%+v: got a threshold of %d", c, got)
		}
	}
}

// TestQueueOfRequests: a queue serves in the order of arrival, or by priority, arrival and id.
func TestQueueOfRequests(t *testing.T) {
	of := func(idx int) *seq { return &seq{idx: idx, req: &Request{}, res: &RequestResult{}} }
	drain := func(q *waitQueue) (out []int) {
		for q.len() > 0 {
			s := q.peek()
			if q.pop() != s {
				t.Errorf("the next request is not the one that is served")
			}
			out = append(out, s.idx)
		}
		return out
	}
	var q waitQueue
	var want []int
	for i := range 40 { // more than the ring has at first, and around its end
		q.push(of(i))
		if i%4 == 3 {
			q.pop()
		}
	}
	for i := 10; i < 40; i++ {
		want = append(want, i)
	}
	seven := of(-7)
	q.prepend(seven)
	q.prepend(of(-8))
	q.remove(seven)
	if got := drain(&q); !slices.Equal(got, append([]int{-8}, want...)) {
		t.Errorf("first come: got %v, want -8 and %v", got, want)
	}
	byPriority := waitQueue{byPriority: true}
	removed := of(9)
	for _, s := range []*seq{
		{idx: 0, req: &Request{Priority: 2}, res: &RequestResult{}}, {idx: 1, req: &Request{Priority: 1, ID: "b"}, res: &RequestResult{ArrivalUs: 5}},
		{idx: 2, req: &Request{Priority: 1, ID: "a"}, res: &RequestResult{ArrivalUs: 5}}, {idx: 4, req: &Request{Priority: 1, ID: "a"}, res: &RequestResult{ArrivalUs: 4}},
		{idx: 3, req: &Request{Priority: 1, ID: "a"}, res: &RequestResult{ArrivalUs: 4}}, removed,
	} {
		byPriority.push(s)
	}
	byPriority.prepend(&seq{idx: 5, req: &Request{Priority: 3}, res: &RequestResult{}})
	byPriority.remove(removed)
	if got, want := drain(&byPriority), []int{3, 4, 2, 1, 0, 5}; !slices.Equal(got, want) {
		t.Errorf("by priority: got %v, want %v", got, want)
	}

	// Requests that were passed over go before the others, or only those that hold blocks.
	for _, c := range []struct {
		rules          vllm.Rules
		byPriority     bool
		front, waiting []int
	}{
		{vllm.Rules{}, false, nil, []int{0, 1, 2, 3}},
		{vllm.Rules{SkippedFirst: true}, false, []int{0, 1, 2}, []int{3}},
		{vllm.Rules{SkippedFirst: true}, true, nil, []int{0, 1, 2, 3}},
		{vllm.Rules{HoldersFirst: true}, false, []int{1, 2}, []int{0, 3}},
		{vllm.Rules{HoldersFirst: true}, true, []int{1, 2}, []int{0, 3}},
	} {
		e := &Engine{}
		e.rules, e.byPriority = c.rules, c.byPriority
		e.waiting.push(of(3))
		for i := range 3 {
			s := of(i)
			if i == 1 {
				s.computed = 4
			}
			if i == 2 {
				s.status = statusParked
			}
			e.skip(s)
			e.skip(s)
			e.skipped = e.skipped[:i+1]
		}
		if e.deferred != 3 {
			t.Errorf("got %d requests passed over, want 3", e.deferred)
		}
		e.putBackSkipped()
		next := &e.waiting
		if len(c.front) > 0 {
			next = &e.front
		}
		if e.nextQueue() != next || len(e.skipped) != 0 {
			t.Errorf("%+v: got the other queue", c)
		}
		front := e.front.peekAll()
		if got := e.waiting.peekAll(); !slices.Equal(front, c.front) || !slices.Equal(got, c.waiting) {
			t.Errorf("%+v: got %v before %v", c, front, got)
		}
	}
	e := &Engine{}
	s := of(1)
	e.skip(s)
	e.undefer(s)
	e.undefer(s)
	if e.deferred != 0 || s.deferred {
		t.Errorf("got %d requests passed over after all ran", e.deferred)
	}
}

// peekAll returns the indices of the requests of a queue without priorities, in their order.
func (q *waitQueue) peekAll() (out []int) {
	for i := range q.len() {
		out = append(out, q.at(i).idx)
	}
	return out
}

// TestTokensOfARequest: how many tokens a running request gets, and whether it makes a token in the step.
func TestTokensOfARequest(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      seq
		budget int64
		change func(e *Engine)
		want   int64
	}{
		{"rest of a prompt", seq{prompt: 100, computed: 60, maxTokens: 50}, 90, nil, 40},
		{"of the budget", seq{prompt: 100, computed: 60, maxTokens: 50}, 30, nil, 30},
		{"of the threshold", seq{prompt: 100, computed: 60, maxTokens: 50}, 90, func(e *Engine) { e.threshold = 20 }, 20},
		{"at the threshold", seq{prompt: 100, computed: 60, maxTokens: 50}, 90, func(e *Engine) { e.threshold = 40 }, 40},
		{"of the context", seq{prompt: 100, computed: 60, maxTokens: 50}, 90, func(e *Engine) { e.maxLen = 71 }, 10},
		{"a decode", seq{prompt: 100, outputs: 4, computed: 103, maxTokens: 50}, 90, nil, 1},
		{"a decode with drafts", seq{prompt: 100, outputs: 4, drafts: 3, computed: 103, maxTokens: 50}, 90, nil, 4},
		{"beside a token in flight", seq{prompt: 100, outputs: 4, inFlight: 1, computed: 104, maxTokens: 50}, 90, nil, 1},
		{"the last but one in flight", seq{prompt: 100, outputs: 4, inFlight: 1, computed: 104, maxTokens: 6}, 90, nil, 1},
		{"the last in flight", seq{prompt: 100, outputs: 4, inFlight: 1, computed: 104, maxTokens: 5}, 90, nil, 0},
		{"stages wait", seq{prompt: 100, outputs: 4, inFlight: 1, computed: 104, maxTokens: 50}, 90, func(e *Engine) { e.pp = 2 }, 0},
		{"stages that do not wait", seq{prompt: 100, outputs: 4, inFlight: 1, computed: 104, maxTokens: 50}, 90, func(e *Engine) { e.pp, e.rules.AsyncWithPP = 2, true }, 1},
		{"a later step", seq{prompt: 100, outputs: 4, computed: 103, maxTokens: 50, decodeAt: 8}, 90, nil, 0},
		{"its step", seq{prompt: 100, outputs: 4, computed: 103, maxTokens: 50, decodeAt: 7}, 90, nil, 1},
		{"a delayed chunk", seq{prompt: 100, computed: 60, maxTokens: 50, chunk: true}, 90, func(e *Engine) { e.cadence.hold = true }, 0},
		{"a decode while chunks are delayed", seq{prompt: 100, outputs: 4, computed: 103, maxTokens: 50}, 90, func(e *Engine) { e.cadence.hold = true }, 1},
	} {
		e := &Engine{}
		e.maxLen, e.step, e.pp = 1000, 7, 1
		if c.change != nil {
			c.change(e)
		}
		if got := e.tokensFor(&c.s, c.budget); got != c.want {
			t.Errorf("%s: got %d tokens, want %d", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		s    seq
		n    int64
		want bool
	}{
		{seq{prompt: 10, computed: 4}, 5, false}, {seq{prompt: 10, computed: 4}, 6, true}, {seq{prompt: 10, outputs: 2, computed: 11}, 1, true},
		{seq{prompt: 10, outputs: 2, inFlight: 1, computed: 11}, 1, false}, {seq{prompt: 10, outputs: 2, inFlight: 1, computed: 12}, 1, true},
	} {
		e := &Engine{}
		e.batch.begin(1, 0, nil, nil)
		if e.addToStep(&c.s, c.n, 0); e.cur[0].yields != c.want || e.cur[0].n != c.n || e.cur[0].s != &c.s {
			t.Errorf("%+v: got %+v, want a token %v", c, e.cur[0], c.want)
		}
	}
}

// TestRankOfARequest: the ranks of the second of two servers come after those of the first.
func TestRankOfARequest(t *testing.T) {
	r := &allRanks{balance: &balancer{ranks: 3, servers: []apiServer{{first: 0}, {first: 4}}, slots: []int32{0, 2, 3, 5}}}
	for i, want := range []int{0, 2, 4, 6} {
		if got := r.RankOf(i); got != want {
			t.Errorf("request %d: got rank %d, want %d", i, got, want)
		}
	}
}

// TestInputsOfDelays: what a delay model is given of the queue.
func TestInputsOfDelays(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.BlockSize = 16
	for _, version := range []features.Version{features.V10, features.V11} {
		list := features.AlphaFeatures(version)
		set := testkit.Planted()
		set.SpecVersion = version
		set.Alpha = []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: features.NewCoefficients(list)}}
		a, err := NewAlphaDelay(set, coeff.Overhead, d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.DelayUs(&Queue{TotalBlocks: 1000, FreeBlocks: 250, Running: 7, Waiting: 3, PromptTokens: 100, CachedBlocks: 5, PreemptionEMA: 0.25}); err != nil {
			t.Error(err)
		}
		want := features.QueueInput{RunningDepth: 7, WaitingDepth: 3, KVUsageRatio: 0.75, PromptTokens: 100, PreemptionEMA: 0.25, PrefixHitRatio: 0.8}
		if version == features.V10 {
			want.KVFreeBytes = a.space.KVFreeBytes(1000, 0.75)
		} else {
			want.KVFreeBlocks = 250
		}
		if a.in != want || version == features.V10 && want.KVFreeBytes == 0 {
			t.Errorf("%s: got %+v, want %+v", version, a.in, want)
		}
		if _, err := a.DelayUs(&Queue{PromptTokens: 40, CachedBlocks: 5}); err != nil || a.in.KVUsageRatio != 0 || a.in.PrefixHitRatio != 1 {
			t.Errorf("%s, no blocks: got %+v and %v", version, a.in, err)
		}
	}
}

// TestRooflineOfAMixture: attention to the decodes' part of the context is read beside their arithmetic, and the rest beside
// that of prompts.
func TestRooflineOfAMixture(t *testing.T) {
	m, err := NewRoofline(testkit.Llama8B())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []Batch{
		{PrefillTokens: 100, PrefillReqs: 1, CausalWork: 5050, DecodeTokens: 8, DecodeReqs: 8, DecodeContext: 8000, KVRead: 8100, Running: 9},
		{DecodeTokens: 8, DecodeReqs: 8, DecodeContext: 8000, KVRead: 4000, Running: 8},
		{PrefillTokens: 1, PrefillReqs: 1, CausalWork: 100_001, PrefillContext: 100_000, KVRead: 100_001, Running: 1},
	} {
		got, err := m.StepUs(&b)
		if err != nil {
			t.Fatal(err)
		}
		x := map[string]float64{}
		for i, f := range m.space.BetaFeatures() {
			x[f.Name] = m.x[i]
		}
		decodes := math.Min(1, float64(b.DecodeContext)/float64(b.KVRead))
		read := x["kv_cache_read"]
		seconds := x["prefill_linear_compute"] + x["decode_weight_load"] + x["tp_communication"] + x["fixed_step_overhead"]
		seconds += math.Max(x["prefill_attention"], read*(1-decodes))
		seconds += math.Max(x["decode_attention"], read*decodes)
		want := seconds * 1e6
		if !(read > 0) || math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: got %g us, want %g", fmt.Sprint(b.KVRead), got, want)
		}
	}
}
