package arch

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/scanner"
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
	"unicode/utf8"

	"github.com/blis-train/blis-train/internal/repo"
)

const (
	module   = "github.com/blis-train/blis-train"
	portable = "internal/stat/portable.go"
	report   = "pipeline/report" // where the last bit of a number is not seen
)

// layers are the packages from the lowest to the highest: a package imports from lower
// layers alone. Packages of one layer know nothing of each other.
var layers = [][]string{
	{"internal/par", "internal/stat", "internal/repo", "internal/arch", "pipeline/option", "trace"},
	{"internal/files", "trace/table", "coeff/forest"},
	{"deploy", "trace/tracev2"},
	{"coeff"},
	{"sim/kernels", "pipeline/result", "pipeline/features", "pipeline/ridge"},
	{"internal/testkit", "pipeline/extract/source", "pipeline/rows", "pipeline/report", "sim"},
	{"pipeline/extract/forms", "pipeline/fit", "sim/workload", "sim/predict"},
	{"pipeline/export", "pipeline/extract", "pipeline/learn", "pipeline/validate"},
	{"pipeline/folder"},
	{"pipeline/simulate"},
	{"pipeline"},
	{"pipeline/shard", "library", "autoscale", "predictor", "cluster"},
	{"cmd/blis-train"},
}

// products answer the neighbours' questions: they import the core, which never imports
// them, and know nothing of each other.
var products = []string{"autoscale", "cluster", "library", "predictor"}

// pure are the packages that promise no outside world: no files, clocks, logs, network or
// global random numbers.
var pure = []string{
	"coeff/forest", "internal/stat", "pipeline/features", "pipeline/option", "pipeline/ridge", "sim",
	"sim/predict",
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
