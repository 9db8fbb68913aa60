package report

import (
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 12.345: "12.3", 1234567: "1,234,567", -0.5: "−0.5", 3e-6: "3e-6",
		2.5e9: "2.5e9", 100: "100", 0.001: "0.001", -1500: "−1,500"} {
		if got := Short(v); got != want {
			t.Errorf("short(%g) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.0461: "4.6\u00a0%", -0.02: "−2.0\u00a0%", 1.5: "150\u00a0%", 0: "0.0\u00a0%",
		-3e-17: "0.0\u00a0%", 0.0004: "0.040\u00a0%"} {
		if got := Pct(v); got != want {
			t.Errorf("pct(%g) = %q, want %q", v, got, want)
		}
	}
	if got := Short(math.NaN()); got != "n/a" {
		t.Errorf("short(NaN) = %q", got)
	}
}

// Times read in ms, four digits, no exponent beside plain numbers.
func TestTimesInOneStyle(t *testing.T) {
	for us, want := range map[float64]string{946901: "946.9", 3.172e7: "31,720", 7.8e7: "78,000", 374.4: "0.3744", 3170: "3.17", 0: "0",
		-1500: "−1.5"} {
		v, unit := Milli(us, "us/s")
		if got := FourDigits(v); got != want || unit != "ms/s" {
			t.Errorf("%g us/s: got %s %s, want %s ms/s", us, got, unit, want)
		}
	}
	if v, unit := Milli(12, "tokens"); v != 12 || unit != "tokens" {
		t.Errorf("got %g %s, want 12 tokens", v, unit)
	}
	if got := Range(0, 903); got != "0 .. 903" {
		t.Errorf("got %q, want %q", got, "0 .. 903")
	}
}
