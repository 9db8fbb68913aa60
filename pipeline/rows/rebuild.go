package rows

import (
	"slices"
	"sort"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// maxStepRange bounds the dense step array, stepsPerSummary and fewSteps what it may be beside
// the steps that were recorded: a wider range of ids is damage (spec#cost-limits).
const (
	maxStepRange    = 1 << 23
	stepsPerSummary = 256
	fewSteps        = 1 << 12
	maxLoggedSteps  = 1 << 25
)

// Rebuild finds out what ran in every step of the run, as far as its tables
// tell. Run of the result is the run without events, which no row needs.
// Codes: unknown_spec_version, bad_step_ids,
// and in 1.0 chunked_without_snapshots (spec#frozen-sourcing).
func Rebuild(run *trace.Run, dep *deploy.Deployment, v features.Version) (*Steps, error) {
	if err := features.CheckVersion(v); err != nil {
		return nil, err
	}
	less := *sorted(run)
	less.Events = nil
	if err := checkIDs(&less); err != nil {
		return nil, err
	}
	seen, err := surveyOf(&less)
	if err != nil {
		return nil, err
	}
	s := &Steps{Run: &less, Dep: dep, Version: v, Config: dep.Config(), seen: seen}
	return s, s.fill()
}

// As is the same run under another version.
func (s *Steps) As(v features.Version) (*Steps, error) {
	if err := features.CheckVersion(v); err != nil {
		return nil, err
	}
	out := &Steps{Run: s.Run, Dep: s.Dep, Version: v, Config: s.Config, seen: s.seen}
	return out, out.fill()
}

// fill rebuilds the batches.
func (s *Steps) fill() error {
	if a := s.Run.Aggregate; a != nil {
		s.Findings = append(s.Findings, a.Findings...)
	}
	n := len(s.Run.Steps)
	if n == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no step summaries: no beta rows, and the preemption average is 0",
			s.Run.ID))
		return nil
	}
	reader := &lifeReader{async: s.Dep.Engine.IsAsync(), caching: s.Dep.Engine.PrefixCaching, last: s.Run.Steps[n-1].ID, seen: s.seen.first}
	lives := reader.lives(s.Run.Requests)
	first, last := s.stepRange(lives)
	s.First = first
	if n := members(lives, first, last); n > mostMembers {
		return trace.Errorf(codeBadStepIDs, "run %s: steps of requests: got %d together in steps %d..%d, want at most %d", s.Run.ID, n, first,
			last, mostMembers)
	}
	s.plan = newPlan(lives, first, last, s, s.lost(first, last))
	b := newBuilder(s)
	if err := b.fill(); err != nil {
		return err
	}
	s.count(b)
	s.plan.release()
	if s.Version == features.V10 {
		return s.Refused10()
	}
	return nil
}

// sorted returns the run with steps and snapshots in id order, as extraction
// writes them; others are sorted into a copy.
func sorted(run *trace.Run) *trace.Run {
	byID := func(a, b trace.Step) int { return int(min(1, max(-1, a.ID-b.ID))) }
	byStep := func(a, b trace.Snapshot) int { return int(min(1, max(-1, a.StepID-b.StepID))) }
	if slices.IsSortedFunc(run.Steps, byID) && slices.IsSortedFunc(run.Snapshots, byStep) {
		return run
	}
	c := *run
	c.Steps, c.Snapshots = slices.Clone(run.Steps), slices.Clone(run.Snapshots)
	slices.SortStableFunc(c.Steps, byID)
	slices.SortStableFunc(c.Snapshots, byStep)
	return &c
}

// checkIDs refuses step ids that are too far apart or equal.
func checkIDs(run *trace.Run) error {
	if len(run.Steps) == 0 {
		return nil
	}
	lo, hi := run.Steps[0].ID, run.Steps[len(run.Steps)-1].ID
	limit := min(maxStepRange, max(fewSteps, stepsPerSummary*int64(len(run.Steps))))
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

// stepRange is every step that a summary or a journey speaks of, as long as it
// is near the recorded ones.
func (s *Steps) stepRange(lives []life) (first, last int64) {
	lo, hi := s.Run.Steps[0].ID, s.Run.Steps[len(s.Run.Steps)-1].ID
	const margin = 4096
	first, last = lo, hi
	for i := range lives {
		if f := lives[i].first(); f >= lo-margin {
			first = min(first, f)
		}
		if l := lives[i].last(); l <= hi+margin {
			last = max(last, l)
		}
	}
	return first, last
}

// asked are the summaries the run is asked about: all, but of a slice.
func (s *Steps) asked() (from, to int) {
	of := s.Run.Slice
	if of == nil {
		return 0, len(s.Run.Steps)
	}
	at := func(ns int64) int {
		return sort.Search(len(s.Run.Steps), func(k int) bool { return s.Run.Steps[k].TsStartNs >= ns })
	}
	return at(of.FromNs), at(of.ToNs)
}

// askedIDs are the same steps and those between them, by id.
func (s *Steps) askedIDs() (from, to int64) {
	from, to = s.First, s.First+int64(s.Len())
	lo, hi := s.asked()
	if lo > 0 {
		from = s.Run.Steps[lo].ID
	}
	if hi < len(s.Run.Steps) {
		to = s.Run.Steps[hi].ID
	}
	return from, to
}

// lost lists the steps in which a request may be missing from the journeys:
// all of them when journeys are sampled or a snapshot shows an unknown request,
// else the lifetimes of API spans without a core span and of core spans without
// an API span (whatever lost the one may have lost others).
func (s *Steps) lost(first, last int64) []Span {
	everything := []Span{{first, last + 1}}
	if rate := s.Dep.Tracing.JourneySampleRate; rate.OK && rate.V < 1 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: journeys are sampled at %g", s.Run.ID, rate.V))
		return everything
	}
	if n := s.seen.unknown; n > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d requests in the snapshots have no core span", s.Run.ID, n))
		return everything
	}
	var spans []Span
	for i := range s.Run.Requests {
		if span, ok := s.missing(&s.Run.Requests[i], last); ok {
			spans = append(spans, span)
		}
	}
	if len(spans) > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d spans lack their API or core partner", s.Run.ID, len(spans)))
	}
	return spans
}

