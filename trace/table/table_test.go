package table_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// fill sets every field of a row to a value made from i; every third nullable
// stays unknown.
func fill(v reflect.Value, i int) {
	for j := range v.NumField() {
		f := v.Field(j)
		switch {
		case f.Kind() == reflect.Struct:
			if (i+j)%3 != 0 {
				f.Field(1).SetBool(true)
				setScalar(f.Field(0), i*31+j)
			}
		case f.Kind() == reflect.Slice:
			for k := range i % 4 {
				f.Set(reflect.Append(f, reflect.Zero(f.Type().Elem())))
				setScalar(f.Index(k), i+k)
			}
		default:
			setScalar(f, i*31+j)
		}
	}
}

func setScalar(f reflect.Value, n int) {
	switch f.Kind() {
	case reflect.Int64:
		f.SetInt(math.MaxInt64 - int64(n))
	case reflect.Float64:
		f.SetFloat(float64(n) / 3)
	case reflect.Bool:
		f.SetBool(n%2 == 0)
	case reflect.String:
		f.SetString(fmt.Sprintf("s-%d é", n%7))
	}
}

func rows[T any](n int) []T {
	out := make([]T, n)
	for i := range out {
		fill(reflect.ValueOf(&out[i]).Elem(), i)
		inOrder(any(&out[i]), int64(i))
	}
	return out
}

// inOrder gives row i a place behind the rows before it.
func inOrder(row any, i int64) {
	switch r := row.(type) {
	case *trace.Step:
		r.ID = i
	case *trace.Snapshot:
		r.StepID = i / 3
	case *trace.Request:
		r.ArrivedNs = trace.Some(i)
	case *trace.JourneyEvent:
		r.CoreID = fmt.Sprintf("%08d", i/3)
	}
}

func roundTrip[T any](t *testing.T, format table.Format, n int) {
	t.Helper()
	dir := t.TempDir()
	want := rows[T](n)
	if err := table.Write(dir, "x", format, want); err != nil {
		t.Fatal(err)
	}
	got, err := table.ReadFile[T](filepath.Join(dir, "x."+string(format)))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) { // a tenth of the time of cmp
		t.Errorf("%T, %s: rows changed on disk (-want +got):\n%s", want, format, cmp.Diff(want, got))
	}
}

func TestRowsComeBackExactly(t *testing.T) {
	for _, f := range []table.Format{table.Parquet, table.Arrow} {
		roundTrip[trace.Request](t, f, 50)
		roundTrip[trace.JourneyEvent](t, f, 50)
		roundTrip[trace.Step](t, f, 50)
		roundTrip[trace.Snapshot](t, f, table.RowGroupRows+3)
		roundTrip[trace.KVEvent](t, f, 5000)
		roundTrip[trace.ObservedRequest](t, f, 5000)
	}
}

func TestTableWithoutRowsIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	if err := table.Write[trace.Step](dir, table.Steps, table.Parquet, nil); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("got %v, want an empty folder", left)
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := table.Create[trace.Step](dir, table.Steps, table.Parquet)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(rows[trace.Step](table.RowGroupRows + 1)...); err != nil {
		t.Fatal(err)
	}
	if during, _ := filepath.Glob(filepath.Join(dir, "*.parquet")); len(during) != 0 {
		t.Errorf("a half-written table has a final name: %v", during)
	}
	w.Abort()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("got %v after Abort, want an empty folder", left)
	}
}

func TestSameRowsSameBytes(t *testing.T) {
	read := func() []byte {
		dir := t.TempDir()
		if err := table.Write(dir, table.Steps, table.Parquet, rows[trace.Step](1000)); err != nil {
			t.Fatal(err)
		}
		b := repo.Read(t, dir, "steps.parquet")
		return b
	}
	if first, second := read(), read(); string(first) != string(second) {
		t.Error("the same rows gave different bytes")
	}
}

