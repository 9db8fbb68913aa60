package validate

// This file searches why a gate on step times failed (spec#diagnosis): it tries one change of the
// model after the other, such as another device factor or a missing regime, and names those that
// remove much of the error.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// Limits of the diagnosis (spec#diagnosis). Shares are of the mean relative error.
const (
	fewestRows      = 20   // fewer rows do not support a cause
	leastDriftSwing = 1.20 // largest over smallest drift factor of a run, from which drift can be a cause
	unseenShare     = 0.50 // in rows outside the training range, from which on that is the cause
	rangeSlack      = 1.5  // a feature is outside the training range beyond so many times its maximum
	largestDevice   = 1000 // times as long as another: a CPU core and a GPU
	causeShare      = 0.25 // a change that removes less of the judged rows' error is no cause
	causeShareAll   = 0.10 // nor is one that removes less of the error of all rows, the training rows too
	extraFactor     = 0.05 // what a change with a second factor must remove beyond one with a single factor

	// A physical term is preferred if it removes this share of what the best term removes: a ratio or a constant can stand
	// in for anything.
	physicsPreference = 0.75
	// No term is named where another physical one removes this share of what that term removes.
	equalShare = 0.9

	// All steps differ by one factor if the factors of each kind of step are that one, to within this share of the
	// difference, or to within sameSpeedAbs.
	sameSpeed    = 0.25
	sameSpeedAbs = 0.02
)

// diagnoses returns an explanation for every scope with failed gates, from its steps or its replay.
// Scopes that failed only gates of the closed form of queueing delays, or of held-out
// configurations, have no diagnosis.
func (j *job) diagnoses(v *result.Validation, groups []*scope) []result.Diagnosis {
	out := []result.Diagnosis{}
	scopes, failed := gate.FailedByScope(v.Gates)
	failedSteps := map[string]bool{} // by run: its step times failed
	for _, name := range scopes {
		// Without recorded steps only the levels or the requests can be described.
		if t := j.runWithoutSteps(name); t != nil {
			if len(t.levels) > 0 {
				out = append(out, result.Diagnosis{Scope: name, Gates: failed[name], Cause: result.CauseUnknown, Sentence: worstLevels(t.levels)})
			} else {
				out = append(out, t.diagnoseRequests(name, failed[name]))
			}
			continue
		}
		judged := scopeNamed(groups, name)
		if judged == nil || len(judged.runs) == 0 {
			continue
		}
		ofSteps := slices.ContainsFunc(failed[name], gate.JudgesSteps)
		ofReplay := slices.ContainsFunc(failed[name], gate.JudgesReplay)
		var diagnosis result.Diagnosis
		switch {
		case ofSteps:
			judged.isDriftFarther = isDriftFarther(v, judged)
			diagnosis = diagnoseSteps(judged, failed[name], j.lagCandidate(judged))
			if name != gate.ScopeAll {
				for _, t := range judged.runs {
					failedSteps[t.id] = true
				}
			}
		case !ofReplay || name == gate.ScopeAll:
			continue
		case failedSteps[judged.runs[0].id]:
			judged.isDriftFarther = isDriftFarther(v, judged)
			diagnosis = diagnoseSteps(judged, failed[name], j.lagCandidate(judged))
		default:
			diagnosis = j.diagnoseReplay(v, judged.runs[0], name, failed[name])
		}
		diagnosis.Scope = name
		out = append(out, diagnosis)
	}
	return out
}

// scopeNamed returns the rows behind a gate's scope: those of a configuration or test run, of a
// replayed run, or all.
func scopeNamed(groups []*scope, name string) *scope {
	for _, s := range groups {
		if s.name == name {
			return s
		}
	}
	everything := &scope{name: name}
	for _, s := range groups {
		for _, t := range s.runs {
			if t.id == gate.RunOf(name) {
				return &scope{name: name, config: s.config, test: s.test, runs: []*judgedRun{t}}
			}
			everything.runs = append(everything.runs, t)
		}
	}
	if name == gate.ScopeAll {
		return everything
	}
	return nil
}

