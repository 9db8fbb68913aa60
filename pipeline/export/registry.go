package export

// This file writes a coefficient set of BLIS's registry.

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
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// regSet is a CoefficientSet of BLIS's registry (schema v0.2.2). The order of its fields is that in
// the file.
type regSet struct {
	Kind         string                `yaml:"kind"`
	Name         string                `yaml:"name"`
	Coefficients []map[string]regEntry `yaml:"coefficients"`
}

// file returns the set as YAML.
func (s *regSet) file() ([]byte, error) {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	err := enc.Encode(s)
	return buf.Bytes(), err
}

// regEntry is one coefficient of a set.
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

// regScope is the hardware, models and parallel sizes for which an entry is valid.
type regScope struct {
	Hardware []string `yaml:"hardware,omitempty"`
	Model    []string `yaml:"model,omitempty"`
	TP       []int64  `yaml:"tp,omitempty"`
}

// regSource is a source of an entry's value.
type regSource struct {
	Kind string `yaml:"kind"`
	Cite string `yaml:"cite"`
	Role string `yaml:"role"`
}

// registryCite returns the citation of the data of an entry: the fit by its hash (its sidecar lists
// every input), the number of runs and their provenance.
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
	if src.Library != "" {
		return fmt.Sprintf("blis-train %s, coefficients of its library %s", src.Fit.ToolVersion, src.Library)
	}
	if len(prov) > 0 {
		s += " (" + strings.Join(slices.Sorted(maps.Keys(prov)), "; ") + ")"
	}
	return s
}

// hostScope is the configurations of a fit whose entries have one scope: a part, a model and a
// tensor-parallel width.
type hostScope struct {
	scope regScope
	cfgs  []*result.FitConfig
}

// hostScopes returns the configurations by scope, in the order of the fit. model is the name in BLIS's
// catalog; empty: each model's own. The registry takes one entry of a name for each scope, and an entry
// for several parts, models and widths would also be valid for combinations that nobody measured.
func hostScopes(cfgs []result.FitConfig, model string) []*hostScope {
	var out []*hostScope
	for k := range cfgs {
		d := &cfgs[k].Deployment
		scope := regScope{Hardware: []string{partOf(d.Hardware.Name)}, Model: []string{catalogName(model, d.Model.ID)},
			TP: []int64{d.TP}}
		i := slices.IndexFunc(out, func(s *hostScope) bool { return scope.equal(&s.scope) })
		if i < 0 {
			i = len(out)
			out = append(out, &hostScope{scope: scope})
		}
		out[i].cfgs = append(out[i].cfgs, &cfgs[k])
	}
	return out
}

// equal reports whether two scopes are the same.
func (s *regScope) equal(o *regScope) bool {
	return slices.Equal(s.Hardware, o.Hardware) && slices.Equal(s.Model, o.Model) && slices.Equal(s.TP, o.TP)
}

// partOf returns the name of a device in BLIS's catalog, or its own in lower case if the catalog
// does not have it.
func partOf(device string) string {
	if part, ok := deploy.SpelledBy(deploy.BLISRegistry, device); ok {
		return part
	}
	return strings.ToLower(strings.ReplaceAll(device, " ", "-"))
}

// hostSet and the names below are those of the registry's set for the host work of the engine, the
// only set of its resource-decomposed cost model that a recording of a server measures. Names and
// vocabularies are those of coefficients/cost-model-host-overheads.yaml@1dd3dc7 and
// docs/reference/format.md@81bd9a6 in inference-sim/blis-registry, schema v0.2.2.
const (
	hostSet        = "cost-model-host-overheads"
	hostCompletion = "host_completion"
	hostAdmission  = "host_admission_per_token"
	hostRequest    = "host_admission_per_request"
	hostOutput     = "host_output_token"
)

