package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
)

const (
	rareSteps        = 20   // fewer rows than this say nothing
	swingThatMatters = 1.20 // largest over smallest drift factor of a run
	unseenLoss       = 0.50 // share of the error in rows outside the training range
	rangeSlack       = 1.5  // times the training maximum
	mostOfDevice     = 1000 // times as long as another: a CPU core and a GPU
	tellingShare     = 0.25 // of the error: a change that removes less is no cause
	wholeShare       = 0.10 // of the error of all rows alike that a cause removes when it is applied to them
	extraFactor      = 0.05 // what a change with one factor more must remove beyond one with a single factor
	sameBatches      = 0.90 // share of reproduced batches below which the scheduler differs
	leastUs          = 1    // a shorter step counts as one of this length
)

// candidate is one thing that could explain the error of a scope.
type candidate struct {
	cause, figure, regime, term string
	premise                     string // what is true if it is the cause
	change                      string // what removes the error

	share    float64 // of the mean relative error, every regime weighing the same, that removing it removes
	left     float64 // the error that is left
	whole    float64 // of the mean relative error of all rows of the scope, the training rows too, that it removes there
	evidence float64
	not      string // why it can be no cause whatever it removes
}

// diagnose says why step gates of one scope failed (spec#diagnosis): most of the error lies in
// rows the fit never saw the like of; or one change removes a quarter of the error
// or more, a tenth of that of all rows, the training rows too, and leaves a model that beats a constant: the
// lag, the machine's drift, the speed of the hardware, one coefficient. Otherwise the cause
// is unknown, and what was tried is said.
//
// The candidate that removes most wins; two factors and a curve count 0.05 less. The hardware is no cause where the
// fit saw that device with these figures alone.
func diagnose(s *scope, gates []string, lag *candidate) result.Diagnosis {
	d := result.Diagnosis{Scope: s.name, Gates: gates, Cause: result.CauseUnknown, Figure: "pred_vs_measured"}
	set := s.runs[0].set
	r := s.residuals(rawPrediction)
	total := r.loss(0, nil)
	if len(r.us) < rareSteps || !(total > 0) {
		d.Sentence = fmt.Sprintf("fewer than %d rows: nothing can be said", rareSteps)
		return d
	}
	if outside, slot := s.unseen(set); outside > unseenLoss && s.knownDevice(set) {
		d.Cause = result.CauseUnseenRegime
		d.Figure = "residuals"
		d.Term = set.Beta[slot].Name
		d.Evidence = &outside
		d.Sentence = fmt.Sprintf("%.0f %% of the error lies in steps outside the range that %s was trained on: add such load to the fit",
			100*outside, d.Term)
		return d
	}
	tried := []*candidate{lag, s.driftCandidate(r, total), s.hardwareCandidate(r, total), s.bestTerm(set, r, total)}
	best := bestCandidate(tried, r.constantLoss())
	if best == nil {
		d.Sentence = ruledOut(tried, r.constantLoss())
		return d
	}
	d.Cause = best.cause
	d.Figure = best.figure
	d.Regime = best.regime
	d.Term = best.term
	d.Evidence = &best.evidence
	d.Sentence = fmt.Sprintf("%s: %s removes %.0f %% of the mean relative error", best.premise, best.change, 100*best.share)
	return d
}

// bestCandidate removes most, at least a quarter, and leaves less than a constant
// does; nil when none does. Of two it is the one with fewer factors, unless the
// other removes clearly more.
func bestCandidate(tried []*candidate, constant float64) *candidate {
	var best *candidate
	for _, c := range tried {
		if c == nil || c.refusal(constant) != "" {
			continue
		}
		if best == nil || c.share-c.handicap() > best.share-best.handicap() {
			best = c
		}
	}
	return best
}

// refusal says why a candidate is no cause; empty: it may be one.
func (c *candidate) refusal(constant float64) string {
	switch {
	case c.not != "":
		return c.not
	case c.share < tellingShare:
		return "too little"
	case c.left >= constant:
		return "a constant leaves less"
	case c.whole < wholeShare:
		return fmt.Sprintf("over all rows, training too, it removes %.0f %%", 100*c.whole)
	}
	return ""
}

