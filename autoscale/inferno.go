package autoscale

// This file writes model-data.json of llm-inferno, and the configuration of vLLM's simulated model,
// from a fit: both take a linear time of an engine iteration, alpha + beta*computed tokens +
// gamma*KV tokens read. The line is fitted to step times of the coefficients (iterationLine). The
// sidecar is the JSON file beside an export that states where each value comes from and for which
// batches it is valid.

import (
	"fmt"
	"math"

	llm "github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// modelEntry is one model on one accelerator in llm-inferno's model-data.json (optimizer-light
// pkg/config/types.go@77615bd). Either PerfParms or, under its name in workload-variant-autoscaler,
// ServiceParms is set.
type modelEntry struct {
	Name         string `json:"name"`
	Acc          string `json:"acc"`
	AccCount     int64  `json:"accCount"`
	MaxBatchSize int64  `json:"maxBatchSize"`
	// AtTokens is the mean output length for which MaxBatchSize is valid. The optimizer scales the
	// batch size by AtTokens over the load's mean output length.
	AtTokens     int64  `json:"atTokens"`
	PerfParms    *parms `json:"perfParms,omitempty"`
	ServiceParms *parms `json:"serviceParms,omitempty"`
}

// parms are ms, ms per computed token and ms per KV token read.
type parms struct {
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta"`
	Gamma float64 `json:"gamma"`
}

// infernoReadBy describes the reader of model-data.json for the sidecar.
const infernoReadBy = "llm-inferno optimizer-light and control-loop (2026): iteration ms = alpha + beta*computed tokens + " +
	"gamma*KV tokens read"

// Inferno returns model-data.json.
func Inferno(models []modelEntry) ([]byte, error) {
	return result.Marshal(map[string][]modelEntry{"models": models})
}

// lineWriter returns a writer of a format that consists of a linear step time for each
// configuration. write encodes the entries.
func lineWriter(
	format export.Format,
	readBy string,
	write func([]modelEntry) ([]byte, error),
) func(export.Source, export.Options) (*export.Output, error) {
	return func(src export.Source, opt export.Options) (*export.Output, error) {
		if format == InfernoModels { // the other formats have no option version
			if err := readerOf(format).CheckVersion(opt.Settings["version"]); err != nil {
				return nil, err
			}
		}
		cfgs, err := src.Configs(opt.Config)
		if err != nil {
			return nil, err
		}
		accs, dup := accelerators(cfgs)
		warn, err := opt.Refuse(dup, oneConfigHint)
		if err != nil {
			return nil, err
		}
		side := src.Sidecar(opt, format, readBy)
		models := []modelEntry{}
		for i, c := range cfgs {
			m, sc, w, err := infernoEntry(src, c, accs[i], opt, format == InfernoModels)
			if err != nil {
				return nil, err
			}
			models = append(models, m)
			side.Configs = append(side.Configs, sc)
			side.Values = append(side.Values, infernoValues(c.Label, *m.PerfParms)...)
			warn = append(warn, w...)
		}
		data, err := write(models)
		if err != nil {
			return nil, err
		}
		side.Warnings = append(src.ValidationWarnings(), warn...)
		return side.OutputWith(warn, export.File{Data: data})
	}
}

// simulatedModel returns config.json of vLLM's simulated model: the terms of the linear step
// time, in which a decoding sequence is one computed token.
func simulatedModel(models []modelEntry) ([]byte, error) {
	if len(models) != 1 {
		return nil, trace.Errorf(export.BadEntry,
			"got %d configurations, want one: a config.json is of one engine", len(models)).
			WithHint("--config LABEL")
	}
	p := models[0].PerfParms
	return result.Marshal(map[string]any{"latency": struct {
		Type     string  `json:"type"`
		BaseMs   float64 `json:"base_ms"`
		Prefill  float64 `json:"prefill_ms_per_token"`
		Decode   float64 `json:"decode_ms_per_seq"`
		Context  float64 `json:"ctx_ms_per_ktoken"`
		IsLength bool    `json:"deterministic_length"`
	}{
		Type:     "linear",
		BaseMs:   p.Alpha,
		Prefill:  p.Beta,
		Decode:   p.Beta,
		Context:  1e3 * p.Gamma,
		IsLength: true,
	}})
}

// infernoEntry returns the entry of one configuration with its linear step time, its part of
// the sidecar, and warnings. isSized is true if the reader only sizes engines (see iterationLine).
func infernoEntry(
	src export.Source,
	c result.FitConfig,
	name accelerator,
	opt export.Options,
	isSized bool,
) (modelEntry, export.SideConfig, []trace.Finding, error) {
	d := c.Deployment
	l, warn := opt.MeanLengths(c)
	beyond, err := opt.Refuse(extrapolated(c, l), lengthsHint)
	if err != nil {
		return modelEntry{}, export.SideConfig{}, nil, err
	}
	warn = append(warn, beyond...)
	t, err := src.Timer(c)
	if err != nil {
		return modelEntry{}, export.SideConfig{}, nil, err
	}
	largest := d.Seats(l.Prompt + l.Output)
	it, err := iterationLine(t, l, largest, d.Engine.MaxNumBatchedTokens, isSized)
	switch {
	case err != nil:
		return modelEntry{}, export.SideConfig{}, nil, fmt.Errorf("%s: %w", c.Label, err)
	case it.maxErr > poorLine:
		warn = append(warn, trace.Findingf(export.PoorProjection,
			"%s: the iteration line is off by up to %.0f %% of the physics model on its grid (mean %.1f %%)",
			c.Label, 100*it.maxErr, 100*it.meanErr))
	case it.least > 1:
		warn = append(warn, trace.Findingf(narrowLine,
			"%s: the iteration line holds from %d requests in a batch on, within %.0f %% of the physics model; "+
				"with fewer it predicts up to %.0f %% more", c.Label, it.least, 100*it.maxErr, 100*it.above))
	}
	m := modelEntry{
		Name:         llm.Name(d.Model.ID),
		Acc:          name.name,
		AccCount:     name.count,
		MaxBatchSize: largest,
		AtTokens:     max(1, trace.Int(math.Floor(l.Output+0.5))),
		PerfParms:    &parms{Alpha: it.coef[0], Beta: it.coef[1], Gamma: it.coef[2]},
	}
	sc := export.SideConfig{
		Label:        c.Label,
		Seats:        largest,
		PromptTokens: &l.Prompt,
		OutputTokens: &l.Output,
		MaxRelErr:    &it.maxErr,
		MeanRelErr:   &it.meanErr,
		GridPoints:   it.points,
		ValidFor:     lineValidity(c, l, [2]int64{it.least, largest}, d.Engine.MaxNumBatchedTokens),
		Note:         renamedNote(name, c),
	}
	return m, sc, warn, nil
}

// lengthsHint is the hint for lengths beyond those of the training; %s are the codes for --force.
const lengthsHint = "give --prompt-tokens and --output-tokens within the training, train on longer requests, or take the extrapolation " +
	"with --force %s"

// extrapolated returns one Refusal (an error unless --force accepts it) for each of the mean prompt
// and output lengths that exceeds the longest in the training data of the configuration.
func extrapolated(c result.FitConfig, l export.Lengths) (out []export.Refusal) {
	if c.Covered == nil {
		return nil
	}
	for _, of := range []struct {
		what    string
		mean    float64
		longest int64
	}{{"prompt", l.Prompt, c.Covered.PromptTokens}, {"output", l.Output, c.Covered.OutputTokens}} {
		if of.longest > 0 && of.mean > float64(of.longest) {
			out = append(out, export.Refusal{Code: export.BeyondTraining,
				Sentence: fmt.Sprintf("%s: got a mean %s of %.0f tokens, "+
					"want at most %d, the longest of the training", c.Label, of.what, of.mean, of.longest)})
		}
	}
	return out
}

// lineValidity returns the range of batches for which the linear step time was fitted, and the
// largest values in the training. requests are the smallest and the largest batch, budget the tokens
// of a step.
func lineValidity(c result.FitConfig, l export.Lengths, requests [2]int64, budget int64) *export.Validity {
	context := func(depth float64) int64 { return trace.Int((l.Prompt + l.Output/2) * depth) }
	v := &export.Validity{
		Requests:      requests,
		ContextTokens: [2]int64{context(iterationDepths[0]), context(iterationDepths[2])},
		ChunkTokens:   [2]int64{0, min(max(1, trace.Int(l.Prompt)), budget-1)},
	}
	if c.Covered != nil {
		v.LongestPrompt = c.Covered.PromptTokens
		v.LongestOutput = c.Covered.OutputTokens
		v.MostRunning = c.Covered.Running
	}
	return v
}

// infernoValues returns the values of a linear step time for the sidecar.
func infernoValues(label string, p parms) []export.SideValue {
	const origin = "non-negative least squares in relative error over a grid of batches, depths and prompt chunks of the physics model"
	return []export.SideValue{
		derivedValue(label, "alpha", "ms", p.Alpha, origin, "time of an iteration before any token"),
		derivedValue(label, "beta", "ms/token", p.Beta, origin, "time per computed token"),
		derivedValue(label, "gamma", "ms/token", p.Gamma, origin, "time per KV token read"),
	}
}

// derivedValue returns an entry of the sidecar for a value that follows from learned coefficients.
func derivedValue(label, key, unit string, v float64, origin, effect string) export.SideValue {
	return export.SideValue{
		Key:        label + "." + key,
		Name:       key,
		Value:      result.OrNull(v),
		Unit:       unit,
		Identified: "derived",
		Learned:    true,
		Origin:     origin,
		Effect:     effect,
	}
}
