package arch

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
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
	sorting  = "internal/sorting"
)

// room is one folder: what it may import of ours and of others (besides the
// standard library), and whether it must be pure (no os, time, log, flag, net,
// global rand).
type room struct {
	ours   []string
	theirs []string
	pure   bool
}

const (
	arrow   = "github.com/apache/arrow/go/v17"
	pdata   = "go.opentelemetry.io/collector/pdata"
	gonum   = "gonum.org/v1/gonum"
	raster  = "github.com/srwiley/rasterx"
	ximage  = "golang.org/x/image"
	yaml    = "gopkg.in/yaml.v3"
	jx      = "github.com/go-faster/jx"
	zstd    = "github.com/klauspost/compress"
	xxh3    = "github.com/zeebo/xxh3"
	beam    = "github.com/apache/beam/sdks/v2"
	gcs     = "cloud.google.com/go/storage"
	gapi    = "google.golang.org/api/iterator"
	aws     = "github.com/aws/aws-sdk-go-v2"
	cli     = "github.com/urfave/cli/v2"
	pretty  = "github.com/jedib0t/go-pretty/v6"
	oci     = "github.com/opencontainers"
	xsys    = "golang.org/x/sys"
	xterm   = "golang.org/x/term"
	anyRoom = "*"
)

// rooms is the map of the house (CONTRIBUTING.md draws it).
var rooms = map[string]room{
	"cmd/blis-train": {ours: []string{anyRoom}, theirs: []string{cli, pretty, xterm, yaml}},
	// a module of its own, which schedules tasks and knows nothing of what they do
	"beam/cmd/blis-train-beam": {ours: []string{"beam/bucket", "internal/heap", "pipeline", "pipeline/option", "pipeline/shard", "coeff",
		"result", "trace"}, theirs: []string{beam}},
	"beam/bucket":            {theirs: []string{gcs, gapi, aws}},
	"beam/bucket/buckettest": {},
	"pipeline":               {ours: []string{anyRoom}},
	"pipeline/kernels":       {ours: []string{"trace", "deploy"}, theirs: []string{arrow, yaml}},
	"pipeline/library": {
		ours: []string{"internal/par", "sim", "sim/latency", "sim/replay", "sim/workload", "pipeline/extract", "pipeline/rows",
			"pipeline/kernels", "pipeline/ridge",
			"pipeline/ridge/cells", "pipeline/ridge/cv", "pipeline/ridge/gram", "pipeline/features", "pipeline/features/basis", "result", "stat",
			"coeff", "deploy", "trace", "trace/table"},
		theirs: []string{yaml},
	},
	"pipeline/learn": {ours: []string{"internal/par", "sim", "sim/latency", "sim/replay", "pipeline/ridge", "pipeline/ridge/gram",
		"pipeline/features", "coeff", "deploy", "stat", "trace"}, theirs: []string{gonum}, pure: true},
	"coeff/library":           {ours: []string{"coeff", "deploy", "trace"}},
	"pipeline/features":       {ours: []string{"trace", "deploy"}, pure: true},
	"pipeline/features/basis": {ours: []string{"trace", "deploy"}, pure: true},
	"stat":                    {pure: true},
	"internal/par":            {},
	portable:                  {pure: true},
	sorting:                   {pure: true},
	"internal/packed":         {pure: true},
	"internal/shown":          {},
	"internal/heap":           {},
	"internal/repo":           {},
	"internal/files":          {ours: []string{"trace"}},
	"internal/strictyaml":     {ours: []string{"trace"}, theirs: []string{yaml}},
	"pipeline/rows": {ours: []string{
		"pipeline/rows/aggregate", "internal/packed", "stat", "pipeline/features", "trace/table", "trace", "deploy",
	}, theirs: []string{xxh3}},
	"pipeline/rows/chunks":    {ours: []string{"stat", "trace"}, pure: true},
	"pipeline/rows/aggregate": {ours: []string{"stat", "pipeline/features", "trace", "deploy"}, pure: true},
	"pipeline/folder": {ours: []string{
		"internal/files", "pipeline/extract", "pipeline/option", "coeff/library", "coeff", "deploy", "result", "trace",
	}},
	"pipeline/simulate": {ours: []string{
		"forest", "internal/files", "internal/par", "pipeline/export/compare", "pipeline/extract", "pipeline/fleet", "pipeline/folder",
		"pipeline/option", "predict", "sim", "sim/admission", "sim/cluster", "sim/gateway", "sim/goodput", "sim/emit", "sim/latency",
		"sim/summary",
		"sim/workload", "stat", "trace/table", "trace/tracev2", "coeff", "deploy", "result", "trace",
	}},
	"pipeline/fleet": {ours: []string{
		"internal/strictyaml", "predict", "sim", "sim/admission", "sim/cluster", "sim/gateway", "sim/goodput", "trace",
	}, theirs: []string{yaml}},
	"pipeline/experiment": {ours: []string{
		"coeff", "deploy", "internal/par", "pipeline/fleet", "pipeline/optimise", "pipeline/simulate", "predict", "result", "sim",
		"sim/admission", "sim/cluster",
		"sim/gateway", "sim/goodput", "sim/latency", "sim/workload", "stat", "trace",
	}},
	"pipeline/optimise": {ours: []string{"stat"}, theirs: []string{gonum}, pure: true},
	"pipeline/option":   {pure: true},
	"pipeline/shard":    {ours: []string{"internal/files", "internal/par", "trace"}},
	"pipeline/score": {ours: []string{"pipeline/rows", "pipeline/ridge", "pipeline/ridge/cells", "pipeline/ridge/gram", "stat",
		"internal/par", "trace", "result"}},
	"queueing":       {ours: []string{"trace"}, pure: true},
	"pipeline/track": {ours: []string{"queueing", "stat", "trace"}, theirs: []string{gonum}, pure: true},
	"pipeline/sweep": {ours: []string{"trace"}},
	"sim":            {ours: []string{"sim/kv", "sim/latency", "stat", "coeff", "trace", "deploy"}, pure: true},
	"sim/kv":         {pure: true},
	"sim/latency":    {ours: []string{"stat", "coeff", "pipeline/features", "pipeline/features/basis", "trace", "deploy"}, pure: true},
	"sim/simtest":    {ours: []string{"sim/latency", "coeff", "pipeline/features", "trace", "deploy"}},
	"sim/replay":     {ours: []string{"sim", "sim/kv", "pipeline/ridge/gram", "stat", "trace"}, pure: true},
	"sim/summary":    {ours: []string{"sim", "stat", "trace"}, pure: true},
	"sim/workload":   {ours: []string{"internal/strictyaml", "trace/tracev2", "sim", "sim/latency", "stat", "trace", "deploy"}},
	"sim/emit":       {ours: []string{"sim", "sim/kv", "trace", "deploy"}},
	"sim/gateway":    {ours: []string{"stat", "trace"}, pure: true}, // no engine: a policy cannot read what engines hide
	"sim/admission":  {ours: []string{"sim/gateway", "forest", "predict", "stat", "trace"}, pure: true},
	"sim/goodput":    {ours: []string{"sim", "sim/cluster", "stat", "trace"}, pure: true},
	"sim/cluster":    {ours: []string{"sim", "sim/gateway", "sim/admission", "predict", "stat", "trace"}, pure: true},
	"trace":          {},
	"trace/tracev2":  {ours: []string{"internal/strictyaml", "trace"}},
	"trace/table":    {ours: []string{"trace"}, theirs: []string{arrow, zstd}},
	"deploy":         {ours: []string{"internal/files", "internal/strictyaml", "trace"}, theirs: []string{yaml}},
	"coeff": {ours: []string{"internal/files", "internal/strictyaml", "pipeline/features", "trace", "deploy"},
		theirs: []string{yaml}},
	"result":           {ours: []string{"forest", "trace", "deploy", "coeff", "pipeline/features"}},
	"forest":           {pure: true},
	"predict":          {ours: []string{"stat", "sim/latency", "coeff", "deploy"}, pure: true},
	"internal/arch":    {},
	"eval/faults":      {},
	"internal/python":  {},
	"internal/release": {ours: []string{"pipeline/folder"}, theirs: []string{oci}},

	// queueing models of autoscalers: the room that joins the others
	"pipeline/queue": {ours: []string{
		"internal/par", "internal/strictyaml", "queueing", "pipeline/track", "pipeline/sweep", "pipeline/fit", "pipeline/validate/machine",
		"pipeline/validate/saturation", "sim", "sim/latency", "stat", "result", "deploy", "trace/table", "trace",
	}},

	// the storeys of fit, each above the next
	"pipeline/fit/grams": {ours: []string{
		"pipeline/fit/describe", "pipeline/fit/prepare", "pipeline/fit/estimate", "pipeline/fit/options", "deploy", "internal/par",
		"pipeline/features", "pipeline/ridge", "pipeline/ridge/bootstrap", "pipeline/ridge/cells", "pipeline/ridge/cv",
		"pipeline/ridge/gram", "pipeline/rows", "result", "trace", "trace/table",
	}},
	"pipeline/fit/identify": {ours: []string{
		"pipeline/fit", "pipeline/fit/describe", "pipeline/fit/prepare", "pipeline/fit/estimate", "pipeline/fit/options", "deploy",
		"pipeline/features", "pipeline/ridge", "pipeline/ridge/bootstrap", "pipeline/ridge/cells", "pipeline/ridge/gram",
		"pipeline/rows", "result", "trace",
	}},
	"pipeline/fit": {ours: []string{
		"pipeline/fit/factors", "pipeline/fit/describe", "pipeline/fit/prepare", "pipeline/fit/estimate", "pipeline/fit/options",
		"coeff", "coeff/library", "deploy", "internal/par", "pipeline/features", "pipeline/ridge", "pipeline/ridge/cells", "pipeline/ridge/cv",
		"pipeline/ridge/gram", "pipeline/rows", "pipeline/score", "result", "stat", "trace",
	}},
	"pipeline/fit/amend":   {ours: []string{"pipeline/fit", "pipeline/fit/options", "pipeline/features", "pipeline/rows", "result", "trace"}},
	"pipeline/fit/factors": {ours: []string{"pipeline/fit/estimate", "pipeline/ridge/gram", "pipeline/rows", "result", "stat"}},
	"pipeline/fit/describe": {ours: []string{
		"pipeline/fit/estimate", "pipeline/fit/options", "coeff", "pipeline/ridge", "pipeline/ridge/bootstrap",
		"pipeline/ridge/cells", "pipeline/ridge/gram", "pipeline/rows", "result", "stat", "trace",
	}},
	"pipeline/fit/prepare": {ours: []string{
		"internal/files", "pipeline/fit/estimate", "pipeline/fit/options", "pipeline/features", "pipeline/features/basis", "pipeline/ridge",
		"pipeline/ridge/cells", "pipeline/ridge/cv", "pipeline/ridge/gram", "pipeline/rows", "pipeline/score", "result", "stat",
		"trace",
	}},
	"pipeline/fit/estimate": {ours: []string{
		"internal/packed", "pipeline/fit/options", "coeff", "pipeline/features", "pipeline/features/basis", "pipeline/ridge",
		"pipeline/ridge/cells", "pipeline/ridge/cv", "pipeline/ridge/gram", "pipeline/rows", "pipeline/score", "result", "stat", "trace",
	}},
	"pipeline/fit/options": {ours: []string{
		"coeff", "deploy", "pipeline/features", "pipeline/option", "pipeline/ridge", "pipeline/rows", "result", "trace",
	}},
	"pipeline/fit/fittest": {ours: []string{
		"internal/repo", "pipeline/fit/options", "pipeline/extract", "pipeline/rows", "pipeline/validate/saturation", "result", "trace",
		"trace/table",
	}},

	// the storeys of ridge, each above the next
	"pipeline/ridge/cv": {ours: []string{"pipeline/ridge/cells", "pipeline/ridge/gram", "pipeline/ridge", "internal/par", "stat"},
		pure: true},
	"pipeline/ridge/bootstrap": {ours: []string{"pipeline/ridge/cells", "pipeline/ridge/gram", "pipeline/ridge", "internal/par", "stat"},
		pure: true},
	"pipeline/ridge/cells":     {ours: []string{"pipeline/ridge/gram", "pipeline/ridge", "internal/par"}, pure: true},
	"pipeline/ridge":           {ours: []string{"pipeline/ridge/gram", "internal/par", "stat"}, theirs: []string{gonum}, pure: true},
	"pipeline/ridge/gram":      {ours: []string{"internal/packed", "internal/par"}, theirs: []string{gonum}, pure: true},
	"pipeline/ridge/ridgetest": {ours: []string{"pipeline/ridge/gram", "pipeline/ridge"}},

	// the storeys of validate, each above the next
	"pipeline/validate": {ours: []string{
		"pipeline/validate/gates", "pipeline/validate/replay", "pipeline/validate/machine", "pipeline/validate/saturation",
		"pipeline/validate/measured", "pipeline/option", "pipeline/score", "pipeline/rows", "pipeline/features", "sim", "sim/latency",
		"sim/workload",
		"internal/files", "internal/par", "stat", "coeff", "trace", "deploy", "result",
	}},
	"pipeline/validate/inspect": {ours: []string{
		"pipeline/validate/saturation", "pipeline/validate/measured", "pipeline/score", "pipeline/rows", "pipeline/features",
		"stat", "trace", "deploy", "result",
	}},
	"pipeline/validate/gates": {ours: []string{"pipeline/validate/measured", "coeff", "stat", "trace", "result"}},
	"pipeline/validate/replay": {ours: []string{
		"internal/packed", "pipeline/validate/machine", "pipeline/validate/measured", "pipeline/rows", "sim", "sim/latency", "sim/workload",
		"stat", "trace", "deploy", "result",
	}},
	"pipeline/validate/machine":    {ours: []string{"pipeline/rows", "sim/latency", "stat", "trace", "result"}},
	"pipeline/validate/saturation": {ours: []string{"pipeline/validate/measured", "pipeline/rows", "stat", "trace", "deploy", "result"}},
	"pipeline/validate/measured":   {ours: []string{"stat", "trace"}},
	"pipeline/validate/planted":    {ours: []string{"internal/repo", "sim", "sim/latency", "coeff", "pipeline/features", "trace", "deploy"}},

	// latency predictors
	"pipeline/forest":             {ours: []string{"forest", "internal/par", "stat"}, pure: true},
	"pipeline/predictor/decision": {ours: []string{"stat", "trace", "deploy"}},
	"pipeline/predictor/llmd":     {ours: []string{"pipeline/predictor/decision", "forest"}},
	"pipeline/predictor/model":    {ours: []string{"pipeline/predictor/decision", "pipeline/forest", "forest", "stat"}, pure: true},
	"pipeline/predictor/race": {ours: []string{
		"pipeline/predictor/model", "pipeline/predictor/decision", "pipeline/forest", "forest", "internal/par", "stat", "result",
	}, pure: true},

	// the storeys of export
	"pipeline/export/project": {ours: []string{"pipeline/features/basis", "pipeline/ridge", "pipeline/ridge/gram", "stat", "deploy", "trace"},
		pure: true},
	"pipeline/export": {
		ours: []string{"pipeline/export/project", "pipeline/export/scaler", "internal/shown", "queueing", "coeff", "deploy",
			"result", "trace"},
		theirs: []string{yaml},
	},
	"pipeline/export/scaler":     {ours: []string{"internal/shown", "queueing", "result", "trace"}, theirs: []string{yaml}},
	"pipeline/export/compare":    {ours: []string{"coeff", "deploy", "result", "trace"}},
	"pipeline/export/ledger":     {ours: []string{"result", "trace"}, theirs: []string{xsys}},
	"pipeline/export/exporttest": {ours: []string{"pipeline/features", "pipeline/features/basis", "coeff", "deploy", "result", "trace"}},

	// the storeys of the report, each above the next
	"report":            {ours: []string{"report/sections", "report/verdict", "report/figures", "report/page", "report/draw", "report/input"}},
	"report/sections":   {ours: []string{"report/page", "report/draw", "report/input", "report/words", "result", "trace"}},
	"report/verdict":    {ours: []string{"coeff", "report/page", "report/draw", "report/input", "report/words", "result"}},
	"report/figures":    {ours: []string{"report/draw", "report/input", "report/words", "result"}},
	"report/page":       {ours: []string{"report/draw", "report/words", "trace"}},
	"report/draw":       {ours: []string{"report/words"}, theirs: []string{raster, ximage}},
	"report/input":      {ours: []string{"report/words", "result"}},
	"report/words":      {},
	"report/queueing":   {ours: []string{"report/page", "report/draw", "report/words", "result"}},
	"report/experiment": {ours: []string{"report/page", "report/draw", "report/words", "result"}},
	"report/latency":    {ours: []string{"report/page", "report/draw", "report/words", "result"}},

	// the storeys of extract, each above the next
	"pipeline/extract": {ours: []string{
		"pipeline/extract/tables", "pipeline/extract/client", "pipeline/extract/foreign", "pipeline/extract/iteration", "pipeline/extract/otlp",
		"pipeline/extract/kv", "pipeline/extract/source",
		"pipeline/extract/spool", "pipeline/extract/account", "pipeline/option", "pipeline/rows/chunks", "internal/files", "trace/table", "trace",
		"deploy", "result",
	}},
	"pipeline/extract/tables": {ours: []string{
		"pipeline/extract/kv", "pipeline/extract/otlp", "pipeline/extract/source", "pipeline/extract/spool", "pipeline/extract/account",
		"trace/table", "trace", "deploy", "result",
	}},
	"pipeline/extract/foreign": {ours: []string{"trace"}, pure: true},
	"pipeline/extract/client": {ours: []string{
		"pipeline/extract/foreign", "pipeline/extract/source", "pipeline/extract/account", "pipeline/sweep", "stat", "trace/tracev2", "trace",
		"deploy",
	}},
	"pipeline/extract/kv": {ours: []string{
		"pipeline/extract/source", "pipeline/extract/spool", "pipeline/extract/account", "pipeline/extract/scan", "trace/table", "trace",
	}},
	"pipeline/extract/iteration": {ours: []string{
		"pipeline/extract/source", "pipeline/extract/spool", "pipeline/extract/account", "pipeline/extract/scan", "trace/table", "trace",
	}},
	"pipeline/extract/otlp": {
		ours:   []string{"pipeline/extract/source", "pipeline/extract/account", "pipeline/extract/scan", "trace/table", "trace"},
		theirs: []string{pdata, xxh3},
	},
	"pipeline/extract/otlp/otlptest": {theirs: []string{pdata, zstd}},
	"pipeline/extract/source": {ours: []string{"internal/files", "pipeline/extract/account", "pipeline/extract/scan", "trace/table", "trace"},
		theirs: []string{zstd}},
	"pipeline/extract/spool":   {},
	"pipeline/extract/account": {ours: []string{"trace", "result"}},
	"pipeline/extract/scan":    {},
}