// handicap is what a candidate removes by its freedom alone.
func (c *candidate) handicap() float64 {
	switch c.cause {
	case result.CauseHardware, result.CauseMachineDrift:
		return extraFactor
	}
	return 0
}

// ruledOut lists what was tried, how much of the error it removes, and why that is no cause where it would be enough.
func ruledOut(tried []*candidate, constant float64) string {
	parts := stat.Map(stat.Filter(tried, func(c *candidate) bool { return c != nil }), func(c *candidate) string {
		part := fmt.Sprintf("%s %.0f %%", c.change, 100*c.share)
		if why := c.refusal(constant); c.share >= tellingShare && why != "" {
			part += " (" + why + ")"
		}
		return part
	})
	return "no cause found; tried, with the share of the error it would remove: " + strings.Join(parts, "; ")
}

// driftCandidate is the curve of the machine's speed; nil for runs that were composed,
// which no machine ran, and for curves that hardly swing.
func (s *scope) driftCandidate(r *residuals, total float64) *candidate {
	far, swing := s.drift()
	if swing <= swingThatMatters || slices.ContainsFunc(s.runs, func(t *judgedRun) bool { return t.Deployment.IsComposed() }) {
		return nil
	}
	followed := s.residuals((*judgedRun).withoutDrift)
	left := followed.loss(0, nil)
	c := &candidate{cause: result.CauseMachineDrift, figure: "drift", share: 1 - left/total, left: left, evidence: far,
		whole: 1 - followed.all.evenError()/r.all.evenError()}
	c.premise = fmt.Sprintf("the machine changed its speed by a factor of %.2f while it was measured (farthest block: "+
		"measured/predicted %.2f)", swing, far)
	c.change = "following the drift curve"
	return c
}

// hardwareCandidate is one factor on the terms that compute on prompts and one on
// the others: what a wrong device, or wrong figures of it, do. Nil where the fit saw that
// device with those figures and no other: its coefficients hold whatever is wrong with them.
func (s *scope) hardwareCandidate(r *residuals, total float64) *candidate {
	set := s.runs[0].set
	if len(set.Configs) > 0 && s.knownDevice(set) && !slices.ContainsFunc(set.Configs, func(c coeff.Config) bool {
		return c.Deployment.Hardware != s.runs[0].Deployment.Hardware
	}) {
		return nil
	}
	prompt, rest := s.promptWork(r)
	var a, b float64
	const rounds = 8 // of alternating medians: the loss falls with each
	left := *r
	for range rounds {
		left.us = r.without(b, rest)
		a = math.Max(left.bestChange(prompt), -1)
		left.us = r.without(a, prompt)
		b = math.Max(left.bestChange(rest), -1)
	}
	left.us = r.without(a, prompt)
	loss := left.loss(b, rest)
	whole := *r.all
	wholePrompt, wholeRest := s.promptWork(&whole)
	whole.us = whole.without(a, wholePrompt)
	whole.us = whole.without(b, wholeRest)
	c := &candidate{cause: result.CauseHardware, figure: "pred_vs_measured", share: 1 - loss/total, left: loss, evidence: 1 + b,
		whole: 1 - whole.evenError()/r.all.evenError()}
	c.premise = "the hardware is not the one that run.yaml names, or its figures are wrong"
	if !s.knownDevice(set) {
		c.premise = fmt.Sprintf("the hardware is not the %s at tensor_parallel_size %d that run.yaml names, or its coefficients, of which the "+
			"fit saw none, are others", s.runs[0].Deployment.Hardware.Name, s.runs[0].Deployment.TP)
	}
	if !isDeviceFactor(1+a) || !isDeviceFactor(1+b) {
		c.not = "no device differs so much"
	}
	c.change = fmt.Sprintf("other hardware, terms on prompts times %.2f and the others times %.2f,", 1+a, 1+b)
	return c
}

// promptWork is what the time-like terms that compute on prompts, and the others, have in each prediction, us.
func (s *scope) promptWork(r *residuals) (prompt, rest []float64) {
	prompt = make([]float64, len(r.us))
	rest = make([]float64, len(r.us))
	for j, f := range features.BetaFeatures(s.runs[0].set.SpecVersion) {
		if !f.IsTime() {
			continue
		}
		into := rest
		if f.Prompt {
			into = prompt
		}
		for i := range r.rows {
			into[i] += s.runs[0].set.Beta[j].Value * r.rows[i][j]
		}
	}
	return prompt, rest
}

