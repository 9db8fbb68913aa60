package gate

// This file has the functions that take the value of a gate from the documents of a fit and a
// validation.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// isUnseen reports whether the errors are those of a test run whose configuration was not part of
// the fit. The gates of held-out configurations apply to it.
func isUnseen(c *result.ConfigErrors) bool { return c.TestRun && !c.Seen }

// hasSteps reports whether a configuration has steps with errors.
func hasSteps(c *result.ConfigErrors) bool { return c.Steps != nil && c.Steps.Rows > 0 }

// stepMAPE returns the value function of the MAPE (mean absolute percentage error) of the step time, for
// the configurations that applies picks. It is the one step gate that a configuration without steps has
// too, without a value, so that the verdict is not a pass.
func stepMAPE(applies func(*result.ConfigErrors) bool) func(*result.ConfigErrors, []result.ValidationRun) (reading, bool) {
	return func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
		if !applies(c) {
			return reading{}, false
		}
		if !hasSteps(c) {
			return reading{missing: noteNoRows}, true
		}
		return mapeOf(c), true
	}
}

// mapeOf returns the MAPE of a configuration's steps.
func mapeOf(c *result.ConfigErrors) reading {
	return reading{value: c.Steps.MAPE, estimate: true, rows: true, interval: c.Steps.MAPEInterval, size: c.Steps.Rows, missing: noteNoRows}
}

// biasOf returns the size of the bias of steps.
func biasOf(e *result.Errors) reading {
	return reading{value: absolute(e.Bias), estimate: true, rows: true, interval: e.BiasInterval, size: e.Rows, missing: noteNoRows}
}

// ofSteps returns a value function for every configuration that has steps.
func ofSteps(value func(*result.ConfigErrors) reading) func(*result.ConfigErrors, []result.ValidationRun) (reading, bool) {
	return func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
		if !hasSteps(c) {
			return reading{}, false
		}
		r := value(c)
		r.size = c.Steps.Rows
		return r, true
	}
}

// ofWindows returns a value function for every configuration with predictions of the admission delay,
// decided by means over windows of ten seconds.
func ofWindows(value func(*result.TargetErrors) reading) func(*result.ConfigErrors, []result.ValidationRun) (reading, bool) {
	return func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
		if c.Alpha == nil || c.Alpha.Admission == nil {
			return reading{}, false
		}
		r := value(c.Alpha.Admission)
		r.size = max(1, c.Alpha.Admission.Windows) // 0 would mean that the values are not counted
		r.windows = true
		return r, true
	}
}

// ofQueue returns a value function for every configuration with predictions of the queue target of
// specification 1.0.
func ofQueue(value func(*result.TargetErrors) reading) func(*result.ConfigErrors, []result.ValidationRun) (reading, bool) {
	return func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
		if c.Alpha == nil || c.Alpha.Queue == nil {
			return reading{}, false
		}
		r := value(c.Alpha.Queue)
		r.size = c.Alpha.Queue.Rows
		return r, true
	}
}

// ofWaits returns a value function for every configuration with predictions of a delay that contains a
// wait, for the requests that part picks: of the target queue where it is fitted, else of admission.
func ofWaits(part func(*result.TargetErrors) *result.RegimeErrors, value func(*result.RegimeErrors) *float64) func(*result.ConfigErrors,
	[]result.ValidationRun) (reading, bool) {
	return func(c *result.ConfigErrors, _ []result.ValidationRun) (reading, bool) {
		if c.Alpha == nil || c.Alpha.Queue == nil && c.Alpha.Admission == nil {
			return reading{}, false
		}
		requests := part(cmp.Or(c.Alpha.Queue, c.Alpha.Admission))
		if requests == nil {
			return reading{missing: fmt.Sprintf(noteNoDelays, FewestValues)}, true
		}
		return reading{value: value(requests), size: requests.Rows, missing: noteNoFloor}, true
	}
}

// longDelays returns the requests that were held up for a second or longer.
func longDelays(e *result.TargetErrors) *result.RegimeErrors { return e.Long }

// instantDelays returns the requests that arrived when no other one waited.
func instantDelays(e *result.TargetErrors) *result.RegimeErrors {
	for i := range e.Regimes {
		if e.Regimes[i].Regime == "idle" {
			return &e.Regimes[i]
		}
	}
	return nil
}

