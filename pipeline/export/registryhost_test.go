package export

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"gopkg.in/yaml.v3"
)

// What the registry's validator takes, schema v0.2.2 (blis-schemas vocab/vocab.go and
// spec/coefficient/validate.go, blis-registry docs/reference/format.md@81bd9a6).
var (
	registryFields  = []string{"value", "units", "method", "fitted", "scope", "ci95", "sources", "rationale", "copied_from"}
	registryUnits   = []string{"dimensionless", "us_per_layer", "us_per_request", "us_per_step", "us_per_token"}
	registryMethods = []string{"measured", "vendor_spec", "literature", "copied", "assumed", "not_charged"}
	registryKinds   = []string{"discussion", "publication", "datasheet", "model", "vendor_doc"}
	registryRoles   = []string{"primary", "supporting", "upper_bound"}
)

// hostSource is a fit whose egress and overhead were learned, the overhead with a slope.
func hostSource() Source {
	src := exampleSource()
	term := func(name string, value float64) result.Coefficient {
		return result.Coefficient{Coefficient: coeff.Coefficient{Name: name, Value: value, Identified: coeff.Within,
			CI95: &[2]float64{0.5 * value, 1.5 * value}}}
	}
	src.Fit.Alpha[0].Coefficients = []result.Coefficient{term("base_bias", 200)}
	src.Fit.Alpha[1].Coefficients = []result.Coefficient{term("admission_compute", 40)}
	src.OverheadUs = func(d deploy.Deployment, tokens int64) (float64, error) {
		return 1500 + 0.4*float64(tokens)/float64(d.TP), nil
	}
	return src
}

