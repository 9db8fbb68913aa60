package rows

// This file drops outliers from training rows and marks them in the hold-out (spec#outliers).

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

// Limits of spec#outliers.
const (
	outlierFactor = 5   // an outlier is above this factor times the median of its cell
	outlierShare  = 0.2 // of a cell: more outliers give a warning
)

// outlierCell is a set of rows with one median: those of a configuration, and in the relative
// recipe of one regime.
type outlierCell struct {
	Config string
	Regime Regime
}

// Limit is the longest time per step, in us, that is no outlier in a cell. Its tables have one
// target.
type Limit struct {
	outlierCell
	MaxUs float64
	Rows  int // of the cell
}

// Clean drops outliers (spec#outliers) from the training rows of tables of one target, and marks
// those of the hold-out. An outlier is a row whose time per step is more than 5 times the median of
// its configuration (frozen) or of its configuration and regime (relative), pooled over the tables.
// Overhead tables are not changed, and in the relative recipe no delay of a request that finds
// others waiting is an outlier, because a long queue is what its features predict. Clean returns a
// many_outliers finding for every cell (configuration and regime) with more than one outlier and
// more than 20 %.
func Clean(tables []*Table, recipe Recipe) []trace.Finding {
	return CleanTo(tables, LimitsOf(tables, recipe), recipe, false)
}

// LimitsOf returns the limits of the tables' cells, in order of first appearance. A cell without a
// limit is absent, because limits are written as JSON, which has no infinity.
func LimitsOf(tables []*Table, recipe Recipe) []Limit {
	cells, cellIndex := cellsOf(tables, recipe)
	times := make([][]float64, len(cells)) // per step
	isUnlimited := make([]bool, len(cells))
	for k, t := range tables {
		for i := range t.Kept {
			c := cellIndex[k][t.Regime[i]]
			if recipe == Relative && t.isWait(i) {
				isUnlimited[c] = true
			}
			times[c] = append(times[c], t.Y[i]/t.Steps[i])
		}
	}
	var limits []Limit
	for c, limit := range cells {
		if !isUnlimited[c] {
			limit.MaxUs = outlierFactor * stat.Median(times[c])
			limits = append(limits, limit)
		}
	}
	return limits
}

// CleanTo does what Clean does with given limits, such as those of a fit. Rows of a cell without a
// limit are kept. With allJudged all rows are for validation: outliers are marked, none is dropped.
func CleanTo(tables []*Table, limits []Limit, recipe Recipe, allJudged bool) []trace.Finding {
	return cleanTo(tables, limits, recipe, allJudged, false)
}

// CleanOwn does what Clean does, in the memory of the table's columns, which it must share with no other table: a copy of
// the rows of a long run would take a lot of memory.
func CleanOwn(t *Table, recipe Recipe) []trace.Finding {
	tables := []*Table{t}
	return cleanTo(tables, LimitsOf(tables, recipe), recipe, false, true)
}

// cleanTo does what CleanTo does. With inPlace, other tables that share columns with these are no longer valid.
func cleanTo(tables []*Table, limits []Limit, recipe Recipe, allJudged, inPlace bool) []trace.Finding {
	at := make(map[outlierCell]int, len(limits)) // position in limits
	for k, l := range limits {
		at[l.outlierCell] = k
	}
	gone := make([]int, len(limits)) // outliers by limit
	for _, t := range tables {
		if t.Target == coeff.Overhead {
			continue
		}
		marks := make([]StressSet, t.Kept) // a new column: copies of the table may share the old one
		copy(marks, t.Sets)
		t.Sets = marks
		t.filter(codeOutlier, func(i int) bool {
			k, known := at[t.cellOf(i, recipe)]
			if !known || t.Y[i]/t.Steps[i] <= limits[k].MaxUs {
				return true
			}
			gone[k]++
			isHeldOut := t.HoldOut != nil && t.HoldOut[i]
			if allJudged || isHeldOut {
				t.Sets[i] |= Outlier
				return true
			}
			return false
		}, inPlace)
		t.checkColumns()
	}
	return manyOutliers(limits, gone)
}

// isWait reports whether row i is the delay of a request that finds others waiting.
func (t *Table) isWait(i int) bool {
	return (t.Target == coeff.Admission || t.Target == coeff.Queue) && t.Regime[i] == Waiting
}

// cellOf returns the cell of row i.
func (t *Table) cellOf(i int, recipe Recipe) outlierCell {
	if recipe == Frozen {
		return outlierCell{Config: t.Config}
	}
	return outlierCell{Config: t.Config, Regime: t.Regime[i]}
}

// cellsOf returns the cells of the tables with their numbers of rows, in order of first appearance.
// cellIndex has for every table the index of the cell of each regime, -1 for a regime without rows.
func cellsOf(tables []*Table, recipe Recipe) (out []Limit, cellIndex [][]int) {
	indexOf := make(map[outlierCell]int)
	for _, t := range tables {
		var byRegime []int
		for i := range t.Kept {
			regime := int(t.Regime[i])
			for len(byRegime) <= regime {
				byRegime = append(byRegime, -1)
			}
			if byRegime[regime] < 0 {
				cell := t.cellOf(i, recipe)
				k, known := indexOf[cell]
				if !known {
					k = len(out)
					indexOf[cell] = k
					out = append(out, Limit{outlierCell: cell})
				}
				byRegime[regime] = k
			}
			out[byRegime[regime]].Rows++
		}
		cellIndex = append(cellIndex, byRegime)
	}
	return out, cellIndex
}

// manyOutliers returns a finding for every cell with too many outliers.
func manyOutliers(limits []Limit, gone []int) []trace.Finding {
	var out []trace.Finding
	for k, l := range limits {
		if float64(gone[k]) > max(1, outlierShare*float64(l.Rows)) {
			out = append(out, trace.Findingf(codeManyOutliers, "%s %s: %d of %d rows are outliers",
				l.Config, l.Regime, gone[k], l.Rows))
		}
	}
	return out
}
