package fit

// sources_test.go reads the recordings that tests of a fit share.

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Bundled are the recordings in the repository.
func Bundled(t testing.TB) []Source {
	return SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "real"))
}

// extracts keeps what has been read: many tests look at the same runs.
var extracts = map[string][]Source{}

// SourcesOf extracts a folder of runs and holds them in memory.
func SourcesOf(t testing.TB, dir string) []Source {
	t.Helper()
	if s, ok := extracts[dir]; ok {
		return slices.Clone(s)
	}
	found, err := extract.Discover([]string{dir})
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
			Judge: func(run *trace.Run) (string, []rows.Span) { return rows.JudgeLoad(run, &d) },
		})
	}
	extracts[dir] = out
	return slices.Clone(out)
}

// Quick are options of a fit that tests repeat often.
func Quick() Options {
	o := DefaultOptions()
	o.Bootstraps = MinBootstraps
	o.Models = []string{}
	return o
}

// BytesOf is a document as it is written.
func BytesOf(t testing.TB, doc any) string {
	t.Helper()
	b, err := result.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Has reports a finding with the code whose message holds the text.
func Has(found []trace.Finding, code trace.Code, text string) bool {
	return slices.ContainsFunc(found, func(f trace.Finding) bool { return f.Code == code && strings.Contains(f.Message, text) })
}
