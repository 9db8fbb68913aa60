package predictor

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// docs/predictor.md describes every column of a row as the struct does.
func TestColumnsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/predictor.md")
	if err != nil {
		t.Fatal(err)
	}
	row := reflect.TypeFor[Row]()
	for i := range row.NumField() {
		f := row.Field(i)
		kind, null := f.Type, ""
		if kind.Kind() == reflect.Struct { // trace.Opt
			kind, null = kind.Field(0).Type, "null"
		}
		line := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", f.Tag.Get("col"), kind.Kind(), f.Tag.Get("unit"), null, f.Tag.Get("doc"))
		if !strings.Contains(string(page), line) {
			t.Errorf("docs/predictor.md lacks\n%s", line)
		}
	}
}
