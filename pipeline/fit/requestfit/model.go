package requestfit

// This file has what a fit may change: the free coefficients with their prior distribution, and the way
// from their values to a coefficient set and to the simulator.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// delayTargets are the delays that are fitted, in the order of the simulator's columns.
var delayTargets = [...]string{coeff.Overhead, coeff.Egress}

// model is the prior distribution of the free columns: the coefficients that the fit may change. A
// column is one derivative of the simulator: of a step-time term, or of a term of a delay.
type model struct {
	prior *Prior // that it was made of
	name  string
	set   *coeff.Set // coefficients of the prior
	names []string   // of the free columns, target/term
	free  []int      // columns of the simulator's derivatives
	beta  int        // number of free columns of the step time

	mean, sd  []float64 // of the free columns, under the prior
	precision []float64 // the inverse of the prior's covariance, len(free)^2
	// columns are the numbers of the simulator's derivatives (sim.Columns), in this order. One more follows,
	// by sim.Config.TokenUs, which is never free.
	columns struct{ step, overhead, egress int }
}

// newModel returns a model in which the terms are free whose prior has a variance. A set's separate
// coefficients of single deployments stay fixed, and factors of a set are multiplied in for
// deployment d.
func newModel(p *Prior, d *deploy.Deployment) (*model, error) {
	// A library set is that of the deployment already and has no factors.
	set := *p.Set
	if len(set.DeploymentFactors)+len(set.PromptFactors)+len(set.HardwareFactors) > 0 || set.Library == nil {
		set = *features.On(p.Set, d)
	}
	m := &model{prior: p, name: p.Name, set: &set}
	n := len(features.AlphaFeatures(set.SpecVersion))
	m.columns.step = len(set.Beta)
	m.columns.overhead = n
	m.columns.egress = n
	// The set gets a model of each delay in delayTargets, with coefficients 0 where it has none.
	full := emptySet(set.SpecVersion)
	for i := range full.Alpha {
		if a := set.AlphaModel(full.Alpha[i].Target); a != nil {
			full.Alpha[i] = *a
		}
	}
	set.Alpha = full.Alpha
	// Step-time terms are free if the prior has a variance for them.
	var cov [][]float64
	for j, c := range set.Beta {
		if len(set.Covariance) == len(set.Beta) && set.Covariance[j][j] > 0 {
			row := slices.Clone(set.Covariance[j])
			if set.Library != nil {
				row[j] += termSD * termSD * c.Value * c.Value
			}
			m.addFree(j, stepPrefix+c.Name, c.Value, math.Sqrt(row[j]))
			cov = append(cov, row)
		}
	}
	m.beta = len(m.free)
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	m.delays(space)
	return m, m.invert(cov)
}

// stepPrefix begins the names of the terms of the step time.
const stepPrefix = "step/"

// addFree makes a column of the simulator free, with its prior mean and standard error.
func (m *model) addFree(column int, name string, mean, sd float64) {
	m.free = append(m.free, column)
	m.names = append(m.names, name)
	m.mean = append(m.mean, mean)
	m.sd = append(m.sd, sd)
}

// delays makes the terms of the delays outside the engine free (overhead before the queue, egress
// after the engine): their constants, and the overhead's work per prompt token. A delay that the set
// does not have gets the wide prior of overheadUs and egressUs.
func (m *model) delays(space *features.Space) {
	// prompt[j] is what 1,000 prompt tokens add to column j of the overhead, in its own unit.
	prompt := make([]float64, m.columns.overhead)
	in := features.QueueInput{PromptTokens: 1000, KVFreeBlocks: 1}
	_, _ = space.Alpha(&in, prompt)
	for place, target := range delayTargets {
		delay := m.set.AlphaModel(target)
		first := m.columns.step + place*m.columns.overhead
		isOverhead := target == coeff.Overhead
		for j, feature := range features.AlphaFeatures(m.set.SpecVersion) {
			name := target + "/" + feature.Name
			mean := delay.Coefficients[j].Value
			switch {
			case feature.Name == "base_bias" && isOverhead && mean == 0:
				m.addFree(first+j, name, overheadUs, overheadSD)
			case feature.Name == "base_bias" && isOverhead: // stated by the set: known to about its own size
				m.addFree(first+j, name, mean, mean)
			case feature.Name == "base_bias":
				m.addFree(first+j, name, max(mean, egressUs), egressSD)
			case feature.Name == "admission_compute" && isOverhead && prompt[j] > 0:
				m.addFree(first+j, name, mean, promptTokenSD*1000/prompt[j])
			}
		}
	}
}

