package validate

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Threshold is one gate's rule: value Op Limit passes.
type Threshold struct {
	Name   string  `json:"name"`
	Op     string  `json:"op"` // < | <= | > | >=
	Limit  float64 `json:"threshold"`
	Source string  `json:"source"` // requirement of the feature specification
	Doc    string  `json:"doc"`
}

// Gate names (01 Q-6); the _loco, admission_ and queue_ forms spell out the
// second figures of.
const (
	GateBetaMAPE             = "beta_mape"
	GateBetaMAPELoco         = "beta_mape_loco"
	GateBetaMaxError         = "beta_max_error"
	GateBetaSigns            = "beta_signs"
	GateBetaBeatsConstant    = "beta_beats_constant"
	GateBetaSkill            = "beta_skill"
	GateBias                 = "bias"
	GateBoundHits            = "bound_hits"
	GateCertificate          = "certificate"
	GateFoldsDistinct        = "folds_distinct"
	GateTargetFloor          = "target_floor"
	GateWorstConfiguration   = "worst_configuration"
	GateOverheadInside       = "overhead_inside"
	GateOverheadInsideLoco   = "overhead_inside_loco"
	GateAdmissionWindow      = "admission_window_mape"
	GateAdmissionWindowLoco  = "admission_window_mape_loco"
	GateAdmissionMaxError    = "admission_max_error"
	GateAdmissionBeatsConst  = "admission_beats_constant"
	GateEgressWAPE           = "egress_wape"
	GateQueueMAPE            = "queue_mape"
	GateQueueMAPELoco        = "queue_mape_loco"
	GateQueueMaxError        = "queue_max_error"
	GateQueueBeatsConst      = "queue_beats_constant"
	GateKSTTFT               = "ks_ttft"
	GateKSITL                = "ks_itl"
	GateKSE2E                = "ks_e2e"
	GateMedianTTFT           = "median_rel_err_ttft"
	GateMedianITL            = "median_rel_err_itl"
	GateMedianE2E            = "median_rel_err_e2e"
	worstOverMAPE            = 2.0
	biasTerm                 = "bias"
	defaultLimitKS           = 0.15
	defaultLimitMedianRelErr = 0.20
)

// Defaults lists every gate with its default threshold and where it comes from.
func Defaults() []Threshold {
	return []Threshold{
		{GateBetaMAPE, "<", 0.15, "Q-1", "step-time MAPE of each configuration, hold-out rows"},
		{GateBetaMAPELoco, "<", 0.25, "Q-1", "step-time MAPE of each configuration when it is left out of the fit, or of a test run of an unseen one"},
		{GateBetaMaxError, "<", 3, "Q-2", "largest absolute step-time error / median hold-out target of the configuration"},
		{GateBetaSigns, "<=", 0, "Q-3", "identified ones among terms 1, 3, 11 that are not > 0 and 16 that are < 0"},
		{GateBetaBeatsConstant, "<", 1, "Q-4", "step-time MAPE / MAPE of the configuration's best constant"},
		{GateBetaSkill, ">", 0.5, "Q-6", "1 - (MAPE - floor)/(constant - floor)"},
		{GateBias, "<", 0.03, "Q-4", "|sum(prediction - target)| / sum(target), all hold-out rows"},
		{GateBoundHits, "<=", 0.01, "Q-4", "largest share of rows whose feature hit its bound"},
		{GateCertificate, ">=", 1, "Q-4", "1 when the solver's certificate holds for every model"},
		{GateFoldsDistinct, "<=", 0, "Q-4", "folds that repeat the coefficients of another"},
		{GateTargetFloor, ">=", 1, "T-4", "median step-time target / median physical floor"},
		{GateWorstConfiguration, "<", worstOverMAPE * 0.15, "Q-6", "largest step-time MAPE over the configurations; twice the beta_mape threshold"},
		{GateOverheadInside, ">=", 0.90, "Q-1", "share of non-exact hold-out intervals that hold the predicted overhead"},
		{GateOverheadInsideLoco, ">=", 0.85, "Q-1", "the same with the configuration left out"},
		{GateAdmissionWindow, "<", 0.25, "Q-1", "MAPE of 10-second window means of the wait before scheduling"},
		{GateAdmissionWindowLoco, "<", 0.40, "Q-1", "the same with the configuration left out"},
		{GateAdmissionMaxError, "<", 5, "Q-2", "largest error of a window mean / median window"},
		{GateAdmissionBeatsConst, "<", 1, "Q-4", "window MAPE / window MAPE of the best constant"},
		{GateEgressWAPE, "<", 0.30, "Q-1", "WAPE of the time from the last token to departure"},
		{GateQueueMAPE, "<", 0.25, "Q-1", "per-request MAPE of SCHEDULED - QUEUED; frozen recipe only"},
		{GateQueueMAPELoco, "<", 0.40, "Q-1", "the same with the configuration left out"},
		{GateQueueMaxError, "<", 5, "Q-2", "largest error / median target; frozen recipe only"},
		{GateQueueBeatsConst, "<", 1, "Q-4", "MAPE / MAPE of the best constant; frozen recipe only"},
		{GateKSTTFT, "<", defaultLimitKS, "Q-5", "Kolmogorov-Smirnov distance of TTFT, plain replay"},
		{GateKSITL, "<", defaultLimitKS, "Q-5", "the same of ITL"},
		{GateKSE2E, "<", defaultLimitKS, "Q-5", "the same of E2E"},
		{GateMedianTTFT, "<", defaultLimitMedianRelErr, "Q-5", "median paired relative error of TTFT, plain replay"},
		{GateMedianITL, "<", defaultLimitMedianRelErr, "Q-5", "the same of ITL"},
		{GateMedianE2E, "<", defaultLimitMedianRelErr, "Q-5", "the same of E2E"},
	}
}

