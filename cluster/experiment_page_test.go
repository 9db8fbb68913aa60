package cluster

import (
	"bytes"
	"strings"
	"testing"
)

func num(v float64) *float64 { return &v }

// The page shows verdicts, cells and figures where there are some, and keeps names
// inert.
func TestPage(t *testing.T) {
	f := func(v float64) figureDoc {
		return figureDoc{Mean: num(v), Lo: num(v * 0.9), Hi: num(v * 1.1), N: 20}
	}
	figures := map[string]figureDoc{"goodput": f(0.6), "admitted_share": f(0.8), "ttft_p99_critical_ms": f(150),
		"prediction_median_ape": f(0.1)}
	d := &Document{Preset: "groups", Label: "stationary",
		Cells: []cellDoc{{Name: "<script>alert(1)</script>", Role: "cell", Figures: figures},
			{Name: "a", Role: "frontier", Admission: "slo-gated", Figures: figures}, {Name: "b", Role: "frontier", Admission: "predictive",
				Figures: figures}},
		Verdicts: []verdictDoc{{ID: "H14-1", Verdict: "NOT TESTABLE", Why: "nothing to select on",
			Evidence: []contrastDoc{{A: "x", B: "y", Effect: num(0.1), Lo: num(0), Hi: num(0.2), P: num(0.04)}}}},
		Controllers: []controllerDoc{{Kind: "fitted", Goodput: contrastDoc{Effect: num(0.1)}}},
		Newcomer:    []curveDoc{{Cell: "predictive", Ratio: []*float64{num(0.2), nil, num(0.9)}}},
		Scatter:     []pointDoc{{PredictedMs: 10, TookMs: 12}, {PredictedMs: 100, TookMs: 80, Shadow: true}}}
	var b bytes.Buffer
	if err := writePage(&b, d); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"NOT TESTABLE", "nothing to select on", "fig-goodput", "fig-frontiers", "fig-scatter", "fig-newcomer-curve",
		"STATIONARY"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script>alert") {
		t.Error("a name became markup")
	}
	b.Reset()
	if err := writePage(&b, &Document{}); err != nil {
		t.Error(err)
	}
}
