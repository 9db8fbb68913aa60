package ridge

import (
	"math"
	"testing"
)

// TestOffPrior has rows that show one combination of three terms, of which the prior knows
// that it is 1000 us with a standard deviation of 100 us. The times of eight blocks of four
// rows are alternately a share (noise) above and below the measured time. The variance of
// the noise, relative to that of the prior, is then r = (noise*measured/100)^2/7.
func TestOffPrior(t *testing.T) {
	x := []float64{1, 0.3, 0.7}
	variance := 100.0 * 100 / Dot(x, x) // of each term
	for _, c := range []struct {
		name            string
		rows            int
		measured, noise float64 // us, relative
		want            PriorDistance
	}{
		{"one standard deviation, no noise", 32, 1100, 0, PriorDistance{1, 1, 2.57583}},
		{"three standard deviations, no noise", 32, 1300, 0, PriorDistance{1, 3, 2.57583}},
		// r = 0.15451: the limit is Student's quantile at 7*(1+1/r)^2 = 390.8 degrees of freedom.
		{"noise of 0.39 standard deviations", 32, 1300, 0.08, PriorDistance{1, 3 / math.Sqrt(1.15451), 2.58849}},
		// Less than half a standard deviation, but more than 1/2.365: Student's quantile of seven.
		{"noise of 0.44 standard deviations", 32, 1300, 0.09, PriorDistance{}},
		{"one block, whose noise is unknown", 7, 1300, 0, PriorDistance{}},
	} {
		d := &Data{P: 3}
		for i := range c.rows {
			off := c.noise
			if i/4%2 > 0 {
				off = -off
			}
			d.X = append(d.X, x...)
			d.Y = append(d.Y, c.measured*(1+off))
			d.Config = append(d.Config, 0)
			d.Regime = append(d.Regime, 0)
		}
		o := DefaultOptions(3)
		o.Prior = []float64{1000, 0, 0}
		cov := []float64{variance, 0, 0, 0, variance, 0, 0, 0, variance}
		got := d.OffPrior(Fit{Beta: []float64{c.measured, 0, 0}}, o, cov)
		if got.Directions != c.want.Directions {
			t.Errorf("%s: got %d directions, want %d", c.name, got.Directions, c.want.Directions)
		}
		Near(t, c.name, []float64{got.Distance, got.Limit}, []float64{c.want.Distance, c.want.Limit}, 1e-5)
	}
}
