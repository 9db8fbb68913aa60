package fit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// pool is the rows of all runs as one ridge.Data, with the way back to the
// tables. Runs are in sorted order, rows in time order inside a run.
type pool struct {
	tables  []*rows.Table // per used run, default gamma
	runs    []string      // label -> run id
	configs []string      // label -> configuration key
	data    *gram.Data
	table   []int32 // row -> position in tables
	row     []int32 // row -> row of that table
	train   []int32 // rows outside the hold-out
	hold    []int32 // hold-out rows
}

// newPool joins one table per run and gamma (all[g][r]). Tables of one run must
// hold the same rows for every gamma: gamma changes features only.
func newPool(all [][]*rows.Table, gammas []float64) *pool {
	p := &pool{data: &gram.Data{}}
	base := slices.Index(gammas, features.DefaultGamma)
	cols := gammaColumns(all)
	for r, t := range all[base] {
		if t == nil || t.Kept == 0 {
			continue
		}
		p.data.P = t.P
		config := p.config(t.Config)
		for i := range t.Kept {
			p.add(t, int32(len(p.tables)), int32(i), config)
		}
		p.tables = append(p.tables, t)
		p.runs = append(p.runs, t.Run)
		p.extendVariants(all, gammas, r, cols)
	}
	return p
}

func (p *pool) config(key string) int32 {
	k := slices.Index(p.configs, key)
	if k < 0 {
		k = len(p.configs)
		p.configs = append(p.configs, key)
	}
	return int32(k)
}

func (p *pool) add(t *rows.Table, table, i, config int32) {
	d := p.data
	row := int32(len(d.Y))
	d.X = append(d.X, t.Row(int(i))...)
	d.Y = append(d.Y, t.Y[i])
	d.Steps = append(d.Steps, t.Steps[i])
	d.Factor = append(d.Factor, t.Factor[i])
	d.Config = append(d.Config, config)
	d.Regime = append(d.Regime, int32(t.Regime[i]))
	d.Run = append(d.Run, table)
	d.Time = append(d.Time, t.TimeNs[i])
	p.table = append(p.table, table)
	p.row = append(p.row, i)
	if t.HoldOut[i] {
		p.hold = append(p.hold, row)
	} else {
		p.train = append(p.train, row)
	}
}

// extendVariants appends the given columns of one run for every gamma.
func (p *pool) extendVariants(all [][]*rows.Table, gammas []float64, r int, cols []int) {
	if len(gammas) < 2 {
		return
	}
	if len(p.data.Variants) == 0 {
		for _, g := range gammas {
			v := gram.Variant{Gamma: g, Cols: cols, Values: make([][]float64, len(cols))}
			p.data.Variants = append(p.data.Variants, v)
		}
	}
	for g := range gammas {
		v := &p.data.Variants[g]
		for c, col := range cols {
			for i := range all[g][r].Kept {
				v.Values[c] = append(v.Values[c], all[g][r].Row(i)[col])
			}
		}
	}
}

// gammaColumns are the columns that differ between the tables of two gammas:
// those fed by the preemption EMA.
func gammaColumns(all [][]*rows.Table) []int {
	differs := map[int]bool{}
	for g := 1; g < len(all); g++ {
		for r, t := range all[g] {
			if t == nil {
				continue
			}
			for k, x := range t.X {
				if x != all[0][r].X[k] {
					differs[k%t.P] = true
				}
			}
		}
	}
	cols := make([]int, 0, len(differs))
	for j := range differs {
		cols = append(cols, j)
	}
	slices.Sort(cols)
	return cols
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
