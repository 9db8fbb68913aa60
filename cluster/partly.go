package cluster

import "github.com/blis-train/blis-train/sim/predict"

// seenStep is the step of an instance that ended last with a first token.
type seenStep struct {
	startUs, endUs int64
	decodes        int64 // beside which it was formed
	computed       int64 // prompt tokens it computed of prompts that ended in it
	applied        bool  // head knows of it
	head           partly
}

// partly is a request whose prompt was cut by the token budget: done tokens of it are
// computed. The zero value is nobody.
type partly struct {
	request int
	done    int64
}

// of is the request's class and prompt tokens to compute, while it has no first token.
func (p partly) of(v *View) (class int, todo int64, ok bool) {
	if p.done == 0 {
		return 0, 0, false
	}
	return v.Ledger.Pending(p.request)
}

// FirstToken notes the end of a step, before the ledger does. A step that left
// somebody behind who was there when it was formed was full: what it did not compute of
// prompts that ended in it, it computed of the next one.
func (o *Rollout) FirstToken(r *Request, v *View, i int, atUs int64) {
	if o.steps == nil {
		o.steps = make([]seenStep, len(o.Engines))
	}
	s := &o.steps[i]
	if atUs > s.endUs {
		o.headOf(o.Engines[i], v, i, 0)
		a := &v.Ledger.Of[i]
		*s = seenStep{startUs: a.StepEndUs, endUs: atUs, decodes: a.Decodes, head: s.head}
	}
	_, todo, _ := v.Ledger.Pending(r.Index)
	if s.head.request == r.Index {
		todo -= s.head.done
		s.head = partly{}
	}
	s.computed += todo
}

// headOf is whose prompt on the instance is partly computed.
func (o *Rollout) headOf(e *predict.Engine, v *View, i int, overhead int64) partly {
	if o.steps == nil {
		return partly{}
	}
	s := &o.steps[i]
	if s.applied || s.endUs == 0 {
		return s.head
	}
	s.applied = true
	room, _ := e.Room(s.decodes)
	left := room - s.computed
	head, todo := s.head, int64(0)
	if _, n, ok := head.of(v); ok {
		todo = n
	} else {
		head, todo = o.first(v, i, s.startUs-overhead)
	}
	if todo > 0 && left > 0 {
		head.done = min(head.done+left, todo-1)
		s.head = head
	}
	return s.head
}

// first is the request that the instance serves next of those sent by untilUs.
func (o *Rollout) first(v *View, i int, untilUs int64) (head partly, todo int64) {
	for q := range v.Ledger.Queues(i, o.ByPriority) {
		v.Ledger.Waiting(q, func(request int, sentUs, n int64) bool {
			if sentUs <= untilUs {
				head.request, todo = request, n
			}
			return false
		})
		if todo > 0 {
			break
		}
	}
	return head, todo
}
