package sim

// This file has the means that a benchmark prints, for fits that compare them with measured ones.

// Means are the figures that a benchmark prints for one load, ms: means over the measured requests that
// finished, and the derivatives of these means by the coefficients (see Columns).
type Means struct {
	Requests       float64   // number of requests in the means
	Steps          int64     // number of simulated steps
	Preemptions    int64     // if above 0, the KV cache ran out of blocks
	TTFTMs, TPOTMs float64   // TPOT: the mean gap between a request's tokens, as benchmarks name it
	TTFTBy, TPOTBy []float64 // ms per unit of the coefficient; nil without Config.Gradient
}

// MeansOf simulates a load and returns its means. It sets Config.Restarts, so that the derivatives
// are those that a fit by replay uses.
func MeansOf(cfg Config, reqs []Request) (*Means, error) {
	m := &Means{}
	cfg.Restarts = true
	if cfg.Gradient {
		c, err := gradientColumns(&cfg)
		if err != nil {
			return nil, err
		}
		m.TTFTBy, m.TPOTBy = make([]float64, c.N()), make([]float64, c.N())
	}
	res, err := Stream(cfg, reqs, nil, func(i int, r *RequestResult) bool {
		if !reqs[i].Unmeasured {
			m.Add(r)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	m.Steps = res.Steps
	m.Preemptions = res.Preemptions
	m.TTFTMs = m.TTFTMs / m.Requests
	m.TPOTMs = m.TPOTMs / m.Requests
	for j := range m.TTFTBy {
		m.TTFTBy[j] /= m.Requests
		m.TPOTBy[j] /= m.Requests
	}
	return m, nil
}

// Add adds the times of one request; MeansOf divides the sums at the end. A request without a second
// token, which has no TPOT, counts neither for TPOT nor for TTFT.
func (m *Means) Add(r *RequestResult) {
	ttft, ok1 := r.TTFTUs()
	itl, ok2 := r.ITLUs()
	if !ok1 || !ok2 {
		return
	}
	m.Requests++
	m.TTFTMs += ttft / 1e3
	m.TPOTMs += itl / 1e3
	if g := r.Gradient; g != nil {
		gaps := float64(r.OutputTokens - 1)
		for j := range m.TTFTBy {
			m.TTFTBy[j] += g.TTFT.By[j] / 1e3
			m.TPOTBy[j] += g.Span.By[j] / gaps / 1e3
		}
	}
}
