package validate

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	clockJumpMs   = 100
	seriesBins    = 200
	rareSteps     = 20 // fewer steps of a kind than this are called absent
	prefillTokens = 64 // more of them make a step that shows the cost of a prefill
)

func countRequests(run *trace.Run, dep *deploy.Deployment) result.InspectRequests {
	q := result.InspectRequests{Total: len(run.Requests), Observed: len(run.Observed)}
	rate := dep.Tracing.JourneySampleRate
	q.JourneysSampled = rate.OK && rate.V < 1
	for i := range run.Requests {
		r := &run.Requests[i]
		stock := r.Source == trace.SourceStock
		switch {
		case r.CoreID.OK || stock:
			q.Engine++
		default:
			q.CoreMissing++
		}
		if r.CoreID.OK && !r.APIID.OK && !stock {
			q.APIUnlinked++
		}
		switch {
		case !r.Success.OK:
			q.Unknown++
		case r.Success.V:
			q.Finished++
		case isClientAbort(r):
			q.Aborted++
		default:
			q.Failed++
		}
		if r.Success.V && r.FinishStatus.Or("") == trace.FinishAborted {
			q.StopStringEnds++
		}
		if r.Preemptions.Or(0) > 0 {
			q.Preempted++
		}
		if r.N.Or(1) > 1 {
			q.MultiSample++
		}
	}
	return q
}

func countLosses(run *trace.Run) result.InspectLosses {
	var l result.InspectLosses
	for i := range run.Requests {
		l.DroppedSpanEvents += int(run.Requests[i].DroppedEvents)
	}
	for i := range run.Snapshots {
		if run.Snapshots[i].Orphan {
			l.OrphanSnapshots++
		}
	}
	n := len(run.Steps)
	if n == 0 {
		return l
	}
	ids := int(run.Steps[n-1].ID - run.Steps[0].ID + 1)
	l.MissingSteps = ids - n
	l.RecordedStepShare = share(n, ids)
	adjacent := 0
	for i := 1; i < n; i++ {
		if run.Steps[i].ID == run.Steps[i-1].ID+1 {
			adjacent++
		}
	}
	l.AdjacentShare = share(adjacent, max(1, n-1))
	return l
}

// compareClocks looks at wall minus monotonic time of the steps (of the journey
// events without steps) and at stamps that run backwards inside a request.
func compareClocks(run *trace.Run) result.InspectClocks {
	c := result.InspectClocks{Engines: min(1, len(run.Steps)+len(run.Requests))}
	var offsetS []float64
	for _, s := range run.Steps {
		// The stamp of the event is taken right after schedule() ends.
		offsetS = append(offsetS, float64(s.WallNs-s.TsEndNs)/nsPerS)
	}
	if len(offsetS) == 0 {
		for _, e := range run.Events {
			if e.TsNs.OK {
				offsetS = append(offsetS, float64(e.WallNs-e.TsNs.V)/nsPerS)
			}
		}
	}
	if len(offsetS) > 0 {
		o := sorted(offsetS)
		mid, spread := Quantile(o, 0.5), 1e3*(Quantile(o, 0.95)-Quantile(o, 0.05))
		c.OffsetS, c.OffsetSpreadMs = &mid, &spread
	}
	for i := range run.Requests {
		if runsBackwards(&run.Requests[i]) {
			c.NegativeIntervals++
		}
	}
	return c
}

func runsBackwards(r *trace.Request) bool {
	last := int64(math.MinInt64)
	for _, at := range []trace.Opt[int64]{r.ArrivedNs, r.QueuedNs, r.ScheduledNs, r.FirstTokenNs, r.FinishedNs, r.DepartedNs} {
		if !at.OK {
			continue
		}
		if at.V < last {
			return true
		}
		last = at.V
	}
	return false
}

// bounds are the first and last monotonic stamp of steps and requests (of the
// wall clock for stock spans, of the client's clock without either).
func bounds(run *trace.Run) (lo, hi int64, ok bool) {
	see := func(at int64) {
		if !ok {
			lo, hi, ok = at, at, true
		}
		lo, hi = min(lo, at), max(hi, at)
	}
	for _, s := range run.Steps {
		see(s.TsStartNs)
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		if r.Source == trace.SourceStock {
			for _, at := range []trace.Opt[int64]{r.StartWallNs, r.EndWallNs} {
				if at.OK {
					see(at.V)
				}
			}
			continue
		}
		for _, at := range []trace.Opt[int64]{r.ArrivedNs, r.QueuedNs, r.FinishedNs, r.DepartedNs} {
			if at.OK {
				see(at.V)
			}
		}
	}
	if ok {
		return lo, hi, ok
	}
	for i := range run.Observed {
		o := &run.Observed[i]
		for _, at := range []trace.Opt[int64]{o.SendNs, o.LastChunkNs, o.QueuedNs, o.EngineLastNs} {
			if at.OK {
				see(at.V)
			}
		}
	}
	return lo, hi, ok
}

