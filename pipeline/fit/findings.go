package fit

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Guidance: rows per configuration.
const (
	GuidanceBeta  = 200
	guidanceAlpha = 100
)

// FloorFindings names runs whose target is no step time (spec#target-audit).
func FloorFindings(s *Solved, target string, out *result.Model) {
	for _, table := range s.Pool.Tables {
		if found := TableBelowFloor(table, target); found != nil {
			out.Warnings = append(out.Warnings, *found)
		}
	}
}

// TableBelowFloor is the finding of one run, nil when its target may be a step time.
func TableBelowFloor(t *rows.Table, target string) *trace.Finding {
	y, floor := stat.Median(perStep(t, t.Y)), stat.Median(perStep(t, t.FloorUs))
	if !(y < floor) {
		return nil
	}
	found := trace.Findingf(Implausible,
		"%s: the median %s is %.0f us, below the %.0f us that reading the weights once takes at peak bandwidth: it cannot be the "+
			"step time", t.Run, target, y, floor)
	return &found
}

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
	for _, c := range out.Coefficients {
		value[c.Name] = c.Value
	}
	if w, c := value["decode_weight_load"], value["prefill_linear_compute"]; w > c && c > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(Implausible,
			"decode_weight_load %.3g us/s exceeds prefill_linear_compute %.3g us/s: the predicted time can fall as tokens are added", w, c))
	}
}

// DriftFindings name machines that change speed while measured: the signed
// hold-out error of a block leaves ten percent. Of runs that no machine ran there is
// nothing to say.
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
		if d := worst[run]; math.Abs(d.Bias) > 0.1 && measured(run) {
			direction := "slower"
			if d.Bias > 0 {
				direction = "faster"
			}
			out.Warnings = append(out.Warnings, trace.Findingf(rows.MachineDrift,
				"%s: in block %d of %d of the hold-out the engine ran %s than the training part predicts (signed error %+.0f %%)", run, d.Block,
				DriftBlocks, direction, 100*d.Bias))
		}
	}
}

// FewRows says that a configuration has fewer training rows than the guidance.
func FewRows(model, config string, n, want int) trace.Finding {
	return trace.Findingf(OptionsFewRows, "%s: %s has %d training rows, guidance is %d", model, config, n, want)
}
