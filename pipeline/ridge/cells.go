package ridge

// This file cuts rows into cells, the pieces that folds, held-out configurations and weights treat as a
// whole, and has the sums over each. Everything after it works on these sums.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
)

// Never is the CellKey.From of rows that no fold trains on.
const Never = int32(1) << 30

// CellKey identifies a cell: the rows of one regime inside one segment of one run. Fold j trains on
// cells with From <= j and validates on those with Block = j+1. Rows outside all folds, those of runs
// with too few rows and those of the hold-out, have Block -1 and From Never.
type CellKey struct {
	Config int32 `json:"config"`
	Run    int32 `json:"run"`
	Regime int32 `json:"regime"`
	Block  int32 `json:"block"` // position of the fold block in its run
	From   int32 `json:"from"`  // first forward fold that trains on the cell
}

// trainsWithout reports whether the rows of a cell train a fit that is scored on a block
// (Options.EachBlock): those of later blocks, and of earlier ones what the forward fold that is scored
// on the block trains on, which is all but the embargo.
func (k CellKey) trainsWithout(block int32) bool {
	isEarlier := k.Block >= 0 && k.From < block
	return isEarlier || k.Block > block
}

// Cell is the Gram matrix of a cell's rows with the weights factor/max(y, eps*steps)^2, before
// balancing.
type Cell struct {
	CellKey
	Gram
}

// Cells are all cells of one data set: runs in order, in each its segments in time order, in each
// its regimes in order. Select and Blocks need nothing else of the rows.
type Cells struct {
	P       int     `json:"features"`
	EpsUs   float64 `json:"eps_us"` // Options.EpsUs of the weights
	Folds   int     `json:"folds"`
	Gamma   float64 `json:"gamma"`        // label of the variant
	Lag     int     `json:"lag"`          // label, set by the caller
	Embargo int     `json:"embargo_rows"` // Options.EmbargoRows
	List    []Cell  `json:"cells"`
}

// segment is a range of rows of one run that is wholly inside or outside the training rows of each
// fold, in one regime.
type segment struct {
	seq    *Sequence
	lo, hi int   // range in seq.Rows
	block  int32 // fold block that the range lies in
	regime int32
	rows   []int32 // rows of the range that are of this regime
}

// Cut sums the rows into cells and returns one Cells per variant, or one when there is none.
// Weights depend on the target alone, so variants share them.
func (d *Data) Cut(o Options) ([]*Cells, []Finding, error) {
	seqs, found := Sequences(d, o)
	if len(found) == len(seqs) {
		return nil, found, &Error{Code: TooFewRows, Msg: fmt.Sprintf("no run has %d rows", o.Folds+1)}
	}
	parts := make([][]segment, len(seqs))
	par.Each(o.Threads(), len(seqs), func(_, k int) { parts[k] = segments(d, &seqs[k], o.EmbargoRows) })
	segs := slices.Concat(parts...)
	out := make([]*Cells, max(1, len(d.Variants)))
	grams := sumSegments(d, o, segs, len(out))
	for v := range out {
		c := &Cells{P: d.P, EpsUs: o.EpsUs, Folds: o.Folds, Gamma: d.gamma(v), Embargo: o.EmbargoRows}
		for k, s := range segs {
			key := CellKey{
				Config: s.seq.Config,
				Run:    s.seq.Run,
				Regime: s.regime,
				Block:  s.block,
				From:   firstFold(s, o.EmbargoRows),
			}
			c.List = append(c.List, Cell{CellKey: key, Gram: *grams[k][v]})
		}
		out[v] = c
	}
	return out, found, nil
}

// firstFold returns the number of the first forward fold that trains on the segment, or Never. A fold
// trains on no row that lies within embargo rows before its validation block.
func firstFold(s segment, embargo int) int32 {
	if s.seq.bounds == nil {
		return Never
	}
	for j := int(s.block); j+2 < len(s.seq.bounds); j++ {
		if s.hi <= s.seq.trainEnd(j, embargo) {
			return int32(j)
		}
	}
	return Never
}

