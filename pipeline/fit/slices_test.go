package fit

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// sliced are the bundled recordings, read from disk in slices of so many steps.
func sliced(t *testing.T, steps, margin int) []Source {
	t.Helper()
	found, err := extract.Discover([]string{repo.Root(t) + "/testdata/traces/real"})
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	if _, err := extract.Run(context.Background(), found, o); err != nil {
		t.Fatal(err)
	}
	sources := Bundled(t)
	for i := range sources {
		dir := table.RunDir(o.Out, sources[i].ID)
		sources[i].Slices = func(atOnce int, visit func(int, *trace.Run) error) error {
			return table.EachSlice(dir, steps, margin, atOnce, visit)
		}
	}
	return sources
}

// TestSlicesGiveTheRowsOfTheWhole: the rows of slices are those of the run bit for bit, but for
// spikes, which each slice tells by its own median.
func TestSlicesGiveTheRowsOfTheWhole(t *testing.T) {
	lag := 1
	for atOnce, steps := range map[int]int{1: 900, 3: 400} {
		cut := sliced(t, steps, 300)
		for i, src := range Bundled(t) {
			o := Quick()
			o.Lag = &lag
			o, err := o.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			o.slicesAtOnce = atOnce
			src.Judge, cut[i].Judge = nil, nil
			whole, err := Make(context.Background(), src, o, features.Gammas())
			if err != nil {
				t.Fatal(err)
			}
			got, err := Make(context.Background(), cut[i], o, features.Gammas())
			if err != nil {
				t.Fatal(err)
			}
			compareTables(t, got.Beta, whole.Beta)
			for _, target := range o.AlphaTargets {
				compareTables(t, got.Alpha[target], whole.Alpha[target])
			}
			if got.Quality.Recorded != whole.Quality.Recorded || got.Quality.Known != whole.Quality.Known || got.Lengths != whole.Lengths {
				t.Errorf("%s: got %+v and %+v, want %+v and %+v", src.ID, got.Quality, got.Lengths, whole.Quality, whole.Lengths)
			}
		}
	}
}

func compareTables(t *testing.T, got, want *rows.Table) {
	t.Helper()
	at := map[int64]int{}
	for i, ns := range want.TimeNs {
		at[ns] = i
	}
	missing := 0
	for i, ns := range got.TimeNs {
		k, ok := at[ns]
		if !ok {
			missing++
			continue
		}
		if !slices.Equal(got.Row(i), want.Row(k)) || got.Y[i] != want.Y[k] || got.HoldOut[i] != want.HoldOut[k] ||
			got.Phase[i] != want.Phase[k] ||
			got.Tag[i] != want.Tag[k] || got.Regime[i] != want.Regime[k] || got.Batch[i] != want.Batch[k] {
			t.Fatalf("%s %s: row %d differs from that of the whole run", got.Run, got.Target, i)
		}
	}
	const spike trace.Code = "outlier"
	if got.Read != want.Read || missing != want.DroppedFor(spike)-got.DroppedFor(spike) || got.Kept != want.Kept+missing {
		t.Errorf("%s %s: got %d rows of %d, %d of them new, want %d of %d", got.Run, got.Target, got.Kept, got.Read, missing, want.Kept,
			want.Read)
	}
}

// TestInterruptedRows: an interrupt while the recording of a run is read ends whatever makes rows of it, also of a run
// that is made slice by slice.
func TestInterruptedRows(t *testing.T) {
	stopped, stop := context.WithCancel(context.Background())
	src := Bundled(t)[0]
	load := src.Load
	src.Load = func() (*trace.Run, error) { stop(); return load() }
	cut := sliced(t, 500, 200)[0]
	o, err := Quick().Resolve()
	if err != nil {
		t.Fatal(err)
	}
	o.slicesAtOnce = 2
	o.Models = []string{Blackbox}
	p := &Run{Src: src}
	for _, c := range []struct {
		name string
		do   func() error // the first one interrupts, the others begin after that
	}{
		{"rows", func() error { _, err := Make(stopped, src, o, features.Gammas()); return err }},
		{"rows of slices", func() error { _, err := Make(stopped, cut, o, features.Gammas()); return err }},
		{"lag", func() error { _, _, err := MeasureLag(stopped, cut, o); return err }},
		{"other models", func() error { _, err := p.otherTables(stopped, o); return err }},
		{"stored rows", func() error { return StoreRows(stopped, cut, o, t.TempDir()) }},
		{"iteration", func() error { _, err := FitIteration(stopped, src, o); return err }},
	} {
		if err := c.do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", c.name, err, context.Canceled)
		}
	}
}
