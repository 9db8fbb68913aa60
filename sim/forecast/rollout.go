package forecast

// This file plays the next steps of an engine on sums over its requests, until a request has its first
// token.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// rollout is the state of a rollout, a simulation of the engine's next steps on sums over requests.
// Times are us after the decision; "the request" is the one that the estimate is for.
type rollout struct {
	*Engine
	now       float64 // the next scheduling boundary
	stepStart float64 // start of the step before it
	inStep    bool    // a step is running

	decodes  float64 // requests past their first token
	tokens   float64 // their tokens in KV
	freeSeqs float64 // of max_num_seqs
	blocks   float64 // free KV blocks
	hasAllKV bool    // the number of free blocks is unknown and taken as enough

	ahead    int64 // prompt tokens to compute before the request's own
	requests int64 // requests they belong to
	headDone int64 // tokens computed of the first of these requests
	behind   int64 // prompt tokens that wait behind the request

	own        int64   // tokens that the request still has to compute
	context    int64   // its tokens in KV
	prompt     int64   // its prompt
	queuedUs   float64 // when it reaches the input queue
	isAdmitted bool    // a part of its prompt was computed

	betterPerS   float64 // prompt tokens per second of better classes
	betterPrompt float64 // tokens of one of their prompts
	overtook     float64 // tokens of better classes that count as ahead
	comingPerS   float64 // prompt tokens per second that join the request's own step
	comingPrompt float64 // tokens of one of their prompts; 0: unknown
	likelyUs     float64 // the request's own step when nothing joins it; 0: something will
	moreUs       float64 // by how much the estimate exceeds that

	leaving     float64   // share of the decodes that leave per step
	windows     []float64 // the same by windows of steps, from the next step on; nil: leaving stays as it is
	windowSteps int       // steps of a window
	windowLeft  int       // steps left of the first window
	blocksOfOne float64   // KV blocks of a request when it leaves
}

// finishStep plays the rest of the running step, and with asynchronous scheduling also the step
// that is already formed behind it. x.now is then the next scheduling boundary at which the engine
// forms a step.
func (x *rollout) finishStep(s *State) error {
	if s.Decodes == 0 && s.StepTokens == 0 && s.NextTokens == 0 {
		return nil
	}
	x.inStep = true
	us, err := x.playFormed(s.StepRequests, s.StepTokens)
	if err != nil {
		return err
	}
	since := s.SinceStepUs
	if math.IsNaN(since) { // on average half of the step has passed
		since = us / 2
	}
	x.stepStart = -since
	x.now = math.Max(0, us-since)
	if !x.async {
		return nil
	}
	if us, err = x.playFormed(s.NextRequests, s.NextTokens); err != nil {
		return err
	}
	x.stepStart = x.now
	x.now += us
	return nil
}

// playFormed returns the time, us, of a step of the decodes and n prompts that have m tokens
// together, and moves these prompts to the decodes.
func (x *rollout) playFormed(n, m int64) (us float64, err error) {
	if us, err = x.StepUs(round(x.decodes), round(x.tokens), n, m); err != nil {
		return 0, err
	}
	x.dropFinished()
	x.tokens += float64(m)
	x.decodes += float64(n)
	return us, nil
}

// dropFinished ends a step for the decodes: the expected number of them leaves, and each of the
// others grows by a token.
func (x *rollout) dropFinished() {
	seqs, blocks := x.freedPerStep()
	x.freeSeqs += seqs
	x.blocks += blocks
	x.tokens += x.decodes - x.tokens*x.leaving // one more for each, less those of the share that leaves
	x.decodes -= seqs
	x.windowLeft--
	if x.windowLeft == 0 && len(x.windows) > 1 {
		x.windows = x.windows[1:]
		x.windowLeft = x.windowSteps
		x.leaving = x.windows[0]
	}
}

// freedPerStep returns the expected number of decodes that leave in a step, and the KV blocks that
// they free minus those that the growing decodes take.
func (x *rollout) freedPerStep() (seqs, blocks float64) {
	seqs = x.decodes * x.leaving
	blocksTaken := x.decodes / float64(x.blockSize) // a decode takes a new block every blockSize steps
	return seqs, seqs*x.blocksOfOne - blocksTaken
}

