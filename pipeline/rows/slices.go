package rows

// This file joins the tables of the slices in which a long run is read.

import (
	"math"
	"slices"
)

// A run of more recorded steps than SliceSteps is read in slices of that length with SliceMargin
// steps around each (spec#slices).
const (
	SliceSteps  = 1 << 18
	SliceMargin = 4096
)

// Join appends the rows of the next slice of the run.
func (t *Table) Join(next *Table) {
	t.alignVariants(next)
	next.alignVariants(t)
	var nextColumns []column
	next.eachColumn(func(c column) { nextColumns = append(nextColumns, c) })
	k := 0
	t.eachColumn(func(c column) {
		c.appendColumn(nextColumns[k])
		k++
	})
	t.Read += next.Read
	t.Kept += next.Kept
	t.Findings = append(t.Findings, next.Findings...)
	for _, c := range next.Dropped {
		t.countDrop(c.Code, c.N)
	}
	for j, n := range next.Hits {
		t.Hits[j] += n
	}
	for j := range next.Min {
		t.Min[j] = math.Min(t.Min[j], next.Min[j])
		t.Max[j] = math.Max(t.Max[j], next.Max[j])
	}
	t.checkColumns()
}

// alignVariants adds to the table's variants the columns that only the other's variants have.
func (t *Table) alignVariants(other *Table) {
	for k := range t.Variants {
		v := &t.Variants[k]
		for _, j := range other.Variants[k].Cols {
			if at, known := slices.BinarySearch(v.Cols, j); !known {
				v.Cols, v.Values = slices.Insert(v.Cols, at, j), slices.Insert(v.Values, at, t.copyColumn(j, t.Kept))
			}
		}
	}
}
