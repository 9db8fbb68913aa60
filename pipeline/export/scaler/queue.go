package scaler

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Options change what is written.
type Options struct {
	Version     string // of the consumer; empty: not checked
	Config      string // only this server, by id; empty: all
	Key         string // inferno-models: perfParms or serviceParms
	Name        string // prefix of Kubernetes resources
	Namespace   string // wva-slo
	SLOClass    ConfigRef
	UnitCost    float64 // cents per device and hour; 0: not stated
	TTFTMs      float64 // wva-slo; 0: of the sizing
	ITLMs       float64
	Physical    bool // physical parameters in place of the effective ones
	ModelName   func(id string) string
	Accelerator func(hardware string) string
}

// Output is the file, and what its reader should know.
type Output struct {
	Data     []byte
	ReadBy   string
	Warnings []trace.Finding
}

// Calibration writes queue.json in a format.
func Calibration(q *result.Queue, f Format, o Options) (*Output, error) {
	r := ReaderOf(f)
	if err := r.CheckVersion(o.Version); err != nil {
		return nil, err
	}
	if err := r.CheckFlavour(queueing.Flavour(q.Flavour)); err != nil {
		return nil, err
	}
	servers, warnings, err := choose(q, r, &o)
	if err != nil {
		return nil, err
	}
	write := map[Format]func([]entry, *Options) ([]byte, []trace.Finding, error){
		WVA4P: wvaResources, InfernoModels: infernoModels, TunerConfig: tunerConfig, TunerState: tunerState, TunerCalibrate: tunerCalibrate,
		WVASLO: slo,
	}[f]
	data, more, err := write(servers, &o)
	if err != nil {
		return nil, err
	}
	by := r.Consumer
	if r.Note != "" {
		by += " (" + r.Note + ")"
	}
	return &Output{Data: data, ReadBy: by, Warnings: append(warnings, more...)}, nil
}

// entry is a server with the parameters that are exported.
type entry struct {
	*result.QueueServer
	flavour queueing.Flavour
	x       []float64 // nil where the format needs none
	how     []string  // how each came to its value
}

