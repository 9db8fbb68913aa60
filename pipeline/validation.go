package pipeline

import (
	"context"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
)

// ValidateSet judges a coefficient set on the runs of an output folder. f is the
// report of its fit, nil when there is none: then every run is a test run.
func ValidateSet(ctx context.Context, out string, ext *result.Extract, set *coeff.Set, f *result.Fit, o validate.Options, h result.Header) (*result.Validation, error) {
	if o.Floor == nil {
		o.Floor = NoiseFloor
	}
	doc, err := validate.Run(ctx, set, f, ValidateSources(out, ext, f), o)
	if err != nil {
		return nil, err
	}
	h.Inputs = ext.Inputs
	doc.Header = h
	return doc, nil
}

// NoiseFloor is the MAPE of the ten-nearest-neighbour prediction (03 section 5)
// on the hold-out rows of one configuration's tables, or on every row when all is
// true; distances are scaled by the contribution scale of the training rows. Nil
// below 50 rows.
func NoiseFloor(tables []*rows.Table, all bool) *float64 {
	d, train := floorData(tables, all)
	if d.Len() == 0 {
		return nil
	}
	tested := func(i int) bool { return all || !train[i] }
	floor := ridge.Floor(d, contributionScale(d, train), tested, 0)
	e := ridge.Evaluate(d.Y, floor, func(i int) bool { return tested(i) && !math.IsNaN(floor[i]) })
	if e.Rows == 0 {
		return nil
	}
	return &e.MAPE
}

// floorData is the tables as one configuration; train marks the rows the scale
// comes from.
func floorData(tables []*rows.Table, all bool) (*ridge.Data, []bool) {
	d := &ridge.Data{}
	var train []bool
	for run, t := range tables {
		d.P = t.P
		d.X, d.Y, d.Steps, d.Factor = append(d.X, t.X...), append(d.Y, t.Y...), append(d.Steps, t.Steps...), append(d.Factor, t.Factor...)
		for i := range t.Kept {
			d.Config, d.Regime = append(d.Config, 0), append(d.Regime, int32(t.Regime[i]))
			d.Run, d.Time = append(d.Run, int32(run)), append(d.Time, t.TimeNs[i])
			train = append(train, all || !t.HoldOut[i])
		}
	}
	return d, train
}

// contributionScale is s_j of V-3: the weighted root mean square of x_j.
func contributionScale(d *ridge.Data, train []bool) []float64 {
	w := ridge.Weights(d, ridge.DefaultOptions(d.P))
	scale, total := make([]float64, d.P), 0.0
	for i := range d.Y {
		if !train[i] {
			continue
		}
		total += w[i]
		for j, x := range d.Row(i) {
			scale[j] += w[i] * x * x
		}
	}
	for j := range scale {
		scale[j] = math.Sqrt(scale[j] / total)
	}
	return scale
}
