package workload

// This file prepares a recorded run for a teacher-forced replay: the simulator takes the recorded
// times, so that its scheduling decisions can be compared with the recorded ones step by step.

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Forced is a recorded run prepared for a teacher-forced replay: requests reach the input queue
// when they were picked up in the recording, and steps begin and end at their recorded times. Only
// the schedule is simulated.
type Forced struct {
	*Workload
	Timeline *sim.Recorded // the recorded starts and ends of the steps; without them if step times are incomplete
	Async    bool          // the recorded engine scheduled asynchronously
}

// ForceLater prepares a run, in two calls: Under must be called before the replay with whether the
// engine scheduled asynchronously, which may be found out in between. run is not needed any more
// then. The end of a step is the last stamp of a token that it produced; without one, the time just
// before the next step that had to wait for it.
func ForceLater(run *trace.Run, d *deploy.Deployment) (*Forced, error) {
	if len(run.Steps) == 0 {
		return nil, trace.Errorf(codeBadWorkload,
			"run %q: got no recorded step, want them for a teacher-forced replay", run.ID)
	}
	opt := RunOptions{Queued: true, BaseNs: run.Steps[0].TsStartNs}
	for i := range run.Requests { // time 0 is the first recorded event
		if q := run.Requests[i].QueuedNs; q.OK {
			opt.BaseNs = min(opt.BaseNs, q.V)
		}
	}
	w, err := FromRun(run, d, opt)
	if err != nil {
		return nil, err
	}
	f := &Forced{Workload: w, Timeline: w.timeline(run)}
	if lacksSteps(run) {
		f.forceBySteps(run)
	}
	return f, nil
}

// lacksSteps reports whether summaries of steps are missing in the recording.
func lacksSteps(run *trace.Run) bool {
	n := len(run.Steps)
	return run.Steps[0].ID != 1 || run.Steps[n-1].ID != int64(n)
}

// forceBySteps makes requests be picked up at their recorded step number (scheduler.step of
// QUEUED), for a run without all its step times. Then only the order of pick-ups is that of the recording,
// and simulated times have no meaning.
func (f *Forced) forceBySteps(run *trace.Run) {
	f.Timeline = &sim.Recorded{First: 1, FallbackUs: 1000} // any time of a step would do: only numbers count
	for i, row := range f.Rows {
		q := &f.Requests[i]
		q.ArrivalUs = 0
		q.PickUpStep = run.Requests[row].QueuedStep
		q.AbortAtUs = trace.Opt[int64]{}
	}
}

// timeline returns the recorded starts of the steps, and the ends that token stamps show.
func (w *Workload) timeline(run *trace.Run) *sim.Recorded {
	n := int(run.Steps[len(run.Steps)-1].ID) // steps are numbered from 1
	r := &sim.Recorded{First: 1, Start: unknown(n), End: unknown(n), FallbackUs: 1}
	for i := range run.Steps {
		s := &run.Steps[i]
		r.Start[s.ID-1] = w.Us(s.TsStartNs)
		if s.ScheduledTokens == 0 { // nothing is executed
			r.End[s.ID-1] = r.Start[s.ID-1]
		}
	}
	w.noteEnds(run, r.End)
	return r
}

// Under sets the ends of the steps that have no stamp: just before the next step that had to wait
// for them, which with asynchronous scheduling is the one after the next. It must be called once.
func (f *Forced) Under(async bool) {
	f.Async = async
	r := f.Timeline
	ahead := 1
	if async {
		ahead = 2
	}
	for k := range r.End {
		if r.End[k] == sim.Unknown && k+ahead < len(r.End) && r.Start[k+ahead] != sim.Unknown {
			r.End[k] = max(r.Start[k], r.Start[k+ahead]-1)
		}
	}
}

// noteEnds sets in end, by step, the ends that token stamps show. FINISHED of an abort has the step
// counter at the abort, not a step that produced a token, and is not used.
func (w *Workload) noteEnds(run *trace.Run, end []int64) {
	note := func(step, atNs trace.Opt[int64]) {
		if k := step.V - 1; step.OK && atNs.OK && k >= 0 && k < int64(len(end)) {
			end[k] = max(end[k], w.Us(atNs.V))
		}
	}
	for i := range run.Requests {
		q := &run.Requests[i]
		note(q.FirstTokenStep, q.FirstTokenNs)
		if s := q.FinishStatus.Or(""); s != trace.FinishAborted && s != trace.FinishError {
			note(q.FinishedStep, q.FinishedNs)
		}
	}
}

// unknown returns n unknown times.
func unknown(n int) []int64 { return slices.Repeat([]int64{sim.Unknown}, n) }
