package sim

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
)

// allRanks are the engines of a data-parallel deployment behind their API servers: a scheduler
// and a KV cache for each. Those of a model with experts go in lockstep, see [lockstep];
// others are engines of their own.
type allRanks struct {
	engines []*Engine
	peers   *lockstep // nil: each for itself
	balance *balancer
	until   int64
	running *Engine // the one that runs, nil: none
}

// newRanks makes the idle ranks of cfg.Deployment at time 0. observe may be nil.
func newRanks(cfg Config, observe Observer, hooks Hooks) (*allRanks, error) {
	d := cfg.Deployment
	r := &allRanks{}
	if d.Model.IsMoE() {
		r.peers = newLockstep(&cfg)
	}
	left := hooks.Left
	hooks.Left = func(i int, atUs int64, res *RequestResult) {
		r.balance.left(i)
		left(i, atUs, res)
	}
	behind, _ := d.Balanced()
	for i := range d.DP {
		own, obs := cfg, observe
		own.Seed += i << 32
		if obs != nil {
			obs = &ofRank{obs, int(i)}
		}
		e, err := NewEngine(own, obs, hooks)
		if err != nil {
			return nil, err
		}
		if r.engines = append(r.engines, e); r.peers != nil {
			e.join(r.peers)
		}
		e.api = r.engines[i-i%behind].api
	}
	r.balance = newBalancer(d, r.engines[0].rules)
	return r, nil
}

// Arrive hands request i to the API at atUs, which sends it to a rank. RunTo(atUs) comes first, or nothing happens until then.
func (r *allRanks) Arrive(i int, q *Request, atUs int64) error {
	r.balance.publish(r.engines, atUs)
	return r.engines[r.balance.pick(i)].Arrive(i, q, atUs)
}

// RunTo is [Engine.RunTo] for all ranks, in the order of time.
func (r *allRanks) RunTo(untilUs int64) error {
	r.until = untilUs
	for {
		first := r.next()
		at := first.NextUs()
		if r.balance.publish(r.engines, min(at, r.until)); at >= r.until {
			return nil
		}
		r.running = first
		err := first.RunTo(at + 1)
		if r.running = nil; err != nil {
			return err
		}
	}
}

// next is the rank in which something happens next.
func (r *allRanks) next() *Engine {
	first := r.engines[0]
	for _, e := range r.engines[1:] {
		if e.NextUs() < first.NextUs() {
			first = e
		}
	}
	return first
}

// NextUs is when something happens next; math.MaxInt64: never.
func (r *allRanks) NextUs() int64 { return r.next().NextUs() }

// Yield is [Engine.Yield] for all ranks.
func (r *allRanks) Yield(atUs int64) {
	if r.until = min(r.until, atUs); r.running != nil {
		r.running.Yield(atUs)
	}
}

// Inside is [Engine.Inside], the ranks' sum.
func (r *allRanks) Inside() inside {
	sum := inside{StepStartUs: -1}
	for _, e := range r.engines {
		in := e.Inside()
		sum.Waiting += in.Waiting
		sum.Running += in.Running
		sum.StepStartUs = max(sum.StepStartUs, in.StepStartUs)
		sum.FreeBlocks += in.FreeBlocks
		sum.TotalBlocks += in.TotalBlocks
	}
	return sum
}

// Watch is [Engine.Watch]: content is findable while a rank has it.
func (r *allRanks) Watch(told func(atUs int64, hash uint64, stored bool)) {
	ranks := map[uint64]int{}
	for _, e := range r.engines {
		e.Watch(func(atUs int64, hash uint64, stored bool) {
			if ranks[hash]--; stored {
				ranks[hash] += 2
			}
			if n := ranks[hash]; n == 0 || stored && n == 1 {
				told(atUs, hash, stored)
			}
		})
	}
}

// Release is [Engine.Release], of the rank that has the blocks.
func (r *allRanks) Release(i int, atUs int64) { r.engines[r.RankOf(i)].Release(i, atUs) }

// RankOf is the rank that request i was sent to.
func (r *allRanks) RankOf(i int) int {
	of := int(r.balance.of[i])
	return r.balance.servers[of/r.balance.ranks].first + of%r.balance.ranks
}

// RankOf is 0 of an engine alone.
func (*Engine) RankOf(int) int { return 0 }

