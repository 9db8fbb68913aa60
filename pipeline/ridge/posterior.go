package ridge

import (
	"math"
	"slices"

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

// firstLambda leaves the rows to themselves but for what they do not show: a prior far off would look like noise.
const firstLambda = 1e-8

// NoiseLambda is the lambda that the rows' own noise gives a prior of covariance cov, at which the fit is the textbook's posterior
// mean (spec#posterior): the variance of their score over blocks of each run by what they say, both where the prior is open. Of n
// independent rows of relative error e it is e^2/n.
func (d *Data) NoiseLambda(o Options, cov []float64) (float64, error) {
	fit, err := FitRows(d, Weights(d, o), nil, firstLambda, o)
	if err != nil {
		return 0, err
	}
	blocks := rowBlocks(d, PredictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(d.P)
	for _, b := range blocks {
		total.Add(b.Gram)
	}
	noise, said := 0.0, 0.0
	for k, v := range scoreVariance(blocks, total.Q, fit.Beta) {
		noise += v * cov[k]
		said += total.G[k] / total.Q * cov[k]
	}
	if !(noise > 0 && said > 0) {
		return firstLambda, nil // rows without noise, or too few blocks to show it
	}
	return noise / said, nil
}

// PriorDistance is how far the rows lie from a prior.
type PriorDistance struct {
	Directions int     // in which the rows say more than the prior
	Distance   float64 // root mean square over them, in standard errors
	Limit      float64 // that one in a hundred truths drawn from the prior exceeds
}

// OffPrior compares the rows with the prior of a fit, of covariance cov (spec#prior-contradicted). With cov = L*L' the
// coefficients are prior + L*theta, theta standard normal where the prior holds. The score of the rows at the prior, in
// theta, is H*theta and noise, H = L'*G*L/Q; along an eigenvector of H it is h*theta_i and noise of variance n, from
// blocks of each run as in Posterior. Where h^2 > 4n the rows decide: there score/sqrt(h^2 + n) is standard normal.
func (d *Data) OffPrior(fit Fit, o Options, cov []float64) PriorDistance {
	p := d.P
	blocks := rowBlocks(d, PredictionWeights(d, fit.Beta, o), fit.Beta, o)
	total := New(p)
	for _, b := range blocks {
		total.Add(b.Gram)
	}
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
	sum := 0.0
	var out PriorDistance
	for i, v := range values {
		in := make([]float64, p) // the direction among the coefficients
		for r := range p {
			for j := range p {
				in[j] += vectors.At(r, i) * up[r*p+j]
			}
		}
		var n float64
		for j := range p {
			n += in[j] * Dot(noise[j*p:(j+1)*p], in)
		}
		if u := Dot(in, score); v > 0 && v*v > 4*n {
			out.Directions++
			sum += u * u / (v*v + n)
		}
	}
	if k := float64(out.Directions); k > 0 { // Wilson and Hilferty: the cube root of chi-squared over k is nearly normal
		root := 1 - 2/(9*k) + normal99*math.Sqrt(2/(9*k))
		out.Distance, out.Limit = math.Sqrt(sum/k), math.Sqrt(root*root*root)
	}
	return out
}

// normal99 is the 99 % quantile of the normal distribution.
const normal99 = 2.3263478740408408

// transposedRoot is L' of a covariance L*L', which may have fewer directions than terms.
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

func transposed(a []float64, p int) []float64 {
	out := make([]float64, p*p)
	for k := range out {
		out[k] = a[k%p*p+k/p]
	}
	return out
}

// Product is a*b, both p x p.
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
	a := make([]float64, p*p)
	sd := make([]float64, p)
	for k := range a {
		a[k] = g.G[k]/g.Q + lambda*precision[k]
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
				out[k] += n / (n - 1) * (s[k/p] - mean[k/p]/n) * (s[k%p] - mean[k%p]/n)
			}
		}
	}
	return out
}

// sandwich writes inv*middle*inv, all p x p and symmetric; out may be middle.
func sandwich(inv, middle []float64, p int, out []float64) {
	copy(out, Product(Product(inv, middle, p), inv, p))
}