// aboveFloor returns the part of the error that is not noise.
func aboveFloor(e *result.RegimeErrors) *float64 {
	if e.MAPE == nil || e.MAPEFloor == nil {
		return nil
	}
	above := math.Max(0, *e.MAPE-*e.MAPEFloor)
	return &above
}

// largestError returns the largest error over the median target, with a remark on the outliers that it
// does not include (spec#outliers).
func largestError(errorRatio *float64, outliers, rows int, largestOutlier *float64) reading {
	r := reading{value: errorRatio, missing: noteNoRows}
	if outliers > 0 {
		percent := 100 * float64(outliers) / float64(rows)
		r.remark = fmt.Sprintf(noteOutliers, outliers, rows, percent, *largestOutlier)
	}
	return r
}

// largestDelayError returns the largest error of a delay over its median.
func largestDelayError(a *result.TargetErrors) reading {
	return largestError(a.MaxErrorRatio, a.Outliers, a.Rows, a.LargestOutlier)
}

// shareOfMedian returns the mean absolute error of a delay outside the engine over the median of the
// recorded time that it is a part of. The median, because one wrong stamp can enlarge a mean at will.
// Without a replay there is no such time, and the gate is not required.
func shareOfMedian(maeUs *float64, c *result.ConfigErrors, runs []result.ValidationRun, metric func(*result.Metrics) *result.Metric) reading {
	medianMs := recordedMedianMs(c, runs, metric)
	r := reading{missing: noteNoReplay, optional: medianMs == nil}
	if maeUs != nil {
		const usPerMs = 1000
		maeMs := *maeUs / usPerMs
		r.value = ratio(&maeMs, medianMs)
	}
	return r
}

// recordedMedianMs returns the median of a recorded metric over the replayed requests of a
// configuration or test run: the mean of the medians of its runs and phases, weighted by their
// requests.
func recordedMedianMs(c *result.ConfigErrors, runs []result.ValidationRun, metric func(*result.Metrics) *result.Metric) *float64 {
	sum, requests := 0.0, 0.0
	for i := range runs {
		run := &runs[i]
		if !slices.Contains(c.Runs, run.ID) || run.Saturated || run.Metrics == nil {
			continue
		}
		if m := metric(run.Metrics); m != nil {
			sum += m.RealMs.P50 * float64(m.NReal)
			requests += float64(m.NReal)
		}
	}
	if requests == 0 {
		return nil
	}
	mean := sum / requests
	return &mean
}

// worstMAPE returns the largest MAPE of a configuration.
func worstMAPE(v *result.Validation) (reading, bool) {
	worst := reading{missing: noteNoRows}
	for i := range v.Configs {
		c := &v.Configs[i]
		if hasSteps(c) && c.Steps.MAPE != nil && (worst.value == nil || *c.Steps.MAPE > *worst.value) {
			worst = mapeOf(c)
		}
	}
	return worst, true
}

// pooledBias returns the bias of all steps together, in addition to those of each of several
// configurations.
func pooledBias(v *result.Validation) (reading, bool) {
	configs, unseen := 0, 0
	for i := range v.Configs {
		if c := &v.Configs[i]; hasSteps(c) {
			configs++
			if isUnseen(c) {
				unseen++
			}
		}
	}
	if v.Steps == nil || configs == 1 && unseen == 0 { // that of a single configuration is its own gate
		return reading{missing: noteNoRows}, configs != 1
	}
	return biasOf(v.Steps), true
}

// absolute returns an error without its sign; nil where it is unknown.
func absolute(v *float64) *float64 {
	if v == nil {
		return nil
	}
	size := math.Abs(*v)
	return &size
}

// ratio returns a/b; nil if one of them is unknown or b is 0.
func ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	q := *a / *b
	return &q
}

// certified returns 1 if the solver's certificate holds for every model, and 0 if one does not. It
// has no value without a certificate: the frozen recipe has a closed form.
func certified(fit *result.Fit) reading {
	r := reading{missing: noteNoFit}
	for _, m := range append([]result.Model{fit.Beta}, fit.Alpha...) {
		if m.Certificate == nil {
			continue
		}
		holds := 0.0
		if m.Certificate.OK {
			holds = 1
		}
		if r.value == nil || holds < *r.value {
			r.value = &holds
		}
	}
	return r
}

