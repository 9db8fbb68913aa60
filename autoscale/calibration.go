package autoscale

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
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

// physical says that the physical parameters stand in place of the effective ones.
func (o *queueOptions) physical() bool { return o.Settings["physical"] == "true" }

// modelName is how the format calls a model: a Kubernetes name, or the last part of its id.
func (o *queueOptions) modelName(id string) string {
	if o.format == QueueWVA4P || o.format == wvaslo {
		return resourceName(o.Settings["name"], id)
	}
	return llm.Name(id)
}

// Calibration writes a queueing calibration in the format of an autoscaler, with a sidecar.
func Calibration(q *Queue, in result.Input, f export.Format, o export.Options) (*export.Output, error) {
	if !slices.Contains(Formats, f) {
		return nil, trace.Errorf(unknownFormat, "format of a queueing calibration: got %q, want %s", f, trace.OneOf(Formats)).
			WithHint("blis-train fit OUT writes fit.json, which the others are made of")
	}
	qo := queueOptions{Settings: o.Settings, format: f, config: o.Config}
	data, warnings, err := formatsCalibration(q, &qo)
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
				Key: s.ID + "." + p.Name, Name: p.Name, Value: result.OrNull(p.Value), Unit: p.Unit, CI95: p.CI95, Identified: p.Identified,
				Learned: p.Identified == measured, Origin: "queue fit", Effect: "parameter of the autoscaler's queueing model",
			})
		}
		c := export.SideConfig{Label: s.ID, Seats: int64(s.Limits.MaxBatch), Note: s.Reason}
		if s.Load != nil {
			c.PromptTokens = &s.Load.PromptTokens
			c.OutputTokens = &s.Load.OutputTokens
		}
		side.Configs = append(side.Configs, c)
	}
	return side.Beside(warnings, export.File{Data: data})
}

// formatsCalibration is the file alone, and what its reader should know.
func formatsCalibration(q *Queue, o *queueOptions) ([]byte, []trace.Finding, error) {
	r := readerOf(o.format)
	if err := r.CheckVersion(o.Settings["version"]); err != nil {
		return nil, nil, err
	}
	if err := r.CheckFlavour(Flavour(q.Flavour)); err != nil {
		return nil, nil, err
	}
	servers, warnings, err := choose(q, r, o)
	if err != nil {
		return nil, nil, err
	}
	write := map[export.Format]func([]exported, *queueOptions) ([]byte, []trace.Finding, error){
		QueueWVA4P: wvaResources, InfernoModels: infernoModels, TunerConfig: tunerConfig, TunerCalibrate: tunerCalibrate, wvaslo: slo,
	}[o.format]
	data, more, err := write(servers, o)
	return data, append(warnings, more...), err
}

// exported is a server with the parameters that are exported.
type exported struct {
	*QueueServer
	flavour Flavour
	params  []queueParameter
	x       []float64 // their values; nil where the format needs none
}

// choose picks the servers a file covers. Those without parameters are left out with a
// warning; two that the reader cannot tell apart are an error.
func choose(q *Queue, r *reader, o *queueOptions) ([]exported, []trace.Finding, error) {
	var out []exported
	var warnings []trace.Finding
	first := map[string]string{}
	var ids []string
	for i := range q.Servers {
		s := &q.Servers[i]
		ids = append(ids, s.ID)
		if o.config != "" && s.ID != o.config {
			continue
		}
		e := exported{QueueServer: s, flavour: Flavour(q.Flavour)}
		if r.Format != TunerCalibrate && r.Format != wvaslo {
			if e.params = s.parameters(o.physical()); len(e.params) != len(e.flavour.Parameters()) {
				warnings = append(warnings, trace.Findingf(export.NothingToExport, "%s is left out: %s", s.ID, cmp.Or(s.Reason,
					"it has no such parameters")))
				continue
			}
			e.x = valuesOf(e.params)
		}
		if s.Model == "" || s.Accelerator == "" {
			return nil, nil, trace.Errorf(export.NothingToExport, "%s: got model %q on accelerator %q, want both named", s.ID, s.Model,
				s.Accelerator).
				WithHint("blis-train queue fit SWEEP --model ID --accelerator NAME")
		}
		key := s.Model + "\x00" + shortName(s.Accelerator)
		if other, ok := first[key]; ok && r.Format != TunerCalibrate {
			return nil, nil, trace.Errorf(export.BadEntry, "%s and %s would both be %q on %q; the reader keeps the last", other, s.ID, s.Model,
				shortName(s.Accelerator)).
				WithHint("--config " + s.ID + " takes one")
		}
		first[key] = s.ID
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, nil, trace.Errorf(export.NothingToExport, "%s: got no server to write, want one of %s", r.Format, trace.OneOf(ids))
	}
	return out, warnings, nil
}