// hostRegistry returns the file of format blis-registry-host, the host work that the recordings
// measured: the time from a request's last step to the end of its response (egress), and the time
// of a request and of a prompt token before the engine can schedule them (constant and slope of
// overhead). Entries that the data do not determine are omitted, with a warning. Output tokens have
// no host cost: TTFT and ITL are measured by stamps of the engine, so that cost is part of the
// step.
func hostRegistry(src Source, opt Options) (*Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	var rs []Refusal
	for i := range cfgs {
		device := cfgs[i].Deployment.Hardware.Name
		if _, ok := deploy.SpelledBy(deploy.BLISRegistry, device); !ok {
			rs = append(rs, Refusal{
				Code: BadEntry,
				Sentence: fmt.Sprintf("%s: the registry's catalog has no part for %q, want %s", cfgs[i].Label, device,
					trace.OneOf(deploy.BLISRegistry.Spelled())),
			})
		}
	}
	set := regSet{Kind: "CoefficientSet", Name: hostSet}
	side := src.Sidecar(opt, FormatRegistryHost,
		"readers of the BLIS registry's cost-model sets, CoefficientSet schema v0.2.2 (inference-sim/blis-schemas)")
	if m := src.Fit.AlphaNamed(coeff.Egress); m == nil || m.TargetErrors == nil || m.TargetErrors.MedianPredUs == nil ||
		!(*m.TargetErrors.MedianPredUs > 0) {
		rs = append(rs, Refusal{Code: unlearnedValue, Sentence: hostCompletion + ": no egress target in the fit"})
	}
	warn, err := opt.Refuse(rs,
		"choose other configurations with --config LABEL, or write them all the same with --force %s")
	if err != nil {
		return nil, err
	}
	model := opt.Settings["model"]
	scopes := hostScopes(cfgs, model)
	for i := range cfgs {
		if model == "" || cfgs[i].Deployment.Model.ID == cfgs[0].Deployment.Model.ID {
			continue
		}
		return nil, trace.Errorf(BadEntry, "--option model=%s: got configurations of several models, want those of one", model).
			WithHint("choose one with --config LABEL")
	}
	measured := 0
	for _, s := range scopes {
		d := &s.cfgs[0].Deployment
		if name := s.scope.Model[0]; inCatalog(name) == nil {
			warn = append(warn, trace.Findingf(BadEntry,
				"%s: BLIS's catalog has no model %s, so its entries apply to no scenario (%s)", s.cfgs[0].Label, name,
				catalogHint(&d.Model)))
		}
		add := func(name, effect string, e *regEntry) {
			measured++
			set.Coefficients = append(set.Coefficients, map[string]regEntry{name: *e})
			side.Values = append(side.Values, hostValue(s.cfgs[0].Label+"."+name, e, effect))
		}
		if e := s.completion(src); e != nil {
			add(hostCompletion, "each request at completion, E2E only", e)
		}
		e, us, why, err := s.admission(src)
		if err != nil {
			return nil, err
		}
		if us > 0 {
			add(hostRequest, "each request, before it can be scheduled", s.entry(src, us, "us_per_request"))
		}
		if e != nil {
			add(hostAdmission, "each prompt token, before the request can be scheduled", e)
		} else {
			warn = append(warn,
				trace.Findingf(unlearnedValue, "%s: %s is omitted: %s", s.cfgs[0].Label, hostAdmission, why))
		}
		// Output tokens have an entry of 0, so that readers do not assume a cost of their own.
		output := s.entry(src, 0, "us_per_token")
		output.Method = "not_charged"
		output.Fitted = false
		output.Sources = nil
		output.Rationale = "ITL is measured inside the engine: the host's cost of a token is part of its step"
		set.Coefficients = append(set.Coefficients, map[string]regEntry{hostOutput: *output})
	}
	if measured == 0 {
		return nil, trace.Errorf(unlearnedValue, "the fit measures neither %s nor %s", hostCompletion, hostAdmission)
	}
	data, err := set.file()
	if err != nil {
		return nil, err
	}
	lines, assumed := regions(cfgs, opt)
	side.Configs = lines
	warn = append(warn, assumed...)
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.OutputWith(warn, File{Data: data})
}

// completion returns the entry of the median egress of the scope's configurations with the interval of
// the egress constant around it; nil if the fit has no egress target.
func (s *hostScope) completion(src Source) *regEntry {
	sum := 0.0
	for _, c := range s.cfgs {
		us, _, ok := src.Fit.MedianDelayUs(coeff.Egress, c)
		if !ok {
			return nil
		}
		sum += us
	}
	if !(sum > 0) {
		return nil
	}
	e := s.entry(src, sum/float64(len(s.cfgs)), "us_per_request")
	m := src.Fit.AlphaNamed(coeff.Egress)
	if i := slices.IndexFunc(m.Coefficients, func(c result.Coefficient) bool { return c.Name == "base_bias" }); i >= 0 {
		if c := m.Coefficients[i]; c.CI95 != nil {
			e.CI95 = within(e.Value, e.Value+c.CI95[0]-c.Value, e.Value+c.CI95[1]-c.Value)
		}
	}
	return e
}

