package features

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
)

// factorOn is what every term of a step on the deployment takes relative to the
// common coefficients.
func factorOn(s *coeff.Set, d *deploy.Deployment) float64 {
	if v, known := named(s.DeploymentFactors, d.Config(), d.Label()); known {
		return v
	}
	v, _ := named(s.HardwareFactors, d.Hardware.Name)
	return v
}

// promptFactorOn is what the terms of prompt work take on top of factorOn.
func promptFactorOn(s *coeff.Set, d *deploy.Deployment) float64 {
	v, _ := named(s.PromptFactors, d.Config(), d.Label())
	return v
}

// named is the factor of the first name that has one, else 1.
func named(factors map[string]float64, names ...string) (value float64, known bool) {
	for _, name := range names {
		if f, known := factors[name]; known {
			return f, true
		}
	}
	return 1, false
}

// On is the set as it holds on one deployment: beta and its covariance times the
// deployment's factors, alphas with the deployment's values, nothing left to apply.
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

// scale multiplies a coefficient with all that is said of it.
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

// forgetIntervals is for a value that nothing was estimated of.
func forgetIntervals(c *coeff.Coefficient) {
	c.CI95 = nil
	c.Estimate = nil
	c.EstimateCI95 = nil
}

// termFactors is one factor per beta term.
func termFactors(s *coeff.Set, all, prompt float64) []float64 {
	out := make([]float64, len(s.Beta))
	for i, f := range BetaFeatures(s.SpecVersion) {
		if i >= len(out) {
			break
		}
		out[i] = all
		if f.Prompt {
			out[i] = all * prompt
		}
	}
	return out
}

// alphaOn is the set with the alpha values of one deployment. They have no
// intervals: those are for the common values.
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
