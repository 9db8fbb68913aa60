package ridge_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// TestPullIsTheLossItself: slope and bend are half the loss' derivatives, with
// hard ends and with soft ones, and no loss is ever concave.
func TestPullIsTheLossItself(t *testing.T) {
	b := ridge.Bounds{Lo: []float64{0, 700, 900, 500}, Hi: []float64{1500, 40000, 900, 1000}}
	const h = 1e-3
	for _, spread := range []float64{0, 60, 250} {
		for i := range b.Lo {
			for _, v := range []float64{-50, 20, 480, 690, 899, 903, 1200, 1600, 5000} {
				p := b.Pull(i, v, spread)
				up := b.Pull(i, v+h, spread)
				down := b.Pull(i, v-h, spread)
				if got := (up.Loss - down.Loss) / (4 * h); math.Abs(got-p.Slope) > 1e-4*math.Max(1, math.Abs(p.Slope)) {
					t.Errorf("row %d at %g, spread %g: slope %g, the loss says %g", i, v, spread, p.Slope, got)
				}
				if got := (up.Slope - down.Slope) / (2 * h); math.Abs(got-p.Bend) > 1e-4 {
					t.Errorf("row %d at %g, spread %g: bend %g, the slope says %g", i, v, spread, p.Bend, got)
				}
				if !(p.Bend >= 0 && p.Bend <= 1) {
					t.Errorf("row %d at %g, spread %g: bend %g outside [0, 1]", i, v, spread, p.Bend)
				}
			}
		}
	}
}

// TestSoftEndsAreALikelihood: between two predictions the loss differs as
// -4 s^2 log of the logistic probability of the interval does.
func TestSoftEndsAreALikelihood(t *testing.T) {
	const s = 100.
	cdf := func(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
	b := ridge.Bounds{Lo: []float64{700, 500, 0}, Hi: []float64{2000, 650, 900}}
	for i := range b.Lo {
		prob := func(v float64) float64 {
			if b.Lo[i] == 0 {
				return cdf((b.Hi[i] - v) / s)
			}
			return cdf((b.Hi[i]-v)/s) - cdf((b.Lo[i]-v)/s)
		}
		for _, v := range []float64{300, 600, 800, 1500} {
			got := b.Pull(i, v, s).Loss - b.Pull(i, 900, s).Loss
			want := -4 * s * s * math.Log(prob(v)/prob(900))
			if math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) {
				t.Errorf("row %d at %g: got %g, want %g", i, v, got, want)
			}
		}
	}
}

// TestSoftEndsLimits: an exact row is a square near its value and a straight
// line far off; 40 spreads inside an end says nothing; a lower end at 0 neither.
func TestSoftEndsLimits(t *testing.T) {
	const s = 100.
	b := ridge.Bounds{Lo: []float64{9000, 0}, Hi: []float64{9000, 20000}}
	ridge.Near(t, "near", []float64{b.Pull(0, 9001, s).Slope}, []float64{1}, 1e-4)
	ridge.Near(t, "far", []float64{b.Pull(0, 1000, s).Slope, b.Pull(0, 3000, s).Slope}, []float64{-2 * s, -2 * s}, 1e-9)
	for _, v := range []float64{0, 5, 15000} {
		if p := b.Pull(1, v, s); p != (ridge.Pull{}) {
			t.Errorf("inside at %g: got %+v, want no pull", v, p)
		}
	}
}

// TestMultiple against a scan; rows that say nothing leave 0, or 1 when held there.
func TestMultiple(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	n := 200
	var b ridge.Bounds
	w := make([]float64, n)
	pred := make([]float64, n)
	rows := numbers(n)
	for i := range n {
		w[i], pred[i] = 0.5+rng.Float64(), 500+1000*rng.Float64()
		at := 4000 * rng.Float64()
		delay := 1.7 * pred[i] * (1 + 0.3*rng.NormFloat64())
		lo, hi := 0., at
		if delay > at {
			lo, hi = at, at+15000
		}
		b.Lo, b.Hi = append(b.Lo, lo), append(b.Hi, hi)
	}
	for _, tight := range []float64{0, 1e6, 1e12} {
		loss := func(m float64) float64 {
			sum := tight * (m - 1) * (m - 1)
			for i := range n {
				sum += w[i] * b.Pull(i, m*pred[i], 100).Loss
			}
			return sum
		}
		best := 0.
		for m := 0.; m < 4; m += 1e-3 {
			if loss(m) < loss(best) {
				best = m
			}
		}
		if got := b.Multiple(w, pred, rows, 100, tight); math.Abs(got-best) > 2e-3 {
			t.Errorf("tight %g: got %g, the scan says %g", tight, got, best)
		}
	}
	silent := ridge.Bounds{Lo: make([]float64, n), Hi: filledWith(n, 1e6)}
	if got := silent.Multiple(w, pred, rows, 100, 0); got != 0 {
		t.Errorf("silent rows: got %g, want 0", got)
	}
	if got := silent.Multiple(w, pred, rows, 100, 1); math.Abs(got-1) > 1e-9 {
		t.Errorf("silent rows held at 1: got %g", got)
	}
}

