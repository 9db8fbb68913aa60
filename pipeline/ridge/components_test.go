package ridge

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Of two columns that are one but for a thousandth, the fit in components learns the sum and halves
// it; a third column of its own keeps its coefficient.
func TestComponentsShareWhatColumnsShare(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	g := New(3)
	for range 400 {
		a, c := 1+r.Float64(), r.Float64()
		b := a * (1 + 1e-3*(r.Float64()-0.5))
		g.AddRow(1, []float64{a, b, c}, 30*a+70*b+50*c)
	}
	o := DefaultOptions(3)
	plain, err := Solve(g, 1e-9, o)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := o.Components(g, 0.999); err != nil || kept != 2 {
		t.Fatalf("got %d components and %v, want 2", kept, err)
	}
	fit, err := Solve(g, 1e-9, o)
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(plain.Beta[0] - plain.Beta[1]); d < 20 {
		t.Errorf("without: got %v, want the two apart", plain.Beta)
	}
	if b := fit.Beta; math.Abs(b[0]-50) > 1 || math.Abs(b[1]-50) > 1 || math.Abs(b[2]-50) > 1 {
		t.Errorf("got %v, want 50 each", b)
	}
}
