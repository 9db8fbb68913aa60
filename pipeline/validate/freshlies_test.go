package validate_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// TestEvalFreshLies tells the lies of freshLies about the recordings of TestEvalOtherLies without the client in the engine:
// at least 46 are named in every one.
func TestEvalFreshLies(t *testing.T) {
	repo.NeedEval(t)
	requireNamed(t, freshLies(), 46)
}

// everyNth changes every n-th request of a client.
func everyNth(n int, change func(*trace.ObservedRequest)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := range r.Observed {
			if i%n == 0 {
				change(&r.Observed[i])
			}
		}
	}
}

// fromHalf changes the second half of a client's requests.
func fromHalf(change func(*trace.ObservedRequest)) func(*trace.Run) {
	return func(r *trace.Run) {
		for i := len(r.Observed) / 2; i < len(r.Observed); i++ {
			change(&r.Observed[i])
		}
	}
}

// moveRequest moves all stamps of a client's request.
func moveRequest(o *trace.ObservedRequest, byNs int64) {
	for _, at := range clientStamps(o) {
		if at.OK {
			at.V += byNs
		}
	}
}

// retimed gives a client's request other times, and the stamps that go with them.
func retimed(o *trace.ObservedRequest, ttftUs, e2eUs float64) {
	o.TTFTUs.V, o.E2EUs.V = ttftUs, e2eUs
	if o.SendNs.OK && o.FirstChunkNs.OK {
		o.FirstChunkNs.V = o.SendNs.V + int64(ttftUs*1e3)
	}
	if o.SendNs.OK && o.LastChunkNs.OK {
		o.LastChunkNs.V = o.SendNs.V + int64(e2eUs*1e3)
	}
}

// sortColumn sorts a column of a client's requests apart from the others, as spreadsheets do.
func sortColumn[T any](value func(*trace.ObservedRequest) *T, less func(a, b T) int) func(*trace.Run) {
	return func(r *trace.Run) {
		var values []T
		for i := range r.Observed {
			values = append(values, *value(&r.Observed[i]))
		}
		slices.SortStableFunc(values, less)
		for i := range r.Observed {
			*value(&r.Observed[i]) = values[i]
		}
	}
}

