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
		storedAlike(t, fittest.Bundled(t), spec)
	}
}

// TestStoredSlicesGiveTheSameFit: so do rows that were made slice by slice.
func TestStoredSlicesGiveTheSameFit(t *testing.T) {
	storedAlike(t, sliced(t, 500, 200), features.V11)
}

// storedAlike compares a fit of sources with one of their stored rows.
func storedAlike(t *testing.T, sources []Source, spec features.Version) {
	t.Helper()
	o := options.Bare()
	o.Spec, o.Bootstraps = spec, options.MinBootstraps
	want, err := Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	taking, taskOptions, err := TakingPart(sources, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range taking {
		dir := t.TempDir()
		if err := StoreRows(taking[i], taskOptions, dir); err != nil {
			t.Fatal(err)
		}
		taking[i] = Source{ID: taking[i].ID, Deployment: taking[i].Deployment, Rows: dir}
	}
	got, err := Fit(context.Background(), taking, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fittest.BytesOf(t, got) != fittest.BytesOf(t, want) {
		t.Errorf("spec %s: the fit differs", spec)
	}
}
