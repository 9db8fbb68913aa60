package sizing

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
)

// sample is what the measured requests of one simulation experienced, ms, each list in order of arrival.
type sample struct {
	ttft, tpot, e2e []float64
	gaps            *stat.Histogram // between tokens, us
	lost            int             // measured requests that got no answer
	spanS           float64         // from the first measured arrival to the last
	served          int             // requests that finished in that time
	tokens          int64           // their output tokens
	meanInFlight    float64         // requests in the system, averaged over that time
	rising          bool            // requests in the system pile up
}

// simulate serves a stretch with n servers.
func simulate(cfg sim.Config, n int, routing string, s *stretch) (*sample, error) {
	requests, engines, err := cluster.Servers(cfg, n, routing, s.requests)
	if err != nil {
		return nil, err
	}
	out := &sample{gaps: stat.NewHistogram()}
	for _, e := range engines {
		if e.Gaps != nil {
			out.gaps.Merge(e.Gaps)
		}
	}
	out.add(requests, s)
	return out, nil
}

// add reads the requests' results.
func (m *sample) add(requests []sim.RequestResult, s *stretch) {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(requests[a].ArrivalUs - requests[b].ArrivalUs) })
	var arrivals []stat.Arrival
	for _, i := range order {
		if s.requests[i].Unmeasured {
			continue
		}
		r := &requests[i]
		ttft, hasTTFT := r.TTFTUs()
		e2e, hasE2E := r.E2EUs()
		arrivals = append(arrivals, stat.Arrival{
			At:     float64(r.ArrivalUs),
			Left:   knownUs(float64(r.DepartedUs.V), r.DepartedUs.OK),
			TTFT:   knownUs(ttft, hasTTFT),
			E2E:    knownUs(e2e, hasE2E),
			Ended:  r.Outcome != sim.OutcomeUnfinished,
			Failed: r.Outcome == sim.OutcomeRejected || r.Outcome == sim.OutcomeTimedOut,
			Engine: r.QueuedUs.OK,
		})
		if !hasTTFT || !hasE2E {
			m.lost++
			continue
		}
		m.ttft = append(m.ttft, ttft/1e3)
		m.e2e = append(m.e2e, e2e/1e3)
		tpot, hasTPOT := r.ITLUs()
		if !hasTPOT {
			tpot = 0
		}
		m.tpot = append(m.tpot, tpot/1e3)
	}
	if len(arrivals) == 0 {
		return
	}
	first := arrivals[0].At
	last := arrivals[len(arrivals)-1].At
	m.spanS = (last - first) / 1e6
	for i := range requests {
		r := &requests[i]
		from := math.Max(float64(r.ArrivalUs), first)
		until := last
		if r.DepartedUs.OK {
			until = math.Min(float64(r.DepartedUs.V), last)
		}
		if until > from && last > first {
			m.meanInFlight += (until - from) / (last - first)
		}
		if r.DepartedUs.OK && r.Outcome == sim.OutcomeFinished && float64(r.DepartedUs.V) > first && float64(r.DepartedUs.V) <= last {
			m.served++
			m.tokens += r.OutputTokens
		}
	}
	m.rising = stat.QueueRises(arrivals)
}

func knownUs(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// figure is a statistic of the sample, ms: quantile 0 is the mean. NaN without values; a request without
// an answer counts as one that took for ever.
func (m *sample) figure(metric string, quantile float64) float64 {
	if metric == ITL {
		switch {
		case m.gaps.N() == 0:
			return math.NaN()
		case quantile == 0:
			return m.gaps.Mean() / 1e3
		}
		return m.gaps.Quantile(quantile) / 1e3
	}
	values := slices.Clone(m.of(metric))
	for range m.lost {
		values = append(values, math.Inf(1))
	}
	switch {
	case len(values) == 0:
		return math.NaN()
	case quantile == 0:
		return stat.Mean(values)
	}
	slices.Sort(values)
	return stat.Quantile(values, quantile)
}

// of are the values of a metric that every request has one of.
func (m *sample) of(metric string) []float64 {
	switch metric {
	case TTFT:
		return m.ttft
	case TPOT:
		return m.tpot
	}
	return m.e2e
}

// goodput is the share of measured requests that meet all limits themselves.
func (m *sample) goodput(limits []Target) float64 {
	met := 0
	for i := range m.ttft {
		keepsAll := true
		for _, l := range limits {
			keepsAll = keepsAll && m.of(l.Metric)[i] <= l.LimitMs
		}
		if keepsAll {
			met++
		}
	}
	return float64(met) / float64(max(1, len(m.ttft)+m.lost))
}

// broken is the first target that the sample misses, as a short text; "": it meets all.
func (m *sample) broken(t *Targets) string {
	if m.rising {
		return "saturated"
	}
	if t.Goodput > 0 {
		if m.goodput(t.Limits) < t.Goodput {
			return "goodput"
		}
		return ""
	}
	for _, l := range t.Limits {
		if v := m.figure(l.Metric, l.Quantile); !(v <= l.LimitMs) {
			return l.Metric + " " + l.Figure()
		}
	}
	return ""
}
