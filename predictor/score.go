package predictor

// This file scores predictors on held-out rows.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	scopeAll       = "all" // all rows together; other scopes are configurations
	leastPerScope  = 500   // rows of a configuration with figures of its own
	leastBlocks    = 5     // blocks an interval needs
	bootstrapDraws = 1000  // of the block bootstrap
)

// scored are the names of the models with figures, in the order of documents.
var scored = []string{nameTrees, nameGated, namePhysics, nameResidual}

// newScores returns an empty document.
func newScores() *Scores {
	return &Scores{
		Runs:     []runAccount{},
		HoldOut:  []HoldOut{},
		Models:   []modelScore{},
		Warnings: []trace.Finding{},
	}
}

// judged has the models of a target that are scored.
type judged struct {
	models map[string]model
	upper  map[string]func(i int) float64 // calibrated P90 in ms
	reason map[string]string              // why a model has no figures
	early  []int                          // training rows; nil for models of a file
}

// scopes returns the scopes of figures: all rows, and every configuration with enough rows.
func scopes(runs []*runRows) []string {
	rows := map[string]int{}
	var configs []string
	for _, run := range runs {
		if _, seen := rows[run.Config]; !seen {
			configs = append(configs, run.Config)
		}
		rows[run.Config] += len(run.Rows)
	}
	out := []string{scopeAll}
	if len(configs) < 2 {
		return out
	}
	return append(out, slices.DeleteFunc(configs, func(c string) bool { return rows[c] < leastPerScope })...)
}

// inScope returns the rows (indices) that belong to a scope: a configuration, or all of them.
func (a *rowSet) inScope(scope string, rows []int) []int {
	if scope == scopeAll {
		return rows
	}
	var out []int
	for _, i := range rows {
		if a.runs[a.samples[i].run].Config == scope {
			out = append(out, i)
		}
	}
	return out
}

// scoreTarget adds to doc the errors of every model on the test rows, of all and by configuration.
func (a *rowSet) scoreTarget(doc *Scores, target string, j *judged, test []int, seed uint64) {
	most := math.Inf(1)
	if j.early != nil {
		most = slices.Max(a.table.targetsAt(j.early))
	}
	for _, scope := range scopes(a.runs) {
		rows := a.inScope(scope, test)
		h := HoldOut{
			Scope:  scope,
			Target: target,
			Train:  len(a.inScope(scope, j.early)),
			Test:   len(rows),
		}
		if len(rows) < leastPart {
			h.Reason = fmt.Sprintf("%d rows, want %d", len(rows), leastPart)
			doc.HoldOut = append(doc.HoldOut, h)
			continue
		}
		o := a.outcomeOf(rows, j, most)
		above := 0
		for _, y := range o.y {
			if y > most {
				above++
			}
		}
		h.AboveMax = result.OrNull(float64(above) / float64(len(rows)))
		doc.HoldOut = append(doc.HoldOut, h)
		for _, name := range scored {
			c := o.score(name, seed)
			c.Scope = scope
			c.Target = target
			if upper := j.upper[name]; upper != nil && c.Reason == "" {
				p90 := make([]float64, len(rows))
				for k, i := range rows {
					p90[k] = upper(i)
				}
				share, band := coverageOf(o.y, p90)
				c.Coverage = result.OrNull(share)
				c.CoverageBand = &band
			}
			doc.Models = append(doc.Models, c)
		}
		lowerFloors(doc.Models[len(doc.Models)-len(scored):])
	}
}

// lowerFloors sets the floor of the models of one target to the least error of any of them, where
// that is below the error of the ten nearest test rows: an error that was reached can be reached.
func lowerFloors(models []modelScore) {
	var least *float64
	for i := range models {
		for _, e := range []*float64{models[i].MAPE, models[i].MAPEFloor} {
			if e != nil && (least == nil || *e < *least) {
				least = e
			}
		}
	}
	for i := range models {
		if models[i].MAPEFloor != nil {
			floor := *least
			models[i].MAPEFloor = &floor
		}
	}
}

// testOutcome has the test rows and the prediction of each model for them.
type testOutcome struct {
	rows   []int                // places in the table
	y      []float64            // measured latency of each row, ms, as are the next three
	consts []float64            // the constant that models are compared with
	floor  []float64            // median of the nearest other rows (nearestOf)
	pred   map[string][]float64 // by model
	most   float64              // largest training target, ms
	block  []int                // bootstrap block of each row
	blocks int                  // number of blocks
	reason map[string]string    // by model, why it has no figures
}

// outcomeOf returns the predictions of every model for the rows. The constant that models are
// compared with is the median of the run's training rows. Without training rows it is the constant
// with the smallest MAPE on the rows themselves, which is a lower bound for any constant. most is
// the largest training target, ms.
func (a *rowSet) outcomeOf(rows []int, j *judged, most float64) *testOutcome {
	tab := a.table
	o := &testOutcome{
		rows:   rows,
		floor:  nearestOf(tab, rows),
		most:   most,
		pred:   map[string][]float64{},
		reason: j.reason,
	}
	var constant model // nil without training rows
	best := 0.0        // the constant in that case, ms
	if j.early != nil {
		constant = newConstant(tab, j.early)
	} else {
		all := stat.Rows{Y: msToUs(tab.targetsAt(rows))}
		best = all.BestConstant(nil) / 1000
	}
	for _, i := range rows {
		c := best
		if constant != nil {
			c = constant.Predict(tab, i)
		}
		o.y = append(o.y, tab.Y[i])
		o.consts = append(o.consts, c)
		for name, m := range j.models {
			o.pred[name] = append(o.pred[name], m.Predict(tab, i))
		}
	}
	a.setBlocks(o)
	return o
}

