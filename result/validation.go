package result

// This file is the document validation.json.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// Validation is validation.json.
type Validation struct {
	Header
	Judged  *Input            `json:"judged"` // the fit.json or coefficient file that the verdicts are about; null in older documents
	Options ValidationOptions `json:"options"`
	Runs    []ValidationRun   `json:"runs"`
	// Configs are the errors of predictions from recorded batches (teacher-forced), by
	// configuration: of the hold-out rows of training runs, and separately of test runs.
	Configs []ConfigErrors `json:"configs"`
	// Steps are the errors over the same rows of all configurations and test runs.
	Steps *Errors `json:"steps"`
	Gates []Gate  `json:"gates"`
	// Purposes are the verdicts, by purpose and then configuration.
	Purposes  []PurposeVerdict `json:"purposes"`
	For       string           `json:"for"`     // the purpose that decides
	Verdict   string           `json:"verdict"` // its verdict over everything: pass | insufficient | fail | not applicable
	Pass      bool             `json:"pass"`    // verdict == "pass"
	Missing   []string         `json:"missing"` // required gates that are null, one sentence each
	Diagnoses []Diagnosis      `json:"diagnoses"`
	// Figures are the teacher-forced steps of every run together, aggregated.
	Figures  *FitFigures     `json:"figures,omitempty"`
	Warnings []trace.Finding `json:"warnings"`
}

// VerdictFor returns the verdict on a purpose in a scope, with the gates that failed and those that
// lack data. For the purpose "all" it is the worst of all purposes.
func (v *Validation) VerdictFor(purpose, scope string) PurposeVerdict {
	out := PurposeVerdict{Failed: []string{}, Missing: []string{}}
	out.Purpose = purpose
	out.Scope = scope
	out.Verdict = coeff.VerdictNotApplicable
	for _, p := range v.Purposes {
		if p.Scope != scope || purpose != coeff.PurposeAll && p.Purpose != purpose {
			continue
		}
		out.Verdict = coeff.WorseVerdict(out.Verdict, p.Verdict)
		out.Failed = appendMissing(out.Failed, p.Failed)
		out.Missing = appendMissing(out.Missing, p.Missing)
	}
	return out
}