// freshLies are ways in which recordings go wrong that a reader thought of who had not seen the other tables: clocks,
// units of a part, merged and cut files, restarts, timeouts, filled gaps and figures of another column.
func freshLies() []lie {
	both := client + stock
	clientTimes := "client_encloses_server request_prior client_order client_limits client_lengths client_units client_streams client_delays request_floor " +
		"client_passes client_tokens clients_differ request_rounding times_differ client_turns client_chunks clients_complete client_sums client_clock answer_passes first_passes"
	stepsOf := traced + summaries
	return []lie{
		// clients: clocks
		{what: "client's clock set back by 30 s half-way", kinds: both, causes: clientTimes, run: fromHalf(func(o *trace.ObservedRequest) { moveRequest(o, -30e9) })},
		{what: "client's clock set forward by an hour half-way", kinds: stock, causes: clientTimes, run: fromHalf(func(o *trace.ObservedRequest) { moveRequest(o, 3600e9) })},
		{what: "sends of half of the requests in another time zone", kinds: both, causes: clientTimes, run: everyNth(2, func(o *trace.ObservedRequest) { o.SendNs.V -= 3600e9 })},

		// clients: units of a part
		{what: "times in ms from half-way", kinds: both, causes: clientTimes, run: fromHalf(func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V/1e3, o.E2EUs.V/1e3) })},
		{what: "times x10 from half-way", kinds: both, causes: clientTimes, run: fromHalf(func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V*10, o.E2EUs.V*10) })},
		{what: "every tenth request's times x10", kinds: both, causes: clientTimes, run: everyNth(10, func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V*10, o.E2EUs.V*10) })},
		{what: "every tenth request's times / 1000", kinds: both, causes: clientTimes, run: everyNth(10, func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V/1e3, o.E2EUs.V/1e3) })},
		{what: "every tenth TTFT x100", kinds: both, causes: clientTimes, run: everyNth(10, func(o *trace.ObservedRequest) {
			retimed(o, o.TTFTUs.V*100, o.E2EUs.V+99*o.TTFTUs.V)
		})},
		{what: "every fifth TTFT / 1000", kinds: both, causes: clientTimes, run: everyNth(5, func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V/1e3, o.E2EUs.V) })},
		{what: "every fifth request's outputs x10", kinds: both, causes: clientTimes, run: everyNth(5, func(o *trace.ObservedRequest) { o.OutputTokens.V *= 10 })},
		{what: "every fifth request's prompts x1000", kinds: both, causes: clientTimes + " model_len", run: everyNth(5, func(o *trace.ObservedRequest) { o.PromptTokens.V *= 1000 })},
		{what: "outputs in characters from half-way", kinds: both, causes: clientTimes, run: fromHalf(func(o *trace.ObservedRequest) { o.OutputTokens.V *= 4 })},

		// clients: filled and cut
		{what: "a tenth of the TTFTs filled with 0", kinds: both, causes: clientTimes, run: everyNth(10, func(o *trace.ObservedRequest) { o.TTFTUs.V = 0 })},
		{what: "a fifth of the E2Es filled with the median", kinds: both, causes: clientTimes, run: func(r *trace.Run) {
			var all []float64
			for i := range r.Observed {
				all = append(all, r.Observed[i].E2EUs.V)
			}
			median := stat.Median(all)
			everyNth(5, func(o *trace.ObservedRequest) { retimed(o, min(o.TTFTUs.V, median), median) })(r)
		}},
		{what: "every fifth answer cut after its first token", kinds: both, causes: clientTimes, run: everyNth(5, func(o *trace.ObservedRequest) {
			retimed(o, o.TTFTUs.V, o.TTFTUs.V*1.0001)
		})},
		{what: "every fifth answer's tokens counted up to a timeout of 1 token", kinds: both, causes: clientTimes, run: everyNth(5, func(o *trace.ObservedRequest) { o.OutputTokens.V = 1 })},
		{what: "every fifth request timed out at 30 s", kinds: both, causes: clientTimes, run: everyNth(5, func(o *trace.ObservedRequest) { retimed(o, o.TTFTUs.V, 30e6) })},
		{what: "requests of more than the median E2E left out", kinds: stock, causes: "clients_complete client_passes client_tokens", run: func(r *trace.Run) {
			var all []float64
			for i := range r.Observed {
				all = append(all, r.Observed[i].E2EUs.V)
			}
			median := stat.Median(all)
			r.Observed = slices.DeleteFunc(r.Observed, func(o trace.ObservedRequest) bool { return o.E2EUs.V > median })
		}},

		// clients: columns
		{what: "TTFT column sorted", kinds: both, causes: clientTimes, run: sortColumn(func(o *trace.ObservedRequest) *float64 { return &o.TTFTUs.V }, cmp.Compare[float64])},
		{what: "E2E column sorted", kinds: both, causes: clientTimes, run: sortColumn(func(o *trace.ObservedRequest) *float64 { return &o.E2EUs.V }, cmp.Compare[float64])},
		{what: "output column sorted", kinds: both, causes: clientTimes, run: sortColumn(func(o *trace.ObservedRequest) *int64 { return &o.OutputTokens.V }, cmp.Compare[int64])},
		{what: "output column from the last to the first", kinds: both, causes: clientTimes, run: func(r *trace.Run) {
			for i, k := 0, len(r.Observed)-1; i < k; i, k = i+1, k-1 {
				r.Observed[i].OutputTokens, r.Observed[k].OutputTokens = r.Observed[k].OutputTokens, r.Observed[i].OutputTokens
			}
		}},
		{what: "E2E with TTFT twice", kinds: both, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) { o.E2EUs.V += o.TTFTUs.V })},
		{what: "TTFT and TPOT swapped", kinds: both, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			n := max(1, float64(o.OutputTokens.V-1))
			itl := (o.E2EUs.V - o.TTFTUs.V) / n
			retimed(o, itl, itl+o.TTFTUs.V*n)
		})},
		{what: "E2E is the time per token times the tokens asked for", kinds: both, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			n := max(1, float64(o.OutputTokens.V-1))
			o.E2EUs.V = o.TTFTUs.V + (o.E2EUs.V-o.TTFTUs.V)/n*1023
		})},
		{what: "outputs are tokens a second", kinds: both, causes: clientTimes, run: eachObserved(func(o *trace.ObservedRequest) {
			o.OutputTokens.V = max(1, int64(float64(o.OutputTokens.V)/o.E2EUs.V*1e6))
		})},
		{what: "half of the recording copied over the other half", kinds: both, causes: clientTimes + " clients_overlap", run: func(r *trace.Run) {
			n := len(r.Observed) / 2
			byNs := r.Observed[n].SentNs() - r.Observed[0].SentNs()
			for i := range n {
				o := r.Observed[i]
				o.ID = r.Observed[n+i].ID
				o.CoreID, o.Iteration = r.Observed[n+i].CoreID, trace.Opt[int64]{}
				moveRequest(&o, byNs)
				r.Observed[n+i] = o
			}
		}},

		// steps and journeys
		{what: "every tenth step's duration x1000", kinds: stepsOf, causes: "step_stamps step_order", run: func(r *trace.Run) {
			for i := range r.Steps {
				if s := &r.Steps[i]; i%10 == 0 {
					s.TsEndNs = s.TsStartNs + 1000*(s.TsEndNs-s.TsStartNs)
				}
			}
		}},
		{what: "engine restarted half-way", kinds: stepsOf, causes: "step_stamps step_order clock_rates steps_complete journey_tokens", run: func(r *trace.Run) {
			n := len(r.Steps) / 2
			first := r.Steps[0].TsStartNs - r.Steps[n].TsStartNs
			for i := n; i < len(r.Steps); i++ {
				r.Steps[i].TsStartNs += first
				r.Steps[i].TsEndNs += first
			}
		}},
		{what: "steps in ms from half-way", kinds: stepsOf, causes: "step_stamps step_order clock_rates step_floor step_prior", run: func(r *trace.Run) {
			n := len(r.Steps) / 2
			from := r.Steps[n].TsStartNs
			for i := n; i < len(r.Steps); i++ {
				s := &r.Steps[i]
				s.TsStartNs, s.TsEndNs = from+(s.TsStartNs-from)/1000, from+(s.TsEndNs-from)/1000
			}
		}},
		{what: "decodes padded to multiples of 8", kinds: traced, causes: "step_tokens journey_tokens snapshot_tokens", run: eachStep(func(s *trace.Step) {
			padded := (int64(s.DecodeTokens) + 7) / 8 * 8
			s.ScheduledTokens += int32(padded - int64(s.DecodeTokens))
			s.DecodeTokens = int32(padded)
		})},
		{what: "KV usage in percent", kinds: stepsOf, causes: "used_blocks", run: eachStep(func(s *trace.Step) { s.KVUsage *= 100 })},
		{what: "free blocks of another run", kinds: stepsOf, causes: "used_blocks", run: eachStep(func(s *trace.Step) { s.BlocksFree = s.BlocksTotal * 9 / 10 })},
		{what: "steps' depths of the step before", kinds: traced, causes: "running_requests waiting_requests step_tokens snapshots_complete journeys_complete", run: func(r *trace.Run) {
			for i := len(r.Steps) - 1; i > 0; i-- {
				r.Steps[i].RunningDepth, r.Steps[i].WaitingDepth = r.Steps[i-1].RunningDepth, r.Steps[i-1].WaitingDepth
			}
		}},
		{what: "prefill tokens count what was cached", kinds: traced, causes: "journey_tokens step_tokens snapshot_tokens scheduler_limits", run: eachStep(func(s *trace.Step) {
			s.PrefillTokens += 64 * s.NumPrefillReqs
			s.ScheduledTokens += 64 * s.NumPrefillReqs
		})},
		{what: "journeys: first token 30 ms late", kinds: traced, causes: "step_order client_encloses_server", run: eachRequest(func(q *trace.Request) {
			if q.FirstTokenNs.OK {
				q.FirstTokenNs.V = min(q.FirstTokenNs.V+30e6, q.FinishedNs.Or(math.MaxInt64))
			}
		})},
		{what: "journeys: scheduled is queued", kinds: traced, causes: "step_order", run: eachRequest(func(q *trace.Request) { q.ScheduledNs = q.QueuedNs })},
		{what: "journeys: whole prompts cached", kinds: traced, causes: "cached_tokens journey_tokens snapshot_requests", run: eachRequest(func(q *trace.Request) { q.CachedTokens = q.PromptTokens })},
		{what: "journeys of two runs", kinds: traced, causes: "running_requests journeys_complete finished_requests waiting_requests step_order journey_tokens clients_complete", run: func(r *trace.Run) {
			for i := range r.Requests {
				if q := r.Requests[i]; i%3 == 0 {
					q.CoreID.V = fmt.Sprint(q.CoreID.V, "-b")
					q.APIID.V = fmt.Sprint(q.APIID.V, "-b")
					r.Requests = append(r.Requests, q)
				}
			}
		}},
		{what: "snapshots in blocks of tokens", kinds: traced, causes: "snapshot_blocks used_blocks snapshot_progress snapshot_requests", run: eachSnapshot(func(s *trace.Snapshot) { s.BlocksAllocated *= 16 })},
		{what: "snapshots: computed is the prompt", kinds: traced, causes: "snapshot_progress snapshot_blocks snapshot_requests", run: eachSnapshot(func(s *trace.Snapshot) { s.ComputedTokens = s.PromptTokens })},

		// logged passes
		{what: "passes: every tenth elapsed x1000", kinds: stock, causes: "pass_times pass_order step_work pass_units", run: func(r *trace.Run) {
			for i := range r.Iterations {
				if i%10 == 0 {
					r.Iterations[i].ElapsedUs *= 1000
				}
			}
		}},
		{what: "passes: every tenth elapsed / 10", kinds: stock, causes: "pass_times pass_order step_work step_floor step_prior pass_units", run: func(r *trace.Run) {
			for i := range r.Iterations {
				if i%10 == 0 {
					r.Iterations[i].ElapsedUs /= 10
				}
			}
		}},
		{what: "passes: a minute of the middle lost, numbers made anew", kinds: stock, causes: "passes_complete clients_complete client_tokens client_passes pass_times", run: func(r *trace.Run) {
			n := len(r.Iterations)
			r.Iterations = slices.Delete(r.Iterations, n/3, n/2)
			for i := range r.Iterations {
				r.Iterations[i].Index = int64(i)
			}
		}},
		{what: "passes: stamps an hour later from half-way", kinds: stock, causes: "pass_times answer_passes client_passes passes_complete pass_order clients_complete", run: func(r *trace.Run) {
			for i := len(r.Iterations) / 2; i < len(r.Iterations); i++ {
				r.Iterations[i].StampNs.V += 3600e9
			}
		}},

		// stock spans and load levels
		{what: "spans: every tenth TTFT x1000", kinds: spans, causes: "span_sums client_order client_units client_encloses_server", run: func(r *trace.Run) {
			for i := range r.Requests {
				if i%10 == 0 {
					r.Requests[i].StockTTFTUs.V *= 1000
				}
			}
		}},
		{what: "spans: E2E in another unit for a tenth", kinds: spans, causes: "span_sums client_order client_units client_encloses_server", run: func(r *trace.Run) {
			for i := range r.Requests {
				if i%10 == 0 {
					r.Requests[i].StockE2EUs.V *= 1000
				}
			}
		}},
		{what: "levels: one in five x10", kinds: levels, causes: "level_latency level_concurrency level_order level_prior", run: func(r *trace.Run) {
			for i := range r.Points {
				if i%5 == 0 {
					r.Points[i].TPOTMs *= 10
				}
			}
		}},
		{what: "levels: TTFT in s from half-way", kinds: levels, causes: "level_latency level_order level_prior", run: func(r *trace.Run) {
			for i := len(r.Points) / 2; i < len(r.Points); i++ {
				r.Points[i].TTFTMs.V /= 1000
			}
		}},
		{what: "levels: E2E is P99", kinds: levels, causes: "level_latency level_concurrency", run: eachLevel(func(p *trace.LoadPoint) { p.E2EMs.V *= 1.6 })},

		// the description
		{what: "limits of the scheduler swapped", kinds: traced + stock, causes: "scheduler_limits client_limits", dep: func(d *deploy.Deployment) {
			d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = 1, 1
		}},
		{what: "context of another model", kinds: traced + both, causes: "model_len", dep: func(d *deploy.Deployment) { d.Engine.MaxModelLen = trace.Some[int64](32) }},
		{what: "twice the hidden size", kinds: traced + both, gpu: true, causes: "pool_of_memory memory step_prior step_floor request_floor request_prior", dep: func(d *deploy.Deployment) {
			d.Model.HiddenSize *= 2
			d.Model.IntermediateSize *= 2
			d.Model.Decoder = nil
		}},
	}
}
