package ridge

// This file has the weights of rows: relative to the target or the prediction, and balanced so that every
// configuration and every regime in it counts the same.

import (
	"math"
	"slices"
)

// Weights returns w = c*factor/max(y, eps*steps)^2 (spec#weights), or c*factor with
// Options.Proportional (spec#delay-weights). c makes sum(w*y^2) equal over
// the regimes of a configuration and over configurations, with a grand total of 1. A regime with
// fewer than MinCellRows rows counts with the largest of its configuration. They are computed once,
// on all rows after cleaning.
func Weights(d *Data, o Options) []float64 {
	w := d.Unbalanced(o)
	mass := make([]float64, len(w))
	for i, v := range w {
		mass[i] = v * d.Y[i] * d.Y[i]
	}
	balanceRows(d, o.MinCellRows, w, mass)
	return w
}

// CensoredWeights returns w = c*factor with equal sums over the regimes of a configuration and over
// configurations, grand total 1. They are constant inside a cell: a weight that depends on an
// interval's end would pull the fit to the short intervals.
func CensoredWeights(d *Data, o Options) []float64 {
	w := d.factors()
	balanceRows(d, o.MinCellRows, w, slices.Clone(w))
	return w
}

// Unbalanced returns the weights before balancing, factor/max(y, eps*steps)^2, or factor with
// Options.Proportional.
func (d *Data) Unbalanced(o Options) []float64 {
	if o.Proportional {
		return d.factors()
	}
	w := make([]float64, d.Len())
	for i := range w {
		sizeUs := d.BaseOf(i, o.EpsUs)
		w[i] = d.FactorOf(i) / (sizeUs * sizeUs)
	}
	return w
}

// predictionWeights returns the weights of Weights with the prediction in place of the target:
// c*factor/max(x.beta, eps*steps)^2, or c*factor/max(x.beta, eps*steps) with Options.Proportional.
// They do not depend on a row's noise, so a fit with them is centred on the true coefficients.
func predictionWeights(d *Data, beta []float64, o Options) []float64 {
	return robustPredictionWeights(d, beta, o, math.Inf(1))
}

// robustPredictionWeights returns the weights of predictionWeights with Huber's limit: a row whose target
// differs from the prediction by more than mostRel times the prediction gets its weight divided by how
// many times more. It counts by its absolute error then, not by the square.
func robustPredictionWeights(d *Data, beta []float64, o Options, mostRel float64) []float64 {
	w := make([]float64, d.Len())
	mass := make([]float64, d.Len())
	for i := range w {
		pred := Dot(d.Row(i), beta)
		sizeUs := math.Max(pred, o.EpsUs*d.StepsOf(i))
		variance := sizeUs * sizeUs
		if o.Proportional {
			variance = sizeUs
		}
		w[i] = d.FactorOf(i) / variance
		if off := math.Abs(d.Y[i]-pred) / sizeUs; off > mostRel {
			w[i] *= mostRel / off
		}
		mass[i] = w[i] * pred * pred
	}
	balanceRows(d, o.MinCellRows, w, mass)
	return w
}

// balanceRows multiplies the weight of each row by the factor of its cell (balance). mass is what each
// row contributes to the sums that balance makes equal.
func balanceRows(d *Data, minRows int, w, mass []float64) {
	configs := d.Configs()
	cells := make([][]cellSums, len(configs))
	k := 0 // position of the last row's configuration: neighbours mostly share it
	findConfig := func(label int32) {
		if configs[k] != label {
			k, _ = slices.BinarySearch(configs, label)
		}
	}
	for i, m := range mass {
		findConfig(d.Config[i])
		cells[k] = addCell(cells[k], d.Regime[i], 1, m)
	}
	c := make([][]float64, len(configs))
	for k := range cells {
		c[k] = balance(cells[k], minRows, len(configs))
	}
	for i := range w {
		findConfig(d.Config[i])
		w[i] *= c[k][findCell(cells[k], d.Regime[i])]
	}
}

// cellSums has the row count and the mass of one regime of a configuration.
type cellSums struct {
	regime int32
	n      int64
	mass   float64 // sum of unbalanced w*y^2, or of unbalanced w
}

// addCell returns the list with the sums of a regime added, sorted by regime.
func addCell(cells []cellSums, regime int32, n int64, mass float64) []cellSums {
	k := findCell(cells, regime)
	if k == len(cells) || cells[k].regime != regime {
		cells = slices.Insert(cells, k, cellSums{regime: regime})
	}
	cells[k].n += n
	cells[k].mass += mass
	return cells
}

// findCell returns the index of a regime in the sorted list, or the index at which it belongs.
func findCell(cells []cellSums, regime int32) int {
	k := 0
	for k < len(cells) && cells[k].regime < regime {
		k++
	}
	return k
}

// balance returns the factor c of each regime of one configuration. Regimes with at least minRows
// rows share 1/configs equally; smaller ones count with the largest.
func balance(cells []cellSums, minRows, configs int) []float64 {
	largest := 0
	for k, c := range cells {
		if c.n > cells[largest].n {
			largest = k
		}
	}
	home := make([]int, len(cells))     // the regime that a regime counts with: itself, or the largest if it has too few rows
	mass := make([]float64, len(cells)) // of a regime with those that count with it
	for k, c := range cells {
		home[k] = k
		if c.n < int64(minRows) {
			home[k] = largest
		}
		mass[home[k]] += c.mass
	}
	// Only regimes with mass share the configuration's part.
	groups := 0
	for _, m := range mass {
		if m > 0 {
			groups++
		}
	}
	out := make([]float64, len(cells))
	for k := range cells {
		if m := mass[home[k]]; m > 0 {
			out[k] = 1 / (float64(configs) * float64(groups) * m)
		}
	}
	return out
}
