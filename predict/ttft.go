package predict

import "math"

// rollout is a rollout under way. Times are us after the decision.
type rollout struct {
	*Engine
	decodes, tokens   float64 // requests past their first token, their tokens in KV
	ahead, requests   int64   // prompt tokens before the request's own, and whose they are
	headDone          int64   // tokens computed of the first of those
	own, context      int64   // tokens the request still has to compute, tokens of it in KV
	prompt            int64   // its prompt
	queuedUs          float64 // when it reaches the input queue
	now, stepStart    float64 // boundary that is next, start of the step before
	seats, blocks     float64 // free
	coming            float64 // prompt tokens per second that join the request's own step
	leaving           float64 // requests that leave per decode and step
	blocksOfOne       float64 // KV blocks a request has when it leaves
	limitless, inStep bool    // blocks are unknown; a step is running
}

// TTFTUs is the estimated time to first token in us (spec#predictor-physics).
//
// Prompts that arrive while the request waits for the running step are computed
// in the same step as its own and make it longer. Nobody knows them yet: with
// ComingPerS 0 most estimates are exact and the mean is too small by what comes
// later (on a simulated engine 0 to 4 % at half load, 6 to 10 % where the queue
// grows); with ComingPerS = PrefillPerS the mean is right within 1 % there and the
// median error grows from 0 to between 1 and 6 % (TestTTFTOnSimulatedEngine prints
// both).
func (e *Engine) TTFTUs(s *State, r *Request) (float64, error) {
	overhead, err := e.OverheadUs(s, r)
	if err != nil {
		return 0, err
	}
	x := rollout{
		Engine: e, decodes: float64(s.Decodes), tokens: float64(s.DecodeTokens), ahead: s.AheadTokens, requests: s.AheadRequests,
		own: max(1, r.PromptTokens-r.CachedTokens), context: r.CachedTokens, prompt: r.PromptTokens, queuedUs: overhead,
		blocks: float64(s.FreeBlocks), limitless: s.FreeBlocks < 0, coming: s.ComingPerS,
	}
	x.seats = float64(e.seats - s.Decodes - s.StepRequests - s.NextRequests)
	if s.OutputTokens > 0 {
		x.leaving = 1 / s.OutputTokens
	}
	if s.Decodes > 0 {
		x.blocksOfOne = (float64(s.DecodeTokens)/float64(s.Decodes) + s.OutputTokens/2) / float64(e.blockSize)
	}
	if err := x.finishStep(s); err != nil {
		return 0, err
	}
	first := x.now
	for range maxSteps {
		if x.own <= 0 {
			break
		}
		if err := x.step(); err != nil {
			return 0, err
		}
	}
	x.rest(first)
	stretch := 1 / math.Max(1.0/maxStretch, 1-s.BetterShare)
	return x.now * stretch, nil
}

// finishStep lets the running step end, and with asynchronous scheduling the one
// that was formed behind it.
func (x *rollout) finishStep(s *State) error {
	if s.Decodes == 0 && s.StepTokens == 0 && s.NextTokens == 0 {
		return nil
	}
	x.inStep = true
	us, err := x.formed(s.StepRequests, s.StepTokens)
	if err != nil {
		return err
	}
	since := s.SinceStepUs
	if math.IsNaN(since) {
		since = us / 2
	}
	x.stepStart, x.now = -since, math.Max(0, us-since)
	if !x.async {
		return nil
	}
	if us, err = x.formed(s.NextRequests, s.NextTokens); err != nil {
		return err
	}
	x.stepStart, x.now = x.now, x.now+us
	return nil
}

// formed is the time of a step that computes n prompts of m tokens in all beside
// the decodes; after it they decode too.
func (x *rollout) formed(n, m int64) (us float64, err error) {
	if m > 0 {
		x.fill(n, m)
	}
	if us, err = x.stepUs(round(x.decodes), round(x.tokens)); err != nil {
		return 0, err
	}
	x.leave()
	x.tokens += float64(m)
	x.decodes += float64(n)
	return us, nil
}

// fill adds n equal prompts of m tokens in all to the batch.
func (x *rollout) fill(n, m int64) {
	n = max(1, min(n, m))
	for i := n; i > 0; i-- {
		part := m / i
		x.batch.AddPrefill(0, part, part)
		m -= part
	}
}

