package identity

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/internal/testkit/planted"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// honest is a recording of journeys, steps, snapshots and clients that agree with each other and with the deployment.
func honest(t *testing.T) (*trace.Run, *deploy.Deployment) {
	t.Helper()
	dep, err := deploy.LoadRun(filepath.Join(repo.Root(t), "testdata/traces/real/gqa-low"))
	if err != nil {
		t.Fatal(err)
	}
	dep.Phases = nil
	run := planted.Record(t, testkit.PlantedOn(dep), dep, planted.Load(60, 3, 21), nil)
	for i := range run.Requests {
		r := &run.Requests[i]
		e2eNs := r.DepartedNs.V - r.ArrivedNs.V + 2e6
		ttftNs := r.FirstTokenNs.V - r.ArrivedNs.V + 2e6
		run.Observed = append(run.Observed, trace.ObservedRequest{E2EUs: trace.Some(float64(e2eNs) / 1e3), TTFTUs: trace.Some(float64(ttftNs) / 1e3),
			ID: r.CoreID.V, CoreID: r.CoreID, Source: "client", SendNs: trace.Some(r.ArrivedNs.V - 1e6),
			FirstChunkNs: trace.Some(r.FirstTokenNs.V + 1e6), LastChunkNs: trace.Some(r.DepartedNs.V + 1e6), EndNs: trace.Some(r.DepartedNs.V + 2e6),
			PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Success: trace.Some(true)})
	}
	return run, dep
}

