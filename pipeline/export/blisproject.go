package export

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/export/project"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// maxProjection is the mean error of a projection, relative to the model it stands for, above
// which it is refused: more than twice what the step-time models themselves are off.
const maxProjection = 0.10

// blisEntry is one set of coefficients for BLIS: of one configuration, or of all.
type blisEntry struct {
	suffix string             // of the file that holds it
	config *result.FitConfig  // nil: all of them
	beta   []float64          // by position
	fits   project.Projection // of config
	region project.Region
}

// blisEntries projects the fit on every configuration, and on all of them when there are
// several: that one is FILE, the others are FILE.<label>.yaml.
func blisEntries(src Source, opt Options, cfgs []result.FitConfig) ([]blisEntry, []trace.Finding, error) {
	var warn []trace.Finding
	targets := make([]project.Target, len(cfgs))
	for i := range cfgs {
		t, err := stepTimer(src, cfgs[i])
		if err != nil {
			return nil, nil, err
		}
		l, w := lengthsOf(cfgs[i], opt)
		warn = append(warn, w...)
		d := &cfgs[i].Deployment
		targets[i] = project.Target{Deployment: d, Model: t, Region: project.Region{Prompt: l.prompt, Output: l.output,
			Seats: d.Seats(l.prompt + l.output), Budget: d.Engine.MaxNumBatchedTokens}}
	}
	var out []blisEntry
	if len(targets) > 1 {
		all, err := project.OnBLIS(targets...)
		if err != nil {
			return nil, nil, err
		}
		joint := blisEntry{beta: all[0].Beta}
		for _, p := range all {
			joint.fits.Used = either(joint.fits.Used, p.Used)
		}
		joint.fillUnused()
		out = append(out, joint)
	}
	taken := map[string]int{}
	for i := range cfgs {
		one, err := project.OnBLIS(targets[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", cfgs[i].Label, err)
		}
		e := blisEntry{config: &cfgs[i], beta: one[0].Beta, fits: one[0], region: targets[i].Region}
		if len(targets) > 1 {
			e.suffix = "." + slug(cfgs[i].Label)
			if taken[e.suffix]++; taken[e.suffix] > 1 {
				e.suffix += fmt.Sprintf("-%d", taken[e.suffix])
			}
			e.suffix += ".yaml"
		}
		e.fillUnused()
		out = append(out, e)
	}
	return out, warn, nil
}

func either(a, b []bool) []bool {
	out := slices.Clone(b)
	for i, v := range a {
		out[i] = out[i] || v
	}
	return out
}

// slug is a label as a part of a file name.
func slug(label string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, label), "-.")
}

// fillUnused gives the dispatch term, where the deployment never has it, the value that BLIS
// itself gives it when it is absent: the all-reduce's.
func (e *blisEntry) fillUnused() {
	if !e.fits.Used[blisMoEDispatch] {
		e.beta[blisMoEDispatch] = e.beta[blisAllReduce]
	}
}

func (e *blisEntry) key(name string) string {
	if e.config == nil || e.suffix == "" {
		return name
	}
	return e.config.Label + "." + name
}

// values are the entry's coefficients with what is known of them.
func (e *blisEntry) values() []blisValue {
	out := make([]blisValue, len(blisBeta))
	for i, t := range blisBeta {
		v := blisValue{blisTerm: t, value: e.beta[i], identified: "derived", learned: true,
			origin: "projection of the step-time model on all configurations together"}
		if e.config != nil {
			v.origin = "projection of the step-time model on " + e.config.Label
		}
		if e.config != nil && !e.fits.Used[i] {
			v.identified, v.learned = "not used by this deployment", false
			v.origin = "nothing: the deployment never has this term"
			if i == blisMoEDispatch {
				v.origin = "copied from " + blisBeta[blisAllReduce].name + ", as BLIS does when the value is absent; the deployment never has this term"
			}
		}
		out[i] = v
	}
	return out
}

// refusals are terms of the model that nothing taught and that the configuration would use, and
// a projection that is too far off.
func (e *blisEntry) refusals(fit *result.Fit) []refusal {
	if e.config == nil {
		return nil
	}
	var out []refusal
	for j, c := range fit.Beta.Coefficients {
		if j < len(e.fits.Seen) && e.fits.Seen[j] > 0 && c.Value == 0 && c.Identified == "prior-only" {
			out = append(out, refusal{unlearnedValue, fmt.Sprintf("%s: %s has no value, neither learned nor prior, and this deployment would use it",
				e.config.Label, c.Name)})
		}
	}
	if all := e.fits.Errors[0]; !(all.MAPE <= maxProjection) {
		out = append(out, refusal{poorProjection, fmt.Sprintf("%s: BLIS's terms are %.1f %% off the step-time model on average, want at most "+
			"%.0f %%: %s", e.config.Label, 100*all.MAPE, 100*maxProjection, e.lacking())})
	}
	for i, v := range e.beta {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, refusal{nonFiniteValue, fmt.Sprintf("%s: %s = %g: BLIS stops at start-up with \"must be a finite non-negative "+
				"number\"", e.config.Label, blisBeta[i].name, v)})
		}
	}
	return out
}

// lacking says what the terms of BLIS cannot follow.
func (e *blisEntry) lacking() string {
	worst := e.fits.Errors[1]
	for _, x := range e.fits.Errors[2:] {
		if x.MAPE > worst.MAPE {
			worst = x
		}
	}
	why := "prompts that compute while memory is read overlap, and BLIS adds the two"
	switch {
	case e.config.Deployment.Model.IsMoE():
		why = "a step loads the experts that its tokens reach, few in small batches and all in large ones; BLIS loads all of them every time"
	case worst.Kind == project.Decode:
		why = "decode steps follow no straight line in requests and context"
	}
	return fmt.Sprintf("worst for %s batches (%.1f %%): %s", worst.Kind, 100*worst.MAPE, why)
}

// side is the configuration as the sidecar has it.
func (e *blisEntry) side(alpha []float64) SideConfig {
	c := SideConfig{Label: e.config.Label, Seats: e.region.Seats, CommandLine: flagsCommand(e.config.Deployment, alpha, e.beta, e.suffix),
		DefaultsCommandLine: defaultsCommand(e.config.Deployment, e.suffix), PromptTokens: &e.region.Prompt, OutputTokens: &e.region.Output}
	for _, x := range e.fits.Errors {
		kind := string(x.Kind)
		if kind == "" {
			kind = "all"
		}
		c.Projection = append(c.Projection, ProjectionError{Batches: kind, Steps: x.Steps, MAPE: result.OrNull(x.MAPE),
			Worst: result.OrNull(x.Worst), Bias: result.OrNull(x.Bias)})
	}
	if e.fits.Errors[0].MAPE > maxProjection/2 {
		c.Note = e.lacking()
	}
	return c
}

// Projected is how well a configuration's file holds its model.
type Projected struct {
	Label  string             `json:"label"`
	File   string             `json:"file"`   // suffix of the file's name
	Errors map[string]float64 `json:"errors"` // mean absolute relative error by kind of batch
	Limit  float64            `json:"limit"`  // above it for all batches the export is refused
}

func (e *blisEntry) projected() Projected {
	p := Projected{Label: e.config.Label, File: e.suffix, Errors: map[string]float64{}, Limit: maxProjection}
	for _, x := range e.fits.Errors {
		kind := string(x.Kind)
		if kind == "" {
			kind = "all"
		}
		p.Errors[kind] = x.MAPE
	}
	return p
}