// wvaResources writes one resource a model.
func wvaResources(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	cost := o.Float("unit-cost")
	version := o.Settings["version"]
	if v, err := releaseOf(version); cost > 0 && version != "" && err == nil && slices.Compare(v, []int{0, 0, 5}) < 0 {
		return nil, nil, trace.Errorf(export.BadEntry, "--option unit-cost: got %g for %s, which has no spec.variantCost, want v0.0.5 or "+
			"later", cost, version)
	}
	var file resourceFile
	for _, s := range servers {
		var how []string
		for _, p := range s.params {
			how = append(how, p.Name+" "+p.Identified)
		}
		r := file.add(s.Model, Accelerator{
			Acc: shortName(s.Accelerator), AccCount: s.AccCount, MaxBatchSize: int64(s.Limits.MaxBatch), PerfParms: perfParm{
				Decode:  map[string]string{"alpha": exact(s.x[0]), "beta": exact(s.x[1])},
				Prefill: map[string]string{"gamma": exact(s.x[2]), "delta": exact(s.x[3])},
			},
		}, fmt.Sprintf("%s: %s; %s", s.ID, load(&s), strings.Join(how, ", ")), o.Settings,
			"ITL = alpha + beta*B; TTFT = gamma + delta*(input tokens)*B; ms. Fitted to latencies with the autoscaler's own queueing model:")
		if cost > 0 && r.Spec.VariantCost == "" { // of a model's first accelerator
			r.Spec.VariantCost = exact(cost * float64(s.AccCount))
		}
	}
	data, err := file.write()
	return data, nil, err
}

// namesServiceClass says whether the resource of a version has sloClassRef: its CRD demands it, a
// later one does not know it. Without a version it is the first.
func namesServiceClass(version string) bool {
	v, err := releaseOf(version)
	return version == "" || err != nil || v[0] == 0 && v[1] == 0 && v[2] <= 5
}

func load(s *exported) string {
	if s.Load == nil {
		return "no windows"
	}
	return fmt.Sprintf("%d windows at %.3g requests/s of %.0f/%.0f tokens", s.Windows.Kept, s.Load.RateRPS, s.Load.PromptTokens,
		s.Load.OutputTokens)
}

// infernoModels writes one entry a server.
func infernoModels(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	models := []modelEntry{}
	for _, s := range servers {
		m := modelEntry{Name: o.modelName(s.Model), Acc: shortName(s.Accelerator), AccCount: s.AccCount, MaxBatchSize: int64(s.Limits.MaxBatch),
			AtTokens: 1}
		if s.Load != nil {
			m.AtTokens = max(1, trace.Int(s.Load.OutputTokens))
		}
		if p := (&parms{s.x[0], s.x[1], s.x[2]}); o.Settings["key"] == "serviceParms" {
			m.ServiceParms = p
		} else {
			m.PerfParms = p
		}
		models = append(models, m)
	}
	data, err := Inferno(models)
	return data, nil, err
}

// parameters are what latencies say, or what the step traces say.
func (s *QueueServer) parameters(physical bool) []queueParameter {
	if physical {
		return s.Physical
	}
	return s.Effective
}

// configData is model-tuner's configuration (pkg/config/types.go@6dba8ce).
type configData struct {
	Filter filterData     `json:"filterData"`
	Model  tunerModelData `json:"modelData"`
}

// filterData sets the measurement noise, R = diag((errorLevel/tPercentile)^2 z^2/gammaFactor).
type filterData struct {
	GammaFactor float64 `json:"gammaFactor"`
	ErrorLevel  float64 `json:"errorLevel"`
	TPercentile float64 `json:"tPercentile"`
}

