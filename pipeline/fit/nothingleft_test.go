package fit

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// TestNothingLeft: the error of a fit without rows says what each run lacks, and its hint is about that.
func TestNothingLeft(t *testing.T) {
	const lost = "no beta rows: no_interval (90 of 99 candidates)"
	run := func(kept int, reason string, lost trace.Code, isSaturated bool) *Run {
		p := &Run{kept: kept, noRows: "no beta rows: " + string(lost) + " (90 of 99 candidates)", lost: lost}
		p.Src.ID, p.Reason, p.Saturated = "a", reason, isSaturated
		return p
	}
	for _, c := range []struct {
		runs      []*Run
		msg, hint string
	}{
		{[]*Run{run(0, lost, rows.NoInterval, false)}, "(a: " + lost + ")", "hardly a step follows another"},
		{[]*Run{run(5, "", rows.NoInterval, false)}, "(a: too few beta rows, 5: no_interval (90 of 99 candidates))", "--from requests"},
		{[]*Run{run(5, "", rows.NoInterval, false), run(0, "", "warm_up", false)}, "; a: too few beta rows, 0: warm_up", "blis-train inspect"},
		{[]*Run{run(0, "saturated: all day", rows.NoInterval, true)}, "(a: saturated: all day)", "keep-saturated"},
	} {
		err := (&fitter{prepared: c.runs}).nothingLeft()
		hint := trace.HintOf(err)
		isSaturated := strings.Contains(c.msg, "saturated")
		if !strings.Contains(err.Error(), c.msg) || !strings.Contains(hint, c.hint) || strings.Contains(hint, "keep-saturated") != isSaturated {
			t.Errorf("got %v; %s, want %s; %s", err, hint, c.msg, c.hint)
		}
	}
}
