package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/report"
)

var updateCodes = flag.Bool("update-codes", false, "rewrite codes.zst, docs/codes.md or docs/terms.md")

// TestCodesArePacked: codes.zst has the text of codes.yaml.
func TestCodesArePacked(t *testing.T) {
	text := repo.Read(t, "codes.yaml")
	if *updateCodes {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
		must(t, err)
		repo.Write(t, w.EncodeAll(text, nil), "codes.zst")
		return
	}
	if !bytes.Equal(codeText(), text) {
		t.Error("codes.zst is not codes.yaml: go generate ./cmd/blis-train")
	}
}

// Every warning, drop and rejection has a code, explain knows it,
// and docs/codes.md is generated from the same table.
func TestCodesPageIsCurrent(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "codes.md")
	want := codesMarkdown(catalogue())
	if *updateCodes {
		repo.Write(t, want, page)
	}
	got := repo.Read(t, page)
	if !bytes.Equal(got, want) {
		t.Error("docs/codes.md is stale: go test ./cmd/blis-train -run TestCodes -update-codes")
	}
}

// TestCodesThatTouchTheVerdict: each of them is a code that explain knows.
func TestCodesThatTouchTheVerdict(t *testing.T) {
	all := catalogue()
	for _, code := range touchVerdict {
		isKnown := slices.ContainsFunc(all, func(e explained) bool { return e.Code == code })
		if !isKnown {
			t.Errorf("%s is no code", code)
		}
	}
}

// TestTermsPageIsCurrent: docs/terms.md is generated from the table that explain and the report read.
func TestTermsPageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Terms\n\nThe words of the program's output, its files and these pages, each with its one meaning. `blis-train explain WORD`\n" +
		"prints the same; features and [codes](codes.md) are explained there too. Keys that only files of coefficients and fits have are\n" +
		"on [their page](coefficients.md).\n" +
		"This page is generated: `go test ./cmd/blis-train -run TestTermsPage -update-codes`.\n\n")
	table := report.NewTable("", "", "term", "unit", "meaning", "printed by")
	seen := map[string]bool{}
	keys := string(repo.Read(t, "..", "..", "docs", "coefficients.md"))
	for _, w := range report.Terms {
		onlyInFiles := w.Where == "coefficients.yaml" || w.Where == "coefficients.yaml, fit.json"
		if !onlyInFiles || !strings.Contains(keys, "`"+w.Name+"`") {
			table.Add(fmt.Sprintf("`%s`", w.Name), w.Unit, w.Meaning, w.Where)
		}
		if seen[w.Name] || !strings.HasSuffix(w.Meaning, ".") {
			t.Errorf("%s: want one definition, a sentence", w.Name)
		}
		seen[w.Name] = true
	}
	page := filepath.Join("..", "..", "docs", "terms.md")
	want := []byte(b.String() + table.Markdown(cell) + "\nRead next: [commands](commands.md), [coefficient files](coefficients.md).\n")
	if *updateCodes {
		repo.Write(t, string(want), page)
	}
	if got := repo.Read(t, page); !bytes.Equal(got, want) {
		t.Error("docs/terms.md is stale: go test ./cmd/blis-train -run TestTermsPage -update-codes")
	}
}

