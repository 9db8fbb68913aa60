package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// The book is docs/spec.md: every rule of the tool is a clause with a name, and
// code and documents cite it as spec#NAME.
const bookFile = "docs/spec.md"

var (
	anchorTag  = regexp.MustCompile(`<a id="([^"]*)"></a>`)
	clauseName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	pageLink   = regexp.MustCompile(`\]\(#([^)]+)\)`)
	citation   = regexp.MustCompile(`\bspec(?:\.md)?#([A-Za-z0-9_-]*)`)
	mapRow     = regexp.MustCompile(`(?m)^([a-z0-9_./-]+): ([a-z0-9, -]+)$`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)

	// numberedTest is a test named after a number of such a page.
	numberedTest = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)([A-DF-OQ-Y])([0-9]{1,2})[A-Z]`)

	// outsideCitation is a clause of a page that is not in the repository, or a
	// number of a tracker.
	outsideCitation = regexp.MustCompile(`(?i)\bissues? #?[0-9]+\b|\bdesign(?: page)?[ /]0?[0-9]{1,2}\b` +
		`|\b(?-i:[A-Z])-[0-9]{1,2}\b|\b0[0-9] (?:sections? [0-9]|F[0-9]|[0-9]\.[0-9])`)
)

// TestClauses checks the book itself: names are unique and well formed, links
// inside the page lead somewhere, and clauses.txt has every clause once and names
// files that exist.
func TestClauses(t *testing.T) {
	root := repo.Root(t)
	text := readFile(t, filepath.Join(root, bookFile))
	clauses := map[string]bool{}
	for _, m := range anchorTag.FindAllStringSubmatch(text, -1) {
		if !clauseName.MatchString(m[1]) || clauses[m[1]] {
			t.Errorf("clause %q: want a new name of lower-case words joined by dashes", m[1])
		}
		clauses[m[1]] = true
	}
	targets := headings(text)
	for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
		if !clauses[m[1]] && !targets[m[1]] {
			t.Errorf("link to #%s: no such clause or heading", m[1])
		}
	}
	mapped := map[string]bool{}
	for _, row := range mapRow.FindAllStringSubmatch(readFile(t, "clauses.txt"), -1) {
		if _, err := os.Stat(filepath.Join(root, row[1])); err != nil {
			t.Errorf("map: %v", err)
		}
		for _, name := range strings.Split(row[2], ", ") {
			if !clauses[name] || mapped[name] {
				t.Errorf("map: %s: clause %q is unknown or in two rows", row[1], name)
			}
			mapped[name] = true
		}
	}
	for name := range clauses {
		if !mapped[name] {
			t.Errorf("map: clause %q has no row", name)
		}
	}
}

