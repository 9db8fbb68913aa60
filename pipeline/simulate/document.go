package simulate

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Document is simulation.json, version 2. With several replications the figures are those of the first seed and
// `intervals` holds all of them.
type Document struct {
	result.Header
	LatencyModel        string `json:"latency_model"`
	Trust               *Trust `json:"trust,omitempty"` // of step times that nobody fitted
	Seed                int64  `json:"seed"`
	Replications        int    `json:"replications"`
	SampledCoefficients bool   `json:"sampled_coefficients"`
	Noise               string `json:"noise"`
	// Rules are those of the scheduler that vLLM 0.15 did not have.
	Rules []deploy.RuleInForce `json:"rules,omitempty"`

	Summary

	Intervals []interval      `json:"intervals"`
	Warnings  []trace.Finding `json:"warnings"`
}

// interval is one key over the replications: with sampled
// coefficients the 2.5 and 97.5 percentiles, else a 95 % interval of the mean.
type interval struct {
	Key  string  `json:"key"`
	Mean float64 `json:"mean"`
	Lo   float64 `json:"lo"`
	Hi   float64 `json:"hi"`
}

// Document is simulation.json of the seeds.
func (s *Simulation) Document(runs []*Replication) *Document {
	d := &Document{Header: result.NewHeader(folder.ToolVersion, s.o.Table().Command("simulate")), LatencyModel: s.model, Trust: s.trust,
		Seed:         s.o.Seed,
		Replications: len(runs), SampledCoefficients: s.o.SampleCoefficients, Noise: s.o.Noise, Rules: s.Deployment.RulesInForce(),
		Summary:   *runs[0].Summary,
		Intervals: []interval{}, Warnings: []trace.Finding{}}
	d.SchemaVersion = "2"
	d.Inputs = append(d.Inputs, s.Inputs...)
	d.Warnings = append(append(d.Warnings, s.notes...), runs[0].Findings...)
	if len(runs) > 1 {
		d.Intervals = intervals(runs, d.SampledCoefficients)
	}
	return d
}

// intervals summarizes the replications by key.
func intervals(runs []*Replication, percentiles bool) []interval {
	var out []interval
	add := func(name string, of func(*Summary) float64) {
		out = append(out, intervalOf(name, stat.Map(runs, func(r *Replication) float64 { return of(r.Summary) }), percentiles))
	}
	add("responses_per_sec", func(s *Summary) float64 { return s.ResponsesPerSec })
	add("tokens_per_sec", func(s *Summary) float64 { return s.TokensPerSec })
	for k, of := range []string{"ttft", "itl", "e2e"} {
		for m, figure := range []string{"_mean_ms", "_p50_ms", "_p90_ms", "_p95_ms", "_p99_ms"} {
			add(of+figure, func(s *Summary) float64 {
				if v := s.spreads[k][m]; v != nil {
					return *v
				}
				return 0
			})
		}
	}
	return out
}

func intervalOf(name string, v []float64, percentiles bool) interval {
	mean, lo, hi := stat.MeanInterval(v)
	if percentiles {
		slices.Sort(v)
		lo, hi = stat.Quantile(v, .025), stat.Quantile(v, .975)
	}
	return interval{name, mean, lo, hi}
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