// score returns the errors of one model.
func (o *testOutcome) score(name string, seed uint64) modelScore {
	c := modelScore{Model: name, Reason: o.reason[name]}
	pred := o.pred[name]
	if c.Reason != "" || pred == nil {
		return c
	}
	r := stat.Rows{
		Y:     msToUs(o.y),
		Pred:  msToUs(pred),
		Const: msToUs(o.consts),
		Floor: msToUs(o.floor),
	}
	e := r.Errors(nil)
	c.Rows = e.Rows
	c.MAPE = result.OrNull(e.MAPE)
	c.MAPEConst = result.OrNull(e.MAPEConst)
	c.MAPEFloor = result.OrNull(e.MAPEFloor)
	c.WAPE = result.OrNull(e.WAPE)
	c.MedianAPE = result.OrNull(e.MedianAPE)
	c.P95APE = result.OrNull(e.P95APE)
	c.Bias = result.OrNull(e.Bias)
	above := r.Errors(func(i int) bool { return o.y[i] > o.most })
	c.AboveMaxRows = above.Rows
	c.AboveMaxMAPE = result.OrNull(above.MAPE)
	if lo, hi, ok := o.interval(o.apes(pred), seed); ok {
		c.MAPEBand = &[2]float64{lo, hi}
	}
	return c
}

// msToUs converts latencies to us, the unit of stat.Rows.
func msToUs(ms []float64) []float64 {
	us := make([]float64, len(ms))
	for i, v := range ms {
		us[i] = 1000 * v
	}
	return us
}

// apes returns the absolute relative error of each row.
func (o *testOutcome) apes(pred []float64) []float64 {
	out := make([]float64, len(pred))
	for i := range pred {
		out[i] = math.Abs(pred[i]/o.y[i] - 1)
	}
	return out
}

// setBlocks divides the test rows into bootstrap blocks: stretches of about twice the square root
// of the number of a run's rows.
func (a *rowSet) setBlocks(o *testOutcome) {
	o.block = make([]int, len(o.rows))
	for from := 0; from < len(o.rows); {
		to := from
		for to < len(o.rows) && a.samples[o.rows[to]].run == a.samples[o.rows[from]].run {
			to++
		}
		size := max(10, int(2*math.Sqrt(float64(to-from))))
		n := max(1, (to-from)/size)
		for i := from; i < to; i++ {
			o.block[i] = o.blocks + (i-from)*n/(to-from)
		}
		o.blocks += n
		from = to
	}
}

// interval returns the 95 % percentile interval of the mean of v over rows, by drawing blocks with
// replacement. ok is false below five blocks (spec#predictor-scores).
func (o *testOutcome) interval(v []float64, seed uint64) (lo, hi float64, ok bool) {
	n := o.blocks
	if n < leastBlocks {
		return 0, 0, false
	}
	sum := make([]float64, n)
	count := make([]float64, n)
	for i, x := range v {
		if !math.IsNaN(x) {
			sum[o.block[i]] += x
			count[o.block[i]]++
		}
	}
	means := make([]float64, 0, bootstrapDraws)
	for d := range bootstrapDraws {
		var s, c float64
		for k := range n {
			b := stat.DrawN(uint64(n), seed, uint64(d), uint64(k))
			s += sum[b]
			c += count[b]
		}
		if c > 0 {
			means = append(means, s/c)
		}
	}
	if len(means) < bootstrapDraws/2 {
		return 0, 0, false
	}
	slices.Sort(means)
	return stat.Quantile(means, 0.025), stat.Quantile(means, 0.975), true
}

// judgeFile adds to doc the scores of a target of a finished predictor on all rows of the runs.
func judgeFile(runs []*runRows, target *forest.Target, physics []estimates, o TrainOptions, doc *Scores) error {
	a := gatherRows(runs, target.Name, o.features)
	if len(a.table.X) != len(target.Columns) {
		return fmt.Errorf("%s: got rows of %d columns, want the predictor's %d: make rows with the options it states",
			target.Name, len(a.table.X), len(target.Columns))
	}
	if physics != nil {
		a.setPhysics(physics, target.Name)
	}
	held, err := modelsOf(target)
	if err != nil {
		return err
	}
	j := &judged{
		models: map[string]model{},
		upper:  map[string]func(int) float64{},
		reason: map[string]string{},
	}
	for _, name := range scored {
		switch {
		case held[name] == nil:
			j.reason[name] = "the predictor file holds none"
		case usesPhysics(name) && physics == nil:
			j.reason[name] = o.PhysicsReason
		default:
			j.models[name] = held[name]
		}
	}
	for _, fs := range target.Factors {
		if m := j.models[fs.Model]; m != nil {
			j.upper[fs.Model] = func(i int) float64 { return calibrated(&fs, a.table, m, i) }
		}
	}
	test := make([]int, len(a.samples))
	for i := range test {
		test[i] = i
	}
	a.scoreTarget(doc, target.Name, j, test, o.Seed)
	return nil
}

// coverageOf returns the share of targets at or below their predictions, and the 95 % interval of
// that share from the effective number of rows (rows are in the order of time).
func coverageOf(y, pred []float64) (share float64, band [2]float64) {
	var in []float64
	sum := 0.0
	for i := range y {
		if math.IsNaN(pred[i]) {
			continue
		}
		hit := 0.0
		if y[i] <= pred[i] {
			hit = 1
		}
		in = append(in, hit)
		sum += hit
	}
	share = sum / float64(len(in))
	return share, wilson(share, stat.EffectiveSize(in))
}

// wilson returns the 95 % score interval of a share among n rows (Wilson, JASA 22, 1927).
func wilson(p, n float64) [2]float64 {
	const z = stat.Normal95
	centre := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return [2]float64{math.Max(0, centre-half), math.Min(1, centre+half)}
}
