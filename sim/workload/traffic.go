package workload

// This file draws a stream of independent requests from a few numbers, for predictions: Poisson
// arrivals and lengths of a given mean and spread.

import (
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Law is a distribution of lengths with a given mean.
type Law string

// The distributions of lengths. A log-normal one has the squared coefficient of variation that
// Lengths states.
const (
	ConstantLaw    Law = "constant"
	ExponentialLaw Law = "exponential"
	LogNormalLaw   Law = "lognormal"
)

// Lengths are the mean tokens of requests and their spread as squared coefficient of variation
// (CV2): variance over squared mean.
type Lengths struct {
	Prompt, Output       float64
	Cached               float64 // tokens of the prompt found in the prefix cache
	PromptCV2, OutputCV2 float64
}

// Traffic is an open stream of requests: Poisson arrivals, independent lengths.
type Traffic struct {
	Shape     Lengths
	PromptLaw Law // the distribution of the prompts' lengths
	OutputLaw Law // that of the outputs' lengths
	RateRPS   float64
	Requests  int
	Seed      uint64
	// Longest is the largest number of tokens of a request; 0: no limit. The prompt is cut at 3/4 of it
	// and the output at 1/4, so that every request fits.
	Longest int64
}

// Squared coefficients of variation of the lengths, of the size that chat recordings have, and the
// number of requests of a burst, with which a capacity is measured: so many for each that may run at once, and at
// least leastBurst. With fewer the chance of the drawn lengths would move the capacity by more than a few percent.
const (
	chatPromptCV2 = 1
	chatOutputCV2 = 0.5
	burstPerSeat  = 10
	leastBurst    = 600
)

// ChatTraffic returns a burst, requests that arrive practically at once, with the given mean lengths
// in tokens and the spread that chat recordings have.
func ChatTraffic(d *deploy.Deployment, prompt, output float64) Traffic {
	return Traffic{
		Shape:     Lengths{Prompt: prompt, Output: output, PromptCV2: chatPromptCV2, OutputCV2: chatOutputCV2},
		PromptLaw: LogNormalLaw,
		OutputLaw: LogNormalLaw,
		RateRPS:   1e6, // far above any capacity
		Requests:  int(max(leastBurst, burstPerSeat*d.Engine.MaxNumSeqs)),
		Seed:      1,
		Longest:   d.LongestSequence().Or(math.MaxInt32),
	}
}

// Keys of the random draws. Request i draws the same numbers at any rate and with any distribution,
// so that two runs differ only in what they compare.
const (
	drawGap uint64 = iota
	drawPrompt
	drawOutput
)

// Draw returns the requests, and the mean and spread of the lengths that were drawn. With few requests or a limit on
// lengths those differ from Shape, and a formula that is compared with a simulation of the requests has to be evaluated
// at the lengths that were drawn. The same share of every prompt is found in the prefix cache, because Lengths states
// no spread of it.
func (t *Traffic) Draw() ([]sim.Request, Lengths) {
	requests := make([]sim.Request, t.Requests)
	var clockUs float64
	var sumPrompt, sumPrompt2, sumOutput, sumOutput2 float64 // of the lengths and of their squares
	for i := range requests {
		// -log(1 - u) is an exponential gap in units of its mean, 1/rate.
		clockUs -= 1e6 / t.RateRPS * math.Log1p(-stat.Draw(t.Seed, uint64(i), drawGap))
		r := &requests[i]
		r.ArrivalUs = sim.ToUs(math.Floor(clockUs)) // the microsecond in which it arrives; clockUs keeps the fraction
		r.PromptTokens = lengthOf(t.PromptLaw, t.Shape.Prompt, t.Shape.PromptCV2,
			stat.Draw(t.Seed, uint64(i), drawPrompt))
		r.OutputTokens = lengthOf(t.OutputLaw, t.Shape.Output, t.Shape.OutputCV2, stat.Draw(t.Seed, uint64(i), drawOutput))
		if t.Longest > 0 {
			r.PromptTokens = min(r.PromptTokens, t.Longest*3/4)
			r.OutputTokens = min(r.OutputTokens, t.Longest/4)
		}
		if t.Shape.Cached > 0 {
			r.CachedTokens = trace.Some(int64(float64(r.PromptTokens) * t.Shape.Cached / t.Shape.Prompt))
		}
		promptTokens := float64(r.PromptTokens)
		outputTokens := float64(r.OutputTokens)
		sumPrompt += promptTokens
		sumPrompt2 += promptTokens * promptTokens
		sumOutput += outputTokens
		sumOutput2 += outputTokens * outputTokens
	}
	// Squared coefficients of variation: E[x^2]/E[x]^2 - 1.
	count := float64(t.Requests)
	drawn := Lengths{
		Prompt:    sumPrompt / count,
		Output:    sumOutput / count,
		PromptCV2: sumPrompt2*count/(sumPrompt*sumPrompt) - 1,
		OutputCV2: sumOutput2*count/(sumOutput*sumOutput) - 1,
	}
	drawn.Cached = t.Shape.Cached * drawn.Prompt / t.Shape.Prompt
	// Rounding can make the difference of nearly equal numbers negative, where all lengths are equal.
	drawn.PromptCV2 = math.Max(0, drawn.PromptCV2)
	drawn.OutputCV2 = math.Max(0, drawn.OutputCV2)
	return requests, drawn
}

// lengthOf returns the u-quantile of the distribution law, at least one token.
func lengthOf(law Law, mean, cv2, u float64) int64 {
	v := mean
	switch law {
	case ExponentialLaw:
		v = -mean * math.Log1p(-u)
	case LogNormalLaw:
		v = stat.LogNormal(mean, cv2, u)
	}
	return max(1, trace.Int(v))
}

// DrawnRate returns the rate of the arrivals that Draw draws, requests per second.
func (t *Traffic) DrawnRate() float64 {
	reqs, _ := t.Draw()
	return float64(len(reqs)) / float64(reqs[len(reqs)-1].ArrivalUs) * 1e6
}

// ErrNothingFinished is returned when no request finished, which cannot happen with requests that
// fit the engine.
var ErrNothingFinished = errors.New("simulation: no request finished")

// Capacity returns the throughput of a deployment that is never without a waiting request, requests per second, if
// the requests arrive much faster than that, as those of ChatTraffic do: those that finished after the first one and
// until the last one was scheduled, over that time. Before, the batch fills, and afterwards it empties.
func (t *Traffic) Capacity(d *deploy.Deployment, step sim.Model) (float64, error) {
	reqs, _ := t.Draw()
	var finishedUs []int64
	lastScheduledUs := int64(0)
	_, err := sim.Stream(sim.DefaultConfig(d, step), reqs, nil,
		sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
			lastScheduledUs = max(lastScheduledUs, r.ScheduledUs.V)
			if r.FinishedUs.OK {
				finishedUs = append(finishedUs, r.FinishedUs.V)
			}
			return true
		}))
	if err != nil {
		return 0, err
	}
	if len(finishedUs) == 0 {
		return 0, ErrNothingFinished
	}
	fromUs := slices.Min(finishedUs)
	untilUs := lastScheduledUs
	if untilUs <= fromUs { // all requests ran at once
		fromUs = 0
		untilUs = slices.Max(finishedUs)
	}
	served := 0
	for _, at := range finishedUs {
		if fromUs < at && at <= untilUs {
			served++
		}
	}
	return float64(served) / float64(untilUs-fromUs) * 1e6, nil
}
