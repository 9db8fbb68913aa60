package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestPagesOpenAndEnd: every page of docs begins with its title and what it is for, in plain sentences, and
// ends with the pages to read next, which exist.
func TestPagesOpenAndEnd(t *testing.T) {
	root := repo.Root(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("got %d pages, %v", len(pages), err)
	}
	link := regexp.MustCompile(`\]\(([^)#]*)[^)]*\)`)
	for _, page := range pages {
		name := filepath.Base(page)
		lines := strings.Split(strings.TrimSpace(string(repo.Read(t, page))), "\n")
		if !strings.HasPrefix(lines[0], "# ") || len(lines) < 3 || lines[1] != "" {
			t.Errorf("%s: got no title and paragraph", name)
			continue
		}
		if first := lines[2]; first == "" || strings.ContainsAny(first[:1], "#|<-`>") || len(strings.Fields(first)) < 6 {
			t.Errorf("%s: begins with %q, want what the page is for", name, first)
		}
		last := lines[len(lines)-1]
		links := link.FindAllStringSubmatch(last, -1)
		if !strings.HasPrefix(last, "Read next: ") || len(links) == 0 {
			t.Errorf("%s: ends with %q, want the pages to read next", name, last)
		}
		for _, l := range links {
			if _, err := os.Stat(filepath.Join(root, "docs", l[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
