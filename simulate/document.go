package simulate

// This file is the document simulation.json.

import (
	"slices"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Document is simulation.json, version 2. With several replications the figures are those of the
// first seed, and `intervals` is over all of them.
type Document struct {
	result.Header
	LatencyModel        string `json:"latency_model"`
	Trust               *Trust `json:"trust,omitempty"` // how far step times can be relied on that were not fitted
	Seed                int64  `json:"seed"`
	Replications        int    `json:"replications"`
	SampledCoefficients bool   `json:"sampled_coefficients"`
	Noise               string `json:"noise"`
	// Rules are the rules of the simulated scheduler that vLLM 0.15 did not have.
	Rules []vllm.RuleInForce `json:"rules,omitempty"`

	Summary

	Intervals []interval      `json:"intervals"`
	Warnings  []trace.Finding `json:"warnings"`
}

// interval is one figure over the replications: with sampled coefficients its 2.5 and 97.5
// percentiles, otherwise the 95 % interval of its mean.
type interval struct {
	Key  string  `json:"key"`
	Mean float64 `json:"mean"`
	Lo   float64 `json:"lo"`
	Hi   float64 `json:"hi"`
}

// Document returns simulation.json of the replications.
func (s *Simulation) Document(runs []*Replication) *Document {
	d := &Document{
		Header:              result.NewHeader(folder.ToolVersion, option.Command("simulate", s.o.Flags())),
		LatencyModel:        s.LatencyModel,
		Trust:               s.Trust,
		Seed:                s.o.Seed,
		Replications:        len(runs),
		SampledCoefficients: s.o.SampleCoefficients,
		Noise:               s.o.Noise,
		Rules:               s.Deployment.Engine.RulesInForce(s.Deployment.PP, s.Deployment.DP),
		Summary:             *runs[0].Summary,
		Intervals:           []interval{},
		Warnings:            []trace.Finding{},
	}
	d.SchemaVersion = "2" // other documents have result.SchemaVersion
	d.Inputs = append(d.Inputs, s.Inputs...)
	d.Warnings = append(append(d.Warnings, s.notes...), runs[0].Findings...)
	if len(runs) > 1 {
		d.Intervals = intervals(runs, d.SampledCoefficients)
	}
	return d
}

// intervals returns the interval of the throughputs and of the spread of every latency over the
// replications. percentiles makes them percentiles, for sampled coefficients.
func intervals(runs []*Replication, percentiles bool) []interval {
	var out []interval
	add := func(key string, value func(*Summary) float64) {
		var values []float64
		for _, r := range runs {
			values = append(values, value(r.Summary))
		}
		out = append(out, intervalOf(key, values, percentiles))
	}
	add("responses_per_sec", func(s *Summary) float64 { return s.ResponsesPerSec })
	add("tokens_per_sec", func(s *Summary) float64 { return s.TokensPerSec })
	for _, metric := range latencyMetrics {
		for _, figure := range spreadFigures {
			add(metric+"_"+figure+"_ms", func(s *Summary) float64 {
				if v := s.Latency(metric, figure); v != nil {
					return *v
				}
				return 0
			})
		}
	}
	return out
}

// intervalOf returns the interval of one key with these values.
func intervalOf(name string, v []float64, percentiles bool) interval {
	mean, lo, hi := stat.MeanInterval(v)
	if percentiles {
		slices.Sort(v)
		lo = stat.Quantile(v, .025)
		hi = stat.Quantile(v, .975)
	}
	return interval{Key: name, Mean: mean, Lo: lo, Hi: hi}
}