// candidate is one change that could explain the error of a scope.
type candidate struct {
	cause, figure, regime, term string // of the diagnosis, if it is the cause (result.Diagnosis)
	premise                     string // what is true if it is the cause
	change                      string // what removes the error

	share    float64 // of the mean relative error that the change removes, every regime weighing the same
	shareAll float64 // of the mean relative error over all rows of the scope, the training rows too
	left     float64 // the weighted error that is left (residuals.loss); 0 for the lag, which is not compared
	evidence float64 // the figure that shows it (result.Diagnosis)
	excluded string  // why it cannot be the cause whatever it removes; empty: it can
}

// diagnoseSteps returns why step gates of one scope failed (spec#diagnosis). Either most of the
// error is in rows outside the range of the fit's rows, or one change removes enough of the error
// and leaves a model that is better than a constant: another lag, the machine's drift, the speed of
// the hardware, or one coefficient. Otherwise the cause is unknown, and the sentence lists what was
// tried.
//
// The candidate that removes most is the cause; a change with a second factor or a curve counts
// extraFactor less. The hardware is no cause if the fit was made of only that device with these
// figures.
func diagnoseSteps(s *scope, failed []string, lag *candidate) result.Diagnosis {
	diagnosis := result.Diagnosis{Scope: s.name, Gates: failed, Cause: result.CauseUnknown, Figure: "pred_vs_measured"}
	set := s.runs[0].set
	errors := s.residuals(plainPrediction)
	total := errors.loss(0, nil)
	if len(errors.us) < fewestRows || !(total > 0) {
		diagnosis.Sentence = fmt.Sprintf("fewer than %d rows: nothing can be said", fewestRows)
		return diagnosis
	}
	// Most of the error in steps unlike those of the fit: no change of the model explains it.
	if outside, slot := s.unseenErrorShare(set); outside > unseenShare && s.isKnownDevice(set) {
		diagnosis.Cause = result.CauseUnseenRegime
		diagnosis.Figure = "residuals"
		diagnosis.Term = set.Beta[slot].Name
		diagnosis.Evidence = &outside
		diagnosis.Sentence = fmt.Sprintf("%.0f %% of the error lies in steps outside the range that %s was trained on: add such load to the fit",
			100*outside, diagnosis.Term)
		return diagnosis
	}
	drift, hardware, term := s.driftCandidate(errors, total), s.hardwareCandidate(errors, total), s.termCandidate(set, errors, total)
	var speed *candidate
	if hardware == nil { // which has such a factor too
		speed = speedCandidate(errors, total)
	}
	if speed != nil && term != nil && term.share >= equalShare*speed.share {
		// A factor on a term that makes up most of every step is about one factor on all of them.
		speed.excluded = cmp.Or(speed.excluded, term.change+" would do as well")
	}
	tried := []*candidate{lag, drift, hardware, speed, term}
	constant := errors.constantLoss()
	best := bestCandidate(tried, constant)
	if best == nil {
		diagnosis.Sentence = describeTried(tried, constant)
		return diagnosis
	}
	diagnosis.Cause = best.cause
	diagnosis.Figure = best.figure
	diagnosis.Regime = best.regime
	diagnosis.Term = best.term
	diagnosis.Evidence = &best.evidence
	diagnosis.Sentence = fmt.Sprintf("%s: %s removes %.0f %% of the mean relative error", best.premise, best.change, 100*best.share)
	return diagnosis
}

// bestCandidate returns the candidate that removes the largest part of the error, among those that
// may be the cause (whyNot); nil if none may be.
func bestCandidate(tried []*candidate, constantLoss float64) *candidate {
	var best *candidate
	for _, c := range tried {
		if c == nil || c.whyNot(constantLoss) != "" {
			continue
		}
		if best == nil || c.share-c.handicap() > best.share-best.handicap() {
			best = c
		}
	}
	return best
}

