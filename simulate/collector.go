package simulate

// This file adds up the figures of a run without keeping its requests.

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// collector reduces the requests of one run to a Summary, without keeping them.
type collector struct {
	run Summary // the counts so far
	// Latencies in us, of the requests that have them.
	ttft, e2e []float64
	completed []float64 // TTFT of finished requests
	itl       []float64 // mean ITL of each finished request
	delay     []float64 // from arrival to the first schedule
	queueWait []float64 // from the engine's queue to the first schedule
	arrivals  []stat.Arrival
	first     int64 // first arrival, us
	last      int64 // last departure, us; of a request without one its arrival
	end       int64 // last token, us
	classes   map[string]*class
	judged    int  // requests with a target
	met       int  // of these, those that met it
	isClosed  bool // some request follows an answer
}

// class is the collector of one service class.
type class struct {
	Class
	ttft, e2e []float64 // us
}

// NewCollector returns an empty collector for the results of these requests.
func NewCollector(reqs []sim.Request) *collector {
	return newCollector(len(reqs), sim.IsClosedLoop(reqs))
}

// newCollector returns an empty collector for so many results. isClosed: some request follows an answer.
func newCollector(requests int, isClosed bool) *collector {
	c := &collector{isClosed: isClosed, run: Summary{Rejections: map[string]int{}}, first: math.MaxInt64, classes: map[string]*class{}}
	for _, list := range []*[]float64{&c.ttft, &c.completed, &c.e2e, &c.itl, &c.delay, &c.queueWait} {
		*list = make([]float64, 0, requests)
	}
	c.arrivals = make([]stat.Arrival, 0, requests)
	return c
}

// Add counts a request that has left the engine, or that had not left it when the simulation ended.
// It does not keep r.
func (c *collector) Add(r *sim.RequestResult) {
	c.run.InjectedRequests++
	c.countOutcome(r)
	c.end = max(c.end, r.FinishedUs.Or(0))
	c.first = min(c.first, r.ArrivalUs)
	c.last = max(c.last, r.DepartedUs.Or(r.ArrivalUs))
	finished := r.Outcome == sim.OutcomeFinished
	ttft, hasTTFT := r.TTFTUs()
	e2e, hasE2E := r.E2EUs()
	itl, hasITL := r.ITLUs()
	appendKnown(&c.ttft, ttft, hasTTFT)
	appendKnown(&c.completed, ttft, hasTTFT && finished)
	appendKnown(&c.e2e, e2e, hasE2E)
	appendKnown(&c.itl, itl, hasITL && finished)
	appendKnown(&c.delay, float64(r.ScheduledUs.V-r.ArrivalUs), r.ScheduledUs.OK)
	appendKnown(&c.queueWait, float64(r.ScheduledUs.V-r.QueuedUs.V), r.ScheduledUs.OK)
	c.arrivals = append(c.arrivals, ArrivalOf(r))
	if r.SLOClass != "" || r.SLOMet.OK {
		c.classify(r)
	}
}

// appendKnown appends a value that is known.
func appendKnown(to *[]float64, v float64, ok bool) {
	if ok {
		*to = append(*to, v)
	}
}

// countOutcome counts the request by its outcome.
func (c *collector) countOutcome(r *sim.RequestResult) {
	s := &c.run
	if r.QueuedUs.OK && r.Outcome != sim.OutcomeRejected {
		s.TotalInputTokens += r.PromptTokens
	}
	switch r.Outcome {
	case sim.OutcomeFinished:
		s.CompletedRequests++
		s.CompletedInputTokens += r.PromptTokens
		s.TotalOutputTokens += r.OutputTokens
		switch {
		case r.LengthCapped:
			s.LengthCappedRequests++
		case r.FinishStatus == trace.FinishLength:
			s.FinishedByMaxTokens++
		}
	case sim.OutcomeRejected:
		s.RejectedRequests++
		s.Rejections[string(r.Reason)]++
	case sim.OutcomeAborted:
		s.AbortedRequests++
	case sim.OutcomeTimedOut:
		s.TimedOutRequests++
	default:
		s.UnfinishedRequests++
	}
}

