package predictor

import (
	"strings"
	"testing"
)

// The page shows figures, reasons and drops, and keeps names from recordings inert.
func TestScoresPage(t *testing.T) {
	half := 0.5
	s := newScores()
	s.Models = []modelScore{{Scope: "all", Target: targetTTFT, Model: nameTrees, MAPE: &half, Coverage: &half},
		{Scope: "all", Target: targetE2E, Model: namePhysics, Reason: "no coefficients were given"}}
	s.HoldOut = []HoldOut{{Scope: "<b>s1</b>", Target: targetTPOT, Reason: "10 rows, want 30"}}
	s.Runs = []runAccount{{ID: "<script>alert(1)</script>", Requests: 12, Rows: 10, Dropped: map[string]int{"no_arrival": 2}}}
	html, _, err := Page(s)
	if err != nil {
		t.Fatal(err)
	}
	page := string(html)
	for _, want := range []string{"50.0", "no coefficients were given", "10 rows, want 30", "no_arrival 2", "end to end"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>s1") {
		t.Error("a name from a recording became markup")
	}
}
