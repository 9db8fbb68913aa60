package result

// This file has a fitted model as fit.json has it.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// Model is one fitted linear model: the step time (beta), a delay outside the steps (an alpha
// target), or another model of the step time fitted to the same rows. Fields that do not apply are
// null.
type Model struct {
	Name             string            `json:"name"`         // beta, overhead, admission, egress, queue, blackbox, trained-physics, roofline
	SpecVersion      string            `json:"spec_version"` // of the list of features
	Recipe           string            `json:"recipe"`
	Target           string            `json:"target"`
	Replay           bool              `json:"replay"`       // may be added as a delay in a replay
	PipelineLag      map[string]RunLag `json:"pipeline_lag"` // by run: steps between a batch and its stamps
	LagEvidence      []LagEvidence     `json:"lag_evidence"`
	Lambda           *float64          `json:"lambda"`                     // penalty of the ridge regression
	GammaEMA         *float64          `json:"gamma_ema"`                  // weight of the present step in the preemption average
	GammaIdentified  *bool             `json:"gamma_identified,omitempty"` // beta: the data determine gamma
	Grid             []GridPoint       `json:"grid"`
	Candidates       []Candidate       `json:"candidates,omitempty"` // forms of the step time that were compared
	Coefficients     []Coefficient     `json:"coefficients"`
	Covariance       [][]float64       `json:"covariance"`      // of the coefficients, in their order
	NullDirections   []string          `json:"null_directions"` // combinations that the rows do not determine, a sentence each
	ConditionNumber  *float64          `json:"condition_number"`
	DFEff            *float64          `json:"df_eff"`            // effective degrees of freedom
	Certificate      *Certificate      `json:"certificate"`       // proof that the answer is a minimum (spec#certificate)
	FoldFingerprints []string          `json:"fold_fingerprints"` // of each fold: a hash of the bits of its coefficients
	Cells            []Cell            `json:"cells"`             // hold-out errors by run, regime and batch
	Holdout          *Errors           `json:"holdout"`
	Train            *Errors           `json:"train"`
	Loco             []Loco            `json:"loco"`        // configurations held out one at a time
	LocoMedian       *float64          `json:"loco_median"` // of their MAPE
	LocoWorst        *float64          `json:"loco_worst"`
	NestedCross      *float64          `json:"nested_cross_score"` // mean error where lambda too is chosen without the part held out
	Rows             RowCounts         `json:"rows"`
	Interval         *IntervalErrors   `json:"interval,omitempty"`      // overhead only
	TargetErrors     *TargetErrors     `json:"target_errors,omitempty"` // admission, egress, queue
	AlphaRuns        []AlphaRun        `json:"alpha_runs,omitempty"`
	MeanDelays       []MeanDelay       `json:"mean_delays,omitempty"` // of admission and queue
	TargetAudit      []TargetAudit     `json:"target_audit"`
	Drift            []DriftBlock      `json:"drift"`
	Reweighting      *Reweighting      `json:"reweighting"`
	ResidualQuant    []RegimeQuantiles `json:"residual_quantiles,omitempty"`
	StressSets       []Cell            `json:"stress_sets,omitempty"` // errors of subsets of rows (Cell.Set), such as those with preemptions
	BoundHits        []BoundHit        `json:"bound_hits"`
	Warnings         []trace.Finding   `json:"warnings"`
	Figures          *FitFigures       `json:"figures,omitempty"`
	Utilisation      []Utilisation     `json:"utilisation,omitempty"` // roofline only
	// HardwareFactors multiply predictions for deployments that were not fitted, by device; a device
	// without one has 1.
	HardwareFactors []HardwareFactor `json:"hardware_factors,omitempty"`
	// DeploymentFactors replace the device's factor on the fitted configurations, and on other
	// configurations of the same deployments.
	DeploymentFactors []DeploymentFactor `json:"deployment_factors,omitempty"`
	// DeploymentCoefficients replace the values of Coefficients on the fitted deployments;
	// overhead only.
	DeploymentCoefficients []DeploymentCoefficients `json:"deployment_coefficients,omitempty"`
	// LocoPlain is the cross-validation over configurations without HardwareFactors; absent if the
	// model has none.
	LocoPlain *LocoSummary `json:"loco_without_factors,omitempty"`
}

