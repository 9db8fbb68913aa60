package result

import (
	"cmp"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// PurposeVerdict says whether the coefficients serve a purpose, and why not.
type PurposeVerdict struct {
	coeff.PurposeVerdict
	Failed  []string `json:"failed"`  // "gate of scope"
	Missing []string `json:"missing"` // required gates that are null, one sentence each
}

// Validation is validation.json.
type Validation struct {
	Header
	Options ValidationOptions `json:"options"`
	Runs    []ValidationRun   `json:"runs"`
	// Configs are the teacher-forced errors by configuration: hold-out rows of
	// training runs, and apart from them all rows of test runs.
	Configs []ConfigErrors `json:"configs"`
	// Steps are the same rows of every configuration and test run together.
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

// VerdictFor is the verdict on a purpose in a scope, the worst of all purposes for
// "all", with what failed and what is missing, each once.
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
		out.Failed, out.Missing = stat.AppendNew(out.Failed, p.Failed...), stat.AppendNew(out.Missing, p.Missing...)
	}
	return out
}

// Verdicts are the gates, the verdicts by purpose and the purpose that decides as coefficient files hold them; none of nil.
func (v *Validation) Verdicts() (gates []coeff.Gate, purposes []coeff.PurposeVerdict, decides string) {
	if v == nil {
		return nil, nil, ""
	}
	return stat.Map(v.Gates, func(g Gate) coeff.Gate { return g.Gate }),
		stat.Map(v.Purposes, func(p PurposeVerdict) coeff.PurposeVerdict { return p.PurposeVerdict }), v.For
}

// ValidationOptions are the options that decided the numbers.
type ValidationOptions struct {
	Split      float64            `json:"split"` // training share of each phase
	StepsOnly  bool               `json:"steps_only"`
	Seed       int64              `json:"seed"`
	OverheadUs *float64           `json:"overhead_us"` // constant given instead of the alpha; null: the artifact's
	EgressUs   *float64           `json:"egress_us"`
	Latency    string             `json:"latency"` // physics | roofline | ...
	Thresholds map[string]float64 `json:"thresholds"`
}

// ConfigErrors are the teacher-forced errors of one configuration, or of one
// test run.
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
	SplitHoldout  = "holdout"   // the last share in time of a training run's phase
	SplitInSample = "in_sample" // the whole phase of a training run, labelled so
	SplitTestRun  = "test_run"  // a run the coefficients never saw
	SplitLevels   = "levels"    // load levels, each predicted by coefficients that never saw it
)

// Sources of the recorded requests of a ValidationRun.
const (
	SourceJourneys = "journeys"
	SourceStock    = "stock"         // spans of an unmodified vLLM
	SourceClient   = "client"        // what clients measured
	SourcePasses   = "client_passes" // clients, with the engine's passes on their clock
	SourcePoints   = "points"        // means of load levels
)

// Split says which requests were compared.
type Split struct {
	Kind  string  `json:"kind"`
	Train float64 `json:"train"` // share of the phase the coefficients were fitted on
	Test  float64 `json:"test"`  // share of the phase compared here
}