// whyNot returns the reason why a candidate is not the cause; "" if it may be.
func (c *candidate) whyNot(constantLoss float64) string {
	switch {
	case c.excluded != "":
		return c.excluded
	case c.share < causeShare:
		return "too little"
	case c.left >= constantLoss:
		return "a constant leaves less"
	case c.shareAll < causeShareAll:
		return fmt.Sprintf("over all rows, training too, it removes %.0f %%", 100*c.shareAll)
	}
	return ""
}

// handicap returns what a candidate removes by its freedom alone.
func (c *candidate) handicap() float64 {
	if c.cause == result.CauseHardware || c.cause == result.CauseMachineDrift {
		return extraFactor
	}
	return 0
}

// describeTried returns a list of what was tried, how much of the error it removes, and why that is
// not the cause if it removes enough.
func describeTried(tried []*candidate, constantLoss float64) string {
	var parts []string
	for _, c := range tried {
		if c == nil {
			continue
		}
		part := fmt.Sprintf("%s %.0f %%", c.change, 100*c.share)
		if why := c.whyNot(constantLoss); c.share >= causeShare && why != "" {
			part += " (" + why + ")"
		}
		parts = append(parts, part)
	}
	return "no single change explains the error; tried, with the share of the error it would remove: " + strings.Join(parts, "; ")
}

// driftCandidate returns the curve of the machine's speed; nil for curves that hardly swing, and
// for composed runs, which no machine ran.
func (s *scope) driftCandidate(r *residuals, total float64) *candidate {
	farthest, swing := s.largestDrift()
	composed := slices.ContainsFunc(s.runs, func(t *judgedRun) bool { return t.Deployment.IsComposed() })
	if swing <= leastDriftSwing || composed {
		return nil
	}
	followed := s.residuals(driftPrediction)
	left := followed.loss(0, nil)
	excluded := ""
	if s.isDriftFarther {
		excluded = "replays that follow it are farther from the recording"
	}
	return &candidate{
		excluded: excluded,
		cause:    result.CauseMachineDrift,
		figure:   "drift",
		share:    1 - left/total,
		shareAll: 1 - followed.all.meanError()/r.all.meanError(),
		left:     left,
		evidence: farthest,
		premise: fmt.Sprintf("the machine changed its speed by a factor of %.2f while it was measured (farthest block: "+
			"measured/predicted %.2f)", swing, farthest),
		change: "following the drift curve",
	}
}

// isDriftFarther reports whether following the drift curve makes replays worse: whether the E2E times
// of the drift-following replays of the scope's runs are farther from the recorded ones than those of
// the plain replays. Distances are Wasserstein distances, weighted by the requests of the runs.
func isDriftFarther(v *result.Validation, s *scope) bool {
	var plain, followed float64
	for i := range v.Runs {
		entry := &v.Runs[i]
		isOfScope := slices.ContainsFunc(s.runs, func(t *judgedRun) bool { return t.id == entry.ID })
		if !isOfScope || entry.Metrics == nil || entry.MetricsDrift == nil || entry.Metrics.E2E == nil || entry.MetricsDrift.E2E == nil {
			continue
		}
		plain += float64(entry.Requests) * entry.Metrics.E2E.WassersteinMs
		followed += float64(entry.Requests) * entry.MetricsDrift.E2E.WassersteinMs
	}
	return followed > plain
}

// largestDrift returns the largest swing of the scope's runs, and the farthest factor of the run
// that has it.
func (s *scope) largestDrift() (farthest, swing float64) {
	farthest, swing = 1, 1
	for _, t := range s.runs {
		if w := t.drift.swing(); w > swing {
			swing = w
			farthest, _ = t.drift.farthest()
		}
	}
	return farthest, swing
}