// HardwareFactor is what one device needs on top of the common coefficients,
// shrunk towards 1 (partial pooling).
type HardwareFactor struct {
	Hardware string  `json:"hardware"`
	Factor   float64 `json:"factor"`
	Configs  int     `json:"configs"` // configurations it was learned from
}

// DeploymentFactor is what one deployment of the fit, or one configuration of it, needs on top of
// the common coefficients. It is learned from its runs and shrunk by their spread
// (docs/decisions/0009).
type DeploymentFactor struct {
	Deployment string  `json:"deployment"`       // model, hardware and tp
	Config     string  `json:"config,omitempty"` // the configuration it applies to; absent: all configurations without a factor of their own
	Factor     float64 `json:"factor"`           // multiplies every term
	Prompt     float64 `json:"prompt_factor"`    // multiplies the terms of prompt work in addition
	Runs       int     `json:"runs"`             // it was learned from
	Rows       int     `json:"rows"`             // of those runs
}

// Name returns the key of the factor in coefficient files.
func (d *DeploymentFactor) Name() string {
	if d.Config != "" {
		return d.Config
	}
	return d.Deployment
}

// DeploymentCoefficients are the coefficients of one deployment, shrunk toward the common ones, in
// the order of the features.
type DeploymentCoefficients struct {
	Deployment string    `json:"deployment"` // model, hardware and tp
	Lambda     *float64  `json:"lambda"`     // null: too few rows, so the common coefficients are used
	Values     []float64 `json:"values"`
	Rows       int       `json:"rows"` // training rows
}

// LocoSummary is the median and the largest MAPE over configurations that were held out one at a
// time.
type LocoSummary struct {
	Median *float64 `json:"median"`
	Worst  *float64 `json:"worst"`
}

// Utilisation is the roofline's prediction divided by the measured time of one configuration: the
// share of the hardware's peak that the engine reaches.
type Utilisation struct {
	Config string  `json:"config"`
	Share  float64 `json:"share"`
}

// Types of the artifact that fit.json has too.
type (
	Input       = coeff.Input
	RunLag      = coeff.RunLag
	Certificate = coeff.Certificate
)

// LagEvidence is the hold-out error of one candidate lag on intervals with prefill (spec#lag).
type LagEvidence struct {
	Run                string   `json:"run"`
	Lag                int      `json:"lag"` // steps
	HoldoutMAPEPrefill *float64 `json:"holdout_mape_prefill"`
	N                  int      `json:"n"`       // intervals
	Verdict            string   `json:"verdict"` // measured | not_measurable
}

// GridPoint is the cross-validation score of one (lambda, gamma).
type GridPoint struct {
	Lambda   float64  `json:"lambda"`
	GammaEMA float64  `json:"gamma_ema"`
	Within   *float64 `json:"within"` // blocks of time held out
	Cross    *float64 `json:"cross"`  // configurations held out
	SE       *float64 `json:"se"`
}

// Candidate is a form of a model that was fitted to the same rows and compared with others by
// cross-validation (spec#forms). Score is the mean over the held-out parts and SE its standard error.
type Candidate struct {
	Name      string   `json:"name"` // bounded, few-terms or unbounded
	Lambda    *float64 `json:"lambda"`
	Score     *float64 `json:"score"`
	SE        *float64 `json:"se"`
	HeldOut   int      `json:"held_out"`  // parts held out
	Objective string   `json:"objective"` // within: blocks of time; cross or minimax: configurations
	Chosen    bool     `json:"chosen"`
}

