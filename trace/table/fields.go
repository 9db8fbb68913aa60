package table

// This file moves the values of one column between the fields of row structs and lists.

import (
	"math"
	"unsafe"
)

// The functions of this file and of arrow.go access fields by offset. Offsets come from reflect
// (columnsOf), and rows are kept alive by the slices that own them.

// at returns the address of the field at offset off in the row at p.
func at[V any](p unsafe.Pointer, off uintptr) *V { return (*V)(unsafe.Add(p, off)) }

// isKnown reports whether the column has a value in the row at p. Only a nullable column may have
// none.
func (c *column) isKnown(p unsafe.Pointer) bool { return !c.Nullable || *at[bool](p, c.known) }

// placedRows are rows of any type by their place in memory, so that what reads and writes their
// columns is compiled once and not for each type.
type placedRows struct {
	first unsafe.Pointer
	size  uintptr // of a row
	count int
}

// placed returns the rows by their place. They are alive as long as the result is.
func placed[T any](rows []T) placedRows {
	var row T
	return placedRows{first: unsafe.Pointer(unsafe.SliceData(rows)), size: unsafe.Sizeof(row), count: len(rows)}
}

// at returns the address of row i. It panics, as a slice does, if there is no such row.
func (r placedRows) at(i int) unsafe.Pointer {
	if uint(i) >= uint(r.count) {
		panic("row out of range")
	}
	return unsafe.Add(r.first, uintptr(i)*r.size)
}

// levels are the definition levels (defs) and repetition levels (reps) that Parquet stores with
// values. Of a nullable column defs has 1 for each known value and 0 for each null. Of a list
// column defs has 1 for each value and 0 for an empty list, and reps has 0 for the first entry of a
// row. Both are empty for required columns.
type levels struct{ defs, reps []int16 }

// gatherInts does what gather does for a column of integers.
func gatherInts(c *column, rows placedRows, vals []int64, lv levels) ([]int64, levels) {
	if !c.inFourBytes {
		return gather(c, rows, vals, lv)
	}
	vals = resize(vals, rows.count)
	for i := range vals {
		vals[i] = int64(*at[int32](rows.at(i), c.offset))
	}
	return vals, levels{defs: lv.defs[:0], reps: lv.reps[:0]}
}

// gather returns the known values of one column over rows, with lists flattened, and their levels.
// vals and lv are buffers that it reuses.
func gather[V any](c *column, rows placedRows, vals []V, lv levels) ([]V, levels) {
	lv.defs = lv.defs[:0]
	lv.reps = lv.reps[:0]
	if !c.list && !c.Nullable {
		vals = resize(vals, rows.count)
		for i := range vals {
			vals[i] = *at[V](rows.at(i), c.offset)
		}
		return vals, lv
	}
	vals = vals[:0]
	for i := range rows.count {
		p := rows.at(i)
		switch {
		case c.list:
			list := *at[[]V](p, c.offset)
			if len(list) == 0 {
				lv.defs = append(lv.defs, 0)
				lv.reps = append(lv.reps, 0)
			}
			for j, v := range list {
				vals = append(vals, v)
				lv.defs = append(lv.defs, 1)
				lv.reps = append(lv.reps, int16(min(j, 1)))
			}
			continue
		case !c.isKnown(p):
			lv.defs = append(lv.defs, 0)
			continue
		}
		lv.defs = append(lv.defs, 1)
		vals = append(vals, *at[V](p, c.offset))
	}
	return vals, lv
}

// scatterPart stores the values of p in the field of column c in rows. It is the reverse of gather.
func scatterPart(c *column, rows placedRows, p columnPart) {
	switch {
	case c.list && c.kind == kindFloat64:
		scatterList(c, rows, p, p.floats)
	case c.list:
		scatterList(c, rows, p, p.texts)
	case c.kind == kindInt64:
		scatterInts(c, rows, p, p.ints)
	case c.kind == kindFloat64:
		scatter(c, rows, p, p.floats)
	case c.kind == kindBool:
		scatter(c, rows, p, p.bools)
	default:
		scatter(c, rows, p, p.texts)
	}
}

// scatterInts does what scatter does for a column of integers.
func scatterInts(c *column, rows placedRows, p columnPart, vals []int64) {
	if !c.inFourBytes {
		scatter(c, rows, p, vals)
		return
	}
	next := 0 // of vals, as in scatter
	for i := range max(len(vals), len(p.def)) {
		if len(p.def) > 0 && p.def[i] != p.max {
			continue
		}
		*at[int32](rows.at(p.from+i), c.offset) = fourBytes(vals[next])
		next++
	}
}

// fourBytes returns v, or the nearest number that fits, which is far outside the legal range of the column.
func fourBytes(v int64) int32 { return int32(min(max(v, math.MinInt32), math.MaxInt32)) }

// scatter stores the values of a column that is no list.
func scatter[V any](c *column, rows placedRows, p columnPart, vals []V) {
	if len(p.def) == 0 { // all values are known
		for i, v := range vals {
			row := rows.at(p.from + i)
			*at[V](row, c.offset) = v
			if c.Nullable {
				*at[bool](row, c.known) = true
			}
		}
		return
	}
	next := 0 // of vals, which have the known values alone
	for i, def := range p.def {
		if def != p.max {
			continue
		}
		row := rows.at(p.from + i)
		*at[V](row, c.offset) = vals[next]
		if c.Nullable {
			*at[bool](row, c.known) = true
		}
		next++
	}
}

// scatterList appends the values of a list column to the lists of their rows.
func scatterList[V any](c *column, rows placedRows, p columnPart, vals []V) {
	row := p.from
	next := 0 // of vals, which have no entries for empty lists
	for i, def := range p.def {
		if p.rep[i] == 0 {
			row++
		}
		if def == p.max {
			list := at[[]V](rows.at(row), c.offset)
			*list = append(*list, vals[next])
			next++
		}
	}
}

// columnPart is what one page has of a column in the rows being read: levels, and the values of
// those entries whose definition level is max.
type columnPart struct {
	from int     // row of the batch; of a list column, the row that the first level may continue, -1 for none
	def  []int32 // definition levels; empty if every entry has a value
	rep  []int32 // repetition levels of a list column
	max  int32   // highest definition level of the column: the entry has a value
	values
}

// values are values of one kind; the other slices are empty.
type values struct {
	ints   []int64
	floats []float64
	bools  []bool
	texts  []string
}
