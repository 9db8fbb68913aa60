package validate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestSpecHasEveryGate: the book's table of gates is that of the code.
func TestSpecHasEveryGate(t *testing.T) {
	text := repo.Read(t, "../../docs/spec.md")
	for _, g := range Defaults() {
		_, clause, _ := strings.Cut(g.Spec, "#")
		purposes := strings.Join(g.Purposes, ", ")
		row := fmt.Sprintf("| <a id=\"%s\"></a>`%s` | %s | %s | %g | %s |\n", clause, g.Name, purposes, g.Op, g.Limit, g.Doc)
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/spec.md lacks the row of %s:\n%s", g.Name, row)
		}
	}
}