func TestForeignParquetIsRefused(t *testing.T) {
	type row struct {
		A int64 `col:"a"`
	}
	dir := t.TempDir()
	if err := table.Write(dir, table.Steps, table.Parquet, []row{{1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Read(dir); err == nil {
		t.Error("a steps table without its columns was accepted")
	}
}

func TestRunIDsNamesTheCommand(t *testing.T) {
	_, err := table.RunIDs(t.TempDir())
	if trace.CodeOf(err) != table.CodeNoTables || trace.HintOf(err) == "" {
		t.Errorf("got %v, want %s with a hint", err, table.CodeNoTables)
	}
}

var update = flag.Bool("update", false, "rewrite generated files")

func TestTablesDocIsGenerated(t *testing.T) {
	const path = "../../docs/tables.md"
	if *update {
		repo.Write(t, table.Markdown(), path)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != table.Markdown() {
		t.Errorf("docs/tables.md is stale (%v): run `go generate ./trace/table`", err)
	}
}

// TestSameBytesOfUnlikeTexts: columns of many long and different texts, lists and
// plain ones, give the same file every time.
func TestSameBytesOfUnlikeTexts(t *testing.T) {
	rows := make([]trace.KVEvent, 40000)
	for i := range rows {
		unlike := fmt.Sprintf("%064d", i*7919)
		rows[i] = trace.KVEvent{Kind: unlike, Hashes: []string{unlike, unlike[1:]}, Parent: trace.Some(unlike), Line: int64(i)}
	}
	var first []byte
	for range 5 {
		dir := t.TempDir()
		if err := table.Write(dir, "x", table.Parquet, rows); err != nil {
			t.Fatal(err)
		}
		b := repo.Read(t, dir, "x.parquet")
		if first == nil {
			first = b
		}
		if !bytes.Equal(first, b) {
			t.Fatalf("got other bytes of the same rows")
		}
	}
}

// mixed has a column of every kind and nullability.
type mixed struct {
	Int    int64              `col:"int"`
	MaybeI trace.Opt[int64]   `col:"maybe_int"`
	Us     int64              `col:"us" unit:"us"`
	MaybeF trace.Opt[float64] `col:"maybe_float"`
	Bool   bool               `col:"bool"`
	MaybeB trace.Opt[bool]    `col:"maybe_bool"`
	Text   string             `col:"text"`
	MaybeT trace.Opt[string]  `col:"maybe_text"`
	Texts  []string           `col:"texts"`
}

// TestPagesOfAnyRuns: values in runs short and long, few and many of them unlike, known always, now and then or never, and lists
// of more values than a page takes come back, from our reader and, a column of each coding, from the library's.
func TestPagesOfAnyRuns(t *testing.T) { pagesOfAnyRuns(t, 40) }

// TestEvalPagesOfAnyRuns: the same of ten times as many tables.
func TestEvalPagesOfAnyRuns(t *testing.T) {
	repo.NeedEval(t)
	pagesOfAnyRuns(t, 400)
}

func pagesOfAnyRuns(t *testing.T, tables int) {
	t.Helper()
	rng := rand.New(rand.NewSource(1))
	for i := range tables {
		rows := make([]mixed, []int{1, 7, 8, 9, 504, 505, 3000}[rng.Intn(7)])
		kinds := []int64{1, 2, 5, 300, 1 << 40}[rng.Intn(5)]
		run := 1 + rng.Intn(20)
		known := []float64{0, .01, .5, 1}[rng.Intn(4)]
		v := int64(0)
		is := func() bool { return rng.Float64() < known }
		for k := range rows {
			if rng.Intn(run) == 0 {
				v = rng.Int63n(kinds)
			}
			r := &rows[k]
			if r.Int, r.Us, r.Bool, r.Text = v, rng.Int63(), v%2 == 0, fmt.Sprint(v%1000); is() {
				r.MaybeI, r.MaybeF, r.MaybeB, r.MaybeT = trace.Some(v), trace.Some(float64(v)/3), trace.Some(v%3 == 0), trace.Some(r.Text)
			}
			if known == 1 && i%4 == 0 {
				r.Texts = strings.Split(strings.Repeat(r.Text+" ", 40)+"x", " ")
			}
		}
		dir := t.TempDir()
		if err := table.Write(dir, "x", table.Parquet, rows); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "x.parquet")
		got, err := table.ReadFile[mixed](path)
		if d := cmp.Diff(rows, got); err != nil || d != "" {
			t.Fatalf("case %d: %v (-want +got):\n%s", i, err, d)
		}
		rd, err := file.OpenParquetFile(path, false)
		if err != nil {
			t.Fatal(err)
		}
		ints := make([]int64, len(rows))
		defs := make([]int16, len(rows))
		for col, of := range []func(*mixed) trace.Opt[int64]{
			func(r *mixed) trace.Opt[int64] { return trace.Some(r.Int) }, func(r *mixed) trace.Opt[int64] { return r.MaybeI },
			func(r *mixed) trace.Opt[int64] { return trace.Some(r.Us) },
		} {
			cr, err := rd.RowGroup(0).Column(col)
			if err != nil {
				t.Fatal(err)
			}
			n, _, err := cr.(*file.Int64ColumnChunkReader).ReadBatch(int64(len(rows)), ints, defs, nil)
			if err != nil || int(n) != len(rows) {
				t.Fatalf("case %d column %d: the library reads %d of %d values: %v", i, col, n, len(rows), err)
			}
			at := 0
			for k := range rows {
				want := of(&rows[k])
				if col == 1 && want.OK != (defs[k] == 1) || want.OK && ints[at] != want.V {
					t.Fatalf("case %d column %d row %d: the library reads %d, want %v", i, col, k, ints[at], want)
				}
				if want.OK {
					at++
				}
			}
		}
		rd.Close()
	}
}

// snapshotsLike are snapshots as a busy engine writes them: steps of running
// requests whose context grows by one token a step.
func snapshotsLike(steps, running int) []trace.Snapshot {
	rng := rand.New(rand.NewSource(1))
	out := make([]trace.Snapshot, 0, steps*running)
	for s := range steps {
		for r := range running {
			id := (s+r*7)/97*running + r
			age := int64((s + r*7) % 97)
			out = append(out, trace.Snapshot{StepID: int64(s + 1), CoreID: fmt.Sprintf("cmpl-%016x-0-%08x", id*7919, id), Phase: "DECODE",
				PromptTokens:   int64(100 + id%700),
				ComputedTokens: int64(100+id%700) + age, OutputTokens: age, ScheduledTokens: 1, BlocksAllocated: int64(10 + id%40),
				BlocksCached:       int64(rng.Intn(40)),
				EffectivePromptLen: trace.Some(int64(100 + id%700))})
		}
	}
	return out
}

func stepsLike(n int) []trace.Step {
	rng := rand.New(rand.NewSource(2))
	out := make([]trace.Step, n)
	at := int64(20e12)
	for i := range out {
		at += 12e6 + rng.Int63n(5e6)
		out[i] = trace.Step{ID: int64(i + 1), TsStartNs: at, TsEndNs: at + 4e5 + rng.Int63n(1e5), DurationUs: 400 + rng.Int63n(100),
			RunningDepth: 16, NumDecodeReqs: 16, ScheduledTokens: 16,
			DecodeTokens: 16, KVUsage: rng.Float64(), BlocksTotal: 5000, BlocksFree: rng.Int63n(5000), WallNs: 1771362150e9 + at,
			SpanSequence: int64(i / 100), NumSnapshots: 16}
	}
	return out
}

func requestsLike(n int) []trace.Request {
	out := rows[trace.Request](n)
	for i := range out {
		r := &out[i]
		r.ArrivedNs = trace.Some(int64(i) * 1e7)
		r.CoreID, r.APIID = trace.Some(fmt.Sprintf("cmpl-%016x-0-%08x", i*7919, i)), trace.Some(fmt.Sprintf("cmpl-%016x", i*7919))
		r.TraceID, r.CoreSpanID = trace.Some(fmt.Sprintf("%032x", i*104729)), trace.Some(fmt.Sprintf("%016x", i*15485863))
	}
	return out
}

func benchRead[T any](b *testing.B, name string, want []T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		b.Run(fmt.Sprintf("%s/%s", name, format), func(b *testing.B) {
			dir := b.TempDir()
			if err := table.Write(dir, name, format, want); err != nil {
				b.Fatal(err)
			}
			path := filepath.Join(dir, name+"."+string(format))
			st, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(st.Size())
			b.ReportAllocs()
			for b.Loop() {
				got, err := table.ReadFile[T](path)
				if err != nil || len(got) != len(want) {
					b.Fatalf("got %d rows and %v, want %d", len(got), err, len(want))
				}
			}
			b.ReportMetric(float64(len(want)*b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

// BenchmarkRead reads whole tables back.
func BenchmarkRead(b *testing.B) {
	benchRead(b, table.Steps, stepsLike(200_000))
	benchRead(b, table.Snapshots, snapshotsLike(20_000, 20))
	benchRead(b, table.Requests, requestsLike(30_000))
}

// A row may embed the columns of another, and name columns that a file need not have.
func TestRowsOfOtherPrograms(t *testing.T) {
	type common struct {
		Op string `col:"op"`
	}
	type written struct {
		N  int64  `col:"n"`
		Op string `col:"op"`
	}
	type read struct {
		N int64 `col:"n"`
		common
		Window trace.Opt[int64] `col:"window" missing:"unknown"`
	}
	dir := t.TempDir()
	if err := table.Write(dir, "x", table.Parquet, []written{{7, "gemm"}, {8, "moe"}}); err != nil {
		t.Fatal(err)
	}
	got, err := table.ReadFile[read](filepath.Join(dir, "x.parquet"))
	if want := []read{{N: 7, common: common{"gemm"}}, {N: 8, common: common{"moe"}}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	type strict struct {
		Window trace.Opt[int64] `col:"window"`
	}
	if _, err := table.ReadFile[strict](filepath.Join(dir, "x.parquet")); err == nil || !strings.Contains(err.Error(), "not in the file") {
		t.Errorf("a column that must be there: got %v", err)
	}
}

// Tables that DuckDB, pandas, polars and pyarrow wrote anew are read right, or
// refused with the column's name.
func TestRewrittenTables(t *testing.T) {
	refused := map[string]string{
		"duckdb-v2/steps":       "column step_id: got the encoding DELTA_BINARY_PACKED",
		"pandas-numpy/requests": "column aborted_ns: got DOUBLE, want int64",
	}
	files, err := filepath.Glob("testdata/rewritten/*/*.parquet")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".parquet")
		writer := filepath.Base(filepath.Dir(f))
		if writer == "extract" {
			continue
		}
		want, err := table.Read("testdata/rewritten/extract", name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := table.Read(filepath.Dir(f), name)
		if says := refused[writer+"/"+name]; says != "" {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: got %v, want %q", f, err, says)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		got.ID = want.ID
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: read differently (-want +got):\n%s", f, diff)
		}
	}
}

// swap is a table of which one column was changed.
type swap struct {
	row    any // names the table
	column string
	typ    arrow.DataType // nil leaves the column out
	null   bool           // the last row has none
	far    bool           // an unsigned value above 63 bits
	says   string         // "" for accepted
}

var swaps = []swap{
	{row: trace.Step{}, column: "step_id", typ: arrow.BinaryTypes.String, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Float64, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.FixedWidthTypes.Boolean, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.FixedWidthTypes.Timestamp_ns, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: &arrow.Decimal128Type{Precision: 18}, says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.ListOf(arrow.PrimitiveTypes.Int64), says: "want int64"},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int32},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int16},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int8},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint64},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint32},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint16},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Uint8},
	{row: trace.Step{}, column: "blocks", says: ""}, // a column nobody asked for
	{row: trace.Step{}, column: "step_id", says: "not in the file"},
	{row: trace.Step{}, column: "step_id", typ: arrow.PrimitiveTypes.Int64, null: true, says: "got a null"},
	{row: trace.Step{}, column: "wall_ns", typ: arrow.PrimitiveTypes.Uint64, far: true, says: "want at most 9223372036854775807"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.PrimitiveTypes.Int64, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.PrimitiveTypes.Float32, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.BinaryTypes.String, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.FixedWidthTypes.Boolean, says: "want float64"},
	{row: trace.Step{}, column: "kv_usage_ratio", typ: arrow.PrimitiveTypes.Float64, null: true, says: "got a null"},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.PrimitiveTypes.Int64, says: "want string"},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.BinaryTypes.Binary, says: "want string"},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.BinaryTypes.LargeString},
	{row: trace.Snapshot{}, column: "core_id", typ: arrow.BinaryTypes.String, null: true, says: "got a null"},
	{row: trace.Snapshot{}, column: "orphan", typ: arrow.PrimitiveTypes.Int64, says: "want bool"},
	{row: trace.Snapshot{}, column: "orphan", typ: arrow.BinaryTypes.String, says: "want bool"},
	{row: trace.Snapshot{}, column: "orphan", typ: arrow.PrimitiveTypes.Float64, says: "want bool"},
	{row: trace.Snapshot{}, column: "effective_prompt_len", typ: arrow.PrimitiveTypes.Int64, null: true},
	{row: trace.Snapshot{}, column: "effective_prompt_len", typ: arrow.PrimitiveTypes.Uint8, null: true},
	{row: trace.Snapshot{}, column: "effective_prompt_len", typ: arrow.PrimitiveTypes.Float64, null: true, says: "want int64"},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.BinaryTypes.String, says: "want list<string>"},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.ListOf(arrow.PrimitiveTypes.Int64), says: "want list<string>"},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.ListOf(arrow.BinaryTypes.String)},
	{row: trace.KVEvent{}, column: "block_hashes", typ: arrow.ListOf(arrow.BinaryTypes.String), null: true, says: "got a null in a list"},
	{row: trace.ObservedRequest{}, column: "chunk_gaps_us", typ: arrow.PrimitiveTypes.Float64, says: "want list<float64>"},
	{row: trace.ObservedRequest{}, column: "chunk_gaps_us", typ: arrow.ListOf(arrow.BinaryTypes.String), says: "want list<float64>"},
}

