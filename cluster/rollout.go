package cluster

import (
	"math"

	"github.com/blis-train/blis-train/sim/forecast"
)

// estimate is the estimated time from now to the first token of a request.
type estimate struct {
	forecast.TTFT
	Queued  bool // other requests are served before it
	ByClass bool // engines serve by priority, so what it waits for depends on its class
}

// estimator estimates for a request on an instance.
type estimator interface {
	TTFT(r *Request, v *View, instance int) (estimate, error)
}

// Rollout estimates by simulating an instance forward (package forecast) from what the gateway
// knows.
type Rollout struct {
	Engines     []*forecast.Engine // one for each instance; instances may share one
	ByPriority  bool               // engines serve better classes first
	IgnoreCache bool               // assume that no prompt token is cached (a control)

	steps []seenStep // for each instance, the latest observed step
	taken []part     // for each class, prompt tokens and requests that need not be computed any more
}

// part is a part of the requests without a first token.
type part struct{ tokens, requests int64 }

// TTFT is the estimate for an instance from the ledger and the snapshot.
func (o *Rollout) TTFT(r *Request, v *View, i int) (estimate, error) {
	return o.estimate(r, v, i, false)
}

// FullTTFT is TTFT under the assumption that the request's own step is as full as possible.
func (o *Rollout) FullTTFT(r *Request, v *View, i int) (estimate, error) {
	return o.estimate(r, v, i, true)
}

// estimate fills the state of package forecast and estimates.
func (o *Rollout) estimate(r *Request, v *View, i int, full bool) (estimate, error) {
	e := o.Engines[i]
	own := forecast.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	if o.IgnoreCache {
		own.CachedTokens = 0
	}
	a := &v.Ledger.Of[i]
	mean := v.Ledger.MeanOutputs()
	s := forecast.State{
		Decodes:      a.Decodes,
		DecodeTokens: a.DecodeToks + int64(float64(a.Decodes)*mean/2),
		OutputTokens: mean,
		Leaving:      v.Ledger.Leaving(i),
		LeavingSteps: ageSteps,
		FreeBlocks:   v.Snapshots[i].FreeBlocks,
	}
	if expectArrivals(&s, r, v, i, o.ByPriority); full {
		s.BehindTokens = math.MaxInt32
	}
	overhead, err := e.OverheadUs(&s, &own)
	if err != nil {
		return estimate{}, err
	}
	if err := o.inStep(e, v, i, int64(overhead), &s); err != nil {
		return estimate{}, err
	}
	o.setWorkAhead(r, v, i, &s)
	x, err := e.TTFT(&s, &own)
	return estimate{x, s.AheadTokens > 0, o.ByPriority}, err
}

// maxRolled is how many steps are rolled forward from the last one whose end was seen.
const maxRolled = 32

// inStep finds the step under way: its start, and the requests whose prompts are in it. An engine may
// export the start of its step; otherwise the model advances from the last step whose end the gateway
// saw. A step in which a prompt ends cannot be over, because its first token would have been seen.
func (o *Rollout) inStep(e *forecast.Engine, v *View, i int, overhead int64, s *forecast.State) error {
	s.SinceStepUs = math.NaN()
	snap := &v.Snapshots[i]
	start := v.Ledger.Of[i].StepEndUs
	known := snap.StepStartUs >= 0 && snap.AtUs == v.NowUs
	if known {
		start = snap.StepStartUs
	}
	head := o.headOf(e, v, i, overhead)
	for range maxRolled {
		next := o.takeStep(e, v, i, head, start-overhead, s)
		if s.Decodes == 0 && s.StepTokens == 0 { // idle until the next request arrives
			if next < 0 || next+overhead > v.NowUs {
				return nil
			}
			start = next + overhead
			continue
		}
		us, err := e.StepUs(s.Decodes, s.DecodeTokens, s.StepRequests, s.StepTokens)
		if err != nil {
			return err
		}
		end := start + int64(us)
		if known || s.StepRequests > 0 || end > v.NowUs {
			break
		}
		start = end
	}
	s.SinceStepUs = float64(v.NowUs - start)
	return nil
}

