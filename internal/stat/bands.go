package stat

// This file shows how values are distributed along another quantity.

import (
	"slices"
)

// band describes the distribution of values in one group of neighbours along x.
type band struct {
	X             float64 // mean x of the group
	P10, P50, P90 float64 // quantiles of the values
	N             int     // number of values
}

// Bands returns the distribution of v along x: it sorts the values by x and divides them into at
// most so many groups of equal size, each with at least so many values (least). It returns no
// groups if there are fewer values.
func Bands(x, v []float64, groups, least int) []band {
	order := Order(x)
	n := len(order)
	groups = min(groups, n/least)
	out := make([]band, 0, groups)
	for g := range groups {
		part := order[g*n/groups : (g+1)*n/groups]
		band := band{N: len(part)}
		values := make([]float64, len(part))
		for k, i := range part {
			values[k] = v[i]
			band.X += x[i] / float64(len(part))
		}
		slices.Sort(values)
		band.P10, band.P50, band.P90 = Quantile(values, 0.1), Quantile(values, 0.5), Quantile(values, 0.9)
		out = append(out, band)
	}
	return out
}
