package model

import (
	"math"

	"github.com/blis-train/blis-train/predictor/decision"
)

// Table is the rows of one target, column by column.
type Table struct {
	Features []decision.Feature
	X        [][]float64 // [column][row]; NaN unknown
	Y        []float64   // ms, > 0
	Run      []int32     // whose row it is
	Waiting  []int64
	Prefix   []float64
	Bucket   []int // of the stratified sample
	Physics  []float64
}

// NewTable lays rows out as columns. Physics estimates (ms) are NaN until set.
func NewTable(tpot bool, features string, rows []*decision.Row, run []int32) *Table {
	t := &Table{Features: decision.FeaturesOf(tpot, features), Run: run}
	t.X = make([][]float64, len(t.Features))
	for c := range t.Features {
		f := &t.Features[c]
		t.X[c] = make([]float64, len(rows))
		for i, r := range rows {
			if !f.Category {
				t.X[c][i] = f.Of(r)
			}
		}
	}
	for _, r := range rows {
		y := r.TTFTMs
		if tpot {
			y = r.TPOTMs.V
		}
		t.Y, t.Waiting, t.Prefix = append(t.Y, y), append(t.Waiting, r.NumRequestWaiting), append(t.Prefix, r.PrefixCacheScore)
		t.Bucket = append(t.Bucket, decision.Bucket(r))
		t.Physics = append(t.Physics, math.NaN())
	}
	return t
}

// Column is the place of a feature, -1 without.
func (t *Table) Column(name string) int {
	for c := range t.Features {
		if t.Features[c].Name == name {
			return c
		}
	}
	return -1
}

// Row copies a row into x.
func (t *Table) Row(i int, x []float64) {
	for c := range t.X {
		x[c] = t.X[c][i]
	}
}

// pick is the columns of some rows.
func (t *Table) pick(rows []int) [][]float64 {
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
func (t *Table) IsQueued(i int) bool { return t.Waiting[i] > 0 }

// group is the index of a row's conformal factor (forest.LevelFactors).
func (t *Table) group(i int) int {
	g := 0
	if t.Waiting[i] > 0 {
		g = 2
	}
	if t.Prefix[i] >= 0.5 {
		g++
	}
	return g
}
