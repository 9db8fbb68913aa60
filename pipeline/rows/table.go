package rows

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
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
	Outlier                           // beyond the limit of its cell: judged, and no part of a largest error; never trained on
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
// order. All columns have Kept entries; X has Kept*P, row-major.
type Table struct {
	Run, Config string
	Target      string // cadence, duration, overhead, admission, egress or queue
	Lag         int    // beta cadence only
	Gamma       float64
	P           int

	X        []float64 // features, summed over the row's steps
	Variants []Variant // other smoothing factors, as asked for
	Y        []float64 // us; overhead: the upper bound
	Lo, Hi   []float64 // us; overhead only, nil otherwise
	Exact    []bool    // overhead only, nil otherwise
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

// Row returns the features of row i.
func (t *Table) Row(i int) []float64 { return t.X[i*t.P : (i+1)*t.P] }

// IsOutlier reports whether row i judges and is left out of largest errors.
func (t *Table) IsOutlier(i int) bool { return t.Sets != nil && t.Sets[i]&Outlier != 0 }

// DroppedFor returns how many rows were dropped for one reason.
func (t *Table) DroppedFor(code trace.Code) int {
	return stat.Sum(stat.Filter(t.Dropped, func(c codeCount) bool { return c.Code == code }), func(c codeCount) int { return c.N })
}

// Largest is the reason for which most rows were dropped, with its count; usual where none were.
func (t *Table) Largest(usual trace.Code) (trace.Code, int) {
	best := slices.MaxFunc(append([]codeCount{{Code: usual}}, t.Dropped...), func(a, b codeCount) int { return a.N - b.N })
	return best.Code, best.N
}

// drop counts n rows under code, keeping Dropped sorted.
func (t *Table) drop(code trace.Code, n int) { t.Dropped = addCount(t.Dropped, code, n) }

func addCount(counts []codeCount, code trace.Code, n int) []codeCount {
	i, found := slices.BinarySearchFunc(counts, code, func(c codeCount, want trace.Code) int { return cmp.Compare(c.Code, want) })
	if found {
		counts[i].N += n
		return counts
	}
	return slices.Insert(counts, i, codeCount{code, n})
}

// Filter keeps the rows for which keep is true and counts the others under
// code. Order is preserved.
func (t *Table) Filter(code trace.Code, keep func(i int) bool) {
	chosen := t.chosen(keep)
	if gone := t.Kept - len(chosen); gone > 0 {
		t.drop(code, gone)
		t.pick(chosen)
	}
}

// Select returns a new table with the rows for which keep is true and no drop
// counts; the receiver is unchanged.
func (t *Table) Select(keep func(i int) bool) *Table {
	c := t.copyOf()
	c.pick(t.chosen(keep))
	c.Read, c.Dropped = c.Kept, nil
	return c
}

// chosen are the rows that keep says yes to.
func (t *Table) chosen(keep func(i int) bool) []int {
	var out []int
	for i := range t.Kept {
		if keep(i) {
			out = append(out, i)
		}
	}
	return out
}

// pick makes the table one of the rows of order, in new columns.
func (t *Table) pick(order []int) {
	t.each(func(c column) { c.permute(order) })
	t.Kept = len(order)
}

// check asserts the accounting; a failure is a bug of this package.
func (t *Table) check() {
	n := t.Kept + stat.Sum(t.Dropped, func(c codeCount) int { return c.N })
	if n != t.Read || len(t.Y) != t.Kept || len(t.X) != t.Kept*t.P {
		panic("rows: rows read differ from rows kept + dropped")
	}
}

// tables packs what waits on disk; see files.Codec.
var tables = files.NewCodec[Table]()

// TableWriter writes tables to a file, one behind the other, for RestoreTables to read, bit for bit.
type TableWriter struct {
	file *os.File
	buf  []byte
}

// CreateTables makes such a file.
func CreateTables(path string) (*TableWriter, error) {
	f, err := os.Create(path)
	return &TableWriter{file: f}, err
}

// Encode writes a table behind its length.
func (w *TableWriter) Encode(t *Table) error {
	w.buf = tables.Append(append(w.buf[:0], make([]byte, 8)...), t)
	binary.LittleEndian.PutUint64(w.buf, uint64(len(w.buf)-8))
	_, err := w.file.Write(w.buf)
	return err
}

// Close ends the file.
func (w *TableWriter) Close() error { return w.file.Close() }

// RestoreTables reads the tables of a file, n of them.
func RestoreTables(path string, use func(i int, t *Table)) (n int, err error) {
	f, err := files.Open(path, false)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var buf []byte
	texts := files.NewInterner()
	for r := bufio.NewReader(f); ; n++ {
		var size [8]byte
		if _, err := io.ReadFull(r, size[:]); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
		buf = append(buf[:0], make([]byte, binary.LittleEndian.Uint64(size[:]))...)
		t := &Table{}
		if _, err = io.ReadFull(r, buf); err == nil {
			err = tables.Decode(buf, t, texts)
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
		t.check()
		use(n, t)
	}
}

// tableName is the rows table written beside the fit (`fit --dump-rows`).
const tableName = "rows"

// DumpRow is one training row on disk: everything needed to fit with other
// tools.
type DumpRow struct {
	Run       string             `col:"run_id" doc:"engine run"`
	Config    string             `col:"config" doc:"configuration key"`
	Target    string             `col:"target" doc:"cadence, duration, overhead, admission, egress or queue"`
	Lag       int64              `col:"lag" unit:"steps" doc:"schedule-to-execution lag applied"`
	TimeNs    int64              `col:"time_ns" unit:"ns" doc:"start of the interval, or arrival; monotonic"`
	FirstStep int64              `col:"first_step" doc:"first step whose features are summed; the joined step of alpha rows"`
	LastStep  int64              `col:"last_step" doc:"last step whose features are summed"`
	Steps     float64            `col:"steps" unit:"steps" doc:"engine steps the row covers"`
	Request   trace.Opt[string]  `col:"core_id" doc:"alpha rows: the request"`
	Phase     trace.Opt[string]  `col:"phase" doc:"phase of run.yaml; null outside all"`
	Regime    string             `col:"regime" doc:"decode, prefill or mixed; alpha: idle or waiting"`
	Source    string             `col:"source" doc:"where the features come from: rich, journey, approximate, lag_approximate"`
	YUs       float64            `col:"y_us" unit:"us" doc:"target; overhead: the upper bound"`
	LoUs      trace.Opt[float64] `col:"lo_us" unit:"us" doc:"overhead: lower bound"`
	HiUs      trace.Opt[float64] `col:"hi_us" unit:"us" doc:"overhead: upper bound"`
	Exact     trace.Opt[bool]    `col:"exact" doc:"overhead: the value is known"`
	Factor    float64            `col:"factor" doc:"weight factor: 0.5 for a row that preempts, else 1"`
	HoldOut   bool               `col:"hold_out" doc:"last part of its phase: not used for training"`
	FloorUs   float64            `col:"floor_us" unit:"us" doc:"time to read the weights, summed over the row's steps"`
	Names     []string           `col:"feature_names" doc:"names of the features, in order"`
	X         []float64          `col:"features" doc:"features summed over the row's steps; s or dimensionless"`
}

// WriteParquet writes the rows of the tables, in order, as rows.parquet in dir.
// names are the features' names by target; phases are looked up in the
// deployment of the table's run (nil: none).
func WriteParquet(dir string, tables []*Table, names func(t *Table) []string, phases func(run string) []deploy.Phase) error {
	w, err := table.Create[DumpRow](dir, tableName, table.Parquet)
	if err != nil {
		return err
	}
	for _, t := range tables {
		columns, ph := names(t), phases(t.Run)
		for i := range t.Kept {
			if err := w.Append(t.dumpRow(i, slices.Clone(t.Row(i)), columns, ph)); err != nil {
				w.Abort()
				return err
			}
		}
	}
	return w.Close()
}

func (t *Table) dumpRow(i int, x []float64, names []string, phases []deploy.Phase) DumpRow {
	r := DumpRow{Run: t.Run, Config: t.Config, Target: t.Target, Lag: int64(t.Lag), TimeNs: t.TimeNs[i],
		FirstStep: t.FirstStep[i], LastStep: t.LastStep[i], Steps: t.Steps[i], Regime: t.Regime[i].String(),
		Source: t.Tag[i].String(), YUs: t.Y[i], Factor: t.Factor[i], HoldOut: t.HoldOut[i], FloorUs: t.FloorUs[i], Names: names, X: x}
	if p := t.Phase[i]; p >= 0 && int(p) < len(phases) {
		r.Phase = trace.Some(phases[p].Name)
	}
	if t.Exact != nil {
		r.LoUs, r.HiUs, r.Exact = trace.Some(t.Lo[i]), trace.Some(t.Hi[i]), trace.Some(t.Exact[i])
	}
	if t.ID != nil {
		r.Request = trace.Some(t.ID[i])
	}
	return r
}

// Variant is what another smoothing factor of the preemption average makes of a
// table: the columns of X that differ in some row.
type Variant struct {
	Gamma  float64
	Cols   []int       // ascending
	Values [][]float64 // Values[k]: column Cols[k], one value per row
}

// variants follows the other smoothing factors while a table is made.
type variants struct {
	ema [][]float64 // by factor, by recorded step; nil: nothing was preempted, all are equal
	x   []float64
}

func (s *Steps) newVariants(t *Table, gammas []float64) variants {
	t.Variants = append(t.Variants, stat.Map(gammas, func(g float64) Variant { return Variant{Gamma: g} })...)
	if !s.Preempts() {
		return variants{}
	}
	return variants{x: make([]float64, t.P), ema: stat.Map(gammas, s.emas)}
}

// Preempts reports whether some recorded step preempted a request.
func (s *Steps) Preempts() bool {
	return slices.ContainsFunc(s.Run.Steps, func(r trace.Step) bool { return r.NumPreempted != 0 })
}

// keep notes the row last added to t, whose features are own; at writes them under
// another average into x.
func (v *variants) keep(t *Table, own []float64, at func(ema, x []float64)) {
	for k, ema := range v.ema {
		at(ema, v.x)
		t.Variants[k].add(t, own, v.x)
	}
}

// add notes x for the last row of t, which is last.
func (v *Variant) add(t *Table, last, x []float64) {
	for j := range x {
		if x[j] == last[j] {
			continue
		}
		if k, known := slices.BinarySearch(v.Cols, j); !known {
			v.Cols, v.Values = slices.Insert(v.Cols, k, j), slices.Insert(v.Values, k, t.column(j, t.Kept-1))
		}
	}
	for k, j := range v.Cols {
		v.Values[k] = append(v.Values[k], x[j])
	}
}

// column is column j of the first n rows.
func (t *Table) column(j, n int) []float64 {
	out := make([]float64, n, cap(t.Y))
	for i := range out {
		out[i] = t.Row(i)[j]
	}
	return out
}

// Column is column j of all rows under a smoothing factor.
func (t *Table) Column(gamma float64, j int) []float64 {
	if v := t.variant(gamma); v != nil {
		if k, own := slices.BinarySearch(v.Cols, j); own {
			return v.Values[k]
		}
	}
	return t.column(j, t.Kept)
}

// variant is nil for the table's own factor.
func (t *Table) variant(gamma float64) *Variant {
	for k := range t.Variants {
		if t.Variants[k].Gamma == gamma {
			return &t.Variants[k]
		}
	}
	return nil
}

// At is the table under one of its variants, or under its own factor; the rows
// are shared, a changed X is a copy.
func (t *Table) At(gamma float64) *Table {
	out := *t
	out.Gamma, out.Variants = gamma, nil
	v := t.variant(gamma)
	if v == nil || len(v.Cols) == 0 {
		return &out
	}
	out.X = slices.Clone(t.X)
	for c, j := range v.Cols {
		for i, x := range v.Values[c] {
			out.X[i*t.P+j] = x
		}
	}
	return &out
}

// others are the factors but one.
func others(gammas []float64, own float64) []float64 {
	return slices.DeleteFunc(slices.Clone(gammas), func(g float64) bool { return g == own })
}

// vectorUnder is vector with another average: bounds and refusals are those of
// the row itself.
func (b *betaBuilder) vectorUnder(iv interval, ema, x []float64) {
	own := b.ema
	b.ema = ema
	clear(x)
	for u := iv.from; u <= iv.to; u++ {
		one, _, _ := b.step(u)
		for j, v := range one {
			x[j] += v
		}
	}
	b.ema = own
}

// vectorUnder is the features of request r joined to recorded step k with another average.
func (b *alphaBuilder) vectorUnder(in features.QueueInput, average float64, x []float64) {
	in.PreemptionEMA = average
	_, _ = b.sp.Alpha(&in, x)
}
