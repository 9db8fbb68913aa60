package validate_test

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Kinds of recordings that are corrupted.
const (
	traced = "traced" // journeys, steps and snapshots
	stock  = "stock"  // logged passes and clients
	client = "client" // clients alone
	levels = "levels" // load levels
)

// honest is a recording without a lie.
type honest struct {
	name, kind string
	isGPU      bool
	dep        *deploy.Deployment
	findings   *result.ExtractRun
	load       func() *trace.Run
}

// inspect tells a lie, nil for none, and inspects the recording.
func (h *honest) inspect(t *testing.T, l *lie) result.InspectRun {
	t.Helper()
	run, dep := h.load(), *h.dep
	if l != nil && l.dep != nil {
		l.dep(&dep)
	}
	if l != nil && l.run != nil {
		l.run(run)
	}
	if err := logged.Fill(run, &dep); err != nil {
		t.Fatal(err)
	}
	got, err := validate.Inspect(run, &dep, validate.Inspection{Extract: h.findings})
	if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	return got
}

// lie is a corruption of a recording: one thing in it, or in its description, that is not so. To tell a lie about a
// recording is to make the corruption in a copy.
type lie struct {
	what   string
	kinds  string // of recordings it can be told about
	gpu    bool   // it shows only where the memory or the kernels of the device are known
	causes string // identities of which one has to be violated; the others named here are consequences
	dep    func(*deploy.Deployment)
	run    func(*trace.Run)
}

