package features

// This file applies the factors that a coefficient set has for single deployments, devices and prompt
// work.

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
)

// factorOn returns the factor on every step term of a deployment, relative to the common
// coefficients: the deployment's own, else its device's, else 1.
func factorOn(s *coeff.Set, d *deploy.Deployment) float64 {
	if v, known := named(s.DeploymentFactors, d.Config(), d.Label()); known {
		return v
	}
	v, _ := named(s.HardwareFactors, d.Hardware.Name)
	return v
}

// promptFactorOn returns the deployment's factor on the terms of prompt work, on top of factorOn.
func promptFactorOn(s *coeff.Set, d *deploy.Deployment) float64 {
	v, _ := named(s.PromptFactors, d.Config(), d.Label())
	return v
}

// named returns the factor of the first name that has one, else 1.
func named(factors map[string]float64, names ...string) (value float64, known bool) {
	for _, name := range names {
		if f, known := factors[name]; known {
			return f, true
		}
	}
	return 1, false
}

// On returns the set for one deployment: beta and its covariance multiplied by the deployment's
// factors, alphas with the deployment's values, and no factors left to apply.
func On(s *coeff.Set, d *deploy.Deployment) *coeff.Set {
	s = alphaOn(s, d.Label())
	if len(s.DeploymentFactors) == 0 && len(s.PromptFactors) == 0 && len(s.HardwareFactors) == 0 {
		return s
	}
	factor := termFactors(s, factorOn(s, d), promptFactorOn(s, d))
	on := *s
	on.DeploymentFactors = nil
	on.PromptFactors = nil
	on.HardwareFactors = nil
	on.Beta = slices.Clone(s.Beta)
	for i := range on.Beta {
		scale(&on.Beta[i], factor[i])
	}
	on.Covariance = make([][]float64, len(s.Covariance))
	for i, row := range s.Covariance {
		on.Covariance[i] = make([]float64, len(row))
		for j, v := range row {
			on.Covariance[i][j] = v * factor[i] * factor[j]
		}
	}
	return &on
}

// scale multiplies a coefficient, its estimate and its intervals.
func scale(c *coeff.Coefficient, by float64) {
	c.Value *= by
	if c.Estimate != nil {
		c.Estimate = new(*c.Estimate * by)
	}
	for _, ci := range []**[2]float64{&c.CI95, &c.EstimateCI95} {
		if *ci != nil {
			*ci = &[2]float64{(*ci)[0] * by, (*ci)[1] * by}
		}
	}
}

// forgetIntervals removes estimate and intervals, for a value that was not estimated.
func forgetIntervals(c *coeff.Coefficient) {
	c.CI95 = nil
	c.Estimate = nil
	c.EstimateCI95 = nil
}

// termFactors returns the factor of each beta term: all, times prompt on the terms of prompt work.
func termFactors(s *coeff.Set, all, prompt float64) []float64 {
	out := make([]float64, len(s.Beta))
	for i, f := range BetaFeatures(s.SpecVersion) {
		if i >= len(out) { // the set has fewer terms than the version
			break
		}
		out[i] = all
		if f.Prompt {
			out[i] = all * prompt
		}
	}
	return out
}

// alphaOn returns the set with the alpha values of one deployment. These have no intervals, which
// were estimated for the common values.
func alphaOn(s *coeff.Set, label string) *coeff.Set {
	if !slices.ContainsFunc(s.Alpha, func(m coeff.AlphaModel) bool { return len(m.Deployments) > 0 }) {
		return s
	}
	on := *s
	on.Alpha = slices.Clone(s.Alpha)
	for i := range on.Alpha {
		m := &on.Alpha[i]
		if values, known := m.Deployments[label]; known {
			m.Coefficients = slices.Clone(m.Coefficients)
			m.Covariance = nil
			for j, v := range values {
				m.Coefficients[j].Value = v
				forgetIntervals(&m.Coefficients[j])
			}
		}
		m.Deployments = nil
	}
	return &on
}
