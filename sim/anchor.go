package sim

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Anchor sets a replay right from time to time, so that in a long overload the
// errors of step times cannot pile up into a queue of another length: at the
// first first token after every EveryUs, the measured moment of that token is
// taken for now. The requests that arrive later are sent as much earlier or later
// in simulated time, and all stamps are given in the time of the workload again:
// first tokens since the last anchor, everything after a request's first token by
// its distance to it.
type Anchor struct {
	FirstUs []trace.Opt[int64] // measured first tokens, by request, in the time of the workload
	EveryUs int64
}

// check verifies the anchors of n requests, of which none waits for another.
func (a *Anchor) check(reqs []Request) error {
	if a.EveryUs < 1 || len(a.FirstUs) != len(reqs) {
		return trace.Errorf(CodeBadConfig, "anchors: got every %d us and %d first tokens for %d requests, want >= 1 us and one each",
			a.EveryUs, len(a.FirstUs), len(reqs))
	}
	for i := range reqs {
		if r := &reqs[i]; r.After > 0 || r.Loop > 0 {
			return trace.Errorf(CodeBadConfig, "anchors: request %d (%q) is part of a closed loop, which sets itself right", i, r.ID)
		}
	}
	return nil
}

// anchoring is how simulated time and the time of the workload differ.
type anchoring struct {
	*Anchor
	shiftUs int64 // simulated - workload time, now
	lastUs  int64 // of the last anchor, workload time
	floorUs int64 // simulated time of the last anchor: nothing arrives before it
	byFirst []int64
	moves   Derivative // of shiftUs
}

func (d *driver) anchorAt(a *Anchor) error {
	if err := a.check(d.reqs); err != nil {
		return err
	}
	d.anchor = &anchoring{Anchor: a, byFirst: make([]int64, len(d.reqs))}
	for i := range d.anchor.byFirst {
		d.anchor.byFirst[i] = math.MinInt64
	}
	if d.grad != nil {
		d.anchor.moves = d.grad.derivative()
	}
	return nil
}

// next is when the next request arrives, in simulated time.
func (d *driver) next() (atUs int64, ok bool) {
	atUs, ok = d.src.Next()
	if d.anchor != nil {
		atUs = max(atUs+d.anchor.shiftUs, d.anchor.floorUs)
	}
	return atUs, ok
}

// first is the first token of request i: perhaps an anchor.
func (d *driver) first(i int, atUs int64) {
	a := d.anchor
	a.byFirst[i] = a.shiftUs
	if d.grad != nil { // the request arrived at a moment that moves as the shift does
		g := d.visits[i].grad
		g.arrive.set(&a.moves)
		g.arrive.Us += float64(d.reqs[i].ArrivalUs)
	}
	measured := a.FirstUs[i]
	if !measured.OK || atUs-a.shiftUs-a.lastUs < a.EveryUs {
		return
	}
	a.shiftUs, a.lastUs, a.floorUs = atUs-measured.V, measured.V, atUs
	if d.grad != nil {
		a.moves.set(&d.grad.now)
		a.moves.Us -= float64(measured.V)
	}
	if at, ok := d.next(); ok {
		d.Yield(at)
	}
}

// unshift gives a request's stamps in the time of the workload.
func (a *anchoring) unshift(i int, r *RequestResult, arrivalUs int64) {
	shift := a.byFirst[i]
	if shift == math.MinInt64 {
		shift = a.shiftUs
	}
	r.ArrivalUs = arrivalUs
	for _, stamp := range []*trace.Opt[int64]{&r.EnqueuedUs, &r.QueuedUs, &r.ScheduledUs, &r.FirstTokenUs, &r.FinishedUs, &r.DepartedUs} {
		if stamp.OK {
			stamp.V -= shift
		}
	}
}