// lies are at least sixty.
func lies() []lie {
	return []lie{
		// the description
		{what: "tp x2", kinds: traced, gpu: true, causes: "pool_of_memory memory step_prior", dep: func(d *deploy.Deployment) { d.TP *= 2 }},
		{what: "tp x4", kinds: traced, gpu: true, causes: "pool_of_memory memory step_prior step_floor", dep: func(d *deploy.Deployment) { d.TP *= 4 }},
		{what: "device with less memory", kinds: traced, gpu: true, causes: "memory pool_of_memory step_prior step_floor",
			dep: func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("L40S") }},
		{what: "device with more memory", kinds: traced, gpu: true, causes: "pool_of_memory memory step_prior step_floor",
			dep: func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("B300") }},
		{what: "kv_cache_dtype fp8", kinds: traced, gpu: true, causes: "pool_of_memory", dep: func(d *deploy.Deployment) { d.Model.BytesPerKV /= 2 }},
		{what: "dtype and kv_cache_dtype fp8", kinds: traced, gpu: true, causes: "pool_of_memory step_prior",
			dep: func(d *deploy.Deployment) {
				d.Model.BytesPerKV /= 2
				d.Model.BytesPerWeight /= 2
				d.Model.BytesPerLMHead /= 2
			}},
		{what: "dtype fp8", kinds: traced, causes: "compute_type pool_of_memory step_prior", dep: func(d *deploy.Deployment) {
			d.Model.BytesPerActivation, d.Model.BytesPerWeight, d.Model.BytesPerLMHead = 1, 1, 1
		}},
		{what: "intermediate size x2", kinds: traced, gpu: true, causes: "memory pool_of_memory step_prior step_floor",
			dep: func(d *deploy.Deployment) { d.Model.IntermediateSize *= 2 }},
		{what: "layers x2", kinds: traced, gpu: true, causes: "memory pool_of_memory step_prior step_floor",
			dep: func(d *deploy.Deployment) { d.Model.NumLayers *= 2 }},
		{what: "layers / 2", kinds: traced, gpu: true, causes: "pool_of_memory memory step_prior",
			dep: func(d *deploy.Deployment) { d.Model.NumLayers /= 2 }},
		{what: "KV heads x4", kinds: traced, gpu: true, causes: "memory pool_of_memory",
			dep: func(d *deploy.Deployment) { d.Model.NumKVHeads *= 4 }},
		{what: "gpu_memory_utilization 0.5", kinds: traced, gpu: true, causes: "memory pool_of_memory",
			dep: func(d *deploy.Deployment) { d.Engine.GPUMemoryUtilization = 0.5 }},
		{what: "bandwidth / 4", kinds: traced, causes: "step_floor", dep: func(d *deploy.Deployment) { d.Hardware.BwPeakTBs /= 4 }},
		{what: "bandwidth and arithmetic / 20", kinds: traced, causes: "step_floor",
			dep: func(d *deploy.Deployment) { d.Hardware.BwPeakTBs /= 20; d.Hardware.TFlopsPeak /= 20 }},
		{what: "kv_blocks_total_gpu / 2", kinds: traced, causes: "pool_size",
			dep: func(d *deploy.Deployment) { d.Engine.KVBlocksGPU = trace.Some(d.Engine.KVBlocksGPU.V / 2) }},
		{what: "block_size x2", kinds: traced, causes: "snapshot_blocks memory pool_of_memory used_blocks",
			dep: func(d *deploy.Deployment) { d.Engine.BlockSize *= 2 }},
		{what: "block_size / 2", kinds: traced, causes: "snapshot_blocks memory pool_of_memory used_blocks",
			dep: func(d *deploy.Deployment) { d.Engine.BlockSize /= 2 }},
		{what: "max_num_seqs 4", kinds: traced + stock, causes: "scheduler_limits", dep: func(d *deploy.Deployment) { d.Engine.MaxNumSeqs = 4 }},
		{what: "max_num_batched_tokens / 4", kinds: traced, causes: "scheduler_limits journey_tokens",
			dep: func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 128 }},
		{what: "another model in the description", kinds: traced, causes: "model_name",
			dep: func(d *deploy.Deployment) { d.Model.ID = "mistralai/Ministral-3B" }},

		// stamps
		{what: "every monotonic stamp x1000", kinds: traced, causes: "step_stamps clock_rates step_prior api_delays client_limits", run: func(r *trace.Run) { scaleStamps(r, 1000, false) }},
		{what: "every stamp x1000", kinds: traced, gpu: true, causes: "step_stamps step_prior", run: func(r *trace.Run) { scaleStamps(r, 1000, true) }},
		{what: "every stamp / 1000", kinds: traced, causes: "step_stamps step_floor step_prior", run: func(r *trace.Run) { scaleStamps(r, 1e-3, true) }},
		{what: "step stamps x1000", kinds: traced, causes: "step_stamps step_order clock_rates step_prior", run: func(r *trace.Run) { scaleSteps(r, 1000) }},
		{what: "step stamps / 10", kinds: traced, causes: "step_stamps step_order clock_rates step_floor step_prior", run: func(r *trace.Run) { scaleSteps(r, 0.1) }},
		{what: "API spans 50 ms early", kinds: traced, gpu: true, causes: "departure_order", run: func(r *trace.Run) { shiftAPI(r, -50e6) }},
		{what: "API spans 5 s early", kinds: traced, causes: "departure_order api_delays client_encloses_server", run: func(r *trace.Run) { shiftAPI(r, -5e9) }},
		{what: "API spans 5 s late", kinds: traced, causes: "engine_order api_delays client_encloses_server", run: func(r *trace.Run) { shiftAPI(r, 5e9) }},
		{what: "first token before it was scheduled", kinds: traced, causes: "engine_order", run: eachRequest(func(q *trace.Request) {
			if q.FirstTokenNs.OK && q.ScheduledNs.OK {
				q.FirstTokenNs.V = q.ScheduledNs.V - 50e6
			}
		})},
		{what: "queued after scheduled", kinds: traced, causes: "engine_order", run: eachRequest(func(q *trace.Request) {
			q.QueuedNs.V += 10e9
		})},
		{what: "departures of other requests", kinds: traced, causes: "departure_order", run: func(r *trace.Run) {
			for i := range r.Requests {
				k := (i + len(r.Requests)/2) % len(r.Requests)
				if k > i {
					r.Requests[i].DepartedNs, r.Requests[k].DepartedNs = r.Requests[k].DepartedNs, r.Requests[i].DepartedNs
				}
			}
		}},

		// steps against journeys
		{what: "waiting_depth 1000", kinds: traced, causes: "waiting_requests", run: eachStep(func(s *trace.Step) { s.WaitingDepth = 1000 })},
		{what: "waiting_depth one more", kinds: traced, causes: "waiting_requests", run: eachStep(func(s *trace.Step) { s.WaitingDepth++ })},
		{what: "running_depth / 2", kinds: traced, causes: "running_requests step_tokens used_blocks",
			run: eachStep(func(s *trace.Step) { s.RunningDepth /= 2 })},
		{what: "running_depth x2", kinds: traced, causes: "journeys_complete snapshots_complete scheduler_limits",
			run: eachStep(func(s *trace.Step) { s.RunningDepth *= 2 })},
		{what: "decode tokens x2", kinds: traced, causes: "step_tokens", run: eachStep(func(s *trace.Step) { s.DecodeTokens *= 2 })},
		{what: "all tokens of steps x4", kinds: traced, causes: "journey_tokens snapshot_tokens scheduler_limits step_floor step_prior",
			run: eachStep(func(s *trace.Step) { s.ScheduledTokens *= 4; s.PrefillTokens *= 4; s.DecodeTokens *= 4 })},
		{what: "prefill tokens 0", kinds: traced, causes: "step_tokens", run: eachStep(func(s *trace.Step) { s.PrefillTokens = 0 })},
		{what: "steps of the batch after", kinds: traced, causes: "journey_tokens running_requests waiting_requests snapshot_tokens used_blocks " +
			"journeys_complete snapshots_complete", run: shiftSteps},
		{what: "num_finished x2", kinds: traced, causes: "finished_requests", run: eachStep(func(s *trace.Step) { s.NumFinished *= 2 })},
		{what: "num_finished 0", kinds: traced, causes: "finished_requests", run: eachStep(func(s *trace.Step) { s.NumFinished = 0 })},
		{what: "prompts in characters", kinds: traced, causes: "journey_tokens snapshot_requests",
			run: eachRequest(func(q *trace.Request) { q.PromptTokens.V *= 4 })},
		{what: "output tokens in characters", kinds: traced, causes: "journey_tokens running_requests journeys_complete core_spans_complete output_steps client_tokens",
			run: eachRequest(func(q *trace.Request) { q.OutputTokens.V *= 4; q.FinishedStep.V += 3 * q.OutputTokens.V / 4 })},
		{what: "cached tokens the whole prompt", kinds: traced, causes: "cached_tokens journey_tokens",
			run: eachRequest(func(q *trace.Request) { q.CachedTokens = q.PromptTokens })},
		{what: "cached tokens a tenth more than the prompt", kinds: traced + client, causes: "cached_tokens journey_tokens request_prior",
			run: func(r *trace.Run) {
				eachRequest(func(q *trace.Request) { q.CachedTokens = trace.Some(q.PromptTokens.V * 11 / 10) })(r)
				eachObserved(func(o *trace.ObservedRequest) { o.CachedTokens = trace.Some(o.PromptTokens.V * 11 / 10) })(r)
			}},
		{what: "journeys of another run", kinds: traced, causes: "journey_tokens running_requests waiting_requests journeys_complete snapshot_requests step_order chunk_reason",
			run: eachRequest(func(q *trace.Request) {
				for _, at := range []*trace.Opt[int64]{&q.QueuedStep, &q.ScheduledStep, &q.FirstTokenStep, &q.FinishedStep} {
					at.V += 97
				}
			})},

		// snapshots and blocks
		{what: "snapshots' computed tokens of another request", kinds: traced, causes: "snapshot_progress snapshot_requests snapshot_blocks", run: func(r *trace.Run) {
			for i := range r.Snapshots {
				r.Snapshots[i].ComputedTokens = r.Snapshots[(i+1)%len(r.Snapshots)].ComputedTokens
			}
		}},
		{what: "snapshots' scheduled tokens x2", kinds: traced, causes: "snapshot_tokens snapshot_progress snapshot_blocks",
			run: eachSnapshot(func(s *trace.Snapshot) { s.ScheduledTokens *= 2 })},
		{what: "snapshots' prompts in characters", kinds: traced, causes: "snapshot_requests step_prior step_floor",
			run: eachSnapshot(func(s *trace.Snapshot) { s.PromptTokens *= 4 })},
		{what: "snapshots' blocks x2", kinds: traced, causes: "snapshot_blocks used_blocks",
			run: eachSnapshot(func(s *trace.Snapshot) { s.BlocksAllocated *= 2 })},
		{what: "all blocks free", kinds: traced, causes: "used_blocks", run: eachStep(func(s *trace.Step) { s.BlocksFree = s.BlocksTotal })},
		{what: "all blocks free, usage 0", kinds: traced, causes: "used_blocks",
			run: eachStep(func(s *trace.Step) { s.BlocksFree, s.KVUsage = s.BlocksTotal, 0 })},
		{what: "no block free", kinds: traced, causes: "used_blocks",
			run: eachStep(func(s *trace.Step) { s.BlocksFree, s.KVUsage = 0, 1 })},
		{what: "usage in percent", kinds: traced, causes: "used_blocks", run: eachStep(func(s *trace.Step) { s.KVUsage *= 100 })},
		{what: "kv_blocks_total x2", kinds: traced, causes: "pool_size used_blocks memory pool_of_memory", run: eachStep(func(s *trace.Step) {
			used := s.BlocksTotal - s.BlocksFree
			s.BlocksTotal *= 2
			s.BlocksFree = s.BlocksTotal - used
			s.KVUsage = float64(used) / float64(s.BlocksTotal)
		})},

		// losses
		{what: "5 % of journeys lost", kinds: traced, causes: "journeys_complete waiting_requests finished_requests snapshot_requests",
			run: func(r *trace.Run) { r.Requests = thinned(r.Requests, 0.05, 1) }},
		{what: "30 % of API spans lost", kinds: traced, causes: "api_spans_complete", run: func(r *trace.Run) {
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range r.Requests {
				if rng.Float64() < 0.3 {
					loseAPI(&r.Requests[i])
				}
			}
		}},
		{what: "30 % of core spans lost", kinds: traced, causes: "core_spans_complete journeys_complete finished_requests waiting_requests",
			run: func(r *trace.Run) {
				rng := rand.New(rand.NewPCG(1, 3))
				for i := range r.Requests {
					if rng.Float64() < 0.3 {
						loseCore(&r.Requests[i])
					}
				}
			}},
		{what: "10 % of step summaries lost", kinds: traced, causes: "steps_complete", run: func(r *trace.Run) { r.Steps = thinned(r.Steps, 0.1, 4) }},
		{what: "10 % of snapshots lost", kinds: traced, causes: "snapshots_complete",
			run: func(r *trace.Run) { r.Snapshots = thinned(r.Snapshots, 0.1, 5) }},
		{what: "scheduled events lost", kinds: traced, causes: "events_complete journeys_complete waiting_requests running_requests", run: eachRequest(func(q *trace.Request) {
			q.ScheduledNs, q.ScheduledStep = trace.Opt[int64]{}, trace.Opt[int64]{}
		})},

		// clients and logs
		{what: "client's TTFT after its E2E", kinds: stock + client, causes: "client_order request_prior",
			run: eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V = o.E2EUs.V * 2 })},
		{what: "client's first chunk before it was sent", kinds: client, causes: "client_order request_prior", run: eachObserved(func(o *trace.ObservedRequest) {
			o.FirstChunkNs = trace.Some(o.SendNs.V - 1e9)
		})},
		{what: "client's times in ms taken for us", kinds: client, causes: "client_encloses_server request_prior",
			run: eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V /= 1000; o.E2EUs.V /= 1000 })},
		{what: "client's times x1000", kinds: client, causes: "client_encloses_server request_prior",
			run: eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V *= 1000; o.E2EUs.V *= 1000 })},
		{what: "client's requests of another run", kinds: client, causes: "client_encloses_server request_prior", run: func(r *trace.Run) {
			n := len(r.Observed)
			for i := range n / 2 {
				a, b := &r.Observed[i], &r.Observed[n-1-i]
				a.E2EUs, b.E2EUs = b.E2EUs, a.E2EUs
				a.TTFTUs, b.TTFTUs = b.TTFTUs, a.TTFTUs
			}
		}},
		{what: "10 % of the client's requests lost", kinds: client, causes: "clients_complete",
			run: func(r *trace.Run) { r.Observed = thinned(r.Observed, 0.1, 6) }},
		{what: "10 % of logged passes lost", kinds: stock, causes: "passes_complete",
			run: func(r *trace.Run) { r.Iterations = thinned(r.Iterations, 0.1, 7) }},
		{what: "elapsed times of passes x1000", kinds: stock, causes: "pass_times", run: func(r *trace.Run) {
			for i := range r.Iterations {
				r.Iterations[i].ElapsedUs *= 1000
			}
		}},
		{what: "elapsed times of passes x2", kinds: stock, causes: "pass_times", run: func(r *trace.Run) {
			for i := range r.Iterations {
				r.Iterations[i].ElapsedUs *= 2
			}
		}},
		{what: "elapsed times of passes / 1000", kinds: stock, causes: "pass_times step_floor", run: func(r *trace.Run) {
			for i := range r.Iterations {
				r.Iterations[i].ElapsedUs /= 1000
			}
		}},

		// load levels
		{what: "levels' ITL in us", kinds: levels, causes: "level_prior level_latency level_concurrency",
			run: eachLevel(func(p *trace.LoadPoint) { p.TPOTMs *= 1000 })},
		{what: "levels' ITL in s", kinds: levels, causes: "level_prior level_latency level_concurrency",
			run: eachLevel(func(p *trace.LoadPoint) { p.TPOTMs /= 1000 })},
		{what: "levels' TTFT in s", kinds: levels, causes: "level_prior level_latency", run: eachLevel(func(p *trace.LoadPoint) { p.TTFTMs.V /= 1000 })},
		{what: "levels' E2E in s", kinds: levels, causes: "level_latency level_concurrency", run: eachLevel(func(p *trace.LoadPoint) { p.E2EMs.V /= 1000 })},
		{what: "levels' prompts in characters", kinds: levels, causes: "level_prior",
			run: eachLevel(func(p *trace.LoadPoint) { p.PromptTokens *= 5 })},
		{what: "levels' outputs in characters", kinds: levels, causes: "level_latency",
			run: eachLevel(func(p *trace.LoadPoint) { p.OutputTokens *= 5 })},
		{what: "levels twice", kinds: levels, causes: "levels_differ",
			run: func(r *trace.Run) { r.Points = append(r.Points, r.Points...) }},
		{what: "levels' TTFT shuffled", kinds: levels, causes: "level_latency level_order level_prior", run: func(r *trace.Run) {
			rand.New(rand.NewPCG(3, 3)).Shuffle(len(r.Points), func(a, b int) {
				r.Points[a].TTFTMs, r.Points[b].TTFTMs = r.Points[b].TTFTMs, r.Points[a].TTFTMs
			})
		}},
		{what: "levels' concurrency x2", kinds: levels, causes: "level_concurrency",
			run: eachLevel(func(p *trace.LoadPoint) { p.Clients.V *= 2 })},
		{what: "levels' rate a minute", kinds: levels, causes: "level_concurrency level_prior",
			run: eachLevel(func(p *trace.LoadPoint) { p.RateRPS.V *= 60 })},
		{what: "levels at tp x4", kinds: levels, gpu: true, causes: "level_prior",
			run: eachLevel(func(p *trace.LoadPoint) { p.TP.V *= 4 })},
		{what: "levels of another device", kinds: levels, gpu: true, causes: "level_prior memory pool_of_memory",
			dep: func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("L40S") }},
	}
}

