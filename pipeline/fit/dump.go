package fit

// This file hands the rows behind a fit to the caller, who writes them as rows.parquet
// (fit --dump-rows).

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Dump is the rows of a fit at the chosen gamma, after cleaning: the step-time tables of all runs,
// then those of each alpha target. Runs are sorted by id.
type Dump struct {
	Tables []*rows.Table
	Spec   features.Version
	Phases map[string][]deploy.Phase
}

// Write writes rows.parquet to dir.
func (d *Dump) Write(dir string) error {
	return rows.WriteParquet(dir, d.Tables, d.names, func(run string) []deploy.Phase { return d.Phases[run] })
}

// names returns the names of a table's features.
func (d *Dump) names(t *rows.Table) []string {
	if t.Target == coeff.Cadence || t.Target == coeff.Duration {
		return features.Names(features.BetaFeatures(d.Spec))
	}
	return features.Names(features.AlphaFeatures(d.Spec))
}

// dump passes the rows to Options.Rows.
func (f *fitter) dump() error {
	if f.o.Rows == nil {
		return nil
	}
	d := &Dump{Spec: f.o.Spec, Phases: map[string][]deploy.Phase{}}
	for _, p := range f.used {
		d.Tables = append(d.Tables, p.Beta.At(f.gammas[f.gamma]))
		d.Phases[p.Src.ID] = p.Src.Deployment.Phases
	}
	for _, target := range f.o.AlphaTargets {
		for _, p := range f.used {
			d.Tables = append(d.Tables, p.Alpha[target].At(f.gammas[f.gamma]))
		}
	}
	d.Tables = slices.DeleteFunc(d.Tables, func(t *rows.Table) bool { return t.Kept == 0 })
	return f.o.Rows(d)
}
