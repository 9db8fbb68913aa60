// Package recordings extracts recordings for tests.
package recordings

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
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

// RealSet is the folder of shared data with traced runs of a real vLLM.
const RealSet = "real_vllm_cpu"

// few are the runs of RealSet that tests read without slow evaluations: an ordinary one, one with asynchronous
// scheduling, one with preemptions, one of shared prefixes, one that lost spans, one without block hashes and one with
// aborted requests.
var few = []string{"gqa-low", "gqa-async", "gqa-preempt", "gqa-prefix", "gqa-overflow", "gqa-campaign", "mha-mixed"}

// Shared returns the runs of a set of shared data; of RealSet only a few without slow evaluations. They must not be
// changed. It skips the test where the set does not exist.
func Shared(t testing.TB, set string) []Run {
	t.Helper()
	if set != RealSet || repo.Eval() {
		return Runs(t, repo.Shared(t, "data", set))
	}
	var runs []Run
	for _, name := range few {
		runs = append(runs, Runs(t, repo.Shared(t, "data", set, name))...)
	}
	return runs
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
