package features

// This file predicts times: the sum of coefficients times features, with a warning for features
// outside the range of the training rows.

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// extrapolationFactor is how far above its training maximum a feature may lie before a prediction
// warns (spec#training-range).
const extrapolationFactor = 1.5

// Predictor turns feature vectors into microseconds, and collects the slots that were outside the
// training range, for Warnings. It is not safe for concurrent use.
type Predictor struct {
	values  []float64
	limits  []float64 // 1.5 x training maximum, +Inf when unknown, 0 when not learned
	terms   []Feature
	learned []bool  // per slot; see NotLearned
	least   float64 // smallest prediction, us

	beyond  Hits // slots that exceeded their limit
	bounded Hits // slots that were clipped
}

// BetaPredictor returns a predictor of step times. s must be the result of On for the deployment,
// because the predictor does not apply the set's factors for deployments, prompts and hardware.
func BetaPredictor(s *coeff.Set) *Predictor {
	p := newPredictor(s.Beta, BetaFeatures(s.SpecVersion), coeff.MinStepUs)
	for _, slot := range NotLearned(s) {
		p.learned[slot-1], p.limits[slot-1] = false, 0
	}
	return p
}

// AlphaPredictor returns a predictor of the delay of the named target. Code: no_such_target.
func AlphaPredictor(s *coeff.Set, target string) (*Predictor, error) {
	m := s.AlphaModel(target)
	if m == nil {
		return nil, trace.Errorf(noSuchTarget, "alpha target %q: got none in the coefficient set, want %s", target, trace.OneOf(s.AlphaTargets()))
	}
	return newPredictor(m.Coefficients, AlphaFeatures(s.SpecVersion), 0), nil
}

// DelayPredictor returns what AlphaPredictor does for a delay that a simulation adds to a request.
// It refuses targets that contain queueing, which the simulation produces itself. Code:
// no_such_target.
func DelayPredictor(s *coeff.Set, target string) (*Predictor, error) {
	if m := s.AlphaModel(target); m != nil && !m.Replay {
		return nil, trace.Errorf(noSuchTarget, "alpha target %q contains a wait that a replay produces itself, want overhead or egress", target).
			WithHint("fit the overhead target, or give --overhead-us")
	}
	return AlphaPredictor(s, target)
}

// Copy returns a predictor of the same coefficients that has predicted nothing yet.
func (p *Predictor) Copy() *Predictor {
	c := *p
	c.beyond = 0
	c.bounded = 0
	return &c
}

// newPredictor returns a predictor of the coefficients cs, whose predictions are at least least us.
func newPredictor(cs []coeff.Coefficient, fs []Feature, least float64) *Predictor {
	p := &Predictor{values: coeff.Values(cs), limits: make([]float64, len(cs)), learned: make([]bool, len(cs)), terms: fs, least: least}
	for i := range cs {
		p.learned[i] = true
		p.limits[i] = math.Inf(1)
		if cs[i].Range != nil {
			p.limits[i] = extrapolationFactor * cs[i].Range[1]
		}
	}
	return p
}

// NotLearned returns the 1-based slots of time-like beta terms (those whose feature is in seconds and whose coefficient
// multiplies it: [Feature.IsTime]) whose cost the training data do not determine: coefficient 0, or prior-only
// (spec#not-learned). A term with Evidence is none of them: its set has a prior, in which 0 is a cost that was measured
// or believed. A set with fewer terms than its version has, which only a file without a feature_set may be, is read as
// far as it goes.
func NotLearned(s *coeff.Set) []int {
	var slots []int
	for i, f := range BetaFeatures(s.SpecVersion) {
		if i >= len(s.Beta) || !f.IsTime() {
			continue
		}
		c := &s.Beta[i]
		if c.Evidence == "" && (c.Value == 0 || c.Identified == coeff.PriorOnly) {
			slots = append(slots, i+1)
		}
	}
	return slots
}

// Predict returns the prediction in us: at least 1 for a step, 0 for a delay. x has one value per
// slot, hits are the slots that [Space.Beta] or [Space.Alpha] clipped. It allocates nothing unless
// it fails. Codes: WrongFeatureSet, BadInput.
func (p *Predictor) Predict(x []float64, hits Hits) (float64, error) {
	return p.PredictRow(x, 1, hits)
}

// PredictRow returns what Predict does for features summed over several steps. The training range
// and the least prediction are per step.
func (p *Predictor) PredictRow(x []float64, steps float64, hits Hits) (float64, error) {
	if len(x) != len(p.values) {
		return 0, trace.Errorf(WrongFeatureSet, "prediction: got a vector of %d, want %d", len(x), len(p.values))
	}
	sum := 0.0
	values := p.values[:len(x)]
	limits := p.limits[:len(x)]
	for i, v := range x {
		sum += values[i] * v
		if v > limits[i]*steps {
			p.beyond |= 1 << i
		}
	}
	p.bounded |= hits
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return 0, trace.Errorf(BadInput, "prediction: got %g us, want a finite number", sum)
	}
	if least := p.least * steps; sum < least {
		return least, nil
	}
	return sum, nil
}

// quantity returns a value and its unit as text; a ratio has none.
func quantity(v float64, unit string) string {
	return strings.TrimSuffix(fmt.Sprintf("%.4g %s", v, unit), " 1")
}

// Warnings returns, one finding per slot, why the predictions so far may be wrong: features beyond
// the training range, then clipped ones.
func (p *Predictor) Warnings() []trace.Finding {
	var fs []trace.Finding
	for _, slot := range p.beyond.Slots() {
		name := p.terms[slot-1].Name
		if !p.learned[slot-1] {
			fs = append(fs, trace.Findingf(coeff.OutsideTraining, "%s is part of a prediction, but the training data did not teach its cost", name))
			continue
		}
		fs = append(fs, trace.Findingf(coeff.OutsideTraining, "%s exceeds 1.5 x its training maximum %s", name,
			quantity(p.limits[slot-1]/extrapolationFactor, p.terms[slot-1].Unit())))
	}
	for _, slot := range p.bounded.Slots() {
		fs = append(fs, trace.Findingf(FeatureOutOfRange, "%s exceeds its bound %s and was clipped", p.terms[slot-1].Name,
			quantity(p.terms[slot-1].Bound, p.terms[slot-1].Unit())))
	}
	return fs
}
