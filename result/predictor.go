package result

import (
	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/trace"
)

// PredictorRows is predictor_rows.json: how rows were made, and what was dropped.
type PredictorRows struct {
	Header
	Options  PredictorRowOptions `json:"options"`
	Runs     []PredictorRun      `json:"runs"`
	Warnings []trace.Finding     `json:"warnings"`
}

// PredictorRowOptions decide what rows hold.
type PredictorRowOptions struct {
	Features      string   `json:"features"`     // llmd | full
	State         string   `json:"state"`        // auto | step | journey
	StalenessUs   int64    `json:"staleness_us"` // age of what is observable at the decision
	PrefixScore   string   `json:"prefix_score"` // index | actual
	Shared        []string `json:"shared_prefix_tokens"`
	KeepSaturated bool     `json:"keep_saturated"`
}

// PredictorRun is one run's account: requests = rows + the sum of dropped.
type PredictorRun struct {
	ID        string         `json:"id"`
	Config    string         `json:"config"`
	Requests  int            `json:"requests"`
	Rows      int            `json:"rows"`
	Dropped   map[string]int `json:"dropped"`
	Agreement StateAgreement `json:"agreement"`
	// PrefixGap is the mean of |score of the index - score measured afterwards|
	// over rows that know both; null without any.
	PrefixGap *float64        `json:"prefix_gap"`
	Warnings  []trace.Finding `json:"warnings"`
}

// StateAgreement compares the two sources of state on the rows where both are
// known: waiting and running are the same, or the decision fell between a pick-up
// or a finish and the next schedule(), inside schedule(), or elsewhere.
type StateAgreement struct {
	Rows    int `json:"rows"`
	Equal   int `json:"equal"`
	Between int `json:"between_steps"`
	Inside  int `json:"inside_schedule"`
	Other   int `json:"other"`
}

// PredictorScores is predictor_scores.json: the race of models on identical rows.
type PredictorScores struct {
	Header
	Options     PredictorOptions       `json:"options"`
	Runs        []PredictorRun         `json:"runs"`
	Models      []PredictorModel       `json:"models"`
	Splits      []PredictorSplit       `json:"splits"`
	Cells       []PredictorCell        `json:"cells"`
	Contrasts   []PredictorContrast    `json:"contrasts"`
	Calibration []PredictorCalibration `json:"calibration"`
	Strata      []PredictorStratum     `json:"strata"`
	Emulation   []PredictorPitfall     `json:"emulation"`
	Sentences   []string               `json:"sentences"`
	Figures     *PredictorFigures      `json:"figures,omitempty"`
	Warnings    []trace.Finding        `json:"warnings"`
}

// PredictorOptions decided the numbers.
type PredictorOptions struct {
	Rows     PredictorRowOptions `json:"rows"`
	Models   []string            `json:"models"`
	Splits   []string            `json:"splits"`
	Weights  string              `json:"weights"` // natural | flat | sqrt
	Recency  string              `json:"recency"` // uniform | newest
	Seed     uint64              `json:"seed"`
	Physics  string              `json:"physics"`   // where step times come from; empty: no physics
	IsRefit  bool                `json:"is_refit"`  // coefficients were refitted without the rows a split tests
	Emulate  string              `json:"emulate"`   // llmd-0.9, or empty
	Evaluate bool                `json:"evaluate"`  // a finished predictor was judged, nothing was trained
	Draws    int                 `json:"bootstrap"` // draws of the intervals
}

// PredictorModel is one model of the race.
type PredictorModel struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// PredictorSplit is one way to part rows into training and test, for one target.
type PredictorSplit struct {
	Scope     string   `json:"scope"` // all, or a configuration
	Target    string   `json:"target"`
	Name      string   `json:"name"`
	Question  string   `json:"question"`
	Reason    string   `json:"reason"` // why it is not formable, empty when it is
	Train     int      `json:"train"`
	Test      int      `json:"test"`
	Dropped   int      `json:"dropped"` // of the training rows, alive at the border
	Unused    int      `json:"unused"`  // rows in neither part
	Groups    []string `json:"groups"`  // what was held out, in words
	Digest    string   `json:"digest"`  // of the test rows' ids
	AboveMax  *float64 `json:"above_max"`
	BlockRows int      `json:"block_rows"` // mean rows of a bootstrap block
}

// PredictorCell is a model on a split of a target. Relative errors are shares.
type PredictorCell struct {
	Scope  string `json:"scope"`
	Target string `json:"target"` // ttft_ms | tpot_ms
	Split  string `json:"split"`
	Model  string `json:"model"`
	Reason string `json:"reason"` // why there is no figure; empty when there is

	Rows      int         `json:"rows"`
	MAPE      *float64    `json:"mape"`
	MAPEBand  *[2]float64 `json:"mape_ci95"`
	MAPEConst *float64    `json:"mape_const"`
	MAPEFloor *float64    `json:"mape_floor"`
	Skill     *float64    `json:"skill"`
	WAPE      *float64    `json:"wape"`
	MedianAPE *float64    `json:"median_ape"`
	P95APE    *float64    `json:"p95_ape"`
	Bias      *float64    `json:"bias"`
	Pinball50 *float64    `json:"pinball_50_ms"`
	Pinball90 *float64    `json:"pinball_90_ms"`
	Pinball99 *float64    `json:"pinball_99_ms"`
	Coverage  *float64    `json:"coverage"` // share of rows at or below the prediction
	// EqualBuckets is the MAPE with the same weight for every bucket of the
	// stratified sample that has a test row.
	EqualBuckets *float64 `json:"mape_equal_buckets"`
	AboveMaxRows int      `json:"above_max_rows"` // test rows above the largest training target
	AboveMaxMAPE *float64 `json:"above_max_mape"`
	// Decisions are what an admission gate with this prediction would have done.
	Decisions []PredictorDecision `json:"decisions"`
}

