package arch

import (
	"go/ast"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// sharedNames are free functions that several rooms may define: what a caller
// expects every room of a kind to have. Everything else has one name and one
// definition: a second function of a name is the same thing written again, or
// another thing under a name that is taken.
var sharedNames = []string{
	"Defaults", "DefaultOptions", "New", "Load", "Read", "Write", "Run", // the room says of what
	"Discover", "Export", "Fit", "Identify", "Inspect", // the stages, as package pipeline calls them
}

// notYetOneDefinition are names that still stand in several rooms. Take a name off
// when one definition is left.
var notYetOneDefinition = []string{
	"Cut",
	"Line",
	"NewDecoder",
	"NewTrainedPhysics",
	"Open",
	"Stream",
	"Sum",
	"allRows",
	"arrivalNs",
	"arrivalOf",
	"at",
	"before",
	"between",
	"ceilDiv",
	"check",
	"checkTerms",
	"clip",
	"configLabels",
	"damaged",
	"decodeJSON",
	"decodes",
	"diagnose",
	"digest",
	"distinct",
	"dtypeBytes",
	"each",
	"finite",
	"firstOf",
	"inside",
	"integers",
	"joined",
	"keep",
	"leftOut",
	"lengthsOf",
	"metricOf",
	"missing",
	"nearest",
	"newBuilder",
	"newIndex",
	"num",
	"number",
	"numbers",
	"optText",
	"over",
	"percent",
	"pick",
	"place",
	"plural",
	"quantiles",
	"reasons",
	"rows",
	"scaled",
	"sentence",
	"settle",
	"share",
	"short",
	"sortedKeys",
	"spread",
	"square",
	"vectorizer",
	"words",
	"worstGate",
}

// TestOneDefinition refuses a second free function of a name in another room.
func TestOneDefinition(t *testing.T) {
	root := repo.Root(t)
	where := map[string][]string{} // name -> "room file:line"
	for _, rel := range repoFiles(t, root) {
		if path.Ext(rel) != ".go" || strings.HasSuffix(rel, "_test.go") {
			continue
		}
		f := parsed(t, filepath.Join(root, rel))
		for _, decl := range f.Decls {
			fn, free := decl.(*ast.FuncDecl)
			if !free || fn.Recv != nil || fn.Name.Name == "main" || fn.Name.Name == "init" {
				continue
			}
			at := path.Dir(rel)
			if !slices.Contains(where[fn.Name.Name], at) { // build tags choose among files of one room
				where[fn.Name.Name] = append(where[fn.Name.Name], at)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(where)) {
		allowed := slices.Contains(sharedNames, name) || slices.Contains(notYetOneDefinition, name)
		if list := where[name]; len(list) > 1 && !allowed {
			t.Errorf("func %s is defined in %s: share one definition, or say in the name how they differ", name, strings.Join(list, " and "))
		}
	}
	for _, name := range sharedNames {
		if len(where[name]) < 2 {
			t.Errorf("func %s is defined in %d rooms: take it off the list", name, len(where[name]))
		}
	}
}
