package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/simulate"
)

// documentOf returns a document of a text in JSON.
func documentOf[T any](text string) *T {
	doc := new(T)
	if err := json.Unmarshal([]byte(text), doc); err != nil {
		panic(err)
	}
	return doc
}

// ladder returns the statistics of a latency of simulation.json, from mean to P99, each by 0.5 larger.
func ladder(metric string, least float64) string {
	var keys []string
	for i, s := range []string{"mean", "p50", "p90", "p95", "p99"} {
		keys = append(keys, fmt.Sprintf(`"%s_%s_ms": %g`, metric, s, least+0.5*float64(i)))
	}
	return strings.Join(keys, ", ")
}

// simulation has a figure of its own in every place that simulate prints, of two engines and three replications.
var simulation = `{"injected_requests": 1201, "completed_requests": 1102, "dropped_unservable": 23, "aborted_requests": 34, "timed_out_requests": 45, "rejected_by_reason": {"too long": 12, "at the gate": 11},
	"responses_per_sec": 6.7894, "tokens_per_sec": 789.14, "duration_s": 912.34, "steps": 8123, "preemption_count": 56, "prompt_cache_hit_rate": 0.678, "replications": 3, "overload": {"saturated": true},
	` + ladder("ttft", 10) + `, ` + ladder("itl", 20) + `, ` + ladder("e2e", 30) + `, ` + ladder("queue_wait", 40) + `,
	"ranks": [{"requests": 61, "steps": 62, "dummy_steps": 63, "waited_us": 6400000, "busy_us": 6550000, "preemptions": 66, "peak_running": 67, "peak_waiting": 68}],
	"service_classes": [{"name": "gold", "requests": 71, "completed": 72, "slo_attainment": 0.73, "goodput_rps": 7.4}],
	"intervals": [{"key": "ttft_mean_ms", "mean": 81.5, "lo": 80.25, "hi": 82.75}]}`

// gateway is the part of simulation.json of a cluster.
const gateway = `{"instances": 2, "admission_policy": "gate", "routing_policy": "weighted", "routing_scorers": "a,b", "arrived": 101, "admitted": 92, "goodput_share": 0.931, "ttft_p99_critical_ms": 94.5, "ttft_p99_admitted_ms": 95.5,
	"ttft_p99_everybody_ms": 96.5, "cached_token_share": 0.97, "potential_token_share": 0.98, "phantom_hit_share": 0.099, "output_tokens_per_s": 1001.5, "kv_transfers": {"count": 4, "bytes": 6e9, "sum_us": 10000, "expired": 3},
	"classes": [{"name": "critical", "arrived": 111, "admitted": 112, "good": 113, "goodput_share": 0.114, "ttft_miss_share": 0.115, "ttft_miss_share_by_rule": 0.116}],
	"prediction": {"requests": 121, "median_ape": 0.122, "bias": 0.123, "coverage_p90": 0.124, "false_reject_share": 0.125}, "shadow": {"requests": 131, "median_ape": 0.132, "bias": -0.133, "coverage_p90": 0.134},
	"by_instance": [{"role": "prefill", "ranks": [{"requests": 141}]}, {"role": "decode", "ranks": [{"requests": 142}, {"requests": 143}]}]}`

// isolation is an experiment with two cells, one of which was published, and one setting of a frontier.
const isolation = `{"preset": "groups", "label": "transient", "instances": 4, "rate_rps": 21.6, "rho": 1.234, "seeds": [1, 2, 3],
	"cells": [{"name": "main", "seed_number": 3, "role": "cell", "figures": {"goodput": {"mean": 0.11}, "admitted_share": {"mean": 0.12}, "miss_share": {"mean": 0.13}, "miss_share_by_rule": {"mean": 0.14}, "ttft_p99_critical_ms": {"mean": 15.5},
		"ttft_p99_admitted_ms": {"mean": 16.5}, "cached_share": {"mean": 0.17}, "potential_share": {"mean": 0.18}, "output_tokens_per_s": {"mean": 19.5}}}, {"name": "other", "role": "extra"}, {"name": "not printed", "role": "frontier"}],
	"controllers": [{"kind": "fitted", "goodput": {"effect": 0.21, "lo": 0.22, "hi": 0.23}, "median_ape": 0.24, "bias": 0.25, "coverage_p90": 0.26, "shadow_median_ape": 0.27, "shadow_coverage_p90": 0.28}],
	"reliability": [{"from": 0.1, "to": 0.2, "requests": 31.4, "expected_share": 0.32, "met_share": 0.33}], "hindsight": {"cell": "main 7", "goodput": 0.41},
	"published": [{"cell": "main", "published_p99_ms": 51.5, "published_statistic": "critical", "published_rejected": 0.52, "critical_p99_ms": 53.5, "pooled_p99_ms": 54.5, "worst_instance_ms": 55.5, "rejected": 0.56}],
	"verdicts": [{"id": "H1", "verdict": "REFUTED", "why": "it does not"}]}`

// optimised has a policy that was tuned, with a load that needs no rejecting, and one that was not.
const optimised = `{"calls": 30, "baseline_goodput": 0.11, "policies": [{"policy": "seed", "method": "gp", "parameters": {"b": 2.34567, "a": 1000}, "train_goodput": 0.12, "test_goodput": 0.13, "optimism_gap": 0.14, "test_goodput_critical": 0.15,
		"transfer": [{"to": "half", "goodput": 0.16, "always_admit": 0.17, "seats_in_use": 1, "tested": true}, {"to": "twice", "goodput": 0.18, "always_admit": 0.19, "seats_in_use": 0.99, "tested": false}],
		"sensitivity": [{"name": "a", "from": 1.5, "to": 2.5, "goodput_range": 0.21, "interval": 0.22, "effect": "yes"}]}, {"policy": "plain"}]}`