// joins reports whether the request can be part of the next step. With asynchronous scheduling that
// step was formed when the one before started.
func (x *rollout) joins() bool {
	if x.async && x.inStep {
		return x.queuedUs <= x.stepStart
	}
	return x.queuedUs <= x.now
}

// playStep plays one step, or the wait of an idle engine for the request.
func (x *rollout) playStep() error {
	joins := x.joins()
	if round(x.decodes) == 0 && x.ahead == 0 && !joins { // the engine is idle until the request arrives
		x.now = math.Max(x.now, x.queuedUs)
		x.inStep = false
		return nil
	}
	// Running decodes get one token each; prompts get what is left of the budget.
	budget := max(0, x.budget-round(x.decodes))
	x.overtake(budget)
	// The prompts ahead of the request, as a number of requests of equal length, in order.
	var finishedPrompts, promptTokens int64
	for x.ahead > 0 && budget > 0 {
		// at least 1: with cached prompts there may be fewer tokens than requests
		perRequest := max(1, x.ahead/max(1, x.requests))
		if !x.fits(x.headDone + perRequest) {
			break
		}
		chunk := min(x.capPrefill(perRequest), budget)
		if !x.chunked && chunk < perRequest {
			break
		}
		x.batch.AddPrefill(x.headDone, x.headDone+perRequest, chunk)
		budget -= chunk
		x.ahead -= chunk
		promptTokens += chunk
		if chunk < perRequest {
			x.headDone += chunk
			break
		}
		x.admitPrompt(x.headDone + perRequest)
		x.headDone = 0
		x.requests = max(0, x.requests-1)
		finishedPrompts++
	}
	// The request's own prompt, once none is ahead of it.
	var ownTokens int64
	if joins && x.ahead == 0 && budget > 0 && (x.isAdmitted || x.fits(x.own)) {
		ownTokens = min(x.capPrefill(x.own), budget)
		if !x.chunked && ownTokens < x.own {
			ownTokens = 0
		}
		if ownTokens > 0 {
			x.isAdmitted = true
			x.batch.AddPrefill(x.context, x.prompt, ownTokens)
		}
		if ownTokens == x.own {
			if err := x.joinOthers(budget - ownTokens); err != nil {
				return err
			}
		}
	}
	// All that the step computes is known: it takes its predicted time, and what it computed changes
	// the state.
	us, err := x.stepUs(round(x.decodes), round(x.tokens))
	if err != nil {
		return err
	}
	if x.likelyUs > 0 { // joinOthers found that most likely nothing joins the request's own step
		x.moreUs = us - x.likelyUs
	}
	x.stepStart = x.now
	x.inStep = true
	x.now += us
	x.own -= ownTokens
	x.context += ownTokens
	x.dropFinished()
	x.tokens += float64(promptTokens)
	x.decodes += float64(finishedPrompts)
	return nil
}

// formedUs returns the time at which the next step is formed.
func (x *rollout) formedUs() float64 {
	if x.async && x.inStep {
		return math.Max(0, x.stepStart)
	}
	return math.Max(0, x.now)
}

// overtake puts prompts of more important classes that have arrived since the decision in front of
// the request, if the step's budget or max_num_seqs has no room for all. Otherwise they join the
// step like other arrivals. Only whole requests are counted, because max_num_seqs counts requests.
func (x *rollout) overtake(budget int64) {
	arrived := math.Floor((x.betterPerS*x.formedUs()/1e6 - x.overtook) / x.betterPrompt) // requests
	tokens := arrived * x.betterPrompt
	lacksBudget := float64(x.ahead+x.own)+tokens > float64(budget)
	lacksSeqs := x.freeSeqs < float64(x.requests)+arrived+1
	if arrived >= 1 && (lacksBudget || lacksSeqs) {
		x.ahead += round(tokens)
		x.requests += int64(arrived)
		x.overtook += tokens
	}
}

