package validate

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// This file computes what each gate of gates.yaml compares.

// decide fills the gates, the verdicts by purpose and the one of v: that of the
// purpose asked for (empty: replay, or steps where nothing is replayed). fit may be
// nil: then what only the fit knows is null and not required.
func decide(v *result.Validation, fit *result.Fit, set *coeff.Set, r *rules, asked string) {
	judge(v, fit, checkSigns(set), r)
	if asked == "" && fromRequests(fit) && !v.Options.StepsOnly { // nobody recorded steps
		asked = coeff.PurposeReplay
	}
	setVerdicts(v, asked)
}

func judge(v *result.Validation, fit *result.Fit, signs signCheck, r *rules) {
	v.Gates = append(v.Gates, fitGates(fit, v.Configs, signs, r)...)
	for i := range v.Configs {
		v.Gates = append(v.Gates, configGates(&v.Configs[i], r)...)
		v.Gates = append(v.Gates, delayGates(&v.Configs[i], v.Runs, r)...)
	}
	v.Gates = append(v.Gates, overallGates(v, r)...)
	if !v.Options.StepsOnly {
		v.Gates = append(v.Gates, replayGates(v, r, fromRequests(fit))...)
	}
	if fromRequests(fit) {
		// requires nothing of steps that nobody recorded
		for i := range v.Gates {
			if g := &v.Gates[i]; g.Value == nil && (g.Name == gateCertificate || ofSteps(g.Name)) {
				g.Required, g.Note = false, noteNoSteps
			}
		}
	}
}

// fromRequests says that the coefficients were learned without step traces: then what
// clients and stock spans measured decides, and there may be no steps to judge.
func fromRequests(fit *result.Fit) bool { return fit != nil && fit.Requests != nil }

// fitGates are those only the fit can answer: leave-one-out, certificate, folds.
func fitGates(fit *result.Fit, configs []result.ConfigErrors, signs signCheck, r *rules) []result.Gate {
	gates := []result.Gate{signs.gate(r)}
	if fit == nil {
		for _, name := range []string{gateBetaMAPELoco, gateBiasLoco, gateCertificate, gateFoldsDistinct} {
			g := r.gate(name, scopeAll, nil, noteNoFit)
			g.Required = false
			gates = append(gates, g)
		}
		return gates
	}
	gates = append(gates, locoGates(&fit.Beta, configs, r, gateBetaMAPELoco, func(l result.Loco) *float64 { return l.MAPE })...)
	gates = append(gates, locoGates(&fit.Beta, configs, r, gateBiasLoco, func(l result.Loco) *float64 { return size(l.Bias) })...)
	for i := range fit.Alpha {
		m := &fit.Alpha[i]
		switch m.Name {
		case "overhead":
			gates = append(gates, locoGates(m, configs, r, gateOverheadInsideLoco, func(l result.Loco) *float64 { return l.InsideShare })...)
		case "admission":
			gates = append(gates, locoGates(m, configs, r, gateAdmissionWindowLoco, func(l result.Loco) *float64 { return l.MAPEWindow10s })...)
		case "queue":
			gates = append(gates, locoGates(m, configs, r, gateQueueMAPELoco, func(l result.Loco) *float64 { return l.MAPE })...)
		}
	}
	return append(gates,
		r.gate(gateCertificate, scopeAll, certified(fit), noteNoFit),
		r.gate(gateFoldsDistinct, scopeAll, new(float64(repeatedFolds(fit))), ""))
}

func locoGates(m *result.Model, configs []result.ConfigErrors, r *rules, name string, value func(result.Loco) *float64) []result.Gate {
	if len(m.Loco) == 0 {
		g := r.gate(name, scopeAll, nil, noteOneConfig)
		g.Required = false
		return []result.Gate{g}
	}
	var gates []result.Gate
	for _, l := range m.Loco {
		scope := cmp.Or(l.Label, l.Config)
		if i := slices.IndexFunc(configs, func(c result.ConfigErrors) bool { return c.Config == l.Config && !c.TestRun }); i >= 0 {
			scope = configs[i].Scope
		}
		gates = append(gates, r.gate(name, scope, value(l), noteNoRows))
	}
	return gates
}

