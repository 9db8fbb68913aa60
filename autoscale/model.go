package autoscale

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// params are the coefficients of an iteration. The three-parameter flavours say
// iteration = alpha + beta*(tokens computed) + gamma*(KV tokens read);
// wva-4p says decode = alpha + beta*n and prefill = gamma + delta*k*n for n
// requests in the batch and prompts of k tokens.
type params struct {
	AlphaMs float64 // ms
	BetaMs  float64 // ms per computed token; wva-4p: ms per request
	GammaMs float64 // ms per KV token read; wva-4p: ms
	DeltaMs float64 // wva-4p only: ms per prompt token and request
}

// shape is how long requests are, means over requests; the corrected flavour alone reads more than the two lengths.
type shape = workload.Lengths

// defaultMaxBatchedTokens is what queue-analysis assumes (pkg/analyzer/queueanalyzer.go@cfadd1c).
const defaultMaxBatchedTokens = 8192

// model is one flavour with its numbers in place. It is a value without
// pointers: copy it, use it from several goroutines.
type model struct {
	flavour Flavour
	p       params
	s       shape
	v       Limits
	n       int // seats the chain has: MaxBatch, or fewer where the KV cache binds
}

// New checks the numbers and builds a model.
func New(f Flavour, p params, s shape, v Limits) (model, error) {
	v.MaxBatchedTokens = cmp.Or(v.MaxBatchedTokens, defaultMaxBatchedTokens)
	m := model{flavour: f, p: p, s: s, v: v, n: v.MaxBatch}
	if err := m.check(); err != nil {
		return model{}, err
	}
	if f == corrected {
		m.n = m.correctedSeats()
	}
	return m, nil
}

// number is a named value with its lower bound; all are at most mostWanted.
type number struct {
	name         string
	value, least float64
}

func (x number) check() error {
	if !(x.value >= x.least && x.value <= mostWanted) {
		return trace.Errorf(badModel, "%s: got %g, want %g to %g", x.name, x.value, x.least, mostWanted)
	}
	return nil
}

func (m *model) check() error {
	if err := m.flavour.check(); err != nil {
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
		return trace.Errorf(badModel, "cached tokens: got %g, want at most the %g of the prompt", m.s.Cached, m.s.Prompt)
	}
	for _, x := range numbers {
		if err := x.check(); err != nil {
			return err
		}
	}
	if tau := m.tauMs(1); !(tau > 0) || math.IsInf(tau, 0) {
		return trace.Errorf(badModel, "time in service ms: got %g, want a finite number > 0", tau)
	}
	return nil
}

// Flavour names a queueing model.
type Flavour string

// The flavours there are.
const (
	wvA4P     Flavour = "wva-4p"
	wvA3P     Flavour = "wva-3p"
	inferno3P Flavour = "inferno-3p"
	corrected Flavour = "corrected"
)

// flavours lists them in the order help shows them.
var flavours = []Flavour{wvA4P, wvA3P, inferno3P, corrected}

// check refuses a name that is no flavour.
func (f Flavour) check() error {
	if slices.Contains(flavours, f) {
		return nil
	}
	return trace.Errorf(badOption, "flavour: got %q, want %s", f, trace.OneOf(flavours))
}

// Parameters are the names of the flavour's parameters, in the order of a state vector.
func (f Flavour) Parameters() []string {
	if f == wvA4P {
		return []string{"alpha", "beta", "gamma", "delta"}
	}
	return []string{"alpha", "beta", "gamma"}
}

// chunked reports whether prompts are cut by the token budget.
func (f Flavour) chunked() bool { return f == inferno3P || f == corrected }

// Vector and fromVector turn parameters into a state vector and back.
func (p params) Vector(f Flavour) []float64 {
	if f == wvA4P {
		return []float64{p.AlphaMs, p.BetaMs, p.GammaMs, p.DeltaMs}
	}
	return []float64{p.AlphaMs, p.BetaMs, p.GammaMs}
}

// fromVector is the inverse of Vector.
func fromVector(x []float64) params {
	p := params{AlphaMs: x[0], BetaMs: x[1], GammaMs: x[2]}
	if len(x) > 3 {
		p.DeltaMs = x[3]
	}
	return p
}

// line is the time in service at concurrency n with c prefill chunks,
// tau(n) = a + b*n, in ms.
//
//	wva-4p      gamma + delta*k*n + (m-1)(alpha + beta*n); without prompts the
//	            prefill is nothing, and one decode is left for m = 1
//	wva-3p      T(n) + (beta+gamma)k + m(T(n) + beta + gamma(k+m/2)) with
//	            T(n) = alpha + n(beta(k+m)/(m+1) + gamma(k+m/2)); without prompts
//	            the prefill is nothing
//	inferno-3p  (c+m)*alpha + n*w, w the work of one request
//
// Source: workload-variant-autoscaler pkg/analyzer/queueanalyzer.go@ce39598 (4p) and
// @b08b1c7 (wva-3p), llm-inferno/queue-analysis pkg/analyzer/queueanalyzer.go@cfadd1c.
func (m *model) line(c float64) (a, b float64) {
	p, k, out := m.p, m.s.Prompt, m.s.Output
	switch m.flavour {
	case wvA4P:
		decodes := out - 1
		if k == 0 {
			if out == 1 {
				decodes = 1
			}
			return decodes * p.AlphaMs, decodes * p.BetaMs
		}
		return p.GammaMs + float64(decodes*p.AlphaMs), float64(p.DeltaMs*k) + float64(decodes*p.BetaMs)
	case wvA3P:
		slope := m.wvaSlope()
		decode := p.BetaMs + float64(p.GammaMs*(k+float64(out/2)))
		if k == 0 {
			return out * (p.AlphaMs + decode), out * slope
		}
		return float64((1+out)*p.AlphaMs) + float64((p.BetaMs+p.GammaMs)*k) + float64(out*decode), (1 + out) * slope
	}
	if m.flavour == corrected {
		return (c + m.decodes()) * p.AlphaMs, m.prefillWork(c) + m.correctedDecodeWork()
	}
	return (c + out) * p.AlphaMs, m.prefillWork(c) + m.decodeWork()
}

