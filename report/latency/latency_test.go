package latency

import (
	"bytes"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
)

func half() *float64 { v := 0.5; return &v }

// The page of a race shows figures and tables where there are some, says what is
// missing, and keeps names from recordings inert.
func TestPredictorPage(t *testing.T) {
	s := &result.PredictorScores{
		Models: []result.PredictorModel{{Name: "trees", Doc: "boosted"}, {Name: "physics", Doc: "rollout"}},
		Splits: []result.PredictorSplit{{Scope: "all", Target: "ttft_ms", Name: "time"},
			{Scope: "all", Target: "ttft_ms", Name: "load-up", Reason: "one load only"}},
		Cells: []result.PredictorCell{{Scope: "all", Target: "ttft_ms", Split: "time", Model: "trees", MAPE: half(), Rows: 10, AboveMaxRows: 3,
			AboveMaxMAPE: half()},
			{Scope: "all", Target: "ttft_ms", Split: "load-up", Model: "trees", Reason: "not formable"}},
		Calibration: []result.PredictorCalibration{{Scope: "all", Target: "ttft_ms", Split: "time", Model: "trees", After: half(),
			Curve: []result.PredictorLevel{{Level: 0.1, Coverage: 0.2}, {Level: 0.9, Coverage: 0.88}}}},
		Figures: &result.PredictorFigures{Stages: []result.PredictorStage{{Scope: "all", Target: "ttft_ms", Stage: "s0", MeasuredMs: 10,
			Predicted: map[string]float64{"trees": 9}},
			{Scope: "all", Target: "ttft_ms", Stage: "<b>s1</b>", MeasuredMs: 100, IsTest: true, Predicted: map[string]float64{"trees": 20}}}},
		Sentences: []string{"all, ttft_ms, time: trees has the smallest MAPE"},
		Runs:      []result.PredictorRun{{ID: "<script>alert(1)</script>", Requests: 12, Rows: 10, Dropped: map[string]int{"no_arrival": 2}}},
	}
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"fig-race-ttft_ms", "fig-stages-ttft_ms", "fig-reliability", "one load only", "Extrapolation band",
		"no_arrival 2", "--emulate llmd-0.9",
		"ttft_ms, time: trees has the smallest MAPE"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>s1") {
		t.Error("a name from a recording became markup")
	}
	if strings.Contains(page, "fig-race-tpot_ms") {
		t.Error("a figure without values")
	}
}
