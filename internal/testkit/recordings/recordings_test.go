package recordings

import (
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace/table"
)

// TestRuns: the smoke recording of the repository is one run with its deployment, and is extracted once.
func TestRuns(t *testing.T) {
	dir := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	runs := Runs(t, dir)
	if len(runs) != 1 {
		t.Fatalf("got %d runs", len(runs))
	}
	run, dep := runs[0].Run, runs[0].Deployment
	if len(run.Steps) != 55 || len(run.Requests) != 20 || dep.TP != 1 || dep.Engine.MaxNumSeqs != 4 {
		t.Errorf("got %d steps, %d requests, tp %d, max_num_seqs %d", len(run.Steps), len(run.Requests), dep.TP, dep.Engine.MaxNumSeqs)
	}
	if again := Runs(t, dir); &again[0] != &runs[0] {
		t.Error("extracted twice")
	}
	out := t.TempDir()
	doc := Into(t, out, dir)
	if len(doc.Runs) != 1 || doc.Runs[0].ID != run.ID {
		t.Errorf("got %d runs", len(doc.Runs))
	}
	if again, err := table.Read(table.RunDir(out, run.ID)); err != nil || len(again.Steps) != 55 {
		t.Errorf("got %v", err)
	}
}
