package cluster

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
)

// predictive admits a request when its calibrated estimate meets its target
// (spec#admission-predictive).
//
// Ahead are requests without a first token (under priorities of the same or a better class). A first token or an
// answer's end marks a step's end; steps are rolled forward from the last. Better classes expected to arrive go first
// where a step has no room: whole requests of their mean prompt, an equal share of what all instances were lately
// sent. The estimate is that of the likelier case (nothing joins, or something); before any 30 ratios the own step is
// full, times the residuals' quantile.
type predictive struct {
	Estimate estimator
	Best     bool               // judge by the instance with the smallest estimate, not the one it goes to
	Eps      map[string]float64 // tolerated share of misses by class; others by their priority
	// StandardUs is the target of class standard, for requests judged as such.
	StandardUs int64
	Floor      *Floor // nil: none
	// Prior is the quantile of observed / estimated until enough were seen; nil: 1.
	Prior func(p float64) float64

	seen map[errorGroup]*ratios
}

// errorGroup is requests whose errors are pooled: of a class, with or without others ahead, by
// the octave of the estimate.
type errorGroup struct {
	class  int // everybody: all of them
	queued bool
	octave int // everybody: all of them
}

// everybody is all classes, or all octaves, together.
const everybody = math.MinInt

// groups are those that a request belongs to, the narrowest first.
func groups(class int, queued bool, us float64) [4]errorGroup {
	_, k := math.Frexp(us)
	return [4]errorGroup{{class, queued, k}, {everybody, queued, k}, {class, queued, everybody}, {everybody, queued, everybody}}
}

// epsStandard and epsShed are the tolerated shares of misses of classes without one.
const (
	epsStandard = 0.05
	epsShed     = 0.10
)

func (p *predictive) eps(name string, priority int) float64 {
	if e, ok := p.Eps[name]; ok {
		return e
	}
	if priority >= 0 {
		return epsStandard
	}
	return epsShed
}

// Decide estimates, calibrates and compares.
func (p *predictive) Decide(r *Request, v *View, target int) (Decision, error) {
	x, err := p.Estimate.TTFT(r, v, target)
	if err != nil {
		return Decision{}, err
	}
	if p.Best {
		for i := range v.Snapshots {
			y, err := p.Estimate.TTFT(r, v, i)
			if err != nil {
				return Decision{}, err
			}
			if y.Us < x.Us {
				x = y
			}
		}
	}
	g := groups(r.Class, x.Queued, x.LikelyUs)
	eps := p.eps(r.ClassName, r.Priority)
	us := x.LikelyUs
	wide := g[2:]
	if x.ByClass { // another class waits for others: its errors say less of this one's than other octaves do
		g[1], g[2] = g[2], g[1]
		wide = []errorGroup{g[1], g[3]}
	}
	q, upper := p.ratios(g[:]), us
	if e, ok := p.Estimate.(fuller); ok && q == nil {
		full, err := e.FullTTFT(r, v, target)
		if err != nil {
			return Decision{}, err
		}
		upper = math.Max(us, full.Us)
	}
	d := Decision{Admit: true, Queued: x.Queued, RawUs: us, PredictedUs: x.Us * p.quantile(q, median),
		P90Us: upper * p.quantile(q, 0.9), BoundUs: upper * p.careful(q, wide, 1-eps)}
	if d.MeetShare = math.NaN(); q != nil && r.SLOTTFTUs > 0 {
		d.MeetShare = q.share((float64(r.SLOTTFTUs) - float64(r.WaitedUs)) / us)
	}
	cold := p.Floor.arrives(r, v.NowUs)
	if r.Priority >= criticalPriority || r.SLOTTFTUs == 0 || d.BoundUs+float64(r.WaitedUs) <= float64(r.SLOTTFTUs) {
		return d, nil
	}
	standard := upper*p.careful(q, wide, 1-p.eps("standard", 0)) + float64(r.WaitedUs)
	cost := float64(max(1, r.PromptTokens-v.CachedTokens(r, target)))
	open := !x.ByClass || !p.Floor.rests(v.NowUs)
	switch {
	case open && cold && p.StandardUs > 0 && standard <= float64(p.StandardUs) && p.Floor.pays(v, cost):
		d.Reason = reasonColdStart
	case open && p.Floor.owes(r) && p.Floor.pays(v, cost):
		p.Floor.charge(r)
		d.Reason = reasonFloor
	default:
		d.Admit, d.Reason = false, reasonPredicted
	}
	return d, nil
}

// fuller is an estimator that knows how long it takes when the request's own step is as
// full as it may be: what bounds go by before anything is known of errors or arrivals.
type fuller interface {
	FullTTFT(r *Request, v *View, instance int) (estimate, error)
}

// watcher is an estimator that follows the steps of engines.
type watcher interface {
	FirstToken(r *Request, v *View, instance int, atUs int64)
}

