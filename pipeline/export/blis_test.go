package export

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/pipeline/export/exporttest"
	"github.com/blis-train/blis-train/pipeline/features/basis"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func forced() Options { o := DefaultOptions(); o.Force = true; return o }

// The positions written are the positions the fit solves for.
func TestBLISTermsAreTheBasis(t *testing.T) {
	if len(blisBeta) != len(basis.TrainedPhysicsBeta) || len(blisAlpha) != len(basis.TrainedPhysicsAlpha) {
		t.Fatalf("got %d beta and %d alpha, basis has %d and %d", len(blisBeta), len(blisAlpha), len(basis.TrainedPhysicsBeta),
			len(basis.TrainedPhysicsAlpha))
	}
	for i, term := range blisBeta {
		if want := basis.TrainedPhysicsBeta[i]; term.name != want.Name || term.units != want.Unit {
			t.Errorf("position %d: got %s %s, basis has %s %s", i, term.name, term.units, want.Name, want.Unit)
		}
	}
	if blisBeta[blisAllReduce].name != "tp_allreduce_attention" || blisBeta[blisMoEDispatch].name != "moe_dispatch_alltoall" {
		t.Error("the named positions moved")
	}
}

// The bare file holds version and coefficients, 3 and 11 of them, and a decoder as strict as BLIS's
// reads back exactly the fitted numbers.
func TestBLISDefaultsRoundTrip(t *testing.T) {
	src := exampleSource()
	out := mustExport(t, src, FormatBLIS, forced())
	var doc struct {
		Version string `yaml:"version"`
		Coeffs  struct {
			Alpha []float64 `yaml:"alpha_coeffs"`
			Beta  []float64 `yaml:"beta_coeffs"`
		} `yaml:"trained_physics_coefficients"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(fileOf(t, out, "")))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version == "" || !slices.Equal(doc.Coeffs.Alpha, []float64{1800.25, 250.5, 0}) {
		t.Errorf("version %q alpha %v: want a0 from overhead, a1 from egress, a2 0", doc.Version, doc.Coeffs.Alpha)
	}
	want := []float64{1.4, 0.2, 1.25, 0.5, 30.5, 4.25, 120.125, 0, 0.75, 1.5, 0.5}
	if !slices.Equal(doc.Coeffs.Beta, want) {
		t.Errorf("beta %v, want %v (the last copied from the all-reduce)", doc.Coeffs.Beta, want)
	}
	var side Sidecar
	if err := result.Read(bytes.NewReader(fileOf(t, out, SidecarSuffix)), &side); err != nil {
		t.Fatal(err)
	}
	if len(side.Values) != 14 || len(side.Configs) != 2 || side.Inputs[0].SHA256 != "cafe" || side.Holdout == nil {
		t.Errorf("sidecar: %d values, %d configs, inputs %v", len(side.Values), len(side.Configs), side.Inputs)
	}
	for _, c := range side.Configs {
		if !strings.Contains(c.CommandLine, "--alpha-coeffs 1800.25,250.5,0 --beta-coeffs 1.4,0.2,") ||
			!strings.Contains(c.CommandLine, "--total-kv-blocks 4000") {
			t.Errorf("%s: command line %q", c.Label, c.CommandLine)
		}
	}
}

// Negative, non-finite and unlearned values are refused, each with its own code and with what it
// does inside BLIS; --force writes them with warnings.
func TestBLISDefaultsRefusals(t *testing.T) {
	learnAll := func(fit *result.Fit) {
		for i := range fit.Models[1].Coefficients {
			c := &fit.Models[1].Coefficients[i]
			c.Identified, c.NotLearned = "within", false
			if c.Value == 0 {
				c.Value = 0.5
			}
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*result.Fit)
		want trace.Code
		says string
	}{
		{"nothing wrong", func(*result.Fit) {}, "", ""},
		{"negative", func(f *result.Fit) { f.Models[1].Coefficients[0].Value = -1 }, negativeValue, "stops at start-up"},
		{"not finite", func(f *result.Fit) { f.Models[1].Coefficients[4].Value = math.NaN() }, nonFiniteValue, "stops at start-up"},
		{"zero", func(f *result.Fit) { f.Models[1].Coefficients[9].Value = 0 }, unlearnedValue, "ITL stops growing with context"},
		{"prior only", func(f *result.Fit) { f.Models[1].Coefficients[2].Identified = "prior-only" }, unlearnedValue, "as if it were measured"},
		{"no overhead", func(f *result.Fit) { f.Alpha = f.Alpha[:1] }, noAlphaConstant, "TTFT lacks the API overhead"},
		{"a waiting target", func(f *result.Fit) { f.Alpha[1].Replay = false }, waitingAlpha, "may not be added as a delay"},
		{"no model", func(f *result.Fit) { f.Models = f.Models[:1] }, noSuchModel, "blackbox"},
		{"wrong order", func(f *result.Fit) { c := f.Models[1].Coefficients; c[0], c[1] = c[1], c[0] }, badModelTerms, "prefill_compute"},
		{"too short", func(f *result.Fit) { f.Models[1].Coefficients = f.Models[1].Coefficients[:10] }, badModelTerms, "want 11"},
	} {
		src := exampleSource()
		learnAll(src.Fit)
		tc.edit(src.Fit)
		_, err := Export(src, FormatBLIS, DefaultOptions())
		if got := exporttest.CodeOf(err); got != tc.want {
			t.Errorf("%s: got code %q (%v), want %q", tc.name, got, err, tc.want)
			continue
		}
		if err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %q does not say %q", tc.name, err, tc.says)
		}
		if tc.want == negativeValue || tc.want == unlearnedValue || tc.want == nonFiniteValue || tc.want == noAlphaConstant {
			out, err := Export(src, FormatBLIS, forced())
			if err != nil || !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == tc.want }) {
				t.Errorf("%s with --force: err %v, want a warning with the same code", tc.name, err)
			}
		}
	}
}

// The overhead and egress targets are the only sources of alphas (spec#delay-targets).
func TestBLISAlphaNeverFromQueue(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Alpha {
		src.Fit.Alpha[i].Target, src.Fit.Alpha[i].Name = "queue", "queue"
	}
	_, err := Export(src, FormatBLIS, DefaultOptions())
	if exporttest.CodeOf(err) != noAlphaConstant {
		t.Errorf("got %v, want %s", err, noAlphaConstant)
	}
}

func TestExportIsDeterministic(t *testing.T) {
	for _, f := range Formats[1:] {
		a, b := mustExport(t, exampleSource(), f, forced()), mustExport(t, exampleSource(), f, forced())
		for i := range a.Files {
			if !bytes.Equal(a.Files[i].Data, b.Files[i].Data) {
				t.Errorf("%s: file %q differs between two exports", f, a.Files[i].Suffix)
			}
		}
	}
}

func TestUnknownFormatAndConfiguration(t *testing.T) {
	if _, err := ParseFormat("toml"); exporttest.CodeOf(err) != unknownFormat {
		t.Errorf("format: %v", err)
	}
	opt := forced()
	opt.Config = "nope"
	if _, err := Export(exampleSource(), FormatWVA, opt); exporttest.CodeOf(err) != noConfiguration {
		t.Errorf("configuration: %v", err)
	}
	opt.PromptTokens = -1
	if _, err := Export(exampleSource(), FormatWVA, opt); err == nil || !strings.Contains(err.Error(), "--prompt-tokens") {
		t.Errorf("lengths: %v", err)
	}
}
