package forest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// slow walks a tree the obvious way.
func slow(t Tree, x []float64) float32 {
	child := map[int]int{}
	splits := 0
	for i, n := range t {
		if n.Feature != Leaf {
			child[i] = 2*splits + 1
			splits++
		}
	}
	at := 0
	for t[at].Feature != Leaf {
		v := float32(x[t[at].Feature])
		isLeft := v != v || v < t[at].Value
		at = child[at]
		if !isLeft {
			at++
		}
	}
	return t[at].Value
}

// grow is a random tree over p columns.
func grow(rng *rand.Rand, p, depth int) Tree {
	t := Tree{}
	open := []int{depth}
	for len(open) > 0 {
		d := open[0]
		open = open[1:]
		if d == 0 || d < depth && rng.Float64() < 0.2 {
			t = append(t, Node{Leaf, float32(rng.NormFloat64())})
			continue
		}
		t = append(t, Node{rng.IntN(p), float32(rng.IntN(8)) / 4})
		open = append(open, d-1, d-1)
	}
	return t
}

func randomForest(rng *rand.Rand, trees, p, depth int) *Forest {
	f := &Forest{Base: rng.NormFloat64()}
	for range trees {
		f.Trees = append(f.Trees, grow(rng, p, depth))
	}
	return f
}

func TestMarginIsTheSumOfTheLeaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, trees := range []int{0, 1, 3, 4, 5, 50} {
		f := randomForest(rng, trees, 5, 6)
		e, err := f.Compile(5)
		if err != nil {
			t.Fatal(err)
		}
		for range 500 {
			x := make([]float64, 5)
			want := float32(f.Base)
			for i := range x {
				x[i] = float64(rng.IntN(8)) / 4 // often on a threshold
			}
			if rng.IntN(4) == 0 {
				x[rng.IntN(5)] = math.NaN()
			}
			for _, tree := range f.Trees {
				want += slow(tree, x)
			}
			if got := e.Margin(x); got != float64(want) {
				t.Fatalf("%d trees, row %v: got %v, want %v", trees, x, got, want)
			}
		}
	}
}

// A row on the threshold goes right, NaN goes left, and the comparison is in
// float32: 0.1 as a double is below 0.1 as a float, yet on the threshold.
func TestSplitRule(t *testing.T) {
	e, err := (&Forest{Trees: []Tree{{{0, 0.1}, {Leaf, -1}, {Leaf, 1}}}}).Compile(1)
	if err != nil {
		t.Fatal(err)
	}
	for x, want := range map[float64]float64{0.1: 1, 0.0999: -1, 0.2: 1, math.Inf(1): 1, math.Inf(-1): -1} {
		if got := e.Margin([]float64{x}); got != want {
			t.Errorf("x = %g: got %g, want %g", x, got, want)
		}
	}
	zero, err := (&Forest{Trees: []Tree{{{0, 0}, {Leaf, -1}, {Leaf, 1}}}}).Compile(1)
	if err != nil {
		t.Fatal(err)
	}
	if got := zero.Margin([]float64{math.Copysign(0, -1)}); got != 1 {
		t.Errorf("-0 at threshold 0: got %g, want the right leaf", got)
	}
	if got := e.Margin([]float64{math.NaN()}); got != -1 {
		t.Errorf("NaN: got %g, want the left leaf", got)
	}
}

func TestTextRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	f := randomForest(rng, 20, 7, 5)
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var again Forest
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(*f) != fmt.Sprint(again) {
		t.Errorf("the forest changed in a round trip")
	}
	line, _ := Tree{{2, 0.35}, {Leaf, -0.1}, {Leaf, 0.2}}.MarshalText()
	if string(line) != "2<0.35 =-0.1 =0.2" {
		t.Errorf("got %q", line)
	}
}

