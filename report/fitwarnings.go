package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/features"
)

// The functions of this file word the warnings of a fit from its figures. A fit stores them in the
// documents as messages; the stage that computes the figures chooses the code.

// TimesPeak returns the warning about a coefficient whose work would take `times` the time that the hardware
// needs at its peak, outside the plausible range from lo to hi.
func TimesPeak(term string, times, lo, hi float64) string {
	return fmt.Sprintf("%s: %.3g times what the hardware takes at its peak, want %g to %g", term, times, lo, hi)
}

// OnlyBetweenConfigs returns the warning about a term that no configuration varies by itself. identified names
// what its value comes from.
func OnlyBetweenConfigs(term, identified string) string {
	return fmt.Sprintf("%s does not vary inside any configuration: its value is %s", term, identified)
}

// NoCostFound returns the warning about a term whose cost the measurements do not show.
func NoCostFound(term, identified string, value float64) string {
	return fmt.Sprintf("%s is %s at %.3g: the measurements do not determine its cost", term, identified, value)
}

// NotSeparated describes terms that the measurements do not separate: their names, what is known of their
// sum, and an experiment that would separate them. unknown is the number of their combinations that the
// measurements leave undetermined; 0 means that all are determined, but poorly. sumUs is what the terms
// contribute together to a typical step.
func NotSeparated(terms []string, unknown int, sumUs float64) string {
	experiment := separatingExperiment(terms)
	if len(terms) == 1 {
		return fmt.Sprintf("%s has no effect on these measurements; %s would show it", terms[0], experiment)
	}
	last := len(terms) - 1 // also the number of combinations that are unknown if only the sum is known
	list := strings.Join(terms[:last], ", ") + " and " + terms[last]
	ms := sumUs / 1000
	switch {
	case unknown == 0:
		return fmt.Sprintf("%s nearly move together: their sum, %.3g ms of a typical step, is known, each of them poorly; add %s",
			list, ms, experiment)
	case unknown == 1 && last > 1:
		return fmt.Sprintf("%s cannot be told apart: one combination of them is unknown; the terms together make %.3g ms "+
			"of a typical step; add %s", list, ms, experiment)
	case unknown < last:
		return fmt.Sprintf("%s cannot be told apart: %d combinations of them are unknown; the terms together make %.3g ms "+
			"of a typical step; add %s", list, unknown, ms, experiment)
	}
	return fmt.Sprintf("%s cannot be told apart: only their sum, %.3g ms of a typical step, is known; add %s", list, ms, experiment)
}

// separatingExperiment names up to two recordings that would separate the terms.
func separatingExperiment(terms []string) string {
	var recordings []string
	separates, _ := features.Experiments() // pairs of a term and a recording that separates it from others
	for _, s := range separates {
		term, recording := s[0], s[1]
		if slices.Contains(terms, term) && !slices.Contains(recordings, recording) {
			recordings = append(recordings, recording)
		}
	}
	if len(recordings) == 0 {
		return "runs that vary them separately"
	}
	return strings.Join(recordings[:min(2, len(recordings))], ", or ")
}

// SeparationFailed returns the warning that the analysis behind NotSeparated failed.
func SeparationFailed(err error) string {
	return fmt.Sprintf("cannot determine which terms the measurements separate: %v", err)
}

// FewTrainingRows returns the warning about a configuration with fewer training rows than recommended.
func FewTrainingRows(model, config string, rows, recommended int) string {
	return fmt.Sprintf("%s: %s has %d training rows, guidance is %d", model, config, rows, recommended)
}

// DelayNotFitted returns the warning about a delay with too few training rows to fit at all.
func DelayNotFitted(target string, rows int) string {
	return fmt.Sprintf("alpha %s: %d training rows: not fitted", target, rows)
}

// DelayNotConverged returns the warning about a delay whose fit found no certified answer.
func DelayNotConverged(target, why string) string {
	return fmt.Sprintf("alpha %s: %s: not fitted, because its measured delays contradict each other, as with clocks that differ by hours", target, why)
}

// FewDegreesOfFreedom returns the warning about a fit of the frozen recipe that has hardly more configurations
// than effective degrees of freedom.
func FewDegreesOfFreedom(df float64, configs int) string {
	return fmt.Sprintf("effective degrees of freedom %.2f over %d configurations", df, configs)
}

// BelowFloor returns the warning about a run whose median target is shorter than reading the weights once
// (spec#target-audit).
func BelowFloor(run, target string, medianUs, floorUs float64) string {
	return fmt.Sprintf("%s: the median %s is %.0f us, below the %.0f us that reading the weights once takes at peak bandwidth: "+
		"it cannot be the step time", run, target, medianUs, floorUs)
}

// FallsWithTokens returns the warning about coefficients with which a prediction can fall as tokens are added
// (spec#err-decode-linear).
func FallsWithTokens(decodeWeightLoad, prefillLinearCompute float64) string {
	return fmt.Sprintf("decode_weight_load %.3g us/s exceeds prefill_linear_compute %.3g us/s: "+
		"the predicted time can fall as tokens are added", decodeWeightLoad, prefillLinearCompute)
}

