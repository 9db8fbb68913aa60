package clients

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestFormatsAreDocumented: the table of docs/formats.md has a row for each form that is read and for
// no other, the spec refers to that table, and the error of an unknown file lists the forms.
func TestFormatsAreDocumented(t *testing.T) {
	const heading = "## Results of clients that are read"
	_, section, _ := strings.Cut(string(repo.Read(t, repo.Root(t), "docs", "formats.md")), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \|`).FindAllStringSubmatch(section, -1) {
		if row[1] != "form" {
			documented = append(documented, row[1])
		}
	}
	slices.Sort(documented)
	if names := formatNames(); !slices.Equal(documented, names) {
		t.Errorf("docs/formats.md has the forms %q, want those of requestFormats and levelFormats: %q", documented, names)
	}
	spec := string(repo.Read(t, repo.Root(t), "docs", "spec.md"))
	for _, clause := range []string{"wire-bench", "wire-points"} {
		_, text, _ := strings.Cut(spec, `<a id="`+clause+`">`)
		text, _, _ = strings.Cut(text, "\n- <a id=")
		if !strings.Contains(text, "formats.md#results-of-clients-that-are-read") {
			t.Errorf("clause %s of the spec does not refer to the table of forms", clause)
		}
	}
	err := unknownFile("f", []byte("x"))
	for _, name := range formatNames() {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("got %q, want it to list %s", err, name)
		}
	}
}