func eachStep(change func(*trace.Step)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Steps {
			change(&r.Steps[i])
		}
	}
}

func eachRequest(change func(*trace.Request)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Requests {
			change(&r.Requests[i])
		}
	}
}

func eachSnapshot(change func(*trace.Snapshot)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Snapshots {
			change(&r.Snapshots[i])
		}
	}
}

func eachObserved(change func(*trace.ObservedRequest)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Observed {
			change(&r.Observed[i])
		}
	}
}

func eachLevel(change func(*trace.LoadPoint)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Points {
			change(&r.Points[i])
		}
	}
}

// scaleStamps multiplies the monotonic stamps of steps and requests, and the wall clock's with withWall, from
// the first step on.
func scaleStamps(r *trace.Run, factor float64, withWall bool) {
	if len(r.Steps) == 0 {
		return
	}
	originNs, wallNs := r.Steps[0].TsStartNs, r.Steps[0].WallNs
	scale := func(ns *int64, origin int64) { *ns = origin + int64(float64(*ns-origin)*factor) }
	for i := range r.Steps {
		s := &r.Steps[i]
		scale(&s.TsStartNs, originNs)
		scale(&s.TsEndNs, originNs)
		if withWall {
			scale(&s.WallNs, wallNs)
		}
	}
	for i := range r.Requests {
		q := &r.Requests[i]
		for _, at := range []*trace.Opt[int64]{&q.ArrivedNs, &q.HandoffNs, &q.FirstResponseNs, &q.DepartedNs, &q.AbortedNs, &q.QueuedNs,
			&q.ScheduledNs, &q.FirstTokenNs, &q.FinishedNs} {
			scale(&at.V, originNs)
		}
	}
	for i := range r.Observed {
		o := &r.Observed[i]
		o.TTFTUs.V *= factor
		o.E2EUs.V *= factor
	}
}

