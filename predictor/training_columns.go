package predictor

// This file has the rows of one target as columns.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// trainingColumns has the rows of one target column by column. Slices without a note have an entry
// for each row.
type trainingColumns struct {
	Features []Feature   // one for each column
	X        [][]float64 // [column][row]; NaN: unknown
	Y        []float64   // measured latency, ms, > 0
	Run      []int32     // index of the run
	Waiting  []int64     // waiting requests at the decision
	Prefix   []float64   // prefix_cache_score
	Bucket   []int       // of the stratified sample
	Physics  []float64   // estimate from step times, ms; NaN: none
}

// newTrainingColumns lays rows out as columns. Physics estimates (ms) are NaN until set.
func newTrainingColumns(target, features string, rows []*Row, run []int32) *trainingColumns {
	t := &trainingColumns{Features: featuresOf(target == targetTPOT, features), Run: run}
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

// Row copies the columns of row i into x.
func (t *trainingColumns) Row(i int, x []float64) {
	for c := range t.X {
		x[c] = t.X[c][i]
	}
}

// targetsAt returns the targets of some rows, ms.
func (t *trainingColumns) targetsAt(rows []int) []float64 {
	out := make([]float64, len(rows))
	for k, i := range rows {
		out[k] = t.Y[i]
	}
	return out
}

// pickColumns returns the columns of some rows: [column][row].
func (t *trainingColumns) pickColumns(rows []int) [][]float64 {
	out := make([][]float64, len(t.X))
	for c := range t.X {
		out[c] = make([]float64, len(rows))
		for k, i := range rows {
			out[c][k] = t.X[c][i]
		}
	}
	return out
}

// IsQueued reports whether requests wait at a row's decision.
func (t *trainingColumns) IsQueued(i int) bool { return t.Waiting[i] > 0 }

// queueGroup returns the index of a row's conformal factor (forest.LevelFactors): 2 if requests wait,
// plus 1 if at least half of the prompt is cached.
func (t *trainingColumns) queueGroup(i int) int {
	g := 0
	if t.Waiting[i] > 0 {
		g = 2
	}
	if t.Prefix[i] >= 0.5 {
		g++
	}
	return g
}

// splitTail divides rows into the first share of each run and the rest, both in the order of rows.
func splitTail(t *trainingColumns, rows []int, share float64) (head, tail []int) {
	count := map[int32]int{} // rows by run
	seen := map[int32]int{}  // of these, rows divided so far
	for _, i := range rows {
		count[t.Run[i]]++
	}
	for _, i := range rows {
		run := t.Run[i]
		seen[run]++
		if float64(seen[run]) <= share*float64(count[run]) {
			head = append(head, i)
		} else {
			tail = append(tail, i)
		}
	}
	return head, tail
}

// moments returns the mean and the standard deviation of a column's known values. The deviation of
// a column that does not vary is 0.
func moments(column []float64, rows []int) (mean, scale float64) {
	var known []float64
	for _, i := range rows {
		if !math.IsNaN(column[i]) {
			known = append(known, column[i])
		}
	}
	if len(known) == 0 {
		return 0, 0
	}
	mean = stat.Mean(known)
	squares := 0.0
	for _, v := range known {
		squares += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(squares / float64(len(known)))
}

// standardised returns (v - mean) / scale, and 0 (the mean) for an unknown value and for a column
// without spread.
func standardised(v, mean, scale float64) float64 {
	if math.IsNaN(v) || scale == 0 {
		return 0
	}
	return (v - mean) / scale
}
