package ridge

// This file decides from the variation of a term's column whether rows can determine its coefficient.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
)

// identifiedShare is the smallest share v_j of a term's squares that has to vary inside a
// configuration for the term to be identified within it (spec#identified).
const identifiedShare = 1e-6

// WithinVariation returns, per configuration (in d.Configs order) and term, the share of a column's
// weighted sum of squares that varies inside the configuration: v_j = sum w(x - mean_w)^2/sum w
// x^2; NaN for an all-zero column. w nil: the rows' factors.
func (d *Data) WithinVariation(w []float64) [][]float64 {
	if w == nil {
		w = d.factors()
	}
	configs := d.Configs()
	rows := make([][]int32, len(configs))
	k := 0 // position of the configuration of the row before: neighbours mostly share it
	for i, c := range d.Config {
		if configs[k] != c {
			k, _ = slices.BinarySearch(configs, c)
		}
		rows[k] = append(rows[k], int32(i))
	}
	out := make([][]float64, len(configs))
	par.Each(0, len(configs), func(_, k int) { out[k] = variation(d, w, rows[k]) })
	return out
}

// variation returns v_j of every column over the given rows.
func variation(d *Data, w []float64, rows []int32) []float64 {
	mean := make([]float64, d.P)
	square := make([]float64, d.P)
	spread := make([]float64, d.P)
	var total float64
	for _, i := range rows {
		total += w[i]
	}
	for _, i := range rows {
		for j, x := range d.Row(int(i)) {
			mean[j] += w[i] * x / total
			square[j] += w[i] * x * x
		}
	}
	for _, i := range rows {
		for j, x := range d.Row(int(i)) {
			spread[j] += w[i] * (x - mean[j]) * (x - mean[j])
		}
	}
	for j := range spread {
		spread[j] /= square[j] // 0/0 is NaN: an all-zero column
	}
	return spread
}

// Identify tags each term (spec#identified) by its shares from WithinVariation: Within when it
// varies inside at least one configuration, else BetweenConfigs, or PriorOnly with one
// configuration or an all-zero column.
func Identify(shares [][]float64) []string {
	out := make([]string, len(shares[0]))
	for j := range out {
		out[j] = coeff.PriorOnly
		for _, v := range shares {
			hasRows := !math.IsNaN(v[j])
			if len(shares) > 1 && hasRows && out[j] == coeff.PriorOnly {
				out[j] = coeff.BetweenConfigs
			}
			if v[j] >= identifiedShare {
				out[j] = coeff.Within
			}
		}
	}
	return out
}
