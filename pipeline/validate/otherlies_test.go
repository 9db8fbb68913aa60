package validate_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// Further kinds of recordings that are corrupted.
const (
	summaries = "summaries" // step summaries alone
	spans     = "spans"     // stock spans
	inEngine  = "in engine" // a client within the engine, with its stamps
)

// recordingsOfAllKinds are the recordings of TestEvalFurtherLies, those of step summaries alone, of stock spans and of a planted
// stock server.
func recordingsOfAllKinds(t *testing.T) []*honest {
	t.Helper()
	data := repo.Shared(t, "data")
	recordings := recordingsOfLies(t)
	for _, h := range recordings {
		if h.kind == traced && h.isGPU {
			recordings = append(recordings, asClients(h))
		}
	}
	recordings = append(recordings, honestRuns(t, stock, filepath.Join(repo.Root(t), "testdata", "traces", "planted"))...)
	recordings = append(recordings, honestRuns(t, summaries, filepath.Join(data, "real_step_summaries"))...)
	recordings = append(recordings, honestRuns(t, spans, filepath.Join(data, "real_stock_otlp"))...)
	return recordings
}

// TestEvalOtherLies tells the lies of otherLies about the recordings of TestEvalFurtherLies, of step summaries alone, of
// stock spans and of a planted stock server: each is named in one of them at least, and at least 92 in every one.
func TestEvalOtherLies(t *testing.T) {
	repo.NeedEval(t)
	data := repo.Shared(t, "data")
	recordings := recordingsOfAllKinds(t)
	recordings = append(recordings, honestRuns(t, inEngine, filepath.Join(data, "real_requests_llmservingsim"))...)
	all := otherLies()
	right := 0
	for what, o := range tellLies(t, recordings, all, false) {
		switch {
		case o.named == o.told && o.unrelated <= 1:
			right++
		case o.named == 0 || o.unrelated > 1:
			t.Errorf("%s: named in %d of %d recordings, beside up to %d that are unrelated", what, o.named, o.told, o.unrelated)
		default:
			t.Logf("%s: named in %d of %d recordings", what, o.named, o.told)
		}
	}
	t.Logf("right in every recording: %d of %d lies", right, len(all))
	if right < 92 {
		t.Errorf("got %d lies that are named in every recording, want at least 92 of %d", right, len(all))
	}
}

// requireNamed tells lies about the recordings of all kinds and fails unless at least so many are named in every one.
func requireNamed(t *testing.T, lies []lie, least int) {
	t.Helper()
	right := 0
	for what, o := range tellLies(t, recordingsOfAllKinds(t), lies, false) {
		if o.named == o.told && o.unrelated <= 1 {
			right++
			continue
		}
		t.Logf("%s: named in %d of %d recordings, beside up to %d that are unrelated", what, o.named, o.told, o.unrelated)
	}
	t.Logf("right in every recording: %d of %d lies", right, len(lies))
	if right < least {
		t.Errorf("got %d lies that are named in every recording, want at least %d of %d", right, least, len(lies))
	}
}

// engineStamps are the stamps of the engine's events of a request.
func engineStamps(q *trace.Request) []*trace.Opt[int64] {
	return []*trace.Opt[int64]{&q.QueuedNs, &q.ScheduledNs, &q.FirstTokenNs, &q.FinishedNs}
}

// apiStamps are the stamps of the API server's events of a request.
func apiStamps(q *trace.Request) []*trace.Opt[int64] {
	return []*trace.Opt[int64]{&q.ArrivedNs, &q.HandoffNs, &q.FirstResponseNs, &q.DepartedNs, &q.AbortedNs}
}

// clientStamps are the stamps of a client's request.
func clientStamps(o *trace.ObservedRequest) []*trace.Opt[int64] {
	return []*trace.Opt[int64]{&o.ArrivalNs, &o.SendNs, &o.FirstChunkNs, &o.LastChunkNs, &o.EndNs, &o.SendWallNs}
}

// eachStamp changes the stamps of requests that are known.
func eachStamp(stamps func(*trace.Request) []*trace.Opt[int64], change func(ns int64) int64) func(*trace.Run) {
	return eachRequest(func(q *trace.Request) {
		for _, at := range stamps(q) {
			if at.OK {
				at.V = change(at.V)
			}
		}
	})
}