// Every swap of a column's type is refused with the column's name before a
// value is stored, unless the values are the same numbers in another width.
func TestColumnTypesAreCompared(t *testing.T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		for _, s := range swaps {
			path := filepath.Join(t.TempDir(), "x."+string(format))
			err := s.write(path, format)
			if err == nil {
				err = s.read(path)
			}
			where := fmt.Sprintf("%s: %T.%s as %v", format, s.row, s.column, s.typ)
			switch {
			case s.says == "" && err != nil:
				t.Errorf("%s: got %v, want it read", where, err)
			case s.says != "" && (err == nil || !strings.Contains(err.Error(), s.says) || !strings.Contains(err.Error(), "column "+s.column)):
				t.Errorf("%s: got %v, want %q", where, err, s.says)
			case s.says != "" && (trace.CodeOf(err) != table.CodeDamaged || trace.HintOf(err) == ""):
				t.Errorf("%s: got %v without code and hint", where, err)
			}
		}
	}
}

// read reads the rows and checks the values of the swapped column.
func (s *swap) read(path string) error {
	check := func(n int, ok bool, err error) error {
		if err == nil && (n != 3 || !ok) {
			err = fmt.Errorf("got %d rows, want 3 with their numbers", n)
		}
		return err
	}
	switch s.row.(type) {
	case trace.Step:
		rows, err := table.ReadFile[trace.Step](path)
		return check(len(rows), err != nil || rows[2].ID == 2, err)
	case trace.Snapshot:
		rows, err := table.ReadFile[trace.Snapshot](path)
		return check(len(rows), err != nil || rows[2].StepID == 2 && rows[1].EffectivePromptLen.V == 1, err)
	case trace.KVEvent:
		rows, err := table.ReadFile[trace.KVEvent](path)
		return check(len(rows), err != nil || len(rows[1].Hashes) == 1, err)
	}
	rows, err := table.ReadFile[trace.ObservedRequest](path)
	return check(len(rows), err != nil || len(rows[1].ChunkGapsUs) == 1, err)
}

