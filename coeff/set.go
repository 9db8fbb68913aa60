// Package coeff defines coefficient files (spec#artifact). A [Set] is one file: named coefficients
// with unit, spec version, provenance and uncertainty. [Load] reads it strictly, [Set.Save] writes it
// so that reading it back gives the same set, and [Set.Predict] is the step time in us.
//
// A coefficient is identified by its name, not by its position: on load, lengths, names, order and
// units are compared with the slots of the file's spec version. A delay that contains queueing time
// cannot be marked for replay, because a simulator produces that time itself and would count it
// twice.
//
// The file format is docs/coefficients.md, its JSON schema docs/schema/coefficients.schema.json; the
// example of [Load] is a simulator's inner loop.
package coeff

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// SchemaVersion is the version of the file Save writes.
const SchemaVersion = "1"

// Targets with a name of their own (spec#cadence, spec#duration, spec#delay-targets).
const (
	Cadence   = "cadence"
	Duration  = "duration"
	Overhead  = "overhead"
	Admission = "admission"
	Egress    = "egress"
	Queue     = "queue"
)

// Set is one coefficient file: the step-time model (Beta) and the delay models (Alpha) over the
// features of one spec version, with the provenance, uncertainty and gates of the fit. The fields
// are in the order of the file's keys.
type Set struct {
	SchemaVersion string  `yaml:"-"`
	ToolVersion   string  `yaml:"-"`
	Platform      string  `yaml:"-"` // of the build that fitted it, as result.Platform names it; "" in older files
	Command       string  `yaml:"-"` // the fit and the options that can change it
	Inputs        []Input `yaml:"-"`

	SpecVersion Version       `yaml:"spec_version"`
	FeatureSet  FeatureSet    `yaml:"feature_set,omitempty"` // zero in files older than it
	Recipe      string        `yaml:"recipe"`                // relative | frozen
	Refit       bool          `yaml:"refit,omitempty"`       // fitted on all rows after the choice was made
	TrainedOn   TrainedOn     `yaml:"trained_on"`
	BetaTarget  string        `yaml:"beta_target"`       // cadence | duration
	Beta        []Coefficient `yaml:"beta_coefficients"` // one per slot, in slot order
	// DeploymentFactors multiply the step time on the configurations of the fit
	// (named by deploy.Deployment.Config) and on other configurations of their
	// deployments (named by Label); elsewhere HardwareFactors do, by device. Without
	// any the factor is 1. PromptFactors, named like DeploymentFactors, multiply the
	// terms of prompt work (features.Feature.Prompt) on top. All are above 0.
	DeploymentFactors map[string]float64      `yaml:"deployment_factors,omitempty"`
	PromptFactors     map[string]float64      `yaml:"prompt_factors,omitempty"`
	HardwareFactors   map[string]float64      `yaml:"hardware_factors,omitempty"`
	Alpha             alphaModels             `yaml:"alpha"`              // sorted by target
	Covariance        [][]float64             `yaml:"covariance"`         // of Beta, in its order; empty when not estimated
	Residuals         map[string][][2]float64 `yaml:"residual_quantiles"` // target/prediction on the hold-out as [probability, ratio], by regime
	Gamma             float64                 `yaml:"gamma"`              // of the preemption average (spec#preemption-average)
	// GammaIdentified is false where the training rows could not choose between the candidates for
	// Gamma, so that it has its default; nil in files that do not record it.
	GammaIdentified *bool             `yaml:"gamma_identified,omitempty"`
	PipelineLag     map[string]RunLag `yaml:"pipeline_lag"` // by run
	Gates           []Gate            `yaml:"gates"`
	Purposes        []PurposeVerdict  `yaml:"purposes,omitempty"`      // verdicts of validation; empty: not validated
	ValidatedFor    string            `yaml:"validated_for,omitempty"` // purpose of that validation; "": not validated
	// Identifiability lists, in words, the terms that the training data could not separate.
	Identifiability []string        `yaml:"identifiability"`
	Certificate     *Certificate    `yaml:"certificate"`
	Warnings        []trace.Finding `yaml:"warnings"`
	Configs         []Config        `yaml:"configs"`
	Library         *Library        `yaml:"library,omitempty"` // nil: fitted to traces, not to the library
	Changed         string          `yaml:"-"`                 // base name of the file if its digest does not match
	Origin          string          `yaml:"-"`                 // OriginHand, or empty
}

