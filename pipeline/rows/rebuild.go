package rows

// This file rebuilds what ran in each step of a run, and decides over which steps.

import (
	"slices"
	"sort"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// Limits of the range of step ids, for the dense slice of steps: a range far wider than the number of
// recorded steps is damage (spec#cost-limits). reconstruct.MaxStepRange bounds it in any case.
const (
	stepsPerSummary = 256
	fewSteps        = 1 << 12
	maxLoggedSteps  = 1 << 25
)

// Rebuild returns what ran in every step of the run, reconstructed from its records. Steps.Run is
// the run without events, which no row needs. Errors: unknown_spec_version, bad_step_ids, and in
// 1.0 chunked_without_snapshots (spec#frozen-sourcing).
func Rebuild(run *trace.Run, dep *deploy.Deployment, v features.Version) (*Steps, error) {
	if err := features.CheckVersion(v); err != nil {
		return nil, err
	}
	less := *sortedBySteps(run)
	less.Events = nil
	if err := checkStepIDs(&less); err != nil {
		return nil, err
	}
	seen, err := surveySnapshots(&less)
	if err != nil {
		return nil, err
	}
	s := &Steps{Run: &less, Dep: dep, Version: v, Config: dep.Config(), seen: seen}
	return s, s.rebuildBatches()
}

// As returns the run of s rebuilt under another version of the feature specification. What was
// found out from snapshots is shared, and where the versions have the same batches, as all but 1.0 do, these are too.
func (s *Steps) As(v features.Version) (*Steps, error) {
	if err := features.CheckVersion(v); err != nil {
		return nil, err
	}
	if s.Version != features.V10 && v != features.V10 {
		out := *s
		out.Version = v
		out.Findings = slices.Clone(s.findings)
		out.qualityFindings()
		return &out, nil
	}
	out := &Steps{Run: s.Run, Dep: s.Dep, Version: v, Config: s.Config, seen: s.seen}
	return out, out.rebuildBatches()
}

// rebuildBatches fills the steps, Quality and Findings for s.Version.
func (s *Steps) rebuildBatches() error {
	if a := s.Run.Aggregate; a != nil {
		s.Findings = append(s.Findings, a.Findings...)
	}
	n := len(s.Run.Steps)
	if n == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no step summaries: no beta rows, and the preemption average is 0",
			s.Run.ID))
		return nil
	}
	lives := reconstruct.Lives(s.Run.Requests, &s.Dep.Engine, s.Run.Steps[n-1].ID)
	first, last := s.stepRange(lives)
	s.First = first
	if n := reconstruct.CountMembers(lives, first, last); n > reconstruct.MaxMembers {
		return trace.Errorf(codeBadStepIDs, "run %s: steps of requests: got %d together in steps %d..%d, want at most %d", s.Run.ID, n, first,
			last, reconstruct.MaxMembers)
	}
	s.batches = reconstruct.FromJourneys(lives, reconstruct.Recording{
		Engine:    &s.Dep.Engine,
		First:     first,
		Last:      last,
		Summaries: s.Run.Steps,
		Lost:      s.lostSteps(first, last),
	})
	b := newBatchSources(s)
	if err := b.fillSteps(); err != nil {
		return err
	}
	s.countQuality(b)
	if s.Version == features.V10 {
		return s.Refused10()
	}
	return nil
}

// sortedBySteps returns the run with steps and snapshots in id order, as extraction
// writes them; others are sorted into a copy.
func sortedBySteps(run *trace.Run) *trace.Run {
	byID := func(a, b trace.Step) int { return int(min(1, max(-1, a.ID-b.ID))) }
	byStep := func(a, b trace.Snapshot) int { return int(min(1, max(-1, a.StepID-b.StepID))) }
	if slices.IsSortedFunc(run.Steps, byID) && slices.IsSortedFunc(run.Snapshots, byStep) {
		return run
	}
	c := *run
	c.Steps, c.Snapshots = slices.Clone(run.Steps), slices.Clone(run.Snapshots)
	stat.SortStable(c.Steps, byID)
	stat.SortStable(c.Snapshots, byStep)
	return &c
}

// checkStepIDs returns an error when step ids span an implausibly wide range or occur twice.
func checkStepIDs(run *trace.Run) error {
	if len(run.Steps) == 0 {
		return nil
	}
	lo := run.Steps[0].ID
	hi := run.Steps[len(run.Steps)-1].ID
	limit := min(reconstruct.MaxStepRange, max(fewSteps, stepsPerSummary*int64(len(run.Steps))))
	if run.Aggregate != nil { // their ids are ours, one a logged pass
		limit = maxLoggedSteps
	}
	if hi-lo >= limit || hi-lo < 0 {
		return trace.Errorf(codeBadStepIDs, "run %s: step ids: got %d..%d in %d summaries, want a range below %d", run.ID, lo, hi,
			len(run.Steps), limit)
	}
	for i := 1; i < len(run.Steps); i++ {
		if run.Steps[i].ID == run.Steps[i-1].ID {
			return trace.Errorf(codeBadStepIDs, "run %s: step %d: got two summaries, want one", run.ID, run.Steps[i].ID).
				WithHint("blis-train extract --split-engines")
		}
	}
	return nil
}

