package ridge

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// fromPosterior marks the intervals of a fit with a prior.
const fromPosterior = "posterior"

// Posterior builds the intervals of a fit with a prior (Options.Prior and Precision)
// around its own values (spec#posterior). With A = G/Q + lambda*P, G the Gram of the
// rows with weights from predictions and Q its sum w*y^2, the error of the posterior
// mean is A^-1 (score - lambda*P*(truth - prior)). The score's variance V comes from
// blocks of each run, as in Confidence; that of the truth about the prior is P^-1. So the
// covariance is A^-1 (V + lambda^2*P) A^-1, which is the textbook lambda*A^-1 where
// lambda is the rows' own noise, and right for the lambda that was chosen where it is
// not. Half widths take Student's quantile: the score's variance has as many degrees of
// freedom as there are blocks beyond one a run, the prior's is known (Satterthwaite).
// Signed terms are cut at 0. Without precision, or where A cannot be inverted, no term has
// an interval.
func (d *Data) Posterior(fit Fit, o Options) Confidence {
	p := d.P
	out := Confidence{Terms: make([]Interval, p), Covariance: make([]float64, p*p), Posterior: true}
	blocks := rowBlocks(d, PredictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(p)
	runs := map[int32]bool{}
	for _, b := range blocks {
		total.Add(b.Gram)
		runs[b.Run] = true
	}
	out.Blocks = len(blocks)
	if o.Precision == nil || total.Q <= 0 {
		return out.unknown()
	}
	inv := posteriorInverse(total, fit.Lambda, o.Precision)
	if inv == nil {
		return out.unknown()
	}
	score, prior := scoreVariance(blocks, total.Q, fit.Beta), make([]float64, p*p)
	for k, v := range o.Precision {
		prior[k] = fit.Lambda * fit.Lambda * v
	}
	sandwich(inv, score, p, out.Covariance)
	sandwich(inv, prior, p, prior)
	out.JackSE = make([]float64, p)
	for j := range out.Terms {
		t, v := &out.Terms[j], out.Covariance[j*p+j]
		all := v + prior[j*p+j]
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

// studentQuantile is the half width in standard errors that holds the level; from a
// million degrees of freedom on the normal one, and without a variance too.
func studentQuantile(freedom float64) float64 {
	const many = 1e6
	if !(freedom < many) {
		freedom = many
	}
	return stat.StudentT(0.5+level/2, freedom)
}

// posteriorInverse is (G/Q + lambda*P)^-1; nil where that is not positive definite.
func posteriorInverse(g *Gram, lambda float64, precision []float64) []float64 {
	p := g.P
	a, sd := make([]float64, p*p), make([]float64, p)
	for k := range a {
		a[k] = g.G[k]/g.Q + float64(lambda*precision[k])
	}
	for j := range sd {
		sd[j] = math.Sqrt(a[j*p+j])
	}
	for k := range a {
		a[k] /= sd[k/p] * sd[k%p]
	}
	if stat.Cholesky(a, p) < p {
		return nil
	}
	inv := stat.CholeskyInverse(a, p)
	for k := range inv {
		inv[k] /= sd[k/p] * sd[k%p]
	}
	return inv
}

// scoreVariance is the variance of the score sum w*x*(y - x.beta)/Q over blocks drawn
// within their runs.
func scoreVariance(blocks []BlockGram, q float64, beta []float64) []float64 {
	p := len(beta)
	out := make([]float64, p*p)
	for from := 0; from < len(blocks); {
		to := from
		var scores [][]float64
		mean := make([]float64, p)
		for ; to < len(blocks) && blocks[to].Run == blocks[from].Run && blocks[to].Config == blocks[from].Config; to++ {
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
				out[k] += float64(n / (n - 1) * (s[k/p] - mean[k/p]/n) * (s[k%p] - mean[k%p]/n))
			}
		}
	}
	return out
}

// sandwich writes inv*middle*inv, all p x p and symmetric; out may be middle.
func sandwich(inv, middle []float64, p int, out []float64) {
	half := make([]float64, p*p)
	for j := range p {
		for k := range p {
			for i := range p {
				half[j*p+k] += float64(inv[j*p+i] * middle[i*p+k])
			}
		}
	}
	for j := range p {
		for k := range p {
			out[j*p+k] = Dot(half[j*p:(j+1)*p], inv[k*p:(k+1)*p])
		}
	}
}
