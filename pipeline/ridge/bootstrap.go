package ridge

// This file has the block bootstrap behind the intervals of coefficients: how a run is cut
// into blocks, one refit of a draw (bootstrap.fit), and the standard errors and quantiles that
// Confidence (confidence.go) makes intervals of.

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
)

// BlockGram is the Gram matrix of one contiguous piece of a run. The bootstrap draws whole blocks,
// because the errors of neighbouring rows are correlated.
type BlockGram struct {
	Config, Run int32
	Gram        *Gram
}

// The length of a block is a multiple of the correlation time of the residuals. What is correlated
// across the border of two blocks is lost: with ten correlation times to a block that is less than
// about a tenth of the variance.
const (
	blockTimes   = 10    // length of a block in correlation times
	minBlocks    = 8     // per run; fewer give no usable quantiles
	maxBlocks    = 40    // per run
	minBlockRows = 4     // goes before minBlocks
	maxCorrRows  = 20000 // rows of a run that the correlation time is estimated from
	maxCorrLag   = 200   // rows
	corrNoise    = 0.05  // an autocorrelation below this counts as none
)

// rowBlocks returns the sums of blocks of rows with weights w: every run is divided into contiguous
// blocks that are long against the correlation time of its relative residuals under beta.
func rowBlocks(d *Data, w, beta []float64, o Options) []BlockGram {
	seqs, _ := Sequences(d, o)
	out := make([]BlockGram, 0, len(seqs)*maxBlocks)
	var pieces [][]int32
	for _, s := range seqs {
		n := numBlocks(len(s.Rows), correlationRows(d, s.Rows, beta, o.EpsUs))
		bounds := blockBounds(len(s.Rows), n)
		for b := range n {
			out = append(out, BlockGram{Config: s.Config, Run: s.Run})
			pieces = append(pieces, s.Rows[bounds[b]:bounds[b+1]])
		}
	}
	par.Each(o.Threads(), len(out), func(_, k int) { out[k].Gram = OfRows(d, w, pieces[k], 1) })
	return out
}

// numBlocks returns the number of blocks into which n rows with a correlation time of corrRows rows are
// cut.
func numBlocks(n int, corrRows float64) int {
	b := int(float64(n) / (blockTimes * corrRows))
	b = min(max(b, minBlocks), maxBlocks)
	return max(1, min(b, n/minBlockRows))
}

// correlationRows returns the integrated correlation time of the relative residuals of consecutive
// rows, in rows: 1 + 2*sum of the autocorrelations before the first one under corrNoise.
func correlationRows(d *Data, rows []int32, beta []float64, epsUs float64) float64 {
	rows = rows[:min(len(rows), maxCorrRows)]
	residuals := make([]float64, len(rows))
	var mean float64
	for k, i := range rows {
		pred := Dot(d.Row(int(i)), beta)
		residuals[k] = (d.Y[i] - pred) / math.Max(pred, epsUs*d.StepsOf(int(i)))
		mean += residuals[k] / float64(len(rows))
	}
	var squares float64
	for k := range residuals {
		residuals[k] -= mean
		squares += residuals[k] * residuals[k]
	}
	tau := 1.0
	for lag := 1; lag < min(maxCorrLag, len(residuals)/4) && squares > 0; lag++ {
		var product float64
		for k := lag; k < len(residuals); k++ {
			product += residuals[k] * residuals[k-lag]
		}
		if product/squares < corrNoise {
			break
		}
		tau += 2 * product / squares
	}
	return tau
}

// Blocks returns one balanced Gram matrix per fold block of each run: the blocks of a bootstrap
// where the rows are gone and only the cells are left.
func (c *Cells) Blocks(minCellRows int) []BlockGram {
	factor := c.Balance(minCellRows)
	type key struct{ config, run, block int32 }
	var keys []key
	var out []BlockGram
	for i := range c.List {
		cell := &c.List[i]
		k := key{cell.Config, cell.Run, cell.Block}
		at := slices.Index(keys, k)
		if at < 0 {
			at = len(keys)
			keys = append(keys, k)
			out = append(out, BlockGram{Config: cell.Config, Run: cell.Run, Gram: New(c.P)})
		}
		out[at].Gram.AddScaled(factor[i], &cell.Gram)
	}
	return out
}

