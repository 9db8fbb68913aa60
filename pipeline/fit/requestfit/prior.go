package requestfit

// This file has the prior distributions of coefficients that a fit of requests starts from.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
)

// Prior is the prior distribution of the coefficients.
type Prior struct {
	Name string     // for messages
	Set  *coeff.Set // its values are the mean; its covariance covers the step time
}

// Roofline returns a wide prior around the hardware's peak, for deployments that no kernel
// library covers.
func Roofline(d *deploy.Deployment) *Prior {
	v := features.V12
	if features.DefaultVersion(d) == features.V13 {
		v = features.V13
	}
	set := emptySet(v)
	n := len(set.Beta)
	set.Covariance = make([][]float64, n)
	for j, f := range features.BetaFeatures(set.SpecVersion) {
		set.Covariance[j] = make([]float64, n)
		mean, sd := rooflineOf(f)
		set.Beta[j].Value = mean
		set.Covariance[j][j] = sd * sd
	}
	return &Prior{Name: "roofline", Set: set}
}

// rooflineOf returns the prior mean and standard error of one term without a library, us/s or us:
// device work runs at its peak or a few times slower, host work takes about a millisecond a step.
func rooflineOf(f features.Feature) (mean, sd float64) {
	switch {
	case f.Name == "bias":
		return 1000, 3000
	case f.Name == "batch_utilization" || !f.IsTime(): // no work of the device: stays 0
		return 0, 0
	case f.Name == "weight_load_hidden" || f.Name == "activation_traffic": // may be hidden by other work
		return 0, 5e5
	}
	return fit.RooflinePrior, 1.5 * fit.RooflinePrior
}

// emptySet returns a coefficient set of a version whose values are all 0.
func emptySet(v features.Version) *coeff.Set {
	set := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion,
		SpecVersion:   v,
		FeatureSet:    features.SetOf(v),
		Recipe:        "relative",
		BetaTarget:    coeff.Cadence,
		Gamma:         features.DefaultGamma,
		Beta:          features.NewCoefficients(features.BetaFeatures(v)),
	}
	for _, target := range []string{coeff.Egress, coeff.Overhead} {
		set.Alpha = append(set.Alpha, coeff.AlphaModel{
			Target:       target,
			Replay:       true,
			Coefficients: features.NewCoefficients(features.AlphaFeatures(v)),
		})
	}
	return set
}

// Prior of the delays outside the engine for a set that has none: mean and standard
// error, us. They allow for milliseconds of HTTP handling and tokenization, and a few
// microseconds for each prompt token.
const (
	overheadUs, overheadSD = 3000, 10_000
	egressUs, egressSD     = 500, 3000
	promptTokenSD          = 3 // us per prompt token before the queue
)
