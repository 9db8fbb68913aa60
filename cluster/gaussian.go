package cluster

// This file is the Gaussian process with which a policy's parameters are tuned (maximise.go).

import (
	"math"

	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/stat"
)

// process is a Gaussian process on the unit cube with a Matern 5/2 kernel, one length scale per
// dimension, known noise of each observation, and standardised values (mean 0, standard deviation
// 1).
//
// Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), algorithm 2.1 and
// equation 4.17.
type process struct {
	x           [][]float64 // observed points
	mean, scale float64     // of the observed values: a value is mean + scale * its standardised value
	alpha       []float64   // K^-1 z: K the covariance matrix with noise, z the standardised values
	chol        []float64   // lower Cholesky factor of K, row by row
	noise       []float64   // noise variance of each standardised value
	lengths     []float64   // of each dimension, in units of the cube
	amp         float64     // kernel variance, of the standardised values
}

// jitter is added to the diagonal so that the matrix stays positive definite.
const jitter = 1e-6

// kernel returns the prior covariance of the function at points a and b.
func (p *process) kernel(a, b []float64) float64 {
	r2 := 0.0
	for k := range a {
		d := (a[k] - b[k]) / p.lengths[k]
		r2 += d * d
	}
	r := math.Sqrt(5 * r2)
	return p.amp * (1 + r + r*r/3) * math.Exp(-r)
}

// fitProcess returns a process whose length scales and amplitude maximise the posterior density
// given values y at points x, where variance is the noise variance of each y. Weak log-normal
// priors keep the length scales between a tenth and a few times the side of the cube.
func fitProcess(x [][]float64, y, variance []float64) *process {
	p := &process{
		x:       x,
		mean:    stat.Mean(y),
		noise:   make([]float64, len(y)),
		lengths: make([]float64, len(x[0])),
	}
	for _, v := range y {
		p.scale += (v - p.mean) * (v - p.mean)
	}
	if p.scale = math.Sqrt(p.scale / float64(len(y))); !(p.scale > 0) {
		p.scale = 1
	}
	standardised := make([]float64, len(y))
	for i, v := range y {
		standardised[i] = (v - p.mean) / p.scale
		p.noise[i] = variance[i] / p.scale / p.scale
	}
	// The negative log posterior of theta, the logarithms of the length scales and then of the
	// amplitude: their priors, normal around log 0.5 with deviation 1.2 and around 0 with deviation 2,
	// less the log likelihood of the values. It leaves p with these hyperparameters.
	cost := func(theta []float64) float64 {
		sum := 0.0
		for k := range p.lengths {
			p.lengths[k] = math.Exp(theta[k])
			deviation := (theta[k] - math.Log(0.5)) / 1.2
			sum += deviation * deviation / 2
		}
		logAmp := theta[len(theta)-1]
		p.amp = math.Exp(logAmp)
		sum += logAmp * logAmp / 8
		return sum - p.solve(standardised)
	}
	start := make([]float64, len(p.lengths)+1)
	for k := range p.lengths {
		start[k] = math.Log(0.5)
	}
	best := append([]float64(nil), start...)
	value := math.Inf(1)
	// The posterior can have several maxima: search from three starts, and keep the best.
	for _, shift := range []float64{0, -0.9, 0.7} {
		from := append([]float64(nil), start...)
		for k := range p.lengths {
			from[k] += shift
		}
		res, _ := optimize.Minimize(optimize.Problem{Func: cost}, from,
			&optimize.Settings{FuncEvaluations: 40 * len(start)},
			&optimize.NelderMead{})
		// A search that ends with an error, such as its limit of evaluations, has still found something.
		if res != nil && res.F < value {
			value = res.F
			best = append(best[:0], res.X...)
		}
	}
	cost(best) // sets p
	return p
}

// solve factors the covariance matrix of the current hyperparameters into p.chol, sets p.alpha, and
// returns the log marginal likelihood of the standardised values z; -Inf if the matrix is not
// positive definite.
func (p *process) solve(z []float64) float64 {
	points := len(z)
	covariance := make([]float64, points*points)
	for i := range points {
		for j := range i + 1 {
			covariance[i*points+j] = p.kernel(p.x[i], p.x[j])
			covariance[j*points+i] = covariance[i*points+j]
		}
		covariance[i*points+i] += p.noise[i] + jitter
	}
	if stat.Cholesky(covariance, points) < points {
		return math.Inf(-1)
	}
	p.chol = covariance
	p.alpha = append([]float64(nil), z...)
	stat.CholeskySolve(covariance, points, p.alpha)
	// -(n log 2pi + log det K + z' K^-1 z)/2, where the factor's diagonal gives the determinant.
	logLikelihood := -float64(points) / 2 * math.Log(2*math.Pi)
	for i := range points {
		logLikelihood -= math.Log(covariance[i*points+i]) + z[i]*p.alpha[i]/2
	}
	return logLikelihood
}

// predictAt returns the posterior mean and standard deviation of the function at x in the unit of
// the values, without observation noise.
func (p *process) predictAt(x []float64) (mean, sd float64) {
	n := len(p.x)
	k := make([]float64, n)
	for i := range n {
		k[i] = p.kernel(x, p.x[i])
		mean += k[i] * p.alpha[i]
	}
	v := append([]float64(nil), k...)
	stat.CholeskySolve(p.chol, n, v)
	rest := p.amp
	for i := range n {
		rest -= k[i] * v[i]
	}
	return p.mean + p.scale*mean, p.scale * math.Sqrt(math.Max(1e-12, rest))
}

// normalBelow returns the probability that a standard normal variable is below x.
func normalBelow(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// logImprovement returns the logarithm of the expected improvement over best of a normal variable
// with a mean and standard deviation. Far below best, where the difference phi(u) + u*Phi(u) would
// cancel, the continued fraction of Mills' ratio gives it: phi(x)/(1 + x*k) with x = -u and
// k = x + 2/(x + 3/(x + ...)).
func logImprovement(mean, sd, best float64) float64 {
	u := (mean - best) / sd
	if u < -6 {
		x := -u
		k := x
		for n := 20.0; n >= 2; n-- {
			k = x + n/k
		}
		return math.Log(sd) - u*u/2 - math.Log(2*math.Pi)/2 - math.Log1p(x*k)
	}
	return math.Log(sd) + math.Log(math.Exp(-u*u/2)/math.Sqrt(2*math.Pi)+u*normalBelow(u))
}