// SpeedChanged returns the warning about a run whose engine changed its speed in a block of the hold-out.
// biasFrac is the signed error of the block's predictions.
func SpeedChanged(run string, block, blocks int, biasFrac float64) string {
	direction := "slower"
	if biasFrac > 0 {
		direction = "faster"
	}
	return fmt.Sprintf("%s: in block %d of %d of the hold-out the engine ran %s than the training part predicts (signed error %+.0f %%)",
		run, block, blocks, direction, 100*biasFrac)
}

// runOfSpeedChange returns the run with which a message of [SpeedChanged] begins, because a finding has no field for it.
// It is false for a message without a run.
func runOfSpeedChange(message string) (run string, ok bool) {
	run, _, ok = strings.Cut(message, ": ")
	return run, ok
}

// OutsideInterval returns the warning about terms whose value lies outside the interval of their estimate.
func OutsideInterval(terms []string) string {
	return strings.Join(terms, ", ") + ": the penalty or the reweighting moved the value outside the 95 % interval of the estimate"
}

// AtPhysicalLimit returns the warning about terms that are held at the largest plausible multiple of the
// hardware's time (spec#forms).
func AtPhysicalLimit(terms []string, times float64) string {
	return fmt.Sprintf("%s: held at %g times the hardware's own time: the measurements ask for more, so this work is mixed with "+
		"work that the recorded loads do not separate from it; record loads in which it varies alone, or correct the hardware in run.yaml",
		strings.Join(terms, ", "), times)
}

// AtFeatureBound returns the warning about a feature that many rows have at its bound (spec#bound-hits).
func AtFeatureBound(term string, rows, read int) string {
	return fmt.Sprintf("%s: %d of %d rows hit its bound (%.2g %%)", term, rows, read, 100*float64(rows)/float64(read))
}

// LagAssumed returns the warning about a run whose schedule-to-execution lag could not be measured (spec#lag).
func LagAssumed(run string, intervals, lag int) string {
	return fmt.Sprintf("%s: %d hold-out intervals with prefill cannot tell the lag; %d assumed from async_scheduling",
		run, intervals, lag)
}

// LagUnlikeConfig returns the warning about a run whose measured lag differs from what run.yaml implies.
func LagUnlikeConfig(run string, measured, implied int) string {
	return fmt.Sprintf("%s: the measured lag is %d, run.yaml implies %d; the measured lag is used", run, measured, implied)
}

// NoInformativeOverhead returns the warning that no interval bounds the overhead.
func NoInformativeOverhead() string {
	return "no interval has a lower end above 0 or an upper end below 3 ms"
}

// ContradictsPrior returns the warning that the coefficients lie further from the prior than its covariance
// allows. It counts only the directions that the measurements determine; distance is the root mean square
// over them, in the prior's standard errors (spec#prior-contradicted).
func ContradictsPrior(prior string, directions int, distance, limit float64) string {
	return fmt.Sprintf("the data contradict the prior (%s): in the %d directions that the measurements determine, the coefficients "+
		"lie %.1f of its standard errors from it (root mean square, limit %.1f); do not rely on their intervals",
		prior, directions, distance, limit)
}

// UnlikePrior returns the warning about a configuration whose steps take `times` what the prior predicts for
// its hardware, which is `errors` of the prior's standard errors away.
func UnlikePrior(config, hardware, prior string, times, errors float64) string {
	return fmt.Sprintf("configuration %s: steps take %.2f times what the prior (%s) predicts for %s, %.1f of its standard errors",
		config, times, prior, hardware, errors)
}

// SliceSaturated returns the warning about a saturated slice of a run. Its ends are in seconds after the first
// step of the run.
func SliceSaturated(run string, fromS, toS float64, reason string) string {
	return fmt.Sprintf("%s: from %.0f to %.0f s after its first step: %s", run, fromS, toS, reason)
}

// NoStepRows returns the reason why a run without any usable step is not fitted: the drop that took most of them.
func NoStepRows(code string, dropped, candidates int) string {
	return fmt.Sprintf("no beta rows: %s (%d of %d candidates)", code, dropped, candidates)
}

// ContextsMerged returns the warning that no run has the contexts of single decodes.
func ContextsMerged() string {
	return "decode_attention and kv_cache_read are merged with the per-decode term: " +
		"no run has the contexts of single decodes, and only the prior splits the terms"
}

// GammaUndetermined returns the warning that several smoothing factors of the preemption average score alike
// (spec#gamma-choice).
func GammaUndetermined(alike []float64, kept float64, term string) string {
	var texts []string
	for _, gamma := range alike {
		texts = append(texts, fmt.Sprint(gamma))
	}
	return fmt.Sprintf("gamma of the preemption average: the scores of %s lie within one standard error, "+
		"the default %g is kept, and the interval of %s includes the intervals at all of them", strings.Join(texts, ", "), kept, term)
}

