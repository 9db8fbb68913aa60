package requestfit

// This file compares a fit with requests that it was not fitted to: the errors that the document
// reports of held-out runs, and whether the fit predicts them better than its prior (Gain).

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// predictHeldRuns returns the errors of a set on the requests of runs held out.
func (c *collection) predictHeldRuns(set *coeff.Set) ([]result.RequestHoldout, error) {
	var out []result.RequestHoldout
	for _, l := range c.held {
		if l.Point != nil {
			continue
		}
		errors, err := holdoutErrors(l, set)
		if err != nil {
			return nil, err
		}
		out = append(out, *errors)
	}
	return out, nil
}

// holdoutErrors returns the errors of a set on a load that it was not fitted to.
func holdoutErrors(l *Load, set *coeff.Set) (*result.RequestHoldout, error) {
	predicted, err := l.Predict(set)
	if err != nil {
		return nil, err
	}
	var ttft, itl, e2e pairs
	for i := range predicted {
		seen := &l.Seen[i]
		simulated := &predicted[i]
		gaps := float64(l.Requests[i].OutputTokens - 1)
		ttft.add(seen.TTFTUs, simulated.TTFTUs)
		itl.add(seen.SpanUs/gaps, simulated.SpanUs/gaps)
		e2e.add(seen.E2EUs, simulated.E2EUs)
	}
	return &result.RequestHoldout{
		Name:     l.Name,
		Requests: len(l.Requests),
		Metrics:  result.Metrics{TTFT: ttft.metric(), ITL: itl.metric(), E2E: e2e.metric()},
	}, nil
}

// pairs are times of requests, ms.
type pairs struct{ measured, simulated []float64 }

// add adds a measured and a simulated time, us, unless one of them is unknown.
func (p *pairs) add(measuredUs, simulatedUs float64) {
	if measuredUs > 0 && simulatedUs > 0 {
		p.measured = append(p.measured, measuredUs/1e3)
		p.simulated = append(p.simulated, simulatedUs/1e3)
	}
}

// metric returns the comparison of the pairs.
func (p *pairs) metric() *result.Metric { return validate.Compare(p.measured, p.simulated, true) }

// Gain compares the fitted coefficients with the prior on requests that neither was fitted to.
type Gain struct {
	Learned, Prior float64 // median relative errors of E2E
	// Low and High are the 95 % interval of Learned - Prior, by a bootstrap over blocks of
	// consecutive requests.
	Low, High float64
}

// gainDraws is the number of bootstrap draws.
const gainDraws = 1000

// GainOf returns the comparison of the errors of two coefficient sets on the requests of held-out
// loads.
func GainOf(held []*Load, learned, prior *coeff.Set) (Gain, error) {
	var offLearned, offPrior []float64
	for _, l := range held {
		a, errLearned := l.Predict(learned)
		b, errPrior := l.Predict(prior)
		if err := errors.Join(errLearned, errPrior); err != nil {
			return Gain{}, err
		}
		for i, seen := range l.Seen { // a load level has none
			x := math.Abs(a[i].E2EUs/seen.E2EUs - 1)
			y := math.Abs(b[i].E2EUs/seen.E2EUs - 1)
			if x >= 0 && y >= 0 { // neither is NaN
				offLearned = append(offLearned, x)
				offPrior = append(offPrior, y)
			}
		}
	}
	// The bootstrap draws blocks of consecutive requests, because neighbours share steps and queues. A
	// block of sqrt(n) requests grows with the recording, as does the number of blocks.
	n := len(offLearned)
	rng := rand.New(rand.NewPCG(1, 0xb10c)) // fixed seeds: the same loads give the same interval
	draws := make([]float64, gainDraws)
	block := int(math.Ceil(math.Sqrt(float64(n))))
	for d := range draws {
		var x, y []float64
		for len(x) < n {
			from := rng.IntN(n - block + 1)
			x = append(x, offLearned[from:from+block]...)
			y = append(y, offPrior[from:from+block]...)
		}
		draws[d] = stat.Median(x) - stat.Median(y)
	}
	slices.Sort(draws)
	return Gain{
		Learned: stat.Median(offLearned),
		Prior:   stat.Median(offPrior),
		Low:     stat.Quantile(draws, 0.025),
		High:    stat.Quantile(draws, 0.975),
	}, nil
}

// Findings returns a warning if the interval of the gain includes 0: the fit is then not better
// than the prior beyond chance.
func (g Gain) Findings() []trace.Finding {
	if !(g.High >= 0) {
		return nil
	}
	return []trace.Finding{{Code: fit.NoGain, Message: report.NoGain(g.Learned, g.Prior, g.Low, g.High)}}
}
