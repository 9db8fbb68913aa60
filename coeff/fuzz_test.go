package coeff_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Whatever text is given, Load answers with a set that saves and loads to
// itself, or with one error that has a code.
func FuzzCoefficients(f *testing.F) {
	text := repo.Read(f, "testdata", "example", "coefficients.yaml")
	f.Add(string(text))
	zeros := func(n int) string { return "[" + strings.Repeat("0,", n-1) + "0]" }
	f.Add("physics_coefficients: {spec_version: \"1.0\", alpha_coefficients: " + zeros(11) + ", beta_coefficients: " + zeros(16) + "}")
	f.Add("a: &x [*x]")
	f.Add(strings.Repeat("a: 1\n", 30))
	f.Fuzz(func(t *testing.T, text string) {
		set, err := coeff.Load(strings.NewReader(text), "f", features.CheckSet)
		if err != nil {
			var placed *trace.SyntaxError
			var coded *trace.Error
			if !(errors.As(err, &placed) && placed.Code != "" || errors.As(err, &coded) && coded.Code != "") {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		var first, second bytes.Buffer
		if err := set.Save(&first); err != nil {
			t.Fatalf("a loaded set does not save: %v", err)
		}
		again, err := coeff.Load(bytes.NewReader(first.Bytes()), "f", features.CheckSet)
		if err != nil {
			t.Fatalf("a saved set does not load: %v\n%s", err, first.String())
		}
		if err := again.Save(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("other bytes after loading (%v)", err)
		}
	})
}

// The loader was quadratic: half a megabyte of keys took it a minute.
func TestManyKeysInACoefficientFile(t *testing.T) {
	lags := "physics_coefficients:\n  pipeline_lag:\n" + strings.Repeat("    r: {lag: 0, measured: true}\n", 20_000)
	for _, text := range []string{strings.Repeat("a: 1\n", 100_000), lags} {
		if _, err := coeff.Load(strings.NewReader(text), "f", features.CheckSet); trace.CodeOf(err) != coeff.BadFile ||
			!strings.Contains(err.Error(), "keys") {
			t.Errorf("got %v", err)
		}
	}
}

// One file is one set: what follows it is not read over.
func TestTrailingDocumentsAreRefused(t *testing.T) {
	text := repo.Read(t, "testdata", "example", "coefficients.yaml")
	for _, more := range []string{"\n---\nschema_version: 2\n", "\n...\nrubbish: [\n", "\nschema_version: \"1\"\n"} {
		if _, err := coeff.Load(strings.NewReader(string(text)+more), "f", features.CheckSet); err == nil {
			t.Errorf("%q behind the set: no error", more)
		}
	}
}

var update = flag.Bool("update", false, "rewrite golden files")

const exampleFile = "testdata/example/coefficients.yaml"

// exampleSet is the roofline at 60 % of the arithmetic and 80 % of the memory
// peak with 12 us per layer: plausible numbers, fitted to nothing. It is of
// version 1.0, whose list is frozen, so that a new term leaves the file alone.
func exampleSet(t *testing.T) *coeff.Set {
	t.Helper()
	d, err := deploy.LoadRun("testdata/example")
	if err != nil {
		t.Fatal(err)
	}
	s := &coeff.Set{SchemaVersion: coeff.SchemaVersion, ToolVersion: "example", Command: "none: an example written by hand",
		SpecVersion: features.V10,
		Recipe:      "frozen", TrainedOn: coeff.TrainedOn{Models: []string{d.Model.ID}, Hardware: []string{d.Hardware.Name}, TPs: []int64{1},
			VLLMVersions: []string{"0.15.1"}},
		BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma,
		Beta: features.NewCoefficients(features.BetaFeatures(features.V10)),
		Alpha: []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true,
			Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V10))}},
		Configs: []coeff.Config{coeff.ConfigOf(d, []string{d.Name}, 0)}}
	values := map[string]float64{"prefill_linear_compute": 1.67e6, "prefill_attention": 2.5e6, "decode_weight_load": 1.25e6,
		"decode_attention": 2.5e6, "kv_cache_read": 1.25e6, "fixed_step_overhead": 1.2e6, "batch_utilization": 400, "bias": 250}
	for i := range s.Beta {
		s.Beta[i].Value = values[s.Beta[i].Name]
		s.Beta[i].Identified = coeff.Within
	}
	s.Alpha[0].Coefficients[3].Value = 1500
	return s
}

// The example file is written by Save; -update rewrites it.
func TestExampleFileIsCurrent(t *testing.T) {
	text := save(t, exampleSet(t))
	if *update {
		repo.Write(t, text, exampleFile)
	}
	got := repo.Read(t, exampleFile)
	if string(got) != text {
		t.Errorf("%s differs from what Save writes; rerun with -update and read the diff", exampleFile)
	}
	if err := schema(t).Validate(asJSON(t, text)); err != nil {
		t.Error(err)
	}
}

// A simulator loads a coefficient file once, binds it to its deployment, and
// asks for the time of every batch it forms. Inputs, features and rounding are
// the trainer's own functions, so the two cannot drift apart.
func ExampleLoad() {
	file, err := os.Open("testdata/example/coefficients.yaml")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	set, err := coeff.Load(file, file.Name(), features.CheckSet)
	if err != nil {
		log.Fatal(err)
	}
	deployment, err := deploy.LoadRun("testdata/example")
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range set.Outside(deployment) {
		fmt.Println("warning:", finding.Message)
	}
	space, err := features.New(set.SpecVersion, deployment)
	if err != nil {
		log.Fatal(err)
	}
	predictor := features.BetaPredictor(set)
	x := make([]float64, len(space.BetaFeatures()))

	// one engine step: a 512-token prefill beside two decodes
	batch := []trace.Chunk{{Prompt: 512, New: 512}, {Computed: 900, Prompt: 800, New: 1}, {Computed: 70, Prompt: 64, New: 1}}
	step := space.Sum(batch)
	hits, err := space.Beta(&step, x)
	if err != nil {
		log.Fatal(err)
	}
	us, err := predictor.Predict(x, hits)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("step:", math.Floor(us+0.5), "us")
	for _, finding := range predictor.Warnings() {
		fmt.Println("warning:", finding.Message)
	}
	// Output:
	// step: 21059 us
}
