package reconstruct

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// stream is a request sent at sentUs whose chunks come at the given steps, each 10 ms.
func stream(sentUs, prompt int64, firstStep, n int) trace.ObservedRequest {
	r := trace.ObservedRequest{SendNs: trace.Some(sentUs * 1000), PromptTokens: trace.Some(prompt), OutputTokens: trace.Some(int64(n)),
		FirstChunkNs: trace.Some(int64(firstStep) * 10e6), Chunks: trace.Some(int64(n))}
	for range n - 1 {
		r.ChunkGapsUs = append(r.ChunkGapsUs, 10_000)
	}
	return r
}

// TestPromptsArePlaced: a prompt longer than the budget is computed in the steps before its first
// chunk, as far as decodes leave room; who decodes where, over which contexts, follows by counting.
func TestPromptsArePlaced(t *testing.T) {
	// The first request decodes from step 2 on; the second sends 250 tokens in step 4,
	// which take steps 5, 6 and 7: 99 tokens each next to the one decode.
	steps, q := FromChunks([]trace.ObservedRequest{stream(5000, 40, 1, 119), stream(45_000, 250, 7, 3)},
		&vllm.Engine{MaxNumBatchedTokens: 100})
	if q.Clusters != 119 || q.WholeShare != 1 || q.Problem() != "" || len(steps) != 119 {
		t.Fatalf("got %d steps, %+v: %s", len(steps), q, q.Problem())
	}
	for at, want := range map[int][6]int64{ // prompts, their tokens and KV, decodes and their KV
		0: {1, 40, 0, 0, 0, 0}, 1: {0, 0, 0, 1, 40, 0}, 3: {0, 0, 0, 1, 42, 0}, 4: {1, 99, 0, 1, 43, 0}, 5: {1, 99, 99, 1, 44, 0},
		6: {1, 52, 198, 1, 45, 0}, 7: {0, 0, 0, 2, 46 + 250, 0}, 9: {0, 0, 0, 1, 48, 0},
	} {
		s := &steps[at]
		got := [6]int64{s.ContextReqs, s.ContextTokens, s.ContextKVTokens.V, s.GenerationReqs, s.DecodeKVTokens.V, 0}
		if got != want || s.Index != int64(at+1) || s.StampNs.V != int64(at+1)*10_000_000 || s.StampStepNs.V != 1000 || s.ElapsedUs != 10_000*float64(min(at, 1)) {
			t.Errorf("step %d: got %v at %d, want %v", at, got, s.Index, want)
		}
	}
}

// TestHiddenSteps: a prompt of several budgets on an idle engine takes steps that
// deliver nothing: they leave a gap, and its own step is no row.
func TestHiddenSteps(t *testing.T) {
	steps, q := FromChunks([]trace.ObservedRequest{stream(0, 40, 1, 60), stream(900_000, 350, 100, 60)},
		&vllm.Engine{MaxNumBatchedTokens: 100})
	if q.Problem() != "" || len(steps) != 119 {
		t.Fatalf("got %d steps of %d: %s", len(steps), q.Clusters, q.Problem())
	}
	if a, b := steps[59].Index, steps[60].Index; b-a != 3 {
		t.Errorf("index %d after %d, want a gap of the hidden steps and the one whose prompt is not known", b, a)
	}
}

// TestUnknownPrompts: with a prefix cache, steps whose prompts may have been cached are left out;
// those of decodes, and of prompts whose hits are known, stay.
func TestUnknownPrompts(t *testing.T) {
	e := &vllm.Engine{MaxNumBatchedTokens: 1000, PrefixCaching: true}
	rows := []trace.ObservedRequest{stream(5000, 40, 1, 119), stream(45_000, 250, 7, 3)}
	if steps, q := FromChunks(rows, e); q.Problem() != "" || len(steps) != 117 {
		t.Errorf("got %d steps, %s; want those without prompts", len(steps), q.Problem())
	}
	rows[1].CachedTokens = trace.Some(int64(192))
	steps, _ := FromChunks(rows, e)
	if len(steps) != 118 || steps[5].ContextTokens != 58 || steps[5].ContextKVTokens.V != 192 {
		t.Errorf("got %d steps, %+v; want the known prompt too", len(steps), steps[5])
	}
	rows[1].CachedMax, rows[1].CachedSource = trace.Some(int64(224)), trace.Some(trace.CachedCounter) // a share of a sum
	if steps, _ := FromChunks(rows, e); len(steps) != 117 {
		t.Errorf("got %d steps, want none of a guess", len(steps))
	}
}

// TestNoSteps: clusters that are not steps are refused with the reason.
func TestNoSteps(t *testing.T) {
	several := stream(0, 40, 1, 150)
	several.OutputTokens.V = 300 // two tokens a chunk
	other := stream(0, 40, 1, 100)
	for i := range other.ChunkGapsUs {
		other.ChunkGapsUs[i] = 10_000 * float64(1+i%2) // every second chunk of its own is late
	}
	for name, c := range map[string]struct {
		rows []trace.ObservedRequest
		want string
	}{
		"few":     {[]trace.ObservedRequest{stream(0, 40, 1, 20)}, "too few"},
		"several": {[]trace.ObservedRequest{several}, "not tokens"},
		"others":  {[]trace.ObservedRequest{stream(0, 40, 1, 150), other}, "without a chunk"},
	} {
		if _, q := FromChunks(c.rows, &vllm.Engine{MaxNumBatchedTokens: 1000}); !strings.Contains(q.Problem(), c.want) {
			t.Errorf("%s: got %q (%+v), want %q", name, q.Problem(), q, c.want)
		}
	}
	steps, q := FromChunks([]trace.ObservedRequest{{ID: "no chunks"}}, &vllm.Engine{MaxNumBatchedTokens: 1000})
	if steps != nil || q.Clusters != 0 {
		t.Errorf("got %+v, %+v of nothing", steps, q)
	}
}

// TestJitterOfChunks: the chunks of one of two requests come half a millisecond after those of the other.
func TestJitterOfChunks(t *testing.T) {
	late := stream(0, 40, 1, 100)
	late.FirstChunkNs.V += 500_000
	_, q := FromChunks([]trace.ObservedRequest{stream(0, 40, 1, 100), late}, &vllm.Engine{MaxNumBatchedTokens: 100})
	if q.Clusters != 100 || q.StepUs != 10_000 || q.JitterUs[1] != 500 || q.JitterUs[2] != 500 {
		t.Errorf("got %+v, want steps of 10 ms and half of the chunks 500 us late", q)
	}
}

// TestQuantilesOfJitter: of 400 chunks in 100 clusters a quarter each comes with the first, 100, 200 and 900 us later, and one
// of the last 2 ms later: half of them 150 us late, nine in ten and 99 in 100 900 us. The stamps are that precise.
func TestQuantilesOfJitter(t *testing.T) {
	var rows []trace.ObservedRequest
	for _, lateUs := range []int64{0, 100, 200, 900} {
		r := stream(0, 40, 1, 100)
		r.FirstChunkNs.V += lateUs * 1000
		rows = append(rows, r)
	}
	rows[3].ChunkGapsUs[50] += 1100
	rows[3].ChunkGapsUs[51] -= 1100
	steps, q := FromChunks(rows, &vllm.Engine{MaxNumBatchedTokens: 1000})
	if q.Clusters != 100 || q.JitterUs != [3]float64{150, 900, 900} || steps[5].StampStepNs.V != 150_000 {
		t.Errorf("got %+v, stamps to %d ns", q, steps[5].StampStepNs.V)
	}
}
