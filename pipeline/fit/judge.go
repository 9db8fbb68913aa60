package fit

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// driftBlocks is how many blocks of each run's hold-out the drift is read from.
const driftBlocks = 5

// judge is the errors of a solved model and its baselines, per row of data.
type judge struct {
	s        *solved
	constant []float64 // best constant of the configuration, from training rows
	floor    []float64 // nearest-neighbour prediction; NaN where unknown
}

func newJudge(s *solved, scale []float64, workers int) *judge {
	train := s.pool.isTrain()
	j := &judge{s: s}
	j.constant = ridge.Constant(s.data, func(i int) bool { return train[i] })
	j.floor = make([]float64, s.data.Len())
	for i := range j.floor {
		j.floor[i] = math.NaN()
	}
	if scale != nil {
		j.floor = ridge.Floor(s.data, scale, func(i int) bool { return !train[i] }, workers)
	}
	return j
}

// errors summarises the rows keep says yes to.
func (j *judge) errors(keep func(i int) bool) *result.Errors {
	y := j.s.data.Y
	e := ridge.Evaluate(y, j.s.pred, keep)
	if e.Rows == 0 {
		return nil
	}
	c := ridge.Evaluate(y, j.constant, keep)
	out := Errors(e)
	out.MAPEConst = num(c.MAPE)
	known := func(i int) bool { return keep(i) && !math.IsNaN(j.floor[i]) }
	if f := ridge.Evaluate(y, j.floor, known); f.Rows > 0 {
		out.MAPEFloor = num(f.MAPE)
		out.Skill = num(ridge.Skill(e.MAPE, c.MAPE, f.MAPE))
	}
	return out
}

// Errors puts ridge's figures into the document's form.
func Errors(e ridge.Errors) *result.Errors {
	return &result.Errors{
		Rows: e.Rows, Excluded: e.Small, MAPE: num(e.MAPE), Bias: num(e.Bias), WAPE: num(e.WAPE),
		MedianAPE: num(e.MedianAPE), P95APE: num(e.P95APE), RMSEUs: num(e.RMSE), MaxErrorRatio: num(e.MaxAbs / e.MedianY),
	}
}

func (j *judge) holdout() *result.Errors {
	train := j.s.pool.isTrain()
	return j.errors(func(i int) bool { return !train[i] })
}

func (j *judge) training() *result.Errors {
	train := j.s.pool.isTrain()
	return j.errors(func(i int) bool { return train[i] })
}

// cells are the hold-out errors per run, regime and batch bucket.
func (j *judge) cells() []result.Cell {
	type key struct{ table, regime, bucket int32 }
	groups := map[key][]bool{}
	var keys []key
	mark := func(k key, i int32) {
		if groups[k] == nil {
			groups[k] = make([]bool, j.s.data.Len())
			keys = append(keys, k)
		}
		groups[k][i] = true
	}
	for _, i := range j.s.pool.hold {
		t := j.s.pool.table[i]
		r := j.s.data.Regime[i]
		mark(key{t, r, -1}, i)
		mark(key{t, r, batchBucket(j.s.pool.tables[t].Batch[j.s.pool.row[i]])}, i)
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.table != b.table {
			return int(a.table - b.table)
		}
		if a.regime != b.regime {
			return int(a.regime - b.regime)
		}
		return int(a.bucket - b.bucket)
	})
	var out []result.Cell
	for _, k := range keys {
		in := groups[k]
		t := j.s.pool.tables[k.table]
		c := result.Cell{Run: t.Run, Config: t.Config, Regime: rows.Regime(k.regime).String(), Bucket: bucketName(k.bucket)}
		if e := j.errors(func(i int) bool { return in[i] }); e != nil {
			c.Errors = *e
			out = append(out, c)
		}
	}
	return out
}

// bucketTops are the upper ends of the batch buckets, requests per step.
var bucketTops = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}

