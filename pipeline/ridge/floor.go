package ridge

import (
	"math"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/stat"
)

// Constants of the noise floor.
const (
	floorMinRows = 50
	floorMaxRows = 20000
)

// Floor is what the nearest rows say a row should be: per row with query(i) the
// median y/steps of its 10 nearest other rows of the same configuration, times
// its steps. Distance is Euclidean on x_j/steps/scale_j, ties go to the earlier
// row. A configuration with more than 20,000 rows is evenly thinned first, and
// queries outside the thinned set are not answered. NaN where there is no
// answer: no query, thinned away, or fewer than 50 rows in the configuration.
func Floor(d *Data, scale []float64, query func(i int) bool, workers int) []float64 {
	out := make([]float64, d.Len())
	for i := range out {
		out[i] = math.NaN()
	}
	for _, c := range d.Configs() {
		var rows []int32
		for i, k := range d.Config {
			if k == c {
				rows = append(rows, int32(i))
			}
		}
		if len(rows) >= floorMinRows {
			floorConfig(d, scale, stat.Thin(rows, floorMaxRows), query, workers, out)
		}
	}
	return out
}

func floorConfig(d *Data, scale []float64, rows []int32, query func(int) bool, workers int, out []float64) {
	var points, level []float64
	cols := varying(d, scale, rows)
	for _, i := range rows {
		level = append(level, d.Y[i]/d.steps(int(i)))
		for _, j := range cols {
			points = append(points, d.Row(int(i))[j]/d.steps(int(i))/scale[j])
		}
	}
	t := stat.NewNeighbours(points, len(cols), level)
	par.Each(workers, len(rows), func(_, k int) {
		if i := int(rows[k]); query(i) {
			out[i] = t.Median(k) * d.steps(i)
		}
	})
}

// varying leaves out columns that add nothing to any distance.
func varying(d *Data, scale []float64, rows []int32) []int {
	var cols []int
	for j := range d.P {
		if scale[j] == 0 {
			continue
		}
		first := d.Row(int(rows[0]))[j] / d.steps(int(rows[0]))
		for _, i := range rows {
			if d.Row(int(i))[j]/d.steps(int(i)) != first {
				cols = append(cols, j)
				break
			}
		}
	}
	return cols
}