// Pull is what one interval does to a prediction v: the loss, half its slope and
// half its curvature there, all zero where the interval says nothing. v - Slope
// is the refreshed target (spec#interval-fit).
type Pull struct {
	Loss  float64 // us^2
	Slope float64 // us
	Bend  float64 // between 0 and 1
}

// Pull of row i on v. Without a spread it is the distance: loss d^2, nothing
// from inside, so that v - Slope is clip(v, lo, hi). With a spread s the target
// scatters about v by a logistic law of that scale, and the loss is what -log of
// the probability to fall between the ends is, up to a constant:
//
//	loss = 4 s^2 (log(1 + exp((lo-v)/s)) + log(1 + exp((v-hi)/s)))     [us^2]
//
// It is convex, equals (v - lo)^2 near an exact row (but for a constant), grows
// linearly far outside, so that a single late row pulls no harder than any other,
// and goes to the distance loss' flat floor a few s inside. A lower end at or
// below 0 says nothing: targets are not negative.
func (b Bounds) Pull(i int, v, spreadUs float64) Pull {
	lo, hi := b.Lo[i], b.Hi[i]
	if spreadUs == 0 {
		if r := v - b.clip(i, v); r != 0 {
			return Pull{r * r, r, 1}
		}
		return Pull{}
	}
	var p Pull
	if b.silent(i, v, spreadUs) {
		return p
	}
	p.end((v-hi)/spreadUs, 1, spreadUs)
	if lo > 0 || lo == hi {
		p.end((lo-v)/spreadUs, -1, spreadUs)
	}
	return p
}

// farInside is how many spreads inside an end says nothing (exp(-40) < 1e-17).
const farInside = 40

// silent reports whether row i exerts no pull on v.
func (b Bounds) silent(i int, v, spreadUs float64) bool {
	lo, hi := b.Lo[i], b.Hi[i]
	if spreadUs == 0 {
		return lo <= v && v <= hi
	}
	return hi-v > farInside*spreadUs && (v-lo > farInside*spreadUs || lo <= 0 && lo != hi)
}

// end adds the soft hinge of one end, z spreads beyond it.
func (p *Pull) end(z, sign, s float64) {
	e := math.Exp(-math.Abs(z))
	out, in := 1/(1+e), e/(1+e) // probabilities of a target beyond the end, and inside
	if z < 0 {
		out, in = in, out
	}
	p.Loss += 4 * s * s * (math.Max(z, 0) + math.Log1p(e))
	p.Slope += sign * 2 * s * out
	p.Bend += 2 * out * in
}

// minBend keeps the quadratic of a row on the linear part of its loss finite.
const minBend = 1e-3

// quadratic is the target and curvature of the row's local quadratic at v.
func (p Pull) quadratic(v float64) (y, bend float64) {
	bend = math.Max(p.Bend, minBend)
	return v - p.Slope/bend, bend
}

// Multiple is the smallest m >= 0 for which m*pred meets the intervals of the
// rows best: the minimum of sum w loss + tight*(m - 1)^2, tight in us^2, which is
// convex in m. With tight 0 the rows alone decide; rows that say nothing give 0.
func (b Bounds) Multiple(w, pred []float64, rows []int32, spreadUs, tight float64) float64 {
	slope := func(m float64) (first, second float64) {
		first, second = tight*(m-1), tight
		for _, i := range rows {
			if p := b.Pull(int(i), m*pred[i], spreadUs); p != (Pull{}) {
				first += w[i] * pred[i] * p.Slope
				second += w[i] * pred[i] * pred[i] * p.Bend
			}
		}
		return first, second
	}
	lo, hi := 0.0, 1.0
	if first, _ := slope(lo); !(first < 0) {
		return 0
	}
	for first, _ := slope(hi); first < 0 && hi < maxMultiple; first, _ = slope(hi) {
		lo, hi = hi, 2*hi
	}
	m := hi
	for range multipleSteps { // Newton steps inside a shrinking bracket
		first, second := slope(m)
		if first < 0 {
			lo = m
		} else {
			hi = m
		}
		next := m - first/second
		if !(next > lo && next < hi) {
			next = (lo + hi) / 2
		}
		if math.Abs(next-m) <= multipleTol*m {
			break
		}
		m = next
	}
	return m
}

