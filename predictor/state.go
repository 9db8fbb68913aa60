package predictor

import (
	"cmp"
	"container/list"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// staleNs is the age above which a step says nothing when steps are missing.
const staleNs = 250_000_000

// steps looks up the recorded steps of a run by time.
type steps struct {
	list     []trace.Step // by id
	complete bool         // every step is recorded
	prefill  []int64      // prompt tokens of the first i steps of list
	anchors  []anchor     // what is known of the step counter, by time
	async    int64        // 1 when a step's tokens come one step later
}

// anchor says that schedule() number step had started at ns.
type anchor struct{ ns, step int64 }

func newSteps(run *trace.Run, rate float64, isAsync bool) *steps {
	s := &steps{list: run.Steps, complete: rate == 1 && len(run.Steps) > 0, prefill: make([]int64, len(run.Steps)+1)}
	if isAsync {
		s.async = 1
	}
	for i := range run.Steps {
		st := &run.Steps[i]
		s.complete = s.complete && (i == 0 || st.ID == run.Steps[i-1].ID+1)
		s.prefill[i+1] = s.prefill[i] + st.PrefillTokens
		s.anchors = append(s.anchors, anchor{st.TsStartNs, st.ID})
	}
	if s.complete {
		return s
	}
	for i := range run.Events {
		if e := &run.Events[i]; e.TsNs.OK && e.Step.OK {
			s.anchors = append(s.anchors, anchor{e.TsNs.V, e.Step.V})
		}
	}
	slices.SortFunc(s.anchors, func(a, b anchor) int { return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.step, b.step)) })
	for i := 1; i < len(s.anchors); i++ { // the stamps of one step may be out of order
		s.anchors[i].step = max(s.anchors[i].step, s.anchors[i-1].step)
	}
	return s
}

// last is the last recorded step that started by ns, nil for none.
func (s *steps) last(ns int64) (*trace.Step, int) {
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].TsStartNs > ns }) - 1
	if i < 0 {
		return nil, -1
	}
	return &s.list[i], i
}

// isFresh reports whether a step still describes the engine at ns.
func (s *steps) isFresh(st *trace.Step, ns int64) bool {
	return s.complete || ns-st.TsStartNs <= staleNs || st.RunningDepth == 0 && st.WaitingDepth == 0
}

// counter is the number of the step under way at ns. Between anchors that are
// not the last step it goes on at the pace of the anchors of the second before,
// so that nothing later is used.
func (s *steps) counter(ns int64) (step float64, ok bool) {
	i := sort.Search(len(s.anchors), func(i int) bool { return s.anchors[i].ns > ns }) - 1
	if i < 0 {
		return 0, false
	}
	at := s.anchors[i]
	if s.complete {
		return float64(at.step), true
	}
	const second = 1_000_000_000
	k := sort.Search(i, func(k int) bool { return s.anchors[k].ns >= at.ns-second })
	from := s.anchors[k]
	if from.step == at.step || from.ns == at.ns {
		return float64(at.step), true
	}
	pace := float64(at.step-from.step) / float64(at.ns-from.ns)
	return float64(at.step) + pace*float64(min(ns-at.ns, staleNs)), true
}

const (
	recentNs    = 20_000_000_000 // of arrivals, for the rate of prompts
	recentEnds  = 512            // finished requests, for the mean output
	leastRecent = 1_000_000_000  // a rate over less than that is taken over that
)

// kind is that of an event, in the order they count at equal stamps. Another request's
// arrival comes last, so that it can be left out at the decision's own moment.
type kind uint8

const (
	evQueued kind = iota
	evScheduled
	evPreempted
	evResumed
	evFirst
	evFinished
	evDeparted
	evArrived
)

type event struct {
	at   int64
	kind kind
	life int32
}

// eventsOf lists the stamps of all lives in time.
func eventsOf(lives []life) []event {
	var out []event
	add := func(i int, k kind, at trace.Opt[int64]) {
		if at.OK {
			out = append(out, event{at.V, k, int32(i)})
		}
	}
	for i := range lives {
		l := &lives[i]
		add(i, evArrived, l.arrived)
		add(i, evQueued, l.queued)
		add(i, evScheduled, l.scheduled)
		for _, p := range l.pauses {
			add(i, evPreempted, p.from)
			add(i, evResumed, p.to)
		}
		add(i, evFirst, l.first)
		add(i, evFinished, l.finished)
		add(i, evDeparted, l.departed)
	}
	slices.SortFunc(out, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.life, b.life))
	})
	return out
}

