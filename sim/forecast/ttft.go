package forecast

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// rollout is a rollout under way. Times are us after the decision.
type rollout struct {
	*Engine
	decodes, tokens   float64   // requests past their first token, their tokens in KV
	ahead, requests   int64     // prompt tokens before the request's own, and whose they are
	headDone          int64     // tokens computed of the first of those
	own, context      int64     // tokens the request still has to compute, tokens of it in KV
	prompt            int64     // its prompt
	queuedUs          float64   // when it reaches the input queue
	now, stepStart    float64   // boundary that is next, start of the step before
	seats, blocks     float64   // free
	behind            int64     // prompt tokens that wait behind the request
	better, came      float64   // prompt tokens per second of better classes; what of them counts as ahead
	betterOne         float64   // tokens of one of their prompts
	coming, one       float64   // prompt tokens per second that join the request's own step, tokens of one prompt
	likelyUs, moreUs  float64   // the request's own step when nothing joins it, 0: something will; what the estimate has more
	leaving           float64   // requests that leave per decode and step
	windows           []float64 // the same by windows, from this step's on; nil: it stays
	window, left      int       // steps of one, steps left of the first
	blocksOfOne       float64   // KV blocks a request has when it leaves
	limitless, inStep bool      // blocks are unknown; a step is running
	seated            bool      // a part of the request's prompt was computed
}

// TTFT is an estimate, us. LikelyUs is the same in the likelier of two cases: nothing
// comes that joins the request's own step, or something does. It is what an observed
// time is compared with: exact coefficients are exact for most requests.
type TTFT struct{ Us, LikelyUs float64 }

// TTFT is the estimated time to first token (spec#predictor-physics).
//
// Prompts that arrive while the request waits for the running step are computed
// in the same step as its own and make it longer. Nobody knows them yet: with
// ComingPerS 0 most estimates are exact and the mean is too small by what comes
// later (on a simulated engine 0 to 4 % at half load, 6 to 10 % where the queue
// grows). One number cannot be both the median and the mean of what has such a tail;
// with ComingPerS and ComingPrompt it lies between (see rollout.join; for both errors
// TestTTFTOnSimulatedEngine and, behind a gateway, cluster's TestPredictionOnOneEngine).
func (e *Engine) TTFT(s *State, r *Request) (TTFT, error) {
	overhead, err := e.OverheadUs(s, r)
	if err != nil {
		return TTFT{}, err
	}
	x := rollout{
		Engine: e, decodes: float64(s.Decodes), tokens: float64(s.DecodeTokens), ahead: s.AheadTokens, requests: s.AheadRequests,
		own: max(1, r.PromptTokens-r.CachedTokens), context: r.CachedTokens, prompt: r.PromptTokens, queuedUs: overhead,
		blocks: float64(s.FreeBlocks), limitless: s.FreeBlocks < 0, behind: s.BehindTokens, better: s.BetterPerS, coming: s.ComingPerS,
		one: s.ComingPrompt, betterOne: math.Max(1, s.BetterPrompt),
	}
	x.seats = float64(e.seats - s.Decodes - s.StepRequests - s.NextRequests)
	if s.OutputTokens > 0 {
		x.leaving = 1 / s.OutputTokens
	}
	if len(s.Leaving) > 0 {
		x.windows = s.Leaving
		x.window = s.LeavingSteps
		x.left = s.LeavingSteps
		x.leaving = x.windows[0]
	}
	if s.Decodes > 0 {
		x.blocksOfOne = (float64(s.DecodeTokens)/float64(s.Decodes) + s.OutputTokens/2) / float64(e.blockSize)
	}
	if err := x.finishStep(s); err != nil {
		return TTFT{}, err
	}
	first := x.now
	for range maxSteps {
		if x.own <= 0 {
			break
		}
		if err := x.step(); err != nil {
			return TTFT{}, err
		}
	}
	x.rest(first)
	return TTFT{x.now, x.now - x.moreUs}, nil
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
	if us, err = x.StepUs(round(x.decodes), round(x.tokens), n, m); err != nil {
		return 0, err
	}
	x.leave()
	x.tokens += float64(m)
	x.decodes += float64(n)
	return us, nil
}

