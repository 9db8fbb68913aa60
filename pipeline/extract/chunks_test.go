package extract

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
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

// TestPromptsArePlaced: a prompt beyond the budget stands in the steps before its
// first chunk, as far as decodes left room; who decodes where, over which contexts,
// follows by counting.
func TestPromptsArePlaced(t *testing.T) {
	// The first request decodes from step 2 on; the second sends 250 tokens in step 4,
	// which take steps 5, 6 and 7 of 99 tokens beside the one decode.
	steps, q := recoverSteps([]trace.ObservedRequest{stream(5000, 40, 1, 119), stream(45_000, 250, 7, 3)}, 100, 0)
	if q.Clusters != 119 || q.WholeShare != 1 || q.Verdict() != "" || len(steps) != 119 {
		t.Fatalf("got %d steps, %+v: %s", len(steps), q, q.Verdict())
	}
	for at, want := range map[int][6]int64{ // prompts, their tokens and KV, decodes and their KV
		0: {1, 40, 0, 0, 0, 0}, 1: {0, 0, 0, 1, 40, 0}, 3: {0, 0, 0, 1, 42, 0}, 4: {1, 99, 0, 1, 43, 0}, 5: {1, 99, 99, 1, 44, 0},
		6: {1, 52, 198, 1, 45, 0}, 7: {0, 0, 0, 2, 46 + 250, 0}, 9: {0, 0, 0, 1, 48, 0},
	} {
		s := &steps[at]
		got := [6]int64{s.ContextReqs, s.ContextTokens, s.ContextKVTokens.V, s.GenerationReqs, s.DecodeKVTokens.V, 0}
		if got != want || s.Index != int64(at+1) {
			t.Errorf("step %d: got %v at %d, want %v", at, got, s.Index, want)
		}
	}
}

// TestHiddenSteps: a prompt of several budgets on an idle engine takes steps that
// deliver nothing: they leave a gap, and its own step is no row.
func TestHiddenSteps(t *testing.T) {
	steps, q := recoverSteps([]trace.ObservedRequest{stream(0, 40, 1, 60), stream(900_000, 350, 100, 60)}, 100, 0)
	if q.Verdict() != "" || len(steps) != 119 {
		t.Fatalf("got %d steps of %d: %s", len(steps), q.Clusters, q.Verdict())
	}
	if a, b := steps[59].Index, steps[60].Index; b-a != 3 {
		t.Errorf("index %d after %d, want a gap of the hidden steps and the one whose prompt is not known", b, a)
	}
}

// TestNoSteps: clusters that are no steps are refused with the reason.
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
		if _, q := recoverSteps(c.rows, 1000, 0); !strings.Contains(q.Verdict(), c.want) {
			t.Errorf("%s: got %q (%+v), want %q", name, q.Verdict(), q, c.want)
		}
	}
	if steps, q := recoverSteps([]trace.ObservedRequest{{ID: "no chunks"}}, 1000, 0); steps != nil || q.Clusters != 0 {
		t.Errorf("got %+v, %+v of nothing", steps, q)
	}
}
