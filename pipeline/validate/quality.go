package validate

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	clockJumpMs = 100
	seriesBins  = 200
	nsPerSecond = 1e9
)

// countClients is countRequests of what clients saw, where nothing else was recorded.
func countClients(seen []trace.ObservedRequest, q *result.InspectRequests) {
	q.Total = len(seen)
	for i := range seen {
		switch r := &seen[i]; {
		case r.Success.Or(true):
			q.Finished++
		case r.Aborted.V:
			q.Aborted++
		default:
			q.Failed++
		}
	}
}

func countRequests(run *trace.Run, dep *deploy.Deployment) result.InspectRequests {
	q := result.InspectRequests{Total: len(run.Requests), Observed: len(run.Observed)}
	rate := dep.Tracing.JourneySampleRate
	q.JourneysSampled = rate.OK && rate.V < 1
	if len(run.Requests) == 0 {
		countClients(run.Observed, &q)
	}
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

func countLosses(run *trace.Run) (l result.InspectLosses, err error) {
	for i := range run.Requests {
		l.DroppedSpanEvents += int(run.Requests[i].DroppedEvents)
	}
	err = run.EachSnapshot(func(s *trace.Snapshot) {
		if s.Orphan {
			l.OrphanSnapshots++
		}
	})
	n := len(run.Steps)
	if n == 0 || err != nil {
		return l, err
	}
	ids := int(run.Steps[n-1].ID - run.Steps[0].ID + 1)
	l.MissingSteps = ids - n
	l.RecordedStepShare = result.Share(n, ids)
	adjacent := 0
	for i := 1; i < n; i++ {
		if run.Steps[i].ID == run.Steps[i-1].ID+1 {
			adjacent++
		}
	}
	l.AdjacentShare = result.Share(adjacent, max(1, n-1))
	return l, nil
}

// addExtract puts in what only extraction saw.
func addExtract(l *result.InspectLosses, e *result.ExtractRun) {
	read, dropped := int(e.Records.Read), 0
	for _, n := range e.Records.Dropped {
		dropped += int(n)
	}
	duplicates, truncated := int(e.Losses.DuplicateSpans), int(e.Losses.TruncatedMessages)
	l.RecordsRead, l.RecordsDropped, l.DuplicateSpans, l.TruncatedMessages = &read, &dropped, &duplicates, &truncated
	l.DroppedSpanEvents = max(l.DroppedSpanEvents, int(e.Losses.DroppedSpanEvents))
}

// compareClocks looks at wall minus monotonic time of the steps (of the journey
// events without steps) and at stamps that run backwards inside a request.
func compareClocks(run *trace.Run) result.InspectClocks {
	c := result.InspectClocks{Engines: min(1, len(run.Steps)+len(run.Requests))}
	var offsetS []float64
	for _, s := range run.Steps {
		if run.Aggregate != nil { // made from lines that have one stamp
			break
		}
		// The stamp of the event is taken right after schedule() ends.
		offsetS = append(offsetS, float64(s.WallNs-s.TsEndNs)/nsPerSecond)
	}
	if len(offsetS) == 0 {
		for _, e := range run.Events {
			if e.TsNs.OK {
				offsetS = append(offsetS, float64(e.WallNs-e.TsNs.V)/nsPerSecond)
			}
		}
	}
	if len(offsetS) > 0 {
		o := stat.Sorted(offsetS)
		mid, spread := stat.Quantile(o, 0.5), 1e3*(stat.Quantile(o, 0.95)-stat.Quantile(o, 0.05))
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
	s := float64(hi-lo) / nsPerSecond
	return &s
}

// coverage are the histograms a simulator's user looks at: did the run hold the
// steps that will be simulated?
func coverage(c rows.Coverage) []result.Histogram {
	out := []result.Histogram{}
	for i, h := range []rows.Histogram{c.PrefillTokens, c.DecodeBatch, c.Context, c.KVUsage} {
		g := result.Histogram{Name: coverageNames[i], Unit: h.Unit}
		for _, b := range h.Bins {
			g.Edges, g.Counts, g.Rows = append(g.Edges, b.Lo), append(g.Counts, b.N), g.Rows+b.N
		}
		out = append(out, g)
	}
	return out
}

var coverageNames = []string{"prefill_tokens", "decode_batch", "context_tokens", "kv_usage"}

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
		if v, ok := ttftMs(r); ok && known {
			ttft[bin(at)] = append(ttft[bin(at)], v)
		}
	}
	return &result.LoadSeries{
		BinS:    float64(width) / nsPerSecond,
		Running: each(running[:], stat.Mean), Waiting: each(waiting[:], stat.Mean),
		KVUsage: each(usage[:], stat.Mean), TTFTMs: each(ttft[:], stat.Median),
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
