// Package recordings extracts recordings for tests.
package recordings

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Run is one extracted run with its deployment.
type Run struct {
	Run        *trace.Run
	Deployment *deploy.Deployment
}

// Into extracts the runs in a folder with the default options and writes their tables to the folder out.
func Into(t testing.TB, out, dir string) *result.Extract {
	t.Helper()
	found, err := extract.Discover([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = out
	doc, err := extract.Run(context.Background(), found, o)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// read has the runs of each folder that Runs has read: several tests look at the same ones.
var read = map[string][]Run{}

// Runs returns the runs in a folder, extracted once for all tests of a package. They must not be changed.
func Runs(t testing.TB, dir string) []Run {
	t.Helper()
	if runs, ok := read[dir]; ok {
		return runs
	}
	out := t.TempDir()
	doc := Into(t, out, dir)
	var runs []Run
	for i := range doc.Runs {
		r := &doc.Runs[i]
		run, err := table.Read(table.RunDir(out, r.ID))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, Run{run, r.Deployment})
	}
	read[dir] = runs
	return runs
}
