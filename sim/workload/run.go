package workload

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Workload is a list of requests for sim.Run and where it came from.
type Workload struct {
	Requests []sim.Request
	// BaseNs is the monotonic stamp of simulated time 0 (extracted runs): us =
	// ceil((ns - BaseNs)/1000).
	BaseNs int64
	// Rows[i] is the row of the extracted run behind Requests[i].
	Rows []int
	// Notes say what was assumed.
	Notes []trace.Finding

	rounds []round // of sessions, by request; nil: the format has none
}

// Us converts a monotonic stamp to simulated time, rounded up.
func (w *Workload) Us(ns int64) int64 { return ceilDiv(ns-w.BaseNs, 1000) }

func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// RunOptions choose what of an extracted run becomes a workload.
type RunOptions struct {
	// FromNs and ToNs keep requests that arrive in [FromNs, ToNs); 0 = no limit.
	FromNs, ToNs int64
	// Phase keeps one phase; empty = all.
	Phase string
	// Queued takes the pick-up stamp as the moment a request reaches the input
	// queue (teacher-forced replays). Otherwise it arrives at ARRIVED and the
	// simulator adds the overhead.
	Queued bool
	// MissingArrivalUs is subtracted from QUEUED where ARRIVED is unknown: half a step (spec#replay-requests).
	MissingArrivalUs int64
	// BaseNs sets simulated time 0; 0 = the earliest arrival kept.
	BaseNs int64
}

// FromRun makes the workload of an extracted run: arrivals, lengths, aborts at
// their recorded end, and what is known about shared prefixes, in this order:
// the content ids of content (by core id, from KV events), the prefix
// groups of the client's file, the cached tokens of first snapshots.
func FromRun(run *trace.Run, d *deploy.Deployment, opt RunOptions) (*Workload, error) {
	w := &Workload{}
	prefixes := newPrefixes(run, d)
	var skipped, guessed int
	for row := range run.Requests {
		r := &run.Requests[row]
		at, ok := arrivalNs(r, opt)
		if !ok || opt.FromNs != 0 && at < opt.FromNs || opt.ToNs != 0 && at >= opt.ToNs || opt.Phase != "" && r.Phase.Or("") != opt.Phase {
			continue
		}
		q, ok := requestOf(r)
		if !ok {
			skipped++
			continue
		}
		if !r.ArrivedNs.OK {
			guessed++
		}
		prefixes.apply(&q, r)
		w.Requests = append(w.Requests, q)
		w.Rows = append(w.Rows, row)
	}
	w.sortByArrival(run, opt)
	w.place(run, opt)
	w.Notes = append(w.Notes, prefixes.notes...)
	if skipped > 0 {
		w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete, "%d requests without prompt length were left out", skipped))
	}
	if guessed > 0 {
		w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
			"%d requests without ARRIVED: QUEUED less %d us stands for it", guessed, opt.MissingArrivalUs))
	}
	if len(w.Requests) == 0 {
		return nil, trace.Errorf(codeBadWorkload, "run %q: got no request with arrival and prompt length, want at least one", run.ID)
	}
	return w, nil
}

// Codes of this package.
const (
	CodeIncomplete    trace.Code = "workload_incomplete"
	CodePrefixUnknown trace.Code = "workload_prefix_unknown"
	codeBadWorkload   trace.Code = "bad_workload"
)

func arrivalNs(r *trace.Request, opt RunOptions) (int64, bool) {
	switch {
	case opt.Queued:
		return r.QueuedNs.V, r.QueuedNs.OK
	case r.ArrivedNs.OK:
		return r.ArrivedNs.V, true
	}
	return r.QueuedNs.V - opt.MissingArrivalUs*1000, r.QueuedNs.OK
}

// requestOf fills everything but times and prefixes.
func requestOf(r *trace.Request) (sim.Request, bool) {
	if !r.PromptTokens.OK || r.PromptTokens.V < 1 || r.Source == trace.SourceFork && !r.CoreID.OK {
		return sim.Request{}, false
	}
	out := max(1, r.OutputTokens.Or(1))
	q := sim.Request{ID: r.CoreID.Or(r.APIID.V), PromptTokens: r.PromptTokens.V, OutputTokens: out, MaxTokens: max(out, r.MaxTokens.Or(out))}
	if r.FinishStatus.OK && r.FinishStatus.V == trace.FinishStopped && q.MaxTokens == q.OutputTokens {
		q.MaxTokens++ // it stopped by itself at its cap: keep the status
	}
	return q, true
}

// place sets the times.
func (w *Workload) place(run *trace.Run, opt RunOptions) {
	w.BaseNs = opt.BaseNs
	if w.BaseNs == 0 {
		w.BaseNs = earliest(run, w.Rows, opt)
	}
	for i, row := range w.Rows {
		r, q := &run.Requests[row], &w.Requests[i]
		at, _ := arrivalNs(r, opt)
		q.ArrivalUs = max(0, w.Us(at))
		w.placeAbort(r, q)
	}
}

// sortByArrival orders requests by the full stamp, so that equal microseconds
// keep the recorded order.
func (w *Workload) sortByArrival(run *trace.Run, opt RunOptions) {
	order := make([]int, len(w.Rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, _ := arrivalNs(&run.Requests[w.Rows[a]], opt)
		y, _ := arrivalNs(&run.Requests[w.Rows[b]], opt)
		return cmp.Compare(x, y)
	})
	requests, rows := w.Requests, w.Rows
	w.Requests, w.Rows = make([]sim.Request, len(rows)), make([]int, len(rows))
	for i, j := range order {
		w.Requests[i], w.Rows[i] = requests[j], rows[j]
	}
}

func earliest(run *trace.Run, rows []int, opt RunOptions) int64 {
	first := int64(0)
	for i, row := range rows {
		at, _ := arrivalNs(&run.Requests[row], opt)
		if i == 0 || at < first {
			first = at
		}
	}
	return first
}

// placeAbort ends an aborted request where the recording did. A stop string is
// an abort for the engine and a success for the client.
func (w *Workload) placeAbort(r *trace.Request, q *sim.Request) {
	aborted := r.FinishStatus.Or("") == trace.FinishAborted || r.FinishStatus.Or("") == trace.FinishError
	end := r.FinishedNs
	if !end.OK {
		end, aborted = r.AbortedNs, aborted || r.AbortedNs.OK
	}
	if !aborted || !end.OK {
		return
	}
	q.AbortAtUs, q.AbortKind = trace.Some(max(q.ArrivalUs, w.Us(end.V))), sim.OutcomeAborted
	if r.Success.Or(false) {
		q.AbortKind = sim.OutcomeFinished
	}
	q.OutputTokens = max(q.OutputTokens+1, r.MaxTokens.Or(0))
	q.MaxTokens = max(q.MaxTokens, q.OutputTokens)
}
