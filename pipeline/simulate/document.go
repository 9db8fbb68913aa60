package simulate

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Document is simulation.json. Keys follow BLIS's metrics where BLIS has
// them. With several replications the figures are those of the first seed and
// `intervals` holds all of them.
type Document struct {
	result.Header
	LatencyModel        string `json:"latency_model"`
	Seed                int64  `json:"seed"`
	Replications        int    `json:"replications"`
	SampledCoefficients bool   `json:"sampled_coefficients"`
	Noise               string `json:"noise"`

	InjectedRequests     int      `json:"injected_requests"`
	CompletedRequests    int      `json:"completed_requests"`
	RejectedRequests     int      `json:"dropped_unservable"`
	AbortedRequests      int      `json:"aborted_requests"`
	TimedOutRequests     int      `json:"timed_out_requests"`
	UnfinishedRequests   int      `json:"unfinished_requests"`
	LengthCappedRequests int      `json:"length_capped_requests"`
	TotalInputTokens     int64    `json:"total_input_tokens"`
	TotalOutputTokens    int64    `json:"total_output_tokens"`
	DurationS            float64  `json:"vllm_estimated_duration_s"`
	ResponsesPerSec      float64  `json:"responses_per_sec"`
	TokensPerSec         float64  `json:"tokens_per_sec"`
	E2EMeanMs            *float64 `json:"e2e_mean_ms"`
	E2EP50Ms             *float64 `json:"e2e_p50_ms"`
	E2EP90Ms             *float64 `json:"e2e_p90_ms"`
	E2EP95Ms             *float64 `json:"e2e_p95_ms"`
	E2EP99Ms             *float64 `json:"e2e_p99_ms"`
	TTFTMeanMs           *float64 `json:"ttft_mean_ms"`
	TTFTP50Ms            *float64 `json:"ttft_p50_ms"`
	TTFTP90Ms            *float64 `json:"ttft_p90_ms"`
	TTFTP95Ms            *float64 `json:"ttft_p95_ms"`
	TTFTP99Ms            *float64 `json:"ttft_p99_ms"`
	ITLMeanMs            *float64 `json:"itl_mean_ms"`
	ITLP50Ms             *float64 `json:"itl_p50_ms"`
	ITLP90Ms             *float64 `json:"itl_p90_ms"`
	ITLP95Ms             *float64 `json:"itl_p95_ms"`
	ITLP99Ms             *float64 `json:"itl_p99_ms"`
	TokenGapP50Ms        *float64 `json:"token_gap_p50_ms"`
	TokenGapP99Ms        *float64 `json:"token_gap_p99_ms"`
	SchedulingMeanMs     *float64 `json:"scheduling_delay_mean_ms"`
	SchedulingP50Ms      *float64 `json:"scheduling_delay_p50_ms"`
	SchedulingP90Ms      *float64 `json:"scheduling_delay_p90_ms"`
	SchedulingP95Ms      *float64 `json:"scheduling_delay_p95_ms"`
	SchedulingP99Ms      *float64 `json:"scheduling_delay_p99_ms"`
	PreemptionCount      int64    `json:"preemption_count"`
	CacheHitRate         *float64 `json:"cache_hit_rate"`
	GoodputRPS           *float64 `json:"goodput_rps"`

	Steps        int64   `json:"steps"`
	EmptySteps   int64   `json:"empty_steps"`
	WastedTokens int64   `json:"wasted_tokens"`
	BusyShare    float64 `json:"busy_share"`
	PeakRunning  int64   `json:"peak_running"`
	PeakWaiting  int64   `json:"peak_waiting"`
	PeakBlocks   int64   `json:"peak_kv_blocks"`

	Saturation Saturation      `json:"saturation"`
	Classes    []Class         `json:"per_class"`
	Intervals  []Interval      `json:"intervals"`
	Warnings   []trace.Finding `json:"warnings"`
}

type Saturation struct {
	Saturated bool    `json:"saturated"`
	Checks    []Check `json:"checks"`
}

type Check struct {
	Name  string   `json:"name"`
	Value *float64 `json:"value"` // null: not measurable on these requests
	Limit float64  `json:"limit"`
	Hit   bool     `json:"hit"`
}

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

// Interval is one key over the replications: with sampled
// coefficients the 2.5 and 97.5 percentiles, else a 95 % interval of the mean.
type Interval struct {
	Key  string  `json:"key"`
	Mean float64 `json:"mean"`
	Lo   float64 `json:"lo"`
	Hi   float64 `json:"hi"`
}

type metricMs struct{ Mean, P50, P90, P95, P99 *float64 }

func metricOf(s sim.Spread) metricMs {
	if s.N == 0 {
		return metricMs{}
	}
	return metricMs{&s.Mean, &s.P50, &s.P90, &s.P95, &s.P99}
}

func optFloat(v trace.Opt[float64]) *float64 {
	if !v.OK {
		return nil
	}
	return &v.V
}

