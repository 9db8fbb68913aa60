package export

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
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
