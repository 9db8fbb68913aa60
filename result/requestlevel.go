package result

// This file has the part of fit.json on fits from requests and load levels.

// RequestLevel describes a fit from the times of requests, or from load levels
// (spec#request-level).
type RequestLevel struct {
	Prior          string             `json:"prior"`
	Loads          []RequestLoad      `json:"loads"`
	Passes         []RequestPass      `json:"passes"`
	Objective      float64            `json:"objective"`       // at the answer: mean over loads, dimensionless
	NoiseFloor     float64            `json:"noise_floor"`     // standard deviation of the objective over jittered send times
	SpanErrorFrac  *float64           `json:"span_error_frac"` // typical error of the span of a request, whose steps follow from the stamps of others
	TTFTErrorFrac  *float64           `json:"ttft_error_frac"` // typical error of a TTFT that waited for no other prompt
	Evaluations    int                `json:"evaluations"`
	SimulatedSteps int64              `json:"simulated_steps"`   // of the replays and of the recordings behind the intervals
	StepsPerSecond float64            `json:"-"`                 // printed on the terminal only, because it differs from call to call
	Directions     []LearnedDirection `json:"directions"`        // combinations of coefficients, best determined first
	Scatter        *RequestScatter    `json:"scatter"`           // random variation that the intervals include; null for a fit from points
	CachedShare    *CachedShare       `json:"cached_share"`      // where nothing states what prompts found in the prefix cache; null: it is stated, or there is none
	Holdout        []RequestHoldout   `json:"holdout,omitempty"` // runs that were held out
	Levels         []LevelHoldout     `json:"levels,omitempty"`  // load levels, each predicted by coefficients that never saw it
	Gain           *CalibrationGain   `json:"gain,omitempty"`    // null without requests that were held out
}

// CalibrationGain compares the fitted coefficients with the prior alone on the requests that were held out.
type CalibrationGain struct {
	Calibrated   float64    `json:"calibrated_e2e_error"` // medians of the relative errors of E2E
	Uncalibrated float64    `json:"uncalibrated_e2e_error"`
	Difference95 [2]float64 `json:"difference_ci95"` // of the two, by blocks of consecutive requests
}

// LevelHoldout is a load level and its prediction by coefficients that were not fitted to it
// (spec#level-holdout).
type LevelHoldout struct {
	Run             string   `json:"run"`
	Name            string   `json:"name"`
	TTFTMs          *float64 `json:"ttft_ms"` // null: not measured
	TPOTMs          float64  `json:"tpot_ms"`
	PredictedTTFTMs *float64 `json:"predicted_ttft_ms"` // null: the simulated server does not finish the level
	PredictedTPOTMs *float64 `json:"predicted_tpot_ms"`
}

// RequestHoldout compares the requests of a held-out load with their prediction.
type RequestHoldout struct {
	Name     string  `json:"name"`
	Requests int     `json:"requests"`
	Metrics  Metrics `json:"metrics"`
}

// RequestScatter is the random variation of a server that its coefficients do not explain
// (spec#request-intervals).
type RequestScatter struct {
	StepFrac   float64 `json:"step_frac"`  // standard deviation of one step
	DriftFrac  float64 `json:"drift_frac"` // standard deviation of the speed between blocks of 20 s
	TTFTFrac   float64 `json:"ttft_frac"`  // standard deviation of a TTFT beyond that of its steps
	OutsideUs  float64 `json:"outside_us"` // standard deviation of E2E beyond that of its last token
	Recordings int     `json:"recordings"` // number simulated to measure the effect on a fit
}

// RequestLoad is the requests that one engine got during one period.
type RequestLoad struct {
	Name     string `json:"name"`
	Tier     string `json:"tier"` // requests, spans or points (spec#request-tiers)
	Requests int    `json:"requests"`
}

// RequestPass is one candidate of the fit and its objective.
type RequestPass struct {
	Name      string  `json:"name"` // start, gauss-newton, name of the search, bias taken off, bias not taken off
	Objective float64 `json:"objective"`
	Damping   float64 `json:"damping"` // of a Gauss-Newton step
}

// LearnedDirection is one independent combination of terms, and how much the data determine it.
type LearnedDirection struct {
	Terms       []string `json:"terms"`           // the largest first, target/term
	LearnedFrac float64  `json:"learned_frac"`    // 1 - remaining variance / the prior's
	Learned     bool     `json:"learned"`         // the data, not the prior, decide it
	Needs       string   `json:"needs,omitempty"` // the measurement that would determine it
}
