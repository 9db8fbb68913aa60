package requestfit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Kinds of rows, each with an error of its own: spans are sums of steps that are
// known, a TTFT holds a wait that is known on average.
const (
	rowSpan = iota
	rowTTFT
	rowEgress
	numRowKinds
)

// leastError of a kind: no stamp is better. Relative, relative, us.
var leastError = [numRowKinds]float64{0.002, 0.005, 20}

// row is one equation in the free columns.
type row struct {
	kind, block int
	x           []float64
	y, scale    float64 // the error is measured in scale
}

// regression is the equations of all loads.
type regression struct {
	m       *model
	blockUs int64
	rows    []row
	offset  int // blocks of the loads before
}

func (r *regression) add(kind, block int, x []float64, y, scale float64) {
	r.rows = append(r.rows, row{kind, r.offset + block, x, y, scale})
}

// residual is a row's error at a candidate, in its scale.
func (w *row) residual(values []float64) float64 { return (w.y - ridge.Dot(w.x, values)) / w.scale }

// weight of a row at a candidate: by its kind's error and by Huber's loss.
func (w *row) weight(values []float64, scale [numRowKinds]float64) float64 {
	weight := 1 / (w.scale * w.scale * scale[w.kind] * scale[w.kind])
	if z := math.Abs(w.residual(values)) / scale[w.kind]; z > robustAt {
		weight *= robustAt / z
	}
	return weight
}

// robustAt is where a residual counts linearly, in errors of its kind.
const robustAt = 2

// scales are the typical errors by kind at a candidate.
func (r *regression) scales(values []float64) [numRowKinds]float64 {
	var off [numRowKinds][]float64
	for i := range r.rows {
		w := &r.rows[i]
		off[w.kind] = append(off[w.kind], math.Abs(w.residual(values)))
	}
	var out [numRowKinds]float64
	for k := range out {
		if out[k] = leastError[k]; len(off[k]) > 0 {
			out[k] = math.Max(out[k], madToSD*stat.Median(off[k]))
		}
	}
	return out
}

// madToSD is the standard deviation of a normal law over its median deviation.
const madToSD = 1.4826

// evidence is the sum of the rows at a candidate, each weighted by its kind's error and by
// Huber's loss; the variance is 1, so that the sum is the information itself. Errors of one
// stretch of time are correlated, because one machine ran all of it.
func (r *regression) evidence(values []float64) evidence {
	n := len(r.m.free)
	scale := r.scales(values)
	e := evidence{sum: ridge.New(n), variance: 1, design: 1, errors: scale}
	blocks := []*ridge.Gram{}
	for i := range r.rows {
		w := &r.rows[i]
		for len(blocks) <= w.block {
			blocks = append(blocks, ridge.New(n))
		}
		blocks[w.block].AddRow(w.weight(values, scale), w.x, w.y)
	}
	for _, b := range blocks {
		e.sum.Add(b)
	}
	e.design = r.m.design(blocks, values, 1)
	return e
}

// design is how many rows count as one: the variance of the blocks' scores over
// what independent rows would have, in units of the prior.
func (m *model) design(blocks []*ridge.Gram, values []float64, variance float64) float64 {
	n := len(m.free)
	meat, bread := 0.0, 0.0
	for _, b := range blocks {
		for k := range n {
			score := b.B[k] - ridge.Dot(b.G[k*n:(k+1)*n], values)
			meat += score * score * m.sd[k] * m.sd[k]
			bread += variance * b.G[k*n+k] * m.sd[k] * m.sd[k]
		}
	}
	if !(bread > 0) {
		return leastDesign
	}
	return math.Max(leastDesign, meat/bread)
}

// regressionPasses is how often the rows are made again: they depend on the step times, by
// the number of steps of a stretch, and on the errors, by the weights.
const regressionPasses = 8

// anchored is the first estimate of all loads and its evidence; the prior's mean and
// no evidence where no load has stamps.
func (l *learner) anchored() ([]float64, *evidence, error) {
	var all []*occupancy
	for _, load := range l.loads {
		o, err := newOccupancy(load, l.m)
		if err != nil {
			return nil, nil, err
		}
		if o != nil {
			all = append(all, o)
		}
	}
	values := l.m.mean
	for pass := 0; ; pass++ {
		r := &regression{m: l.m, blockUs: l.BlockUs}
		for _, o := range all {
			o.rows(values, r)
			for i := range r.rows {
				r.offset = max(r.offset, r.rows[i].block+1)
			}
		}
		if len(r.rows) == 0 {
			return slices.Clone(values), nil, nil
		}
		e := r.evidence(values)
		if pass == regressionPasses {
			return values, &e, nil
		}
		next, err := l.step(&state{values: values}, e, 0)
		if err != nil {
			return nil, nil, err
		}
		values = next
	}
}
