package export

import (
	"fmt"

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
	side := newSidecar(src, FormatInferno, scaler.InfernoReadBy)
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
	sideData, err := side.encode()
	if err != nil {
		return nil, err
	}
	return &Output{Files: []File{{"", data}, {SidecarSuffix, sideData}}, Warnings: warn}, nil
}

func infernoEntry(src Source, c result.FitConfig, name accelerator, opt Options) (infernoModel, SideConfig, []trace.Finding, error) {
	d := c.Deployment
	l, warn := lengthsOf(c, opt)
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
		GridPoints: it.points, Note: renamedNote(name, c)}
	return m, sc, warn, nil
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
