package rows

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Recipe selects cleaning and fitting (spec#recipe).
type Recipe string

// The recipes.
const (
	Relative Recipe = "relative"
	Frozen   Recipe = "frozen"
)

// outlierFactor and outlierShare: times the median, and what a cell may lose (spec#outliers).
const (
	outlierFactor = 5
	outlierShare  = 0.2
)

// outlierCell is where a target is compared with its like: a configuration, and in the
// relative recipe a regime of it.
type outlierCell struct {
	Config string
	Regime Regime
}

// Limit is the longest time per step that is no outlier in a cell of tables of one target.
type Limit struct {
	outlierCell
	MaxUs float64
	Rows  int // of the cell
}

// Clean drops outliers (spec#outliers) from the training rows of tables of one target and marks those of the hold-out: rows whose
// time per step is more than 5 times the median of their configuration (frozen)
// or of their configuration and regime (relative), pooled over the tables.
// Overhead tables are left alone. It returns a many_outliers finding for
// every cell that lost more than 20 % and more than one row.
func Clean(tables []*Table, recipe Recipe) []trace.Finding {
	return CleanTo(tables, LimitsOf(tables, recipe), recipe, false)
}

// LimitsOf are those of the tables' cells, in order of first appearance.
func LimitsOf(tables []*Table, recipe Recipe) []Limit {
	out, at := cellsOf(tables, recipe)
	times := make([][]float64, len(out)) // per step
	for k, t := range tables {
		for i := range t.Kept {
			c := at[k][t.Regime[i]]
			times[c] = append(times[c], t.Y[i]/t.Steps[i])
		}
	}
	for c := range out {
		out[c].MaxUs = outlierFactor * stat.Median(times[c])
	}
	return out
}

// CleanTo is Clean with limits that are known; rows of a cell that has none stay. judged: every row
// judges, and none trains.
func CleanTo(tables []*Table, limits []Limit, recipe Recipe, judged bool) []trace.Finding {
	at := make(map[outlierCell]int, len(limits))
	for k, l := range limits {
		at[l.outlierCell] = k
	}
	gone := make([]int, len(limits))
	for _, t := range tables {
		if t.Target == coeff.Overhead {
			continue
		}
		marks := make([]StressSet, t.Kept) // in a column of its own: copies of the table may share theirs
		copy(marks, t.Sets)
		t.Sets = marks
		t.Filter(codeOutlier, func(i int) bool {
			k, known := at[t.cellOf(i, recipe)]
			if !known || t.Y[i]/t.Steps[i] <= limits[k].MaxUs {
				return true
			}
			gone[k]++
			if judged || t.HoldOut != nil && t.HoldOut[i] {
				t.Sets[i] |= Outlier
				return true
			}
			return false
		})
		t.checkColumns()
	}
	return manyOutliers(limits, gone)
}

func (t *Table) cellOf(i int, recipe Recipe) outlierCell {
	if recipe == Frozen {
		return outlierCell{Config: t.Config}
	}
	return outlierCell{t.Config, t.Regime[i]}
}

// cellsOf are the cells of the tables with their numbers of rows, in order of first appearance, and
// for every table which of them its regimes belong to.
func cellsOf(tables []*Table, recipe Recipe) (out []Limit, at [][]int) {
	seen := make(map[outlierCell]int)
	for _, t := range tables {
		var of []int
		for i := range t.Kept {
			for len(of) <= int(t.Regime[i]) {
				of = append(of, -1)
			}
			if k := of[t.Regime[i]]; k >= 0 {
				out[k].Rows++
				continue
			}
			c := t.cellOf(i, recipe)
			k, known := seen[c]
			if !known {
				k = len(out)
				seen[c], out = k, append(out, Limit{outlierCell: c})
			}
			of[t.Regime[i]] = k
			out[k].Rows++
		}
		at = append(at, of)
	}
	return out, at
}

func manyOutliers(limits []Limit, gone []int) []trace.Finding {
	var out []trace.Finding
	for k, l := range limits {
		if float64(gone[k]) > max(1, outlierShare*float64(l.Rows)) {
			out = append(out, trace.Findingf(codeManyOutliers, "%s %s: %d of %d rows are outliers", l.Config, l.Regime, gone[k], l.Rows))
		}
	}
	return out
}
