package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/export/exporttest"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// The registry's own rules (schema v0.2.2): closed vocabularies, a scope, a
// zero only as not_charged, fitted only with measured, the value inside ci95,
// rationale for all but measured, copied_from for copied, (name, scope) unique.
func TestRegistryRules(t *testing.T) {
	out := mustExport(t, exampleSource(), FormatRegistry, forced())
	var doc struct {
		Kind         string                      `yaml:"kind"`
		Name         string                      `yaml:"name"`
		Coefficients []map[string]map[string]any `yaml:"coefficients"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(fileOf(t, out, "")))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind != "CoefficientSet" || doc.Name == "" || len(doc.Coefficients) != 14 {
		t.Fatalf("kind %q name %q, %d entries", doc.Kind, doc.Name, len(doc.Coefficients))
	}
	units := []string{"dimensionless", "us_per_layer", "us_per_request", "us_per_step", "us_per_token"}
	fields := []string{"value", "units", "method", "fitted", "scope", "ci95", "sources", "rationale", "copied_from"}
	seen := map[string]bool{}
	for _, item := range doc.Coefficients {
		if len(item) != 1 {
			t.Fatalf("entry with %d keys", len(item))
		}
		for name, e := range item {
			if seen[name] {
				t.Errorf("%s: twice at one scope", name)
			}
			seen[name] = true
			for k := range e {
				if !slices.Contains(fields, k) {
					t.Errorf("%s: unknown field %q", name, k)
				}
			}
			value := number(t, e["value"])
			method, _ := e["method"].(string)
			fitted, isBool := e["fitted"].(bool)
			if !slices.Contains(units, e["units"].(string)) || !isBool {
				t.Errorf("%s: units %v, fitted %v", name, e["units"], e["fitted"])
			}
			if (value == 0) != (method == "not_charged") || fitted != (method == "measured") {
				t.Errorf("%s: value %g method %s fitted %v", name, value, method, fitted)
			}
			if method != "measured" && e["rationale"] == nil || method == "measured" && e["sources"] == nil ||
				(method == "copied") != (e["copied_from"] != nil) {
				t.Errorf("%s: method %s without its companion", name, method)
			}
			if ci, ok := e["ci95"].([]any); ok && (number(t, ci[0]) > value || number(t, ci[1]) < value) {
				t.Errorf("%s: %g outside %v", name, value, ci)
			}
			scope := e["scope"].(map[string]any)
			if hw := scope["hardware"].([]any)[0]; hw != "h100" {
				t.Errorf("%s: hardware %v, want the catalog's lower-case name", name, hw)
			}
			if len(scope["tp"].([]any)) != 2 {
				t.Errorf("%s: tp %v", name, scope["tp"])
			}
		}
	}
	if !seen["moe_dispatch_alltoall"] || !seen["queueing"] {
		t.Error("registry names missing")
	}
}

func number(t *testing.T, v any) float64 {
	t.Helper()
	switch x := v.(type) {
	case float64:
		return x
	case int:
		return float64(x)
	}
	t.Fatalf("not a number: %v", v)
	return 0
}

// The four parameters of the steady state come back as strings, with what the consumer's formula
// makes of them, in the shape of the consumer's version.
func TestWVASteadyState(t *testing.T) {
	opt := DefaultOptions()
	opt.PromptTokens = 200
	src := exampleSource()
	src.Fit.Configs = src.Fit.Configs[:1]
	src.Steady = nil
	if _, err := Export(src, FormatWVA, opt); exporttest.CodeOf(err) != noCoefficientModel {
		t.Errorf("without a model: %v", err)
	}
	for _, tc := range []struct {
		version string
		class   bool
	}{{"", true}, {"v0.0.2", true}, {"v0.0.5", true}, {"v0.4.1", false}, {"v0.4.2", false}} {
		src = exampleSource()
		src.Fit.Configs = src.Fit.Configs[:1]
		opt.ConsumerVersion = tc.version
		out := mustExport(t, src, FormatWVA, opt)
		data := fileOf(t, out, "")
		var va vaResource
		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)
		if err := dec.Decode(&va); err != nil {
			t.Fatal(err)
		}
		if va.APIVersion != "llmd.ai/v1alpha1" || va.Kind != "VariantAutoscaling" || va.Spec.ModelID != "meta-llama/Llama-3.1-8B" ||
			(va.Spec.SLOClassRef != nil) != tc.class || tc.class != strings.Contains(string(data), "sloClassRef") {
			t.Errorf("%q: resource %+v", tc.version, va)
		}
		acc := va.Spec.Profile.Accelerators[0]
		if d, p := acc.PerfParms.Decode, acc.PerfParms.Prefill; d["alpha"] != "2.5" || d["beta"] != "0.0130208" || p["gamma"] != "31" ||
			p["delta"] != "0.0002" {
			t.Errorf("%q: %v and %v", tc.version, d, p)
		}
		if acc.MaxBatchSize != 64 || acc.AccCount != 1 || acc.Acc != "H100" {
			t.Errorf("accelerator %+v", acc)
		}
		for _, part := range []string{"v0.0.1 to v0.4.2", "mean prompt 200", "+2 / -1 % at 20 %"} {
			if !strings.Contains(string(data), part) {
				t.Errorf("%q: no %q in the comment:\n%s", tc.version, part, data)
			}
		}
		if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool {
			return f.Code == PoorLinearisation && strings.Contains(f.Message, "+20 % in TTFT and +1 % in ITL at 80 %")
		}) {
			t.Errorf("%q: no warning about the load at which the formula is off: %v", tc.version, out.Warnings)
		}
	}
}

func TestInfernoRecoversALine(t *testing.T) {
	src := exampleSource()
	out := mustExport(t, src, FormatInferno, DefaultOptions())
	var doc infernoData
	dec := json.NewDecoder(bytes.NewReader(fileOf(t, out, "")))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Models) != 2 {
		t.Fatalf("%d models", len(doc.Models))
	}
	for i, want := range []infernoParms{{Alpha: 2, Beta: 0.008, Gamma: 0.00002}, {Alpha: 2, Beta: 0.004, Gamma: 0.00002}} {
		got := doc.Models[i].PerfParms
		for _, d := range []float64{got.Alpha/want.Alpha - 1, got.Beta/want.Beta - 1, got.Gamma/want.Gamma - 1} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("model %d: got %+v, want %+v", i, got, want)
			}
		}
	}
	if doc.Models[0].AtTokens != 100 || doc.Models[1].AtTokens != assumedOutput {
		t.Errorf("atTokens %d and %d", doc.Models[0].AtTokens, doc.Models[1].AtTokens)
	}
	if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == assumedLengths }) {
		t.Error("no warning about assumed lengths of the second configuration")
	}
}

// TestInfernoBeyondTraining: mean lengths that no training request reached are refused by name, and the sidecar says where
// the line holds.
func TestInfernoBeyondTraining(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Configs {
		src.Fit.Configs[i].Covered = &result.Covered{Running: 9, PromptTokens: 900, OutputTokens: 300}
	}
	opt := DefaultOptions()
	for _, c := range []struct{ prompt, output float64 }{{901, 100}, {500, 301}} {
		opt.PromptTokens, opt.OutputTokens, opt.Force = c.prompt, c.output, ""
		if _, err := Export(src, FormatInferno, opt); codeIn(err) != beyondTraining {
			t.Errorf("%+v: got %v, want %s", c, err, beyondTraining)
		}
		opt.Force = string(beyondTraining)
		out := mustExport(t, src, FormatInferno, opt)
		if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == beyondTraining }) {
			t.Errorf("%+v: forced without a word", c)
		}
	}
	opt.PromptTokens, opt.OutputTokens, opt.Force = 900, 300, ""
	out := mustExport(t, src, FormatInferno, opt)
	var side Sidecar
	if err := json.Unmarshal(fileOf(t, out, SidecarSuffix), &side); err != nil {
		t.Fatal(err)
	}
	c := side.Configs[0]
	if v := c.ValidFor; v == nil || v.Requests != [2]int64{1, c.Seats} || v.ContextTokens != [2]int64{263, 2100} || v.LongestPrompt != 900 ||
		v.LongestOutput != 300 || v.MostRunning != 9 || v.ChunkTokens[1] != 900 {
		t.Errorf("got %+v", v)
	}
}

func codeIn(err error) trace.Code {
	var e *trace.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// The active-set search never returns a negative slope and finds the constrained optimum.
func TestFitLineNonNegative(t *testing.T) {
	x := [][]float64{{1, 1}, {1, 2}, {1, 4}, {1, 8}}
	y := []float64{10, 9, 8, 7}
	l := fitLine(x, y)
	if l.coef[1] != 0 || l.coef[0] < 7 || l.coef[0] > 10 || l.maxErr == 0 {
		t.Errorf("falling data: %+v, want a constant", l)
	}
	var sse func(c float64) float64 = func(c float64) (s float64) {
		for _, v := range y {
			s += (1 - c/v) * (1 - c/v)
		}
		return
	}
	if sse(l.coef[0]) > sse(l.coef[0]*1.001) || sse(l.coef[0]) > sse(l.coef[0]*0.999) {
		t.Error("not the minimum")
	}
}

func TestValidationIsSaid(t *testing.T) {
	src := exampleSource()
	no := false
	src.Validation = &result.Validation{Verdict: coeff.VerdictFail, Gates: []result.Gate{
		{Gate: coeff.Gate{Name: "ks_itl", Scope: "run-a", Pass: &no}}}}
	out := mustExport(t, src, FormatInferno, DefaultOptions())
	if out.Warnings[0].Code != failedGates || !strings.Contains(out.Warnings[0].Message, "ks_itl (run-a)") {
		t.Errorf("got %v", out.Warnings[0])
	}
}

// A hardware name may hold a line end; it must not become a line of YAML.
func TestWVACommentsCannotAddKeys(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Configs {
		src.Fit.Configs[i].Label = "x\nspec: {modelID: forged}\u0085kind: Forged\u2028a: 1"
		src.Fit.Configs[i].Deployment.Hardware.Name = "H100\nkind: Forged"
	}
	out, err := Export(src, FormatWVA, Options{Force: string(duplicateEntry), Name: "n", SLOClassName: "s"})
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(out.Files[0].Data))
	for {
		var va map[string]any
		if err := dec.Decode(&va); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if va["kind"] != "VariantAutoscaling" || len(va) != 4 || va["spec"].(map[string]any)["modelID"] == "forged" {
			t.Errorf("got %v", va)
		}
	}
}

// The command for BLIS is pasted into a shell: a name stays one word.
func TestBLISCommandQuotesNames(t *testing.T) {
	d := exporttest.ExampleFit().Configs[0].Deployment
	d.Model.ID, d.Hardware.Name = "a; touch x", "$(id)"
	if got := defaultsCommand(d, ""); !strings.Contains(got, "--model 'a; touch x' ") || !strings.Contains(got, "--hardware '$(id)' ") {
		t.Errorf("got %s", got)
	}
}

// wvaFields are the fields that a version's own types have, of those that carry parameters, every one of them required there:
// api/v1alpha1/variantautoscaling_types.go of workload-variant-autoscaler at the commit.
var wvaFields = []struct {
	version, commit string
	fields          []string
}{
	{"v0.0.2", "b8295467c42d084238393a4845b096c47aed7171", append([]string{"spec.sloClassRef.key", "spec.sloClassRef.name"}, wvaCommon...)},
	{"v0.4.2", "ce3959806d1063d7ada71e64ce2a130a4107545d", wvaCommon}, // 0.4.1 and 0.4.2
}

var wvaCommon = []string{"apiVersion", "kind", "metadata.labels.inference.optimization/acceleratorName", "metadata.name", "spec.modelID",
	"spec.modelProfile.accelerators[].acc", "spec.modelProfile.accelerators[].accCount", "spec.modelProfile.accelerators[].maxBatchSize",
	"spec.modelProfile.accelerators[].perfParms.decodeParms.alpha", "spec.modelProfile.accelerators[].perfParms.decodeParms.beta",
	"spec.modelProfile.accelerators[].perfParms.prefillParms.delta", "spec.modelProfile.accelerators[].perfParms.prefillParms.gamma"}

// TestWVAFields: the file of each version has that version's fields, no other, and parameters as strings.
func TestWVAFields(t *testing.T) {
	for _, of := range wvaFields {
		opt := DefaultOptions()
		opt.ConsumerVersion = of.version
		out := mustExport(t, exampleSource(), FormatWVA, opt)
		var doc any
		if err := yaml.Unmarshal(fileOf(t, out, ""), &doc); err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		leaves(doc, "", got)
		fields := slices.Sorted(slices.Values(of.fields))
		if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, fields) {
			t.Errorf("%s (%s): fields %q, want %q", of.version, of.commit, have, fields)
		}
		for name, v := range got {
			if _, text := v.(string); strings.Contains(name, "Parms.") && !text {
				t.Errorf("%s: %s is %v, want a string", of.version, name, v)
			}
		}
	}
}

// leaves are the values of a document by their path; those of lists share one.
func leaves(v any, at string, out map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			leaves(x, strings.TrimPrefix(at+"."+k, "."), out)
		}
	case []any:
		for _, x := range v {
			leaves(x, at+"[]", out)
		}
	default:
		out[at] = v
	}
}