// repeatedFolds returns the number of cross-validation folds whose coefficients equal those of another fold, and
// decides for the purposes that use their model. Folds of few rows may be equal because these do not decide between the
// candidates, and folds of a delay because a constant fits all rows (spec#repeated-folds).
func repeatedFolds(fit *result.Fit) reading {
	repeated := 0
	r := reading{}
	for i, m := range append([]result.Model{fit.Beta}, fit.Alpha...) {
		ofModel := m.RepeatedFolds()
		if ofModel == 0 || m.IsConstantDelay() {
			continue
		}
		repeated += ofModel
		used := forWaits
		switch {
		case i == 0: // step times
			used = forStepsAndReplay
		case m.Replay:
			used = forReplay
		}
		for _, purpose := range used {
			if !slices.Contains(r.purposes, purpose) {
				r.purposes = append(r.purposes, purpose)
			}
		}
		r.remark = joinNotes(r.remark, fmt.Sprintf(noteRepeated, ofModel, m.Name))
		rows := m.Rows.Kept - m.Rows.Holdout
		if rows > 0 && rows < FewestValues*len(m.FoldFingerprints) {
			r.few = fmt.Sprintf(noteFewInFolds, m.Name, rows, len(m.FoldFingerprints), FewestValues)
		}
	}
	n := float64(repeated)
	r.value = &n
	return r
}

// mustBePositive are the terms that every server has; the bias may be 0.
var mustBePositive = []string{"prefill_linear_compute", "decode_weight_load", "fixed_step_overhead"}

const mayBeZero = "bias"

// impossibleSigns returns the number of terms with an impossible sign among those that the data
// identify within configurations. The remark names them, and those at their bound of 0 whose sign is not decided.
func impossibleSigns(set *coeff.Set) reading {
	identified, impossible := 0, 0
	remark := ""
	for i := range set.Beta {
		c := &set.Beta[i]
		positive := slices.Contains(mustBePositive, c.Name) // 0 is impossible too
		if c.Identified != coeff.Within || !positive && c.Name != mayBeZero {
			continue
		}
		identified++
		// A term at its bound of 0 is impossible only if its interval ends there. Where the interval reaches positive
		// values, or there is none, its cost may be small or another term's, and the sign is not decided.
		switch {
		case c.Value < 0:
			impossible++
			remark = joinNotes(remark, fmt.Sprintf(noteNegative, c.Name))
		case !positive || c.Value > 0:
		case c.CI95 != nil && c.CI95[1] <= 0:
			impossible++
			remark = joinNotes(remark, fmt.Sprintf(noteZeroOrLess, c.Name))
		default:
			remark = joinNotes(remark, fmt.Sprintf(noteAtZero, c.Name))
		}
	}
	if identified == 0 {
		return reading{missing: noteNotIdentified, optional: true}
	}
	n := float64(impossible)
	return reading{value: &n, remark: remark}
}

// ttftOf returns the comparison of TTFT.
func ttftOf(m *result.Metrics) *result.Metric { return m.TTFT }

// itlOf returns the comparison of ITL.
func itlOf(m *result.Metrics) *result.Metric { return m.ITL }

// e2eOf returns the comparison of E2E.
func e2eOf(m *result.Metrics) *result.Metric { return m.E2E }

// beyondOf returns the distance of the distributions beyond the tolerance.
func beyondOf(m *result.Metric) reading { return reading{value: m.BeyondD, chance: m.ChanceBeyondD} }

// medianErrorOf returns the median relative error of single requests.
func medianErrorOf(m *result.Metric) reading {
	return reading{value: m.MedianRelErrPaired, chance: m.ChanceMedian}
}

// capacityErrorOf returns the error of a closed loop's throughput.
func capacityErrorOf(c *result.Capacity) reading { return ofEstimate(c.Err) }

// pairedErrorOf returns the value of a gate on a metric's signed error, replayed against recorded time
// of the same requests (PairedErr).
func pairedErrorOf(m *result.Metric) reading { return ofEstimate(m.PairedErr) }

// ofEstimate returns the size of a signed figure with its interval.
func ofEstimate(e *result.Estimate) reading {
	if e == nil {
		return reading{}
	}
	r := reading{value: absolute(&e.Value), estimate: true}
	if e.Lo != nil && e.Hi != nil {
		r.interval = &[2]float64{*e.Lo, *e.Hi}
	}
	return r
}
