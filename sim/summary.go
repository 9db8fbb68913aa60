package sim

import (
	"cmp"
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
	SaturationChecks                                             []stat.Check
	Goodput                                                      trace.Opt[float64] // requests per second that met their targets
	Classes                                                      []ClassSummary     // sorted by name; those with a name or a target
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

// judgeSaturation runs the five checks on the requests in order of arrival. A
// rejected or timed-out request failed; one the client gave up did not.
func (s *Summary) judgeSaturation(res *Result) {
	arrivals := make([]stat.Arrival, len(res.Requests))
	for i := range res.Requests {
		r := &res.Requests[i]
		known := func(us float64, ok bool) float64 {
			if !ok {
				return math.NaN()
			}
			return us
		}
		arrivals[i] = stat.Arrival{
			At: float64(r.ArrivalUs), Left: known(float64(r.DepartedUs.V), r.DepartedUs.OK), TTFT: known(r.TTFTUs()), E2E: known(r.E2EUs()),
			Ended: r.Outcome != OutcomeUnfinished, Failed: r.Outcome == OutcomeRejected || r.Outcome == OutcomeTimedOut,
			Engine: r.Outcome != OutcomeRejected, Preempted: r.Preemptions > 0,
		}
	}
	slices.SortStableFunc(arrivals, func(a, b stat.Arrival) int { return cmp.Compare(a.At, b.At) })
	s.SaturationChecks, s.Saturated = stat.Saturation(arrivals)
}
