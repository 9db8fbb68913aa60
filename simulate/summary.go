package simulate

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

// Summary is a run in numbers. Keys that BLIS's metrics have mean here what they mean there (sim/metrics.go and
// sim/kv/cache.go of inference-sim@f90a1e3); what this simulator means otherwise has a name of its own. The document's
// schema says each key in a sentence.
type Summary struct {
	InjectedRequests     int            `json:"injected_requests"`
	CompletedRequests    int            `json:"completed_requests"`
	RejectedRequests     int            `json:"dropped_unservable"`
	Rejections           map[string]int `json:"rejected_by_reason"` // of codes of the engine or words of the gateway
	AbortedRequests      int            `json:"aborted_requests"`
	TimedOutRequests     int            `json:"timed_out_requests"`
	UnfinishedRequests   int            `json:"unfinished_requests"`
	LengthCappedRequests int            `json:"length_capped_requests"` // cut at max_model_len
	FinishedByMaxTokens  int            `json:"finished_by_max_tokens"` // finish_status length and not cut
	TotalInputTokens     int64          `json:"total_input_tokens"`     // of requests that reached the queue
	CompletedInputTokens int64          `json:"completed_input_tokens"`
	TotalOutputTokens    int64          `json:"total_output_tokens"`       // of completed requests
	EndS                 float64        `json:"vllm_estimated_duration_s"` // from 0 of the clock to the last token
	DurationS            float64        `json:"duration_s"`                // from the first arrival to the last departure
	ResponsesPerSec      float64        `json:"responses_per_sec"`         // over EndS, as the next
	TokensPerSec         float64        `json:"tokens_per_sec"`
	E2EMeanMs            *float64       `json:"e2e_mean_ms"`
	E2EP50Ms             *float64       `json:"e2e_p50_ms"`
	E2EP90Ms             *float64       `json:"e2e_p90_ms"`
	E2EP95Ms             *float64       `json:"e2e_p95_ms"`
	E2EP99Ms             *float64       `json:"e2e_p99_ms"`
	TTFTMeanMs           *float64       `json:"ttft_mean_ms"`
	TTFTP50Ms            *float64       `json:"ttft_p50_ms"`
	TTFTP90Ms            *float64       `json:"ttft_p90_ms"`
	TTFTP95Ms            *float64       `json:"ttft_p95_ms"`
	TTFTP99Ms            *float64       `json:"ttft_p99_ms"`
	CompletedTTFTMeanMs  *float64       `json:"completed_ttft_mean_ms"`
	CompletedTTFTP50Ms   *float64       `json:"completed_ttft_p50_ms"`
	CompletedTTFTP90Ms   *float64       `json:"completed_ttft_p90_ms"`
	CompletedTTFTP95Ms   *float64       `json:"completed_ttft_p95_ms"`
	CompletedTTFTP99Ms   *float64       `json:"completed_ttft_p99_ms"`
	ITLMeanMs            *float64       `json:"itl_mean_ms"`
	ITLP50Ms             *float64       `json:"itl_p50_ms"`
	ITLP90Ms             *float64       `json:"itl_p90_ms"`
	ITLP95Ms             *float64       `json:"itl_p95_ms"`
	ITLP99Ms             *float64       `json:"itl_p99_ms"`
	RequestITLMeanMs     *float64       `json:"request_itl_mean_ms"`
	RequestITLP50Ms      *float64       `json:"request_itl_p50_ms"`
	RequestITLP90Ms      *float64       `json:"request_itl_p90_ms"`
	RequestITLP95Ms      *float64       `json:"request_itl_p95_ms"`
	RequestITLP99Ms      *float64       `json:"request_itl_p99_ms"`
	SchedulingMeanMs     *float64       `json:"scheduling_delay_mean_ms"`
	SchedulingP50Ms      *float64       `json:"scheduling_delay_p50_ms"`
	SchedulingP90Ms      *float64       `json:"scheduling_delay_p90_ms"`
	SchedulingP95Ms      *float64       `json:"scheduling_delay_p95_ms"`
	SchedulingP99Ms      *float64       `json:"scheduling_delay_p99_ms"`
	QueueWaitMeanMs      *float64       `json:"queue_wait_mean_ms"`
	QueueWaitP50Ms       *float64       `json:"queue_wait_p50_ms"`
	QueueWaitP90Ms       *float64       `json:"queue_wait_p90_ms"`
	QueueWaitP95Ms       *float64       `json:"queue_wait_p95_ms"`
	QueueWaitP99Ms       *float64       `json:"queue_wait_p99_ms"`
	PreemptionCount      int64          `json:"preemption_count"`
	DraftTokens          int64          `json:"draft_tokens,omitempty"`      // verified
	AcceptedTokens       int64          `json:"accepted_tokens,omitempty"`   // of them
	TokensPerVerify      float64        `json:"tokens_per_verify,omitempty"` // 1 + accepted/verifies
	CacheHitRate         *float64       `json:"cache_hit_rate"`              // KV blocks found / (found + filled)
	PromptCacheHitRate   *float64       `json:"prompt_cache_hit_rate"`       // prompt tokens found / prompt tokens, first admissions
	GoodputRPS           *float64       `json:"goodput_rps"`                 // over EndS

	Steps        int64   `json:"steps"`
	EmptySteps   int64   `json:"empty_steps"`
	WastedTokens int64   `json:"wasted_tokens"`
	BusyShare    float64 `json:"busy_share"`
	PeakRunning  int64   `json:"peak_running"`
	PeakWaiting  int64   `json:"peak_waiting"`
	PeakBlocks   int64   `json:"peak_kv_blocks"`

	Ranks []EnginePart `json:"ranks,omitempty"` // of a data-parallel deployment

	Overload saturation `json:"overload"`
	Classes  []Class    `json:"service_classes"`

	spreads [3]spread // TTFT, ITL and E2E
}