// leave lets decodes finish, on average, and the others grow by a token.
func (x *rollout) leave() {
	seats, blocks := x.freed()
	x.seats += seats
	x.blocks += blocks
	x.tokens += x.decodes - x.tokens*x.leaving
	x.decodes -= seats
	if x.left--; x.left == 0 && len(x.windows) > 1 {
		x.windows, x.left = x.windows[1:], x.window
		x.leaving = x.windows[0]
	}
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
		x.now = math.Max(x.now, x.queuedUs)
		x.inStep = false
		return nil
	}
	budget := max(0, x.budget-round(x.decodes))
	x.overtaken(budget)
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
		budget = budget - n
		x.ahead = x.ahead - n
		computed += n
		if n < part {
			x.headDone += n
			break
		}
		x.take(x.headDone + part)
		x.headDone = 0
		x.requests = max(0, x.requests-1)
		joined += 1
	}
	var mine int64
	if joins && x.ahead == 0 && budget > 0 && (x.seated || x.fits(x.own)) {
		mine = min(x.cap(x.own), budget)
		if !x.chunked && mine < x.own {
			mine = 0
		}
		if mine > 0 {
			x.seated = true
			x.batch.AddPrefill(x.context, x.prompt, mine)
		}
		if mine == x.own {
			if err := x.join(budget - mine); err != nil {
				return err
			}
		}
	}
	us, err := x.stepUs(round(x.decodes), round(x.tokens))
	if err != nil {
		return err
	}
	if x.likelyUs > 0 {
		x.moreUs = us - x.likelyUs
	}
	x.stepStart, x.inStep = x.now, true
	x.now += us
	x.own, x.context = x.own-mine, x.context+mine
	x.leave()
	x.tokens += float64(computed)
	x.decodes += float64(joined)
	return nil
}

// formedUs is when the next step is formed.
func (x *rollout) formedUs() float64 {
	if x.async && x.inStep {
		return math.Max(0, x.stepStart)
	}
	return math.Max(0, x.now)
}

// overtaken puts better classes that have come meanwhile before the request where the
// step has no room or the engine no seats for all; elsewhere they join it as anybody does.
// They count in whole requests: a seat goes to a request, not to the tokens of a part of one.
func (x *rollout) overtaken(budget int64) {
	k := math.Floor((x.better*x.formedUs()/1e6 - x.came) / x.betterOne)
	tokens := k * x.betterOne
	if k >= 1 && (float64(x.ahead+x.own)+tokens > float64(budget) || x.seats < float64(x.requests)+k+1) {
		x.ahead += round(tokens)
		x.requests += int64(k)
		x.came += tokens
	}
}

// join adds to the batch, which the request's prompt ends in, what waits behind the
// request and what will have come: as much as there is room for.
//
// Prompts of s tokens come one by one: with m expected, none comes with probability
// exp(-m). Where that is the likelier case the estimate has m*s*(1 - m/ln 2)^2 more,
// which is the mean where m is small; elsewhere both have the mean of the other case,
// m*s/(1 - exp(-m)).
func (x *rollout) join(room int64) (err error) {
	if n := min(x.behind, room); n > 0 {
		x.batch.AddPrefill(0, n, n)
		room -= n
	}
	mean := math.Max(0, x.coming*x.formedUs()/1e6-x.came)
	switch m := mean / x.one; {
	case x.one == 0 || mean == 0:
	case m < math.Ln2:
		batch := x.batch
		if x.likelyUs, err = x.stepUs(round(x.decodes), round(x.tokens)); err != nil {
			return err
		}
		x.batch = batch
		mean *= (1 - m/math.Ln2) * (1 - m/math.Ln2)
	default:
		mean /= -math.Expm1(-m)
	}
	if n := int64(meanCapped(mean, math.Sqrt(2*mean*x.one), float64(room))); n > 0 {
		x.batch.AddPrefill(0, n, n)
	}
	return nil
}

