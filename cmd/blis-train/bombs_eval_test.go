//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/blis-train/blis-train/internal/repo"
)

// This file measures, from outside, what documents and tables cost that are small on disk and would be large in memory.

// mostMiB is the memory that a call may take for a document or a table of a few megabytes.
const mostMiB = 600

// measuredCall is a call of the program, and what it took.
type measuredCall struct {
	Dir  string
	Args []string // the program and its arguments
	Code int
	MiB  int64
	CPU  float64
	Said string
}

// callVariable is the environment variable by which the test has a small process make a call and measure it: the peak of
// a child contains what its parent had when it was made, and the parent writes bombs.
const callVariable = "BLIS_TRAIN_TEST_CALL"

// TestMeasuredCall is that process.
func TestMeasuredCall(t *testing.T) {
	text := os.Getenv(callVariable)
	if text == "" {
		t.Skip("skipped: a part of the tests of bombs")
	}
	var c measuredCall
	noErr(t, json.Unmarshal([]byte(text), &c))
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	c.MiB = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
	c.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	c.Code = cmd.ProcessState.ExitCode()
	c.Said = said.String()[:min(said.Len(), 10_000)]
	answer, err := json.Marshal(c)
	noErr(t, err)
	noErr(t, os.WriteFile(os.Getenv(callVariable+"_ANSWER"), answer, 0o644))
}

// measured runs the program in dir and returns what it took.
func (s *processes) measured(t *testing.T, dir string, args ...string) measuredCall {
	t.Helper()
	text, err := json.Marshal(measuredCall{Dir: dir, Args: append([]string{s.exe}, args...)})
	noErr(t, err)
	answer := filepath.Join(t.TempDir(), "answer.json")
	call := exec.Command(os.Args[0], "-test.run=^TestMeasuredCall$")
	call.Env = append(os.Environ(), callVariable+"="+string(text), callVariable+"_ANSWER="+answer)
	if said, err := call.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var c measuredCall
	noErr(t, json.Unmarshal(repo.Read(t, answer), &c))
	return c
}

// measure runs the program in dir and reports its peak of memory. It must end by itself with a message, or do its work.
func (s *processes) measure(t *testing.T, name, dir string, args ...string) {
	t.Helper()
	c := s.measured(t, dir, args...)
	line, _, _ := strings.Cut(c.Said, "\n")
	fmt.Printf("%-44s exit %d, %4d MiB, %5.1f CPU-s: %.120s\n", name, c.Code, c.MiB, c.CPU, line)
	if c.MiB > mostMiB || c.Code < 0 || c.Code > 3 || c.CPU > 60 || strings.Contains(c.Said, "goroutine ") {
		t.Errorf("%s: exit %d, %d MiB, %.1f CPU-s, want at most %d MiB and 60 CPU-s: %.300s", name, c.Code, c.MiB, c.CPU, mostMiB, c.Said)
	}
}

// yamlBombs are values of a few megabytes, by what they are made of.
func yamlBombs() map[string]string {
	const size = 2_900_000 // punctuation of half of it is just what is read
	chain := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 60; i++ {
		chain += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
	}
	return map[string]string{
		"values":         "x: [" + strings.Repeat("a,", size/2) + "a]\n",
		"more values":    "x: [" + strings.Repeat("a,", 8_000_000) + "a]\n",
		"empty mappings": "x: [" + strings.Repeat("{},", size/3) + "{}]\n",
		"lines":          "x:\n" + strings.Repeat("- a\n", size/5),
		"brackets":       "x: " + strings.Repeat("[", size/2) + "\n",
		"braces":         "x: " + strings.Repeat("{a: ", size/4) + "\n",
		"nested lists":   "x:\n" + strings.Repeat("- ", size/2) + "a\n",
		"a long text":    "x: \"" + strings.Repeat("a", size) + "\"\n",
		"a longer text":  "x: \"" + strings.Repeat("a", 100_000_000) + "\"\n",
		"a folded text":  "x: >\n" + strings.Repeat("  a\n", size/4),
		"escapes":        "x: \"" + strings.Repeat(`\x41`, size/4) + "\"\n",
		"a long key":     strings.Repeat("k", size) + ": 1\n",
		"keys":           "x:\n" + numbered("  k%d: 1\n", size/10),
		"aliases":        chain,
		"anchors":        "x:\n" + numbered("- &a%d a\n", size/12),
		"merged keys":    "a: &a {x: 1}\nb:\n" + strings.Repeat("- {<<: *a}\n", size/14),
		"documents":      strings.Repeat("---\na: 1\n", size/9),
		"comments":       strings.Repeat("# x\n", size/4),
		"tags":           "x:\n" + strings.Repeat("- !!binary aaaa\n", size/16),
		"blank lines":    strings.Repeat("\n", 10_000_000),
		"tabs":           strings.Repeat("\t", size),
		"NUL":            strings.Repeat("\x00", size),
		"a UTF-16 text":  "\xff\xfe" + strings.Repeat("a\x00,\x00", size/4),
		"quoted texts":   "x: [" + strings.Repeat("'',", size/3) + "'']\n",
		"multi-line key": "? |\n" + strings.Repeat("  a\n", size/4) + ": 1\n",
	}
}

