package autoscale

// This file writes the files of llm-inferno's model-tuner: its configuration, and operating points
// for its own calibration.

import (
	"math"
	"slices"

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

// tunerModelData is the state x, its drift (Q = diag((percentChange x)^2)) and bounds, and the
// observation z of R.
type tunerModelData struct {
	InitState     []float64 `json:"initState"` // alpha, beta, gamma
	PercentChange []float64 `json:"percentChange"`
	BoundedState  bool      `json:"boundedState"`
	MinState      []float64 `json:"minState"`
	MaxState      []float64 `json:"maxState"`
	Expected      []float64 `json:"expectedObservations"` // TTFT, ITL ms
}

// tunerConfig returns the configuration of a tuner for one server, with noise and drift as measured,
// or with the tuner's defaults and a warning if these are not known. The measured ones are medians of
// relative errors and changes, which medianToSD makes standard deviations.
func tunerConfig(servers []exported, _ *queueOptions) ([]byte, []trace.Finding, error) {
	if len(servers) > 1 {
		return nil, nil, trace.Errorf(export.BadEntry,
			"tuner-config: got %d servers, want one: a tuner has one configuration",
			len(servers)).WithHint("--config " + servers[0].ID)
	}
	s := &servers[0]
	var warnings []trace.Finding
	c := configData{
		Filter: filterData{GammaFactor: 1, ErrorLevel: tunerErrorLevel, TPercentile: tunerPercentile},
		Model:  tunerModelData{InitState: s.x, BoundedState: true, Expected: tunerExpected},
	}
	if s.Load != nil {
		c.Model.Expected = []float64{s.Load.TTFTMs, s.Load.ITLMs}
	}
	if n := s.Noise; n != nil && n.TTFTResidual != nil && n.ITLResidual != nil &&
		max(*n.TTFTResidual, *n.ITLResidual) > 0 {
		c.Filter.ErrorLevel = tunerPercentile * medianToSD * max(*n.TTFTResidual, *n.ITLResidual)
	} else {
		warnings = append(warnings, trace.Findingf(export.AssumedValue,
			"%s: the noise of a window is not known; errorLevel is the tuner's %g", s.ID, tunerErrorLevel))
	}
	var change []float64 // relative change per window, as measured by the sliding refit
	if i := slices.IndexFunc(s.Tracks, func(t queueTrack) bool {
		return t.Estimator == slidingEstimator && t.Flavour == string(s.flavour) && len(t.Drift) == len(s.x)
	}); i >= 0 {
		change = s.Tracks[i].Drift
	} else {
		warnings = append(warnings,
			trace.Findingf(export.AssumedValue,
				"%s: how fast the parameters drift is not known without a sliding refit; percentChange is the tuner's %g", s.ID,
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

// serverSpec is an operating point in the body of POST /calibrate (optimizer-light
// pkg/config/types.go@77615bd). Rates are per minute.
type serverSpec struct {
	Name         string     `json:"name"`
	Class        string     `json:"class"`
	Model        string     `json:"model"`
	MaxBatchSize int        `json:"maxBatchSize"`
	MaxQueueSize int        `json:"maxQueueSize"`
	CurrentAlloc allocation `json:"currentAlloc"`
}

// allocation is the observed state of a server.
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

// secondsPerMinute converts our rates to the tuner's unit.
const secondsPerMinute = 60

// tunerCalibrate returns the operating points of each server, which queue fit chose because they are
// the most informative about its parameters.
func tunerCalibrate(servers []exported, o *queueOptions) ([]byte, []trace.Finding, error) {
	specs := []serverSpec{}
	for _, s := range servers {
		for _, p := range s.Points {
			rate := secondsPerMinute * p.RateRPS
			specs = append(specs, serverSpec{
				Name:         s.ID,
				Class:        "default",
				Model:        o.modelName(s.Model),
				MaxBatchSize: s.Limits.MaxBatch,
				MaxQueueSize: s.Limits.Queue,
				CurrentAlloc: allocation{
					Accelerator: shortName(s.Accelerator),
					NumReplicas: 1,
					MaxBatch:    s.Limits.MaxBatch,
					ITLAverage:  p.ITLMs,
					TTFTAverage: p.TTFTMs,
					Load: serverLoad{
						ArrivalRate:  rate,
						Throughput:   rate, // in a steady state
						AvgInTokens:  int(trace.Int(p.PromptTokens)),
						AvgOutTokens: int(trace.Int(p.OutputTokens)),
					},
				},
			})
		}
	}
	if len(specs) < 2 {
		return nil, nil, trace.Errorf(export.NothingToExport,
			"tuner-calibrate: got %d operating points, want at least 2", len(specs))
	}
	data, err := result.Marshal(specs)
	return data, nil, err
}

// Defaults of llm-inferno's model-tuner (config-data/default-config-data.json@6dba8ce), and the
// bounds of its state.
const (
	tunerPercentile  = 1.96
	tunerErrorLevel  = 0.5
	tunerChange      = 0.15
	tunerLow         = 0.01
	tunerHigh        = 100
	medianToSD       = 1.4826 // a median absolute deviation of a normal as its standard deviation
	leastTunerChange = 0.001
)

// tunerExpected are the observations for which the same file sets the noise: TTFT and ITL, ms.
var tunerExpected = []float64{200, 40}
