package requestfit

// This file solves the regression on clients' stamps, the first estimate of a fit: its rows come from
// occupancy.go, are weighted by the typical error of their kind, and end in the same normal equations
// as those of replays.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Kinds of rows. Each has a typical error of its own: the steps of a span are known,
// but a TTFT includes a wait that is known only on average.
const (
	rowSpan = iota
	rowTTFT
	rowEgress
	numRowKinds
)

// leastError is a lower bound on the typical error of each kind, in the rows' scale,
// given by the precision of client stamps.
var leastError = [numRowKinds]float64{
	rowSpan:   0.002, // relative
	rowTTFT:   0.005, // relative
	rowEgress: 20,    // us
}

// row is one equation in the free columns: x.values = y.
type row struct {
	kind  int       // rowSpan, rowTTFT or rowEgress
	block int       // time block in which the request was sent, over all loads
	x     []float64 // by free column: what the steps of the time, or its delay, have of it
	y     float64   // us, measured
	scale float64   // us; divides the error: the time itself for relative errors, 1 for egress
}

// regression is the equations of all loads.
type regression struct {
	m       *model
	blockUs int64
	rows    []row
	offset  int // time blocks of all loads before the current one
}

// addRow adds an equation of a request sent in a time block of the current load.
func (r *regression) addRow(kind, block int, x []float64, y, scale float64) {
	r.rows = append(r.rows, row{kind: kind, block: r.offset + block, x: x, y: y, scale: scale})
}

// residual returns the error of a row at a candidate, in the row's scale.
func (w *row) residual(values []float64) float64 {
	return (w.y - ridge.Dot(w.x, values)) / w.scale
}

// weight returns the weight of a row at a candidate: the inverse variance of its kind,
// reduced by Huber's loss for large residuals. typical are the typical errors by kind (scales).
func (w *row) weight(values []float64, typical [numRowKinds]float64) float64 {
	weight := 1 / (w.scale * w.scale * typical[w.kind] * typical[w.kind])
	if z := math.Abs(w.residual(values)) / typical[w.kind]; z > robustAt {
		weight *= robustAt / z
	}
	return weight
}

// robustAt is the residual from which Huber's loss is linear, in typical errors of
// its kind: beyond the usual two standard errors a row counts as an outlier.
const robustAt = 2

// scales returns the typical errors by kind at a candidate.
func (r *regression) scales(values []float64) [numRowKinds]float64 {
	var off [numRowKinds][]float64
	for i := range r.rows {
		w := &r.rows[i]
		off[w.kind] = append(off[w.kind], math.Abs(w.residual(values)))
	}
	var out [numRowKinds]float64
	for k := range out {
		out[k] = leastError[k]
		if len(off[k]) > 0 {
			out[k] = math.Max(out[k], madToSD*stat.Median(off[k]))
		}
	}
	return out
}

// madToSD is the standard deviation of a normal distribution divided by its median
// absolute deviation.
const madToSD = 1.4826

// evidence returns the weighted sum of the rows at a candidate. The weights are inverse
// variances, so that the sum is the information itself. The errors within a time
// block are correlated, because requests share steps; the design effect states by how
// much that reduces the information.
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

// design returns the design effect of correlated rows: how many of them carry the information of one
// independent row. It is the variance of the time blocks' scores (meat) divided by the variance that
// they would have if rows were independent (bread), each term in units of its prior's standard error.
// A score is the gradient of a block's equations at values; variance is that of the error of one row.
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

// regressionPasses is how often the regression is repeated. The rows depend on its
// answer: the number of steps in a stretch on the step times, the weights on the
// errors.
const regressionPasses = 8

// anchored returns the estimate of the regression over all loads and its evidence. If no
// load has stamps, it is the mean of the prior, without evidence.
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
			o.addRows(values, r)
			for i := range r.rows { // the blocks of the next load come after those of this one
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
		next, err := l.step(&state{values: values}, e, 0) // without damping only e and the prior matter
		if err != nil {
			return nil, nil, err
		}
		values = next
	}
}