// admission returns the entry for one more prompt token and the delay of a request without tokens
// in us, both derived from the overhead on an idle server and means over the scope's configurations.
// If the data do not determine the entry, it is nil and the third result is the reason.
func (s *hostScope) admission(src Source) (e *regEntry, us float64, why string, err error) {
	m := src.Fit.AlphaNamed(coeff.Overhead)
	if m == nil || src.OverheadUs == nil {
		return nil, 0, "no overhead target in the fit", nil
	}
	var constant, slope float64 // us, us/token
	var whole float64           // us, of a mean prompt
	n := float64(len(s.cfgs))
	for _, c := range s.cfgs {
		prompt := int64(assumedPrompt)
		if c.MeanPromptTokens != nil {
			prompt = max(1, int64(min(*c.MeanPromptTokens, 1<<40)))
		}
		// The overhead of a mean prompt and of one twice as long give the slope and, extrapolated to no
		// tokens, the constant.
		var ofPrompt [2]float64
		for k, tokens := range []int64{prompt, 2 * prompt} {
			if ofPrompt[k], err = src.OverheadUs(c.Deployment, tokens); err != nil {
				return nil, 0, "", fmt.Errorf("%s: overhead: %w", c.Label, err)
			}
		}
		growth := (ofPrompt[1] - ofPrompt[0]) / float64(prompt)
		slope += growth / n
		constant += math.Max(0, ofPrompt[0]-growth*float64(prompt)) / n
		whole += ofPrompt[0] / n
	}
	i := slices.IndexFunc(m.Coefficients, func(c result.Coefficient) bool { return c.Name == "admission_compute" })
	if i < 0 || !learned(m.Coefficients[i]) || !(slope > 0) { // then the delay of a request is that of a mean prompt
		return nil, whole, "the overhead does not grow with the prompt in these data", nil
	}
	e = s.entry(src, slope, "us_per_token")
	if t := m.Coefficients[i]; t.CI95 != nil {
		e.CI95 = within(slope, slope*t.CI95[0]/t.Value, slope*t.CI95[1]/t.Value)
	}
	return e, constant, "", nil
}

// entry returns an entry for the scope with its sources: the fit, the scope's recordings and the error on their hold-out
// rows. Coefficients of the library give an assumed entry, because no server was measured.
func (s *hostScope) entry(src Source, value float64, units string) *regEntry {
	e := &regEntry{Value: value, Units: units, Scope: s.scope}
	if src.Library != "" {
		e.Method = "assumed"
		e.Sources = []regSource{{Kind: "model", Cite: registryCite(src), Role: "primary"}}
		e.Rationale = "predicted from published kernel times; no server of this deployment was measured"
		return e
	}
	var runs, keys []string
	for _, c := range s.cfgs {
		runs = append(runs, c.Runs...)
		keys = append(keys, c.Key)
	}
	slices.Sort(runs)
	cite := registryCite(src) + "; recordings " + strings.Join(slices.Compact(runs), ", ")
	if mape, rows := src.Fit.HoldoutOf(keys...); mape != nil {
		cite += fmt.Sprintf("; their hold-out rows, not fitted: step-time MAPE %.4f over %d rows", *mape, rows)
	}
	e.Method = "measured"
	e.Fitted = true
	e.Sources = []regSource{{Kind: "model", Cite: cite, Role: "primary"}}
	return e
}

// within returns the interval from lo, or 0 if that is larger, to hi, if it contains the value.
// Otherwise it returns nil, because the registry refuses an interval without its value.
func within(value, lo, hi float64) []float64 {
	lo = max(0, lo)
	if lo <= value && value <= hi {
		return []float64{lo, hi}
	}
	return nil
}

// hostValue returns an entry as a value of the sidecar.
func hostValue(key string, e *regEntry, effect string) SideValue {
	v := SideValue{Key: key, Name: key, Value: result.OrNull(e.Value), Unit: e.Units, Identified: "measured",
		Learned: true,
		Origin:  e.Sources[0].Cite, Effect: "charged to " + effect}
	if e.CI95 != nil {
		v.CI95 = &[2]float64{e.CI95[0], e.CI95[1]}
	}
	return v
}
