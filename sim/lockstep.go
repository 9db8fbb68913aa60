package sim

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
)

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
