package queue

import (
	"context"
	"math"
	"testing"
)

// agreement counts the cells up to a load in which the corrected model's mean TTFT is within
// 10 % and its mean ITL within 5 % of the simulator's.
func agreement(t *testing.T, g *Grid, upTo float64) (good, all int) {
	t.Helper()
	cells, err := g.Compare(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if c.Load > upTo {
			continue
		}
		all++
		for _, e := range c.Errors {
			if e.Flavour != "corrected" {
				continue
			}
			if math.Abs(*e.TTFT) <= 0.10 && math.Abs(*e.ITL) <= 0.05 {
				good++
			} else {
				t.Logf("%g/%g %s at %g: TTFT %+.1f %% ITL %+.1f %%: %s", c.PromptTokens, c.OutputTokens, c.Outputs, c.Load, 100**e.TTFT, 100**e.ITL,
					e.Cause)
			}
		}
	}
	return good, all
}

// TestCorrectedFollowsTheSimulator: at load 0.7 and below nine of ten cells agree, also
// where a prompt of 2,048 tokens fills a step of 2,048.
func TestCorrectedFollowsTheSimulator(t *testing.T) {
	for _, budget := range []int{8192, 2048} {
		g := DefaultGrid()
		g.Requests, g.Loads, g.Server.MaxBatchedTokens = 2500, []float64{0.2, 0.5, 0.7}, budget
		good, all := agreement(t, &g, 0.7)
		t.Logf("%d tokens a step: %d of %d cells", budget, good, all)
		if least := 0.9; float64(good) < least*float64(all) {
			t.Errorf("%d tokens a step: %d of %d cells agree, want %.0f %%", budget, good, all, 100*least)
		}
	}
}
