package autoscale

// This file writes the Kubernetes resources of workload-variant-autoscaler (VariantAutoscaling)
// from a fit: the parameters of its queueing model that reproduce the simulated steady state of
// each configuration.

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// steadyState is a function that simulates a deployment at several loads, with mean lengths in
// tokens and the API overhead in ms, and fits wva-4p to the result.
type steadyState func(d *deploy.Deployment, overheadMs, prompt, output float64) (*steady, error)

// wva returns the VariantAutoscaling resources of a fit. Their steady states are simulated with the
// fit's own coefficients.
func wva(src export.Source, opt export.Options) (*export.Output, error) {
	return wvaOf(src, opt, func(d *deploy.Deployment, overheadMs, prompt, output float64) (*steady, error) {
		if src.Set == nil {
			return nil, trace.Errorf(export.NothingToExport, "no coefficients to simulate with")
		}
		set, err := src.Set()
		if err != nil {
			return nil, err
		}
		step, err := sim.NewPhysics(set, d)
		if err != nil {
			return nil, err
		}
		return SteadyState(d, step, overheadMs, prompt, output)
	})
}

// wvaOf returns one VariantAutoscaling for each model, with one accelerator entry for each
// configuration (hardware and ranks) of the fit. steady simulates the steady state of one of them.
func wvaOf(src export.Source, opt export.Options, steady steadyState) (*export.Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	if err := readerOf(QueueWVA4P).CheckVersion(opt.Settings["version"]); err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := opt.Refuse(dup, oneConfigHint)
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, QueueWVA4P, wvaReadBy)
	var file resourceFile
	for i, c := range cfgs {
		overhead, fromOverhead := overheadMs(src.Fit, &c)
		acc, sc, note, w, err := simulated(c, accs[i], opt, overhead, steady)
		if err != nil {
			return nil, err
		}
		warn = append(warn, w...)
		side.Configs = append(side.Configs, sc)
		side.Values = append(side.Values, wvaValues(c.Label, acc, fromOverhead)...)
		file.addAccelerator(c.Deployment.Model.ID, acc, note, opt.Settings,
			"ITL = alpha + beta*B; TTFT = wait + gamma + delta*(input tokens)*B; ms. Fitted to the simulated "+
				"steady state:")
	}
	warn = append(warn, file.unpriced(opt.Settings["version"], "set it in the file")...)
	data, err := file.encode(opt.Settings["version"])
	if err != nil {
		return nil, err
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.OutputWith(warn, export.File{Data: data})
}

// resourceFile is one resource for each model, and the comment lines before each.
type resourceFile struct {
	resources []*variantAutoscaling
	comments  [][]string
}

// addAccelerator adds an accelerator to the resource of its model and a note on it to the comments,
// and returns the resource. The first accelerator of a model makes the resource, under a title and
// in the form of the consumer's version.
func (f *resourceFile) addAccelerator(modelID string, acc Accelerator, note string, o export.Settings,
	title string) *variantAutoscaling {
	k := slices.IndexFunc(f.resources, func(r *variantAutoscaling) bool { return r.Spec.ModelID == modelID })
	if k < 0 {
		k = len(f.resources)
		r := &variantAutoscaling{
			APIVersion: "llmd.ai/v1alpha1",
			Kind:       "VariantAutoscaling",
			Spec:       spec{ModelID: modelID},
			Metadata: metadata{Name: resourceName(o["name"], modelID),
				Labels: map[string]string{"inference.optimization/acceleratorName": acc.Acc}},
		}
		if namesServiceClass(o["version"]) {
			r.Spec.SLOClassRef = &configRef{Name: o["slo-class-name"], Key: cmp.Or(o["slo-class-key"], modelID)}
		}
		f.resources = append(f.resources, r)
		f.comments = append(f.comments, []string{title})
	}
	r := f.resources[k]
	r.Spec.Profile.Accelerators = append(r.Spec.Profile.Accelerators, acc)
	f.comments[k] = append(f.comments[k], "  "+note)
	return r
}