// ledger has two entries; the first has nothing but its stage.
const ledger = `[{"time": "2026-01-02T03:04:05Z", "stage": "fit", "headline": {}}, {"time": "2026-01-03T03:04:05Z", "stage": "run", "inputs": [{}, {}], "artifact": {"sha256": "0123456789abcdef"},
	"headline": {"beta_mape": 0.051234, "beta_mape_const": 0.26, "beta_skill": 0.71234, "loco_median": 0.08, "ks_ttft": 0.091, "ks_itl": 0.092, "ks_e2e": 0.093, "verdict": "pass", "configs": 3, "rows": 12345}}]`

// differences has terms that moved, did not move and are unchanged, and one changed prediction.
const differences = `{"significance": "stored intervals", "tolerance": 0.02, "settings": ["lag 1, was 2"], "reasons": ["a moved", "TTFT changed"], "changed": true,
	"terms": [{"model": "beta", "name": "a", "unit": "us", "a": 1234.5678, "b": 2345.6, "delta": 1, "ratio": 1.9, "p": 0.00123, "significant": true}, {"model": "queue", "name": "b", "unit": "us/s", "a": 0, "b": 3, "delta": 3, "significant": false, "note": "only in B"},
		{"model": "beta", "name": "c", "unit": "us", "a": 5, "b": 6, "delta": 1}, {"model": "beta", "name": "same", "unit": "us", "a": 7, "b": 7}],
	"predictions": [{"scope": "cfg", "workload": "reference", "metric": "ttft p50", "a_ms": 12.3456, "b_ms": 13.4567, "relative_change": 0.09}]}`

// requestFit is a fit to requests with passes, held-out loads and directions.
const requestFit = `{"requests": {"prior": "library", "objective": 0.0312, "noise_floor": 0.0043, "evaluations": 321, "simulated_steps": 65432, "passes": [{"name": "start", "objective": 0.91, "damping": 1}, {"name": "end", "objective": 0.0312, "damping": 0.25}],
	"loads": [{"name": "a", "tier": "requests", "requests": 120}, {"name": "b", "tier": "points", "requests": 7}, {"name": "c", "tier": "requests", "requests": 1}],
	"directions": [{"terms": ["bias", "kv"], "learned": true}, {"terms": ["one"], "learned": true}, {"terms": ["x"], "needs": ""}, {"terms": ["y"], "needs": "longer prompts"}, {"terms": ["z"], "needs": "more"}],
	"holdout": [{"name": "h", "requests": 55, "metrics": {"ttft": {"ks_d": 0.11, "median_rel_err_paired": 0.12}, "e2e": {"ks_d": 0.13, "median_rel_err_paired": 0.14}}}],
	"gain": {"calibrated_e2e_error": 0.045, "uncalibrated_e2e_error": 0.123}}}`

func init() {
	for name, show := range map[string]func(p *paper){
		"simulation_none": func(p *paper) {
			doc := documentOf[simulate.Document](`{"injected_requests": 3, "rejected_by_reason": {"too long": 3}}`)
			p.note(fmt.Sprint(showSimulation(p.console, doc, nil, doc)))
		},
		"simulation": func(p *paper) {
			doc := documentOf[simulate.Document](simulation)
			if err := showSimulation(p.console, doc, documentOf[cluster.Part](gateway), doc); err != nil {
				p.note(err.Error())
			}
		},
		"isolation": func(p *paper) { showIsolation(p.console, documentOf[cluster.Document](isolation)) },
		"optimise":  func(p *paper) { showOptimise(p.console, documentOf[cluster.OptimiseDoc](optimised)) },
		"ledger": func(p *paper) {
			entries := *documentOf[[]export.Entry](ledger)
			p.table("Ledger", ledgerHeader, ledgerRows(entries))
			p.table("Trend", cells{"figure", "n", "first", "last", "best", "slope", ""}, trendRows([]export.Trend{{Figure: "beta_mape", N: 4, First: 0.11111, Last: 0.22222, Best: 0.33333, Slope: -0.0123456, Values: []float64{1, 2, 4.5, 8}}}))
		},
		"differences": func(p *paper) {
			doc := documentOf[export.DiffDoc](differences)
			p.note(fmt.Sprint(reportDiff(p.console, doc, true, true)))
			p.note(fmt.Sprint(reportDiff(p.console, doc, false, false)))
			doc.Changed, doc.Reasons = false, nil
			p.note(fmt.Sprint(reportDiff(p.console, doc, false, true)))
		},
		"requests": func(p *paper) {
			doc := documentOf[result.Fit](requestFit)
			doc.Requests.StepsPerSecond = 1234.5
			showRequests(p.console, doc)
			showRequests(p.console, &result.Fit{Requests: &result.RequestLevel{Loads: []result.RequestLoad{{Tier: "points", Requests: 2}}}})
		},
		"changes": func(p *paper) {
			c := &result.Changes{Against: "old", Same: 7, Notes: []string{"another spec"}}
			for i := range 14 {
				c.Rows = append(c.Rows, result.Change{Kind: result.ChangeTerm, Name: fmt.Sprint("t", i), Unit: "us", Old: testkit.Ptr(1000.0), New: testkit.Ptr(1500.0), P: testkit.Ptr(0.03)})
			}
			p.sinceBaseline()
			p.brief = true
			p.setChanges(c)
			p.sinceBaseline()
			p.brief = false
			c.Rows = c.Rows[:1]
			p.sinceBaseline()
			c.Rows = nil
			p.sinceBaseline()
		},
	} {
		printed[name] = show
	}
}
