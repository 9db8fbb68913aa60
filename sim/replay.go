package sim

// This file scores a candidate set of coefficients: it simulates measured requests and compares the
// simulated with the measured latencies (see Objective of a replay in the package comment).

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// Measured is the measured times of one request, us; NaN if unknown. Span is the time from the
// first to the last token.
type Measured struct{ TTFTUs, SpanUs, E2EUs float64 }

// metrics is the number of latencies that are compared: TTFT, span and E2E.
const metrics = 3

// all returns TTFT, span and E2E, us.
func (m *Measured) all() [metrics]float64 { return [metrics]float64{m.TTFTUs, m.SpanUs, m.E2EUs} }

// Measured returns the times that a measurement of the simulated request would have given; NaN for
// those of a request that did not finish.
func (r *RequestResult) Measured() Measured {
	known := func(us float64, ok bool) float64 {
		if !ok || r.Outcome != OutcomeFinished {
			return math.NaN()
		}
		return us
	}
	meanGapUs, hasSpan := r.ITLUs()
	return Measured{TTFTUs: known(r.TTFTUs()), SpanUs: known(meanGapUs*float64(r.OutputTokens-1), hasSpan),
		E2EUs: known(r.E2EUs())}
}

// Options are the settings of a replay, the comparison of simulated with measured requests.
type Options struct {
	// Bound stops a replay as soon as its objective must exceed this value; 0 for never.
	Bound float64
	// BlockUs is the length of the time blocks: requests are divided by arrival, and each block
	// gets normal equations of its own. 0 computes no derivatives; otherwise the latency model must
	// be linear.
	BlockUs int64
	// Theta is the candidate's coefficients in the order of Columns. If it is given, the unknowns of
	// the normal equations are the coefficients, otherwise their change.
	Theta []float64
}

const (
	huberAt  = 0.3            // |log ratio|, a factor of 1.35, above which errors count linearly
	missing  = 4.605170185988 // log 100: the error of a measured request that the replay does not finish
	quantile = 0.5            // weight of the quantiles in the objective
)

// quantiles are the levels at which the distributions are compared.
var quantiles = [...]float64{0.5, 0.9, 0.99}

// Score is the result of a replay.
type Score struct {
	Objective float64 // Paired + Quantiles; if Stopped, a lower bound of it
	Paired    float64 // mean Huber loss of the log ratios of the pairs
	Quantiles float64 // the part that compares distributions
	Pairs     int     // number of measured times, of all three latencies
	Steps     int64   // simulated steps
	Stopped   bool    // at Options.Bound
	// Blocks are the normal equations of each time block: rows of derivatives, targets
	// and weights 1/simulated^2, reduced where Huber's loss is linear; nil for a block of nothing measured.
	Blocks []*ridge.Gram
}

// assess simulates the requests once and returns the score against the measured times seen, one
// entry for each request.
func assess(cfg Config, reqs []Request, seen []Measured, o Options) (*Score, error) {
	if len(seen) != len(reqs) {
		return nil, trace.Errorf(CodeBadConfig, "measured requests: got %d for %d, want one each", len(seen), len(reqs))
	}
	cfg.Restarts = true
	cfg.Gradient = o.BlockUs > 0
	if cfg.Gradient && o.Theta != nil {
		if c, err := gradientColumns(&cfg); err != nil || len(o.Theta) != c.N() {
			return nil, trace.Errorf(CodeBadConfig,
				"coefficients: got %d values for %d columns (%v)", len(o.Theta), c.N(), err)
		}
	}
	e := &evaluation{Options: o, seen: seen, score: &Score{}}
	for i := range seen {
		for k, v := range seen[i].all() {
			if v > 0 {
				e.score.Pairs++
				e.measured[k] = append(e.measured[k], v)
			}
		}
	}
	if e.score.Pairs == 0 {
		return nil, trace.Errorf(CodeBadConfig,
			"measured requests: got no time of %d requests, want at least one", len(reqs))
	}
	res, err := Stream(cfg, reqs, nil, e.left)
	if err != nil {
		return nil, err
	}
	e.score.Steps = res.Steps
	e.score.Stopped = res.Stopped
	e.score.Objective = e.score.Paired
	if !res.Stopped {
		e.score.Quantiles = e.quantiles()
		e.score.Objective += e.score.Quantiles
	}
	return e.score, nil
}

