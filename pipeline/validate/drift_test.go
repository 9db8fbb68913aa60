package validate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/pipeline/rows"
)

func TestDriftCurveFollowsTheMachine(t *testing.T) {
	var at []int64
	var y, pred []float64
	for i := range int64(3000) { // 60 s at 20 ms, speed 1, 1.4, 0.95
		factor := []float64{1, 1.4, 0.95}[i/1000]
		at = append(at, 5e9+i*20e6)
		y = append(y, 50e3*factor)
		pred = append(pred, 50e3)
	}
	d := DriftOf(at, y, pred, false)
	if len(d.Points) != 3 || d.Points[1].StartS != 20 || math.Abs(d.Points[1].Factor-1.4) > 1e-12 {
		t.Fatalf("got %+v", d.Points)
	}
	for _, c := range []struct {
		ns   int64
		want float64
	}{{0, 1}, {5e9 + 19e9, 1}, {5e9 + 20e9, 1.4}, {5e9 + 200e9, 0.95}} {
		if got := d.At(c.ns); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("at %d ns: got %v, want %v", c.ns, got, c.want)
		}
	}
	if f := d.finding("r"); len(f) != 1 || f[0].Code != rows.MachineDrift {
		t.Errorf("finding: got %v, want %s", f, rows.MachineDrift)
	}
	if s := d.swing(); math.Abs(s-1.4/0.95) > 1e-12 {
		t.Errorf("swing: got %v", s)
	}
}

// TestDriftGapsTakeTheBlockBefore: an idle block has no median of its own.
func TestDriftGapsTakeTheBlockBefore(t *testing.T) {
	var at []int64
	var y, pred []float64
	add := func(startS int64, factor float64) {
		for i := range int64(10) {
			at = append(at, startS*1e9+i*1e8)
			y = append(y, factor)
			pred = append(pred, 1)
		}
	}
	add(0, 1.05)
	add(40, 0.95)
	d := DriftOf(at, y, pred, false)
	if got := d.At(25e9); got != 1.05 {
		t.Errorf("gap: got %v, want 1.05", got)
	}
	if d.finding("r") != nil {
		t.Error("a curve inside 0.9-1.1 is no finding")
	}
	if empty := DriftOf(nil, nil, nil, true); empty.At(1) != 1 || len(empty.Points) != 0 {
		t.Error("no rows: want factor 1 and no points")
	}
}

// TestDriftBlocksAreAsShortAsRowsBearOut: a machine that changes its speed every 5 s
// gets blocks of 5 s, one that errs at random keeps 20.
func TestDriftBlocksAreAsShortAsRowsBearOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	curve := func(factor func(s int64) float64) *drift {
		var at []int64
		var y, pred []float64
		for i := range int64(6000) { // 120 s at 20 ms
			at = append(at, i*20e6)
			pred = append(pred, 20e3)
			y = append(y, 20e3*factor(i/50)*math.Exp(0.2*rng.NormFloat64()))
		}
		return DriftOf(at, y, pred, false)
	}
	if d := curve(func(int64) float64 { return 1.2 }); d.BlockNs != 20e9 || d.swing() > 1.1 {
		t.Errorf("random errors: got blocks of %d ns, swing %.3f", d.BlockNs, d.swing())
	}
	if d := curve(func(s int64) float64 { return 1 + 0.5*float64(s/5%2) }); d.BlockNs != 5e9 || math.Abs(d.At(7e9)-1.5) > 0.1 {
		t.Errorf("a speed that changes every 5 s: got blocks of %d ns, factor %.3f in the second", d.BlockNs, d.At(7e9))
	}
	if d := curve(func(s int64) float64 { return 1 + 0.5*float64(s/40%2) }); d.BlockNs != 20e9 {
		t.Errorf("a speed that changes every 40 s: got blocks of %d ns", d.BlockNs)
	}
}

// TestDriftOfThinnedRowsHasLongerBlocks: an hour of which a row in six seconds is left has a curve all the same, in
// blocks that hold enough; where enough are left blocks are as short as ever.
func TestDriftOfThinnedRowsHasLongerBlocks(t *testing.T) {
	curve := func(everyNs int64, thinned bool) *drift {
		var at []int64
		var y, pred []float64
		for ns := int64(0); ns < 3600e9; ns += everyNs {
			at = append(at, ns)
			y = append(y, 20e3*(1+0.5*float64(ns/1800e9)))
			pred = append(pred, 20e3)
		}
		return DriftOf(at, y, pred, thinned)
	}
	if d := curve(6e9, false); len(d.Points) != 0 {
		t.Errorf("blocks of 20 s with three rows: got %d points", len(d.Points))
	}
	if d := curve(6e9, true); d.BlockNs < 120e9 || d.finding("r") == nil || math.Abs(d.At(2700e9)-1.5) > 1e-12 || d.At(900e9) != 1 {
		t.Errorf("thinned: got blocks of %d ns, %.3f and %.3f, want the half that is slower", d.BlockNs, d.At(900e9), d.At(2700e9))
	}
	if d := curve(1e8, true); d.BlockNs > 20e9 {
		t.Errorf("ten rows a second: got blocks of %d ns", d.BlockNs)
	}
}
