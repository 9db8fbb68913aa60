package rows

// This file counts how well the batches of a run could be rebuilt, and warns of what is missing.

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// countQuality counts from what each step was rebuilt, and adds the findings that follow.
func (s *Steps) countQuality(b *batchSources) {
	if s.Dep.Engine.CPUOffloading && len(s.Run.KVEvents) == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: CPU offloading is on and no KV events were recorded", s.Run.ID))
	}
	q := &s.Quality
	approximatePrefill := false
	from, to := s.askedSteps()
	for id := from; id < to; id++ {
		k := int(id - s.First)
		st := &s.all.steps[k]
		if st.recorded < 0 {
			s.countUnrecorded(id, st.known())
			continue
		}
		q.Recorded++
		switch st.tag {
		case TagRich:
			q.FromSnapshots++
		case TagJourney:
			q.Reconstructed++
		case TagSummary, tagAggregate:
			q.Approximate++
			approximatePrefill = approximatePrefill || s.all.prefillTokens(k) > 0
		default:
			q.Unknown++
		}
		// What the journeys show counts even where snapshots are the source.
		if b.journeys && b.reasons[k] == reconstruct.Contradicted {
			q.Contradictions++
		}
		if b.journeys && b.reasons[k] == reconstruct.Known {
			q.FromJourneys++
		}
	}
	q.Known = q.Recorded - q.Unknown
	q.KnownShare = result.Share(q.Known, q.Recorded)
	s.crossChecked = b.checked
	s.crossWrong = b.wrong
	s.lacksLengths = approximatePrefill && !b.hasCV2
	s.findings = slices.Clone(s.Findings)
	s.qualityFindings()
}

// countUnrecorded counts a step without a summary, if it lies between two that have one.
func (s *Steps) countUnrecorded(id int64, isKnown bool) {
	if first, last := s.Run.Steps[0].ID, s.Run.Steps[len(s.Run.Steps)-1].ID; id < first || id > last {
		return
	}
	s.Quality.Unrecorded++
	if isKnown {
		s.Quality.Rebuilt++
	}
}

// qualityFindings adds warnings about steps that are missing or approximate, some of which depend on the version.
func (s *Steps) qualityFindings() {
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
	if s.lacksLengths && s.Run.Aggregate == nil {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no prompt lengths in snapshots; equal prompts are assumed",
			s.Run.ID))
	}
}

// Quality counts how well the batches of a run could be rebuilt: the figures of the documents, and
// more. Recorded = FromSnapshots + Reconstructed + Approximate + Unknown.
type Quality struct {
	result.StepQuality
	Unknown      int // no usable batch
	Unrecorded   int // steps between the first and the last id without a summary
	Rebuilt      int // unrecorded steps rebuilt from journeys
	FromJourneys int // recorded steps known from journeys and summaries alone, rich or not
}
