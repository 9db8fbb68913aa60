package simulate

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
)

// TestSummary: the summary of a run small enough to check by hand.
func TestSummary(t *testing.T) {
	cfg := sim.DefaultConfig(testkit.Small(100), &sim.Blackbox{Beta: []float64{1000, 0, 0}})
	cfg.TokenGaps, cfg.RequestGaps = true, true
	res, err := sim.Run(cfg, []sim.Request{
		{ID: "a", PromptTokens: 4, OutputTokens: 3, SLOClass: "chat", SLOTTFTUs: 1500},
		{ID: "b", ArrivalUs: 100, PromptTokens: 4, OutputTokens: 1, SLOClass: "chat", SLOTTFTUs: 1500},
		{ID: "c", ArrivalUs: 100, PromptTokens: 1000, OutputTokens: 1},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCollector(nil)
	for i := range res.Requests {
		c.Add(&res.Requests[i])
	}
	s := c.Close(res)
	if s.InjectedRequests != 3 || s.CompletedRequests != 2 || s.RejectedRequests != 1 || s.TotalOutputTokens != 4 || s.DurationS != 0.003 {
		t.Errorf("%+v", s)
	}
	if *s.TTFTMeanMs != (1+1.9)/2 || *s.ITLMeanMs != 1 || *s.E2EP50Ms != (3+1.9)/2 || res.Gaps.N() != 2 || *s.RequestITLMeanMs != 1 {
		t.Errorf("TTFT %v ITL %v E2E %v gaps %d", *s.TTFTMeanMs, *s.ITLMeanMs, *s.E2EP50Ms, res.Gaps.N())
	}
	if len(s.Classes) != 1 || s.Classes[0].Met != 1 || *s.Classes[0].Attainment != 0.5 || math.Abs(*s.GoodputRPS-1/0.003) > 1e-9 {
		t.Errorf("classes %+v, goodput %v", s.Classes, *s.GoodputRPS)
	}
}