// Close ends the run: the sum of the ranks' results, which it holds too.
func (r *allRanks) Close() *Result {
	ranks := make([]*Result, len(r.engines))
	for i, e := range r.engines {
		ranks[i] = e.Close()
	}
	sum := Totals(ranks)
	sum.Ranks = ranks
	return sum
}

// counts are what adds up over engines.
func (r *Result) counts() []*int64 {
	return []*int64{&r.Steps, &r.EmptySteps, &r.DummySteps, &r.WaitedUs, &r.ScheduledTokens, &r.PrefillTokens, &r.DecodeTokens,
		&r.WastedTokens, &r.Verifies, &r.DraftTokens, &r.AcceptedTokens, &r.Preemptions, &r.HitTokens, &r.LookedUpTokens, &r.HitBlocks,
		&r.NewBlocks, &r.StoredBlocks, &r.LoadedBlocks, &r.ClippedSteps, &r.ClippedDelays, &r.BusyUs, &r.Sent}
}

// Totals adds up what several engines counted; peaks are the largest, BusyUs the mean.
func Totals(engines []*Result) *Result {
	sum := &Result{}
	for _, e := range engines {
		of := e.counts()
		for k, to := range sum.counts() {
			*to += *of[k]
		}
		sum.EndUs = max(sum.EndUs, e.EndUs)
		sum.PeakRunning = max(sum.PeakRunning, e.PeakRunning)
		sum.PeakWaiting = max(sum.PeakWaiting, e.PeakWaiting)
		sum.PeakBlocks = max(sum.PeakBlocks, e.PeakBlocks)
		sum.Findings = append(sum.Findings, e.Findings...)
		if e.Gaps != nil {
			if sum.Gaps == nil {
				sum.Gaps = stat.NewHistogram()
			}
			sum.Gaps.Merge(e.Gaps)
		}
	}
	sum.BusyUs /= int64(max(1, len(engines)))
	return sum
}

// ofRank tells an observer which rank it sees.
type ofRank struct {
	Observer
	rank int
}

// Step passes a step on.
func (o *ofRank) Step(v *StepView) {
	v.Rank, v.Ranked = o.rank, true
	o.Observer.Step(v)
}

// lockstep is what the ranks of a model with experts share: experts are spread over all of
// them, so each forward pass begins when every rank has come to it and lasts as long as the
// slowest. A rank that executed nothing in an iteration runs a dummy of one token and its
// drafts. A wave of passes begins with a request and ends at a sync that finds nobody
// unfinished (v1/engine/core.py, DPEngineCoreProc, of vLLM 0.19.1 to 0.33.0).
type lockstep struct {
	cfg       *Config
	ranks     []*Engine
	running   bool // a wave is under way
	arrived   int  // ranks that have come to the sync under way
	busy      bool // and one of them has unfinished requests
	endUs     int64
	passes    int64             // forward passes so far
	pauseUs   int64             // of a rebalancing of experts
	every     int64             // passes from one to the next; 0: none
	graphs    deploy.GraphSizes // nil: no graphs
	dummy     Batch
	group     features.Group
	syncEvery int64
	syncFirst bool
}

func newLockstep(cfg *Config) *lockstep {
	d := cfg.Deployment
	return &lockstep{cfg: cfg, pauseUs: cfg.EPLBPauseUs, every: d.Engine.EPLBInterval(), graphs: d.GraphSizes(),
		group: features.Group{Ranks: float64(d.DP), Imbalance: max(1, cfg.ExpertImbalance)}}
}

// forward is a pass that a rank has come to.
type forward struct {
	batch   Batch
	group   features.Group
	readyUs int64
	us      int64 // that the rank itself needs
	dummy   bool
}

// pendingUs is when a pass ends whose ranks have not all come to it.
const pendingUs = int64(math.MaxInt64)

// join makes e one of the ranks in lockstep.
func (e *Engine) join(g *lockstep) {
	e.peers = g
	g.ranks = append(g.ranks, e)
	g.syncEvery = e.rules.DPSyncInterval
	g.syncFirst = e.rules.DPSyncFirst
	if g.syncEvery == 0 {
		if g.syncEvery = 32; g.syncFirst {
			g.syncEvery = 16
		}
	}
	k := int64(0)
	if e.spec != nil {
		k = e.spec.Tokens
	}
	g.dummy = Batch{}
	g.dummy.AddVerify(0, 1+k, 1, 1)
	e.cadence = cadence{interval: e.rules.DPPrefillInterval, shared: true}
	e.quick = e.quick && e.cadence.interval <= 1
}

