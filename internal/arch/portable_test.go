package arch

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

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
