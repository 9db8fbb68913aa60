package validate

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// sampled drops every second journey of a recording and returns what it dropped.
func sampled(run *trace.Run) (kept *trace.Run, dropped []trace.Request) {
	out := *run
	out.Requests = nil
	for i, r := range run.Requests {
		if i%2 == 0 {
			out.Requests = append(out.Requests, r)
		} else {
			dropped = append(dropped, r)
		}
	}
	return &out, dropped
}

// TestUnrecordedRequestsAreRebuiltFromSteps: as many as were dropped, with their prompts, at
// their time, and with as many tokens to decode.
func TestUnrecordedRequestsAreRebuiltFromSteps(t *testing.T) {
	dep := plantedDeployment(t)
	for _, async := range []bool{false, true} {
		run := recordPlanted(t, testkit.PlantedOn(dep), dep, plantedLoad(300, 1.5, 21), func(c *sim.Config) { c.Async = async })
		half, dropped := sampled(run)
		got, reason := unrecordedRequests(half, async)
		if reason != "" || len(got) != len(dropped) {
			t.Errorf("async %v: got %d requests (%s), want %d", async, len(got), reason, len(dropped))
			continue
		}
		var prompts, want []int64
		tokens, wantTokens := int64(0), int64(0)
		for i, r := range got {
			prompts = append(prompts, r.Prompt)
			want = append(want, dropped[i].PromptTokens.V)
			tokens += r.Output
			wantTokens += dropped[i].OutputTokens.V
			if off := r.ArrivalNs - dropped[i].ArrivedNs.V; off < -350e6 || off > 350e6 {
				t.Errorf("async %v: request %d arrives %.1f ms off", async, i, float64(off)/1e6)
			}
		}
		slices.Sort(prompts)
		slices.Sort(want)
		if !slices.Equal(prompts, want) || tokens < wantTokens*99/100 || tokens > wantTokens*101/100 {
			t.Errorf("async %v: got prompts %v and %d tokens, want %v and %d", async, prompts, tokens, want, wantTokens)
		}
	}
}

// TestUnrecordedNeedsWhatStepsTell: a missing step, a queue, a preemption and steps that
// count what nobody ran each have their reason.
func TestUnrecordedNeedsWhatStepsTell(t *testing.T) {
	dep := plantedDeployment(t)
	record := func() *trace.Run {
		half, _ := sampled(recordPlanted(t, testkit.PlantedOn(dep), dep, plantedLoad(100, 1.5, 22), nil))
		return half
	}
	for what, spoil := range map[string]func(*trace.Run){
		"no steps":     func(r *trace.Run) { r.Steps = nil },
		"missing step": func(r *trace.Run) { r.Steps = slices.Delete(r.Steps, 40, 41) },
		"queue": func(r *trace.Run) {
			for i := range len(r.Steps) / 10 {
				r.Steps[i].WaitingDepth = 1
			}
		},
		"preemption": func(r *trace.Run) { r.Steps[50].NumPreempted = 1 },
		"running requests that never began": func(r *trace.Run) {
			for i := range r.Steps {
				r.Steps[i].NumFinished = 0
			}
		},
	} {
		run := record()
		spoil(run)
		if got, reason := unrecordedRequests(run, false); reason == "" {
			t.Errorf("%s: got %d requests and no reason", what, len(got))
		}
	}
}
