package export

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/export/exporttest"
	"github.com/blis-train/blis-train/result"
)

// Both autoscalers key a model's numbers by accelerator name: two counts of
// one device must not overwrite each other.
func TestAcceleratorNames(t *testing.T) {
	fit := exporttest.ExampleFit()
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
	for _, f := range []Format{FormatWVA, FormatInferno} {
		_, err := Export(src, f, DefaultOptions())
		if exporttest.CodeOf(err) != duplicateEntry || !strings.Contains(err.Error(), "other knobs") {
			t.Errorf("%s: %v", f, err)
		}
		opt := DefaultOptions()
		opt.Config = "c3"
		mustExport(t, src, f, opt)
		mustExport(t, src, f, forced())
	}
	var none []result.FitConfig
	if got, dup := accelerators(none); len(got) != 0 || len(dup) != 0 {
		t.Errorf("no configurations: %v %v", got, dup)
	}
}
