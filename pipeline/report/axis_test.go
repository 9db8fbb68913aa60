package report

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestAxisTicks: ticks rise, lie on the axis, carry different labels and are
// neither too few nor too many, whatever the range.
func TestAxisTicks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		lo := math.Pow(10, r.Float64()*14-7)
		hi := lo * (1.001 + math.Pow(10, r.Float64()*6-3))
		for kind, a := range map[string]axis{"log": Logarithmic("", lo, hi), "linear": Linear("", lo, hi, 5)} {
			if kind == "linear" && (a.Lo > lo*(1+1e-9) || a.Hi < hi*(1-1e-9)) {
				t.Fatalf("linear axis [%g, %g] does not hold [%g, %g]", a.Lo, a.Hi, lo, hi)
			}
			if len(a.Ticks) > 14 || (kind == "linear" && len(a.Ticks) < 2) {
				t.Fatalf("%s axis [%g, %g] has %d ticks", kind, lo, hi, len(a.Ticks))
			}
			for i, k := range a.Ticks {
				if k.V < a.Lo*(1-1e-9) || k.V > a.Hi*(1+1e-9) {
					t.Fatalf("%s axis [%g, %g]: tick %g outside", kind, a.Lo, a.Hi, k.V)
				}
				if i > 0 && (k.V <= a.Ticks[i-1].V || k.Label == a.Ticks[i-1].Label) {
					t.Fatalf("%s axis [%g, %g]: ticks %v", kind, a.Lo, a.Hi, a.Ticks)
				}
			}
		}
	}
}

// TestAxisDegenerate: empty, inverted and non-positive ranges give a usable axis.
func TestAxisDegenerate(t *testing.T) {
	for _, r := range [][2]float64{{0, 0}, {5, 5}, {-3, -3}, {2, 1}, {0, 10}} {
		for _, a := range []axis{Linear("", r[0], r[1], 5), Logarithmic("", r[0], r[1])} {
			a.P0, a.P1 = 0, 100
			if px := a.Px(r[0]); math.IsNaN(px) || px < 0 || px > 100 {
				t.Errorf("range %v, log %v: pixel %g", r, a.log, px)
			}
		}
	}
}

// TestAxisMonotone: larger values never lie before smaller ones.
func TestAxisMonotone(t *testing.T) {
	for _, a := range []axis{Linear("", -2, 7, 5), Logarithmic("", 0.01, 500)} {
		a.P0, a.P1 = 10, 300
		last := math.Inf(-1)
		for v := 0.001; v < 1000; v *= 1.07 {
			px := a.Px(v)
			if px < last || px < 10 || px > 300 {
				t.Fatalf("log %v: pixel of %g is %g after %g", a.log, v, px, last)
			}
			last = px
		}
	}
}

// TestClip: a clipped name keeps both ends and fits.
func TestClip(t *testing.T) {
	long := "h100-codellama-34b-tp1-async-open-loop-poisson-rate-12.5"
	got := clip(long, labelSize, 150)
	if textWidth(got, labelSize) > 150 || got[:4] != "h100" || got[len(got)-3:] != "2.5" {
		t.Errorf("clip: %q", got)
	}
	if clip("short", labelSize, 150) != "short" {
		t.Error("a short name was clipped")
	}
}