// certified is 1 when every model's solver certificate holds, 0 when one does
// not, nil when there is none (the frozen recipe has a closed form).
func certified(fit *result.Fit) *float64 {
	var out *float64
	for _, m := range append([]result.Model{fit.Beta}, fit.Alpha...) {
		if m.Certificate == nil {
			continue
		}
		ok := 0.0
		if m.Certificate.OK {
			ok = 1
		}
		if out == nil || ok < *out {
			out = &ok
		}
	}
	return out
}

func repeatedFolds(fit *result.Fit) int {
	n := 0
	for _, m := range append([]result.Model{fit.Beta}, fit.Alpha...) {
		seen := map[string]bool{}
		for _, f := range m.FoldFingerprints {
			if seen[f] {
				n++
			}
			seen[f] = true
		}
	}
	return n
}

// configGates judge the teacher-forced errors of one configuration or test run.
func configGates(c *result.ConfigErrors, r *rules) []result.Gate {
	var gates []result.Gate
	add := func(name string, value *float64, note string) {
		gates = append(gates, r.gate(name, c.Scope, value, note))
	}
	largest := func(name string, value *float64, outliers, rows int, ratio *float64) {
		add(name, value, noteNoRows)
		if g := &gates[len(gates)-1]; value != nil && outliers > 0 {
			g.Note = strings.TrimPrefix(g.Note+", "+fmt.Sprintf(noteOutliers, outliers, rows, 100*float64(outliers)/float64(rows), *ratio), ", ")
		}
	}
	mape := gateBetaMAPE
	if c.TestRun && !c.Seen {
		mape = gateBetaMAPELoco
	}
	e := c.Steps
	if e == nil || e.Rows == 0 {
		add(mape, nil, noteNoRows)
	} else {
		add(mape, e.MAPE, noteNoRows)
		if mape == gateBetaMAPELoco {
			add(gateBiasLoco, size(e.Bias), noteNoRows)
		}
		largest(gateBetaMaxError, e.MaxErrorRatio, e.Outliers, e.Rows, e.LargestOutlier)
		add(gateBetaBeatsConstant, ratio(e.MAPE, e.MAPEConst), noteNoRows)
		add(gateBetaSkill, e.Skill, noteNoFloor)
		add(gateBoundHits, c.BoundHits, noteNoRows)
		add(gateTargetFloor, c.TargetOverFloor, noteNoRows)
	}
	if c.Alpha == nil {
		return gates
	}
	if a := c.Alpha.Admission; a != nil {
		add(gateAdmissionWindow, a.MAPEWindow10s, noteNoRows)
		largest(gateAdmissionMaxError, a.MaxErrorRatio, a.Outliers, a.Rows, a.LargestOutlier)
		add(gateAdmissionBeatsConst, ratio(a.MAPEWindow10s, a.ConstWindow), noteNoRows)
	}
	if a := c.Alpha.Queue; a != nil {
		add(gateQueueMAPE, a.MAPE, noteNoRows)
		largest(gateQueueMaxError, a.MaxErrorRatio, a.Outliers, a.Rows, a.LargestOutlier)
		add(gateQueueBeatsConst, ratio(a.MAPE, a.MAPEConst), noteNoRows)
	}
	return gates
}

