package arch

import (
	"go/ast"
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