// Blocks returns the bootstrap blocks of an interval fit. Each row contributes the quadratic that
// approximates its loss at the fit; a row whose interval exerts no pull contributes nothing, so
// that data which every prediction satisfies give no interval.
func (fit CensoredFit) Blocks(d *Data, w []float64, o Options) []BlockGram {
	view := *d
	view.Variants, view.Y = nil, fit.Y
	bent := make([]float64, len(w))
	for i := range w {
		bent[i] = w[i] * fit.Bend[i]
	}
	return rowBlocks(&view, bent, fit.Fit.Beta, o)
}

// bootRidge is added to the diagonal of a draw, so that it stays solvable when it misses the only
// block with a term.
const bootRidge = 1e-9

// rounding is the most that an eigenvalue of exactly 0 comes out as, relative to the largest one.
const rounding = 1e-13

// bootstrap has the scaled normal equations of every block, over the columns that are not all
// zero.
type bootstrap struct {
	p      int
	idx    []int       // columns in use
	scale  []float64   // per used column, s_j/ybar: beta = gamma/scale
	strata [][]int     // positions of the blocks of each run; a draw has as many of each run as the data
	a      [][]float64 // per block, its scaled Gram matrix
	b      [][]float64 // per block, its scaled right side

	// The fit with every block counted once, per used column.
	gamma []float64
	inv   []float64 // inverse of the summed matrix
	se    []float64
}

// newBootstrap returns nil when no row has weight.
func newBootstrap(blocks []BlockGram) *bootstrap {
	p := blocks[0].Gram.P
	total := New(p)
	for _, b := range blocks {
		total.Add(b.Gram)
	}
	if total.W <= 0 || total.Q <= 0 {
		return nil
	}
	s, ybar := total.Scale()
	out := &bootstrap{p: p, idx: nonZeroColumns(s)}
	for _, j := range out.idx {
		out.scale = append(out.scale, s[j]/ybar)
	}
	seen := map[int32]int{}
	for k, b := range blocks {
		if _, ok := seen[b.Run]; !ok {
			seen[b.Run] = len(out.strata)
			out.strata = append(out.strata, nil)
		}
		out.strata[seen[b.Run]] = append(out.strata[seen[b.Run]], k)
		a, rhs := out.scaled(b.Gram, s, ybar, total.W)
		out.a = append(out.a, a)
		out.b = append(out.b, rhs)
	}
	return out
}

// scaled returns the matrix and the right side of a block's normal equations over the used columns,
// in units of the total: s are the scales of the columns, ybar and w the scale of the target and
// the weight of all blocks.
func (b *bootstrap) scaled(g *Gram, s []float64, ybar, w float64) (a, rhs []float64) {
	m := len(b.idx)
	a = make([]float64, m*m)
	rhs = make([]float64, m)
	for r, j := range b.idx {
		rhs[r] = g.B[j] / (s[j] * ybar * w)
		for c, k := range b.idx {
			a[r*m+c] = g.G[j*b.p+k] / (s[j] * s[k] * w)
		}
	}
	return a, rhs
}

// beta returns the coefficient of column j when every block counts once.
func (b *bootstrap) beta(j int) float64 {
	r := slices.Index(b.idx, j)
	return b.gamma[r] / b.scale[r]
}

// solveAll fits all blocks once, each counted once, and reports for each column of P whether the
// rows determine it. Errors: ErrEigen.
func (b *bootstrap) solveAll() ([]bool, error) {
	m := len(b.idx)
	d := newDraw(m)
	b.fit(d, slices.Repeat([]int{1}, len(b.a)))
	b.gamma = d.gamma
	b.inv = d.inv
	b.se = d.se
	known := make([]bool, b.p)
	values, vectors, err := Eigen(Symmetric(d.sum, m))
	if err != nil {
		return nil, err
	}
	for r, j := range b.idx {
		// The squared length of the term's part in the null space: 0 if the rows determine it, 1 if
		// nothing is known of it.
		var null float64
		for k := 0; k < m && values[k] <= nullTol*values[m-1]; k++ {
			null += vectors.At(r, k) * vectors.At(r, k)
		}
		known[j] = null < nullShare && b.se[r] > 0
	}
	if null := sort.Search(m, func(k int) bool { return values[k] > rounding*values[m-1] }); null > 0 {
		b.withoutNull(values, vectors, null, d.rhs)
	}
	return known, nil
}