// Seen learns how far the estimate was off.
func (p *predictive) Seen(r *Request, v *View, d *Decision, instance int, atUs, tookUs int64) {
	if o, ok := p.Estimate.(watcher); ok {
		o.FirstToken(r, v, instance, atUs)
	}
	if d.Reason != "" && p.Floor != nil {
		p.Floor.seen(r, atUs, tookUs)
	}
	if !(d.RawUs > 0) {
		return
	}
	if p.seen == nil {
		p.seen = map[errorGroup]*ratios{}
	}
	for _, g := range groups(r.Class, d.Queued, d.RawUs) {
		if p.seen[g] == nil {
			p.seen[g] = &ratios{}
		}
		p.seen[g].add(float64(tookUs) / d.RawUs)
	}
}

// median of observed / estimated is what an estimate is corrected by.
const median = 0.5

// enough ratios replace the prior.
const enough = 30

// ratios are those of the narrowest group of which enough were seen, nil: of none.
func (p *predictive) ratios(list []errorGroup) *ratios {
	for _, g := range list {
		if s := p.seen[g]; s != nil && len(s.sorted) >= enough {
			return s
		}
	}
	return nil
}

// careful is the larger quantile of those by octave and of those of all octaves: where
// seats fill, longer estimates than before are off as late ones of other octaves are.
func (p *predictive) careful(narrow *ratios, all []errorGroup, level float64) float64 {
	if wide := p.ratios(all); wide != nil {
		return math.Max(p.quantile(narrow, level), wide.quantile(level))
	}
	return p.quantile(narrow, level)
}

// quantile is of ratios, else the prior.
func (p *predictive) quantile(s *ratios, level float64) float64 {
	switch {
	case s != nil:
		return s.quantile(level)
	case p.Prior != nil:
		return p.Prior(level)
	}
	return 1
}

// kept is how many ratios of a group count.
const kept = 512

// ratios are the last observed / estimated of a group.
type ratios struct {
	ring   [kept]float64
	next   int
	sorted []float64
}

func (s *ratios) add(x float64) {
	if len(s.sorted) == kept {
		at, _ := slices.BinarySearch(s.sorted, s.ring[s.next])
		s.sorted = slices.Delete(s.sorted, at, at+1)
	}
	s.ring[s.next] = x
	s.next = (s.next + 1) % kept
	at, _ := slices.BinarySearch(s.sorted, x)
	s.sorted = slices.Insert(s.sorted, at, x)
}

// quantile is the ceil((n+1)*level)-th smallest, as conformal prediction has it.
func (s *ratios) quantile(level float64) float64 {
	n := len(s.sorted)
	k := int(math.Ceil(float64(n+1) * level))
	return s.sorted[min(n, max(1, k))-1]
}

// share is that of ratios up to x.
func (s *ratios) share(x float64) float64 {
	n, _ := slices.BinarySearch(s.sorted, math.Nextafter(x, math.Inf(1)))
	return float64(n) / float64(len(s.sorted))
}

// Floor lets in a share of every prefix group, and the first requests of a new one
// on easier terms, out of one budget of tokens.
type Floor struct {
	Share       float64 // of a group's arrivals
	BudgetShare float64 // of the prompt tokens served lately

	groups  map[uint64]*owed
	tokens  float64
	atUs    int64
	missed  int   // of those it let in, since one met its target
	untilUs int64 // how long it rests where all it let in lately missed
}

// owed is what a group may claim.
type owed struct {
	credit  float64
	firstUs int64
	count   int
}

// A group's first coldRequests within coldUs are judged as standard; credit does not
// grow beyond maxCredit requests; unspent budget is kept for keptUs of its rate. Where engines
// go by priority, inVain misses without a hit between close the floor for restUs.
const (
	coldRequests = 5
	coldUs       = 60_000_000
	maxCredit    = 5
	keptUs       = 1_000_000
	inVain       = 3
	restUs       = 20_000_000
)

// arrives notes an arrival of the group and reports whether it is one of its first.
func (f *Floor) arrives(r *Request, nowUs int64) (cold bool) {
	if f == nil || r.Try > 0 {
		return false
	}
	if f.groups == nil {
		f.groups = map[uint64]*owed{}
	}
	g := f.groups[r.Prefix]
	if g == nil {
		g = &owed{firstUs: nowUs}
		f.groups[r.Prefix] = g
	}
	g.count++
	g.credit = math.Min(maxCredit, g.credit+f.Share)
	return r.Prefix != 0 && g.count <= coldRequests && nowUs-g.firstUs <= coldUs
}

func (f *Floor) owes(r *Request) bool {
	return f != nil && f.groups[r.Prefix] != nil && f.groups[r.Prefix].credit >= 1
}