// appendMissing returns the list with the strings of more appended that it does not have yet.
func appendMissing(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// Verdicts returns the gates, the verdicts by purpose, and the purpose that decides, in the form of
// coefficient files. All are empty for a nil validation.
func (v *Validation) Verdicts() (gates []coeff.Gate, purposes []coeff.PurposeVerdict, decides string) {
	if v == nil {
		return nil, nil, ""
	}
	gates = make([]coeff.Gate, len(v.Gates))
	for i := range v.Gates {
		gates[i] = v.Gates[i].Gate
	}
	purposes = make([]coeff.PurposeVerdict, len(v.Purposes))
	for i := range v.Purposes {
		purposes[i] = v.Purposes[i].PurposeVerdict
	}
	return gates, purposes, v.For
}

// Doubts returns the warnings about contradictions that decide no verdict, between the streams of the recordings or between
// them and what run.yaml describes. There are none of a nil validation.
func (v *Validation) Doubts() []trace.Finding {
	if v == nil {
		return nil
	}
	return DoubtsIn(v.Warnings)
}

// DoubtsIn returns the warnings of [Validation.Doubts] among those of a document.
func DoubtsIn(warnings []trace.Finding) (doubts []trace.Finding) {
	for _, w := range warnings {
		if w.Code == StreamsDisagree {
			doubts = append(doubts, w)
		}
	}
	return doubts
}

// ValidationOptions are the options of the validation that change its numbers.
type ValidationOptions struct {
	Split      float64            `json:"split"` // training share of each phase
	StepsOnly  bool               `json:"steps_only"`
	Seed       int64              `json:"seed"`
	OverheadUs *float64           `json:"overhead_us"` // a constant that replaces the fitted overhead; null: the fitted one
	EgressUs   *float64           `json:"egress_us"`   // the same of the delay after the last token
	Latency    string             `json:"latency"`     // physics | roofline | ...
	Thresholds map[string]float64 `json:"thresholds"`  // by gate, in place of its own
}

// ConfigErrors are the errors of one configuration, or of one test run, with predictions made from
// recorded batches (teacher-forced).
type ConfigErrors struct {
	Scope           string       `json:"scope"`  // the configuration's label, or the test run's id
	Config          string       `json:"config"` // key (spec#configuration)
	Runs            []string     `json:"runs"`
	Seen            bool         `json:"seen"`     // the configuration was part of the fit
	TestRun         bool         `json:"test_run"` // rows of a run the coefficients never saw
	Steps           *Errors      `json:"steps"`
	Alpha           *AlphaErrors `json:"alpha"`
	TargetOverFloor *float64     `json:"target_over_floor"` // median target / median physical floor (spec#physical-floor)
	BoundHits       *float64     `json:"bound_hits"`        // largest share of rows over the slots (spec#bound-hits)
}

// Split kinds of a ValidationRun.
const (
	SplitCrossFitted = "cross_fitted" // the whole phase of a training run, each block by coefficients fitted without it
	SplitHoldout     = "holdout"      // the last share in time of a training run's phase
	SplitInSample    = "in_sample"    // the whole phase of a training run, labelled so
	SplitTestRun     = "test_run"     // a run that was not in the fit
	SplitLevels      = "levels"       // load levels, each predicted by coefficients fitted without it
)

// Sources of the recorded requests of a ValidationRun.
const (
	SourceJourneys = "journeys"
	SourceStock    = "stock"         // spans of an unmodified vLLM
	SourceClient   = "client"        // what clients measured
	SourcePasses   = "client_passes" // clients, with the engine's passes on their clock
	SourcePoints   = "points"        // means of load levels
)

// Split is which requests were compared.
type Split struct {
	Kind  string  `json:"kind"`
	Train float64 `json:"train"` // share of the phase the coefficients were fitted on
	Test  float64 `json:"test"`  // share of the phase compared here
}

// ValidationRun compares one phase of a run with its replay, for one split.
type ValidationRun struct {
	ID     string `json:"id"`
	Config string `json:"config"`
	Phase  string `json:"phase"` // empty: the run has no phases
	Load   string `json:"load"`  // open | closed | levels
	// Source is where the times of the requests come from, see SourceJourneys. All but journeys are
	// gated only for coefficients that were fitted to requests.
	Source string `json:"source"`
	// Informs is the reason why the replay is shown but not gated; empty: it is gated.
	Informs string `json:"informs,omitempty"`
	// Undecided states what must be recorded before the replay can be gated.
	Undecided string `json:"undecided,omitempty"`
	// JourneySampleRate is the share of requests that left a journey. Below 1 the replay does not
	// know the whole load. null: not stated.
	JourneySampleRate *float64            `json:"journey_sample_rate"`
	Rebuilt           int                 `json:"rebuilt,omitempty"` // replayed requests without a journey, reconstructed from the counts of steps
	Split             Split               `json:"split"`
	Requests          int                 `json:"requests"`  // compared
	Replayed          int                 `json:"replayed"`  // fed to the simulator
	Excluded          map[string]int      `json:"excluded"`  // replayed but not compared, by reason
	Saturated         bool                `json:"saturated"` // two or more checks hit
	SaturationChecks  map[string]*float64 `json:"saturation_checks"`
	SaturationHits    []string            `json:"saturation_hits"`
	Metrics           *Metrics            `json:"metrics"` // of the plain replay, the only one that is gated
	MetricsNoise      *Metrics            `json:"metrics_noise"`
	MetricsDrift      *Metrics            `json:"metrics_drift_corrected"`
	Drift             []DriftPoint        `json:"drift"` // the machine's speed over time
	Replay            *ReplayQuality      `json:"replay"`
	Steps             *Errors             `json:"steps"`      // teacher-forced; on the first entry of a run, else null
	StepCells         []Cell              `json:"step_cells"` // the same by regime and stress set
	Alpha             *AlphaErrors        `json:"alpha"`
	Figures           *RunFigures         `json:"figures,omitempty"`
	Identities        []Identity          `json:"identities,omitempty"` // of the run's streams; on its first entry
	Findings          []trace.Finding     `json:"findings"`
}

// informsOfCross is the reason why the hold-out of a phase with a cross-fitted replay is not gated:
// that replay already compares every request of the phase.
const informsOfCross = "a figure: the cross-fitted replay judges every request of the phase"

// MakeFigure marks the hold-out of a phase that has a cross-fitted replay as a figure only: it
// shows the errors of the published coefficients on the last requests, and no gate is evaluated on
// it.
func (r *ValidationRun) MakeFigure() { r.Informs = cmp.Or(r.Informs, informsOfCross) }

// IsFigure reports whether MakeFigure marked the run.
func (r *ValidationRun) IsFigure() bool {
	return r.Split.Kind == SplitHoldout && r.Informs == informsOfCross
}

// Judged reports whether gates are evaluated on the replay: it was compared with requests that were
// held out of the fit, of a server that was not saturated and whose prefix cache is known.
func (r *ValidationRun) Judged() bool {
	return r.Metrics != nil && !r.Saturated && r.Informs+r.Undecided == "" && r.Split.Kind != SplitInSample
}

// AlphaErrors are the errors of the delays outside the steps (alpha), predicted from recorded
// batches, in the form of fit.json.
type AlphaErrors struct {
	Overhead  *IntervalErrors `json:"overhead"`
	Admission *TargetErrors   `json:"admission"`
	Egress    *TargetErrors   `json:"egress"`
	Queue     *TargetErrors   `json:"queue,omitempty"`
}

// Metrics are the compared distributions; a metric whose stamps are missing on
// one side is null.
type Metrics struct {
	TTFT     *Metric   `json:"ttft"`
	ITL      *Metric   `json:"itl"`
	E2E      *Metric   `json:"e2e"`
	Capacity *Capacity `json:"capacity,omitempty"` // of a closed loop
	// ITLGap compares gaps between tokens; printed, never gated.
	ITLGap *Metric `json:"itl_gap,omitempty"`
}

// Capacity is the throughput of a closed loop: clients / (mean E2E + mean pause of a client).
type Capacity struct {
	Clients      int     `json:"clients"`
	RecordedRPS  float64 `json:"recorded_rps"`
	SimulatedRPS float64 `json:"simulated_rps"`
	// Err is simulated/recorded - 1, with its interval.
	Err *Estimate `json:"err"`
}

// Metric compares one real and one simulated sample of milliseconds.
type Metric struct {
	KSD           float64  `json:"ks_d"`
	PAsymptotic   float64  `json:"p_asymptotic"`
	PExact        *float64 `json:"p_exact"` // null when the samples are too large for the exact count
	NReal         int      `json:"n_real"`
	NSim          int      `json:"n_sim"`
	DAtQuantile   float64  `json:"d_at_quantile"` // quantile of the real sample where D occurs
	DAtMs         float64  `json:"d_at_ms"`
	DRealCDF      float64  `json:"d_real_cdf"` // the two ECDFs at d_at_ms
	DSimCDF       float64  `json:"d_sim_cdf"`
	WassersteinMs float64  `json:"wasserstein_ms"`
	// MedianRelErr is |median(sim)-median(real)|/median(real); MedianRelErrPaired
	// the median over requests of |sim-real|/real, null with noise.
	MedianRelErr       float64  `json:"median_rel_err"`
	MedianRelErrPaired *float64 `json:"median_rel_err_paired"`
	// PairedErr is how far off the simulated times of the same requests are, signed (spec#paired-error);
	// null with noise.
	PairedErr   *Estimate `json:"paired_err"`
	RealVsRealD *float64  `json:"real_vs_real_d"` // first against second half of the real requests
	// BeyondD is the distance of the distributions beyond the tolerance, with the server's noise in the
	// replay, and ChanceBeyondD the largest that 99 noisy replays have, or would have (spec#chance); null where
	// they decide nothing.
	BeyondD       *float64 `json:"beyond_d"`
	ChanceBeyondD *float64 `json:"chance_beyond_d"`
	// ChanceKSD is the largest ks_d of one of those replays from all of them; it gates nothing.
	ChanceKSD *float64 `json:"chance_ks_d"`
	// ChanceMedian is the largest median_rel_err_paired that noise alone makes, of load levels.
	ChanceMedian *float64    `json:"chance_median_rel_err"`
	RealMs       SampleStats `json:"real_ms"`
	SimMs        SampleStats `json:"sim_ms"`
}

// Estimate is a figure with its 95 % interval, null where too few values give none.
type Estimate struct {
	Value float64  `json:"value"`
	Lo    *float64 `json:"lo"`
	Hi    *float64 `json:"hi"`
}

// NewEstimate returns an estimate with its interval, whose limits may be infinite; nil if the value
// is NaN.
func NewEstimate(value, lo, hi float64) *Estimate {
	if math.IsNaN(value) {
		return nil
	}
	return &Estimate{Value: value, Lo: OrNull(lo), Hi: OrNull(hi)}
}

// Interval returns the interval; nil unless both limits are finite.
func Interval(lo, hi float64) *[2]float64 {
	if OrNull(lo) == nil || OrNull(hi) == nil {
		return nil
	}
	return &[2]float64{lo, hi}
}

// SampleStats describe one sample in ms.
type SampleStats struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
}

