package predictor

// This file counts the requests that wait and run at each moment of a recording.

import (
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

const (
	recentNs    = 20_000_000_000 // window of the arrival rates, ns
	recentEnds  = 512            // finished requests in the mean output
	leastRecent = 1_000_000_000  // shortest window of a rate at the start of a run, ns
)

// queueStatus is the place of a request in the engine.
type queueStatus uint8

const (
	outside queueStatus = iota
	waiting
	running
	gone
)

// queueState is the state of the engine at one moment, rebuilt from the events of all requests
// (journeys). Events are applied in the order of time.
type queueState struct {
	lives []requestLife
	steps *recordedSteps
	base  int64 // ns: the first arrival; sums of stamps are relative to it

	// By request, as in lives.
	uncached []int64 // prompt tokens expected to be computed
	status   []queueStatus
	first    []bool    // it has its first token
	arrived  []bool    // it has arrived and not departed
	aheadOf  []int64   // tokens to compute before a later arrival's, 0 while scheduled
	paused   []float64 // steps spent preempted; during a preemption less the step of its start
	pausedNs []float64 // the same in ns after base

	inflight   int64           // requests that have arrived and not departed
	inStatus   [4]int64        // requests by status; only those of waiting and running mean something
	noFirst    int64           // uncached prompt tokens of requests in flight without a first token
	byPriority map[int64]int64 // the same by priority

	ahead         int64   // sum of aheadOf
	aheadRequests int64   // requests with aheadOf > 0
	prefilling    []int32 // scheduled, without a first token, in the order of scheduling

	decodes      int64   // running, with a first token
	decodePrompt int64   // their prompt tokens
	decodeCached int64   // of these, those from the prefix cache
	decodeSteps  float64 // sum of the steps of their first tokens, plus the steps they were preempted
	decodeNs     float64 // sum of the ns of their first tokens after base, plus those preempted

	arrivals    []event   // evArrived so far
	firstTokens []event   // evFirst so far
	outputs     []float64 // output tokens of finished requests, in the order of their ends
	outputSum   float64   // of the last recentEnds
	pace        []float64 // ns per token of finished requests
	stepNs      []float64 // ns from scheduling to first token, until one has finished
}

// newQueueState returns the state before the first event.
func newQueueState(lives []requestLife, s *recordedSteps) *queueState {
	n := len(lives)
	c := &queueState{
		lives:      lives,
		steps:      s,
		uncached:   make([]int64, n),
		status:     make([]queueStatus, n),
		first:      make([]bool, n),
		arrived:    make([]bool, n),
		aheadOf:    make([]int64, n),
		paused:     make([]float64, n),
		pausedNs:   make([]float64, n),
		byPriority: map[int64]int64{},
	}
	for i := range lives {
		if lives[i].arrived.OK {
			c.base = lives[i].arrived.V
			break
		}
	}
	return c
}

// applyEvent changes the state by one event.
func (c *queueState) applyEvent(e event) {
	i, l := int(e.life), &c.lives[e.life]
	switch e.kind {
	case evArrived:
		c.arrivals = append(c.arrivals, e)
		c.arrived[i] = true
		c.inflight++
		if !c.first[i] {
			c.addNoFirst(i, +1)
		}
		if c.status[i] == outside || c.status[i] == waiting {
			c.setAhead(i, c.uncached[i])
		}
	case evQueued:
		c.moveTo(i, waiting)
	case evScheduled:
		c.moveTo(i, running)
	case evPreempted:
		c.moveTo(i, waiting)
		c.addPause(i, e.at, -1)
		if c.arrived[i] && c.status[i] == waiting { // vLLM preempts by recomputation
			c.setAhead(i, max(c.uncached[i], l.prompt.V))
		}
	case evResumed:
		c.addPause(i, e.at, +1)
		c.moveTo(i, running)
	case evFirst:
		c.firstTokens = append(c.firstTokens, e)
		c.first[i] = true
		if c.arrived[i] {
			c.addNoFirst(i, -1)
		}
		c.dropPrefilling(e.life)
		if c.status[i] == running { // not if it was preempted before its first token was seen
			c.countDecode(i, +1)
		}
		if l.scheduled.OK && len(c.pace) == 0 {
			c.stepNs = append(c.stepNs, float64(e.at-l.scheduled.V))
		}
	case evFinished:
		c.moveTo(i, gone)
		if l.output.OK && l.output.V > 0 && l.first.OK && l.reason == "" {
			c.learnFinished(l, e.at)
		}
	case evDeparted:
		if c.arrived[i] { // one without a recorded arrival was never counted
			c.inflight--
			c.arrived[i] = false
			c.setAhead(i, 0)
			if !c.first[i] {
				c.addNoFirst(i, -1)
			}
		}
	}
}

// addNoFirst adds the uncached prompt tokens of a request to those of the requests without a first
// token, or removes them (sign -1).
func (c *queueState) addNoFirst(i int, sign int64) {
	c.noFirst += sign * c.uncached[i]
	c.byPriority[c.lives[i].priority] += sign * c.uncached[i]
}

// addPause adds the steps and the time that a request spends preempted, during which it makes no
// tokens. sign is -1 at the start of a preemption and +1 at its end.
func (c *queueState) addPause(i int, ns int64, sign float64) {
	if step, ok := c.steps.counterAt(ns); ok {
		c.paused[i] += sign * step
	}
	c.pausedNs[i] += sign * float64(ns-c.base)
}

// countDecode adds a request to the decodes (sign +1) or removes it (-1).
func (c *queueState) countDecode(i int, sign int64) {
	l := &c.lives[i]
	c.decodes += sign
	c.decodePrompt += sign * l.prompt.V
	c.decodeCached += sign * c.cachedTokensOf(i)
	c.decodeSteps += float64(sign) * (float64(l.firstStep.V) + c.paused[i])
	c.decodeNs += float64(sign) * (float64(l.first.V-c.base) + c.pausedNs[i])
}

// cachedTokensOf returns the number of prompt tokens of a scheduled request that came from the prefix
// cache: the recorded hit, else the expected one.
func (c *queueState) cachedTokensOf(i int) int64 {
	return c.lives[i].cached.Or(max(0, c.lives[i].prompt.V-c.uncached[i]))
}

// moveTo changes the status of a request and the counts by status.
func (c *queueState) moveTo(i int, to queueStatus) {
	from := c.status[i]
	if from == to || from == gone {
		return
	}
	c.inStatus[from]--
	c.inStatus[to]++
	switch {
	case c.first[i] && from == running:
		c.countDecode(i, -1)
	case c.first[i] && to == running:
		c.countDecode(i, +1)
	}
	if to != waiting {
		c.setAhead(i, 0)
	}
	c.dropPrefilling(int32(i))
	if to == running && !c.first[i] {
		c.prefilling = append(c.prefilling, int32(i))
	}
	c.status[i] = to
}

// setAhead sets the number of prompt tokens of a request that are computed before those of a later
// arrival; 0 once it is scheduled or has left.
func (c *queueState) setAhead(i int, tokens int64) {
	was := c.aheadOf[i]
	c.aheadOf[i] = tokens
	c.ahead += tokens - was
	c.aheadRequests += min(1, tokens) - min(1, was)
}

// dropPrefilling removes a request from the prefilling ones.
func (c *queueState) dropPrefilling(i int32) {
	if k := slices.Index(c.prefilling, i); k >= 0 {
		c.prefilling = slices.Delete(c.prefilling, k, k+1)
	}
}

// learnFinished adds the output length and the time per token of a request that finished at a
// stamp, ns.
func (c *queueState) learnFinished(l *requestLife, at int64) {
	c.outputs = append(c.outputs, float64(l.output.V))
	c.outputSum += float64(l.output.V)
	if n := len(c.outputs); n > recentEnds {
		c.outputSum -= c.outputs[n-1-recentEnds]
	}
	if l.output.V > 1 {
		c.pace = append(c.pace, float64(at-l.first.V)/float64(l.output.V-1))
	}
}

// meanOutput returns the mean output length of the last recentEnds requests that finished, tokens;
// unknown before the first.
func (c *queueState) meanOutput() trace.Opt[float64] {
	n := min(len(c.outputs), recentEnds)
	if n == 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(c.outputSum / float64(n))
}

// recentArrivalRates returns the rates of the prompts that arrived in the window before ns and of
// their uncached tokens, per second.
func (c *queueState) recentArrivalRates(ns int64) (tokensPerS, promptsPerS float64) {
	for k := len(c.arrivals) - 1; k >= 0 && c.arrivals[k].at > ns-recentNs; k-- {
		tokensPerS += float64(c.uncached[c.arrivals[k].life])
		promptsPerS++
	}
	seconds := float64(max(leastRecent, min(recentNs, ns-c.base))) / 1e9
	return tokensPerS / seconds, promptsPerS / seconds
}

// decodeTokens returns the number of tokens in the KV cache of the decodes at ns: their prompts and
// one token for every step since the first token. Without step numbers the number of steps follows
// from the time and the mean time per token of the last 20 finished requests or, before any has
// finished, from the mean time from scheduling to first token of the last 20. ok is false if that
// is not known either.
func (c *queueState) decodeTokens(ns int64) (tokens float64, ok bool) {
	if c.decodes == 0 {
		return 0, true
	}
	n := float64(c.decodes)
	out := 0.0
	if step, known := c.steps.counterAt(ns); known {
		out = n*(step-float64(c.steps.lag)) - c.decodeSteps
	} else {
		pace := c.pace
		if len(pace) == 0 {
			pace = c.stepNs
		}
		if pace = pace[max(0, len(pace)-20):]; len(pace) == 0 {
			return 0, false
		}
		out = n + (n*float64(ns-c.base)-c.decodeNs)/math.Max(1, stat.Mean(pace))
	}
	return float64(c.decodePrompt) + math.Max(n, out), true
}

// scheduledPrefill divides the prompt tokens of scheduled requests that are not yet computed by the
// step that computes them.
type scheduledPrefill struct {
	now, ending        int64 // tokens of the running step, requests whose prompt ends in it
	next, nextEnding   int64 // asynchronous scheduling: of the step formed behind it
	left, leftRequests int64 // of later steps
}

// prefillNow returns the uncached prompt tokens of the prefilling requests by the step that
// computes them. If every step is recorded (at is the index of the last), the prompt tokens of the
// steps are given to the requests in the order in which they were scheduled. Otherwise the running
// step computes as many tokens as the budget (max_num_batched_tokens) allows.
func (c *queueState) prefillNow(at int, budget int64) scheduledPrefill {
	var p scheduledPrefill
	if len(c.prefilling) == 0 {
		return p
	}
	s := c.steps
	if !s.complete || at < 0 {
		total := int64(0)
		for _, i := range c.prefilling {
			total += c.uncached[i]
		}
		p.now = min(total, budget)
		p.left = total - p.now
		p.leftRequests = min(1, p.left)
		p.ending = int64(len(c.prefilling)) - p.leftRequests
		return p
	}
	// The steps under way: the running one, and with asynchronous scheduling the one formed behind it,
	// which is the last recorded one.
	first := at
	if s.lag == 1 && at > 0 {
		first = at - 1
	}
	underWay := s.list[first : at+1]
	// Give their prompt tokens to the requests in the order of scheduling, after those computed in
	// earlier steps. A prompt ends in the step in which none of its tokens is left.
	done := c.computedBefore(first)
	var taken, ends [2]int64 // of each step under way: tokens given, prompts that end
	for _, i := range c.prefilling {
		rest := c.uncached[i]
		was := min(rest, done)
		rest -= was
		done -= was
		endsIn := len(underWay) - 1
		for k := range underWay {
			if st := c.lives[i].scheduledStep; st.OK && st.V > underWay[k].ID {
				continue // not yet scheduled then
			}
			n := min(rest, int64(underWay[k].PrefillTokens)-taken[k])
			rest -= n
			taken[k] += n
			if rest == 0 {
				endsIn = k
				break
			}
		}
		if rest > 0 {
			p.left += rest
			p.leftRequests++
			continue
		}
		ends[endsIn]++
	}
	p.now = taken[0]
	p.ending = ends[0]
	p.next = taken[1]
	p.nextEnding = ends[1]
	return p
}

// computedBefore returns how many tokens of the prefilling requests were computed in the recorded
// steps before a place in the list: the prompt tokens of the steps since the first of these
// requests was scheduled, less those of requests that have their first token.
func (c *queueState) computedBefore(place int) int64 {
	s := c.steps
	from := int64(math.MaxInt64) // step in which the first of them was scheduled
	for _, i := range c.prefilling {
		if st := c.lives[i].scheduledStep; st.OK {
			from = min(from, st.V)
		}
	}
	// the place of the first recorded step with at least that id
	first := sort.Search(len(s.list), func(i int) bool { return s.list[i].ID >= from })
	if first >= place {
		return 0
	}
	// All prompt tokens of these steps, less the prompts of requests that are no longer prefilling.
	computed := s.prefill[place] - s.prefill[first]
	for k := len(c.firstTokens) - 1; k >= 0; k-- {
		l := &c.lives[c.firstTokens[k].life]
		if !l.scheduledStep.OK || l.firstStep.V < from { // it and those before ended in earlier steps
			break
		}
		if l.scheduledStep.V >= from { // its whole prompt was computed in these steps
			computed -= c.uncached[c.firstTokens[k].life]
		}
	}
	return max(0, computed)
}