// compared applies the identities to a recording.
func compared(t *testing.T, run *trace.Run, dep *deploy.Deployment, findings []trace.Finding) []result.Identity {
	t.Helper()
	steps, err := rows.Rebuild(run, dep, features.V11)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Check(Evidence{Run: run, Deployment: dep, Steps: steps, Findings: findings})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestHonestRecording compares every count of a recording that contradicts nothing.
func TestHonestRecording(t *testing.T) {
	run, dep := honest(t)
	out := compared(t, run, dep, nil)
	for _, id := range out {
		if id.Status == result.IdentityViolated {
			t.Errorf("%s: %s", id.Name, id.Sentence)
		}
	}
	testkit.Document(t, "honest", out, "holds", "tolerance", "streams")
}

// TestEachLieIsSeen: a change of one stream violates the identities that it contradicts and no other.
func TestEachLieIsSeen(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(r *trace.Run, d *deploy.Deployment)
		want string // names of the violated identities
	}{
		{"SCHEDULED after FIRST_TOKEN", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].ScheduledNs.V = r.Requests[i].FirstTokenNs.V + 1_000_001
			}
		}, "engine_order"},
		{"DEPARTED before FINISHED", func(r *trace.Run, d *deploy.Deployment) {
			r.Requests[5].DepartedNs.V = r.Requests[5].FinishedNs.V - 5e6
		}, "departure_order"},
		{"asynchronous scheduling that the server did not have", func(r *trace.Run, d *deploy.Deployment) {
			d.Engine.AsyncScheduling = trace.Some(true)
		}, "scheduled_ahead"},
		{"a version whose default is asynchronous", func(r *trace.Run, d *deploy.Deployment) {
			d.Engine.VLLMVersion, d.Engine.AsyncScheduling, d.Engine.Extra = "0.24.0", trace.Opt[bool]{}, nil
		}, "scheduled_ahead"},
		{"first tokens after the next step, without asynchronous scheduling", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				q := &r.Requests[i]
				next := q.FirstTokenStep.V + 1 - r.Steps[0].ID
				q.FirstTokenNs.V = r.Steps[next].TsStartNs + 500_000
			}
		}, "scheduled_ahead"},
		{"one output token more in each journey", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].OutputTokens.V++
				r.Observed[i].OutputTokens.V++
			}
		}, "output_steps"},
		{"one output token less in each journey", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].OutputTokens.V--
				r.Observed[i].OutputTokens.V--
			}
		}, "output_steps"},
		{"chunks before the request was sent", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				r.Observed[i].FirstChunkNs.V = r.Observed[i].SendNs.V - 5e6
			}
		}, "client_order"},
		{"events in order within the slack", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].ScheduledNs.V = r.Requests[i].FirstTokenNs.V + 1_000_000
			}
		}, "step_order"},
		{"clients that waited shorter than the engine took", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				r.Observed[i].E2EUs.V /= 2
			}
		}, "client_encloses_server"},
		{"clients whose times have another unit", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				r.Observed[i].E2EUs.V *= 1000
			}
		}, "client_encloses_server client_limits"},
		{"step tokens", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].ScheduledTokens += 3
			}
		}, "journey_tokens snapshot_tokens step_tokens"},
		{"prompts", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].PromptTokens.V += 7
			}
		}, "client_tokens journey_tokens snapshot_requests"},
		{"snapshot tokens", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Snapshots {
				r.Snapshots[i].ScheduledTokens++
			}
		}, "snapshot_blocks snapshot_progress snapshot_tokens"},
		{"snapshot progress", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Snapshots {
				if i%3 == 0 {
					r.Snapshots[i].ComputedTokens += 5
				}
			}
		}, "snapshot_blocks snapshot_progress snapshot_requests"},
		{"running", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].RunningDepth += 2
			}
		}, "journeys_complete snapshots_complete"},
		{"waiting", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].WaitingDepth += 2
			}
		}, "waiting_requests"},
		{"finished", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].NumFinished = 0
			}
		}, "finished_requests"},
		{"max_num_seqs", func(r *trace.Run, d *deploy.Deployment) { d.Engine.MaxNumSeqs = 2 }, "client_limits scheduler_limits"},
		{"max_num_batched_tokens", func(r *trace.Run, d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 40 }, "scheduler_limits"},
		{"pool", func(r *trace.Run, d *deploy.Deployment) {
			d.Engine.KVBlocksGPU = trace.Some(r.Steps[0].BlocksTotal * 2)
		}, "pool_size"},
		{"block size", func(r *trace.Run, d *deploy.Deployment) { d.Engine.BlockSize *= 2 }, "snapshot_blocks"},
		{"snapshot blocks", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Snapshots {
				r.Snapshots[i].BlocksAllocated += 4
			}
		}, "snapshot_blocks used_blocks"},
		{"free blocks", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].BlocksFree -= 30
			}
		}, "used_blocks"},
		{"clock", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].WallNs = 5e17 + 2*r.Steps[i].TsStartNs
			}
		}, "clock_rates"},
		{"floor", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].TsStartNs = r.Steps[0].TsStartNs + int64(i)*1000
				r.Steps[i].TsEndNs = r.Steps[i].TsStartNs
			}
		}, "clock_rates step_floor step_order"},
		{"lost steps", func(r *trace.Run, d *deploy.Deployment) { r.Steps = append(r.Steps[:30:30], r.Steps[80:]...) }, "steps_complete"},
		{"lost journeys", func(r *trace.Run, d *deploy.Deployment) { r.Requests = append(r.Requests[:20:20], r.Requests[30:]...) }, "finished_requests journeys_complete"},
		{"lost API spans", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests[:20] {
				q := &r.Requests[i]
				q.APIID, q.Link = trace.Opt[string]{}, "none"
				q.ArrivedNs, q.DepartedNs = trace.Opt[int64]{}, trace.Opt[int64]{}
			}
		}, "api_spans_complete"},
		{"lost core spans", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests[:20] {
				r.Requests[i].CoreID = trace.Opt[string]{}
			}
		}, "core_spans_complete finished_requests journeys_complete"},
		{"lost events", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests[:20] {
				r.Requests[i].DroppedEvents = 3
			}
		}, "events_complete"},
		{"stamps of steps in the wrong columns", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				s := &r.Steps[i]
				s.TsStartNs, s.TsEndNs = s.TsEndNs+1, s.TsStartNs
			}
		}, "step_stamps"},
		{"stamps of steps in 0.1 s", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].TsStartNs = r.Steps[i].TsStartNs / 1e8 * 1e8
			}
		}, "step_rounding"},
		{"TTFT in whole s", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				r.Observed[i].TTFTUs.V = math.Ceil(r.Observed[i].TTFTUs.V/1e6) * 1e6
				r.Observed[i].E2EUs.V += 1e6
			}
		}, "request_rounding"},
		{"wall clock of another time zone", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].WallNs = r.Steps[i].TsEndNs + 1e18
			}
			for i := range r.Requests {
				r.Requests[i].StartWallNs = trace.Some(r.Requests[i].ArrivedNs.V + 1e18 + 3600e9)
			}
		}, "wall_clocks"},
		{"max_model_len", func(r *trace.Run, d *deploy.Deployment) { d.Engine.MaxModelLen = trace.Some[int64](40) }, "model_len"},
		{"chunks larger than the threshold", func(r *trace.Run, d *deploy.Deployment) {
			d.Engine.LongPrefillThreshold = 1
			for i := range r.Requests {
				r.Requests[i].CachedTokens = trace.Some[int64](0)
			}
		}, "scheduler_limits"},
		{"drafts that were never verified", func(r *trace.Run, d *deploy.Deployment) {
			d.Engine.Extra = map[string]any{"speculative_config": map[string]any{"method": "ngram", "num_speculative_tokens": 2}}
		}, "output_steps"},
		{"steps up to half of the journeys", func(r *trace.Run, d *deploy.Deployment) { r.Steps = r.Steps[:len(r.Steps)/2] }, "steps_complete"},
		{"snapshots twice", func(r *trace.Run, d *deploy.Deployment) {
			var twice []trace.Snapshot
			for _, s := range r.Snapshots {
				twice = append(twice, s, s)
			}
			r.Snapshots = twice
		}, "snapshot_progress"},
		{"1 s on each time of clients", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				r.Observed[i].TTFTUs.V += 1e6
				r.Observed[i].E2EUs.V += 1e6
			}
		}, "client_delays"},
		{"0.5 s on each E2E of clients", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				r.Observed[i].E2EUs.V += 5e5
			}
		}, "client_delays"},
		{"schedule() in ms", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Steps {
				r.Steps[i].TsEndNs = r.Steps[i].TsStartNs + 1000*max(1, r.Steps[i].TsEndNs-r.Steps[i].TsStartNs)
			}
		}, "step_stamps"},
		{"requests scheduled when they were queued", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].ScheduledNs.V = r.Requests[i].QueuedNs.V - 2e6
				r.Requests[i].QueuedNs.V -= 2e6
			}
		}, "step_order"},
		{"clients' clock set back", func(r *trace.Run, d *deploy.Deployment) {
			for i := len(r.Observed) / 2; i < len(r.Observed); i++ {
				o := &r.Observed[i]
				for _, at := range []*trace.Opt[int64]{&o.SendNs, &o.FirstChunkNs, &o.LastChunkNs, &o.EndNs} {
					at.V -= 3600e9
				}
			}
		}, "client_clock"},
		{"clients' rows twice", func(r *trace.Run, d *deploy.Deployment) { r.Observed = append(r.Observed, r.Observed...) }, "clients_differ"},
		{"clients' times in two units", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				o := &r.Observed[i]
				o.CoreID = trace.Opt[string]{}
				if i%3 == 0 {
					o.TTFTUs.V /= 1000
					o.E2EUs.V /= 1000
				}
			}
		}, "client_units"},
		{"clients that are faster than the weights are read", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Observed {
				o := &r.Observed[i]
				o.CoreID = trace.Opt[string]{}
				o.E2EUs.V = o.TTFTUs.V + (o.E2EUs.V-o.TTFTUs.V)/10
			}
		}, "request_floor"},
		{"stock spans in ms", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				q := &r.Requests[i]
				e2eMs, _ := q.E2EMs()
				*q = trace.Request{
					Source: trace.SourceStock, StartWallNs: q.ArrivedNs, EndWallNs: q.DepartedNs, StockE2EUs: trace.Some(e2eMs * 1e6),
					PromptTokens: q.PromptTokens, OutputTokens: q.OutputTokens,
				}
			}
			r.Observed, r.Steps, r.Snapshots = nil, nil, nil
		}, "span_sums"},
		{"lost snapshots", func(r *trace.Run, d *deploy.Deployment) {
			r.Snapshots = append(r.Snapshots[:100:100], r.Snapshots[300:]...)
		}, "snapshots_complete"},
		{"lost clients", func(r *trace.Run, d *deploy.Deployment) { r.Observed = r.Observed[:30] }, "clients_complete"},
		{"model", func(r *trace.Run, d *deploy.Deployment) {
			for i := range r.Requests {
				r.Requests[i].Model = trace.Some("other/model")
			}
		}, "model_name"},
		{"cached", func(r *trace.Run, d *deploy.Deployment) {
			d.Engine.PrefixCaching = false
			for i := range r.Requests {
				r.Requests[i].CachedTokens = trace.Some[int64](16)
			}
		}, "cached_tokens journey_tokens"},
	} {
		run, dep := honest(t)
		c.lie(run, dep)
		var violated []string
		for _, id := range compared(t, run, dep, nil) {
			if id.Status == result.IdentityViolated {
				violated = append(violated, id.Name)
			}
		}
		slices.Sort(violated)
		if got := strings.Join(violated, " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestDeparturesAreMeasured: the largest departure is stated in the unit of the tolerance.
func TestDeparturesAreMeasured(t *testing.T) {
	run, dep := honest(t)
	for i := range run.Requests {
		run.Requests[i].ScheduledNs.V = run.Requests[i].FirstTokenNs.V + 3_000_000
		run.Observed[i].E2EUs.V /= 2
	}
	longestMs := 0.0
	for i := range run.Requests {
		serverMs, _ := trace.BetweenMs(run.Requests[i].ArrivedNs, run.Requests[i].FinishedNs)
		longestMs = max(longestMs, serverMs-run.Observed[i].E2EUs.V/1e3)
	}
	for _, id := range compared(t, run, dep, nil) {
		var want float64
		switch id.Name {
		case "engine_order":
			want = 3
		case "client_encloses_server":
			want = longestMs
		default:
			continue
		}
		if id.Status != result.IdentityViolated || id.Checked != 60 || id.Violated != 60 || *id.Largest != want {
			t.Errorf("%s: got %s, %d of %d, %v, want all and %g ms", id.Name, id.Status, id.Violated, id.Checked, *id.Largest, want)
		}
	}
}

// TestBudgetReached: only steps of different numbers of decodes that have exactly the most tokens of all show a smaller budget.
func TestBudgetReached(t *testing.T) {
	pass := func(context, decodes int64) trace.Iteration {
		return trace.Iteration{ContextReqs: min(1, context), ContextTokens: context, GenerationReqs: decodes, GenerationTokens: decodes}
	}
	full := []trace.Iteration{pass(99, 1), pass(98, 2), pass(97, 3), pass(99, 1), pass(98, 2), pass(20, 3), pass(0, 3)}
	alike := []trace.Iteration{pass(99, 1), pass(99, 1), pass(98, 2), pass(98, 2), pass(99, 1), pass(98, 2)}
	for _, c := range []struct {
		name   string
		passes []trace.Iteration
		budget int64
		want   bool
	}{
		{"a larger budget in run.yaml", full, 200, true},
		{"the same", full, 100, false},
		{"one step of more tokens", append([]trace.Iteration{pass(101, 1)}, full...), 200, false},
		{"two numbers of decodes", alike, 200, false},
		{"four full steps", full[1:], 200, false},
	} {
		f := &facts{run: &trace.Run{Iterations: c.passes}, dep: &deploy.Deployment{}}
		f.dep.Engine.MaxNumBatchedTokens = c.budget
		if r := budgetReached(f); r.broken != c.want || r.checked != len(c.passes) || c.want && r.violated != 5 {
			t.Errorf("%s: got %+v, want violated %v", c.name, r, c.want)
		}
	}
}

// TestClientPasses: clients that do not run when the passes do contradict the log only if they have all of its decodes.
func TestClientPasses(t *testing.T) {
	for _, c := range []struct {
		requests int
		apart    string
		others   float64
		checked  int
		broken   bool
	}{
		{50, "5 % agree", 0.1, 50, true},
		{50, "5 % agree", -0.1, 50, true},
		{50, "5 % agree", 0.11, 0, false},
		{50, "", 0, 50, false},
		{49, "5 % agree", 0, 0, false},
	} {
		run := &trace.Run{Observed: make([]trace.ObservedRequest, c.requests), Aggregate: &trace.Aggregate{Apart: c.apart, Others: c.others}}
		if r := clientPasses(&facts{run: run}); r.broken != c.broken || r.checked != c.checked {
			t.Errorf("%+v: got %+v", c, r)
		}
	}
}

// TestNamedCauseHidesNoFailure: a summary that nothing uses does not hide that a part of the times has another unit, and a file whose
// own totals contradict it does, because that is the cause.
func TestNamedCauseHidesNoFailure(t *testing.T) {
	for code, want := range map[trace.Code]string{source.CodeClientSummary: "client_totals client_units", source.CodeClientTotals: "client_totals"} {
		run, dep := honest(t)
		for i := range run.Observed {
			o := &run.Observed[i]
			o.CoreID = trace.Opt[string]{}
			if i%3 == 0 {
				o.TTFTUs.V /= 1000
				o.E2EUs.V /= 1000
			}
		}
		var got []string
		for _, id := range compared(t, run, dep, []trace.Finding{{Code: code, Message: "other totals"}}) {
			if id.Status == result.IdentityViolated {
				got = append(got, id.Name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", code, got, want)
		}
	}
}
