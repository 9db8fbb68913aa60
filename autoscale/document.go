package autoscale

// This file is the document queue.json: the parameters of a queueing model for each server, how
// they were found and how good they are. null means not known.

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Queue is queue.json.
type Queue struct {
	result.Header
	Flavour  string          `json:"flavour"` // wva-4p, wva-3p, inferno-3p, corrected
	Options  QueueOptions    `json:"options"`
	Servers  []QueueServer   `json:"servers"`
	Plan     *QueuePlan      `json:"allocation,omitempty"` // queue allocate
	Optimum  *QueuePlan      `json:"optimum,omitempty"`    // the cheapest plan, up to ten servers
	Warnings []trace.Finding `json:"warnings"`
}

// Server returns the server with the id; nil if there is none.
func (q *Queue) Server(id string) *QueueServer {
	if i := slices.IndexFunc(q.Servers, func(s QueueServer) bool { return s.ID == id }); i >= 0 {
		return &q.Servers[i]
	}
	return nil
}

// QueueOptions are the options of the fit that produced the numbers.
type QueueOptions struct {
	WindowS     float64 `json:"window_s"`
	HopS        float64 `json:"hop_s"`
	MinRequests int     `json:"min_requests"`
	Semantics   string  `json:"semantics"`   // arrival | prometheus
	Observation string  `json:"observation"` // TTFT of a sweep: median | mean
	HoldOut     float64 `json:"hold_out"`    // last share of the windows
	QueueRatio  float64 `json:"queue_ratio"` // waiting room as a multiple of max_num_seqs
}

// QueueServer is one engine, or one benchmarked server.
type QueueServer struct {
	ID     string `json:"id"`
	Source string `json:"source"` // recording | sweep
	Model  string `json:"model"`
	// Accelerator is the hardware's name, AccCount how many of it one replica takes.
	Accelerator string     `json:"accelerator"`
	AccCount    int64      `json:"acc_count"`
	Limits      Limits     `json:"limits"`
	Load        *queueLoad `json:"load"` // medians over the windows; null without any
	// Fitted is what the windows reach that the parameters were fitted to. Absent without any, and in files of
	// earlier versions.
	Fitted *queueRange `json:"fitted,omitempty"`
	// Physical parameters come from recorded steps, effective ones from latencies. Null if there
	// are none; Reason then states why.
	Physical  []queueParameter `json:"physical"`
	Effective []queueParameter `json:"effective"`
	Steps     *result.Errors   `json:"step_errors"`       // of the physical parameters, on the step hold-out
	Reason    string           `json:"reason"`            // why there are no effective parameters; empty when there are
	Windows   queueAccount     `json:"windows"`           // read = kept + dropped
	Scores    []queueScore     `json:"scores"`            // by estimator, on training and hold-out windows
	Verdict   *coeff.Judgement `json:"verdict,omitempty"` // null without parameters
	Identify  *queueIdentify   `json:"identify"`          // which parameters the windows determine
	Objective *queueObjective  `json:"objective"`         // of the batch fit, found twice
	Tracks    []queueTrack     `json:"tracks"`            // queue fit --track
	Sizing    *QueueSizing     `json:"sizing"`            // queue size
	Findings  []trace.Finding  `json:"findings"`
	Noise     *queueNoise      `json:"noise"` // of a window, and from window to window
	// Points are the windows that are most informative about the parameters, the best first.
	Points []queueOperating `json:"operating_points"`
	Covar  [][]float64      `json:"covariance"` // of the effective parameters; null when held or unknown
}

// Limits are what limits an engine.
type Limits struct {
	MaxBatch         int `json:"max_batch"`          // N, requests in service
	Queue            int `json:"queue"`              // Q, requests waiting
	MaxBatchedTokens int `json:"max_batched_tokens"` // M, tokens per iteration; 0 = defaultMaxBatchedTokens

	// MaxModelLen is the longest request, prompt and output together, tokens. 0: not known.
	MaxModelLen int64 `json:"max_model_len,omitempty"`

	// KVTokens, OverheadMs and Async are used only by the corrected flavour.
	KVTokens   *float64 `json:"kv_tokens"`   // null: not known, then assumed to be enough
	OverheadMs float64  `json:"overhead_ms"` // from arrival to the engine's input queue
	Async      bool     `json:"async"`       // schedule(s+1) overlaps step s
}

// queueLoad is the traffic of a server, medians over its windows.
type queueLoad struct {
	RateRPS      float64 `json:"rate_rps"`
	PromptTokens float64 `json:"prompt_tokens"`
	CachedTokens float64 `json:"cached_tokens"`
	OutputTokens float64 `json:"output_tokens"`
	PromptCV2    float64 `json:"prompt_cv2"` // variance / mean^2
	OutputCV2    float64 `json:"output_cv2"`
	TTFTMs       float64 `json:"ttft_ms"`
	ITLMs        float64 `json:"itl_ms"`
}

