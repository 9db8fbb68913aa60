package rows

// This file has a run with its batches rebuilt: what ran in each step, and from which source that is
// known.

import (
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
	Reason   reconstruct.Reason // why the tag is unknown; empty otherwise
	NoStart  bool               // its start is not known
	Recorded int32              // index of its summary in Run.Steps; -1 without one
	// In has the sums over the batch, without PreemptionEMA. RunningDepth is that of the summary,
	// or the number of members without one.
	In features.StepInput
}

// Reasons for which the batch of a step is unknown, in addition to those of package reconstruct.
const (
	noRequests         reconstruct.Reason = "neither snapshots nor requests in the journeys account for it"
	chunkedTotals      reconstruct.Reason = "totals do not determine the work of chunked prompts"
	encoderRan         reconstruct.Reason = "a multimodal encoder ran in the pass, and its time is not modelled"
	recomputedTotals   reconstruct.Reason = "decode tokens differ from decode requests, as when a preempted request is recomputed"
	chunkedNoSnapshots reconstruct.Reason = "spec 1.0 has no input for chunked prefill without snapshots"
)

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
	Wrong    []int64 // rich steps whose reconstruction from journeys differs from the snapshots

	all     []Step               // by id - First
	batches *reconstruct.Batches // from the journeys
	seen    *snapshotSurvey
}

// Len returns the number of steps, recorded or not; their ids are First and the next.
func (s *Steps) Len() int { return len(s.all) }

// At returns the step with the given id, or nil outside the run.
func (s *Steps) At(id int64) *Step {
	if k := id - s.First; k >= 0 && k < int64(len(s.all)) {
		return &s.all[k]
	}
	return nil
}

// Each calls f for every step in order with the members of its batch: from snapshots for rich
// steps, from the journeys for journey steps, nil otherwise. f must not keep the slice.
func (s *Steps) Each(f func(st *Step, members []trace.Member)) error {
	if s.batches == nil {
		return nil
	}
	walk := s.batches.Walk()
	snaps, err := openSnapshots(s.Run)
	if err != nil {
		return err
	}
	var buf, rich []trace.Member
	for k := range s.all {
		st := &s.all[k]
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
