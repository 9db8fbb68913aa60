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
		"tree 0: node 0: got column 2":             {Trees: []Tree{{{2, 1}, {Leaf, 1}, {Leaf, 2}}}},
		"tree 0: got 2 nodes with 1 splits":        {Trees: []Tree{{{0, 1}, {Leaf, 1}}}},
		"tree 0: got 0 nodes":                      {Trees: []Tree{{}}},
		"tree 0: node 1: got NaN":                  {Trees: []Tree{{{0, 1}, {Leaf, nan}, {Leaf, 2}}}},
		"tree 1: got 3 nodes with 0 splits":        {Trees: []Tree{{{Leaf, 1}}, {{Leaf, 1}, {Leaf, 1}, {Leaf, 2}}}},
		"tree 0: node 3: its children would stand": {Trees: []Tree{{{0, 1}, {Leaf, 1}, {Leaf, 1}, {0, 1}, {Leaf, 1}}}},
		"base: got +Inf":                           {Base: math.Inf(1)},
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