// TestCodesAreExplained finds constants of type trace.Code without an entry, entries
// without a constant, and entries without words.
func TestCodesAreExplained(t *testing.T) {
	known := map[string]map[string]bool{}
	for _, e := range catalogue() {
		if e.Kind == "" || e.Meaning == "" || e.Action == "" {
			t.Errorf("%s of %s: an empty field in %+v", e.Code, e.Package, e)
		}
		if known[e.Package] == nil {
			known[e.Package] = map[string]bool{}
		}
		if known[e.Package][string(e.Code)] {
			t.Errorf("%s: two entries for %q", e.Package, e.Code)
		}
		known[e.Package][string(e.Code)] = true
	}
	declared := map[string]bool{}
	root := filepath.Join("..", "..")
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		pkg := filepath.ToSlash(filepath.Dir(rel))
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		for _, c := range codeConstants(file) {
			n++
			declared[pkg+" "+c.value] = true
			if !known[pkg][c.value] {
				t.Errorf("%s:%d: code %q has no entry under %s in codes.yaml", rel, fset.Position(c.pos).Line, c.value, pkg)
			}
		}
		for _, pos := range literalCodes(file) {
			t.Errorf("%s:%d: a code written as a literal; declare a trace.Code constant", rel, fset.Position(pos).Line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, codes := range known {
		for code := range codes {
			if !declared[pkg+" "+code] {
				t.Errorf("codes.yaml: %s has no code %q", pkg, code)
			}
		}
	}
	if n < 30 {
		t.Errorf("found %d constants of type trace.Code, expected many more: the search is broken", n)
	}
}

// TestReasonsAreExplained finds words that documents print as reasons beside codes, and that
// explain does not know: constants whose type or name says that they are one.
func TestReasonsAreExplained(t *testing.T) {
	known := map[string]bool{}
	for _, e := range append(catalogue(), gateReasons()...) {
		known[string(e.Code)] = true
	}
	n := 0
	for folder, what := range map[string]string{
		"predictor": "reason", "autoscale": "verdict", "pipeline/validate": "excluded", "cluster": "reason", "internal/stat": "Check",
		"result": "Cause", "coeff": "Verdict",
	} {
		for _, path := range goFiles(t, filepath.Join("..", "..", folder)) {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(node ast.Node) bool {
				if call, is := node.(*ast.CallExpr); is && len(call.Args) > 0 && isLiteral(call.Args[0]) {
					if f, is := call.Fun.(*ast.SelectorExpr); is && f.Sel.Name == "AtMost" { // a gate of another verdict
						gate, _ := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
						if n++; !known[gate] {
							t.Errorf("%s: explain does not know the gate %q", path, gate)
						}
					}
				}
				spec, ok := node.(*ast.ValueSpec)
				if !ok || len(spec.Values) != 1 {
					return true
				}
				of, _ := spec.Type.(*ast.Ident)
				word, isText := spec.Values[0].(*ast.BasicLit)
				if !isText || word.Kind != token.STRING || !(of != nil && of.Name == what || of == nil && strings.HasPrefix(spec.Names[0].Name, what)) {
					return true
				}
				said, _ := strconv.Unquote(word.Value)
				if n++; !known[strings.ReplaceAll(said, " ", "_")] {
					t.Errorf("%s: explain does not know %q", path, said)
				}
				return true
			})
		}
	}
	if n < 50 {
		t.Errorf("found %d reasons, expected more: the search is broken", n)
	}
	for _, said := range []string{"between-configs", "loosely known", "not applicable", "Insufficient"} {
		if rc, out, _ := call("explain", said); rc != 0 || !strings.Contains(out, "reason") {
			t.Errorf("explain %q: %d, %s", said, rc, out)
		}
	}
}

// goFiles are the files of a folder that are no tests.
func goFiles(t *testing.T, folder string) []string {
	all, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range all {
		if !strings.HasSuffix(path, "_test.go") {
			out = append(out, path)
		}
	}
	return out
}

type codeConstant struct {
	value string
	pos   token.Pos
}

// codeConstants are the constants declared with type trace.Code (or Code inside trace).
func codeConstants(file *ast.File) []codeConstant {
	var out []codeConstant
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !isCodeType(spec.Type) {
			return true
		}
		for _, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				s, _ := strconv.Unquote(lit.Value)
				out = append(out, codeConstant{s, lit.Pos()})
			}
		}
		return true
	})
	return out
}

func isCodeType(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && ofTrace(e) && sel.Sel.Name == "Code"
}

// literalCodes are calls of trace.Errorf and trace.Findingf, and Code fields,
// whose code is a string literal.
func literalCodes(file *ast.File) []token.Pos {
	var out []token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CallExpr:
			sel, ok := x.Fun.(*ast.SelectorExpr)
			if !ok || len(x.Args) == 0 || sel.Sel.Name != "Errorf" && sel.Sel.Name != "Findingf" {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "trace" && isLiteral(x.Args[0]) {
				out = append(out, x.Args[0].Pos())
			}
		case *ast.CompositeLit:
			if !ofTrace(x.Type) {
				return true
			}
			for _, e := range x.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok && isLiteral(kv.Value) {
					if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Code" {
						out = append(out, kv.Pos())
					}
				}
			}
		}
		return true
	})
	return out
}

// ofTrace reports whether the type is one of package trace.
func ofTrace(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "trace"
}

// isLiteral reports a string literal; an empty one means "no code".
func isLiteral(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING && lit.Value != `""`
}

// codesMarkdown is docs/codes.md.
func codesMarkdown(all []explained) []byte {
	var b strings.Builder
	b.WriteString("# Codes\n\nFor those who met one in the output: every drop, warning, finding and rejection has a code. `blis-train explain CODE` prints the same.\n")
	b.WriteString("This page is generated: `go test ./cmd/blis-train -run TestCodesPage -update-codes`.\n\n")
	t := report.NewTable("", "", "code", "kind", "what it means", "what to do")
	for _, e := range all {
		t.Add(fmt.Sprintf("`%s`", e.Code), e.Kind, e.Meaning, e.Action)
	}
	return []byte(b.String() + t.Markdown(cell) + "\nRead next: [terms](terms.md), [commands](commands.md).\n")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
