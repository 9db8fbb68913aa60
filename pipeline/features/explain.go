package features

// This file explains one vector of features for people: every slot's formula with its numbers, and
// what each adds to the prediction.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
)

// Explanation shows how one vector was computed: inputs, constants, and every slot's formula with its
// numbers.
type Explanation struct {
	SpecVersion Version     `json:"spec_version"`
	Model       string      `json:"model"` // beta | alpha
	Inputs      []Quantity  `json:"inputs"`
	Constants   []Quantity  `json:"constants"`
	Features    []Explained `json:"features"`
	Factors     []Factor    `json:"factors"` // after the terms; null without a coefficient set
	// PredictionUs is the sum of the contributions and of what the factors add, at least coeff.MinStepUs: what a
	// simulation charges. Null without coefficients.
	PredictionUs *float64 `json:"prediction_us"`
	// FloorUs is the physical floor of a step (spec#physical-floor); null for alpha.
	FloorUs *float64 `json:"physical_floor_us"`
}

// Factor multiplies terms on one deployment. Factors are applied in order.
type Factor struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	AddedUs float64 `json:"added_us"` // to the step, by this factor after those before it
}

// Explained is one slot of an Explanation.
type Explained struct {
	Slot           int      `json:"slot"`
	Name           string   `json:"name"`
	Kind           Kind     `json:"kind"`
	Doc            string   `json:"doc"`
	Formula        string   `json:"formula"`
	Numbers        string   `json:"numbers"` // the formula with values in place of names
	Value          float64  `json:"value"`
	Unit           string   `json:"unit"`
	BoundHit       bool     `json:"bound_hit"`
	Coefficient    *float64 `json:"coefficient"`
	CoefUnit       string   `json:"coefficient_unit"`
	ContributionUs *float64 `json:"contribution_us"`
}

// ExplainBeta returns the explanation of a step's vector. coefficients has one for each slot, or is
// nil. Codes: as Beta.
func (s *Space) ExplainBeta(in *StepInput, coefficients []float64) (*Explanation, error) {
	x := make([]float64, len(s.beta))
	hits, err := s.Beta(in, x)
	if err != nil {
		return nil, err
	}
	e := s.explain("beta", s.inputs(in), s.beta, x, hits)
	e.FloorUs = new(s.FloorUs(in))
	return e, e.predict(coefficients)
}

// inputs returns the quantities that the formulas of a step name.
func (s *Space) inputs(in *StepInput) []Quantity {
	if Layered(s.version) {
		return append(in.Values(), s.layerSums(in)...)
	}
	return in.Values()
}

// ExplainOn explains the prediction of a coefficient set for a step on a deployment: the
// coefficients, the prompt factor on the terms of prompt work, the deployment's factor (else its
// device's) on all terms, and the prediction. It also returns the predictor, which has the
// warnings. Codes: as Beta and Predict.
func (s *Space) ExplainOn(in *StepInput, set *coeff.Set, d *deploy.Deployment) (*Explanation, *Predictor, error) {
	e, err := s.ExplainBeta(in, coeff.Values(set.Beta))
	if err != nil {
		return nil, nil, err
	}
	x := make([]float64, len(e.Features))
	hits := Hits(0)
	promptUs := 0.0 // of the terms of prompt work, before factors
	for i := range e.Features {
		f := &e.Features[i]
		x[i] = f.Value
		if f.BoundHit {
			hits |= 1 << i
		}
		if s.beta[i].Prompt {
			promptUs += *f.ContributionUs
		}
	}
	// The prompt factor is applied first, so that the deployment's multiplies what it added, too.
	prompt := promptFactorOn(set, d)
	all := factorOn(set, d)
	addedUs := (prompt - 1) * promptUs
	e.Factors = []Factor{
		{Name: "prompt factor", Value: prompt, AddedUs: addedUs},
		{Name: "deployment factor", Value: all, AddedUs: (all - 1) * (*e.PredictionUs + addedUs)},
	}
	p := BetaPredictor(On(set, d))
	us, err := p.Predict(x, hits)
	e.PredictionUs = &us
	return e, p, err
}

// explain returns the slots fs of a vector x with their formulas and numbers.
func (s *Space) explain(model string, inputs []Quantity, fs []Feature, x []float64, hits Hits) *Explanation {
	sc := s.scope(inputs, fs, x)
	e := &Explanation{SpecVersion: s.version, Model: model, Inputs: inputs, Constants: s.constants()}
	for i := range fs {
		f := &fs[i]
		e.Features = append(e.Features, Explained{
			Slot: f.Slot, Name: f.Name, Kind: f.Kind, Doc: f.Doc, Formula: f.Formula, Numbers: sc.numbers(f.Formula),
			Value: x[i], Unit: f.Unit(), BoundHit: hits.has(f.Slot), CoefUnit: f.CoefficientUnit(),
		})
	}
	return e
}

// scope returns the values of all names that a formula may use: constants, inputs, slots.
func (s *Space) scope(inputs []Quantity, fs []Feature, x []float64) *scope {
	sc := &scope{space: s, values: map[string]float64{}}
	for i := range fs {
		sc.values[fs[i].Name] = x[i]
	}
	for _, list := range [][]Quantity{s.constants(), inputs} {
		for _, q := range list {
			sc.values[q.Name] = q.Value
		}
	}
	return sc
}

// predict fills in the coefficients, contributions and their sum as prediction; nothing without
// coefficients.
func (e *Explanation) predict(coefficients []float64) error {
	if coefficients == nil {
		return nil
	}
	if len(coefficients) != len(e.Features) {
		return wrongLength(e.Model+" coefficients for", len(coefficients), len(e.Features))
	}
	sum := 0.0
	for i := range e.Features {
		c := coefficients[i]
		part := coefficients[i] * e.Features[i].Value
		e.Features[i].Coefficient = &c
		e.Features[i].ContributionUs = &part
		sum += part
	}
	e.PredictionUs = &sum
	return nil
}