// numbered is a format with the numbers up to n.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestEvalYAMLBombs: no YAML document takes more than 600 MiB, whichever command reads it.
func TestEvalYAMLBombs(t *testing.T) {
	s := newProcesses(t)
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	noErr(t, os.CopyFS(in, os.DirFS(filepath.Join(repo.Root(t), "testdata", "traces", "smoke"))))
	run := string(repo.Read(t, in, "run.yaml"))
	coefficients := string(repo.Read(t, repo.Root(t), "coeff", "testdata", "example", "coefficients.yaml"))
	s.must(t, "queue", "fit", filepath.Join(repo.Root(t), "testdata", "sweeps", "llama-3.1-8b.csv"), "-o", filepath.Join(dir, "q"), "-q", "--flavour", "inferno-3p",
		"--loads", "7", "--queue-ratio", "1", "--model", "m", "--accelerator", "H100")
	simulate := []string{"simulate", "--latency-model", "roofline", "--deployment", "sound", "-o", "o", "-q", "--force"}
	noErr(t, os.CopyFS(filepath.Join(dir, "sound"), os.DirFS(in)))
	load := []string{"--input-len", "10", "--output-len", "4", "--num-prompts", "5", "--request-rate", "5"}
	for _, c := range []struct {
		file, head string
		call       []string
	}{
		{"in/run.yaml", run, []string{"extract", "in", "-o", "o", "-q", "--force"}},
		{"c.yaml", coefficients, []string{"check", "c.yaml"}},
		{"p.yaml", "fit:\n  seed: 7\n", []string{"run", "sound", "-o", "o", "--config", "p.yaml", "-q", "--force", "--bootstraps", "50"}},
		{"cluster.yaml", "instances:\n  - count: 2\n", append(append([]string{}, simulate...), append(load, "--cluster", "cluster.yaml")...)},
		{"load.yaml", "requests: 5\n", append(append([]string{}, simulate...), "--workload", "load.yaml")},
		{"problem.yaml", "capacity: {H100: 8}\n", []string{"queue", "allocate", "q/queue.json", "problem.yaml", "-o", "oq"}},
	} {
		for name, text := range yamlBombs() {
			repo.Write(t, c.head+text, dir, filepath.FromSlash(c.file))
			s.measure(t, c.file+" of "+name, dir, c.call...)
		}
		noErr(t, os.Remove(filepath.Join(dir, c.file)))
	}
}

// TestEvalPlanBombs: a plan or a task of three megabytes takes no more than 600 MiB; one of 300 MB is not read at all.
func TestEvalPlanBombs(t *testing.T) {
	s := newProcesses(t)
	dir := t.TempDir()
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	s.must(t, "plan", smoke, "-o", filepath.Join(dir, "job"), "-q", "--bootstraps", "50")
	s.must(t, "collect", filepath.Join(dir, "job"), "-q", "--tasks-dir", filepath.Join(dir, "list"))
	tasks, err := os.ReadDir(filepath.Join(dir, "job", "tasks"))
	noErr(t, err)
	task := filepath.Join("job", "tasks", tasks[0].Name())
	id := strings.TrimSuffix(tasks[0].Name(), ".json")
	for file, call := range map[string][]string{
		"job/plan.json": {"collect", "job"},
		task:            {"task", "job", id},
		"list/0":        {"task", "job", "--tasks-dir", "list"},
	} {
		sound := string(repo.Read(t, dir, filepath.FromSlash(file)))
		for name, piece := range map[string]string{"objects": "{},", "lists": "[],", "numbers": "0,", "texts": `"",`, "brackets": "[", "objects in objects": `{"runs":`, "blanks": " "} {
			for _, size := range []int{3_000_000, 300_000_000} {
				text := strings.TrimRight(sound, "}\n ") + `, "runs": [` + strings.Repeat(piece, size/len(piece))
				repo.Write(t, text, dir, filepath.FromSlash(file))
				s.measure(t, fmt.Sprintf("%s of %d MB of %s", file[:min(len(file), 14)], size/1_000_000, name), dir, call...)
			}
		}
		repo.Write(t, sound, dir, filepath.FromSlash(file))
	}
}

