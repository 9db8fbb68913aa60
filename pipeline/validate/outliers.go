package validate

// This file computes the times beyond which a measured row is an outlier.

import (
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Limits gives, for the cells of one target, the time beyond which a row is an outlier; a cell that
// has no limit is absent. It is computed from all training runs together, as in the fit, or from all
// test runs together.
type Limits struct {
	Training bool         `json:"training"`
	Target   string       `json:"target"`
	Cells    []rows.Limit `json:"cells"`
}

// limits returns the limits of every target, first those of the training runs, then those of the
// test runs.
func (j *job) limits() []Limits {
	recipe := cleaningRecipe(j.set.Recipe, j.set.SpecVersion)
	targets := append([]string{j.set.BetaTarget}, j.set.AlphaTargets()...)
	var all []Limits
	for _, training := range []bool{true, false} {
		for _, target := range targets {
			cells := rows.LimitsOf(j.tablesOf(training, target), recipe)
			all = append(all, Limits{Training: training, Target: target, Cells: cells})
		}
	}
	return all
}

// tablesOf returns the tables of one target that are cleaned together: those of the training runs, or of
// the test runs. Saturated runs are excluded.
func (j *job) tablesOf(training bool, target string) []*rows.Table {
	var tables []*rows.Table
	for _, t := range j.runs {
		if t.training != training || t.Saturation.Run.Saturated || t.beta == nil {
			continue
		}
		if t.beta.Target == target {
			tables = append(tables, t.beta)
		}
		for _, table := range t.alpha {
			if table.Target == target {
				tables = append(tables, table)
			}
		}
	}
	return tables
}

// clean drops outliers, then predicts the rows that are left.
func (j *job) clean(limits []Limits) error {
	recipe := cleaningRecipe(j.set.Recipe, j.set.SpecVersion)
	for _, l := range limits {
		found := rows.CleanTo(j.tablesOf(l.Training, l.Target), l.Cells, recipe, !l.Training)
		j.warnings = append(j.warnings, found...)
	}
	for _, t := range j.runs {
		if err := t.predict(); err != nil {
			return err
		}
	}
	return nil
}

// cleaningRecipe returns the recipe by which the coefficients' own rows were cleaned. Coefficients
// that are older than recipes name none.
func cleaningRecipe(named string, v features.Version) rows.Recipe {
	switch {
	case named != "":
		return rows.Recipe(named)
	case v == features.V10:
		return rows.Frozen
	}
	return rows.Relative
}