func (f *Floor) rests(nowUs int64) bool { return f != nil && f.missed >= inVain && nowUs < f.untilUs }

// seen learns when a request that it let in got its first token.
func (f *Floor) seen(r *Request, atUs, tookUs int64) {
	if f.missed, f.untilUs = f.missed+1, atUs+restUs; r.WaitedUs+tookUs <= r.SLOTTFTUs {
		f.missed = 0
	}
}

func (f *Floor) charge(r *Request) { f.groups[r.Prefix].credit-- }

// pays takes tokens from the budget, if they are there.
func (f *Floor) pays(v *View, tokens float64) bool {
	if f == nil {
		return false
	}
	perUs := f.BudgetShare * v.Ledger.ServedPerS(v.NowUs) / 1e6
	f.tokens = math.Min(f.tokens+perUs*float64(v.NowUs-f.atUs), math.Max(perUs*keptUs, tokens))
	f.atUs = v.NowUs
	if f.tokens < tokens {
		return false
	}
	if f.tokens -= tokens; f.missed >= inVain { // one at a time tries whether it may open again
		f.untilUs = v.NowUs + restUs
	}
	return true
}

// estimate is how long from now the first token of a request takes.
type estimate struct {
	forecast.TTFT
	Queued  bool // others are served before it
	ByClass bool // better classes are: what it waits for depends on its own
}

// estimator estimates for a request on an instance.
type estimator interface {
	TTFT(r *Request, v *View, instance int) (estimate, error)
}