// Coefficient is a coefficient of the coefficient file with figures about how well it is
// determined.
type Coefficient struct {
	coeff.Coefficient
	PriorShare         *float64 `json:"prior_share"`         // share of the information that comes from the penalty
	DF                 *float64 `json:"df"`                  // share of the effective degrees of freedom
	VIF                *float64 `json:"vif"`                 // variance inflation factor
	ImpliedUtilisation *float64 `json:"implied_utilisation"` // hardware's limit / value
	NotLearned         bool     `json:"not_learned"`         // 0, or decided by the prior alone
	Share              *float64 `json:"share"`               // mean share of the prediction on training rows
}

// Errors are the errors of predictions of rows with |y| >= 1 us.
type Errors struct {
	Rows      int      `json:"rows"`
	Excluded  int      `json:"excluded"` // |y| < 1 us
	MAPE      *float64 `json:"mape"`
	MAPEConst *float64 `json:"mape_const"` // of a constant (spec#best-constant)
	MAPEFloor *float64 `json:"mape_floor"` // that no model can beat (spec#noise-floor)
	Skill     *float64 `json:"skill"`      // from 0 for the constant to 1 for the floor (spec#skill)
	Bias      *float64 `json:"bias"`       // sum(pred-y)/sum(y)
	// MAPEInterval and BiasInterval are 95 % intervals (spec#sampling-error), unknown for fewer than 20 rows
	// and not of parts of a run.
	MAPEInterval *[2]float64 `json:"mape_interval,omitempty"`
	BiasInterval *[2]float64 `json:"bias_interval,omitempty"`
	WAPE         *float64    `json:"wape"`
	MedianAPE    *float64    `json:"median_ape"`
	P95APE       *float64    `json:"p95_ape"`
	RMSEUs       *float64    `json:"rmse_us"`
	// MaxErrorRatio is the largest absolute error divided by the cell's median target. Outliers are excluded if
	// they are at most 1 % of the rows (spec#outliers); LargestOutlier is the same figure of the outliers.
	MaxErrorRatio *float64 `json:"max_error_ratio"`
	// FarErrorRatio is the same, but an error of less than 0.4 of the step's own time counts over that time where it
	// is above the median (spec#far-errors).
	FarErrorRatio  *float64 `json:"far_error_ratio,omitempty"`
	Outliers       int      `json:"outliers"`
	LargestOutlier *float64 `json:"largest_outlier_ratio"`
	// RelErr is the weighted relative error sqrt(sum w(y-xb)^2/sum w y^2).
	RelErr *float64 `json:"weighted_relative_error"`
}

// Cell is Errors of one run x configuration x regime (x batch bucket).
type Cell struct {
	Run    string `json:"run"`
	Config string `json:"config"`
	Regime string `json:"regime"`
	Bucket string `json:"batch_bucket,omitempty"`
	Set    string `json:"set,omitempty"` // stress set name
	Errors
}

// Loco is the error on one configuration of a fit of all the others.
type Loco struct {
	Config        string   `json:"config"`
	Label         string   `json:"label"`
	Rows          int      `json:"rows"`
	MAPE          *float64 `json:"mape"`
	MAPEConst     *float64 `json:"mape_const"`
	MAPEFrozen10  *float64 `json:"mape_frozen_1_0"` // of the frozen recipe of spec 1.0
	Bias          *float64 `json:"bias"`
	InsideShare   *float64 `json:"inside_share,omitempty"`   // overhead
	MAPEWindow10s *float64 `json:"mape_window10s,omitempty"` // admission
	Windows       int      `json:"windows,omitempty"`        // windows of 10 s behind MAPEWindow10s
	// RelErr is the only error in fits from Gram files, because sums do not give the others.
	RelErr *float64 `json:"weighted_relative_error,omitempty"`
}