// joinOthers adds further prompts to the batch in which the request's prompt ends: those that wait
// after the request and those that are expected to arrive by then, as far as there is room.
//
// Prompts of s tokens arrive one by one. If m of them are expected, none arrives with probability
// exp(-m). If that is the likelier case, the estimate adds m*s*(1 - m/ln 2)^2 tokens, which is the
// mean for small m. Otherwise both estimates (TTFT.Us and LikelyUs) add the mean of the other case,
// m*s/(1 - exp(-m)).
func (x *rollout) joinOthers(room int64) (err error) {
	if n := min(x.behind, room); n > 0 {
		x.batch.AddPrefill(0, n, n)
		room -= n
	}
	mean := math.Max(0, x.comingPerS*x.formedUs()/1e6-x.overtook) // m*s, tokens
	switch m := mean / x.comingPrompt; {
	case x.comingPrompt == 0 || mean == 0: // the mean is added as it is
	case m < math.Ln2: // then exp(-m) > 1/2
		batch := x.batch // stepUs empties it
		if x.likelyUs, err = x.stepUs(round(x.decodes), round(x.tokens)); err != nil {
			return err
		}
		x.batch = batch
		mean *= (1 - m/math.Ln2) * (1 - m/math.Ln2)
	default:
		mean /= -math.Expm1(-m)
	}
	// The tokens of a Poisson number of prompts of exponential lengths have the variance 2*mean*s.
	if n := int64(meanCapped(mean, math.Sqrt(2*mean*x.comingPrompt), float64(room))); n > 0 {
		x.batch.AddPrefill(0, n, n)
	}
	return nil
}

// meanCapped returns the mean of min(X, limit) for a normal variable X with the given mean and
// standard deviation.
func meanCapped(mean, sd, limit float64) float64 {
	if sd == 0 {
		return math.Min(mean, limit)
	}
	z := (limit - mean) / sd
	below := 0.5 * math.Erfc(-z/math.Sqrt2)
	return math.Max(0, mean*below-sd*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)+limit*(1-below))
}

// round returns v >= 0 rounded to the nearest integer.
func round(v float64) int64 { return int64(v + 0.5) }

// capPrefill returns how many of the tokens one request may compute in a step
// (long_prefill_token_threshold).
func (x *rollout) capPrefill(tokens int64) int64 {
	if x.longPrefill > 0 {
		return min(tokens, x.longPrefill)
	}
	return tokens
}

// fits reports whether max_num_seqs and the free blocks have room for a prompt of a number of
// tokens.
func (x *rollout) fits(tokens int64) bool {
	const rounding = 1e-9 // of sums of expected numbers, which are not whole
	need := float64((tokens + x.blockSize - 1) / x.blockSize)
	return x.freeSeqs >= 1-rounding && (x.hasAllKV || x.blocks >= need-rounding)
}

// admitPrompt subtracts a prompt from the room in max_num_seqs and in the free blocks.
func (x *rollout) admitPrompt(tokens int64) {
	x.freeSeqs--
	x.blocks -= float64((tokens + x.blockSize - 1) / x.blockSize)
}

// extrapolate ends the rollout linearly: it adds as many steps of the mean duration so far as the
// remaining prompt tokens need, or as decodes need to leave room. first is the time at which the
// first played step began.
func (x *rollout) extrapolate(first float64) {
	if x.own <= 0 {
		return
	}
	room := math.Max(1, float64(x.budget)-x.decodes)          // prompt tokens per step
	better := x.betterPerS * (x.now - first) / maxSteps / 1e6 // of these, those of more important classes
	// left returns the share of a resource that remains when more important classes take the given
	// share.
	left := func(share float64) float64 { return math.Max(1.0/maxStretch, 1-share) }
	// Steps that the budget of tokens needs.
	steps := float64(x.ahead+x.own) / room / left(better/room)
	if len(x.windows) > 0 {
		x.leaving = stat.Mean(x.windows)
	}
	seqs, blocks := x.freedPerStep()
	// Steps until enough decodes have left for max_num_seqs.
	switch short := float64(x.requests+1) - x.freeSeqs; {
	case short > 0 && seqs == 0: // no decode is known to leave: assume as much time again
		steps = math.Max(steps, 2*maxSteps)
	case short > 0:
		steps = math.Max(steps, short/seqs/left(better/x.betterPrompt/seqs))
	}
	// Steps until enough blocks are free.
	const lastBlock = 0.5 // of a request's last block, half is empty on average
	need := float64(x.ahead+x.own)/float64(x.blockSize) + lastBlock*float64(x.requests+1)
	if short := need - x.blocks; !x.hasAllKV && short > 0 && blocks > 0 {
		steps = math.Max(steps, short/blocks)
	}
	x.now += steps * (x.now - first) / maxSteps
	x.own = 0
}