// Document is simulation.json of the seeds.
func (s *Simulation) Document(runs []*Replication) *Document {
	sum := runs[0].Summary
	d := &Document{Header: result.NewHeader(folder.ToolVersion, s.o.Table().Command("simulate")), LatencyModel: s.o.Model, Seed: s.o.Seed,
		Replications:        len(runs),
		SampledCoefficients: s.o.SampleCoefficients, Noise: s.o.Noise,
		InjectedRequests: sum.Injected, CompletedRequests: sum.Completed, RejectedRequests: sum.Rejected, AbortedRequests: sum.Aborted,
		TimedOutRequests:   sum.TimedOut,
		UnfinishedRequests: sum.Unfinished, LengthCappedRequests: sum.LengthCapped, TotalInputTokens: sum.InputTokens,
		TotalOutputTokens: sum.OutputTokens,
		DurationS:         sum.DurationS, ResponsesPerSec: sum.ResponsesPerSec, TokensPerSec: sum.TokensPerSec, PreemptionCount: sum.Preemptions,
		CacheHitRate: optFloat(sum.CacheHitRate), GoodputRPS: optFloat(sum.Goodput), Steps: sum.Steps, EmptySteps: sum.EmptySteps,
		WastedTokens: sum.WastedTokens,
		BusyShare:    sum.BusyShare, PeakRunning: sum.PeakRunning, PeakWaiting: sum.PeakWaiting, PeakBlocks: sum.PeakBlocks,
		Saturation: Saturation{Saturated: sum.Saturated, Checks: []Check{}}, Classes: []Class{}, Intervals: []Interval{},
		Warnings: []trace.Finding{}}
	d.Inputs = append(d.Inputs, s.Inputs...)
	ttft, itl, e2e, wait := metricOf(sum.TTFT), metricOf(sum.ITL), metricOf(sum.E2E), metricOf(sum.QueueWait)
	d.TTFTMeanMs, d.TTFTP50Ms, d.TTFTP90Ms, d.TTFTP95Ms, d.TTFTP99Ms = ttft.Mean, ttft.P50, ttft.P90, ttft.P95, ttft.P99
	d.E2EMeanMs, d.E2EP50Ms, d.E2EP90Ms, d.E2EP95Ms, d.E2EP99Ms = e2e.Mean, e2e.P50, e2e.P90, e2e.P95, e2e.P99
	d.ITLMeanMs, d.ITLP50Ms, d.ITLP90Ms, d.ITLP95Ms, d.ITLP99Ms = itl.Mean, itl.P50, itl.P90, itl.P95, itl.P99
	d.SchedulingMeanMs, d.SchedulingP50Ms, d.SchedulingP90Ms, d.SchedulingP95Ms, d.SchedulingP99Ms = wait.Mean, wait.P50, wait.P90, wait.P95,
		wait.P99
	gap := metricOf(sum.TokenGap)
	d.TokenGapP50Ms, d.TokenGapP99Ms = gap.P50, gap.P99
	for _, c := range sum.SaturationChecks {
		d.Saturation.Checks = append(d.Saturation.Checks, Check{c.Name, result.OrNull(c.Value), c.Limit, c.Hit})
	}
	for _, c := range sum.Classes {
		ttft, e2e := metricOf(c.TTFT), metricOf(c.E2E)
		d.Classes = append(d.Classes, Class{c.Name, c.Requests, c.Completed, c.Judged, c.Met, optFloat(c.Attainment), optFloat(c.Goodput),
			ttft.P50, ttft.P99, e2e.P50, e2e.P99})
	}
	d.Warnings = append(append(d.Warnings, s.notes...), runs[0].Findings...)
	if len(runs) > 1 {
		d.Intervals = intervals(runs, d.SampledCoefficients)
	}
	return d
}

// intervals summarizes the replications by key.
func intervals(runs []*Replication, percentiles bool) []Interval {
	type key struct {
		name string
		of   func(*sim.Summary) float64
	}
	keys := []key{
		{"responses_per_sec", func(s *sim.Summary) float64 { return s.ResponsesPerSec }},
		{"tokens_per_sec", func(s *sim.Summary) float64 { return s.TokensPerSec }},
	}
	for _, m := range []struct {
		name string
		of   func(*sim.Summary) *sim.Spread
	}{{"ttft", func(s *sim.Summary) *sim.Spread { return &s.TTFT }}, {"itl", func(s *sim.Summary) *sim.Spread { return &s.ITL }},
		{"e2e", func(s *sim.Summary) *sim.Spread { return &s.E2E }}} {
		keys = append(keys,
			key{m.name + "_mean_ms", func(s *sim.Summary) float64 { return m.of(s).Mean }},
			key{m.name + "_p50_ms", func(s *sim.Summary) float64 { return m.of(s).P50 }},
			key{m.name + "_p90_ms", func(s *sim.Summary) float64 { return m.of(s).P90 }},
			key{m.name + "_p95_ms", func(s *sim.Summary) float64 { return m.of(s).P95 }},
			key{m.name + "_p99_ms", func(s *sim.Summary) float64 { return m.of(s).P99 }})
	}
	var out []Interval
	for _, k := range keys {
		v := make([]float64, len(runs))
		for i, r := range runs {
			v[i] = k.of(r.Summary)
		}
		out = append(out, intervalOf(k.name, v, percentiles))
	}
	return out
}