// queueRange is the smallest and the largest value of a mean among windows.
type queueRange struct {
	RateRPS      [2]float64 `json:"rate_rps"`
	PromptTokens [2]float64 `json:"prompt_tokens"`
	OutputTokens [2]float64 `json:"output_tokens"`
	AtOnce       [2]float64 `json:"requests_at_once"` // waiting and in service: rate * (TTFT + (output - 1) * ITL)
}

// queueParameter is one coefficient of the model.
type queueParameter struct {
	Name        string      `json:"name"`
	Unit        string      `json:"unit"`
	Value       float64     `json:"value"`
	CI95        *[2]float64 `json:"ci95"`                // null: none, or one without ends
	CI95Method  string      `json:"ci95_method"`         // curvature, jackknife or simulator; "": no fit to windows
	ModelError  *float64    `json:"model_error"`         // its half width over that of the curvature; above 2 a finding
	Floor       *float64    `json:"floor"`               // the hardware's limit; null where there is none
	Utilisation *float64    `json:"implied_utilisation"` // floor / value; above 1 is faster than the hardware
	// Identified is measured, held (the windows do not determine the parameter, so it has the
	// physical value), undetermined (they leave its order of magnitude open), bound (the value is 0 or
	// the limit of the hardware) or given.
	Identified string   `json:"identified"`
	PriorShare *float64 `json:"prior_share"` // share of the parameter's information that comes from the physical value
	Shift      *float64 `json:"shift"`       // effective / physical, the error of the queueing model
}

// queueOperating is what was measured of a server at one operating point.
type queueOperating struct {
	Name         string  `json:"name"`
	RateRPS      float64 `json:"rate_rps"`
	PromptTokens float64 `json:"prompt_tokens"`
	OutputTokens float64 `json:"output_tokens"`
	TTFTMs       float64 `json:"ttft_ms"`
	ITLMs        float64 `json:"itl_ms"`
}

// queueAccount counts the windows of a server, and the requests that are in none because their
// arrival is unknown.
type queueAccount struct {
	Read    int            `json:"read"`
	Kept    int            `json:"kept"`
	Dropped map[string]int `json:"dropped"`
	Skipped int            `json:"requests_without_arrival"`
	// Independent is how many windows would cover the time of the kept ones without overlap. Absent where none overlap.
	Independent float64 `json:"independent,omitempty"`
}

// queueScore is the error of an estimator on windows. WAPE is the sum of |error| over the sum of
// observations; bias is the sum of signed errors over the same.
type queueScore struct {
	// physical, effective, effective_at_speed, constant, replica, robust, sliding, simulator
	Estimator   string   `json:"estimator"`
	Set         string   `json:"set"` // train | hold_out | all
	Windows     int      `json:"windows"`
	TTFTWape    *float64 `json:"ttft_wape"`
	ITLWape     *float64 `json:"itl_wape"`
	TTFTBias    *float64 `json:"ttft_bias"`
	ITLBias     *float64 `json:"itl_bias"`
	Unpredicted int      `json:"unpredicted"`
}

// queueIdentify describes which directions of the log parameters the windows determine.
type queueIdentify struct {
	Condition *float64         `json:"condition_number"` // null: infinite
	Rank      int              `json:"rank"`
	Null      []queueDirection `json:"null_directions"`
	Sweep     []queuePoint     `json:"proposed_sweep"` // loads that would determine the others
	After     *float64         `json:"condition_after"`
}

// queueDirection is a combination of parameters that the windows do not determine.
type queueDirection struct {
	Names  []string  `json:"names"`
	Weight []float64 `json:"weight"` // of the log parameters, unit length
}

// queuePoint is an operating point whose recording would determine more parameters.
type queuePoint struct {
	PromptTokens float64 `json:"prompt_tokens"`
	OutputTokens float64 `json:"output_tokens"`
	RateRPS      float64 `json:"rate_rps"`
	LoadFrac     float64 `json:"load_frac"`
}

// queueObjective is the objective of the fit at its solution, and at the end of an independent
// search without derivatives.
type queueObjective struct {
	Value      *float64 `json:"value"`
	NelderMead *float64 `json:"nelder_mead"`
}

// queueNoise is the measured relative standard error of a window's means, and the relative spread
// of the windows about the fit.
type queueNoise struct {
	TTFTRel      *float64 `json:"ttft_rel"`
	ITLRel       *float64 `json:"itl_rel"`
	TTFTResidual *float64 `json:"ttft_residual"`
	ITLResidual  *float64 `json:"itl_residual"`
}

