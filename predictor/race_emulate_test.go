package predictor

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
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

// newestOf are the last rows of each bucket, as many as the stratified sample keeps.
func newestOf(t *columns, train []int) (rows []int) {
	kept := map[int]int{}
	for _, i := range slices.Backward(train) {
		if kept[t.Bucket[i]]++; kept[t.Bucket[i]] <= bucketRows {
			rows = append(rows, i)
		}
	}
	slices.Sort(rows)
	return rows
}

// under trains a mean and a P90 forest on split time with some habits of an online
// predictor and judges both on the test rows; claimed is the error that the habit's own
// test would show.
func under(t *testing.T, a *rowSet, h habits, target string, o TrainOptions) (mape, coverage, claimed float64) {
	t.Helper()
	s := a.newSplit(byTime, o.Seed)
	f := &s.folds[0]
	tab := *a.table
	seen := &tab // what training sees
	if h.isLate && target == targetTPOT || h.isWhole {
		c := changed(a, &tab, h, target)
		seen = &c
	}
	grow := func(train []int, q float64) model {
		rows, w := stratified(seen, train, natural, o.Seed)
		if h.isNewest {
			rows, w = newestOf(seen, train), nil
		}
		m, err := newModel(nameTrees, seen, rows, w, growOptions{Seed: o.Seed, Bins: o.bins, Quantile: q})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	mean, high := grow(f.train, 0), grow(f.train, level)
	served := mean
	if h.isP90 {
		served = high
	}
	var y, p, q []float64
	for _, i := range f.test {
		y, p, q = append(y, tab.Y[i]), append(p, served.Predict(&tab, i)), append(q, high.Predict(&tab, i))
	}
	mape, claimed = mapeOf(y, p), math.NaN()
	coverage, _ = coverageOf(y, q)
	if r := a.newSplit(random, o.Seed); h.isRandom && r.reason == "" {
		m := grow(r.folds[0].train, 0)
		y, p = nil, nil
		for _, i := range r.folds[0].test {
			y, p = append(y, tab.Y[i]), append(p, m.Predict(&tab, i))
		}
		claimed = mapeOf(y, p)
	}
	return mape, coverage, claimed
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
func changed(a *rowSet, t *columns, h habits, target string) columns {
	out := *t
	if h.isWhole {
		out.Y = make([]float64, len(t.Y))
		for i, y := range t.Y {
			out.Y[i] = math.Max(1, math.Trunc(y))
		}
	}
	if !h.isLate || target != targetTPOT {
		return out
	}
	out.X = append([][]float64{}, t.X...)
	put := func(name string, of func(r *Row) (float64, bool)) {
		c := slices.IndexFunc(t.Features, func(f Feature) bool { return f.Name == name })
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
	put("num_request_waiting", func(r *Row) (float64, bool) { return float64(r.EndWaiting.V), r.EndWaiting.OK })
	put("is_queued", func(r *Row) (float64, bool) { return math.Min(1, float64(r.EndWaiting.V)), r.EndWaiting.OK })
	put("num_request_running", func(r *Row) (float64, bool) { return float64(r.EndRunning.V), r.EndRunning.OK })
	put("kv_cache_percentage", func(r *Row) (float64, bool) { return r.EndKV.V, r.EndKV.OK })
	return out
}