// TestLinks: a link of a page leads to a file, and to a heading or clause of it.
func TestLinks(t *testing.T) {
	root, seen := repo.Root(t), 0
	link := regexp.MustCompile(`\]\(([a-zA-Z0-9_./-]*)(?:#([a-zA-Z0-9-]+))?\)`)
	code := regexp.MustCompile("`[^`\n]*`")
	for _, rel := range repoFiles(t, root) {
		if path.Ext(rel) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(readFile(t, filepath.Join(root, rel)), ""), -1) {
			to := rel
			if m[1] != "" {
				to = path.Join(path.Dir(rel), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: link to %s: %v", rel, m[1], err)
			} else if seen++; m[2] != "" {
				text := readFile(t, filepath.Join(root, to))
				if !headings(text)[m[2]] && !strings.Contains(text, `<a id="`+m[2]+`">`) {
					t.Errorf("%s: link to %s#%s: no such heading or clause", rel, m[1], m[2])
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("got %d links, want 100 and more", seen)
	}
}

// headings are the anchors GitHub gives to the page's headings.
func headings(text string) map[string]bool {
	out := map[string]bool{}
	drop := regexp.MustCompile(`<[^>]*>|[^a-z0-9 _-]`)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// TestCitations fails on a citation of a clause that the book does not have, and
// on one of a page outside the repository.
func TestCitations(t *testing.T) {
	root := repo.Root(t)
	clauses := map[string]bool{}
	for _, m := range anchorTag.FindAllStringSubmatch(readFile(t, filepath.Join(root, bookFile)), -1) {
		clauses[m[1]] = true
	}
	for _, rel := range repoFiles(t, root) {
		for _, p := range passages(t, root, rel) {
			for _, m := range citation.FindAllStringSubmatch(p.text, -1) {
				if m[1] != "NAME" && !clauses[m[1]] {
					t.Errorf("%s:%d: cites %s, which %s does not have", rel, p.line, m[0], bookFile)
				}
			}
			if found := outsideCitation.FindString(p.text); found != "" && rel != "internal/arch/spec_test.go" {
				t.Errorf("%s:%d: cites %q: say it in words, or cite a clause of %s as spec#NAME", rel, p.line, found, bookFile)
			}
		}
	}
}

// passage is what a file says on its own behalf, and where.
type passage struct {
	text string
	line int
}

// passages are the comments, names of tests and strings of a Go file, and the
// lines of any other.
func passages(t *testing.T, root, rel string) []passage {
	t.Helper()
	if path.Ext(rel) != ".go" {
		var out []passage
		for i, line := range strings.Split(readFile(t, filepath.Join(root, rel)), "\n") {
			out = append(out, passage{line, i + 1})
		}
		return out
	}
	f := parsed(t, filepath.Join(root, rel))
	var out []passage
	add := func(pos token.Pos, text string) {
		for i, line := range strings.Split(text, "\n") {
			out = append(out, passage{line, positions.Position(pos).Line + i})
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			add(c.Pos(), c.Text)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				add(n.Pos(), n.Value)
			}
		case *ast.FuncDecl:
			if m := numberedTest.FindStringSubmatch(n.Name.Name); m != nil {
				add(n.Pos(), m[1]+"-"+m[2])
			}
		}
		return true
	})
	return out
}

// written are the kinds of files that people write and read.
var written = []string{".go", ".md", ".txtar", ".sh", ".py", ".yaml", ".yml", ".html", ".css", ".js", ""}

// repoFiles lists the files that people write, slashes and sorted, without
// recordings and machine-made examples.
func repoFiles(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == "out" || name == "fuzz" || strings.HasPrefix(rel, "docs/examples/") {
				return filepath.SkipDir
			}
			return nil
		}
		known := slices.Contains(written, path.Ext(rel)) || path.Dir(rel) == ".ci"
		if info, err := d.Info(); known && err == nil && info.Mode().IsRegular() && info.Size() < 1<<20 && path.Base(rel) != "LICENSE" {
			out = append(out, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// positions are those of all parsed files.
var positions = token.NewFileSet()

var trees = map[string]*ast.File{} // by path

// parsed is a Go file with its comments, parsed once for all tests.
func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	if trees[path] == nil {
		f, err := parser.ParseFile(positions, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		trees[path] = f
	}
	return trees[path]
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text := repo.Read(t, name)
	return string(text)
}

// TestOutsideCitationPattern pins what counts as a citation of a page that is
// not in the repository.
func TestOutsideCitationPattern(t *testing.T) {
	for text, want := range map[string]bool{
		"(01 V-8)": true, "V-8's score": true, "Issue 6, 01": true, "design 06": true, "design/02 2.2": true, "03 section 5": true,
		"(03 F6)": true, "02 section 2.2": true, "C-3 and": true,
		"GPT-2": false, "SHA-256": false, "UTF-8": false, "decision 0004": false, "spec 1.1": false, "A-Z": false, "[A-Z0-9]": false,
		"RTX-4090": false, "issues are": false, "the design": false, "spec#weights": false,
	} {
		if got := outsideCitation.MatchString(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if fmt.Sprint(citation.FindStringSubmatch("see docs/spec.md#lag.")) != "[spec.md#lag lag]" {
		t.Error("a link into the book is a citation")
	}
}
