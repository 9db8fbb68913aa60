package fit

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// termFindings are the findings about one coefficient. Those about the hardware's peak
// apply only to the step time (ofSteps), because delays are host work.
func termFindings(t *Term, c result.Coefficient, configs int, ofSteps bool) []trace.Finding {
	var out []trace.Finding
	times, ok := features.RooflineTimes(t.Name, c.Unit, c.Value)
	if ofSteps && ok && times != 0 && !features.IsPlausible(times) {
		out = append(out, trace.Findingf(absorbs, "%s: %.3g times what the hardware takes at its peak, want %g to %g",
			t.Name, times, features.PlausibleTimes[0], features.PlausibleTimes[1]))
	}
	if c.Identified != coeff.Within && c.Range[1] > 0 && configs > 1 {
		out = append(out, trace.Findingf(NotIdentified, "%s does not vary inside any configuration: its value is %s",
			t.Name, c.Identified))
	}
	if c.NotLearned && c.Range[1] > 0 {
		out = append(out, trace.Findingf(NotIdentified, "%s is %s at %.3g: these data say nothing about its cost",
			t.Name, c.Identified, c.Value))
	}
	return out
}

// NullSentence describes terms that the measurements do not separate: their names, what
// is known of their sum, and an experiment that would separate them.
func NullSentence(terms []Term, g ridge.NullGroup, configs int) string {
	names := make([]string, len(g.Terms))
	for k, j := range g.Terms {
		names[k] = terms[j].Name
	}
	if len(names) == 1 {
		return fmt.Sprintf("%s leaves no mark on these rows; %s would show it", names[0], experimentFor(names))
	}
	list := strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	known := fmt.Sprintf("only their sum, %.3g ms of a typical step, is known", g.SumUs/1000)
	switch {
	case g.Dim == 0:
		return fmt.Sprintf("%s nearly move together: %.3g ms of a typical step is known of their sum, little of each; add %s",
			list, g.SumUs/1000, experimentFor(names))
	case g.Dim < len(names)-1:
		known = fmt.Sprintf("%d combinations of them are unknown; together they make %.3g ms of a typical step",
			g.Dim, g.SumUs/1000)
	}
	return fmt.Sprintf("%s cannot be told apart: %s; add %s", list, known, experimentFor(names))
}

// experimentFor names up to two experiments that separate terms.
func experimentFor(names []string) string {
	var what []string
	separates, _ := features.Experiments()
	for _, s := range separates {
		if slices.Contains(names, s[0]) && !slices.Contains(what, s[1]) {
			what = append(what, s[1])
		}
	}
	if len(what) == 0 {
		return "runs that vary them separately"
	}
	return strings.Join(what[:min(2, len(what))], ", or ")
}

// Numbers of training rows of a configuration below which a fit warns.
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
			out.Warnings = append(out.Warnings, FewRows(out.Name, s.Pool.Configs[c], n, want))
		}
	}
}

// FewRows is the finding that a configuration has fewer training rows than the guidance.
func FewRows(model, config string, n, want int) trace.Finding {
	return trace.Findingf(CodeFewRows, "%s: %s has %d training rows, guidance is %d", model, config, n, want)
}

// FloorFindings warns about runs whose target cannot be a step time (spec#target-audit).
func FloorFindings(s *Solved, target string, out *result.Model) {
	for _, table := range s.Pool.Tables {
		if found := TableBelowFloor(table, target); found != nil {
			out.Warnings = append(out.Warnings, *found)
		}
	}
}

// TableBelowFloor is the finding of FloorFindings for one run; nil if there is none.
func TableBelowFloor(t *rows.Table, target string) *trace.Finding {
	y := stat.Median(perStep(t, t.Y))
	floor := stat.Median(perStep(t, t.FloorUs))
	if !(y < floor) {
		return nil
	}
	return new(trace.Findingf(Implausible,
		"%s: the median %s is %.0f us, below the %.0f us that reading the weights once takes at peak bandwidth: "+
			"it cannot be the step time", t.Run, target, y, floor))
}

// perStep divides a column of rows by their numbers of steps.
func perStep(t *rows.Table, v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] / t.Steps[i]
	}
	return out
}

// OrderFinding warns of a prediction that falls as tokens are added (spec#err-decode-linear).
func OrderFinding(out *result.Model) {
	value := map[string]float64{}
	for i := range out.Coefficients {
		value[out.Coefficients[i].Name] = out.Coefficients[i].Value
	}
	load := value["decode_weight_load"]
	compute := value["prefill_linear_compute"]
	if load > compute && compute > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(Implausible,
			"decode_weight_load %.3g us/s exceeds prefill_linear_compute %.3g us/s: "+
				"the predicted time can fall as tokens are added", load, compute))
	}
}

// mostDriftBias is the signed error of a block of the hold-out above which the machine
// is reported to have changed its speed.
const mostDriftBias = 0.1

// DriftFindings warns about runs whose machine changed its speed, by the block of the
// hold-out with the largest bias. Composed runs are exempt: measured is false for them.
func DriftFindings(out *result.Model, measured func(run string) bool) {
	worst := map[string]result.DriftBlock{}
	var order []string
	for _, d := range out.Drift {
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
		direction := "slower"
		if d.Bias > 0 {
			direction = "faster"
		}
		out.Warnings = append(out.Warnings, trace.Findingf(rows.MachineDrift,
			"%s: in block %d of %d of the hold-out the engine ran %s than the training part predicts (signed error %+.0f %%)",
			run, d.Block, DriftBlocks, direction, 100*d.Bias))
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
)
