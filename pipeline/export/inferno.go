package export

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// infernoData is llm-inferno's model-data.json.
type infernoData struct {
	Models []infernoModel `json:"models"`
}

type infernoModel struct {
	Name         string `json:"name"`
	Acc          string `json:"acc"`
	AccCount     int64  `json:"accCount"`
	MaxBatchSize int64  `json:"maxBatchSize"`
	// AtTokens is the mean output length behind maxBatchSize: the optimizer
	// scales the batch by atTokens over the load's mean output length.
	AtTokens  int64        `json:"atTokens"`
	PerfParms infernoParms `json:"perfParms"`
}

// infernoParms are ms, ms per computed token and ms per KV token read.
type infernoParms struct {
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta"`
	Gamma float64 `json:"gamma"`
}

const infernoReadBy = "llm-inferno optimizer-light and control-loop (2026): iteration ms = alpha + beta*computed tokens + gamma*KV " +
	"tokens read"

// inferno writes one model entry per configuration.
func inferno(src Source, opt Options) (*Output, error) {
	cfgs, err := configs(src, opt.Config)
	if err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := settle(dup, opt.Force, oneConfigHint)
	if err != nil {
		return nil, err
	}
	side := newSidecar(src, FormatInferno, infernoReadBy)
	doc := infernoData{Models: []infernoModel{}}
	for i, c := range cfgs {
		m, sc, w, err := infernoEntry(src, c, accs[i], opt)
		if err != nil {
			return nil, err
		}
		doc.Models = append(doc.Models, m)
		side.Configs = append(side.Configs, sc)
		side.Values = append(side.Values, infernoValues(c.Label, m.PerfParms)...)
		warn = append(warn, w...)
	}
	data, err := result.Marshal(doc)
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
		PerfParms: infernoParms{Alpha: it.coef[0], Beta: it.coef[1], Gamma: it.coef[2]},
	}
	sc := SideConfig{Label: c.Label, PromptTokens: &l.prompt, OutputTokens: &l.output, MaxRelErr: &it.maxErr, MeanRelErr: &it.meanErr,
		GridPoints: it.points, Note: renamedNote(name, c)}
	return m, sc, warn, nil
}

func infernoValues(label string, p infernoParms) []SideValue {
	const origin = "non-negative least squares in relative error over a grid of batches, depths and prompt chunks of the physics model"
	at := func(key, unit string, v float64, effect string) SideValue {
		return SideValue{Key: label + "." + key, Name: key, Value: finite(v), Unit: unit, Identified: "derived", Learned: true, Origin: origin,
			Effect: effect}
	}
	return []SideValue{
		at("alpha", "ms", p.Alpha, "time of an iteration before any token"),
		at("beta", "ms/token", p.Beta, "time per computed token"),
		at("gamma", "ms/token", p.Gamma, "time per KV token read"),
	}
}
