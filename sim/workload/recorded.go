package workload

// This file makes a workload from an extracted run: the recorded requests with their arrivals,
// lengths, aborts and known prefixes. The events are those of the tracing fork of vLLM: ARRIVED (at
// the API), QUEUED (picked up by the engine), FINISHED.

import (
	"cmp"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// RunOptions choose which requests of an extracted run become the workload, and when they arrive.
type RunOptions struct {
	// FromNs and ToNs keep requests that arrive in [FromNs, ToNs); 0 = no limit.
	FromNs, ToNs int64
	// Phase keeps one phase; empty = all.
	Phase string
	// Queued makes requests reach the engine's input queue when they were picked up (QUEUED), for
	// teacher-forced replays. Otherwise they arrive at the API (ARRIVED) and the simulator adds the
	// overhead.
	Queued bool
	// MissingArrivalUs is subtracted from QUEUED where ARRIVED is unknown: half a step (spec#replay-requests).
	MissingArrivalUs int64
	// BaseNs sets simulated time 0; 0 = the earliest arrival kept.
	BaseNs int64
}

// FromRun returns the workload of an extracted run: arrivals, lengths, aborts at their recorded
// end, and shared prefixes as far as known. Cached tokens come from the first snapshot of a
// request, else from step totals (inferCached), else from the prefix groups of the client's file.
func FromRun(run *trace.Run, d *deploy.Deployment, opt RunOptions) (*Workload, error) {
	w := &Workload{Requests: make([]sim.Request, 0, len(run.Requests)), Rows: make([]int, 0, len(run.Requests))}
	prefixes := newPrefixes(run, d)
	var skipped, guessed int
	for row := range run.Requests {
		r := &run.Requests[row]
		at, ok := arrivalNs(r, opt)
		isEarly := opt.FromNs != 0 && at < opt.FromNs
		isLate := opt.ToNs != 0 && at >= opt.ToNs
		isOther := opt.Phase != "" && r.Phase.Or("") != opt.Phase
		if !ok || isEarly || isLate || isOther {
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
	w.placeArrivals(run, opt)
	w.Notes = append(w.Notes, prefixes.notes...)
	if skipped > 0 {
		w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
			"%d requests without prompt length were left out", skipped))
	}
	if guessed > 0 {
		w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
			"%d requests without ARRIVED: QUEUED less %d us is used", guessed, opt.MissingArrivalUs))
	}
	if len(w.Requests) == 0 {
		return nil, trace.Errorf(codeBadWorkload,
			"run %q: got no request with arrival and prompt length, want at least one", run.ID)
	}
	return w, nil
}

// OfClients returns the run with the requests that its clients recorded, if its server recorded none: they arrive
// when they were sent. Failed requests without output are left out, as the server may never have run them.
func OfClients(run *trace.Run) *trace.Run {
	if len(run.Requests) > 0 {
		return run
	}
	out := *run
	for i := range run.Observed {
		o := &run.Observed[i]
		if o.SentNs() == 0 || !o.Success.Or(true) && o.OutputTokens.V == 0 {
			continue
		}
		out.Requests = append(out.Requests, trace.Request{
			APIID:        trace.Some(o.ID),
			Phase:        o.Phase,
			ArrivedNs:    trace.Some(o.SentNs()),
			PromptTokens: o.PromptTokens,
			OutputTokens: o.LoadTokens(),
			MaxTokens:    o.AskedTokens,
			N:            o.N,
			Success:      o.Success,
		})
	}
	return &out
}

// arrivalNs returns the monotonic stamp at which a request arrives, ns; false if it is unknown.
func arrivalNs(r *trace.Request, opt RunOptions) (int64, bool) {
	switch {
	case opt.Queued:
		return r.QueuedNs.V, r.QueuedNs.OK
	case r.ArrivedNs.OK:
		return r.ArrivedNs.V, true
	}
	return r.QueuedNs.V - opt.MissingArrivalUs*1000, r.QueuedNs.OK
}

