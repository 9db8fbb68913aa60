package coeff_test

import (
	"flag"
	"os"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
)

var update = flag.Bool("update", false, "rewrite golden files")

const exampleFile = "testdata/example/coefficients.yaml"

// exampleSet is the roofline at 60 % of the arithmetic and 80 % of the memory
// peak with 12 us per layer: plausible numbers, fitted to nothing. It is of
// version 1.0, whose list is frozen, so that a new term leaves the file alone.
func exampleSet(t *testing.T) *Set {
	t.Helper()
	d, err := deploy.LoadRun("testdata/example")
	if err != nil {
		t.Fatal(err)
	}
	s := &Set{SchemaVersion: SchemaVersion, ToolVersion: "example", Command: "none: an example written by hand", SpecVersion: features.V10,
		Recipe: "frozen", TrainedOn: TrainedOn{Models: []string{d.Model.ID}, Hardware: []string{d.Hardware.Name}, TPs: []int64{1},
			VLLMVersions: []string{"0.15.1"}},
		BetaTarget: Cadence, Gamma: features.DefaultGamma,
		Beta:    features.NewCoefficients(features.BetaFeatures(features.V10)),
		Alpha:   []AlphaModel{{Target: Overhead, Replay: true, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V10))}},
		Configs: []Config{ConfigOf(d, []string{d.Name}, 0)}}
	values := map[string]float64{"prefill_linear_compute": 1.67e6, "prefill_attention": 2.5e6, "decode_weight_load": 1.25e6,
		"decode_attention": 2.5e6, "kv_cache_read": 1.25e6, "fixed_step_overhead": 1.2e6, "batch_utilization": 400, "bias": 250}
	for i := range s.Beta {
		s.Beta[i].Value = values[s.Beta[i].Name]
		s.Beta[i].Identified = Within
	}
	s.Alpha[0].Coefficients[3].Value = 1500
	return s
}

// The example file is written by Save; -update rewrites it.
func TestExampleFileIsCurrent(t *testing.T) {
	text := save(t, exampleSet(t))
	if *update {
		if err := os.WriteFile(exampleFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("%s differs from what Save writes; rerun with -update and read the diff", exampleFile)
	}
	if err := schema(t).Validate(asJSON(t, text)); err != nil {
		t.Error(err)
	}
}