// RowCounts counts the rows of a model: read = kept + sum(dropped).
type RowCounts struct {
	Read     int            `json:"read"`
	Kept     int            `json:"kept"`
	Dropped  map[string]int `json:"dropped"`
	Holdout  int            `json:"holdout"` // part of kept
	ByRun    []RunRows      `json:"by_run"`
	ByRegime []RegimeRows   `json:"by_regime"`
}

// RunRows are the row counts of one run.
type RunRows struct {
	Run     string         `json:"run"`
	Read    int            `json:"read"`
	Kept    int            `json:"kept"`
	Dropped map[string]int `json:"dropped"`
}

// RegimeRows counts kept rows and engine steps of one configuration and regime.
type RegimeRows struct {
	Config string `json:"config"`
	Regime string `json:"regime"`
	Rows   int    `json:"rows"`
	Steps  int    `json:"steps"`
}

// IntervalErrors are the errors of predictions of a target of which only an interval is known, such
// as the overhead (spec#interval-fit).
type IntervalErrors struct {
	Rows             int      `json:"rows"`
	ExactRows        int      `json:"exact_rows"`
	InformativeRows  int      `json:"informative_rows"`
	InsideShare      *float64 `json:"inside_share"` // share of the intervals wider than 0 that contain the prediction
	MedianWidthUs    *float64 `json:"median_width_us"`
	WeightedDistance *float64 `json:"weighted_distance"`
	MAEUs            *float64 `json:"mae_us"` // mean distance of the prediction from the interval, or from the value if that is known
	ExactWAPE        *float64 `json:"exact_wape"`
	MedianPredUs     *float64 `json:"median_prediction_us"`
	Passes           int      `json:"passes"`
}

// TargetErrors are the errors of predictions of the delays admission, egress and queue.
type TargetErrors struct {
	Rows           int      `json:"rows"`
	MAPE           *float64 `json:"mape"`
	MedianAPE      *float64 `json:"median_ape"`
	WAPE           *float64 `json:"wape"`
	MAEUs          *float64 `json:"mae_us"` // mean absolute error
	MAPEWindow10s  *float64 `json:"mape_window10s"`
	MAPEConst      *float64 `json:"mape_const"`
	Windows        int      `json:"windows"`
	ConstWindow    *float64 `json:"mape_const_window10s"`
	MedianPredUs   *float64 `json:"median_prediction_us"`
	MaxErrorRatio  *float64 `json:"max_error_ratio"`
	Outliers       int      `json:"outliers"`
	LargestOutlier *float64 `json:"largest_outlier_ratio"`
	Bias           *float64 `json:"bias"`
	// MAPEFloor is the error that no model of the recorded state can beat: of the median of the ten
	// requests most like each (spec#noise-floor).
	MAPEFloor *float64 `json:"mape_floor"`
	// Regimes separates the rows that were served at once from those that queued; absent for egress.
	Regimes []RegimeErrors `json:"regimes,omitempty"`
	// Long has the requests that were delayed by a second or longer; absent for egress, and without any.
	Long *RegimeErrors `json:"long,omitempty"`
}

// RegimeErrors are the errors of a queueing delay in one regime.
type RegimeErrors struct {
	Regime    string   `json:"regime"` // idle: no request was waiting on arrival | waiting | long
	Rows      int      `json:"rows"`
	MAPE      *float64 `json:"mape"`
	MAPEConst *float64 `json:"mape_const"`
	MAPEFloor *float64 `json:"mape_floor"`
	WAPE      *float64 `json:"wape"`
	Bias      *float64 `json:"bias"`
}

// MeanDelay is the mean of a delay over the training rows of one regime, with the interval of the
// fit's mean prediction for them.
type MeanDelay struct {
	Regime      string      `json:"regime"`
	Rows        int         `json:"rows"`
	MeasuredUs  float64     `json:"measured_us"`
	PredictedUs float64     `json:"predicted_us"`
	CI95        *[2]float64 `json:"ci95"`
}

