package autoscale

// This file has the four queueing models (flavours) of a server: their parameters, and the formulas by
// which each computes a request's time in service, TTFT and ITL. chain.go solves them at an arrival
// rate; corrected.go has what only the flavour corrected needs. Its words, such as seat and chunk, are
// those of chain.go.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Flavour is the name of a queueing model; see the package comment.
type Flavour string

// The flavours.
const (
	wvA4P     Flavour = "wva-4p"
	wvA3P     Flavour = "wva-3p"
	inferno3P Flavour = "inferno-3p"
	corrected Flavour = "corrected"
)

// flavours lists the flavours in the order of the help text.
var flavours = []Flavour{wvA4P, wvA3P, inferno3P, corrected}

// checkName returns an error for a name that is no flavour.
func (f Flavour) checkName() error {
	if slices.Contains(flavours, f) {
		return nil
	}
	return trace.Errorf(badOption, "flavour: got %q, want %s", f, trace.OneOf(flavours))
}

// Parameters returns the names of the flavour's parameters, in the order of a state vector.
func (f Flavour) Parameters() []string {
	if f == wvA4P {
		return []string{"alpha", "beta", "gamma", "delta"}
	}
	return []string{"alpha", "beta", "gamma"}
}

// chunked reports whether the flavour models that prompts are cut by the token budget.
func (f Flavour) chunked() bool { return f == inferno3P || f == corrected }

// params are the coefficients of an iteration. In the three-parameter flavours iteration = alpha +
// beta*(tokens computed) + gamma*(KV tokens read). In wva-4p decode = alpha + beta*n and prefill =
// gamma + delta*k*n, for n requests in the batch and prompts of k tokens.
type params struct {
	AlphaMs float64 // ms
	BetaMs  float64 // ms per computed token; wva-4p: ms per request
	GammaMs float64 // ms per KV token read; wva-4p: ms
	DeltaMs float64 // wva-4p only: ms per prompt token and request
}

// Vector returns the parameters as a state vector of flavour f.
func (p params) Vector(f Flavour) []float64 {
	if f == wvA4P {
		return []float64{p.AlphaMs, p.BetaMs, p.GammaMs, p.DeltaMs}
	}
	return []float64{p.AlphaMs, p.BetaMs, p.GammaMs}
}

// fromVector returns the parameters of a state vector; the inverse of Vector.
func fromVector(x []float64) params {
	p := params{AlphaMs: x[0], BetaMs: x[1], GammaMs: x[2]}
	if len(x) > 3 {
		p.DeltaMs = x[3]
	}
	return p
}

// shape is how long requests are: means over requests. Only the corrected flavour uses more than
// the two mean lengths.
type shape = workload.Lengths

// defaultMaxBatchedTokens is the token budget that queue-analysis assumes
// (pkg/analyzer/queueanalyzer.go@cfadd1c).
const defaultMaxBatchedTokens = 8192

// model is one flavour with its numbers. It is a value without pointers to changing data, so it can
// be copied and used from several goroutines. Receivers are called q, for queue: in all formulas m is the mean number
// of output tokens.
type model struct {
	flavour Flavour
	params  params
	shape   shape
	limits  Limits
	seats   int // N, the number of seats: MaxBatch; in corrected what correctedSeats returns
}

// newModel returns a model, or an error that names a number out of range.
func newModel(f Flavour, p params, s shape, v Limits) (model, error) {
	v.MaxBatchedTokens = cmp.Or(v.MaxBatchedTokens, defaultMaxBatchedTokens)
	m := model{
		flavour: f,
		params:  p,
		shape:   s,
		limits:  v,
		seats:   v.MaxBatch,
	}
	if err := m.checkInputs(); err != nil {
		return model{}, err
	}
	if f == corrected {
		m.seats = m.correctedSeats()
	}
	return m, nil
}

// number is a named value with its lower bound (least); the upper bound of all is mostWanted.
type number struct {
	name         string
	value, least float64
}

// checkRange returns an error if the value is out of range.
func (x number) checkRange() error {
	if !(x.value >= x.least && x.value <= mostWanted) {
		return trace.Errorf(badModel, "%s: got %g, want %g to %g", x.name, x.value, x.least, mostWanted)
	}
	return nil
}

