package fit

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Dump is the rows of a fit at the chosen gamma, after cleaning: step-time
// tables first, then each alpha target, runs in sorted order.
type OptionsDump struct {
	Tables []*rows.Table
	Spec   features.Version
	Phases map[string][]deploy.Phase
}

// Write makes rows.parquet in dir.
func (d *OptionsDump) Write(dir string) error {
	return rows.WriteParquet(dir, d.Tables, d.names, func(run string) []deploy.Phase { return d.Phases[run] })
}

func (d *OptionsDump) names(t *rows.Table) []string {
	if t.Target == rows.Cadence || t.Target == rows.Duration {
		return features.Names(features.BetaFeatures(d.Spec))
	}
	return features.Names(features.AlphaFeatures(d.Spec))
}