// DriftPoint is the median of y/prediction in the block of 20, 10 or 5 seconds that
// starts StartS seconds after the run's first row.
type DriftPoint struct {
	StartS float64 `json:"start_s"`
	Factor float64 `json:"factor"`
	Rows   int     `json:"rows"`
}

// ReplayQuality states how far the replay reproduced the recorded schedule.
type ReplayQuality struct {
	// KnownBatchesShare: recorded steps of the run whose batch is known.
	KnownBatchesShare *float64 `json:"known_batches_share"`
	// IdenticalBatchesShare: known recorded batches of the run that the
	// simulator's scheduler reproduces when recorded step times drive its clock.
	IdenticalBatchesShare *float64 `json:"identical_batches_share"`
	Steps                 int      `json:"steps"` // simulated, plain replay
	ClippedPredictions    int      `json:"clipped_predictions"`
	Notes                 []string `json:"notes"`
}

// Causes of a Diagnosis.
const (
	CauseMachineDrift = "machine_drift"
	CauseUnseenRegime = "unseen_regime"
	CauseModelError   = "model_error"
	CauseSaturated    = "saturated"
	CauseLag          = "lag"       // steps are joined to the wrong batches
	CauseHardware     = "hardware"  // the device differs from that of run.yaml
	CauseSpeed        = "speed"     // all steps differ from the coefficients by one factor
	CauseScheduler    = "scheduler" // the simulator forms other batches than the engine did
	CauseStreams      = "streams"   // the streams of the recording, or the description, contradict each other
	CauseUnknown      = "unknown"
)

// Diagnosis is a cause of the failed gates of one scope, and the figure that shows it.
type Diagnosis struct {
	Scope    string   `json:"scope"`
	Gates    []string `json:"gates"`
	Cause    string   `json:"cause"`
	Regime   string   `json:"regime,omitempty"`
	Term     string   `json:"term,omitempty"`
	Evidence *float64 `json:"evidence"` // the figure that shows the cause, such as the signed bias of the regime
	Sentence string   `json:"sentence"`
	Figure   string   `json:"figure"` // drift | pred_vs_measured | residuals | ecdf | contributions | saturation
}
