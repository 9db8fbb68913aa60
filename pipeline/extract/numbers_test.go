package extract

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestSomethingStandsInTheWay of a file that an extraction writes: each is an error, and what stands there is left.
func TestSomethingStandsInTheWay(t *testing.T) {
	found, err := Discover([]string{filepath.Join(repo.Root(t), "testdata", "traces", "smoke")})
	if err != nil {
		t.Fatal(err)
	}
	into := func(out string, force bool) error {
		o := DefaultOptions()
		o.Out, o.Force = out, force
		_, err := Run(context.Background(), found, o)
		return err
	}
	done := t.TempDir()
	if err := into(done, false); err != nil {
		t.Fatal(err)
	}
	var doc result.Extract
	text, err := os.ReadFile(filepath.Join(done, documentName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(tablesDir, runPrefix+doc.Runs[0].ID)
	table := filepath.Join(run, doc.Runs[0].TableFiles[0].Name)
	file := func(name string) func(out string) error {
		return func(out string) error {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(out, name)), 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(out, name), []byte("of another"), 0o600)
		}
	}
	dir := func(name string) func(out string) error {
		return func(out string) error { return os.MkdirAll(filepath.Join(out, name, "of another"), 0o700) }
	}
	for name, c := range map[string]struct {
		put   func(out string) error
		force bool
		code  trace.Code
	}{
		"a file in place of the tables":  {file(tablesDir), false, ""},
		"a folder in place of the cache": {dir(cacheName), false, ""},
		"a folder in place of extract":   {dir(documentName), false, ""},
		"a file in place of a run":       {file(run), false, CodeNotOurs},
		"a link in place of a run": {func(out string) error {
			return errors.Join(os.MkdirAll(filepath.Join(out, tablesDir), 0o700), os.Symlink(done, filepath.Join(out, run)))
		}, false, CodeNotOurs},
		"another program's table":           {file(table), false, CodeNotOurs},
		"a folder in place of a table":      {dir(table), true, ""},
		"a folder in place of the manifest": {dir(filepath.Join(run, manifestName)), false, ""},
	} {
		out := t.TempDir()
		if err := c.put(out); err != nil {
			t.Fatal(name, err)
		}
		if err := into(out, c.force); err == nil || c.code != "" && trace.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want an error %s", name, err, c.code)
		}
		if _, err := os.Stat(filepath.Join(out, documentName)); err == nil && name != "a folder in place of extract" {
			t.Errorf("%s: got a document all the same", name)
		}
	}
	out := t.TempDir()
	if err := file(table)(out); err != nil {
		t.Fatal(err)
	}
	if err := into(out, true); err != nil {
		t.Errorf("another program's table with --force: got %v", err)
	}
	// Runs of an earlier call go, but for what another program put there or changed.
	stale := filepath.Join(tablesDir, runPrefix+"stale")
	other := result.Input{Name: "steps.parquet"}
	if err := errors.Join(os.MkdirAll(filepath.Join(out, stale), 0o700), file(filepath.Join(stale, other.Name))(out), file(filepath.Join(stale, "notes.txt"))(out), (&manifest{Files: []result.Input{other, {Name: "gone.parquet"}}}).write(filepath.Join(out, stale)), file(filepath.Join(tablesDir, "readme"))(out)); err != nil {
		t.Fatal(err)
	}
	got, err := removeRuns(out, func(id string) bool { return id == doc.Runs[0].ID })
	want := []string{filepath.Join(out, tablesDir, "readme"), filepath.Join(out, stale, "notes.txt"), filepath.Join(out, stale, other.Name)}
	slices.Sort(got.left)
	if slices.Sort(want); err != nil || !slices.Equal(got.left, want) || len(got.removed) != 0 {
		t.Errorf("got %+v, %v, want %q left", got, err, want)
	}
	if m := readManifest(filepath.Join(out, stale)); len(m.Files) != 1 || m.Files[0].Name != other.Name {
		t.Errorf("got %+v", m)
	}
	if got, err := removeRuns(filepath.Join(out, "none"), nil); err != nil || got.left != nil {
		t.Errorf("no tables: got %+v, %v", got, err)
	}
	if _, err := removeRuns(file2dir(t), nil); err == nil {
		t.Error("a file in place of the tables: got no error")
	}
	if err := os.WriteFile(filepath.Join(out, stale, manifestName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if m := readManifest(filepath.Join(out, stale)); m.Files != nil {
		t.Errorf("a damaged manifest: got %+v", m)
	}
	for dir, want := range map[string]bool{out: true, filepath.Join(out, "none"): false} {
		if there, err := isFolder(dir); err != nil || there != want {
			t.Errorf("%s: got %v, %v", dir, there, err)
		}
	}
	if there, err := isFolder(filepath.Join(out, documentName)); there || trace.CodeOf(err) != CodeNotOurs {
		t.Errorf("a file: got %v, %v", there, err)
	}
	if there, err := isFolder(filepath.Join(out, documentName, "x")); there || err == nil {
		t.Errorf("below a file: got %v, %v", there, err)
	}
	// Entries that another process extracted.
	e := &Entry{Results: doc.Runs}
	o := DefaultOptions()
	o.Out = t.TempDir()
	if err := e.Adopt(done, o); err != nil {
		t.Fatal(err)
	}
	if a, err := os.ReadFile(filepath.Join(o.Out, table)); err != nil || len(a) == 0 {
		t.Errorf("got %d bytes, %v", len(a), err)
	}
	if err := e.Adopt(filepath.Join(done, "none"), o); err == nil {
		t.Error("tables that are gone are adopted")
	}
	if _, err := os.Stat(filepath.Join(o.Out, tablesDir, stagePrefix+doc.Runs[0].ID)); err == nil {
		t.Error("a stage is left")
	}
	if err := linkOrCopy(filepath.Join(done, documentName), filepath.Join(done, tablesDir)); err == nil {
		t.Error("a file is copied onto a folder")
	}
	o.Out = file2dir(t)
	if err := e.Adopt(done, o); err == nil {
		t.Error("tables are adopted into a file")
	}
	o.Out = t.TempDir()
	twin := doc.Runs[0]
	if _, err := Assemble([]*Entry{{ID: "a", Results: []result.ExtractRun{{ID: "A"}, twin}}}, []string{done}, nil, o); err == nil || !strings.Contains(err.Error(), "A") {
		t.Errorf("an engine run with the id of a folder: got %v", err)
	}
	if err := os.Mkdir(filepath.Join(o.Out, tablesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	twin.Records.BadFrac = 0.5
	if _, err := DocumentOf([]*Entry{{Results: []result.ExtractRun{twin}, Bytes: 7, Lines: 3}}, o); err == nil || trace.CodeOf(err) != "too_many_bad_records" {
		t.Errorf("half of a run: got %v", err)
	}
	if doc, err := DocumentOf([]*Entry{{Results: doc.Runs[:1], Bytes: 7, Lines: 3}, {Results: doc.Runs[:1], Bytes: 70, Lines: 30}}, o); err != nil || doc.Totals.BytesRead != 77 || doc.Totals.LinesRead != 33 || len(doc.Runs) != 2 || len(doc.Inputs) != 2*len(doc.Runs[0].Files) {
		t.Errorf("got %+v, %v", doc.Totals, err)
	}
	warned := 0
	read, err := ReadDocument(done, func(f []trace.Finding) { warned += len(f) })
	if err != nil || warned != 0 || len(read.Runs) != 1 {
		t.Errorf("got %d warnings, %v", warned, err)
	}
	read.LeftOut = []string{"b", "c"}
	if found, err := CheckTables(done, read); err != nil || len(found) != 1 || found[0].Code != codeNoInput || found[0].Message != "2 runs could not be extracted and are missing: b, c" {
		t.Errorf("got %v, %v", found, err)
	}
	if err := os.Remove(filepath.Join(done, table)); err != nil {
		t.Fatal(err)
	}
	if doc, err := ReadDocument(done, nil); err == nil {
		t.Errorf("a table is missing: got %+v", doc)
	}
	if _, err := ReadDocument(filepath.Join(repo.Root(t), "testdata", "traces", "smoke"), nil); err == nil || !strings.Contains(trace.HintOf(err), "holds recordings: blis-train extract ") {
		t.Errorf("a folder of recordings: got %v, hint %q", err, trace.HintOf(err))
	}
}

// TestBatchesAreCounted in every run of a document, and an entry of the cache without runs is not believed.
func TestBatchesAreCounted(t *testing.T) {
	doc, _, err := dumpRun(t, []string{writeDump(t, "traces", []byte(strings.Join(goodLines(4), "\n")))}, func(o *Options) {
		o.Batches = func(string, *deploy.Deployment) (result.StepQuality, error) {
			return result.StepQuality{Recorded: 9, Known: 7, Reconstructed: 5, Contradictions: 1}, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := doc.Runs[0].Steps; s.Reconstructed != trace.Some(int64(5)) || s.Unknown != trace.Some(int64(2)) || s.Contradictions != trace.Some(int64(1)) {
		t.Errorf("got %+v", s)
	}
	o := DefaultOptions()
	o.Out = t.TempDir()
	for _, c := range []struct {
		entry Entry
		want  bool
	}{
		{Entry{}, false},
		{Entry{Deployment: "d"}, false},
		{Entry{Results: []result.ExtractRun{{ID: "a"}}}, false},
		{Entry{Deployment: "d", Results: []result.ExtractRun{{ID: "a"}}}, true},
	} {
		if got := c.entry.intact(&o); got != c.want {
			t.Errorf("%+v: got %v", c.entry, got)
		}
	}
}

// file2dir returns the name of a folder in which a file stands in place of the folder of tables.
func file2dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, tablesDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPiecesThatChanged since they were planned, and those that are done.
func TestPiecesThatChanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = dir
	whole := Piece{Kind: "traces", Name: "a", Path: path, Bytes: 3}
	if err := whole.Do(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	// sha256sum of "{}\n"
	if sum, err := os.ReadFile(filepath.Join(dir, SumFile)); err != nil || string(sum) != `"ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"` {
		t.Errorf("got %s, %v", sum, err)
	}
	whole.Bytes = 4
	if err := whole.Do(context.Background(), o); err == nil || trace.CodeOf(err) != codeInputsChanged || !strings.Contains(err.Error(), "got 3 bytes, want the 4 that were planned") {
		t.Errorf("another size: got %v", err)
	}
	whole.Path = path + "x"
	if err := whole.Do(context.Background(), o); err == nil {
		t.Error("a file that is gone: got no error")
	}
	part := Piece{Kind: "traces", Name: "a", Path: path, Bytes: 3, Part: &source.Part{}}
	o.Out = path
	if err := part.Do(context.Background(), o); err == nil {
		t.Error("a part is written into a file")
	}
	whole = Piece{Path: path, Bytes: 3}
	if err := whole.Do(context.Background(), o); err == nil {
		t.Error("a sum is written into a file")
	}
	d := RunDir{Dir: dir, Folder: "x"}
	for file, want := range map[string]string{path: "x/a.jsonl", filepath.Join(dir, "b", "c"): "x/b/c", filepath.Join(filepath.Dir(dir), "d"): "x/d"} {
		if got := d.relative(file); got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
	for name, want := range map[[2]string]string{{"a b", "/x"}: "a-b", {"...", "/x/y"}: "y", {"", "/"}: "run"} {
		if got := runID(name[0], name[1]); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestKindsOfFiles by their content, with the reason why one is not read.
func TestKindsOfFiles(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]struct {
		kind kind
		why  string
	}{
		"":                                    {kindEmpty, "it is empty, want a recording"},
		" \n\t":                               {kindEmpty, "it is empty"},
		strings.Repeat(" ", source.HeadBytes): {kindOther, "it begins with blanks alone"},
		"a\x00b":                              {kindOther, "it is binary"},
		`{"resourceSpans": []}`:               {kindSpans, "its spans are read where `files.traces` of run.yaml names it"},
		`{"a": [1, 2`:                         {kindBroken, "its JSON ends within a value that begins after byte 0"},
		`{"a": [1, 2]}`:                       {kindOther, "want a form of docs/formats.md"},
		"INFO (APIServer pid=1) ready\n":      {kindSilent, ""},
		countText:                             {kindCounting, ""},
	} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, why := contentOf(&source.Input{Path: path, Name: "f"})
		if got != want.kind || !strings.Contains(why, want.why) || (why == "") != (want.why == "") {
			t.Errorf("%.20q: got %v, %q, want %v, %q", text, got, why, want.kind, want.why)
		}
	}
	if got, why := contentOf(&source.Input{Path: filepath.Join(dir, "none"), Name: "none"}); got != kindBroken || why == "" {
		t.Errorf("no file: got %v, %q", got, why)
	}
	if why := cutJSON(&source.Input{Path: filepath.Join(dir, "none"), Name: "none"}); why == "" {
		t.Error("no file: got no reason")
	}
}

// TestTablesAndTheirCounts: a file of a table is there if extract.json counts rows in it, has as many, and is no other table's.
func TestTablesAndTheirCounts(t *testing.T) {
	out := t.TempDir()
	dir := table.RunDir(out, "r")
	write := func(rows int) result.Input {
		t.Helper()
		steps := make([]trace.Step, rows)
		for i := range steps {
			steps[i].ID = int64(i)
		}
		if err := table.Write(dir, table.Steps, table.Parquet, steps); err != nil {
			t.Fatal(err)
		}
		in, err := inputOf(filepath.Join(dir, "steps.parquet"), "steps.parquet")
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	one := write(1)
	path := filepath.Join(dir, "steps.parquet")
	for name, c := range map[string]struct {
		rows  int // in the file; -1 without one
		count int64
		own   []result.Input
		owner map[string]string
		found int
		want  string // the error, "" without one
	}{
		"neither":          {-1, 0, nil, nil, 0, ""},
		"no file":          {-1, 1, nil, nil, 0, path + ": missing, extract.json counts 1 rows in it"},
		"not counted":      {1, 0, []result.Input{one}, nil, 0, path + ": extract.json knows no such table of run r"},
		"its own":          {1, 1, []result.Input{one}, nil, 0, ""},
		"of another":       {1, 1, nil, map[string]string{one.SHA256: "steps of run q"}, 0, path + ": this is steps of run q"},
		"another program":  {1, 1, nil, nil, 1, ""},
		"a row too many":   {1, 2, nil, nil, 0, path + ": got 1 rows, extract.json counts 2"},
		"a row too few":    {3, 2, nil, nil, 0, path + ": got 3 rows, extract.json counts 2"},
		"others' of three": {3, 3, []result.Input{one}, map[string]string{one.SHA256: "steps of run q"}, 1, ""},
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if c.rows >= 0 {
			write(c.rows)
		}
		run := &result.ExtractRun{ID: "r", Tables: map[string]int64{table.Steps: c.count}, TableFiles: c.own}
		found, err := checkTable(out, run, table.Steps, c.owner)
		if len(found) != c.found || (err == nil) != (c.want == "") || err != nil && (err.Error() != "table_damaged: "+c.want || trace.CodeOf(err) != table.CodeDamaged || trace.HintOf(err) == "") {
			t.Errorf("%s: got %v and %v, want %d findings and %q", name, found, err, c.found, c.want)
		}
	}
	if err := os.WriteFile(path, []byte("PAR1 nothing PAR1"), 0o666); err != nil {
		t.Fatal(err)
	}
	if found, err := checkTable(out, &result.ExtractRun{ID: "r", Tables: map[string]int64{table.Steps: 1}}, table.Steps, nil); err == nil || found != nil {
		t.Errorf("a damaged file: got %v, %v", found, err)
	}
}

// TestTablesOfFurtherEngines: a log's engine run has the requests that it served and its passes. What cannot be written is an error.
func TestTablesOfFurtherEngines(t *testing.T) {
	dir := t.TempDir()
	lives := filepath.Join(dir, "life")
	x := &extraction{stage: filepath.Join(dir, "stage"), o: &Options{Format: table.Parquet}, spans: &collector{}, dep: &deploy.Deployment{},
		lives:  []*enginelog.Life{{Dir: lives, Rows: 9}, {Dir: lives, Rows: 2}},
		served: [][]trace.ObservedRequest{nil, {{}, {}, {}}}}
	if err := table.Write(lives, table.Iterations, table.Parquet, []trace.Iteration{{Index: 4}, {Index: 5}}); err != nil {
		t.Fatal(err)
	}
	w, err := x.output(1)
	if err != nil || len(w.Tables) != 2 || w.Tables[table.ObservedRequests] != 3 || w.Tables[table.Iterations] != 2 {
		t.Fatalf("got %+v, %v", w, err)
	}
	for name, want := range map[string]int64{table.ObservedRequests: 3, table.Iterations: 2} {
		if n, err := table.CountRows(filepath.Join(w.Dir, name+".parquet"), name); err != nil || n != want {
			t.Errorf("%s: got %d rows, %v", name, n, err)
		}
	}
	if _, err := x.output(1); err == nil {
		t.Error("the passes are gone: got no error")
	}
	if w, err := x.output(2); err != nil || len(w.Tables) != 0 {
		t.Errorf("beyond the lives: got %+v, %v", w, err)
	}
	if err := table.Write(lives, table.Iterations, table.Parquet, []trace.Iteration{{Index: 4}, {Index: 5}}); err != nil {
		t.Fatal(err)
	}
	x.stage = filepath.Join(dir, "file") // where no folder can be made
	if err := os.WriteFile(x.stage, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if w, err := x.output(1); err == nil || w != nil {
		t.Errorf("requests that cannot be written: got %+v", w)
	}
	x.served = nil
	if w, err := x.output(1); err == nil || w != nil {
		t.Errorf("a folder for passes that cannot be made: got %+v", w)
	}
	x.points = []trace.LoadPoint{{}}
	if w, err := x.output(0); err == nil || w != nil {
		t.Errorf("points that cannot be written: got %+v", w)
	}
}
