package race

import (
	"math"

	"github.com/blis-train/blis-train/predictor/decision"
	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// habits change how trees are trained or used.
type habits struct {
	isLate, isNewest, isP90, isWhole, isRandom bool
}

// pitfalls are the habits of llm-d's latency predictor (llm-d-latency-predictor
// 04e44cd and llm-d-router ebab6879) whose cost can be measured here.
var pitfalls = []struct {
	name, doc string
	habits
}{
	{"baseline", "trees as raced here: decision-time columns, natural weights, test rows after the training rows", habits{}},
	{"completion_state", "TPOT rows pair waiting, running and KV use of the end of the request with predictions made at dispatch",
		habits{isLate: true}},
	{"random_split", "the test rows are 10 % drawn at random: what it claims, not what it costs", habits{isRandom: true}},
	{"newest_500", "buckets keep their newest 500 rows and every row weighs the same", habits{isNewest: true}},
	{"p90_as_latency", "the P90 estimate is used as the latency", habits{isP90: true}},
	{"whole_ms", "latencies are whole milliseconds (chunks counted as tokens cannot be seen in traces and are left out)",
		habits{isWhole: true}},
	{"together", "all of the above at once, judged on rows after the training rows", habits{true, true, true, true, false}},
}

// emulate is what each pitfall costs on split time.
func (t *task) emulate() error {
	if t.name != Time || t.split.reason != "" || t.o.Emulate == "" {
		return nil
	}
	var base result.PredictorPitfall
	sum := result.PredictorPitfall{Scope: t.scope, Target: t.target, Pitfall: "sum", Doc: "the sum of the differences of the single pitfalls",
		MAPEDelta: new(float64), CoverageDelta: new(float64)}
	for _, p := range pitfalls {
		out := result.PredictorPitfall{Scope: t.scope, Target: t.target, Pitfall: p.name, Doc: p.doc}
		mape, coverage, claimed, err := t.under(p.habits)
		if err != nil {
			return err
		}
		out.MAPE, out.Coverage, out.Claimed = result.OrNull(mape), result.OrNull(coverage), result.OrNull(claimed)
		if p.name == "baseline" {
			base = out
			t.habits = append(t.habits, out)
			continue
		}
		out.MAPEDelta, out.CoverageDelta = result.OrNull(mape-*base.MAPE), result.OrNull(coverage-*base.Coverage)
		if p.name == "together" {
			t.habits = append(t.habits, sum, out)
			continue
		}
		*sum.MAPEDelta += *out.MAPEDelta
		*sum.CoverageDelta += *out.CoverageDelta
		t.habits = append(t.habits, out)
	}
	return nil
}

// under trains a mean and a P90 forest with some habits and judges both on the
// test rows; claimed is the error that the habit's own test would show.
func (t *task) under(h habits) (mape, coverage, claimed float64, err error) {
	claimed = math.NaN()
	f := &t.split.folds[0]
	tab := *t.all.table
	seen := &tab // what training sees
	if h.isLate && t.target == Targets[1] || h.isWhole {
		c := changed(t.all, &tab, h, t.target)
		seen = &c
	}
	weights := natural
	if h.isNewest {
		weights = flat
	}
	opt := model.Options{Seed: t.o.Seed, Bins: t.o.Bins}
	grow := func(train []int, q float64) (model.Model, error) {
		rows, w := stratified(seen, train, weights, h.isNewest, t.o.Seed)
		opt.Quantile = q
		return model.New(model.Trees, seen, rows, w, opt)
	}
	mean, err := grow(f.train, 0)
	if err != nil {
		return 0, 0, 0, err
	}
	high, err := grow(f.train, level)
	if err != nil {
		return 0, 0, 0, err
	}
	served := mean
	if h.isP90 {
		served = high
	}
	y, p, q := make([]float64, len(f.test)), make([]float64, len(f.test)), make([]float64, len(f.test))
	for k, i := range f.test {
		y[k], p[k], q[k] = tab.Y[i], served.Predict(&tab, i), high.Predict(&tab, i)
	}
	mape = mapeOf(y, p)
	coverage, _ = model.Coverage(y, q)
	if h.isRandom {
		claimed, err = t.claimed(grow)
	}
	return mape, coverage, claimed, err
}

// claimed is the MAPE of a random split of the same training rows and test rows.
func (t *task) claimed(grow func([]int, float64) (model.Model, error)) (float64, error) {
	s := t.all.newSplit(random, t.o.Seed)
	if s.reason != "" {
		return math.NaN(), nil
	}
	m, err := grow(s.folds[0].train, 0)
	if err != nil {
		return 0, err
	}
	var y, p []float64
	for _, i := range s.folds[0].test {
		y, p = append(y, t.all.table.Y[i]), append(p, m.Predict(t.all.table, i))
	}
	return mapeOf(y, p), nil
}

func mapeOf(y, pred []float64) float64 {
	apes := make([]float64, len(y))
	for i := range y {
		apes[i] = math.Abs(pred[i]/y[i] - 1)
	}
	return stat.Mean(apes)
}

// changed is the table as training sees it: engine state of the end of the request
// in place of that at the decision, latencies in whole milliseconds.
func changed(a *all, t *model.Table, h habits, target string) model.Table {
	out := *t
	if h.isWhole {
		out.Y = make([]float64, len(t.Y))
		for i, y := range t.Y {
			out.Y[i] = math.Max(1, math.Trunc(y))
		}
	}
	if !h.isLate || target != Targets[1] {
		return out
	}
	out.X = append([][]float64{}, t.X...)
	put := func(name string, of func(r *decision.Row) (float64, bool)) {
		c := t.Column(name)
		if c < 0 {
			return
		}
		out.X[c] = append([]float64{}, t.X[c]...)
		for i, s := range a.samples {
			if v, ok := of(s.row); ok {
				out.X[c][i] = v
			}
		}
	}
	put("num_request_waiting", func(r *decision.Row) (float64, bool) { return float64(r.EndWaiting.V), r.EndWaiting.OK })
	put("is_queued", func(r *decision.Row) (float64, bool) { return math.Min(1, float64(r.EndWaiting.V)), r.EndWaiting.OK })
	put("num_request_running", func(r *decision.Row) (float64, bool) { return float64(r.EndRunning.V), r.EndRunning.OK })
	put("kv_cache_percentage", func(r *decision.Row) (float64, bool) { return r.EndKV.V, r.EndKV.OK })
	return out
}
