package autoscale

// This file sizes one server: the largest arrival rate at which a queueing model meets latency
// targets.

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Targets are latencies that a server must meet on average; 0 for none. The autoscalers' targets
// are means too: their percentile margin is not used in sizing (pkg/config/defaults.go@b08b1c7).
type Targets struct {
	TTFTMs float64 // mean time to first token
	ITLMs  float64 // mean TPOT
	TPS    float64 // output tokens per second of all replicas together, from which their number follows; see Size
	// Emulate reduces the range of rates to 0.9 of itself if there is a TPS target, whatever its
	// value, as the autoscalers' queue analyzer does.
	Emulate bool
}

// What limits the rate.
const (
	byTTFT  = "ttft"
	byITL   = "itl"
	byTPS   = "tps"
	byRange = "range" // nothing binds below 0.999 of the largest throughput
)

// sizing is the result of Size. The rate of a target that was not given is the end of the range of
// rates.
type sizing struct {
	QueueSizing
	TPSRPS   float64         // end of the range with Emulate, requests per second
	At       point           // the steady state at RateRPS
	Findings []trace.Finding // which targets do not bind, and where a latency is not monotone
}

// The range of rates that is searched, and by which part a TPS target reduces it, as in the
// autoscalers (pkg/analyzer/queueanalyzer.go@b08b1c7).
const (
	rangeEdge   = 0.001
	tpsHeadroom = 0.1
)

const (
	sizeGrid = 64   // number of rates at which it is checked whether a latency grows with the rate
	sizeTol  = 1e-9 // relative, of the rate
)

// Size returns the largest rate, requests per second, in [0.001/tau(1), 0.999*N/tau(N)] up to which
// every latency target is met. With a TPS target it also returns the number of replicas at that
// rate that produce TPS output tokens per second (optimizer-light pkg/core/allocation.go@77615bd).
// A target ITL does not count for requests of one output token. It returns an error if a target is missed even at the
// smallest rate.
func (q *model) Size(t Targets) (sizing, error) {
	s := sizing{QueueSizing: QueueSizing{
		TargetTTFTMs: t.TTFTMs,
		TargetITLMs:  t.ITLMs,
		TargetTPS:    t.TPS,
		PromptTokens: q.shape.Prompt,
		OutputTokens: q.shape.Output,
		MinRPS:       1000 * rangeEdge / q.tauMs(1),
		MaxRPS:       (1 - rangeEdge) * q.MaxRateRPS(),
	}}
	if t.ITLMs > 0 && !q.hasGaps() {
		t.ITLMs = 0
		s.Findings = append(s.Findings, trace.Findingf(sizingRemark,
			"target itl: requests of one output token have no gap between tokens: it does not bind"))
	}
	s.MinRPS = math.Min(s.MinRPS, s.MaxRPS)
	s.TTFTRPS = s.MaxRPS
	s.ITLRPS = s.MaxRPS
	s.TPSRPS = s.MaxRPS
	if t.TPS > 0 && t.Emulate {
		s.TPSRPS = s.MaxRPS * (1 - tpsHeadroom)
	}
	for _, x := range latencyLimits(&s, t) {
		if x.target == 0 {
			continue
		}
		var err error
		if *x.rate, err = q.largestRate(&s, x); err != nil {
			return s, err
		}
	}
	s.bindSmallest(q)
	for _, x := range latencyLimits(&s, t) { // one latency may rise and fall below where another one binds
		if x.target > 0 && x.latencyOf(s.At) > x.target {
			gridRate := s.MinRPS + math.Floor((s.RateRPS-s.MinRPS)/s.step())*s.step() // the last one below, which meets it
			*x.rate = q.crossing(gridRate, s.RateRPS, x)
			s.Findings = append(s.Findings, trace.Findingf(sizingRemark,
				"%s does not grow with the load everywhere; the smallest rate found that misses the target counts",
				x.name))
			s.bindSmallest(q)
		}
	}
	s.Replicas = int(math.Min(maxReplicas, math.Ceil(q.rateOf(t.TPS)/s.RateRPS)))
	return s, nil
}

