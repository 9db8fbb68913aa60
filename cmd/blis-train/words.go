package main

// This file has the words of reports and files that explain knows besides codes.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// word is a term of the reports, tables and files, as explain prints it.
type word struct {
	name, unit, meaning, where string
}

// words are the terms that are no codes: what each is, its unit, and where it is printed.
var words = []word{
	{"ttft", "ms", "Time to first token: from the arrival of a request to its first output token.", "run, predict, size, the report, validation.json"},
	{"tpot", "ms", "Time per output token of a request: (E2E - TTFT) / (output tokens - 1).", "predict, size"},
	{"itl", "ms", "Inter-token latency: the time between two output tokens of a request.", "run, predict, the report, validation.json"},
	{"e2e", "ms", "End-to-end latency: from the arrival of a request to its last output token.", "run, predict, the report, validation.json"},
	{"p50", "", "The median: half of the values are at most this.", "predict, size, simulation.json"},
	{"p90", "", "The value that nine in ten do not exceed.", "predict, size, simulation.json"},
	{"p95", "", "The value that 95 in 100 do not exceed.", "predict, size, simulation.json"},
	{"p99", "", "The value that 99 in 100 do not exceed.", "predict, size, simulation.json"},
	{"throughput", "requests/s", "Requests that end each second, followed by output tokens/s.", "predict, size"},
	{"goodput", "share", "The share of requests that meet all their targets.", "size, experiment"},
	{"kv_cache", "tokens", "The memory for keys and values of the tokens that requests have, in blocks.", "predict, size"},
	{"limited_by", "", "What most of a step's time goes to: memory bandwidth, computing, the host, or the number of seats.", "predict"},
	{"step", "", "One pass of the engine: a batch of prompt and decode tokens, from one schedule() to the next.", "run, the report"},
	{"batch", "", "The requests that run in one step.", "the report"},
	{"prefill", "", "Work on the tokens of a prompt.", "the report, features"},
	{"decode", "", "Work on one new token of a request whose prompt is done.", "the report, features"},
	{"accuracy", "", "How far predictions were from servers that were measured but not used, or why that is not known.", "predict"},
	{"lambda", "1", "The strength of the ridge penalty, chosen by cross-validation.", "coefficients.yaml, fit.json, the report"},
	{"gamma", "1", "The strength with which a configuration's factor is drawn to that of all of them, chosen by cross-validation.", "coefficients.yaml, fit.json"},
	{"gamma_identified", "", "Whether the data tell gammas apart; false: the choice hardly changes the error.", "coefficients.yaml"},
	{"alpha", "us", "The models of delays of a request outside of steps: overhead, egress, admission or queue.", "coefficients.yaml, fit.json"},
	{"beta", "us", "The coefficients of the step time, one a feature.", "coefficients.yaml, fit.json"},
	{"estimate", "us", "The coefficient before the constraint that it is at least zero.", "coefficients.yaml"},
	{"estimate_ci95", "us", "The 95 % interval of the estimate.", "coefficients.yaml"},
	{"ci95", "us", "The 95 % interval of a value, by resampling blocks of time.", "coefficients.yaml, fit.json, the report"},
	{"ci95_given", "", "What the interval takes as given, such as the prior of a term that the data do not determine.", "coefficients.yaml"},
	{"fold_spread", "us", "The least and the largest value over the folds of cross-validation. The value itself is refitted on all rows, so it can lie outside.", "coefficients.yaml"},
	{"identified", "", "How well the data determine a coefficient: yes, weak, no or zero.", "coefficients.yaml, the report"},
	{"evidence", "", "Where a value comes from: the data, a prior, or both.", "coefficients.yaml, the report"},
	{"prior", "", "What was expected before the data: times of the library's kernels, or zero.", "fit.json, the report"},
	{"covariance", "us^2", "The covariance of the coefficients, row by row in the order of the terms.", "coefficients.yaml"},
	{"range", "", "The least and the largest value of a feature in training; predictions outside of it are named.", "coefficients.yaml"},
	{"certificate", "", "The optimality conditions of the fit: gradients at its solution, checked after it.", "coefficients.yaml, fit.json"},
	{"digest", "", "SHA-256 of the file before its last line. It detects accidents, not attackers.", "coefficients.yaml"},
	{"origin", "", "hand: a person made or changed the file; every answer that uses it has a warning.", "coefficients.yaml"},
	{"recipe", "", "How the data were cleaned and fitted: relative weighs steps by their time, or plain.", "coefficients.yaml, fit.json"},
	{"cadence", "us", "The step time from the start of a step to the start of the next.", "coefficients.yaml, fit.json"},
	{"duration", "us", "The step time as the scheduler writes it, without the time between steps.", "coefficients.yaml"},
	{"overhead", "us", "The delay from the arrival of a request at the server to its queue.", "coefficients.yaml, the report"},
	{"egress", "us", "The delay from the end of a step to the client's receipt of its tokens.", "coefficients.yaml, the report"},
	{"admission", "us", "The time from the arrival of a request to its first schedule; it contains queueing.", "coefficients.yaml, the report"},
	{"queue", "us", "The time a request waits in the engine's queue.", "coefficients.yaml, the report"},
	{"pipeline_lag", "steps", "How many steps lie between the schedule of a step and the time stamp that it causes.", "coefficients.yaml"},
	{"deployment_factors", "1", "Factors of configurations, by which a step time is multiplied.", "coefficients.yaml"},
	{"prompt_factors", "1", "Factors of configurations on the terms of prompt work.", "coefficients.yaml"},
	{"residual_quantiles", "1", "The spread of measured over predicted step times, which a simulator may draw from.", "coefficients.yaml"},
	{"n_samples", "steps", "The measured steps that a fit or a configuration has.", "coefficients.yaml"},
	{"hold_out_rmse", "us", "The root mean square error of step times that the fit has not seen.", "coefficients.yaml"},
	{"hold_out", "", "The last part of a recording, which the fit does not see and the validation judges.", "the report"},
	{"spec_version", "", "The set of features: 1.0 to 1.3 or experimental.", "coefficients.yaml"},
	{"feature_set", "", "Hashes of the features, by which files of other sets are recognised.", "coefficients.yaml"},
	{"verdict", "", "pass, fail, insufficient (too few data to decide) or not applicable, for a purpose.", "run, validate, the report"},
	{"purpose", "", "What coefficients are used for: steps, replay, waits or transfer; each has its verdict.", "run, validate, coefficients.yaml"},
	{"gate", "", "A figure, a limit and the purposes that it decides.", "validate, the report"},
	{"threshold", "", "The limit of a gate.", "coefficients.yaml, validation.json"},
	{"scope", "", "What a figure is of: a configuration, a run, or all.", "coefficients.yaml, validation.json"},
	{"ks", "1", "The Kolmogorov-Smirnov distance: the largest difference of two cumulative distributions, 0 to 1.", "run, the report, validation.json"},
	{"mape", "%", "The mean of |predicted - measured| / measured.", "the report, predictor evaluate"},
	{"wape", "%", "The sum of |predicted - measured| over the sum of measured.", "queue.json, the report"},
	{"bias", "%", "The mean of predicted - measured, relative to measured: systematic, where an error is also scatter.", "the report"},
	{"replay", "", "A simulation of a recording's requests with the coefficients, compared with what was measured.", "run, validate, the report"},
	{"steps", "", "The purpose: times of single steps.", "run, validate"},
	{"waits", "", "The purpose: the closed form of the wait for scheduling.", "run, validate"},
	{"transfer", "", "The purpose: a configuration that the fit has not seen.", "run, validate"},
	{"configuration", "", "A model, a GPU, its number (tp) and the engine's settings.", "run, the report, coefficients.yaml"},
	{"cached_share", "share", "The share of prompt tokens that come from the prefix cache.", "the report"},
	{"saturation", "", "A server that gets more than it can serve: its queue grows.", "run, validate, the report"},
	{"max_num_seqs", "requests", "The most requests that run in one step.", "predict, run.yaml"},
	{"max_num_batched_tokens", "tokens", "The most tokens of one step.", "predict, run.yaml"},
	{"kv_blocks_total_gpu", "blocks", "The blocks of the KV cache, one less than vLLM allocates.", "coefficients.yaml, run.yaml"},
	{"block_size", "tokens", "The tokens of one block of the KV cache.", "coefficients.yaml, run.yaml"},
	{"tensor_parallel_size", "GPUs", "The GPUs among which each layer is divided (tp).", "coefficients.yaml, run.yaml"},
	{"tp", "GPUs", "Tensor parallel size: the GPUs among which each layer is divided.", "run, predict, coefficients.yaml"},
	{"nis", "1", "Normalised innovation squared of a filter: about the number of observations where its noise is right.", "queue.json"},
	{"rho", "1", "Load over capacity.", "queue.json, experiment"},
}

// wordEntries are the words, and the features of every version, as explain prints them.
func wordEntries() []explained {
	var all []explained
	for _, w := range words {
		meaning := w.meaning
		if w.unit != "" {
			meaning += " Unit: " + w.unit + "."
		}
		all = append(all, explained{trace.Code(w.name), "printed by " + w.where, "word", meaning, ""})
	}
	for _, v := range features.Versions() {
		beta, alpha := features.Of(v)
		for _, f := range slices.Concat(beta, alpha) {
			isKnown := slices.ContainsFunc(all, func(e explained) bool { return string(e.Code) == f.Name })
			if isKnown {
				continue
			}
			all = append(all, explained{trace.Code(f.Name), "pipeline/features", "feature",
				fmt.Sprintf("%s, from version %s on: %s. Unit of its coefficient: %s.", f.Name, v, f.Doc, f.Unit()),
				fmt.Sprintf("Formula: %s. Printed in coefficients.yaml, fit.json and the report.", f.Formula)})
		}
	}
	return all
}
