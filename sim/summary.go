package sim

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// Spread is the distribution of one metric over requests, in ms; unknown
// without values. Percentiles interpolate linearly between order statistics.
type Spread struct {
	N                        int
	Mean, P50, P90, P95, P99 float64
}

// Summary is a run in numbers. Rates divide by DurationS: first arrival to
// last departure, one clock.
type Summary struct {
	Injected, Completed, Rejected, Aborted, TimedOut, Unfinished int
	LengthCapped                                                 int
	InputTokens, OutputTokens                                    int64 // of completed requests
	DurationS                                                    float64
	ResponsesPerSec, TokensPerSec                                float64
	TTFT, E2E, ITL, QueueWait, Admission                         Spread
	TokenGap                                                     Spread // over all gaps, within 0.4 %; N = 0 without Config.TokenGaps
	Preemptions                                                  int64
	CacheHitRate                                                 trace.Opt[float64] // prompt tokens from the cache / looked up
	Steps, EmptySteps, WastedTokens                              int64
	BusyShare                                                    float64
	PeakRunning, PeakWaiting, PeakBlocks                         int64
	Saturated                                                    bool
	SaturationChecks                                             []SaturationCheck
	Goodput                                                      trace.Opt[float64] // requests per second that met their targets
	Classes                                                      []ClassSummary     // sorted by name; those with a name or a target
}

// SaturationCheck is one of the five checks of design 03 section 2; two hits
// make a run saturated.
type SaturationCheck struct {
	Name  string
	Value float64
	Limit float64
	Hit   bool
}

// ClassSummary is one service class.
type ClassSummary struct {
	Name       string
	Requests   int
	Completed  int
	Judged     int // requests with a target
	Met        int
	Attainment trace.Opt[float64] // Met/Judged
	Goodput    trace.Opt[float64] // Met per second
	TTFT, E2E  Spread
}

// Summarize reduces a result.
func Summarize(res *Result) *Summary {
	s := &Summary{Injected: len(res.Requests), Preemptions: res.Preemptions, Steps: res.Steps, EmptySteps: res.EmptySteps, WastedTokens: res.WastedTokens,
		PeakRunning: res.PeakRunning, PeakWaiting: res.PeakWaiting, PeakBlocks: res.PeakBlocks}
	first, last := int64(math.MaxInt64), int64(0)
	for i := range res.Requests {
		r := &res.Requests[i]
		s.count(r)
		first = min(first, r.ArrivalUs)
		last = max(last, r.DepartedUs.Or(r.ArrivalUs))
	}
	s.TTFT = spreadOf(res.Requests, func(r *RequestResult) (float64, bool) {
		v, ok := r.TTFTUs()
		return v, ok && r.Outcome == OutcomeFinished
	})
	s.E2E = spreadOf(res.Requests, (*RequestResult).E2EUs)
	s.ITL = spreadOf(res.Requests, func(r *RequestResult) (float64, bool) {
		v, ok := r.ITLUs()
		return v, ok && r.Outcome == OutcomeFinished
	})
	s.QueueWait = spreadOf(res.Requests, func(r *RequestResult) (float64, bool) {
		return float64(r.ScheduledUs.V - r.QueuedUs.V), r.ScheduledUs.OK
	})
	s.Admission = spreadOf(res.Requests, func(r *RequestResult) (float64, bool) {
		return float64(r.ScheduledUs.V - r.ArrivalUs), r.ScheduledUs.OK
	})
	if res.Gaps != nil && res.Gaps.N() > 0 {
		g := res.Gaps
		s.TokenGap = Spread{int(g.N()), g.Mean() / 1e3, g.At(.5) / 1e3, g.At(.9) / 1e3, g.At(.95) / 1e3, g.At(.99) / 1e3}
	}
	if res.LookedUpTokens > 0 {
		s.CacheHitRate = trace.Some(float64(res.HitTokens) / float64(res.LookedUpTokens))
	}
	if last > first {
		s.DurationS = float64(last-first) / 1e6
		s.ResponsesPerSec, s.TokensPerSec = float64(s.Completed)/s.DurationS, float64(s.OutputTokens)/s.DurationS
		s.BusyShare = math.Min(1, float64(res.BusyUs)/float64(last-first))
	}
	s.classes(res)
	s.judgeSaturation(res)
	return s
}

func (s *Summary) count(r *RequestResult) {
	switch r.Outcome {
	case OutcomeFinished:
		s.Completed++
		s.InputTokens += r.PromptTokens
		s.OutputTokens += r.OutputTokens
		if r.FinishStatus == trace.FinishLength {
			s.LengthCapped++
		}
	case OutcomeRejected:
		s.Rejected++
	case OutcomeAborted:
		s.Aborted++
	case OutcomeTimedOut:
		s.TimedOut++
	default:
		s.Unfinished++
	}
}

