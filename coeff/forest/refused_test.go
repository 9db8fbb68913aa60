package forest

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// TestTreeTextIsRefused: a node is a column, "<" and a threshold, or "=" and a value; the error has the node's number.
func TestTreeTextIsRefused(t *testing.T) {
	const shape, number = "want column<threshold or =value", "want a number after < or ="
	for text, want := range map[string]string{
		"3":            `node 0: got "3", ` + shape,
		"=1 0.5":       `node 1: got "0.5", ` + shape,
		"x<1":          `node 0: got "x<1", ` + shape,
		"<1":           `node 0: got "<1", ` + shape,
		"-1<1":         `node 0: got "-1<1", ` + shape,
		"0<1 =1 -2<3":  `node 2: got "-2<3", ` + shape,
		"0<":           `node 0: got "0<", ` + number,
		"0<x":          `node 0: got "0<x", ` + number,
		"0<1 =1 =":     `node 2: got "=", ` + number,
		"0<1 =1e39 =1": `node 1: got "=1e39", ` + number, // above the largest float32
	} {
		tree := Tree{{Leaf, 7}}
		if err := tree.UnmarshalText([]byte(text)); err == nil || err.Error() != "forest: "+want {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
		if len(tree) != 1 || tree[0].Value != 7 {
			t.Errorf("%q: got %v, want the tree as it was", text, tree)
		}
	}
}

// TestDepth: the splits on the longest path, also of a tree whose last children are missing.
func TestDepth(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "=1": 0, "0<1 =1 =2": 1, "0<1 =1 0<2 =2 =3": 2, "0<1 0<2 =1 0<3 =2 =3 =4": 3,
		"0<1 0<2 0<3 =1 =2 =3 =4": 2, "0<1 =1": 0, "0<1": 0, "0<1 0<2 =1 =2": 1,
	} {
		var tree Tree
		if err := tree.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := tree.Depth(); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// TestLimitsOfAForest: 1 to 256 columns, a finite base and trees of at most 255 splits in depth.
func TestLimitsOfAForest(t *testing.T) {
	chain := func(depth int) (tree Tree) {
		for range depth {
			tree = append(tree, Node{0, 1}, Node{Leaf, 1}) // a split's left child is a leaf, which comes before the right one
		}
		return append(tree, Node{Leaf, 2})
	}
	for _, c := range []struct {
		columns int
		forest  Forest
		want    string
	}{
		{1, Forest{}, ""},
		{256, Forest{}, ""},
		{0, Forest{}, "forest: got 0 columns, want 1 to 256"},
		{257, Forest{}, "forest: got 257 columns, want 1 to 256"},
		{1, Forest{Base: math.NaN()}, "forest: base: got NaN, want a finite number"},
		{1, Forest{Base: math.Inf(1)}, "forest: base: got +Inf, want a finite number"},
		{1, Forest{Base: math.Inf(-1)}, "forest: base: got -Inf, want a finite number"},
		{1, Forest{Trees: []Tree{chain(255)}}, ""},
		{1, Forest{Trees: []Tree{chain(1), chain(256)}}, "forest: tree 1: got depth 256, want at most 255"},
	} {
		e, err := c.forest.Compile(c.columns)
		if c.want != "" {
			if err == nil || err.Error() != c.want {
				t.Errorf("%d columns: got %v, want %q", c.columns, err, c.want)
			}
			continue
		}
		if err != nil || e.Features() != c.columns {
			t.Errorf("%d columns: got %+v, %v", c.columns, e, err)
		}
	}
}

// TestDamagedPredictorFiles: what a list of targets must be, and the error of each forest of a target that is damaged, also
// if a whole forest follows it.
func TestDamagedPredictorFiles(t *testing.T) {
	const bad = `{"trees":["3<1 =1 =2"]}`
	const whole = `{"trees":["=1"]}`
	target := func(forests string) string { return `[{"name":"ttft_ms","columns":[{}],` + forests + `}]` }
	for targets, want := range map[string]string{
		`{}`:     "targets: got no list",
		`"list"`: "targets: got no list",
		`null`:   "targets: got no list",
		`[{"name":"ttft_ms","trees":` + whole + `,"columns":[{}]},{}]`: "targets: got a target without a name",
		`[3]`:                           "cannot unmarshal number",
		target(`"trees":` + bad):        "ttft_ms: forest: tree 0: node 0: got column 3",
		target(`"columns":[]`):          "ttft_ms: got no trees",
		target(`"trees":["3"]`):         "cannot unmarshal",
		target(`"trees_idle":` + whole): "ttft_ms: got no trees",
		target(`"trees":` + whole):      "",
		target(`"trees":{"base":1}`):    "",
		target(`"trees":` + bad + `,"trees_idle":` + whole + `,"trees_queued":` + whole + `,"residual":` + whole): "ttft_ms: forest: tree 0: node 0",
		target(`"trees":` + whole + `,"trees_idle":` + bad + `,"trees_queued":` + whole):                          "ttft_ms: forest: tree 0: node 0",
		target(`"trees":` + whole + `,"trees_queued":` + bad + `,"residual":` + whole):                            "ttft_ms: forest: tree 0: node 0",
		target(`"trees":` + whole + `,"residual":` + bad):                                                         "ttft_ms: forest: tree 0: node 0",
	} {
		_, err := Load(strings.NewReader(`{"schema_version":"1","targets":` + targets + `}`))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", targets, err, want)
		}
	}
}

// TestPredictorWithoutSomeForests: a gated prediction needs both forests and the column of waiting requests; without a
// residual forest the physics' estimate stays, and without factors there is no P90.
func TestPredictorWithoutSomeForests(t *testing.T) {
	leaf := func(v float32) *Forest { return &Forest{Trees: []Tree{{{Leaf, v}}}} }
	for name, c := range map[string]struct {
		column       string
		idle, queued *Forest
		empty, busy  float64 // logarithms of the predictions of rows with 0 and 1 requests that wait
	}{
		"both":      {"num_request_waiting", leaf(1), leaf(2), 1, 2},
		"idle":      {"num_request_waiting", leaf(1), nil, 3, 3},
		"queued":    {"num_request_waiting", nil, leaf(2), 3, 3},
		"none":      {"num_request_waiting", nil, nil, 3, 3},
		"no column": {"num_request_running", leaf(1), leaf(2), 3, 3},
	} {
		text, err := json.Marshal(map[string]any{"schema_version": "1", "targets": []Target{{Name: "tpot_ms",
			Columns: []Column{{Name: c.column, Max: 1}}, Trees: leaf(3), Idle: c.idle, Queued: c.queued}}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := Load(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		e := p.Target("tpot_ms")
		for waiting, want := range map[float64]float64{0: c.empty, 1: c.busy} {
			if got, _ := e.PredictGated([]float64{waiting}); math.Abs(got-math.Exp(want)) > 1e-9 {
				t.Errorf("%s: got %g with %g waiting, want %g", name, got, waiting, math.Exp(want))
			}
		}
		if got, isOutside := e.PredictWith([]float64{1.6}, 12); got != 12 || !isOutside {
			t.Errorf("%s: got %g and outside %v without a residual, want 12 outside", name, got, isOutside)
		}
		if got, ok := e.P90([]float64{0}); got != 0 || ok {
			t.Errorf("%s: got a P90 of %g, %v", name, got, ok)
		}
	}
}
