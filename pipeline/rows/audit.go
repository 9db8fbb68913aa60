package rows

import (
	"fmt"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Quantiles are a median and a 90th percentile, us; N is 0 without values.
type Quantiles struct {
	P50, P90 float64
	N        int
}

// Audit says what the stamps of a run really measure (spec#target-audit). Unknown
// figures are the zero Opt.
type Audit struct {
	DurationUsP50       trace.Opt[float64] // inside schedule(), busy steps
	CadenceUsP50        trace.Opt[float64] // start to start of adjacent recorded steps, both busy
	FloorUsP50          trace.Opt[float64] // W/Bw of known busy steps
	QueuedToScheduledUs Quantiles
	ArrivedToQueuedUs   Quantiles
	Verdict             string // one sentence
	BelowFloor          bool   // the cadence's median is below the floor
}

// Audit computes the target audit of the run.
func (s *Steps) Audit(sp *features.Space) Audit {
	var a Audit
	a.DurationUsP50, a.CadenceUsP50, a.FloorUsP50 = s.stepMedians(sp)
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
	a.QueuedToScheduledUs, a.ArrivedToQueuedUs = quantiles(waits), quantiles(ingress)
	a.BelowFloor = a.CadenceUsP50.OK && a.FloorUsP50.OK && a.CadenceUsP50.V < a.FloorUsP50.V
	a.Verdict = a.verdict()
	if g := s.Run.Aggregate; g != nil && !a.BelowFloor {
		a.DurationUsP50, a.Verdict = trace.Opt[float64]{}, Verdict(&g.Audit)
	}
	return a
}

func (s *Steps) stepMedians(sp *features.Space) (duration, cadence, floor trace.Opt[float64]) {
	var durations, cadences, floors []float64
	v, n := s.view(), s.summaries.len()
	for k := range n {
		rec := v.recorded(k)
		if !isBusy(rec) {
			continue
		}
		durations = append(durations, float64(rec.DurationUs))
		if k+1 < n {
			if next := v.recorded(k + 1); next.ID == rec.ID+1 && isBusy(next) {
				cadences = append(cadences, SpanUs(rec.TsStartNs, next.TsStartNs))
			}
		}
		if st := v.at(rec.ID); st.Known() {
			floors = append(floors, sp.FloorUs(&st.In))
		}
	}
	return medianOf(durations), medianOf(cadences), medianOf(floors)
}

func medianOf(v []float64) trace.Opt[float64] {
	if len(v) == 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(stat.Median(v))
}

func quantiles(v []float64) Quantiles {
	if len(v) == 0 {
		return Quantiles{}
	}
	s := stat.Sorted(v)
	return Quantiles{P50: stat.Quantile(s, 0.5), P90: stat.Quantile(s, 0.9), N: len(v)}
}

func (a *Audit) verdict() string {
	switch {
	case !a.CadenceUsP50.OK:
		return "no two adjacent busy steps are recorded: the step time can only come from intervals of several steps"
	case a.BelowFloor:
		return fmt.Sprintf("the target lies below the physical floor: the cadence (%.0f us) is shorter than reading the weights once (%.0f us); "+
			"check the hardware figures of run.yaml",
			a.CadenceUsP50.V, a.FloorUsP50.V)
	case a.DurationUsP50.V < 0.5*a.CadenceUsP50.V:
		return fmt.Sprintf("cadence is the step time; step.duration_us is scheduler CPU time (%.2g %% of the cadence)",
			100*a.DurationUsP50.V/a.CadenceUsP50.V)
	}
	return fmt.Sprintf("cadence is the step time; step.duration_us comes close to it (%.0f %%), which a GPU run should not show",
		100*a.DurationUsP50.V/a.CadenceUsP50.V)
}
