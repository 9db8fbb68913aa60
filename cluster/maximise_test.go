package cluster

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
)

// branin is Branin's function on the unit square, turned over; its maximum is -0.398.
func branin(x []float64) float64 {
	a, b := 15*x[0]-5, 15*x[1]
	u := b - 5.1/(4*math.Pi*math.Pi)*a*a + 5/math.Pi*a - 6
	return -(u*u + 10*(1-1/(8*math.Pi))*math.Cos(a) + 10)
}

// hill is a ridge of four dimensions, two of which do nothing.
func hill(x []float64) float64 {
	return 10 * math.Exp(-math.Pow((x[0]-0.7)/0.15, 2)-math.Pow((x[1]-0.2-0.3*x[0])/0.1, 2))
}

// withNoise adds noise of a standard deviation, keyed by call.
func withNoise(f func([]float64) float64, sd float64, seed int) func([]float64) (Value, error) {
	n := 0
	return func(x []float64) (Value, error) {
		n++
		u := stat.Draw(uint64(seed), uint64(n), 1)
		v := stat.Draw(uint64(seed), uint64(n), 2)
		z := math.Sqrt(-2*math.Log(1-u)) * math.Cos(2*math.Pi*v)
		return Value{Value: f(x) + sd*z, Variance: sd * sd}, nil
	}
}

// On two frozen withNoise functions the process beats random search at the same budget
// in 16 of 20 repeats at least (the evaluation runs all of them), judged by the true
// value of what is recommended.
func TestProcessBeatsRandom(t *testing.T) { beats(t, 2, 2) }

func TestEvalProcessBeatsRandom(t *testing.T) {
	repo.NeedEval(t)
	beats(t, 20, 16)
}

func beats(t *testing.T, repeats, least int) {
	t.Helper()
	for name, c := range map[string]struct {
		f    func([]float64) float64
		sd   float64
		dims int
	}{"branin": {branin, 1, 2}, "hill": {hill, 0.5, 4}} {
		wins := 0
		for r := range repeats {
			value := func(method string) float64 {
				got, err := (&search{Dims: c.dims, Method: method, Start: 12, Calls: 30, Seed: int64(r)}).maximise(withNoise(c.f, c.sd, r))
				if err != nil {
					t.Fatal(err)
				}
				return c.f(got.X)
			}
			if value(methodGP) > value(methodRandom) {
				wins++
			}
		}
		t.Logf("%s: %d of %d", name, wins, repeats)
		if wins < least {
			t.Errorf("%s: the process won %d of %d, want %d", name, wins, repeats, least)
		}
	}
}

// A constraint keeps the recommendation where it holds.
func TestConstraintHolds(t *testing.T) {
	o := search{Dims: 2, Method: methodGP, Start: 10, Calls: 20, Seed: 3, Constrained: true}
	got, err := o.maximise(func(x []float64) (Value, error) {
		return Value{Value: x[0] + 0.1*x[1], Variance: 1e-6, Slack: 0.5 - x[0], SlackVariance: 1e-6}, nil
	})
	if err != nil || got.X[0] > 0.52 || got.X[0] < 0.4 {
		t.Errorf("got %v, %v, want x0 close to 0.5 from below", got.X, err)
	}
}

// A search goes on where it was interrupted, with the same calls.
func TestSearchResumes(t *testing.T) {
	f := func(x []float64) (Value, error) { return Value{Value: -math.Abs(x[0] - 0.3), Variance: 1e-6}, nil }
	o := search{Dims: 1, Method: methodGP, Start: 4, Calls: 6, Seed: 1}
	again := o
	if _, err := o.maximise(f); err != nil {
		t.Fatal(err)
	}
	again.Made = slices.Clone(o.Made[:6])
	rest, err := again.maximise(f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Made {
		if !slices.Equal(o.Made[i].X, again.Made[i].X) {
			t.Fatalf("call %d: got %v, want %v", i, again.Made[i].X, o.Made[i].X)
		}
	}
	if math.Abs(rest.X[0]-0.3) > 0.05 {
		t.Errorf("got %v, want 0.3", rest.X)
	}
}

// The process passes through what it was told and knows what it was not.
func TestRegression(t *testing.T) {
	x := [][]float64{{0}, {0.25}, {0.5}, {0.75}, {1}}
	y := make([]float64, len(x))
	for i := range x {
		y[i] = math.Sin(5 * x[i][0])
	}
	p := regress(x, y, make([]float64, len(x)))
	for i := range x {
		if m, sd := p.at(x[i]); math.Abs(m-y[i]) > 0.01 || sd > 0.05 {
			t.Errorf("at %v: got %g +- %g, want %g", x[i], m, sd, y[i])
		}
	}
	if m, sd := p.at([]float64{0.6}); math.Abs(m-math.Sin(3)) > 0.1 || sd < 1e-4 {
		t.Errorf("between: got %g +- %g, want %g", m, sd, math.Sin(3))
	}
	for _, u := range []float64{-3, -5.9, -6.1, -8} { // the asymptote joins
		exact := math.Log(math.Exp(-u*u/2)/math.Sqrt(2*math.Pi) + u*normalBelow(u))
		if got := logImprovement(u, 1, 0); u > -6.2 && math.Abs(got-exact) > 0.1 {
			t.Errorf("at %g: got %g, want %g", u, got, exact)
		}
	}
}
