package rows

// This file finds out which recorded stamps are step times.

import (
	"fmt"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/result"
)

// Audit reports what the recorded stamps of the run measure (spec#target-audit): the time of a
// step, or only the time of the scheduler.
func (s *Steps) Audit(sp *features.Space) result.TargetAudit {
	a := result.TargetAudit{Run: s.Run.ID}
	a.DurationUsP50, a.CadenceUsP50, a.PhysicalFloorUs = s.stepMedians(sp)
	var waits, ingress []float64
	for i := range s.Run.Requests {
		r := &s.Run.Requests[i]
		if r.QueuedNs.OK && r.ScheduledNs.OK {
			waits = append(waits, SpanUs(r.QueuedNs.V, r.ScheduledNs.V))
		}
		if r.ArrivedNs.OK && r.QueuedNs.OK {
			ingress = append(ingress, SpanUs(r.ArrivedNs.V, r.QueuedNs.V))
		}
	}
	a.QueuedToScheduledUs, a.ArrivedToQueuedUs = quantilesOf(waits), quantilesOf(ingress)
	a.Verdict = auditVerdict(&a)
	// Logged passes have no time in schedule(); their verdict states what the step times were taken from.
	if g := s.Run.Aggregate; g != nil && !a.BelowFloor() {
		a.DurationUsP50 = nil
		a.Verdict = logged.TimeVerdict(&g.Audit)
	}
	return a
}

// stepMedians returns medians in us over busy steps: the time inside schedule(), the time from
// start to start of adjacent recorded steps, and the least time in which the weights can be read.
// nil: unknown.
func (s *Steps) stepMedians(sp *features.Space) (duration, cadence, floor *float64) {
	// The medians are made one after the other in the same memory.
	values := make([]float64, 0, len(s.Run.Steps))
	medianOf := func(valueOf func(k int) (us float64, ok bool)) *float64 {
		values = values[:0]
		for k := range s.Run.Steps {
			if !isBusy(&s.Run.Steps[k]) {
				continue
			}
			if us, ok := valueOf(k); ok {
				values = append(values, us)
			}
		}
		if len(values) == 0 {
			return nil
		}
		return result.OrNull(stat.MedianInPlace(values))
	}
	duration = medianOf(func(k int) (float64, bool) { return float64(s.Run.Steps[k].DurationUs), true })
	cadence = medianOf(func(k int) (float64, bool) {
		if k+1 == len(s.Run.Steps) {
			return 0, false
		}
		rec, next := &s.Run.Steps[k], &s.Run.Steps[k+1]
		return SpanUs(rec.TsStartNs, next.TsStartNs), next.ID == rec.ID+1 && isBusy(next)
	})
	floor = medianOf(func(k int) (float64, bool) {
		id := s.Run.Steps[k].ID
		if !s.compact(id).known() {
			return 0, false
		}
		in := s.input(id)
		return sp.FloorUs(&in), true
	})
	return duration, cadence, floor
}

// quantilesOf returns the median and the 90th percentile.
func quantilesOf(v []float64) result.Quantiles {
	if len(v) == 0 {
		return result.Quantiles{}
	}
	s := stat.Sorted(v)
	return result.Quantiles{P50: result.OrNull(stat.Quantile(s, 0.5)), P90: result.OrNull(stat.Quantile(s, 0.9))}
}

// auditVerdict returns one sentence on which stamps are the step time.
func auditVerdict(a *result.TargetAudit) string {
	if a.CadenceUsP50 == nil {
		return "no two adjacent busy steps are recorded: the step time can only come from intervals of several steps"
	}
	if a.BelowFloor() {
		return fmt.Sprintf("the target lies below the physical floor: the cadence (%.0f us) is shorter than reading the weights once (%.0f us); "+
			"check the hardware figures of run.yaml", *a.CadenceUsP50, *a.PhysicalFloorUs)
	}
	// In vLLM the duration is that of schedule() alone, a small part of a GPU's step.
	share := 100 * *a.DurationUsP50 / *a.CadenceUsP50
	if *a.DurationUsP50 < 0.5**a.CadenceUsP50 {
		return fmt.Sprintf("cadence is the step time; step.duration_us is scheduler CPU time (%.2g %% of the cadence)", share)
	}
	return fmt.Sprintf("cadence is the step time; step.duration_us comes close to it (%.0f %%), which a GPU run should not show", share)
}
