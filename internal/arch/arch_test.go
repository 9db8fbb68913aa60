package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/format"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/blis-train/blis-train/internal/repo"
)

const (
	module   = "github.com/blis-train/blis-train"
	portable = "internal/stat/portable.go"
	report   = "report" // where the last bit of a number is not seen
)

// layers are the packages from the lowest to the highest: a package imports from lower
// layers alone. Packages of one layer know nothing of each other.
var layers = [][]string{
	{"internal/par", "internal/stat", "internal/repo", "internal/arch", "internal/option", "trace"},
	{"internal/files", "trace/table", "coeff/forest"},
	{"deploy", "trace/tracev2"},
	{"coeff"},
	{"library", "result", "pipeline/features", "pipeline/ridge"},
	{"internal/testkit", "pipeline/extract/source", "pipeline/rows", "report", "sim"},
	{"pipeline/extract/forms", "pipeline/fit", "sim/workload", "sim/forecast"},
	{"pipeline/export", "pipeline/extract", "pipeline/learn", "pipeline/validate"},
	{"result/folder"},
	{"simulate"},
	{"pipeline"},
	{"shard", "library", "autoscale", "predictor", "cluster"},
	{"cmd/blis-train"},
}

// products answer the neighbours' questions: they import the core, which never imports
// them, and know nothing of each other.
var products = []string{"autoscale", "cluster", "library", "predictor"}

// pure are the packages that promise no outside world: no files, clocks, logs, network or
// global random numbers.
var pure = []string{
	"coeff/forest", "internal/stat", "pipeline/features", "internal/option", "pipeline/ridge", "sim",
	"sim/forecast",
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
			if p, q := productOf(dir), productOf(of); q != "" && p != q && !strings.HasPrefix(dir, "cmd/") {
				t.Errorf("%s: %s may not import the product %s", at, dir, of)
			}
		}
	}
}

func layerOf(dir string) int {
	return slices.IndexFunc(layers, func(s []string) bool { return slices.Contains(s, dir) })
}

// productOf is the product that the package belongs to, "" in the core.
func productOf(dir string) string {
	top, _, _ := strings.Cut(dir, "/")
	if slices.Contains(products, top) {
		return top
	}
	return ""
}

// What the main module may come to, tests not counted.
const (
	mostPackages = 66
	mostEdges    = 400 // imports between our packages
	longestChain = 13  // packages that import each other in a row
	mostCode     = 96_000
)

// TestHouse counts the main module: packages, imports, code lines without blanks and
// comments. It prints what it counted.
func TestHouse(t *testing.T) {
	root := repo.Root(t)
	imports := map[string]map[string]bool{}
	code, comments := 0, 0
	for _, rel := range repoFiles(t, root) {
		dir := path.Dir(rel)
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(dir, "beam") {
			continue
		}
		if imports[dir] == nil {
			imports[dir] = map[string]bool{}
		}
		for _, spec := range parsed(t, filepath.Join(root, rel)).Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if of, ours := strings.CutPrefix(name, module+"/"); ours {
				imports[dir][of] = true
			}
		}
		c, m := lineKinds([]byte(readFile(t, filepath.Join(root, rel))))
		code, comments = code+c, comments+m
	}
	edges, longest := 0, 0
	depth := map[string]int{}
	for dir := range imports {
		edges += len(imports[dir])
		longest = max(longest, chain(dir, imports, depth))
	}
	t.Logf("%d packages, %d imports, a chain of %d; %d lines of code, %d of comments", len(imports), edges, longest, code, comments)
	for _, l := range []struct {
		what      string
		got, most int
	}{{"packages", len(imports), mostPackages}, {"imports", edges, mostEdges}, {"chain", longest, longestChain}, {"lines of code",
		code, mostCode}} {
		if l.got > l.most {
			t.Errorf("%s: got %d, want at most %d", l.what, l.got, l.most)
		}
	}
}

func chain(dir string, imports map[string]map[string]bool, depth map[string]int) int {
	if depth[dir] == 0 {
		longest := 0
		for of := range imports[dir] {
			longest = max(longest, chain(of, imports, depth))
		}
		depth[dir] = longest + 1
	}
	return depth[dir]
}

// lineKinds counts lines with code and lines with nothing but comments.
func lineKinds(src []byte) (code, comments int) {
	const comment, text = 1, 2
	kinds := make([]int, strings.Count(string(src), "\n")+3)
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		kind := text
		if tok == token.COMMENT {
			kind = comment
		}
		for i := range strings.Count(lit, "\n") + 1 {
			kinds[file.Line(pos)+i] = max(kinds[file.Line(pos)+i], kind)
		}
	}
	for _, k := range kinds {
		switch k {
		case text:
			code++
		case comment:
			comments++
		}
	}
	return code, comments
}

