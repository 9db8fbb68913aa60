package rows

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

type jattr struct {
	Key   string         `json:"key"`
	Value map[string]any `json:"value"`
}

func jm(a []jattr) map[string]any {
	m := map[string]any{}
	for _, x := range a {
		for k, v := range x.Value {
			if k == "intValue" {
				n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
				m[x.Key] = n
			} else {
				m[x.Key] = v
			}
		}
	}
	return m
}
func gi(m map[string]any, k string) int64 { v, _ := m[k].(int64); return v }
func oi(m map[string]any, k string) trace.Opt[int64] {
	v, ok := m[k].(int64)
	return trace.Opt[int64]{V: v, OK: ok}
}
func sec(m map[string]any, k string) trace.Opt[int64] {
	v, ok := m[k].(float64)
	return trace.Opt[int64]{V: int64(math.RoundToEven(v * 1e9)), OK: ok}
}

func tmpLoad(t *testing.T, dir string) (*trace.Run, *deploy.Deployment) {
	d, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("zstdcat", "-q", filepath.Join(dir, "traces.jsonl.zst")).Output()
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 1<<28)
	run := &trace.Run{ID: filepath.Base(dir)}
	type api struct {
		id            string
		arr, dep, abo trace.Opt[int64]
	}
	apis := map[string]*api{}
	parents := map[string]string{}
	seen := map[string]bool{}
	for sc.Scan() {
		var doc struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Scope struct{ Name string }
					Spans []struct {
						TraceID, SpanID, ParentSpanID, Name string
						Attributes                          []jattr
						Events                              []struct {
							Name       string
							Attributes []jattr
						}
						DroppedEventsCount int64
					}
				}
			}
		}
		if json.Unmarshal(sc.Bytes(), &doc) != nil {
			continue
		}
		for _, rs := range doc.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, sp := range ss.Spans {
					if seen[sp.TraceID+sp.SpanID] {
						continue
					}
					seen[sp.TraceID+sp.SpanID] = true
					at := jm(sp.Attributes)
					switch ss.Scope.Name {
					case "vllm.scheduler.step":
						for _, e := range sp.Events {
							m := jm(e.Attributes)
							if e.Name == "step.BATCH_SUMMARY" {
								u, _ := m["kv.usage_gpu_ratio"].(float64)
								run.Steps = append(run.Steps, trace.Step{ID: gi(m, "step.id"), TsStartNs: gi(m, "step.ts_start_ns"), TsEndNs: gi(m, "step.ts_end_ns"), DurationUs: gi(m, "step.duration_us"),
									RunningDepth: gi(m, "queue.running_depth"), WaitingDepth: gi(m, "queue.waiting_depth"), NumPrefillReqs: gi(m, "batch.num_prefill_reqs"), NumDecodeReqs: gi(m, "batch.num_decode_reqs"),
									ScheduledTokens: gi(m, "batch.scheduled_tokens"), PrefillTokens: gi(m, "batch.prefill_tokens"), DecodeTokens: gi(m, "batch.decode_tokens"), NumPreempted: gi(m, "batch.num_preempted"),
									KVUsage: u, BlocksTotal: gi(m, "kv.blocks_total_gpu"), BlocksFree: gi(m, "kv.blocks_free_gpu")})
							} else {
								s := trace.Snapshot{StepID: gi(m, "step.id"), CoreID: m["request.id"].(string), Phase: m["request.phase"].(string), PromptTokens: gi(m, "request.num_prompt_tokens"),
									ComputedTokens: gi(m, "request.num_computed_tokens"), OutputTokens: gi(m, "request.num_output_tokens"), ScheduledTokens: gi(m, "request.scheduled_tokens_this_step"),
									BlocksAllocated: gi(m, "kv.blocks_allocated_gpu"), BlocksCached: gi(m, "kv.blocks_cached_gpu"), EffectivePromptLen: oi(m, "request.effective_prompt_len")}
								run.Snapshots = append(run.Snapshots, s)
							}
						}
					case "vllm.scheduler":
						r := trace.Request{Source: "fork", CoreID: trace.Some(at["gen_ai.request.id"].(string)), DroppedEvents: sp.DroppedEventsCount}
						parents[r.CoreID.V] = sp.ParentSpanID
						for _, e := range sp.Events {
							m := jm(e.Attributes)
							ns, st := oi(m, "ts.monotonic_ns"), oi(m, "scheduler.step")
							switch e.Name {
							case "journey.QUEUED":
								r.QueuedNs, r.QueuedStep, r.PromptTokens = ns, st, oi(m, "prefill.total_tokens")
							case "journey.SCHEDULED":
								if !r.ScheduledNs.OK {
									r.ScheduledNs, r.ScheduledStep = ns, st
								}
							case "journey.FIRST_TOKEN":
								r.FirstTokenNs, r.FirstTokenStep = ns, st
							case "journey.FINISHED":
								r.FinishedNs, r.FinishedStep, r.OutputTokens = ns, st, oi(m, "decode.done_tokens")
								r.FinishStatus = trace.Some(m["finish.status"].(string))
							}
							r.Preemptions = oi(m, "num_preemptions")
						}
						run.Requests = append(run.Requests, r)
					case "vllm.api":
						a := &api{id: at["gen_ai.request.id"].(string)}
						for _, e := range sp.Events {
							m := jm(e.Attributes)
							switch e.Name {
							case "api.ARRIVED":
								a.arr = sec(m, "event.ts.monotonic")
							case "api.DEPARTED":
								a.dep = sec(m, "event.ts.monotonic")
							case "api.ABORTED":
								a.abo = sec(m, "event.ts.monotonic")
							}
						}
						apis[sp.SpanID] = a
					}
				}
			}
		}
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		if a := apis[parents[r.CoreID.V]]; a != nil {
			r.APIID, r.APISpanID = trace.Some(a.id), trace.Some(parents[r.CoreID.V])
			r.ArrivedNs, r.DepartedNs, r.AbortedNs = a.arr, a.dep, a.abo
		}
	}
	slices.SortStableFunc(run.Requests, func(a, b trace.Request) int { return cmp.Compare(a.ArrivedNs.V, b.ArrivedNs.V) })
	slices.SortStableFunc(run.Steps, func(a, b trace.Step) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortStableFunc(run.Snapshots, func(a, b trace.Snapshot) int { return cmp.Compare(a.StepID, b.StepID) })
	return run, d
}

