package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSlope: a constant, noise and a tenth of wild points leave the slope of 1.5 within its interval, which a sixteenth of the
// points makes about four times as wide.
func TestSlope(t *testing.T) {
	widths := map[int]float64{}
	for _, n := range []int{30, 480} {
		rng := rand.New(rand.NewPCG(3, 4))
		var x, y []float64
		for i := range n {
			x = append(x, 10+90*rng.Float64())
			y = append(y, 300+1.5*x[i]+8*rng.NormFloat64())
			if i%10 == 0 {
				y[i] += 1e4 * (rng.Float64() - 0.5)
			}
		}
		slope, lo, hi := Slope(x, y)
		if lo > 1.5 || hi < 1.5 || slope < lo || slope > hi {
			t.Errorf("%d points: got %.3g (%.3g to %.3g), want 1.5 within", n, slope, lo, hi)
		}
		widths[n] = hi - lo
	}
	if ratio := widths[30] / widths[480]; ratio < 2 || ratio > 8 {
		t.Errorf("got intervals %.3g times as wide for a sixteenth of the points, want about 4", ratio)
	}
	if slope, lo, hi := Slope([]float64{2, 2, 2}, []float64{1, 5, 9}); !math.IsNaN(slope + lo + hi) {
		t.Errorf("equal x: got %g (%g to %g), want NaN", slope, lo, hi)
	}
}

// TestSlopeOfManyPoints: every third of 1,200 points is used, and these lie on a line.
func TestSlopeOfManyPoints(t *testing.T) {
	var x, y []float64
	for i := range 1200 {
		x = append(x, float64(i))
		y = append(y, 7-2*float64(i))
		if i%3 != 0 {
			y[i] = 1e9
		}
	}
	if slope, lo, hi := Slope(x, y); slope != -2 || lo != -2 || hi != -2 {
		t.Errorf("got %g (%g to %g), want -2", slope, lo, hi)
	}
}