// status is the phase of a request inside the engine.
type status uint8

const (
	outside status = iota
	waiting
	running
	gone
)

// counts is the state at one moment, rebuilt from journeys.
type counts struct {
	lives          []life
	uncached       []int64 // prompt tokens expected to be computed, by life
	status         []status
	first, arrived []bool

	inflight                   int64
	in                         [4]int64        // changes of their number, by status: waiting and running start at 0
	noFirst                    int64           // uncached prompt tokens of requests that arrived, without first token
	byPriority                 map[int64]int64 // the same by priority
	aheadOf                    []int64         // by life: tokens to compute before a later arrival's, 0 while scheduled
	ahead, aheadRequests       int64           // sum and number of those
	prefilling                 []int32         // scheduled, no first token
	decodes                    int64           // running, with a first token
	decodePrompt, decodeCached int64           // their prompt tokens, and those of them from the cache
	decodeSteps                float64         // sum of the steps of their first tokens, moved by what they were paused
	decodeNs                   float64         // sum of the stamps of their first tokens after base, moved likewise
	base                       int64

	steps                 *steps
	pausedStep            []float64 // step and time of a preemption, then what pauses add up to
	pausedNs              []float64
	arrivals, firstTokens []event
	outputs               []float64
	outputSum             float64
	pace                  []float64 // ns per token of finished requests
	stepNs                []float64 // ns from scheduling to first token, for as long as none has finished
}

func newCounts(lives []life, s *steps) *counts {
	n := len(lives)
	c := &counts{lives: lives, uncached: make([]int64, n), status: make([]status, n), first: make([]bool, n), arrived: make([]bool, n),
		byPriority: map[int64]int64{}, steps: s, pausedStep: make([]float64, n), pausedNs: make([]float64, n), aheadOf: make([]int64, n)}
	for i := range lives {
		if lives[i].arrived.OK {
			c.base = lives[i].arrived.V
			break
		}
	}
	return c
}

// apply moves the state over one event.
func (c *counts) apply(e event) {
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
		c.enter(i, waiting)
	case evScheduled:
		c.enter(i, running)
	case evPreempted:
		c.enter(i, waiting)
		c.pause(i, e.at, -1)
		if c.arrived[i] && c.status[i] == waiting { // all of it is computed again
			c.setAhead(i, max(c.uncached[i], l.prompt.V))
		}
	case evResumed:
		c.pause(i, e.at, +1)
		c.enter(i, running)
	case evFirst:
		c.firstTokens = append(c.firstTokens, e)
		c.first[i] = true
		if c.arrived[i] {
			c.addNoFirst(i, -1)
		}
		c.dropPrefilling(e.life)
		if c.status[i] == running { // it may come after a preemption
			c.decode(i, +1)
		}
		if l.scheduled.OK && len(c.pace) == 0 {
			c.stepNs = append(c.stepNs, float64(e.at-l.scheduled.V))
		}
	case evFinished:
		c.enter(i, gone)
		if l.output.OK && l.output.V > 0 && l.first.OK && l.reason == "" {
			c.ended(l, e.at)
		}
	case evDeparted:
		if c.arrived[i] {
			c.inflight--
			c.arrived[i] = false
			c.setAhead(i, 0)
			if !c.first[i] {
				c.addNoFirst(i, -1)
			}
		}
	}
}

func (c *counts) addNoFirst(i int, sign int64) {
	c.noFirst += sign * c.uncached[i]
	c.byPriority[c.lives[i].priority] += sign * c.uncached[i]
}

// pause moves a request's tokens by the time it spends preempted; sign is -1 at
// its start, +1 at its end.
func (c *counts) pause(i int, ns int64, sign float64) {
	if step, ok := c.steps.counter(ns); ok {
		c.pausedStep[i] += sign * step
	}
	c.pausedNs[i] += sign * float64(ns-c.base)
}

// decode takes a request into the decodes or out of them.
func (c *counts) decode(i int, sign int64) {
	l := &c.lives[i]
	c.decodes += sign
	c.decodePrompt += sign * l.prompt.V
	c.decodeCached += sign * c.cachedOf(i)
	c.decodeSteps += float64(sign) * (float64(l.firstStep.V) + c.pausedStep[i])
	c.decodeNs += float64(sign) * (float64(l.first.V-c.base) + c.pausedNs[i])
}

