package export

import (
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// TestSince: verdicts and gates that turned come first, then what moved by more than
// 1 %; what did not move is counted.
func TestSince(t *testing.T) {
	yes, no := true, false
	num := func(v float64) *float64 { return &v }
	gate := func(name string, v float64, pass *bool) coeff.Gate {
		return coeff.Gate{Name: name, Scope: "a", Value: num(v), Op: "<", Threshold: 0.15, Pass: pass}
	}
	v := &result.Validation{}
	for _, g := range []coeff.Gate{gate("same", 0.1, &yes), gate("little", 0.1005, &yes), gate("moved", 0.12, &yes),
		gate("turned", 0.151, &no), gate("new", 0.1, &yes)} {
		v.Gates = append(v.Gates, result.Gate{Gate: g})
	}
	p := result.PurposeVerdict{}
	p.Purpose, p.Scope, p.Verdict = coeff.PurposeReplay, "a", coeff.VerdictFail
	v.Purposes = []result.PurposeVerdict{p}
	old := &Old{Name: "old", Gates: []coeff.Gate{gate("same", 0.1, &yes), gate("little", 0.1, &yes), gate("moved", 0.06, &yes),
		gate("turned", 0.149, &yes)},
		Purposes: []coeff.PurposeVerdict{{Purpose: coeff.PurposeReplay, Scope: "a", Verdict: coeff.VerdictPass}}}
	got := Since(old, v, nil)
	var names []string
	for _, r := range got.Rows {
		names = append(names, r.Name)
	}
	if len(names) != 3 || names[0] != coeff.PurposeReplay || names[1] != "turned" || names[2] != "moved" {
		t.Errorf("changes: got %v, want replay, turned, moved", names)
	}
	if got.Same != 2 {
		t.Errorf("same: got %d, want 2", got.Same)
	}
	if len(got.Notes) != 1 {
		t.Errorf("notes: got %q, want that there are no coefficients", got.Notes)
	}
}
