package autoscale

// This file writes a queueing calibration (queue.json) as the file of an autoscaler. Effective
// parameters are fitted to latencies, physical ones to recorded steps.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	llm "github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// queueOptions are the options of an export of queue.json.
type queueOptions struct {
	export.Settings
	format export.Format
	config string // only this server, by id; empty: all
}

// physical reports whether the file shall have the physical parameters instead of the effective
// ones.
func (o *queueOptions) physical() bool { return o.Settings["physical"] == "true" }

// modelName returns the name of a model in the file: a Kubernetes name, or the last part of its id.
func (o *queueOptions) modelName(id string) string {
	if o.format == QueueWVA4P || o.format == wvaSLO {
		return resourceName(o.Settings["name"], id)
	}
	return llm.Name(id)
}

// Calibration returns the file of an autoscaler for calibration q, with a sidecar that states where
// its values come from. in is queue.json as an input.
func Calibration(q *Queue, in result.Input, f export.Format, o export.Options) (*export.Output, error) {
	if !slices.Contains(Formats, f) {
		return nil, trace.Errorf(unknownFormat, "format of a queueing calibration: got %q, want %s", f,
			trace.OneOf(Formats)).
			WithHint("blis-train fit OUT writes fit.json, which the others are made of")
	}
	qo := queueOptions{Settings: o.Settings, format: f, config: o.Config}
	data, warnings, err := calibrationFile(q, &qo)
	if err != nil {
		return nil, err
	}
	r := readerOf(f)
	by := r.Consumer
	if r.Note != "" {
		by += " (" + r.Note + ")"
	}
	side := export.NewSidecar(&q.Header, in, string(f), o.Command, by)
	if said, _ := q.VerdictOf(o.Config); said != "" {
		side.Verdict = said
	}
	side.SpecVersion = result.TextOrNull(q.Flavour)
	side.Warnings = append(side.Warnings, warnings...)
	for i := range q.Servers {
		s := &q.Servers[i]
		if o.Config != "" && s.ID != o.Config {
			continue
		}
		for _, p := range s.parameters(qo.physical()) {
			side.Values = append(side.Values, export.SideValue{
				Key:        s.ID + "." + p.Name,
				Name:       p.Name,
				Value:      result.OrNull(p.Value),
				Unit:       p.Unit,
				CI95:       p.CI95,
				Identified: p.Identified,
				Learned:    p.Identified == measured,
				Origin:     "queue fit",
				Effect:     "parameter of the autoscaler's queueing model",
			})
		}
		c := export.SideConfig{Label: s.ID, Seats: int64(s.Limits.MaxBatch), Note: s.Reason}
		if s.Load != nil {
			c.PromptTokens = &s.Load.PromptTokens
			c.OutputTokens = &s.Load.OutputTokens
		}
		side.Configs = append(side.Configs, c)
	}
	return side.OutputWith(warnings, export.File{Data: data})
}

// calibrationFile returns the content of the file, and warnings. Versions and queueing models that the
// reader of the file does not take are errors.
func calibrationFile(q *Queue, o *queueOptions) ([]byte, []trace.Finding, error) {
	r := readerOf(o.format)
	if err := r.CheckVersion(o.Settings["version"]); err != nil {
		return nil, nil, err
	}
	if err := r.CheckFlavour(Flavour(q.Flavour)); err != nil {
		return nil, nil, err
	}
	servers, warnings, err := chooseServers(q, r, o)
	if err != nil {
		return nil, nil, err
	}
	write := map[export.Format]func([]exported, *queueOptions) ([]byte, []trace.Finding, error){
		QueueWVA4P:     wvaResources,
		InfernoModels:  infernoModels,
		TunerConfig:    tunerConfig,
		TunerCalibrate: tunerCalibrate,
		wvaSLO:         writeSLO,
	}
	data, more, err := write[o.format](servers, o)
	return data, append(warnings, more...), err
}

// exported is a server with the parameters that its file gets.
type exported struct {
	*QueueServer
	flavour Flavour
	params  []queueParameter // physical or effective; nil where the format needs none
	x       []float64        // their values
}

