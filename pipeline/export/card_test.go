package export_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
)

// TestCard: the page has each part, the digest of the coefficient file that the same fit gives, and no markup of a name.
func TestCard(t *testing.T) {
	doc := testkit.PhysicsFit()
	doc.Runs[0].ID = "a|b\n# <b>x</b>"
	made := func() (*coeff.Set, error) { return fit.Native(doc, nil) }
	for _, w := range export.Writers() {
		if w.Format != export.FormatCard {
			continue
		}
		out, err := export.Export(export.Source{Fit: doc, Set: made}, w, export.Options{})
		if err != nil {
			t.Fatal(err)
		}
		page := string(out.Files[0].Data)
		for _, part := range []string{"# Coefficients: ", "## Deployments", "## Data", "## Verdicts", "## Errors", "## Measured domain", "## Inputs", "## How to check"} {
			if !strings.Contains(page, "\n"+part) && !strings.HasPrefix(page, part) {
				t.Errorf("no %q", part)
			}
		}
		if strings.Contains(page, "<b>") || strings.Contains(page, "\n# <") {
			t.Error("a name is markup")
		}
		set, err := made()
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := set.Save(&file); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(file.String()), "\n")
		if digest := strings.Split(lines[len(lines)-1], `"`)[1]; !strings.Contains(page, digest) {
			t.Errorf("no digest %s", digest)
		}
		return
	}
	t.Error("no format card")
}
