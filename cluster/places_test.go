package cluster

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/simulate"
)

// TestPlacesOfBadValues: an error about a value of cluster.yaml has the line and the column of the value, or of the
// closest one around it, whether it is found while the file is decoded, when it is checked or when the cluster is built.
func TestPlacesOfBadValues(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, onL4, dir, "run.yaml")
	repo.Write(t, strings.Replace(onL4, "max_num_seqs: 8", "max_num_seqs: 8, block_size: 32", 1), dir, "blocks", "run.yaml")
	repo.Write(t, threeClasses, dir, "load.yaml")
	for text, want := range map[string]string{
		"scrape: daily":                                           `2:9: scrape: got "daily", want staggered or aligned`,
		"retry: often":                                            `2:8: retry: got "often", want none or backoff`,
		"retry: {kind: backoff, tries: 1}":                        "2:31: retry.tries: got 1, want 2 to 100",
		"retry: {kind: backoff, factor: 0}":                       "2:8: retry: got base 500000 us and factor 0, want >= 1 and >= 1",
		"instances: []":                                           "2:12: instances: got none, want >= 1 and at most 64 in all",
		"instances: many":                                         `2:12: cluster: instances: got "many", want a number or a list of groups`,
		"instances: 0":                                            "2:12: instances: got 0, want >= 1 and at most 64 in all",
		"instances: [{count: 2}, {count: 63}]":                    "2:12: instances: got 65, want",
		"instances: [{count: 1}, {count: 65}]":                    "2:33: instances: got 65, want",
		"instances: [{count: 1}, {count: -1}]":                    "2:33: instances: got -1, want",
		"instances: [{count: 1, role: x}]":                        `2:30: instances[0].role: got "x", want prefill or decode`,
		"instances: [{count: 1, role: prefill}]":                  "2:12: instances: got roles",
		"instances: [{count: 1}, {deployment: blocks, count: 1}]": "2:25: instances: got blocks of 16 and of 32 tokens",
		"priorities: {gold: 101}":                                 "2:20: priorities.gold: got 101, want -100 to 100",
		"goodput_slo_targets:\n  gold: {ttft_ms: -1}":             "3:9: goodput_slo_targets.gold: got -1, 0 and 0 ms, want all >= 0",
		"transfer: {bandwidth_gb_s: 0}":                           "2:11: transfer: got 0 GB/s",
		"admission: none":                                         `2:12: admission policy: got "none", want one of`,
		"admission: {policy: token-bucket, capacity: 0}":          "2:45: admission.capacity: got 0, want finite and >= 1",
		"admission: {policy: predictive, predict_on: x}":          `2:45: admission.predict_on: got "x", want chosen or best`,
		"admission: {policy: predictive, floor: 2}":               "2:40: admission.floor: got 2, want 0 to 1",
		"admission: {policy: predictive, eps: {a: 1}}":            "2:42: admission.eps.a: got 1, want between 0 and 1",
		"admission: {policy: slo-gated}":                          `2:12: slo-gated signal: got "", want`,
		"admission: {policy: predictive-seed, variant: c}":        `2:47: predictive-seed variant: got "c", want a or b`,
		"admission: {policy: slo-gated, signal: max-queue-depth, thresholds: {a: -1}}": "2:73: admission.thresholds.a: got -1",
		"admission: {policy: token-bucket, k: 3}":                                      "2:35: cluster: admission.k: got it with policy token-bucket",
		"routing: nearest": `2:10: routing policy: got "nearest", want`,
		"routing: {policy: weighted, scorers: 'pa:x'}":                                                                 `2:38: scorers: got "pa:x", want NAME:WEIGHT`,
		"routing: {policy: weighted, scorers: 'pa:1,pa:2'}":                                                            "2:38: scorers: got prefix-affinity twice, want each once",
		"routing: {policy: round-robin, scorers: 'pa:1'}":                                                              "2:41: routing.scorers: got them with policy",
		"routing: {policy: llmd, scorers: 'pa:1'}":                                                                     `2:34: routing.scorers: got "pa:1" with policy llmd`,
		"routing: {policy: llmd, scorers: [best]}":                                                                     `2:35: routing.scorers: got "best", want latency-scorer`,
		"routing: {policy: llmd, scorers: [a, b]}":                                                                     "2:34: cluster: routing.scorers: got 2 plugins, want one",
		"routing: {policy: llmd, picker: best}":                                                                        `2:33: routing.picker: got "best", want`,
		"routing: {policy: llmd, filters: [best]}":                                                                     `2:35: routing.filters: got "best", want`,
		"routing: {policy: weighted, picker: best}":                                                                    "2:10: routing: got filters, a picker",
		"routing: {policy: llmd, picker: {type: max-score-picker, parameters: {ttftWeight: 1}}}":                       `2:71: cluster: routing: max-score-picker: got parameter "ttftWeight"`,
		"routing: {policy: llmd, scorers: [{type: latency-scorer, parameters: {headroomSelectionStrategy: x}}]}":       `2:98: routing.scorers: headroomSelectionStrategy: got "x"`,
		"routing: {policy: llmd, filters: [{type: prefix-cache-affinity-filter, parameters: {ttftSource: x}}]}":        `2:97: routing.filters: ttftSource: got "x"`,
		"routing: {policy: llmd, filters: [{type: prefix-cache-affinity-filter, parameters: {affinityThreshold: 2}}]}": "2:35: routing.filters: prefix-cache-affinity-filter: got threshold 2",
		"routing: {index_update: never}":                                                                               `2:25: index update: got "never", want on-route`,
		"routing: {index_blocks: -1}":                                                                                  "2:25: index_blocks: got -1, want >= 0",
		"snapshot_refresh_us: -5":                                                                                      "2:22: snapshot_refresh_us: got -5, want >= 0",
		"scheduler: lifo":                                                                                              `2:12: scheduler: got "lifo", want fcfs or priority-fcfs`,
		"age_weight: 3":                                                                                                "2:13: age weight: got 3, want 0 to 1 a us",
		"shadow_share: 2":                                                                                              "2:15: shadow share: got 2, want 0 to 1",
	} {
		repo.Write(t, "export_step_start: true\n"+text+"\n", dir, "cluster.yaml")
		o := Options{Options: simulate.DefaultOptions(), File: filepath.Join(dir, "cluster.yaml")}
		o.Deployment, o.Workload, o.Model = dir, filepath.Join(dir, "load.yaml"), simulate.ModelRoofline
		o.Out, o.Force = filepath.Join(dir, "out"), true
		_, err := Simulate(t.Context(), o)
		if want := o.File + ":" + want; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestBadValuesHavePlaces: no code of the package makes an error about the spec without the path of its value, except for
// presets and experiments, which read no cluster.yaml.
func TestBadValuesHavePlaces(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		switch name {
		case "recording.go", "isolation.go", "workload.go", "servers.go":
			continue
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name == "specErrorf" {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				of, isSelector := call.Fun.(*ast.SelectorExpr)
				code, isName := call.Args[0].(*ast.Ident)
				if isSelector && of.Sel.Name == "Errorf" && isName && code.Name == "codeBadSpec" {
					t.Errorf("%s: want specErrorf with the path of the value", set.Position(call.Pos()))
				}
				return true
			})
		}
	}
}
