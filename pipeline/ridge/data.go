package ridge

// This file has the rows that a model is fitted to.

import (
	"math"
	"slices"
)

// Data is a set of rows. Every slice has one entry per row, X has P per row.
type Data struct {
	P      int
	X      []float64 // row-major, len(Y) x P; of a Subset the rows of the whole
	Y      []float64 // target, us
	Steps  []float64 // engine steps that a row covers; nil: 1
	Factor []float64 // down-weighting p of a row, 0..1; nil: 1
	Config []int32   // configuration label >= 0
	Regime []int32   // regime label >= 0
	Run    []int32   // run label >= 0, unique over configurations; nil: one run per configuration
	Time   []int64   // order inside a run, ties by row; nil: row order

	// Variants are alternatives of some columns (another EMA constant changes
	// only the columns fed by the EMA). Empty: X alone.
	Variants []Variant

	place []int32 // for a Subset: the row of X that each row is; nil: row i is row i of X
}

// Variant replaces columns of X. Values[k][i] is row i of column Cols[k].
type Variant struct {
	Gamma  float64 // label: the smoothing factor that the columns were made with
	Cols   []int
	Values [][]float64
}

// Len returns the number of rows.
func (d *Data) Len() int { return len(d.Y) }

// Row returns the features of row i. The caller must not write to it.
func (d *Data) Row(i int) []float64 {
	at := d.offset(i)
	return d.X[at : at+d.P]
}

// offset returns the index in X at which row i begins.
func (d *Data) offset(i int) int {
	if d.place != nil {
		i = int(d.place[i])
	}
	return i * d.P
}

// StepsOf returns how many engine steps row i covers.
func (d *Data) StepsOf(i int) float64 {
	if d.Steps == nil {
		return 1
	}
	return d.Steps[i]
}

// FactorOf returns the down-weighting factor of row i, 0 to 1.
func (d *Data) FactorOf(i int) float64 {
	if d.Factor == nil {
		return 1
	}
	return d.Factor[i]
}

// factors returns the down-weighting factors of all rows.
func (d *Data) factors() []float64 {
	out := make([]float64, d.Len())
	for i := range out {
		out[i] = d.FactorOf(i)
	}
	return out
}

// RunOf returns the run label of row i.
func (d *Data) RunOf(i int) int32 {
	if d.Run == nil {
		return d.Config[i]
	}
	return d.Run[i]
}

// Subset returns the given rows, in the given order, variants included. It shares X, which is most
// of the memory.
func (d *Data) Subset(rows []int32) *Data {
	out := &Data{P: d.P, X: d.X, place: append(make([]int32, 0, len(rows)), rows...)}
	if d.place != nil {
		out.place = pick(d.place, rows)
	}
	out.Y = pick(d.Y, rows)
	out.Steps = pick(d.Steps, rows)
	out.Factor = pick(d.Factor, rows)
	out.Config = pick(d.Config, rows)
	out.Regime = pick(d.Regime, rows)
	out.Run = pick(d.Run, rows)
	out.Time = pick(d.Time, rows)
	for _, v := range d.Variants {
		w := Variant{Gamma: v.Gamma, Cols: v.Cols}
		for _, col := range v.Values {
			w.Values = append(w.Values, pick(col, rows))
		}
		out.Variants = append(out.Variants, w)
	}
	return out
}

// pick returns the values of the given rows; nil for nil.
func pick[T any](v []T, rows []int32) []T {
	if v == nil {
		return nil
	}
	out := make([]T, len(rows))
	for k, i := range rows {
		out[k] = v[i]
	}
	return out
}

// With returns the data with the columns of variant k in X and no variants. It copies X only when a
// column differs; the other slices are shared.
func (d *Data) With(k int) *Data {
	out := *d
	out.Variants = nil
	if k >= len(d.Variants) || d.same(d.Variants[k]) {
		return &out
	}
	out.X = make([]float64, 0, d.Len()*d.P)
	out.place = nil
	v := d.Variants[k]
	for i := range d.Len() {
		out.X = append(out.X, d.Row(i)...)
		for c, j := range v.Cols {
			out.X[i*d.P+j] = v.Values[c][i]
		}
	}
	return &out
}

// gamma returns the label of variant k, 0 without variants.
func (d *Data) gamma(k int) float64 {
	if k >= len(d.Variants) {
		return 0
	}
	return d.Variants[k].Gamma
}

// same reports whether X already has a variant's columns.
func (d *Data) same(v Variant) bool {
	for i := range d.Len() {
		x := d.Row(i)
		for c, j := range v.Cols {
			if x[j] != v.Values[c][i] {
				return false
			}
		}
	}
	return true
}

// Configs returns the configuration labels present, ascending.
func (d *Data) Configs() []int32 { return distinct(d.Config) }

// distinct returns the labels that occur, ascending.
func distinct(v []int32) []int32 {
	out := make([]int32, 0, 8)
	last := int32(-1)
	for _, c := range v {
		if c == last {
			continue
		}
		last = c
		if k, ok := slices.BinarySearch(out, c); !ok {
			out = slices.Insert(out, k, c)
		}
	}
	return out
}

// BaseOf returns the size in us that the error of row i is relative to: max(y, eps*steps).
func (d *Data) BaseOf(i int, epsUs float64) float64 {
	return math.Max(d.Y[i], epsUs*d.StepsOf(i))
}

// Predict returns x.beta of every row.
func Predict(d *Data, beta []float64) []float64 {
	out := make([]float64, d.Len())
	for i := range out {
		out[i] = Dot(d.Row(i), beta)
	}
	return out
}

// AllRows returns the indices of all rows.
func (d *Data) AllRows() []int32 { return upTo(d.Len()) }

// upTo returns 0, 1, ... n-1.
func upTo(n int) []int32 {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	return rows
}
