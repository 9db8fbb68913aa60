package fit

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit/fittest"
	"github.com/blis-train/blis-train/pipeline/fit/options"
)

// TestStoredRowsGiveTheSameFit: rows that were made elsewhere, one run at a time, give the
// bytes of a fit that makes them itself, and nothing reads the recordings again.
func TestStoredRowsGiveTheSameFit(t *testing.T) {
	for _, spec := range []features.Version{features.V11, features.V10} {
		o := options.Bare()
		o.Spec, o.Bootstraps = spec, options.MinBootstraps
		want, err := Fit(context.Background(), fittest.Bundled(t), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		sources, taskOptions, err := TakingPart(fittest.Bundled(t), o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range sources {
			dir := t.TempDir()
			if err := StoreRows(sources[i], taskOptions, dir); err != nil {
				t.Fatal(err)
			}
			sources[i] = Source{ID: sources[i].ID, Deployment: sources[i].Deployment, Rows: dir}
		}
		got, err := Fit(context.Background(), sources, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if fittest.BytesOf(t, got) != fittest.BytesOf(t, want) {
			t.Errorf("spec %s: the fit differs", spec)
		}
	}
}