// Constants of the search of llm-inferno's /optimize (queue-analysis
// pkg/analyzer/concurrency.go@cfadd1c).
const (
	nearPeak     = 0.99 // share of the throughput with the largest max_num_seqs
	onsetHalving = 6
)

// leastSeats sizes a server with the smallest max_num_seqs, at most most, whose throughput under
// the targets is nearPeak of that with the largest. The closed forms of prefill and ITL bracket it,
// and a few halvings narrow the bracket, as in llm-inferno.
func (q *model) leastSeats(t Targets, most int) (sizing, error) {
	sizeWith := func(seats int) (model, sizing, error) {
		v := q.limits
		v.MaxBatch = seats
		own, err := newModel(q.flavour, q.params, q.shape, v)
		if err != nil {
			return own, sizing{}, err
		}
		s, err := own.Size(t)
		return own, s, err
	}
	all, full, err := sizeWith(most)
	if err != nil {
		return full, err
	}
	// The most seats with which ITL alone, and prefill alone, stay within the targets.
	itl, prefill := 1, 1
	for n := 1; n <= most; n++ {
		ms := all.prefillMs(float64(n))
		if t.ITLMs == 0 || !all.hasGaps() || (all.tauMs(n)-ms)/q.shape.Output <= t.ITLMs {
			itl = n
		}
		if t.TTFTMs == 0 || ms <= t.TTFTMs {
			prefill = n
		}
	}
	lo := min(itl, prefill)
	hi := min(most, 3*max(itl, prefill))
	for i := 0; i < onsetHalving && lo < hi; i++ {
		mid := (lo + hi) / 2
		_, s, err := sizeWith(mid)
		if err == nil && s.At.ThroughputRPS >= nearPeak*full.At.ThroughputRPS {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	_, s, err := sizeWith(hi)
	s.Concurrency = hi
	return s, err
}

// hasGaps reports whether requests have gaps between tokens, so that there is an ITL.
func (q *model) hasGaps() bool { return q.shape.Output > 1 }

// rateOf returns the requests per second whose answers are tps output tokens per second.
func (q *model) rateOf(tps float64) float64 { return tps / q.shape.Output }

// limit is one latency target, and where the largest rate that meets it is stored.
type limit struct {
	name      string
	target    float64 // ms; 0: none
	latencyOf func(point) float64
	rate      *float64 // requests per second
}

// latencyLimits returns the two latency targets of t.
func latencyLimits(s *sizing, t Targets) [2]limit {
	return [2]limit{
		{name: byTTFT, target: t.TTFTMs, latencyOf: func(p point) float64 { return p.TTFTMs }, rate: &s.TTFTRPS},
		{name: byITL, target: t.ITLMs, latencyOf: func(p point) float64 { return p.ITLMs }, rate: &s.ITLRPS},
	}
}

// bindSmallest sets the rate to the smallest of the targets' rates and solves the model there.
func (s *sizing) bindSmallest(m *model) {
	s.RateRPS, s.Binding = s.MaxRPS, byRange
	if s.TPSRPS < s.MaxRPS {
		s.RateRPS, s.Binding = s.TPSRPS, byTPS
	}
	if s.TTFTRPS < s.RateRPS {
		s.RateRPS, s.Binding = s.TTFTRPS, byTTFT
	}
	if s.ITLRPS < s.RateRPS {
		s.RateRPS, s.Binding = s.ITLRPS, byITL
	}
	s.At = m.Solve(s.RateRPS)
	s.TTFTMs = s.At.TTFTMs
	s.ITLMs = s.At.ITLMs
	if !m.hasGaps() {
		s.ITLMs = 0
	}
	s.InService = s.At.InService
}

// step returns the distance between the rates of the grid, requests per second.
func (s *sizing) step() float64 {
	return math.Max((s.MaxRPS-s.MinRPS)/sizeGrid, math.SmallestNonzeroFloat64)
}

// largestRate returns the rate up to which the latency stays within its target, requests per
// second: the first crossing on a grid, refined by bisection.
func (q *model) largestRate(s *sizing, x limit) (float64, error) {
	lo := s.MinRPS
	before := x.latencyOf(q.Solve(s.MinRPS))
	falls := 0 // number of rates at which the latency is lower than at the rate before
	if before > x.target {
		return 0, trace.Errorf(targetBelowRange,
			"target %s: got %g ms, want at least %.6g ms, which the server takes at %.3g requests/s", x.name,
			x.target, before, lo).
			WithHint("raise the target, or use a faster accelerator")
	}
	hi := math.NaN()
	for i := 1; i <= sizeGrid; i++ {
		rate := s.MinRPS + s.step()*float64(i)
		v := x.latencyOf(q.Solve(rate))
		if v < before*(1-sizeTol) {
			falls++
		}
		before = v
		switch {
		case !math.IsNaN(hi): // the first crossing is found; the rest is only checked for falls
		case v > x.target:
			hi = rate
		default:
			lo = rate
		}
	}
	if falls > 0 {
		s.Findings = append(s.Findings, trace.Findingf(sizingRemark,
			"%s falls at %d of %d rates as the load grows (prompts are cut into another number of chunks); the "+
				"smallest rate that misses the target counts", x.name, falls, sizeGrid))
	}
	if math.IsNaN(hi) {
		s.Findings = append(s.Findings, trace.Findingf(sizingRemark,
			"target %s of %g ms is met up to the end of the range, %.4g requests/s: it does not bind", x.name,
			x.target, s.MaxRPS))
		return s.MaxRPS, nil
	}
	return q.crossing(lo, hi, x), nil
}

// crossing returns the rate, between lo that meets the target and hi that misses it, at which the
// latency crosses it.
func (q *model) crossing(lo, hi float64, x limit) float64 {
	const mostHalvings = 100 // 60 halvings leave two neighbouring numbers
	for range mostHalvings {
		if hi-lo <= sizeTol*hi {
			break
		}
		if mid := (lo + hi) / 2; x.latencyOf(q.Solve(mid)) > x.target {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo
}

// sizedOf returns a server of queue.json as a queueing model, with its effective parameters or,
// without any, its physical ones. prompt and output above 0 replace the mean lengths of its
// windows.
func sizedOf(s *QueueServer, f Flavour, prompt, output float64) (model, error) {
	params := s.Effective
	if len(params) == 0 {
		params = s.Physical
	}
	if len(params) != len(f.Parameters()) {
		return model{}, trace.Errorf(badModel, "server %q: got %d %s parameters, want %d", s.ID, len(params), f,
			len(f.Parameters())).WithHint("its reason: " + s.Reason)
	}
	var of shape
	if l := s.Load; l != nil {
		of = shape{
			Prompt:    l.PromptTokens,
			Cached:    l.CachedTokens,
			Output:    l.OutputTokens,
			PromptCV2: l.PromptCV2,
			OutputCV2: l.OutputCV2,
		}
	}
	if prompt > 0 {
		of.Cached *= prompt / max(of.Prompt, 1)
		of.Prompt = prompt
	}
	if output > 0 {
		of.Output = output
	}
	if of.Output == 0 {
		return model{}, trace.Errorf(badModel, "server %q: the mean lengths of its requests are unknown, because no window was recorded",
			s.ID).WithHint("give --prompt-tokens and --output-tokens")
	}
	if err := s.Limits.checkLength(of); err != nil {
		return model{}, fmt.Errorf("server %q: %w", s.ID, err)
	}
	return newModel(f, fromVector(valuesOf(params)), of, s.Limits)
}

// trafficOf returns n requests with Poisson arrivals and log-normal lengths of shape s.
func trafficOf(s shape, rateRPS float64, n int, seed uint64) workload.Traffic {
	return workload.Traffic{
		Shape:     s,
		PromptLaw: workload.LogNormalLaw,
		OutputLaw: workload.LogNormalLaw,
		RateRPS:   rateRPS,
		Requests:  n,
		Seed:      seed,
	}
}
