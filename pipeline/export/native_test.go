package export

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Everything of the artifact is there, in order, and passes the loader's check.
func TestNative(t *testing.T) {
	yes := true
	val := &result.Validation{Gates: []result.Gate{
		{Gate: coeff.Gate{Name: "beta_mape", Scope: "c1", Value: testkit.Ptr(0.05), Op: "<", Threshold: 0.15, Pass: &yes}},
		{Gate: coeff.Gate{Name: "ks_ttft", Scope: "run-a", Op: "<", Threshold: 0.15, Note: "insufficient data"}},
	}}
	fit := testkit.PhysicsFit()
	twice := trace.Findingf("lag_assumed", "run-c: lag 1 assumed")
	fit.Warnings, fit.Beta.Warnings = []trace.Finding{twice}, []trace.Finding{twice, trace.Findingf("drift", "x")}
	set, err := Native(fit, val)
	if err != nil {
		t.Fatal(err)
	}
	if set.SpecVersion != features.V11 || set.BetaTarget != "cadence" || set.Command != "fit --seed 1" || set.Inputs[0].SHA256 != "ab" {
		t.Errorf("head: %s %s %q %v", set.SpecVersion, set.BetaTarget, set.Command, set.Inputs)
	}
	want := coeff.TrainedOn{Models: []string{"meta-llama/Llama-3.1-8B"}, Hardware: []string{"H100-SXM-80GB"}, TPs: []int64{1, 2},
		VLLMVersions: []string{"0.15.1"},
		Date:         "2026-02-17", Samples: 80, Lambda: 1e-4, Gamma: 0.3, HoldOutRMSE: map[string]float64{"cadence": 321.5}}
	if d := cmp.Diff(want, set.TrainedOn); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"egress", "overhead"}, set.AlphaTargets()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]coeff.RunLag{"run-a": {Measured: true}, "run-c": {Lag: 1}}, set.PipelineLag); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]float64{"a": 1.1, "b": 0.9}, set.HardwareFactors); d != "" {
		t.Error(d)
	}
	if len(set.Gates) != 2 || set.Gates[1].Pass != nil || set.Gates[0].Threshold != 0.15 {
		t.Errorf("gates %+v", set.Gates)
	}
	if len(set.Warnings) != 2 {
		t.Errorf("warnings %v: want each once", set.Warnings)
	}
	if len(set.Configs) != 2 || set.Configs[0].Samples != 75 || set.Configs[0].Deployment.Name != "" {
		t.Errorf("configs %+v", set.Configs)
	}
}

// Writing and reading back is exact, and the same set gives the same bytes.
func TestNativeRoundTrip(t *testing.T) {
	set, err := Native(testkit.PhysicsFit(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	if err := set.Save(&first); err != nil {
		t.Fatal(err)
	}
	back, err := coeff.Load(bytes.NewReader(first.Bytes()), "c.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(set, back, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if err := back.Save(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("saved twice, %d and %d bytes differ (%v)", first.Len(), second.Len(), err)
	}
}

// A target that contains a wait is never marked for replay, whatever the fit says.
func TestNativeReplay(t *testing.T) {
	fit := testkit.PhysicsFit()
	fit.Alpha[1].Target, fit.Alpha[1].Replay = "admission", true
	set, err := Native(fit, nil)
	if err != nil {
		t.Fatal(err)
	}
	if set.AlphaModel("admission").Replay || !set.AlphaModel("overhead").Replay {
		t.Error("replay marks follow the fit, not the target")
	}
}

// Names out of order, a wrong length, NaN and an unknown version cannot be written, each with its
// own message.
func TestNativeRefuses(t *testing.T) {
	messages := map[string]bool{}
	for name, edit := range map[string]func(*result.Fit){
		"order":   func(f *result.Fit) { c := f.Beta.Coefficients; c[0], c[1] = c[1], c[0] },
		"length":  func(f *result.Fit) { f.Beta.Coefficients = f.Beta.Coefficients[1:] },
		"NaN":     func(f *result.Fit) { f.Beta.Coefficients[3].Value = math.NaN() },
		"version": func(f *result.Fit) { f.Beta.SpecVersion = "2.0" },
	} {
		fit := testkit.PhysicsFit()
		edit(fit)
		_, err := Native(fit, nil)
		if testkit.CodeOf(err) == "" || messages[err.Error()] {
			t.Errorf("%s: got %v, want an error with a code and a message of its own", name, err)
			continue
		}
		messages[err.Error()] = true
	}
}
