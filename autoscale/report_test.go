package autoscale

import (
	"bytes"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
)

func ptr(v float64) *float64 { return &v }

func calibration() *Queue {
	return &Queue{
		Header: result.Header{Command: "queue fit --flavour corrected"}, Flavour: "corrected",
		Servers: []QueueServer{
			{
				ID: "a<b>", Effective: []queueParameter{{Name: "alpha", Unit: "ms/iteration", Value: 6.6, CI95: &[2]float64{6.5, 6.7},
					Identified: "held", Shift: ptr(1.25)}},
				Windows: queueAccount{Read: 9, Kept: 7, Dropped: map[string]int{"few_requests": 2}},
				Scores: []queueScore{
					{Estimator: "effective", Set: "train", Windows: 5, TTFTWape: ptr(0.11), ITLWape: ptr(0.05)}, {Estimator: "effective", Set: "hold_out",
						Windows: 2, TTFTWape: ptr(0.17), ITLWape: ptr(0.08)},
				},
				Identify: &queueIdentify{Rank: 2, Null: []queueDirection{{Names: []string{"alpha", "gamma"}}},
					Sweep: []queuePoint{{PromptTokens: 512, OutputTokens: 128, RateRPS: 2}}},
				Tracks: []queueTrack{{Estimator: "replica:wva", Flavour: "wva-3p", Final: []float64{1, 2, 3}, LockedOut: 5,
					Verdict: "locked out"}},
				Sizing: &QueueSizing{RateRPS: 3.5, Binding: "itl"},
			},
			{ID: "b", Reason: "saturated: queue_rising_r2 0.97"},
		},
		Plan: &QueuePlan{Servers: []queueGiven{{Name: "chat", Accelerator: "H100", Replicas: 2}}, Cost: 800},
	}
}

// TestPage: every part of the document is on the page, escaped, and the same the second time.
func TestPage(t *testing.T) {
	one, _, err := Page(calibration())
	two, _, again := Page(calibration())
	if err != nil || again != nil || !bytes.Equal(one, two) {
		t.Fatalf("other bytes the second time, or %v", err)
	}
	page := string(one)
	for _, want := range []string{"1 of 2 servers have effective parameters", "saturated: queue_rising_r2", "a&lt;b&gt;", "held", "6.5 to 6.7",
		"few_requests", "alpha with gamma", "512/128 at 2/s",
		"17.0", "locked out", "replica:wva", "800", "blis-train queue fit --flavour corrected"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "a<b>") {
		t.Error("a server's name is not escaped")
	}
	if _, _, err := Page(&Queue{}); err != nil {
		t.Errorf("an empty document: %v", err)
	}
}