// executed is a function that ran, in what go tool covdata func prints.
var executed = regexp.MustCompile(`(?m)^` + module + `/(\S+)/[^/]+\.go:\d+:\s+(\S+)\s+([0-9.]+)%`)

// TestEvalWalk runs extract and fit of the smoke run with a program that counts, and
// prints the packages of which a function ran: what one span passes from a dump to
// coefficients.yaml. At most 22, and those that CONTRIBUTING.md draws.
func TestEvalWalk(t *testing.T) {
	if !repo.Eval() {
		t.Skip("BLIS_TRAIN_EVAL is not set: the walk of a span was not counted")
	}
	root, dir := repo.Root(t), t.TempDir()
	program, out, counts := filepath.Join(dir, "blis-train"), filepath.Join(dir, "out"), filepath.Join(dir, "counts")
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
	if len(list) == 0 || len(list) > 22 {
		t.Errorf("got %d packages, want 1 to 22", len(list))
	}
}

// Sizes of what people write. Generated files and the insides of raw strings are
// exempt.
const (
	maxLine     = 140 // characters; a tab is one
	maxFunction = 80  // lines of a function outside tests
	longAllowed = 8   // functions beyond, in the whole tree
)

// TestShape is gofmt, and the sizes: no line is too long, and hardly a function.
func TestShape(t *testing.T) {
	root := repo.Root(t)
	var long []string
	for _, rel := range repoFiles(t, root) {
		if filepath.Ext(rel) != ".go" {
			continue
		}
		src := []byte(readFile(t, filepath.Join(root, rel)))
		if formatted, err := format.Source(src); err != nil || string(formatted) != string(src) {
			t.Errorf("%s: not as gofmt writes it (%v)", rel, err)
			continue
		}
		f := parsed(t, filepath.Join(root, rel))
		if ast.IsGenerated(f) {
			continue
		}
		if !strings.HasSuffix(rel, "_test.go") {
			long = append(long, longFunctions(positions, f)...)
		}
		for _, line := range longLines(src) {
			t.Errorf("%s:%d: more than %d characters", rel, line, maxLine)
		}
	}
	if len(long) > longAllowed {
		t.Errorf("functions over %d lines: got %d, want at most %d:\n%s", maxFunction, len(long), longAllowed, strings.Join(long, "\n"))
	}
}

// longFunctions are those whose text spans more than maxFunction lines.
func longFunctions(fset *token.FileSet, f *ast.File) []string {
	var out []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from, to := fset.Position(fn.Pos()), fset.Position(fn.End())
		if to.Line-from.Line+1 > maxFunction {
			out = append(out, from.String()+" "+fn.Name.Name)
		}
	}
	return out
}

// longLines are the numbers of lines over maxLine, raw strings not counted.
func longLines(src []byte) []int {
	raw := rawWidths(src)
	var out []int
	for i, line := range strings.Split(string(src), "\n") {
		if utf8.RuneCountInString(line)-raw[i+1] > maxLine {
			out = append(out, i+1)
		}
	}
	return out
}

// rawWidths are the characters inside raw strings, by line.
func rawWidths(src []byte) map[int]int {
	out := map[int]int{}
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return out
		}
		if tok == token.STRING && strings.HasPrefix(lit, "`") {
			for i, part := range strings.Split(lit, "\n") {
				out[file.Line(pos)+i] += utf8.RuneCountInString(part)
			}
		}
	}
}

func TestLongLines(t *testing.T) {
	at := strings.Repeat("a", maxLine)
	src := "package p\n// " + at + "\nvar x = `" + at + at + "`\n//" + at[:maxLine-2] + "\nvar y = `\n" + at + "a\n` + \"" + at + "\"\n"
	if got := longLines([]byte(src)); !slices.Equal(got, []int{2, 7}) {
		t.Errorf("got lines %v, want 2 and 7", got)
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

// unportable are functions of package math whose last bits depend on the architecture,
// and for which package stat has its own.
var unportable = []string{"Exp", "Exp2", "Expm1", "Log", "Log1p", "Log2", "Log10", "Pow"}

// TestPortable refuses them outside tests and drawings, where a bit is not seen.
func TestPortable(t *testing.T) {
	root := repo.Root(t)
	for _, rel := range repoFiles(t, root) {
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") ||
			strings.HasPrefix(rel, portable) || strings.HasPrefix(rel, report) {
			continue
		}
		f := parsed(t, filepath.Join(root, rel))
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(unportable, s.Sel.Name) {
				return true
			}
			if of, ok := s.X.(*ast.Ident); ok && of.Name == "math" {
				t.Errorf("%s:%d: math.%s differs in its last bit between architectures: use stat.%s", rel, positions.Position(s.Pos()).Line,
					s.Sel.Name, s.Sel.Name)
			}
			return true
		})
	}
}

