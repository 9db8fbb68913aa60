package ridge

// This file has fits with a prior of known covariance: the penalty that makes them posterior means, their
// intervals, and how far the rows contradict the prior. The score is the gradient of the loss, the sum of
// w*x*(y - x.beta)/Q over the rows.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// fromPosterior is the Method of intervals around a posterior mean.
const fromPosterior = "posterior"

// Posterior returns the intervals of a fit with a prior (Options.Prior and Precision) around the
// fit's own values (spec#posterior).
//
// With A = G/Q + lambda*P, where G is the Gram matrix of the rows with weights from predictions, Q
// its sum w*y^2 and P the precision, the error of the posterior mean is A^-1 (score -
// lambda*P*(truth - prior)). The variance V of the score is estimated from blocks of each run, as
// in Confidence; the truth varies about the prior with covariance P^-1. So the covariance is A^-1
// (V + lambda^2*P) A^-1. It equals the textbook lambda*A^-1 if lambda is the noise of the rows, and
// stays right if it is not.
//
// Half widths use Student's quantile. The score's variance has one degree of freedom for each block
// beyond the first of its run, the prior's is known (Satterthwaite). Intervals of terms with a sign
// constraint end at 0. Without precision, or if A cannot be inverted, no term has an interval.
func (d *Data) Posterior(fit Fit, o Options) Confidence {
	p := d.P
	out := Confidence{Terms: make([]Interval, p), Covariance: make([]float64, p*p), Posterior: true}
	blocks := rowBlocks(d, predictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(p)
	runs := map[int32]bool{}
	for _, b := range blocks {
		total.Add(b.Gram)
		runs[b.Run] = true
	}
	if o.Precision == nil || total.Q <= 0 {
		return out.unknown()
	}
	inv := posteriorInverse(total, fit.Lambda, o.Precision)
	if inv == nil {
		return out.unknown()
	}
	score := scoreVariance(blocks, total.Q, fit.Beta)
	prior := make([]float64, p*p)
	for k, v := range o.Precision {
		prior[k] = fit.Lambda * fit.Lambda * v
	}
	sandwich(inv, score, p, out.Covariance)
	sandwich(inv, prior, p, prior)
	out.JackSE = make([]float64, p)
	for j := range out.Terms {
		t, v := &out.Terms[j], out.Covariance[j*p+j]
		all := v + prior[j*p+j]
		// Satterthwaite: of the sum of v, with the blocks' degrees of freedom, and a known variance.
		freedom := float64(max(1, len(blocks)-len(runs))) * (all / v) * (all / v)
		t.set(fromPosterior, fit.Beta[j], math.Sqrt(all), studentQuantile(freedom))
		if !o.IsFree(j) {
			t.Lo = math.Max(t.Lo, 0)
		}
		out.JackSE[j] = math.NaN()
	}
	for k, v := range prior {
		out.Covariance[k] += v
	}
	return out
}

// firstLambda is so small that the prior decides only directions that the rows do not
// determine. With a larger one the residuals would include the error of the prior.
const firstLambda = 1e-8

// NoiseLambda returns the lambda at which a fit with a prior of covariance cov is the posterior
// mean (spec#posterior): the variance of the score over blocks of each run divided by the
// information of the rows, both weighted by cov. For n independent rows of relative error e it is
// e^2/n.
func (d *Data) NoiseLambda(o Options, cov []float64) (float64, error) {
	fit, err := FitRows(d, Weights(d, o), nil, firstLambda, o)
	if err != nil {
		return 0, err
	}
	blocks := rowBlocks(d, predictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(d.P)
	for _, b := range blocks {
		total.Add(b.Gram)
	}
	var noise, information float64
	for k, v := range scoreVariance(blocks, total.Q, fit.Beta) {
		noise += v * cov[k]
		information += total.G[k] / total.Q * cov[k]
	}
	if !(noise > 0 && information > 0) {
		return firstLambda, nil // rows without noise, or too few blocks to estimate it
	}
	return noise / information, nil
}

// PriorDistance measures how far the rows lie from a prior.
type PriorDistance struct {
	Directions int     // in which the rows are more certain than the prior
	Distance   float64 // root mean square over them, in standard errors
	Limit      float64 // that one in a hundred truths drawn from the prior exceeds
}

// OffPrior returns how far the rows contradict a prior of covariance cov (spec#prior-contradicted).
// With cov = L*L' the coefficients are prior + L*theta, and theta is standard normal if the prior
// is right. The score of the rows at the prior, by theta, is H*theta plus noise, with H = L'*G*L/Q.
// Along an eigenvector of H with eigenvalue h it is h*theta_i plus noise of variance n, which is
// estimated over blocks of each run as in Posterior; there score/sqrt(h^2 + n) is standard normal.
//
// Only directions in which the rows are more certain than the prior count: h is above the half
// width t*sqrt(n) of the noise, t Student's quantile at the degrees of freedom of the noise, one
// for each block beyond the first of its run. If there are no such blocks, the noise is unknown and
// no direction counts. The mean square over k directions is compared with the quantile of the F
// distribution of k and of Satterthwaite's degrees of freedom of h^2 + n, the fewest of the
// directions. With many blocks t is 2, and k*F is chi-squared.
func (d *Data) OffPrior(fit Fit, o Options, cov []float64) PriorDistance {
	p := d.P
	blocks := rowBlocks(d, predictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(p)
	runs := map[int32]bool{}
	for _, b := range blocks {
		total.Add(b.Gram)
		runs[b.Run] = true
	}
	noiseFreedom := float64(len(blocks) - len(runs))
	if noiseFreedom < 1 || total.Q <= 0 {
		return PriorDistance{}
	}
	// H, and the score of the rows at the prior.
	up := transposedRoot(cov, p)
	h := Product(Product(up, total.G, p), transposed(up, p), p)
	score := make([]float64, p)
	for k := range h {
		h[k] /= total.Q
	}
	for j := range score {
		score[j] = (total.B[j] - Dot(total.G[j*p:(j+1)*p], o.Prior)) / total.Q
	}
	values, vectors, err := Eigen(Symmetric(h, p))
	if err != nil {
		return PriorDistance{}
	}
	noise := scoreVariance(blocks, total.Q, fit.Beta)
	var (
		out     PriorDistance
		sum     float64
		freedom = math.Inf(1)
		halfCI  = studentQuantile(noiseFreedom)
		least   = roundedValue * values[p-1]
	)
	for i, eigenvalue := range values {
		// Rounding leaves eigenvalues of about 0 for directions that nothing determines.
		if !(eigenvalue > least) {
			continue
		}
		in := make([]float64, p) // the direction among the coefficients
		for r := range p {
			for j := range p {
				in[j] += vectors.At(r, i) * up[r*p+j]
			}
		}
		var noiseVariance float64
		for j := range p {
			noiseVariance += in[j] * Dot(noise[j*p:(j+1)*p], in)
		}
		noiseVariance = math.Max(0, noiseVariance) // below zero by rounding
		if eigenvalue <= halfCI*math.Sqrt(noiseVariance) {
			continue
		}
		alongScore, variance := Dot(in, score), eigenvalue*eigenvalue+noiseVariance
		sum += alongScore * alongScore / variance
		freedom = math.Min(freedom, noiseFreedom*(variance/noiseVariance)*(variance/noiseVariance))
		out.Directions++
	}
	if k := float64(out.Directions); k > 0 {
		out.Distance = math.Sqrt(sum / k)
		f := distuv.F{D1: k, D2: math.Min(freedom, manyFreedom)}
		out.Limit = math.Sqrt(f.Quantile(contradictionLevel))
	}
	return out
}

const (
	// roundedValue is the eigenvalue of H, relative to the largest, up to which it is the
	// rounding error of a direction that the rows or the prior do not have. Those are at
	// 1e-17; a direction that the data decide is above 1e-6.
	roundedValue = 1e-12
	// contradictionLevel is the share of truths drawn from the prior that pass.
	contradictionLevel = 0.99
	// manyFreedom is the number of degrees of freedom from which on a Student or F
	// distribution is the normal or the chi-squared one.
	manyFreedom = 1e6
)

// transposedRoot returns L' of a covariance L*L', which may be singular.
func transposedRoot(cov []float64, p int) []float64 {
	l := slices.Clone(cov)
	stat.Cholesky(l, p)
	for k := range l {
		if k%p > k/p {
			l[k] = 0
		}
	}
	return transposed(l, p)
}

// transposed returns the transpose of a p x p matrix.
func transposed(a []float64, p int) []float64 {
	out := make([]float64, p*p)
	for k := range out {
		out[k] = a[k%p*p+k/p]
	}
	return out
}

// Product returns a*b, both p x p.
func Product(a, b []float64, p int) []float64 {
	out := make([]float64, p*p)
	for j := range p {
		for i := range p {
			for k := range p {
				out[j*p+k] += a[j*p+i] * b[i*p+k]
			}
		}
	}
	return out
}

// studentQuantile returns the half width of an interval of the package's level, in standard errors.
// From manyFreedom on, and for NaN, it is that of the normal distribution.
func studentQuantile(freedom float64) float64 {
	if !(freedom < manyFreedom) {
		freedom = manyFreedom
	}
	return stat.StudentT(0.5+level/2, freedom)
}

// posteriorInverse returns (G/Q + lambda*P)^-1; nil where that is not positive definite. The matrix
// is scaled to a diagonal of 1 before it is factored and scaled back after, because its terms
// differ by many orders of magnitude.
func posteriorInverse(g *Gram, lambda float64, precision []float64) []float64 {
	p := g.P
	a := make([]float64, p*p)
	scale := make([]float64, p) // square roots of the diagonal
	for k := range a {
		a[k] = g.G[k]/g.Q + lambda*precision[k]
	}
	for j := range scale {
		scale[j] = math.Sqrt(a[j*p+j])
	}
	for k := range a {
		a[k] /= scale[k/p] * scale[k%p]
	}
	if stat.Cholesky(a, p) < p {
		return nil
	}
	inv := stat.CholeskyInverse(a, p)
	for k := range inv {
		inv[k] /= scale[k/p] * scale[k%p]
	}
	return inv
}

// scoreVariance returns the p x p covariance matrix of the score, which is the sum of
// w*x*(y - x.beta)/Q over all rows, when the blocks of each run are drawn with replacement. A run
// of one block adds nothing.
func scoreVariance(blocks []BlockGram, q float64, beta []float64) []float64 {
	p := len(beta)
	out := make([]float64, p*p)
	for from := 0; from < len(blocks); {
		// Blocks of one run lie next to each other: [from, to) are those of the first's run.
		first := &blocks[from]
		to := from
		var scores [][]float64
		mean := make([]float64, p)
		for ; to < len(blocks) && blocks[to].Run == first.Run && blocks[to].Config == first.Config; to++ {
			g := blocks[to].Gram
			score := make([]float64, p)
			for j := range score {
				score[j] = (g.B[j] - Dot(g.G[j*p:(j+1)*p], beta)) / q
				mean[j] += score[j]
			}
			scores = append(scores, score)
		}
		n := float64(to - from)
		from = to
		if n < 2 {
			continue
		}
		for _, s := range scores {
			for k := range out {
				out[k] += n / (n - 1) * (s[k/p] - mean[k/p]/n) * (s[k%p] - mean[k%p]/n)
			}
		}
	}
	return out
}

// sandwich writes the product inv*middle*inv to out, all p x p and symmetric. out may be middle.
func sandwich(inv, middle []float64, p int, out []float64) {
	copy(out, Product(Product(inv, middle, p), inv, p))
}
