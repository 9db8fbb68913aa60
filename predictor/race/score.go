package race

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// slosMs are the TTFT objectives of the decision scores.
var slosMs = []float64{50, 100, 200, 500}

// leastBlocks is how many blocks an interval needs.
const leastBlocks = 5

// outcome is one split's test rows with what each model says of them.
type outcome struct {
	rows   []int // places in the table, in the order of folds
	y      []float64
	consts []float64
	floor  []float64
	most   []float64 // largest training target of the row's fold
	block  []int     // bootstrap block of each row
	strata [][]int   // blocks that are drawn among each other
	pred   map[string][]float64
	reason map[string]string
}

// cell is the account of one model.
func (o *outcome) cell(t *model.Table, name string, seed uint64, draws int) result.PredictorCell {
	c := result.PredictorCell{Model: name, Reason: o.reason[name], Decisions: []result.PredictorDecision{}}
	pred := o.pred[name]
	if c.Reason != "" || pred == nil {
		return c
	}
	us := func(ms []float64) []float64 {
		out := make([]float64, len(ms))
		for i, v := range ms {
			out[i] = 1000 * v
		}
		return out
	}
	r := stat.Rows{Y: us(o.y), Pred: us(pred), Const: us(o.consts), Floor: us(o.floor)}
	e := r.Errors(nil)
	num := result.OrNull
	c.Rows, c.MAPE, c.MAPEConst, c.MAPEFloor, c.Skill = e.Rows, num(e.MAPE), num(e.MAPEConst), num(e.MAPEFloor), num(e.Skill)
	c.WAPE, c.MedianAPE, c.P95APE, c.Bias = num(e.WAPE), num(e.MedianAPE), num(e.P95APE), num(e.Bias)
	c.Pinball50, c.Pinball90 = num(model.Pinball(o.y, pred, 0.5)), num(model.Pinball(o.y, pred, 0.9))
	c.Pinball99 = num(model.Pinball(o.y, pred, 0.99))
	share, _ := model.Coverage(o.y, pred)
	c.Coverage = num(share)
	c.EqualBuckets = num(o.equalBuckets(t, pred))
	above := r.Errors(func(i int) bool { return o.y[i] > o.most[i] })
	c.AboveMaxRows, c.AboveMaxMAPE = above.Rows, num(above.MAPE)
	if lo, hi, ok := o.interval(o.apes(pred), seed, draws); ok {
		c.MAPEBand = &[2]float64{lo, hi}
	}
	return c
}

// decisions are a gate's mistakes with a model's TTFT.
func (o *outcome) decisions(name string) []result.PredictorDecision {
	out := []result.PredictorDecision{}
	pred := o.pred[name]
	for _, slo := range slosMs {
		var late, letIn, inTime, sentAway float64
		for i, y := range o.y {
			switch admits := pred[i] <= slo; {
			case math.IsNaN(pred[i]):
			case y > slo:
				late++
				if admits {
					letIn++
				}
			default:
				inTime++
				if !admits {
					sentAway++
				}
			}
		}
		out = append(out, result.PredictorDecision{SLOMs: slo, FalseAdmit: result.OrNull(letIn / late),
			FalseReject: result.OrNull(sentAway / inTime)})
	}
	return out
}

// apes are absolute percentage errors by row.
func (o *outcome) apes(pred []float64) []float64 {
	out := make([]float64, len(pred))
	for i := range pred {
		out[i] = math.Abs(pred[i]/o.y[i] - 1)
	}
	return out
}

// equalBuckets is the MAPE where every bucket with a row weighs the same.
func (o *outcome) equalBuckets(t *model.Table, pred []float64) float64 {
	sum, n := map[int]float64{}, map[int]float64{}
	for k, ape := range o.apes(pred) {
		if !math.IsNaN(ape) {
			b := t.Bucket[o.rows[k]]
			sum[b], n[b] = sum[b]+ape, n[b]+1
		}
	}
	var means []float64
	for b := range n {
		means = append(means, sum[b]/n[b])
	}
	slices.Sort(means) // the order of a map is no order to add in
	return stat.Mean(means)
}

// setBlocks cuts the test rows into bootstrap blocks: stretches of about twice the
// square root of a run's rows, drawn among those of all runs of a fold; with
// several folds each fold is one block, since what varies is the configuration.
func (o *outcome) setBlocks(a *all, folds []fold) {
	o.block = make([]int, len(o.rows))
	blocks := 0
	if len(folds) > 1 {
		at := 0
		for _, f := range folds {
			for range f.test {
				o.block[at] = blocks
				at++
			}
			blocks++
		}
		o.strata = [][]int{upTo(0, blocks)}
		return
	}
	for from := 0; from < len(o.rows); {
		to := from
		for to < len(o.rows) && a.samples[o.rows[to]].run == a.samples[o.rows[from]].run {
			to++
		}
		size := max(10, int(2*math.Sqrt(float64(to-from))))
		n := max(1, (to-from)/size)
		for i := from; i < to; i++ {
			o.block[i] = blocks + (i-from)*n/(to-from)
		}
		blocks += n
		from = to
	}
	o.strata = [][]int{upTo(0, blocks)}
}

func upTo(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// blocks is how many blocks there are.
func (o *outcome) blocks() int {
	n := 0
	for _, s := range o.strata {
		n += len(s)
	}
	return n
}

// interval is the 95 % percentile interval of the mean of v over rows, blocks
// drawn with replacement; not ok below five blocks (spec#predictor-scores).
func (o *outcome) interval(v []float64, seed uint64, draws int) (lo, hi float64, ok bool) {
	n := o.blocks()
	if n < leastBlocks {
		return 0, 0, false
	}
	sum, count := make([]float64, n), make([]float64, n)
	for i, x := range v {
		if !math.IsNaN(x) {
			sum[o.block[i]] += x
			count[o.block[i]]++
		}
	}
	means := make([]float64, 0, draws)
	for d := range draws {
		var s, c float64
		for _, part := range o.strata {
			for k := range part {
				b := part[stat.DrawN(uint64(len(part)), seed, uint64(d), uint64(k))]
				s, c = s+sum[b], c+count[b]
			}
		}
		if c > 0 {
			means = append(means, s/c)
		}
	}
	if len(means) < draws/2 {
		return 0, 0, false
	}
	slices.Sort(means)
	return stat.Quantile(means, 0.025), stat.Quantile(means, 0.975), true
}

// contrast is the paired difference of two models.
func (o *outcome) contrast(x, y string, seed uint64, draws int) result.PredictorContrast {
	c := result.PredictorContrast{A: x, B: y, Blocks: o.blocks()}
	p, q := o.pred[x], o.pred[y]
	if p == nil || q == nil {
		return c
	}
	d, e := o.apes(p), o.apes(q)
	for i := range d {
		d[i] -= e[i]
	}
	c.Difference = result.OrNull(stat.Mean(d))
	if lo, hi, ok := o.interval(d, seed, draws); ok && c.Difference != nil {
		c.Band = &[2]float64{lo, hi}
		c.IsShown = lo > 0 || hi < 0
	}
	return c
}

// constRows are targets in us, as package stat judges them.
func constRows(t *model.Table, rows []int) stat.Rows {
	var r stat.Rows
	for _, i := range rows {
		r.Y = append(r.Y, 1000*t.Y[i])
	}
	return r
}