// eachStepStamp changes the monotonic stamps of steps.
func eachStepStamp(change func(ns int64) int64) func(*trace.Run) {
	return eachStep(func(s *trace.Step) { s.TsStartNs, s.TsEndNs = change(s.TsStartNs), change(s.TsEndNs) })
}

// eachPass changes the logged passes.
func eachPass(change func(*trace.Iteration)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Iterations {
			change(&r.Iterations[i])
		}
	}
}

// rounded returns a function that rounds down to a multiple.
func rounded(multiple int64) func(int64) int64 {
	return func(ns int64) int64 { return ns / multiple * multiple }
}

// scaledFromStart returns a change of stamps that makes the clock of the engine's journeys run faster.
func scaledFromStart(stamps func(*trace.Request) []*trace.Opt[int64], factor float64) func(*trace.Run) {
	return func(r *trace.Run) {
		origin := r.Steps[0].TsStartNs
		eachStamp(stamps, func(ns int64) int64 { return origin + int64(float64(ns-origin)*factor) })(r)
	}
}

// swapRows gives the rows the values of other rows.
func swapRows[T any](rows []T, swap func(a, b *T)) {
	rand.New(rand.NewPCG(5, 5)).Shuffle(len(rows), func(i, k int) { swap(&rows[i], &rows[k]) })
}

// extra states a further key of vllm.
func extra(key string, value any) func(*deploy.Deployment) {
	return func(d *deploy.Deployment) {
		more := map[string]any{key: value}
		for k, v := range d.Engine.Extra {
			more[k] = v
		}
		d.Engine.Extra = more
	}
}

