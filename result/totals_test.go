package result

import (
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// The totals of extract.json are the same sums as the runs' counts; a count
// that one run does not know is unknown in all.
func TestTotalsAreSumsOverRuns(t *testing.T) {
	run := func(n int64) ExtractRun {
		return ExtractRun{
			Records: Records{Read: 10 * n, Kept: 9 * n, Dropped: map[string]int64{"warm_up": n}, BadFrac: float64(n) / 100},
			Tables:  map[string]int64{"steps": n, "requests": 2 * n},
			Steps: ExtractSteps{Summaries: n, Missing: 2 * n, WithSnapshots: 3 * n, Reconstructed: trace.Some(4 * n), Unknown: trace.Some(5 * n),
				Contradictions: trace.Some(6 * n)},
			Requests: ExtractRequests{Engine: n, Failed: 2 * n}, Losses: Losses{OrphanSnapshots: n},
		}
	}
	e := &Extract{Runs: []ExtractRun{run(1), run(2)}, Totals: ExtractTotals{BytesRead: 7, LinesRead: 8, Summaries: 99}}
	for range 2 { // a second call changes nothing
		e.SumRuns()
	}
	s := e.Totals.Steps
	switch {
	case !e.Totals.Records.Balanced() || e.Totals.Records.Read != 30 || e.Totals.Records.BadFrac != 0.02:
		t.Errorf("records: got %+v", e.Totals.Records)
	case e.Totals.Tables["steps"] != 3 || e.Totals.Tables["requests"] != 6:
		t.Errorf("tables: got %v", e.Totals.Tables)
	case s.Summaries != 3 || s.Missing != 6 || s.WithSnapshots != 9 || s.Reconstructed.V != 12 || s.Unknown.V != 15 ||
		s.Contradictions != trace.Some[int64](18):
		t.Errorf("steps: got %+v", s)
	case e.Totals.Requests.Failed != 6 || e.Totals.Losses.OrphanSnapshots != 3 || e.Totals.Summaries != 3 || e.Totals.BytesRead != 7 ||
		e.Totals.LinesRead != 8:
		t.Errorf("got %+v", e.Totals)
	}
	e.Runs[1].Steps.Unknown = trace.Opt[int64]{}
	if e.SumRuns(); e.Totals.Steps.Unknown.OK || !e.Totals.Steps.Reconstructed.OK {
		t.Errorf("unknown: got %+v", e.Totals.Steps)
	}
}