// requestOf returns the request of the simulator for a recorded one, without times and prefixes;
// false if its prompt length is unknown or a recording of the tracing fork lacks its core span.
func requestOf(r *trace.Request) (sim.Request, bool) {
	// A request of the tracing fork without a core span was never in the engine, or its span is lost.
	if !r.PromptTokens.OK || r.PromptTokens.V < 1 || r.Source == trace.SourceFork && !r.CoreID.OK {
		return sim.Request{}, false
	}
	out := max(1, r.OutputTokens.Or(1))
	q := sim.Request{ID: r.CoreID.Or(r.APIID.V), PromptTokens: r.PromptTokens.V, OutputTokens: out,
		MaxTokens: max(out, r.MaxTokens.Or(out))}
	if r.FinishStatus.OK && r.FinishStatus.V == trace.FinishStopped && q.MaxTokens == q.OutputTokens {
		q.MaxTokens++ // it stopped by itself at its cap: keep the status
	}
	return q, true
}

// placeArrivals sets arrivals and aborts in simulated time, and w.BaseNs.
func (w *Workload) placeArrivals(run *trace.Run, opt RunOptions) {
	w.BaseNs = opt.BaseNs
	if w.BaseNs == 0 {
		w.BaseNs = earliest(run, w.Rows, opt)
	}
	for i, row := range w.Rows {
		r := &run.Requests[row]
		q := &w.Requests[i]
		at, _ := arrivalNs(r, opt)
		q.ArrivalUs = max(0, w.Us(at))
		w.placeAbort(r, q)
	}
}

// sortByArrival orders the requests by their stamps in ns, so that those of one microsecond keep
// the recorded order.
func (w *Workload) sortByArrival(run *trace.Run, opt RunOptions) {
	order := make([]int, len(w.Rows))
	for i := range order {
		order[i] = i
	}
	stat.SortStable(order, func(a, b int) int {
		x, _ := arrivalNs(&run.Requests[w.Rows[a]], opt)
		y, _ := arrivalNs(&run.Requests[w.Rows[b]], opt)
		return cmp.Compare(x, y)
	})
	rows := w.Rows
	w.Rows = make([]int, len(rows))
	for i, j := range order {
		w.Rows[i] = rows[j]
	}
	permute(w.Requests, order)
}

// permute moves what is at order[i] to place i, in place: a copy of the requests of a long recording would take a lot of
// memory. It spoils order.
func permute(requests []sim.Request, order []int) {
	for i := range order {
		first := requests[i]
		for at := i; ; { // along the cycle that begins at i
			from := order[at]
			order[at] = at // done
			if from == i {
				requests[at] = first
				break
			}
			requests[at] = requests[from]
			at = from
		}
	}
}

// earliest returns the earliest arrival of the given rows of a run, ns.
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

// placeAbort sets when and how recorded request r was aborted, if it was. A stop string found by
// the API is an abort for the engine and a success for the client. The engine would have gone on,
// so the request gets more output tokens than recorded: up to max_tokens or, if that is unknown, one.
func (w *Workload) placeAbort(r *trace.Request, q *sim.Request) {
	aborted := r.FinishStatus.Or("") == trace.FinishAborted || r.FinishStatus.Or("") == trace.FinishError
	end := r.FinishedNs
	if !end.OK {
		end = r.AbortedNs
		aborted = aborted || r.AbortedNs.OK
	}
	if !aborted || !end.OK {
		return
	}
	q.AbortAtUs = trace.Some(max(q.ArrivalUs, w.Us(end.V)))
	q.AbortKind = sim.OutcomeAborted
	if r.Success.Or(false) {
		q.AbortKind = sim.OutcomeFinished
	}
	q.OutputTokens = max(q.OutputTokens+1, r.MaxTokens.Or(0))
	q.MaxTokens = max(q.MaxTokens, q.OutputTokens)
}
