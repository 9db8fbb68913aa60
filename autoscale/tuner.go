package autoscale

import (
	"math"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

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
			"%s: the noise of a window is not known; errorLevel is the tuner's %g", s.ID,
			tunerErrorLevel))
	}
	change := driftOf(s)
	if change == nil {
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
		c.Model.MinState, c.Model.MaxState = append(c.Model.MinState, tunerLow*x), append(c.Model.MaxState, tunerHigh*x)
	}
	data, err := result.Marshal(c)
	return data, warnings, err
}

// driftOf is the drift per window that the sliding refit measured; nil without one.
func driftOf(s *exported) []float64 {
	for i := range s.Tracks {
		if t := &s.Tracks[i]; t.Estimator == "sliding" && t.Flavour == string(s.flavour) && len(t.Drift) == len(s.x) {
			return t.Drift
		}
	}
	return nil
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
					Load: serverLoad{ArrivalRate: rate, Throughput: rate, AvgInTokens: int(math.Round(p.PromptTokens)),
						AvgOutTokens: int(math.Round(p.OutputTokens))},
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
	tuning := true
	base, err := yaml.Marshal(sloEntry{Multiplier: sloMultiplier, Tuning: &tuning})
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
				e.TTFT, e.ITL,
				e.Namespace).
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
