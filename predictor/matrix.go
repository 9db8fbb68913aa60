package predictor

// This file puts columns into bins, on which trees are trained.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
)

// MaxBins is the largest number of bins of a column.
const MaxBins = 256

// matrix has the columns of a training with each value replaced by the number of its bin.
type matrix struct {
	rows  int
	bins  [][]uint8   // per column, per row
	edges [][]float32 // per column, ascending: a value is in bin b when edges[b-1] <= value < edges[b]
}

// newMatrix returns columns rounded to float32 and binned: one bin for each distinct value if there
// are at most maxBins, else bins of about equal numbers of rows. Edges lie halfway between the
// values that they separate. Values must be finite; NaN, unknown, is below all of them, as at a
// split of the finished forest.
func newMatrix(columns [][]float64, maxBins int) (*matrix, error) {
	if maxBins < 2 || maxBins > MaxBins {
		return nil, fmt.Errorf("forest: bins: got %d, want 2 to %d", maxBins, MaxBins)
	}
	if len(columns) < 1 || len(columns) > forest.MaxFeatures {
		return nil, fmt.Errorf("forest: columns: got %d, want 1 to %d", len(columns), forest.MaxFeatures)
	}
	m := &matrix{rows: len(columns[0])}
	values := make([]float32, m.rows)
	sorted := make([]float32, m.rows)
	for c, column := range columns {
		if len(column) != m.rows {
			return nil, fmt.Errorf("forest: column %d: got %d rows, want %d", c, len(column), m.rows)
		}
		for i, v := range column {
			values[i] = float32(v)
			switch {
			case math.IsNaN(v):
				values[i] = float32(math.Inf(-1))
			case math.IsInf(float64(values[i]), 0):
				return nil, fmt.Errorf("forest: column %d, row %d: got %g, want a finite float32 or NaN", c, i, v)
			}
		}
		copy(sorted, values)
		slices.Sort(sorted)
		edges := binEdges(sorted, maxBins)
		m.edges = append(m.edges, edges)
		m.bins = append(m.bins, binOf(values, edges))
	}
	return m, nil
}

// binEdges returns the edges that divide ascending values into at most maxBins bins.
func binEdges(sorted []float32, maxBins int) []float32 {
	distinct := 0
	for i, v := range sorted {
		if i == 0 || v != sorted[i-1] {
			distinct++
		}
	}
	var edges []float32
	n := len(sorted)
	k := 1 // with too many distinct values: the next edge has at least k/maxBins of the rows below it
	for i := 1; i < n; i++ {
		isTooEarly := distinct > maxBins && i*maxBins < k*n
		if sorted[i] == sorted[i-1] || isTooEarly {
			continue
		}
		edges = append(edges, thresholdBetween(sorted[i-1], sorted[i]))
		k = i*maxBins/n + 1
	}
	return edges
}

// thresholdBetween returns a float32 t with lo < t <= hi: the middle if float32 has a number
// between the two, else hi. lo is -Inf for unknown values, and t is then hi.
func thresholdBetween(lo, hi float32) float32 {
	if mid := float32((float64(lo) + float64(hi)) / 2); mid > lo {
		return mid
	}
	return hi
}

// binOf returns the bin of each value.
func binOf(values, edges []float32) []uint8 {
	bins := make([]uint8, len(values))
	for i, v := range values {
		b, found := slices.BinarySearch(edges, v)
		if found { // v == edges[b]: at the edge is above it
			b++
		}
		bins[i] = uint8(b)
	}
	return bins
}
