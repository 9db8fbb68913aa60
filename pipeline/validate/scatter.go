package validate

// This file measures how much step times scatter around their predictions, for replays with noise.

import (
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
)

const (
	maxClassRatios = 20_000 // ratios kept of a class
	// fewestPartRows is how many rows a part of a phase needs to have tails of its own: 200 a class.
	fewestPartRows = 1000
)

// stepScatter is how measured step times scatter around prediction times drift curve, by regime and by
// class of predicted length, because the relative noise of a short step is not that of a long one. Every
// class is centred on the median ratio of its regime, so that a bias of the model that depends on the
// length stays visible.
type stepScatter struct {
	rows    int                            // that the ratios come from
	classes [rows.Mixed + 1][]scatterClass // by regime, in order of topUs
}

// scatterClass is the sorted ratios of steps predicted up to topUs.
type scatterClass struct {
	topUs  float64
	ratios []float64
}

// stepScatterOf returns the scatter of measured over predicted times in the one-step rows of
// [fromNs, toNs): the ratio of a sum over several steps is narrower than that of one step; nil if
// there are too few.
func stepScatterOf(t *rows.Table, predUs []float64, d *drift, fromNs, toNs int64) *stepScatter {
	var predicted, ratio [rows.Mixed + 1][]float64
	for i := range t.Kept {
		startNs := t.TimeNs[i]
		if t.Steps[i] != 1 || startNs < fromNs || startNs >= toNs || t.IsOutlier(i) {
			continue
		}
		regime := t.Regime[i]
		predicted[regime] = append(predicted[regime], predUs[i])
		ratio[regime] = append(ratio[regime], t.Y[i]/(predUs[i]*d.At(startNs)))
	}
	scatter := &stepScatter{}
	known := false
	for regime := range ratio {
		scatter.rows += len(ratio[regime])
		if len(ratio[regime]) >= fewestResiduals {
			scatter.classes[regime] = scatterClasses(predicted[regime], ratio[regime])
			known = true
		}
	}
	if !known {
		return nil
	}
	return scatter
}

// scatterClasses returns the rows of a regime divided into classes of predicted length.
func scatterClasses(predictedUs, ratio []float64) []scatterClass {
	classes := max(1, min(lengthClasses, len(ratio)/fewestClassRows))
	centre := stat.Median(ratio)
	order := stat.Order(predictedUs)
	var found []scatterClass
	for k := range classes {
		part := order[k*len(order)/classes : (k+1)*len(order)/classes]
		ratios := make([]float64, len(part))
		for m, i := range part {
			ratios[m] = ratio[i]
		}
		ratios = stat.Thin(ratios, maxClassRatios)
		// Centre the class on the regime's median, so that only the scatter differs between classes.
		shift := centre / stat.Median(ratios)
		for i := range ratios {
			ratios[i] *= shift
		}
		slices.Sort(ratios)
		found = append(found, scatterClass{topUs: predictedUs[part[len(part)-1]], ratios: ratios})
	}
	return found
}

// draw returns a ratio for a step of the regime predicted to take us; 1 for a regime without rows.
func (s *stepScatter) draw(rng *rand.Rand, regime rows.Regime, us float64) float64 {
	classes := s.classes[regime]
	if len(classes) == 0 {
		return 1
	}
	k := 0
	for k < len(classes)-1 && us > classes[k].topUs {
		k++
	}
	return stat.Quantile(classes[k].ratios, rng.Float64())
}

// scatter is the scatter of a phase before its hold-out and in it: a machine's noise changes like its
// speed.
type scatter struct {
	cutNs         int64
	before, after *stepScatter
}

// scatterOf returns the scatter of the phase [fromNs, toNs), divided at cutNs. A part with fewer
// than fewestPartRows gets the scatter of the whole phase; nil if that has too few rows.
func scatterOf(t *rows.Table, predUs []float64, d *drift, fromNs, cutNs, toNs int64) *scatter {
	whole := stepScatterOf(t, predUs, d, fromNs, toNs)
	if whole == nil {
		return nil
	}
	part := func(fromNs, toNs int64) *stepScatter {
		if s := stepScatterOf(t, predUs, d, fromNs, toNs); s != nil && s.rows >= fewestPartRows {
			return s
		}
		return whole
	}
	return &scatter{cutNs: cutNs, before: part(fromNs, cutNs), after: part(cutNs, toNs)}
}

// at returns the scatter at a stamp, ns.
func (s *scatter) at(ns int64) *stepScatter {
	if ns < s.cutNs {
		return s.before
	}
	return s.after
}

// recordedMachine is a latency model on the machine of a recording: the model's step time times the drift
// factor at the simulated time, times a residual ratio.
type recordedMachine struct {
	sim.Model
	drift    *drift
	originNs int64 // of simulated time 0
	scatter  *scatter
	rng      *rand.Rand
}

// StepUs returns the drawn time of the step.
func (m *recordedMachine) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if err != nil {
		return 0, err
	}
	at := m.originNs + b.StartUs*1000
	return us * m.drift.At(at) * m.scatter.at(at).draw(m.rng, regimeOf(b), us), nil
}

// regimeOf returns the regime of a simulated batch.
func regimeOf(b *sim.Batch) rows.Regime {
	switch b.Regime() {
	case coeff.RegimeDecode:
		return rows.Decode
	case coeff.RegimePrefill:
		return rows.Prefill
	}
	return rows.Mixed
}