// checkInputs returns an error for the first number of the model out of range.
func (q *model) checkInputs() error {
	if err := q.flavour.checkName(); err != nil {
		return err
	}
	var kv float64
	if q.limits.KVTokens != nil {
		kv = *q.limits.KVTokens
	}
	numbers := [...]number{
		{"alpha ms", q.params.AlphaMs, 0}, {"beta ms", q.params.BetaMs, 0}, {"gamma ms", q.params.GammaMs, 0},
		{"delta ms", q.params.DeltaMs, 0},
		{"prompt tokens", q.shape.Prompt, 0}, {"output tokens", q.shape.Output, 1},
		{"cached tokens", q.shape.Cached, 0}, {"prompt cv2", q.shape.PromptCV2, 0}, {"output cv2", q.shape.OutputCV2, 0},
		{"max batch", float64(q.limits.MaxBatch), 1}, {"queue", float64(q.limits.Queue), 0},
		{"max batched tokens", float64(q.limits.MaxBatchedTokens), 1},
		{"kv tokens", kv, 0}, {"overhead ms", q.limits.OverheadMs, 0},
	}
	if q.shape.Cached > q.shape.Prompt {
		return trace.Errorf(badModel, "cached tokens: got %g, want at most the %g of the prompt", q.shape.Cached,
			q.shape.Prompt)
	}
	for _, x := range numbers {
		if err := x.checkRange(); err != nil {
			return err
		}
	}
	if tau := q.tauMs(1); !(tau > 0) || math.IsInf(tau, 0) {
		return trace.Errorf(badModel, "time in service ms: got %g, want a finite number > 0", tau)
	}
	return nil
}

// serviceLine returns the time in service with n requests in service and prompts of c chunks, as
// tau(n) = a + b*n, ms. k and m are the mean prompt and output tokens of a request:
//
//	wva-4p      gamma + delta*k*n + (m-1)(alpha + beta*n); without prompts the
//	            prefill is nothing, and one decode is left for m = 1
//	wva-3p      T(n) + (beta+gamma)k + m(T(n) + beta + gamma(k+m/2)) with
//	            T(n) = alpha + n(beta(k+m)/(m+1) + gamma(k+m/2)); without prompts
//	            the prefill is nothing
//	inferno-3p  (c+m)*alpha + n*w, w the work of one request
//
// Source: workload-variant-autoscaler pkg/analyzer/queueanalyzer.go@ce39598 (4p) and @b08b1c7
// (wva-3p), llm-inferno/queue-analysis pkg/analyzer/queueanalyzer.go@cfadd1c.
func (q *model) serviceLine(c float64) (a, b float64) {
	p := q.params
	k := q.shape.Prompt
	out := q.shape.Output
	switch q.flavour {
	case wvA4P:
		decodes := out - 1
		if k == 0 {
			if out == 1 {
				decodes = 1
			}
			return decodes * p.AlphaMs, decodes * p.BetaMs
		}
		return p.GammaMs + decodes*p.AlphaMs, p.DeltaMs*k + decodes*p.BetaMs
	case wvA3P:
		slope := q.wvaSlope()
		decode := p.BetaMs + p.GammaMs*(k+out/2)
		if k == 0 {
			return out * (p.AlphaMs + decode), out * slope
		}
		return (1+out)*p.AlphaMs + (p.BetaMs+p.GammaMs)*k + out*decode, (1 + out) * slope
	}
	if q.flavour == corrected {
		return (c + q.decodeSteps()) * p.AlphaMs, q.prefillWork(c) + q.correctedDecodeWork()
	}
	return (c + out) * p.AlphaMs, q.prefillWork(c) + q.decodeWork()
}

// lineAt returns tau(n) = a + b*n for n < N at arrival rate lambda, ms. Only the corrected flavour
// depends on the rate, because prompts of other requests make its steps longer.
func (q *model) lineAt(c, lambda float64) (a, b float64) {
	idle := 1 - lambda*q.prefillWork(c)
	if q.flavour != corrected || idle <= 0 {
		return q.serviceLine(c)
	}
	return q.seatSteps(c) * q.params.AlphaMs / idle, q.correctedDecodeWork() / idle
}

// wvaSlope returns by how much one more request in service lengthens an iteration in the flavour
// wva-3p, ms: its share of the computed tokens times beta, and its mean context times gamma.
func (q *model) wvaSlope() float64 {
	k, out := q.shape.Prompt, q.shape.Output
	return q.params.BetaMs*(k+out)/(out+1) + q.params.GammaMs*(k+out/2)
}

// prefillWork returns the work of a request's own prompt in inferno-3p and corrected, ms. Each of c
// chunks reads the part of the prompt that is in the KV cache by then.
func (q *model) prefillWork(c float64) float64 {
	computed := q.shape.Prompt
	if q.flavour == corrected {
		computed -= q.shape.Cached
	}
	return q.params.BetaMs*computed + q.params.GammaMs*(c+1)/2*q.shape.Prompt
}

// decodeWork returns the work of a request's own decodes in inferno-3p, ms.
func (q *model) decodeWork() float64 {
	out := q.shape.Output
	return q.params.BetaMs*out + q.params.GammaMs*out*(q.shape.Prompt+(out+1)/2)
}

// tauMs returns the time in service with n requests in service, ms.
func (q *model) tauMs(n int) float64 {
	a, b := q.serviceLine(q.chunksAt(float64(n)))
	return a + b*float64(n)
}