// evaluation is a replay that is under way: the score so far, and the times of each metric.
type evaluation struct {
	Options
	seen      []Measured // by index of the request
	score     *Score
	measured  [metrics][]float64 // us
	simulated [metrics][]float64 // us, only those that were measured; +Inf if the request did not finish
}

// left adds request i, which has left with result r, to the score. It returns false, which stops
// the replay, if the objective must exceed the bound.
func (e *evaluation) left(i int, r *RequestResult) bool {
	simulated := r.Measured()
	measured := e.seen[i].all()
	for k, us := range simulated.all() {
		if !(measured[k] > 0) {
			continue
		}
		off := missing
		if us > 0 {
			off = math.Log(us / measured[k])
			e.simulated[k] = append(e.simulated[k], us)
		} else {
			e.simulated[k] = append(e.simulated[k], math.Inf(1))
		}
		e.score.Paired += huber(off) / float64(e.score.Pairs)
	}
	if g := r.Gradient; g != nil && r.Outcome == OutcomeFinished {
		for k, d := range [metrics]*Derivative{&g.TTFT, &g.Span, &g.E2E} {
			if measured[k] > 0 {
				e.addRow(r.ArrivalUs, d, simulated.all()[k], measured[k])
			}
		}
	}
	return e.Bound <= 0 || e.score.Paired <= e.Bound
}

// addRow adds one time (simulated, its derivatives d, and measured) to the normal equations of the
// block of its arrival. Errors are relative to the simulated time.
func (e *evaluation) addRow(arrivalUs int64, d *Derivative, simulated, measured float64) {
	at := int(arrivalUs / e.BlockUs)
	for len(e.score.Blocks) <= at {
		e.score.Blocks = append(e.score.Blocks, nil)
	}
	if e.score.Blocks[at] == nil {
		e.score.Blocks[at] = ridge.New(len(d.By))
	}
	// The change of coefficients for which the linear model d gives the measured time or, with
	// Theta, the coefficients themselves: d.Us + d.By * (new - Theta) = measured.
	target := measured - d.Us
	if e.Theta != nil {
		target += ridge.Dot(d.By, e.Theta)
	}
	e.score.Blocks[at].AddRow(Pull(simulated, measured)/(simulated*simulated), d.By, target)
}

// quantiles returns the part of the objective that compares distributions: half of the sum of
// |log(simulated / measured)| over the quantiles of TTFT, span and E2E. It sorts the times.
func (e *evaluation) quantiles() float64 {
	sum := 0.0
	for k := range metrics {
		if len(e.measured[k]) == 0 {
			continue
		}
		stat.Sort(e.measured[k])
		stat.Sort(e.simulated[k])
		for _, level := range quantiles {
			ratio := stat.Quantile(e.simulated[k], level) / stat.Quantile(e.measured[k], level)
			off := math.Abs(math.Log(ratio))
			if !(off < missing) { // also for NaN: quantiles are infinite if many requests do not finish
				off = missing
			}
			sum += quantile * off
		}
	}
	return sum
}

// huber returns the Huber loss: x^2/2 up to |x| = huberAt, and linear beyond.
func huber(x float64) float64 {
	if x = math.Abs(x); x <= huberAt {
		return x * x / 2
	}
	return huberAt * (x - huberAt/2)
}

// Pull returns the weight, in (0, 1], of a squared relative error that has the same derivative as
// the Huber loss: iteratively reweighted least squares uses it.
func Pull(simulated, measured float64) float64 {
	if off := math.Abs(math.Log(simulated / measured)); off > huberAt {
		return huberAt / off
	}
	return 1
}
