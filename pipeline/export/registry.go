package export

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/result"
)

// regSet is the registry's CoefficientSet (schema v0.2.2). Field order is the
// order in the file.
type regSet struct {
	Kind         string                `yaml:"kind"`
	Name         string                `yaml:"name"`
	Coefficients []map[string]regEntry `yaml:"coefficients"`
}

type regEntry struct {
	Value      float64     `yaml:"value"`
	Units      string      `yaml:"units"`
	Method     string      `yaml:"method"`
	Fitted     bool        `yaml:"fitted"`
	Scope      regScope    `yaml:"scope,flow"`
	CI95       []float64   `yaml:"ci95,omitempty,flow"`
	Sources    []regSource `yaml:"sources,omitempty"`
	Rationale  string      `yaml:"rationale,omitempty"`
	CopiedFrom string      `yaml:"copied_from,omitempty"`
}

type regScope struct {
	Hardware []string `yaml:"hardware,omitempty"`
	Model    []string `yaml:"model,omitempty"`
	TP       []int64  `yaml:"tp,omitempty"`
}

type regSource struct {
	Kind string `yaml:"kind"`
	Cite string `yaml:"cite"`
	Role string `yaml:"role"`
}

// blisRegistry writes one entry per term of the trained-physics fit, scoped to
// the hardware, models and tp it was fitted on.
func blisRegistry(src Source, opt Options) (*Output, error) {
	alpha, beta, err := blisValues(src.Fit)
	if err != nil {
		return nil, err
	}
	warn, err := settle(append(refusals("alpha", alpha), refusals("beta", beta)...), &opt, forceHint)
	if err != nil {
		return nil, err
	}
	cfgs, err := configs(src, "")
	if err != nil {
		return nil, err
	}
	scope := registryScope(cfgs)
	cite := registryCite(src)
	set := regSet{Kind: "CoefficientSet", Name: registryName(opt.Name)}
	for _, v := range append(beta, alpha...) {
		set.Coefficients = append(set.Coefficients, map[string]regEntry{v.name: registryEntry(v, scope, cite)})
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(set); err != nil {
		return nil, err
	}
	side := newSidecar(src, opt, FormatRegistry, "BLIS registry, CoefficientSet schema v0.2.2 (inference-sim/blis-schemas)")
	side.Values = append(sideValues("beta", beta), sideValues("alpha", alpha)...)
	lines, assumed := regions(cfgs, opt)
	side.Configs, warn = lines, append(warn, assumed...)
	side.Warnings = append(validationWarnings(src), warn...)
	return side.Beside(warn, File{"", buf.Bytes()})
}

func registryName(name string) string {
	if name == "" {
		name = DefaultOptions().Name
	}
	return strings.ToLower(name) + "-trained-physics"
}

// registryEntry picks the method honestly: fitted and measured when the data
// taught the value, not_charged for a zero, copied or assumed otherwise.
func registryEntry(v blisValue, scope regScope, cite string) regEntry {
	e := regEntry{Value: v.value, Units: v.units, Scope: scope}
	switch {
	case v.unused:
		e.Method, e.Rationale = "not_charged", "No batch of the training data has this term."
	case v.value == 0:
		e.Method = "not_charged"
		e.Rationale = "Held at zero: " + v.origin + ". Charged zero, " + v.zero + "."
	case v.copiedFrom != "":
		e.Method, e.CopiedFrom = "copied", v.copiedFrom
		e.Rationale = "No training run has data parallelism, so the term was never exercised; " + v.origin + "."
	case !v.learned:
		e.Method = "assumed"
		e.Rationale = "The training data do not identify this term; the value is the fit's prior (" + v.origin + ")."
	default:
		e.Method, e.Fitted = "measured", true
		e.Sources = []regSource{{Kind: "model", Cite: cite, Role: "primary"}}
		if c := v.ci95; c != nil && c[0] <= v.value && v.value <= c[1] {
			e.CI95 = []float64{c[0], c[1]}
		}
	}
	return e
}

// registryCite names the data exactly: the fit by hash (its sidecar lists every
// input), how many runs, where they came from, and the error on rows that were
// not fitted.
func registryCite(src Source) string {
	runs := 0
	for _, r := range src.Fit.Runs {
		if r.Used {
			runs++
		}
	}
	prov := map[string]bool{}
	for _, c := range src.Fit.Configs {
		if p := c.Deployment.Provenance; p != "" {
			prov[p] = true
		}
	}
	s := fmt.Sprintf("blis-train %s, fit.json sha256 %s, %d runs", src.Fit.ToolVersion, src.FitInput.SHA256, runs)
	if len(prov) > 0 {
		s += " (" + strings.Join(slices.Sorted(maps.Keys(prov)), "; ") + ")"
	}
	if m, err := modelNamed(src.Fit, blisModel); err == nil && m.Holdout != nil && m.Holdout.MAPE != nil {
		s += fmt.Sprintf("; hold-out rows, not fitted: step-time MAPE %.4f over %d rows", *m.Holdout.MAPE, m.Holdout.Rows)
	}
	return s
}

// registryScope is what the fit covers, each dimension sorted.
func registryScope(cfgs []result.FitConfig) regScope {
	hw, model, tp := map[string]bool{}, map[string]bool{}, map[int64]bool{}
	for _, c := range cfgs {
		hw[registryChip(c.Deployment.Hardware.Name)] = true
		model[registryModel(c.Deployment.Model.ID)] = true
		tp[c.Deployment.TP] = true
	}
	s := regScope{Hardware: slices.Sorted(maps.Keys(hw)), Model: slices.Sorted(maps.Keys(model))}
	for n := range tp {
		s.TP = append(s.TP, n)
	}
	slices.Sort(s.TP)
	return s
}

// registryChips are the registry's names of the parts our datasheets call otherwise.
var registryChips = map[string]string{
	"A100-SXM-80GB": "a100-sxm", "H100-SXM-80GB": "h100", "H200-SXM-141GB": "h200",
	"B200-SXM-180GB": "b200", "L40S-48GB": "l40s",
}

// registryChip is the catalog name of a part, in lower case.
func registryChip(name string) string {
	if chip, ok := registryChips[name]; ok {
		return chip
	}
	return strings.ToLower(strings.ReplaceAll(name, " ", "-"))
}

// registryModel is the last element of a Hugging Face id, in lower case.
func registryModel(id string) string {
	return strings.ToLower(id[strings.LastIndex(id, "/")+1:])
}
