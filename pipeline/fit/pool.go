package fit

// This file joins the rows of all runs for package ridge, and keeps what its labels mean.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Pool is the rows of all runs as one ridge.Data, together with the tables that they come from.
// Runs are sorted by id, and the rows of a run by time. The tables share their features, targets
// and weights with the pool. Package ridge knows runs and configurations by labels, their positions in
// Runs and Configs.
type Pool struct {
	Tables  []*rows.Table // of each run that has rows
	Runs    []string      // label -> run id
	Configs []string      // label -> configuration key
	Gammas  []float64     // of the variants of Data, or the default one
	Data    *ridge.Data
	Train   []int32 // positions in Data of the rows outside the hold-out, ascending
	Hold    []int32 // and of those of the hold-out
}

// Pooled returns one table for each run joined into one. gammas are the smoothing factors to choose
// from, one of them the tables' own, or nil for no choice.
func Pooled(all []*rows.Table, gammas []float64) *Pool {
	p := &Pool{Gammas: gammas, Data: &ridge.Data{}}
	if len(gammas) == 0 {
		p.Gammas = []float64{features.DefaultGamma}
	}
	n := 0
	for _, t := range all {
		if t != nil && t.Kept > 0 {
			p.Tables = append(p.Tables, t)
			p.Runs = append(p.Runs, t.Run)
			p.Data.P = t.P
			n += t.Kept
		}
	}
	d := p.Data
	d.Config = make([]int32, 0, n)
	d.Regime = make([]int32, 0, n)
	d.Run = make([]int32, 0, n)
	for k, t := range p.Tables {
		config := p.config(t.Config)
		for i := range t.Kept {
			row := int32(len(d.Run))
			d.Config = append(d.Config, config)
			d.Regime = append(d.Regime, int32(t.Regime[i]))
			d.Run = append(d.Run, int32(k))
			if t.HoldOut[i] {
				p.Hold = append(p.Hold, row)
			} else {
				p.Train = append(p.Train, row)
			}
		}
	}
	p.join(n)
	p.variants(gammas)
	return p
}

// join concatenates the columns of all tables, n rows in total. The tables' own columns become
// slices of the result, so that nothing is kept twice.
func (p *Pool) join(n int) {
	d := p.Data
	d.X = joined(p.Tables, n*d.P, func(t *rows.Table) *[]float64 { return &t.X })
	d.Y = joined(p.Tables, n, func(t *rows.Table) *[]float64 { return &t.Y })
	d.Steps = joined(p.Tables, n, func(t *rows.Table) *[]float64 { return &t.Steps })
	d.Factor = joined(p.Tables, n, func(t *rows.Table) *[]float64 { return &t.Factor })
	d.Time = joined(p.Tables, n, func(t *rows.Table) *[]int64 { return &t.TimeNs })
}

// joined returns one column of all tables in one slice of n values, and makes each table's column a
// part of it.
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

// config returns the label of a configuration, which it adds if it is new.
func (p *Pool) config(key string) int32 {
	k := slices.Index(p.Configs, key)
	if k < 0 {
		k = len(p.Configs)
		p.Configs = append(p.Configs, key)
	}
	return int32(k)
}

// variants adds to the data, for every gamma, the values of the columns that depend on it: the
// features of the preemption average.
func (p *Pool) variants(gammas []float64) {
	// The runs may have different such columns: one without preemptions has none.
	var cols []int
	for _, t := range p.Tables {
		for _, v := range t.Variants {
			cols = append(cols, v.Cols...)
		}
	}
	slices.Sort(cols)
	cols = slices.Compact(cols)
	for _, g := range gammas {
		v := ridge.Variant{Gamma: g, Cols: cols, Values: make([][]float64, len(cols))}
		for c, j := range cols {
			for _, t := range p.Tables {
				v.Values[c] = append(v.Values[c], t.Column(g, j)...)
			}
		}
		p.Data.Variants = append(p.Data.Variants, v)
	}
}

// saturated reports whether only a run's rows near preemptions take part (spec#saturation): rows were
// dropped as saturated, and as those that stay never belong to the hold-out, there is none.
func (p *Pool) saturated(run int32) bool {
	t := p.Tables[run]
	return t.DroppedFor(rows.Saturated) > 0 && !slices.Contains(t.HoldOut, true)
}

// saturatedConfig reports whether all runs of a configuration are such runs.
func (p *Pool) saturatedConfig(key string) bool {
	for r, t := range p.Tables {
		if t.Config == key && !p.saturated(int32(r)) {
			return false
		}
	}
	return true
}

// rowOf returns the table of row i of the pool, and the position of the row in it.
func (p *Pool) rowOf(i int32) (t *rows.Table, row int) {
	k := p.Data.Run[i]
	first, _ := slices.BinarySearch(p.Data.Run, k) // labels ascend with the rows
	return p.Tables[k], int(i) - first
}

// TrainData returns the rows outside the hold-out.
func (p *Pool) TrainData() *ridge.Data { return p.Data.Subset(p.Train) }

// Bounds returns the intervals that contain the overheads of the given rows.
func (p *Pool) Bounds(list []int32) ridge.Bounds {
	var b ridge.Bounds
	for _, i := range list {
		t, k := p.rowOf(i)
		b.Lo = append(b.Lo, t.Lo[k])
		b.Hi = append(b.Hi, t.Hi[k])
	}
	return b
}

// embargo returns how many rows before a validation block are excluded from training, for every gamma:
// as many as the preemption average with the longest memory extends over (spec#folds). Otherwise the
// features of a validation row would still contain preemptions of training rows.
func embargo(rowsPerStep float64) int {
	return int(math.Ceil(features.MemorySteps * rowsPerStep))
}