// TestHostRegistry: egress and the slope of overhead, measured, each with interval, source and
// recordings, in a file that the registry's rules take.
func TestHostRegistry(t *testing.T) {
	out := mustExport(t, hostSource(), FormatRegistryHost, Options{})
	var doc struct {
		Kind         string                `yaml:"kind"`
		Name         string                `yaml:"name"`
		Coefficients []map[string]regEntry `yaml:"coefficients"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(fileOf(t, out, "")))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind != "CoefficientSet" || doc.Name != "cost-model-host-overheads" || len(doc.Coefficients) != 3 {
		t.Fatalf("kind %q, name %q, %d entries", doc.Kind, doc.Name, len(doc.Coefficients))
	}
	want := []struct {
		name          string
		value, lo, hi float64
		units         string
		tp            []int64
	}{{"host_completion", 250.5, 150.5, 350.5, "us_per_request", []int64{1, 2}}, {"host_admission_per_token", 0.4, 0.2, 0.6, "us_per_token",
		[]int64{1}}, {"host_admission_per_token", 0.2, 0.1, 0.3, "us_per_token", []int64{2}}}
	for i, w := range want {
		e, ok := doc.Coefficients[i][w.name]
		if !ok || len(e.CI95) != 2 || len(e.Sources) != 1 {
			t.Fatalf("entry %d: %+v", i, doc.Coefficients[i])
		}
		for _, d := range []float64{e.Value / w.value, e.CI95[0] / w.lo, e.CI95[1] / w.hi} {
			if d < 1-1e-9 || d > 1+1e-9 {
				t.Errorf("%s: %g in %v, want %g in %g to %g", w.name, e.Value, e.CI95, w.value, w.lo, w.hi)
			}
		}
		s := e.Sources[0]
		if e.Units != w.units || !slices.Contains(registryUnits, e.Units) || e.Method != "measured" ||
			!slices.Contains(registryMethods, e.Method) || !e.Fitted ||
			!slices.Contains(registryKinds, s.Kind) || !slices.Contains(registryRoles, s.Role) ||
			!slices.Equal(e.Scope.TP, w.tp) || !slices.Equal(e.Scope.Hardware, []string{"h100"}) {
			t.Errorf("%s: %+v", w.name, e)
		}
		if !strings.Contains(s.Cite, "fit.json sha256 cafe") || !strings.Contains(s.Cite, "recordings run-") {
			t.Errorf("%s: cites %q", w.name, s.Cite)
		}
	}
	var raw struct {
		Coefficients []map[string]map[string]any `yaml:"coefficients"`
	}
	if err := yaml.Unmarshal(fileOf(t, out, ""), &raw); err != nil {
		t.Fatal(err)
	}
	for _, entry := range raw.Coefficients {
		for name, fields := range entry {
			for k := range fields {
				if !slices.Contains(registryFields, k) {
					t.Errorf("%s: field %q is none of the schema's", name, k)
				}
			}
		}
	}
}

// TestHostRegistryRefuses parts outside the catalog and fits without egress; a flat overhead leaves
// its entry out and says so.
func TestHostRegistryRefuses(t *testing.T) {
	src := hostSource()
	src.Fit.Configs[0].Deployment.Hardware.Name = "xeon"
	if _, err := Export(src, writerOf(FormatRegistryHost), Options{}); trace.CodeOf(err) != BadEntry {
		t.Errorf("a part outside the catalog: %v", err)
	}
	src = hostSource()
	src.Fit.Alpha = src.Fit.Alpha[1:]
	if _, err := Export(src, writerOf(FormatRegistryHost), Options{}); trace.CodeOf(err) != unlearnedValue {
		t.Errorf("without egress: %v", err)
	}
	src = hostSource()
	src.Fit.Alpha[1].Coefficients[0].Value = 0
	out := mustExport(t, src, FormatRegistryHost, Options{})
	if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool {
		return f.Code == unlearnedValue && strings.Contains(f.Message, "does not grow")
	}) || bytes.Contains(fileOf(t, out, ""), []byte("host_admission")) {
		t.Errorf("a flat overhead: %v", out.Warnings)
	}
}

// planted is BLIS's own model with known coefficients.
type planted struct {
	b    *features.TrainedPhysics
	beta []float64
}

func (p planted) StepUs(batch []trace.Chunk) (float64, error) {
	s := features.BasisSum(batch)
	return p.b.StepUs(&s, p.beta, make([]float64, len(features.TrainedPhysicsBeta))), nil
}

func target(t *testing.T, tp int64, beta []float64) Target {
	t.Helper()
	d := testkit.DeploymentOf(tp)
	b, err := features.NewTrainedPhysics(&d)
	if err != nil {
		t.Fatal(err)
	}
	return Target{Deployment: &d, Model: planted{b, beta}, Region: Region{Prompt: 400, Output: 120, Seats: 64, Budget: 2048}}
}

// TestProjectionOfItself: a model that has BLIS's terms is held to its last digits on batches that
// were not fitted, and each deployment says which terms it never has.
func TestProjectionOfItself(t *testing.T) {
	beta := []float64{1.4, 0.9, 1.2, 0.75, 30, 4.4, 126, 0, 0.6, 1.9, 0}
	for _, tp := range []int64{1, 2} {
		got, err := OnBLIS(target(t, tp, beta))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got[0].Errors {
			if !(e.MAPE < 1e-4) || e.Steps < 20 {
				t.Errorf("tp %d, %q: %d steps, mean error %g, want at most 1e-4", tp, e.Kind, e.Steps, e.MAPE)
			}
		}
		want := []bool{true, true, true, tp > 1, true, true, true, false, true, true, false}
		if !slices.Equal(got[0].Used, want) {
			t.Errorf("tp %d: used %v, want %v", tp, got[0].Used, want)
		}
	}
}

// TestProjectionIsOfOneDeployment: where two deployments need different coefficients a joint set
// misses both, and their own do not.
func TestProjectionIsOfOneDeployment(t *testing.T) {
	slow, fast := []float64{1.4, 0.9, 2.4, 0.75, 60, 4.4, 126, 0, 0.6, 3.8, 0}, []float64{1.4, 0.9, 1.2, 0.75, 30, 4.4, 126, 0, 0.6, 1.9, 0}
	a, b := target(t, 1, slow), target(t, 2, fast)
	joint, err := OnBLIS(a, b)
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range []Target{a, b} {
		own, err := OnBLIS(one)
		if err != nil {
			t.Fatal(err)
		}
		if own[0].Errors[0].MAPE > 1e-4 || joint[i].Errors[0].MAPE < 0.02 {
			t.Errorf("target %d: own error %g, joint %g", i, own[0].Errors[0].MAPE, joint[i].Errors[0].MAPE)
		}
	}
}

// TestDraws: batches respect seats and token budget, and are of their kind.
func TestDraws(t *testing.T) {
	r := Region{Prompt: 3000, Output: 200, Seats: 100, Budget: 2048}
	largest := 0
	for kind, batches := range Draws(r) {
		for _, batch := range batches {
			var tokens int64
			decodes := 0
			for _, c := range batch {
				tokens += c.New
				if c.IsDecode() {
					decodes++
				}
				if c.New < 1 || c.Computed < 0 || c.Computed < c.Prompt && c.Computed+c.New > c.Prompt {
					t.Fatalf("%s: chunk %+v", kind, c)
				}
			}
			if tokens > r.Budget || len(batch) == 0 || kind == decode && decodes < len(batch) || kind == prefill && decodes > 0 {
				t.Fatalf("%s: %d tokens in %d chunks, %d decodes", kind, tokens, len(batch), decodes)
			}
			largest = max(largest, len(batch))
		}
	}
	if largest < 100 || largest > 101 {
		t.Errorf("largest batch %d, want all 100 seats", largest)
	}
}

type constant float64

func (c constant) StepUs([]trace.Chunk) (float64, error) { return float64(c), nil }

func TestRefusals(t *testing.T) {
	good := target(t, 1, make([]float64, 11))
	for name, edit := range map[string]func(*Target){
		"no lengths": func(g *Target) { g.Region.Prompt = 0 }, "not a number": func(g *Target) { g.Region.Output = math.NaN() },
		"no seats": func(g *Target) { g.Region.Seats = 0 }, "no time": func(g *Target) { g.Model = constant(0) },
		"no heads": func(g *Target) { d := deploy.Deployment{}; g.Deployment = &d },
	} {
		bad := good
		edit(&bad)
		_, err := OnBLIS(bad)
		if trace.CodeOf(err) == "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
