package ridge

// This file sums rows into Gram matrices, the weighted sums of products of columns that a quadratic loss
// depends on.

import (
	"math"

	"github.com/blis-train/blis-train/internal/par"
	"gonum.org/v1/gonum/floats"
)

// The sizes in which rows are summed. A tile of columns fits into the first-level cache. A chunk is one task of a
// worker: its rows are summed first, and then the sums of the chunks one after the other. So the size of a chunk decides
// in which order numbers are added, and with it the rounding; the number of workers does not.
const (
	tileRows  = 256
	ChunkRows = 65536
)

// column is one column of the products that an [Accumulator] sums.
type column struct {
	variant int       // the variant that replaces the column; -1: a column of X, or the target
	index   int       // column of X; P: the target
	values  []float64 // of a variant's column, one per row; nil: of X or the target
}

// Accumulator sums Gram matrices of rows over X, the target and the columns of
// all variants at once: variants share every product that does not touch a
// column of their own.
type Accumulator struct {
	d       *Data
	cols    []column
	sums    []float64   // len(cols) x len(cols), upper triangle
	w       float64     // sum of the weights
	n       int64       // number of rows
	tiles   [][]float64 // per column, sqrt(w)*value of the tile's rows
	nonZero []bool      // per column, whether its tile has a value that is not 0
	root    []float64   // sqrt(w) of the tile's rows
	offset  []int       // of the tile's rows in X
}

// NewAccumulator returns an accumulator of rows of d, with all sums 0.
func NewAccumulator(d *Data) *Accumulator {
	a := &Accumulator{d: d, root: make([]float64, tileRows), offset: make([]int, tileRows)}
	// The columns of X, then the target, then those of the variants; fill relies on this order.
	for j := range d.P {
		a.cols = append(a.cols, column{variant: -1, index: j})
	}
	a.cols = append(a.cols, column{variant: -1, index: d.P})
	for k, v := range d.Variants {
		for c, j := range v.Cols {
			a.cols = append(a.cols, column{variant: k, index: j, values: v.Values[c]})
		}
	}
	k := len(a.cols)
	a.sums = make([]float64, k*k)
	a.nonZero = make([]bool, k)
	buf := make([]float64, k*tileRows)
	for c := range k {
		a.tiles = append(a.tiles, buf[c*tileRows:(c+1)*tileRows])
	}
	return a
}

// Reset forgets all sums.
func (a *Accumulator) Reset() {
	clear(a.sums)
	a.w, a.n = 0, 0
}

// Add sums the given rows with weights w (one per row of Data), tile by tile.
func (a *Accumulator) Add(rows []int32, w []float64) {
	for len(rows) > 0 {
		t := min(tileRows, len(rows))
		a.addTile(rows[:t], w)
		rows = rows[t:]
	}
}

// addTile adds the products of all pairs of columns over at most tileRows rows. Columns that are
// zero in all of them are skipped: most features are zero in most steps.
func (a *Accumulator) addTile(rows []int32, w []float64) {
	a.fill(rows, w)
	k := len(a.cols)
	for i := range k {
		if !a.nonZero[i] {
			continue
		}
		ci := a.tiles[i][:len(rows)]
		for j := i; j < k; j++ {
			if a.nonZero[j] && a.isNeeded(i, j) {
				a.sums[i*k+j] += floats.Dot(ci, a.tiles[j][:len(rows)])
			}
		}
	}
}

// isNeeded reports whether a product of two columns is needed; those of columns of different
// variants are not.
func (a *Accumulator) isNeeded(i, j int) bool {
	vi, vj := a.cols[i].variant, a.cols[j].variant
	return vi < 0 || vj < 0 || vi == vj
}

// fill writes sqrt(w)*column into the tiles, one column at a time, so that the product of two tiles
// is weighted by w.
func (a *Accumulator) fill(rows []int32, w []float64) {
	d, p := a.d, a.d.P
	root := a.root[:len(rows)]
	offset := a.offset[:len(rows)]
	var sum float64
	for r, i := range rows {
		sum += w[i]
		root[r] = math.Sqrt(w[i])
		offset[r] = d.offset(int(i))
	}
	a.w += sum
	a.n += int64(len(rows))
	for j := range p {
		tile := a.tiles[j][:len(rows)]
		var bits uint64
		for r, at := range offset {
			x := d.X[at+j]
			// The sign bit is shifted out below, so that -0 counts as zero too.
			bits |= math.Float64bits(x)
			tile[r] = root[r] * x
		}
		a.nonZero[j] = bits<<1 != 0
	}
	a.fillColumn(p, d.Y, rows)
	for c := p + 1; c < len(a.cols); c++ {
		a.fillColumn(c, a.cols[c].values, rows)
	}
}

// fillColumn fills the tile of column c with sqrt(w)*values at the given rows, and notes whether
// one is not zero. fill has set the roots of the weights.
func (a *Accumulator) fillColumn(c int, values []float64, rows []int32) {
	tile := a.tiles[c][:len(rows)]
	root := a.root[:len(rows)]
	var bits uint64
	for r, i := range rows {
		x := values[i]
		bits |= math.Float64bits(x)
		tile[r] = root[r] * x
	}
	a.nonZero[c] = bits<<1 != 0
}

// Fill writes the sums of variant v (-1: X alone) into g.
func (a *Accumulator) Fill(v int, g *Gram) {
	p, k := a.d.P, len(a.cols)
	// place[j] is the column that stands for column j of X in the variant; place[p] is the target. A column
	// of the variant comes after the one of X that it replaces.
	place := make([]int, p+1)
	for c, col := range a.cols {
		if col.variant < 0 || col.variant == v {
			place[col.index] = c
		}
	}
	product := func(i, j int) float64 {
		ci, cj := place[i], place[j]
		return a.sums[min(ci, cj)*k+max(ci, cj)] // the upper triangle
	}
	g.N = a.n
	g.W = a.w
	g.Q = product(p, p)
	for i := range p {
		g.B[i] = product(i, p)
		for j := i; j < p; j++ {
			g.G[i*p+j] = product(i, j)
			g.G[j*p+i] = g.G[i*p+j]
		}
	}
}

// OfRows returns the Gram matrix of the given rows (nil: all) with one weight per row of d, over X and the target; of
// variants nothing is computed. Chunks are added in their order, so that the number of workers does not change the
// sums.
func OfRows(d *Data, w []float64, rows []int32, workers int) *Gram {
	if rows == nil {
		rows = d.AllRows()
	}
	plain := *d
	plain.Variants = nil // an accumulator would sum their columns too, which Fill(-1) does not read
	chunks := Chunk(rows)
	parts := make([]*Gram, len(chunks))
	accs := make([]*Accumulator, par.Workers(workers))
	par.Each(workers, len(chunks), func(k, c int) {
		if accs[k] == nil {
			accs[k] = NewAccumulator(&plain)
		}
		accs[k].Reset()
		accs[k].Add(chunks[c], w)
		parts[c] = New(d.P)
		accs[k].Fill(-1, parts[c])
	})
	out := New(d.P)
	for _, g := range parts {
		out.Add(g)
	}
	return out
}

// Chunk returns rows divided into chunks of [ChunkRows], the last with what is left: at least one, which is empty for
// no rows.
func Chunk(rows []int32) [][]int32 {
	var out [][]int32
	for len(rows) > ChunkRows {
		out = append(out, rows[:ChunkRows])
		rows = rows[ChunkRows:]
	}
	return append(out, rows)
}
