package result

// RequestLevel is a fit from what requests experienced (spec#request-level).
type RequestLevel struct {
	Prior          string             `json:"prior"`
	Loads          []RequestLoad      `json:"loads"`
	Passes         []RequestPass      `json:"passes"`
	Objective      float64            `json:"objective"`       // of the answer: mean over loads, dimensionless
	NoiseFloor     float64            `json:"noise_floor"`     // of the objective: its deviation over jittered sends
	SpanErrorFrac  *float64           `json:"span_error_frac"` // of one span whose steps are known from other requests' stamps
	TTFTErrorFrac  *float64           `json:"ttft_error_frac"` // of one TTFT that waited for no other prompt
	Evaluations    int                `json:"evaluations"`
	SimulatedSteps int64              `json:"simulated_steps"`   // of the replays and of the recordings behind the intervals
	StepsPerSecond float64            `json:"-"`                 // how fast; on the terminal alone, so that files have the same bytes
	Directions     []LearnedDirection `json:"directions"`        // most learned first
	Scatter        *RequestScatter    `json:"scatter"`           // included in the intervals; null for a fit from points
	Holdout        []RequestHoldout   `json:"holdout,omitempty"` // runs that were held out
	Levels         []LevelHoldout     `json:"levels,omitempty"`  // load levels, each predicted by coefficients that never saw it
}

// LevelHoldout is a load level with the prediction by coefficients of the other levels, or of all that were
// not held out (spec#level-holdout).
type LevelHoldout struct {
	Run             string   `json:"run"`
	Name            string   `json:"name"`
	TTFTMs          *float64 `json:"ttft_ms"` // null: not measured
	TPOTMs          float64  `json:"tpot_ms"`
	PredictedTTFTMs *float64 `json:"predicted_ttft_ms"` // null: the simulated server does not finish the level
	PredictedTPOTMs *float64 `json:"predicted_tpot_ms"`
}

// RequestHoldout compares a load that the fit has not seen with its prediction.
type RequestHoldout struct {
	Name     string  `json:"name"`
	Requests int     `json:"requests"`
	Metrics  Metrics `json:"metrics"`
}

// RequestScatter is how a server scatters around its coefficients (spec#request-intervals).
type RequestScatter struct {
	StepFrac   float64 `json:"step_frac"`  // standard deviation of one step
	DriftFrac  float64 `json:"drift_frac"` // of the speed from one 20 s block to the next
	TTFTFrac   float64 `json:"ttft_frac"`  // of a TTFT beyond what its steps explain
	OutsideUs  float64 `json:"outside_us"` // of E2E beyond its last token
	Recordings int     `json:"recordings"` // simulated to find what this does to a fit
}

// RequestLoad is one stretch of requests of one engine.
type RequestLoad struct {
	Name     string `json:"name"`
	Tier     string `json:"tier"` // requests, spans or points (spec#request-tiers)
	Requests int    `json:"requests"`
}

// RequestPass is one candidate that the search tried.
type RequestPass struct {
	Name      string  `json:"name"` // start, gauss-newton, the search, bias taken off (or not)
	Objective float64 `json:"objective"`
	Damping   float64 `json:"damping"`
}

// LearnedDirection is one independent combination of terms.
type LearnedDirection struct {
	Terms       []string `json:"terms"`           // the largest first, target/term
	LearnedFrac float64  `json:"learned_frac"`    // 1 - variance left over variance before
	Learned     bool     `json:"learned"`         // the data, not the prior, decide it
	Needs       string   `json:"needs,omitempty"` // the measurement that would teach it
}