// KindsOfSteps counts the steps of runs by the kinds that a simulator will meet.
type KindsOfSteps struct {
	ManyPrefillTokens int // more than 64 prefill tokens
	SmallDecodes      int // decode batches below 4 requests
	LargeDecodes      int // decode batches of LargeBatch requests and more
	LongContexts      int // contexts of LongContext tokens and more
	FullCache         int // KV usage of FullUsageFrac and more

	LargestBatch   int // requests; lower end of the last bin of the histogram that has steps
	LongestContext int // tokens; likewise
}

// Limits of the kinds of steps.
const (
	LargeBatch    = 32   // requests
	LongContext   = 4096 // tokens
	FullUsageFrac = 0.9
)

// enoughSteps is the number of steps from which on a kind is not missing.
const enoughSteps = 20

// MissingKinds describes each kind of steps that has too few.
func MissingKinds(k KindsOfSteps) []string {
	missing := []string{}
	for _, kind := range []struct {
		steps int
		what  string
	}{
		{k.ManyPrefillTokens, "steps with more than 64 prefill tokens: the prefill cost is not identifiable"},
		{k.SmallDecodes, "decode batches below 4 requests"},
		{k.LargeDecodes, fmt.Sprintf("decode batches of %d requests and more (largest seen: about %d)", LargeBatch, k.LargestBatch)},
		{k.LongContexts, fmt.Sprintf("contexts of %d tokens and more (longest seen: about %d)", LongContext, k.LongestContext)},
		{k.FullCache, fmt.Sprintf("KV usage above %g", FullUsageFrac)},
	} {
		if kind.steps < enoughSteps {
			missing = append(missing, fmt.Sprintf("%d %s", kind.steps, kind.what))
		}
	}
	return missing
}

// RunSaturated returns the warning about a saturated run of a fit from requests; isFitted with keep-saturated.
func RunSaturated(run, reason string, isFitted bool) string {
	if isFitted {
		return fmt.Sprintf("run %s: saturated, %s: it is fitted all the same (keep-saturated)", run, reason)
	}
	return fmt.Sprintf("run %s: saturated, %s: it is not fitted; the key keep-saturated: true fits it", run, reason)
}

// PhaseSaturated returns the warning about a saturated phase of a run that is not saturated as a whole.
func PhaseSaturated(run, phase, reason string) string {
	return fmt.Sprintf("run %s: phase %s is saturated, %s: it is not fitted; the key keep-saturated: true fits it", run, phase, reason)
}

// QueueOnly returns what inspect warns about a saturated run: its times are mostly queueing.
func QueueOnly(run, reason string) string {
	return fmt.Sprintf("run %s: %s; its times are mostly queueing delay and determine few coefficients", run, reason)
}

// LevelOverrun returns the warning about a load level whose arrivals the server did not keep up with.
func LevelOverrun(level string, servedRPS, offeredRPS float64) string {
	return fmt.Sprintf("%s: served %s of %s requests/s: its times depend on the length of the recording, not only on step times",
		level, Short(servedRPS), Short(offeredRPS))
}

// LevelBeyondCache returns the warning about a load level that the simulated KV cache is too small for, although
// the measured server had no such difficulty.
func LevelBeyondCache(level string, simulatedTTFTMs, measuredTTFTMs float64) string {
	return fmt.Sprintf("%s: not fitted: the simulated server runs out of KV blocks (TTFT %.4g ms), "+
		"the measured one did not (%.4g ms); is its KV cache of another type or size?", level, simulatedTTFTMs, measuredTTFTMs)
}

// LevelsIgnored returns the warning about a run whose load levels are not fitted.
func LevelsIgnored(run, why string) string {
	return fmt.Sprintf("run %s: %s; blis-train fit --from points TABLE.csv --deployment run.yaml -o OUT fits them", run, why)
}

// ReplayUnlikeLoad returns the warning about a load whose replay is far from its measured TTFT even with the
// fitted coefficients.
func ReplayUnlikeLoad(load string, replayTTFTUs, measuredTTFTUs float64) string {
	return fmt.Sprintf("%s: TTFT is %.3g ms in the replay and %.3g ms as measured, medians, even with the fitted coefficients: "+
		"do prompts come from a prefix cache that run.yaml does not state, or is run.yaml of another server?",
		load, replayTTFTUs/1e3, measuredTTFTUs/1e3)
}

// NoGain returns the warning that held-out requests are not predicted better by the fit than by its prior. The
// errors are medians of the relative error of E2E; low and high are the 95 % interval of their difference.
func NoGain(fitErrorFrac, priorErrorFrac, lowFrac, highFrac float64) string {
	return fmt.Sprintf("E2E of the held-out requests is off by %.1f %% with the fitted coefficients and by %.1f %% with the prior (medians); "+
		"95 %% interval of the difference: %+.1f to %+.1f points",
		100*fitErrorFrac, 100*priorErrorFrac, 100*lowFrac, 100*highFrac)
}
