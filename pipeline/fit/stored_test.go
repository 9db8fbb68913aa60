package fit

import (
	"context"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// TestStoredRowsGiveTheSameFit: rows that were made elsewhere, one run at a time, give the
// bytes of a fit that makes them itself, and nothing reads the recordings again.
func TestStoredRowsGiveTheSameFit(t *testing.T) {
	for _, spec := range []features.Version{features.V11, features.V10} {
		sameWhenStored(t, Bundled(t), spec)
	}
}

// TestStoredSlicesGiveTheSameFit: so do rows that were made slice by slice, of which some are learned from.
func TestStoredSlicesGiveTheSameFit(t *testing.T) {
	sources := sliced(t, 500, 200)
	for i := range sources {
		sources[i].Most = rows.DefaultMaxRows
	}
	sameWhenStored(t, sources, features.V11)
}

// TestThinnedTablesHoldTheSameSteps: what the step times are learned from is what other models are.
func TestThinnedTablesHoldTheSameSteps(t *testing.T) {
	src := Bundled(t)[0]
	o := Quick()
	tables := map[int][2]*rows.Table{}
	for _, stride := range []int{1, 3} {
		src.Stride = stride
		p, err := Make(context.Background(), src, o, features.Gammas())
		if err == nil {
			err = p.Again(context.Background(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
		other, err := p.OtherTable(Blackbox, o)
		if err != nil {
			t.Fatal(err)
		}
		tables[stride] = [2]*rows.Table{p.Beta, other}
	}
	all, thin := tables[1], tables[3]
	if n := thin[0].Kept; n < all[0].Kept/4 || n > all[0].Kept/2 || thin[0].Read != all[0].Read {
		t.Errorf("stride 3: got %d rows of %d", n, all[0].Kept)
	}
	var want []int64
	for _, ns := range all[1].TimeNs {
		if _, kept := slices.BinarySearch(thin[0].TimeNs, ns); kept {
			want = append(want, ns)
		}
	}
	if !slices.Equal(thin[1].TimeNs, want) {
		t.Errorf("blackbox: got %d rows, want the %d of the step times", thin[1].Kept, len(want))
	}
}

// sameWhenStored compares a fit of sources with one of their stored rows.
func sameWhenStored(t *testing.T, sources []Source, spec features.Version) {
	t.Helper()
	o := BareOptions()
	o.Spec, o.Bootstraps = spec, MinBootstraps
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
		if err := StoreRows(context.Background(), taking[i], taskOptions, dir); err != nil {
			t.Fatal(err)
		}
		taking[i] = Source{ID: taking[i].ID, Deployment: taking[i].Deployment, Most: taking[i].Most, Rows: dir}
	}
	got, err := Fit(context.Background(), taking, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if BytesOf(t, got) != BytesOf(t, want) {
		t.Errorf("spec %s: the fit differs", spec)
	}
}
