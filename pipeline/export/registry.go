package export

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// regSet is the registry's CoefficientSet (schema v0.2.2). Field order is the
// order in the file.
type regSet struct {
	Kind         string                `yaml:"kind"`
	Name         string                `yaml:"name"`
	Coefficients []map[string]regEntry `yaml:"coefficients"`
}

// file is the set as YAML.
func (s *regSet) file() ([]byte, error) {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	err := enc.Encode(s)
	return buf.Bytes(), err
}

type regEntry struct {
	Value     float64     `yaml:"value"`
	Units     string      `yaml:"units"`
	Method    string      `yaml:"method"`
	Fitted    bool        `yaml:"fitted"`
	Scope     regScope    `yaml:"scope,flow"`
	CI95      []float64   `yaml:"ci95,omitempty,flow"`
	Sources   []regSource `yaml:"sources,omitempty"`
	Rationale string      `yaml:"rationale,omitempty"`
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

// registryCite names the data exactly: the fit by hash (its sidecar lists every
// input), how many runs, where they came from, and the error on rows that were
// not fitted.
func registryCite(src Source) string {
	runs := stat.Count(src.Fit.Runs, func(r result.FitRun) bool { return r.Used })
	prov := map[string]bool{}
	for _, c := range src.Fit.Configs {
		if p := c.Deployment.Provenance; p != "" {
			prov[p] = true
		}
	}
	s := fmt.Sprintf("blis-train %s, fit.json sha256 %s, %d runs", src.Fit.ToolVersion, src.FitInput.SHA256, runs)
	if src.Library != "" {
		return fmt.Sprintf("blis-train %s, coefficients of its library %s", src.Fit.ToolVersion, src.Library)
	}
	if len(prov) > 0 {
		s += " (" + strings.Join(slices.Sorted(maps.Keys(prov)), "; ") + ")"
	}
	if m := modelNamed(src.Fit, blisModel); m != nil && m.Holdout != nil && m.Holdout.MAPE != nil {
		s += fmt.Sprintf("; hold-out rows, not fitted: step-time MAPE %.4f over %d rows", *m.Holdout.MAPE, m.Holdout.Rows)
	}
	return s
}

// registryScope is what the fit covers, each dimension sorted.
func registryScope(cfgs []result.FitConfig) regScope {
	hw, model, tp := map[string]bool{}, map[string]bool{}, map[int64]bool{}
	for _, c := range cfgs {
		hw[partOf(c.Deployment.Hardware.Name)] = true
		model[deploy.ModelName(c.Deployment.Model.ID)] = true
		tp[c.Deployment.TP] = true
	}
	return regScope{Hardware: slices.Sorted(maps.Keys(hw)), Model: slices.Sorted(maps.Keys(model)), TP: slices.Sorted(maps.Keys(tp))}
}

// partOf is the catalog's name of a device, else its own in lower case.
func partOf(device string) string {
	if part, ok := deploy.SpelledBy(deploy.BLISRegistry, device); ok {
		return part
	}
	return strings.ToLower(strings.ReplaceAll(device, " ", "-"))
}

// The registry's readers of today load sets of the resource-decomposed cost model; of those the
// engine's host work is what recordings of a server measure. Names and vocabularies as
// coefficients/cost-model-host-overheads.yaml@1dd3dc7 and docs/reference/format.md@81bd9a6 of
// inference-sim/blis-registry have them, schema v0.2.2.
const (
	hostSet        = "cost-model-host-overheads"
	hostCompletion = "host_completion"
	hostAdmission  = "host_admission_per_token"
	hostRequest    = "host_admission_per_request"
	hostOutput     = "host_output_token"
)

// hostRegistry writes the host work that the recordings measured: what a finished request still
// costs before its answer leaves (egress), what a request and a prompt token cost before the engine has them
// (constant and slope of overhead). What the data do not show is left out and said. Output tokens cost nothing
// beside the engine, whose stamps TTFT and ITL are measured by.
func hostRegistry(src Source, opt Options) (*Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	var rs []Refusal
	for _, c := range cfgs {
		if _, ok := deploy.SpelledBy(deploy.BLISRegistry, c.Deployment.Hardware.Name); !ok {
			rs = append(rs, Refusal{BadEntry, fmt.Sprintf("%s: the registry's catalog has no part for %q, want %s", c.Label,
				c.Deployment.Hardware.Name, trace.OneOf(deploy.BLISRegistry.Spelled()))})
		}
	}
	set := regSet{Kind: "CoefficientSet", Name: hostSet}
	side := src.Sidecar(opt, FormatRegistryHost, "readers of the BLIS registry's cost-model sets, CoefficientSet schema v0.2.2 "+
		"(inference-sim/blis-schemas)")
	if e := completion(src, cfgs); e != nil {
		set.Coefficients = append(set.Coefficients, map[string]regEntry{hostCompletion: *e})
		side.Values = append(side.Values, hostValue(hostCompletion, e, "each request at completion, E2E only"))
	} else {
		rs = append(rs, Refusal{unlearnedValue, hostCompletion + ": no egress target in the fit"})
	}
	warn, err := opt.Refuse(rs, "choose other configurations with --config LABEL, or write them all the same with --force %s")
	if err != nil {
		return nil, err
	}
	output := measuredHost(src, cfgs, 0, "us_per_token")
	output.Method, output.Fitted, output.Sources = "not_charged", false, nil
	output.Rationale = "ITL is measured inside the engine: what a token costs the host is in its step"
	for _, c := range cfgs {
		e, us, why, err := admission(src, c)
		if err != nil {
			return nil, err
		}
		if us > 0 {
			constant := measuredHost(src, []result.FitConfig{c}, us, "us_per_request")
			set.Coefficients = append(set.Coefficients, map[string]regEntry{hostRequest: *constant})
			side.Values = append(side.Values, hostValue(c.Label+"."+hostRequest, constant, "each request, before it can be scheduled"))
		}
		if e == nil {
			warn = append(warn, trace.Findingf(unlearnedValue, "%s: %s is left out: %s", c.Label, hostAdmission, why))
			continue
		}
		set.Coefficients = append(set.Coefficients, map[string]regEntry{hostAdmission: *e})
		side.Values = append(side.Values, hostValue(c.Label+"."+hostAdmission, e, "each prompt token, before the request can be scheduled"))
	}
	if len(set.Coefficients) == 0 {
		return nil, trace.Errorf(unlearnedValue, "the fit measures neither %s nor %s", hostCompletion, hostAdmission)
	}
	set.Coefficients = append(set.Coefficients, map[string]regEntry{hostOutput: *output})
	data, err := set.file()
	if err != nil {
		return nil, err
	}
	lines, assumed := regions(cfgs, opt)
	side.Configs, warn = lines, append(warn, assumed...)
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.Beside(warn, File{"", data})
}

// completion is the median egress with the interval of its constant about it.
func completion(src Source, cfgs []result.FitConfig) *regEntry {
	m := src.Fit.AlphaNamed(coeff.Egress)
	if m == nil || m.TargetErrors == nil || m.TargetErrors.MedianPredUs == nil || !(*m.TargetErrors.MedianPredUs > 0) {
		return nil
	}
	e := measuredHost(src, cfgs, *m.TargetErrors.MedianPredUs, "us_per_request")
	if i := slices.IndexFunc(m.Coefficients, func(c result.Coefficient) bool { return c.Name == "base_bias" }); i >= 0 {
		if c := m.Coefficients[i]; c.CI95 != nil {
			e.CI95 = within(e.Value, e.Value+c.CI95[0]-c.Value, e.Value+c.CI95[1]-c.Value)
		}
	}
	return e
}

// admission is what one more prompt token adds to the overhead of a configuration's idle server, and what is left of a request of no
// tokens, us; without the first, why.
func admission(src Source, c result.FitConfig) (*regEntry, float64, string, error) {
	m := src.Fit.AlphaNamed(coeff.Overhead)
	if m == nil || src.OverheadUs == nil {
		return nil, 0, "no overhead target in the fit", nil
	}
	prompt := int64(assumedPrompt)
	if c.MeanPromptTokens != nil {
		prompt = max(1, int64(min(*c.MeanPromptTokens, 1<<40)))
	}
	var us [2]float64
	for k, tokens := range []int64{prompt, 2 * prompt} {
		var err error
		if us[k], err = src.OverheadUs(c.Deployment, tokens); err != nil {
			return nil, 0, "", fmt.Errorf("%s: overhead: %w", c.Label, err)
		}
	}
	slope := (us[1] - us[0]) / float64(prompt)
	i := slices.IndexFunc(m.Coefficients, func(c result.Coefficient) bool { return c.Name == "admission_compute" })
	if i < 0 || !learned(m.Coefficients[i]) || !(slope > 0) {
		return nil, us[0], "the overhead does not grow with the prompt in these data", nil
	}
	e := measuredHost(src, []result.FitConfig{c}, slope, "us_per_token")
	if t := m.Coefficients[i]; t.CI95 != nil {
		e.CI95 = within(slope, slope*t.CI95[0]/t.Value, slope*t.CI95[1]/t.Value)
	}
	return e, math.Max(0, us[0]-float64(slope*float64(prompt))), "", nil
}

// measuredHost is an entry with its source: the fit, and the recordings it was made from.
func measuredHost(src Source, cfgs []result.FitConfig, value float64, units string) *regEntry {
	runs := slices.Concat(stat.Map(cfgs, func(c result.FitConfig) []string { return c.Runs })...)
	slices.Sort(runs)
	e := &regEntry{Value: value, Units: units, Method: "measured", Fitted: true, Scope: registryScope(cfgs), Sources: []regSource{{
		Kind: "model", Cite: registryCite(src) + "; recordings " + strings.Join(slices.Compact(runs), ", "), Role: "primary"}}}
	if src.Library != "" {
		e.Method, e.Fitted, e.Sources[0].Cite = "assumed", false, registryCite(src)
		e.Rationale = "predicted from published kernel times; no server of this deployment was measured"
	}
	return e
}

// within is an interval the registry takes: it holds the value; nil otherwise.
func within(value, lo, hi float64) []float64 {
	if lo = max(0, lo); lo <= value && value <= hi {
		return []float64{lo, hi}
	}
	return nil
}

func hostValue(key string, e *regEntry, effect string) SideValue {
	v := SideValue{Key: key, Name: key, Value: result.OrNull(e.Value), Unit: e.Units, Identified: "measured", Learned: true,
		Origin: e.Sources[0].Cite, Effect: "charged to " + effect}
	if e.CI95 != nil {
		v.CI95 = &[2]float64{e.CI95[0], e.CI95[1]}
	}
	return v
}