// Library describes coefficients of a deployment without traces: their terms are fitted to the
// published times of its kernels and the library's corrections to them.
type Library struct {
	Version string `yaml:"version"`          // of the corrections: the day of their newest input
	Family  string `yaml:"family,omitempty"` // deployments that are validated together
	Judged  string `yaml:"judged,omitempty"` // error of predictions with the family held out, in words
	// Representation is the median relative error of the terms against the sums of kernel times, of
	// decode, mixed and prefill batches in this order.
	Representation []float64 `yaml:"representation_error,flow,omitempty"`
}

// Input is one file a result was made from, named relative to the given RUNDIR
// or PARENT, never by an absolute path.
type Input struct {
	Name   string `json:"name" yaml:"name"` // relative, slashes
	Bytes  int64  `json:"bytes" yaml:"bytes"`
	SHA256 string `json:"sha256" yaml:"sha256"`
}

// TrainedOn is what the training data covered; [Set.Outside] warns of deployments beyond it.
type TrainedOn struct {
	Models       oneOrMany[string]  `yaml:"model"`
	Hardware     oneOrMany[string]  `yaml:"hardware"`
	TPs          oneOrMany[int64]   `yaml:"tp"`
	VLLMVersions oneOrMany[string]  `yaml:"vllm_version"`
	Date         string             `yaml:"training_date"` // UTC date of the latest wall-clock stamp in the inputs; "" unknown
	Samples      int64              `yaml:"n_samples"`     // beta rows the coefficients were fitted on
	Lambda       float64            `yaml:"lambda"`
	Gamma        float64            `yaml:"gamma"`
	HoldOutRMSE  map[string]float64 `yaml:"hold_out_rmse"` // in us, by target; a target without a hold-out is absent
}

// How well the data determine a coefficient (spec#identified).
const (
	Within         = "within"          // varies inside a configuration
	BetweenConfigs = "between-configs" // varies between configurations only
	PriorOnly      = "prior-only"      // the penalty alone decides it
)

// Coefficient is one term of a linear model, in fit.json and in the artifact.
type Coefficient struct {
	Name  string  `json:"name" yaml:"name"`
	Value float64 `json:"value" yaml:"value"` // us per second for time-like features, else us
	Unit  string  `json:"unit" yaml:"unit"`   // "us/s" or "us"
	// CI95 is the 95 % interval and always contains Value; nil when not estimated. With a prior it is the
	// posterior's, otherwise EstimateCI95, widened to include Value where the penalty moved it outside
	// (spec#value-interval).
	CI95 *[2]float64 `json:"ci95" yaml:"ci95"`
	// CI95Given is GivenPrior where CI95 is the posterior's, which has its coverage only if the prior
	// is right; otherwise "".
	CI95Given string `json:"ci95_given,omitempty" yaml:"ci95_given,omitempty"`
	// FoldSpread is the smallest and largest value over the folds; nil unknown (spec#fold-spread).
	FoldSpread *[2]float64 `json:"fold_spread" yaml:"fold_spread,omitempty"`
	// Estimate is the least-squares value without penalty and EstimateCI95 its interval. Both are nil
	// with a prior, and where CI95 is nil.
	Estimate     *float64    `json:"estimate" yaml:"estimate,omitempty"`
	EstimateCI95 *[2]float64 `json:"estimate_ci95" yaml:"estimate_ci95,omitempty"`
	Identified   string      `json:"identified" yaml:"identified"` // within | between-configs | prior-only; "" unknown (1.0's flat form)
	Range        *[2]float64 `json:"range" yaml:"range"`           // training minimum and maximum of the feature, per step; nil unknown
	// Evidence is the source of a coefficient with a prior: kernels, kernels+silicon or silicon in the
	// library, and in a fit the share that its data contribute ("data 0.93"); "" without a prior.
	Evidence string `json:"evidence,omitempty" yaml:"evidence,omitempty"`
}

// GivenPrior marks an interval that has its stated coverage only if the prior is right.
const GivenPrior = "prior"

