package sim

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Spread is the distribution of one metric over requests, in ms; unknown
// without values.
type Spread struct {
	N                        int
	Mean, P50, P90, P95, P99 float64
}

// Summary is a run in numbers. Rates divide by DurationS: first arrival to last
// departure, one clock.
type Summary struct {
	Injected, Completed, Rejected, Aborted, TimedOut, Unfinished int
	LengthCapped                                                 int
	InputTokens, OutputTokens                                    int64 // of completed requests
	DurationS                                                    float64
	ResponsesPerSec, TokensPerSec                                float64
	TTFT, E2E, ITL, QueueWait                                    Spread
	TokenGap                                                     Spread // over all gaps, within 0.4 %; N = 0 without Config.TokenGaps
	Preemptions                                                  int64
	CacheHitRate                                                 trace.Opt[float64] // prompt tokens from the cache / looked up
	Steps, EmptySteps, WastedTokens                              int64
	BusyShare                                                    float64
	PeakRunning, PeakWaiting, PeakBlocks                         int64
	Saturated                                                    bool
	SaturationChecks                                             []stat.Check
	Goodput                                                      trace.Opt[float64] // requests per second that met their targets
	Classes                                                      []Class            // sorted by name; those with a name or a target
}

// Class is one service class.
type Class struct {
	Name       string
	Requests   int
	Completed  int
	Judged     int // requests with a target
	Met        int
	Attainment trace.Opt[float64] // Met/Judged
	Goodput    trace.Opt[float64] // Met per second
	TTFT, E2E  Spread
}

// Collector takes the requests of one run.
type Collector struct {
	run                       Summary
	ttft, e2e, itl, queueWait []float64 // us
	arrivals                  []stat.Arrival
	first, last               int64
	classes                   map[string]*class
	judged, met               int
}

type class struct {
	Class
	ttft, e2e []float64
}

// NewCollector is an empty collector.
func NewCollector() *Collector {
	return &Collector{first: math.MaxInt64, classes: map[string]*class{}}
}

// Add counts a request that has left, or never did. r is not kept.
func (c *Collector) Add(r *RequestResult) {
	c.run.Injected++
	c.count(r)
	c.first, c.last = min(c.first, r.ArrivalUs), max(c.last, r.DepartedUs.Or(r.ArrivalUs))
	finished := r.Outcome == OutcomeFinished
	ttft, hasTTFT := r.TTFTUs()
	e2e, hasE2E := r.E2EUs()
	itl, hasITL := r.ITLUs()
	keep(&c.ttft, ttft, hasTTFT && finished)
	keep(&c.e2e, e2e, hasE2E)
	keep(&c.itl, itl, hasITL && finished)
	keep(&c.queueWait, float64(r.ScheduledUs.V-r.QueuedUs.V), r.ScheduledUs.OK)
	c.arrivals = append(c.arrivals, arrivalOf(r))
	if r.SLOClass != "" || r.SLOMet.OK {
		c.classify(r)
	}
}

func keep(to *[]float64, v float64, ok bool) {
	if ok {
		*to = append(*to, v)
	}
}

func (c *Collector) count(r *RequestResult) {
	s := &c.run
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

// arrivalOf is the request as the saturation checks see it.
func arrivalOf(r *RequestResult) stat.Arrival {
	us := func(v float64, ok bool) float64 {
		if !ok {
			return math.NaN()
		}
		return v
	}
	return stat.Arrival{
		At: float64(r.ArrivalUs), Left: us(float64(r.DepartedUs.V), r.DepartedUs.OK), TTFT: us(r.TTFTUs()), E2E: us(r.E2EUs()),
		Ended: r.Outcome != OutcomeUnfinished, Failed: r.Outcome == OutcomeRejected || r.Outcome == OutcomeTimedOut,
		Engine: r.QueuedUs.OK, Preempted: r.Preemptions > 0,
	}
}

func (c *Collector) classify(r *RequestResult) {
	k := c.classes[r.SLOClass]
	if k == nil {
		k = &class{Class: Class{Name: r.SLOClass}}
		c.classes[r.SLOClass] = k
	}
	k.Requests++
	if r.Outcome == OutcomeFinished {
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
	keep(&k.ttft, ttft, hasTTFT)
	keep(&k.e2e, e2e, hasE2E)
}

// Close adds what the engine counted and returns the run.
func (c *Collector) Close(res *Result) *Summary {
	s := &c.run
	s.Preemptions, s.Steps, s.EmptySteps, s.WastedTokens = res.Preemptions, res.Steps, res.EmptySteps, res.WastedTokens
	s.PeakRunning, s.PeakWaiting, s.PeakBlocks = res.PeakRunning, res.PeakWaiting, res.PeakBlocks
	s.TTFT, s.E2E, s.ITL = spreadOf(c.ttft), spreadOf(c.e2e), spreadOf(c.itl)
	s.QueueWait = spreadOf(c.queueWait)
	if g := res.Gaps; g != nil && g.N() > 0 {
		s.TokenGap = Spread{int(g.N()), g.Mean() / 1e3, g.Quantile(.5) / 1e3, g.Quantile(.9) / 1e3, g.Quantile(.95) / 1e3, g.Quantile(.99) / 1e3}
	}
	if res.LookedUpTokens > 0 {
		s.CacheHitRate = trace.Some(float64(res.HitTokens) / float64(res.LookedUpTokens))
	}
	if c.last > c.first {
		s.DurationS = float64(c.last-c.first) / 1e6
		s.ResponsesPerSec, s.TokensPerSec = float64(s.Completed)/s.DurationS, float64(s.OutputTokens)/s.DurationS
		s.BusyShare = math.Min(1, float64(res.BusyUs)/float64(c.last-c.first))
		if c.judged > 0 {
			s.Goodput = trace.Some(float64(c.met) / s.DurationS)
		}
	}
	slices.SortStableFunc(c.arrivals, func(a, b stat.Arrival) int { return cmp.Compare(a.At, b.At) })
	s.SaturationChecks, s.Saturated = stat.Saturation(c.arrivals)
	for _, name := range slices.Sorted(maps.Keys(c.classes)) {
		s.Classes = append(s.Classes, c.classes[name].close(s.DurationS))
	}
	return s
}

func (k *class) close(seconds float64) Class {
	if k.Judged > 0 {
		k.Attainment = trace.Some(float64(k.Met) / float64(k.Judged))
		if seconds > 0 {
			k.Goodput = trace.Some(float64(k.Met) / seconds)
		}
	}
	k.TTFT, k.E2E = spreadOf(k.ttft), spreadOf(k.e2e)
	return k.Class
}

// spreadOf sorts a metric in us and reports it in ms.
func spreadOf(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	ms := func(p float64) float64 { return stat.Quantile(v, p) / 1e3 }
	return Spread{len(v), stat.Mean(v) / 1e3, ms(.5), ms(.9), ms(.95), ms(.99)}
}
