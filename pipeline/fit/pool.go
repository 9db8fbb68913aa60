package fit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// pool is the rows of all runs as one gram.Data, with the way back to the
// tables. Runs are in sorted order, rows in time order inside a run. The tables'
// features, targets and weights are parts of the pool's.
type pool struct {
	tables  []*rows.Table // per used run
	runs    []string      // label -> run id
	configs []string      // label -> configuration key
	data    *gram.Data
	train   []int32 // rows outside the hold-out
	hold    []int32 // hold-out rows
}

// newPool joins one table per run; gammas are the smoothing factors to choose
// from, one of them the tables' own, or nil for no choice.
func newPool(all []*rows.Table, gammas []float64) *pool {
	p := &pool{data: &gram.Data{}}
	n := 0
	for _, t := range all {
		if t != nil && t.Kept > 0 {
			p.tables, p.runs = append(p.tables, t), append(p.runs, t.Run)
			p.data.P = t.P
			n += t.Kept
		}
	}
	d := p.data
	d.Config, d.Regime, d.Run = make([]int32, 0, n), make([]int32, 0, n), make([]int32, 0, n)
	for k, t := range p.tables {
		config := p.config(t.Config)
		for i := range t.Kept {
			row := int32(len(d.Run))
			d.Config, d.Regime, d.Run = append(d.Config, config), append(d.Regime, int32(t.Regime[i])), append(d.Run, int32(k))
			if t.HoldOut[i] {
				p.hold = append(p.hold, row)
			} else {
				p.train = append(p.train, row)
			}
		}
	}
	p.join(n)
	p.variants(gammas)
	return p
}

// join makes one column of the tables' and makes theirs parts of it.
func (p *pool) join(n int) {
	d := p.data
	d.X = joined(p.tables, n*d.P, func(t *rows.Table) *[]float64 { return &t.X })
	d.Y = joined(p.tables, n, func(t *rows.Table) *[]float64 { return &t.Y })
	d.Steps = joined(p.tables, n, func(t *rows.Table) *[]float64 { return &t.Steps })
	d.Factor = joined(p.tables, n, func(t *rows.Table) *[]float64 { return &t.Factor })
	d.Time = joined(p.tables, n, func(t *rows.Table) *[]int64 { return &t.TimeNs })
}

func joined[T any](tables []*rows.Table, n int, column func(*rows.Table) *[]T) []T {
	if len(tables) == 1 {
		return *column(tables[0])
	}
	all := make([]T, 0, n)
	for _, t := range tables {
		c, from := column(t), len(all)
		all = append(all, *c...)
		*c = all[from:len(all):len(all)]
	}
	return all
}

func (p *pool) config(key string) int32 {
	k := slices.Index(p.configs, key)
	if k < 0 {
		k = len(p.configs)
		p.configs = append(p.configs, key)
	}
	return int32(k)
}

// variants takes the columns of every smoothing factor that some factor changes
// in some run: those fed by the preemption average.
func (p *pool) variants(gammas []float64) {
	var cols []int
	for _, t := range p.tables {
		for _, v := range t.Variants {
			cols = append(cols, v.Cols...)
		}
	}
	slices.Sort(cols)
	cols = slices.Compact(cols)
	for _, g := range gammas {
		v := gram.Variant{Gamma: g, Cols: cols, Values: make([][]float64, len(cols))}
		for c, j := range cols {
			for _, t := range p.tables {
				v.Values[c] = append(v.Values[c], t.Column(g, j)...)
			}
		}
		p.data.Variants = append(p.data.Variants, v)
	}
}

// rowOf is where row i of the pool stands in its table.
func (p *pool) rowOf(i int32) (t *rows.Table, row int) {
	k := p.data.Run[i]
	first, _ := slices.BinarySearch(p.data.Run, k)
	return p.tables[k], int(i) - first
}

// embargo sets the rows dropped before a validation block: ceil(5/gamma) steps,
// as rows (01 V-7).
func (p *pool) embargo(rowsPerStep float64) {
	for g := range p.data.Variants {
		v := &p.data.Variants[g]
		v.EmbargoRows = int(math.Ceil(math.Ceil(5/v.Gamma) * rowsPerStep))
	}
}

func (p *pool) trainData() *gram.Data { return p.data.Subset(p.train) }
