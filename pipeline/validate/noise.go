package validate

import (
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
)

const (
	spreadMinRows = 10     // a regime with fewer one-step rows gets no noise
	spreadClasses = 5      // classes of predicted length in a regime
	spreadPerRow  = 20     // rows a class needs at least
	spreadMaxRows = 20_000 // ratios kept of a class
	partRows      = 1000   // a part of a phase with fewer rows has no tails of its own: 200 a class
)

// spread is how measured step times scatter around prediction times drift curve,
// by regime and by class of predicted length: the relative noise of a short step is
// not that of a long one. Every class is centred on the median ratio of its
// regime, so that a bias of the model that depends on the length stays visible.
type spread struct {
	rows    int
	classes [rows.Mixed + 1][]spreadClass
}

// spreadClass holds the sorted ratios of steps predicted up to topUs.
type spreadClass struct {
	topUs  float64
	ratios []float64
}

// spreadOfRows reads the one-step rows of [from, to) and their predictions: the ratio
// of a sum over several steps is narrower than that of a step. Nil when there are
// too few.
func spreadOfRows(t *rows.Table, predUs []float64, d *drift, from, to int64) *spread {
	var pred, ratio [rows.Mixed + 1][]float64
	for i := range t.Kept {
		at, r := t.TimeNs[i], t.Regime[i]
		if t.Steps[i] == 1 && at >= from && at < to {
			pred[r], ratio[r] = append(pred[r], predUs[i]), append(ratio[r], t.Y[i]/(predUs[i]*d.At(at)))
		}
	}
	s, known := &spread{}, false
	for r := range ratio {
		s.rows += len(ratio[r])
		if len(ratio[r]) >= spreadMinRows {
			s.classes[r], known = spreadClassesOf(pred[r], ratio[r]), true
		}
	}
	if !known {
		return nil
	}
	return s
}

func spreadClassesOf(pred, ratio []float64) []spreadClass {
	n := max(1, min(spreadClasses, len(ratio)/spreadPerRow))
	centre, order := stat.Median(ratio), stat.Order(pred)
	var out []spreadClass
	for k := range n {
		part := order[k*len(order)/n : (k+1)*len(order)/n]
		rs := stat.Thin(pick(ratio, part), spreadMaxRows)
		shift := centre / stat.Median(rs)
		for i := range rs {
			rs[i] *= shift
		}
		slices.Sort(rs)
		out = append(out, spreadClass{pred[part[len(part)-1]], rs})
	}
	return out
}

// spreads is the scatter of a phase before and from its hold-out on: a machine's
// noise changes like its speed.
type spreads struct {
	cutNs         int64
	before, after *spread
}

// spreadsOf cuts the phase [from, to) at cut; a part with fewer than partRows
// takes the scatter of the whole phase. Nil when that has too few.
func spreadsOf(t *rows.Table, predUs []float64, d *drift, from, cut, to int64) *spreads {
	whole := spreadOfRows(t, predUs, d, from, to)
	if whole == nil {
		return nil
	}
	part := func(from, to int64) *spread {
		if s := spreadOfRows(t, predUs, d, from, to); s != nil && s.rows >= partRows {
			return s
		}
		return whole
	}
	return &spreads{cut, part(from, cut), part(cut, to)}
}

func (s *spreads) at(ns int64) *spread {
	if ns < s.cutNs {
		return s.before
	}
	return s.after
}

// draw is a ratio for a step of the regime predicted to take us; 1 for a regime
// without rows.
func (s *spread) draw(rng *rand.Rand, r rows.Regime, us float64) float64 {
	cs := s.classes[r]
	if len(cs) == 0 {
		return 1
	}
	k := 0
	for k < len(cs)-1 && us > cs[k].topUs {
		k++
	}
	return stat.Quantile(cs[k].ratios, rng.Float64())
}

// recorded is a latency model on the machine of a recording: the model's step time
// times the drift factor at the simulated time, times a residual ratio.
type recorded struct {
	sim.Model
	Drift    *drift
	OriginNs int64 // of simulated time 0
	Spreads  *spreads
	Rng      *rand.Rand
}

// StepUs is the drawn time of the step.
func (m *recorded) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if err != nil {
		return 0, err
	}
	at := m.OriginNs + b.StartUs*1000
	return us * m.Drift.At(at) * m.Spreads.at(at).draw(m.Rng, regimeOf(b), us), nil
}

func regimeOf(b *sim.Batch) rows.Regime {
	switch b.Regime() {
	case sim.RegimeDecode:
		return rows.Decode
	case sim.RegimePrefill:
		return rows.Prefill
	}
	return rows.Mixed
}

func pick(x []float64, at []int) []float64 {
	out := make([]float64, len(at))
	for i, k := range at {
		out[i] = x[k]
	}
	return out
}