func (s *swap) columns() []table.Column {
	switch s.row.(type) {
	case trace.Step:
		return table.Columns[trace.Step]()
	case trace.Snapshot:
		return table.Columns[trace.Snapshot]()
	case trace.KVEvent:
		return table.Columns[trace.KVEvent]()
	}
	return table.Columns[trace.ObservedRequest]()
}

// write writes three rows of the table, the column swapped.
func (s *swap) write(path string, format table.Format) error {
	var fields []arrow.Field
	cols := s.columns()
	if s.column == "blocks" {
		cols = append(cols, table.Column{Name: "blocks", Type: "int64"})
	}
	for _, c := range cols {
		typ, null := ownType(c.Type), c.Nullable
		if c.Name == s.column && s.column != "blocks" {
			if s.typ == nil {
				continue
			}
			typ, null = s.typ, true
		}
		fields = append(fields, arrow.Field{Name: c.Name, Type: typ, Nullable: null})
	}
	sc := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	defer b.Release()
	for i, f := range fields {
		for row := range 3 {
			changed := f.Name == s.column
			appendAny(b.Field(i), row, changed && s.null && row == 2, changed && s.far)
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	if format == table.Arrow {
		w, err := ipc.NewFileWriter(out, ipc.WithSchema(sc))
		if err != nil {
			return err
		}
		return errors.Join(w.Write(rec), w.Close())
	}
	return writeParquet(out, fields, s)
}

// writeParquet writes the same rows as Parquet.
func writeParquet(out io.Writer, fields []arrow.Field, s *swap) error {
	var nodes schema.FieldList
	for _, f := range fields {
		nodes = append(nodes, nodeOf(f))
	}
	root := schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1))
	w := file.NewParquetWriter(out, root)
	rg := w.AppendRowGroup()
	for _, f := range fields {
		changed := f.Name == s.column
		vals := []int{0, 1, 2}
		defs := []int16(nil)
		reps := []int16(nil)
		_, list := f.Type.(*arrow.ListType)
		most := int16(0)
		if f.Nullable {
			most++
		}
		if list {
			most += 2
		}
		if most > 0 {
			defs = []int16{most, most, most}
			reps = []int16{0, 0, 0}
		}
		if changed && s.null {
			vals, defs[2] = vals[:2], most-1
		}
		cw, err := rg.NextColumn()
		if err != nil {
			return err
		}
		if err := errors.Join(writeInts(cw, vals, defs, reps, changed && s.far), cw.Close()); err != nil {
			return err
		}
	}
	return errors.Join(rg.Close(), w.Close())
}

