package report

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestWarningsOfAFit: each warning has its figures in the unit that it names.
func TestWarningsOfAFit(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{TimesPeak("a", 12.345, 0.5, 4), "a: 12.3 times what the hardware takes at its peak, want 0.5 to 4"},
		{OnlyBetweenConfigs("a", "prior-only"), "a does not vary inside any configuration: its value is prior-only"},
		{NoCostFound("a", "within", 0.01234), "a is within at 0.0123: the measurements do not determine its cost"},
		{SeparationFailed(errors.New("x")), "cannot determine which terms the measurements separate: x"},
		{FewTrainingRows("beta", "c", 7, 9), "beta: c has 7 training rows, guidance is 9"},
		{DelayNotFitted("egress", 3), "alpha egress: 3 training rows: not fitted"},
		{FewDegreesOfFreedom(4.567, 5), "effective degrees of freedom 4.57 over 5 configurations"},
		{BelowFloor("r", "cadence", 1234.4, 5678.6), "r: the median cadence is 1234 us, below the 5679 us that reading the weights once takes"},
		{FallsWithTokens(7, 5), "decode_weight_load 7 us/s exceeds prefill_linear_compute 5 us/s"},
		{SpeedChanged("r", 2, 5, 0.123), "r: in block 2 of 5 of the hold-out the engine ran faster than the training part predicts (signed error +12 %)"},
		{SpeedChanged("r", 2, 5, -0.4), "the engine ran slower than the training part predicts (signed error -40 %)"},
		{OutsideInterval([]string{"a", "b"}), "a, b: the penalty or the reweighting moved the value outside the 95 % interval"},
		{AtPhysicalLimit([]string{"a", "b"}, 10), "a, b: held at 10 times the hardware's own time"},
		{AtFeatureBound("a", 1, 8), "a: 1 of 8 rows hit its bound (12 %)"},
		{LagAssumed("r", 3, 2), "r: 3 hold-out intervals with prefill cannot tell the lag; 2 assumed"},
		{LagUnlikeConfig("r", 1, 2), "r: the measured lag is 1, run.yaml implies 2"},
		{NoInformativeOverhead(), "no interval has a lower end above 0 or an upper end below 3 ms"},
		{ContradictsPrior("library", 6, 4.55, 3), "the data contradict the prior (library): in the 6 directions that the measurements determine, the coefficients lie 4.5 of its standard errors from it (root mean square, limit 3.0)"},
		{UnlikePrior("c", "H100", "library", 1.234, 3.21), "configuration c: steps take 1.23 times what the prior (library) predicts for H100, 3.2 of its standard errors"},
		{SliceSaturated("r", 60, 120, "x"), "r: from 60 to 120 s after its first step: x"},
		{NoStepRows("code", 3, 9), "no beta rows: code (3 of 9 candidates)"},
		{ContextsMerged(), "decode_attention and kv_cache_read are merged with the per-decode term"},
		{GammaUndetermined([]float64{0.1, 0.3}, 0.3, "t"), "the scores of 0.1, 0.3 lie within one standard error, the default 0.3 is kept, and the interval of t includes"},
		{RunSaturated("r", "x", true), "run r: saturated, x: it is fitted all the same"}, {RunSaturated("r", "x", false), "run r: saturated, x: it is not fitted"},
		{PhaseSaturated("r", "p", "x"), "run r: phase p is saturated, x: it is not fitted"}, {QueueOnly("r", "x"), "run r: x; its times are mostly queueing delay"},
		{LevelOverrun("l", 1.234, 5.678), "l: served 1.23 of 5.68 requests/s"}, {LevelBeyondCache("l", 1234.56, 7), "runs out of KV blocks (TTFT 1235 ms), the measured one did not (7 ms)"},
		{LevelsIgnored("r", "x"), "run r: x; blis-train fit --from points"}, {ReplayUnlikeLoad("l", 12_300, 4_560), "l: TTFT is 12.3 ms in the replay and 4.56 ms as measured"},
		{NoGain(0.123, 0.045, -0.01, 0.09), "off by 12.3 % with the fitted coefficients and by 4.5 % with the prior (medians); 95 % interval of the difference: -1.0 to +9.0 points"},
		{NotSeparated([]string{"a"}, 0, 1), "a has no effect on these measurements; runs that vary them separately would show it"},
		{NotSeparated([]string{"a", "b", "c"}, 0, 2500), "a, b and c nearly move together: their sum, 2.5 ms of a typical step, is known, each of them poorly; add runs that vary"},
		{NotSeparated([]string{"a", "b", "c"}, 1, 2500), "a, b and c cannot be told apart: one combination of them is unknown; the terms together make 2.5 ms"},
		{NotSeparated([]string{"a", "b", "c"}, 2, 2500), "a, b and c cannot be told apart: only their sum, 2.5 ms of a typical step, is known"},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	all := KindsOfSteps{20, 20, 20, 20, 20, 64, 9000}
	if got := MissingKinds(all); len(got) != 0 {
		t.Errorf("20 of each: got %q", got)
	}
	got := MissingKinds(KindsOfSteps{19, 18, 17, 16, 15, 31, 4000})
	want := []string{"19 steps with more than 64 prefill tokens", "18 decode batches below 4 requests", "17 decode batches of 32 requests and more (largest seen: about 31)", "16 contexts of 4096 tokens and more (longest seen: about 4000)", "15 KV usage above 0.9"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

// TestNumbersAtTheirEdges: how a number is written just at and just beyond each change of its form.
func TestNumbersAtTheirEdges(t *testing.T) {
	const nb = "\u00a0%"
	forms := map[string]func(float64) string{"short": Short, "four": fourDigits, "percent": Pct, "signed": Signed, "threshold": percentThreshold, "brief": brief, "three": threeDecimals, "key": sortKey}
	for _, c := range []struct {
		form string
		v    float64
		want string
	}{
		{"short", 99.94, "99.9"}, {"short", 100, "100"}, {"short", 9_999_999, "9,999,999"}, {"short", 1e7, "1e7"}, {"short", 0.001, "0.001"}, {"short", 0.000999, "9.99e-4"}, {"short", math.Inf(1), "n/a"}, {"short", -1234.5, "−1,234"},
		{"short", 9.999, "10"}, {"short", 0.01234, "0.0123"},
		{"four", 0.0001, "0.0001"}, {"four", 0.000099, "9.9e-5"}, {"four", 999_999_999_999, "999,999,999,999"}, {"four", 1e12, "1e12"}, {"four", 12.3456, "12.35"}, {"four", -12345.6, "−12,346"}, {"four", math.NaN(), "n/a"},
		{"percent", 0.9994, "99.9" + nb}, {"percent", 0.9995, "100" + nb}, {"percent", 12.345, "1,234" + nb}, {"percent", 0.001, "0.1" + nb}, {"percent", 0.00099, "0.099" + nb}, {"percent", 0.00001, "0.001" + nb}, {"percent", 0.0000099, "9.9e-4" + nb},
		{"percent", 9e-12, "0.0" + nb}, {"percent", 2e-11, "2e-9" + nb}, {"percent", math.Inf(-1), "n/a"}, {"percent", math.NaN(), "n/a"}, {"four", -0.00004, "−4e-5"},
		{"signed", 0.05, "+5.0" + nb}, {"signed", -0.05, "−5.0" + nb}, {"signed", 0, "0.0" + nb}, {"signed", 2e-11, "+2e-9" + nb}, {"signed", 9e-12, "0.0" + nb},
		{"threshold", 0.15, "15" + nb}, {"threshold", 0.025, "2.5" + nb}, {"brief", 1234, "1,200"}, {"brief", 0.0456, "0.046"}, {"three", 0.12345, "0.123"}, {"key", 1234567, "1.23457e+06"},
	} {
		if got := forms[c.form](c.v); got != c.want {
			t.Errorf("%s of %g: got %q, want %q", c.form, c.v, got, c.want)
		}
	}
	v := 0.25
	if ShortOr(nil) != Unknown || ShortOr(&v) != "0.25" || pctOr(nil) != Unknown || pctOr(&v) != "25.0"+nb {
		t.Errorf("got %q and %q", ShortOr(&v), pctOr(&v))
	}
	if v, unit := milli(1500, "us"); v != 1.5 || unit != "ms" {
		t.Errorf("got %g %s", v, unit)
	}
	if v, unit := milli(1500, "usage"); v != 1500 || unit != "usage" {
		t.Errorf("got %g %s", v, unit)
	}
}

// TestTicks: the ticks of axes over one, two, five and twelve decades (of twelve every second power of
// ten), over whole numbers, and the margins of a range.
func TestTicks(t *testing.T) {
	ticks := func(a axis) string {
		var out []string
		for _, x := range a.Ticks {
			out = append(out, fmt.Sprintf("%.3g", x.V))
		}
		return strings.Join(out, " ")
	}
	for _, c := range []struct {
		got  axis
		want string
	}{
		{Logarithmic("x", 1, 10), "1 2 3 5 7 10"}, {Logarithmic("x", 1, 100), "1 2 5 10 20 50 100"}, {Logarithmic("x", 1, 100_000), "1 10 100 1e+03 1e+04 1e+05"}, {Logarithmic("x", 0.5, 5), "0.5 0.7 1 2 3 5"},
		{Logarithmic("x", 1e-3, 1e9), "0.001 0.1 10 1e+03 1e+05 1e+07 1e+09"},
	} {
		if got := ticks(c.got); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if a := Logarithmic("x", 0, 1); a.Lo != 1e-6 || a.Hi != 1 {
		t.Errorf("got %g to %g", a.Lo, a.Hi)
	}
	if a := Logarithmic("x", 8, 8); a.Lo != 4 || a.Hi != 16 {
		t.Errorf("got %g to %g", a.Lo, a.Hi)
	}
	if lo, hi := Widened(1, 2); math.Abs(lo-1/1.12) > 1e-12 || math.Abs(hi-2.24) > 1e-12 {
		t.Errorf("got %g to %g", lo, hi)
	}
	for _, r := range [][2]float64{{0, 2}, {2, 1}, {-1, 2}} {
		if lo, hi := Widened(r[0], r[1]); !reflect.DeepEqual([2]float64{lo, hi}, r) {
			t.Errorf("got %g to %g", lo, hi)
		}
	}
	if a := integers("n", 0, 3, 6); a.Lo != 0 || a.Hi != 3 || len(a.Ticks) != 4 {
		t.Errorf("got %+v", a)
	}
	if a := integers("n", 2, 2, 6); a.Lo != 2 || a.Hi != 3 {
		t.Errorf("got %+v", a)
	}
}