// missing is the range of steps [StartNs, EndNs) (step ids, not ns) in which a
// request without its partner span may have run.
func (s *Steps) missing(r *trace.Request, last int64) (Span, bool) {
	if r.Source != trace.SourceFork || r.CoreID.OK && r.APIID.OK {
		return Span{}, false
	}
	if r.CoreID.OK {
		return Span{r.QueuedStep.Or(s.First), r.FinishedStep.Or(last) + 2}, true
	}
	if !r.ArrivedNs.OK {
		return Span{s.First, last + 1}, true
	}
	m := s.Run.Steps
	from, to := m[0].ID, last+1
	if k := lastStart(m, r.ArrivedNs.V); k >= 0 {
		from = m[k].ID
	}
	if end := r.DepartedNs.Or(r.AbortedNs.V); r.DepartedNs.OK || r.AbortedNs.OK {
		if k := lastStart(m, end); k+1 < len(m) {
			to = m[k+1].ID + 1
		}
	}
	return Span{from, to}, true
}

// lastStart is the index of the last step with ts_start <= ns, ties included;
// -1 when there is none. Steps are in id order, and so are their stamps.
func lastStart(steps []trace.Step, ns int64) int {
	return sort.Search(len(steps), func(k int) bool { return steps[k].TsStartNs > ns }) - 1
}

// count fills Quality and the findings that follow from it.
func (s *Steps) count(b *builder) {
	if s.Dep.Engine.CPUOffloading && len(s.Run.KVEvents) == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: CPU offloading is on and no KV events were recorded", s.Run.ID))
	}
	q := &s.Quality
	approximatePrefill := false
	from, to := s.askedIDs()
	for id := from; id < to; id++ {
		k := int(id - s.First)
		st := &s.all[k]
		if st.Recorded < 0 {
			s.countUnrecorded(st)
			continue
		}
		q.Recorded++
		switch st.Tag {
		case TagRich:
			q.FromSnapshots++
		case TagJourney:
			q.Reconstructed++
		case TagSummary, tagAggregate:
			q.Approximate++
			approximatePrefill = approximatePrefill || st.In.PrefillTokens > 0
		default:
			q.Unknown++
		}
		if b.journeys && b.why[k] == contradicted {
			q.Contradictions++
		}
		if b.journeys && b.why[k] == "" {
			q.FromJourneys++
		}
	}
	q.Known, q.KnownShare = q.Recorded-q.Unknown, result.Share(q.Recorded-q.Unknown, q.Recorded)
	q.CrossChecked, q.CrossWrong = b.checked, len(b.wrong)
	s.Wrong = b.wrong
	s.qualityFindings(approximatePrefill && !b.hasCV2)
}

func (s *Steps) countUnrecorded(st *Step) {
	if first, last := s.Run.Steps[0].ID, s.Run.Steps[len(s.Run.Steps)-1].ID; st.ID < first || st.ID > last {
		return
	}
	s.Quality.Unrecorded++
	if st.Known() {
		s.Quality.Rebuilt++
	}
}

func (s *Steps) qualityFindings(noLengths bool) {
	q := &s.Quality
	if q.Unrecorded > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d of %d steps are recorded; the preemption average sees only those",
			s.Run.ID, q.Recorded, q.Recorded+q.Unrecorded))
	}
	if q.Approximate > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d of %d steps and idle times are approximated from batch totals",
			s.Run.ID, q.Approximate, q.Recorded))
	}
	if q.Approximate > 0 && features.Layered(s.Version) && len(s.Dep.Reaches()) > 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeWindowSums, "%s: of %d of %d steps sums alone are known: what attention within "+
			"windows, chunks or an index reads is exact only where all requests of a step are shorter, or all longer, than it reaches",
			s.Run.ID, q.Approximate, q.Recorded))
	}
	if noLengths && s.Run.Aggregate == nil {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no prompt lengths in snapshots; equal prompts are assumed",
			s.Run.ID))
	}
}