// ArrivalOf returns the request in the form that the saturation checks read (spec#saturation).
func ArrivalOf(r *sim.RequestResult) stat.Arrival {
	us := func(v float64, ok bool) float64 {
		if !ok {
			return math.NaN()
		}
		return v
	}
	return stat.Arrival{
		At:        float64(r.ArrivalUs),
		Left:      us(float64(r.DepartedUs.V), r.DepartedUs.OK),
		TTFT:      us(r.TTFTUs()),
		E2E:       us(r.E2EUs()),
		Ended:     r.Outcome != sim.OutcomeUnfinished,
		Failed:    r.Outcome == sim.OutcomeRejected || r.Outcome == sim.OutcomeTimedOut,
		Engine:    r.QueuedUs.OK,
		Preempted: r.Preemptions > 0,
		Waits:     !r.ScheduledUs.OK || r.ScheduledUs.V > r.QueuedUs.V,
	}
}

// classify adds the request to the counts of its service class.
func (c *collector) classify(r *sim.RequestResult) {
	k := c.classes[r.SLOClass]
	if k == nil {
		k = &class{Class: Class{Name: r.SLOClass}}
		c.classes[r.SLOClass] = k
	}
	k.Requests++
	if r.Outcome == sim.OutcomeFinished {
		k.Completed++
	}
	if r.SLOMet.OK {
		k.Judged++
		c.judged++
		if r.SLOMet.V {
			k.Met++
			c.met++
		}
	}
	ttft, hasTTFT := r.TTFTUs()
	e2e, hasE2E := r.E2EUs()
	appendKnown(&k.ttft, ttft, hasTTFT)
	appendKnown(&k.e2e, e2e, hasE2E)
}

// earliestEpochUs is September 2001 in us since 1970: a later first arrival is a wall-clock stamp, and the
// clock of the run starts with it.
const earliestEpochUs = 1e15

// Close adds the counts of the engine and returns the summary.
func (c *collector) Close(res *sim.Result) *Summary {
	s := &c.run
	s.DraftTokens = res.DraftTokens
	s.AcceptedTokens = res.AcceptedTokens
	if res.Verifies > 0 {
		s.TokensPerVerify = 1 + float64(res.AcceptedTokens)/float64(res.Verifies)
	}
	s.PreemptionCount = res.Preemptions
	s.Steps = res.Steps
	s.EmptySteps = res.EmptySteps
	s.WastedTokens = res.WastedTokens
	s.PeakRunning = res.PeakRunning
	s.PeakWaiting = res.PeakWaiting
	s.PeakBlocks = res.PeakBlocks
	s.Ranks = PartOf(res).Ranks
	s.fillLatencies(c, res.Gaps)
	if n := res.HitBlocks + res.NewBlocks; n > 0 {
		s.CacheHitRate = known(float64(res.HitBlocks) / float64(n))
	}
	if res.LookedUpTokens > 0 {
		s.PromptCacheHitRate = known(float64(res.HitTokens) / float64(res.LookedUpTokens))
	}
	// Recorded arrivals are times since 1970, generated ones since the start.
	if c.first >= earliestEpochUs {
		c.end = max(c.end-c.first, 0)
	}
	s.EndS = float64(c.end) / 1e6
	if s.EndS > 0 {
		s.ResponsesPerSec = float64(s.CompletedRequests) / s.EndS
		s.TokensPerSec = float64(s.TotalOutputTokens) / s.EndS
		if c.judged > 0 {
			s.GoodputRPS = known(float64(c.met) / s.EndS)
		}
	}
	if c.last > c.first {
		s.DurationS = float64(c.last-c.first) / 1e6
		s.BusyShare = math.Min(1, float64(res.BusyUs)/float64(c.last-c.first))
	}
	// Whether waits grew over the run. In a closed loop the clients limit the load, so it is never overload.
	stat.SortStable(c.arrivals, func(a, b stat.Arrival) int { return cmp.Compare(a.At, b.At) })
	checks, saturated := stat.Overloaded(c.arrivals, nil)
	s.Overload = saturation{Saturated: saturated && !c.isClosed, Checks: []saturationCheck{}}
	for _, k := range checks {
		s.Overload.Checks = append(s.Overload.Checks, saturationCheck{
			Name:  k.Name,
			Value: result.OrNull(k.Value),
			Limit: k.Limit,
			Hit:   k.Hit,
		})
	}
	s.Classes = []Class{}
	for _, name := range slices.Sorted(maps.Keys(c.classes)) {
		s.Classes = append(s.Classes, c.classes[name].summarize(s.EndS))
	}
	return s
}