var impure = []string{"os", "time", "log", "log/slog", "flag", "net", "net/http", "math/rand"}

// TestArrows fails with file:line on a forbidden import, on any folder with Go
// files that is not in the map, and on permissions that nobody uses.
func TestArrows(t *testing.T) {
	root := repo.Root(t)
	seen, used := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "out") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		rel, _ := filepath.Rel(root, p)
		dir := path.Dir(filepath.ToSlash(rel))
		r, ok := rooms[dir]
		if !ok {
			t.Errorf("%s:1: room %q is not in the map of internal/arch", rel, dir)
			return nil
		}
		seen[dir] = true
		checkFile(t, p, rel, dir, r, used)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range rooms {
		if !seen[name] {
			t.Errorf("room %q is in the map but has no Go file", name)
		}
		for _, allowed := range slices.Concat(r.ours, r.theirs) {
			if allowed != anyRoom && !used[name+" "+allowed] {
				t.Errorf("%s may import %s and does not: take it off the map", name, allowed)
			}
		}
	}
}

// checkFile notes in used which permissions of the room the file needs.
func checkFile(t *testing.T, file, rel, dir string, r room, used map[string]bool) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("%s: %v", rel, err)
		return
	}
	test := strings.HasSuffix(rel, "_test.go")
	for _, spec := range f.Imports {
		imp, _ := strconv.Unquote(spec.Path.Value)
		at := fmt.Sprintf("%s:%d", rel, fset.Position(spec.Pos()).Line)
		switch own, ours := strings.CutPrefix(imp, module+"/"); {
		case test, own == portable, own == sorting: // which stand in for packages math and slices
		case ours:
			used[dir+" "+own] = true
			if !slices.Contains(r.ours, anyRoom) && !slices.Contains(r.ours, own) {
				t.Errorf("%s: %s may not import %s", at, dir, own)
			}
		case strings.Contains(strings.Split(imp, "/")[0], "."):
			k := slices.IndexFunc(r.theirs, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") })
			if k < 0 {
				t.Errorf("%s: %s may not import %s", at, dir, imp)
				continue
			}
			used[dir+" "+r.theirs[k]] = true
		case r.pure && slices.Contains(impure, imp):
			t.Errorf("%s: %s is pure and may not import %s", at, dir, imp)
		}
	}
}
