package cluster

import (
	"math"
	"testing"
)

// TestFiguresOfACell: each figure of experiment.json has a value of its own in a hand-made outcome.
func TestFiguresOfACell(t *testing.T) {
	o := &outcome{Worst: 4.5, Goodput: &Goodput{
		All: Class{Arrived: 100, Admitted: 61, Good: 53, Late: 8, Judged: 50, RuleLate: 3, RuleJudged: 40},
		Classes: []Class{
			{Name: "standard", Arrived: 50, Admitted: 30, Good: 27, Late: 7, Judged: 28, RuleLate: 2, RuleJudged: 25},
			{Name: "critical", Arrived: 20, Admitted: 20, Good: 19, Late: 1, Judged: 20},
			{Name: "sheddable", Arrived: 30, Admitted: 11, Good: 7, Late: 5, Judged: 10, RuleLate: 4, RuleJudged: 8},
		},
		Critical: 1.5, Admitted: 2.5, Everybody: 3.5,
		CachedShare: 0.11, PotentialShare: 0.12, PotentialAdmitted: 0.13, PhantomShare: 0.14, Jain: 0.15, OutputPerS: 1600,
		Live:   audit{MedianAPE: 0.17, Bias: 0.18, Coverage90: 0.19, FalseShare: 0.9},
		Shadow: audit{MedianAPE: 0.20, Bias: 0.8, Coverage90: 0.21, FalseShare: 0.22},
	}}
	want := map[string]float64{
		"goodput": 0.53, "goodput_critical": 0.95, "goodput_standard": 0.54, "goodput_sheddable": 7.0 / 30,
		"admitted_share": 0.61, "miss_share": 0.16, "miss_share_critical": 0.05, "miss_share_standard": 0.25,
		"miss_share_sheddable": 0.5, "miss_share_by_rule": 0.075, "miss_share_by_rule_standard": 0.08,
		"miss_share_by_rule_sheddable": 0.5, "ttft_p99_critical_ms": 1.5, "ttft_p99_admitted_ms": 2.5,
		"ttft_p99_everybody_ms": 3.5, "ttft_p99_worst_instance_ms": 4.5, "cached_share": 0.11, "potential_share": 0.12,
		"potential_share_admitted": 0.13, "phantom_share": 0.14, "jain": 0.15, "output_tokens_per_s": 1600,
		"prediction_median_ape": 0.17, "prediction_bias": 0.18, "prediction_coverage_p90": 0.19,
		"shadow_median_ape": 0.20, "shadow_coverage_p90": 0.21, "false_reject_share": 0.22,
	}
	if len(figures) != len(want) {
		t.Errorf("got %d figures, want %d", len(figures), len(want))
	}
	for _, f := range figures {
		v, ok := want[f.key]
		if got := f.valueOf(o); !ok || math.Abs(got-v) > 1e-12 {
			t.Errorf("%s: got %g, want %g", f.key, got, v)
		}
	}
	o.Classes = nil
	for _, f := range figures[1:4] {
		if got := f.valueOf(o); !math.IsNaN(got) {
			t.Errorf("%s without a request of the class: got %g, want NaN", f.key, got)
		}
	}
}
