package table_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		b, err := os.ReadFile(filepath.Join(dir, "steps.parquet"))
		if err != nil {
			t.Fatal(err)
		}
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
	var e *trace.Error
	if !errors.As(err, &e) || e.Code != table.CodeNoTables || e.Hint == "" {
		t.Errorf("got %v, want %s with a hint", err, table.CodeNoTables)
	}
}

var update = flag.Bool("update", false, "rewrite generated files")

func TestTablesDocIsGenerated(t *testing.T) {
	const path = "../../docs/tables.md"
	if *update {
		if err := os.WriteFile(path, []byte(table.Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
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
		b, err := os.ReadFile(filepath.Join(dir, "x.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		}
		if !bytes.Equal(first, b) {
			t.Fatalf("got other bytes of the same rows")
		}
	}
}