// delayGates judge what happens outside the engine by the error it causes: the mean
// absolute error of a delay over the median of the time it is a part of: a mean would
// let one stray stamp pass it. Without a
// replay there is nothing it is a part of.
func delayGates(c *result.ConfigErrors, runs []result.ValidationRun, r *rules) []result.Gate {
	var gates []result.Gate
	add := func(name string, maeUs *float64, of func(*result.Metrics) *result.Metric) {
		median := medianMs(c, runs, of)
		g := r.gate(name, c.Scope, overMs(maeUs, median), noteNoReplay)
		g.Required = median != nil
		gates = append(gates, g)
	}
	if c.Alpha == nil {
		return nil
	}
	if o := c.Alpha.Overhead; o != nil {
		add(gateOverheadOfTTFT, o.MAEUs, ttftOf)
	}
	if a := c.Alpha.Egress; a != nil {
		add(gateEgressOfE2E, a.MAEUs, e2eOf)
	}
	return gates
}

// medianMs is the median of a recorded metric over the replayed requests of a
// configuration or test run, ms: the mean of those of its runs and phases by their requests.
func medianMs(c *result.ConfigErrors, runs []result.ValidationRun, of func(*result.Metrics) *result.Metric) *float64 {
	sum, n := 0.0, 0.0
	for i := range runs {
		if !slices.Contains(c.Runs, runs[i].ID) || runs[i].Saturated {
			continue
		}
		if m := metricOf(runs[i].Metrics, of); m != nil {
			sum += m.RealMs.P50 * float64(m.NReal)
			n += float64(m.NReal)
		}
	}
	if n == 0 {
		return nil
	}
	return new(sum / n)
}

// overMs is a time in us over one in ms.
func overMs(us, ms *float64) *float64 {
	if us == nil {
		return nil
	}
	const usPerMs = 1000
	return ratio(new(*us/usPerMs), ms)
}

// size is an error without its sign.
func size(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return new(math.Abs(*v))
}

func ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	return new(*a / *b)
}

// overallGates: total bias and the worst configuration.
func overallGates(v *result.Validation, r *rules) []result.Gate {
	var bias *float64
	if v.Steps != nil {
		bias = size(v.Steps.Bias)
	}
	var worst *float64
	for _, c := range v.Configs {
		if c.Steps != nil && c.Steps.MAPE != nil && (worst == nil || *c.Steps.MAPE > *worst) {
			worst = c.Steps.MAPE
		}
	}
	return []result.Gate{r.gate(gateBias, scopeAll, bias, noteNoRows), r.gate(gateWorstConfiguration, scopeAll, worst, noteNoRows)}
}

// replayRule is a gate of a replayed run: a value of a metric, and what chance alone reaches.
type replayRule struct {
	name   string
	levels bool // stands of means of a few load levels too, which are no distribution
	of     func(*result.Metrics) *result.Metric
	value  func(*result.Metric) (value, chance *float64)
}

// replayRules are the gates that stand per replayed run, phase and split.
var replayRules = []replayRule{
	{gateKSTTFT, false, ttftOf, ksOf},
	{gateMedianTTFT, true, ttftOf, medianOf},
	{gateKSITL, false, itlOf, ksOf},
	{gateMedianITL, true, itlOf, medianOf},
	{gateKSE2E, false, e2eOf, ksOf},
	{gateMedianE2E, false, e2eOf, medianOf},
}

func ttftOf(m *result.Metrics) *result.Metric { return m.TTFT }
func itlOf(m *result.Metrics) *result.Metric  { return m.ITL }
func e2eOf(m *result.Metrics) *result.Metric  { return m.E2E }

func ksOf(m *result.Metric) (value, chance *float64) { return &m.KSD, m.ChanceKSD }

func medianOf(m *result.Metric) (value, chance *float64) { return m.MedianRelErrPaired, m.ChanceMedian }

// ofReplay reports whether a gate judges a replayed run.
func ofReplay(name string) bool {
	return slices.ContainsFunc(replayRules, func(g replayRule) bool { return g.name == name })
}