// Relative errors of the consumer's formula above which a warning is given.
const (
	poorSteadyTTFT = 0.15
	poorSteadyITL  = 0.10
)

// simulated simulates one configuration and returns the accelerator with the parameters that
// reproduce its latencies, its part of the sidecar, a comment for the file and warnings. name is what
// the accelerator is called.
func simulated(
	c result.FitConfig,
	name accelerator,
	opt export.Options,
	overheadMs float64,
	steady steadyState,
) (Accelerator, export.SideConfig, string, []trace.Finding, error) {
	d := c.Deployment
	l, warn := opt.MeanLengths(c)
	s, err := steady(&d, overheadMs, l.Prompt, l.Output)
	if err != nil {
		return Accelerator{}, export.SideConfig{}, "", nil, fmt.Errorf("%s: steady state: %w", c.Label, err)
	}
	acc := Accelerator{
		Acc:      name.name,
		AccCount: name.count,
		PerfParms: perfParm{
			Decode:  map[string]string{"alpha": sixDigits(s.Params.AlphaMs), "beta": sixDigits(s.Params.BetaMs)},
			Prefill: map[string]string{"gamma": sixDigits(s.Params.GammaMs), "delta": sixDigits(s.Params.DeltaMs)},
		},
		MaxBatchSize: d.Seats(l.Prompt + l.Output),
	}
	text, far := steadyText(s.Points)
	if far != "" {
		warn = append(warn, trace.Findingf(export.PoorProjection, "%s: the autoscaler's formula %s", c.Label, far))
	}
	sc := export.SideConfig{
		Label:        c.Label,
		Seats:        acc.MaxBatchSize,
		PromptTokens: &l.Prompt,
		OutputTokens: &l.Output,
		Steady:       s.Points,
	}
	note := fmt.Sprintf("%s x%d: mean prompt %.0f, mean output %.0f tokens; off from the simulator (TTFT / ITL) by %s", acc.Acc, acc.AccCount,
		l.Prompt, l.Output, text)
	if r := renamedNote(name, c); r != "" {
		note += "; " + r
	}
	return acc, sc, note, warn, nil
}

// steadyText returns the errors of the consumer's formula by load as a text, and in far the worst
// of them if it is too large.
func steadyText(points []export.SteadyPoint) (text, far string) {
	var parts []string
	worst := 0.0
	for _, p := range points {
		at := fmt.Sprintf("at %.0f %% of the capacity", 100*p.LoadFrac)
		if p.TTFTErr == nil || p.ITLErr == nil {
			return strings.Join(append(parts, "no answer "+at), ", "), "has no answer " + at
		}
		parts = append(parts, fmt.Sprintf("%+.0f / %+.0f %% at %.0f %%", 100**p.TTFTErr, 100**p.ITLErr, 100*p.LoadFrac))
		if e := max(math.Abs(*p.TTFTErr)/poorSteadyTTFT, math.Abs(*p.ITLErr)/poorSteadyITL); e > max(1, worst) {
			worst = e
			far = fmt.Sprintf("is off by %+.0f %% in TTFT and %+.0f %% in ITL %s", 100**p.TTFTErr, 100**p.ITLErr, at)
		}
	}
	return strings.Join(parts, ", ") + " load", far
}

// wvaValues returns the parameters of an accelerator for the sidecar.
func wvaValues(label string, acc Accelerator, overheadNote string) (out []export.SideValue) {
	const origin = "least squares of TTFT and ITL, solved by the autoscaler's own formula, against the simulator at six loads"
	p := acc.PerfParms
	for _, parameter := range []struct{ key, unit, value, origin, effect string }{
		{"alpha", "ms", p.Decode["alpha"], origin, "ITL at an empty batch"},
		{"beta", "ms/request", p.Decode["beta"], origin, "ITL per sequence in the batch"},
		{"gamma", "ms", p.Prefill["gamma"], origin + "; " + overheadNote, "TTFT before any token"},
		{"delta", "ms/token", p.Prefill["delta"], origin, "TTFT per prompt token and sequence"},
	} {
		v, _ := strconv.ParseFloat(parameter.value, 64) // written by sixDigits
		out = append(out, derivedValue(label, parameter.key, parameter.unit, v, parameter.origin, parameter.effect))
	}
	return out
}

