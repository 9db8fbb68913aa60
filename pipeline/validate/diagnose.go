package validate

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

const (
	rareSteps        = 20   // fewer rows of a regime than this say nothing about it
	swingThatMatters = 1.20 // largest over smallest drift factor of a run
	unseenLoss       = 0.50 // share of the error in rows outside the training range
	rangeSlack       = 1.5  // times the training maximum
	tellingShare     = 0.10 // of the error: a change that removes less says nothing
	leastUs          = 1    // a shorter step counts as one of this length
)

// regimeBias is the signed error of one regime, sum(pred-y)/sum(y), with the
// machine's drift taken out.
type regimeBias struct {
	regime rows.Regime
	rows   int
	bias   float64
}

// diagnose says why gates of one scope failed: most of the error lies in rows the
// fit never saw the like of; or the drift curve removes more of it than any one
// coefficient could; or the model is wrong, and then in which regime and term.
func diagnose(s *scope, gates []string) result.Diagnosis {
	d := result.Diagnosis{Scope: s.name, Gates: gates}
	set := s.runs[0].set
	worst := worstRegime(s.regimeBiases())
	if worst == nil {
		d.Cause, d.Figure = result.CauseModelError, "pred_vs_measured"
		d.Sentence = fmt.Sprintf("no regime has %d rows to say why", rareSteps)
		return d
	}
	outside, slot := s.unseen(set)
	far, swing := s.drift()
	alone, drifted := s.bestTerm(set, rawPrediction), s.driftShare()
	switch {
	case outside > unseenLoss:
		d.Cause, d.Figure, d.Regime, d.Term, d.Evidence = result.CauseUnseenRegime, "residuals", worst.regime.String(),
			set.Beta[slot].Name, &outside
		d.Sentence = fmt.Sprintf("%.0f %% of the error lies in steps outside the range that %s was trained on: add such load to the fit",
			100*outside, d.Term)
	case swing > swingThatMatters && drifted >= alone.share:
		d.Cause, d.Figure, d.Evidence = result.CauseMachineDrift, "drift", &far
		d.Sentence = fmt.Sprintf("the machine changed its speed by a factor of %.2f while it was measured (farthest block: "+
			"measured/predicted %.2f): the drift curve removes %.0f %% of the error, the best change of one coefficient %.0f %%", swing, far,
			100*drifted, 100*alone.share)
	default:
		explainModel(&d, worst, s.bestTerm(set, (*judgedRun).withoutDrift), set)
	}
	return d
}

// explainModel names the regime, and the term whose rescaling would remove most of
// the error.
func explainModel(d *result.Diagnosis, worst *regimeBias, b termChange, set *coeff.Set) {
	d.Cause, d.Figure, d.Regime, d.Evidence = result.CauseModelError, "contributions", worst.regime.String(), &worst.bias
	d.Sentence = fmt.Sprintf("%s steps are predicted %s", worst.regime, biasText(worst.bias))
	if b.slot < 0 {
		return
	}
	c := &set.Beta[b.slot]
	d.Term = c.Name
	change := fmt.Sprintf("%s times %.2f", c.Name, 1+b.delta/c.Value)
	if c.Value == 0 {
		change = fmt.Sprintf("a %s of %.3g %s where it is 0", c.Name, b.delta, c.Unit)
	}
	if b.share < tellingShare {
		d.Sentence += fmt.Sprintf("; no single coefficient is to blame: the best change, %s, would remove %.0f %% of the mean "+
			"relative error", change, 100*b.share)
		return
	}
	d.Sentence += fmt.Sprintf("; %s would remove %.0f %% of the mean relative error", change, 100*b.share)
}

func biasText(b float64) string {
	if b < 0 {
		return fmt.Sprintf("%.0f %% too short", -100*b)
	}
	return fmt.Sprintf("%.0f %% too long", 100*b)
}

