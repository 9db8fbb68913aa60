package validate

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// threshold is one gate's rule: value Op Limit passes.
type threshold struct {
	Name   string  `json:"name"`
	Op     string  `json:"op"` // < | <= | > | >=
	Limit  float64 `json:"threshold" yaml:"threshold"`
	Source string  `json:"source"` // why the threshold is what it is
	Doc    string  `json:"doc"`    // what the value is
	Spec   string  `json:"spec"`   // address of the gate's clause in the book
	// Purposes are what the gate decides for: steps, replay, waits, transfer.
	Purposes []string `json:"purposes"`
}

// Gate names (spec#gates). A name is also that of the gate's clause.
const (
	gateBetaMAPE            = "beta_mape"
	gateBetaMAPELoco        = "beta_mape_loco"
	gateBiasLoco            = "bias_loco"
	gateBetaMaxError        = "beta_max_error"
	gateBetaSigns           = "beta_signs"
	gateBetaBeatsConstant   = "beta_beats_constant"
	gateBetaSkill           = "beta_skill"
	gateBias                = "bias"
	gateBoundHits           = "bound_hits"
	gateCertificate         = "certificate"
	gateFoldsDistinct       = "folds_distinct"
	gateTargetFloor         = "target_floor"
	gateWorstConfiguration  = "worst_configuration"
	gateOverheadOfTTFT      = "overhead_of_ttft"
	gateOverheadInsideLoco  = "overhead_inside_loco"
	gateAdmissionWindow     = "admission_window_mape"
	gateAdmissionWindowLoco = "admission_window_mape_loco"
	gateAdmissionMaxError   = "admission_max_error"
	gateAdmissionBeatsConst = "admission_beats_constant"
	gateEgressOfE2E         = "egress_of_e2e"
	gateQueueMAPE           = "queue_mape"
	gateQueueMAPELoco       = "queue_mape_loco"
	gateQueueMaxError       = "queue_max_error"
	gateQueueBeatsConst     = "queue_beats_constant"
	gateKSTTFT              = "ks_ttft"
	gateKSITL               = "ks_itl"
	gateKSE2E               = "ks_e2e"
	gateMedianTTFT          = "median_rel_err_ttft"
	gateMedianITL           = "median_rel_err_itl"
	gateMedianE2E           = "median_rel_err_e2e"
)

//go:embed gates.yaml
var gatesYAML []byte

var defaults = sync.OnceValue(func() []threshold {
	all := *files.Embedded[[]threshold](gatesYAML, "gates.yaml")()
	for i := range all {
		all[i].Spec = result.GateClause(all[i].Name)
	}
	return all
})

// Defaults lists every gate with its default threshold, and why it is that.
func Defaults() []threshold { return slices.Clone(defaults()) }

// worstOverMAPE is what the worst configuration may have of the limit of all.
const worstOverMAPE = 2

// rules are the thresholds in force.
type rules struct {
	all      []threshold
	loosened map[string]string // by name: a note for the gates of a rule that is less strict than by default
}

// newRules applies overrides to the defaults; an unknown name is an error.
func newRules(overrides map[string]float64) (*rules, error) {
	r := &rules{all: Defaults()}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		t := r.of(name)
		if t == nil {
			return nil, trace.Errorf(badGate, "gates: got %q, want one of %d names", name, len(r.all)).WithHint("blis-train validate --gate list")
		}
		v := overrides[name]
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, trace.Errorf(badGate, "gates: %s: got %v, want a finite number", name, v)
		}
		t.Limit, t.Source = v, "option"
	}
	if _, given := overrides[gateWorstConfiguration]; !given {
		r.of(gateWorstConfiguration).Limit = worstOverMAPE * r.of(gateBetaMAPE).Limit
	}
	return r, nil
}

// of is the rule of a gate; nil for no gate.
func (r *rules) of(name string) *threshold {
	if i := slices.IndexFunc(r.all, func(t threshold) bool { return t.Name == name }); i >= 0 {
		return &r.all[i]
	}
	return nil
}

// Loosen notes which rules pass more than by default. from says who set a
// threshold, by name.
func (r *rules) Loosen(from map[string]string) []trace.Finding {
	var found []trace.Finding
	r.loosened = map[string]string{}
	for i, def := range defaults() {
		t := &r.all[i]
		if by, known := from[t.Name]; known {
			t.Source = by
		}
		if up := t.Op == "<" || t.Op == "<="; up && t.Limit > def.Limit || !up && t.Limit < def.Limit {
			r.loosened[t.Name] = fmt.Sprintf("loosened: the default is %s %g", t.Op, def.Limit)
			found = append(found, trace.Findingf(GateLoosened, "%s: %s %g (%s), the default is %s %g",
				t.Name, t.Op, t.Limit, t.Source, t.Op, def.Limit))
		}
	}
	return found
}

// CheckThresholds reports the first bad override.
func CheckThresholds(overrides map[string]float64) error {
	_, err := newRules(overrides)
	return err
}

// Limits are the thresholds in force, by name.
func (r *rules) Limits() map[string]float64 {
	return stat.Keyed(r.all, func(t threshold) (string, float64) { return t.Name, t.Limit })
}

