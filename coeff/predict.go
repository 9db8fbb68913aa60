package coeff

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// extrapolationFactor is how far above its training maximum a feature may lie before a prediction
// warns (spec#training-range).
const extrapolationFactor = 1.5

// Least predictions for use (spec#prediction-use), us.
const (
	minStepUs  = 1
	minDelayUs = 0
)

// Predictor turns feature vectors of one model into microseconds, and remembers
// the slots that lay outside what was learned, once each. It is not safe for
// concurrent use.
type Predictor struct {
	values   []float64
	limits   []float64 // 1.5 x training maximum, +Inf when unknown, 0 when not learned
	features []features.Feature
	learned  []bool
	least    float64

	beyond  features.Hits // slots already warned about
	bounded features.Hits
}

// BetaPredictor returns a predictor of step times. Take it from On(hardware),
// so that the device's factor is in.
func (s *Set) BetaPredictor() *Predictor {
	p := newPredictor(s.Beta, features.BetaFeatures(s.SpecVersion), minStepUs)
	for _, slot := range s.NotLearned() {
		p.learned[slot-1], p.limits[slot-1] = false, 0
	}
	return p
}

// AlphaPredictor returns a predictor of the target's delay. Code: no_such_target.
func (s *Set) AlphaPredictor(target string) (*Predictor, error) {
	m := s.AlphaModel(target)
	if m == nil {
		return nil, trace.Errorf(noSuchTarget, "alpha target %q: got none in the coefficient set, want %s", target, trace.OneOf(s.AlphaTargets()))
	}
	return newPredictor(m.Coefficients, features.AlphaFeatures(s.SpecVersion), minDelayUs), nil
}

// DelayPredictor is AlphaPredictor for a delay that a replay adds itself; it
// refuses targets that contain a wait. Codes: no_such_target, wait_as_delay.
func (s *Set) DelayPredictor(target string) (*Predictor, error) {
	if m := s.AlphaModel(target); m != nil && !m.Replay {
		return nil, waitAsDelay(target)
	}
	return s.AlphaPredictor(target)
}

func waitAsDelay(target string) *trace.Error {
	return trace.Errorf(waitCounted, "alpha target %q contains a wait that a replay produces itself, want overhead or egress", target).
		WithHint("fit the overhead target, or give --overhead-us")
}

// AlphaTargets lists the set's alpha targets, sorted.
func (s *Set) AlphaTargets() []string {
	targets := make([]string, len(s.Alpha))
	for i := range s.Alpha {
		targets[i] = s.Alpha[i].Target
	}
	return targets
}

func newPredictor(cs []Coefficient, fs []features.Feature, least float64) *Predictor {
	p := &Predictor{values: Values(cs), limits: make([]float64, len(cs)), learned: make([]bool, len(cs)), features: fs, least: least}
	for i := range cs {
		p.learned[i] = true
		p.limits[i] = math.Inf(1)
		if cs[i].Range != nil {
			p.limits[i] = extrapolationFactor * cs[i].Range[1]
		}
	}
	return p
}

// NotLearned lists the 1-based slots of time-like beta terms that the data did not teach:
// coefficient 0, or prior-only (spec#not-learned).
func (s *Set) NotLearned() []int {
	var slots []int
	for i, f := range features.BetaFeatures(s.SpecVersion) {
		weighed := i < len(s.Beta) && s.Beta[i].Evidence != "" // the library: kernel times said how much, if only 0
		if i < len(s.Beta) && f.IsTime() && !weighed && (s.Beta[i].Value == 0 || s.Beta[i].Identified == PriorOnly) {
			slots = append(slots, i+1)
		}
	}
	return slots
}

// Predict returns the prediction for use: at least 1 us for a step, 0 for a
// delay. x has one value per slot, hits are the slots that features.Beta or
// Alpha said were bounded. It allocates nothing unless it fails. Codes:
// features.WrongNumberOfFeatures, not_finite.
func (p *Predictor) Predict(x []float64, hits features.Hits) (float64, error) {
	return p.PredictRow(x, 1, hits)
}

// PredictRow is Predict for features summed over several steps: the training
// range holds per step, and so does the least prediction.
func (p *Predictor) PredictRow(x []float64, steps float64, hits features.Hits) (float64, error) {
	if len(x) != len(p.values) {
		return 0, trace.Errorf(features.WrongNumberOfFeatures, "prediction: got a vector of %d, want %d", len(x), len(p.values))
	}
	sum := 0.0
	for i, v := range x {
		sum += float64(p.values[i] * v)
		if v > p.limits[i]*steps {
			p.beyond |= 1 << i
		}
	}
	p.bounded |= hits
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return 0, trace.Errorf(notFinite, "prediction: got %g us, want a finite number", sum)
	}
	if least := p.least * steps; sum < least {
		return least, nil
	}
	return sum, nil
}

// quantity is a value and its unit as text; a ratio has none.
func quantity(v float64, unit string) string {
	return strings.TrimSuffix(fmt.Sprintf("%.4g %s", v, unit), " 1")
}

// Warnings returns what the predictions so far should not be trusted for, one
// finding per slot, in slot order.
func (p *Predictor) Warnings() []trace.Finding {
	var fs []trace.Finding
	for _, slot := range p.beyond.Slots() {
		name := p.features[slot-1].Name
		if !p.learned[slot-1] {
			fs = append(fs, trace.Findingf(termNotLearned, "%s is part of a prediction, but the training data did not teach its cost", name))
			continue
		}
		fs = append(fs, trace.Findingf(extrapolated, "%s exceeds 1.5 x its training maximum %s", name,
			quantity(p.limits[slot-1]/extrapolationFactor, p.features[slot-1].Unit())))
	}
	for _, slot := range p.bounded.Slots() {
		fs = append(fs, trace.Findingf(features.FeatureOutOfRange, "%s exceeds its bound %s and was clipped", p.features[slot-1].Name,
			quantity(p.features[slot-1].Bound, p.features[slot-1].Unit())))
	}
	return fs
}

// RoundUs rounds half up to the simulator's integer clock (spec#prediction-use).
func RoundUs(us float64) trace.Micros { return trace.Micros(math.Floor(us + 0.5)) }

// Predict returns one step's time in us without bookkeeping, at least 1. x has
// one value per beta slot.
func (s *Set) Predict(x []float64) float64 {
	sum := 0.0
	for i := range s.Beta {
		sum += float64(s.Beta[i].Value * x[i])
	}
	return max(minStepUs, sum)
}