// invert makes the precision matrix of the free columns. Step terms are correlated, by cov; delays
// are independent.
func (m *model) invert(cov [][]float64) error {
	// The covariance is inverted in units of the standard errors, because the units of terms differ by
	// orders of magnitude.
	n := len(m.free)
	scaled := make([]float64, n*n)
	for k := range n {
		scaled[k*n+k] = 1
	}
	for k := range m.beta {
		for l := range m.beta {
			scaled[k*n+l] = cov[k][m.free[l]] / (m.sd[k] * m.sd[l])
		}
		scaled[k*n+k] += ridgeShare
	}
	inverse := stat.Inverse(scaled, n)
	if inverse == nil {
		return trace.Errorf(coeff.ImpossibleCoefficient, "prior %s: got a covariance that is not positive definite", m.name)
	}
	for k := range n {
		for l := range n {
			inverse[k*n+l] /= m.sd[k] * m.sd[l]
		}
	}
	m.precision = inverse
	return nil
}

// termSD is the relative standard error that every term of a library set has of its own, in
// addition to the common error of the kernel sums. It lets the regimes of a server err differently,
// although requests show few regimes.
const termSD = 0.2

// ridgeShare is the variance, relative to a term's own, that is added to every term, because the
// covariance of the library's deployments is singular.
const ridgeShare = 1e-4

// setOf returns the prior's coefficient set with the values of a candidate.
func (m *model) setOf(values []float64) *coeff.Set {
	set := *m.set
	set.Beta = append([]coeff.Coefficient(nil), m.set.Beta...)
	set.Alpha = append([]coeff.AlphaModel(nil), m.set.Alpha...)
	for t := range set.Alpha {
		set.Alpha[t].Coefficients = append([]coeff.Coefficient(nil), m.set.Alpha[t].Coefficients...)
	}
	for k, v := range values {
		m.coefficientOf(&set, k).Value = v
	}
	return &set
}

// coefficientOf returns the coefficient in the set of free column k.
func (m *model) coefficientOf(set *coeff.Set, k int) *coeff.Coefficient {
	j := m.free[k]
	if j < m.columns.step {
		return &set.Beta[j]
	}
	target := coeff.Overhead
	if j -= m.columns.step; j >= m.columns.overhead {
		j, target = j-m.columns.overhead, coeff.Egress
	}
	return &set.AlphaModel(target).Coefficients[j]
}

// parts returns the simulator's latency models with the coefficients of a candidate.
func (m *model) parts(d *deploy.Deployment, values []float64) (sim.Parts, error) {
	set := m.setOf(values)
	step, err := sim.NewPhysics(set, d)
	if err != nil {
		return sim.Parts{}, err
	}
	overhead, err := sim.NewAlphaDelay(set, coeff.Overhead, d)
	if err != nil {
		return sim.Parts{}, err
	}
	egress, err := sim.NewAlphaDelay(set, coeff.Egress, d)
	return sim.Parts{Step: step, Overhead: overhead, Egress: egress}, err
}

// theta returns the coefficients of a candidate on the load's deployment, fixed ones included, in the
// order of the simulator's columns.
func (m *model) theta(load *Load, values []float64) []float64 {
	c := m.columns
	out := make([]float64, c.step+c.overhead+c.egress+1)
	set := features.On(m.setOf(values), load.Deployment)
	for j := range set.Beta {
		out[j] = set.Beta[j].Value
	}
	for t, target := range delayTargets {
		for j, v := range set.AlphaModel(target).Coefficients {
			out[c.step+t*c.overhead+j] = v.Value
		}
	}
	return out
}
