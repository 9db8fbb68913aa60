package requestfit

// This file writes a coefficient set in the form of a fit (fit.json), for exporters that read fits.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	llm "github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Document returns a coefficient set on one deployment in the form of a fit, because exporters read
// fits. It has the terms of the set, and as another model BLIS's trained-physics terms, fitted to
// the times that the set predicts for drawn batches within max_num_batched_tokens and max_num_seqs
// of the deployment.
func Document(set *coeff.Set, d *deploy.Deployment) (*result.Fit, error) {
	on := features.On(set, d)
	doc := &result.Fit{TrainingDate: on.TrainedOn.Date, FeatureSet: features.SetOf(on.SpecVersion),
		Configs: []result.FitConfig{{Key: d.Config(), Label: d.Label(), Deployment: *d, Runs: []string{}}}}
	doc.Inputs, doc.Command = on.Inputs, on.Command
	doc.Beta = modelOf("beta", on.BetaTarget, on.Beta)
	doc.Beta.SpecVersion = string(on.SpecVersion)
	doc.Beta.Recipe = on.Recipe
	doc.Beta.Covariance = on.Covariance
	doc.Beta.GammaEMA = new(on.Gamma)
	for i := range on.Alpha {
		a := &on.Alpha[i]
		m := modelOf("alpha", a.Target, a.Coefficients)
		base := a.Coefficients[overheadBase-1].Value
		m.Replay = a.Replay
		m.Covariance = a.Covariance
		m.Interval = &result.IntervalErrors{MedianPredUs: &base}
		m.TargetErrors = &result.TargetErrors{MedianPredUs: &base}
		doc.Alpha = append(doc.Alpha, m)
	}
	if on.AlphaModel(coeff.Egress) == nil { // a library set has all time outside the engine in the overhead
		m := modelOf("alpha", coeff.Egress, features.NewCoefficients(features.AlphaFeatures(on.SpecVersion)))
		m.Replay = true
		m.TargetErrors = &result.TargetErrors{MedianPredUs: new(0.0)}
		doc.Alpha = append(doc.Alpha, m)
	}
	m, err := trainedPhysics(on, d)
	switch {
	case err == nil:
		doc.Models = []result.Model{*m}
	case trace.CodeOf(err) != llm.BadModel: // BLIS rejects models with fewer KV heads than GPUs
		return nil, err
	}
	return doc, nil
}

// modelOf returns an entry of fit.json for one target that has the coefficients cs and nothing else.
func modelOf(name, target string, cs []coeff.Coefficient) result.Model {
	m := result.Model{Name: name, Target: target}
	for _, c := range cs {
		m.Coefficients = append(m.Coefficients, result.Coefficient{Coefficient: c})
	}
	return m
}

// documentLambda is the ridge penalty of the fit of BLIS's terms to a set.
const documentLambda = 3e-3

// overheadBase is the 1-based position of the overhead's constant, which an idle server has too.
const overheadBase = 4

// documentBatches is the number of drawn batches that BLIS's eleven terms are fitted to.
const documentBatches = 1200

// trainedPhysics returns BLIS's terms (features.TrainedPhysicsBeta) fitted to the set's predictions.
func trainedPhysics(on *coeff.Set, d *deploy.Deployment) (*result.Model, error) {
	tp, err := features.NewTrainedPhysics(d)
	if err != nil {
		return nil, err
	}
	space, err := features.New(on.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	rows := &ridge.Data{P: len(features.TrainedPhysicsBeta())}
	x := make([]float64, len(on.Beta)) // features of the set's version
	z := make([]float64, rows.P)       // features of BLIS
	q := fit.NewDraws(fit.BatchCoordinates, 1)
	var buf []trace.Chunk
	for i := range documentBatches {
		regime := int32(i) % fit.NumRegimes
		buf = fit.Within(q.Batch(regime, buf), &d.Engine)
		if hits, err := space.Beta(new(space.Sum(buf)), x); err != nil || hits != 0 || len(buf) == 0 {
			continue
		}
		tp.Beta(new(features.BasisSum(buf)), z)
		rows.X = append(rows.X, z...)
		rows.Y = append(rows.Y, on.Predict(x))
		rows.Config = append(rows.Config, 0)
		rows.Regime = append(rows.Regime, regime)
	}
	o := ridge.DefaultOptions(rows.P)
	o.Prior = make([]float64, rows.P)
	for j, t := range features.TrainedPhysicsBeta() {
		// One deployment cannot separate all terms. A prior at the hardware's peak divides
		// their sum sensibly; with a prior of 0, arbitrary ones of them would become 0.
		if t.Unit == "dimensionless" {
			o.Prior[j] = 1
		}
	}
	w := ridge.Weights(rows, o)
	best, _, err := ridge.FitPublished(rows, w, documentLambda, o)
	if err != nil {
		return nil, err
	}
	cs := make([]coeff.Coefficient, rows.P)
	for j, t := range features.TrainedPhysicsBeta() {
		cs[j] = coeff.Coefficient{Name: t.Name, Unit: t.Unit, Value: best.Beta[j], Identified: coeff.Within}
	}
	m := modelOf("trained-physics", on.BetaTarget, cs)
	pred := ridge.Predict(rows, best.Beta)
	// Errors of the conversion: how far BLIS's terms are from the set, as a factor in either direction.
	errors := make([]float64, len(pred))
	for i, y := range rows.Y {
		errors[i] = max(pred[i]/y, y/pred[i]) - 1
	}
	m.Holdout = &result.Errors{Rows: len(pred), MAPE: new(stat.Mean(errors))}
	return &m, nil
}