// stepRange returns the range of step ids to rebuild: every step with a summary, and the steps of
// requests that begin or end within 4096 steps of those.
func (s *Steps) stepRange(lives []reconstruct.Life) (first, last int64) {
	lo := s.Run.Steps[0].ID
	hi := s.Run.Steps[len(s.Run.Steps)-1].ID
	const margin = 4096
	first, last = lo, hi
	for i := range lives {
		if f := lives[i].FirstStep(); f >= lo-margin {
			first = min(first, f)
		}
		if l := lives[i].LastStep(); l <= hi+margin {
			last = max(last, l)
		}
	}
	return first, last
}

// askedSummaries returns the range of summaries that rows are made of: all of them, or those of the
// slice without its margin.
func (s *Steps) askedSummaries() (from, to int) {
	of := s.Run.Slice
	if of == nil {
		return 0, len(s.Run.Steps)
	}
	at := func(ns int64) int {
		return sort.Search(len(s.Run.Steps), func(k int) bool { return s.Run.Steps[k].TsStartNs >= ns })
	}
	return at(of.FromNs), at(of.ToNs)
}

// askedSteps returns the ids of the same steps and of those between them, from inclusive, to
// exclusive.
func (s *Steps) askedSteps() (from, to int64) {
	from, to = s.First, s.First+int64(s.Len())
	lo, hi := s.askedSummaries()
	if lo > 0 {
		from = s.Run.Steps[lo].ID
	}
	if hi < len(s.Run.Steps) {
		to = s.Run.Steps[hi].ID
	}
	return from, to
}

// lostSteps returns the steps in which a request may have run that the journeys lack. Those are all
// steps when journeys are sampled, or when a snapshot shows a request without a journey. Otherwise
// they are the lifetimes of API spans without a core span and of core spans without an API span:
// what lost one span may have lost whole requests.
func (s *Steps) lostSteps(first, last int64) []reconstruct.StepRange {
	all := []reconstruct.StepRange{{From: first, To: last + 1}}
	if rate := s.Dep.Tracing.JourneySampleRate; rate.OK && rate.V < 1 {
		s.addFinding(codeNotRecorded, "journeys are sampled at %g", rate.V)
		return all
	}
	if n := s.seen.unknown; n > 0 {
		s.addFinding(codeNotRecorded, "%d requests in the snapshots have no core span", n)
		return all
	}
	var lost []reconstruct.StepRange
	for i := range s.Run.Requests {
		r := &s.Run.Requests[i]
		isPaired := r.CoreID.OK && r.APIID.OK
		if r.Source == trace.SourceFork && !isPaired {
			lost = append(lost, s.lifetime(r, last))
		}
	}
	if len(lost) > 0 {
		s.addFinding(codeNotRecorded, "%d spans lack their API or core partner", len(lost))
	}
	return lost
}

// lifetime returns the range of steps in which a request may have run of which only the core span
// or only the API span was recorded.
func (s *Steps) lifetime(r *trace.Request, last int64) reconstruct.StepRange {
	if r.CoreID.OK { // to the step after the one that finished it; To is exclusive
		return reconstruct.StepRange{From: r.QueuedStep.Or(s.First), To: r.FinishedStep.Or(last) + 2}
	}
	if !r.ArrivedNs.OK {
		return reconstruct.StepRange{From: s.First, To: last + 1}
	}
	steps := s.Run.Steps
	out := reconstruct.StepRange{From: steps[0].ID, To: last + 1}
	if k := lastStart(steps, r.ArrivedNs.V); k >= 0 {
		out.From = steps[k].ID
	}
	if end := r.DepartedNs.Or(r.AbortedNs.V); r.DepartedNs.OK || r.AbortedNs.OK {
		if k := lastStart(steps, end); k+1 < len(steps) {
			out.To = steps[k+1].ID + 1
		}
	}
	return out
}

// addFinding adds a finding about the run.
func (s *Steps) addFinding(code trace.Code, format string, args ...any) {
	s.Findings = append(s.Findings, trace.Findingf(code, s.Run.ID+": "+format, args...))
}

// lastStart returns the index of the last step that started at ns or before; -1 when there is none.
// Steps are in id order, and so are their stamps.
func lastStart(steps []trace.Step, ns int64) int {
	return sort.Search(len(steps), func(k int) bool { return steps[k].TsStartNs > ns }) - 1
}

// Refused10 returns the error of a run that spec 1.0 cannot read, nil for others: chunked prefill
// without any complete snapshot (spec#frozen-sourcing).
func (s *Steps) Refused10() error {
	if len(s.Run.Steps) == 0 || !s.Dep.Engine.ChunkedPrefill || s.Quality.FromSnapshots > 0 {
		return nil
	}
	return trace.Errorf(codeChunkedNoSnapshots, "run %s: spec 1.0 with chunked prefill: got no complete step snapshots, want some",
		s.Run.ID).WithHint("record with --step-tracing-rich-subsample-rate 1.0, or use --spec 1.1")
}