// nodeOf is a column in Parquet's terms.
func nodeOf(f arrow.Field) schema.Node {
	rep := parquet.Repetitions.Required
	if f.Nullable {
		rep = parquet.Repetitions.Optional
	}
	if l, ok := f.Type.(*arrow.ListType); ok {
		elem := nodeOf(arrow.Field{Name: "element", Type: l.Elem(), Nullable: true})
		mid := schema.MustGroup(schema.NewGroupNode("list", parquet.Repetitions.Repeated, schema.FieldList{elem}, -1))
		return schema.MustGroup(schema.NewGroupNodeLogical(f.Name, rep, schema.FieldList{mid}, schema.NewListLogicalType(), -1))
	}
	var logical schema.LogicalType = schema.NoLogicalType{}
	var physical parquet.Type
	switch t := f.Type.(type) {
	case *arrow.Int64Type:
		physical = parquet.Types.Int64
	case *arrow.Uint64Type:
		physical = parquet.Types.Int64
		logical = schema.NewIntLogicalType(64, false)
	case *arrow.Int32Type, *arrow.Int16Type, *arrow.Int8Type:
		physical = parquet.Types.Int32
		logical = schema.NewIntLogicalType(int8(t.(arrow.FixedWidthDataType).BitWidth()), true)
	case *arrow.Uint32Type, *arrow.Uint16Type, *arrow.Uint8Type:
		physical = parquet.Types.Int32
		logical = schema.NewIntLogicalType(int8(t.(arrow.FixedWidthDataType).BitWidth()), false)
	case *arrow.Float64Type:
		physical = parquet.Types.Double
	case *arrow.Float32Type:
		physical = parquet.Types.Float
	case *arrow.BooleanType:
		physical = parquet.Types.Boolean
	case *arrow.TimestampType:
		physical = parquet.Types.Int64
		logical = schema.NewTimestampLogicalType(true, schema.TimeUnitNanos)
	case *arrow.Decimal128Type:
		physical = parquet.Types.Int64
		logical = schema.NewDecimalLogicalType(t.Precision, 0)
	case *arrow.BinaryType:
		physical = parquet.Types.ByteArray
	default:
		physical = parquet.Types.ByteArray
		logical = schema.StringLogicalType{}
	}
	return schema.MustPrimitive(schema.NewPrimitiveNodeLogical(f.Name, rep, logical, physical, 0, -1))
}