// replayGates judge the plain replay of every run and phase on requests that the
// coefficients never saw (spec#held-out-replay). A saturated phase is outside the rule: null and
// not required. What is in-sample decides nothing and has no gates.
func replayGates(v *result.Validation, r *rules, clients bool) []result.Gate {
	var gates []result.Gate
	decided := false
	why := "nothing was held out of the fit"
	undecided := ""
	for i := range v.Runs {
		run := &v.Runs[i]
		if run.Split.Kind == result.SplitInSample {
			continue
		}
		why = "no unsaturated phase with requests that the coefficients never saw was replayed"
		note, required := runNote(run, clients)
		decided = decided || required
		undecided = cmp.Or(undecided, run.Undecided)
		for _, g := range replayRules {
			if run.Source == sourcePoints && !g.levels {
				continue
			}
			var value, chance *float64
			if m := metricOf(run.Metrics, g.of); m != nil && note == "" {
				value, chance = g.value(m)
			}
			gates = append(gates, replayGate(r, g.name, run, value, chance, note, required))
		}
	}
	if !decided {
		for _, name := range []string{gateKSTTFT, gateKSITL, gateKSE2E} { // for all of them
			gates = append(gates, r.gate(name, scopeAll, nil, cmp.Or(undecided, why)))
		}
	}
	return gates
}

// Good reports whether the compared distributions pass the replay gates.
func (r *rules) Good(m *result.Metrics) bool {
	if m == nil {
		return false
	}
	for _, g := range replayRules {
		got := g.of(m)
		if got == nil {
			continue
		}
		value, _ := g.value(got)
		if judged := r.gate(g.name, "", value, ""); judged.Pass != nil && !*judged.Pass {
			return false
		}
	}
	return true
}

func metricOf(m *result.Metrics, of func(*result.Metrics) *result.Metric) *result.Metric {
	if m == nil {
		return nil
	}
	return of(m)
}

// runNote says why a replay cannot be judged (empty: it can) and whether a
// verdict on it is required. clients: those of clients are judged as journeys are.
func runNote(run *result.ValidationRun, clients bool) (note string, required bool) {
	switch {
	case run.Saturated:
		return noteSaturated, false
	case run.Phase != "" && run.Replayed == 0 && run.Metrics == nil:
		return noteEmpty, false
	case run.Undecided != "":
		return run.Undecided, run.Informs == ""
	case run.Informs != "":
		return run.Informs, false
	case !clients && run.Source != "" && run.Source != SourceJourneys && run.Source != sourcePasses:
		return fmt.Sprintf(noteOtherSource, run.Source), false
	case run.JourneySampleRate != nil && *run.JourneySampleRate < 1 && run.Rebuilt == 0:
		return fmt.Sprintf(noteSampled, *run.JourneySampleRate), true
	case run.Metrics == nil && run.Source == sourcePoints:
		return noteFewLevels, true
	case run.Metrics == nil:
		return noteNoReplay, true
	case run.Requests == 0:
		return noteEmpty, false
	}
	return "", true
}

// replayGate fails where the value is at or over the threshold and over what chance
// reaches, passes where both are under the threshold, and is null between.
func replayGate(r *rules, name string, run *result.ValidationRun, value, chance *float64, note string, required bool) result.Gate {
	if value == nil && note == "" {
		note = noteNoStamps
	}
	g := r.gate(name, scopeOf(run), value, note)
	g.Required, g.Chance = required, chance
	if value == nil {
		return g
	}
	switch {
	case chance == nil && run.Source == sourcePoints:
		g.Pass, g.Note = nil, noteFewLevels
	case chance == nil:
		g.Pass, g.Note = nil, noteNoChance
	case *chance >= g.Threshold && !(*value >= g.Threshold && *value > *chance):
		enough := math.Ceil(float64(run.Requests) * *chance / g.Threshold * *chance / g.Threshold)
		g.Pass, g.Note = nil, fmt.Sprintf(noteInsufficient, *chance, run.Requests, comparedOf(run), g.Threshold,
			max(enough, float64(run.Requests)+1))
	}
	if run.Rebuilt > 0 {
		g.Note = strings.TrimPrefix(g.Note+", "+noteRebuilt, ", ")
	}
	return g
}

