package validate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// TestEvalCommonLies tells the lies of commonLies about the recordings of TestEvalOtherLies without the client in the engine:
// at least 36 are named in every one.
func TestEvalCommonLies(t *testing.T) {
	repo.NeedEval(t)
	requireNamed(t, commonLies(), 36)
}

// otherRun is a part of the requests again, as another run of the same workload would have them.
func otherRun(requests []trace.ObservedRequest, every int) []trace.ObservedRequest {
	rng := rand.New(rand.NewPCG(7, 7))
	var out []trace.ObservedRequest
	for i := 0; i < len(requests); i += every {
		o := requests[i]
		o.ID += "b"
		o.CoreID, o.Iteration = trace.Opt[string]{}, trace.Opt[int64]{}
		o.PromptTokens.V += 1 + rng.Int64N(9)
		factor := 1 + 0.05*rng.Float64()
		o.TTFTUs.V *= factor
		o.E2EUs.V *= factor
		for _, at := range clientStamps(&o) {
			if at.OK {
				at.V += 300e6
			}
		}
		out = append(out, o)
	}
	return out
}

// commonLies are mistakes of people who put recordings together, of kinds that the others do not have.
func commonLies() []lie {
	every := traced + stock + client
	device := "pool_of_memory memory step_prior request_prior step_floor request_floor"
	clientTimes := "client_encloses_server request_prior client_order client_limits client_lengths client_units client_streams client_delays request_floor " +
		"client_passes client_tokens clients_differ request_rounding times_differ client_turns client_chunks client_sums client_clock answer_passes first_passes"
	return []lie{
		{what: "enforce_eager", kinds: traced, gpu: true, causes: "step_prior", dep: extra("enforce_eager", true)},
		{what: "enforce_eager, clients", kinds: client, gpu: true, causes: "request_prior", dep: extra("enforce_eager", true)},
		{what: "dp 2", kinds: every, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.DP = 2 }},
		{what: "head_dim / 2", kinds: traced, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.HeadDim /= 2; d.Model.Decoder = nil }},
		{what: "one KV head", kinds: traced, gpu: true, causes: device, dep: func(d *deploy.Deployment) { d.Model.NumKVHeads = 1; d.Model.Decoder = nil }},
		{what: "gpu_memory_utilization 0.3", kinds: traced, gpu: true, causes: "memory pool_of_memory", dep: func(d *deploy.Deployment) { d.Engine.GPUMemoryUtilization = 0.3 }},
		{what: "max_model_len 2 tokens", kinds: every, causes: "model_len", dep: func(d *deploy.Deployment) { d.Engine.MaxModelLen = trace.Some[int64](2) }},
		{what: "activations in float32", kinds: traced, gpu: true, causes: device, dep: func(d *deploy.Deployment) {
			d.Model.BytesPerActivation, d.Model.BytesPerWeight, d.Model.BytesPerLMHead, d.Model.BytesPerKV = 4, 4, 4, 4
			d.Model.Decoder = nil
		}},

		{what: "two runs overlaid", kinds: client + stock, causes: clientTimes + " clients_overlap clients_complete", run: func(r *trace.Run) {
			r.Observed = append(r.Observed, otherRun(r.Observed, 1)...)
		}},
		{what: "a fifth of the requests retried", kinds: client + stock, causes: clientTimes + " clients_overlap", run: func(r *trace.Run) {
			more := otherRun(r.Observed, 5)
			for i := range more {
				more[i].PromptTokens = r.Observed[5*i].PromptTokens
			}
			r.Observed = append(r.Observed, more...)
		}},
		{what: "outputs are what was asked for", kinds: client + stock, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) { o.OutputTokens.V = 1024 })},
		{what: "prompts without the system prompt", kinds: client + stock, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			o.PromptTokens.V = max(1, o.PromptTokens.V-200)
		})},
		{what: "prompts in words", kinds: stock, causes: "client_tokens clients_complete", run: eachObserved(func(o *trace.ObservedRequest) {
			o.PromptTokens.V = max(1, o.PromptTokens.V*3/4)
		})},
		{what: "outputs in words", kinds: stock, causes: "client_tokens clients_complete", run: eachObserved(func(o *trace.ObservedRequest) {
			o.OutputTokens.V = max(1, o.OutputTokens.V*3/4)
		})},
		{what: "E2E clipped at its median", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			var e2e []float64
			for i := range r.Observed {
				e2e = append(e2e, r.Observed[i].E2EUs.V)
			}
			most := stat.Median(e2e)
			eachObserved(func(o *trace.ObservedRequest) {
				o.E2EUs.V = min(o.E2EUs.V, most)
				o.TTFTUs.V = min(o.TTFTUs.V, o.E2EUs.V)
			})(r)
		}},
		{what: "E2E with 5 s more", kinds: client + stock, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) { o.E2EUs.V += 5e6 })},
		{what: "E2E is TTFT and one gap", kinds: client + stock, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			o.E2EUs.V = o.TTFTUs.V + (o.E2EUs.V-o.TTFTUs.V)/max(1, float64(o.OutputTokens.V-1))
		})},
		{what: "sent when it ended", kinds: client + stock, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) { o.SendNs.V += int64(o.E2EUs.V * 1e3) })},
		{what: "all sent at once", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			eachObserved(func(o *trace.ObservedRequest) { o.SendNs.V = r.Observed[0].SendNs.V })(r)
		}},
		{what: "TTFT of the next request", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			for i := range len(r.Observed) - 1 {
				r.Observed[i].TTFTUs = r.Observed[i+1].TTFTUs
			}
		}},
		{what: "E2E of the next request", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			for i := range len(r.Observed) - 1 {
				r.Observed[i].E2EUs = r.Observed[i+1].E2EUs
			}
		}},
		{what: "TTFT is the mean of all", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			var sum float64
			for i := range r.Observed {
				sum += r.Observed[i].TTFTUs.V
			}
			eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V = min(o.E2EUs.V, sum/float64(len(r.Observed))) })(r)
		}},
		{what: "lengths are those asked of the generator", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			eachObserved(func(o *trace.ObservedRequest) { o.PromptTokens.V, o.OutputTokens.V = 128, 128 })(r)
		}},
		{what: "two clients' clocks 20 s apart", kinds: stock, causes: clientTimes, run: func(r *trace.Run) {
			for i := range r.Observed {
				o := &r.Observed[i]
				o.Iteration = trace.Opt[int64]{}
				for _, at := range clientStamps(o) {
					if at.OK && i%2 == 0 {
						at.V += 20e9
					}
				}
			}
		}},
		{what: "second half of the client's file lost", kinds: stock, causes: "clients_complete", run: func(r *trace.Run) { r.Observed = r.Observed[:len(r.Observed)/2] }},
		{what: "every tenth request ended after a tenth of its time", kinds: client + stock, causes: clientTimes, run: func(r *trace.Run) {
			for i := range r.Observed {
				if i%10 == 0 {
					o := &r.Observed[i]
					o.E2EUs.V = o.TTFTUs.V + (o.E2EUs.V-o.TTFTUs.V)/10
				}
			}
		}},
		{what: "log truncated at half", kinds: stock, causes: "clients_complete passes_complete client_tokens client_passes", run: func(r *trace.Run) {
			r.Iterations = r.Iterations[:len(r.Iterations)/2]
		}},
		{what: "log of another order", kinds: stock, causes: "client_passes client_tokens passes_complete pass_times answer_passes first_passes", run: func(r *trace.Run) {
			n := len(r.Iterations)
			its := slices.Clone(r.Iterations)
			for i := range its {
				from := its[(i+n/2)%n]
				from.Index, from.StampNs = its[i].Index, its[i].StampNs
				r.Iterations[i] = from
			}
		}},
		{what: "passes: decodes include the prompts", kinds: stock, causes: "client_tokens step_tokens", run: eachPass(func(it *trace.Iteration) {
			it.GenerationTokens += it.ContextTokens
			it.GenerationReqs += it.ContextReqs
		})},
		{what: "passes: elapsed in us taken for ms, a half", kinds: stock, causes: "pass_times pass_order step_work step_prior", run: func(r *trace.Run) {
			for i := range r.Iterations {
				if i%2 == 0 {
					r.Iterations[i].ElapsedUs *= 1000
				}
			}
		}},

		{what: "running includes waiting", kinds: traced, causes: "running_requests journeys_complete snapshots_complete waiting_requests", run: eachStep(func(s *trace.Step) {
			s.RunningDepth += s.WaitingDepth + 1
		})},
		{what: "snapshots of 50 steps before", kinds: traced, causes: "snapshot_tokens snapshot_progress snapshots_complete snapshot_requests", run: eachSnapshot(func(s *trace.Snapshot) { s.StepID += 50 })},
		{what: "snapshots: computed includes scheduled", kinds: traced, causes: "snapshot_blocks snapshot_progress", run: eachSnapshot(func(s *trace.Snapshot) {
			s.ComputedTokens += s.ScheduledTokens
		})},
		{what: "two engines in one file", kinds: traced, causes: "step_stamps step_order journey_tokens running_requests journeys_complete steps_complete clock_rates", run: func(r *trace.Run) {
			n := int64(len(r.Steps))
			for i := range int(n) {
				s := r.Steps[i]
				s.ID += n
				s.TsStartNs += 3e6
				s.TsEndNs += 3e6
				r.Steps = append(r.Steps, s)
			}
		}},
		{what: "journeys: outputs are what was asked for", kinds: traced, causes: "output_steps snapshot_requests", run: eachRequest(func(q *trace.Request) { q.OutputTokens.V = 1024 })},
		{what: "journeys: prompts without the system prompt", kinds: traced, causes: "journey_tokens snapshot_requests client_tokens", run: eachRequest(func(q *trace.Request) {
			q.PromptTokens.V = max(1, q.PromptTokens.V-20)
		})},
		{what: "journeys: first token is that of the next request", kinds: traced, causes: "engine_order step_order", run: func(r *trace.Run) {
			for i := range len(r.Requests) - 1 {
				r.Requests[i].FirstTokenNs = r.Requests[i+1].FirstTokenNs
			}
		}},
		{what: "journeys: arrived when it was queued by a clock 1 % fast", kinds: traced, gpu: true, causes: "engine_order departure_order api_delays", run: scaledFromStart(apiStamps, 1.01)},
		{what: "steps in two units", kinds: traced + summaries, causes: "step_stamps step_order clock_rates", run: func(r *trace.Run) {
			for i := range r.Steps {
				if i%2 == 0 {
					r.Steps[i].TsEndNs = r.Steps[i].TsStartNs + (r.Steps[i].TsEndNs-r.Steps[i].TsStartNs)*1000
				}
			}
		}},

		{what: "spans: prompts in characters", kinds: spans, causes: "request_prior client_lengths model_len request_floor client_tokens", run: eachRequest(func(q *trace.Request) { q.PromptTokens.V *= 4 })},
		{what: "spans: outputs in characters", kinds: spans, causes: "request_prior client_lengths request_floor client_tokens", run: eachRequest(func(q *trace.Request) { q.OutputTokens.V *= 4 })},
		{what: "spans: lengths of the next", kinds: spans, causes: "client_lengths request_prior client_tokens", run: func(r *trace.Run) {
			for i := range len(r.Requests) - 1 {
				r.Requests[i].PromptTokens, r.Requests[i].OutputTokens = r.Requests[i+1].PromptTokens, r.Requests[i+1].OutputTokens
			}
		}},

		{what: "levels: prompts include outputs", kinds: levels, causes: "level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.PromptTokens += p.OutputTokens })},
		{what: "levels: TPOT from the server's throughput", kinds: levels, causes: "level_latency level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.TPOTMs /= float64(p.Clients.V) })},
		{what: "levels: latencies of the next level", kinds: levels, causes: "level_concurrency level_order level_prior level_latency", run: func(r *trace.Run) {
			for i := range len(r.Points) - 1 {
				next := r.Points[i+1]
				r.Points[i].TTFTMs, r.Points[i].TPOTMs, r.Points[i].E2EMs = next.TTFTMs, next.TPOTMs, next.E2EMs
			}
		}},
		{what: "levels: E2E in tokens a second", kinds: levels, causes: "level_latency level_concurrency", run: eachLevel(func(p *trace.LoadPoint) {
			p.E2EMs.V = p.RateRPS.V * p.OutputTokens
		})},
		{what: "levels: rate of all of four replicas", kinds: levels, causes: "level_concurrency", run: eachLevel(func(p *trace.LoadPoint) { p.RateRPS.V *= 4 })},
		{what: "levels: TTFT is P99", kinds: levels, causes: "level_latency level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.TTFTMs.V *= 10 })},
	}
}