// choose picks the servers a file covers. Those without parameters are left out with a
// warning; two that the reader cannot tell apart are an error.
func choose(q *result.Queue, r *Reader, o *Options) ([]entry, []trace.Finding, error) {
	var out []entry
	var warnings []trace.Finding
	first := map[string]string{}
	var ids []string
	for i := range q.Servers {
		s := &q.Servers[i]
		ids = append(ids, s.ID)
		if o.Config != "" && s.ID != o.Config {
			continue
		}
		e := entry{QueueServer: s, flavour: queueing.Flavour(q.Flavour)}
		if r.Format != TunerCalibrate && r.Format != WVASLO {
			params := s.Effective
			if o.Physical {
				params = s.Physical
			}
			if len(params) != len(e.flavour.Parameters()) {
				warnings = append(warnings, trace.Findingf(nothingToSay, "%s is left out: %s", s.ID, orElse(s.Reason, "it has no such parameters")))
				continue
			}
			for _, p := range params {
				e.x, e.how = append(e.x, p.Value), append(e.how, p.Identified)
			}
		}
		if s.Model == "" || s.Accelerator == "" {
			return nil, nil, trace.Errorf(nothingToSay, "%s: got model %q on accelerator %q, want both named", s.ID, s.Model, s.Accelerator).
				WithHint("blis-train queue fit SWEEP --model ID --accelerator NAME")
		}
		key := s.Model + "\x00" + o.Accelerator(s.Accelerator)
		if other, ok := first[key]; ok && r.Format != TunerCalibrate {
			return nil, nil, trace.Errorf(sameEntry, "%s and %s would both be %q on %q; the reader keeps the last", other, s.ID, s.Model,
				o.Accelerator(s.Accelerator)).
				WithHint("--config " + s.ID + " takes one")
		}
		first[key] = s.ID
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, nil, trace.Errorf(nothingToSay, "%s: got no server to write, want one of %s", r.Format, trace.OneOf(ids))
	}
	return out, warnings, nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// wvaResources writes one resource a model.
func wvaResources(servers []entry, o *Options) ([]byte, []trace.Finding, error) {
	var resources []*VariantAutoscaling
	var comments [][]string
	at := map[string]int{}
	for _, s := range servers {
		k, seen := at[s.Model]
		if !seen {
			k = len(resources)
			at[s.Model] = k
			resources = append(resources, resource(&s, o))
			comments = append(comments,
				[]string{"ITL = alpha + beta*B; TTFT = gamma + delta*(input tokens)*B; ms. Fitted to latencies with the autoscaler's own queueing " +
					"model:"})
		}
		profile := &resources[k].Spec.Profile
		profile.Accelerators = append(profile.Accelerators, Accelerator{
			Acc: o.Accelerator(s.Accelerator), AccCount: s.AccCount, MaxBatchSize: int64(s.Limits.MaxBatch),
			PerfParms: PerfParm{
				Decode:  map[string]string{"alpha": exact(s.x[0]), "beta": exact(s.x[1])},
				Prefill: map[string]string{"gamma": exact(s.x[2]), "delta": exact(s.x[3])},
			},
		})
		comments[k] = append(comments[k], fmt.Sprintf("  %s: %s; %s", s.ID, load(&s), strings.Join(tags(&s), ", ")))
	}
	for k := range comments {
		comments[k] = append(comments[k], "The label names the accelerator in use and sloClassRef a ConfigMap of yours: edit both.")
	}
	data, err := WVA(resources, comments)
	return data, nil, err
}

// resource is an empty resource of a model in the shape of the consumer's version: up to
// v0.0.5 it names a service class, from v0.0.5 it states a cost.
func resource(s *entry, o *Options) *VariantAutoscaling {
	r := &VariantAutoscaling{
		APIVersion: "llmd.ai/v1alpha1", Kind: "VariantAutoscaling",
		Metadata: Metadata{Name: o.ModelName(s.Model),
			Labels: map[string]string{"inference.optimization/acceleratorName": o.Accelerator(s.Accelerator)}},
		Spec: Spec{ModelID: s.Model},
	}
	v, err := numbers(o.Version)
	old := NamesServiceClass(o.Version)
	if old {
		ref := o.SLOClass
		ref.Key = orElse(ref.Key, s.Model)
		r.Spec.SLOClassRef = &ref
	}
	if o.UnitCost > 0 && (!old || err == nil && v[2] == 5) {
		r.Spec.VariantCost = exact(o.UnitCost * float64(s.AccCount))
	}
	return r
}

// NamesServiceClass says whether the resource of a version has sloClassRef: its CRD demands it, a
// later one does not know it. Without a version it is the first.
func NamesServiceClass(version string) bool {
	v, err := numbers(version)
	return version == "" || err != nil || v[0] == 0 && v[1] == 0 && v[2] <= 5
}

func load(s *entry) string {
	if s.Load == nil {
		return "no windows"
	}
	return fmt.Sprintf("%d windows at %.3g requests/s of %.0f/%.0f tokens", s.Windows.Kept, s.Load.RateRPS, s.Load.PromptTokens,
		s.Load.OutputTokens)
}

// tags say how each parameter came to its value.
func tags(s *entry) []string {
	var out []string
	for i, name := range s.flavour.Parameters() {
		out = append(out, name+" "+s.how[i])
	}
	return out
}

// infernoModels writes one entry a server.
func infernoModels(servers []entry, o *Options) ([]byte, []trace.Finding, error) {
	models := []Model{}
	for _, s := range servers {
		m := Model{Name: o.ModelName(s.Model), Acc: o.Accelerator(s.Accelerator), AccCount: s.AccCount, MaxBatchSize: int64(s.Limits.MaxBatch),
			AtTokens: 1}
		if s.Load != nil {
			m.AtTokens = max(1, int64(math.Round(s.Load.OutputTokens)))
		}
		if p := (&Parms{s.x[0], s.x[1], s.x[2]}); o.Key == "serviceParms" {
			m.ServiceParms = p
		} else {
			m.PerfParms = p
		}
		models = append(models, m)
	}
	data, err := Inferno(models)
	return data, nil, err
}