func TestCompileRefuses(t *testing.T) {
	nan := float32(math.NaN())
	for want, f := range map[string]*Forest{
		"tree 0: node 0: got column 2":            {Trees: []Tree{{{2, 1}, {Leaf, 1}, {Leaf, 2}}}},
		"tree 0: got 2 nodes with 1 splits":       {Trees: []Tree{{{0, 1}, {Leaf, 1}}}},
		"tree 0: got 0 nodes":                     {Trees: []Tree{{}}},
		"tree 0: node 1: got NaN":                 {Trees: []Tree{{{0, 1}, {Leaf, nan}, {Leaf, 2}}}},
		"tree 1: got 3 nodes with 0 splits":       {Trees: []Tree{{{Leaf, 1}}, {{Leaf, 1}, {Leaf, 1}, {Leaf, 2}}}},
		"tree 0: node 3: its children would come": {Trees: []Tree{{{0, 1}, {Leaf, 1}, {Leaf, 1}, {0, 1}, {Leaf, 1}}}},
		"base: got +Inf":                          {Base: math.Inf(1)},
	} {
		if _, err := f.Compile(2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := (&Forest{}).Compile(257); err == nil {
		t.Error("257 columns: got no error")
	}
}

func FuzzTree(f *testing.F) {
	f.Add("2<0.35 =-0.1 =0.2")
	f.Add("=1")
	f.Add("0<1 1<NaN =2 = <")
	f.Fuzz(func(t *testing.T, text string) {
		var tree Tree
		if tree.UnmarshalText([]byte(text)) != nil {
			return
		}
		e, err := (&Forest{Trees: []Tree{tree}}).Compile(3)
		if err != nil {
			return
		}
		e.Margin([]float64{0, 1, math.NaN()})
		line, _ := tree.MarshalText()
		var again Tree
		if err := again.UnmarshalText(line); err != nil || fmt.Sprint(tree) != fmt.Sprint(again) {
			t.Fatalf("%q: got %v and %v", line, again, err)
		}
	})
}

// BenchmarkMargin is two forests of 200 trees of depth 6 over 13 columns: a
// prediction of TTFT and TPOT.
func BenchmarkMargin(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 1))
	var e [2]*Evaluator
	for i := range e {
		e[i], _ = randomForest(rng, 200, 13, 6).Compile(13)
	}
	rows := make([][]float64, 1024)
	for i := range rows {
		rows[i] = make([]float64, 13)
		for j := range rows[i] {
			rows[i][j] = 2 * rng.Float64()
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x := rows[i%len(rows)]
		e[0].Margin(x)
		e[1].Margin(x)
	}
}

func document(t *testing.T) string {
	t.Helper()
	leaf := func(v float32) *Forest { return &Forest{Trees: []Tree{{{Leaf, v}}}} }
	doc := map[string]any{"schema_version": "1", "surprise": true, "targets": []Target{{
		Name: "ttft_ms", Unit: "ms", Columns: []Column{{Name: "num_request_waiting", Max: 10}, {Name: "prefix_cache_score", Max: 1},
			{Name: "kind", IsCategory: true}},
		Trees: &Forest{Base: math.Log(100), Trees: []Tree{{{0, 5}, {Leaf, 0}, {Leaf, 1}}}}, Idle: leaf(1), Queued: leaf(2), Residual: leaf(0.5),
		Quantiles: []LevelForest{{0.5, *leaf(3)}, {0.9, *leaf(2)}},
		Factors:   []LevelFactors{{"trees", 0.9, [4]float64{1, 2, 3, 4}}},
	}}}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Everything a router asks of a loaded file.
func TestPredictor(t *testing.T) {
	p, err := Load(strings.NewReader(document(t)))
	if err != nil {
		t.Fatal(err)
	}
	e := p.Target("ttft_ms")
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-4*want {
			t.Errorf("%s: got %g, want %g", what, got, want)
		}
	}
	x := []float64{6, 0.7, 99}
	ms, outside := e.Predict(x)
	near("trees", ms, 100*math.E)
	if outside {
		t.Error("a row inside the range is flagged")
	}
	ms, _ = e.PredictGated(x)
	near("gated, queued", ms, math.Exp(2))
	ms, _ = e.PredictGated([]float64{0, 0, 0})
	near("gated, idle", ms, math.E)
	ms, _ = e.PredictWith(x, 10)
	near("residual", ms, 10*math.Exp(0.5))
	ms, ok := e.P90(x)
	near("P90 of a queued row with half its prompt cached", ms, 4*100*math.E)
	if !ok {
		t.Error("P90: not ok")
	}
	near("a quantile is not below a lower one", e.Quantile(1, x), math.Exp(3))
	if _, outside := e.Predict([]float64{16, 0, 0}); !outside {
		t.Error("16 waiting where training saw 10: got no flag, want one above 15")
	}
	if _, outside := e.Predict([]float64{15, math.NaN(), 0}); outside {
		t.Error("15 waiting and an unknown score are flagged")
	}
	if p.Target("tpot_ms") != nil {
		t.Error("a target that is not in the file")
	}
	if n := testing.AllocsPerRun(100, func() { e.Predict(x); e.P90(x) }); n != 0 {
		t.Errorf("got %g allocations, want 0", n)
	}
}

func TestLoadRefuses(t *testing.T) {
	for want, text := range map[string]string{
		"schema_version: got \"9\"": `{"schema_version":"9","targets":[]}`,
		"got no targets":            `{"schema_version":"1","targets":[]}`,
		"got no trees":              `{"schema_version":"1","targets":[{"name":"ttft_ms"}]}`,
		"unexpected":                `{"schema_version":"1",`,
		"tree 0: node 0":            `{"schema_version":"1","targets":[{"name":"a","columns":[{}],"trees":{"trees":["3<1 =1 =2"]}}]}`,
	} {
		if _, err := Load(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// BenchmarkPredict is what a router pays per request and instance: TTFT and TPOT
// from a loaded file, 200 trees of depth 6 each, with the check of the range. The
// alternative is an HTTP hop of milliseconds to a prediction server.
func BenchmarkPredict(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 1))
	var e [2]*Evaluated
	for k, columns := range []int{13, 9} {
		t := Target{Name: "ttft_ms", Columns: make([]Column, columns), Trees: randomForest(rng, 200, columns, 6)}
		for c := range t.Columns {
			t.Columns[c].Max = 2
		}
		var err error
		if e[k], err = t.evaluated(); err != nil {
			b.Fatal(err)
		}
	}
	rows := make([][]float64, 1024)
	for i := range rows {
		rows[i] = make([]float64, 13)
		for c := range rows[i] {
			rows[i][c] = 2 * rng.Float64()
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x := rows[i%len(rows)]
		e[0].Predict(x)
		e[1].Predict(x[:9])
	}
}
