package arch

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

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
	{"result", "pipeline/features", "pipeline/ridge"},
	{"internal/testkit", "pipeline/extract/source", "pipeline/rows", "pipeline/report", "sim"},
	{"pipeline/extract/forms", "pipeline/extract/otlp", "pipeline/fit", "sim/workload", "sim/predict"},
	{"pipeline/export", "pipeline/extract", "pipeline/learn", "pipeline/validate"},
	{"pipeline/folder", "internal/planted"},
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
			strings.HasPrefix(dir, "cmd/blis-train-beam") {
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