// Latency is one figure of a latency over requests, ms, or nil where no request has it. metric is
// ttft, itl (over tokens) or e2e; figure is mean, p50, p90, p95 or p99.
func (s *Summary) Latency(metric, figure string) *float64 {
	return s.spreads[slices.Index(latencyMetrics, metric)][slices.Index(spreadFigures, figure)]
}

var (
	latencyMetrics = []string{"ttft", "itl", "e2e"} // of Summary.spreads
	spreadFigures  = []string{"mean", "p50", "p90", "p95", "p99"}
)

// RequestsPerStep is the mean number of requests that a step decodes.
func (s *Summary) RequestsPerStep() float64 {
	return float64(s.TotalOutputTokens) / float64(max(1, s.Steps))
}

// EnginePart is one engine of several.
type EnginePart struct {
	Role        string `json:"role,omitempty"` // prefill or decode
	Requests    int64  `json:"requests"`
	Steps       int64  `json:"steps"`
	DummySteps  int64  `json:"dummy_steps,omitempty"` // forward passes with nothing to do, while other ranks work
	WaitedUs    int64  `json:"waited_us,omitempty"`   // of busy_us: for slower ranks
	Preemptions int64  `json:"preemptions"`
	BusyUs      int64  `json:"busy_us"`
	PeakRunning int64  `json:"peak_running"`
	PeakWaiting int64  `json:"peak_waiting"`

	Ranks []EnginePart `json:"ranks,omitempty"` // of a data-parallel instance
}

// PartOf is what an engine counted.
func PartOf(e *sim.Result) EnginePart {
	return EnginePart{Requests: e.Sent, Steps: e.Steps, DummySteps: e.DummySteps, WaitedUs: e.WaitedUs, Preemptions: e.Preemptions,
		BusyUs: e.BusyUs, PeakRunning: e.PeakRunning, PeakWaiting: e.PeakWaiting, Ranks: stat.Map(e.Ranks, PartOf)}
}

// saturation says whether the engine was overloaded, and by which checks.
type saturation struct {
	Saturated bool    `json:"saturated"`
	Checks    []check `json:"checks"`
}