// comparedOf is what is counted of a replay.
func comparedOf(run *result.ValidationRun) string {
	if run.Source == sourcePoints {
		return "load levels"
	}
	return "requests"
}

// scopeOf names a run, phase and split in one word.
func scopeOf(run *result.ValidationRun) string {
	s := run.ID
	if run.Phase != "" {
		s += "/" + run.Phase
	}
	if run.Split.Kind == result.SplitInSample {
		s += " (in-sample)"
	}
	return s
}

// mustBePositive are the terms no server does without; the bias may be 0.
var mustBePositive = []string{"prefill_linear_compute", "decode_weight_load", "fixed_step_overhead"}

const mayBeZero = "bias"

// checkSigns counts the terms with an impossible sign among those that the data
// identify within configurations.
func checkSigns(set *coeff.Set) signCheck {
	var s signCheck
	for i := range set.Beta {
		c := &set.Beta[i]
		positive := slices.Contains(mustBePositive, c.Name)
		if c.Identified != coeff.Within || !positive && c.Name != mayBeZero {
			continue
		}
		s.checked++
		if c.Value < 0 || positive && c.Value == 0 {
			s.violations++
		}
	}
	return s
}

// signCheck counts impossible signs among identified terms.
type signCheck struct {
	checked, violations int
}

func (s signCheck) gate(r *rules) result.Gate {
	if s.checked == 0 {
		g := r.gate(gateBetaSigns, scopeAll, nil, noteNotIdentified)
		g.Required = false
		return g
	}
	return r.gate(gateBetaSigns, scopeAll, new(float64(s.violations)), "")
}

// Notes of null gates.
const (
	noteInsufficient  = "insufficient data: chance alone reaches %.3g with %d %s, want below %g: about %.0f would decide"
	noteFewLevels     = "insufficient data: five load levels at least decide"
	noteEmpty         = "no request to compare arrives in this part of the phase"
	noteNoChance      = "insufficient data: too few step times tell what chance alone reaches"
	noteSaturated     = "saturated"
	noteRebuilt       = "load rebuilt from steps"
	noteOneConfig     = "not applicable with one configuration"
	noteNoFit         = "no fit report given"
	noteNoRows        = "no rows"
	noteOutliers      = "%d of %d rows are outliers (%.1f %%; left out here up to 1 %%), the largest error %.3g times the median"
	noteNoSteps       = "learned from requests: no steps were recorded"
	noteNoFloor       = "no noise floor: fewer than 50 rows"
	noteOtherSource   = "%s requests: errors are printed, not gated"
	noteSampled       = "journeys are sampled at %g: the rest of the load is unknown"
	noteNoStamps      = "stamps missing on one side"
	noteNoReplay      = "not replayed"
	noteNotIdentified = "no term is identified"
)

// scopeAll is the scope of a gate that judges all runs together.
const scopeAll = coeff.ScopeAll

// failedByScope lists the names of failed gates per scope prefix, in gate order.
func failedByScope(gates []result.Gate) ([]string, map[string][]string) {
	var order []string
	names := map[string][]string{}
	for _, g := range gates {
		if g.Pass == nil || *g.Pass {
			continue
		}
		if names[g.Scope] == nil {
			order = append(order, g.Scope)
		}
		if !slices.Contains(names[g.Scope], g.Name) {
			names[g.Scope] = append(names[g.Scope], g.Name)
		}
	}
	return order, names
}

// runOfScope is the run id of a replay scope "id/phase (in-sample)".
func runOfScope(scope string) string {
	id, _, _ := strings.Cut(strings.TrimSuffix(scope, " (in-sample)"), "/")
	return id
}

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
		g.Pass = new(holds(*value, t.Op, t.Limit))
		g.Note = r.loosened[name]
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
	out.Purpose = purpose
	out.Scope = scopeAll
	out.Verdict = coeff.VerdictNotApplicable
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
	v.Verdict = decided.Verdict
	v.Missing = decided.Missing
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
