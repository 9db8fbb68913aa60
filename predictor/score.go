package predictor

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	scopeAll      = "all" // all rows together; other scopes are configurations
	leastPerScope = 500   // rows of a configuration with figures of its own
	leastBlocks   = 5     // blocks an interval needs
	draws         = 1000  // of the block bootstrap
)

// scored are the models with figures, in the order they are shown.
var scored = []string{nameTrees, nameGated, namePhysics, nameResidual}

func newScores() *Scores {
	return &Scores{Runs: []runAccount{}, HoldOut: []HoldOut{}, Models: []modelScore{}, Warnings: []trace.Finding{}}
}

// judged are models, and what stands beside their figures.
type judged struct {
	models map[string]model
	upper  map[string]func(i int) float64 // calibrated P90 in ms
	reason map[string]string              // why a model has no figures
	early  []int                          // training rows; nil for models of a file
}

// scopes are all rows, and every configuration with enough of them.
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

// inScope are the rows of a configuration.
func (a *rowSet) inScope(scope string, rows []int) []int {
	if scope == scopeAll {
		return rows
	}
	return stat.Filter(rows, func(i int) bool { return a.runs[a.samples[i].run].Config == scope })
}

// judge adds the figures of every model on the test rows, in all and by configuration.
func (a *rowSet) judge(doc *Scores, target string, j *judged, test []int, seed uint64) {
	most := math.Inf(1)
	if j.early != nil {
		most = slices.Max(stat.Map(j.early, func(i int) float64 { return a.table.Y[i] }))
	}
	for _, scope := range scopes(a.runs) {
		rows := a.inScope(scope, test)
		h := HoldOut{Scope: scope, Target: target, Train: len(a.inScope(scope, j.early)), Test: len(rows)}
		if len(rows) < leastPart {
			h.Reason = fmt.Sprintf("%d rows, want %d", len(rows), leastPart)
			doc.HoldOut = append(doc.HoldOut, h)
			continue
		}
		o := a.outcomeOf(rows, j, most)
		above := stat.Count(o.y, func(y float64) bool { return y > most })
		h.AboveMax = result.OrNull(float64(above) / float64(len(rows)))
		doc.HoldOut = append(doc.HoldOut, h)
		for _, name := range scored {
			c := o.score(name, seed)
			c.Scope, c.Target = scope, target
			if upper := j.upper[name]; upper != nil && c.Reason == "" {
				share, band := coverageOf(o.y, stat.Map(rows, upper))
				c.Coverage = result.OrNull(share)
				c.CoverageBand = &band
			}
			doc.Models = append(doc.Models, c)
		}
	}
}

// outcome is test rows with what each model says of them.
type outcome struct {
	rows             []int // places in the table
	y, consts, floor []float64
	most             float64 // largest training target
	block            []int   // bootstrap block of each row
	blocks           int
	pred             map[string][]float64
	reason           map[string]string
}