// chooseServers returns the servers that the file covers. Servers without parameters are omitted
// with a warning. Two servers that the reader of the file could not distinguish are an error.
func chooseServers(q *Queue, r *reader, o *queueOptions) ([]exported, []trace.Finding, error) {
	var out []exported
	var warnings []trace.Finding
	first := map[string]string{} // id of the first server by model and accelerator, by which readers look up
	var ids []string
	for i := range q.Servers {
		s := &q.Servers[i]
		ids = append(ids, s.ID)
		if o.config != "" && s.ID != o.config {
			continue
		}
		e := exported{QueueServer: s, flavour: Flavour(q.Flavour)}
		if r.Format != TunerCalibrate && r.Format != wvaSLO {
			e.params = s.parameters(o.physical())
			if len(e.params) != len(e.flavour.Parameters()) {
				warnings = append(warnings, trace.Findingf(export.NothingToExport,
					"%s is left out: %s", s.ID, cmp.Or(s.Reason,
						"it has no such parameters")))
				continue
			}
			e.x = valuesOf(e.params)
		}
		if s.Model == "" || s.Accelerator == "" {
			return nil, nil, trace.Errorf(export.NothingToExport,
				"%s: got model %q on accelerator %q, want both named", s.ID, s.Model,
				s.Accelerator).
				WithHint("blis-train queue fit SWEEP --model ID --accelerator NAME")
		}
		key := s.Model + "\x00" + shortName(s.Accelerator)
		if other, ok := first[key]; ok && r.Format != TunerCalibrate {
			return nil, nil, trace.Errorf(export.BadEntry,
				"%s and %s would both be %q on %q; the reader keeps the last", other, s.ID, s.Model,
				shortName(s.Accelerator)).
				WithHint("--config " + s.ID + " takes one")
		}
		first[key] = s.ID
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, nil, trace.Errorf(export.NothingToExport,
			"%s: got no server to write, want one of %s", r.Format, trace.OneOf(ids))
	}
	return out, warnings, nil
}

// wvaResources returns the resources of workload-variant-autoscaler, one for each model.
func wvaResources(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	cost := o.Float("unit-cost")
	version := o.Settings["version"]
	if cost > 0 && !hasVariantCost(version) {
		return nil, nil, trace.Errorf(export.BadEntry,
			"--option unit-cost: got %g for %s, which has no spec.variantCost, want v0.0.5 or later", cost, version)
	}
	var file resourceFile
	for _, s := range servers {
		var how []string
		for _, p := range s.params {
			how = append(how, p.Name+" "+p.Identified)
		}
		r := file.addAccelerator(s.Model, Accelerator{
			Acc:          shortName(s.Accelerator),
			AccCount:     s.AccCount,
			MaxBatchSize: int64(s.Limits.MaxBatch),
			PerfParms: perfParm{
				Decode:  map[string]string{"alpha": exactDigits(s.x[0]), "beta": exactDigits(s.x[1])},
				Prefill: map[string]string{"gamma": exactDigits(s.x[2]), "delta": exactDigits(s.x[3])},
			},
		}, fmt.Sprintf("%s: %s; %s", s.ID, loadText(&s), strings.Join(how, ", ")), o.Settings,
			"ITL = alpha + beta*B; TTFT = wait + gamma + delta*(input tokens)*B; ms. Fitted to latencies with the "+
				"autoscaler's own queueing model:")
		if cost > 0 && r.Spec.VariantCost == "" { // of a model's first accelerator
			r.Spec.VariantCost = exactDigits(cost * float64(s.AccCount))
		}
	}
	warnings := file.unpriced(version, "state it with --option unit-cost=CENTS")
	data, err := file.encode(version)
	return data, warnings, err
}

// hasVariantCost reports whether resources of this version of the autoscaler have the field
// variantCost, as those from v0.0.5 on and those of an unknown version have.
func hasVariantCost(version string) bool {
	v, err := releaseOf(version)
	return version == "" || err != nil || slices.Compare(v, []int{0, 0, 5}) >= 0
}

// namesServiceClass reports whether resources of this version of the autoscaler have the field
// sloClassRef. Versions up to v0.0.5 require it, later ones do not have it. Without a version it is
// required.
func namesServiceClass(version string) bool {
	v, err := releaseOf(version)
	if version == "" || err != nil {
		return true
	}
	return slices.Compare(v, []int{0, 0, 5}) <= 0
}

// loadText describes the load of a server for a comment in the file.
func loadText(s *exported) string {
	if s.Load == nil {
		return "no windows"
	}
	return fmt.Sprintf("%d windows at %.3g requests/s of %.0f/%.0f tokens", s.Windows.Kept, s.Load.RateRPS,
		s.Load.PromptTokens,
		s.Load.OutputTokens)
}

// infernoModels returns the entries of llm-inferno's model-data.json, one for each server.
func infernoModels(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	models := []modelEntry{}
	for _, s := range servers {
		m := modelEntry{
			Name:         o.modelName(s.Model),
			Acc:          shortName(s.Accelerator),
			AccCount:     s.AccCount,
			MaxBatchSize: int64(s.Limits.MaxBatch),
			AtTokens:     1,
		}
		if s.Load != nil {
			m.AtTokens = max(1, trace.Int(s.Load.OutputTokens))
		}
		p := &parms{Alpha: s.x[0], Beta: s.x[1], Gamma: s.x[2]}
		if o.Settings["key"] == "serviceParms" {
			m.ServiceParms = p
		} else {
			m.PerfParms = p
		}
		models = append(models, m)
	}
	data, err := Inferno(models)
	return data, nil, err
}

// parameters returns the physical or the effective parameters of the server.
func (s *QueueServer) parameters(physical bool) []queueParameter {
	if physical {
		return s.Physical
	}
	return s.Effective
}