// withoutNull computes the inverse and the answer again without the first null eigenvectors: directions in
// which no row varies. No block has a part in them but rounding errors, and an inverse of 1/bootRidge along
// them would make these errors figures.
func (b *bootstrap) withoutNull(values []float64, vectors *mat.Dense, null int, rhs []float64) {
	m := len(b.idx)
	clear(b.inv)
	for k := null; k < m; k++ {
		for r := range m {
			for c := range m {
				b.inv[r*m+c] += vectors.At(r, k) * vectors.At(c, k) / (values[k] + bootRidge)
			}
		}
	}
	for r := range m {
		b.gamma[r] = Dot(b.inv[r*m:(r+1)*m], rhs)
	}
}

// draw is the workspace of one refit of the bootstrap. Its matrices are m x m, its vectors have one
// entry for each used column.
type draw struct {
	m      int       // used columns
	sum    []float64 // sum of the drawn blocks' Gram matrices
	chol   []float64 // its Cholesky factor, with bootRidge on the diagonal
	inv    []float64 // its inverse
	rhs    []float64 // sum of the drawn blocks' right sides
	gamma  []float64 // the answer
	se     []float64 // its cluster-robust standard error
	score  []float64 // of one block: b_k - a_k gamma
	z      []float64 // influence of one block: inv*score
	mean   []float64 // sum of the influences of a run's blocks
	square []float64 // sum of their squares
}

// newDraw returns the scratch space of one draw, for m terms.
func newDraw(m int) *draw {
	matrix := func() []float64 { return make([]float64, m*m) }
	vector := func() []float64 { return make([]float64, m) }
	return &draw{
		m:      m,
		sum:    matrix(),
		chol:   matrix(),
		inv:    matrix(),
		rhs:    vector(),
		gamma:  vector(),
		se:     vector(),
		score:  vector(),
		z:      vector(),
		mean:   vector(),
		square: vector(),
	}
}

// fit solves with block k counted times[k] times, and sets d.gamma, d.inv and d.se, the
// cluster-robust standard error. It reports whether the summed matrix is positive definite.
func (b *bootstrap) fit(d *draw, times []int) bool {
	clear(d.sum)
	clear(d.rhs)
	for k, t := range times {
		if t == 0 {
			continue
		}
		f := float64(t)
		for i, v := range b.a[k] {
			d.sum[i] += f * v
		}
		for i, v := range b.b[k] {
			d.rhs[i] += f * v
		}
	}
	copy(d.chol, d.sum)
	for r := range d.m {
		d.chol[r*d.m+r] += bootRidge
	}
	if stat.Cholesky(d.chol, d.m) < d.m {
		return false
	}
	copy(d.gamma, d.rhs)
	stat.CholeskySolve(d.chol, d.m, d.gamma)
	d.invert()
	b.sandwich(d, times, nil)
	return true
}

// invert fills inv from the Cholesky factor, one column at a time.
func (d *draw) invert() {
	for r := range d.m {
		clear(d.z)
		d.z[r] = 1
		stat.CholeskySolve(d.chol, d.m, d.z)
		copy(d.inv[r*d.m:], d.z)
	}
}

// sandwich sets d.se, and cov when it is not nil, from the blocks' influences inv*(b_k - a_k
// gamma), each centred on the mean of its run: the "sandwich" estimator of cluster-robust variance. With
// cov every block has to be counted once.
func (b *bootstrap) sandwich(d *draw, times []int, cov []float64) {
	m := d.m
	clear(d.se)
	for _, blocks := range b.strata {
		drawn := 0.0
		// Influences are centred on the mean of their run, because the draws keep the number of blocks of
		// each run.
		clear(d.mean)
		clear(d.square)
		for _, k := range blocks {
			if times[k] == 0 {
				continue
			}
			count := float64(times[k])
			drawn += count
			b.influence(d, k)
			for j, influence := range d.z {
				d.mean[j] += count * influence
				d.square[j] += count * influence * influence
			}
			for i := range cov {
				cov[i] += count * d.z[i/m] * d.z[i%m] * float64(len(blocks)) / math.Max(1, float64(len(blocks)-1))
			}
		}
		if drawn < 2 { // the variance of a single block is unknown
			continue
		}
		for j := range d.se {
			d.se[j] += drawn / (drawn - 1) * math.Max(0, d.square[j]-d.mean[j]*d.mean[j]/drawn)
		}
		for i := range cov {
			cov[i] -= d.mean[i/m] * d.mean[i%m] / (drawn - 1)
		}
	}
	for j, v := range d.se {
		d.se[j] = math.Sqrt(v)
	}
}

