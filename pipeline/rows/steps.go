package rows

// This file has a run with its batches rebuilt: what ran in each step, and from which source that is
// known.

import (
	"errors"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// Tag is the source of the inputs of a step or a row, best first. A row has the worst tag of its steps.
type Tag uint8

// The sources of a step's batch (spec#input-table).
const (
	tagUnknown        Tag = iota // no row may use it
	TagRich                      // complete snapshots: exact
	TagJourney                   // rebuilt from journey events: exact
	TagSummary                   // batch totals: approximate (spec#summary-steps)
	tagAggregate                 // sums of a logged pass, some filled in (spec#iteration-fill)
	tagLagApproximate            // features of step i are taken for those of step i-lag (spec#summary-steps)
)

var tagNames = [...]string{"unknown", "rich", "journey", "approximate", "aggregate", "lag_approximate"}

// String returns the tag's name in tables and reports.
func (t Tag) String() string { return tagNames[t] }

// Step is one engine step of a run, recorded or not.
type Step struct {
	ID       int64
	Tag      Tag
	Reason   reconstruct.Reason // why the tag is unknown; Known otherwise
	NoStart  bool               // its start is not known
	Recorded int32              // index of its summary in Run.Steps; -1 without one
	// In has the sums over the batch, without PreemptionEMA. RunningDepth is that of the summary,
	// or the number of members without one.
	In features.StepInput
}

// Known reports whether the step's batch may be used.
func (s *Step) Known() bool { return s.Tag != tagUnknown }

// Steps is one engine run with its batches rebuilt.
type Steps struct {
	Run      *trace.Run
	Dep      *deploy.Deployment
	Version  features.Version
	Config   string // key of the configuration (spec#configuration)
	First    int64  // id of the first step
	Quality  Quality
	Findings []trace.Finding

	all     stepList             // by id - First
	batches *reconstruct.Batches // from the journeys
	seen    *snapshotSurvey

	findings     []trace.Finding // those before the findings of qualityFindings
	lacksLengths bool            // the prompt lengths that an approximation needs are unknown
	hasNoMembers bool            // ForgetBatches was called

	// For the tests of the reconstruction.
	crossChecked int     // rich steps that are known from journeys too
	crossWrong   []int64 // of these, the steps whose reconstruction differs from the snapshots
}

// Len returns the number of steps, recorded or not; their ids are First and the next.
func (s *Steps) Len() int { return len(s.all.steps) }

// At returns a copy of the step with the given id, or nil outside the run.
func (s *Steps) At(id int64) *Step {
	if s.compact(id) == nil {
		return nil
	}
	return new(s.all.at(int(id-s.First), id))
}

// compact returns what is stored of the step with the given id, or nil outside the run.
func (s *Steps) compact(id int64) *compactStep {
	if k := id - s.First; k >= 0 && k < int64(s.Len()) {
		return &s.all.steps[k]
	}
	return nil
}

// input returns the inputs of a step of the run.
func (s *Steps) input(id int64) features.StepInput { return s.all.input(int(id - s.First)) }

// ForgetRequests drops the requests of the run, to free memory for the rows of step times, which do not need them. Rows
// of delays cannot be made afterwards.
func (s *Steps) ForgetRequests() {
	s.Run.Requests = nil
	s.seen = nil
}

// ForgetBatches drops the members of the batches but keeps their sums. Each, Members and rows that need members return an
// error afterwards.
func (s *Steps) ForgetBatches() {
	s.batches = nil
	s.hasNoMembers = true
}

// prefillTokens returns the prompt tokens of a step of the run.
func (s *Steps) prefillTokens(id int64) float64 { return s.all.prefillTokens(int(id - s.First)) }

// errForgotten is the error of asking for members after ForgetBatches.
var errForgotten = errors.New("rows: the members of the batches were dropped")

// Each calls f for every step in order with the members of its batch: from snapshots for rich
// steps, from the journeys for journey steps, nil otherwise. f must keep neither the step nor the slice.
func (s *Steps) Each(f func(st *Step, members []trace.Member)) error {
	if s.hasNoMembers {
		return errForgotten
	}
	if s.batches == nil {
		return nil
	}
	walk := s.batches.Walk()
	snaps, err := openSnapshots(s.Run)
	if err != nil {
		return err
	}
	var buf, rich []trace.Member
	var step Step
	for k := range s.Len() {
		step = s.all.at(k, s.First+int64(k))
		st := &step
		buf = walk.AppendMembers(buf[:0], st.ID)
		switch st.Tag {
		case TagRich:
			rich = snapshotMembers(snaps.step(st.ID), rich[:0])
			f(st, rich)
		case TagJourney:
			f(st, buf)
		default:
			f(st, nil)
		}
	}
	return snaps.close()
}

// Members returns the batch of one step; nil when it is unknown or approximate. It reads every
// request and snapshot: use Each for many steps.
func (s *Steps) Members(id int64) ([]trace.Member, error) {
	st := s.At(id)
	switch {
	case s.hasNoMembers:
		return nil, errForgotten
	case st == nil:
		return nil, nil
	case st.Tag == TagRich:
		snaps, err := openSnapshots(s.Run)
		if err != nil {
			return nil, err
		}
		members := snapshotMembers(snaps.step(id), nil)
		return members, snaps.close()
	case st.Tag == TagJourney:
		return s.batches.Walk().AppendMembers(nil, id), nil
	}
	return nil, nil
}