// writeInts writes numbers in the column's type.
func writeInts(cw file.ColumnChunkWriter, vals []int, defs, reps []int16, far bool) (err error) {
	switch w := cw.(type) {
	case *file.Int64ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) int64 {
			if far {
				return -1
			}
			return int64(v)
		}), defs, reps)
	case *file.Int32ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) int32 { return int32(v) }), defs, reps)
	case *file.Float64ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) float64 { return float64(v) }), defs, reps)
	case *file.Float32ColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) float32 { return float32(v) }), defs, reps)
	case *file.BooleanColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) bool { return v == 1 }), defs, reps)
	case *file.ByteArrayColumnChunkWriter:
		_, err = w.WriteBatch(each(vals, func(v int) parquet.ByteArray { return parquet.ByteArray(fmt.Sprint(v)) }), defs, reps)
	default:
		err = fmt.Errorf("unexpected column writer %T", cw)
	}
	return err
}

func each[V any](vals []int, f func(int) V) []V {
	out := make([]V, len(vals))
	for i, v := range vals {
		out[i] = f(v)
	}
	return out
}

func ownType(name string) arrow.DataType {
	switch name {
	case "int64":
		return arrow.PrimitiveTypes.Int64
	case "float64":
		return arrow.PrimitiveTypes.Float64
	case "bool":
		return arrow.FixedWidthTypes.Boolean
	case "string":
		return arrow.BinaryTypes.String
	case "list<string>":
		return arrow.ListOf(arrow.BinaryTypes.String)
	}
	return arrow.ListOf(arrow.PrimitiveTypes.Float64)
}

