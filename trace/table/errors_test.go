package table

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"github.com/blis-train/blis-train/trace"
)

// TestTablesThatAreRefused: another schema version, a folder in place of a file, another format and a row beyond the last; a
// missing table has no rows.
func TestTablesThatAreRefused(t *testing.T) {
	for version, isGood := range map[string]bool{"": true, SchemaVersion: true, "0": false, SchemaVersion + "1": false} {
		err := checkVersion(version)
		if (err == nil) != isGood {
			t.Errorf("version %q: got %v", version, err)
		}
		if !isGood && (trace.CodeOf(err) != CodeDamaged || !strings.Contains(err.Error(), `table of another schema version: got "`+version+`", want `+SchemaVersion) || trace.HintOf(err) != extractHint) {
			t.Errorf("version %q: got %v (%s)", version, err, trace.HintOf(err))
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "x.parquet"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"x.parquet"} {
		if _, err := OpenFile[trace.Step](filepath.Join(dir, path)); trace.CodeOf(err) != CodeDamaged || !strings.Contains(err.Error(), "x.parquet: got no file, want a table") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := Create[trace.Step](dir, "steps", "csv"); err == nil || err.Error() != `table steps: format: got "csv", want parquet or arrow` {
		t.Errorf("got %v", err)
	}
	c, err := Open[trace.Step](dir, "none")
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := c.All(); rows != nil || err != nil || Len[trace.Step](dir, "none") != 0 {
		t.Errorf("a missing table: got %v, %v", rows, err)
	}
	if err := Write(dir, "three", Parquet, []trace.Step{{ID: 1}, {ID: 2}, {ID: 3}}); err != nil {
		t.Fatal(err)
	}
	if n := Len[trace.Step](dir, "three"); n != 3 {
		t.Errorf("got %d rows, want 3", n)
	}
	rows := []int64{5, 6}
	p := placed(rows)
	if got := *(*int64)(p.at(1)); got != 6 {
		t.Errorf("got %d", got)
	}
	for _, i := range []int{2, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("row %d of two was read", i)
				}
			}()
			p.at(i)
		}()
	}
}

// TestColumnsOfOneName: a file has the column that is asked for once, wherever it is.
func TestColumnsOfOneName(t *testing.T) {
	for names, want := range map[string]error{"x y z": nil, "y x z": nil, "y z x": nil, "y z": errMissing, "x x y": errRepeated, "y x x": errRepeated, "x y x": errRepeated} {
		var nodes schema.FieldList
		for _, name := range strings.Fields(names) {
			nodes = append(nodes, schema.NewInt64Node(name, parquet.Repetitions.Required, -1))
		}
		s := schema.NewSchema(schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)))
		l, err := findLeaf(s, &column{Name: "x", Type: "int64"})
		if err != want || want == nil && l.at != slices.Index(strings.Fields(names), "x") {
			t.Errorf("%s: got column %d, %v, want %v", names, l.at, err, want)
		}
	}
}

// TestSlicesOfDamagedTables: a table that cannot be read, before the first slice or during one, and an error of the caller are
// errors of reading a run in slices.
func TestSlicesOfDamagedTables(t *testing.T) {
	dir := RunDir(t.TempDir(), "x")
	if err := errors.Join(Write(dir, Steps, Parquet, []trace.Step{{ID: 1, TsStartNs: 5}}), Write(dir, Snapshots, Parquet, []trace.Snapshot{{StepID: 1}}),
		Write(dir, KVEvents, Parquet, []trace.KVEvent{{Step: trace.Some[int64](1)}}), Write(dir, Requests, Parquet, []trace.Request{{QueuedNs: trace.Some[int64](2)}})); err != nil {
		t.Fatal(err)
	}
	damage := func(name string) (restore func()) {
		path := filepath.Join(dir, name+".parquet")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte("PAR1 nothing PAR1"), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := os.WriteFile(path, text, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{Steps, Snapshots, KVEvents, Requests} {
		restore := damage(name)
		if err := EachSlice(dir, 4, 2, 1, func(int, *trace.Run) error { return nil }); trace.CodeOf(err) != CodeDamaged || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
		restore()
	}
	stop := errors.New("stop")
	if err := EachSlice(dir, 4, 2, 1, func(_ int, run *trace.Run) error {
		defer damage(Snapshots)()
		if _, err := run.Stored(); trace.CodeOf(err) != CodeDamaged {
			t.Errorf("damaged snapshots of a slice: got %v", err)
		}
		return stop
	}); !errors.Is(err, stop) {
		t.Errorf("an error of the caller: got %v", err)
	}
}
