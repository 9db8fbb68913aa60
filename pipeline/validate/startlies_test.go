package validate_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestLiesOfStarts: settings of another start of the server, and journeys of a class that were lost, contradict a recording.
func TestLiesOfStarts(t *testing.T) {
	traces := filepath.Join(repo.Root(t), "testdata", "traces")
	h100 := honestRuns(t, traced, filepath.Join(traces, "demo", "h100-qwen2.5-14b-tp2"))[0]
	cpu := honestRuns(t, traced+client, filepath.Join(traces, "real", "gqa-low"))[0]
	for _, c := range []struct {
		lie
		on     []*honest
		effect string
		says   string
	}{
		{lie{what: "dp 2", causes: "engine_ranks", dep: func(d *deploy.Deployment) { d.DP = 2 }}, []*honest{h100, cpu}, result.IdentityFails, "one engine has 400 of the 400 requests"},
		// Of the CPU server's prompts a single one was computed in two parts.
		{lie{what: "chunked prefill off", causes: "chunk_reason", dep: func(d *deploy.Deployment) { d.Engine.ChunkedPrefill = false }}, []*honest{h100, cpu},
			result.IdentityFails, "computed in parts"},
		{lie{what: "journeys of short answers lost", causes: "finished_requests", run: func(r *trace.Run) {
			r.Requests = slices.DeleteFunc(r.Requests, func(q trace.Request) bool { return q.OutputTokens.V < 12 })
		}}, []*honest{h100}, result.IdentityUndecided, "finished requests where"},
	} {
		for _, h := range c.on {
			got := h.inspect(t, &c.lie)
			i := slices.IndexFunc(got.Identities, func(id result.Identity) bool { return id.Name == c.causes })
			id := got.Identities[i]
			if id.Status != result.IdentityViolated || id.Effect != c.effect {
				t.Errorf("%s of %s: %s is %s, %s (%s), violated %v", c.what, h.name, c.causes, id.Status, id.Effect, id.Sentence, violations(&got))
			}
			if h == h100 && !strings.Contains(id.Sentence, c.says) {
				t.Errorf("%s of %s: got %q, want %q in it", c.what, h.name, id.Sentence, c.says)
			}
		}
	}
}

// TestRanksBesideEachOther: a recording of one of several engines, of a rank with an API server of its own, and of requests that
// came one after the other, does not contradict data_parallel_size 2.
func TestRanksBesideEachOther(t *testing.T) {
	h := honestRuns(t, traced, filepath.Join(repo.Root(t), "testdata", "traces", "demo", "h100-qwen2.5-14b-tp2"))[0]
	two := func(d *deploy.Deployment) { d.DP = 2 }
	for _, c := range []lie{
		{what: "half of the requests in the other rank", dep: two, run: func(r *trace.Run) {
			for i := range r.Requests {
				if i%2 == 0 {
					loseCore(&r.Requests[i])
				}
			}
		}},
		{what: "external balancer", dep: func(d *deploy.Deployment) {
			two(d)
			extra("data_parallel_external_lb", true)(d)
		}},
		{what: "one request at a time", dep: two, run: eachStep(func(s *trace.Step) { s.RunningDepth, s.WaitingDepth = 1, 0 })},
	} {
		got := h.inspect(t, &c)
		for _, id := range got.Identities {
			if id.Name == "engine_ranks" && id.Status == result.IdentityViolated {
				t.Errorf("%s: got %s", c.what, id.Sentence)
			}
		}
	}
}
