package report

import (
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// A finding of a run names it once.
func TestFindingsNameTheirRun(t *testing.T) {
	got := ofRun("r-1", []trace.Finding{trace.Findingf("a", "3 steps are missing"), trace.Findingf("b", "run r-1: lost")})
	if got[0].Message != "r-1: 3 steps are missing" || got[1].Message != "run r-1: lost" {
		t.Errorf("got %+v", got)
	}
}