// AlphaRun is the hold-out errors of one alpha target on one run.
type AlphaRun struct {
	Run      string          `json:"run"`
	Config   string          `json:"config"`
	Interval *IntervalErrors `json:"interval,omitempty"`
	Errors   *TargetErrors   `json:"errors,omitempty"`
}

// Quantiles are quantiles in the unit of the key that has them.
type Quantiles struct {
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
}

// TargetAudit states what the stamps of a run measure, so that the fitted target is the step time
// (spec#target-audit).
type TargetAudit struct {
	Run                 string    `json:"run"`
	DurationUsP50       *float64  `json:"duration_us_p50"`
	CadenceUsP50        *float64  `json:"cadence_us_p50"`
	PhysicalFloorUs     *float64  `json:"physical_floor_us"`
	QueuedToScheduledUs Quantiles `json:"queued_to_scheduled_us"`
	ArrivedToQueuedUs   Quantiles `json:"arrived_to_queued_us"`
	Verdict             string    `json:"verdict"`
}

// BelowFloor reports whether the median cadence is shorter than the time in which the hardware can
// read the weights once.
func (a *TargetAudit) BelowFloor() bool {
	return a.CadenceUsP50 != nil && a.PhysicalFloorUs != nil && *a.CadenceUsP50 < *a.PhysicalFloorUs
}

// DriftBlock is the signed error of the step time in one of five equal time blocks of a run's
// hold-out.
type DriftBlock struct {
	Run   string  `json:"run"`
	Block int     `json:"block"`
	Bias  float64 `json:"bias"`
	Rows  int     `json:"rows"`
}

// Reweighting describes the passes that reweight rows toward the absolute relative error
// (spec#reweighting).
type Reweighting struct {
	Passes     int      `json:"passes"`
	BiasBefore *float64 `json:"bias_before"` // null if all targets are 0
	BiasAfter  *float64 `json:"bias_after"`
	Kept       bool     `json:"kept"`
}

// RegimeQuantiles are quantiles of measured/predicted step time on the hold-out.
type RegimeQuantiles struct {
	Regime    string       `json:"regime"`    // decode | prefill | mixed
	Quantiles [][2]float64 `json:"quantiles"` // [probability, ratio] in ascending probability
	Rows      int          `json:"rows"`
}

// BoundHit counts the rows whose feature is at its bound (spec#bound-hits).
type BoundHit struct {
	Name  string  `json:"name"`
	Rows  int     `json:"rows"`
	Share float64 `json:"share"`
}

// FitFigures are the points of the report's figures, aggregated so that their number does not
// depend on that of the rows.
type FitFigures struct {
	// PredVsMeasured are log-log bins of hold-out rows per engine step.
	PredVsMeasured []Bin2D `json:"pred_vs_measured"`
	// Residuals are quantile bands of prediction/measured-1 against one quantity.
	Residuals []ResidualBand `json:"residuals"`
	// Contributions are mean us per step of each term by regime.
	Contributions []Contribution `json:"contributions"`
}

// Bin2D is one cell of a 2-D histogram; X and Y are bin centres in us per step.
type Bin2D struct {
	Regime string  `json:"regime"`
	X      float64 `json:"measured_us"`
	Y      float64 `json:"predicted_us"`
	N      int     `json:"n"`
}

// ResidualBand is the spread of (prediction-y)/y in one bin of a quantity.
type ResidualBand struct {
	Against string  `json:"against"` // batch | context | time
	Regime  string  `json:"regime"`
	X       float64 `json:"x"` // requests, tokens per decode, or seconds since the first row
	P10     float64 `json:"p10"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	N       int     `json:"n"`
}

// Contribution is the mean time of one term in the steps of a regime, one bar of the waterfall.
type Contribution struct {
	Regime string  `json:"regime"`
	Name   string  `json:"name"`
	MeanUs float64 `json:"mean_us"`
}
