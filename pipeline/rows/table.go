package rows

import (
	"slices"

	"github.com/blis-train/blis-train/internal/packed"
	"github.com/blis-train/blis-train/trace"
)

// Regime is the kind of work a row holds (spec#regimes): decode, prefill or mixed for
// beta; idle (nothing waits) or waiting for alpha.
type Regime uint8

// The regimes.
const (
	Decode Regime = iota
	Prefill
	Mixed
	Idle
	Waiting
)

var regimeNames = [...]string{"decode", "prefill", "mixed", "idle", "waiting"}

// String returns the regime's name in tables and reports.
func (r Regime) String() string { return regimeNames[r] }

// StressSet is a set of rows whose errors are reported apart.
type StressSet uint8

// The stress sets; a row may be in several.
const (
	Preempting  StressSet = 1 << iota // a step of the row preempted a request
	fullCache                         // KV usage above 0.9
	purePrefill                       // no decode in the row
	PureDecode                        // no prefill in the row
	fewTokens                         // 1 to 4 scheduled tokens in every step
)

// StressSets lists the sets with their names, in report order.
var StressSets = []struct {
	Set  StressSet
	Name string
}{
	{Preempting, "preempting"},
	{fullCache, "usage>0.9"},
	{purePrefill, "pure prefill"},
	{PureDecode, "pure decode"},
	{fewTokens, "1-4 tokens"},
}

// Table holds the training rows of one run and target, by column, in time
// order. All columns have Kept entries; X has Kept*P, row-major, or Packed Kept rows.
type Table struct {
	Run, Config string
	Target      string // cadence, duration, overhead, admission, egress or queue
	Lag         int    // beta cadence only
	Gamma       float64
	P           int

	X        []float64      // features, summed over the row's steps
	Packed   *packed.Floats // X in little memory, in place of it: step-time rows; nil: X
	Variants []Variant      // other smoothing factors, as asked for
	Y        []float64      // us; overhead: the upper bound
	Lo, Hi   []float64      // us; overhead only, nil otherwise
	Exact    []bool         // overhead only, nil otherwise
	Steps    []float64      // engine steps the row covers; 1 for alpha
	Regime   []Regime
	TimeNs   []int64 // start of the first interval step, or ARRIVED; monotonic
	// FirstStep and LastStep are the steps whose features the row sums (alpha:
	// the joined step, twice); nil in a slim table.
	FirstStep, LastStep []int64
	Tag                 []Tag
	Phase               []int32   // index into the deployment's phases; -1 for none
	Factor              []float64 // 0.5 or 1 (spec#preempting-rows)
	HoldOut             []bool    // spec#hold-out
	Sets                []StressSet
	FloorUs             []float64 // beta: W/Bw summed over the row's steps
	Batch               []float64 // beta: requests per step; alpha: running depth
	Context             []float64 // beta: tokens in KV per decode, 0 without decodes; alpha: prompt tokens
	ID                  []string  // alpha: core id; nil for beta

	Read, Kept int
	Dropped    []CodeCount // sorted by code
	// Hits counts candidate rows by 1-based slot whose value hit its bound in
	// some step (spec#bounds); such rows are dropped in both versions.
	Hits []int
	// Min and Max are the smallest and largest per-step values of each feature
	// over kept rows outside the hold-out (spec#training-range), taken before outliers go;
	// +Inf and -Inf without any.
	Min, Max []float64
	Findings []trace.Finding
}

// Row returns the features of row i. Of packed rows a whole block is unpacked for
// it: many rows are read by a Reader.
func (t *Table) Row(i int) []float64 { return t.Reader().Row(i) }

// Reader reads the features of rows. Each goroutine has its own.
type Reader struct {
	t      *Table
	packed *packed.Reader
}

// Reader begins to read the rows' features.
func (t *Table) Reader() *Reader {
	r := &Reader{t: t}
	if t.Packed != nil {
		r.packed = t.Packed.Reader()
	}
	return r
}

// Row is the features of row i, valid until the next call.
func (r *Reader) Row(i int) []float64 {
	if r.packed != nil {
		return r.packed.Row(i)
	}
	return r.t.X[i*r.t.P : (i+1)*r.t.P]
}

// Readers reads rows of several tables, one after the other.
type Readers struct{ last *Reader }

// Row is the features of row i of t, valid until the next call.
func (r *Readers) Row(t *Table, i int) []float64 {
	if r.last == nil || r.last.t != t {
		r.last = t.Reader()
	}
	return r.last.Row(i)
}

// DroppedFor returns how many rows were dropped for one reason.
func (t *Table) DroppedFor(code trace.Code) int {
	for _, c := range t.Dropped {
		if c.Code == code {
			return c.N
		}
	}
	return 0
}

// drop counts n rows under code, keeping Dropped sorted.
func (t *Table) drop(code trace.Code, n int) { t.Dropped = addCount(t.Dropped, code, n) }

func addCount(counts []CodeCount, code trace.Code, n int) []CodeCount {
	i, found := slices.BinarySearchFunc(counts, code, func(c CodeCount, want trace.Code) int {
		switch {
		case c.Code < want:
			return -1
		case c.Code > want:
			return 1
		}
		return 0
	})
	if found {
		counts[i].N += n
		return counts
	}
	return slices.Insert(counts, i, CodeCount{code, n})
}

// Filter keeps the rows for which keep is true and counts the others under
// code. Order is preserved.
func (t *Table) Filter(code trace.Code, keep func(i int) bool) {
	var gone []int
	for i := range t.Kept {
		if !keep(i) {
			gone = append(gone, i)
		}
	}
	if len(gone) == 0 {
		return
	}
	t.drop(code, len(gone))
	t.each(func(c column) { c.without(gone) })
	t.Kept -= len(gone)
	if t.Packed != nil {
		t.Packed = t.Packed.Filtered(func(i int) bool {
			if len(gone) > 0 && gone[0] == i {
				gone = gone[1:]
				return false
			}
			return true
		})
	}
}

// Select returns a new table with the rows for which keep is true and no drop
// counts; the receiver is unchanged.
func (t *Table) Select(keep func(i int) bool) *Table {
	var chosen []int
	for i := range t.Kept {
		if keep(i) {
			chosen = append(chosen, i)
		}
	}
	c := t.copyOf()
	c.each(func(col column) { col.permute(chosen) })
	if r := t.Reader(); t.Packed != nil {
		c.Packed = packed.NewFloats(t.P)
		for _, i := range chosen {
			c.Packed.Append(r.Row(i))
		}
		c.Packed.Seal()
	}
	c.Kept, c.Read, c.Dropped = len(chosen), len(chosen), nil
	return c
}

// check asserts the accounting; a failure is a bug of this package.
func (t *Table) check() {
	n := t.Kept
	for _, c := range t.Dropped {
		n += c.N
	}
	x := len(t.X)
	if t.Packed != nil {
		x = t.Packed.Len() * t.P
	}
	if n != t.Read || len(t.Y) != t.Kept || x != t.Kept*t.P {
		panic("rows: rows read differ from rows kept + dropped")
	}
}
