package extract

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/trace"
)

// This file compares the phases that run.yaml states with the loads that clients offered
// (spec#phase-clock). A phase is a named interval of time in which a run was under one load; a load is
// what one file of a client's results shows. Their stamps may be of different clocks: that of another
// machine, or of the same one before it started again.

// phaseFit is how well loads, moved by an offset, lie in phases.
type phaseFit struct {
	offsetNs int64
	phases   []int // the phase that each load lies in, no two in the same; -1 without one
	inside   int   // loads that lie in a phase
	named    int   // of these, loads whose file is named like their phase
}

// betterThan reports whether a fit explains more than another. Of equal ones the smaller offset is better.
func (a phaseFit) betterThan(b phaseFit) bool {
	distance := func(f phaseFit) int64 { return max(f.offsetNs, -f.offsetNs) }
	return cmp.Or(cmp.Compare(a.inside, b.inside), cmp.Compare(a.named, b.named),
		cmp.Compare(distance(b), distance(a))) > 0
}

// fitPhases counts the loads that lie wholly in a phase of their own after offsetNs is added to their
// stamps.
func fitPhases(loads []clients.Load, phases []deploy.Phase, offsetNs int64) phaseFit {
	out := phaseFit{offsetNs: offsetNs, phases: slices.Repeat([]int{-1}, len(loads))}
	taken := make([]bool, len(phases)) // by an earlier load
	for i, l := range loads {
		for k := range phases {
			p := &phases[k]
			from := l.StartNs + offsetNs
			to := l.EndNs + offsetNs
			if taken[k] || from < p.StartNs || to > p.EndNs {
				continue
			}
			taken[k] = true
			out.phases[i] = k
			out.inside++
			if strings.HasSuffix(l.Name, p.Name) {
				out.named++
			}
			break
		}
	}
	return out
}

// alignPhases moves the phases of run.yaml onto the clients' clock where the loads lie in them only with an
// offset, and reports phases without a request. Where no offset brings enough loads into phases, each load
// becomes a phase in place of those of run.yaml. With spans of the server the phases are on the server's
// clock, and clients' requests are joined to the spans by their ids, so the phases stay.
func (x *extraction) alignPhases(loads []clients.Load) {
	phases := x.run.Deployment.Phases
	if len(phases) == 0 || len(loads) == 0 || !x.spans.Empty() {
		return
	}
	now := fitPhases(loads, phases, 0)
	// Only offsets at which a load touches a border of a phase need to be tried: between two of them
	// the same loads lie in the same phases.
	best := now
	for _, l := range loads {
		for k := range phases {
			// The start of the load at that of the phase, or its end at the end.
			for _, offset := range []int64{phases[k].StartNs - l.StartNs, phases[k].EndNs - l.EndNs} {
				if moved := fitPhases(loads, phases, offset); moved.betterThan(best) {
					best = moved
				}
			}
		}
	}
	inside := 0 // requests that lie in a phase with their stamps as they are
	for i := range x.observed {
		if r := &x.observed[i]; r.SendNs.OK && x.run.Deployment.PhaseAt(r.SendNs.V) != nil {
			inside++
		}
	}
	most := min(len(loads), len(phases)) // of the loads that can have a phase of their own
	switch {
	// No clock explains the phases.
	case inside == 0 && best.inside == 0 && len(x.observed) > 0:
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
			"none of %d requests lies in a phase of run.yaml, and with no offset of the clients' clock does one of %d files fit into one: the phases are "+
				"of another recording or in another unit than ns; they are not used, each file is one", len(x.observed), len(loads)))
		x.phasesOfLoads(loads)
		return
	// No offset is better than none.
	case best.inside == now.inside && best.named <= now.named:
		x.reportEmptyPhases(phases, inside)
		return
	// The best offset is not proven: it brings less than two loads, or not more than half of them, into
	// a phase of their own, as a wrong one may by chance.
	case best.inside < 2 && most > 1 || 2*best.inside <= most:
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
			"%d of %d requests lie in a phase of run.yaml, and no offset of the clients' clock brings more than %d of %d files into one "+
				"phase each: the phases are not used, each file is one", inside, len(x.observed), best.inside, len(loads)))
		x.phasesOfLoads(loads)
		return
	}
	// Any offset between lo and hi brings the same loads into the same phases. A client ends with its last
	// answer and needs time to start, so the loads lie as late in their phases as they can: the largest
	// offset is used. It is subtracted from the phases in place of adding it to the stamps of the loads.
	lo, hi := offsetRange(loads, phases, best)
	shift := -hi
	dep := *x.run.Deployment
	dep.Phases = slices.Clone(phases)
	for k := range dep.Phases {
		dep.Phases[k].StartNs += shift
		dep.Phases[k].EndNs += shift
	}
	x.dep = &dep
	x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
		"the clients' clock is %.6g s ahead of the phases of run.yaml (at most %.3g s more): with the stamps as they are, %d of %d requests lie in a "+
			"phase and %d of %d files in one of their own, with the offset %d; the phases are moved by it",
		float64(shift)/1e9, float64(hi-lo)/1e9, inside, len(x.observed), now.inside, len(loads), best.inside))
}

// offsetRange returns the range of clock offsets, ns, around that of the best fit, with which the same
// loads lie inside the same phases.
func offsetRange(loads []clients.Load, phases []deploy.Phase, best phaseFit) (lo, hi int64) {
	lo = best.offsetNs
	hi = best.offsetNs
	for _, l := range loads {
		for k := range phases {
			for _, offset := range []int64{phases[k].StartNs - l.StartNs, phases[k].EndNs - l.EndNs} {
				if f := fitPhases(loads, phases, offset); slices.Equal(f.phases, best.phases) {
					lo = min(lo, offset)
					hi = max(hi, offset)
				}
			}
		}
	}
	return lo, hi
}

// reportEmptyPhases reports the phases of run.yaml that no request lies in, if some requests lie in no
// phase: these may belong there. inside is the number of requests that lie in a phase.
func (x *extraction) reportEmptyPhases(phases []deploy.Phase, inside int) {
	var empty []string
	for k := range phases {
		p := &phases[k]
		hasRequest := slices.ContainsFunc(x.observed, func(r trace.ObservedRequest) bool {
			return r.SendNs.V >= p.StartNs && r.SendNs.V < p.EndNs
		})
		if !hasRequest {
			empty = append(empty, p.Name)
		}
	}
	if len(empty) > 0 && inside < len(x.observed) {
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile,
			"no request lies in %s of run.yaml; %d of %d requests lie in a phase", fmt.Sprint("phases ", strings.Join(empty, ", ")),
			inside, len(x.observed)))
	}
}

// phasesOfLoads makes each load a phase, in place of those of run.yaml, in a copy of the deployment: the
// one of run.yaml is part of the cache's key. An open load sends requests at times of its own, a closed
// one when an answer has come.
func (x *extraction) phasesOfLoads(loads []clients.Load) {
	dep := *x.run.Deployment
	dep.Phases = nil
	for _, l := range loads {
		p := deploy.Phase{Name: l.Name, Load: deploy.LoadOpen, StartNs: l.StartNs, EndNs: l.EndNs}
		if l.IsClosed {
			p.Load = deploy.LoadClosed
		}
		dep.Phases = append(dep.Phases, p)
	}
	x.dep = &dep
}