// isDeviceFactor reports whether one device may take so many times as long as another.
func isDeviceFactor(f float64) bool { return f >= 1./mostOfDevice && f <= mostOfDevice }

// bestTerm is the term whose rescaling removes most, or one of the physics that removes nearly as much; nil where none
// removes anything. It names the regime in which it removes most, which is one where the term is not zero. A term that
// would leave what physics allows, or whose regime has too few rows, is no cause (spec#diagnosis).
func (s *scope) bestTerm(set *coeff.Set, r *residuals, total float64) *candidate {
	var best, physical *candidate
	var physics []*candidate
	for j, f := range features.BetaFeatures(set.SpecVersion) {
		c := s.termCandidate(set, r, total, j)
		if c.share > 0 && (best == nil || c.share > best.share) {
			best = c
		}
		if c.share > 0 && f.IsTime() {
			if physics = append(physics, c); c.not == "" && (physical == nil || c.share > physical.share) {
				physical = c
			}
		}
	}
	if physical != nil && physical.share >= nearBest*best.share {
		best = physical
	}
	for _, c := range physics {
		if c != best && c.share >= asGood*best.share {
			best.not = cmp.Or(best.not, c.change+" would do as well")
		}
	}
	return best
}

// termCandidate changes one term alone to fit the residuals, in least absolute relative error with equal weight for every
// regime: single slow steps would own a square. No coefficient is taken below zero.
func (s *scope) termCandidate(set *coeff.Set, r *residuals, total float64, j int) *candidate {
	t, x := &set.Beta[j], r.column(j)
	delta := math.Max(r.bestChange(x), -t.Value)
	left := r.loss(delta, x)
	regime, bias := r.regimeOf(delta, x)
	whole := *r.all
	whole.us = whole.without(delta, whole.column(j))
	c := &candidate{cause: result.CauseModelError, figure: "contributions", regime: regime.String(), term: t.Name, share: 1 - left/total,
		left: left, evidence: bias, whole: 1 - whole.evenError()/r.all.evenError()}
	c.change = fmt.Sprintf("%s times %.2f", t.Name, 1+delta/t.Value)
	if !(t.Value > 0) {
		c.change = fmt.Sprintf("a %s of %.3g %s where it is %.3g", t.Name, t.Value+delta, t.Unit, t.Value)
	}
	c.premise = fmt.Sprintf("%s steps are predicted %s", regime, biasText(bias))
	roofline, ok := features.RooflineTimes(t.Name, t.Unit, t.Value+delta)
	switch {
	case stat.Count(r.regime, func(g rows.Regime) bool { return g == regime }) < rareSteps:
		c.not = fmt.Sprintf("%s: fewer than %d rows", regime, rareSteps)
	case !s.knownDevice(set):
		c.not = "the fit saw no such hardware"
	case ok && !features.IsPlausible(roofline):
		c.not = fmt.Sprintf("%.2g times its roofline", roofline)
	}
	return c
}

func biasText(b float64) string {
	if b < 0 {
		return fmt.Sprintf("%.0f %% too short", -100*b)
	}
	return fmt.Sprintf("%.0f %% too long", 100*b)
}

// withoutDrift is the prediction of row i as the machine was then: times the
// drift factor over the run's median one, which leaves a bias of the model as it
// is. A curve that hardly swings changes nothing.
func (t *judgedRun) withoutDrift(i int) float64 {
	if t.drift.Swing() <= swingThatMatters {
		return t.pred[i]
	}
	return t.drift.Follow(t.pred[i], t.beta.TimeNs[i])
}

func rawPrediction(t *judgedRun, i int) float64 { return t.pred[i] }

func (s *scope) eachTested(f func(t *judgedRun, i int)) {
	s.eachRow(func(t *judgedRun, i int) {
		if t.sample.Judges(i) {
			f(t, i)
		}
	})
}

func (s *scope) eachRow(f func(t *judgedRun, i int)) {
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			f(t, i)
		}
	}
}

// residualRows bounds the cost of a search; more rows are evenly thinned.
const residualRows = 20_000