// takeStep forms a step of the requests that were sent by untilUs: first the prompt that is partly
// computed, then others in the engine's order. It sets the step's prompt tokens and requests in s and
// o.taken. next is when the earliest request after untilUs was sent; -1 without one.
func (o *Rollout) takeStep(e *forecast.Engine, v *View, i int, head partly, untilUs int64,
	s *forecast.State) (next int64) {
	room, seats := e.Room(s.Decodes)
	o.taken = append(o.taken[:0], make([]part, len(v.Ledger.Classes))...)
	s.StepTokens = 0
	s.StepRequests = 0
	next = -1
	add := func(class int, todo, done int64) {
		n := min(todo-done, room)
		s.StepTokens += n
		room -= n
		seats--
		taken := &o.taken[class]
		taken.tokens += done + n
		if done+n == todo {
			s.StepRequests++
			taken.requests++
		}
	}
	if class, todo, ok := head.remaining(v); ok {
		add(class, todo, head.done)
	}
	for q := range v.Ledger.Queues(i, o.ByPriority) {
		v.Ledger.Waiting(q, func(request int, sentUs, todo int64) bool {
			switch {
			case room < 1 || seats < 1:
				return false
			case request == head.request && head.done > 0:
				return true
			case sentUs > untilUs:
				if next < 0 || sentUs < next {
					next = sentUs
				}
				return false
			}
			class, _, _ := v.Ledger.Pending(request)
			add(class, todo, 0)
			return true
		})
	}
	return next
}

// setWorkAhead sets in s the work that is served before the request and, with priorities, the work queued
// behind it. Neither includes what the step under way computes.
func (o *Rollout) setWorkAhead(r *Request, v *View, i int, s *forecast.State) {
	for c := range v.Ledger.Of[i].Pending {
		q := &v.Ledger.Of[i].Pending[c]
		left := part{q.Tokens - o.taken[c].tokens, q.Requests - o.taken[c].requests}
		if o.ByPriority && v.Ledger.Classes[c].Priority < r.Priority {
			s.BehindTokens += left.tokens
			continue
		}
		s.AheadTokens += left.tokens
		s.AheadRequests += left.requests
	}
}

// expectArrivals sets the requests that will come to instance i while the request waits: prompts at the recent
// rate, in total and of more important classes.
func expectArrivals(s *forecast.State, r *Request, v *View, i int, byPriority bool) {
	s.ComingPerS, s.ComingPrompt = v.Ledger.Inbound(i, v.NowUs)
	if byPriority {
		s.BetterPerS, s.BetterPrompt = v.Ledger.Better(r.Priority, v.NowUs)
	}
}

// seenStep is the latest step of an instance that ended with a first token.
type seenStep struct {
	startUs, endUs int64
	decodes        int64 // number of decodes in it
	computed       int64 // prompt tokens that it computed of prompts that ended in it
	applied        bool  // head accounts for it
	head           partly
}

// partly is a request whose prompt was cut by the token budget, with done tokens computed. The zero
// value stands for no request.
type partly struct {
	request int
	done    int64
}

// remaining is the request's class and prompt tokens to compute, while it has no first token.
func (p partly) remaining(v *View) (class int, todo int64, ok bool) {
	if p.done == 0 {
		return 0, 0, false
	}
	return v.Ledger.Pending(p.request)
}

// FirstToken records the end of a step, before the ledger does. If requests that were there when the step
// was formed still wait, its token budget was full: the tokens that it did not spend on prompts that ended
// in it went to the next prompt.
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

// headOf returns the request of the instance whose prompt is partly computed.
func (o *Rollout) headOf(e *forecast.Engine, v *View, i int, overhead int64) partly {
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
	head := s.head
	todo := int64(0)
	if _, n, ok := head.remaining(v); ok {
		todo = n
	} else {
		head, todo = o.firstWaiting(v, i, s.startUs-overhead)
	}
	if todo > 0 && left > 0 {
		head.done = min(head.done+left, todo-1)
		s.head = head
	}
	return s.head
}

// firstWaiting is the request that the instance serves next of those sent by untilUs.
func (o *Rollout) firstWaiting(v *View, i int, untilUs int64) (head partly, todo int64) {
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
