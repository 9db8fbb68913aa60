package predictor

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace/table"
)

// docs/predictor.md describes every column of a row as the struct does.
func TestColumnsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/predictor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table.Columns[Row]() {
		null := ""
		if c.Nullable {
			null = "null"
		}
		line := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", c.Name, c.Type, c.Unit, null, c.Doc)
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/predictor.md lacks\n%s", line)
		}
	}
}
