package extract

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Contents of files by which their kinds are recognised.
const (
	logText     = "(EngineCore pid=3267) INFO 11-21 23:36:06 [core.py:452] Iteration(7): 0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 26.08 ms\n"
	silentText  = "(APIServer pid=1) INFO 11-21 23:36:06 [api.py:1] started\n"
	countText   = "INFO 11-21 23:36:06 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Prefix cache hit rate: 0.0%\n"
	metricsText = "vllm:num_requests_running 1\n"
	clientText  = `{"input_lens": [5, 6], "output_lens": [2, 3], "ttfts": [0.1, 0.2], "itls": [[0.01], [0.02, 0.03]], "date": "x", "backend": "vllm", "completed": 2, "total_input_tokens": 11}`
)

// foundIn returns the kinds of the files of a run folder with the given contents.
func foundIn(t *testing.T, texts map[string]string, change func(d *RunDir)) (*inputSet, string) {
	t.Helper()
	d := &RunDir{Dir: t.TempDir(), Deployment: &deploy.Deployment{}}
	for name, text := range texts {
		path := filepath.Join(d.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	change(d)
	s := &inputSet{}
	if err := d.addFound(s); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, k := range []struct {
		name string
		list []source.Input
	}{{"clients", s.clients}, {"logs", s.logs}, {"passes", s.passes}, {"metrics", s.metrics}} {
		for _, in := range k.list {
			out = append(out, k.name+" "+in.Name)
		}
	}
	for _, u := range s.unread {
		out = append(out, fmt.Sprintf("unread %s %v", u.Name, u.lost))
	}
	slices.Sort(out)
	return s, strings.Join(out, ", ")
}

// TestFilesOfARunFolder: each kind is read from the run folder, and from folders below only where the run folder has none
// of it; what is named in run.yaml excludes others of its kind; what looks like a recording and is none is named.
func TestFilesOfARunFolder(t *testing.T) {
	nothing := func(*RunDir) {}
	for _, c := range []struct {
		name   string
		texts  map[string]string
		change func(d *RunDir)
		want   string
		below  string
	}{
		{"kinds", map[string]string{"a.log": logText, "s.log": silentText, "m.prom": metricsText, "c.json": clientText, "cut.json": `{"a": [1,`, "other.json": `{"x": 1}`,
			"notes.json": `{"x": 1}`, "README.md": "x", "empty.log": "", "text.txt": "x"}, nothing,
			"clients c.json, logs a.log, logs s.log, metrics m.prom, unread cut.json true, unread empty.log false, unread other.json false", ""},
		{"below", map[string]string{"a.log": logText, "sub/c.json": clientText, "sub/m.prom": metricsText, "sub/b.log": logText, ".hidden/c.json": clientText,
			"run/run.yaml": "x", "run/c.json": clientText, "out/extract.json": "{}", "out/c.json": clientText, "sub/cut.json": `{"a": [1,`, "deep/er/c2.json": clientText},
			nothing, "clients deep/er/c2.json, clients sub/c.json, logs a.log, metrics sub/m.prom, unread sub/cut.json true", "deep/er, sub"},
		{"metrics and clients above", map[string]string{"c.json": clientText, "m.prom": metricsText, "sub/c2.json": clientText, "sub/m2.prom": metricsText, "sub/b.log": logText},
			nothing, "clients c.json, logs sub/b.log, metrics m.prom", "sub"},
		{"all above", map[string]string{"c.json": clientText, "a.log": logText, "sub/m.prom": metricsText}, nothing, "clients c.json, logs a.log", ""},
		{"named", map[string]string{"a.log": logText, "b.log": logText, "s.log": silentText, "c.json": clientText},
			func(d *RunDir) { d.Deployment.Files.Iterations = []string{"a.log"} }, "clients c.json, logs a.log, logs s.log, unread b.log false", ""},
		{"named without clients", map[string]string{"a.log": logText, "s.log": silentText},
			func(d *RunDir) { d.Deployment.Files.Iterations = []string{"a.log"} }, "logs a.log", ""},
		{"named, and counts of another log", map[string]string{"a.log": logText, "n.log": countText},
			func(d *RunDir) { d.Deployment.Files.Iterations = []string{"a.log"} }, "logs a.log", ""},
		{"counts alone", map[string]string{"n.log": countText}, nothing, "logs n.log", ""},
		{"named clients", map[string]string{"c.json": clientText, "d.json": clientText, "sub/e.json": clientText},
			func(d *RunDir) { d.Deployment.Files.ClientRequests = []string{"x.json"} }, "unread c.json false, unread d.json false", ""},
		{"dumps alone", map[string]string{"a.log": logText, "c.json": clientText}, func(d *RunDir) { d.Files = []string{"x"} }, "", ""},
	} {
		s, got := foundIn(t, c.texts, c.change)
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		below := ""
		if len(s.below) > 0 {
			below = s.below[0].Message
		}
		if (below == "") != (c.below == "") || !strings.Contains(below, "recordings are read from "+c.below+", because") && below != "" {
			t.Errorf("%s: got %q, want %q", c.name, below, c.below)
		}
	}
}

// TestMoreFilesThanAreSearched: the files after mostBelow are named, and not silently missing.
func TestMoreFilesThanAreSearched(t *testing.T) {
	s, got := foundIn(t, map[string]string{"a/empty.txt": "", "zz/c.json": clientText}, func(d *RunDir) {
		// All are links to one file: for some seconds after thousands of files were deleted, ext4 makes new ones slowly.
		one := filepath.Join(d.Dir, "a", "empty.txt")
		for i := range mostBelow - 1 {
			name := filepath.Join(d.Dir, "a", fmt.Sprintf("%05d.txt", i))
			if os.Link(one, name) != nil { // a file system without links
				repo.Write(t, "", name)
			}
		}
	})
	if got != "" || len(s.below) != 1 || s.below[0].Code != codeNotSearched || !strings.Contains(s.below[0].Message, "more than 4096 files") ||
		!strings.Contains(s.below[0].Message, "zz/c.json and those after it are not read") {
		t.Errorf("got %q and %+v", got, s.below)
	}
}

// TestNamedInputs: a name, a pattern and a folder stand for their files, each of which counts once; what matches nothing
// is an error.
func TestNamedInputs(t *testing.T) {
	d := &RunDir{Dir: t.TempDir(), Deployment: &deploy.Deployment{}}
	for _, name := range []string{"a1.log", "a2.log", "f/b.log"} {
		path := filepath.Join(d.Dir, name)
		if err := errorsOf(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(d.Dir, "none"), 0o777); err != nil {
		t.Fatal(err)
	}
	in, err := d.inputs("iterations", []string{"a2.log", "a?.log", "f", filepath.Join(d.Dir, "a1.log")})
	var names []string
	for _, f := range in {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"a1.log", "a2.log", "f/b.log"}) {
		t.Errorf("got %v, %v", names, err)
	}
	for pattern, want := range map[string]string{"c*.log": `"c*.log" matches no file`, "none": `"none" is a folder without files`, "[": "["} {
		if _, err := d.inputs("iterations", []string{pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", pattern, err, want)
		}
	}
}

// errorsOf returns the first error.
func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestUnreadFilesByReason: a warning for each reason, of eight files by name.
func TestUnreadFilesByReason(t *testing.T) {
	s := &inputSet{}
	for i := range 8 {
		s.unread = append(s.unread, unread{Input: source.Input{Name: fmt.Sprint("f", i)}, why: "why"})
	}
	s.unread = append(s.unread, unread{Input: source.Input{Name: "g"}, why: "other"})
	want := []string{"no_input: f0, f1, f2, f3, f4, f5, f6, f7: not read; why", "no_input: g: not read; other"}
	if got := textsOf(s.unreadWarnings()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.unread = append(s.unread, unread{Input: source.Input{Name: "f8"}, why: "why"}, unread{Input: source.Input{Name: "f9"}, why: "why"})
	want[0] = "no_input: f0, f1, f2, f3, f4, f5, f6, f7 and 2 more: not read; why"
	if got := textsOf(s.unreadWarnings()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSelectedRuns: an id counts once, whatever its case; bad runs are an error only where all are bad.
func TestSelectedRuns(t *testing.T) {
	bad := trace.Errorf("x", "broken")
	for _, c := range []struct {
		runs []RunDir
		only []string
		want string
	}{
		{[]RunDir{{ID: "a", Dir: "1"}, {ID: "b", Dir: "2", Bad: bad}}, nil, ""},
		{[]RunDir{{ID: "a", Dir: "1"}, {ID: "b", Dir: "2", Bad: bad}}, []string{"b"}, "broken"},
		{[]RunDir{{ID: "a", Dir: "1"}, {ID: "a", Dir: "2"}}, nil, `run id "a" is used by 1 and 2`},
		{[]RunDir{{ID: "a", Dir: "1"}, {ID: "A", Dir: "2"}}, nil, `run ids "a" of 1 and "A" of 2 differ by case only`},
		{[]RunDir{{ID: "a", Dir: "1", Files: []string{"x"}}, {ID: "a", Dir: "1", Files: []string{"y"}}}, nil, "got the run folder 1 and dumps in it (x, y)"},
		{[]RunDir{{ID: "a", Dir: "1"}, {ID: "a", Dir: "2"}}, []string{"b"}, ""},
	} {
		_, err := Select(c.runs, c.only, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.runs, err, c.want)
		}
	}
}

// TestEngineOfASpan: a span continues the engine that it fits; one without a number that begins behind step 1 continues
// the latest of its process, and anything else is a new engine.
func TestEngineOfASpan(t *testing.T) {
	c := &collector{names: []source.Input{{Name: "f"}}, stage: t.TempDir(), acc: source.NewAccount(nil), mem: &source.Memory{}, format: "arrow"}
	taken := []stretch{{firstStep: 1, lastStep: 100}} // so that the span does not fit
	old, late := &engine{resource: 7, lastOrder: 1, stretches: taken}, &engine{resource: 7, lastOrder: 5, stretches: taken}
	c.engines = []*engine{old, late, {resource: 8, lastOrder: 9}}
	of := func(s otlp.Span) *engine {
		t.Helper()
		n := len(c.engines)
		e, err := c.engineOf(&s, &stretch{firstStep: s.FirstStep, lastStep: s.FirstStep})
		if err != nil {
			t.Fatal(err)
		}
		c.engines = c.engines[:n]
		return e
	}
	if got := of(otlp.Span{Resource: 7, FirstStep: 2}); got != late {
		t.Errorf("behind step 1: got %+v", got)
	}
	for name, s := range map[string]otlp.Span{"step 1": {Resource: 7, FirstStep: 1}, "another process": {Resource: 6, FirstStep: 2}, "a number": {Resource: 7, FirstStep: 2, Sequence: trace.Some(int64(3))},
		"a whole life": {Resource: 7, FirstStep: 2, Name: "scheduler_steps"}} {
		if got := of(s); got == old || got == late || got.resource != s.Resource {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
