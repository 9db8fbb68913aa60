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
		for kind, a := range map[string]axis{"log": logarithmic("", lo, hi), "linear": linear("", lo, hi, 5)} {
			if kind == "linear" && (a.lo > lo*(1+1e-9) || a.hi < hi*(1-1e-9)) {
				t.Fatalf("linear axis [%g, %g] does not hold [%g, %g]", a.lo, a.hi, lo, hi)
			}
			if len(a.ticks) > 14 || (kind == "linear" && len(a.ticks) < 2) {
				t.Fatalf("%s axis [%g, %g] has %d ticks", kind, lo, hi, len(a.ticks))
			}
			for i, k := range a.ticks {
				if k.v < a.lo*(1-1e-9) || k.v > a.hi*(1+1e-9) {
					t.Fatalf("%s axis [%g, %g]: tick %g outside", kind, a.lo, a.hi, k.v)
				}
				if i > 0 && (k.v <= a.ticks[i-1].v || k.label == a.ticks[i-1].label) {
					t.Fatalf("%s axis [%g, %g]: ticks %v", kind, a.lo, a.hi, a.ticks)
				}
			}
		}
	}
}

// TestAxisDegenerate: empty, inverted and non-positive ranges give a usable axis.
func TestAxisDegenerate(t *testing.T) {
	for _, r := range [][2]float64{{0, 0}, {5, 5}, {-3, -3}, {2, 1}, {0, 10}} {
		for _, a := range []axis{linear("", r[0], r[1], 5), logarithmic("", r[0], r[1])} {
			a.p0, a.p1 = 0, 100
			if px := a.px(r[0]); math.IsNaN(px) || px < 0 || px > 100 {
				t.Errorf("range %v, log %v: pixel %g", r, a.log, px)
			}
		}
	}
}

// TestAxisMonotone: larger values never lie before smaller ones.
func TestAxisMonotone(t *testing.T) {
	for _, a := range []axis{linear("", -2, 7, 5), logarithmic("", 0.01, 500)} {
		a.p0, a.p1 = 10, 300
		last := math.Inf(-1)
		for v := 0.001; v < 1000; v *= 1.07 {
			px := a.px(v)
			if px < last || px < 10 || px > 300 {
				t.Fatalf("log %v: pixel of %g is %g after %g", a.log, v, px, last)
			}
			last = px
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 12.345: "12.3", 1234567: "1,234,567", -0.5: "−0.5", 3e-6: "3e-6", 2.5e9: "2.5e9", 100: "100", 0.001: "0.001", -1500: "−1,500"} {
		if got := short(v); got != want {
			t.Errorf("short(%g) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.0461: "4.6\u00a0%", -0.02: "−2.0\u00a0%", 1.5: "150\u00a0%", 0: "0.0\u00a0%", -3e-17: "0.0\u00a0%", 0.0004: "0.040\u00a0%"} {
		if got := pct(v); got != want {
			t.Errorf("pct(%g) = %q, want %q", v, got, want)
		}
	}
	if got := short(math.NaN()); got != "n/a" {
		t.Errorf("short(NaN) = %q", got)
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
