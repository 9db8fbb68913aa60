package rows

// This file divides a run into phases, and each phase into training and hold-out.

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Part is one phase of a run, or the whole run if run.yaml has no phases, with the time that
// divides training from hold-out (spec#hold-out).
type Part struct {
	Phase   int // index into the deployment's phases; -1 for the whole run
	Name    string
	StartNs int64
	CutNs   int64 // rows at or after it are hold-out
	EndNs   int64 // exclusive
}

// Parts returns a run divided into phases: the last 1-split in time of each phase is hold-out. A
// phase counts from its first to its last recorded moment, because recordings may start late and
// phases end late. The warmup phase has no hold-out.
func Parts(run *trace.Run, d *deploy.Deployment, split float64) []Part {
	first, last, ok := recordedExtent(run)
	if !ok {
		return nil
	}
	return PartsOf(first, last, d, split)
}

// parts returns the parts of the run, or of the whole run that a slice is cut from.
func (s *Steps) parts(split float64) []Part {
	if of := s.Run.Slice; of != nil && len(s.Run.Steps) > 0 {
		return PartsOf(of.FirstNs, of.LastNs, s.Dep, split)
	}
	return Parts(s.Run, s.Dep, split)
}

// PartsOf returns what Parts does, for a recording from first to last. Phases that all lie outside
// the recording are on another clock, that of clients which could not be aligned; the run then
// counts as one part.
func PartsOf(first, last int64, d *deploy.Deployment, split float64) []Part {
	if !slices.ContainsFunc(d.Phases, func(p deploy.Phase) bool { return p.StartNs <= last && p.EndNs > first }) {
		return []Part{{Phase: -1, StartNs: first, CutNs: holdOutStart(first, last+1, split), EndNs: last + 1}}
	}
	parts := make([]Part, len(d.Phases))
	for i, p := range d.Phases {
		start := max(p.StartNs, first)
		end := min(p.EndNs, last+1)
		parts[i] = Part{Phase: i, Name: p.Name, StartNs: p.StartNs, CutNs: holdOutStart(start, max(start, end), split), EndNs: p.EndNs}
		if p.Name == deploy.WarmupPhase {
			parts[i].CutNs = p.EndNs
		}
	}
	return parts
}

// holdOutStart returns the time at which the hold-out of [start, end) begins.
func holdOutStart(start, end int64, split float64) int64 {
	return start + int64(float64(end-start)*split)
}

// recordedExtent returns the time from the first to the last recorded step, or without steps from
// the first to the last arrival.
func recordedExtent(run *trace.Run) (first, last int64, ok bool) {
	if n := len(run.Steps); n > 0 {
		return run.Steps[0].TsStartNs, run.Steps[n-1].TsStartNs, true
	}
	for i := range run.Requests {
		at := run.Requests[i].ArrivedNs
		if !at.OK {
			continue
		}
		if !ok || at.V < first {
			first = at.V
		}
		if !ok || at.V > last {
			last = at.V
		}
		ok = true
	}
	return first, last, ok
}

// partOf returns the phase index of the part in which a stamp lies (-1 for none) and whether it is
// hold-out.
func partOf(parts []Part, ns int64) (phase int32, holdOut bool) {
	for _, p := range parts {
		if ns >= p.StartNs && ns < p.EndNs {
			return int32(p.Phase), ns >= p.CutNs
		}
	}
	return -1, false
}

// IsInside reports whether a stamp lies in one of the spans.
func IsInside(spans []Span, ns int64) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return ns >= s.StartNs && ns < s.EndNs })
}