func (s *scope) regimeBiases() []regimeBias {
	out := make([]regimeBias, rows.Mixed+1)
	var sumY [rows.Mixed + 1]float64
	s.eachTested(func(t *judgedRun, i int) {
		r := t.beta.Regime[i]
		corrected := t.withoutDrift(i)
		out[r].regime, out[r].rows = r, out[r].rows+1
		out[r].bias += corrected - t.beta.Y[i]
		sumY[r] += t.beta.Y[i]
	})
	for r := range out {
		if sumY[r] > 0 {
			out[r].bias /= sumY[r]
		}
	}
	return out
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

// driftShare is the share of the mean relative error that the drift curve removes.
func (s *scope) driftShare() float64 {
	raw, left := 0.0, 0.0
	s.eachTested(func(t *judgedRun, i int) {
		y := math.Max(t.beta.Y[i], leastUs)
		raw += math.Abs(t.beta.Y[i]-t.pred[i]) / y
		left += math.Abs(t.beta.Y[i]-t.withoutDrift(i)) / y
	})
	if raw == 0 {
		return 0
	}
	return 1 - left/raw
}

// worstRegime has the largest |bias| among regimes with 20 rows or more.
func worstRegime(biases []regimeBias) *regimeBias {
	var worst *regimeBias
	for i := range biases {
		b := &biases[i]
		if b.rows >= rareSteps && (worst == nil || math.Abs(b.bias) > math.Abs(worst.bias)) {
			worst = b
		}
	}
	return worst
}

func (s *scope) eachTested(f func(t *judgedRun, i int)) {
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if t.sample.Judges(i) {
				f(t, i)
			}
		}
	}
}

// termChange is the term that explains most of the residuals.
type termChange struct {
	slot  int
	delta float64 // what to add to the coefficient
	share float64 // of the mean relative error it would remove
}

// residualRows bounds the cost of bestTerm; more rows are evenly thinned.
const residualRows = 20_000

// nearBest: a term of the physics that removes this share of what the best term
// removes is named before a ratio or a constant, which can stand in for anything.
const nearBest = 0.75

// bestTerm changes each term alone to fit the residuals, in least absolute relative
// error with equal weight for every regime, and returns the term that removes
// most. Least absolute error, because single slow steps would own a square. No
// coefficient is taken below zero.
func (s *scope) bestTerm(set *coeff.Set, predict func(*judgedRun, int) float64) termChange {
	r := s.residuals(predict)
	best, physical := termChange{slot: -1}, termChange{slot: -1}
	total := r.loss(0, nil)
	if !(total > 0) {
		return best
	}
	for j, f := range features.BetaFeatures(set.SpecVersion) {
		x := r.column(j)
		delta := math.Max(r.bestChange(x), -set.Beta[j].Value)
		b := termChange{j, delta, 1 - r.loss(delta, x)/total}
		if b.share > best.share {
			best = b
		}
		if f.IsTime() && b.share > physical.share {
			physical = b
		}
	}
	if physical.slot >= 0 && physical.share >= nearBest*best.share {
		return physical
	}
	return best
}

// residuals are y - prediction of the tested rows, us, each with a weight that makes it relative and its regime as heavy as the others.
type residuals struct {
	us, weight []float64
	rows       [][]float64
}

func (s *scope) residuals(predict func(*judgedRun, int) float64) *residuals {
	var count [rows.Mixed + 1]float64
	n := 0
	s.eachTested(func(t *judgedRun, i int) { count[t.beta.Regime[i]]++; n++ })
	every := max(1, n/residualRows)
	r := &residuals{}
	k := 0
	s.eachTested(func(t *judgedRun, i int) {
		if k++; k%every != 0 {
			return
		}
		y := math.Max(t.beta.Y[i], leastUs)
		r.us = append(r.us, t.beta.Y[i]-predict(t, i))
		r.weight = append(r.weight, 1/(y*count[t.beta.Regime[i]]))
		r.rows = append(r.rows, t.beta.Row(i))
	})
	return r
}

func (r *residuals) column(j int) []float64 {
	x := make([]float64, len(r.rows))
	for i, row := range r.rows {
		x[i] = row[j]
	}
	return x
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

// bestChange is the delta with the least sum of weight*|us - delta*x|: the median
// of us/x weighted by weight*x; 0 when x is 0 everywhere.
func (r *residuals) bestChange(x []float64) float64 {
	var ratio, weight []float64
	for i := range x {
		if x[i] > 0 {
			ratio, weight = append(ratio, r.us[i]/x[i]), append(weight, r.weight[i]*x[i])
		}
	}
	if len(ratio) == 0 {
		return 0
	}
	return stat.WeightedMedian(ratio, weight)
}

// unseen is the share of the relative error that lies in rows with a feature
// beyond 1.5 times its training maximum, and the slot (from 0) that is so most often.
func (s *scope) unseen(set *coeff.Set) (float64, int) {
	bySlot := make([]int, len(set.Beta))
	outside, total := 0.0, 0.0
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
			outside += loss
		}
	})
	slot := 0
	for j := range bySlot {
		if bySlot[j] > bySlot[slot] {
			slot = j
		}
	}
	if total == 0 {
		return 0, slot
	}
	return outside / total, slot
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
