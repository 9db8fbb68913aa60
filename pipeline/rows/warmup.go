package rows

// This file excludes the warm-up of a server.

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
)

// warmUp decides which rows belong to the warm-up (spec#warm-up): those in the warmup phase when
// there is one, else those up to the 10th recorded step.
type warmUp struct {
	byPhase bool
	phases  []deploy.Phase
	lastID  int64 // last warm-up step id, used without a warmup phase; 0 if there are no steps or in a slice after the first
}

// newWarmUp returns the warm-up of the run: the phases called warmup, or else the first WarmUpSteps
// steps. A long run is read in slices (trace.Slice); these steps are in the first one.
func (s *Steps) newWarmUp() warmUp {
	d := s.Dep
	w := warmUp{phases: d.Phases}
	w.byPhase = slices.ContainsFunc(d.Phases, func(p deploy.Phase) bool { return p.Name == deploy.WarmupPhase })
	if of, n := s.Run.Slice, min(WarmUpSteps, len(s.Run.Steps)); n > 0 && (of == nil || of.IsFirst()) {
		w.lastID = s.Run.Steps[n-1].ID
	}
	return w
}

// isWarmUp reports whether a row is warm-up: by its time ns if there is a warmup phase, else by the
// id of the step that it is, or that its request is joined to.
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