// leave lets decodes finish, on average, and the others grow by a token.
func (x *rollout) leave() {
	seats, blocks := x.freed()
	x.seats += seats
	x.blocks += blocks
	x.tokens += x.decodes - x.tokens*x.leaving
	x.decodes -= seats
}

// freed is what a step gives back.
func (x *rollout) freed() (seats, blocks float64) {
	seats = x.decodes * x.leaving
	return seats, seats*x.blocksOfOne - x.decodes/float64(x.blockSize)
}

// joins reports whether the request may be part of the step at the boundary: with
// asynchronous scheduling the step was formed when the one before started.
func (x *rollout) joins() bool {
	if x.async && x.inStep {
		return x.queuedUs <= x.stepStart
	}
	return x.queuedUs <= x.now
}

// step plays one step.
func (x *rollout) step() error {
	joins := x.joins()
	if round(x.decodes) == 0 && x.ahead == 0 && !joins { // the engine idles until the request is there
		x.now, x.inStep = math.Max(x.now, x.queuedUs), false
		return nil
	}
	budget := max(0, x.budget-round(x.decodes))
	var joined, computed int64
	for x.ahead > 0 && budget > 0 {
		part := max(1, x.ahead/max(1, x.requests)) // the cache may leave more requests than tokens
		if !x.fits(x.headDone + part) {
			break
		}
		n := min(x.cap(part), budget)
		if !x.chunked && n < part {
			break
		}
		x.batch.AddPrefill(x.headDone, x.headDone+part, n)
		budget, x.ahead, computed = budget-n, x.ahead-n, computed+n
		if n < part {
			x.headDone += n
			break
		}
		x.take(x.headDone + part)
		x.headDone, x.requests, joined = 0, max(0, x.requests-1), joined+1
	}
	var mine int64
	if joins && x.ahead == 0 && budget > 0 && (x.context > 0 || x.fits(x.own)) {
		mine = min(x.cap(x.own), budget)
		if !x.chunked && mine < x.own {
			mine = 0
		}
		if mine > 0 {
			x.batch.AddPrefill(x.context, x.prompt, mine)
		}
		until := x.now // when the step is formed
		if x.async && x.inStep {
			until = x.stepStart
		}
		if n := min(int64(x.coming*math.Max(0, until)/1e6), budget-mine); n > 0 && mine == x.own {
			x.batch.AddPrefill(0, n, n)
		}
	}
	us, err := x.stepUs(round(x.decodes), round(x.tokens))
	if err != nil {
		return err
	}
	x.stepStart, x.inStep = x.now, true
	x.now += us
	x.own, x.context = x.own-mine, x.context+mine
	x.leave()
	x.tokens += float64(computed)
	x.decodes += float64(joined)
	return nil
}

func round(v float64) int64 { return int64(v + 0.5) }

// cap is what one request may compute in a step.
func (x *rollout) cap(tokens int64) int64 {
	if x.longPrefill > 0 {
		return min(tokens, x.longPrefill)
	}
	return tokens
}

// fits reports whether a seat and blocks for a prompt are free.
func (x *rollout) fits(tokens int64) bool {
	need := float64((tokens + x.blockSize - 1) / x.blockSize)
	return x.seats >= 1-1e-9 && (x.limitless || x.blocks >= need-1e-9)
}

// take gives a seat and blocks to a prompt.
func (x *rollout) take(tokens int64) {
	x.seats--
	x.blocks -= float64((tokens + x.blockSize - 1) / x.blockSize)
}

// rest goes on linearly: what is left takes as many steps as its tokens need, or
// as decodes need to leave it seats and blocks.
func (x *rollout) rest(first float64) {
	if x.own <= 0 {
		return
	}
	steps := float64(x.ahead+x.own) / math.Max(1, float64(x.budget)-x.decodes)
	seats, blocks := x.freed()
	if short := float64(x.requests+1) - x.seats; short > 0 && seats > 0 {
		steps = math.Max(steps, short/seats)
	}
	need := float64(x.ahead+x.own)/float64(x.blockSize) + float64(x.requests+1)/2
	if short := need - x.blocks; !x.limitless && short > 0 && blocks > 0 {
		steps = math.Max(steps, short/blocks)
	}
	x.now += steps * (x.now - first) / maxSteps
	x.own = 0
}