// begins starts a wave: every rank goes on.
func (g *lockstep) begins(atUs int64) {
	g.running = true
	for _, e := range g.ranks {
		if e.phase == idle {
			e.phase, e.now = ready, max(e.now, atUs)
		}
	}
}

// submit notes that e has come to its next pass.
func (g *lockstep) submit(e *Engine, b *Batch, dummy bool) {
	f := forward{batch: *b, readyUs: e.now, dummy: dummy}
	if e.depth > 1 && !dummy {
		f.readyUs += e.cfg.ScheduleUs
	}
	e.forwards = append(e.forwards, f)
}

// runReadyPasses runs the passes that all ranks have come to.
func (g *lockstep) runReadyPasses() error {
	for {
		start, slowest := g.endUs, int64(0)
		for _, e := range g.ranks {
			if len(e.forwards) == 0 {
				return nil
			}
			start = max(start, e.forwards[0].readyUs)
		}
		g.pad()
		for _, e := range g.ranks {
			f := &e.forwards[0]
			f.batch.Among, f.group = &f.group, g.group
			if g.group.Padded == 0 {
				f.group.Padded = float64(f.batch.Tokens())
			}
			var err error
			if f.us, err = e.stepUs(&f.batch); err != nil {
				return err
			}
			slowest = max(slowest, f.us)
		}
		g.endUs = start + slowest
		if g.passes++; g.every > 0 && g.passes%g.every == 0 {
			g.endUs += g.pauseUs
		}
		for _, e := range g.ranks {
			e.ends(g.endUs, slowest)
		}
	}
}

// pad says how many tokens each rank computes: those of the largest rank, padded to a
// captured graph, or its own where one rank's batch is larger than any graph.
func (g *lockstep) pad() {
	tokens := 0.0
	padded := 0.0
	captured := g.graphs != nil
	for _, e := range g.ranks {
		n := float64(e.forwards[0].batch.Tokens())
		size, fits := g.graphs.Tokens(n)
		tokens += n
		padded = max(padded, size)
		captured = captured && fits
	}
	if g.group.Tokens, g.group.Padded = tokens, 0; captured {
		g.group.Tokens = padded * float64(len(g.ranks))
		g.group.Padded = padded
	}
}

// ends tells e when its oldest pass ends, and how long the slowest rank took.
func (e *Engine) ends(atUs, us int64) {
	dummy := e.forwards[0].dummy
	waitedUs := us - e.forwards[0].us
	e.forwards = append(e.forwards[:0], e.forwards[1:]...)
	if dummy {
		e.dummyUs = atUs
		e.out.DummySteps++
		return
	}
	e.out.BusyUs += us
	e.out.WaitedUs += waitedUs
	for i := range e.flight {
		if f := &e.flight[i]; f.end == pendingUs {
			f.end = atUs
			return
		}
	}
}

// endPass ends an iteration of a rank: a dummy where it executed nothing while a wave is under way.
func (e *Engine) endPass() error {
	switch g := e.peers; {
	case e.executed:
		g.sync(e)
		return nil
	case !e.unfinished() && !g.running:
		if e.phase = ready; len(e.flight) == 0 && len(e.inbox) == 0 && !e.hasWork() {
			e.phase = idle
		}
		return nil
	default:
		if e.pauseIfStuck(); !e.unfinished() && e.rules.LeavingIsWork && len(e.leaving) > 0 {
			e.pass(e.cfg.IdleSleepUs) // before its dummy: blocks that it keeps for another server are work
		}
		if e.obs != nil {
			e.obs.Step(&StepView{Batch: Batch{StepID: e.step, StartUs: e.now, DecodeTokens: g.dummy.DecodeTokens}, Dummy: true,
				FreeBlocks: e.pool.Free, TotalBlocks: e.pool.Total})
		}
		e.phase, e.dummyUs = dummying, pendingUs
		g.submit(e, &g.dummy, true)
		return g.runReadyPasses()
	}
}

