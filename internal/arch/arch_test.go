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
	portable = "internal/portable"
)

// pure are the packages that promise no outside world: no files, clocks, logs,
// network or global random numbers. A name ending in / stands for all below it.
var pure = []string{
	"autoscale", "cluster/gateway", "coeff/forest", "internal/portable", "pipeline/features/", "pipeline/learn", "pipeline/option",
	"pipeline/ridge/", "predictor/trees", "sim", "sim/kv", "sim/latency", "sim/predict",
	"sim/replay", "sim/summary", "stat",
}

var impure = []string{"os", "time", "log", "log/slog", "flag", "net", "net/http", "math/rand"}

// TestPure fails with file:line where a pure package imports the outside world.
func TestPure(t *testing.T) {
	root := repo.Root(t)
	for _, rel := range repoFiles(t, root) {
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || !promisesPurity(path.Dir(rel)) {
			continue
		}
		f := parsed(t, filepath.Join(root, rel))
		for _, spec := range f.Imports {
			if name, _ := strconv.Unquote(spec.Path.Value); slices.Contains(impure, name) {
				t.Errorf("%s:%d: %s is pure and may not import %s", rel, positions.Position(spec.Pos()).Line, path.Dir(rel), name)
			}
		}
	}
}

func promisesPurity(dir string) bool {
	return slices.ContainsFunc(pure, func(p string) bool { return dir == p || strings.HasSuffix(p, "/") && strings.HasPrefix(dir+"/", p) })
}