// outcomeOf asks every model about the rows. The constant beside them is the median
// of the run's training rows; without training rows that with the smallest MAPE on
// the rows themselves, which no honest constant reaches.
func (a *rowSet) outcomeOf(rows []int, j *judged, most float64) *outcome {
	tab := a.table
	o := &outcome{rows: rows, floor: nearestOf(tab, rows), most: most, pred: map[string][]float64{}, reason: j.reason}
	var constant model
	best := 0.0
	if j.early != nil {
		constant = newConstant(tab, j.early)
	} else {
		all := stat.Rows{Y: stat.Map(rows, func(i int) float64 { return 1000 * tab.Y[i] })}
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

// score is the account of one model.
func (o *outcome) score(name string, seed uint64) modelScore {
	c := modelScore{Model: name, Reason: o.reason[name]}
	pred := o.pred[name]
	if c.Reason != "" || pred == nil {
		return c
	}
	us := func(ms []float64) []float64 { return stat.Map(ms, func(v float64) float64 { return 1000 * v }) }
	r := stat.Rows{Y: us(o.y), Pred: us(pred), Const: us(o.consts), Floor: us(o.floor)}
	e := r.Errors(nil)
	num := result.OrNull
	c.Rows, c.MAPE, c.MAPEConst, c.MAPEFloor = e.Rows, num(e.MAPE), num(e.MAPEConst), num(e.MAPEFloor)
	c.WAPE, c.MedianAPE, c.P95APE, c.Bias = num(e.WAPE), num(e.MedianAPE), num(e.P95APE), num(e.Bias)
	above := r.Errors(func(i int) bool { return o.y[i] > o.most })
	c.AboveMaxRows, c.AboveMaxMAPE = above.Rows, num(above.MAPE)
	if lo, hi, ok := o.interval(o.apes(pred), seed); ok {
		c.MAPEBand = &[2]float64{lo, hi}
	}
	return c
}

// apes are absolute percentage errors by row.
func (o *outcome) apes(pred []float64) []float64 {
	out := make([]float64, len(pred))
	for i := range pred {
		out[i] = math.Abs(pred[i]/o.y[i] - 1)
	}
	return out
}

// setBlocks cuts the test rows into bootstrap blocks: stretches of about twice the
// square root of a run's rows.
func (a *rowSet) setBlocks(o *outcome) {
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

// interval is the 95 % percentile interval of the mean of v over rows, blocks
// drawn with replacement; not ok below five blocks (spec#predictor-scores).
func (o *outcome) interval(v []float64, seed uint64) (lo, hi float64, ok bool) {
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
	means := make([]float64, 0, draws)
	for d := range draws {
		var s, c float64
		for k := range n {
			b := stat.DrawN(uint64(n), seed, uint64(d), uint64(k))
			s, c = s+sum[b], c+count[b]
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

// judgeFile judges a finished target on rows it never saw: all rows of the runs.
func judgeFile(runs []*runRows, target *forest.Target, physics []estimates, o TrainOptions, doc *Scores) error {
	a := gather(runs, target.Name, o.features)
	if len(a.table.X) != len(target.Columns) {
		return fmt.Errorf("%s: got rows of %d columns, want the predictor's %d: make rows with the options it states", target.Name,
			len(a.table.X), len(target.Columns))
	}
	if physics != nil {
		a.setPhysics(physics, target.Name)
	}
	held, err := modelsOf(target)
	if err != nil {
		return err
	}
	j := &judged{models: map[string]model{}, upper: map[string]func(int) float64{}, reason: map[string]string{}}
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
	a.judge(doc, target.Name, j, test, o.Seed)
	return nil
}

// groups of rows with a factor of their own: somebody waits or not, half of the
// prompt is cached or not.
const groups = 4

// leastGroup is how many rows a group needs for a factor of its own.
const leastGroup = 200

// conformal sets the factors of a level from rows that did not train the model:
// the quantile of measured over predicted, raised as split conformal prediction
// asks for n rows, in each group from 200 rows on and pooled otherwise
// (spec#predictor-calibration).
//
// Source: Lei et al., Distribution-free predictive inference for regression
// (JASA 113, 2018), section 2.2.
func conformal(t *columns, m model, rows []int, level float64) forest.LevelFactors {
	return ratiosOf(t, m, rows).At(level)
}

// ratios are measured over predicted of rows that did not train the model,
// ascending: of all, and by group.
type ratios struct {
	all []float64
	by  [groups][]float64
}

// ratiosOf asks a model about rows.
func ratiosOf(t *columns, m model, rows []int) *ratios {
	r := &ratios{}
	for _, i := range rows {
		ratio := t.Y[i] / m.Predict(t, i)
		if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
			continue
		}
		r.all = append(r.all, ratio)
		r.by[t.group(i)] = append(r.by[t.group(i)], ratio)
	}
	slices.Sort(r.all)
	for g := range r.by {
		slices.Sort(r.by[g])
	}
	return r
}

// At are the factors of a level.
func (r *ratios) At(level float64) forest.LevelFactors {
	f := forest.LevelFactors{Level: level}
	for g := range f.Factors {
		of := r.all
		if own := r.by[g]; len(own) >= leastGroup {
			of = own
		}
		f.Factors[g] = upper(of, level)
	}
	return f
}

// upper is the ceil((n+1)*level)-th smallest of ascending values, the largest when
// there are too few; NaN without values.
func upper(v []float64, level float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	k := int(math.Ceil(float64(len(v)+1)*level)) - 1
	return v[max(0, min(k, len(v)-1))]
}

// calibrated is the quantile of a row in ms.
func calibrated(f *forest.LevelFactors, t *columns, m model, i int) float64 {
	return m.Predict(t, i) * f.Factors[t.group(i)]
}

// coverageOf is the share of targets at or below their predictions, and its 95 %
// interval from the effective number of rows (rows in time order).
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

// wilson is the 95 % score interval of a share among n rows (Wilson, JASA 22, 1927).
func wilson(p, n float64) [2]float64 {
	const z = 1.959963984540054
	centre := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return [2]float64{math.Max(0, centre-half), math.Min(1, centre+half)}
}

// columns are the rows of one target, column by column.
type columns struct {
	Features []Feature
	X        [][]float64 // [column][row]; NaN unknown
	Y        []float64   // ms, > 0
	Run      []int32     // whose row it is
	Waiting  []int64
	Prefix   []float64
	Bucket   []int // of the stratified sample
	Physics  []float64
}

// newColumns lays rows out as columns. Physics estimates (ms) are NaN until set.
func newColumns(target, features string, rows []*Row, run []int32) *columns {
	t := &columns{Features: featuresOf(target == targetTPOT, features), Run: run}
	t.X = make([][]float64, len(t.Features))
	for c := range t.Features {
		f := &t.Features[c]
		t.X[c] = make([]float64, len(rows))
		for i, r := range rows {
			if !f.IsCategory {
				t.X[c][i] = f.of(r)
			}
		}
	}
	for _, r := range rows {
		t.Y = append(t.Y, targetOf(r, target))
		t.Waiting = append(t.Waiting, r.NumRequestWaiting)
		t.Prefix = append(t.Prefix, r.PrefixCacheScore)
		t.Bucket = append(t.Bucket, Bucket(r))
		t.Physics = append(t.Physics, math.NaN())
	}
	return t
}

// Row copies a row into x.
func (t *columns) Row(i int, x []float64) {
	for c := range t.X {
		x[c] = t.X[c][i]
	}
}

// pick is the columns of some rows.
func (t *columns) pick(rows []int) [][]float64 {
	out := make([][]float64, len(t.X))
	for c := range t.X {
		out[c] = make([]float64, len(rows))
		for k, i := range rows {
			out[c][k] = t.X[c][i]
		}
	}
	return out
}

// IsQueued reports whether somebody waits before a row's request.
func (t *columns) IsQueued(i int) bool { return t.Waiting[i] > 0 }

// group is the index of a row's conformal factor (forest.LevelFactors).
func (t *columns) group(i int) int {
	g := 0
	if t.Waiting[i] > 0 {
		g = 2
	}
	if t.Prefix[i] >= 0.5 {
		g++
	}
	return g
}

// splitTail parts rows into the first share of each run and the rest, both in the
// order of rows.
func splitTail(t *columns, rows []int, share float64) (head, tail []int) {
	count, seen := map[int32]int{}, map[int32]int{}
	for _, i := range rows {
		count[t.Run[i]]++
	}
	for _, i := range rows {
		run := t.Run[i]
		if seen[run]++; float64(seen[run]) <= share*float64(count[run]) {
			head = append(head, i)
		} else {
			tail = append(tail, i)
		}
	}
	return head, tail
}

// moments are the mean and the standard deviation of a column's known values; a
// column that does not vary counts as 0.
func moments(column []float64, rows []int) (mean, scale float64) {
	known := stat.Filter(stat.Map(rows, func(i int) float64 { return column[i] }), func(v float64) bool { return !math.IsNaN(v) })
	if len(known) == 0 {
		return 0, 0
	}
	mean = stat.Mean(known)
	squares := stat.Sum(known, func(v float64) float64 { return (v - mean) * (v - mean) })
	return mean, math.Sqrt(squares / float64(len(known)))
}

// standardised is 0, the mean, for an unknown value and for a column without spread.
func standardised(v, mean, scale float64) float64 {
	if math.IsNaN(v) || scale == 0 {
		return 0
	}
	return (v - mean) / scale
}

// buckets of the stratified sample, as llm-d's latency predictor cuts them
// (llm-d-latency-predictor 04e44cd, training/training_server.py): requests waiting
// 0, 1-2, 3-5, 6-10, 11+; KV cache in steps of 0.05; prefix score in steps of 0.25.
const (
	queueBuckets  = 5
	kvBuckets     = 20
	prefixBuckets = 4
	buckets       = queueBuckets * kvBuckets * prefixBuckets
	bucketRows    = 500 // rows kept in one bucket: LATENCY_MAX_TRAINING_DATA_SIZE_PER_BUCKET of the server
)

// Bucket is the place of a row in [0, Buckets).
func Bucket(r *Row) int {
	kv := min(kvBuckets-1, int(kvBuckets*max(0, min(1, r.KVCachePercentage))))
	return (queueBucket(r.NumRequestWaiting)*kvBuckets+kv)*prefixBuckets + int(scoreBucket(max(0, min(1, r.PrefixCacheScore))))
}

// queueBucket is the place of a number of waiting requests among the queue buckets.
func queueBucket(waiting int64) int {
	for b, most := range []int64{0, 2, 5, 10} {
		if waiting <= most {
			return b
		}
	}
	return queueBuckets - 1
}

// reservoir keeps at most a number of items per bucket of a stream: a uniform
// sample of all that came (spec#predictor-sample). Which items a sample keeps depends on
// the seed, the bucket and the order in it alone.
type reservoir[T any] struct {
	keep    int
	seed    uint64
	buckets []bucket[T]
}

type bucket[T any] struct {
	seen  int
	items []T
}

// newReservoir makes an empty one.
func newReservoir[T any](buckets, keep int, seed uint64) *reservoir[T] {
	return &reservoir[T]{keep: keep, seed: seed, buckets: make([]bucket[T], buckets)}
}

// Add offers an item.
func (r *reservoir[T]) Add(in int, item T) {
	b := &r.buckets[in]
	b.seen++
	switch {
	case len(b.items) < r.keep:
		b.items = append(b.items, item)
	default: // algorithm R (Vitter, ACM TOMS 11, 1985): the n-th stays with probability keep/n
		if j := stat.DrawN(uint64(b.seen), r.seed, uint64(in), uint64(b.seen)); j < uint64(r.keep) {
			b.items[j] = item
		}
	}
}

// Each hands every kept item to use, bucket by bucket, with the number of items it
// stands for; those numbers add up to all that came.
func (r *reservoir[T]) Each(use func(in int, item T, weight float64)) {
	for i := range r.buckets {
		b := &r.buckets[i]
		for _, item := range b.items {
			use(i, item, float64(b.seen)/float64(len(b.items)))
		}
	}
}

const (
	windowNs        = 60_000_000_000 // of arrivals, where nothing says what was offered
	leastWindows    = 9
	leastDispersion = 2.0 // variance / mean of the windows' counts that a constant rate does not reach
)

// stagesOf says in which load stage of the run each request arrived, counted from
// 0 in time (lives are in order of arrival). A stage is, by what is known: a phase
// of run.yaml other than the warm-up; a stretch of workload.stage_requests
// arrivals; else windows of 60 s (a ninth of a shorter run) whose arrival rates fall into the
// same third, where the rates differ by more than chance.
func stagesOf(lives []life, d *deploy.Deployment) []trace.Opt[int64] {
	out := make([]trace.Opt[int64], len(lives))
	if named := openPhases(d); len(named) > 0 {
		for i := range lives {
			for k, p := range named {
				if at := lives[i].arrived; at.OK && at.V >= p.StartNs && at.V < p.EndNs {
					out[i] = trace.Some(int64(k))
				}
			}
		}
		return out
	}
	if counts := stageRequests(d); len(counts) > 1 {
		stage, left := 0, counts[0]
		for i := range lives {
			for left < 1 && stage+1 < len(counts) {
				stage++
				left = counts[stage]
			}
			out[i] = trace.Some(int64(stage))
			left--
		}
		return out
	}
	windowStages(lives, out)
	return out
}

// openPhases are the phases of run.yaml other than the warm-up.
func openPhases(d *deploy.Deployment) []deploy.Phase {
	return stat.Filter(d.Phases, func(p deploy.Phase) bool { return p.Name != deploy.WarmupPhase })
}

// stageRequests is workload.stage_requests of run.yaml, nil without it.
func stageRequests(d *deploy.Deployment) []int64 {
	values, _ := d.Workload["stage_requests"].([]any)
	var out []int64
	for _, v := range values {
		switch n := v.(type) {
		case int:
			out = append(out, int64(n))
		case int64:
			out = append(out, n)
		case float64:
			out = append(out, int64(n))
		default:
			return nil
		}
	}
	return out
}

// windowStages ranks windows by their number of arrivals and cuts the ranks into
// thirds. Where the counts scatter as a constant rate's do there is one stage.
func windowStages(lives []life, out []trace.Opt[int64]) {
	known := lives // those without an arrival come first
	for len(known) > 0 && !known[0].arrived.OK {
		known, out = known[1:], out[1:]
	}
	if len(known) == 0 {
		return
	}
	first := known[0].arrived.V
	span := known[len(known)-1].arrived.V - first
	width := min(windowNs, span/leastWindows+1)
	n := int(span/width) + 1
	window := func(i int) int { return int((known[i].arrived.V - first) / width) }
	counts := make([]float64, n)
	stage := make([]int64, n)
	for i := range known {
		counts[window(i)]++
	}
	mean := float64(len(known)) / float64(n)
	variance := 0.0
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / math.Max(1, float64(n-1))
	}
	if variance > leastDispersion*mean {
		for k, w := range stat.Order(counts) {
			stage[w] = int64(k * 3 / n)
		}
	}
	for i := range known {
		out[i] = trace.Some(stage[window(i)])
	}
}