func filledWith(n int, v float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// TestSoftMatchesPlainPasses compares with the slow rule: refit to the
// refreshed target v - slope until it no longer moves.
func TestSoftMatchesPlainPasses(t *testing.T) {
	d, b, o := intervalsOf(25, 300)
	o.SpreadUs = 150
	o.Anchor = []float64{1, 0, 0}
	w := ridge.CensoredWeights(d, o)
	for _, lambda := range []float64{1e-3, 0.1} {
		fast, err := d.FitCensored(b, w, nil, lambda, o)
		if err != nil {
			t.Fatal(err)
		}
		plain, rows := o, d.AllRows()
		m := b.Multiple(w, ridge.Predict(d, o.Anchor), rows, o.SpreadUs, o.AnchorTight)
		plain.Prior = []float64{m, 0, 0}
		plain.Anchor = nil
		view := *d
		view.Y = append([]float64(nil), b.Lo...)
		var beta []float64
		for range 20000 {
			slow, err := ridge.Solve(ridge.OfRows(&view, w, nil, 1), lambda, plain)
			if err != nil {
				t.Fatal(err)
			}
			beta = slow.Beta
			moved := 0.0
			for i := range view.Y {
				v := ridge.Dot(d.Row(i), beta)
				y := v - b.Pull(i, v, o.SpreadUs).Slope
				moved = math.Max(moved, math.Abs(y-view.Y[i]))
				view.Y[i] = y
			}
			if moved < 1e-7 {
				break
			}
		}
		ridge.Near(t, "predictions", ridge.Predict(d, fast.Fit.Beta), ridge.Predict(d, beta), 1e-4)
		if !fast.Fit.Cert.OK() || fast.Passes > 60 {
			t.Errorf("certificate %+v after %d passes", fast.Fit.Cert, fast.Passes)
		}
	}
}

// TestAnchorIsWhatThePenaltyPullsTo: a large penalty leaves the best constant,
// where the plain penalty leaves nothing; a small one leaves the rows' own slope.
func TestAnchorIsWhatThePenaltyPullsTo(t *testing.T) {
	d, b, o := intervalsOf(26, 4000)
	o.SpreadUs = 100
	w := ridge.CensoredWeights(d, o)
	plain, err := d.FitCensored(b, w, nil, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Anchor = []float64{1, 0, 0}
	held, err := d.FitCensored(b, w, nil, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	free, err := d.FitCensored(b, w, nil, 1e-6, o)
	if err != nil {
		t.Fatal(err)
	}
	constant := b.Multiple(w, filledWith(d.Len(), 1), d.AllRows(), 100, 0)
	if m := stat.Median(ridge.Predict(d, plain.Fit.Beta)); m > 300 {
		t.Errorf("without an anchor: median %g, want it shrunk below 300 us", m)
	}
	ridge.Near(t, "constant", []float64{constant, stat.Median(ridge.Predict(d, held.Fit.Beta))}, []float64{1050, 1050}, .05)
	ridge.Near(t, "free", free.Fit.Beta[:2], []float64{800, 500}, .05)
}

// TestSoftEndsSurviveLateRows: one row in fifty that is 30 ms late moves the
// distance loss by milliseconds, soft ends by what its share says.
func TestSoftEndsSurviveLateRows(t *testing.T) {
	d, b, o := intervalsOf(27, 2000)
	for i := 1; i < len(b.Lo); i += 50 {
		b.Lo[i], b.Hi[i] = 30000, 70000
	}
	w := ridge.CensoredWeights(d, o)
	hard, err := d.FitCensored(b, w, nil, 1e-6, o)
	if err != nil {
		t.Fatal(err)
	}
	o.SpreadUs, o.Anchor = 100, []float64{1, 0, 0}
	soft, err := d.FitCensored(b, w, nil, 1e-6, o)
	if err != nil {
		t.Fatal(err)
	}
	h := stat.Median(ridge.Predict(d, hard.Fit.Beta))
	s := stat.Median(ridge.Predict(d, soft.Fit.Beta))
	if !(h > 3000 && s < 2000 && s > 1000) {
		t.Errorf("medians: hard ends %g us, soft ends %g us, want above 3000 and 1000 to 2000 (1050 without late rows)", h, s)
	}
}

// TestSpreadFollowsTheScatter: targets without scatter, with a little and with
// more choose 0, a small and a large scale.
func TestSpreadFollowsTheScatter(t *testing.T) {
	grid := []float64{3, 10, 30, 100}
	for _, c := range []struct{ sd, least, most float64 }{{0, 0, 0}, {18, 3, 30}, {180, 100, 100}, {2000, 100, 100}} {
		rng := rand.New(rand.NewPCG(33, 1))
		n := 3000
		var b ridge.Bounds
		for i := range n {
			took := math.Max(1, 900+c.sd*rng.NormFloat64())
			at := 4000 * rng.Float64()
			lo, hi := 0., at
			switch {
			case i%50 == 0:
				lo, hi = took, took
			case took > at:
				lo, hi = at, at+15000
			}
			b.Lo, b.Hi = append(b.Lo, lo), append(b.Hi, hi)
		}
		if got := b.Spread(filledWith(n, 1), filledWith(n, 1), numbers(n), grid); got < c.least || got > c.most {
			t.Errorf("scatter of %g us: spread %g, want %g to %g", c.sd, got, c.least, c.most)
		}
	}
	silent := ridge.Bounds{Lo: make([]float64, 9), Hi: filledWith(9, 1e6)}
	if got := silent.Spread(filledWith(9, 1), filledWith(9, 1), numbers(9), grid); got != 100 {
		t.Errorf("silent rows: spread %g, want the largest", got)
	}
}

// numbers are 0 to n-1.
func numbers(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}