// scaleSteps multiplies the monotonic stamps of the steps alone.
func scaleSteps(r *trace.Run, factor float64) {
	origin := r.Steps[0].TsStartNs
	for i := range r.Steps {
		s := &r.Steps[i]
		s.TsStartNs = origin + int64(float64(s.TsStartNs-origin)*factor)
		s.TsEndNs = origin + int64(float64(s.TsEndNs-origin)*factor)
	}
}

// shiftAPI moves the stamps of the API server.
func shiftAPI(r *trace.Run, byNs float64) {
	for i := range r.Requests {
		q := &r.Requests[i]
		for _, at := range []*trace.Opt[int64]{&q.ArrivedNs, &q.HandoffNs, &q.FirstResponseNs, &q.DepartedNs, &q.AbortedNs} {
			at.V += int64(byNs)
		}
	}
}

// shiftSteps gives every step the counts of the next one.
func shiftSteps(r *trace.Run) {
	for i := 0; i+1 < len(r.Steps); i++ {
		next := r.Steps[i+1]
		s := &r.Steps[i]
		next.ID, next.TsStartNs, next.TsEndNs, next.WallNs = s.ID, s.TsStartNs, s.TsEndNs, s.WallNs
		*s = next
	}
}

// thinned loses a share of the rows at random.
func thinned[T any](rows []T, share float64, seed uint64) []T {
	rng := rand.New(rand.NewPCG(seed, 11))
	return slices.DeleteFunc(slices.Clone(rows), func(T) bool { return rng.Float64() < share })
}