// meanCapped is the mean of the smaller of a normal variable and a limit >= 0.
func meanCapped(mean, sd, limit float64) float64 {
	if sd == 0 {
		return math.Min(mean, limit)
	}
	z := (limit - mean) / sd
	below := 0.5 * math.Erfc(-z/math.Sqrt2)
	return math.Max(0, mean*below-sd*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)+limit*(1-below))
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
	room := math.Max(1, float64(x.budget)-x.decodes)
	better := x.better * (x.now - first) / maxSteps / 1e6                            // tokens a step
	left := func(share float64) float64 { return math.Max(1.0/maxStretch, 1-share) } // by better classes to come
	steps := float64(x.ahead+x.own) / room / left(better/room)
	if len(x.windows) > 0 {
		x.leaving = stat.Mean(x.windows)
	}
	seats, blocks := x.freed()
	switch short := float64(x.requests+1) - x.seats; {
	case short > 0 && seats == 0: // nobody is known to leave: as long again, and again
		steps = math.Max(steps, 2*maxSteps)
	case short > 0:
		steps = math.Max(steps, short/seats/left(better/x.betterOne/seats))
	}
	need := float64(x.ahead+x.own)/float64(x.blockSize) + float64(x.requests+1)/2
	if short := need - x.blocks; !x.limitless && short > 0 && blocks > 0 {
		steps = math.Max(steps, short/blocks)
	}
	x.now += steps * (x.now - first) / maxSteps
	x.own = 0
}

// TPOTUs is the estimated mean time per output token after the first, in us, of a
// request that waits ttftUs for the first: a step of the decodes and the request,
// with the prompts that are computed beside them.
//
// With D the time of a step without prompts, prompts of m tokens and D+x the time
// of a step that computes one, every prompt token costs c = x/m. Prompts that come
// at r tokens per us take the share r*c of all time, so a step lasts T = D/(1-r*c).
// What arrives while the request waits, r*ttft tokens, is computed after its first
// token and stretches its first steps; so do arrivals meanwhile. No step is longer
// than one that fills max_num_batched_tokens, and where seats or blocks are short a
// prompt comes only when a decode leaves.
func (e *Engine) TPOTUs(s *State, r *Request, ttftUs float64) (float64, error) {
	decodes := s.Decodes + s.StepRequests + s.NextRequests + 1
	tokens := s.DecodeTokens + s.StepTokens + s.NextTokens + r.PromptTokens + int64(s.OutputTokens/2)
	n := e.admitted(s)
	if n > 0 {
		decodes += n
		tokens += s.AheadTokens * n / s.AheadRequests
	}
	most := e.seats // decodes there can be
	if decodes = min(decodes, most); n < s.AheadRequests {
		most = decodes
	}
	plain, err := e.stepUs(decodes, tokens)
	if err != nil || !(s.PrefillPerS > 0 && s.PromptsPerS > 0) {
		return plain, err
	}
	full := max(1, e.budget-decodes)
	m := max(1, min(full, int64(s.PrefillPerS/s.PromptsPerS)))
	if !e.chunked { // whole prompts leave part of the budget
		full = max(m, full-m/2)
	}
	one, err := e.stepWithPrompt(m, decodes, tokens)
	if err != nil {
		return 0, err
	}
	longest := one
	if full > m {
		if longest, err = e.stepWithPrompt(full, decodes, tokens); err != nil {
			return 0, err
		}
	}
	if s.OutputTokens > 0 {
		longest = math.Min(longest, plain+math.Min(1, float64(most)/s.OutputTokens)*(one-plain))
	}
	perToken := (one - plain) / float64(m)
	rate := s.PrefillPerS / 1e6
	share := rate * perToken
	if share >= 1 {
		return longest, nil
	}
	us := plain / (1 - share)
	if s.OutputTokens > 1 {
		us += rate * ttftUs / (1 - share) * perToken / (s.OutputTokens - 1)
	}
	return math.Min(us, math.Max(longest, plain)), nil // coefficients may make a prompt's step the shorter one
}

// stepWithPrompt is the time of a step that computes n tokens of a prompt beside
// the decodes.
func (e *Engine) stepWithPrompt(n, decodes, tokens int64) (float64, error) {
	e.batch.AddPrefill(0, n, n)
	return e.stepUs(decodes, tokens)
}

// admitted is how many of the requests ahead will decode beside the request:
// those there are blocks for.
func (e *Engine) admitted(s *State) int64 {
	if s.AheadRequests < 1 || s.FreeBlocks < 0 {
		return s.AheadRequests
	}
	blocks := max(1, (s.AheadTokens/s.AheadRequests+e.blockSize-1)/e.blockSize)
	return min(s.AheadRequests, s.FreeBlocks/blocks)
}
