package rows

import (
	"github.com/blis-train/blis-train/stat"

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

// cell is where a target is compared with its like: a configuration, and in the
// relative recipe a regime of it.
type cell struct {
	config string
	regime Regime
}

// Clean drops outliers (spec#outliers) from tables of one target: rows whose
// time per step is more than 5 times the median of their configuration (frozen)
// or of their configuration and regime (relative), pooled over the tables.
// Overhead tables are left alone. It returns a many_outliers finding for
// every cell that lost more than 20 % and more than one row.
func Clean(tables []*Table, recipe Recipe) []trace.Finding {
	cells, values := pool(tables, recipe)
	limits := make(map[cell]float64, len(cells))
	for _, c := range cells {
		limits[c] = outlierFactor * stat.Median(values[c])
	}
	gone := make(map[cell]int)
	for _, t := range tables {
		if t.Target == Overhead {
			continue
		}
		t.Filter(codeOutlier, func(i int) bool {
			c := t.cellOf(i, recipe)
			if t.Y[i]/t.Steps[i] > limits[c] {
				gone[c]++
				return false
			}
			return true
		})
		t.check()
	}
	return tooMany(cells, values, gone)
}

func (t *Table) cellOf(i int, recipe Recipe) cell {
	if recipe == Frozen {
		return cell{config: t.Config}
	}
	return cell{t.Config, t.Regime[i]}
}

// pool collects time per step by cell; cells in order of first appearance.
func pool(tables []*Table, recipe Recipe) ([]cell, map[cell][]float64) {
	var order []cell
	values := make(map[cell][]float64)
	for _, t := range tables {
		for i := range t.Kept {
			c := t.cellOf(i, recipe)
			if _, seen := values[c]; !seen {
				order = append(order, c)
			}
			values[c] = append(values[c], t.Y[i]/t.Steps[i])
		}
	}
	return order, values
}

func tooMany(cells []cell, values map[cell][]float64, gone map[cell]int) []trace.Finding {
	var out []trace.Finding
	for _, c := range cells {
		if n := len(values[c]); float64(gone[c]) > max(1, outlierShare*float64(n)) {
			out = append(out, trace.Findingf(codeManyOutliers, "%s %s: %d of %d rows are outliers", c.config, c.regime, gone[c], n))
		}
	}
	return out
}