// sync counts e's iteration. Where it is one that asks whether anybody is unfinished, e waits for all.
func (g *lockstep) sync(e *Engine) {
	e.phase = ready
	if e.iterations++; e.iterations%g.syncEvery != 0 && !(g.syncFirst && e.iterations == 1) {
		return
	}
	e.phase = gathered
	g.busy = g.busy || e.unfinished()
	if g.arrived++; g.arrived < len(g.ranks) {
		return
	}
	at, wakes := int64(0), false
	for _, e := range g.ranks {
		at = max(at, e.now)
		wakes = wakes || len(e.inbox) > 0
	}
	g.running = g.busy
	g.arrived = 0
	g.busy = false
	for _, e := range g.ranks {
		e.phase = ready
		if e.skipTo(at); g.running {
			continue
		}
		if e.iterations = 0; len(e.flight) == 0 && !e.hasWork() {
			e.phase = idle
		}
	}
	if !g.running && wakes {
		g.begins(at)
	}
}

// balancer sends requests to ranks as the API servers of vLLM do (v1/engine/core_client.py,
// DPLBAsyncMPClient, of 0.19.1 to 0.33.0): each server goes by the counts that the coordinator
// publishes every 100 ms and by what it has sent itself. Requests come to the servers in
// turn. With an external balancer each rank has a server of its own, with a hybrid one each node.
type balancer struct {
	rules       deploy.Rules
	ranks       int // behind one server
	servers     []apiServer
	next        int
	publishedUs int64
	of          []int32 // by request: its server and rank
}

// apiServer is what one server knows of its ranks.
type apiServer struct {
	first    int // of its ranks
	clients  int64
	start    int // where the scan begins, so that ties do not favour one rank
	counts   []rankCounts
	inFlight []int64 // requests that it has sent and that have not left
}

// rankCounts are a rank's as published.
type rankCounts struct {
	waiting, running int64
	usage            float64 // of the KV cache
}

// publishEveryUs is the coordinator's interval.
const publishEveryUs = 100_000

func newBalancer(d *deploy.Deployment, rules deploy.Rules) *balancer {
	b := &balancer{rules: rules, publishedUs: -1}
	ranks, clients := d.Balanced()
	b.ranks = int(ranks)
	for first := int64(0); first < d.DP; first += ranks {
		for k := range clients {
			b.servers = append(b.servers, apiServer{first: int(first), clients: clients, start: int(ranks * k / clients),
				counts: make([]rankCounts, ranks), inFlight: make([]int64, ranks)})
		}
	}
	return b
}

// publish tells all servers the counts of all ranks, where a moment of publishing has come up to atUs.
func (b *balancer) publish(ranks []*Engine, atUs int64) {
	tick := atUs / publishEveryUs * publishEveryUs
	if tick <= b.publishedUs {
		return
	}
	b.publishedUs = tick
	for k := range b.servers {
		s := &b.servers[k]
		for i := range s.counts {
			e := ranks[s.first+i]
			s.counts[i] = rankCounts{int64(e.waits()), int64(len(e.running)), 1 - float64(e.pool.Free)/float64(max(1, e.pool.Total))}
		}
	}
}

// pick is the rank of request i.
func (b *balancer) pick(i int) int {
	at := b.next
	b.next = (b.next + 1) % len(b.servers)
	s := &b.servers[at]
	best, least := 0, 0.0
	for k := range b.ranks {
		rank := (s.start + k) % b.ranks
		if score := s.score(rank, b.rules.BalancerInFlight); k == 0 || score < least {
			best, least = rank, score
		}
	}
	s.counts[best].waiting += s.clients
	s.inFlight[best]++
	if b.rules.BalancerRotates {
		s.start = (s.start + 1) % b.ranks
	}
	for len(b.of) <= i {
		b.of = append(b.of, 0)
	}
	b.of[i] = int32(at*b.ranks + best)
	return s.first + best
}

// score is a rank's load; the lowest gets the request.
func (s *apiServer) score(rank int, inFlight bool) float64 {
	c := &s.counts[rank]
	if !inFlight {
		return float64(4*c.waiting + c.running)
	}
	load := max(s.clients*s.inFlight[rank], c.waiting+c.running)
	return float64(load) + 6*float64(c.waiting)*max(0, c.usage-0.5)
}

// left forgets a request that has left.
func (b *balancer) left(i int) {
	if i < len(b.of) {
		b.servers[int(b.of[i])/b.ranks].inFlight[int(b.of[i])%b.ranks]--
	}
}
