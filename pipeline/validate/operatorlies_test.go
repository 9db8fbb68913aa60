package validate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// TestEvalOperatorLies tells the lies of operatorLies about the recordings of TestEvalOtherLies: at least 45 are named in every
// one.
func TestEvalOperatorLies(t *testing.T) {
	repo.NeedEval(t)
	requireNamed(t, operatorLies(), 45)
}

// sendsCompressed moves the requests of a client closer together, with the times that they took.
func sendsCompressed(factor float64) func(*trace.Run) {
	return func(r *trace.Run) {
		if len(r.Observed) == 0 {
			return
		}
		origin := r.Observed[0].SentNs()
		eachObserved(func(o *trace.ObservedRequest) {
			moveRequest(o, int64(float64(o.SentNs()-origin)*(1/factor-1)))
		})(r)
	}
}

// operatorLies are mistakes in operating a server and in handling its recordings: settings of another start, traces that were
// compressed or resampled, counters that are running totals, copies under other ids, servers that were merged.
func operatorLies() []lie {
	clientTimes := "client_encloses_server request_prior client_order client_limits client_lengths client_units client_streams client_delays request_floor " +
		"client_passes client_tokens clients_differ request_rounding times_differ client_turns client_chunks client_sums client_clock answer_passes first_passes " +
		"clients_overlap clients_complete client_pace"
	stepsOf := traced + summaries
	memory := "pool_of_memory memory pool_size"
	return []lie{
		// settings
		{what: "gpu_memory_utilization 0.45", kinds: traced, gpu: true, causes: memory, dep: func(d *deploy.Deployment) { d.Engine.GPUMemoryUtilization = 0.45 }},
		{what: "kv_cache_memory_bytes of another server", kinds: traced, gpu: true, causes: memory, dep: extra("kv_cache_memory_bytes", 4_000_000_000)},
		{what: "kv_blocks_total_gpu of another server", kinds: traced, causes: memory, dep: func(d *deploy.Deployment) { d.Engine.KVBlocksGPU.V = 512 }},
		{what: "steps stated as sampled at a tenth", kinds: stepsOf, causes: "sampling_rates", dep: func(d *deploy.Deployment) {
			d.Tracing.StepSampleRate = trace.Some(0.1 * d.Tracing.StepSampleRate.Or(1))
		}},
		{what: "journeys stated as sampled at a tenth", kinds: traced, causes: "sampling_rates", dep: func(d *deploy.Deployment) { d.Tracing.JourneySampleRate = trace.Some(0.1) }},
		{what: "journeys stated as sampled, a fifth lost", kinds: traced, causes: "sampling_rates", dep: func(d *deploy.Deployment) { d.Tracing.JourneySampleRate = trace.Some(0.3) },
			run: func(r *trace.Run) { r.Requests = thinned(r.Requests, 0.2, 3) }},
		{what: "drafts of 3 tokens stated", kinds: traced, causes: "output_steps", dep: extra("speculative_config", map[string]any{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})},
		{what: "max_num_seqs 3", kinds: client + stock, causes: "client_limits stated_scheduler", dep: func(d *deploy.Deployment) { d.Engine.MaxNumSeqs = 3 }},

		// traces made faster, slower or regular
		{what: "whole recording at twice its speed", kinds: traced, gpu: true, causes: "step_prior step_floor", run: func(r *trace.Run) { scaleStamps(r, 0.5, true) }},
		{what: "whole recording at half its speed", kinds: traced, gpu: true, causes: "step_prior", run: func(r *trace.Run) { scaleStamps(r, 2, true) }},
		{what: "clients at four times the speed", kinds: client, gpu: true, causes: clientTimes, run: func(r *trace.Run) {
			sendsCompressed(4)(r)
			eachObserved(func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V/4, o.E2EUs.V/4) })(r)
		}},
		{what: "sends at ten times the rate, times as recorded", kinds: client, causes: clientTimes, run: sendsCompressed(10)},
		{what: "pauses without requests cut out", kinds: traced, causes: "clock_rates step_stamps step_order api_delays engine_order client_encloses_server steps_complete", run: func(r *trace.Run) {
			cut := int64(0)
			for i := 1; i < len(r.Steps); i++ {
				s := &r.Steps[i]
				if gap := s.TsStartNs - cut - r.Steps[i-1].TsStartNs; gap > 30e6 {
					cut += gap - 30e6
				}
				s.TsStartNs -= cut
				s.TsEndNs -= cut
			}
		}},
		{what: "steps on a regular grid", kinds: stepsOf, causes: "step_order step_work step_prior step_floor step_rounding step_stamps steps_differ", run: func(r *trace.Run) {
			n := int64(len(r.Steps))
			first := r.Steps[0].TsStartNs
			each := (r.Steps[n-1].TsStartNs - first) / n
			for i := range r.Steps {
				s := &r.Steps[i]
				took := min(s.TsEndNs-s.TsStartNs, each/2)
				s.TsStartNs = first + int64(i)*each
				s.TsEndNs = s.TsStartNs + took
			}
		}},
		{what: "steps averaged over ten", kinds: traced, causes: "step_tokens journey_tokens running_requests snapshot_tokens journeys_complete", run: func(r *trace.Run) {
			for i := 0; i+10 <= len(r.Steps); i += 10 {
				var tokens, prefill, decode, depth int64
				for k := i; k < i+10; k++ {
					s := &r.Steps[k]
					tokens, prefill, decode, depth = tokens+int64(s.ScheduledTokens), prefill+int64(s.PrefillTokens), decode+int64(s.DecodeTokens), depth+int64(s.RunningDepth)
				}
				for k := i; k < i+10; k++ {
					s := &r.Steps[k]
					s.ScheduledTokens, s.PrefillTokens, s.DecodeTokens, s.RunningDepth = int32(tokens/10), int32(prefill/10), int32(tokens/10-prefill/10), int32(depth/10)
				}
			}
		}},
		{what: "longest tenth of the steps removed, ids made anew", kinds: traced, causes: "steps_complete step_order journey_tokens running_requests snapshot_tokens waiting_requests journeys_complete", run: func(r *trace.Run) {
			var gaps []int64
			for i := 1; i < len(r.Steps); i++ {
				gaps = append(gaps, r.Steps[i].TsStartNs-r.Steps[i-1].TsStartNs)
			}
			sorted := slices.Clone(gaps)
			slices.Sort(sorted)
			most := sorted[len(sorted)*9/10]
			first := r.Steps[0].ID
			var out []trace.Step
			for i := range r.Steps {
				if i < len(gaps) && gaps[i] > most {
					continue
				}
				s := r.Steps[i]
				s.ID = first + int64(len(out))
				out = append(out, s)
			}
			r.Steps = out
		}},
		{what: "long steps alone were logged", kinds: stepsOf, causes: "steps_complete", run: func(r *trace.Run) {
			var out []trace.Step
			for i := range r.Steps {
				if r.Steps[i].PrefillTokens > 0 {
					out = append(out, r.Steps[i])
				}
			}
			r.Steps = out
		}},

		// counters
		{what: "num_finished is a running total", kinds: traced, causes: "finished_requests", run: func(r *trace.Run) {
			sum := int64(0)
			for i := range r.Steps {
				sum += int64(r.Steps[i].NumFinished)
				r.Steps[i].NumFinished = int32(sum)
			}
		}},
		{what: "scheduled tokens are a running total", kinds: stepsOf, causes: "step_tokens scheduler_limits journey_tokens step_floor step_prior", run: func(r *trace.Run) {
			sum := int64(0)
			for i := range r.Steps {
				sum += int64(r.Steps[i].ScheduledTokens)
				r.Steps[i].ScheduledTokens = int32(sum)
			}
		}},
		{what: "counts of four ranks in each step", kinds: stepsOf, causes: "journeys_complete running_requests journey_tokens snapshots_complete scheduler_limits used_blocks step_floor step_prior", run: eachStep(func(s *trace.Step) {
			s.RunningDepth, s.NumPrefillReqs, s.NumDecodeReqs = 4*s.RunningDepth, 4*s.NumPrefillReqs, 4*s.NumDecodeReqs
			s.ScheduledTokens, s.PrefillTokens, s.DecodeTokens = 4*s.ScheduledTokens, 4*s.PrefillTokens, 4*s.DecodeTokens
		})},
		{what: "free blocks are the least of the minute", kinds: traced, causes: "used_blocks", run: func(r *trace.Run) {
			least := int64(math.MaxInt64)
			for i := range r.Steps {
				if i%200 == 0 {
					least = r.Steps[i].BlocksFree
				}
				least = min(least, r.Steps[i].BlocksFree)
				r.Steps[i].BlocksFree = least
			}
		}},

		// journeys
		{what: "cached tokens of the first half only", kinds: traced, causes: "journey_tokens snapshot_requests cached_tokens", run: func(r *trace.Run) {
			for i := range r.Requests {
				if q := &r.Requests[i]; i < len(r.Requests)/2 && q.PromptTokens.V > 64 {
					q.CachedTokens = trace.Some(q.PromptTokens.V / 2)
				}
			}
		}},
		{what: "prompts counted by another tokenizer", kinds: traced, causes: "journey_tokens snapshot_requests", run: eachRequest(func(q *trace.Request) {
			q.PromptTokens.V += q.PromptTokens.V * (5 + q.PromptTokens.V%7) / 50
		})},
		{what: "journeys copied with new ids and stamps a few ms later", kinds: traced, causes: "running_requests journeys_complete finished_requests waiting_requests journey_tokens clients_complete step_order", run: func(r *trace.Run) {
			n := len(r.Requests)
			for i := 0; i < n; i += 2 {
				q := r.Requests[i]
				q.CoreID.V += "-again"
				q.APIID.V += "-again"
				for _, at := range append(engineStamps(&q), apiStamps(&q)...) {
					at.V += 3e6
				}
				r.Requests = append(r.Requests, q)
			}
		}},
		{what: "journeys' ids of steps after a restart", kinds: traced, causes: "step_order journey_tokens running_requests journeys_complete waiting_requests steps_complete output_steps", run: func(r *trace.Run) {
			middle := r.Steps[len(r.Steps)/2].ID
			for i := range r.Requests {
				q := &r.Requests[i]
				for _, at := range []*trace.Opt[int64]{&q.QueuedStep, &q.ScheduledStep, &q.FirstTokenStep, &q.FinishedStep} {
					if at.OK && at.V > middle {
						at.V -= middle
					}
				}
			}
		}},
		{what: "finished is when the connection was closed", kinds: traced, causes: "step_order departure_order client_encloses_server", run: eachRequest(func(q *trace.Request) {
			if q.FinishedNs.OK {
				q.FinishedNs.V += 500e6
			}
		})},
		{what: "requests' API spans by a proxy that holds them 2 s", kinds: traced, causes: "api_delays departure_order client_encloses_server", run: eachRequest(func(q *trace.Request) {
			for _, at := range apiStamps(q) {
				if at.OK {
					at.V -= 2e9
				}
			}
			if q.DepartedNs.OK {
				q.DepartedNs.V += 4e9
			}
		})},

		// clients
		{what: "clients: float32 seconds of the day", kinds: client, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			for _, at := range clientStamps(o) {
				if at.OK {
					at.V = int64(float64(float32(float64(at.V)/1e9+1.76e9)) * 1e9)
				}
			}
		})},
		{what: "clients: the proxy flushes twice a second", kinds: client, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			flush := func(us float64) float64 {
				return math.Ceil((float64(o.SentNs())/1e3+us)/5e5)*5e5 - float64(o.SentNs())/1e3
			}
			retimed(o, flush(o.TTFTUs.V), flush(o.E2EUs.V))
		})},
		{what: "clients: the proxy answers from its own cache", kinds: client, causes: clientTimes, run: everyNth(5, func(o *trace.ObservedRequest) {
			retimed(o, 2000, 2000+10*float64(o.OutputTokens.V))
		})},
		{what: "clients: copied with new ids and 3 ms later", kinds: client, causes: clientTimes, run: func(r *trace.Run) {
			n := len(r.Observed)
			for i := 0; i < n; i += 2 {
				o := r.Observed[i]
				o.ID += "-again"
				o.CoreID = trace.Opt[string]{}
				moveRequest(&o, 3e6)
				retimed(&o, o.TTFTUs.V*1.001, o.E2EUs.V*1.001)
				r.Observed = append(r.Observed, o)
			}
		}},
		{what: "clients: half of them of a server three times slower", kinds: client, gpu: true, causes: clientTimes, run: func(r *trace.Run) {
			for i := range r.Observed {
				if o := &r.Observed[i]; i%2 == 0 {
					retimed(o, o.TTFTUs.V*3, o.E2EUs.V*3)
				}
			}
		}},
		{what: "clients: TTFT without the wait for headers", kinds: client, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			by := 0.9 * o.TTFTUs.V
			retimed(o, o.TTFTUs.V-by, o.E2EUs.V-by)
		})},
		{what: "clients: outputs include reasoning of another count", kinds: client, gpu: true, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) { o.OutputTokens.V *= 3 })},
		{what: "clients: every answer's time is that of its batch", kinds: client, causes: clientTimes, run: func(r *trace.Run) {
			for i := 0; i+8 <= len(r.Observed); i += 8 {
				most := 0.0
				for k := i; k < i+8; k++ {
					most = max(most, r.Observed[k].E2EUs.V)
				}
				for k := i; k < i+8; k++ {
					retimed(&r.Observed[k], r.Observed[k].TTFTUs.V, most)
				}
			}
		}},
		{what: "clients: 32-bit microseconds wrapped", kinds: client, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			for _, at := range clientStamps(o) {
				if at.OK {
					at.V %= (1 << 32) * 1000 / 256
				}
			}
		})},

		// stock spans
		{what: "spans: of two servers merged", kinds: spans, causes: "request_prior client_limits client_turns client_lengths client_units clients_overlap span_sums client_pace client_tokens client_encloses_server", run: func(r *trace.Run) {
			n := len(r.Requests)
			for i := range n {
				q := r.Requests[i]
				q.StartWallNs.V += 40e6
				for _, us := range []*trace.Opt[float64]{&q.StockTTFTUs, &q.StockE2EUs, &q.StockQueueUs, &q.StockPrefillUs, &q.StockDecodeUs, &q.StockInferUs} {
					us.V *= 5
				}
				r.Requests = append(r.Requests, q)
			}
		}},
		{what: "spans: queue is the time in the front end", kinds: spans, causes: "span_sums", run: eachRequest(func(q *trace.Request) { q.StockQueueUs.V += 2e6 })},
		{what: "spans: outputs are max_tokens", kinds: spans, causes: "client_lengths request_prior request_floor model_len client_tokens", run: eachRequest(func(q *trace.Request) { q.OutputTokens.V = 2048 })},

		// load levels
		{what: "levels: of two devices", kinds: levels, causes: "level_order level_prior level_latency level_concurrency", run: func(r *trace.Run) {
			for i := range r.Points {
				if p := &r.Points[i]; i%2 == 0 {
					p.TTFTMs.V, p.TPOTMs, p.E2EMs.V, p.RateRPS.V = p.TTFTMs.V/4, p.TPOTMs/4, p.E2EMs.V/4, p.RateRPS.V*4
				}
			}
		}},
		{what: "levels: E2E without TTFT", kinds: levels, causes: "level_latency", run: eachLevel(func(p *trace.LoadPoint) { p.E2EMs.V -= 0.9 * p.TTFTMs.V; p.TTFTMs.V *= 3 })},
		{what: "levels: throughput of prompts and outputs", kinds: levels, causes: "level_concurrency", run: eachLevel(func(p *trace.LoadPoint) {
			p.RateRPS.V *= (p.PromptTokens + p.OutputTokens) / p.OutputTokens
		})},
		{what: "levels: one level under four names", kinds: levels, causes: "levels_differ level_concurrency level_order", run: func(r *trace.Run) {
			for i := range r.Points {
				from := r.Points[i/4*4]
				from.Clients, from.RateRPS = r.Points[i].Clients, r.Points[i].RateRPS
				r.Points[i] = from
			}
		}},
		{what: "levels: prompts in another order", kinds: levels, causes: "level_prior level_order", run: func(r *trace.Run) {
			for i := range r.Points {
				r.Points[i].PromptTokens *= []float64{0.1, 1, 10}[i%3]
			}
		}},
		{what: "levels: a row of totals", kinds: levels, causes: "level_concurrency level_latency level_order level_prior", run: func(r *trace.Run) {
			total := r.Points[0]
			total.Name = fmt.Sprint(total.Name, " total")
			for i := range r.Points[1:] {
				p := &r.Points[i+1]
				total.TTFTMs.V += p.TTFTMs.V
				total.TPOTMs += p.TPOTMs
				total.E2EMs.V += p.E2EMs.V
				total.RateRPS.V += p.RateRPS.V
				total.Clients.V += p.Clients.V
			}
			r.Points = append(r.Points, total)
		}},
		{what: "levels: random noise of 30 % on each time", kinds: levels, causes: "level_latency level_order level_prior level_concurrency", run: func(r *trace.Run) {
			rng := rand.New(rand.NewPCG(8, 8))
			for i := range r.Points {
				p := &r.Points[i]
				p.TTFTMs.V *= math.Exp(0.5 * rng.NormFloat64())
				p.TPOTMs *= math.Exp(0.5 * rng.NormFloat64())
				p.E2EMs.V *= math.Exp(0.5 * rng.NormFloat64())
			}
		}},
	}
}
