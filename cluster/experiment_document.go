package cluster

// This file is the document experiment.json.

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Document is experiment.json, the result of the isolation experiment: figures of each cell
// (configuration) over the seeds, contrasts (paired differences) between cells, and the verdict on
// each published statement. Intervals are 95 % unless a field names another level.
type Document struct {
	result.Header
	Preset        string          `json:"preset"`
	Label         string          `json:"label"` // transient, or stationary where the backlog does not grow
	Controller    string          `json:"controller"`
	Plant         string          `json:"plant"`
	Workload      string          `json:"workload"` // in words
	Instances     int             `json:"instances"`
	RateRPS       float64         `json:"rate_rps"`
	CapacityRPS   float64         `json:"capacity_rps"` // measured: completions per second while everything has arrived
	Rho           float64         `json:"rho"`          // rate / capacity
	HorizonS      float64         `json:"horizon_s"`    // of arrivals
	WindowS       [2]float64      `json:"window_s"`     // of arrivals that count
	LifetimeS     float64         `json:"lifetime_s"`   // mean time an admitted request is inside, configuration 3
	Seeds         []int64         `json:"seeds"`
	ArrivalDigest string          `json:"arrival_digest"` // of all arrivals; equal in all cells
	MatchedCV     *float64        `json:"matched_cv"`     // of expected cached tokens between requests, configuration 1
	Cells         []cellDoc       `json:"cells"`
	Contrasts     []contrastDoc   `json:"contrasts"`
	Verdicts      []verdictDoc    `json:"verdicts"`
	Controllers   []controllerDoc `json:"controllers"` // the headline with other coefficients in the gate
	Loads         []loadDoc       `json:"loads"`       // at rho 0.6 every effect must vanish
	Published     []publishedDoc  `json:"published"`   // preset seed alone
	Transient     []transientDoc  `json:"transient"`   // configuration 1's P99 by the length of arrivals
	Newcomer      []curveDoc      `json:"newcomer"`
	Scatter       []pointDoc      `json:"scatter"`
	// Reliability of the main cell's estimates, all seeds: by tenths of the probability of meeting the target.
	Reliability []reliabilityDoc `json:"reliability"`
	// Hindsight is the frontier setting of predictive with the best goodput: what another threshold would have given.
	Hindsight *hindsightDoc   `json:"hindsight"`
	Warnings  []trace.Finding `json:"warnings"`
}

// reliabilityDoc is a row of the reliability table of the TTFT predictions: the requests whose
// estimated probability of meeting their target lies between From and To, and the share that met
// it. A rejected request is judged by its shadow, a copy of the engine that served it all the same.
type reliabilityDoc struct {
	From     float64 `json:"from"`
	To       float64 `json:"to"`
	Requests float64 `json:"requests"`
	Expected float64 `json:"expected_share"` // mean estimated probability
	Met      float64 `json:"met_share"`
}

// hindsightDoc is the best setting of the predictive policy among those tried, known only after the
// runs, and its goodput as a share of arrivals.
type hindsightDoc struct {
	Cell    string  `json:"cell"`
	Goodput float64 `json:"goodput"`
}

// cellDoc is one configuration over all seeds.
type cellDoc struct {
	Name            string               `json:"name"`
	PublishedNumber int                  `json:"seed_number"` // of the five configurations as published; 0: none of them
	Role            string               `json:"role"`        // cell, extra or frontier
	Admission       string               `json:"admission"`
	Parameter       *float64             `json:"parameter"` // frontier: the threshold or eps
	Routing         string               `json:"routing"`
	Scheduler       string               `json:"scheduler"`
	Stationary      bool                 `json:"stationary"`
	Figures         map[string]figureDoc `json:"figures"`
}

// figureDoc is a mean over seeds with its 95 % t interval. infinite is the number of seeds without
// a finite value, which are not in the mean.
type figureDoc struct {
	Mean     *float64 `json:"mean"`
	Lo       *float64 `json:"lo"`
	Hi       *float64 `json:"hi"`
	N        int      `json:"n"`
	Infinite int      `json:"infinite"`
}