// rules are the thresholds in force.
type rules struct {
	order  []Threshold
	byName map[string]Threshold
}

// newRules applies overrides to the defaults; an unknown name is an error.
func newRules(overrides map[string]float64) (*rules, error) {
	r := &rules{order: Defaults(), byName: map[string]Threshold{}}
	for _, t := range r.order {
		r.byName[t.Name] = t
	}
	names := make([]string, 0, len(overrides))
	for name := range overrides {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t, ok := r.byName[name]
		if !ok {
			return nil, trace.Errorf(CodeUnknownGate, "gates: got %q, want one of %d names", name, len(r.order)).
				WithHint("blis-train validate --gates list")
		}
		v := overrides[name]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, trace.Errorf(CodeBadThreshold, "gates: %s: got %v, want a finite number", name, v)
		}
		t.Limit, t.Source = v, "option"
		r.byName[name] = t
	}
	if _, given := overrides[GateWorstConfiguration]; !given {
		t := r.byName[GateWorstConfiguration]
		t.Limit = worstOverMAPE * r.byName[GateBetaMAPE].Limit
		r.byName[GateWorstConfiguration] = t
	}
	return r, nil
}

// CheckThresholds reports the first bad override.
func CheckThresholds(overrides map[string]float64) error {
	_, err := newRules(overrides)
	return err
}

// Limits are the thresholds in force, by name.
func (r *rules) limits() map[string]float64 {
	out := map[string]float64{}
	for name, t := range r.byName {
		out[name] = t.Limit
	}
	return out
}

// gate applies one rule; only a nil value gives a null gate, with the note.
func (r *rules) gate(name, scope string, value *float64, note string) result.Gate {
	t := r.byName[name]
	g := result.Gate{
		Name: name, Scope: scope, Value: value, Op: t.Op, Threshold: t.Limit,
		Source: t.Source, Required: true, Note: note,
	}
	if value != nil {
		pass := holds(*value, t.Op, t.Limit)
		g.Pass, g.Note = &pass, ""
	}
	return g
}

func holds(v float64, op string, limit float64) bool {
	switch op {
	case "<":
		return v < limit
	case "<=":
		return v <= limit
	case ">":
		return v > limit
	case ">=":
		return v >= limit
	}
	panic("validate: gate with operator " + op)
}
