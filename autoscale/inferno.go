package autoscale

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// inferno writes one model entry per configuration.
func inferno(src export.Source, opt export.Options) (*export.Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	if err := readerOf(InfernoModels).CheckVersion(opt.Settings["version"]); err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := opt.Refuse(dup, oneConfigHint)
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, InfernoModels, infernoReadBy)
	models := []modelEntry{}
	for i, c := range cfgs {
		m, sc, w, err := infernoEntry(src, c, accs[i], opt)
		if err != nil {
			return nil, err
		}
		models = append(models, m)
		side.Configs = append(side.Configs, sc)
		side.Values = append(side.Values, infernoValues(c.Label, *m.PerfParms)...)
		warn = append(warn, w...)
	}
	data, err := Inferno(models)
	if err != nil {
		return nil, err
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.Beside(warn, export.File{Data: data})
}

func infernoEntry(src export.Source, c result.FitConfig, name accelerator, opt export.Options) (modelEntry, export.SideConfig,
	[]trace.Finding, error) {
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
	it, err := iterationLine(t, l, largest, d.Engine.MaxNumBatchedTokens)
	if err != nil {
		return modelEntry{}, export.SideConfig{}, nil, fmt.Errorf("%s: %w", c.Label, err)
	}
	warn = append(warn, lineWarnings(c.Label, "iteration", it)...)
	m := modelEntry{
		Name: deploy.ModelName(d.Model.ID), Acc: name.name, AccCount: name.count,
		MaxBatchSize: largest, AtTokens: max(1, int64(l.Output+0.5)),
		PerfParms: &parms{Alpha: it.coef[0], Beta: it.coef[1], Gamma: it.coef[2]},
	}
	sc := export.SideConfig{Label: c.Label, Seats: largest, PromptTokens: &l.Prompt, OutputTokens: &l.Output,
		MaxRelErr: &it.maxErr, MeanRelErr: &it.meanErr,
		GridPoints: it.points, ValidFor: validity(c, l, largest, d.Engine.MaxNumBatchedTokens), Note: renamedNote(name, c)}
	return m, sc, warn, nil
}

// lengthsHint says what to do about lengths beyond the training; %s are the codes.
const lengthsHint = "give --prompt-tokens and --output-tokens within the training, train on longer requests, or take the extrapolation " +
	"with --force %s"

// extrapolated are the mean lengths beyond the longest that the configuration was trained on.
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
			out = append(out, export.Refusal{Code: export.BeyondTraining, Sentence: fmt.Sprintf("%s: got a mean %s of %.0f tokens, "+
				"want at most %d, the longest of the training", c.Label, of.what, of.mean, of.longest)})
		}
	}
	return out
}

// validity is the range of the grid that the line was fitted on, and of what the training reached.
func validity(c result.FitConfig, l export.Lengths, largest, budget int64) *export.Validity {
	context := func(depth float64) int64 { return int64(math.Round((l.Prompt + float64(l.Output/2)) * depth)) }
	v := &export.Validity{Requests: [2]int64{1, largest}, ContextTokens: [2]int64{context(iterationDepths[0]), context(iterationDepths[2])},
		ChunkTokens: [2]int64{0, min(max(1, int64(math.Round(l.Prompt))), budget-1)}}
	if c.Covered != nil {
		v.LongestPrompt, v.LongestOutput, v.MostRunning = c.Covered.PromptTokens, c.Covered.OutputTokens, c.Covered.Running
	}
	return v
}

func infernoValues(label string, p parms) []export.SideValue {
	const origin = "non-negative least squares in relative error over a grid of batches, depths and prompt chunks of the physics model"
	return []export.SideValue{
		derived(label, "alpha", "ms", p.Alpha, origin, "time of an iteration before any token"),
		derived(label, "beta", "ms/token", p.Beta, origin, "time per computed token"),
		derived(label, "gamma", "ms/token", p.Gamma, origin, "time per KV token read"),
	}
}

// derived is a value of a configuration that follows from learned coefficients.
func derived(label, key, unit string, v float64, origin, effect string) export.SideValue {
	return export.SideValue{Key: label + "." + key, Name: key, Value: result.OrNull(v), Unit: unit, Identified: "derived", Learned: true,
		Origin: origin, Effect: effect}
}
