package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

const (
	module = "github.com/blis-train/blis-train"
)

// layers are the packages from the lowest to the highest: a package imports from lower
// layers alone. Packages of one layer know nothing of each other.
var layers = [][]string{
	{"internal/par", "internal/stat", "internal/repo", "internal/arch", "internal/option",
		"pipeline/extract/otlp/otlptest", "trace"},
	{"internal/files", "trace/table", "coeff/forest"},
	{"vllm", "trace/tracev2"},
	{"model", "reconstruct"},
	{"deploy"},
	{"coeff"},
	{"library", "result", "pipeline/features", "pipeline/ridge"},
	{"reconstruct/logged", "pipeline/validate/gate", "result/folder"},
	{"internal/testkit", "pipeline/extract/source", "pipeline/rows", "report", "sim"},
	{"internal/testkit/planted", "pipeline/extract/enginelog", "pipeline/extract/otlp", "pipeline/fit", "pipeline/validate/identity", "sim/workload", "sim/forecast"},
	{"pipeline/extract/clients"},
	{"pipeline/extract/pairing"},
	{"pipeline/export", "pipeline/extract", "pipeline/validate"},
	{"internal/testkit/recordings", "pipeline/fit/requestfit"},
	{"simulate"},
	{"pipeline", "library/predict"},
	{"shard", "library/build", "autoscale", "predictor", "cluster"},
	{"sizing"},
	{"cmd/blis-train"},
}

// products answer the neighbours' questions: they import the core, which never imports
// them, and know nothing of each other.
var products = []string{"autoscale", "cluster", "library/build", "predictor"}

// replicas is the one package that asks a product: its servers stand behind the cluster's router.
const replicas = "sizing"

// pure are the packages that promise no outside world: no files, clocks, logs, network or
// global random numbers.
var pure = []string{
	"coeff/forest", "internal/stat", "pipeline/features", "reconstruct", "internal/option", "pipeline/ridge",
	"sim", "sim/forecast",
}

var impure = []string{"os", "time", "log", "log/slog", "flag", "net", "net/http", "math/rand"}

// TestLayers fails with file:line where a package imports from its own layer or above,
// where a product knows another, and where a pure package imports the outside world. A
// circle cannot be built; a package without a layer is named.
func TestLayers(t *testing.T) {
	root := repo.Root(t)
	for _, rel := range repoFiles(t, root) {
		dir := path.Dir(rel)
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") ||
			strings.HasPrefix(dir, "beam") {
			continue
		}
		own := layerOf(dir)
		if own < 0 {
			t.Errorf("%s: package %s has no layer in internal/arch", rel, dir)
		}
		for _, spec := range parsed(t, filepath.Join(root, rel)).Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			at := rel + ":" + strconv.Itoa(positions.Position(spec.Pos()).Line)
			if slices.Contains(pure, dir) && slices.Contains(impure, name) {
				t.Errorf("%s: %s is pure and may not import %s", at, dir, name)
			}
			of, ours := strings.CutPrefix(name, module+"/")
			if !ours {
				continue
			}
			if layerOf(of) >= own {
				t.Errorf("%s: %s may not import %s, which is not below it", at, dir, of)
			}
			p, q := productOf(dir), productOf(of)
			if q != "" && p != q && !strings.HasPrefix(dir, "cmd/") && dir != replicas {
				t.Errorf("%s: %s may not import the product %s", at, dir, of)
			}
		}
	}
}

// TestInterruptsReachEveryLoop fails with file:line where code makes a context of its own, in which an interrupt of the
// command is not heard. Commands make one, and so does a test's recording; the Thrift library wants one and ignores it.
func TestInterruptsReachEveryLoop(t *testing.T) {
	root := repo.Root(t)
	allowed := []string{"cmd/blis-train/interrupt.go", "beam/main.go", "internal/testkit/recordings/recordings.go", "trace/table/page.go"}
	for _, rel := range repoFiles(t, root) {
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || slices.Contains(allowed, rel) {
			continue
		}
		ast.Inspect(parsed(t, filepath.Join(root, rel)), func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Background" && s.Sel.Name != "TODO" {
				return true
			}
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "context" {
				t.Errorf("%s:%d: context.%s: want the context of the caller", rel, positions.Position(s.Pos()).Line, s.Sel.Name)
			}
			return true
		})
	}
}

func layerOf(dir string) int {
	return slices.IndexFunc(layers, func(s []string) bool { return slices.Contains(s, dir) })
}

// productOf is the product that the package belongs to, "" in the core.
func productOf(dir string) string {
	for _, p := range products {
		if dir == p || strings.HasPrefix(dir, p+"/") {
			return p
		}
	}
	return ""
}

