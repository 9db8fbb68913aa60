package autoscale

import (
	"math"

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
	if v.MaxBatchedTokens == 0 {
		v.MaxBatchedTokens = defaultMaxBatchedTokens
	}
	m := model{flavour: f, p: p, s: s, v: v, n: v.MaxBatch}
	if err := m.check(); err != nil {
		return model{}, err
	}
	if f == corrected {
		m.n = m.correctedSeats()
	}
	return m, nil
}

// number is a named value with its lower bound, or above it when open.
type number struct {
	name  string
	value float64
	least float64
	open  bool
}

func (m *model) check() error {
	if !m.flavour.known() {
		return trace.Errorf(badOption, "flavour: got %q, want %s", m.flavour, trace.OneOf(flavours))
	}
	var kv float64
	if m.v.KVTokens != nil {
		kv = *m.v.KVTokens
	}
	numbers := [...]number{
		{"alpha ms", m.p.AlphaMs, 0, false}, {"beta ms", m.p.BetaMs, 0, false}, {"gamma ms", m.p.GammaMs, 0, false},
		{"delta ms", m.p.DeltaMs, 0, false},
		{"prompt tokens", m.s.Prompt, 0, false}, {"output tokens", m.s.Output, 1, false},
		{"cached tokens", m.s.Cached, 0, false}, {"prompt cv2", m.s.PromptCV2, 0, false}, {"output cv2", m.s.OutputCV2, 0, false},
		{"max batch", float64(m.v.MaxBatch), 1, false}, {"queue", float64(m.v.Queue), 0, false},
		{"max batched tokens", float64(m.v.MaxBatchedTokens), 1, false},
		{"kv tokens", kv, 0, false}, {"overhead ms", m.v.OverheadMs, 0, false},
		{"time in service ms", m.tauMs(1), 0, true},
	}
	if m.s.Cached > m.s.Prompt {
		return trace.Errorf(badModel, "cached tokens: got %g, want at most the %g of the prompt", m.s.Cached, m.s.Prompt)
	}
	for _, x := range numbers {
		if !(x.value >= x.least) || math.IsInf(x.value, 0) || x.open && x.value == x.least {
			want := ">="
			if x.open {
				want = ">"
			}
			return trace.Errorf(badModel, "%s: got %g, want a finite number %s %g", x.name, x.value, want, x.least)
		}
	}
	return nil
}