// queueTrack is the result of one online estimator over the windows.
type queueTrack struct {
	Estimator    string      `json:"estimator"` // replica:wva, replica:model-tuner, replica:wva-4p, robust, sliding
	Flavour      string      `json:"flavour"`
	Names        []string    `json:"names"`
	Final        []float64   `json:"final"`
	Covariance   [][]float64 `json:"covariance"` // order of names; null for sliding
	Windows      int         `json:"windows"`
	Accepted     int         `json:"accepted"`
	MeanNIS      *float64    `json:"mean_nis"` // 2 is right, below 2 underconfident, above 2 overconfident
	RejectedFrac float64     `json:"rejected_frac"`
	Unpredicted  int         `json:"unpredicted"`
	Whiteness    [2]*float64 `json:"whiteness"`  // lag-1 correlation of innovations, TTFT and ITL
	LockedOut    int         `json:"locked_out"` // number of windows at the end that were all rejected
	// Condition is the condition number of the windows' latencies by log parameters: above 1,000 the loads do not tell
	// the parameters apart. Null where a direction has no effect at all.
	Condition *float64 `json:"condition"`
	// Drift is the typical relative change of each parameter from window to window.
	Drift   []float64 `json:"drift_per_window"`
	Verdict string    `json:"verdict"` // in words
}

// QueueSizing is the largest rate that meets the targets, with the latencies at that rate.
type QueueSizing struct {
	TargetTTFTMs float64 `json:"target_ttft_ms"` // 0: no such target
	TargetITLMs  float64 `json:"target_itl_ms"`
	TargetTPS    float64 `json:"target_tps"` // output tokens per second
	// PromptTokens and OutputTokens are the mean lengths that were sized. Absent in files of earlier versions.
	PromptTokens float64 `json:"prompt_tokens,omitempty"`
	OutputTokens float64 `json:"output_tokens,omitempty"`
	RateRPS      float64 `json:"rate_rps"` // of one replica
	Replicas     int     `json:"replicas"` // that target_tps needs at that rate each; 0: no such target
	Binding      string  `json:"binding"`  // ttft, itl, range; tps with --emulate
	TTFTRPS      float64 `json:"rate_rps_ttft"`
	ITLRPS       float64 `json:"rate_rps_itl"`
	MinRPS       float64 `json:"rate_rps_min"`
	MaxRPS       float64 `json:"rate_rps_max"`
	TTFTMs       float64 `json:"ttft_ms"`
	ITLMs        float64 `json:"itl_ms"`
	InService    float64 `json:"in_service"`
	// Concurrency is the smallest max_num_seqs whose throughput is almost that of the given one; 0
	// if it was not asked for.
	Concurrency int            `json:"concurrency,omitempty"`
	Simulated   *queueSimPoint `json:"simulated"` // null without --simulate
}

// queueSimPoint is the simulator's result at that rate with the same parameters.
type queueSimPoint struct {
	Requests  int     `json:"requests"`
	TTFTMs    float64 `json:"ttft_ms"`
	TTFTSeMs  float64 `json:"ttft_se_ms"`
	ITLMs     float64 `json:"itl_ms"`
	ITLSeMs   float64 `json:"itl_se_ms"`
	TTFTP95Ms float64 `json:"ttft_p95_ms"`
	ITLP95Ms  float64 `json:"itl_p95_ms"`
}

// QueuePlan is an allocation of the devices of a fleet to servers.
type QueuePlan struct {
	Servers  []queueGiven `json:"servers"`
	Cost     float64      `json:"cost_cents_per_hour"`
	Value    float64      `json:"value"` // sum of the transition penalties
	Unserved []string     `json:"unserved"`
	// NoOption are those of Unserved that no capacity would serve: a target cannot be met, or an option has no
	// parameters. The warnings state the reasons.
	NoOption []string       `json:"no_option,omitempty"`
	Left     map[string]int `json:"left"` // units by accelerator type
}

// queueGiven is the replicas that one server gets.
type queueGiven struct {
	Name        string  `json:"name"`
	Priority    int     `json:"priority"`
	RateRPS     float64 `json:"rate_rps"`
	Accelerator string  `json:"accelerator"` // empty: nothing
	Replicas    int     `json:"replicas"`
	Wanted      int     `json:"wanted"`
	Cost        float64 `json:"cost_cents_per_hour"`
	Value       float64 `json:"value"`
	Full        bool    `json:"full"`
}

// How the value of a parameter was found.
const (
	measured = "measured"     // the data show it
	held     = "held"         // at the physical value: the windows do not determine it
	unknown  = "undetermined" // the windows leave its order of magnitude open
	atBound  = "bound"        // at the hardware's limit
)
