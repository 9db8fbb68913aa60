package autoscale

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
)

// Both autoscalers key a model's numbers by accelerator name: two counts of
// one device must not overwrite each other.
func TestAcceleratorNames(t *testing.T) {
	fit := testkit.ExampleFit()
	got, dup := accelerators(fit.Configs)
	want := []accelerator{{"H100", 1}, {"2xH100", 1}}
	if len(dup) != 0 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v (%v)", got, want, dup)
	}
	got, _ = accelerators(fit.Configs[1:])
	if got[0] != (accelerator{"H100", 2}) {
		t.Errorf("alone: got %v, want 2 units of H100", got[0])
	}
}

func TestDuplicateEntries(t *testing.T) {
	src := exampleSource()
	other := src.Fit.Configs[0]
	other.Key, other.Label = "c3", "the same with other knobs"
	src.Fit.Configs = append(src.Fit.Configs, other)
	one, two := writers()
	for _, w := range []export.Writer{one, two} {
		opt := optionsOf(t, w)
		_, err := export.Export(src, w, opt)
		if testkit.CodeOf(err) != export.BadEntry || !strings.Contains(err.Error(), "other knobs") {
			t.Errorf("%s: %v", w.Format, err)
		}
		opt.Config = "c3"
		mustExport(t, src, w, opt)
		opt.Config, opt.Force = "", string(export.BadEntry)
		mustExport(t, src, w, opt)
	}
	var none []result.FitConfig
	if got, dup := accelerators(none); len(got) != 0 || len(dup) != 0 {
		t.Errorf("no configurations: %v %v", got, dup)
	}
}
