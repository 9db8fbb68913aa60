package rows

// This file estimates the noise of measured step times from rows with similar features, below which no
// model of these features can get.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// Bounds of the noise floor: the rows of a group below which it is unknown, and to which it is thinned, to
// bound the cost of the search.
const (
	floorMinRows = 50
	floorMaxRows = 20_000
)

// nearestRows returns a prediction of each validated row of a group from the most similar rows: the
// median time per step of its 10 nearest other rows, training rows or not, times its steps. The
// error of that prediction estimates the noise, below which no model of these features can get.
//
// The distance is Euclidean on x_j/steps/s_j, where s_j is the weighted root mean square of the
// column as in a fit; of equally far rows the earlier one counts. A group of more than 20,000 rows
// is thinned evenly first. The prediction is NaN for rows outside the thinned set, and for all rows
// of a group of fewer than 50.
func nearestRows(group []*Sample, workers int) []float64 {
	type place struct {
		sample      *Sample
		row, judged int32 // judged: position among the judged rows; -1: not one of them
	}
	judged := 0
	kept := 0
	for _, s := range group {
		kept += s.Table.Kept
	}
	all := make([]place, 0, kept)
	for _, s := range group {
		for i := range s.Table.Kept {
			p := place{sample: s, row: int32(i), judged: -1}
			if s.Judges(i) {
				p.judged = int32(judged)
				judged++
			}
			all = append(all, p)
		}
	}
	answer := slices.Repeat([]float64{math.NaN()}, judged)
	if len(all) < floorMinRows {
		return answer
	}
	all = stat.Thin(all, floorMaxRows)
	d := &ridge.Data{P: group[0].Table.P, Config: make([]int32, len(all))}
	for _, p := range all {
		t := p.sample.Table
		d.X = append(d.X, t.Row(int(p.row))...)
		d.Y = append(d.Y, t.Y[p.row])
		d.Steps = append(d.Steps, t.Steps[p.row])
		d.Factor = append(d.Factor, t.Factor[p.row])
		d.Regime = append(d.Regime, int32(t.Regime[p.row]))
	}
	level := make([]float64, d.Len())
	for i, y := range d.Y {
		level[i] = y / d.Steps[i]
	}
	near := neighbours(d, level)
	par.Each(workers, len(all), func(_, k int) {
		if j := all[k].judged; j >= 0 {
			answer[j] = near.Median(k) * d.Steps[k]
		}
	})
	return answer
}

// neighbours returns a search over the rows by their scaled features per step, for medians of the given
// levels. Columns that are the same in all rows add nothing to a distance and are omitted.
func neighbours(d *ridge.Data, level []float64) *stat.Neighbours {
	scale, _ := ridge.OfRows(d, ridge.Weights(d, ridge.DefaultOptions(d.P)), nil, 1).Scale()
	var columns []int
	for j := range d.P {
		for i := range d.Len() {
			if d.Row(i)[j]/d.Steps[i] != d.Row(0)[j]/d.Steps[0] {
				columns = append(columns, j)
				break
			}
		}
	}
	var points []float64
	for i := range d.Y {
		for _, j := range columns {
			points = append(points, d.Row(i)[j]/d.Steps[i]/scale[j])
		}
	}
	return stat.NewNeighbours(points, len(columns), level)
}

// NoiseOf returns the noise of the given rows: measured over predicted time, over the median of
// that ratio of the nearest rows among them. Their features are scaled as those of the noise floor.
// Of more than 20,000 rows an even part is what rows are compared with.
func NoiseOf(t *Table, predUs []float64, of []int) []float64 {
	d := &ridge.Data{P: t.P, Config: make([]int32, len(of))}
	ratio := make([]float64, len(of))
	for k, i := range of {
		d.X = append(d.X, t.Row(i)...)
		d.Y = append(d.Y, t.Y[i])
		d.Steps = append(d.Steps, t.Steps[i])
		d.Factor = append(d.Factor, t.Factor[i])
		d.Regime = append(d.Regime, int32(t.Regime[i]))
		ratio[k] = t.Y[i] / predUs[i]
	}
	near := neighbours(d, ratio)
	noise := make([]float64, len(of))
	for k := range of {
		noise[k] = ratio[k] / near.Median(k)
	}
	return noise
}