// tunerModelData is the state, its drift (Q = diag((percentChange x)^2)) and bounds, and z in R.
type tunerModelData struct {
	InitState     []float64 `json:"initState"` // alpha, beta, gamma
	PercentChange []float64 `json:"percentChange"`
	BoundedState  bool      `json:"boundedState"`
	MinState      []float64 `json:"minState"`
	MaxState      []float64 `json:"maxState"`
	Expected      []float64 `json:"expectedObservations"` // TTFT, ITL ms
}

// model-tuner's defaults (config-data/default-config-data.json@6dba8ce), and its bounds.
const (
	tunerPercentile  = 1.96
	tunerErrorLevel  = 0.5
	tunerChange      = 0.15
	tunerLow         = 0.01
	tunerHigh        = 100
	medianToSD       = 1.4826 // a median absolute deviation of a normal as its standard deviation
	leastTunerChange = 0.001
)

// tunerConfig writes the configuration of a tuner for one server, noise and drift measured.
func tunerConfig(servers []exported, _ *queueOptions) ([]byte, []trace.Finding, error) {
	if len(servers) > 1 {
		return nil, nil, trace.Errorf(export.BadEntry, "tuner-config: got %d servers, want one: a tuner has one configuration",
			len(servers)).WithHint("--config " + servers[0].ID)
	}
	s := &servers[0]
	var warnings []trace.Finding
	c := configData{
		Filter: filterData{GammaFactor: 1, ErrorLevel: tunerErrorLevel, TPercentile: tunerPercentile},
		Model:  tunerModelData{InitState: s.x, BoundedState: true, Expected: []float64{200, 40}},
	}
	if s.Load != nil {
		c.Model.Expected = []float64{s.Load.TTFTMs, s.Load.ITLMs}
	}
	if n := s.Noise; n != nil && n.TTFTResidual != nil && n.ITLResidual != nil && max(*n.TTFTResidual, *n.ITLResidual) > 0 {
		c.Filter.ErrorLevel = tunerPercentile * medianToSD * max(*n.TTFTResidual, *n.ITLResidual)
	} else {
		warnings = append(warnings, trace.Findingf(export.AssumedValue,
			"%s: the noise of a window is not known; errorLevel is the tuner's %g", s.ID, tunerErrorLevel))
	}
	var change []float64 // per window, as the sliding refit measured it
	if i := slices.IndexFunc(s.Tracks, func(t queueTrack) bool {
		return t.Estimator == "sliding" && t.Flavour == string(s.flavour) && len(t.Drift) == len(s.x)
	}); i >= 0 {
		change = s.Tracks[i].Drift
	} else {
		warnings = append(warnings,
			trace.Findingf(export.AssumedValue, "%s: no sliding refit says how fast the parameters drift; percentChange is the tuner's %g", s.ID,
				tunerChange))
	}
	for i, x := range s.x {
		p := tunerChange
		if change != nil {
			p = math.Max(leastTunerChange, medianToSD*change[i])
		}
		c.Model.PercentChange = append(c.Model.PercentChange, p)
		c.Model.MinState = append(c.Model.MinState, tunerLow*x)
		c.Model.MaxState = append(c.Model.MaxState, tunerHigh*x)
	}
	data, err := result.Marshal(c)
	return data, warnings, err
}

// serverSpec is an operating point as POST /calibrate takes it (optimizer-light
// pkg/config/types.go@77615bd). Rates are per minute.
type serverSpec struct {
	Name         string     `json:"name"`
	Class        string     `json:"class"`
	Model        string     `json:"model"`
	MaxBatchSize int        `json:"maxBatchSize"`
	MaxQueueSize int        `json:"maxQueueSize"`
	CurrentAlloc allocation `json:"currentAlloc"`
}

// allocation is what a server showed.
type allocation struct {
	Accelerator string     `json:"accelerator"`
	NumReplicas int        `json:"numReplicas"`
	MaxBatch    int        `json:"maxBatch"`
	ITLAverage  float64    `json:"itlAverage"`
	TTFTAverage float64    `json:"ttftAverage"`
	Load        serverLoad `json:"load"`
}