// TestEvalDocumentBombs: a document whose lists of objects have 1.5 million further elements is refused and takes no more
// than 600 MiB, whatever the elements are.
func TestEvalDocumentBombs(t *testing.T) {
	s := newProcesses(t)
	dir := t.TempDir()
	s.must(t, "run", filepath.Join(repo.Root(t), "testdata", "traces", "smoke"), "-o", filepath.Join(dir, "o"), "-q", "--bootstraps", "50", "--force")
	s.must(t, "extract", filepath.Join(repo.Root(t), "testdata", "traces", "smoke"), "-o", filepath.Join(dir, "e"), "-q")
	calls := map[string][][]string{
		"e/extract.json":    {{"fit", "e", "-q", "--force", "--bootstraps", "50"}},
		"o/fit.json":        {{"validate", "o", "-q"}, {"export", "o/fit.json", "-o", "x.yaml"}},
		"o/validation.json": {{"export", "o/fit.json", "-o", "x.yaml"}},
	}
	lists := 0
	for document, list := range calls {
		sound := string(repo.Read(t, dir, filepath.FromSlash(document)))
		var keys map[string]json.RawMessage
		noErr(t, json.Unmarshal([]byte(sound), &keys))
		for key, value := range keys {
			if value[0] != '[' {
				continue
			}
			lists++
			before, after, _ := strings.Cut(sound, "\n  \""+key+"\": [")
			for _, piece := range []string{"{},", "null,"} {
				more := strings.Repeat(piece, 1_500_000)
				if after[0] == ']' {
					more = strings.TrimSuffix(more, ",")
				}
				text := before + "\n  \"" + key + "\": [" + more + after
				repo.Write(t, text, dir, filepath.FromSlash(document))
				for _, call := range list {
					s.measure(t, fmt.Sprintf("%s, %s of %s, %s", document, key, piece, call[0]), dir, call...)
				}
			}
		}
		repo.Write(t, sound, dir, filepath.FromSlash(document))
	}
	if lists < 8 {
		t.Errorf("got %d lists in %d documents, want 8 or more", lists, len(calls))
	}
}

// parquetBomb writes a table with the columns of another one, each row equal: rows in groups, with lists of so many
// elements and texts of so many bytes.
type parquetBomb struct {
	Name     string
	Groups   int
	Rows     int // of a group
	Elements int // of a list
	Text     int // bytes of a text
	Plain    bool
}

// bombVariable is the environment variable by which the test has another process write a table: the peak of a child
// contains what its parent had when it was made.
const bombVariable = "BLIS_TRAIN_TEST_BOMB"

// TestWriteParquetBomb is that process.
func TestWriteParquetBomb(t *testing.T) {
	text := os.Getenv(bombVariable)
	if text == "" {
		t.Skip("skipped: a part of TestEvalParquetBombs")
	}
	var job struct {
		Bomb       parquetBomb
		Like, Path string
	}
	noErr(t, json.Unmarshal([]byte(text), &job))
	job.Bomb.write(t, job.Like, job.Path)
}

func (b parquetBomb) write(t *testing.T, like, path string) {
	t.Helper()
	rd, err := file.OpenParquetFile(like, false)
	noErr(t, err)
	defer rd.Close()
	out, err := os.Create(path)
	noErr(t, err)
	properties := parquet.NewWriterProperties(parquet.WithDictionaryDefault(!b.Plain), parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithDataPageSize(60<<20), parquet.WithDictionaryPageSizeLimit(1<<30), parquet.WithMaxRowGroupLength(1<<40))
	w := file.NewParquetWriter(out, rd.MetaData().Schema.Root(), file.WithWriterProps(properties), file.WithWriteMetadata(rd.MetaData().KeyValueMetadata()))
	for range b.Groups {
		g := w.AppendRowGroup()
		for range rd.MetaData().Schema.NumColumns() {
			c, err := g.NextColumn()
			noErr(t, err)
			b.writeColumn(t, c)
			noErr(t, c.Close())
		}
		noErr(t, g.Close())
	}
	noErr(t, w.Close())
}