// appendAny appends the row's number in the builder's type.
func appendAny(b array.Builder, row int, null, far bool) {
	if l, ok := b.(*array.ListBuilder); ok {
		l.Append(true)
		appendAny(l.ValueBuilder(), row, null, far)
		return
	}
	if null {
		b.AppendNull()
		return
	}
	switch v := b.(type) {
	case *array.Uint64Builder:
		if far {
			v.Append(math.MaxUint64)
			return
		}
	case *array.BooleanBuilder:
		v.Append(row == 1)
		return
	case *array.BinaryBuilder:
		v.Append([]byte{byte(row)})
		return
	}
	b.AppendValueFromString(fmt.Sprint(row)) // a null where the type takes no number
}

// Rows in another order are refused with the column's name.
func TestRowOrderIsChecked(t *testing.T) {
	dir := t.TempDir()
	steps := rows[trace.Step](5)
	snaps := rows[trace.Snapshot](9)
	reqs := rows[trace.Request](5)
	steps[1], steps[3] = steps[3], steps[1]
	snaps[0], snaps[8] = snaps[8], snaps[0]
	reqs[2].ArrivedNs = trace.Opt[int64]{}
	for name, err := range map[string]error{
		"step_id: got 2 after 3": table.Write(dir, table.Steps, table.Parquet, steps),
		"step_id: got 0 after 2": table.Write(dir, table.Snapshots, table.Parquet, snaps),
		"arrived_ns: got":        table.Write(dir, table.Requests, table.Parquet, reqs),
	} {
		if err != nil {
			t.Fatal(err)
		}
		if _, err = table.Read(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

// A cursor holds a batch of rows, whatever the table's size, and gives them all.
func TestCursorIsTheWholeTable(t *testing.T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		dir := t.TempDir()
		want := rows[trace.KVEvent](10_000)
		if err := table.Write(dir, table.KVEvents, format, want); err != nil {
			t.Fatal(err)
		}
		c, err := table.Open[trace.KVEvent](dir, table.KVEvents)
		if err != nil {
			t.Fatal(err)
		}
		var got []trace.KVEvent
		for c.Next() {
			got = append(got, *c.Row())
		}
		if err := errors.Join(c.Err(), c.Close()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rows differ (-want +got):\n%s", format, diff)
		}
	}
}