// contrastDoc is a paired difference of two cells over seeds, a - b.
type contrastDoc struct {
	A      string   `json:"a"`
	B      string   `json:"b"`
	Figure string   `json:"figure"`
	Effect *float64 `json:"effect"`
	Lo     *float64 `json:"lo"` // 95 % t interval
	Hi     *float64 `json:"hi"`
	P      *float64 `json:"p"`      // exact sign flips, two-sided
	Holm   *float64 `json:"p_holm"` // over the primary endpoints; null for others
	Same   *bool    `json:"same"`   // the 90 % interval lies within +-5 % of b
	N      int      `json:"n"`
}

// verdictDoc is the verdict of the data on one statement.
type verdictDoc struct {
	ID        string        `json:"id"`
	Statement string        `json:"statement"`
	Verdict   string        `json:"verdict"` // CONFIRMED, REFUTED, INCONCLUSIVE or NOT TESTABLE
	Why       string        `json:"why"`
	Evidence  []contrastDoc `json:"evidence"`
}

// controllerDoc is the main comparison with one gate: one kind of coefficients that the gateway
// predicts with.
type controllerDoc struct {
	Kind      string            `json:"kind"` // same, fitted, biased-0.7, biased-1.3 or other-form
	Label     string            `json:"label"`
	RateRPS   float64           `json:"rate_rps"`
	Rho       float64           `json:"rho"` // of the capacity of its engines
	HorizonS  float64           `json:"horizon_s"`
	Seats     *float64          `json:"seats_in_use"` // largest share of max_num_seqs that always-admit uses; below 1: not filled
	Goodput   contrastDoc       `json:"goodput"`      // predictive - always-admit
	Admitted  *float64          `json:"admitted"`     // share, by predictive
	Verdicts  map[string]string `json:"verdicts"`     // of the statements but the first, by id
	MedianAPE *float64          `json:"median_ape"`
	Bias      *float64          `json:"bias"`
	Coverage  *float64          `json:"coverage_p90"`
	ShadowAPE *float64          `json:"shadow_median_ape"`
	ShadowCov *float64          `json:"shadow_coverage_p90"`
}

// loadDoc is the main cells at another load, and the difference of each from always-admit.
type loadDoc struct {
	Rho       float64       `json:"rho"`
	RateRPS   float64       `json:"rate_rps"`
	WindowS   [2]float64    `json:"window_s"`
	Cells     []loadCellDoc `json:"cells"`
	Contrasts []contrastDoc `json:"contrasts"`
}

// loadCellDoc is one configuration at another load.
type loadCellDoc struct {
	Name    string               `json:"name"`
	Figures map[string]figureDoc `json:"figures"`
}

// publishedDoc compares a published P99 of TTFT with ours, ms.
type publishedDoc struct {
	Cell            string   `json:"cell"`        // that it was measured with
	PublishedNumber int      `json:"seed_number"` // of that cell
	PublishedMs     float64  `json:"published_p99_ms"`
	Statistic       string   `json:"published_statistic"` // worst_instance or critical: which of ours it compares with
	Rejected        *float64 `json:"published_rejected"`  // share of requests; null: not published
	CriticalMs      *float64 `json:"critical_p99_ms"`     // of class critical
	PooledMs        *float64 `json:"pooled_p99_ms"`       // over all admitted requests
	WorstMs         *float64 `json:"worst_instance_ms"`   // the largest P99 of an instance
	OurRejected     *float64 `json:"rejected"`            // share of requests
}

// transientDoc is the P99 of TTFT of the always-admit cell after a given time of arrivals. It shows
// how much the figure grows with the duration while the engines are overloaded.
type transientDoc struct {
	ArrivalsS float64  `json:"arrivals_s"`
	P99Ms     *float64 `json:"p99_ms"`
	Lo        *float64 `json:"lo"`
	Hi        *float64 `json:"hi"`
}

// curveDoc is how often a new prefix group is admitted compared with the established ones: the
// ratio of the admitted shares in each second after the group's first arrival. A prefix group is
// the requests that share a prompt prefix.
type curveDoc struct {
	Cell     string     `json:"cell"`
	Ratio    []*float64 `json:"ratio"`
	ReachedS *float64   `json:"reached_s"` // mean over seeds of the first second at 0.8; null where some never do
}

// pointDoc is one predicted TTFT and the observed one, for the scatter plot: requests of the main
// cell with the first seed.
type pointDoc struct {
	PredictedMs float64 `json:"predicted_ms"`
	TookMs      float64 `json:"took_ms"`
	Shadow      bool    `json:"shadow"`
}