// serverLoad is the load of one replica.
type serverLoad struct {
	ArrivalRate  float64 `json:"arrivalRate"` // requests per minute
	Throughput   float64 `json:"throughput"`
	AvgInTokens  int     `json:"avgInTokens"`
	AvgOutTokens int     `json:"avgOutTokens"`
}

// secondsPerMinute turns our rates into the tuner's.
const secondsPerMinute = 60

// tunerCalibrate writes the operating points that tell the parameters apart best.
func tunerCalibrate(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	specs := []serverSpec{}
	for _, s := range servers {
		for _, p := range s.Points {
			rate := secondsPerMinute * p.RateRPS
			specs = append(specs, serverSpec{
				Name: s.ID, Class: "default", Model: o.modelName(s.Model), MaxBatchSize: s.Limits.MaxBatch, MaxQueueSize: s.Limits.Queue,
				CurrentAlloc: allocation{
					Accelerator: shortName(s.Accelerator), NumReplicas: 1, MaxBatch: s.Limits.MaxBatch, ITLAverage: p.ITLMs, TTFTAverage: p.TTFTMs,
					Load: serverLoad{ArrivalRate: rate, Throughput: rate, AvgInTokens: int(trace.Int(p.PromptTokens)),
						AvgOutTokens: int(trace.Int(p.OutputTokens))},
				},
			})
		}
	}
	if len(specs) < 2 {
		return nil, nil, trace.Errorf(export.NothingToExport, "tuner-calibrate: got %d operating points, want at least 2", len(specs))
	}
	data, err := result.Marshal(specs)
	return data, nil, err
}

// sloEntry is one entry of the configMap wva-queueing-model-config.
type sloEntry struct {
	Multiplier float64 `yaml:"sloMultiplier,omitempty"`
	Tuning     *bool   `yaml:"tuningEnabled,omitempty"`
	ModelID    string  `yaml:"model_id,omitempty"`
	Namespace  string  `yaml:"namespace,omitempty"`
	TTFT       float64 `yaml:"targetTTFT,omitempty"` // ms
	ITL        float64 `yaml:"targetITL,omitempty"`  // ms
}

// configMap is a Kubernetes configMap of texts.
type configMap struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   metadata          `yaml:"metadata"`
	Data       map[string]string `yaml:"data"`
}

// sloMultiplier is the autoscaler's default: targets without a word are what an iteration of
// three times the idle one gives.
const sloMultiplier = 3

// slo writes the targets. Both or none: the autoscaler refuses one alone.
func slo(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	base, err := yaml.Marshal(sloEntry{Multiplier: sloMultiplier, Tuning: new(true)})
	if err != nil {
		return nil, nil, err
	}
	m := configMap{
		APIVersion: "v1", Kind: "ConfigMap", Data: map[string]string{"default": string(base)},
		Metadata: metadata{Name: "wva-queueing-model-config", Labels: map[string]string{"app.kubernetes.io/name": "workload-variant-autoscaler"}},
	}
	for _, s := range servers {
		e := sloEntry{ModelID: s.Model, Namespace: o.Settings["namespace"], TTFT: o.Float("ttft-ms"), ITL: o.Float("itl-ms")}
		if z := s.Sizing; z != nil && e.TTFT == 0 && e.ITL == 0 {
			e.TTFT, e.ITL = z.TargetTTFTMs, z.TargetITLMs
		}
		if !(e.TTFT > 0 && e.ITL > 0) || e.Namespace == "" {
			return nil, nil, trace.Errorf(export.NothingToExport, "wva-slo: %s: got TTFT %g ms, ITL %g ms, namespace %q, want all three", s.ID,
				e.TTFT, e.ITL, e.Namespace).
				WithHint("--option ttft-ms=MS --option itl-ms=MS --option namespace=NAME")
		}
		text, err := yaml.Marshal(e)
		if err != nil {
			return nil, nil, err
		}
		m.Data[o.modelName(s.Model)] = string(text)
	}
	data, err := yaml.Marshal(m)
	return data, nil, err
}

