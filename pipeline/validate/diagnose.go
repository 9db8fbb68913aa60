package validate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

const (
	biasThatMatters  = 0.10 // signed bias of a regime, after the drift curve
	swingThatMatters = 1.20 // largest over smallest drift factor
	unseenShare      = 0.02 // share of tested rows outside the training range
	rangeSlack       = 1.5  // times the training maximum (01 V-12)
)

// regimeBias is the signed error of one regime, sum(pred-y)/sum(y), with the
// drift curve taken out.
type regimeBias struct {
	regime rows.Regime
	rows   int
	bias   float64
	absUs  float64 // sum of |pred-y|
}

// diagnose says why the failed gates of one scope failed: a regime the model is
// wrong in, a machine that changed its speed, or a regime it never saw. In that
// order: a drifting machine cannot make one regime wrong and leave the others.
func diagnose(s *scope, gates []string) result.Diagnosis {
	d := result.Diagnosis{Scope: s.name, Gates: gates}
	set := s.runs[0].set
	biases := s.regimeBiases()
	worst := worstRegime(biases)
	share, slot := s.unseen(set)
	drift, swing := s.drift()
	switch {
	case worst != nil && math.Abs(worst.bias) > biasThatMatters && share <= unseenShare:
		s.blameModel(&d, worst, set)
	case share > unseenShare:
		d.Cause, d.Figure, d.Term, d.Evidence = result.CauseUnseenRegime, "residuals", set.Beta[slot].Name, &share
		d.Sentence = fmt.Sprintf("%s: %.0f %% of the steps lie outside the range that %s was trained on, or use a term that was not learned: add such load to the fit", s.name, 100*share, set.Beta[slot].Name)
	case swing > swingThatMatters:
		d.Cause, d.Figure, d.Evidence = result.CauseMachineDrift, "drift", &drift
		d.Sentence = fmt.Sprintf("%s: the machine changed its speed by a factor of %.2f while it was measured (farthest block: measured/predicted %.2f); the drift-corrected replay shows the model without it", s.name, swing, drift)
	case worst != nil:
		s.blameModel(&d, worst, set)
	default:
		d.Cause, d.Figure = result.CauseModelError, "ecdf"
		d.Sentence = fmt.Sprintf("%s: no step rows to look into; see the distributions", s.name)
	}
	return d
}

// blameModel names the regime, and the term whose rescaling would remove most of
// the error.
func (s *scope) blameModel(d *result.Diagnosis, worst *regimeBias, set *coeff.Set) {
	d.Cause, d.Figure, d.Regime, d.Evidence = result.CauseModelError, "contributions", worst.regime.String(), &worst.bias
	b := s.blame(set)
	d.Sentence = fmt.Sprintf("%s: %s steps are predicted %s", s.name, worst.regime, biasText(worst.bias))
	if b.slot < 0 {
		return
	}
	d.Term = set.Beta[b.slot].Name
	switch {
	case set.Beta[b.slot].Value == 0:
		d.Sentence += fmt.Sprintf("; a %s of %.3g %s where it is 0 would remove %.0f %% of the squared relative error", d.Term, b.delta, set.Beta[b.slot].Unit, 100*b.share)
	default:
		d.Sentence += fmt.Sprintf("; %s times %.2f would remove %.0f %% of the squared relative error", d.Term, 1+b.delta/set.Beta[b.slot].Value, 100*b.share)
	}
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
	s.eachTested(func(t *taught, i int) {
		r := t.beta.Regime[i]
		corrected := t.pred[i] * t.drift.At(t.beta.TimeNs[i]) / t.driftLevel()
		out[r].regime, out[r].rows = r, out[r].rows+1
		out[r].bias += corrected - t.beta.Y[i]
		out[r].absUs += math.Abs(corrected - t.beta.Y[i])
		sumY[r] += t.beta.Y[i]
	})
	for r := range out {
		if sumY[r] > 0 {
			out[r].bias /= sumY[r]
		}
	}
	return out
}

// driftLevel is the median factor: what a bias of the model, and not a change of
// the machine, does to the curve.
func (t *taught) driftLevel() float64 {
	if len(t.drift.factors) == 0 {
		return 1
	}
	return Median(t.drift.factors)
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

func (s *scope) eachTested(f func(t *taught, i int)) {
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if t.tested(t.beta, i) {
				f(t, i)
			}
		}
	}
}

// blamed is the term that explains most of the residuals.
type blamed struct {
	slot  int
	delta float64 // what to add to the coefficient
	share float64 // of the weighted squared relative error it would remove
}

// blame fits each term alone to the residuals, weighted by 1/y^2 and equally over
// the regimes, and returns the one that removes most. Terms that would have to go
// below zero stop there.
func (s *scope) blame(set *coeff.Set) blamed {
	p := len(set.Beta)
	var count [rows.Mixed + 1]float64
	s.eachTested(func(t *taught, i int) { count[t.beta.Regime[i]]++ })
	num, den := make([]float64, p), make([]float64, p)
	total := 0.0
	s.eachTested(func(t *taught, i int) {
		y := math.Max(t.beta.Y[i], minTargetUs)
		w := 1 / (y * y * count[t.beta.Regime[i]])
		r := t.beta.Y[i] - t.pred[i]*t.drift.At(t.beta.TimeNs[i])/t.driftLevel()
		total += w * r * r
		for j, x := range t.beta.Row(i) {
			num[j] += w * r * x
			den[j] += w * x * x
		}
	})
	best := blamed{slot: -1}
	for j := range num {
		if den[j] == 0 || total == 0 {
			continue
		}
		delta := math.Max(num[j]/den[j], -set.Beta[j].Value)
		share := (2*delta*num[j] - delta*delta*den[j]) / total
		if share > best.share {
			best = blamed{j, delta, share}
		}
	}
	return best
}

// unseen is the share of tested rows with a feature beyond 1.5 times its
// training maximum, and the slot (from 0) that is so most often.
func (s *scope) unseen(set *coeff.Set) (float64, int) {
	bySlot := make([]int, len(set.Beta))
	outside, total := 0, 0
	s.eachTested(func(t *taught, i int) {
		total++
		hit := false
		for j, x := range t.beta.Row(i) {
			rng := set.Beta[j].Range
			if rng != nil && x > rangeSlack*rng[1]*t.beta.Steps[i] {
				bySlot[j]++
				hit = true
			}
		}
		if hit {
			outside++
		}
	})
	if total == 0 {
		return 0, 0
	}
	slot := 0
	for j := range bySlot {
		if bySlot[j] > bySlot[slot] {
			slot = j
		}
	}
	return float64(outside) / float64(total), slot
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
