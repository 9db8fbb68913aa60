package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// parts visits a source slice by slice where it has slices, else as it is.
func parts(src OptionsSource, o OptionsOptions, visit func(OptionsSource) error) error {
	if src.Slices == nil || o.BetaOnly {
		return visit(src)
	}
	return src.Slices(func(run *trace.Run) error {
		part := src
		part.Load, part.Slices = func() (*trace.Run, error) { return run, nil }, nil
		return visit(part)
	})
}

// makeParts makes the tables of a run part by part. done is told of each part before it joins
// those before it, and may take its tables away.
func makeParts(src OptionsSource, o OptionsOptions, gammas []float64, done func(*Run) error) (p *Run, err error) {
	err = parts(src, o, func(src OptionsSource) error {
		q, err := makePart(src, o, gammas, p)
		if err == nil {
			err = done(q)
		}
		if err != nil {
			return err
		}
		if p != nil {
			p.join(q)
		} else {
			p = q
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.Src = src
	if p.Reason == "" && p.kept == 0 {
		p.Reason = "no beta rows: " + p.largest
		p.Findings = append(p.Findings, trace.Findingf(CodeNoRows, "%s: %s", src.ID, p.Reason))
	}
	return p, nil
}

// join adds the next slice of the run.
func (p *Run) join(q *Run) {
	p.Saturated = p.Saturated && q.Saturated
	p.Spans, p.Findings = append(p.Spans, q.Spans...), append(p.Findings, q.Findings...)
	p.Quality, p.Covered = rows.JoinedQuality(p.Quality, q.Quality), Cover(p.Covered, q.Covered)
	p.Lengths.Add(q.Lengths)
	p.WallNs, p.kept = max(p.WallNs, q.WallNs), p.kept+q.kept
	p.Beta, p.Frozen = prepareJoined(p.Beta, q.Beta), prepareJoined(p.Frozen, q.Frozen)
	for target, t := range q.Alpha {
		p.Alpha[target] = prepareJoined(p.Alpha[target], t)
	}
}

// prepareJoined is the rows of a run and its next slice; either may be nil.
func prepareJoined(t, next *rows.Table) *rows.Table {
	if t == nil || next == nil {
		return orOther(t, next)
	}
	t.Join(next)
	return t
}

// otherParts makes the rows under another basis part by part.
func (p *Run) otherParts(name string, o OptionsOptions) (all *rows.Table, err error) {
	err = parts(p.Src, o, func(src OptionsSource) error {
		q := &Run{Src: src, Lag: p.Lag, Spans: p.Spans}
		if err := q.Again(o); err != nil {
			return err
		}
		t, err := q.OtherTable(name, o)
		all = prepareJoined(all, t)
		return err
	})
	return all, err
}

// judgeSlice drops the rows of a saturated slice, or of its saturated spans.
func (p *Run) judgeSlice(run *trace.Run, o OptionsOptions) {
	asked, of := *run, run.Slice
	asked.Requests = nil
	for i := range run.Requests {
		if run.AsksFor(&run.Requests[i]) {
			asked.Requests = append(asked.Requests, run.Requests[i])
		}
	}
	reason, spans := p.Src.Judge(&asked)
	if p.Saturated = reason != ""; p.Saturated {
		spans = []rows.Span{{StartNs: of.FromNs, EndNs: of.ToNs}}
		p.Findings = append(p.Findings, trace.Findingf(rows.Saturated, "%s: from %s to %s s after its first step: %s", p.Src.ID,
			sinceStart(of, of.FromNs), sinceStart(of, of.ToNs), reason))
	}
	for _, s := range spans {
		if s = (rows.Span{StartNs: max(s.StartNs, of.FromNs), EndNs: min(s.EndNs, of.ToNs)}); s.StartNs < s.EndNs && !o.KeepSaturated {
			p.Spans = append(p.Spans, s)
		}
	}
}

// sinceStart is when a border of a slice lies, in seconds since the first step of the run.
func sinceStart(of *trace.Slice, ns int64) string {
	return fmt.Sprintf("%.0f", float64(min(max(ns, of.FirstNs), of.LastNs)-of.FirstNs)/1e9)
}
