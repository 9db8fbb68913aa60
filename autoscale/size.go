package autoscale

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Targets are what a server must hold on average; 0 = not asked for. The
// autoscalers' targets are means too: their percentile margin is not used in
// sizing (pkg/config/defaults.go@b08b1c7).
type Targets struct {
	TTFTMs float64 // mean time to first token
	ITLMs  float64 // mean time between tokens
	TPS    float64 // output tokens per second; no search, see Size
}

// Limits of a sizing.
const (
	byTTFT  = "ttft"
	byITL   = "itl"
	byTPS   = "tps"
	byRange = "range" // nothing binds below 0.999 of the largest throughput
)

// sizing is the largest rate that meets the targets. What stands for a target that is not asked for is the end of the range.
type sizing struct {
	QueueSizing
	TPSRPS   float64
	At       point           // at RateRPS
	Findings []trace.Finding // which targets do not bind, and where a latency is not monotone
}

// The range that is searched, and what a TPS target leaves of it, as the
// autoscalers have them (pkg/analyzer/queueanalyzer.go@b08b1c7).
const (
	rangeEdge   = 0.001
	tpsHeadroom = 0.1
)

const (
	sizeGrid = 64   // rates at which monotonicity is checked
	sizeTol  = 1e-9 // relative, of the rate
)

// Size finds the largest rate in [0.001/tau(1), 0.999*N/tau(N)] up to which
// every target holds. A TPS target is no search in the autoscalers' code: it
// takes 0.9 of the range's end. The error says that a target is missed even at
// the smallest rate.
func (m *model) Size(t Targets) (sizing, error) {
	for _, x := range []number{{"target ttft ms", t.TTFTMs, 0, false}, {"target itl ms", t.ITLMs, 0, false}, {"target tps", t.TPS, 0, false}} {
		if !(x.value >= 0) || math.IsInf(x.value, 0) {
			return sizing{}, trace.Errorf(badModel, "%s: got %g, want a finite number >= 0", x.name, x.value)
		}
	}
	s := sizing{QueueSizing: QueueSizing{TargetTTFTMs: t.TTFTMs, TargetITLMs: t.ITLMs, TargetTPS: t.TPS,
		MinRPS: 1000 * rangeEdge / m.tauMs(1), MaxRPS: (1 - rangeEdge) * m.MaxRateRPS()}}
	s.MinRPS = math.Min(s.MinRPS, s.MaxRPS)
	s.TTFTRPS, s.ITLRPS, s.TPSRPS = s.MaxRPS, s.MaxRPS, s.MaxRPS
	if t.TPS > 0 {
		s.TPSRPS = s.MaxRPS * (1 - tpsHeadroom)
	}
	for _, x := range limits(&s, t) {
		if x.target == 0 {
			continue
		}
		var err error
		if *x.rate, err = m.largestRate(&s, x); err != nil {
			return s, err
		}
	}
	s.bind(m)
	for _, x := range limits(&s, t) { // one latency may rise and fall below where another one binds
		if x.target > 0 && x.of(s.At) > x.target {
			*x.rate = m.crossing(s.MinRPS+float64(math.Floor((s.RateRPS-s.MinRPS)/s.step())*s.step()), s.RateRPS, x)
			s.Findings = append(s.Findings, trace.Findingf(sizingRemark, "%s does not grow with the load everywhere; the smallest rate found "+
				"that misses the target counts", x.name))
			s.bind(m)
		}
	}
	return s, nil
}

// limit is one latency target and where its rate goes.
type limit struct {
	name   string
	target float64
	of     func(point) float64
	rate   *float64
}

func limits(s *sizing, t Targets) [2]limit {
	return [2]limit{
		{byTTFT, t.TTFTMs, func(p point) float64 { return p.TTFTMs }, &s.TTFTRPS},
		{byITL, t.ITLMs, func(p point) float64 { return p.ITLMs }, &s.ITLRPS},
	}
}

// bind takes the smallest rate, and what the model says there.
func (s *sizing) bind(m *model) {
	s.RateRPS, s.Binding = s.MaxRPS, byRange
	if s.TargetTPS > 0 {
		s.RateRPS, s.Binding = s.TPSRPS, byTPS
	}
	if s.TTFTRPS < s.RateRPS {
		s.RateRPS, s.Binding = s.TTFTRPS, byTTFT
	}
	if s.ITLRPS < s.RateRPS {
		s.RateRPS, s.Binding = s.ITLRPS, byITL
	}
	s.At = m.Solve(s.RateRPS)
	s.TTFTMs, s.ITLMs, s.InService = s.At.TTFTMs, s.At.ITLMs, s.At.InService
}

// step is the distance of the grid's rates.
func (s *sizing) step() float64 {
	return math.Max((s.MaxRPS-s.MinRPS)/sizeGrid, math.SmallestNonzeroFloat64)
}

// largestRate is the rate below which the latency stays at or under the target:
// the first crossing on a grid, then bisection.
func (m *model) largestRate(s *sizing, x limit) (float64, error) {
	lo, before, falls := s.MinRPS, x.of(m.Solve(s.MinRPS)), 0
	if before > x.target {
		return 0, trace.Errorf(targetBelowRange, "target %s: got %g ms, want at least %.6g ms, which the server takes at %.3g requests/s", x.name,
			x.target, before, lo).
			WithHint("raise the target, or use a faster accelerator")
	}
	hi := math.NaN()
	for i := 1; i <= sizeGrid; i++ {
		rate := s.MinRPS + float64(s.step()*float64(i))
		v := x.of(m.Solve(rate))
		if v < before*(1-sizeTol) {
			falls++
		}
		if before = v; math.IsNaN(hi) {
			if v > x.target {
				hi = rate
			} else {
				lo = rate
			}
		}
	}
	if falls > 0 {
		s.Findings = append(s.Findings, trace.Findingf(sizingRemark, "%s falls at %d of %d rates as the load grows (prompts are cut into "+
			"another number of chunks); the smallest rate that misses the target counts", x.name, falls, sizeGrid))
	}
	if math.IsNaN(hi) {
		s.Findings = append(s.Findings, trace.Findingf(sizingRemark, "target %s of %g ms is met up to the end of the range, %.4g "+
			"requests/s: it does not bind", x.name, x.target, s.MaxRPS))
		return s.MaxRPS, nil
	}
	return m.crossing(lo, hi, x), nil
}

// crossing bisects between a rate that meets the target and one that misses it.
func (m *model) crossing(lo, hi float64, x limit) float64 {
	for hi-lo > sizeTol*hi {
		if mid := (lo + hi) / 2; x.of(m.Solve(mid)) > x.target {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}
