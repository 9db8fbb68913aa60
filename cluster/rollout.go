package cluster

// This file estimates TTFT from what a gateway can see: it reconstructs the state of an engine from
// the ledger (the requests sent and answers seen) and the last scrape, and lets package forecast
// simulate the engine forward.
//
// A step is one pass of the engine's scheduler and model. A prompt that exceeds the step's token
// budget is cut: the engine computes a part of it (a chunk) in one step and the rest in the next
// ones. At most one waiting request is cut at a time; it is called the head here.

import (
	"math"

	"github.com/blis-train/blis-train/sim/forecast"
)

// estimate is the estimated time from now to the first token of a request on one instance.
type estimate struct {
	forecast.TTFT
	Queued  bool // other requests are served before it
	ByClass bool // engines serve by priority, so what it waits for depends on its class
}

// estimator estimates the time to the first token of a request on an instance.
type estimator interface {
	TTFT(r *Request, v *View, instance int) (estimate, error)
}

// Rollout is an estimator that simulates an instance forward (package forecast), from a state that
// it reconstructs from what the gateway knows.
type Rollout struct {
	Engines     []*forecast.Engine // one for each instance; instances may share one
	ByPriority  bool               // engines serve better classes first
	IgnoreCache bool               // assume that no prompt token is cached (a control)

	steps []seenStep // for each instance, the latest observed step
	taken []part     // for each class, the waiting requests' tokens and requests that the step under way or earlier ones compute
}

// part is a part of the requests without a first token: their prompt tokens and their number.
type part struct{ tokens, requests int64 }

// TTFT estimates the time to the first token of r on instance i.
func (o *Rollout) TTFT(r *Request, v *View, i int) (estimate, error) {
	return o.estimate(r, v, i, false)
}

// FullTTFT estimates the same if later requests fill the step that computes the end of r's prompt
// up to its token budget. It is an upper bound for the effect of requests that arrive later.
func (o *Rollout) FullTTFT(r *Request, v *View, i int) (estimate, error) {
	return o.estimate(r, v, i, true)
}

// estimate reconstructs the state of instance i and returns the forecast for r. With full, requests
// behind r fill its step.
func (o *Rollout) estimate(r *Request, v *View, i int, full bool) (estimate, error) {
	engine := o.Engines[i]
	own := forecast.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	if o.IgnoreCache {
		own.CachedTokens = 0
	}
	account := &v.Ledger.Of[i]
	mean := v.Ledger.MeanOutputs()
	state := forecast.State{
		Decodes:      account.Decodes,
		DecodeTokens: account.DecodeToks + int64(float64(account.Decodes)*mean/2),
		OutputTokens: mean,
		Leaving:      v.Ledger.Leaving(i),
		LeavingSteps: ageSteps,
		FreeBlocks:   v.Snapshots[i].FreeBlocks,
	}
	if expectArrivals(&state, r, v, i, o.ByPriority); full {
		state.BehindTokens = math.MaxInt32
	}
	overhead, err := engine.OverheadUs(&state, &own)
	if err != nil {
		return estimate{}, err
	}
	if err := o.inStep(engine, v, i, int64(overhead), &state); err != nil {
		return estimate{}, err
	}
	o.setWorkAhead(r, v, i, &state)
	forecasted, err := engine.TTFT(&state, &own)
	return estimate{forecasted, state.AheadTokens > 0, o.ByPriority}, err
}

// maxRolled is the largest number of steps that inStep simulates from the last step whose end was
// seen.
const maxRolled = 32

// inStep finds out which step is under way on instance i, and sets in s how long ago it began and
// which prompt tokens and requests are in it. If the engine exports the start of its step, that is
// known. Otherwise steps are simulated from the last one whose end the gateway saw, until one ends
// in the future. A step in which a prompt is completed cannot have ended, because the gateway would
// have seen its first token.
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