// loseAPI removes what the API span recorded.
func loseAPI(q *trace.Request) {
	none := trace.Opt[int64]{}
	q.APIID, q.APISpanID, q.Route, q.Model = trace.Opt[string]{}, trace.Opt[string]{}, trace.Opt[string]{}, trace.Opt[string]{}
	q.ArrivedNs, q.HandoffNs, q.FirstResponseNs, q.DepartedNs, q.AbortedNs = none, none, none, none, none
	q.APILine = none
}

// loseCore removes what the core span recorded.
func loseCore(q *trace.Request) {
	none := trace.Opt[int64]{}
	q.CoreID, q.CoreSpanID, q.FinishStatus = trace.Opt[string]{}, trace.Opt[string]{}, trace.Opt[string]{}
	for _, at := range []*trace.Opt[int64]{&q.QueuedNs, &q.ScheduledNs, &q.FirstTokenNs, &q.FinishedNs, &q.QueuedStep, &q.ScheduledStep,
		&q.FirstTokenStep, &q.FinishedStep, &q.CachedTokens, &q.CoreLine} {
		*at = none
	}
}

// honestRuns are the runs of an input folder.
func honestRuns(t *testing.T, kind string, in ...string) []*honest {
	t.Helper()
	runs, err := extract.Discover(in)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	ext, err := extract.Run(context.Background(), runs, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []*honest
	for i := range ext.Runs {
		r := &ext.Runs[i]
		_, isGPU := deploy.Datasheet(r.Deployment.Hardware.Name)
		out = append(out, &honest{
			name:     r.ID,
			kind:     kind,
			isGPU:    isGPU,
			dep:      r.Deployment,
			findings: r,
			load:     func() *trace.Run { return readAll(t, table.RunDir(o.Out, r.ID)) },
		})
	}
	return out
}

// readAll returns the run of a folder with its snapshots.
func readAll(t *testing.T, dir string) *trace.Run {
	t.Helper()
	run, err := table.ReadLean(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.EachSnapshot(func(s *trace.Snapshot) { run.Snapshots = append(run.Snapshots, *s) }); err != nil {
		t.Fatal(err)
	}
	run.Stored = nil
	return run
}

// copied returns a copy of a run that shares no list with it.
func copied(r *trace.Run) *trace.Run {
	run := *r
	run.Requests = slices.Clone(r.Requests)
	run.Events = slices.Clone(r.Events)
	run.Steps = slices.Clone(r.Steps)
	run.Snapshots = slices.Clone(r.Snapshots)
	run.KVEvents = slices.Clone(r.KVEvents)
	for i := range run.KVEvents {
		run.KVEvents[i].Hashes = slices.Clone(run.KVEvents[i].Hashes)
	}
	run.Observed = slices.Clone(r.Observed)
	for i := range run.Observed {
		run.Observed[i].ChunkGapsUs = slices.Clone(run.Observed[i].ChunkGapsUs)
	}
	run.Iterations = slices.Clone(r.Iterations)
	run.Points = slices.Clone(r.Points)
	return &run
}

// honestLevels are the levels of a table at one prompt and output length, with rate, E2E and clients as tools
// print them.
func honestLevels(t *testing.T, path string, dep *deploy.Deployment, keep func(*trace.LoadPoint) bool) *honest {
	t.Helper()
	f, err := clients.ReadLevels(bytes.NewReader(repo.Read(t, path)), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	h := &honest{name: filepath.Base(path), kind: levels, isGPU: true, dep: dep}
	h.load = func() *trace.Run {
		run := &trace.Run{ID: h.name}
		for i := range f.Levels {
			p := f.Levels[i].LoadPoint()
			if !p.TTFTMs.OK || p.TTFTMs.V <= 0 || p.TTFTMs.V > 2000 {
				continue // negative in the source, or a queue
			}
			if keep != nil && !keep(&p) {
				continue
			}
			p.TP = trace.Some(dep.TP)
			p.E2EMs = trace.Some(p.TTFTMs.V + (p.OutputTokens-1)*p.TPOTMs)
			if !p.Clients.OK {
				p.Clients = trace.Some(int64(max(1, p.RateRPS.V*p.E2EMs.V/1e3+0.5)))
			} else if !p.RateRPS.OK {
				p.RateRPS = trace.Some(float64(p.Clients.V) / p.E2EMs.V * 1e3)
			}
			run.Points = append(run.Points, p)
		}
		return run
	}
	return h
}

// bundledRecordings has what bundled returns, once a test has asked for it.
var bundledRecordings []*honest

// bundled are the recordings of the repository, which are extracted and read once for all tests.
func bundled(t *testing.T) []*honest {
	t.Helper()
	if bundledRecordings != nil {
		return slices.Clone(bundledRecordings)
	}
	traces := filepath.Join(repo.Root(t), "testdata", "traces")
	all := honestRuns(t, traced, filepath.Join(traces, "demo", "b200-llama-3.1-8b-tp1"))
	all = append(all, honestRuns(t, traced+client, filepath.Join(traces, "real", "gqa-low"))...)
	all = append(all, honestRuns(t, stock, filepath.Join(traces, "stock"))...)
	for _, h := range all {
		whole := h.load()
		h.load = func() *trace.Run { return copied(whole) }
	}
	dep := testkit.Llama8B()
	dep.Hardware, _ = deploy.Datasheet("H100")
	bundledRecordings = append(all, honestLevels(t, filepath.Join(repo.Root(t), "testdata", "sweeps", "llama-3.1-8b.csv"), dep, nil))
	return slices.Clone(bundledRecordings)
}

// violations are the names of the violated identities.
func violations(r *result.InspectRun) []string {
	var out []string
	for i := range r.Identities {
		if r.Identities[i].Status == result.IdentityViolated {
			out = append(out, r.Identities[i].Name)
		}
	}
	return out
}

// outcome of a lie.
type outcome struct {
	told, named int
	unrelated   int // most violated identities that are neither cause nor consequence
}

// tellLies tells every lie about every recording that it fits, and reports those that are not found.
func tellLies(t *testing.T, recordings []*honest, all []lie, log bool) map[string]outcome {
	t.Helper()
	out := map[string]outcome{}
	for _, h := range recordings {
		plain := h.inspect(t, nil)
		for _, id := range plain.Identities {
			if testing.Verbose() && os.Getenv("IDS") != "" {
				l := 0.0
				if id.Largest != nil {
					l = *id.Largest
				}
				t.Logf("%s %s %s %d/%d %.4g %s", h.name, id.Name, id.Status, id.Violated, id.Checked, l, id.Sentence)
			}
		}
		already := violations(&plain)
		for i := range all {
			l := &all[i]
			fits := slices.ContainsFunc([]string{traced, stock, client, levels, summaries, spans, inEngine}, func(kind string) bool {
				return strings.Contains(l.kinds, kind) && strings.Contains(h.kind, kind)
			})
			if !fits || l.gpu && !h.isGPU {
				continue
			}
			got := h.inspect(t, l)
			o := out[l.what]
			o.told++
			cause, unrelated := false, []string{}
			for _, name := range violations(&got) {
				isFloor := name == "request_floor" && strings.Contains(l.causes, "_prior") // as impossible as unlike the library
				switch {
				case isFloor || slices.Contains(strings.Fields(l.causes), name):
					cause = true
				case !slices.Contains(already, name):
					unrelated = append(unrelated, name)
				}
			}
			if cause {
				o.named++
			}
			o.unrelated = max(o.unrelated, len(unrelated))
			out[l.what] = o
			if log || !cause || len(unrelated) > 1 {
				t.Logf("%s: %s: named %v, violated %v, unrelated %v", h.name, l.what, cause, violations(&got), unrelated)
			}
		}
	}
	return out
}

// tellLiesOnce tells every lie about the first of the recordings that it fits.
func tellLiesOnce(t *testing.T, recordings []*honest, all []lie) map[string]outcome {
	t.Helper()
	out := map[string]outcome{}
	for _, h := range recordings {
		told := tellLies(t, []*honest{h}, all, false)
		maps.Copy(out, told)
		all = slices.DeleteFunc(slices.Clone(all), func(l lie) bool { return told[l.what].told > 0 })
	}
	return out
}

// wantAllNamed reports the lies that pass unnamed, or that violate more than one unrelated identity.
func wantAllNamed(t *testing.T, outcomes map[string]outcome) {
	t.Helper()
	for what, o := range outcomes {
		if o.named < o.told || o.unrelated > 1 {
			t.Errorf("%s: named in %d of %d recordings, beside up to %d that are unrelated", what, o.named, o.told, o.unrelated)
		}
	}
}

// TestLies: no lie about a recording of the repository passes unnamed.
func TestLies(t *testing.T) {
	recordings := bundled(t)
	for _, h := range recordings {
		got := h.inspect(t, nil)
		if v := violations(&got); len(v) > 0 {
			t.Errorf("%s: an honest recording violates %v", h.name, v)
		}
	}
	recordings[0], recordings[1] = recordings[1], recordings[0] // the smaller of the traced ones first
	outcomes := tellLiesOnce(t, recordings, lies())
	if len(outcomes) != len(lies()) {
		t.Errorf("%d of %d lies fit a recording", len(outcomes), len(lies()))
	}
	wantAllNamed(t, outcomes)
}

// TestEvalBundledLies tells the lies of TestLies and TestFurtherLies about every recording of the repository that they fit.
func TestEvalBundledLies(t *testing.T) {
	repo.NeedEval(t)
	recordings := bundled(t)
	wantAllNamed(t, tellLies(t, recordings, lies(), false))
	recordings = append(recordings, asClients(recordings[0]))
	wantAllNamed(t, tellLies(t, recordings, sureLies(t), false))
}

// holding counts the identities that were checked and hold.
func holding(r *result.InspectRun) int {
	n := 0
	for i := range r.Identities {
		if r.Identities[i].Status == result.IdentityHolds {
			n++
		}
	}
	return n
}