// check is one of them.
type check struct {
	Name  string   `json:"name"`
	Value *float64 `json:"value"` // null: not measurable on these requests
	Limit float64  `json:"limit"`
	Hit   bool     `json:"hit"`
}

// Class is one service class.
type Class struct {
	Name       string   `json:"name"`
	Requests   int      `json:"requests"`
	Completed  int      `json:"completed"`
	Judged     int      `json:"judged"`
	Met        int      `json:"met"`
	Attainment *float64 `json:"slo_attainment"`
	GoodputRPS *float64 `json:"goodput_rps"`
	TTFTP50Ms  *float64 `json:"ttft_p50_ms"`
	TTFTP99Ms  *float64 `json:"ttft_p99_ms"`
	E2EP50Ms   *float64 `json:"e2e_p50_ms"`
	E2EP99Ms   *float64 `json:"e2e_p99_ms"`
}

// collector takes the requests of one run.
type collector struct {
	run                       Summary
	ttft, completed, e2e, itl []float64 // us
	delay, queueWait          []float64 // us
	arrivals                  []stat.Arrival
	first, last, end          int64
	classes                   map[string]*class
	judged, met               int
}

type class struct {
	Class
	ttft, e2e []float64
}

// NewCollector is an empty collector with room for so many requests.
func NewCollector(requests int) *collector {
	c := &collector{run: Summary{Rejections: map[string]int{}}, first: math.MaxInt64, classes: map[string]*class{}}
	for _, list := range []*[]float64{&c.ttft, &c.completed, &c.e2e, &c.itl, &c.delay, &c.queueWait} {
		*list = make([]float64, 0, requests)
	}
	c.arrivals = make([]stat.Arrival, 0, requests)
	return c
}