// fillLatencies sets the latencies. ITL is over the gaps between tokens of finished requests, from
// a histogram that makes its quantiles exact to 0.4 %.
func (s *Summary) fillLatencies(c *collector, gaps *stat.Histogram) {
	ttft, e2e := spreadOf(c.ttft), spreadOf(c.e2e)
	var itl spread
	if gaps != nil && gaps.N() > 0 {
		itl = spread{known(gaps.Mean() / 1e3)}
		for i, p := range levels {
			itl[i+1] = known(gaps.Quantile(p) / 1e3)
		}
	}
	s.spreads = [3]spread{ttft, itl, e2e}
	ttft.setFields(&s.TTFTMeanMs, &s.TTFTP50Ms, &s.TTFTP90Ms, &s.TTFTP95Ms, &s.TTFTP99Ms)
	itl.setFields(&s.ITLMeanMs, &s.ITLP50Ms, &s.ITLP90Ms, &s.ITLP95Ms, &s.ITLP99Ms)
	e2e.setFields(&s.E2EMeanMs, &s.E2EP50Ms, &s.E2EP90Ms, &s.E2EP95Ms, &s.E2EP99Ms)
	spreadOf(c.completed).setFields(&s.CompletedTTFTMeanMs, &s.CompletedTTFTP50Ms, &s.CompletedTTFTP90Ms, &s.CompletedTTFTP95Ms,
		&s.CompletedTTFTP99Ms)
	spreadOf(c.itl).setFields(&s.RequestITLMeanMs, &s.RequestITLP50Ms, &s.RequestITLP90Ms, &s.RequestITLP95Ms, &s.RequestITLP99Ms)
	spreadOf(c.delay).setFields(&s.SchedulingMeanMs, &s.SchedulingP50Ms, &s.SchedulingP90Ms, &s.SchedulingP95Ms, &s.SchedulingP99Ms)
	spreadOf(c.queueWait).setFields(&s.QueueWaitMeanMs, &s.QueueWaitP50Ms, &s.QueueWaitP90Ms, &s.QueueWaitP95Ms, &s.QueueWaitP99Ms)
}

// summarize returns the summary of the class over a run of so many seconds.
func (k *class) summarize(seconds float64) Class {
	if k.Judged > 0 {
		k.Attainment = known(float64(k.Met) / float64(k.Judged))
		if seconds > 0 {
			k.GoodputRPS = known(float64(k.Met) / seconds)
		}
	}
	ttft, e2e := spreadOf(k.ttft), spreadOf(k.e2e)
	k.TTFTP50Ms = ttft[atP50]
	k.TTFTP99Ms = ttft[atP99]
	k.E2EP50Ms = e2e[atP50]
	k.E2EP99Ms = e2e[atP99]
	return k.Class
}

// known returns a pointer to v.
func known(v float64) *float64 { return &v }

// spread is the mean, median, P90, P95 and P99 of one metric over requests, ms; nil without values.
type spread [5]*float64

// levels are the quantiles of a spread, which follow the mean.
var levels = []float64{.5, .9, .95, .99}

// Places in a spread.
const (
	atP50 = 1
	atP99 = 4
)

// spreadOf returns the spread, ms, of values in us, which it sorts.
func spreadOf(v []float64) (s spread) {
	if len(v) == 0 {
		return s
	}
	stat.Sort(v)
	s[0] = known(stat.Mean(v) / 1e3)
	for i, p := range levels {
		s[i+1] = known(stat.Quantile(v, p) / 1e3)
	}
	return s
}

// setFields sets five fields of the document to the spread, in its order.
func (s spread) setFields(to ...**float64) {
	for i, v := range s {
		*to[i] = v
	}
}