// hardwareCandidate returns the candidate of one factor on the terms that compute on prompts and
// one on the others, which is the effect of a wrong device or of wrong figures of it; nil if the
// fit was made of only that device with those figures: its coefficients then hold for it, even if
// the figures are wrong.
func (s *scope) hardwareCandidate(r *residuals, total float64) *candidate {
	set := s.runs[0].set
	dep := s.runs[0].Deployment
	otherDevice := slices.ContainsFunc(set.Configs, func(found coeff.Config) bool { return found.Deployment.Hardware != dep.Hardware })
	if len(set.Configs) > 0 && s.isKnownDevice(set) && !otherDevice {
		return nil
	}
	// Alternating medians of the two changes: the loss falls with each.
	const rounds = 8
	prompt, rest := s.promptWork(r)
	var promptChange, restChange float64
	left := *r
	for range rounds {
		left.us = r.without(restChange, rest)
		promptChange = math.Max(left.bestChange(prompt), -1)
		left.us = r.without(promptChange, prompt)
		restChange = math.Max(left.bestChange(rest), -1)
	}
	left.us = r.without(promptChange, prompt)
	loss := left.loss(restChange, rest)
	// The same two changes over all rows, the training rows too.
	all := *r.all
	allPrompt, allRest := s.promptWork(&all)
	all.us = all.without(promptChange, allPrompt)
	all.us = all.without(restChange, allRest)
	found := &candidate{
		cause:    result.CauseHardware,
		figure:   "pred_vs_measured",
		share:    1 - loss/total,
		shareAll: 1 - all.meanError()/r.all.meanError(),
		left:     loss,
		evidence: 1 + restChange,
		premise:  "the hardware is not the one that run.yaml names, or its figures are wrong",
		change: fmt.Sprintf("other hardware, terms on prompts times %.2f and the others times %.2f,", 1+promptChange,
			1+restChange),
	}
	if !s.isKnownDevice(set) {
		found.premise = fmt.Sprintf("the hardware is not the %s at tensor_parallel_size %d that run.yaml names, or its coefficients, of which the "+
			"fit saw none, are others", dep.Hardware.Name, dep.TP)
	}
	if !isDeviceFactor(1+promptChange) || !isDeviceFactor(1+restChange) {
		found.excluded = "no device differs so much"
	}
	return found
}

// speedCandidate returns the candidate of one factor on all steps, which is the effect of another device, clock or
// release of the software than those of the fit; nil if it removes nothing. It is excluded where steps of different work
// differ by different factors.
func speedCandidate(r *residuals, total float64) *candidate {
	predicted := r.predicted()
	change := r.bestChange(predicted)
	left := r.loss(change, predicted)
	if !(left < total) || change <= -1 {
		return nil
	}
	all := *r.all
	all.us = all.without(change, all.predicted())
	found := &candidate{
		cause:    result.CauseSpeed,
		figure:   "pred_vs_measured",
		share:    1 - left/total,
		shareAll: 1 - all.meanError()/r.all.meanError(),
		left:     left,
		evidence: 1 + change,
		premise:  fmt.Sprintf("all steps are %.0f %% longer than the coefficients say", 100*change),
		change:   fmt.Sprintf("one factor of %.2f", 1+change),
	}
	if change < 0 {
		found.premise = fmt.Sprintf("all steps are %.0f %% shorter than the coefficients say", -100*change)
	}
	if !r.isUniform(change, predicted) {
		found.excluded = "steps of different work differ by different factors"
	}
	return found
}

// isDeviceFactor reports whether f is a possible ratio of the times of two devices.
func isDeviceFactor(f float64) bool { return f >= 1./largestDevice && f <= largestDevice }

// promptWork returns the part of each prediction, us, by the time-like terms that compute on
// prompts, and by the other time-like terms.
func (s *scope) promptWork(r *residuals) (prompt, rest []float64) {
	prompt = make([]float64, len(r.us))
	rest = make([]float64, len(r.us))
	set := s.runs[0].set
	for j, f := range features.BetaFeatures(set.SpecVersion) {
		if !f.IsTime() {
			continue
		}
		into := rest
		if f.Prompt {
			into = prompt
		}
		for i := range r.rows {
			into[i] += set.Beta[j].Value * r.rows[i][j]
		}
	}
	return prompt, rest
}

