package ridge

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPolish: a point that the certificate accepts is brought to the minimum as far as the digits reach.
func TestPolish(t *testing.T) {
	const lambda = 1e-6
	rng := rand.New(rand.NewPCG(7, 1))
	d := &Data{P: 3}
	var b Bounds
	for i := range 400 {
		x := rng.Float64()
		delay := 800 + 500*x + 30*rng.NormFloat64()
		wait := 5000 * rng.Float64()
		d.X = append(d.X, 1, x, x+0.001*x*x) // the last two columns are nearly one
		d.Y = append(d.Y, 0)
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
		d.Time = append(d.Time, int64(i))
		b.Lo = append(b.Lo, math.Max(0, delay+wait-5000))
		b.Hi = append(b.Hi, delay+wait)
	}
	o := DefaultOptions(3)
	o.SpreadUs = 100
	o.Free = []bool{true, true, true}
	c := newCensored(d, b, CensoredWeights(d, o), d.AllRows(), &o)
	if _, err := c.fit(lambda); err != nil {
		t.Fatal(err)
	}
	before := c.violation(c.at, lambda)
	if !c.certified(lambda) || before < 1e-8/10 {
		t.Fatalf("got a violation of %g, want one between %g and %g", before, 1e-8/10, 1e-8)
	}
	c.polish(lambda)
	if after := c.violation(c.at, lambda); after > 1e-14 {
		t.Errorf("got a violation of %g after it was %g, want at most 1e-14", after, before)
	}
}