func batchBucket(batch float64) int32 {
	for k, top := range bucketTops {
		if batch <= top {
			return int32(k)
		}
	}
	return int32(len(bucketTops))
}

func bucketName(b int32) string {
	switch {
	case b < 0:
		return ""
	case int(b) == len(bucketTops):
		return fmt.Sprintf("> %g", bucketTops[b-1])
	case b == 0:
		return "1"
	}
	lo := bucketTops[b-1] + 1
	if lo == bucketTops[b] {
		return fmt.Sprintf("%g", lo)
	}
	return fmt.Sprintf("%g-%g", lo, bucketTops[b])
}

// stress are the hold-out errors of each stress set (01 V-11), all runs together.
func (j *judge) stress() []result.Cell {
	var out []result.Cell
	for _, set := range rows.StressSets {
		keep := make([]bool, j.s.data.Len())
		for _, i := range j.s.pool.hold {
			keep[i] = j.s.pool.tables[j.s.pool.table[i]].Sets[j.s.pool.row[i]]&set.Set != 0
		}
		if e := j.errors(func(i int) bool { return keep[i] }); e != nil {
			out = append(out, result.Cell{Set: set.Name, Errors: *e})
		}
	}
	return out
}

// drift is the signed hold-out error of each run by equal blocks in time.
func (j *judge) drift() []result.DriftBlock {
	var out []result.DriftBlock
	p := j.s.pool
	for t := range p.tables {
		var mine []int32
		for _, i := range p.hold {
			if p.table[i] == int32(t) {
				mine = append(mine, i)
			}
		}
		n := len(mine)
		for b := 0; b < driftBlocks && n >= 4*driftBlocks; b++ {
			var diff, sum float64
			part := mine[b*n/driftBlocks : (b+1)*n/driftBlocks]
			for _, i := range part {
				diff += j.s.pred[i] - j.s.data.Y[i]
				sum += j.s.data.Y[i]
			}
			out = append(out, result.DriftBlock{Run: p.runs[t], Block: b + 1, Bias: diff / sum, Rows: len(part)})
		}
	}
	return out
}

// quantileLevels are the probabilities of the stored residual ratios.
var quantileLevels = []float64{0, .01, .025, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .975, .99, 1}

// ratios are quantiles of y/prediction on the hold-out per regime.
func (j *judge) ratios() []result.RegimeQuantiles {
	byRegime := map[int32][]float64{}
	for _, i := range j.s.pool.hold {
		if j.s.pred[i] > 0 {
			r := j.s.data.Regime[i]
			byRegime[r] = append(byRegime[r], j.s.data.Y[i]/j.s.pred[i])
		}
	}
	var out []result.RegimeQuantiles
	for r := int32(0); r <= int32(rows.Mixed); r++ {
		v := byRegime[r]
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		q := result.RegimeQuantiles{Regime: rows.Regime(r).String(), Rows: len(v)}
		for _, level := range quantileLevels {
			q.Quantiles = append(q.Quantiles, [2]float64{level, stat.Quantile(v, level)})
		}
		out = append(out, q)
	}
	return out
}

// Floor is the noise floor (MAPE) of the tested rows of beta tables of one
// configuration: their hold-out, or all rows. Nil where it is unknown.
func Floor(tables []*rows.Table, all bool) *float64 {
	p := newPool([][]*rows.Table{tables}, []float64{features.DefaultGamma})
	if p.data.Len() == 0 {
		return nil
	}
	p.data.Variants = nil
	opt := ridge.DefaultOptions(p.data.P)
	scale, _ := ridge.GramOf(p.data, ridge.Weights(p.data, opt), nil, 1).Scale()
	train := p.isTrain()
	tested := func(i int) bool { return all || !train[i] }
	floor := ridge.Floor(p.data, scale, tested, 1)
	e := ridge.Evaluate(p.data.Y, floor, tested)
	return num(e.MAPE)
}