// overheadMs returns the API overhead that is part of TTFT on a configuration, ms, and a remark on
// its origin.
func overheadMs(fit *result.Fit, c *result.FitConfig) (float64, string) {
	us, scope, ok := fit.MedianDelayUs(coeff.Overhead, c)
	if !ok {
		return 0, "without an API overhead (the fit has none)"
	}
	return us / 1000, fmt.Sprintf("plus the API overhead on %s, %s ms", scope, sixDigits(us/1000))
}

// sixDigits returns v with six significant digits, which is all that a consumer's float32 keeps.
func sixDigits(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// variantAutoscaling is the resource of llmd.ai/v1alpha1 as workload-variant-autoscaler v0.0.1 to
// v0.4.2 define it (api/v1alpha1/variantautoscaling_types.go). SLOClassRef exists up to v0.0.5,
// spec.variantCost from v0.0.5 on.
type variantAutoscaling struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

// metadata of a resource.
type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

// spec of a VariantAutoscaling.
type spec struct {
	ModelID     string     `yaml:"modelID"`
	SLOClassRef *configRef `yaml:"sloClassRef,omitempty"`
	Profile     struct {
		Accelerators []Accelerator `yaml:"accelerators"` // what the model runs on
	} `yaml:"modelProfile"`
	VariantCost string `yaml:"variantCost,omitempty"` // cents per replica and hour
}

// configRef names a key of a configMap.
type configRef struct {
	Name string `yaml:"name"`
	Key  string `yaml:"key"`
}

// Accelerator is a model on one accelerator.
type Accelerator struct {
	Acc          string   `yaml:"acc"`
	AccCount     int64    `yaml:"accCount"`
	PerfParms    perfParm `yaml:"perfParms"`
	MaxBatchSize int64    `yaml:"maxBatchSize"`
}

// perfParm has the four parameters as strings, in ms, the form of the CRD.
type perfParm struct {
	Decode  map[string]string `yaml:"decodeParms"`
	Prefill map[string]string `yaml:"prefillParms"`
}

// unpriced returns a warning for each resource without the field variantCost that the version of
// the autoscaler would have; remedy is what the user can do.
func (f *resourceFile) unpriced(version, remedy string) (warnings []trace.Finding) {
	for _, r := range f.resources {
		if r.Spec.VariantCost == "" && hasVariantCost(version) {
			warnings = append(warnings, trace.Findingf(export.AssumedValue,
				"%s: spec.variantCost (cents per replica and hour) is missing, because no price is known: %s",
				r.Spec.ModelID, remedy))
		}
	}
	return warnings
}

// wvaReadBy describes the reader of the resources for the sidecar and the comments.
const wvaReadBy = "workload-variant-autoscaler v0.0.1 to v0.4.2; v0.5.0 removed these fields from the CRD"

// encode returns the resources as one YAML file of several documents, each after its comments.
func (f *resourceFile) encode(version string) ([]byte, error) {
	var buf bytes.Buffer
	for i, r := range f.resources {
		if i > 0 {
			buf.WriteString("---\n")
		}
		fmt.Fprintf(&buf, "# Read by %s.\n", wvaReadBy)
		last := "The label names the accelerator in use: edit it."
		if r.Spec.SLOClassRef != nil {
			last = "The label names the accelerator in use and sloClassRef a ConfigMap of yours: edit both."
		}
		if r.Spec.VariantCost == "" && hasVariantCost(version) {
			last += " spec.variantCost (cents per replica and hour) is missing, because no price is known: add it."
		}
		for _, line := range append(f.comments[i], last) {
			fmt.Fprintf(&buf, "# %s\n", files.Line(line))
		}
		enc := yaml.NewEncoder(&buf)
		enc.SetIndent(2)
		if err := enc.Encode(r); err != nil {
			return nil, err
		}
		if err := enc.Close(); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}