// wvaSlope is what one more request adds to an iteration of wva-3p, ms.
func (m *model) wvaSlope() float64 {
	k, out := m.s.Prompt, m.s.Output
	return m.p.BetaMs*(k+out)/(out+1) + float64(m.p.GammaMs*(k+float64(out/2)))
}

// prefillWork and decodeWork are one request's own work in inferno-3p, ms; each
// of c chunks reads what the prompt has by then.
func (m *model) prefillWork(c float64) float64 {
	computed := m.s.Prompt
	if m.flavour == corrected {
		computed -= m.s.Cached
	}
	return float64(m.p.BetaMs*computed) + float64(m.p.GammaMs*(c+1)/2*m.s.Prompt)
}

func (m *model) decodeWork() float64 {
	out := m.s.Output
	return float64(m.p.BetaMs*out) + float64(m.p.GammaMs*out*(m.s.Prompt+float64((out+1)/2)))
}

// tauMs is the time in service at concurrency n, ms.
func (m *model) tauMs(n int) float64 {
	a, b := m.line(m.chunksAt(float64(n)))
	return a + float64(b*float64(n))
}

// chunksAt is the number of steps that a prompt is cut into with n requests in
// the batch: the smallest i for which (i+m)(M-k/i)/(k+m) >= n, which is the
// upper end of the quadratic M i^2 + (m M - k - n(k+m)) i - m k.
func (m *model) chunksAt(n float64) float64 {
	if !m.flavour.chunked() {
		return 1
	}
	n = math.Floor(n + 0.5)
	n = math.Min(math.Max(n, 1), float64(m.n))
	budget, k, out := float64(m.v.MaxBatchedTokens), m.s.Prompt, m.s.Output
	if m.flavour == corrected {
		return math.Max(1, math.Ceil(k/math.Max(1, budget-n)))
	}
	if m.fitting(1) >= n {
		return 1
	}
	half := float64((float64(out*budget) - k - float64(n*(k+out))) / 2)
	root := (math.Sqrt(float64(half*half)+float64(budget*out*k)) - half) / budget
	c := math.Max(1, math.Ceil(root))
	for c > 1 && m.fitting(c-1) >= n { // rounding of the root
		c--
	}
	for m.fitting(c) < n {
		c++
	}
	return c
}

// fitting is the largest batch in which prompts need no more than c chunks.
func (m *model) fitting(c float64) float64 {
	k, out := m.s.Prompt, m.s.Output
	if m.flavour == corrected {
		if c >= k {
			return math.Inf(1)
		}
		return math.Floor(float64(m.v.MaxBatchedTokens) - k/c)
	}
	return math.Floor(math.Max(0, (c+out)*(float64(m.v.MaxBatchedTokens)-k/c)/(k+out)))
}

// phases splits the time in service p.ServiceMs at concurrency X into prefill and decode: the latencies of the point.
func (m *model) phases(p *point, h *moments) {
	switch m.flavour {
	case corrected:
		m.correctedPhases(p, h)
		return
	case wvA4P:
		n := m.effectiveBatch(p.ServiceMs)
		if m.s.Prompt > 0 {
			p.PrefillMs = m.p.GammaMs + float64(m.p.DeltaMs*m.s.Prompt*n)
		}
		p.ITLMs = m.p.AlphaMs + float64(m.p.BetaMs*n)
		p.TTFTMs = p.WaitMs + p.PrefillMs
		p.TunerTTFTMs = p.TTFTMs
		return
	case wvA3P:
		if m.s.Prompt > 0 {
			p.PrefillMs = m.p.AlphaMs + float64(p.InService*m.wvaSlope()) + float64((m.p.BetaMs+m.p.GammaMs)*m.s.Prompt)
		}
	default:
		p.PrefillMs = m.prefillMs(p.InService)
	}
	p.ITLMs = (p.ServiceMs - p.PrefillMs) / m.s.Output
	p.TTFTMs = p.WaitMs + p.PrefillMs + p.ITLMs
	p.TunerTTFTMs = p.TTFTMs
	if m.flavour == wvA3P {
		p.TunerTTFTMs = p.WaitMs + p.PrefillMs
	}
}

// prefillMs is inferno-3p's prefill at concurrency x: c iterations beside the
// other requests, and the prompt's own work.
func (m *model) prefillMs(x float64) float64 {
	c := m.chunksAt(x)
	share := (m.prefillWork(c) + m.decodeWork()) / (c + m.s.Output)
	return float64(c*math.Max(0, m.p.AlphaMs+float64((x-1)*share))) + m.prefillWork(c)
}

// effectiveBatch is the concurrency at which wva-4p's phases add up to the time in service.
func (m *model) effectiveBatch(serviceMs float64) float64 {
	decodes := m.s.Output - 1
	n := (serviceMs - m.p.GammaMs - float64(m.p.AlphaMs*decodes)) / (float64(m.p.DeltaMs*m.s.Prompt) + float64(m.p.BetaMs*decodes))
	return math.Min(math.Max(n, 0), float64(m.n))
}
