package sim

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

// TestSummary: the summary of a run small enough to check by hand.
func TestSummary(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{1000, 0, 0}})
	cfg.TokenGaps = true
	res, err := Run(cfg, []Request{
		{ID: "a", PromptTokens: 4, OutputTokens: 3, SLOClass: "chat", SLOTTFTUs: 1500},
		{ID: "b", ArrivalUs: 100, PromptTokens: 4, OutputTokens: 1, SLOClass: "chat", SLOTTFTUs: 1500},
		{ID: "c", ArrivalUs: 100, PromptTokens: 1000, OutputTokens: 1},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCollector()
	for i := range res.Requests {
		c.Add(&res.Requests[i])
	}
	s := c.Close(res)
	if s.Injected != 3 || s.Completed != 2 || s.Rejected != 1 || s.OutputTokens != 4 || s.DurationS != 0.003 {
		t.Errorf("%+v", s)
	}
	if s.TTFT.Mean != (1+1.9)/2 || s.ITL.Mean != 1 || s.E2E.P50 != (3+1.9)/2 || s.TokenGap.N != 2 {
		t.Errorf("TTFT %+v ITL %+v E2E %+v gaps %+v", s.TTFT, s.ITL, s.E2E, s.TokenGap)
	}
	if len(s.Classes) != 1 || s.Classes[0].Met != 1 || s.Classes[0].Attainment.V != 0.5 || math.Abs(s.Goodput.V-1/0.003) > 1e-9 {
		t.Errorf("classes %+v, goodput %v", s.Classes, s.Goodput)
	}
}