// gate applies one rule; only a nil value gives a null gate, with the note.
func (r *rules) gate(name, scope string, value *float64, note string) result.Gate {
	t := r.of(name)
	g := result.Gate{
		Gate:   coeff.Gate{Name: name, Scope: scope, Value: value, Op: t.Op, Threshold: t.Limit, Note: note},
		Source: t.Source, Spec: t.Spec, Required: true, Purposes: t.Purposes,
	}
	if value != nil {
		g.Pass, g.Note = new(holds(*value, t.Op, t.Limit)), r.loosened[name]
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

// CheckPurpose reports whether the name is a purpose, or all of them.
func CheckPurpose(name string) bool {
	return name == coeff.PurposeAll || slices.Contains(coeff.Purposes, name)
}

// verdicts are one per purpose and configuration, then one per purpose over
// everything. A gate of scope `all` counts for the latter alone, except those of
// the coefficients themselves (signs, certificate, folds), which count for each.
func verdicts(v *result.Validation) []result.PurposeVerdict {
	var out []result.PurposeVerdict
	for _, purpose := range coeff.Purposes {
		for i := range v.Configs {
			out = append(out, verdictOf(v, purpose, &v.Configs[i]))
		}
		out = append(out, verdictOf(v, purpose, nil))
	}
	return out
}

// verdictOf judges a purpose for one configuration or test run; c nil: for all.
func verdictOf(v *result.Validation, purpose string, c *result.ConfigErrors) result.PurposeVerdict {
	out := result.PurposeVerdict{}
	out.Purpose, out.Scope, out.Verdict = purpose, scopeAll, coeff.VerdictNotApplicable
	out.Failed, out.Missing = []string{}, []string{}
	if c != nil {
		out.Scope = c.Scope
	}
	judged := false
	for i := range v.Gates {
		g := &v.Gates[i]
		if !slices.Contains(g.Purposes, purpose) || c != nil && !concerns(g, c) {
			continue
		}
		judged = judged || g.Pass != nil && decides(g.Name, purpose)
		switch {
		case g.Pass == nil && g.Required:
			out.Missing = append(out.Missing, fmt.Sprintf("%s of %s: %s", g.Name, g.Scope, g.Note))
		case g.Pass != nil && !*g.Pass:
			out.Failed = append(out.Failed, g.Name+" of "+g.Scope)
		}
	}
	switch {
	case len(out.Failed) > 0:
		out.Verdict = coeff.VerdictFail
	case len(out.Missing) > 0:
		out.Verdict = coeff.VerdictInsufficient
	case judged:
		out.Verdict = coeff.VerdictPass
	}
	return out
}

// decides reports whether a purpose has no verdict without this gate or its like: a
// replay is judged by what was replayed, not by steps alone.
func decides(gate, purpose string) bool {
	if purpose == coeff.PurposeReplay {
		return ofReplay(gate)
	}
	return !slices.Contains(coefficientGates, gate)
}

// coefficientGates judge the set itself, whatever it is used for.
var coefficientGates = []string{gateBetaSigns, gateCertificate, gateFoldsDistinct}

// concerns reports whether a gate speaks of a configuration or test run: its own
// scope, a replay of one of its runs, or the coefficients.
func concerns(g *result.Gate, c *result.ConfigErrors) bool {
	return g.Scope == c.Scope || slices.Contains(coefficientGates, g.Name) ||
		ofReplay(g.Name) && slices.Contains(c.Runs, runOfScope(g.Scope))
}

// setVerdicts derives the verdicts, and the one that decides: of v.For over
// everything. Where nothing could be replayed `replay` falls back to `steps`
// unless somebody asked for it by name.
func setVerdicts(v *result.Validation, asked string) {
	v.Purposes = verdicts(v)
	v.For = asked
	if asked == "" {
		v.For = coeff.PurposeReplay
		if v.Options.StepsOnly || !slices.ContainsFunc(v.Runs, func(r result.ValidationRun) bool { return r.Metrics != nil }) {
			v.For = coeff.PurposeSteps
		}
	}
	decided := v.VerdictFor(v.For, scopeAll)
	v.Verdict, v.Missing = decided.Verdict, decided.Missing
	v.Pass = v.Verdict == coeff.VerdictPass
}

// ofSteps reports whether a gate judges step times.
func ofSteps(name string) bool {
	t := (&rules{all: defaults()}).of(name)
	return t != nil && slices.Contains(t.Purposes, coeff.PurposeSteps) && !slices.Contains(coefficientGates, name)
}

// Codes of a validation and of an inspection.
const (
	nothingToJudge trace.Code = "nothing_to_validate"
	NoReplay       trace.Code = "no_replay"
	ReplayAssumes  trace.Code = "replay_assumption"
	notHeldOut     trace.Code = "not_held_out"
	notTheFit      trace.Code = "not_the_fits_coefficients"
	figuresLeftOut trace.Code = "figures_left_out"
	badGate        trace.Code = "bad_gate"
	GateLoosened   trace.Code = "gate_loosened"
	incomplete     trace.Code = "incomplete_recording"
	clockJump      trace.Code = "clock_jump"
	stopStringEnds trace.Code = "stop_string_ends"
	EngineLog      trace.Code = "engine_log"
)
