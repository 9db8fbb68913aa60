package export

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/pipeline/export/scaler"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// The entries as pipeline/export/scaler defines them.
type (
	infernoData  = scaler.ModelData
	infernoModel = scaler.Model
	infernoParms = scaler.Parms
)

// inferno writes one model entry per configuration.
func inferno(src Source, opt Options) (*Output, error) {
	cfgs, err := configs(src, opt.Config)
	if err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := settle(dup, &opt, oneConfigHint)
	if err != nil {
		return nil, err
	}
	side := newSidecar(src, opt, FormatInferno, scaler.InfernoReadBy)
	models := []infernoModel{}
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
	data, err := scaler.Inferno(models)
	if err != nil {
		return nil, err
	}
	side.Warnings = append(validationWarnings(src), warn...)
	return side.Beside(warn, File{"", data})
}

func infernoEntry(src Source, c result.FitConfig, name accelerator, opt Options) (infernoModel, SideConfig, []trace.Finding, error) {
	d := c.Deployment
	l, warn := lengthsOf(c, opt)
	beyond, err := settle(extrapolated(c, l), &opt, lengthsHint)
	if err != nil {
		return infernoModel{}, SideConfig{}, nil, err
	}
	warn = append(warn, beyond...)
	t, err := stepTimer(src, c)
	if err != nil {
		return infernoModel{}, SideConfig{}, nil, err
	}
	largest := d.Seats(l.prompt + l.output)
	it, err := iterationLine(t, l, largest, d.Engine.MaxNumBatchedTokens)
	if err != nil {
		return infernoModel{}, SideConfig{}, nil, fmt.Errorf("%s: %w", c.Label, err)
	}
	warn = append(warn, lineWarnings(c.Label, "iteration", it)...)
	m := infernoModel{
		Name: registryModel(d.Model.ID), Acc: name.name, AccCount: name.count,
		MaxBatchSize: largest, AtTokens: max(1, int64(l.output+0.5)),
		PerfParms: &infernoParms{Alpha: it.coef[0], Beta: it.coef[1], Gamma: it.coef[2]},
	}
	sc := SideConfig{Label: c.Label, Seats: largest, PromptTokens: &l.prompt, OutputTokens: &l.output,
		MaxRelErr: &it.maxErr, MeanRelErr: &it.meanErr,
		GridPoints: it.points, ValidFor: validity(c, l, largest, d.Engine.MaxNumBatchedTokens), Note: renamedNote(name, c)}
	return m, sc, warn, nil
}

// lengthsHint says what to do about lengths beyond the training; %s are the codes.
const lengthsHint = "give --prompt-tokens and --output-tokens within the training, train on longer requests, or take the extrapolation " +
	"with --force %s"

// extrapolated are the mean lengths beyond the longest that the configuration was trained on.
func extrapolated(c result.FitConfig, l lengths) (out []refusal) {
	if c.Covered == nil {
		return nil
	}
	for _, of := range []struct {
		what    string
		mean    float64
		longest int64
	}{{"prompt", l.prompt, c.Covered.PromptTokens}, {"output", l.output, c.Covered.OutputTokens}} {
		if of.longest > 0 && of.mean > float64(of.longest) {
			out = append(out, refusal{code: beyondTraining, sentence: fmt.Sprintf("%s: got a mean %s of %.0f tokens, "+
				"want at most %d, the longest of the training", c.Label, of.what, of.mean, of.longest)})
		}
	}
	return out
}

// validity is the range of the grid that the line was fitted on, and of what the training reached.
func validity(c result.FitConfig, l lengths, largest, budget int64) *Validity {
	context := func(depth float64) int64 { return int64(math.Round((l.prompt + float64(l.output/2)) * depth)) }
	v := &Validity{Requests: [2]int64{1, largest}, ContextTokens: [2]int64{context(iterationDepths[0]), context(iterationDepths[2])},
		ChunkTokens: [2]int64{0, min(max(1, int64(math.Round(l.prompt))), budget-1)}}
	if c.Covered != nil {
		v.LongestPrompt, v.LongestOutput, v.MostRunning = c.Covered.PromptTokens, c.Covered.OutputTokens, c.Covered.Running
	}
	return v
}

func infernoValues(label string, p infernoParms) []SideValue {
	const origin = "non-negative least squares in relative error over a grid of batches, depths and prompt chunks of the physics model"
	at := func(key, unit string, v float64, effect string) SideValue {
		return SideValue{Key: label + "." + key, Name: key, Value: result.OrNull(v), Unit: unit, Identified: "derived", Learned: true,
			Origin: origin,
			Effect: effect}
	}
	return []SideValue{
		at("alpha", "ms", p.Alpha, "time of an iteration before any token"),
		at("beta", "ms/token", p.Beta, "time per computed token"),
		at("gamma", "ms/token", p.Gamma, "time per KV token read"),
	}
}