// otherLies are corruptions of keys, stamps, columns and records that are not among lies and furtherLies.
func otherLies() []lie {
	every := traced + stock + client
	device := "pool_of_memory memory step_prior request_prior step_floor request_floor"
	return []lie{
		// the description
		{what: "tp x8", kinds: every + summaries, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.TP *= 8 }},
		{what: "tp x4, step summaries", kinds: summaries, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.TP *= 4 }},
		{what: "max_model_len below the requests", kinds: every, causes: "model_len", dep: func(d *deploy.Deployment) { d.Engine.MaxModelLen = trace.Some[int64](64) }},
		{what: "max_num_batched_tokens 64", kinds: every + summaries, causes: "scheduler_limits journey_tokens request_prior", dep: func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 64 }},
		{what: "max_num_seqs 2", kinds: every + summaries, causes: "scheduler_limits client_limits", dep: func(d *deploy.Deployment) { d.Engine.MaxNumSeqs = 2 }},
		{what: "speculation that never ran", kinds: traced, causes: "output_steps", dep: extra("speculative_config", map[string]any{"method": "ngram", "num_speculative_tokens": 3})},
		{what: "long_prefill_token_threshold 16", kinds: traced, causes: "scheduler_limits", dep: func(d *deploy.Deployment) { d.Engine.LongPrefillThreshold = 16 }},
		{what: "gpu_memory_utilization 0.7", kinds: traced, gpu: true, causes: "memory pool_of_memory", dep: func(d *deploy.Deployment) { d.Engine.GPUMemoryUtilization = 0.7 }},
		{what: "memory_gb / 2", kinds: traced, gpu: true, causes: "memory pool_of_memory", dep: func(d *deploy.Deployment) { d.Hardware.MemoryGB /= 2 }},
		{what: "kv_blocks_total_gpu x2", kinds: traced, causes: "pool_size", dep: func(d *deploy.Deployment) {
			d.Engine.KVBlocksGPU = trace.Some(d.Engine.KVBlocksGPU.V * 2)
		}},
		{what: "block_size x8", kinds: traced, causes: "snapshot_blocks memory pool_of_memory used_blocks", dep: func(d *deploy.Deployment) { d.Engine.BlockSize *= 8 }},
		{what: "bandwidth / 8, step summaries", kinds: summaries, causes: "step_floor", dep: func(d *deploy.Deployment) { d.Hardware.BwPeakTBs /= 8; d.Hardware.TFlopsPeak /= 8 }},
		{what: "T4 for it", kinds: every + summaries, gpu: true, causes: device, dep: sheet("T4")},
		{what: "L4 for it", kinds: every + summaries, gpu: true, causes: device, dep: sheet("L4")},
		{what: "B300 for it", kinds: every + summaries, gpu: true, causes: device, dep: sheet("B300")},
		{what: "MI300X for it", kinds: every + summaries, gpu: true, causes: device, dep: sheet("MI300X")},
		{what: "A100 of 40 GB for it", kinds: every + summaries, gpu: true, causes: device, dep: sheet("A100-40GB")},
		{what: "layers x4, step summaries", kinds: summaries + client, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.NumLayers *= 4; d.Model.Decoder = nil }},
		{what: "layers / 4", kinds: every + summaries, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.NumLayers /= 4; d.Model.Decoder = nil }},
		{what: "intermediate size / 4", kinds: every + summaries, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.IntermediateSize /= 4; d.Model.Decoder = nil }},
		{what: "KV heads / 4", kinds: traced, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.NumKVHeads = max(1, d.Model.NumKVHeads/4) }},
		{what: "vocabulary x8", kinds: traced, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.VocabSize *= 8 }},

		// stamps of one stream
		{what: "steps' stamps 30 ms late", kinds: traced, gpu: true, causes: "step_order engine_order", run: eachStepStamp(func(ns int64) int64 { return ns + 30e6 })},
		{what: "steps' stamps 1 h early", kinds: traced, causes: "step_order", run: eachStepStamp(func(ns int64) int64 { return ns - 3600e9 })},
		{what: "API stamps 30 ms late", kinds: traced, gpu: true, causes: "engine_order", run: eachStamp(apiStamps, func(ns int64) int64 { return ns + 30e6 })},
		{what: "engine stamps of journeys 30 ms late", kinds: traced, gpu: true, causes: "departure_order step_order", run: eachStamp(engineStamps, func(ns int64) int64 { return ns + 30e6 })},
		{what: "engine stamps of journeys 5 % fast", kinds: traced, causes: "step_order departure_order engine_order", run: scaledFromStart(engineStamps, 1.05)},
		{what: "API stamps 5 % fast", kinds: traced, causes: "departure_order engine_order api_delays", run: scaledFromStart(apiStamps, 1.05)},
		{what: "steps' stamps 5 % slow", kinds: traced, causes: "step_order engine_order clock_rates", run: func(r *trace.Run) { scaleSteps(r, 0.95) }},
		{what: "all stamps rounded to 1 s", kinds: traced, causes: "step_rounding request_rounding", run: func(r *trace.Run) {
			eachStamp(apiStamps, rounded(1e9))(r)
			eachStamp(engineStamps, rounded(1e9))(r)
			eachStepStamp(rounded(1e9))(r)
		}},
		{what: "steps' stamps rounded to 0.1 s", kinds: traced + summaries, causes: "step_rounding step_order", run: eachStepStamp(rounded(1e8))},
		{what: "steps' stamps rounded to 10 ms", kinds: traced + summaries, gpu: true, causes: "step_rounding", run: eachStepStamp(rounded(1e7))},
		{what: "journeys' stamps rounded to 1 s", kinds: traced, causes: "request_rounding engine_order departure_order step_order client_encloses_server", run: func(r *trace.Run) {
			eachStamp(engineStamps, rounded(1e9))(r)
		}},
		{what: "API stamps rounded to 1 s", kinds: traced, causes: "request_rounding departure_order client_encloses_server", run: eachStamp(apiStamps, rounded(1e9))},
		{what: "client: times rounded to 1 s", kinds: client + stock, causes: "request_rounding client_order client_streams client_delays first_passes", run: eachObserved(func(o *trace.ObservedRequest) {
			o.TTFTUs.V = float64(rounded(1e6)(int64(o.TTFTUs.V) + 1e6))
			o.E2EUs.V = float64(rounded(1e6)(int64(o.E2EUs.V) + 1e6))
		})},
		{what: "client: TTFT rounded up to 1 s", kinds: client + stock, causes: "request_rounding client_order client_units request_prior first_passes", run: eachObserved(func(o *trace.ObservedRequest) {
			o.TTFTUs.V = float64(rounded(1e6)(int64(o.TTFTUs.V) + 1e6))
		})},
		{what: "client: sends rounded to 10 s", kinds: client + stock, causes: "request_rounding", run: eachObserved(func(o *trace.ObservedRequest) {
			for _, at := range clientStamps(o) {
				at.V = rounded(10e9)(at.V)
			}
		})},
		{what: "steps' stamps wrap at 2^32 ns", kinds: traced + summaries, causes: "step_stamps step_order clock_rates", run: eachStepStamp(func(ns int64) int64 { return ns % (1 << 32) })},
		{what: "journeys' stamps wrap at 2^32 ns", kinds: traced, causes: "step_order engine_order departure_order api_delays client_encloses_server", run: eachStamp(engineStamps, func(ns int64) int64 { return ns % (1 << 32) })},
		{what: "wall clock of steps x1000", kinds: traced + summaries, causes: "clock_rates", run: func(r *trace.Run) {
			origin := r.Steps[0].WallNs
			eachStep(func(s *trace.Step) { s.WallNs = origin + (s.WallNs-origin)*1000 })(r)
		}},
		{what: "wall clock of API spans in another time zone", kinds: traced, causes: "wall_clocks", run: eachRequest(func(q *trace.Request) {
			q.StartWallNs.V += 2 * 3600e9
			q.EndWallNs.V += 2 * 3600e9
		})},
		{what: "steps: start and end swapped", kinds: traced + summaries, causes: "step_stamps", run: eachStep(func(s *trace.Step) { s.TsStartNs, s.TsEndNs = s.TsEndNs, s.TsStartNs })},
		{what: "steps: stamps of the step before", kinds: traced + summaries, causes: "step_order step_stamps step_work step_prior", run: func(r *trace.Run) {
			for i := len(r.Steps) - 1; i > 0; i-- {
				r.Steps[i].TsStartNs, r.Steps[i].TsEndNs = r.Steps[i-1].TsStartNs, r.Steps[i-1].TsEndNs
			}
		}},
		{what: "steps: stamps shuffled", kinds: traced + summaries, causes: "step_stamps step_order", run: func(r *trace.Run) {
			swapRows(r.Steps, func(a, b *trace.Step) {
				a.TsStartNs, b.TsStartNs = b.TsStartNs, a.TsStartNs
				a.TsEndNs, b.TsEndNs = b.TsEndNs, a.TsEndNs
			})
		}},
		{what: "first half of the steps 10 % slower", kinds: traced, causes: "step_order", run: func(r *trace.Run) {
			half := r.Steps[len(r.Steps)/2].TsStartNs
			eachStepStamp(func(ns int64) int64 {
				if ns < half {
					return half - (half-ns)*11/10
				}
				return ns
			})(r)
		}},

		// columns that are swapped
		{what: "queued and scheduled swapped", kinds: traced, causes: "engine_order step_order running_requests waiting_requests", run: eachRequest(func(q *trace.Request) {
			q.QueuedNs, q.ScheduledNs = q.ScheduledNs, q.QueuedNs
			q.QueuedStep, q.ScheduledStep = q.ScheduledStep, q.QueuedStep
		})},
		{what: "first token and finish swapped", kinds: traced, causes: "engine_order step_order", run: eachRequest(func(q *trace.Request) {
			q.FirstTokenNs, q.FinishedNs = q.FinishedNs, q.FirstTokenNs
		})},
		{what: "running and waiting swapped", kinds: traced, causes: "running_requests waiting_requests step_tokens", run: eachStep(func(s *trace.Step) {
			s.RunningDepth, s.WaitingDepth = s.WaitingDepth, s.RunningDepth
		})},
		{what: "prefill and decode of steps swapped", kinds: traced + summaries, causes: "step_tokens journey_tokens step_prior step_floor", run: eachStep(func(s *trace.Step) {
			s.PrefillTokens, s.DecodeTokens = s.DecodeTokens, s.PrefillTokens
			s.NumPrefillReqs, s.NumDecodeReqs = s.NumDecodeReqs, s.NumPrefillReqs
		})},
		{what: "prefill and decode requests swapped", kinds: traced + summaries, causes: "step_tokens", run: eachStep(func(s *trace.Step) {
			s.NumPrefillReqs, s.NumDecodeReqs = s.NumDecodeReqs, s.NumPrefillReqs
		})},
		{what: "free and used blocks swapped", kinds: traced + summaries, causes: "used_blocks step_floor step_prior", run: eachStep(func(s *trace.Step) {
			s.BlocksFree = s.BlocksTotal - s.BlocksFree
			s.KVUsage = 1 - s.KVUsage
		})},
		{what: "blocks in tokens", kinds: traced, causes: "pool_size memory pool_of_memory used_blocks", run: eachStep(func(s *trace.Step) {
			s.BlocksTotal *= 16
			s.BlocksFree *= 16
		})},
		{what: "journeys: prompts include outputs", kinds: traced, causes: "journey_tokens snapshot_requests", run: eachRequest(func(q *trace.Request) {
			q.PromptTokens.V += q.OutputTokens.V
		})},
		{what: "client: outputs include prompts", kinds: client + stock, causes: "client_tokens client_lengths request_prior model_len client_units", run: eachObserved(func(o *trace.ObservedRequest) {
			o.OutputTokens.V += o.PromptTokens.V
		})},
		{what: "client: E2E without TTFT", kinds: client + stock, causes: "client_order client_encloses_server client_limits client_chunks client_sums answer_passes first_passes", run: eachObserved(func(o *trace.ObservedRequest) {
			o.E2EUs.V -= o.TTFTUs.V
		})},
		{what: "client: TTFT is the time of one token", kinds: client + stock, causes: "client_encloses_server request_prior client_limits first_passes", run: eachObserved(func(o *trace.ObservedRequest) {
			o.TTFTUs.V = (o.E2EUs.V - o.TTFTUs.V) / max(1, float64(o.OutputTokens.V-1))
		})},

		// other rows
		{what: "client: outputs shuffled", kinds: client + stock, causes: "client_lengths client_tokens", run: func(r *trace.Run) {
			swapRows(r.Observed, func(a, b *trace.ObservedRequest) { a.OutputTokens, b.OutputTokens = b.OutputTokens, a.OutputTokens })
		}},
		{what: "client: prompts shuffled", kinds: client + stock, causes: "client_lengths client_tokens request_prior", run: func(r *trace.Run) {
			swapRows(r.Observed, func(a, b *trace.ObservedRequest) { a.PromptTokens, b.PromptTokens = b.PromptTokens, a.PromptTokens })
		}},
		{what: "client: times shuffled", kinds: client + stock, causes: "client_lengths client_encloses_server client_turns client_chunks", run: func(r *trace.Run) {
			swapRows(r.Observed, func(a, b *trace.ObservedRequest) {
				a.TTFTUs, b.TTFTUs = b.TTFTUs, a.TTFTUs
				a.E2EUs, b.E2EUs = b.E2EUs, a.E2EUs
			})
		}},
		{what: "client: sends shuffled", kinds: client + stock, causes: "client_order client_limits request_prior", run: func(r *trace.Run) {
			swapRows(r.Observed, func(a, b *trace.ObservedRequest) { a.SendNs, b.SendNs = b.SendNs, a.SendNs })
		}},
		{what: "journeys: lengths shuffled", kinds: traced, causes: "journey_tokens snapshot_requests output_steps", run: func(r *trace.Run) {
			swapRows(r.Requests, func(a, b *trace.Request) {
				a.PromptTokens, b.PromptTokens = b.PromptTokens, a.PromptTokens
				a.OutputTokens, b.OutputTokens = b.OutputTokens, a.OutputTokens
			})
		}},
		{what: "journeys: API spans of other requests", kinds: traced, causes: "engine_order departure_order", run: func(r *trace.Run) {
			swapRows(r.Requests, func(a, b *trace.Request) {
				a.ArrivedNs, b.ArrivedNs = b.ArrivedNs, a.ArrivedNs
				a.DepartedNs, b.DepartedNs = b.DepartedNs, a.DepartedNs
			})
		}},
		{what: "steps: batches shuffled", kinds: traced + summaries, causes: "journey_tokens running_requests snapshot_tokens step_work journeys_complete", run: func(r *trace.Run) {
			swapRows(r.Steps, func(a, b *trace.Step) {
				a.ScheduledTokens, b.ScheduledTokens = b.ScheduledTokens, a.ScheduledTokens
				a.PrefillTokens, b.PrefillTokens = b.PrefillTokens, a.PrefillTokens
				a.DecodeTokens, b.DecodeTokens = b.DecodeTokens, a.DecodeTokens
				a.NumPrefillReqs, b.NumPrefillReqs = b.NumPrefillReqs, a.NumPrefillReqs
				a.NumDecodeReqs, b.NumDecodeReqs = b.NumDecodeReqs, a.NumDecodeReqs
				a.RunningDepth, b.RunningDepth = b.RunningDepth, a.RunningDepth
			})
		}},
		{what: "passes: batches shuffled", kinds: stock, causes: "step_prior step_work pass_order clients_complete client_tokens", run: func(r *trace.Run) {
			swapRows(r.Iterations, func(a, b *trace.Iteration) {
				a.ContextTokens, b.ContextTokens = b.ContextTokens, a.ContextTokens
				a.ContextReqs, b.ContextReqs = b.ContextReqs, a.ContextReqs
				a.GenerationTokens, b.GenerationTokens = b.GenerationTokens, a.GenerationTokens
				a.GenerationReqs, b.GenerationReqs = b.GenerationReqs, a.GenerationReqs
			})
		}},
		{what: "passes: elapsed shuffled", kinds: stock, causes: "pass_order step_work", run: func(r *trace.Run) {
			swapRows(r.Iterations, func(a, b *trace.Iteration) { a.ElapsedUs, b.ElapsedUs = b.ElapsedUs, a.ElapsedUs })
		}},

		// units of a part
		{what: "client: a third of the times in ms", kinds: client + stock, causes: "client_units client_order client_encloses_server", run: func(r *trace.Run) {
			for i := range r.Observed {
				if i%3 == 0 {
					r.Observed[i].TTFTUs.V /= 1000
					r.Observed[i].E2EUs.V /= 1000
				}
			}
		}},
		{what: "client: a third of the outputs in characters", kinds: client + stock, causes: "client_tokens client_lengths client_units client_chunks request_floor answer_passes", run: func(r *trace.Run) {
			for i := range r.Observed {
				if i%3 == 0 {
					r.Observed[i].OutputTokens.V *= 4
				}
			}
		}},
		{what: "client: outputs in characters", kinds: client + stock, causes: "request_prior client_tokens", run: eachObserved(func(o *trace.ObservedRequest) {
			o.OutputTokens.V *= 4
		})},
		{what: "a third of the steps' tokens x4", kinds: traced + summaries, causes: "journey_tokens step_tokens snapshot_tokens scheduler_limits", run: func(r *trace.Run) {
			for i := range r.Steps {
				if i%3 == 0 {
					s := &r.Steps[i]
					s.ScheduledTokens, s.PrefillTokens, s.DecodeTokens = 4*s.ScheduledTokens, 4*s.PrefillTokens, 4*s.DecodeTokens
				}
			}
		}},
		{what: "client: 1 s added to every TTFT", kinds: client + stock, causes: "client_order client_delays request_prior client_units", run: eachObserved(func(o *trace.ObservedRequest) {
			o.TTFTUs.V += 1e6
		})},
		{what: "client: 1 s added to TTFT and E2E", kinds: client + stock, causes: "client_delays", run: eachObserved(func(o *trace.ObservedRequest) {
			o.TTFTUs.V += 1e6
			o.E2EUs.V += 1e6
		})},
		{what: "elapsed times of passes / 2", kinds: stock, causes: "pass_times step_prior", run: eachPass(func(it *trace.Iteration) { it.ElapsedUs /= 2 })},
		{what: "elapsed times of passes constant", kinds: stock, causes: "pass_order pass_times", run: eachPass(func(it *trace.Iteration) { it.ElapsedUs = 20_000 })},

		// losses and copies
		{what: "second half of the steps lost", kinds: traced, causes: "steps_complete", run: func(r *trace.Run) { r.Steps = r.Steps[:len(r.Steps)/2] }},
		{what: "first half of the steps lost", kinds: traced, causes: "steps_complete", run: func(r *trace.Run) { r.Steps = r.Steps[len(r.Steps)/2:] }},
		{what: "second half of the journeys lost", kinds: traced, causes: "journeys_complete finished_requests waiting_requests", run: func(r *trace.Run) { r.Requests = r.Requests[:len(r.Requests)/2] }},
		{what: "every second step lost, ids made anew", kinds: traced + summaries, causes: "journey_tokens step_order running_requests snapshot_tokens step_prior steps_complete journeys_complete waiting_requests", run: func(r *trace.Run) {
			var out []trace.Step
			for i := range r.Steps {
				if i%2 == 0 {
					s := r.Steps[i]
					s.ID = r.Steps[0].ID + int64(len(out))
					out = append(out, s)
				}
			}
			r.Steps = out
		}},
		{what: "every step twice, ids made anew", kinds: traced + summaries, causes: "step_stamps step_order journey_tokens running_requests snapshot_tokens finished_requests journeys_complete waiting_requests steps_complete", run: func(r *trace.Run) {
			var out []trace.Step
			for i := range r.Steps {
				for range 2 {
					s := r.Steps[i]
					s.ID = r.Steps[0].ID + int64(len(out))
					out = append(out, s)
				}
			}
			r.Steps = out
		}},
		{what: "pairs of steps merged", kinds: traced + summaries, causes: "journey_tokens steps_complete snapshot_tokens scheduler_limits step_tokens", run: func(r *trace.Run) {
			var out []trace.Step
			for i := 0; i+1 < len(r.Steps); i += 2 {
				s := r.Steps[i]
				next := &r.Steps[i+1]
				s.ScheduledTokens += next.ScheduledTokens
				s.PrefillTokens += next.PrefillTokens
				s.DecodeTokens += next.DecodeTokens
				s.NumPrefillReqs += next.NumPrefillReqs
				s.NumDecodeReqs += next.NumDecodeReqs
				out = append(out, s)
			}
			r.Steps = out
		}},
		{what: "every snapshot twice", kinds: traced, causes: "snapshot_progress", run: func(r *trace.Run) {
			var out []trace.Snapshot
			for i := range r.Snapshots {
				out = append(out, r.Snapshots[i], r.Snapshots[i])
			}
			r.Snapshots = out
		}},
		{what: "snapshots of the step before", kinds: traced, causes: "snapshot_tokens snapshot_progress snapshots_complete", run: eachSnapshot(func(s *trace.Snapshot) { s.StepID++ })},
		{what: "every pass twice, numbers made anew", kinds: stock, causes: "pass_times clients_complete client_tokens", run: func(r *trace.Run) {
			var out []trace.Iteration
			for i := range r.Iterations {
				for range 2 {
					it := r.Iterations[i]
					it.Index = r.Iterations[0].Index + int64(len(out))
					out = append(out, it)
				}
			}
			r.Iterations = out
		}},
		{what: "every second pass lost, numbers made anew", kinds: stock, causes: "passes_complete client_tokens pass_times", run: func(r *trace.Run) {
			var out []trace.Iteration
			for i := range r.Iterations {
				if i%2 == 0 {
					it := r.Iterations[i]
					it.Index = r.Iterations[0].Index + int64(len(out))
					out = append(out, it)
				}
			}
			r.Iterations = out
		}},
		{what: "first half of the passes lost", kinds: stock, causes: "passes_complete clients_complete client_tokens", run: func(r *trace.Run) {
			r.Iterations = r.Iterations[len(r.Iterations)/2:]
		}},
		{what: "client: long requests lost", kinds: stock + traced, causes: "clients_complete journeys_complete finished_requests", run: func(r *trace.Run) {
			r.Observed = slices.DeleteFunc(r.Observed, func(o trace.ObservedRequest) bool { return o.OutputTokens.V > 40 })
			r.Requests = slices.DeleteFunc(r.Requests, func(q trace.Request) bool { return q.OutputTokens.V > 40 })
		}},
		{what: "client: every request once more a minute later", kinds: client + stock, causes: "clients_differ", run: func(r *trace.Run) {
			n := len(r.Observed)
			r.Observed = append(r.Observed, r.Observed...)
			for i := n; i < 2*n; i++ {
				o := &r.Observed[i]
				o.ID += "x"
				for _, at := range clientStamps(o) {
					if at.OK {
						at.V += 60e9
					}
				}
			}
		}},

		{what: "client: sends twice as far apart as the log's", kinds: stock, causes: "client_passes client_limits client_order", run: func(r *trace.Run) {
			if len(r.Observed) == 0 {
				return
			}
			origin := r.Observed[0].SendNs.V
			eachObserved(func(o *trace.ObservedRequest) {
				later := o.SendNs.V - origin
				o.Iteration = trace.Opt[int64]{} // not found then
				for _, at := range clientStamps(o) {
					if at.OK {
						at.V += later
					}
				}
			})(r)
		}},
		{what: "client: sends and answers shuffled", kinds: stock, causes: "client_turns client_passes client_limits client_tokens", run: func(r *trace.Run) {
			moved := make([]int64, len(r.Observed))
			for i := range moved {
				moved[i] = r.Observed[i].SendNs.V
			}
			swapRows(moved, func(a, b *int64) { *a, *b = *b, *a })
			for i := range r.Observed {
				o := &r.Observed[i]
				by := moved[i] - o.SendNs.V
				o.Iteration = trace.Opt[int64]{}
				for _, at := range clientStamps(o) {
					if at.OK {
						at.V += by
					}
				}
			}
		}},
		{what: "max_num_batched_tokens x8", kinds: traced + stock + summaries, causes: "budget_reached waiting_reason chunk_reason journey_tokens", dep: func(d *deploy.Deployment) {
			d.Engine.MaxNumBatchedTokens *= 8
		}},

		// stock spans
		{what: "spans: prompts and outputs swapped", kinds: spans, causes: "client_lengths request_prior span_sums client_tokens", run: eachRequest(func(q *trace.Request) {
			q.PromptTokens, q.OutputTokens = q.OutputTokens, q.PromptTokens
		})},
		{what: "spans: latencies in ms taken for s", kinds: spans, causes: "span_sums client_encloses_server", run: eachRequest(func(q *trace.Request) {
			for _, us := range []*trace.Opt[float64]{&q.StockTTFTUs, &q.StockE2EUs, &q.StockQueueUs, &q.StockPrefillUs, &q.StockDecodeUs, &q.StockInferUs} {
				us.V *= 1000
			}
		})},
		{what: "spans: latencies in s taken for ms", kinds: spans, causes: "span_sums client_encloses_server", run: eachRequest(func(q *trace.Request) {
			for _, us := range []*trace.Opt[float64]{&q.StockTTFTUs, &q.StockE2EUs, &q.StockQueueUs, &q.StockPrefillUs, &q.StockDecodeUs, &q.StockInferUs} {
				us.V /= 1000
			}
		})},
		{what: "spans: TTFT and E2E swapped", kinds: spans, causes: "span_sums client_encloses_server", run: eachRequest(func(q *trace.Request) {
			q.StockTTFTUs, q.StockE2EUs = q.StockE2EUs, q.StockTTFTUs
		})},
		{what: "spans: prefill and decode swapped", kinds: spans, causes: "span_sums", run: eachRequest(func(q *trace.Request) {
			q.StockPrefillUs, q.StockDecodeUs = q.StockDecodeUs, q.StockPrefillUs
		})},
		{what: "spans: every second twice", kinds: spans, causes: "clients_differ", run: func(r *trace.Run) {
			n := len(r.Requests)
			for i := 0; i < n; i += 2 {
				r.Requests = append(r.Requests, r.Requests[i])
			}
		}},
		{what: "spans: latencies of other requests", kinds: spans, causes: "span_sums client_lengths client_encloses_server", run: func(r *trace.Run) {
			swapRows(r.Requests, func(a, b *trace.Request) {
				a.StockTTFTUs, b.StockTTFTUs = b.StockTTFTUs, a.StockTTFTUs
				a.StockE2EUs, b.StockE2EUs = b.StockE2EUs, a.StockE2EUs
			})
		}},

		// load levels
		{what: "levels: rate in tokens", kinds: levels, causes: "level_concurrency level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.RateRPS.V *= p.OutputTokens })},
		{what: "levels: TPOT shuffled", kinds: levels, causes: "level_latency level_order level_prior", run: func(r *trace.Run) {
			swapRows(r.Points, func(a, b *trace.LoadPoint) { a.TPOTMs, b.TPOTMs = b.TPOTMs, a.TPOTMs })
		}},
		{what: "levels: clients shuffled", kinds: levels, causes: "level_concurrency level_order", run: func(r *trace.Run) {
			swapRows(r.Points, func(a, b *trace.LoadPoint) { a.Clients, b.Clients = b.Clients, a.Clients })
		}},
		{what: "levels: E2E includes TTFT twice", kinds: levels, causes: "level_latency", run: eachLevel(func(p *trace.LoadPoint) { p.E2EMs.V += 3 * p.TTFTMs.V })},
		{what: "levels: T4", kinds: levels, gpu: true, causes: "request_floor memory pool_of_memory level_prior", dep: sheet("T4")},
		{what: "levels: layers x4", kinds: levels, gpu: true, causes: "level_prior memory pool_of_memory", dep: func(d *deploy.Deployment) { d.Model.NumLayers *= 4; d.Model.Decoder = nil }},
		{what: "levels: one concurrency for all", kinds: levels, causes: "level_concurrency", run: eachLevel(func(p *trace.LoadPoint) { p.Clients.V = 1 })},
	}
}
