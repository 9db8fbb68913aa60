package predict

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/option"
)

// TestHintsOfTargets: a time without a unit is given one, anything else an example; percentiles go from 1 to 99.9.
func TestHintsOfTargets(t *testing.T) {
	const form = "write METRIC.STATISTIC=TIME with commas between: ttft.p95=1s,tpot.mean=40ms"
	for word, want := range map[string]string{
		"ttft.p95=200":  "give the unit: ttft.p95=200ms, or ttft.p95=200s",
		"itl.mean=0.5":  "give the unit: itl.mean=0.5ms, or itl.mean=0.5s",
		"e2e=3":         "give the unit: e2e=3ms, or e2e=3s",
		"ttft.p95=-200": form,
		"ttft.p95=0":    form,
		"ttft.p95=x":    form,
		"ttft.q95=200":  form,
		"speed.p95=200": form,
		"ttft.p95=-1s":  form,
	} {
		_, err := ParseTargets(word)
		misuse := (*option.Misuse)(nil)
		if !errors.As(err, &misuse) || !strings.Contains(err.Error(), `--slo: got "`+word+`", want ttft, tpot, itl or e2e, a statistic`) || misuse.Hint != want {
			t.Errorf("%s: got %+v, want the hint %q", word, err, want)
		}
	}
	for figure, want := range map[string]float64{"": 0.9, "mean": 0, "p1": 0.01, "p99.9": 0.999, "p50": 0.5} {
		if got, ok := parseFigure(figure); !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("%q: got %g, %t, want %g", figure, got, ok, want)
		}
	}
	for _, figure := range []string{"p0.9", "p99.91", "p", "95", "q95", "pNaN"} {
		if got, ok := parseFigure(figure); ok {
			t.Errorf("%q: got %g", figure, got)
		}
	}
}
