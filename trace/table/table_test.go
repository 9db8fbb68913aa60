package table_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/google/go-cmp/cmp"
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
	for range 12 {
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

// snapshotsLike are snapshots as a busy engine writes them: steps of running
// requests whose context grows by one token a step.
func snapshotsLike(steps, running int) []trace.Snapshot {
	rng := rand.New(rand.NewSource(1))
	out := make([]trace.Snapshot, 0, steps*running)
	for s := range steps {
		for r := range running {
			id, age := (s+r*7)/97*running+r, int64((s+r*7)%97)
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
