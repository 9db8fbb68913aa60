package stat

import (
	"slices"
)

// band describes the distribution of values in one group of neighbours along x.
type band struct {
	X             float64 // mean of the group
	P10, P50, P90 float64 // quantiles of the values
	N             int
}

// Bands sorts the values by x and cuts them into groups of equal size: at most groups, each with at
// least least values; no groups when there are fewer values.
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
