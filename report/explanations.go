package report

// This file explains the words that documents state as reasons and states; `blis-train explain`
// prints them.

// Explanation explains a word that a document gives as a reason or a state: why a gate failed, why
// a request is not compared, why a run is saturated, why a policy rejected a request, a verdict, or
// how well a coefficient is determined.
type Explanation struct {
	Of    string // package that prints it; empty: pipeline/validate
	What  string // title, a few words
	Means string // what happened: the end of a sentence that What begins
	Do    string // what to do about it
}

// Explanations are all explanations by the word in the document, with underscores in place of
// spaces and dashes.
var Explanations = map[string]Explanation{
	"machine_drift": {
		What: "The machine drifted",
		Means: "the machine changed speed while it was recorded, and following its drift curve " +
			"removes the error",
		Do: "repeat the recording on a quiet machine; until then use the drift-corrected replay",
	},
	"unseen_regime": {
		What: "A regime was unseen in training",
		Means: "most of the error is in steps beyond 1.5 times the range that the coefficients were " +
			"trained on",
		Do: "record the loads that will be simulated",
	},
	"model_error": {
		What: "The model is wrong",
		Means: "one coefficient, or one factor on the terms of prompts or on the others, removes the " +
			"error",
		Do: "record more steps with work for the named term, or correct the model in run.yaml",
	},
	"saturated": {
		What:  "The run is saturated",
		Means: "the server was saturated: its queue grew while it was recorded",
		Do:    "record below the highest rate it can serve",
	},
	"lag": {
		What: "Steps are joined to the wrong batches",
		Means: "steps are joined to the wrong batches: the lag between a schedule call and the " +
			"execution of its step is another one",
		Do: "check async_scheduling in run.yaml, or set the key lag",
	},
	"hardware": {
		What:  "The hardware is not the one in run.yaml",
		Means: "one factor on all terms removes the error: run.yaml names another device or figures",
		Do:    "check hardware, power limit and clock of the device, and tensor_parallel_size",
	},
	"speed": {
		What:  "All steps are longer or shorter by one factor",
		Means: "one factor on all steps removes the error: the device, its clock or the software are not those of the fit",
		Do:    "compare them with those that the coefficients were fitted on, and fit what differs by itself",
	},
	"scheduler": {
		What:  "The simulator forms other batches",
		Means: "the simulator forms other batches than the engine did",
		Do: "check max_num_batched_tokens, max_num_seqs, block_size and the number of KV blocks " +
			"in run.yaml against the server's start-up log",
	},
	"streams": {
		What: "The recording contradicts itself or run.yaml",
		Means: "streams of one run, or the recording and run.yaml, cannot both be right: the sentence gives the " +
			"comparison with its figures",
		Do: "correct run.yaml, or record again, where the sentence points; blis-train inspect -v lists every comparison",
	},
	"unknown": {
		What:  "Unknown",
		Means: "no cause that was tried explains enough of the error; the sentence lists them",
		Do: "see the residuals by regime in the report; correct run.yaml where it may be wrong, " +
			"or record another load",
	},
	"failed": {
		What: "The request failed",
		Means: "it ended without success and its client did not give up: it loads the replay until " +
			"then and is not compared",
		Do: "see the server's log; many failures mean that it was saturated",
	},
	"aborted": {
		What:  "The client gave up",
		Means: "the request loads the replay until its recorded end and is not compared",
		Do:    "nothing, unless there are many",
	},
	"unfinished": {
		What:  "The request has no end",
		Means: "no end of it is recorded: it loads the replay and is not compared",
		Do:    "let the recording go on until the last request is done",
	},
	"load_only": {
		What: "The request only loads the replay",
		Means: "it was sent while requests that are missing in the file may have run, so its times " +
			"are not compared",
		Do: "keep failed requests in the client's result file",
	},
	"uncounted": {
		What: "Nobody counted the tokens of the answer",
		Means: "the request loads the replay with as many tokens as it had chunks, or as were asked for, and is not " +
			"compared",
		Do: "let the client ask for the usage of the server: stream_options.include_usage",
	},
	"rejected_by_model": {
		What:  "The simulator refused the request",
		Means: "the deployment that run.yaml describes can never run it, although the server did",
		Do:    "check max_model_len and the number of KV blocks of run.yaml",
	},
	"before_split": {
		What:  "The request is in the training share",
		Means: "the coefficients were fitted on it: it loads the replay and is not compared",
		Do:    "nothing: only held-out requests are compared",
	},
	"failure_share": {
		What:  "Check of saturation: share of failed requests",
		Means: "more than one request of twenty failed; two checks that hit make a run saturated",
		Do:    "record below the highest rate the server can serve",
	},
	"queue_rising_r2": {
		What: "Check of saturation: rising number of requests",
		Means: "the requests in the system rise in a straight line while the offered load does not; " +
			"two checks that hit make a run saturated",
		Do: "record below the highest rate the server can serve, or longer",
	},
	"preempted_share": {
		What: "Check of saturation: share of preempted requests",
		Means: "more than 15 % of the requests were preempted because KV blocks were missing; two " +
			"checks that hit make a run saturated",
		Do: "record at a lower rate, or with more KV cache",
	},
	"ttft_drift": {
		What: "Check of saturation: TTFT drifts",
		Means: "the TTFT of the last third of the requests is more than twice that of the first; two " +
			"checks that hit make a run saturated",
		Do: "record below the highest rate the server can serve",
	},
	"e2e_p99_over_p50": {
		What: "Check of saturation: tail of E2E",
		Means: "the slowest of a hundred requests takes more than ten times the median; two checks " +
			"that hit make a run saturated",
		Do: "record below the highest rate the server can serve",
	},
	"unrecorded": {
		What:  "The request left no journey",
		Means: "it is known only from the steps: it loads the replay and is not compared",
		Do:    "record every journey: --journey-tracing-sample-rate 1.0",
	},
	"floor": {
		Of:    "cluster",
		What:  "Admitted by the floor",
		Means: "it is predicted to be late, and its class is owed a share of the admissions",
		Do:    "lower the floor if late answers are worse than none",
	},
	"cold_start": {
		Of:   "cluster",
		What: "Admitted without experience",
		Means: "it is predicted to be late by the careful bound alone, and no request of its kind " +
			"was seen lately",
		Do: "nothing: the policy learns from it",
	},
	"insufficient_tokens": {
		Of:    "cluster",
		What:  "Refused: no tokens left",
		Means: "the policy's bucket held fewer tokens than the prompt",
		Do:    "raise its capacity or refill rate, or add instances",
	},
	"over_threshold": {
		Of:    "cluster",
		What:  "Refused: signal over its threshold",
		Means: "the policy's load signal was above its threshold",
		Do:    "raise the threshold, or add instances",
	},
	"predicted_miss": {
		Of:    "cluster",
		What:  "Refused: predicted to be late",
		Means: "the request was predicted to miss its target",
		Do:    "raise the target, or add instances",
	},
	"random": {
		Of:    "cluster",
		What:  "Refused by chance",
		Means: "a control policy refuses at random, at the rates of another run",
		Do:    "nothing: it is what the other run is compared with",
	},
	"no_arrival": {
		Of:    "predictor",
		What:  "No row: no arrival",
		Means: "the arrival of the request is not recorded",
		Do:    "record API spans or client results",
	},
	"no_engine_stamps": {
		Of:    "predictor",
		What:  "No row: no stamps of the engine",
		Means: "the time at which the engine scheduled the request is not recorded",
		Do:    "record engine spans",
	},
	"no_prompt_length": {
		Of:    "predictor",
		What:  "No row: no prompt length",
		Means: "the length of the prompt is not recorded",
		Do:    "record engine spans",
	},
	"no_first_token": {
		Of:    "predictor",
		What:  "No row: no first token",
		Means: "the request ended well without a first token on record",
		Do:    "raise OTEL_SPAN_EVENT_COUNT_LIMIT, or --target e2e where servers do not stream",
	},
	"no_departure": {
		Of:    "predictor",
		What:  "No row: no departure",
		Means: "the departure of the answer is not recorded",
		Do:    "record API spans",
	},
	"negative_latency": {
		Of:    "predictor",
		What:  "No row: negative latency",
		Means: "the request ends before it begins",
		Do:    "look at the clocks",
	},
	"request_aborted": {
		Of:    "predictor",
		What:  "No row: aborted",
		Means: "the client gave up, so its latency is none of the server's",
		Do:    "look at the client's timeout",
	},
	"request_failed": {
		Of:    "predictor",
		What:  "No row: failed",
		Means: "the request ended without success",
		Do:    "see the server's log",
	},
	"request_in_warm_up": {
		Of:    "predictor",
		What:  "No row: warm-up",
		Means: "the request ran while the server warmed up",
		Do:    "record for longer than the warm-up",
	},
	"request_while_saturated": {
		Of:    "predictor",
		What:  "No row: saturated",
		Means: "the request ran while the server was saturated",
		Do:    "--keep-saturated",
	},
	"incomplete_journeys": {
		Of:    "predictor",
		What:  "No row: journeys are sampled",
		Means: "other requests are missing, so the state at its decision is unknown",
		Do:    "--state step, or record with --journey-tracing-sample-rate 1.0",
	},
	"no_state_before": {
		Of:    "predictor",
		What:  "No row: no step before it",
		Means: "no step on record precedes the decision",
		Do:    "record with --step-tracing-sample-rate 1.0, or --state journey",
	},
	"stale_state": {
		Of:    "predictor",
		What:  "No row: the state is old",
		Means: "the last step on record is too long before the decision",
		Do:    "record with --step-tracing-sample-rate 1.0, or --state journey",
	},
	"no_kv_state": {
		Of:    "predictor",
		What:  "No row: KV cache unknown",
		Means: "the number of KV blocks is not known",
		Do:    "state vllm.kv_blocks_total_gpu in run.yaml",
	},
	"no_pace_yet": {
		Of:    "predictor",
		What:  "No row: no pace yet",
		Means: "no request has finished before the decision",
		Do:    "record longer",
	},
	"no_block_hashes": {
		Of:    "predictor",
		What:  "No row: prefix unknown",
		Means: "it is not recorded which prompt tokens are shared with other requests",
		Do:    "--prefix-score actual, or --shared-prefix-tokens TOKENS where prompts share their first",
	},
	"no_cached_tokens": {
		Of:    "predictor",
		What:  "No row: cached tokens unknown",
		Means: "it is not recorded how many prompt tokens were in the cache",
		Do:    "--prefix-score index, or record with --step-tracing-rich-subsample-rate 1.0",
	},
	"accepted": {
		Of:    "autoscale",
		What:  "The window moved the parameters",
		Means: "it is as near as the filter's noise allows",
		Do:    "nothing",
	},
	"gate_opened": {
		Of:    "autoscale",
		What:  "The server has changed",
		Means: "a second window in a row is too far off for noise, and moved the parameters",
		Do:    "look at what changed on the server then",
	},
	"innovation_too_large": {
		Of:    "autoscale",
		What:  "The window is too far off",
		Means: "its latencies are further from the prediction than noise allows",
		Do:    "nothing for a single one; see the windows around it",
	},
	"parameter_not_positive": {
		Of:    "autoscale",
		What:  "The window was refused",
		Means: "it would make a parameter zero or negative",
		Do:    "nothing for a single one; longer windows scatter less",
	},
	"model_has_no_answer": {
		Of:    "autoscale",
		What:  "The model has no answer",
		Means: "at the window's rate the model's queue has no steady state",
		Do:    "leave saturated windows out",
	},
	"held_back": {
		Of:    "autoscale",
		What:  "The refit was held back",
		Means: "the last windows do not determine the parameters, and the last good ones are kept",
		Do:    "vary the load",
	},
	"filling": {
		Of:    "autoscale",
		What:  "Too few windows yet",
		Means: "a refit needs more windows",
		Do:    "wait for them",
	},
	"hold_out_ttft_wape": {
		Of:    "autoscale",
		What:  "TTFT of windows held out",
		Means: "the calibrated queue misses the TTFT of windows that it never saw by this share",
		Do:    "record more windows at steady load, or take another flavour (queue fit --flavour)",
	},
	"hold_out_itl_wape": {
		Of:    "autoscale",
		What:  "ITL of windows held out",
		Means: "the calibrated queue misses the ITL of windows that it never saw by this share",
		Do:    "record more windows at steady load, or take another flavour (queue fit --flavour)",
	},
	"parameters_neither_measured_nor_held": {
		Of:   "autoscale",
		What: "Parameters that nothing determines",
		Means: "this many parameters are neither determined by the windows nor fixed at a physical " +
			"value",
		Do: "vary the load or the lengths, or give step traces",
	},
	"hold_out_load_outside_fitted": {
		Of:   "autoscale",
		What: "Load outside the fitted one",
		Means: "held-out windows are at a load outside the fitted one, so their errors are not those " +
			"at the fitted load",
		Do: "record the loads in turns",
	},
	"trees_mape_over_constant": {
		Of:    "predictor",
		What:  "Error of the trees over the best constant's",
		Means: "on held-out rows the trees predict no better than one number would",
		Do:    "record more requests and more kinds of load",
	},
	"p90_coverage_short": {
		Of:    "predictor",
		What:  "Coverage of the P90 below 90 %",
		Means: "fewer held-out rows are below the predicted P90 than 90 %",
		Do:    "record more requests: a P90 is calibrated on rows that the trees were not fitted to",
	},
	"pass": {
		What:  "Verdict: pass",
		Means: "every gate that the purpose requires passed on data that the fit never saw",
		Do:    "use the coefficients for that purpose",
	},
	"fail": {
		What:  "Verdict: fail",
		Means: "a gate that the purpose requires failed",
		Do:    "read the sentence under the gate and the reason; --ignore-verdict goes on all the same",
	},
	"insufficient": {
		What:  "Verdict: insufficient",
		Means: "no gate failed, but a required one has too few data",
		Do:    "record what the note of the gate asks for, or pass --allow-insufficient",
	},
	"not_applicable": {
		What:  "Verdict: not applicable",
		Means: "these data contain nothing that the purpose could be validated with",
		Do:    "name another purpose with --for, or record what it needs",
	},
	"within": {
		What:  "Identified within configurations",
		Means: "the data of one configuration determine the coefficient",
		Do:    "nothing",
	},
	"between_configs": {
		What:  "Identified between configurations",
		Means: "only the comparison of configurations determines the coefficient",
		Do:    "record loads in which its feature varies within a configuration",
	},
	"prior_only": {
		What:  "Known from the prior alone",
		Means: "no data determine the coefficient",
		Do:    "record a load with such work, or do not simulate one",
	},
	"loosely_known": {
		What:  "Loosely known",
		Means: "the 95 % interval of the coefficient contains 0 or spans more than a factor of 30",
		Do:    "record loads in which its feature varies alone; the value is exported as it is",
	},
}