// writeColumn writes the values of one column, in pieces.
func (b parquetBomb) writeColumn(t *testing.T, c file.ColumnChunkWriter) {
	t.Helper()
	descr := c.Descr()
	n := b.Rows
	if descr.MaxRepetitionLevel() > 0 {
		n *= max(1, b.Elements)
	}
	const piece = 1 << 20
	for done := 0; done < n; done += piece {
		k := min(piece, n-done)
		var def, rep []int16
		if most := descr.MaxDefinitionLevel(); most > 0 {
			def = make([]int16, k)
			for i := range def {
				def[i] = most
			}
		}
		if descr.MaxRepetitionLevel() > 0 {
			rep = make([]int16, k)
			for i := range rep {
				if b.Elements > 0 && (done+i)%b.Elements != 0 {
					rep[i] = 1
				}
			}
		}
		var err error
		switch c := c.(type) {
		case *file.Int64ColumnChunkWriter:
			_, err = c.WriteBatch(make([]int64, k), def, rep)
		case *file.Int32ColumnChunkWriter:
			_, err = c.WriteBatch(make([]int32, k), def, rep)
		case *file.Float64ColumnChunkWriter:
			_, err = c.WriteBatch(make([]float64, k), def, rep)
		case *file.BooleanColumnChunkWriter:
			_, err = c.WriteBatch(make([]bool, k), def, rep)
		case *file.ByteArrayColumnChunkWriter:
			texts := make([]parquet.ByteArray, k)
			for i := range texts {
				texts[i] = bytes.Repeat([]byte("x"), b.Text)
			}
			_, err = c.WriteBatch(texts, def, rep)
		default:
			err = fmt.Errorf("unexpected %T", c)
		}
		noErr(t, err)
	}
}

// TestEvalParquetBombs: tables of kilobytes with millions of equal rows, lists of millions of elements, dictionaries
// and pages of tens of megabytes. Each table of a run is replaced by each, and read by fit and inspect.
func TestEvalParquetBombs(t *testing.T) {
	s := newProcesses(t)
	dir := t.TempDir()
	s.must(t, "extract", filepath.Join(repo.Root(t), "testdata", "traces", "smoke"), "-o", filepath.Join(dir, "out"), "-q", "--max-bad-frac", "1")
	tables, err := filepath.Glob(filepath.Join(dir, "out", "tables", "run=smoke", "*.parquet"))
	noErr(t, err)
	if len(tables) < 5 {
		t.Fatalf("got the tables %v, want five", tables)
	}
	for _, path := range tables {
		sound, err := os.ReadFile(path)
		noErr(t, err)
		like := filepath.Join(dir, "like.parquet")
		noErr(t, os.WriteFile(like, sound, 0o644))
		for _, b := range []parquetBomb{
			{Name: "equal rows", Groups: 1, Rows: 50_000_000},
			{Name: "many groups", Groups: 500, Rows: 100_000},
			{Name: "a list", Groups: 1, Rows: 1, Elements: 30_000_000},
			{Name: "lists", Groups: 1, Rows: 30_000, Elements: 1_000},
			{Name: "a long text", Groups: 1, Rows: 1, Text: 50_000_000},
			{Name: "longer texts", Groups: 1, Rows: 1, Text: 300_000_000},
			{Name: "plain pages", Groups: 1, Rows: 7_000_000, Plain: true},
		} {
			job, err := json.Marshal(map[string]any{"Bomb": b, "Like": like, "Path": path})
			noErr(t, err)
			writer := exec.Command(os.Args[0], "-test.run=^TestWriteParquetBomb$")
			writer.Env = append(os.Environ(), bombVariable+"="+string(job))
			if said, err := writer.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			st, err := os.Stat(path)
			noErr(t, err)
			for _, call := range [][]string{{"fit", "out", "-o", "f", "-q", "--bootstraps", "50", "--force"}, {"inspect", "out", "-q"}} {
				s.measure(t, fmt.Sprintf("%s %s of %s, %d kB", call[0], filepath.Base(path), b.Name, st.Size()>>10), dir, call...)
			}
		}
		noErr(t, os.WriteFile(path, sound, 0o644))
	}
}

// TestEvalForgedFooters: a table in whose footer one byte is another ends with a message or is read, in bounded memory.
func TestEvalForgedFooters(t *testing.T) {
	s := newProcesses(t)
	dir := t.TempDir()
	s.must(t, "extract", filepath.Join(repo.Root(t), "testdata", "traces", "smoke"), "-o", filepath.Join(dir, "out"), "-q", "--max-bad-frac", "1")
	path := filepath.Join(dir, "out", "tables", "run=smoke", "steps.parquet")
	sound, err := os.ReadFile(path)
	noErr(t, err)
	for i := range 60 {
		forged := bytes.Clone(sound)
		at := len(forged) - 8 - 1 - i*17
		copy(forged[at:], []byte{0xff, 0xff, 0xff, 0xff, 0x07}[:min(5, len(forged)-8-at)]) // a varint of two thousand million
		noErr(t, os.WriteFile(path, forged, 0o644))
		s.measure(t, fmt.Sprintf("steps.parquet, footer forged at -%d", len(forged)-at), dir, "inspect", "out", "-q")
	}
}
