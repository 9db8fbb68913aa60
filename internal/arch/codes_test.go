package arch

import (
	"go/ast"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// coded is a constant of type trace.Code.
type coded struct {
	pkg, name, value, at string
	used                 int
}

// TestCodesAppear: something can emit every code.
func TestCodesAppear(t *testing.T) {
	root := repo.Root(t)
	codes := map[string]*coded{} // by package and name
	var files []*ast.File
	var rels []string
	for _, rel := range repoFiles(t, root) {
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			continue
		}
		f := parsed(t, filepath.Join(root, rel))
		files = append(files, f)
		rels = append(rels, rel)
		declaredCodes(positions, f, path.Dir(rel), codes)
	}
	for i, f := range files {
		countCodes(f, path.Dir(rels[i]), codes)
	}
	for _, c := range codes {
		if c.used == 0 {
			t.Errorf("%s: %s (%s) can never appear: nothing uses it", c.at, c.name, c.value)
		}
	}
}

// declaredCodes collects `Name trace.Code = "value"`.
func declaredCodes(fset *token.FileSet, f *ast.File, pkg string, codes map[string]*coded) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if !isCode(v.Type) || len(v.Values) != 1 {
				continue
			}
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok {
				continue
			}
			value, _ := strconv.Unquote(lit.Value)
			codes[pkg+"."+v.Names[0].Name] = &coded{pkg: pkg, name: v.Names[0].Name, value: value, at: fset.Position(v.Pos()).String()}
		}
	}
}

// countCodes counts what uses a code.
func countCodes(f *ast.File, pkg string, codes map[string]*coded) {
	packages := map[string]string{}
	for _, imp := range f.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		if own, ok := strings.CutPrefix(p, module+"/"); ok {
			name := path.Base(own)
			if imp.Name != nil {
				name = imp.Name.Name
			}
			packages[name] = own
		}
	}
	find := func(e ast.Expr) *coded {
		switch e := e.(type) {
		case *ast.Ident:
			return codes[pkg+"."+e.Name]
		case *ast.SelectorExpr:
			if x, ok := e.X.(*ast.Ident); ok {
				return codes[packages[x.Name]+"."+e.Sel.Name]
			}
		}
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if c := find(n); c != nil {
				c.used++
				return false
			}
		case *ast.Ident:
			if c := find(n); c != nil {
				c.used++
			}
		}
		return true
	})
	for _, d := range f.Decls { // the declaration itself is no use
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			for _, name := range s.(*ast.ValueSpec).Names {
				if c := codes[pkg+"."+name.Name]; c != nil {
					c.used--
				}
			}
		}
	}
}

func isCode(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name == "Code"
	case *ast.Ident:
		return e.Name == "Code"
	}
	return false
}