// AlphaModel predicts one delay of a request.
type AlphaModel struct {
	Target string `yaml:"-"`
	// Replay is true only for delays a simulator must add itself: overhead and
	// egress. The other targets contain a wait that a simulator produces.
	Replay       bool          `yaml:"replay"`
	Lambda       float64       `yaml:"lambda"`
	Coefficients []Coefficient `yaml:"coefficients"`
	Covariance   [][]float64   `yaml:"covariance"`
	// Deployments, keyed by deploy.Deployment.Label, are values for the deployments of the fit, one per
	// slot, which replace those of Coefficients there.
	Deployments map[string][]float64 `yaml:"deployments,omitempty"`
}

// Interval returns the interval of the unpenalised estimate, or with a prior that of the value; nil
// when not estimated.
func (c *Coefficient) Interval() *[2]float64 {
	if c.EstimateCI95 != nil {
		return c.EstimateCI95
	}
	return c.CI95
}

// RunLag is how many steps the cadence of one run lags behind its batches.
type RunLag struct {
	Lag      int  `json:"lag" yaml:"lag"`
	Measured bool `json:"measured" yaml:"measured"`
}

// Config is one configuration of the training data (spec#configuration).
type Config struct {
	Key        string
	Runs       []string
	Samples    int64
	Deployment deploy.Deployment // without run-specific parts: name, phases, tracing, workload, files
	Layers     *deploy.Sums      // sums over layers that features of spec 1.3 read; nil in earlier versions
}

// ConfigOf returns the configuration of a deployment, without its run-specific parts.
func ConfigOf(d *deploy.Deployment, runs []string, samples int64) Config {
	return Config{Key: d.Config(), Runs: runs, Samples: samples, Deployment: d.Served()}
}

// AlphaModel returns the model of a target, nil when the set has none.
func (s *Set) AlphaModel(target string) *AlphaModel {
	if i := slices.IndexFunc(s.Alpha, func(a AlphaModel) bool { return a.Target == target }); i >= 0 {
		return &s.Alpha[i]
	}
	return nil
}

// Replayable reports whether a target may be added as a delay in a replay: overhead and egress. The
// others contain a wait that the simulator produces itself and would count twice
// (spec#waits-are-no-delays).
func Replayable(target string) bool { return target == Overhead || target == Egress }

// Values returns the coefficients' values in order.
func Values(cs []Coefficient) []float64 {
	values := make([]float64, len(cs))
	for i := range cs {
		values[i] = cs[i].Value
	}
	return values
}

// Version names the specification of the features (spec#spec-version), and after a plus sign the
// parametrisation of the fit: "1.1", "1.1+principal-components". Package features lists the versions.
type Version string

// flatVersion is the only version whose files may have bare lists of values.
const flatVersion Version = "1.0"

// Base returns the version without its parametrisation: the one that lists the features.
func (v Version) Base() Version {
	base, _, _ := strings.Cut(string(v), "+")
	return Version(base)
}

// InComponents reports whether the version fits step times in principal components
// (spec#principal-components).
func (v Version) InComponents() bool { return v != v.Base() }

// FeatureSet identifies the features behind coefficients beyond their version's name. It is written into
// every fit and artifact and compared when they are read.
type FeatureSet struct {
	Hash  string   `json:"hash" yaml:"hash"`        // of both lists, 16 hex digits; "" in files that predate it
	Beta  []string `json:"beta" yaml:"beta,flow"`   // a digest of each step term, by slot
	Alpha []string `json:"alpha" yaml:"alpha,flow"` // of each delay term
}

// MinStepUs is the shortest predicted step in us (spec#prediction-use).
const MinStepUs = 1

// AlphaTargets returns the set's alpha targets (delays outside the steps), sorted. If there are
// none it is empty but not nil, because nil means the default targets to a fit.
func (s *Set) AlphaTargets() []string {
	targets := make([]string, len(s.Alpha))
	for i := range s.Alpha {
		targets[i] = s.Alpha[i].Target
	}
	return targets
}

// Predict returns one step's time in us without bookkeeping, at least 1. x has
// one value per beta slot.
func (s *Set) Predict(x []float64) float64 {
	sum := 0.0
	for i := range s.Beta {
		sum += s.Beta[i].Value * x[i]
	}
	return max(MinStepUs, sum)
}

// Codes of coefficient files and predictions.
const (
	BadFile               trace.Code = "bad_coefficient_file"
	OutsideTraining       trace.Code = "outside_training"
	JudgedOnTraining      trace.Code = "judged_on_training"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
	DocumentChanged       trace.Code = "document_changed" // or a coefficient file
	HandMade              trace.Code = "hand_made"
)
