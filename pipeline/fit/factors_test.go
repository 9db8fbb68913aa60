package fit

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// A run whose decode steps take twice the prediction and whose prompt work takes
// six times: both totals are met.
func TestRunFactorsMeetBothTotals(t *testing.T) {
	r := runTotals{rest: [2]float64{100, 40}, prompt: [2]float64{5, 60}}
	for k := range 2 {
		r.y[k] = 2*r.rest[k] + 6*r.prompt[k]
	}
	if all, more := r.factors(); math.Abs(all-2) > 1e-12 || math.Abs(more-3) > 1e-12 {
		t.Errorf("got %g and %g on top, want 2 and 3", all, more)
	}
	decodes := runTotals{y: [2]float64{150, 0}, rest: [2]float64{90, 0}, prompt: [2]float64{10, 0}}
	if all, more := decodes.factors(); all != 1.5 || more != 1 {
		t.Errorf("a run without prompts: got %g and %g, want 1.5 and 1", all, more)
	}
	odd := runTotals{y: [2]float64{200, 10}, rest: [2]float64{100, 10}, prompt: [2]float64{0, 10}}
	if all, more := odd.factors(); all != 1.75 || more != 1 {
		t.Errorf("prompt work below zero: got %g and %g, want the whole, 1.75, and 1", all, more)
	}
}

// Random effects by hand: four runs in two groups with medians 0.3 and -0.1, each
// 0.1 from its median, so that the variance is pi/2 0.1^2 times 4 runs over 2
// degrees of freedom. With a spread of 0.02: between the groups (0.09 + 0.01)/2 - 0.02/2 = 0.04 is left, so that
// two runs keep 0.04/(0.04 + 0.01) of what they say.
func TestFactorsArePooledBySpread(t *testing.T) {
	g := groups{names: []string{"a", "b"}, members: [][]int{{0, 1}, {2, 3}}, of: []int{0, 0, 1, 1}}
	v := []float64{0.2, 0.4, -0.2, 0}
	if got := g.variance(v); math.Abs(got-math.Pi/100) > 1e-12 {
		t.Fatalf("variance %g, want pi/100", got)
	}
	if got := g.pool(v, 0.02); math.Abs(got[0]-0.24) > 1e-12 || math.Abs(got[1]+0.08) > 1e-12 {
		t.Errorf("got %v, want 0.24 and -0.08", got)
	}
	if got := g.pool(v, 0); math.Abs(got[0]-0.3) > 1e-12 {
		t.Errorf("without a spread: got %v, want the medians", got)
	}
	if got := g.pool(v, 1); got[0] != 0 || got[1] != 0 {
		t.Errorf("runs that differ more than groups: got %v, want nothing", got)
	}
}

// TestLearnFactorsByHand: median log ratios 0.2 and 0.4 on one device give
// exp(0.6/3), none of its rows without their configuration.
func TestLearnFactorsByHand(t *testing.T) {
	d := &ridge.Data{Y: []float64{math.Exp(0.2), math.Exp(0.4), 1}, Config: []int32{0, 1, 2}}
	got := deviceFactors(d, []float64{1, 1, 1}, []string{"x", "x", "y"}, -1)
	if len(got) != 2 || math.Abs(got[0].Factor-math.Exp(0.2)) > 1e-12 || got[1].Factor != 1 {
		t.Errorf("%+v", got)
	}
	if got := deviceFactors(d, []float64{1, 1, 1}, []string{"x", "x", "y"}, 2); got != nil {
		t.Errorf("one device left: %+v", got)
	}
	if factorOfDevice(got, "z") != 1 {
		t.Error("an unknown device has a factor")
	}
}

// TestTypicalLevelIsOfMostOfTheTime: a run whose machine is slow for a fifth of the time has the level of
// the rest, and a short one that of its sums.
func TestTypicalLevelIsOfMostOfTheTime(t *testing.T) {
	solved := func(seconds int) *Solved {
		d := &ridge.Data{P: 1}
		for at := range seconds {
			y := 1100.0
			if at < seconds/5 {
				y = 1500
			}
			d.X = append(d.X, 1)
			d.Y = append(d.Y, y)
			d.Time = append(d.Time, 1e15+int64(at)*1e9)
		}
		return &Solved{Train: d, Fit: ridge.Fit{Beta: []float64{1000}}}
	}
	if got := typicalLevel(solved(200)); math.Abs(got-1.1) > 1e-12 {
		t.Errorf("200 s: level %v, want 1.1", got)
	}
	if got := typicalLevel(solved(40)); math.Abs(got-1.18) > 1e-12 {
		t.Errorf("40 s: level %v, want 1.18", got)
	}
}