func intervalOf(name string, v []float64, percentiles bool) Interval {
	mean, lo, hi := stat.MeanInterval(v)
	if percentiles {
		slices.Sort(v)
		lo, hi = stat.Quantile(v, .025), stat.Quantile(v, .975)
	}
	return Interval{name, mean, lo, hi}
}

// RequestRow is one row of requests.parquet.
type RequestRow struct {
	ID            string             `col:"request_id" doc:"id of the workload"`
	ArrivalUs     int64              `col:"arrival_us" unit:"us" doc:"arrival at the API, simulated time"`
	QueuedUs      trace.Opt[int64]   `col:"queued_us" unit:"us" doc:"picked up by the engine"`
	ScheduledUs   trace.Opt[int64]   `col:"scheduled_us" unit:"us" doc:"first schedule"`
	FirstTokenUs  trace.Opt[int64]   `col:"first_token_us" unit:"us" doc:"first token in the engine"`
	FinishedUs    trace.Opt[int64]   `col:"finished_us" unit:"us" doc:"last token in the engine"`
	DepartedUs    trace.Opt[int64]   `col:"departed_us" unit:"us" doc:"answered"`
	QueueWaitMs   trace.Opt[float64] `col:"queue_wait_ms" unit:"ms" doc:"SCHEDULED - QUEUED"`
	TTFTMs        trace.Opt[float64] `col:"ttft_ms" unit:"ms" doc:"first token - arrival"`
	ITLMs         trace.Opt[float64] `col:"itl_ms" unit:"ms" doc:"mean gap between tokens"`
	ITLP50Ms      trace.Opt[float64] `col:"itl_p50_ms" unit:"ms" doc:"median gap between tokens"`
	ITLP99Ms      trace.Opt[float64] `col:"itl_p99_ms" unit:"ms" doc:"99th percentile of the gaps"`
	E2EMs         trace.Opt[float64] `col:"e2e_ms" unit:"ms" doc:"departure - arrival"`
	PromptTokens  int64              `col:"prompt_tokens" unit:"tokens" doc:"prompt length"`
	CachedTokens  int64              `col:"cached_tokens" unit:"tokens" doc:"prompt tokens served from cache at first admission"`
	OutputTokens  int64              `col:"output_tokens" unit:"tokens" doc:"tokens produced"`
	Preemptions   int64              `col:"preemptions" doc:"times it was preempted"`
	Outcome       string             `col:"outcome" doc:"finished, rejected, aborted, timed_out or unfinished"`
	Reason        string             `col:"reason" doc:"code of a rejection"`
	FinishStatus  string             `col:"finish_status" doc:"stopped, length, aborted or ignored"`
	SLOClass      string             `col:"slo_class" doc:"service class"`
	SLOMet        trace.Opt[bool]    `col:"slo_met" doc:"met its targets; null without targets"`
	ScheduledStep int64              `col:"scheduled_step" doc:"step of the first schedule; 0 = none"`
	FirstStep     int64              `col:"first_token_step" doc:"step that produced the first token; 0 = none"`
	FinishedStep  int64              `col:"finished_step" doc:"step of the finish; 0 = none"`
}

// RowOf is a request as requests.parquet has it.
func RowOf(q *sim.RequestResult) RequestRow {
	inMs := func(v float64, ok bool) trace.Opt[float64] {
		if !ok {
			return trace.Opt[float64]{}
		}
		return trace.Some(v / 1e3)
	}
	return RequestRow{
		ID: q.ID, ArrivalUs: q.ArrivalUs, QueuedUs: q.QueuedUs, ScheduledUs: q.ScheduledUs, FirstTokenUs: q.FirstTokenUs,
		FinishedUs: q.FinishedUs, DepartedUs: q.DepartedUs,
		QueueWaitMs: inMs(float64(q.ScheduledUs.V-q.QueuedUs.V), q.ScheduledUs.OK), TTFTMs: inMs(q.TTFTUs()), ITLMs: inMs(q.ITLUs()),
		ITLP50Ms: inMs(q.ITLP50Us.V, q.ITLP50Us.OK), ITLP99Ms: inMs(q.ITLP99Us.V, q.ITLP99Us.OK), E2EMs: inMs(q.E2EUs()),
		PromptTokens: q.PromptTokens, CachedTokens: q.CachedTokens, OutputTokens: q.OutputTokens, Preemptions: q.Preemptions,
		Outcome: string(q.Outcome), Reason: string(q.Reason), FinishStatus: q.FinishStatus, SLOClass: q.SLOClass, SLOMet: q.SLOMet,
		ScheduledStep: q.ScheduledStep, FirstStep: q.FirstStep, FinishedStep: q.FinishedStep,
	}
}
