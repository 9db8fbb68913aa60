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
// be copied and used from several goroutines.
type model struct {
	flavour Flavour
	p       params
	s       shape
	v       Limits
	n       int // N, the number of seats: MaxBatch; in corrected what correctedSeats returns
}

// New returns a model, or an error that names a number out of range.
func New(f Flavour, p params, s shape, v Limits) (model, error) {
	v.MaxBatchedTokens = cmp.Or(v.MaxBatchedTokens, defaultMaxBatchedTokens)
	m := model{
		flavour: f,
		p:       p,
		s:       s,
		v:       v,
		n:       v.MaxBatch,
	}
	if err := m.checkInputs(); err != nil {
		return model{}, err
	}
	if f == corrected {
		m.n = m.correctedSeats()
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
func (m *model) checkInputs() error {
	if err := m.flavour.checkName(); err != nil {
		return err
	}
	var kv float64
	if m.v.KVTokens != nil {
		kv = *m.v.KVTokens
	}
	numbers := [...]number{
		{"alpha ms", m.p.AlphaMs, 0}, {"beta ms", m.p.BetaMs, 0}, {"gamma ms", m.p.GammaMs, 0},
		{"delta ms", m.p.DeltaMs, 0},
		{"prompt tokens", m.s.Prompt, 0}, {"output tokens", m.s.Output, 1},
		{"cached tokens", m.s.Cached, 0}, {"prompt cv2", m.s.PromptCV2, 0}, {"output cv2", m.s.OutputCV2, 0},
		{"max batch", float64(m.v.MaxBatch), 1}, {"queue", float64(m.v.Queue), 0},
		{"max batched tokens", float64(m.v.MaxBatchedTokens), 1},
		{"kv tokens", kv, 0}, {"overhead ms", m.v.OverheadMs, 0},
	}
	if m.s.Cached > m.s.Prompt {
		return trace.Errorf(badModel, "cached tokens: got %g, want at most the %g of the prompt", m.s.Cached,
			m.s.Prompt)
	}
	for _, x := range numbers {
		if err := x.checkRange(); err != nil {
			return err
		}
	}
	if tau := m.tauMs(1); !(tau > 0) || math.IsInf(tau, 0) {
		return trace.Errorf(badModel, "time in service ms: got %g, want a finite number > 0", tau)
	}
	return nil
}

// serviceLine returns the time in service with n requests in service and prompts of c chunks, as
// tau(n) = a + b*n, ms:
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
func (m *model) serviceLine(c float64) (a, b float64) {
	p := m.p
	k := m.s.Prompt
	out := m.s.Output
	switch m.flavour {
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
		slope := m.wvaSlope()
		decode := p.BetaMs + p.GammaMs*(k+out/2)
		if k == 0 {
			return out * (p.AlphaMs + decode), out * slope
		}
		return (1+out)*p.AlphaMs + (p.BetaMs+p.GammaMs)*k + out*decode, (1 + out) * slope
	}
	if m.flavour == corrected {
		return (c + m.decodeSteps()) * p.AlphaMs, m.prefillWork(c) + m.correctedDecodeWork()
	}
	return (c + out) * p.AlphaMs, m.prefillWork(c) + m.decodeWork()
}

// lineAt returns tau(n) = a + b*n for n < N at arrival rate lambda, ms. Only the corrected flavour
// depends on the rate, because prompts of other requests make its steps longer.
func (m *model) lineAt(c, lambda float64) (a, b float64) {
	idle := 1 - lambda*m.prefillWork(c)
	if m.flavour != corrected || idle <= 0 {
		return m.serviceLine(c)
	}
	return m.seatSteps(c) * m.p.AlphaMs / idle, m.correctedDecodeWork() / idle
}

// wvaSlope returns by how much one more request in service lengthens an iteration in the flavour
// wva-3p, ms: its share of the computed tokens times beta, and its mean context times gamma.
func (m *model) wvaSlope() float64 {
	k, out := m.s.Prompt, m.s.Output
	return m.p.BetaMs*(k+out)/(out+1) + m.p.GammaMs*(k+out/2)
}

// prefillWork returns the work of a request's own prompt in inferno-3p and corrected, ms. Each of c
// chunks reads the part of the prompt that is in the KV cache by then.
func (m *model) prefillWork(c float64) float64 {
	computed := m.s.Prompt
	if m.flavour == corrected {
		computed -= m.s.Cached
	}
	return m.p.BetaMs*computed + m.p.GammaMs*(c+1)/2*m.s.Prompt
}

// decodeWork returns the work of a request's own decodes in inferno-3p, ms.
func (m *model) decodeWork() float64 {
	out := m.s.Output
	return m.p.BetaMs*out + m.p.GammaMs*out*(m.s.Prompt+(out+1)/2)
}

// tauMs returns the time in service with n requests in service, ms.
func (m *model) tauMs(n int) float64 {
	a, b := m.serviceLine(m.chunksAt(float64(n)))
	return a + b*float64(n)
}

// chunksAt returns the number of steps into which a prompt is cut with n requests in the batch; 1
// for a flavour without chunked prefill. The corrected flavour leaves a prompt the token budget M
// less one token for each request. In inferno-3p the answer is the smallest number i of chunks for
// which (i+m)(M-k/i)/(k+m) >= n, where k and m are the mean prompt and output tokens: the upper root
// of the quadratic M i^2 + (m M - k - n(k+m)) i - m k, rounded up.
func (m *model) chunksAt(n float64) float64 {
	if !m.flavour.chunked() {
		return 1
	}
	n = math.Floor(n + 0.5)
	n = math.Min(math.Max(n, 1), float64(m.n))
	budget := float64(m.v.MaxBatchedTokens)
	k := m.s.Prompt
	out := m.s.Output
	if m.flavour == corrected {
		return math.Max(1, math.Ceil(k/math.Max(1, budget-n)))
	}
	if m.fitting(1) >= n {
		return 1
	}
	half := (out*budget - k - n*(k+out)) / 2
	root := (math.Sqrt(half*half+budget*out*k) - half) / budget
	c := math.Max(1, math.Ceil(root))
	// Rounding can put the root a chunk off to either side.
	const mostOff = 4
	for range mostOff {
		if c == 1 || m.fitting(c-1) < n {
			break
		}
		c--
	}
	for range mostOff {
		if m.fitting(c) >= n {
			break
		}
		c++
	}
	return c
}

// fitting returns the largest batch in which prompts need no more than c chunks: the inverse of
// chunksAt, with the same condition on k/c tokens a chunk.
func (m *model) fitting(c float64) float64 {
	k, out := m.s.Prompt, m.s.Output
	budget := float64(m.v.MaxBatchedTokens)
	if m.flavour == corrected {
		if c >= k { // one token a chunk, which always has room
			return math.Inf(1)
		}
		return math.Floor(budget - k/c)
	}
	return math.Floor(math.Max(0, (c+out)*(budget-k/c)/(k+out)))
}

// phases sets the latencies of p: it divides the time in service, p.ServiceMs, into prefill and
// decode as the flavour does.
func (m *model) phases(p *point, h *moments) {
	switch m.flavour {
	case corrected:
		m.correctedPhases(p, h)
		return
	case wvA4P:
		n := m.effectiveBatch(p.ServiceMs)
		if m.s.Prompt > 0 {
			p.PrefillMs = m.p.GammaMs + m.p.DeltaMs*m.s.Prompt*n
		}
		p.ITLMs = m.p.AlphaMs + m.p.BetaMs*n
		p.TTFTMs = p.WaitMs + p.PrefillMs
		p.TunerTTFTMs = p.TTFTMs
		return
	case wvA3P:
		if m.s.Prompt > 0 {
			p.PrefillMs = m.p.AlphaMs + p.InService*m.wvaSlope() + (m.p.BetaMs+m.p.GammaMs)*m.s.Prompt
		}
	default:
		p.PrefillMs = m.prefillMs(p.InService)
	}
	// Of wva-3p and inferno-3p: the m output tokens take the rest of the service, and the first of them
	// counts into TTFT.
	p.ITLMs = (p.ServiceMs - p.PrefillMs) / m.s.Output
	p.TTFTMs = p.WaitMs + p.PrefillMs + p.ITLMs
	p.TunerTTFTMs = p.TTFTMs
	if m.flavour == wvA3P {
		p.TunerTTFTMs = p.WaitMs + p.PrefillMs
	}
}

// prefillMs returns the prefill time of inferno-3p with x requests in service, ms: c iterations
// shared with the other requests, and the prompt's own work.
func (m *model) prefillMs(x float64) float64 {
	c := m.chunksAt(x)
	share := (m.prefillWork(c) + m.decodeWork()) / (c + m.s.Output)
	return c*math.Max(0, m.p.AlphaMs+(x-1)*share) + m.prefillWork(c)
}

// effectiveBatch returns the number n of requests in service, 0 to N, at which the prefill and the
// decodes of wva-4p, gamma + delta*k*n + (m-1)(alpha + beta*n), add up to serviceMs. Without prompts
// serviceLine has no gamma, and one decode for m = 1, so there n does not invert it.
func (m *model) effectiveBatch(serviceMs float64) float64 {
	decodes := m.s.Output - 1
	n := (serviceMs - m.p.GammaMs - m.p.AlphaMs*decodes) / (m.p.DeltaMs*m.s.Prompt + m.p.BetaMs*decodes)
	return math.Min(math.Max(n, 0), float64(m.n))
}