// nearBest: a term of the physics that removes this share of what the best term
// removes is named before a ratio or a constant, which can stand in for anything.
const nearBest = 0.75

// asGood: nor is a term named where another of the physics, allowed or not, removes this share of what it does.
const asGood = 0.9

// residuals are y - prediction of the tested rows, us, each with a weight that makes
// it relative and its regime as heavy as the others.
type residuals struct {
	us, y, weight []float64
	regime        []rows.Regime
	rows          [][]float64
	all           *residuals // of every row of the scope, the training rows too
}

// without are the residuals once delta times x is added to the predictions.
func (r *residuals) without(delta float64, x []float64) []float64 {
	out := make([]float64, len(r.us))
	for i, us := range r.us {
		out[i] = us - delta*x[i]
	}
	return out
}

// constantLoss is the loss of the best constant.
func (r *residuals) constantLoss() float64 {
	sum := 0.0
	c := stat.WeightedMedian(r.y, r.weight)
	for i, y := range r.y {
		sum += r.weight[i] * math.Abs(y-c)
	}
	return sum
}

// regimeOf is the regime in which changing a term by delta removes most of the
// error, among those where the term is not zero, and the signed error of that
// regime, sum(prediction - y)/sum(y).
func (r *residuals) regimeOf(delta float64, x []float64) (rows.Regime, float64) {
	var removed, over, sumY [rows.Mixed + 1]float64
	for i, us := range r.us {
		g := r.regime[i]
		over[g], sumY[g] = over[g]-us, sumY[g]+r.y[i]
		removed[g] += r.weight[i] * (math.Abs(us) - math.Abs(us-delta*x[i]))
	}
	best := rows.Regime(0)
	for g := range removed {
		if removed[g] > removed[best] {
			best = rows.Regime(g)
		}
	}
	if sumY[best] == 0 {
		return best, 0
	}
	return best, over[best] / sumY[best]
}

func (s *scope) residuals(predict func(*judgedRun, int) float64) *residuals {
	r := residualsOf(s.eachTested, predict)
	r.all = residualsOf(s.eachRow, predict)
	return r
}

func residualsOf(each func(func(t *judgedRun, i int)), predict func(*judgedRun, int) float64) *residuals {
	var count [rows.Mixed + 1]float64
	n := 0
	each(func(t *judgedRun, i int) { count[t.beta.Regime[i]]++; n++ })
	every := max(1, n/residualRows)
	r, k := &residuals{}, 0
	each(func(t *judgedRun, i int) {
		if k++; k%every != 0 {
			return
		}
		y := math.Max(t.beta.Y[i], leastUs)
		r.us = append(r.us, t.beta.Y[i]-predict(t, i))
		r.y = append(r.y, t.beta.Y[i])
		r.regime = append(r.regime, t.beta.Regime[i])
		r.weight = append(r.weight, 1/(y*count[t.beta.Regime[i]]))
		r.rows = append(r.rows, slices.Clone(t.beta.Row(i)))
	})
	return r
}

func (r *residuals) column(j int) []float64 {
	return stat.Map(r.rows, func(row []float64) float64 { return row[j] })
}

func (r *residuals) loss(delta float64, x []float64) float64 {
	sum := 0.0
	for i, us := range r.us {
		if x != nil {
			us -= delta * x[i]
		}
		sum += r.weight[i] * math.Abs(us)
	}
	return sum
}

// evenError is the mean relative error, every row weighing the same.
func (r *residuals) evenError() float64 {
	sum := 0.0
	for i, us := range r.us {
		sum += math.Abs(us) / math.Max(r.y[i], leastUs)
	}
	return sum / float64(len(r.us))
}

// bestChange is the delta with the least sum of weight*|us - delta*x|: the median
// of us/x weighted by weight*x; 0 when x is 0 everywhere.
func (r *residuals) bestChange(x []float64) float64 {
	var ratio, weight []float64
	for i := range x {
		if x[i] > 0 {
			ratio = append(ratio, r.us[i]/x[i])
			weight = append(weight, r.weight[i]*x[i])
		}
	}
	if len(ratio) == 0 {
		return 0
	}
	return stat.WeightedMedian(ratio, weight)
}

