package machine

import (
	"math"
	"testing"
)

func TestDriftCurveFollowsTheMachine(t *testing.T) {
	var at []int64
	var y, pred []float64
	for i := range int64(3000) { // 60 s at 20 ms, speed 1, 1.4, 0.95
		factor := []float64{1, 1.4, 0.95}[i/1000]
		at, y, pred = append(at, 5e9+i*20e6), append(y, 50e3*factor), append(pred, 50e3)
	}
	d := DriftOf(at, y, pred)
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
	if f := d.Finding("r"); len(f) != 1 || f[0].Code != codeMachineDrift {
		t.Errorf("finding: got %v, want %s", f, codeMachineDrift)
	}
	if s := d.Swing(); math.Abs(s-1.4/0.95) > 1e-12 {
		t.Errorf("swing: got %v", s)
	}
}

// TestDriftGapsTakeTheBlockBefore: an idle block has no median of its own.
func TestDriftGapsTakeTheBlockBefore(t *testing.T) {
	var at []int64
	var y, pred []float64
	add := func(startS int64, factor float64) {
		for i := range int64(10) {
			at, y, pred = append(at, startS*1e9+i*1e8), append(y, factor), append(pred, 1)
		}
	}
	add(0, 1.05)
	add(40, 0.95)
	d := DriftOf(at, y, pred)
	if got := d.At(25e9); got != 1.05 {
		t.Errorf("gap: got %v, want 1.05", got)
	}
	if d.Finding("r") != nil {
		t.Error("a curve inside 0.9-1.1 is no finding")
	}
	if empty := DriftOf(nil, nil, nil); empty.At(1) != 1 || len(empty.Points) != 0 {
		t.Error("no rows: want factor 1 and no points")
	}
}
