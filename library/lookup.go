package library

// This file picks the rows of a table that meet some conditions, merges them into curves, and has the
// record (found) of which rows a time is from.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Reached is how the time of an operator was found in the tables.
type Reached uint8

// The surest first.
const (
	Measured     Reached = iota // the table has the shape
	Interpolated                // between measured shapes
	Beyond                      // past the largest measured shape, in proportion
	Substituted                 // another row, scaled
	Analytic                    // in no table: bytes and launches
)

// String returns the word that documents use.
func (r Reached) String() string {
	return [...]string{"measured", "interpolated", "beyond", "substituted", "analytic"}[r]
}

// found is the source of a time: table, kernel and release, and how the table was used.
type found struct {
	Table   string // "": none
	Kernel  string // the table's kernel_source; several with commas
	Version string // the table's: the release that was measured
	Reached Reached
	Note    string // how the rows were used, for people
	unlike  bool   // the rows are of another kernel, and no server was compared with such rows
	// Contradicted is how many times longer the rows take than others allow, so that the others replaced
	// them (see orders.go); 0: the rows are used.
	Contradicted float64
	rank         evidence
	rows         *curve // the times before gemm lowered them; nil: gemm did not, or another look-up made the time
}

// evidence ranks what times rest on, the best first: where two times cannot both be right, the one of
// worse evidence gives way (see orders.go).
type evidence uint8

const (
	ofKernel evidence = iota // rows of the kernel itself
	ofOther                  // rows of another kernel, shape or dtype, or rows that timed the launch
	byBytes                  // computed from the bytes of another dtype
)

// substituted returns f marked as taken from rows of another kernel, because the table lacks the
// right ones.
func (f found) substituted(format string, args ...any) found {
	f.Reached = Substituted
	f.Note = fmt.Sprintf(format, args...)
	f.unlike = true
	f.rank = max(f.rank, ofOther)
	return f
}

// where is one condition on a column of a table: a value in a column of numbers, or any of some words
// in a column of text.
type where struct {
	column string
	value  int64    // if words is nil
	words  []string // nil: a column of numbers
}

// also returns the conditions and more ones, in a slice of their own.
func also(conditions []where, more ...where) []where { return slices.Concat(conditions, more) }

// equals returns the condition that a column has the value.
func equals(column string, value int64) where { return where{column: column, value: value} }

// hasWord returns the condition that a column has one of the words.
func hasWord(column string, words ...string) where { return where{column: column, words: words} }

// describe returns the condition in words.
func (w where) describe() string {
	if w.words != nil {
		return w.column + " " + strings.Join(w.words, " or ")
	}
	return fmt.Sprintf("%s %d", w.column, w.value)
}

// pickSeries returns the series whose keys meet all conditions. A column of numbers that the table
// lacks counts as 0 (no window, nothing cached); of text, as any word.
func (t *Table) pickSeries(conditions ...where) []*Series {
	type columnCheck struct {
		column  int     // index in Columns and Key
		allowed []int64 // values of the key; -1, which no key has, for a word that no row has
	}
	var checks []columnCheck
	for _, w := range conditions {
		at := t.Column(w.column)
		if at < 0 {
			if w.words == nil && w.value != 0 {
				return nil
			}
			continue
		}
		check := columnCheck{column: at}
		if w.words == nil {
			check.allowed = []int64{w.value}
		}
		for _, word := range w.words {
			check.allowed = append(check.allowed, t.Columns[at].Word(word))
		}
		checks = append(checks, check)
	}
	var out []*Series
next:
	for i := range t.Series {
		for _, c := range checks {
			if !slices.Contains(c.allowed, t.Series[i].Key[c.column]) {
				continue next
			}
		}
		out = append(out, &t.Series[i])
	}
	return out
}

// tornShare is the share of the largest size in a table below which a series that ends there broke
// off while it was measured: complete series of a table end near one size.
const tornShare = 1. / 16

// dropTorn returns the series without those that broke off: their last time must not be
// extrapolated.
func (t *Table) dropTorn(series []*Series) []*Series {
	last := func(s *Series) int64 { return s.X[len(s.X)-1] }
	most := int64(0)
	for i := range t.Series {
		most = max(most, last(&t.Series[i]))
	}
	var complete []*Series
	for _, s := range series {
		if float64(last(s)) >= tornShare*float64(most) {
			complete = append(complete, s)
		}
	}
	return complete
}

// curveOf merges series into one curve and returns the names of its kernels.
func (t *Table) curveOf(series []*Series) (curve, string) {
	at := t.Column("kernel_source")
	var rows []row
	var kernels []string
	for _, s := range series {
		source := int64(0) // in a table without the column all rows are of one kernel
		if at >= 0 {
			source = s.Key[at]
			kernels = append(kernels, t.Columns[at].Words[source])
		}
		for j, x := range s.X {
			rows = append(rows, row{x, source, Us(s.Q[j])})
		}
	}
	return mergeRows(rows), strings.Join(distinct(kernels), ", ")
}

// gridOf merges series into a grid whose first size is a column of the keys, and returns the names
// of its kernels. Disturbed times are lowered to those of larger sizes.
func (t *Table) gridOf(series []*Series, column string) (grid, string) {
	at := t.Column(column)
	bySize := map[int64][]*Series{} // by the first size
	var sizes []int64
	for _, s := range series {
		bySize[s.Key[at]] = append(bySize[s.Key[at]], s)
		sizes = append(sizes, s.Key[at])
	}
	g := grid{byRequests: column == "batch_size"}
	var names []string
	for _, x := range distinct(sizes) {
		c, name := t.curveOf(bySize[x])
		g.x = append(g.x, float64(x))
		g.rows = append(g.rows, c)
		names = append(names, name)
	}
	return g.withoutDisturbed(), strings.Join(distinct(names), ", ")
}

// values returns the values of a column in series, sorted.
func (t *Table) values(series []*Series, column string) []int64 {
	at := t.Column(column)
	var values []int64
	for _, s := range series {
		values = append(values, s.Key[at])
	}
	return distinct(values)
}

// needTable returns a table, or an error where the GPU has none of that name.
func (g *GPU) needTable(name string) (*Table, error) {
	t, err := g.Table(name)
	if t == nil && err == nil {
		err = trace.Errorf(NoRows, "%s: got no table %s, want it", g.Hardware, name)
	}
	return t, err
}

// missingRows returns the error for a table without rows that meet the conditions. It names the nearest
// row: the one with the most words met, then with the nearest values.
func (g *GPU) missingRows(t *Table, conditions ...where) error {
	best := math.Inf(1)
	nearest := ""
	for i := range t.Series {
		far := 0.0
		var text []string
		for _, w := range conditions {
			at := t.Column(w.column)
			if at < 0 {
				continue
			}
			v := t.Series[i].Key[at]
			if words := t.Columns[at].Words; words != nil {
				if !slices.Contains(w.words, words[v]) {
					far += 10 // more than a number that is 20,000 times too large
				}
				text = append(text, w.column+" "+words[v])
				continue
			}
			far += math.Abs(math.Log(float64(1+v) / float64(1+w.value)))
			text = append(text, fmt.Sprintf("%s %d", w.column, v))
		}
		if far < best {
			best, nearest = far, strings.Join(text, ", ")
		}
	}
	var want []string
	for _, w := range conditions {
		want = append(want, w.describe())
	}
	return trace.Errorf(NoRows, "%s, table %s: got no rows of %s, nearest %s", g.Hardware, t.Name, strings.Join(want, ", "), nearest).
		WithHint("give tables of your own with --library FILE, or simulate with --latency-model roofline")
}
