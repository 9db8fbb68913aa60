package rows

// This file chooses, for each step, the recorded data that its batch is rebuilt from.

import (
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// batchSources chooses, step by step, the recorded data that a batch is rebuilt from.
type batchSources struct {
	s               *Steps
	reasons         []reconstruct.Reason // by step, why the journeys do not determine its batch
	recorded        []int32              // by step, the index of its summary; -1 without one
	journeys        bool                 // the run has core spans
	totals          bool                 // steps without requests may use their totals (spec#summary-steps)
	starts          []int32              // by summary: prompts that began, see promptStarts; nil without chunked prefill
	cv2             float64              // squared variation of prompt lengths, snapshotSurvey.cv2
	hasCV2          bool
	reaches         []model.Reach   // of the model's attention layers that are not full
	members         []trace.Member  // of the step that is being filled, from the journeys
	snapshotMembers []trace.Member  // scratch
	transfersLeft   []stepTransfers // of later steps
	checked         int             // rich steps that were compared with their reconstruction
	wrong           []int64         // rich steps whose reconstruction differs
}

// newBatchSources returns what all steps of s have in common. It releases what the reconstruction needed, which is nearly
// as much memory as that of the steps, before these are made.
func newBatchSources(s *Steps) *batchSources {
	rate := s.Dep.Tracing.JourneySampleRate
	isSampled := rate.OK && rate.V < 1
	b := &batchSources{
		s:             s,
		reasons:       s.batches.Reasons(),
		recorded:      make([]int32, s.batches.Len()),
		journeys:      s.batches.HasLives(),
		totals:        !s.batches.HasLives() || isSampled,
		cv2:           s.seen.cv2,
		hasCV2:        s.seen.hasCV2,
		reaches:       s.Dep.Reaches(),
		transfersLeft: sumTransfers(s.Run.KVEvents),
	}
	if b.totals && s.Dep.Engine.ChunkedPrefill {
		b.starts = promptStarts(s.Run.Steps, s.Dep)
	}
	for k := range b.recorded {
		b.recorded[k] = s.batches.Summary(k)
	}
	s.batches.Release()
	return b
}

// fillSteps sets tag, reason and sums of every step.
func (b *batchSources) fillSteps() error {
	walk := b.s.batches.Walk()
	snaps, err := openSnapshots(b.s.Run)
	if err != nil {
		return err
	}
	b.s.all = newStepList(len(b.reasons), len(b.reaches) > 0)
	for k := range b.reasons {
		st := Step{ID: b.s.First + int64(k), Recorded: b.recorded[k]}
		b.members = walk.AppendMembers(b.members[:0], st.ID)
		b.chooseSource(&st, snaps.step(st.ID), b.reasons[k])
		b.addTransfers(&st)
		b.s.all.set(k, &st)
	}
	return snaps.close()
}

// addTransfers adds the KV blocks that moved in a step (spec#transfers). Steps come in ascending order.
func (b *batchSources) addTransfers(st *Step) {
	for len(b.transfersLeft) > 0 && b.transfersLeft[0].step <= st.ID {
		t := b.transfersLeft[0]
		b.transfersLeft = b.transfersLeft[1:]
		if t.step == st.ID && st.Known() {
			st.In.TransferBlocks = float64(t.out)
			st.In.CPUResidentReadBlocks = float64(t.in)
		}
	}
}

// chooseSource fills one step: from snapshots if they are complete, else from journeys, else from
// the totals of its summary. Spec 1.0 does not use journeys. Steps made from logged passes have the
// totals of the pass as their only source. why is the reason for which journeys do not determine
// the batch, Known when they do.
func (b *batchSources) chooseSource(st *Step, snaps []trace.Snapshot, why reconstruct.Reason) {
	var rec *trace.Step
	if st.Recorded >= 0 {
		rec = &b.s.Run.Steps[st.Recorded]
	}
	if !b.journeys {
		why = reconstruct.NoRequests
	}
	switch {
	case b.s.Run.Aggregate != nil:
		b.takeTotals(st)
	case rec != nil && isComplete(rec, snaps):
		b.crossCheck(st.ID, snaps, why)
		st.Tag = TagRich
		st.In = b.sumSnapshots(rec, snaps)
	case b.s.Version == features.V10:
		b.chooseSource10(st, rec)
	case why == reconstruct.Known:
		st.Tag = TagJourney
		st.In = sum11(b.members, b.reaches)
	case rec != nil && b.totals:
		b.sumSummary(st, rec)
	default:
		st.Reason = why
	}
	if st.Known() {
		st.In.RunningDepth = float64(len(b.members))
		if rec != nil {
			st.In.RunningDepth = float64(rec.RunningDepth)
		}
	}
}

// takeTotals fills a step from the totals of a pass that an unmodified engine logged. Spec 1.0 has
// no input for them.
func (b *batchSources) takeTotals(st *Step) {
	a := b.s.Run.Aggregate
	k := st.ID - a.First
	switch {
	case k < 0 || k >= int64(len(a.Totals)):
		st.Reason = reconstruct.NoRequests
	case a.Totals[k].Encoder:
		st.Reason = reconstruct.EncoderRan
	case !a.Totals[k].Known:
		st.Reason = reconstruct.RecomputedTotals
	case b.s.Version == features.V10:
		st.Reason = reconstruct.ChunkedNoSnapshots
	default:
		st.Tag = tagAggregate
		st.In = features.FromTotals(&a.Totals[k])
		st.NoStart = a.Totals[k].NoStart
	}
}

// sumSnapshots returns the sums over the complete snapshots of a step.
func (b *batchSources) sumSnapshots(rec *trace.Step, snaps []trace.Snapshot) features.StepInput {
	if b.s.Version == features.V10 {
		return rich10(rec, snaps)
	}
	b.snapshotMembers = snapshotMembers(snaps, b.snapshotMembers[:0])
	return sum11(b.snapshotMembers, b.reaches)
}

// chooseSource10 fills a step of spec 1.0 without snapshots (spec#frozen-sourcing): from totals
// when prompts are not chunked or the step is empty.
func (b *batchSources) chooseSource10(st *Step, rec *trace.Step) {
	switch {
	case rec == nil:
		st.Reason = reconstruct.NoRequests
	case b.s.Dep.Engine.ChunkedPrefill && rec.ScheduledTokens > 0:
		st.Reason = reconstruct.ChunkedNoSnapshots
	default:
		st.Tag, st.In = TagSummary, summary10(rec, b.s.Dep, b.cv2)
	}
}

// sumSummary fills a step from its totals.
func (b *batchSources) sumSummary(st *Step, rec *trace.Step) {
	whole := b.starts != nil && b.starts[st.Recorded] != unknownStarts
	if whole {
		rec = new(relabelled(*rec, b.starts[st.Recorded]))
	}
	in, why := summary11(rec, b.s.Dep, b.cv2, whole)
	if why != reconstruct.Known {
		st.Reason = why
		return
	}
	st.Tag, st.In = TagSummary, in
}

// crossCheck compares the reconstruction of a step with its snapshots.
func (b *batchSources) crossCheck(id int64, snaps []trace.Snapshot, why reconstruct.Reason) {
	if from, to := b.s.askedSteps(); why != reconstruct.Known || id < from || id >= to {
		return
	}
	b.checked++
	b.snapshotMembers = snapshotMembers(snaps, b.snapshotMembers[:0])
	if !sameMembers(b.members, b.snapshotMembers) {
		b.wrong = append(b.wrong, id)
	}
}
