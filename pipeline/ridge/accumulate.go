package ridge

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/par"
)

// Rows per tile (one tile of columns stays in the first cache) and per chunk
// (one task; the leaves of the summation tree).
const (
	tileRows  = 256
	ChunkRows = 65536
)

// column says where a wide column comes from.
type column struct {
	variant int // -1: X or the target
	index   int // column of X; P: the target
	values  []float64
}

// Accumulator sums Gram matrices of rows over X, the target and the columns of
// all variants at once: variants share every product that does not touch a
// column of their own.
type Accumulator struct {
	d       *Data
	cols    []column
	sums    []float64 // len(cols) x len(cols), upper triangle
	w       float64
	n       int64
	tiles   [][]float64
	nonZero []bool
	root    []float64
	offset  []int // of the tile's rows in X
}

// NewAccumulator sums rows of d.
func NewAccumulator(d *Data) *Accumulator {
	a := &Accumulator{d: d, root: make([]float64, tileRows), offset: make([]int, tileRows)}
	for j := range d.P {
		a.cols = append(a.cols, column{-1, j, nil})
	}
	a.cols = append(a.cols, column{-1, d.P, nil})
	for k, v := range d.Variants {
		for c, j := range v.Cols {
			a.cols = append(a.cols, column{k, j, v.Values[c]})
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

func (a *Accumulator) addTile(rows []int32, w []float64) {
	a.fill(rows, w)
	k := len(a.cols)
	for i := range k {
		if !a.nonZero[i] {
			continue
		}
		ci := a.tiles[i][:len(rows)]
		for j := i; j < k; j++ {
			if a.nonZero[j] && a.needed(i, j) {
				a.sums[i*k+j] += sumProducts(ci, a.tiles[j][:len(rows)])
			}
		}
	}
}

// needed leaves out products between columns of different variants.
func (a *Accumulator) needed(i, j int) bool {
	vi, vj := a.cols[i].variant, a.cols[j].variant
	return vi < 0 || vj < 0 || vi == vj
}

// fill writes sqrt(w)*column into the tiles, one column at a time.
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

// Fill writes the sums of variant v into g.
func (a *Accumulator) Fill(v int, g *Gram) {
	p, k := a.d.P, len(a.cols)
	place := make([]int, p+1)
	for c, col := range a.cols {
		if col.variant < 0 || col.variant == v {
			place[col.index] = c
		}
	}
	at := func(i, j int) float64 {
		ci, cj := place[i], place[j]
		if ci > cj {
			ci, cj = cj, ci
		}
		return a.sums[ci*k+cj]
	}
	g.N, g.W, g.Q = a.n, a.w, at(p, p)
	for i := range p {
		g.B[i] = at(i, p)
		for j := i; j < p; j++ {
			g.G[i*p+j] = at(i, j)
			g.G[j*p+i] = g.G[i*p+j]
		}
	}
}

// OfRows is the Gram of the given rows with one weight per row of d; rows nil:
// all rows in order. Chunks are summed in order whatever the number of workers.
func OfRows(d *Data, w []float64, rows []int32, workers int) *Gram {
	if rows == nil {
		rows = d.AllRows()
	}
	plain := *d
	plain.Variants = nil
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

// AllRows are the numbers of all rows.
func (d *Data) AllRows() []int32 { return upTo(d.Len()) }

func upTo(n int) []int32 {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	return rows
}

// Chunk cuts rows into the leaves of the summation tree.
func Chunk(rows []int32) [][]int32 {
	var out [][]int32
	for len(rows) > ChunkRows {
		out = append(out, rows[:ChunkRows])
		rows = rows[ChunkRows:]
	}
	return append(out, rows)
}

// Constants of the reweighting passes (spec#reweighting).
const (
	reweightPasses = 6
	minRelError    = 0.01
	maxBiasGrowth  = 0.01
)

// Polish is the fit after the reweighting passes and whether it is kept.
type Polish struct {
	Fit     Fit       // after the passes
	LS      Fit       // before
	Weights []float64 // of the last pass, one per row
	Passes  int
	Bias    float64 // sum(prediction - y)/sum y after the passes
	BiasLS  float64 // before
	Kept    bool    // |Bias| did not grow by more than 0.01
}

// Best is the fit to publish: the polished one if kept.
func (p *Polish) Best() Fit {
	if p.Kept {
		return p.Fit
	}
	return p.LS
}

// Reweight makes six passes with weights w/max(|y - x.beta|/max(y, eps*steps),
// 0.01) from the base weights w: from squared toward absolute relative error.
// W, s and ybar are recomputed in every pass, lambda stays.
func Reweight(d *Data, w []float64, ls Fit, o Options) (Polish, error) {
	p := Polish{LS: ls, Fit: ls, Weights: make([]float64, len(w))}
	p.BiasLS = bias(d, ls.Beta)
	rows := d.AllRows()
	for p.Passes < reweightPasses {
		reweight(d, w, p.Fit.Beta, o, p.Weights)
		fit, err := Solve(OfRows(d, p.Weights, rows, o.Threads()), ls.Lambda, o)
		if err != nil {
			return p, fmt.Errorf("reweighting pass %d: %w", p.Passes+1, err)
		}
		p.Fit = fit
		p.Passes++
	}
	p.Bias = bias(d, p.Fit.Beta)
	p.Kept = math.Abs(p.Bias)-math.Abs(p.BiasLS) <= maxBiasGrowth
	return p, nil
}

// FitPublished is the fit to publish of all rows with weights w at one lambda: the posterior mean with a
// prior of known precision (spec#posterior), else the least-squares fit after the reweighting passes
// (spec#reweighting) with how they went.
func FitPublished(d *Data, w []float64, lambda float64, o Options) (Fit, *Polish, error) {
	ls, err := FitRows(d, w, nil, lambda, o)
	if err != nil {
		return ls, nil, err
	}
	if o.Posterior {
		fit, err := PosteriorMean(d, ls, o)
		return fit, nil, err
	}
	p, err := Reweight(d, w, ls, o)
	if err != nil {
		return ls, nil, err
	}
	return p.Best(), &p, nil
}

func reweight(d *Data, w, beta []float64, o Options, out []float64) {
	par.Each(o.Threads(), (len(w)+ChunkRows-1)/ChunkRows, func(_, c int) {
		for i := c * ChunkRows; i < min(len(w), (c+1)*ChunkRows); i++ {
			rel := math.Abs(d.Y[i]-Dot(d.Row(i), beta)) / d.BaseOf(i, o.EpsUs)
			out[i] = w[i] / math.Max(rel, minRelError)
		}
	})
}

// bias is sum(x.beta - y)/sum y.
func bias(d *Data, beta []float64) float64 {
	var diff, sum float64
	for i, y := range d.Y {
		diff += Dot(d.Row(i), beta) - y
		sum += y
	}
	return diff / sum
}
