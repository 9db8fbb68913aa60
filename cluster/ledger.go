package cluster

// This file is the ledger: the state of its engines as the gateway can infer it without asking
// them, from the requests that it sent and the answers it saw. Policies and routers read it.
// Classes and instances are indices; times are us.

import (
	"iter"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// ledger is what the gateway has observed itself: the requests that it sent, their first tokens and
// their ends.
type ledger struct {
	Of      []account // one for each instance
	Classes []class
	byName  map[string]int
	entries []entry // one for each request of the workload
	order   []int   // classes by priority
	lengths lengths
	leaving [leavingWindows]float64 // memory of the result of Leaving
}

// class is what the gateway has observed of one class.
type class struct {
	Priority int
	Finished int64 // finished requests
	Outputs  int64 // output tokens of these
	sent     flow  // recent rate of what was sent to all instances together
}

// account is what the gateway has observed of one instance.
type account struct {
	InFlight   int64   // requests sent and not finished
	Decodes    int64   // of these, requests past their first token
	DecodeToks int64   // prompt tokens of the decodes
	StepEndUs  int64   // latest observed end of a step (a first token or an answer's end); -1 for none
	Pending    []queue // for each class, the requests without a first token
	All        queue   // the requests without a first token of all classes
	inbound    flow    // recent rate of what was sent
	served     rate    // recent rate of prompt tokens whose requests got their first token
	ages       ages    // ages of unfinished answers
}

// queue is the requests of one instance (and class) that have no first token yet, in the order in
// which they were sent.
type queue struct {
	Tokens   int64   // prompt tokens that all of them still need
	Requests int64   // requests in the queue
	order    []int32 // indices of requests, some of which have left the queue
	head     int     // entries of order before it have all left the queue
}

// state is how far a request has come in its engine: not there, without a first token, or past it.
type state uint8

const (
	outside state = iota
	pending
	decoding
)

// entry is what the ledger stores of one request.
type entry struct {
	sentUs, prompt, cached int64
	class                  int32
	began                  int32 // place in ages.born
	state                  state
}

// rateWindowUs is the time constant of recent rates; leastUs is the shortest time that they are divided by.
const (
	rateWindowUs = 2_000_000
	leastUs      = 100_000
)

// newLedger returns an empty ledger for a number of instances and of requests.
func newLedger(instances, n int) *ledger {
	l := &ledger{Of: make([]account, instances), byName: map[string]int{}, entries: make([]entry, n)}
	for i := range l.Of {
		l.Of[i].StepEndUs = -1
	}
	return l
}

// Class returns the index of a class, which it adds if it is new.
func (l *ledger) Class(name string, priority int) int {
	if c, ok := l.byName[name]; ok {
		return c
	}
	c := len(l.Classes)
	l.byName[name] = c
	l.Classes = append(l.Classes, class{Priority: priority})
	for i := range l.Of {
		l.Of[i].Pending = append(l.Of[i].Pending, queue{})
	}
	return c
}

// Sent records that request r was sent to instance i at nowUs, when cached of its prompt tokens
// were expected in the instance's cache.
func (l *ledger) Sent(r *Request, i int, nowUs, cached int64) {
	a := &l.Of[i]
	todo := max(1, r.PromptTokens-cached)
	l.entries[r.Index] = entry{
		sentUs: nowUs,
		prompt: r.PromptTokens,
		cached: cached,
		class:  int32(r.Class),
		state:  pending,
	}
	a.InFlight++
	a.Pending[r.Class].push(int32(r.Index), todo)
	a.All.push(int32(r.Index), todo)
	a.inbound.addPrompt(nowUs, todo)
	l.Classes[r.Class].sent.addPrompt(nowUs, todo)
}

// push appends a request that still needs a number of prompt tokens.
func (q *queue) push(request int32, tokens int64) {
	q.Tokens += tokens
	q.Requests++
	q.order = append(q.order, request)
}

// FirstToken records that a request got its first token on instance i at atUs. The request moves
// from the queue to the decodes.
func (l *ledger) FirstToken(request, i int, atUs int64) {
	e, a := &l.entries[request], &l.Of[i]
	if e.state != pending {
		return
	}
	e.state = decoding
	l.leaveQueue(e, a)
	a.served.addAmount(atUs, float64(e.todo()))
	a.Decodes++
	a.DecodeToks += e.prompt
	e.began = int32(a.ages.steps / ageSteps)
	a.ages.born = append(a.ages.born, make([]int64, max(0, int(e.began)+1-len(a.ages.born)))...)
	a.ages.born[e.began]++
	a.StepEndUs = max(a.StepEndUs, atUs)
}

// Stepped counts the end of a step of instance i. A gateway sees a step only by the tokens of the requests
// that decode, so steps without any are not counted.
func (l *ledger) Stepped(i int) {
	if l.Of[i].Decodes > 0 {
		l.Of[i].ages.steps++
	}
}

// leaveQueue removes the request of entry e from the two queues of account a that it is in. Its
// index stays in order until all before it have left.
func (l *ledger) leaveQueue(e *entry, a *account) {
	for _, q := range []*queue{&a.Pending[e.class], &a.All} {
		q.Tokens -= e.todo()
		q.Requests--
		for q.head < len(q.order) && l.entries[q.order[q.head]].state != pending {
			q.head++
		}
		if q.head > 1024 && 2*q.head > len(q.order) {
			q.order = slices.Delete(q.order, 0, q.head)
			q.head = 0
		}
	}
}

// Left records that a request left instance i at atUs after a number of output tokens. finished is
// false for requests that were aborted. An end also shows that a step has ended, apart from the
// time the answer takes to the gateway.
func (l *ledger) Left(request, i int, atUs, outputs int64, finished bool) {
	e, a := &l.entries[request], &l.Of[i]
	switch e.state {
	case pending:
		e.state = outside
		l.leaveQueue(e, a)
	case decoding:
		a.Decodes--
		a.DecodeToks -= e.prompt
		a.ages.born[e.began]--
		for a.ages.eldest < len(a.ages.born)-1 && a.ages.born[a.ages.eldest] == 0 {
			a.ages.eldest++
		}
		a.StepEndUs = max(a.StepEndUs, atUs)
	default:
		return
	}
	e.state = outside
	a.InFlight--
	if finished {
		c := &l.Classes[e.class]
		c.Finished++
		c.Outputs += outputs
		l.lengths.addFinished(outputs)
	}
}

// MeanOutputs returns the mean output length of the finished requests of all classes, tokens; 0 if
// none has finished.
func (l *ledger) MeanOutputs() float64 {
	var n, tokens int64
	for i := range l.Classes {
		n += l.Classes[i].Finished
		tokens += l.Classes[i].Outputs
	}
	if n == 0 {
		return 0
	}
	return float64(tokens) / float64(n)
}

// Inbound returns the recent load of instance i: prompt tokens to compute per second, and the mean tokens of one
// prompt; 0 if nothing was sent.
func (l *ledger) Inbound(i int, nowUs int64) (perS, one float64) {
	f := &l.Of[i].inbound
	return f.tokens.perSecond(nowUs), ratioOrZero(f.tokens.perUs, f.prompts.perUs)
}

// InboundAbove returns what Inbound returns, for classes of a higher priority value, whose requests overtake those of
// the given one. It assumes that every instance gets an equal share, because rates by class are counted for all together.
func (l *ledger) InboundAbove(priority int, nowUs int64) (perS, one float64) {
	prompts := 0.0
	instances := float64(len(l.Of))
	for c := range l.Classes {
		if k := &l.Classes[c]; k.Priority > priority {
			perS += k.sent.tokens.perSecond(nowUs) / instances
			prompts += k.sent.prompts.perSecond(nowUs) / instances
		}
	}
	return perS, ratioOrZero(perS, prompts)
}

// ratioOrZero returns a/b, and 0 if b is 0.
func ratioOrZero(a, b float64) float64 {
	if b > 0 {
		return a / b
	}
	return 0
}

// ServedPerS returns the recent rate of completed prefill work of all instances, tokens/s. At a
// request's first token, its prompt tokens that were not expected in the cache are added.
func (l *ledger) ServedPerS(nowUs int64) float64 {
	sum := 0.0
	for i := range l.Of {
		sum += l.Of[i].served.perSecond(nowUs)
	}
	return sum
}

// Waiting calls visit for the requests of q that have no first token, in the order in which they
// were sent, until visit returns false. todo is the number of prompt tokens still to compute.
func (l *ledger) Waiting(q *queue, visit func(request int, sentUs, todo int64) bool) {
	for _, r := range q.order[q.head:] {
		if e := &l.entries[r]; e.state == pending && !visit(int(r), e.sentUs, e.todo()) {
			return
		}
	}
}

// Pending returns the class of a request and the prompt tokens it still needs; ok is false if it
// has its first token or is not in an engine.
func (l *ledger) Pending(request int) (class int, todo int64, ok bool) {
	e := &l.entries[request]
	return int(e.class), e.todo(), e.state == pending
}

// todo returns the prompt tokens that the engine is expected to compute for the request, at least
// 1.
func (e *entry) todo() int64 { return max(1, e.prompt-e.cached) }

// Queues visits the queues of instance i in the order in which they are served: a single one, or with
// byPriority one for each class, the most important first.
func (l *ledger) Queues(i int, byPriority bool) iter.Seq[*queue] {
	a := &l.Of[i]
	return func(visit func(*queue) bool) {
		if !byPriority {
			visit(&a.All)
			return
		}
		for _, c := range l.byPriority() {
			if !visit(&a.Pending[c]) {
				return
			}
		}
	}
}

// byPriority returns the classes, the most important first.
func (l *ledger) byPriority() []int {
	if len(l.order) != len(l.Classes) {
		l.order = l.order[:0]
		for c := range l.Classes {
			l.order = append(l.order, c)
		}
		stat.SortStable(l.order, func(a, b int) int { return l.Classes[b].Priority - l.Classes[a].Priority })
	}
	return l.order
}
