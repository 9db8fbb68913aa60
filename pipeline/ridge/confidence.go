package ridge

// This file has the intervals of coefficients: which method each term gets, and when it gets none. The
// bootstrap behind them is in bootstrap.go.

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
)

// Interval methods.
const (
	FromBlocks  = "block-bootstrap"
	fromConfigs = "jackknife-configs"
	FromNothing = "none" // the rows do not determine the term
)

// Interval is an interval of one true coefficient.
type Interval struct {
	Lo, Hi float64 // NaN when Method is FromNothing
	Center float64 // the estimate it is built around; NaN as above
	SE     float64 // its standard error; NaN as above
	Method string
}

// noInterval returns the interval of a term of which nothing is known.
func noInterval() Interval {
	nan := math.NaN()
	return Interval{Lo: nan, Hi: nan, Center: nan, SE: nan, Method: FromNothing}
}

// Confidence is the uncertainty of a fit.
type Confidence struct {
	Terms      []Interval
	Covariance []float64 // P x P, of the coefficients; 0 for terms without rows
	JackSE     []float64 // standard error over held-out configurations; NaN below three
	Posterior  bool      // the intervals are of the published values, not of an estimate of their own
}

// Confidence returns 95 % intervals for the true coefficients behind a fit, by a symmetric
// studentised block bootstrap.
//
// The published estimate is shrunk by its penalty, and its weights contain the target, which pulls
// it toward rows with small targets. It is therefore not centred on the truth. The intervals are
// built around another estimate: least squares without penalty, with weights from predictions
// (predictionWeights). A published value outside its interval differs by more than chance.
//
// The errors of neighbouring rows are correlated, so the bootstrap draws blocks of a run. Each draw
// has, for each run, as many blocks drawn with replacement, refits, and divides the change by its
// own cluster-robust standard error: t. The half width of an interval is the 95 % quantile of |t|
// times the standard error of the data.
//
// A term that varies only between configurations gets the jackknife over configurations with
// Student's quantile if that is wider, and no interval below three configurations. Intervals of
// terms with a sign constraint end at 0. A term has no interval if it is part of a direction that
// the rows do not determine (eigenvalue under 1e-6 of the largest), or if its quantile exceeds
// Student's with one degree of freedom, because then the draws that miss its few blocks decide.
func (d *Data) Confidence(fit Fit, tags []string, o Options) Confidence {
	w := predictionWeights(d, fit.Beta, o)
	return Blocks(rowBlocks(d, w, fit.Beta, o), tags, o)
}

// Blocks returns the intervals of [Data.Confidence] from one Gram matrix for each block, whose
// weights are balanced. The Gram matrices of [Cells.Blocks] are weighted by the measured time in
// place of a prediction, which pulls their intervals toward rows with small targets.
func Blocks(blocks []BlockGram, tags []string, o Options) Confidence {
	p := blocks[0].Gram.P
	out := Confidence{Terms: make([]Interval, p), Covariance: make([]float64, p*p)}
	b := newBootstrap(blocks)
	if b == nil {
		return out.unknown()
	}
	known, err := b.solveAll()
	if err != nil { // then nothing is known of any term
		return out.unknown()
	}
	q := b.quantiles(o)
	b.covariance(out.Covariance)
	configs := blockConfigs(blocks)
	widest := stat.StudentT(0.5+o.level()/2, 1) // 12.7 at 95 %
	out.JackSE = b.jackknife(blocks, configs)
	student := math.NaN() // quantile of the jackknife
	if len(configs) > 1 {
		student = stat.StudentT(0.5+o.level()/2, float64(len(configs)-1))
	}
	for j := range out.Terms {
		t := &out.Terms[j]
		*t = noInterval()
		hasTooFewConfigs := tags[j] == coeff.BetweenConfigs && math.IsNaN(out.JackSE[j])
		isWild := !(q[j] <= widest) // also without a quantile: NaN
		if !known[j] || isWild || tags[j] == coeff.PriorOnly || hasTooFewConfigs {
			continue
		}
		t.set(FromBlocks, b.beta(j), math.Sqrt(out.Covariance[j*p+j]), q[j])
		if tags[j] == coeff.BetweenConfigs && student*out.JackSE[j] > q[j]*t.SE {
			t.set(fromConfigs, t.Center, out.JackSE[j], student)
		}
		if !o.IsFree(j) {
			t.Lo = math.Max(t.Lo, 0)
			t.Hi = math.Max(t.Hi, 0)
			t.Center = math.Max(t.Center, 0)
		}
	}
	return out
}

// unknown returns the confidence in which no term has an interval.
func (c Confidence) unknown() Confidence {
	c.JackSE = make([]float64, len(c.Terms))
	for j := range c.Terms {
		c.Terms[j] = noInterval()
		c.JackSE[j] = math.NaN()
	}
	return c
}

// set makes t the interval of quantile*se to both sides of center.
func (t *Interval) set(method string, center, se, quantile float64) {
	*t = Interval{Lo: center - quantile*se, Hi: center + quantile*se, Center: center, SE: se, Method: method}
}

// blockConfigs returns the configurations of the blocks, ascending.
func blockConfigs(blocks []BlockGram) []int32 {
	labels := make([]int32, len(blocks))
	for i := range blocks {
		labels[i] = blocks[i].Config
	}
	return distinct(labels)
}

// Holding returns the interval widened to include a value (spec#value-interval). A report shows it
// with the published value, which may lie outside the interval; the wider one is at least as likely
// to contain the truth.
func (t Interval) Holding(value float64) (lo, hi float64) {
	return math.Min(t.Lo, value), math.Max(t.Hi, value)
}