// PredictorDecision are a gate's mistakes at one TTFT objective.
type PredictorDecision struct {
	SLOMs       float64  `json:"slo_ms"`
	FalseAdmit  *float64 `json:"false_admit"`  // of the requests that took longer, those let in
	FalseReject *float64 `json:"false_reject"` // of those within it, those sent away
}

// PredictorContrast is a paired difference of MAPE between two models on the same
// rows: below 0 the first is better.
type PredictorContrast struct {
	Scope      string      `json:"scope"`
	Target     string      `json:"target"`
	Split      string      `json:"split"`
	A          string      `json:"a"`
	B          string      `json:"b"`
	Difference *float64    `json:"difference"`
	Band       *[2]float64 `json:"ci95"`
	Blocks     int         `json:"blocks"`
	IsShown    bool        `json:"is_shown"` // the interval leaves 0 out
}

// PredictorCalibration is the coverage of an upper quantile.
type PredictorCalibration struct {
	Scope    string      `json:"scope"`
	Target   string      `json:"target"`
	Split    string      `json:"split"`
	Model    string      `json:"model"`
	Quantile float64     `json:"quantile"`
	Rows     int         `json:"rows"`      // test rows
	Held     int         `json:"held_rows"` // rows that set the factors
	Before   *float64    `json:"coverage_before"`
	After    *float64    `json:"coverage_after"`
	Band     *[2]float64 `json:"coverage_after_ci95"` // from the effective number of rows
	Pinball  *float64    `json:"pinball_ratio"`       // after / before
	Reason   string      `json:"reason"`
	// Adaptive is the coverage when the level follows the outcomes that were known
	// at each decision; Blocks are coverages of fifths of the test rows in time,
	// with fixed factors and with the adaptive level: a fall is drift.
	Adaptive *float64              `json:"coverage_adaptive"`
	Blocks   []PredictorDriftBlock `json:"blocks"`
	// Curve is coverage after calibration at other levels, in steps of 0.1.
	Curve []PredictorLevel `json:"curve"`
}

// PredictorDriftBlock is the coverage of one stretch of the test rows.
type PredictorDriftBlock struct {
	Rows     int     `json:"rows"`
	After    float64 `json:"coverage_after"`
	Adaptive float64 `json:"coverage_adaptive"`
}

// PredictorLevel is one point of a reliability curve.
type PredictorLevel struct {
	Level    float64 `json:"level"`
	Coverage float64 `json:"coverage"`
}

// PredictorStratum is the error of every model on test rows of one kind.
type PredictorStratum struct {
	Scope  string              `json:"scope"`
	Target string              `json:"target"`
	Queue  string              `json:"queue"`
	KV     string              `json:"kv"`
	Prefix string              `json:"prefix"`
	Rows   int                 `json:"rows"`
	MAPE   map[string]*float64 `json:"mape"` // by model
}

// PredictorPitfall is what one habit of an online predictor costs.
type PredictorPitfall struct {
	Scope         string   `json:"scope"`
	Target        string   `json:"target"`
	Pitfall       string   `json:"pitfall"`
	Doc           string   `json:"doc"`
	MAPE          *float64 `json:"mape"`
	MAPEDelta     *float64 `json:"mape_delta"`
	Coverage      *float64 `json:"p90_coverage"`
	CoverageDelta *float64 `json:"p90_coverage_delta"`
	Claimed       *float64 `json:"mape_claimed"` // what the habit itself would report, where that differs
}

// PredictorFigures are what report.html draws.
type PredictorFigures struct {
	Stages []PredictorStage `json:"stages"`
}

// PredictorStage is the mean of measured and predicted latency in one load stage.
type PredictorStage struct {
	Scope      string             `json:"scope"`
	Target     string             `json:"target"`
	Split      string             `json:"split"`
	Stage      string             `json:"stage"`
	RatePerS   float64            `json:"rate_per_s"`
	Rows       int                `json:"rows"`
	IsTest     bool               `json:"is_test"`
	MeasuredMs float64            `json:"measured_ms"` // median
	Predicted  map[string]float64 `json:"predicted_ms"`
}

// Predictor is predictor.json: everything forest.Load needs, and where it comes from.
type Predictor struct {
	Header
	Options PredictorOptions `json:"options"`
	Runs    []PredictorRun   `json:"runs"`
	// Trained says which rows the forests were grown on and which set the
	// conformal factors.
	Trained string           `json:"trained"`
	Bins    int              `json:"bins"`
	Targets []forest.Target  `json:"targets"`
	Scores  []PredictorCell  `json:"scores"` // of the split time
	Digest  string           `json:"data_digest"`
	Splits  []PredictorSplit `json:"splits"`
}
