package identity

// This file compares the pace of requests that run together, and the stated kind of load with the requests
// of each phase. A reading (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// Tolerances of requests that run together.
const (
	leastPaced  = 16  // tokens of an answer whose pace is compared
	leastShared = 0.7 // of the time that two answers take together, in which both run
	mostPaces   = 1.5 // ratio of their TPOT above which a pair differs
	fewestPairs = 30  // of answers, for a reading
	mostUnpaced = 0.3 // share of pairs that may differ, because preempted requests stand still
	nearPairs   = 40  // answers after one that may run beside it
)

// clientPace compares the times between tokens of answers that are made at the same time. Every step of an engine makes
// one token of each of its running requests, so that these have one pace. violated counts pairs, and largest is a ratio
// (foldChange) of their TPOTs.
func clientPace(f *facts) reading {
	if f.speculates() {
		return notChecked("steps verify drafted tokens: a step makes more than one of each request")
	}
	isSeveral := f.dep.DP > 1
	for i := range f.run.Observed {
		isSeveral = isSeveral || f.run.Observed[i].Engine.OK
	}
	if isSeveral {
		return notChecked("several engines serve the requests, each at its pace")
	}
	var list []*clientRequest
	for i := range f.loads {
		if l := &f.loads[i]; l.itlUs > 0 && l.output >= leastPaced {
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, func(a, b *clientRequest) int { return cmp.Compare(a.sentUs+a.ttftUs, b.sentUs+b.ttftUs) })
	var r reading
	for i, l := range list { // in the order of their first tokens
		from, to := l.sentUs+l.ttftUs, l.sentUs+l.e2eUs
		best := leastShared
		var beside *clientRequest // the later answer that runs beside it for the largest share of the time
		for _, other := range list[i+1 : min(len(list), i+1+nearPairs)] {
			otherFrom, otherTo := other.sentUs+other.ttftUs, other.sentUs+other.e2eUs
			if otherFrom > to {
				break
			}
			if shared := (math.Min(to, otherTo) - otherFrom) / (math.Max(to, otherTo) - from); shared > best {
				best = shared
				beside = other
			}
		}
		if beside == nil {
			continue
		}
		r.checked++
		off := foldChange(l.itlUs / beside.itlUs)
		r.largest = math.Max(r.largest, off)
		if off > mostPaces {
			r.violated++
		}
	}
	if r.checked < fewestPairs {
		return notChecked("fewer than %d pairs of answers that are made at the same time", fewestPairs)
	}
	r.broken = float64(r.violated) > mostUnpaced*float64(r.checked)
	r.sentence = fmt.Sprintf("of %d pairs of answers that are made at the same time %d differ over %g times in their TPOT, by up to %.3g times, where one "+
		"engine has one pace: a part of the times or outputs is of other rows or has another unit, or the requests are of several servers", r.checked,
		r.violated, mostPaces, r.largest)
	return r
}

// Tolerances of phases.
const (
	leastPlateau = 0.3 // share of the sends of a closed loop at which nearly all clients wait for an answer
	fewestLoop   = 3   // clients of a loop; fewer cannot be distinguished from open arrivals
)

// phaseCalls are the requests of a phase, by the time they were sent.
type phaseCalls struct{ sentNs, endNs []int64 }

func (c *phaseCalls) Len() int           { return len(c.sentNs) }
func (c *phaseCalls) Less(i, k int) bool { return c.sentNs[i] < c.sentNs[k] }
func (c *phaseCalls) Swap(i, k int) {
	c.sentNs[i], c.sentNs[k] = c.sentNs[k], c.sentNs[i]
	c.endNs[i], c.endNs[k] = c.endNs[k], c.endNs[i]
}

// phaseLoads compares the phases that run.yaml states with the requests in them: each phase with a load has requests,
// and those of a closed loop keep about as many in flight. violated counts phases, and largest is the share of the
// sends at which fewer clients wait.
func phaseLoads(f *facts) reading {
	requests := 0
	phases := make([]*phaseCalls, len(f.dep.Phases))
	for i := range phases {
		phases[i] = &phaseCalls{}
	}
	add := func(name string, sentNs, endNs int64) {
		requests++
		for i, c := range phases {
			p := &f.dep.Phases[i]
			isIn := p.Name == name
			if len(f.run.Requests) > 0 { // by the server's clock, which phases have
				isIn = sentNs >= p.StartNs && sentNs < p.EndNs
			}
			if isIn {
				c.sentNs = append(c.sentNs, sentNs)
				c.endNs = append(c.endNs, endNs)
			}
		}
	}
	for i := range f.run.Requests {
		if q := &f.run.Requests[i]; q.ArrivedNs.OK && q.DepartedNs.OK {
			add("", q.ArrivedNs.V, q.DepartedNs.V)
		}
	}
	if len(f.run.Requests) == 0 {
		for i := range f.run.Observed {
			if o := &f.run.Observed[i]; o.SendNs.OK && o.LastChunkNs.OK {
				add(o.Phase.V, o.SendNs.V, o.LastChunkNs.V)
			}
		}
	}
	var r reading
	var open, empty []string
	for i, calls := range phases {
		p := &f.dep.Phases[i]
		if p.Load == "" {
			continue
		}
		r.checked++
		if len(calls.sentNs) == 0 {
			empty = append(empty, p.Name)
			continue
		}
		if p.Load != deploy.LoadClosed || len(calls.sentNs) < 2*stat.FewestCalls {
			continue
		}
		sort.Sort(calls)
		if c := stat.ConcurrencyOf(calls.sentNs, calls.endNs); c.Clients >= fewestLoop && c.PlateauShare < leastPlateau {
			open = append(open, p.Name)
			r.largest = math.Max(r.largest, 1-c.PlateauShare)
		}
	}
	if r.checked == 0 || requests < fewestOfPart {
		return notChecked("run.yaml states the load of no phase, or there are fewer than %d requests", fewestOfPart)
	}
	switch {
	case len(empty) == r.checked:
		r.violated = len(empty)
		r.sentence = fmt.Sprintf("none of %d requests is in the phases of run.yaml (%s): their times are of another clock or run", requests, strings.Join(empty, ", "))
	case len(open) > 0:
		r.violated = len(open)
		r.effect = result.IdentityNamed
		r.sentence = fmt.Sprintf("run.yaml calls the load of %s closed, and the requests in flight are not held at a number there: the load is open, or the phases are "+
			"of another run", strings.Join(open, ", "))
	}
	r.broken = r.violated > 0
	return r
}