// Spread is the scale of the grid (ascending, us) at which the intervals are
// likeliest when every target scatters by a logistic law about the multiple of
// pred that meets them best; the largest of equals. It is 0 when one multiple
// meets every interval and exact rows tell which.
func (b Bounds) Spread(w, pred []float64, rows []int32, grid []float64) float64 {
	if b.agree(pred, rows, b.Multiple(w, pred, rows, 0, 0)) {
		return 0
	}
	best, bestLoss := grid[0], math.Inf(1)
	for _, s := range grid {
		m := b.Multiple(w, pred, rows, s, 0)
		var loss float64
		for _, i := range rows {
			loss += w[i] * b.surprise(int(i), m*pred[i], s)
		}
		if loss <= bestLoss {
			best, bestLoss = s, loss
		}
	}
	return best
}

// agree reports whether every interval holds m*pred, one of them an exact row.
func (b Bounds) agree(pred []float64, rows []int32, m float64) bool {
	told := false
	for _, i := range rows {
		if b.Distance(int(i), m*pred[i]) > resolutionUs {
			return false
		}
		told = told || b.Lo[i] == b.Hi[i]
	}
	return told
}

// surprise is -log of the probability that a target about v falls between the
// ends of row i: what Pull leaves out is the same for every v, not for every s.
func (b Bounds) surprise(i int, v, spreadUs float64) float64 {
	out := b.Pull(i, v, spreadUs).Loss / (4 * spreadUs * spreadUs)
	if lo, hi := b.Lo[i], b.Hi[i]; lo > 0 || lo == hi {
		out -= math.Log(-math.Expm1(-math.Max(hi-lo, resolutionUs) / spreadUs))
	}
	return out
}

// resolutionUs is the width of an exact row.
const resolutionUs = 1

// Limits of Multiple: the largest, its steps, and the relative step that ends them.
const (
	maxMultiple   = 1 << 40
	multipleSteps = 100
	multipleTol   = 1e-12
)

// withAnchor are the options with the prior of an interval fit: the multiple of
// the anchor that meets the intervals of the rows best.
func (o *Options) withAnchor(d *Data, b Bounds, w []float64, rows []int32) *Options {
	if o.Anchor == nil {
		return o
	}
	m := b.Multiple(w, Predict(d, o.Anchor), rows, o.SpreadUs, o.AnchorTight)
	out := *o
	out.Prior = make([]float64, len(o.Anchor))
	for j, v := range o.Anchor {
		out.Prior[j] = m * v
	}
	return &out
}

// Bounds say that the target of row i lies in [Lo[i], Hi[i]] us; equal ends are
// an exact row. Rows with Hi < 0 must be dropped before.
type Bounds struct{ Lo, Hi []float64 }

// Subset are the bounds of the given rows.
func (b Bounds) Subset(rows []int32) Bounds {
	var out Bounds
	for _, i := range rows {
		out.Lo = append(out.Lo, b.Lo[i])
		out.Hi = append(out.Hi, b.Hi[i])
	}
	return out
}

// clip is the value of the interval of row i nearest to v.
func (b Bounds) clip(i int, v float64) float64 {
	return math.Min(math.Max(v, b.Lo[i]), b.Hi[i])
}

// Distance is max(0, lo - v, v - hi).
func (b Bounds) Distance(i int, v float64) float64 { return math.Abs(float64(v) - b.clip(i, v)) }

// Score is the mean over configurations of sum w loss/(1000 us)^2 on the rows.
func (b Bounds) Score(d *Data, w []float64, rows []int32, spreadUs float64, pred func(i int32) float64) float64 {
	sums := map[int32]*[1]float64{}
	var order []int32
	for _, i := range rows {
		c := d.Config[i]
		if sums[c] == nil {
			sums[c] = new([1]float64)
			order = append(order, c)
		}
		sums[c][0] += w[i] * b.Pull(int(i), pred(i), spreadUs).Loss / (censoredYBarUs * censoredYBarUs)
	}
	if len(order) == 0 {
		return math.NaN()
	}
	var total float64
	for _, c := range order {
		total += sums[c][0]
	}
	return total / float64(len(order))
}

// Constants of the interval-censored fit (spec#interval-fit).
const (
	censoredYBarUs    = 1000
	maxCensoredPasses = 10000
)