// The formats there are.
const (
	QueueWVA4P     export.Format = "wva-4p"
	InfernoModels  export.Format = "inferno-models"
	vllmSim        export.Format = "vllm-sim"
	TunerConfig    export.Format = "tuner-config"
	TunerCalibrate export.Format = "tuner-calibrate"
	wvaslo         export.Format = "wva-slo"
)

// Formats lists them in the order help shows them.
var Formats = []export.Format{QueueWVA4P, InfernoModels, TunerConfig, TunerCalibrate, wvaslo}

// reader says who takes a file, since and until which of its versions, and which queueing
// models it has.
type reader struct {
	Format   export.Format
	Consumer string
	Since    string // first version; empty: all
	Until    string // first version that no longer takes it; empty: none known
	Why      string // what happened at Until
	Instead  string // what to do about it
	Flavours []Flavour
	Note     string
}

//go:embed readers.yaml
var readersYAML []byte

// known are the readers of the files, as docs/contracts/autoscaler.yaml has them, read at the commits named there, and the
// options of single formats.
var known = files.Embedded[struct {
	Readers []reader
	Options map[string]export.Setting
	Of      map[export.Format][]string // options by format that is made of a fit
	Queue   map[export.Format][]string // the same of queue.json
}](readersYAML, "readers.yaml")

// readerOf returns the reader of a format.
func readerOf(f export.Format) *reader {
	all := known().Readers
	return &all[slices.IndexFunc(all, func(r reader) bool { return r.Format == f })]
}

// CheckVersion says why a version of the consumer does not take the format; empty version: any.
func (r *reader) CheckVersion(version string) error {
	if version == "" {
		return nil
	}
	v, err := releaseOf(version)
	if err != nil {
		return err
	}
	since, _ := releaseOf(r.Since)
	until, _ := releaseOf(r.Until)
	switch {
	case r.Until != "" && slices.Compare(v, until) >= 0:
		return trace.Errorf(unknownFormat, "%s: %s %s does not read it: %s", r.Format, r.Consumer, version, r.Why).WithHint(r.Instead)
	case r.Since != "" && slices.Compare(v, since) < 0:
		return trace.Errorf(unknownFormat, "%s: %s reads it from %s on, got %s", r.Format, r.Consumer, r.Since, version)
	}
	return nil
}

// CheckFlavour says why the consumer cannot use parameters of a queueing model.
func (r *reader) CheckFlavour(f Flavour) error {
	if slices.Contains(r.Flavours, f) {
		return nil
	}
	return trace.Errorf(unknownFormat, "%s: got parameters of %s, want %s, the model of its reader (%s)", r.Format, f,
		trace.OneOf(r.Flavours),
		r.Consumer).
		WithHint("blis-train queue fit --flavour " + string(r.Flavours[0]))
}

// releaseOf splits v1.2.3; a suffix such as -rc.1 counts as the release.
func releaseOf(version string) ([]int, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	out := []int{0, 0, 0}
	parts := strings.Split(text, ".")
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || i > 2 {
			return nil, trace.Errorf(unknownFormat, "--option version: got %q, want one like v0.4.2", version)
		}
		out[i] = n
	}
	return out, nil
}

// settings are the options of those names.
func settings(keys []string) (out []export.Setting) {
	for _, key := range keys {
		one := known().Options[key]
		one.Key = key
		out = append(out, one)
	}
	return out
}

// Writers are the formats that are made of a fit.
func Writers() []export.Writer {
	all := []export.Writer{
		{Format: QueueWVA4P, Write: wva},
		{Format: InfernoModels, Write: lineWriter(InfernoModels, infernoReadBy, Inferno)},
		{Format: vllmSim, Write: lineWriter(vllmSim, "lionelvillard/vllm-simulated-model 02b4cb9, config.json: step ms = base + prompt tokens + "+
			"sequences + context", simulatedModel)},
	}
	for i := range all {
		all[i].Settings = settings(known().Of[all[i].Format])
	}
	return all
}

// SettingsOf are the options of a format that is made of queue.json.
func SettingsOf(f export.Format) []export.Setting { return settings(known().Queue[f]) }

// oneConfigHint stands beside configurations that the reader cannot tell apart.
const oneConfigHint = "choose one with --config LABEL, or write all of them with --force %s"