// unseen is the share of the relative error that lies in rows with a feature
// beyond 1.5 times its training maximum, and the slot (from 0) that is so most often; 0 where such rows are few.
func (s *scope) unseen(set *coeff.Set) (float64, int) {
	bySlot := make([]int, len(set.Beta))
	outside := 0.0
	total := 0.0
	hits := 0
	s.eachTested(func(t *judgedRun, i int) {
		hit := false
		for j, x := range t.beta.Row(i) {
			rng := set.Beta[j].Range
			if rng != nil && x > rangeSlack*rng[1]*t.beta.Steps[i] {
				bySlot[j]++
				hit = true
			}
		}
		loss := math.Abs(t.beta.Y[i]-t.pred[i]) / math.Max(t.beta.Y[i], leastUs)
		total += loss
		if hit {
			outside, hits = outside+loss, hits+1
		}
	})
	slot := 0
	for j := range bySlot {
		if bySlot[j] > bySlot[slot] {
			slot = j
		}
	}
	if total == 0 || hits < rareSteps {
		return 0, slot
	}
	return outside / total, slot
}

// knownDevice reports whether the fit saw the hardware of the scope, with the same figures and as many devices: only then
// do the trained ranges, which are times on that hardware, say what it saw, and can a single term be at fault.
func (s *scope) knownDevice(set *coeff.Set) bool {
	d := s.runs[0].Deployment
	return len(set.Configs) == 0 || slices.ContainsFunc(set.Configs, func(c coeff.Config) bool {
		return c.Deployment.Hardware == d.Hardware && c.Deployment.TP == d.TP
	})
}

// drift is the factor farthest from its run's median, and the largest swing.
func (s *scope) drift() (farthest, swing float64) {
	farthest, swing = 1, 1
	for _, t := range s.runs {
		if w := t.drift.Swing(); w > swing {
			swing = w
			farthest, _ = t.drift.Farthest()
		}
	}
	return farthest, swing
}

// lagCandidate joins the steps of a scope at the other lags and says how much of the
// error the best of them removes; nil where no other lag is better, and for
// targets without one.
func (j *job) lagCandidate(s *scope) *candidate {
	if j.set.BetaTarget != coeff.Cadence {
		return nil
	}
	var loss, whole [lags]float64 // sums of relative errors of the judged and of all rows
	used := -1
	for _, t := range s.runs {
		if used >= 0 && t.Lag != used {
			return nil // the runs of the scope do not share one
		}
		used = t.Lag
		of, all, ok := j.lagLosses(t)
		if !ok {
			return nil
		}
		for lag := range loss {
			loss[lag], whole[lag] = loss[lag]+of[lag], whole[lag]+all[lag]
		}
	}
	best := 0
	for lag := range loss {
		if loss[lag] < loss[best] {
			best = lag
		}
	}
	if used < 0 || used >= lags || best == used {
		return nil
	}
	c := &candidate{cause: result.CauseLag, figure: "pred_vs_measured", share: 1 - loss[best]/loss[used], evidence: float64(best)}
	c.whole = 1 - whole[best]/whole[used]
	c.premise, c.change = "steps are joined to the wrong batches", fmt.Sprintf("a lag of %d in place of %d", best, used)
	return c
}

// lagLosses are the sums of the relative errors of a run's judged rows, and of all, at each lag.
func (j *job) lagLosses(t *judgedRun) (loss, all [lags]float64, ok bool) {
	steps, _, err := j.rebuilt(t)
	if err != nil {
		return loss, all, false
	}
	sp, err := features.New(t.set.SpecVersion, t.Deployment)
	if err != nil {
		return loss, all, false
	}
	err = t.atLags(steps, sp, j.o, func(lag int, b *rows.Table) bool {
		for k := range b.Kept {
			off := math.Abs(b.Y[k]-t.set.Predict(b.Row(k))) / math.Max(b.Y[k], leastUs)
			if all[lag] += off; !t.training || b.HoldOut[k] {
				loss[lag] += off
			}
		}
		return true
	})
	return loss, all, err == nil
}

