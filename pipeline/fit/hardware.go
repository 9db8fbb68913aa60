package fit

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// factorPrior is how many configurations at factor 1 stand behind every
// device: a device seen in one configuration keeps half of what that one says.
const factorPrior = 1

// Devices is what each device needs on top of the common coefficients: the
// mean over its configurations of the median log ratio y/prediction, shrunk
// towards 0, exponentiated (partial pooling). Configuration without takes no part.
// Nil when there is only one device: a common factor is the coefficients' own.
func Devices(d *ridge.Data, pred []float64, hw []string, without int32) []result.HardwareFactor {
	logs := make([][]float64, len(hw))
	for i, c := range d.Config {
		if c != without && d.Y[i] > 0 && pred[i] > 0 {
			logs[c] = append(logs[c], portable.Log(d.Y[i]/pred[i]))
		}
	}
	var out []result.HardwareFactor
	for c, v := range logs {
		if len(v) == 0 {
			continue
		}
		k := slices.IndexFunc(out, func(h result.HardwareFactor) bool { return h.Hardware == hw[c] })
		if k < 0 {
			k = len(out)
			out = append(out, result.HardwareFactor{Hardware: hw[c]})
		}
		out[k].Factor += stat.Median(v)
		out[k].Configs++
	}
	if len(out) < 2 {
		return nil
	}
	for k := range out {
		out[k].Factor = portable.Exp(out[k].Factor / float64(out[k].Configs+factorPrior))
	}
	slices.SortStableFunc(out, func(a, b result.HardwareFactor) int { return strings.Compare(a.Hardware, b.Hardware) })
	return out
}

// OfDevice is a device's factor, 1 for a device without one.
func OfDevice(factors []result.HardwareFactor, hardware string) float64 {
	for _, h := range factors {
		if h.Hardware == hardware {
			return h.Factor
		}
	}
	return 1
}

// Scaled is pred times factor.
func Scaled(pred []float64, factor float64) []float64 {
	out := make([]float64, len(pred))
	for i, v := range pred {
		out[i] = v * factor
	}
	return out
}
