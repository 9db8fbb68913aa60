package cluster

import (
	"math"

	"github.com/blis-train/blis-train/sim/predict"
)

// estimate is how long from now the first token of a request takes.
type estimate struct {
	predict.TTFT
	Queued  bool // others are served before it
	ByClass bool // better classes are: what it waits for depends on its own
}

// estimator estimates for a request on an instance.
type estimator interface {
	TTFT(r *Request, v *View, instance int) (estimate, error)
}

// Rollout plays the instance forward on what the gateway knows.
type Rollout struct {
	Engines     []*predict.Engine // by instance; instances may share one
	ByPriority  bool              // engines serve better classes first
	IgnoreCache bool              // a control: nothing counts as cached

	steps []seenStep // by instance
	taken []part     // by class: what the step under way computes, or has been computed before it
}

// part is a part of the requests without a first token.
type part struct{ tokens, requests int64 }

// TTFT is predict's rollout over the ledger and the snapshot.
func (o *Rollout) TTFT(r *Request, v *View, i int) (estimate, error) {
	return o.estimate(r, v, i, false)
}

// FullTTFT is the same when the request's own step is as full as it may be.
func (o *Rollout) FullTTFT(r *Request, v *View, i int) (estimate, error) {
	return o.estimate(r, v, i, true)
}

func (o *Rollout) estimate(r *Request, v *View, i int, full bool) (estimate, error) {
	e := o.Engines[i]
	own := predict.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	if o.IgnoreCache {
		own.CachedTokens = 0
	}
	a := &v.Ledger.Of[i]
	mean := v.Ledger.MeanOutputs()
	s := predict.State{Decodes: a.Decodes, DecodeTokens: a.DecodeToks + int64(float64(a.Decodes)*mean/2), OutputTokens: mean,
		Leaving: v.Ledger.Leaving(i), LeavingSteps: ageSteps, FreeBlocks: v.Snapshots[i].FreeBlocks}
	if expect(&s, r, v, i, o.ByPriority); full {
		s.BehindTokens = math.MaxInt32
	}
	overhead, err := e.OverheadUs(&s, &own)
	if err != nil {
		return estimate{}, err
	}
	if err := o.inStep(e, v, i, int64(overhead), &s); err != nil {
		return estimate{}, err
	}
	o.ahead(r, v, i, &s)
	x, err := e.TTFT(&s, &own)
	return estimate{x, s.AheadTokens > 0, o.ByPriority}, err
}

// maxRolled is how many steps are rolled forward from the last one whose end was seen.
const maxRolled = 32

// inStep finds the step under way: when it started, and whose prompts are in it.
// An engine that exports the start of its step tells; otherwise the model rolls
// steps forward from the last one whose end the gateway saw. A prompt that ends in
// a step would have shown its first token, so no such step is over.
func (o *Rollout) inStep(e *predict.Engine, v *View, i int, overhead int64, s *predict.State) error {
	s.SinceStepUs = math.NaN()
	snap, start := &v.Snapshots[i], v.Ledger.Of[i].StepEndUs
	known := snap.StepStartUs >= 0 && snap.AtUs == v.NowUs
	if known {
		start = snap.StepStartUs
	}
	head := o.headOf(e, v, i, overhead)
	for range maxRolled {
		next := o.take(e, v, i, head, start-overhead, s)
		if s.Decodes == 0 && s.StepTokens == 0 { // idle until the next one is there
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

// take is whose prompts a step computes that is formed when what was sent by untilUs
// is there: the one that is partly computed, then others in the engine's order. next
// is when the first of the rest was sent, -1: there is none.
func (o *Rollout) take(e *predict.Engine, v *View, i int, head partly, untilUs int64, s *predict.State) (next int64) {
	room, seats := e.Room(s.Decodes)
	o.taken = append(o.taken[:0], make([]part, len(v.Ledger.Classes))...)
	s.StepTokens, s.StepRequests, next = 0, 0, -1
	add := func(class int, todo, done int64) {
		n := min(todo-done, room)
		s.StepTokens, room, seats = s.StepTokens+n, room-n, seats-1
		of := &o.taken[class]
		if of.tokens += done + n; done+n == todo {
			s.StepRequests++
			of.requests++
		}
	}
	if class, todo, ok := head.of(v); ok {
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

// ahead is the work that is served before the request, and what waits behind it, less
// what the step under way computes.
func (o *Rollout) ahead(r *Request, v *View, i int, s *predict.State) {
	for c := range v.Ledger.Of[i].Pending {
		q := &v.Ledger.Of[i].Pending[c]
		left := part{q.Tokens - o.taken[c].tokens, q.Requests - o.taken[c].requests}
		if o.ByPriority && v.Ledger.Classes[c].Priority < r.Priority {
			s.BehindTokens += left.tokens
			continue
		}
		s.AheadTokens, s.AheadRequests = s.AheadTokens+left.tokens, s.AheadRequests+left.requests
	}
}

// expect says what will come to instance i while the request waits: prompts at the
// rate of late, in all and of better classes.
func expect(s *predict.State, r *Request, v *View, i int, byPriority bool) {
	s.ComingPerS, s.ComingPrompt = v.Ledger.Inbound(i, v.NowUs)
	if byPriority {
		s.BetterPerS, s.BetterPrompt = v.Ledger.Better(r.Priority, v.NowUs)
	}
}
