package planted

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/result"
)

// Extracted are all runs of a data set beside the repository, and the folder of their tables.
func Extracted(t testing.TB, set string) (out string, doc *result.Extract) {
	t.Helper()
	found, err := extract.Discover([]string{repo.Shared(t, "data", set)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	if doc, err = extract.Run(context.Background(), found, o); err != nil {
		t.Fatal(err)
	}
	return o.Out, doc
}