// spreadOf collects a metric in us and reports it in ms.
func spreadOf(rs []RequestResult, metric func(*RequestResult) (float64, bool)) Spread {
	var v []float64
	for i := range rs {
		if x, ok := metric(&rs[i]); ok {
			v = append(v, x/1e3)
		}
	}
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return Spread{len(v), sum / float64(len(v)), stat.Quantile(v, .5), stat.Quantile(v, .9), stat.Quantile(v, .95), stat.Quantile(v, .99)}
}

func (s *Summary) classes(res *Result) {
	byName := map[string][]RequestResult{}
	var names []string
	met, judged := 0, 0
	for i := range res.Requests {
		r := &res.Requests[i]
		if r.SLOMet.OK {
			judged++
			if r.SLOMet.V {
				met++
			}
		}
		if r.SLOClass == "" && !r.SLOMet.OK {
			continue
		}
		if _, ok := byName[r.SLOClass]; !ok {
			names = append(names, r.SLOClass)
		}
		byName[r.SLOClass] = append(byName[r.SLOClass], *r)
	}
	if judged > 0 && s.DurationS > 0 {
		s.Goodput = trace.Some(float64(met) / s.DurationS)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		s.Classes = append(s.Classes, classOf(name, byName[name], s.DurationS))
	}
}

func classOf(name string, rs []RequestResult, seconds float64) ClassSummary {
	c := ClassSummary{Name: name, Requests: len(rs)}
	for i := range rs {
		if rs[i].Outcome == OutcomeFinished {
			c.Completed++
		}
		if rs[i].SLOMet.OK {
			c.Judged++
			if rs[i].SLOMet.V {
				c.Met++
			}
		}
	}
	if c.Judged > 0 {
		c.Attainment = trace.Some(float64(c.Met) / float64(c.Judged))
		if seconds > 0 {
			c.Goodput = trace.Some(float64(c.Met) / seconds)
		}
	}
	c.TTFT = spreadOf(rs, (*RequestResult).TTFTUs)
	c.E2E = spreadOf(rs, (*RequestResult).E2EUs)
	return c
}

// Limits of the saturation checks (design 03 section 2).
const (
	limitFailures  = 0.05
	limitRisingR2  = 0.5
	limitPreempted = 0.15
	limitTTFTDrift = 2
	limitE2ETail   = 10
	hitsToSaturate = 2
)

func (s *Summary) judgeSaturation(res *Result) {
	n := float64(max(1, s.Injected))
	preempted := 0
	for i := range res.Requests {
		if res.Requests[i].Preemptions > 0 {
			preempted++
		}
	}
	tail := 0.0
	if s.E2E.P50 > 0 {
		tail = s.E2E.P99 / s.E2E.P50
	}
	add := func(name string, value, limit float64) {
		s.SaturationChecks = append(s.SaturationChecks, SaturationCheck{name, value, limit, value > limit})
	}
	add("failure_share", float64(s.Rejected+s.Aborted+s.TimedOut)/n, limitFailures)
	add("queue_wait_rising_r2", risingR2(res), limitRisingR2)
	add("preempted_share", float64(preempted)/n, limitPreempted)
	add("ttft_drift", ttftDrift(res), limitTTFTDrift)
	add("e2e_p99_over_p50", tail, limitE2ETail)
	hits := 0
	for _, c := range s.SaturationChecks {
		if c.Hit {
			hits++
		}
	}
	s.Saturated = hits >= hitsToSaturate
}

// risingR2 is the R2 of the wait before the first schedule over arrival time,
// 0 when the wait does not grow.
func risingR2(res *Result) float64 {
	var n, sx, sy, sxx, sxy, syy float64
	for i := range res.Requests {
		r := &res.Requests[i]
		if !r.ScheduledUs.OK {
			continue
		}
		x, y := float64(r.ArrivalUs)/1e6, float64(r.ScheduledUs.V-r.ArrivalUs)/1e6
		n, sx, sy, sxx, sxy, syy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y, syy+y*y
	}
	cov, vx, vy := n*sxy-sx*sy, n*sxx-sx*sx, n*syy-sy*sy
	if n < 3 || cov <= 0 || vx <= 0 || vy <= 0 {
		return 0
	}
	return cov * cov / (vx * vy)
}

// ttftDrift is the median TTFT of the last third of arrivals over the first's.
func ttftDrift(res *Result) float64 {
	order := make([]int, 0, len(res.Requests))
	for i := range res.Requests {
		if res.Requests[i].FirstTokenUs.OK {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmpInt(res.Requests[a].ArrivalUs, res.Requests[b].ArrivalUs) })
	third := len(order) / 3
	if third == 0 {
		return 0
	}
	median := func(part []int) float64 {
		var v []float64
		for _, i := range part {
			x, _ := res.Requests[i].TTFTUs()
			v = append(v, x)
		}
		slices.Sort(v)
		return stat.Quantile(v, .5)
	}
	first := median(order[:third])
	if first <= 0 {
		return 0
	}
	return median(order[len(order)-third:]) / first
}
