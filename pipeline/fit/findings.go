package fit

// This file has the checks that turn properties of a fit into warnings, with the codes of package fit.

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// termFindings returns the findings about one coefficient of a fit to `configs` configurations. Those
// about the hardware's peak apply only to the step time (ofSteps), because delays are host work.
func termFindings(t *Term, c result.Coefficient, configs int, ofSteps bool) []trace.Finding {
	var out []trace.Finding
	times, ok := features.RooflineTimes(t.Name, c.Unit, c.Value)
	if ofSteps && ok && times != 0 && !features.IsPlausible(times) {
		out = append(out, trace.Finding{
			Code:    absorbs,
			Message: report.TimesPeak(t.Name, times, features.PlausibleTimes[0], features.PlausibleTimes[1]),
		})
	}
	if c.Identified != coeff.Within && c.Range[1] > 0 && configs > 1 {
		out = append(out, trace.Finding{Code: NotIdentified, Message: report.OnlyBetweenConfigs(t.Name, c.Identified)})
	}
	if c.NotLearned && c.Range[1] > 0 {
		out = append(out, trace.Finding{Code: NotIdentified, Message: report.NoCostFound(t.Name, c.Identified, c.Value)})
	}
	return out
}

// notSeparated returns a sentence about terms that the measurements do not separate.
func notSeparated(terms []Term, g ridge.NullGroup) string {
	names := make([]string, len(g.Terms))
	for k, j := range g.Terms {
		names[k] = terms[j].Name
	}
	return report.NotSeparated(names, g.Dim, g.SumUs)
}

// Numbers of training rows of a configuration below which a fit of step times (beta) or of a delay
// (alpha) warns.
const (
	GuidanceBeta  = 200
	guidanceAlpha = 100
)

// warnFewRows warns about configurations with little data.
func warnFewRows(s *Solved, out *result.Model) {
	want := guidanceAlpha
	if out.Name == "beta" {
		want = GuidanceBeta
	}
	counts := make([]int, len(s.Pool.Configs))
	for _, c := range s.Train.Config {
		counts[c]++
	}
	for c, n := range counts {
		if n < want {
			out.Warnings = append(out.Warnings,
				trace.Finding{Code: CodeFewRows, Message: report.FewTrainingRows(out.Name, s.Pool.Configs[c], n, want)})
		}
	}
}

// warnRepeatedFolds warns about folds with the coefficients of another, except where a constant is the answer of
// all (spec#repeated-folds).
func warnRepeatedFolds(out *result.Model) {
	if a, b, found := out.RepeatedFold(); found && !out.IsConstantDelay() {
		out.Warnings = append(out.Warnings, trace.Findingf(CodeFewRows, "%s: folds %d and %d have the same coefficients", out.Name, a+1, b+1))
	}
}

// floorFindings warns about runs whose target cannot be a step time, because its median is below the
// time in which the hardware reads the weights once (spec#target-audit).
func floorFindings(s *Solved, target string, out *result.Model) {
	for _, table := range s.Pool.Tables {
		if found := tableBelowFloor(table, target); found != nil {
			out.Warnings = append(out.Warnings, *found)
		}
	}
}

// tableBelowFloor returns the finding of floorFindings for one run; nil if there is none.
func tableBelowFloor(t *rows.Table, target string) *trace.Finding {
	y := stat.Median(perStep(t, t.Y))
	floor := stat.Median(perStep(t, t.FloorUs))
	if !(y < floor) {
		return nil
	}
	return &trace.Finding{Code: Implausible, Message: report.BelowFloor(t.Run, target, y, floor)}
}

// perStep returns a column of rows divided by their numbers of steps.
func perStep(t *rows.Table, v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] / t.Steps[i]
	}
	return out
}

// orderFinding warns of a prediction that falls as tokens are added. The feature of decode_weight_load
// is the time of reading the weights less that of prefill_linear_compute: where another token moves a
// second from one to the other, the prediction changes by the difference of their coefficients.
func orderFinding(out *result.Model) {
	value := map[string]float64{}
	for i := range out.Coefficients {
		value[out.Coefficients[i].Name] = out.Coefficients[i].Value
	}
	load := value[features.DecodeWeightLoad]
	compute := value[features.PrefillLinearCompute]
	if load > compute && compute > 0 {
		out.Warnings = append(out.Warnings, trace.Finding{Code: Implausible, Message: report.FallsWithTokens(load, compute)})
	}
}

// mostDriftBias is the signed error of a block of the hold-out above which the machine
// is reported to have changed its speed.
const mostDriftBias = 0.1

// driftFindings adds a warning for each run whose machine changed its speed, with the block of the
// hold-out that has the largest bias in drift. Composed runs are exempt: measured is false for
// them.
func driftFindings(out *result.Model, drift []result.DriftBlock, measured func(run string) bool) {
	worst := map[string]result.DriftBlock{} // by run, the block with the largest bias
	var order []string                      // runs, in the order of drift
	for _, d := range drift {
		w, seen := worst[d.Run]
		if !seen {
			order = append(order, d.Run)
		}
		if !seen || math.Abs(d.Bias) > math.Abs(w.Bias) {
			worst[d.Run] = d
		}
	}
	for _, run := range order {
		d := worst[run]
		if !(math.Abs(d.Bias) > mostDriftBias && measured(run)) {
			continue
		}
		out.Warnings = append(out.Warnings,
			trace.Finding{Code: rows.MachineDrift, Message: report.SpeedChanged(run, d.Block, driftBlocks, d.Bias)})
	}
}

// Codes of a fit.
const (
	CodeNoRows    trace.Code = "no_rows"
	CodeFewRows   trace.Code = "few_rows"
	NotConverged  trace.Code = "not_converged"
	NotIdentified trace.Code = "not_identified"
	AtLimit       trace.Code = "at_limit"
	Implausible   trace.Code = "implausible_value"
	absorbs       trace.Code = "absorbs_something_else"
	LagUncertain  trace.Code = "lag_uncertain"
	ModelSkipped  trace.Code = "model_skipped"
	NoGain        trace.Code = "no_gain" // beyond the prior
)
