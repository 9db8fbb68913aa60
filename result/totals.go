package result

import "github.com/blis-train/blis-train/trace"

// ExtractTotals sums all runs.
type ExtractTotals struct {
	Records   Records           `json:"records"`
	Tables    map[string]int64  `json:"tables"`
	Steps     extractStepTotals `json:"steps"`
	Requests  ExtractRequests   `json:"requests"`
	Losses    Losses            `json:"losses"`
	Summaries int64             `json:"step_summaries"` // = steps.summaries
	BytesRead int64             `json:"bytes_read"`
	LinesRead int64             `json:"lines_read"`
}

// extractStepTotals sums the steps of all runs. The last three are null when a
// run's batches were not rebuilt.
type extractStepTotals struct {
	Summaries      int64            `json:"summaries"`
	Missing        int64            `json:"missing"`
	WithSnapshots  int64            `json:"with_snapshots"`
	Reconstructed  trace.Opt[int64] `json:"reconstructed"`
	Unknown        trace.Opt[int64] `json:"unknown"`
	Contradictions trace.Opt[int64] `json:"contradictions"`
}

// SumRuns adds up what the runs counted, in place of what the totals said of it
// before; the bytes and lines read belong to the files and stay. BadFrac is the
// worst run's.
func (e *Extract) SumRuns() {
	zero := trace.Some[int64](0)
	t := &e.Totals
	t.Records = Records{Dropped: map[string]int64{}}
	t.Tables, t.Requests, t.Losses = map[string]int64{}, ExtractRequests{}, Losses{}
	t.Steps = extractStepTotals{Reconstructed: zero, Unknown: zero, Contradictions: zero}
	for i := range e.Runs {
		r := &e.Runs[i]
		t.Records.add(&r.Records)
		for name, rows := range r.Tables {
			t.Tables[name] += rows
		}
		t.Steps.add(&r.Steps)
		t.Requests.add(&r.Requests)
		t.Losses.add(&r.Losses)
	}
	t.Summaries = t.Steps.Summaries
}

func (t *Records) add(r *Records) {
	t.Read += r.Read
	t.Kept += r.Kept
	for reason, n := range r.Dropped {
		t.Dropped[reason] += n
	}
	t.BadFrac = max(t.BadFrac, r.BadFrac)
}

func (t *extractStepTotals) add(r *ExtractSteps) {
	t.Summaries += r.Summaries
	t.Missing += r.Missing
	t.WithSnapshots += r.WithSnapshots
	t.Reconstructed = plus(t.Reconstructed, r.Reconstructed)
	t.Unknown = plus(t.Unknown, r.Unknown)
	t.Contradictions = plus(t.Contradictions, r.Contradictions)
}

// plus is unknown when either side is.
func plus(a, b trace.Opt[int64]) trace.Opt[int64] {
	if !a.OK || !b.OK {
		return trace.Opt[int64]{}
	}
	return trace.Some(a.V + b.V)
}

func (t *ExtractRequests) add(r *ExtractRequests) {
	t.Engine += r.Engine
	t.APILinked += r.APILinked
	t.APIUnlinked += r.APIUnlinked
	t.APIOnly += r.APIOnly
	t.Stock += r.Stock
	t.Finished += r.Finished
	t.Aborted += r.Aborted
	t.Failed += r.Failed
	t.Open += r.Open
	t.StopString += r.StopString
}

func (t *Losses) add(r *Losses) {
	t.DroppedSpanEvents += r.DroppedSpanEvents
	t.TruncatedMessages += r.TruncatedMessages
	t.OrphanSnapshots += r.OrphanSnapshots
	t.DuplicateSpans += r.DuplicateSpans
}
