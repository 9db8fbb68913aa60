package rows

// This file has the table of training rows, which every later stage reads.

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// Regime is the kind of work in a row (spec#regimes): decode, prefill or mixed for step times; idle
// (no request waits) or waiting for delays.
type Regime uint8

// The regimes.
const (
	Decode Regime = iota
	Prefill
	Mixed
	Idle
	Waiting
)

var regimeNames = [...]string{coeff.RegimeDecode, coeff.RegimePrefill, coeff.RegimeMixed, "idle", "waiting"}

// String returns the regime's name in tables and reports.
func (r Regime) String() string { return regimeNames[r] }

// StressSet is a set of rows whose errors are also reported separately. A row may be in several.
type StressSet uint8

// The stress sets; a row may be in several.
const (
	Preempting  StressSet = 1 << iota // a step of the row preempted a request
	fullCache                         // KV usage above 0.9
	purePrefill                       // no decode in the row
	PureDecode                        // no prefill in the row
	fewTokens                         // 1 to 4 scheduled tokens in every step
	Outlier                           // beyond the limit of its cell: judged, and no part of a largest error; never trained on
)

// Limits of the stress sets. The names in StressSets have the same numbers.
const (
	fullCacheUsage = 0.9
	fewTokensTop   = 4
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

// Table has the training rows of one run and target, by column, in time
// order. All columns have Kept entries; X has Kept*P, row-major.
type Table struct {
	Run, Config string
	Target      string  // cadence, duration, overhead, admission, egress or queue
	Lag         int     // beta (step times), target cadence only: steps between schedule() and execution
	Gamma       float64 // smoothing factor of the preemption average in X
	P           int     // features

	X        []float64 // features, summed over the row's steps
	Variants []Variant // other smoothing factors, as asked for
	Y        []float64 // us; overhead: the upper bound
	Lo, Hi   []float64 // us, the interval that contains the target; overhead only, nil otherwise
	Exact    []bool    // the interval is one value; overhead only, nil otherwise
	Steps    []float64 // engine steps the row covers; 1 for alpha
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
	Dropped    []codeCount // sorted by code
	// Hits counts candidate rows by 1-based slot whose value hit its bound in
	// some step (spec#bounds); such rows are dropped in both versions.
	Hits []int
	// Min and Max are the smallest and largest per-step values of each feature
	// over kept rows outside the hold-out (spec#training-range), taken before outliers go;
	// +Inf and -Inf without any.
	Min, Max []float64
	Findings []trace.Finding
}

// ForgetDetails drops the columns that neither a fit nor its errors by regime and batch read.
func (t *Table) ForgetDetails() {
	t.Tag = nil
	t.Phase = nil
	t.FloorUs = nil
	t.Context = nil
}

// Row returns the features of row i.
func (t *Table) Row(i int) []float64 { return t.X[i*t.P : (i+1)*t.P] }

// IsOutlier reports whether row i is an outlier. It is compared with its prediction, but a largest
// error does not count it.
func (t *Table) IsOutlier(i int) bool { return t.Sets != nil && t.Sets[i]&Outlier != 0 }

// DroppedFor returns how many rows were dropped for one reason.
func (t *Table) DroppedFor(code trace.Code) int {
	n := 0
	for _, c := range t.Dropped {
		if c.Code == code {
			n += c.N
		}
	}
	return n
}

// Largest returns the reason for which most rows were dropped, and their number; usual and 0 if none
// was dropped.
func (t *Table) Largest(usual trace.Code) (trace.Code, int) {
	best := slices.MaxFunc(append([]codeCount{{Code: usual}}, t.Dropped...), func(a, b codeCount) int { return a.N - b.N })
	return best.Code, best.N
}

// countDrop adds n rows to the count of a code; Dropped stays sorted.
func (t *Table) countDrop(code trace.Code, n int) { t.Dropped = addDrops(t.Dropped, code, n) }

// addDrops returns the sorted counts with n added to that of a code.
func addDrops(counts []codeCount, code trace.Code, n int) []codeCount {
	i, found := slices.BinarySearchFunc(counts, code, func(c codeCount, want trace.Code) int { return cmp.Compare(c.Code, want) })
	if found {
		counts[i].N += n
		return counts
	}
	return slices.Insert(counts, i, codeCount{code, n})
}

// codeCount is how many rows were dropped for one reason.
type codeCount struct {
	Code trace.Code
	N    int
}
