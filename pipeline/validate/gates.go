package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/result"
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
			sum, n = sum+float64(m.RealMs.P50*float64(m.NReal)), n+float64(m.NReal)
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
	decided, why, undecided := false, "nothing was held out of the fit", ""
	for i := range v.Runs {
		run := &v.Runs[i]
		if run.Split.Kind == result.SplitInSample {
			continue
		}
		why = "no unsaturated phase with requests that the coefficients never saw was replayed"
		note, required := runNote(run, clients)
		decided, undecided = decided || required, cmp.Or(undecided, run.Undecided)
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
