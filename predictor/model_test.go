package predictor

import (
	"math"
	"math/rand/v2"
	"testing"
)

// planted are rows whose TTFT is a known function of waiting requests and prompt,
// times noise; physics knows the function up to a factor.
func planted(n int, noise float64) (*columns, []int) {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]*Row, n)
	run := make([]int32, n)
	physics := make([]float64, n)
	for i := range rows {
		r := &Row{InputTokenLength: 1 + rng.Int64N(1000), NumRequestWaiting: rng.Int64N(6), PrefixCacheScore: rng.Float64()}
		truth := 5 + 0.05*float64(r.InputTokenLength) + 20*float64(r.NumRequestWaiting)
		r.TTFTMs = truth * math.Exp(noise*rng.NormFloat64())
		rows[i], run[i], physics[i] = r, int32(i%2), truth*1.3
	}
	t := newColumns(targetTTFT, featuresLLMD, rows, run)
	t.Physics = physics
	return t, upto(n)
}

func upto(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func mape(t *columns, m model, rows []int) float64 {
	sum := 0.0
	for _, i := range rows {
		sum += math.Abs(m.Predict(t, i)/t.Y[i]-1) / float64(len(rows))
	}
	return sum
}

// Every model learns what it can: the line is a line, physics is off by its
// factor, and trees on its residuals take that away.
func TestModelsLearn(t *testing.T) {
	tab, rows := planted(3000, 0.05)
	train, test := rows[:2000], rows[2000:]
	for name, most := range map[string]float64{nameLinear: 0.05, nameTrees: 0.08, nameGated: 0.08, nameResidual: 0.06} {
		m, err := newRacer(name, tab, train, nil, growOptions{Seed: 1, Bins: 256})
		if err != nil {
			t.Fatal(err)
		}
		if got := mape(tab, m, test); got > most {
			t.Errorf("%s: MAPE %.3f, want at most %g", name, got, most)
		}
	}
	p, _ := newModel(namePhysics, tab, train, nil, growOptions{})
	if got := mape(tab, p, test); math.Abs(got-0.3) > 0.02 {
		t.Errorf("physics: MAPE %.3f, want the planted 0.3", got)
	}
	c, _ := newRacer(nameConstant, tab, train, nil, growOptions{})
	if got := mape(tab, c, test); got < 0.3 {
		t.Errorf("constant: MAPE %.3f, want more than 0.3: the test is too easy", got)
	}
}

// Where physics is right up to noise, no residual trees are used; where it is off
// by a factor, all of them.
func TestResidualKnowsWhenToStop(t *testing.T) {
	tab, rows := planted(600, 0.3)
	m, err := newModel(nameResidual, tab, rows, nil, growOptions{Seed: 1, Bins: 64})
	if err != nil || len(m.(*boosted).Forest.Trees) != 50 {
		t.Errorf("physics off by 1.3: got %d trees, %v, want 50", len(m.(*boosted).Forest.Trees), err)
	}
	for i := range tab.Physics {
		tab.Physics[i] = tab.Y[i]
	}
	m, err = newModel(nameResidual, tab, rows, nil, growOptions{Seed: 1, Bins: 64})
	if b := m.(*boosted); err != nil || b.Predict(tab, 3) != tab.Y[3] {
		t.Errorf("exact physics: got %g, %v, want %g", b.Predict(tab, 3), err, tab.Y[3])
	}
}

// A gated model is one forest for a side with fewer than 200 rows.
func TestGatedNeedsRows(t *testing.T) {
	tab, rows := planted(400, 0.05)
	m, err := newModel(nameGated, tab, rows, nil, growOptions{Seed: 1, Bins: 64})
	if err != nil {
		t.Fatal(err)
	}
	if m.(*gated).Both == nil {
		t.Error("got two forests from less than 200 idle rows, want one")
	}
}

// Weights move the constant: a row that stands for three counts three times.
func TestConstantIsWeighted(t *testing.T) {
	tab := &columns{Y: []float64{1, 2, 3}, Run: []int32{0, 0, 0}, X: [][]float64{}}
	c := newConstant(tab, []int{0, 1, 2}, []float64{1, 1, 3})
	if got := c.Predict(tab, 0); got != 3 {
		t.Errorf("got %g, want 3", got)
	}
	other := &columns{Run: []int32{7}}
	if got := c.Predict(other, 0); got != 3 {
		t.Errorf("a run without rows: got %g, want the median of all", got)
	}
}

// Calibrated quantiles cover what they say on fresh rows, group by group, and
// quantile forests never cross.
func TestConformalCovers(t *testing.T) {
	tab, rows := planted(6000, 0.4)
	train, held, test := rows[:2000], rows[2000:4000], rows[4000:]
	m, err := newRacer(nameLinear, tab, train, nil, growOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []float64{0.5, 0.9, 0.99} {
		f := conformal(tab, m, held, level)
		var y, p []float64
		for _, i := range test {
			y, p = append(y, tab.Y[i]), append(p, calibrated(&f, tab, m, i))
		}
		if got, _ := coverageOf(y, p); math.Abs(got-level) > 0.03 {
			t.Errorf("level %g: covers %.3f", level, got)
		}
	}
}

// Latencies that double in the middle of the test break fixed factors; a level that
// follows the outcomes comes back, and uses none before it is known.
func TestAdaptiveFollowsDrift(t *testing.T) {
	tab, rows := planted(8000, 0.4)
	for i := range tab.Run {
		tab.Run[i] = 0
	}
	for i := 5000; i < 8000; i++ {
		tab.Y[i] *= 1.5
	}
	m, _ := newModel(namePhysics, tab, rows[:100], nil, growOptions{})
	r := ratiosOf(tab, m, rows[:3000])
	test := rows[3000:]
	at := func(i int) int64 { return int64(i) }
	cover := func(pred []float64, from int) float64 {
		var y []float64
		for _, i := range test[from:] {
			y = append(y, tab.Y[i])
		}
		share, _ := coverageOf(y, pred[from:])
		return share
	}
	f := r.At(0.9)
	fixed := make([]float64, len(test))
	for k, i := range test {
		fixed[k] = calibrated(&f, tab, m, i)
	}
	follow := r.Adaptive(tab, m, test, 0.9, at, func(i int) int64 { return int64(i + 50) })
	if a, b := cover(fixed, 2000), cover(follow, 2000); a > 0.75 || math.Abs(b-0.9) > 0.03 {
		t.Errorf("after the drift: fixed factors cover %.3f, the adaptive level %.3f, want less than 0.75 and 0.9", a, b)
	}
	never := r.Adaptive(tab, m, test, 0.9, at, func(int) int64 { return math.MaxInt64 })
	for k := range never {
		if never[k] != fixed[k] {
			t.Fatal("an outcome that is never known moved the level")
		}
	}
}

// By hand: the ceil(11*0.9)-th of ten ratios is the tenth; of nineteen the 18th.
func TestUpperQuantileByHand(t *testing.T) {
	seq := func(n int) (v []float64) {
		for i := range n {
			v = append(v, float64(i+1))
		}
		return v
	}
	if got := upper(seq(10), 0.9); got != 10 {
		t.Errorf("10 values: got %g, want 10", got)
	}
	if got := upper(seq(19), 0.9); got != 18 {
		t.Errorf("19 values: got %g, want 18", got)
	}
	if got := pinball([]float64{10, 10}, []float64{8, 12}, 0.9); math.Abs(got-(0.9*2+0.1*2)/2) > 1e-12 {
		t.Errorf("pinball: got %g, want 1", got)
	}
}