// takeStep forms the step that begins at untilUs, of the requests that were sent by then: first the
// head, the request whose prompt is partly computed, then others in the engine's order, until the
// token budget or max_num_seqs is used up. It sets the step's prompt tokens and completed prompts
// in s, and o.taken. next is the time when the earliest later request was sent; -1 without one.
func (o *Rollout) takeStep(e *forecast.Engine, v *View, i int, head partly, untilUs int64,
	s *forecast.State) (next int64) {
	room, seats := e.Room(s.Decodes) // prompt tokens and requests that fit into the step beside the decodes
	o.taken = append(o.taken[:0], make([]part, len(v.Ledger.Classes))...)
	s.StepTokens = 0
	s.StepRequests = 0
	next = -1
	// add puts the next part of a prompt into the step: todo of its tokens are not cached, of which done
	// are computed already.
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
			case request == head.request && head.done > 0: // is in already
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

// setWorkAhead sets in s the work that instance i serves before r and, if it serves by priority,
// the work that it serves after r. Work of the step under way is in neither.
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

// expectArrivals sets in s the rate and the size of prompts that will arrive at instance i while r
// waits, assuming that they arrive as recently: all of them, and those of more important classes.
func expectArrivals(s *forecast.State, r *Request, v *View, i int, byPriority bool) {
	s.ComingPerS, s.ComingPrompt = v.Ledger.Inbound(i, v.NowUs)
	if byPriority {
		s.BetterPerS, s.BetterPrompt = v.Ledger.InboundAbove(r.Priority, v.NowUs)
	}
}

// seenStep is the latest step of an instance whose end the gateway saw, by a first token.
type seenStep struct {
	startUs, endUs int64
	decodes        int64 // number of decodes in it
	computed       int64 // prompt tokens that it computed of prompts that ended in it
	applied        bool  // whether head already includes the tokens of this step
	head           partly
}

// partly is the head of an instance: the waiting request whose prompt was cut by the token budget,
// with done tokens computed. The zero value means that no prompt is cut.
type partly struct {
	request int
	done    int64
}

// remaining returns the class and the prompt tokens of the cut request; ok is false if there is
// none or it has its first token.
func (p partly) remaining(v *View) (class int, todo int64, ok bool) {
	if p.done == 0 {
		return 0, 0, false
	}
	return v.Ledger.Pending(p.request)
}

// FirstToken records that r got its first token at atUs, before the ledger does. First tokens of
// the same time are of the same step. headOf concludes from the step's prompt tokens how far the
// next prompt has come.
func (o *Rollout) FirstToken(r *Request, v *View, i int, atUs int64) {
	if o.steps == nil {
		o.steps = make([]seenStep, len(o.Engines))
	}
	s := &o.steps[i]
	if atUs > s.endUs { // the first of a new step; before it replaces the last one, that decides about the head
		o.headOf(o.Engines[i], v, i, 0)
		a := &v.Ledger.Of[i]
		*s = seenStep{startUs: a.StepEndUs, endUs: atUs, decodes: a.Decodes, head: s.head}
	}
	_, todo, _ := v.Ledger.Pending(r.Index) // prompt tokens that the step computed of r
	if s.head.request == r.Index {
		todo -= s.head.done
		s.head = partly{}
	}
	s.computed += todo
}

// headOf returns the cut request of instance i. If requests that had been sent when the last seen
// step began still wait, that step's token budget was full: what it did not spend on prompts
// completed in it went to the next prompt.
func (o *Rollout) headOf(e *forecast.Engine, v *View, i int, overhead int64) partly {
	if o.steps == nil {
		return partly{}
	}
	s := &o.steps[i]
	if s.applied || s.endUs == 0 {
		return s.head
	}
	s.applied = true
	room, _ := e.Room(s.decodes) // prompt tokens that fit into the step beside its decodes
	left := room - s.computed    // of these, spent on a prompt that did not end in it
	head := s.head
	todo := int64(0) // prompt tokens of that request in all
	if _, n, ok := head.remaining(v); ok {
		todo = n
	} else {
		head, todo = o.firstWaiting(v, i, s.startUs-overhead)
	}
	if todo > 0 && left > 0 {
		head.done = min(head.done+left, todo-1) // less than all: its first token has not been seen
		s.head = head
	}
	return s.head
}

// firstWaiting returns the request that instance i serves next among those sent by untilUs, and its
// prompt tokens; todo is 0 without one.
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