// termCandidate returns the term whose rescaling removes most of the error, or a time-like term (IsTime) that
// removes nearly as much; nil if none removes anything. It is excluded where another time-like term would do as
// well. A term that would leave what physics allows, or whose regime has too few rows, is not the cause.
func (s *scope) termCandidate(set *coeff.Set, r *residuals, total float64) *candidate {
	var best, bestPhysics *candidate
	var physics []*candidate
	for j, f := range features.BetaFeatures(set.SpecVersion) {
		c := s.rescaleTerm(set, r, total, j)
		if !(c.share > 0) {
			continue
		}
		if best == nil || c.share > best.share {
			best = c
		}
		if !f.IsTime() {
			continue
		}
		physics = append(physics, c)
		if c.excluded == "" && (bestPhysics == nil || c.share > bestPhysics.share) {
			bestPhysics = c
		}
	}
	// A constant or a ratio is taken only where it removes clearly more than any time-like term.
	if bestPhysics != nil && bestPhysics.share >= physicsPreference*best.share {
		best = bestPhysics
	}
	// Where another term would remove as much, neither can be blamed.
	for _, c := range physics {
		enough := equalShare
		if c.excluded != "" {
			// A fit can leave a term where physics does not allow it, and another one takes over its work. Which of
			// the two is wrong cannot be told then.
			enough = physicsPreference
		}
		if c != best && c.share >= enough*best.share {
			best.excluded = cmp.Or(best.excluded, c.change+" would do as well")
		}
	}
	return best
}

// rescaleTerm returns the candidate in which one term alone is changed to fit the residuals, by
// least absolute relative error with equal weight for every regime: squares would be decided by
// single slow steps. A coefficient is at least zero.
func (s *scope) rescaleTerm(set *coeff.Set, r *residuals, total float64, j int) *candidate {
	term := &set.Beta[j]
	column := r.column(j)
	delta := math.Max(r.bestChange(column), -term.Value)
	left := r.loss(delta, column)
	regime, bias := r.regimeOfChange(delta, column)
	all := *r.all
	all.us = all.without(delta, all.column(j))
	found := &candidate{
		cause:    result.CauseModelError,
		figure:   "contributions",
		regime:   regime.String(),
		term:     term.Name,
		share:    1 - left/total,
		shareAll: 1 - all.meanError()/r.all.meanError(),
		left:     left,
		evidence: bias,
		premise:  fmt.Sprintf("%s steps are predicted %s", regime, biasText(bias)),
		change:   fmt.Sprintf("%s times %.2f", term.Name, 1+delta/term.Value),
	}
	if !(term.Value > 0) {
		found.change = fmt.Sprintf("a %s of %.3g %s where it is %.3g", term.Name, term.Value+delta, term.Unit, term.Value)
	}
	rowsOfRegime := 0
	for _, g := range r.regime {
		if g == regime {
			rowsOfRegime++
		}
	}
	roofline, ok := features.RooflineTimes(term.Name, term.Unit, term.Value+delta)
	switch {
	case rowsOfRegime < fewestRows:
		found.excluded = fmt.Sprintf("%s: fewer than %d rows", regime, fewestRows)
	case !s.isKnownDevice(set):
		found.excluded = "the fit saw no such hardware"
	case ok && !features.IsPlausible(roofline):
		found.excluded = fmt.Sprintf("%.2g times its roofline", roofline)
	}
	return found
}

// biasText returns a bias in words.
func biasText(bias float64) string {
	if bias < 0 {
		return fmt.Sprintf("%.0f %% too short", -100*bias)
	}
	return fmt.Sprintf("%.0f %% too long", 100*bias)
}

