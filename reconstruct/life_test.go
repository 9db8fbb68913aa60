package reconstruct

import (
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestInconsistentRequests: e = t + o - 1 is required; an abort may be one
// step later (two when asynchronous), a lost event breaks the request.
func TestInconsistentRequests(t *testing.T) {
	for _, c := range []struct {
		name     string
		async    bool
		status   string
		finished int64
		unknown  bool
		lastRun  int64
	}{
		{"exact", false, trace.FinishLength, 13, false, 13},
		{"late", false, trace.FinishLength, 14, true, 0},
		{"abort in flight", false, trace.FinishAborted, 14, false, 14},
		{"abort between steps", false, trace.FinishAborted, 13, false, 13},
		{"abort too late", false, trace.FinishAborted, 15, true, 0},
		{"async abort", true, trace.FinishAborted, 15, false, 15},
		{"async length", true, trace.FinishLength, 13, false, 13},
		{"async EOS wastes a step", true, trace.FinishStopped, 13, false, 14},
		{"impossible step", false, trace.FinishLength, 1 << 50, true, 0},
		{"negative step", false, trace.FinishLength, -4, true, 0},
	} {
		r := &lifeReader{isAsync: c.async, lastStep: 100}
		l, ok := r.readLife(&trace.Request{CoreID: trace.Some("r"), PromptTokens: trace.Some(int64(5)), OutputTokens: trace.Some(int64(4)),
			ScheduledStep: trace.Some(int64(9)), FirstTokenStep: trace.Some(int64(10)), FinishedStep: trace.Some(c.finished),
			FinishStatus: trace.Some(c.status)})
		if !ok || (l.unknown != Known) != c.unknown || !c.unknown && l.lastRun != c.lastRun {
			t.Errorf("%s: %+v", c.name, l)
		}
	}
}