// segments returns a sequence divided at its block bounds and at every place where a fold stops
// training, each piece split by regime in time order.
func segments(d *Data, s *Sequence, embargo int) []segment {
	cuts := slices.Clone(s.bounds)
	if cuts == nil {
		cuts = []int{0, len(s.Rows)}
	}
	for j := 0; s.bounds != nil && j+2 < len(s.bounds); j++ {
		cuts = append(cuts, s.trainEnd(j, embargo))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []segment
	block := int32(-1) // the first cut, 0, begins block 0; without bounds it stays -1
	for k := 0; k+1 < len(cuts); k++ {
		if s.bounds != nil && slices.Contains(s.bounds, cuts[k]) {
			block++
		}
		out = append(out, byRegime(d, segment{seq: s, lo: cuts[k], hi: cuts[k+1], block: block})...)
	}
	return out
}

// byRegime returns a segment split into one for each of its regimes, ascending.
func byRegime(d *Data, s segment) []segment {
	rows := s.seq.Rows[s.lo:s.hi]
	var out []segment
	for _, i := range rows {
		k := len(out) - 1
		for k >= 0 && out[k].regime > d.Regime[i] {
			k--
		}
		if k < 0 || out[k].regime != d.Regime[i] {
			k++
			part := s
			part.regime = d.Regime[i]
			part.rows = make([]int32, 0, len(rows))
			out = slices.Insert(out, k, part)
		}
		out[k].rows = append(out[k].rows, i)
	}
	return out
}

// sumSegments returns one Gram matrix per segment and variant. Workers sum chunks; the chunks of a
// segment are added in order.
func sumSegments(d *Data, o Options, segs []segment, variants int) [][]*Gram {
	type task struct {
		seg, chunk int // the chunk of the segment
		rows       []int32
	}
	var tasks []task
	for k, s := range segs {
		for c, rows := range Chunk(s.rows) {
			tasks = append(tasks, task{seg: k, chunk: c, rows: rows})
		}
	}
	w := d.Unbalanced(o)
	parts := make([][]*Gram, len(tasks))
	accs := make([]*Accumulator, o.Threads())
	par.Each(o.Threads(), len(tasks), func(worker, t int) {
		if accs[worker] == nil {
			accs[worker] = NewAccumulator(d)
		}
		a := accs[worker]
		a.Reset()
		a.Add(tasks[t].rows, w)
		parts[t] = make([]*Gram, variants)
		for v := range parts[t] {
			parts[t][v] = New(d.P)
			a.Fill(v, parts[t][v])
		}
	})
	out := make([][]*Gram, len(segs))
	for t, task := range tasks {
		if task.chunk == 0 {
			out[task.seg] = parts[t]
			continue
		}
		for v, g := range parts[t] {
			out[task.seg][v].Add(g)
		}
	}
	return out
}

// Configs returns the configuration labels, ascending.
func (c *Cells) Configs() []int32 {
	labels := make([]int32, len(c.List))
	for i := range c.List {
		labels[i] = c.List[i].Config
	}
	return distinct(labels)
}

// Balance returns for each cell of the list the factor c that makes configurations and regimes
// count equally (spec#weights): the rule of Weights, from the cells' row counts and sums of w*y^2.
func (c *Cells) Balance(minCellRows int) []float64 {
	configs := c.Configs()
	sums := make([][]cellSums, len(configs))
	for i := range c.List {
		cell := &c.List[i]
		k, _ := slices.BinarySearch(configs, cell.Config)
		sums[k] = addCell(sums[k], cell.Regime, cell.Gram.N, cell.Gram.Q)
	}
	factors := make([][]float64, len(configs))
	for k := range sums {
		factors[k] = balance(sums[k], minCellRows, len(configs))
	}
	out := make([]float64, len(c.List))
	for i := range c.List {
		k, _ := slices.BinarySearch(configs, c.List[i].Config)
		out[i] = factors[k][findCell(sums[k], c.List[i].Regime)]
	}
	return out
}

// Sum returns the sum of the cells for which keep is true (nil: all), each times its factor.
func (c *Cells) Sum(factor []float64, keep func(CellKey) bool) *Gram {
	out := New(c.P)
	for i := range c.List {
		if keep == nil || keep(c.List[i].CellKey) {
			out.AddScaled(factor[i], &c.List[i].Gram)
		}
	}
	return out
}

// Total returns the balanced Gram of all rows.
func (c *Cells) Total(minCellRows int) *Gram { return c.Sum(c.Balance(minCellRows), nil) }

// Without returns the cells without those of one run.
func (c *Cells) Without(run int32) *Cells {
	out := *c
	out.List = slices.DeleteFunc(slices.Clone(c.List), func(x Cell) bool { return x.Run == run })
	return &out
}
