package rows

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
)

// warmUp decides which rows belong to the warm-up (spec#warm-up): those in the warmup phase when
// there is one, else those up to the 10th recorded step.
type warmUp struct {
	byPhase bool
	phases  []deploy.Phase
	lastID  int64 // last warm-up step id, without a warmup phase
}

// newWarmUp returns what decides whether a row is warm-up: a phase of that name, or else the first
// steps of the run.
func (s *Steps) newWarmUp() warmUp {
	d := s.Dep
	w := warmUp{phases: d.Phases}
	w.byPhase = slices.ContainsFunc(d.Phases, func(p deploy.Phase) bool { return p.Name == deploy.WarmupPhase })
	if of, n := s.Run.Slice, min(WarmUpSteps, len(s.Run.Steps)); n > 0 && (of == nil || of.IsFirst()) {
		w.lastID = s.Run.Steps[n-1].ID
	}
	return w
}

// isWarmUp reports whether a row starting at ns, or joined to step id, is warm-up.
func (w *warmUp) isWarmUp(ns, id int64) bool {
	if !w.byPhase {
		return id <= w.lastID
	}
	for i := range w.phases {
		if p := &w.phases[i]; ns >= p.StartNs && ns < p.EndNs {
			return p.Name == deploy.WarmupPhase
		}
	}
	return false
}