// unseenErrorShare returns the share of the relative error that is in rows with a feature beyond
// rangeSlack times its training maximum, and the feature that is so most often. The share is 0
// where such rows are few.
func (s *scope) unseenErrorShare(set *coeff.Set) (share float64, slot int) {
	rowsBeyond := make([]int, len(set.Beta)) // by feature
	outside, total := 0.0, 0.0
	rowsOutside := 0
	s.eachJudgedRow(func(t *judgedRun, i int) {
		isOutside := false
		for j, x := range t.beta.Row(i) {
			trained := set.Beta[j].Range
			if trained != nil && x > rangeSlack*trained[1]*t.beta.Steps[i] {
				rowsBeyond[j]++
				isOutside = true
			}
		}
		loss := math.Abs(t.beta.Y[i]-t.pred[i]) / math.Max(t.beta.Y[i], shortestUs)
		total += loss
		if isOutside {
			outside += loss
			rowsOutside++
		}
	})
	for j := range rowsBeyond {
		if rowsBeyond[j] > rowsBeyond[slot] {
			slot = j
		}
	}
	if total == 0 || rowsOutside < fewestRows {
		return 0, slot
	}
	return outside / total, slot
}

// isKnownDevice reports whether the fit had rows of the scope's hardware, with the same figures and
// as many devices. Only then do the trained ranges, which are times on that hardware, bound the
// times in the fit, and can a single term be at fault.
func (s *scope) isKnownDevice(set *coeff.Set) bool {
	d := s.runs[0].Deployment
	return len(set.Configs) == 0 || slices.ContainsFunc(set.Configs, func(c coeff.Config) bool {
		return c.Deployment.Hardware == d.Hardware && c.Deployment.TP == d.TP
	})
}

// lagCandidate returns the candidate in which the steps of a scope are joined to batches at another
// lag; nil if none is better, and for targets without a lag.
func (j *job) lagCandidate(s *scope) *candidate {
	if j.set.BetaTarget != coeff.Cadence {
		return nil
	}
	var judged, all [lags]float64 // sums of relative errors by lag, of the judged and of all rows
	used := -1
	for _, t := range s.runs {
		if used >= 0 && t.Lag != used {
			return nil // the runs of the scope do not have the same
		}
		used = t.Lag
		ofJudged, ofAll, ok := j.lossByLag(t)
		if !ok {
			return nil
		}
		for lag := range lags {
			judged[lag] += ofJudged[lag]
			all[lag] += ofAll[lag]
		}
	}
	best := 0
	for lag := range lags {
		if judged[lag] < judged[best] {
			best = lag
		}
	}
	if used < 0 || used >= lags || best == used {
		return nil
	}
	return &candidate{
		cause:    result.CauseLag,
		figure:   "pred_vs_measured",
		share:    1 - judged[best]/judged[used],
		shareAll: 1 - all[best]/all[used],
		evidence: float64(best),
		premise:  "steps are joined to the wrong batches",
		change:   fmt.Sprintf("a lag of %d in place of %d", best, used),
	}
}

// lossByLag returns the sums of the relative errors of a run's judged rows, and of all, at each lag.
func (j *job) lossByLag(t *judgedRun) (judged, all [lags]float64, ok bool) {
	steps, _, err := j.rebuild(t)
	if err != nil {
		return judged, all, false
	}
	space, err := features.New(t.set.SpecVersion, t.Deployment)
	if err != nil {
		return judged, all, false
	}
	err = t.eachLag(steps, space, j.o, func(lag int, table *rows.Table) bool {
		for i := range table.Kept {
			loss := math.Abs(table.Y[i]-t.set.Predict(table.Row(i))) / math.Max(table.Y[i], shortestUs)
			all[lag] += loss
			if !t.training || table.HoldOut[i] {
				judged[lag] += loss
			}
		}
		return true
	})
	return judged, all, err == nil
}
