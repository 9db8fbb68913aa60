package fit

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Dump is the rows of a fit at the chosen gamma, after cleaning: step-time
// tables first, then each alpha target, runs in sorted order.
type Dump struct {
	Tables []*rows.Table
	spec   features.Version
	phases map[string][]deploy.Phase
}

// Write makes rows.parquet in dir.
func (d *Dump) Write(dir string) error {
	return rows.WriteParquet(dir, d.Tables, d.names, func(run string) []deploy.Phase { return d.phases[run] })
}

func (d *Dump) names(t *rows.Table) []string {
	if t.Target == rows.Cadence || t.Target == rows.Duration {
		return features.Names(features.BetaFeatures(d.spec))
	}
	return features.Names(features.AlphaFeatures(d.spec))
}

// dump hands the rows to Options.Rows.
func (f *fitter) dump() error {
	if f.o.Rows == nil {
		return nil
	}
	d := &Dump{spec: f.o.Spec, phases: map[string][]deploy.Phase{}}
	for _, p := range f.used {
		d.Tables = append(d.Tables, p.beta.At(f.gammas[f.gamma]))
		d.phases[p.src.ID] = p.src.Deployment.Phases
	}
	for _, target := range f.o.AlphaTargets {
		for _, p := range f.used {
			d.Tables = append(d.Tables, p.alpha[target].At(f.gammas[f.gamma]))
		}
	}
	d.Tables = slices.DeleteFunc(d.Tables, func(t *rows.Table) bool { return t.Kept == 0 })
	return f.o.Rows(d)
}