// TestProductsAreRounded: no product of floats is an operand of a sum without an explicit
// conversion, which is what keeps arm64 from fusing the two (Go specification,
// "Floating-point operators"). Products that reach a sum by way of a variable or an inlined
// call are seen in the compiled program alone: TestEvalSameBytes.
func TestProductsAreRounded(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \" \"}}",
		"./cmd/blis-train")
	list.Dir = repo.Root(t)
	text, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list.Args, err)
	}
	exports := map[string]string{}
	fset := token.NewFileSet()
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	products := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[f[0]] = f[1]
		rel, ours := strings.CutPrefix(f[0], module+"/")
		if !ours || strings.HasPrefix(rel, report) {
			continue
		}
		var files []*ast.File
		for _, name := range strings.Fields(f[3]) {
			file, err := parser.ParseFile(fset, filepath.Join(f[2], name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
		if _, err := (&types.Config{Importer: from}).Check(f[0], fset, files, info); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			products += unrounded(info, file, func(at token.Pos) {
				p := fset.Position(at)
				t.Errorf("%s:%d: a product feeds a sum: write float64(x*y), or arm64 fuses them", filepath.Join(rel, filepath.Base(p.Filename)), p.Line)
			})
		}
	}
	if products < 100 {
		t.Errorf("got %d products of floats, want those of the tree", products)
	}
}

// unrounded tells of every product of floats, and quotient by a power of two, that is an
// operand of a sum, and counts them all.
func unrounded(info *types.Info, file *ast.File, tell func(token.Pos)) (products int) {
	isProduct := func(e ast.Expr) bool {
		for {
			switch x := e.(type) {
			case *ast.ParenExpr:
				e = x.X
				continue
			case *ast.UnaryExpr:
				e = x.X
				continue
			case *ast.BinaryExpr:
				kind, ok := info.Types[x].Type.Underlying().(*types.Basic)
				product := x.Op == token.MUL || x.Op == token.QUO && powerOfTwo(info.Types[x.Y].Value)
				return product && ok && kind.Info()&types.IsFloat != 0 && info.Types[x].Value == nil
			}
			return false
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		var operands []ast.Expr
		switch x := n.(type) {
		case *ast.BinaryExpr:
			if isProduct(x) {
				products++
			}
			if x.Op == token.ADD || x.Op == token.SUB {
				operands = []ast.Expr{x.X, x.Y}
			}
		case *ast.AssignStmt:
			if x.Tok == token.ADD_ASSIGN || x.Tok == token.SUB_ASSIGN {
				operands = x.Rhs
			}
		}
		for _, e := range operands {
			if isProduct(e) {
				tell(e.Pos())
			}
		}
		return true
	})
	return products
}

// powerOfTwo tells whether v is a constant whose reciprocal the compiler multiplies by.
func powerOfTwo(v constant.Value) bool {
	if v == nil {
		return false
	}
	x, _ := constant.Float64Val(constant.ToFloat(v))
	fraction, _ := math.Frexp(x)
	return math.Abs(fraction) == 0.5
}

// TestUnrounded: the forms that are found, and those that are not products of floats.
func TestUnrounded(t *testing.T) {
	const source = `package p
func f(x, y, z float64, i, j int) float64 {
	s := x*y + z         // 3
	s += -(x * y)        // 4
	s = z - (x*y)        // 5
	s += float64(x*y) + 2*3*float64(i*j+1)
	s = float64(2*x) + float64(i*j+j)
	s = z - x/16         // 8: the compiler multiplies by 1/16
	s = z - x/3
	return s * x
}`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := new(types.Config).Check("p", fset, []*ast.File{file}, info); err != nil {
		t.Fatal(err)
	}
	var lines []int
	unrounded(info, file, func(at token.Pos) { lines = append(lines, fset.Position(at).Line) })
	if got := fmt.Sprint(lines); got != "[3 4 5 6 8]" {
		t.Errorf("products that feed sums are in lines %s, want [3 4 5 6 8]", got)
	}
}