func TestTmp(t *testing.T) {
	dirs, _ := filepath.Glob("/work/shared/data/" + os.Getenv("TMPRUN"))
	for _, dir := range dirs {
		run, d := tmpLoad(t, dir)
		s, err := Rebuild(run, d, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		q := s.Quality
		fmt.Printf("%-24s rec %d rich %d jour %d appr %d unk %d contr %d | journeys alone %.2f%% checked %d wrong %d | unrec %d rebuilt %d %v %v\n", run.ID, q.Recorded, q.Rich, q.Journey, q.Approximate, q.Unknown, q.Contradictions,
			100*float64(q.FromJourneys)/float64(q.Recorded), q.CrossChecked, q.CrossWrong, q.Unrecorded, q.Rebuilt, q.Reasons, s.Findings)
		n := 0
		why := s.plan.verdicts()
		for k := range s.All {
			if s.All[k].Recorded >= 0 && why[k] != "" && n < 5 {
				n++
				rec := run.Steps[s.All[k].Recorded]
				fmt.Println("   ", s.All[k].ID, why[k], "np", rec.NumPrefillReqs, "nd", rec.NumDecodeReqs, "tok", rec.ScheduledTokens, "run", rec.RunningDepth, "| dec", s.plan.decodes[k], "tail", s.plan.tails[k], "run", s.plan.running[k], "prompts", s.plan.prompts[k], "firsts", s.plan.firsts[k])
			}
		}
		if os.Getenv("TMPBETA") != "" {
			sp, err := features.New(features.V11, d)
			if err != nil {
				t.Fatal(err)
			}
			for lag := 0; lag < 2; lag++ {
				b, err := s.Beta(sp, BetaOptions{Lag: lag})
				if err != nil {
					t.Fatal(err)
				}
				h := 0
				for _, x := range b.HoldOut {
					if x {
						h++
					}
				}
				fmt.Println("    beta lag", lag, b.Read, b.Kept, b.Dropped, "hold", h)
			}
			e, err := s.LagEvidence(sp, BetaOptions{})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("    evidence", e.Train[0].Kept, e.Train[1].Kept, e.Train[2].Kept, e.N(), e.Test[1].Kept, e.Test[2].Kept)
			for _, tg := range []string{Overhead, Admission, Egress, Queue} {
				a, err := s.Alpha(sp, AlphaOptions{Target: tg})
				if err != nil {
					t.Fatal(err)
				}
				ex, inf := 0, 0
				for i := range a.Exact {
					if a.Exact[i] {
						ex++
					}
					if a.Lo[i] > 0 || a.Hi[i] < 3000 {
						inf++
					}
				}
				fmt.Println("    alpha", tg, a.Read, a.Kept, a.Dropped, "exact", ex, "inf", inf, "median", Quantile(a.Y, .5), a.Findings)
				if tg == Overhead {
					best, bc := 0, 0.0
					for c := 100.0; c < 5000; c += 50 {
						in := 0
						for i := range a.Lo {
							if a.Lo[i] <= c && c <= a.Hi[i] {
								in++
							}
						}
						if in > best {
							best, bc = in, c
						}
					}
					fmt.Printf("      const %g holds %.3f\n", bc, float64(best)/float64(max(1, len(a.Lo))))
				}
			}
			fmt.Printf("    %+v\n", s.Audit(sp))
		}
	}
}