// chunksAt returns the number of steps into which a prompt is cut with n requests in the batch; 1
// for a flavour without chunked prefill. The corrected flavour leaves a prompt the token budget M
// less one token for each request. In inferno-3p the answer is the smallest number i of chunks for
// which (i+m)(M-k/i)/(k+m) >= n, where k and m are the mean prompt and output tokens: the upper root
// of the quadratic M i^2 + (m M - k - n(k+m)) i - m k, rounded up.
func (q *model) chunksAt(n float64) float64 {
	if !q.flavour.chunked() {
		return 1
	}
	n = math.Floor(n + 0.5)
	n = math.Min(math.Max(n, 1), float64(q.seats))
	budget := float64(q.limits.MaxBatchedTokens)
	k := q.shape.Prompt
	out := q.shape.Output
	if q.flavour == corrected {
		return math.Max(1, math.Ceil(k/math.Max(1, budget-n)))
	}
	if q.fitting(1) >= n {
		return 1
	}
	half := (out*budget - k - n*(k+out)) / 2
	root := (math.Sqrt(half*half+budget*out*k) - half) / budget
	c := math.Max(1, math.Ceil(root))
	// Rounding can put the root a chunk off to either side.
	const mostOff = 4
	for range mostOff {
		if c == 1 || q.fitting(c-1) < n {
			break
		}
		c--
	}
	for range mostOff {
		if q.fitting(c) >= n {
			break
		}
		c++
	}
	return c
}

// fitting returns the largest batch in which prompts need no more than c chunks: the inverse of
// chunksAt, with the same condition on k/c tokens a chunk.
func (q *model) fitting(c float64) float64 {
	k, out := q.shape.Prompt, q.shape.Output
	budget := float64(q.limits.MaxBatchedTokens)
	if q.flavour == corrected {
		if c >= k { // one token a chunk, which always has room
			return math.Inf(1)
		}
		return math.Floor(budget - k/c)
	}
	return math.Floor(math.Max(0, (c+out)*(budget-k/c)/(k+out)))
}

// phases sets the latencies of pt: it divides the time in service, pt.ServiceMs, into prefill and
// decode as the flavour does.
func (q *model) phases(pt *point, h *moments) {
	switch q.flavour {
	case corrected:
		q.correctedPhases(pt, h)
		return
	case wvA4P:
		n := q.effectiveBatch(pt.ServiceMs)
		if q.shape.Prompt > 0 {
			pt.PrefillMs = q.params.GammaMs + q.params.DeltaMs*q.shape.Prompt*n
		}
		pt.ITLMs = q.params.AlphaMs + q.params.BetaMs*n
		pt.TTFTMs = pt.WaitMs + pt.PrefillMs
		pt.TunerTTFTMs = pt.TTFTMs
		return
	case wvA3P:
		if q.shape.Prompt > 0 {
			pt.PrefillMs = q.params.AlphaMs + pt.InService*q.wvaSlope() + (q.params.BetaMs+q.params.GammaMs)*q.shape.Prompt
		}
	default:
		pt.PrefillMs = q.prefillMs(pt.InService)
	}
	// Of wva-3p and inferno-3p: the m output tokens take the rest of the service, and the first of them
	// counts into TTFT.
	pt.ITLMs = (pt.ServiceMs - pt.PrefillMs) / q.shape.Output
	pt.TTFTMs = pt.WaitMs + pt.PrefillMs + pt.ITLMs
	pt.TunerTTFTMs = pt.TTFTMs
	if q.flavour == wvA3P {
		pt.TunerTTFTMs = pt.WaitMs + pt.PrefillMs
	}
}

// prefillMs returns the prefill time of inferno-3p with x requests in service, ms: c iterations
// shared with the other requests, and the prompt's own work.
func (q *model) prefillMs(x float64) float64 {
	c := q.chunksAt(x)
	share := (q.prefillWork(c) + q.decodeWork()) / (c + q.shape.Output)
	return c*math.Max(0, q.params.AlphaMs+(x-1)*share) + q.prefillWork(c)
}

// effectiveBatch returns the number n of requests in service, 0 to N, at which the prefill and the
// decodes of wva-4p, gamma + delta*k*n + (m-1)(alpha + beta*n), add up to serviceMs. Without prompts
// serviceLine has no gamma, and one decode for m = 1, so there n does not invert it.
func (q *model) effectiveBatch(serviceMs float64) float64 {
	decodes := q.shape.Output - 1
	perRequest := q.params.DeltaMs*q.shape.Prompt + q.params.BetaMs*decodes
	if perRequest == 0 { // every number of requests takes as long
		return 0
	}
	n := (serviceMs - q.params.GammaMs - q.params.AlphaMs*decodes) / perRequest
	return math.Min(math.Max(n, 0), float64(q.seats))
}