// Add counts a request that has left, or never did. r is not kept.
func (c *collector) Add(r *sim.RequestResult) {
	c.run.InjectedRequests++
	c.count(r)
	c.end = max(c.end, r.FinishedUs.Or(0))
	c.first, c.last = min(c.first, r.ArrivalUs), max(c.last, r.DepartedUs.Or(r.ArrivalUs))
	finished := r.Outcome == sim.OutcomeFinished
	ttft, hasTTFT := r.TTFTUs()
	e2e, hasE2E := r.E2EUs()
	itl, hasITL := r.ITLUs()
	keep(&c.ttft, ttft, hasTTFT)
	keep(&c.completed, ttft, hasTTFT && finished)
	keep(&c.e2e, e2e, hasE2E)
	keep(&c.itl, itl, hasITL && finished)
	keep(&c.delay, float64(r.ScheduledUs.V-r.ArrivalUs), r.ScheduledUs.OK)
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

func (c *collector) count(r *sim.RequestResult) {
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

// arrivalOf is the request as the saturation checks see it.
func arrivalOf(r *sim.RequestResult) stat.Arrival {
	us := func(v float64, ok bool) float64 {
		if !ok {
			return math.NaN()
		}
		return v
	}
	return stat.Arrival{
		At: float64(r.ArrivalUs), Left: us(float64(r.DepartedUs.V), r.DepartedUs.OK), TTFT: us(r.TTFTUs()), E2E: us(r.E2EUs()),
		Ended: r.Outcome != sim.OutcomeUnfinished, Failed: r.Outcome == sim.OutcomeRejected || r.Outcome == sim.OutcomeTimedOut,
		Engine: r.QueuedUs.OK, Preempted: r.Preemptions > 0,
	}
}

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
	keep(&k.ttft, ttft, hasTTFT)
	keep(&k.e2e, e2e, hasE2E)
}

// Close adds what the engine counted and returns the run.
func (c *collector) Close(res *sim.Result) *Summary {
	s := &c.run
	if s.DraftTokens, s.AcceptedTokens = res.DraftTokens, res.AcceptedTokens; res.Verifies > 0 {
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
	s.fill(c, res.Gaps)
	if n := res.HitBlocks + res.NewBlocks; n > 0 {
		s.CacheHitRate = known(float64(res.HitBlocks) / float64(n))
	}
	if res.LookedUpTokens > 0 {
		s.PromptCacheHitRate = known(float64(res.HitTokens) / float64(res.LookedUpTokens))
	}
	if s.EndS = float64(c.end) / 1e6; s.EndS > 0 {
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
	stat.SortStable(c.arrivals, func(a, b stat.Arrival) int { return cmp.Compare(a.At, b.At) })
	checks, saturated := stat.Saturation(c.arrivals)
	s.Overload = saturation{Saturated: saturated, Checks: []check{}}
	for _, k := range checks {
		s.Overload.Checks = append(s.Overload.Checks, check{k.Name, result.OrNull(k.Value), k.Limit, k.Hit})
	}
	s.Classes = []Class{}
	for _, name := range slices.Sorted(maps.Keys(c.classes)) {
		s.Classes = append(s.Classes, c.classes[name].close(s.EndS))
	}
	return s
}

// fill writes the latencies; ITL is of the gaps of finished requests, mean and quantiles within 0.4 %.
func (s *Summary) fill(c *collector, gaps *stat.Histogram) {
	ttft, e2e := spreadOf(c.ttft), spreadOf(c.e2e)
	var itl spread
	if gaps != nil && gaps.N() > 0 {
		itl = spread{known(gaps.Mean() / 1e3)}
		for i, p := range levels {
			itl[i+1] = known(gaps.Quantile(p) / 1e3)
		}
	}
	s.spreads = [3]spread{ttft, itl, e2e}
	ttft.into(&s.TTFTMeanMs, &s.TTFTP50Ms, &s.TTFTP90Ms, &s.TTFTP95Ms, &s.TTFTP99Ms)
	itl.into(&s.ITLMeanMs, &s.ITLP50Ms, &s.ITLP90Ms, &s.ITLP95Ms, &s.ITLP99Ms)
	e2e.into(&s.E2EMeanMs, &s.E2EP50Ms, &s.E2EP90Ms, &s.E2EP95Ms, &s.E2EP99Ms)
	spreadOf(c.completed).into(&s.CompletedTTFTMeanMs, &s.CompletedTTFTP50Ms, &s.CompletedTTFTP90Ms, &s.CompletedTTFTP95Ms,
		&s.CompletedTTFTP99Ms)
	spreadOf(c.itl).into(&s.RequestITLMeanMs, &s.RequestITLP50Ms, &s.RequestITLP90Ms, &s.RequestITLP95Ms, &s.RequestITLP99Ms)
	spreadOf(c.delay).into(&s.SchedulingMeanMs, &s.SchedulingP50Ms, &s.SchedulingP90Ms, &s.SchedulingP95Ms, &s.SchedulingP99Ms)
	spreadOf(c.queueWait).into(&s.QueueWaitMeanMs, &s.QueueWaitP50Ms, &s.QueueWaitP90Ms, &s.QueueWaitP95Ms, &s.QueueWaitP99Ms)
}

func (k *class) close(seconds float64) Class {
	if k.Judged > 0 {
		k.Attainment = known(float64(k.Met) / float64(k.Judged))
		if seconds > 0 {
			k.GoodputRPS = known(float64(k.Met) / seconds)
		}
	}
	ttft, e2e := spreadOf(k.ttft), spreadOf(k.e2e)
	k.TTFTP50Ms = ttft[1]
	k.TTFTP99Ms = ttft[4]
	k.E2EP50Ms = e2e[1]
	k.E2EP99Ms = e2e[4]
	return k.Class
}

func known(v float64) *float64 { return &v }

// spread is mean, median, P90, P95 and P99 of one metric over requests, ms; nil without
// values.
type spread [5]*float64

// levels are the quantiles of a spread.
var levels = []float64{.5, .9, .95, .99}

// spreadOf sorts a metric in us and reports it in ms.
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

// into writes the figures where they stand in the document.
func (s spread) into(to ...**float64) {
	for i, v := range s {
		*to[i] = v
	}
}