// Rollout plays the instance forward on what the gateway knows.
type Rollout struct {
	Engines     []*forecast.Engine // by instance; instances may share one
	ByPriority  bool               // engines serve better classes first
	IgnoreCache bool               // a control: nothing counts as cached

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
	own := forecast.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	if o.IgnoreCache {
		own.CachedTokens = 0
	}
	a := &v.Ledger.Of[i]
	mean := v.Ledger.MeanOutputs()
	s := forecast.State{Decodes: a.Decodes, DecodeTokens: a.DecodeToks + int64(float64(a.Decodes)*mean/2), OutputTokens: mean,
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
func (o *Rollout) take(e *forecast.Engine, v *View, i int, head partly, untilUs int64, s *forecast.State) (next int64) {
	room, seats := e.Room(s.Decodes)
	o.taken = append(o.taken[:0], make([]part, len(v.Ledger.Classes))...)
	s.StepTokens = 0
	s.StepRequests = 0
	next = -1
	add := func(class int, todo, done int64) {
		n := min(todo-done, room)
		s.StepTokens += n
		room = room - n
		seats = seats - 1
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
func (o *Rollout) ahead(r *Request, v *View, i int, s *forecast.State) {
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

// expect says what will come to instance i while the request waits: prompts at the
// rate of late, in all and of better classes.
func expect(s *forecast.State, r *Request, v *View, i int, byPriority bool) {
	s.ComingPerS, s.ComingPrompt = v.Ledger.Inbound(i, v.NowUs)
	if byPriority {
		s.BetterPerS, s.BetterPrompt = v.Ledger.Better(r.Priority, v.NowUs)
	}
}

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

// live estimates from what the engines hide: a control that shows what perfect
// knowledge of the present would be worth. Lengths still to come are the true ones.
type live struct {
	Engines    []*forecast.Engine // with the coefficients that drive the engines
	ByPriority bool

	engines []sim.Server // of one rank each
	reqs    []sim.Request
}

// TTFT is predict's rollout over the true state.
func (l *live) TTFT(r *Request, v *View, i int) (estimate, error) {
	own := forecast.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	e := l.engines[i].(*sim.Engine)
	in := l.engines[i].Inside()
	s := forecast.State{FreeBlocks: in.FreeBlocks, SinceStepUs: math.NaN()}
	expect(&s, r, v, i, l.ByPriority)
	if in.StepStartUs >= 0 {
		s.SinceStepUs = float64(v.NowUs - in.StepStartUs)
	}
	remaining := int64(0)
	e.Each(func(w sim.Work) {
		switch left := w.Prompt - w.Computed; {
		case w.Running && w.InStep > 0 && w.Outputs == 0:
			s.StepTokens += w.InStep
			if left <= 0 {
				s.StepRequests++
				break
			}
			fallthrough
		case !w.Running || left > 0:
			if own := l.reqs[r.Index].Priority; !l.ByPriority || w.Running || w.Priority <= own {
				s.AheadRequests += 1
				s.AheadTokens += max(1, left)
			} else {
				s.BehindTokens += max(1, left)
			}
		default:
			s.Decodes += 1
			s.DecodeTokens += w.Computed
			remaining += w.Remaining
		}
	})
	if s.Decodes > 0 {
		s.OutputTokens = math.Max(1, float64(remaining)/float64(s.Decodes))
	}
	x, err := l.Engines[i].TTFT(&s, &own)
	return estimate{x, s.AheadTokens > 0, l.ByPriority}, err
}

// trees estimate TTFT with the forest of a predictor file, on the columns of a
// router's view; a column that no view can know is unknown.
type trees struct {
	model   *forest.Evaluated
	columns []column
	x       []float64
	Outside int // estimates outside what the forest was trained on
}

// column reads one column off the view of an instance.
type column func(r *Request, v *View, i int) float64

// newTrees takes the TTFT target of a predictor file.
func newTrees(p *forest.Predictor) (*trees, error) {
	m := p.Target("ttft_ms")
	if m == nil {
		return nil, specErrorf("predictor: got no target ttft_ms, want one")
	}
	full := false // columns beyond llm-d's change what two of llm-d's mean
	for _, c := range m.Columns {
		full = full || c.Name == "own_uncached_tokens"
	}
	t := &trees{model: m, x: make([]float64, len(m.Columns))}
	for _, c := range m.Columns {
		read := columns[c.Name]
		switch {
		case full && c.Name == "num_request_running":
			read = batchSize
		case full && c.Name == "decode_tokens_in_flight":
			read = decodeTokens
		case read == nil:
			read = func(*Request, *View, int) float64 { return math.NaN() }
		}
		t.columns = append(t.columns, read)
	}
	return t, nil
}

// TTFT is the forest's estimate.
func (t *trees) TTFT(r *Request, v *View, i int) (estimate, error) {
	for k, read := range t.columns {
		t.x[k] = read(r, v, i)
	}
	ms, outside := t.model.Predict(t.x)
	if outside {
		t.Outside++
	}
	return estimate{TTFT: forecast.TTFT{Us: ms * 1e3, LikelyUs: ms * 1e3}, Queued: v.Snapshots[i].QueueDepth > 0}, nil
}

func batchSize(_ *Request, v *View, i int) float64 {
	return float64(v.Snapshots[i].BatchSize)
}

func decodeTokens(_ *Request, v *View, i int) float64 {
	a := &v.Ledger.Of[i]
	return float64(a.DecodeToks) + float64(a.Decodes)*v.Ledger.MeanOutputs()/2
}

// prefixScore is the share of the prompt that is expected in the cache.
func prefixScore(r *Request, v *View, i int) float64 {
	return float64(v.CachedTokens(r, i)) / float64(r.PromptTokens)
}

// columns of a predictor's rows that a view knows, by name (docs/predictor.md).
var columns = map[string]column{
	"is_queued": func(_ *Request, v *View, i int) float64 {
		return math.Min(1, float64(v.Snapshots[i].QueueDepth))
	},
	"kv_cache_percentage":      func(_ *Request, v *View, i int) float64 { return v.Snapshots[i].KVUsage() },
	"input_token_length":       func(r *Request, _ *View, _ int) float64 { return float64(r.PromptTokens) },
	"num_request_waiting":      func(_ *Request, v *View, i int) float64 { return float64(v.Snapshots[i].QueueDepth) },
	"num_request_running":      func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].InFlight) },
	"prefill_tokens_in_flight": func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].All.Tokens) },
	"decode_tokens_in_flight":  zero,
	"encoder_matched_size":     zero,
	"encoder_input_size":       zero,
	"num_tokens_generated":     zero,
	"pod_type_cat":             zero,
	"prefix_cache_score":       prefixScore,
	"effective_input_tokens": func(r *Request, v *View, i int) float64 {
		return (1 - prefixScore(r, v, i)) * float64(r.PromptTokens)
	},
	"prefill_score_bucket": func(r *Request, v *View, i int) float64 {
		return math.Min(3, math.Floor(4*prefixScore(r, v, i)))
	},
	"own_uncached_tokens": func(r *Request, v *View, i int) float64 {
		return float64(max(1, r.PromptTokens-v.CachedTokens(r, i)))
	},
	"tokens_waiting_ahead": func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].All.Tokens) },
	"requests_ahead":       func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].All.Requests) },
	"decode_batch":         func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].Decodes) },
	"mean_context": func(r *Request, v *View, i int) float64 {
		return decodeTokens(r, v, i) / math.Max(1, float64(v.Ledger.Of[i].Decodes))
	},
	"free_blocks": func(_ *Request, v *View, i int) float64 { return float64(v.Snapshots[i].FreeBlocks) },
	"recent_prompt_tokens_per_s": func(_ *Request, v *View, i int) float64 {
		return v.Ledger.Of[i].inbound.tokens.perSecond(v.NowUs)
	},
	"mean_output_tokens": func(_ *Request, v *View, _ int) float64 {
		if m := v.Ledger.MeanOutputs(); m > 0 {
			return m
		}
		return math.NaN()
	},
}

func zero(*Request, *View, int) float64 { return 0 }
