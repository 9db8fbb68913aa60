package gate

// This file is the table of all gates, with the words that explain each to a user.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// What a gate decides for.
var (
	forStepsAndReplay = []string{coeff.PurposeSteps, coeff.PurposeReplay}
	forReplay         = []string{coeff.PurposeReplay}
	forWaits          = []string{coeff.PurposeWaits}
	forTransfer       = []string{coeff.PurposeTransfer}
	forFitted         = []string{coeff.PurposeSteps, coeff.PurposeReplay, coeff.PurposeWaits} // a model of each
)

// Words that the gates of the three replayed times share.
const (
	distributionsDiffer = "recorded and simulated distributions differ by this much, where differences of up to 5 % of a " +
		"time do not count: do not trust simulated percentiles"
	seeECDF       = "see the ECDF in the report and the cause below"
	timesAreOff   = "simulated times of the same requests are too long or too short by this much"
	medianDiffers = "the simulated mean of a typical load level is wrong by this much"
	stepsFirst    = "see the cause below; correct step times first, then the overhead"
)

// table is every gate. A validation lists the gates of one scope in this order.
var table = withClauses([]Gate{
	{
		Name: BetaMAPE, Op: "<", Threshold: 0.15, Purposes: forStepsAndReplay, Prints: Percent,
		Reason:   "the error that capacity planning can bear, recorded configuration",
		Compares: "step-time MAPE of each configuration, hold-out rows",
		ofConfig: stepMAPE(func(c *result.ConfigErrors) bool { return !isUnseen(c) }),
		Words: Words{
			What:  "step-time error on held-out steps (MAPE)",
			Means: "the mean error of a simulated step is this large, and latencies are sums of steps",
			Do: "look up the regime with the largest error in the report and record more steps of " +
				"it, or correct the hardware in run.yaml",
		},
	},
	{
		Name: "beta_mape_loco", Op: "<", Threshold: 0.25, Purposes: forTransfer, Prints: Percent,
		Reason: "the error that capacity planning can bear, configuration that was not recorded",
		Compares: "step-time MAPE of each configuration when it is left out of the fit, or of a test " +
			"run of an unseen one",
		ofLeftOut: &leftOutValue{model: "beta", value: func(l *result.Loco) *float64 { return l.MAPE }},
		ofConfig:  stepMAPE(isUnseen),
		Words: Words{
			What:  "step-time error on a configuration left out of the fit (MAPE)",
			Means: "on a model or GPU that was not recorded, the mean error of a simulated step is this large",
			Do:    "record the configuration itself, or more configurations like it",
		},
	},
	{
		Name: "bias_loco", Op: "<", Threshold: 0.1, Purposes: forTransfer, Prints: Percent,
		Reason: "latencies are sums of steps, so a bias adds up; configuration that was not recorded",
		Compares: "size of sum(prediction - target) / sum(target) of each configuration when it is " +
			"left out of the fit, or of a test run of an unseen one",
		ofLeftOut: &leftOutValue{model: "beta", value: func(l *result.Loco) *float64 { return absolute(l.Bias) }},
		ofConfig: func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
			if !isUnseen(c) || !hasSteps(c) {
				return reading{}, false
			}
			return biasOf(c.Steps), true
		},
		Words: Words{
			What: "total bias of the step time, configuration left out of the fit",
			Means: "on a model or GPU that was not recorded, all simulated times are too short or too long " +
				"by this much, and capacity is misjudged by as much",
			Do: "record the configuration itself, or scale the simulated times by one measured load",
		},
	},
	{
		Name: BetaMaxError, Op: "<", Threshold: 3, Purposes: forStepsAndReplay,
		Reason:   "no single step may be far off",
		Compares: "largest absolute step-time error / median hold-out target of the configuration, or the step's own [time](#far-errors)",
		ofConfig: ofSteps(func(c *result.ConfigErrors) reading {
			return largestError(c.Steps.FarErrorRatio, c.Steps.Outliers, c.Steps.Rows, c.Steps.LargestOutlier)
		}),
		Words: Words{
			What: "largest step-time error over the median step",
			Means: "at least one step was far longer or shorter than predicted: rare stalls are " +
				"missing from the tail of the simulated ITL",
			Do: "look at the largest residuals in the report: a pause of the host, or an unusual batch",
		},
	},
	{
		Name: "beta_signs", Op: "<=", Threshold: 0, Purposes: forStepsAndReplay,
		Reason: "work cannot shorten a step",
		Compares: "identified terms with an impossible sign: prefill_linear_compute, " +
			"decode_weight_load, fixed_step_overhead, bias < 0, or one of the first three at 0 with an interval that ends there",
		ofCoefficients: impossibleSigns,
		Words: Words{
			What: "physical terms with a sign that physics forbids",
			Means: "a coefficient is negative, or at its bound of 0 with an interval that ends there because another term took " +
				"its cost: simulated times outside the recorded range are wrong",
			Do: "record loads in which that term varies alone, or fit with --prior library",
		},
	},
	{
		Name: "beta_beats_constant", Op: "<", Threshold: 1, Purposes: forStepsAndReplay,
		Reason:   "a model must beat a constant",
		Compares: "step-time MAPE / MAPE of the configuration's best constant",
		ofConfig: ofSteps(func(c *result.ConfigErrors) reading {
			return reading{value: ratio(c.Steps.MAPE, c.Steps.MAPEConst), missing: noteNoRows}
		}),
		Words: Words{
			What:  "step-time error over that of the best constant",
			Means: "one mean step time would predict as well as these coefficients",
			Do:    "record a wider range of batch sizes and prompt lengths",
		},
	},
	{
		Name: BetaSkill, Op: ">", Threshold: 0.5, Purposes: forStepsAndReplay,
		Reason:   "the error must be nearer to the noise floor than to that of a constant",
		Compares: "1 - (MAPE - floor)/(constant - floor)",
		ofConfig: ofSteps(func(c *result.ConfigErrors) reading {
			return reading{value: c.Steps.Skill, missing: noteNoFloor}
		}),
		Words: Words{
			What: "skill between the best constant (0) and the noise floor (1)",
			Means: "most of the difference between steps is not explained, so simulated times react " +
				"too little to load",
			Do: "look up the regime with the largest error in the report, and record more of it",
		},
	},
	{
		Name: Bias, Op: "<", Threshold: 0.04, Purposes: forStepsAndReplay, Prints: Percent,
		Reason: "latencies are sums of steps, so a bias adds up; on simulated servers right coefficients are within 3 %, wrong ones 10 % off",
		Compares: "size of sum(prediction - target) / sum(target), hold-out rows of each configuration, and of all " +
			"where there are several; judged with its interval",
		ofConfig: func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
			if isUnseen(c) || !hasSteps(c) {
				return reading{}, false
			}
			return biasOf(c.Steps), true
		},
		ofAll: pooledBias,
		Words: Words{
			What: "total bias of the step time",
			Means: "all simulated times are too short or too long by this much, at every load, and capacity " +
				"is misjudged by as much",
			Do: "repeat the recording on a quiet machine, and compare the drift curve in the report",
		},
	},
	{
		Name: "bound_hits", Op: "<=", Threshold: 0.01, Purposes: forStepsAndReplay, Prints: Percent,
		Reason:   "a feature at its upper bound no longer grows with the work",
		Compares: "largest share of rows whose feature hit its bound",
		ofConfig: ofSteps(func(c *result.ConfigErrors) reading {
			return reading{value: c.BoundHits, missing: noteNoRows}
		}),
		Words: Words{
			What: "share of steps with a feature at its bound",
			Means: "many steps have a feature at its upper bound, and work beyond the bound is " +
				"simulated as free",
			Do: "compare the block counts and token limits in run.yaml with the recording",
		},
	},
	{
		Name: certificate, Op: ">=", Threshold: 1, Purposes: forStepsAndReplay,
		Reason:   "the solver must have reached the optimum",
		Compares: "1 when the solver's certificate holds for every model",
		ofFit:    certified,
		Words: Words{
			What:  "the solver's optimality certificate holds (1)",
			Means: "the solver did not reach its optimum",
			Do:    "report it as a defect, with the fit.json",
		},
	},
	{
		Name: "folds_distinct", Op: "<=", Threshold: 0, Purposes: forFitted,
		Reason: "folds with equal coefficients compare a model with itself",
		Compares: "folds that repeat the coefficients of another, of step times (steps, replay), overhead and egress (replay), admission and " +
			"queue (waits); not of a delay that is [a constant](#repeated-folds)",
		ofFit: repeatedFolds,
		Words: Words{
			What: "cross-validation folds with the same coefficients as another",
			Means: "cross-validation compared a model with itself, so the choice of lambda and gamma " +
				"means nothing",
			Do: "record longer, or more runs",
		},
	},
	{
		Name: TargetFloor, Op: ">=", Threshold: 1, Purposes: forStepsAndReplay,
		Reason:   "no step is shorter than reading its weights",
		Compares: "median step-time target / median physical floor",
		ofConfig: ofSteps(func(c *result.ConfigErrors) reading {
			return reading{value: c.TargetOverFloor, missing: noteNoRows}
		}),
		Words: Words{
			What: "median step time over what the hardware can reach",
			Means: "recorded steps are shorter than the GPU needs to read the weights: unit, model or " +
				"hardware is wrong",
			Do: "check hardware, tensor_parallel_size and weight type in run.yaml",
		},
	},
	{
		Name: "worst_configuration", Op: "<", Threshold: 0.3, Purposes: forStepsAndReplay, Prints: Percent,
		Reason:      "a good mean must not hide a bad configuration",
		Compares:    "largest step-time MAPE over the configurations; twice the beta_mape threshold",
		followsGate: BetaMAPE, followsFactor: 2,
		ofAll: worstMAPE,
		Words: Words{
			What:  "step-time error of the worst configuration (MAPE)",
			Means: "one configuration is simulated much worse than the others",
			Do:    "fit it alone, or record more of it",
		},
	},
	{
		Name: "overhead_inside_loco", Op: ">=", Threshold: 0.85, Purposes: forTransfer, Prints: Percent,
		Reason:    "overheads must lie in their interval, configuration that was not recorded",
		Compares:  "share of non-exact intervals that hold the predicted overhead, configuration left out",
		ofLeftOut: &leftOutValue{model: "overhead", value: func(l *result.Loco) *float64 { return l.InsideShare }},
		Words: Words{
			What: "share of overheads inside their interval, configuration left out of the fit",
			Means: "on a configuration that was not recorded, the predicted delay before the engine is " +
				"outside what was measured",
			Do: "record the configuration itself",
		},
	},
	{
		Name: "admission_window_mape", Op: "<", Threshold: 0.25, Purposes: forWaits, Prints: Percent,
		Reason:   "an admission controller acts on means over ten seconds",
		Compares: "MAPE of 10-second window means of the wait before scheduling",
		ofConfig: ofWindows(func(a *result.TargetErrors) reading {
			return reading{value: a.MAPEWindow10s, missing: noteNoRows}
		}),
		Words: Words{
			What: "error of 10-second means of the queueing delay (MAPE)",
			Means: "an admission controller would see queueing delays with an error of this size; the " +
				"simulator computes its own queueing delays",
			Do: "use replay for queueing delays, or record a wider range of loads",
		},
	},
	{
		Name: "admission_window_mape_loco", Op: "<", Threshold: 0.4, Purposes: forWaits, Prints: Percent,
		Reason:    "an admission controller acts on means over ten seconds, configuration that was not recorded",
		Compares:  "MAPE of 10-second window means of the wait before scheduling, configuration left out",
		ofLeftOut: &leftOutValue{model: "admission", ofWindows: true, value: func(l *result.Loco) *float64 { return l.MAPEWindow10s }},
		Words: Words{
			What: "error of 10-second means of the queueing delay, configuration left out of the fit (MAPE)",
			Means: "on a configuration that was not recorded, the formula for the queueing delay " +
				"has an error of this size",
			Do: "use replay for queueing delays",
		},
	},
	{
		Name: "admission_max_error", Op: "<", Threshold: 5, Purposes: forWaits,
		Reason:   "no single window may be far off",
		Compares: "largest error of a window mean / median window",
		ofConfig: ofWindows(largestDelayError),
		Words: Words{
			What:  "largest error of a 10-second mean of the queueing delay over the median one",
			Means: "in at least one window the formula for the queueing delay is far off",
			Do:    "use replay for queueing delays; look up that window in the report",
		},
	},
	{
		Name: "admission_beats_constant", Op: "<", Threshold: 1, Purposes: forWaits,
		Reason:   "a model must beat a constant",
		Compares: "window MAPE / window MAPE of the best constant",
		ofConfig: ofWindows(func(a *result.TargetErrors) reading {
			return reading{value: ratio(a.MAPEWindow10s, a.ConstWindow), missing: noteNoRows}
		}),
		Words: Words{
			What:  "queueing-delay error over that of the best constant",
			Means: "one mean queueing delay would serve as well as the formula",
			Do:    "use replay for queueing delays, or record a wider range of loads",
		},
	},
	{
		Name: "long_delays_mape", Op: "<", Threshold: 0.25, Purposes: forWaits, Prints: Percent,
		Reason:   "what specification 1.0 asks of requests that queue",
		Compares: "per-request MAPE of requests held up for a second or longer, at least 20: queue, else admission",
		ofConfig: ofWaits(longDelays, func(e *result.RegimeErrors) *float64 { return e.MAPE }),
		Words: Words{
			What:  "error of the queueing delay of requests held up for a second or longer (MAPE)",
			Means: "the formula predicts long queueing delays with an error of this size",
			Do:    "use replay for queueing delays, or record a wider range of loads",
		},
	},
	{
		Name: "instant_delays_mape", Op: "<", Threshold: 0.25, Purposes: forWaits, Prints: Percent,
		Reason: "what specification 1.0 asks of requests that are served at once, beyond their noise",
		Compares: "per-request MAPE of requests that found no other one waiting, at least 20, less its noise floor: " +
			"queue, else admission",
		ofConfig: ofWaits(instantDelays, aboveFloor),
		Words: Words{
			What: "error of the delay of requests that are served at once (MAPE), less that of their noise",
			Means: "the formula predicts instant delays worse by this much than the median of like " +
				"requests; an instant admission is the rest of the running step, of which a model knows the mean alone",
			Do: "use the median and the distribution of instant delays, or replay",
		},
	},
	{
		Name: "queue_mape", Op: "<", Threshold: 0.25, Purposes: forWaits, Prints: Percent,
		Reason:   "what specification 1.0 asks",
		Compares: "per-request MAPE of SCHEDULED - QUEUED; frozen recipe only",
		ofConfig: ofQueue(func(a *result.TargetErrors) reading {
			return reading{value: a.MAPE, missing: noteNoRows}
		}),
		Words: Words{
			What: "error of the queueing delay per request (MAPE)",
			Means: "the formula of specification 1.0 predicts single queueing delays with an error " +
				"of this size",
			Do: "use replay for queueing delays",
		},
	},
	{
		Name: "queue_mape_loco", Op: "<", Threshold: 0.4, Purposes: forWaits, Prints: Percent,
		Reason:    "what specification 1.0 asks, configuration that was not recorded",
		Compares:  "per-request MAPE of SCHEDULED - QUEUED, configuration left out; frozen recipe only",
		ofLeftOut: &leftOutValue{model: "queue", value: func(l *result.Loco) *float64 { return l.MAPE }},
		Words: Words{
			What: "error of the queueing delay per request, configuration left out of the fit (MAPE)",
			Means: "on a configuration that was not recorded, the formula of specification 1.0 " +
				"predicts single queueing delays with an error of this size",
			Do: "use replay for queueing delays",
		},
	},
	{
		Name: "queue_max_error", Op: "<", Threshold: 5, Purposes: forWaits,
		Reason:   "no single request may be far off",
		Compares: "largest error / median target; frozen recipe only",
		ofConfig: ofQueue(largestDelayError),
		Words: Words{
			What:  "largest error of a queueing delay over the median queueing delay",
			Means: "at least one queueing delay is far from the formula of specification 1.0",
			Do:    "use replay for queueing delays",
		},
	},
	{
		Name: "queue_beats_constant", Op: "<", Threshold: 1, Purposes: forWaits,
		Reason:   "a model must beat a constant",
		Compares: "MAPE / MAPE of the best constant; frozen recipe only",
		ofConfig: ofQueue(func(a *result.TargetErrors) reading {
			return reading{value: ratio(a.MAPE, a.MAPEConst), missing: noteNoRows}
		}),
		Words: Words{
			What:  "queueing-delay error over that of the best constant",
			Means: "one mean queueing delay would serve as well as the formula of specification 1.0",
			Do:    "use replay for queueing delays",
		},
	},
	{
		Name: overheadOfTTFT, Op: "<", Threshold: 0.02, Purposes: forReplay,
		Reason:   "a delay matters by its share of the latency that it is a part of",
		Compares: "mean absolute error of the overhead / median TTFT of the replayed requests",
		ofConfig: func(c *result.ConfigErrors, runs []result.ValidationRun) (reading, bool) {
			if c.Alpha == nil || c.Alpha.Overhead == nil {
				return reading{}, false
			}
			return shareOfMedian(c.Alpha.Overhead.MAEUs, c, runs, ttftOf), true
		},
		Words: Words{
			What:  "error of the overhead as a share of TTFT",
			Means: "the delay before a request reaches the engine is predicted wrong by this share of TTFT",
			Do:    "record more requests at low load, with their arrivals and the times at which the engine queued them",
		},
	},
	{
		Name: "egress_of_e2e", Op: "<", Threshold: 0.01, Purposes: forReplay,
		Reason:   "a delay matters by its share of the latency that it is a part of",
		Compares: "mean absolute error of the egress / median E2E of the replayed requests",
		ofConfig: func(c *result.ConfigErrors, runs []result.ValidationRun) (reading, bool) {
			if c.Alpha == nil || c.Alpha.Egress == nil {
				return reading{}, false
			}
			return shareOfMedian(c.Alpha.Egress.MAEUs, c, runs, e2eOf), true
		},
		Words: Words{
			What:  "error of the egress as a share of E2E",
			Means: "the delay after a request's last step is predicted wrong by this share of E2E",
			Do:    "export the API server's spans, so that departures are recorded",
		},
	},
	{
		Name: "paired_err_ttft", Op: "<", Threshold: 0.05, Purposes: forReplay, Prints: Percent,
		Reason: "on simulated servers right coefficients are within 3 %, wrong ones 10 % off",
		Compares: "size of the signed error of TTFT, trimmed mean over the same requests, plain replay, " +
			"requests that the fit never saw; judged with its interval",
		ofReplay: &replayValue{metric: ttftOf, read: pairedErrorOf, notOfLoops: true},
		Words: Words{
			What:  "TTFT, signed error of the same requests",
			Means: timesAreOff,
			Do:    stepsFirst,
		},
	},
	{
		Name: "ks_ttft", Op: "<", Threshold: 0.15, Purposes: forReplay, Prints: Statistic,
		Reason: "close enough to plan with",
		Compares: "distance of the distributions of TTFT beyond a tolerance of 5 % of the times, the server's " +
			"noise in the replay, requests that the fit never saw",
		ofReplay: &replayValue{metric: ttftOf, read: beyondOf, notOfLoops: true},
		Words: Words{
			What:  "TTFT, distance between recorded and simulated distribution beyond 5 % of the times",
			Means: distributionsDiffer,
			Do:    seeECDF,
		},
	},
	{
		Name: "paired_err_itl", Op: "<", Threshold: 0.05, Purposes: forReplay, Prints: Percent,
		Reason: "on simulated servers right coefficients are within 3 %, wrong ones 10 % off",
		Compares: "size of the signed error of ITL, trimmed mean over the same requests, plain replay, " +
			"requests that the fit never saw; judged with its interval",
		ofReplay: &replayValue{metric: itlOf, read: pairedErrorOf},
		Words: Words{
			What:  "ITL, signed error of the same requests",
			Means: timesAreOff,
			Do:    stepsFirst,
		},
	},
	{
		Name: "ks_itl", Op: "<", Threshold: 0.15, Purposes: forReplay, Prints: Statistic,
		Reason: "close enough to plan with",
		Compares: "distance of the distributions of ITL beyond a tolerance of 5 % of the times, the server's " +
			"noise in the replay, requests that the fit never saw",
		ofReplay: &replayValue{metric: itlOf, read: beyondOf},
		Words: Words{
			What:  "ITL, distance between recorded and simulated distribution beyond 5 % of the times",
			Means: distributionsDiffer,
			Do:    seeECDF,
		},
	},
	{
		Name: "paired_err_e2e", Op: "<", Threshold: 0.05, Purposes: forReplay, Prints: Percent,
		Reason: "on simulated servers right coefficients are within 3 %, wrong ones 10 % off",
		Compares: "size of the signed error of E2E, trimmed mean over the same requests, plain replay, " +
			"requests that the fit never saw; judged with its interval",
		ofReplay: &replayValue{metric: e2eOf, read: pairedErrorOf},
		Words: Words{
			What:  "E2E, signed error of the same requests",
			Means: timesAreOff,
			Do:    stepsFirst,
		},
	},
	{
		Name: "ks_e2e", Op: "<", Threshold: 0.15, Purposes: forReplay, Prints: Statistic,
		Reason: "close enough to plan with",
		Compares: "distance of the distributions of E2E beyond a tolerance of 5 % of the times, the server's " +
			"noise in the replay, requests that the fit never saw",
		ofReplay: &replayValue{metric: e2eOf, read: beyondOf},
		Words: Words{
			What:  "E2E, distance between recorded and simulated distribution beyond 5 % of the times",
			Means: distributionsDiffer,
			Do:    seeECDF,
		},
	},
	{
		Name: "capacity", Op: "<", Threshold: 0.05, Purposes: forReplay, Prints: Percent,
		Reason:   "what capacity planning uses",
		Compares: "size of the error of the throughput of a closed loop, requests that the fit never saw; judged with its interval",
		ofReplay: &replayValue{ofLoop: capacityErrorOf},
		Words: Words{
			What:  "throughput of a closed loop, signed error",
			Means: "with as many requests in flight as were recorded, the simulated throughput is too high or too low by this much",
			Do:    stepsFirst,
		},
	},
	{
		Name: "median_rel_err_ttft", Op: "<", Threshold: 0.2, Purposes: forReplay, Prints: Percent,
		Reason:   "half of the load levels within 20 %",
		Compares: "median over load levels of the relative error of TTFT, levels that the fit never saw",
		ofReplay: &replayValue{metric: ttftOf, read: medianErrorOf, ofLevels: true},
		Words: Words{
			What:  "TTFT, median relative error of a load level",
			Means: medianDiffers,
			Do:    stepsFirst,
		},
	},
	{
		Name: "median_rel_err_itl", Op: "<", Threshold: 0.2, Purposes: forReplay, Prints: Percent,
		Reason:   "half of the load levels within 20 %",
		Compares: "median over load levels of the relative error of ITL, levels that the fit never saw",
		ofReplay: &replayValue{metric: itlOf, read: medianErrorOf, ofLevels: true},
		Words: Words{
			What:  "ITL, median relative error of a load level",
			Means: medianDiffers,
			Do:    stepsFirst,
		},
	},
	{
		Name: contradictionsSteps, Op: "<=", Threshold: 0, Purposes: forStepsAndReplay,
		Reason:   "the records of one run must agree with each other",
		Compares: "violated [identities](#identities) that make step times unusable; no value where they leave it undecided",
		ofConfig: violatedIdentities(coeff.PurposeSteps),
		Words: Words{
			What:  "violated identities between the streams of the recording",
			Means: "step times and batches, or run.yaml, contradict each other",
			Do:    "correct what the cause below names; `blis-train inspect -v` lists every comparison",
		},
	},
	{
		Name: contradictionsReplay, Op: "<=", Threshold: 0, Purposes: forReplay,
		Reason:   "the records of one run must agree with each other",
		Compares: "the same for replays",
		ofConfig: violatedIdentities(coeff.PurposeReplay),
		Words: Words{
			What:  "violated identities between the streams of the recording",
			Means: "requests, or run.yaml, contradict each other",
			Do:    "correct what the cause below names; `blis-train inspect -v` lists every comparison",
		},
	},
	{
		Name: contradictionsWaits, Op: "<=", Threshold: 0, Purposes: forWaits,
		Reason:   "the records of one run must agree with each other",
		Compares: "the same for queueing delays",
		ofConfig: violatedIdentities(coeff.PurposeWaits),
		Words: Words{
			What:  "violated identities between the streams of the recording",
			Means: "the recorded queue is not the one that the requests waited in",
			Do:    "correct what the cause below names; `blis-train inspect -v` lists every comparison",
		},
	},
	{
		Name: contradictionsTransfer, Op: "<=", Threshold: 0, Purposes: forTransfer,
		Reason:   "the records of one run must agree with each other",
		Compares: "the same for other configurations, of fits of several",
		ofConfig: violatedBetween(coeff.PurposeTransfer),
		Words: Words{
			What:  "violated identities between the streams of the recording",
			Means: "the configuration is not the one that run.yaml describes",
			Do:    "correct what the cause below names; `blis-train inspect -v` lists every comparison",
		},
	},
})

// withClauses returns the gates with the address of each gate's clause in the specification.
func withClauses(gates []Gate) []Gate {
	for i := range gates {
		gates[i].Spec = result.GateClause(gates[i].Name)
	}
	return gates
}
