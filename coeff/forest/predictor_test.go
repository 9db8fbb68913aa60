package forest

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

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