func spanS(run *trace.Run) *float64 {
	lo, hi, ok := bounds(run)
	if !ok {
		return nil
	}
	s := float64(hi-lo) / nsPerS
	return &s
}

// coverage are the histograms a simulator's user looks at: did the run hold the
// steps that will be simulated? Known steps with scheduled tokens only.
func coverage(s *rows.Steps) []result.Histogram {
	prefill := logHistogram("prefill_tokens", "tokens per step", 16)
	batch := logHistogram("decode_batch", "requests per step", 12)
	context := logHistogram("context_tokens", "tokens per decode", 20)
	usage := result.Histogram{Name: "kv_usage", Unit: "share of blocks", Counts: make([]int, 10)}
	for i := 0; i <= 10; i++ {
		usage.Edges = append(usage.Edges, float64(i)/10)
	}
	large, pure := 0, 0
	for i := range s.All {
		st := &s.All[i]
		if st.Recorded >= 0 {
			count(&usage, s.Run.Steps[st.Recorded].KVUsage)
		}
		if !st.Known() || st.In.ScheduledTokens == 0 {
			continue
		}
		count(&prefill, st.In.PrefillTokens)
		count(&batch, st.In.NumDecodeReqs)
		if st.In.NumDecodeReqs > 0 {
			count(&context, st.In.DecodeContextTokens/st.In.NumDecodeReqs)
		}
		if st.In.PrefillTokens > prefillTokens {
			large++
		}
		if st.In.PrefillTokens == 0 {
			pure++
		}
	}
	if large < rareSteps {
		prefill.Absent = "fewer than 20 steps hold more than 64 prefill tokens: the cost of a prefill cannot be learned here"
	}
	if pure < rareSteps {
		batch.Absent = "fewer than 20 pure decode steps"
	}
	return []result.Histogram{prefill, batch, context, usage}
}

// logHistogram has bins [0,1), [1,2), [2,4), ... with n powers of two.
func logHistogram(name, unit string, n int) result.Histogram {
	h := result.Histogram{Name: name, Unit: unit, Edges: []float64{0}, Counts: make([]int, n)}
	for i := 0; i < n; i++ {
		h.Edges = append(h.Edges, math.Exp2(float64(i)))
	}
	return h
}

// count adds v to its bin; the last bin holds everything above too.
func count(h *result.Histogram, v float64) {
	last := len(h.Counts) - 1
	for i := 0; i < last; i++ {
		if v < h.Edges[i+1] {
			h.Counts[i]++
			h.Rows++
			return
		}
	}
	h.Counts[last]++
	h.Rows++
}

// loadSeries is the run in at most seriesBins equal bins of time.
func loadSeries(run *trace.Run) *result.LoadSeries {
	lo, hi, ok := bounds(run)
	if !ok || hi == lo {
		return nil
	}
	width := (hi-lo)/seriesBins + 1
	bin := func(at int64) int { return int(max(0, min((at-lo)/width, seriesBins-1))) }
	var running, waiting, usage, ttft [seriesBins][]float64
	for _, s := range run.Steps {
		b := bin(s.TsStartNs)
		running[b] = append(running[b], float64(s.RunningDepth))
		waiting[b] = append(waiting[b], float64(s.WaitingDepth))
		usage[b] = append(usage[b], s.KVUsage)
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		at, known := arrivalNs(r)
		if v, ok := TTFTMs(r); ok && known {
			ttft[bin(at)] = append(ttft[bin(at)], v)
		}
	}
	return &result.LoadSeries{
		BinS:    float64(width) / nsPerS,
		Running: each(running[:], mean), Waiting: each(waiting[:], mean),
		KVUsage: each(usage[:], mean), TTFTMs: each(ttft[:], Median),
	}
}

// each applies f to every non-empty bin; empty ones are null.
func each(bins [][]float64, f func([]float64) float64) []*float64 {
	out := make([]*float64, len(bins))
	for i, b := range bins {
		if len(b) > 0 {
			v := f(b)
			out[i] = &v
		}
	}
	return out
}