// ValidationRun is one run x phase x split.
type ValidationRun struct {
	ID     string `json:"id"`
	Config string `json:"config"`
	Phase  string `json:"phase"` // empty: the run has no phases
	Load   string `json:"load"`  // open | closed | levels
	// Source of the recorded requests: journeys, stock (spans of an unmodified server), client
	// (their own timings) or points (means of load levels, which then stand for requests). The
	// latter three gate coefficients that were learned from requests.
	Source string `json:"source"`
	// Informs says why the replay is shown and decides nothing.
	Informs string `json:"informs,omitempty"`
	// Undecided says what must be recorded before the replay can be judged.
	Undecided string `json:"undecided,omitempty"`
	// JourneySampleRate below 1 means that part of the load is unknown to the
	// replay; null: not stated.
	JourneySampleRate *float64            `json:"journey_sample_rate"`
	Rebuilt           int                 `json:"rebuilt,omitempty"` // replayed requests that left no journey, from what the steps count
	Split             Split               `json:"split"`
	Requests          int                 `json:"requests"`  // compared
	Replayed          int                 `json:"replayed"`  // fed to the simulator
	Excluded          map[string]int      `json:"excluded"`  // replayed but not compared, by reason
	Saturated         bool                `json:"saturated"` // two or more checks hit
	SaturationChecks  map[string]*float64 `json:"saturation_checks"`
	SaturationHits    []string            `json:"saturation_hits"`
	Metrics           *Metrics            `json:"metrics"` // plain replay; the only one that gates
	MetricsNoise      *Metrics            `json:"metrics_noise"`
	MetricsDrift      *Metrics            `json:"metrics_drift_corrected"`
	Drift             []DriftPoint        `json:"drift"`
	Replay            *ReplayQuality      `json:"replay"`
	Steps             *Errors             `json:"steps"`      // teacher-forced; on the first entry of a run, else null
	StepCells         []Cell              `json:"step_cells"` // the same by regime and stress set
	Alpha             *AlphaErrors        `json:"alpha"`
	Figures           *RunFigures         `json:"figures,omitempty"`
	Findings          []trace.Finding     `json:"findings"`
}

// Judged reports whether the replay decides: it was compared with requests that the
// coefficients never saw, of a server that was not saturated and whose prefix cache is known.
func (r *ValidationRun) Judged() bool {
	return r.Metrics != nil && !r.Saturated && r.Informs+r.Undecided == "" && r.Split.Kind != SplitInSample
}

// AlphaErrors are teacher-forced alpha errors, the forms of fit.json.
type AlphaErrors struct {
	Overhead  *IntervalErrors `json:"overhead"`
	Admission *TargetErrors   `json:"admission"`
	Egress    *TargetErrors   `json:"egress"`
	Queue     *TargetErrors   `json:"queue,omitempty"`
}