// rebuilt loads the run again with its batches.
func (j *job) rebuilt(t *judgedRun) (*rows.Steps, *workload.Forced, error) {
	run, dep, err := j.sources[slices.Index(j.all, t)].Load()
	if err != nil {
		return nil, nil, err
	}
	forced, _ := workload.ForceLater(run, dep) // nil for a run that cannot be forced
	steps, err := rows.Rebuild(run, dep, t.set.SpecVersion)
	return steps, forced, err
}

// lagOfBatches is the lag at which a replay forms the recorded batches, where the one
// used does not and the other way of scheduling does, with the share it reproduces.
func (j *job) lagOfBatches(t *judgedRun) (lag int, share float64, ok bool) {
	steps, forced, err := j.rebuilt(t)
	if err != nil {
		return 0, 0, false
	}
	async := t.Lag == 0
	same, err := identicalBatches(forced, t.Deployment, steps, async)
	if err != nil || same == nil || *same < sameBatches {
		return 0, 0, false
	}
	if async {
		lag = 1
	}
	return lag, *same, true
}

// otherCache is how far the stated number of KV blocks may be from the recorded one.
const otherCache = 0.02

// diagnoseReplay says why a replay fails whose step times passed (spec#diagnosis):
// the engine had another KV cache than run.yaml says; the simulator's scheduler
// forms other batches; the machine drifted, and the drift-corrected replay is good;
// or it is unknown.
func (j *job) diagnoseReplay(v *result.Validation, t *judgedRun, scopeName string, failed []string) result.Diagnosis {
	d := result.Diagnosis{Scope: scopeName, Gates: failed, Cause: result.CauseUnknown, Figure: "ecdf"}
	var tried []string
	if t.Blocks > 0 {
		if stated, _, err := t.Deployment.KVBlocks(); err == nil && math.Abs(float64(stated)/float64(t.Blocks)-1) > otherCache {
			d.Cause = result.CauseScheduler
			d.Evidence = new(float64(stated) / float64(t.Blocks))
			d.Sentence = fmt.Sprintf("run.yaml gives the engine %d KV blocks, its steps recorded %d: correct vllm.kv_blocks_total_gpu",
				stated, t.Blocks)
			return d
		}
		tried = append(tried, "the KV cache is the recorded one")
	}
	if t.Identical != nil {
		if lag, share, ok := j.lagOfBatches(t); *t.Identical < sameBatches && ok {
			d.Cause, d.Evidence = result.CauseLag, &share
			d.Sentence = fmt.Sprintf("steps are joined to the wrong batches: with a lag of %d in place of %d the simulator forms %.0f %% of the "+
				"recorded batches as they were, not %.0f %%", lag, t.Lag, 100*share, 100**t.Identical)
			return d
		}
		if *t.Identical < sameBatches {
			d.Cause = result.CauseScheduler
			d.Evidence = t.Identical
			d.Sentence = fmt.Sprintf("the simulator forms %.0f %% of the recorded batches as they were: compare max_num_seqs, "+
				"max_num_batched_tokens, chunked prefill and prefix caching of run.yaml with the server's", 100**t.Identical)
			return d
		}
		tried = append(tried, fmt.Sprintf("%.0f %% of the batches are reproduced", 100**t.Identical))
	}
	if !t.Deployment.IsComposed() {
		if run := replayOf(v, scopeName); run != nil && j.rules.ReplayPasses(run.MetricsDrift) {
			swing := t.drift.Swing()
			d.Cause = result.CauseMachineDrift
			d.Figure = "drift"
			d.Evidence = &swing
			d.Sentence = fmt.Sprintf("the machine changed its speed by a factor of %.2f while it was measured: "+
				"the drift-corrected replay passes", swing)
			return d
		}
		tried = append(tried, "the drift-corrected replay fails too")
	}
	if steps := diagnose(&scope{name: scopeName, runs: []*judgedRun{t}}, failed, nil); steps.Cause != result.CauseUnknown {
		steps.Sentence = "step times pass their gates, but " + steps.Sentence
		return steps
	}
	d.Sentence = "step times pass and no cause is found; " + strings.Join(tried, "; ")
	return d
}

// replayOf is the entry that a replay gate's scope names.
func replayOf(v *result.Validation, scope string) *result.ValidationRun {
	for i := range v.Runs {
		if gate.ReplayScope(&v.Runs[i]) == scope {
			return &v.Runs[i]
		}
	}
	return nil
}
