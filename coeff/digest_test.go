package coeff_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// TestChangedFileIsSaid: a value edited by hand is used with a warning that travels
// with the set; another line ending is no edit, and a file without a digest is nobody's.
func TestChangedFileIsSaid(t *testing.T) {
	old, err := os.ReadFile("library/h100-sxm-80gb-bf16.yaml")
	if err != nil {
		t.Fatal(err)
	}
	load := func(text string) *coeff.Set {
		t.Helper()
		set, err := coeff.Load(strings.NewReader(text), "test.yaml", features.CheckSet)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	save := func(set *coeff.Set) string {
		t.Helper()
		var b bytes.Buffer
		if err := set.Save(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := save(load(string(old)))
	edited := strings.Replace(text, "gamma: 0.3", "gamma: 0.25", 1)
	for _, c := range []struct {
		name, text string
		warnings   int
	}{
		{"as written", text, 0},
		{"line ends of Windows", strings.ReplaceAll(text, "\n", "\r\n"), 0},
		{"a value", edited, 1},
		{"the digest", text[:len(text)-3] + "0\"\n", 1},
		{"a remark after the digest", text + "# mine\n", 1},
		{"no digest", edited[:strings.LastIndex(edited, "digest: ")], 0},
	} {
		set := load(c.text)
		if len(set.FileWarnings()) != c.warnings {
			t.Errorf("%s: got %v, want %d warnings", c.name, set.FileWarnings(), c.warnings)
		}
		if again := load(save(set)); len(again.FileWarnings()) != 0 || len(again.Warnings) != len(set.Warnings) ||
			c.warnings > 0 && (len(again.Warnings) == 0 || again.Warnings[0] != set.FileWarnings()[0]) {
			t.Errorf("%s: written again: of the file %v, warnings %v", c.name, again.FileWarnings(), again.Warnings)
		}
	}
}
