package fit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/saturation"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// root is the repository's root.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

// shared is a data set of the catalogue beside the repository; skips without it.
func shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(root(t), "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: no %s", path)
	}
	return path
}

func bundled(t testing.TB) []Source {
	return sourcesOf(t, filepath.Join(root(t), "testdata", "traces", "real"))
}

// extracts keeps what has been read: many tests look at the same runs.
var extracts = map[string][]Source{}

// sourcesOf extracts a folder of runs and holds them in memory.
func sourcesOf(t testing.TB, dir string) []Source {
	t.Helper()
	if s, ok := extracts[dir]; ok {
		return slices.Clone(s)
	}
	found, err := extract.Discover([]string{dir}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	ext, err := extract.Run(context.Background(), found, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []Source
	for i := range ext.Runs {
		run, err := table.Read(table.RunDir(o.Out, ext.Runs[i].ID))
		if err != nil {
			t.Fatal(err)
		}
		d := *ext.Runs[i].Deployment
		out = append(out, Source{
			ID: ext.Runs[i].ID, Deployment: d,
			Load:  func() (*trace.Run, error) { return run, nil },
			Judge: func(run *trace.Run) (string, []rows.Span) { return saturation.Judge(run, &d) },
		})
	}
	extracts[dir] = out
	return slices.Clone(out)
}

// quick are options of a fit that tests repeat often.
func quick() Options {
	o := DefaultOptions()
	o.Bootstraps, o.Models = MinBootstraps, []string{}
	return o
}

func fitted(t testing.TB, sources []Source, o Options) *result.Fit {
	t.Helper()
	doc, err := Fit(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func bytesOf(t testing.TB, doc any) string {
	t.Helper()
	b, err := result.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// has reports a finding with the code whose message holds the text.
func has(found []trace.Finding, code trace.Code, text string) bool {
	return slices.ContainsFunc(found, func(f trace.Finding) bool { return f.Code == code && strings.Contains(f.Message, text) })
}