// executed is a function that ran, in what go tool covdata func prints.
var executed = regexp.MustCompile(`(?m)^` + module + `/(\S+)/[^/]+\.go:\d+:\s+(\S+)\s+([0-9.]+)%`)

// TestEvalWalk runs extract and fit of the smoke run with a program that counts, and
// prints the packages of which a function ran: what one span passes from a dump to
// coefficients.yaml. They have to be those that CONTRIBUTING.md draws.
func TestEvalWalk(t *testing.T) {
	if !repo.Eval() {
		t.Skip("BLIS_TRAIN_EVAL is not set: the walk of a span was not counted")
	}
	root, dir := repo.Root(t), t.TempDir()
	program := filepath.Join(dir, "blis-train")
	out := filepath.Join(dir, "out")
	counts := filepath.Join(dir, "counts")
	if err := os.Mkdir(counts, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "GOCOVERDIR="+counts)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, text)
		}
		return string(text)
	}
	run("go", "build", "-cover", "-coverpkg=./...", "-o", program, "./cmd/blis-train")
	run(program, "extract", "testdata/traces/smoke", "-o", out)
	run(program, "fit", out)
	ran := map[string]int{}
	for _, m := range executed.FindAllStringSubmatch(run("go", "tool", "covdata", "func", "-i="+counts), -1) {
		if m[2] != "init" && m[3] != "0.0" {
			ran[m[1]]++
		}
	}
	var list []string
	for p, n := range ran {
		list = append(list, fmt.Sprintf("%s (%d functions)", p, n))
	}
	slices.Sort(list)
	t.Logf("%d packages:\n%s", len(list), strings.Join(list, "\n"))
	_, drawing, _ := strings.Cut(readFile(t, filepath.Join(root, "CONTRIBUTING.md")), "\nextract:  ")
	drawing, _, _ = strings.Cut(drawing, "```")
	drawn := map[string]bool{}
	for _, word := range regexp.MustCompile(`[a-z][a-z/-]*`).FindAllString(drawing, -1) {
		if _, err := os.Stat(filepath.Join(root, word)); err == nil {
			drawn[word] = true
		}
	}
	for p := range ran {
		if !drawn[p] {
			t.Errorf("CONTRIBUTING.md does not draw %s", p)
		}
	}
	for p := range drawn {
		if ran[p] == 0 {
			t.Errorf("CONTRIBUTING.md draws %s, of which nothing ran", p)
		}
	}
}

// TestFormatted fails on a file that gofmt would change.
func TestFormatted(t *testing.T) {
	root := repo.Root(t)
	for _, rel := range repoFiles(t, root) {
		if filepath.Ext(rel) != ".go" {
			continue
		}
		src := []byte(readFile(t, filepath.Join(root, rel)))
		formatted, err := format.Source(src)
		if err != nil {
			t.Errorf("%s: %v", rel, err)
			continue
		}
		if !bytes.Equal(formatted, src) {
			t.Errorf("%s: gofmt would change it", rel)
		}
	}
}

// The book is docs/spec.md: every rule of the tool is a clause with a name, and
// code and documents cite it as spec#NAME.
const bookFile = "docs/spec.md"

var (
	anchorTag  = regexp.MustCompile(`<a id="([^"]*)"></a>`)
	clauseName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	pageLink   = regexp.MustCompile(`\]\(#([^)]+)\)`)
	citation   = regexp.MustCompile(`\bspec(?:\.md)?#([A-Za-z0-9_-]*)`)
	mapRow     = regexp.MustCompile(`(?m)^([a-z0-9_./-]+): ([a-z0-9*, -]+)$`)
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
// files that exist. A name that ends in * stands for all clauses that begin so.
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
			if prefix, isPattern := strings.CutSuffix(name, "*"); isPattern {
				for clause := range clauses {
					if strings.HasPrefix(clause, prefix) {
						mapped[clause] = true
					}
				}
				continue
			}
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
	known := map[string]map[string]bool{} // headings by page: many links lead to one page
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
				if known[to] == nil {
					known[to] = headings(text)
				}
				if !known[to][m[2]] && !strings.Contains(text, `<a id="`+m[2]+`">`) {
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
			if !strings.ContainsAny(p.text, "#0123456789") {
				continue // every citation has one of these, and searching for them is much cheaper than the expressions
			}
			for _, m := range citation.FindAllStringSubmatch(p.text, -1) {
				if m[1] != "NAME" && !clauses[m[1]] {
					t.Errorf("%s:%d: cites %s, which %s does not have", rel, p.line, m[0], bookFile)
				}
			}
			if found := outsideCitation.FindString(p.text); found != "" && rel != "internal/arch/arch_test.go" {
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