// influence sets d.z to how far block k alone moves the coefficients: inv*(b_k - a_k gamma).
func (b *bootstrap) influence(d *draw, k int) {
	m := d.m
	for j := range m {
		d.score[j] = b.b[k][j] - Dot(b.a[k][j*m:(j+1)*m], d.gamma)
	}
	for j := range m {
		d.z[j] = Dot(d.inv[j*m:(j+1)*m], d.score)
	}
}

// jackknife returns the standard error of each column of P from refits without one configuration
// each: sqrt((C - 1)/C sum (beta_c - mean)^2); NaN below three configurations.
func (b *bootstrap) jackknife(blocks []BlockGram, configs []int32) []float64 {
	out := slices.Repeat([]float64{math.NaN()}, b.p)
	if len(configs) < 3 {
		return out
	}
	d := newDraw(len(b.idx))
	columns := make([][]float64, len(b.idx))
	times := make([]int, len(blocks))
	for _, c := range configs {
		for k, block := range blocks {
			times[k] = 1
			if block.Config == c {
				times[k] = 0
			}
		}
		if !b.fit(d, times) {
			return out
		}
		for r, g := range d.gamma {
			columns[r] = append(columns[r], g/b.scale[r])
		}
	}
	for r, j := range b.idx {
		// StdErr is sqrt(sum (beta_c - mean)^2/(C (C - 1))).
		out[j] = stat.StdErr(columns[r]) * float64(len(configs)-1)
	}
	return out
}

// covariance writes the cluster-robust covariance of the coefficients, P x P.
func (b *bootstrap) covariance(out []float64) {
	m := len(b.idx)
	d := newDraw(m)
	copy(d.gamma, b.gamma)
	copy(d.inv, b.inv)
	once := slices.Repeat([]int{1}, len(b.a))
	cov := make([]float64, m*m)
	b.sandwich(d, once, cov)
	for r, j := range b.idx {
		for c, k := range b.idx {
			out[j*b.p+k] = cov[r*m+c] / (b.scale[r] * b.scale[c])
		}
	}
}

// level is the coverage of intervals where Options.Level is 0.
const level = 0.95

// quantiles returns, per column of P, the quantile of |t| over the draws at the level of the
// intervals.
func (b *bootstrap) quantiles(o Options) []float64 {
	m := len(b.idx)
	ts := make([][]float64, o.Draws)
	spaces := make([]*draw, o.Threads())
	par.Each(o.Threads(), o.Draws, func(worker, i int) {
		if spaces[worker] == nil {
			spaces[worker] = newDraw(m)
		}
		ts[i] = b.studentised(spaces[worker], rand.New(rand.NewPCG(o.Seed, uint64(i))))
	})
	out := make([]float64, b.p)
	for r, j := range b.idx {
		var v []float64
		for _, t := range ts {
			if t != nil && !math.IsNaN(t[r]) {
				v = append(v, t[r])
			}
		}
		out[j] = math.NaN()
		if len(v) > 0 {
			slices.Sort(v)
			// The ceil(level*(n+1))-th smallest of n: the usual rank, which covers the level with few draws too.
			rank := int(math.Ceil(o.level() * float64(len(v)+1)))
			out[j] = v[min(len(v), rank)-1]
		}
	}
	return out
}

// studentised draws as many blocks of each run as it has, with replacement, refits, and returns |t| of
// each used column: the change of the coefficient against the fit of all blocks, divided by the
// standard error of this draw. It returns nil if the draw cannot be solved.
func (b *bootstrap) studentised(d *draw, rng *rand.Rand) []float64 {
	times := make([]int, len(b.a))
	for _, blocks := range b.strata {
		for range blocks {
			times[blocks[rng.IntN(len(blocks))]]++
		}
	}
	if !b.fit(d, times) {
		return nil
	}
	out := make([]float64, d.m)
	for j := range out {
		out[j] = math.Abs(d.gamma[j]-b.gamma[j]) / d.se[j]
	}
	return out
}
