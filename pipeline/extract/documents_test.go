package extract

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestExtractDocuments compares every figure of extract.json, and some rows of each table with every column, of two
// recordings: one of the tracing fork with KV events and clients, one of unmodified vLLM with its log.
func TestExtractDocuments(t *testing.T) {
	for _, set := range []string{"smoke", "stock"} {
		dir := filepath.Join(repo.Root(t), "testdata", "traces", set)
		found, err := Discover([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		o := DefaultOptions()
		o.Out = t.TempDir()
		doc, err := Run(context.Background(), found, o)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Document(t, set, doc, "platform", "tool_version", "seconds", "peak_rss_bytes", "sha256", "size_bytes")
		rows := map[string]*trace.Run{}
		for i := range doc.Runs {
			run, err := table.Read(table.RunDir(o.Out, doc.Runs[i].ID))
			if err != nil {
				t.Fatal(err)
			}
			rows[run.ID] = someRows(run)
		}
		testkit.Document(t, set+"_rows", rows)
	}
}

// someRows keeps a few rows of each table.
func someRows(r *trace.Run) *trace.Run {
	return &trace.Run{
		ID:         r.ID,
		Requests:   spread(r.Requests, 4),
		Events:     spread(r.Events, 6),
		Steps:      spread(r.Steps, 6),
		Snapshots:  spread(r.Snapshots, 6),
		KVEvents:   spread(r.KVEvents, 6),
		Observed:   spread(r.Observed, 4),
		Iterations: spread(r.Iterations, 6),
		Points:     spread(r.Points, 4),
	}
}

// spread returns n rows from the first to the last.
func spread[T any](rows []T, n int) (out []T) {
	for k := range min(n, len(rows)) {
		out = append(out, rows[k*(len(rows)-1)/max(1, n-1)])
	}
	return out
}