// Metrics are the compared distributions; a metric whose stamps are missing on
// one side is null.
type Metrics struct {
	TTFT *Metric `json:"ttft"`
	ITL  *Metric `json:"itl"`
	E2E  *Metric `json:"e2e"`
	// ITLGap compares gaps between tokens; printed, never gated.
	ITLGap *Metric `json:"itl_gap,omitempty"`
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
	RealVsRealD        *float64 `json:"real_vs_real_d"` // first against second half of the real requests
	// ChanceKSD and ChanceMedian are the largest ks_d and median_rel_err_paired of 99 noisy
	// replays against the plain one (spec#chance); null where they decide nothing.
	ChanceKSD    *float64    `json:"chance_ks_d"`
	ChanceMedian *float64    `json:"chance_median_rel_err"`
	RealMs       SampleStats `json:"real_ms"`
	SimMs        SampleStats `json:"sim_ms"`
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

// ReplayQuality says how far the replay ran the recorded schedule.
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

// Gate is one acceptance test (spec#gates).
type Gate struct {
	coeff.Gate
	Source   string `json:"source"` // why the threshold is what it is
	Spec     string `json:"spec"`   // address of the gate's clause
	Required bool   `json:"required"`
	// Chance is what chance alone reaches where that decides too; null elsewhere.
	Chance *float64 `json:"chance"`
	// Purposes are what the gate decides for.
	Purposes []string `json:"purposes"`
}

// Book is the address of the specification; a clause stands at Book#NAME.
const Book = "https://github.com/blis-train/blis-train/blob/main/docs/spec.md"

// GateClause is the address of a gate's clause.
func GateClause(name string) string { return Book + "#gate-" + strings.ReplaceAll(name, "_", "-") }

// Causes of a Diagnosis.
const (
	CauseMachineDrift = "machine_drift"
	CauseUnseenRegime = "unseen_regime"
	CauseModelError   = "model_error"
	CauseSaturated    = "saturated"
	CauseLag          = "lag"       // steps are joined to the wrong batches
	CauseHardware     = "hardware"  // the device, or what run.yaml says of it
	CauseScheduler    = "scheduler" // the simulator forms other batches than the engine did
	CauseUnknown      = "unknown"
)

// Diagnosis says why gates of one scope failed, and which figure shows it.
type Diagnosis struct {
	Scope    string   `json:"scope"`
	Gates    []string `json:"gates"`
	Cause    string   `json:"cause"`
	Regime   string   `json:"regime,omitempty"`
	Term     string   `json:"term,omitempty"`
	Evidence *float64 `json:"evidence"` // signed bias of the regime, or the drift factor farthest from 1
	Sentence string   `json:"sentence"`
	Figure   string   `json:"figure"` // drift | pred_vs_measured | residuals | ecdf | contributions | saturation
}

// RunFigures are the curves of one run x phase x split.
type RunFigures struct {
	ECDF []Curve `json:"ecdf"` // points [ms, share], at most 200 a curve
	QQ   []Curve `json:"qq"`   // points [real ms, simulated ms] at equal probabilities
}

// Variants of a Curve.
const (
	VariantReal  = "real"
	VariantPlain = "plain"
	VariantNoise = "noise"
	VariantDrift = "drift_corrected"
)

// Curve is one line of a figure.
type Curve struct {
	Metric  string       `json:"metric"`  // ttft | itl | e2e
	Variant string       `json:"variant"` // real | plain | noise | drift_corrected
	Points  [][2]float64 `json:"points"`
}

// Kinds of a Change.
const (
	ChangeVerdict = "verdict" // of a purpose
	ChangeGate    = "gate"
	ChangeTerm    = "coefficient"
)

// Changes are what a validation says other than an older one. They stand in the report
// and on the terminal, in no document of their own.
type Changes struct {
	Against string   // the file or folder compared with
	Rows    []Change // what matters most first
	Same    int      // figures in both that did not change
	Notes   []string // what could not be compared, and why
}

// Change is one figure before and after.
type Change struct {
	Kind, Name, Scope string
	Unit              string // of a coefficient
	Old, New          *float64
	// Was and Is are verdicts: pass, fail and the like; empty for coefficients.
	Was, Is string
	P       *float64 // of a coefficient: two-sided, of no change; nil: unknown
}

// maxFigures is how many comparisons keep their curves in validation.json: a
// report draws a few, and the curves are most of the document.
const maxFigures = 64

// ReplayRank puts what gates first, then what is in-sample, then closed loops and
// saturated runs.
func (r *ValidationRun) ReplayRank() int {
	switch {
	case r.Load == "closed" || r.Saturated:
		return 3
	case r.Judged():
		return 0
	case r.Split.Kind == SplitInSample:
		return 1
	}
	return 2
}

// LargestKS is the largest plain KS D of the compared metrics; -1 without one.
func (r *ValidationRun) LargestKS() float64 {
	worst := -1.0
	if r.Metrics == nil {
		return worst
	}
	for _, m := range []*Metric{r.Metrics.TTFT, r.Metrics.ITL, r.Metrics.E2E} {
		if m != nil {
			worst = max(worst, m.KSD)
		}
	}
	return worst
}

// ByReplayRank orders comparisons for drawing: those that gate first, then by
// the largest plain KS.
func (r *ValidationRun) ByReplayRank(o *ValidationRun) int {
	return cmp.Or(cmp.Compare(r.ReplayRank(), o.ReplayRank()), cmp.Compare(o.LargestKS(), r.LargestKS()))
}

// LimitFigures takes the curves from all but the first maxFigures comparisons in
// the order of ByReplayRank and says how many had some and how many are left.
func (v *Validation) LimitFigures() (drawn, kept int) {
	var with []*ValidationRun
	for i := range v.Runs {
		if v.Runs[i].Figures != nil {
			with = append(with, &v.Runs[i])
		}
	}
	stat.SortStable(with, (*ValidationRun).ByReplayRank)
	kept = min(maxFigures, len(with))
	for _, r := range with[kept:] {
		r.Figures = nil
	}
	return len(with), kept
}
