package rows

import "github.com/blis-train/blis-train/trace"

// count fills Quality and the findings that follow from it.
func (s *Steps) count(b *builder) {
	if s.Dep.Engine.CPUOffloading && len(s.Run.KVEvents) == 0 {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: CPU offloading is on and no KV events were recorded", s.Run.ID))
	}
	q, v := &s.Quality, s.view()
	approximatePrefill := false
	from, to := s.askedIDs()
	for id := from; id < to; id++ {
		k := int(id - s.First)
		st := v.number(k)
		if st.Recorded < 0 {
			s.countUnrecorded(st)
			continue
		}
		q.Recorded++
		switch st.Tag {
		case TagRich:
			q.Rich++
		case TagJourney:
			q.Journey++
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
	q.CrossChecked, q.CrossWrong = b.checked, len(b.wrong)
	s.Wrong = b.wrong
	s.qualityFindings(approximatePrefill && !b.hasCV2)
}

func (s *Steps) countUnrecorded(st *Step) {
	if first, last := s.summaries.id(0), s.summaries.id(s.summaries.len()-1); st.ID < first || st.ID > last {
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
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: %d of %d steps are approximated from batch totals",
			s.Run.ID, q.Approximate, q.Recorded))
	}
	if noLengths && s.Run.Aggregate == nil {
		s.Findings = append(s.Findings, trace.Findingf(codeNotRecorded, "%s: no prompt lengths in snapshots; equal prompts are assumed",
			s.Run.ID))
	}
}