// cachedOf are the prompt tokens of a scheduled request that came from the cache:
// the hit found then, else the one that was expected.
func (c *counts) cachedOf(i int) int64 {
	return c.lives[i].cached.Or(max(0, c.lives[i].prompt.V-c.uncached[i]))
}

// enter moves a request to a queue of the engine.
func (c *counts) enter(i int, to status) {
	from := c.status[i]
	if from == to || from == gone {
		return
	}
	c.in[from]--
	c.in[to]++
	switch { // from is not to
	case c.first[i] && from == running:
		c.decode(i, -1)
	case c.first[i] && to == running:
		c.decode(i, +1)
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

// setAhead says how many tokens of a request are to be computed before those of a
// later arrival; 0 when it is no longer in front.
func (c *counts) setAhead(i int, tokens int64) {
	was := c.aheadOf[i]
	c.aheadOf[i] = tokens
	c.ahead += tokens - was
	c.aheadRequests += min(1, tokens) - min(1, was)
}

func (c *counts) dropPrefilling(i int32) {
	if k := slices.Index(c.prefilling, i); k >= 0 {
		c.prefilling = slices.Delete(c.prefilling, k, k+1)
	}
}

// ended learns from a request that finished.
func (c *counts) ended(l *life, at int64) {
	c.outputs = append(c.outputs, float64(l.output.V))
	c.outputSum += float64(l.output.V)
	if n := len(c.outputs); n > recentEnds {
		c.outputSum -= c.outputs[n-1-recentEnds]
	}
	if l.output.V > 1 {
		c.pace = append(c.pace, float64(at-l.first.V)/float64(l.output.V-1))
	}
}

// meanOutput is the mean output of the requests that finished last.
func (c *counts) meanOutput() trace.Opt[float64] {
	n := min(len(c.outputs), recentEnds)
	if n == 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(c.outputSum / float64(n))
}

// recent is the rate of prompts that arrived lately and of their uncached tokens,
// per second.
func (c *counts) recent(ns int64) (tokensPerS, promptsPerS float64) {
	for k := len(c.arrivals) - 1; k >= 0 && c.arrivals[k].at > ns-recentNs; k-- {
		tokensPerS += float64(c.uncached[c.arrivals[k].life])
		promptsPerS++
	}
	over := float64(max(leastRecent, min(recentNs, ns-c.base))) / 1e9
	return tokensPerS / over, promptsPerS / over
}

// decodeTokens are the tokens in KV of the decodes at ns: their prompts and a
// token for every step since the first. Without step numbers the pace of the last
// 20 finished requests stands in, and before there is one the time the last 20
// took from scheduling to first token; ok is false before the first of those.
func (c *counts) decodeTokens(ns int64) (tokens float64, ok bool) {
	if c.decodes == 0 {
		return 0, true
	}
	n := float64(c.decodes)
	out := 0.0
	if step, known := c.steps.counter(ns); known {
		out = n*(step-float64(c.steps.async)) - c.decodeSteps
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

// prefill is where the prompt tokens are that are scheduled and not computed.
type prefill struct {
	now, ending        int64 // tokens of the running step, requests whose prompt ends in it
	next, nextEnding   int64 // asynchronous scheduling: of the step formed behind it
	left, leftRequests int64 // of later steps
}

// prefillNow finds the uncached prompts that are scheduled and have no first
// token. Where every step is recorded (at is the place of the last) the prompt
// tokens of the steps say how far they are, in the order they were scheduled; else
// the running step takes as many as the budget allows.
func (c *counts) prefillNow(at int, budget int64) prefill {
	var p prefill
	if len(c.prefilling) == 0 {
		return p
	}
	s := c.steps
	if !s.complete || at < 0 {
		total := stat.Sum(c.prefilling, func(i int32) int64 { return c.uncached[i] })
		p.now = min(total, budget)
		p.left = total - p.now
		p.leftRequests = min(1, p.left)
		p.ending = int64(len(c.prefilling)) - p.leftRequests
		return p
	}
	// tokens of the running step, and with asynchronous scheduling of the one behind
	budgets := []int64{s.list[at].PrefillTokens}
	if s.async == 1 && at > 0 {
		budgets = []int64{s.list[at-1].PrefillTokens, s.list[at].PrefillTokens}
	}
	done := c.computedBefore(at + 1 - len(budgets))
	var taken, ends [2]int64
	for _, i := range c.prefilling {
		rest := c.uncached[i]
		was := min(rest, done)
		rest, done = rest-was, done-was
		k := len(budgets) - 1
		for step := range budgets {
			if st := c.lives[i].scheduledStep; st.OK && st.V > s.list[at+1-len(budgets)+step].ID {
				continue // not yet scheduled then
			}
			n := min(rest, budgets[step])
			rest, budgets[step], taken[step] = rest-n, budgets[step]-n, taken[step]+n
			if rest == 0 {
				k = step
				break
			}
		}
		if rest > 0 {
			p.left += rest
			p.leftRequests++
			continue
		}
		ends[k]++
	}
	p.now = taken[0]
	p.ending = ends[0]
	p.next = taken[1]
	p.nextEnding = ends[1]
	return p
}

// computedBefore is how many tokens of the prefilling requests were computed in
// the recorded steps before a place: the prompt tokens of the steps since the first
// of them was scheduled, less those of requests that have their first token.
func (c *counts) computedBefore(place int) int64 {
	s := c.steps
	from := int64(math.MaxInt64)
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
	computed := s.prefill[place] - s.prefill[first]
	for k := len(c.firstTokens) - 1; k >= 0; k-- {
		l := &c.lives[c.firstTokens[k].life]
		if !l.scheduledStep.OK || l.firstStep.V < from {
			break
		}
		if l.scheduledStep.V >= from {
			computed -= c.uncached[c.firstTokens[k].life]
		}
	}
	return max(0, computed)
}

// life is one request, whatever recorded it. Stamps are ns of one clock.
type life struct {
	id                                                    string
	arrived, queued, scheduled, first, finished, departed trace.Opt[int64]
	pauses                                                []pause
	scheduledStep, firstStep, prompt, cached, output      trace.Opt[int64]
	priority                                              int64
	group                                                 string
	groupTokens                                           trace.Opt[int64]
	phase                                                 trace.Opt[string]
	reason                                                reason             // why it cannot be a row, empty when it may
	index, actual                                         trace.Opt[float64] // prefix scores
	score                                                 trace.Opt[float64] // the one asked for
}

// pause is a preemption and its end.
type pause struct{ from, to trace.Opt[int64] }

// livesOf lists the requests of a run, by arrival: core and API spans where there
// are some, else stock spans, else client rows with engine stamps. complete says
// that nothing that was in the engine is missing.
func livesOf(run *trace.Run, journeyRate float64, endToEnd bool) (lives []life, complete bool, findings []trace.Finding) {
	complete = true
	if len(run.Requests) == 0 {
		lives, findings = observedLives(run, endToEnd)
	} else {
		pauses := pausesOf(run.Events)
		clients := clientsOf(run.Observed)
		stock := 0
		for i := range run.Requests {
			r := &run.Requests[i]
			l := lifeOf(r, endToEnd)
			l.pauses = pauses[l.id]
			if c := clients[l.id]; c != nil {
				l.group = c.PrefixGroup.V
				l.groupTokens = c.PrefixTokens
				l.priority = c.Priority.V
			}
			if r.Source == trace.SourceStock {
				stock++
			}
			complete = complete && r.DroppedEvents <= 0 && (r.CoreID.OK || r.Source == trace.SourceStock || !r.Success.V)
			lives = append(lives, l)
		}
		complete = complete && (journeyRate == 1 || stock == len(lives))
	}
	slices.SortStableFunc(lives, func(a, b life) int {
		return cmp.Or(cmp.Compare(a.arrived.V, b.arrived.V), cmp.Compare(a.queued.V, b.queued.V), cmp.Compare(a.id, b.id))
	})
	return lives, complete, findings
}

func clientsOf(observed []trace.ObservedRequest) map[string]*trace.ObservedRequest {
	out := map[string]*trace.ObservedRequest{}
	for i := range observed {
		if o := &observed[i]; o.CoreID.OK {
			out[o.CoreID.V] = o
		}
	}
	return out
}

func lifeOf(r *trace.Request, endToEnd bool) life {
	l := life{id: r.CoreID.Or(r.APIID.V), prompt: r.PromptTokens, cached: r.CachedTokens, output: r.OutputTokens, phase: r.Phase}
	if r.Source == trace.SourceStock {
		l.stockStamps(r)
	} else {
		l.arrived = r.ArrivedNs
		l.queued = r.QueuedNs
		l.scheduled = r.ScheduledNs
		l.first = r.FirstTokenNs
		l.finished = r.FinishedNs
		l.scheduledStep = r.ScheduledStep
		l.firstStep = r.FirstTokenStep
		l.departed = firstKnown(r.DepartedNs, r.AbortedNs, r.FinishedNs)
	}
	l.judge(r.Source == trace.SourceStock || r.CoreID.OK, r.AbortedNs.OK && !r.Success.V, !r.Success.V, endToEnd)
	return l
}

// judge says why a request cannot be a row: what its record lacks, how it ended, and the stamps of one that succeeded.
// End to end, its departure counts and its first token need not be known.
func (l *life) judge(wasInEngine, wasAborted, hasFailed, endToEnd bool) {
	switch {
	case !l.arrived.OK:
		l.reason = noArrival
	case !wasInEngine:
		l.reason = noEngineStamps
	case !l.prompt.OK || l.prompt.V < 1:
		l.reason = noPromptLength
	case wasAborted:
		l.reason = aborted
	case hasFailed:
		l.reason = failed
	case !l.scheduled.OK:
		l.reason = noEngineStamps
	case endToEnd && !l.departed.OK:
		l.reason = noDeparture
	case !endToEnd && !l.first.OK:
		l.reason = noFirstToken
	case l.first.OK && l.first.V < l.arrived.V || endToEnd && l.departed.V < l.arrived.V:
		l.reason = negativeLatency
	}
}

// stockStamps places the intervals of an unmodified engine's span one behind the
// other: overhead in = TTFT - queue - prefill, then queue, prefill, decode.
func (l *life) stockStamps(r *trace.Request) {
	l.arrived = r.StartWallNs
	at := func(known bool, us float64) trace.Opt[int64] {
		return trace.Opt[int64]{V: l.arrived.V + trace.Ns(us), OK: known && l.arrived.OK}
	}
	ttft := r.StockTTFTUs
	queue := r.StockQueueUs
	prefill := r.StockPrefillUs
	if ttft.OK && queue.OK && prefill.OK {
		l.queued, l.scheduled = at(true, ttft.V-queue.V-prefill.V), at(true, ttft.V-prefill.V)
	}
	l.first = at(ttft.OK, ttft.V)
	l.finished = at(ttft.OK && r.StockDecodeUs.OK, ttft.V+r.StockDecodeUs.V)
	l.departed = firstKnown(at(r.StockE2EUs.OK, r.StockE2EUs.V), r.EndWallNs, l.finished)
}

func firstKnown(stamps ...trace.Opt[int64]) trace.Opt[int64] {
	for _, s := range stamps {
		if s.OK {
			return s
		}
	}
	return trace.Opt[int64]{}
}

// pausesOf lists the preemptions of every request: PREEMPTED to the next SCHEDULED.
func pausesOf(events []trace.JourneyEvent) map[string][]pause {
	out := map[string][]pause{}
	for i := range events {
		e := &events[i]
		list := out[e.CoreID]
		switch {
		case e.Kind == "PREEMPTED":
			out[e.CoreID] = append(list, pause{from: e.TsNs})
		case e.Kind == "SCHEDULED" && len(list) > 0 && !list[len(list)-1].to.OK:
			list[len(list)-1].to = e.TsNs
		}
	}
	return out
}

// observedLives are the rows of a client file that carry engine stamps. Where
// arrivals are on another clock, the smallest pick-up wait is taken as 0.
func observedLives(run *trace.Run, endToEnd bool) ([]life, []trace.Finding) {
	offset, found := int64(0), false
	for i := range run.Observed {
		c := &run.Observed[i]
		if at, wall := arrivalOf(c); wall && c.QueuedNs.OK {
			if d := c.QueuedNs.V - at.V; !found || d < offset {
				offset, found = d, true
			}
		}
	}
	var lives []life
	for i := range run.Observed {
		c := &run.Observed[i]
		at, wall := arrivalOf(c)
		if wall {
			at.V += offset
		}
		l := life{id: c.ID, arrived: at, queued: c.QueuedNs, scheduled: c.ScheduledNs, first: c.EngineFirstNs, finished: c.EngineLastNs,
			departed: c.EngineLastNs, prompt: c.PromptTokens, output: c.OutputTokens, phase: c.Phase, priority: c.Priority.V,
			group: c.PrefixGroup.V, groupTokens: c.PrefixTokens}
		l.judge(true, c.Aborted.V, c.Success.OK && !c.Success.V, endToEnd)
		lives = append(lives, l)
	}
	if !found {
		return lives, nil
	}
	return lives, []trace.Finding{trace.Findingf(codeTwoClocks, "run %s: arrivals and engine stamps are on two clocks; the smallest pick-up "+
		"wait was taken as 0", run.ID)}
}

// arrivalOf is a client row's arrival; wall says that it is on the wall clock.
func arrivalOf(c *trace.ObservedRequest) (at trace.Opt[int64], wall bool) {
	if c.SendNs.OK {
		return c.SendNs, false
	}
	return c.SendWallNs, c.SendWallNs.OK
}

// index is an LRU of cached blocks, replayed from what requests were scheduled.
// It stands for a router's index that the engine's KV events keep up to date.
type index struct {
	blockSize, capacity int64
	order               *list.List // of blockID, most recent first
	at                  map[blockID]*list.Element
	learned             map[string]int64 // blocks that requests of a group were seen to share
	groups              map[string]int64 // owner of each group's blocks
}

// blockID names one block of prompt tokens: the k-th of a group's shared prefix
// (owner below 0), or of one request's own tokens (owner is its place).
type blockID struct{ owner, k int64 }

func newIndex(d *deploy.Deployment) *index {
	blocks, _, err := d.KVBlocks()
	if err != nil {
		blocks = 1 << 40 // nothing is ever evicted
	}
	return &index{blockSize: d.Engine.BlockSize, capacity: blocks, order: list.New(), at: map[blockID]*list.Element{},
		learned: map[string]int64{}, groups: map[string]int64{}}
}

// blocks lists the blocks of the prompt of the i-th request, the shared ones first.
func (x *index) blocks(i int, l *life) []blockID {
	n := l.prompt.V / x.blockSize
	shared, group := int64(0), int64(0)
	if l.group != "" {
		if x.groups[l.group] == 0 {
			x.groups[l.group] = -int64(len(x.groups)) - 1
		}
		shared, group = n, x.groups[l.group]
		if l.groupTokens.OK {
			shared = min(n, l.groupTokens.V/x.blockSize)
		}
	}
	out := make([]blockID, n)
	for k := range n {
		out[k] = blockID{int64(i), k}
		if k < shared {
			out[k] = blockID{group, k}
		}
	}
	return out
}

// match is the share of the prompt whose blocks are in the index, as a prefix. A
// group whose shared length nobody states has shared what its requests were seen
// to share.
func (x *index) match(i int, l *life) float64 {
	limit := reconstruct.MaxCachedBlocks(l.prompt.V, x.blockSize)
	if l.group != "" && !l.groupTokens.OK {
		limit = min(limit, x.learned[l.group])
	}
	found := int64(0)
	for _, b := range x.blocks(i, l) {
		if found == limit || x.at[b] == nil {
			break
		}
		found++
	}
	return float64(found*x.blockSize) / float64(l.prompt.V)
}

// scheduled puts a prompt's blocks in front. hit is what was found at admission.
func (x *index) scheduled(i int, l *life, hit trace.Opt[int64]) {
	if hit.OK && l.group != "" {
		x.learned[l.group] = max(x.learned[l.group], hit.V/x.blockSize)
	}
	blocks := x.blocks(i, l)
	slices.Reverse(blocks) // the end of a chain is evicted first
	for _, b := range blocks {
		if e := x.at[b]; e != nil {
			x.order.MoveToFront(e)
			continue
		}
		x.at[b] = x.order.PushFront(b)
		if int64(x.order.Len()) > x.capacity {
			delete(x.at, x.order.Remove(x.order.Back()).(blockID))
		}
	}
}

// actualScore is the share of the prompt cached at first admission, in whole blocks.
func actualScore(l *life, blockSize int64, caching bool) trace.Opt[float64] {
	if !caching {
		return trace.Some(0.0)
	}
	if !l.cached.OK || !l.prompt.OK || l.prompt.V < 1 {
		return trace.Opt[float64]{}
	}
	cachedBlocks := l.cached.V / blockSize
	return trace.Some(float64(cachedBlocks*blockSize) / float64(l.prompt.V))
}
