package sim

// This file makes the data-parallel ranks of a model with experts step together.

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/vllm"
)

// lockstep is the shared state of the data-parallel ranks of a model with experts
// (vllm/v1/engine/core.py: DPEngineCoreProc, 0.19.1 to 0.33.0). The experts are spread over all
// ranks, so each forward pass begins when every rank has reached it, and lasts as long as on the
// slowest rank. A rank that executed nothing in an iteration runs a dummy pass of one token and its
// drafts. A series of passes, called a wave, begins with a request and ends at a sync in which no
// rank has unfinished requests.
type lockstep struct {
	ranks     []*rank
	running   bool  // a wave is under way
	synced    int   // number of ranks that have reached the current sync
	isBusy    bool  // one of these ranks has unfinished requests
	endUs     int64 // end of the last pass
	passes    int64 // number of forward passes so far
	pauseUs   int64 // pause for rebalancing the experts
	every     int64 // number of passes between two rebalancings of the experts; 0 for none
	graphs    vllm.GraphSizes
	dummy     Batch          // batch of a rank without work
	group     features.Group // the ranks' batches in the pass that is about to begin
	syncEvery int64          // number of iterations between two syncs
	syncFirst bool           // the first iteration of a wave syncs too
}

// newLockstep returns the state of ranks with configuration cfg, without members; see join.
func newLockstep(cfg *Config) *lockstep {
	d := cfg.Deployment
	return &lockstep{
		pauseUs: cfg.EPLBPauseUs,
		every:   d.Engine.EPLBInterval(),
		graphs:  d.GraphSizes(),
		group:   features.Group{Ranks: float64(d.DP), Imbalance: max(1, cfg.ExpertImbalance)},
	}
}

// rank is one engine in a lockstep. The methods of a nil *rank describe an engine alone.
type rank struct {
	*lockstep
	e          *Engine
	forwards   []forward // passes that this rank has reached and others have not, oldest first
	iterations int64     // number of iterations in the current wave
	dummyUs    int64     // when its dummy pass ends
}

// forward is a forward pass that a rank has reached.
type forward struct {
	batch   Batch
	group   features.Group // what all ranks compute in the pass, memory for batch.Among
	readyUs int64          // when the rank has reached it
	us      int64          // time that the rank alone would need
	isDummy bool
}

// pendingUs is the end of a step whose forward pass not all ranks have reached yet.
const pendingUs = int64(math.MaxInt64)

// join adds engine e to the ranks and applies the settings of its vLLM release.
func (g *lockstep) join(e *Engine) {
	e.rank = &rank{lockstep: g, e: e}
	g.ranks = append(g.ranks, e.rank)
	g.syncFirst = e.rules.DPSyncFirst
	g.syncEvery = e.rules.DPSyncInterval
	if g.syncEvery == 0 { // the constant in core.py, which changed in the release of DPSyncFirst
		g.syncEvery = 32
		if g.syncFirst {
			g.syncEvery = 16
		}
	}
	drafts := int64(0)
	if e.spec != nil {
		drafts = e.spec.Tokens
	}
	const context, blocks, adds = 0, 1, 1
	g.dummy = Batch{}
	g.dummy.AddVerify(context, 1+drafts, blocks, adds)
	e.cadence = cadence{interval: e.rules.DPPrefillInterval, shared: true}
	e.quick = e.quick && e.depth == 1 && e.cadence.interval <= 1
	e.memo = e.memo && e.cadence.interval <= 1
}

// iteration returns the number of the rank's iteration in its wave; 0 for an engine alone.
func (r *rank) iteration() int64 {
	if r == nil {
		return 0
	}
	return r.iterations
}

// startWave starts a wave at atUs: every idle rank begins to run iterations.
func (g *lockstep) startWave(atUs int64) {
	g.running = true
	for _, r := range g.ranks {
		if r.e.phase == idle {
			r.e.phase = ready
			r.e.now = max(r.e.now, atUs)
		}
	}
}

// submit records that the rank has reached its next forward pass, with batch b.
func (r *rank) submit(b *Batch, isDummy bool) {
	f := forward{batch: *b, readyUs: r.e.now, isDummy: isDummy}
	if r.e.depth > 1 && !isDummy {
		f.readyUs += r.e.cfg.ScheduleUs
	}
	r.forwards = append(r.forwards, f)
}

// runReadyPasses runs the forward passes that all ranks have reached: each begins when its last
// rank is ready, and ends for all when the slowest rank does.
func (g *lockstep) runReadyPasses() error {
	for {
		startUs := g.endUs
		for _, r := range g.ranks {
			if len(r.forwards) == 0 {
				return nil
			}
			startUs = max(startUs, r.forwards[0].readyUs)
		}
		g.padBatches()
		slowestUs := int64(0)
		for _, r := range g.ranks {
			f := &r.forwards[0]
			f.group = g.group
			f.batch.Among = &f.group
			if g.group.Padded == 0 { // not padded: the rank computes its own tokens
				f.group.Padded = float64(f.batch.Tokens())
			}
			var err error
			if f.us, err = r.e.stepUs(&f.batch); err != nil {
				return err
			}
			slowestUs = max(slowestUs, f.us)
		}
		g.endUs = startUs + slowestUs
		g.passes++
		if g.every > 0 && g.passes%g.every == 0 {
			g.endUs += g.pauseUs
		}
		for _, r := range g.ranks {
			r.setPassEnd(g.endUs, slowestUs)
		}
	}
}

// padBatches sets in g.group how many tokens all ranks together and each rank (Padded) compute in the
// next pass. All ranks compute as many as the largest, padded to a captured CUDA graph. If one rank's
// batch is larger than any graph, each computes its own, and Padded is 0.
func (g *lockstep) padBatches() {
	tokens := 0.0
	padded := 0.0
	captured := g.graphs != nil
	for _, r := range g.ranks {
		n := float64(r.forwards[0].batch.Tokens())
		size, fits := g.graphs.Tokens(n)
		tokens += n
		padded = max(padded, size)
		captured = captured && fits
	}
	g.group.Tokens = tokens
	g.group.Padded = 0
	if captured {
		g.group.Tokens = padded * float64(len(g.ranks))
		g.group.Padded = padded
	}
}

// setPassEnd ends the rank's oldest pass at atUs. slowestUs is the time of the slowest rank, from
// which the rank's idle time follows.
func (r *rank) setPassEnd(atUs, slowestUs int64) {
	f := r.forwards[0]
	r.forwards = append(r.forwards[:0], r.forwards[1:]...)
	out := &r.e.out
	if f.isDummy {
		r.dummyUs = atUs
		out.DummySteps++
		return
	}
	out.BusyUs += slowestUs
	out.WaitedUs += slowestUs - f.us
	for i := range r.e.flight { // the oldest step without an end is that of the oldest pass
		if step := &r.e.flight[i]; step.end == pendingUs {
			step.end = atUs
			return
		}
	}
}

// endIteration ends an iteration of the rank. If the rank executed nothing during a wave, it runs a
// dummy pass (vllm/v1/engine/core.py: DPEngineCoreProc.run_busy_loop()).
func (r *rank) endIteration() error {
	e := r.e
	if e.executed {
		r.sync()
		return nil
	}
	if !e.unfinished() && !r.running { // between waves no dummy pass is needed
		e.phase = ready
		if len(e.flight) == 0 && len(e.inbox) == 0 && !e.hasWork() {
			e.phase = idle
		}
		return nil
	}
	e.pauseIfStuck()
	if !e.unfinished() && e.rules.LeavingIsWork && len(e.transfers.leaving) > 0 {
		e.pass(e.cfg.IdleSleepUs) // blocks kept for another server count as work, so vLLM pauses first
	}
	if e.obs != nil {
		e.obs.Step(&StepView{
			Batch:       Batch{StepID: e.step, StartUs: e.now, DecodeTokens: r.dummy.DecodeTokens},
			Dummy:       true,
			FreeBlocks:  e.pool.Free,
			TotalBlocks: e.pool.Total,
		})
	}
	e.phase = dummying
	r.dummyUs = pendingUs
	r.submit(&r.dummy, true)
	return r.runReadyPasses()
}

// sync counts an iteration of the rank and makes it ready for the next. In iterations in which vLLM
// asks all ranks for unfinished requests (core.py: _has_global_unfinished_reqs()), the rank instead
// waits until all others are there.
func (r *rank) sync() {
	r.e.phase = ready
	r.iterations++
	if r.iterations%r.syncEvery != 0 && !(r.syncFirst && r.iterations == 1) {
		return
	}
	r.e.phase = gathered
	g := r.lockstep
	g.isBusy = g.isBusy || r.e.unfinished()
	g.synced++
	if g.synced == len(g.ranks) {
		g.finishSync()
	}
}

// finishSync is called when all ranks have reached the sync. It continues the wave, or ends it if
// no rank has unfinished requests.
func (g *lockstep) finishSync() {
	atUs := int64(0)
	hasArrivals := false
	for _, r := range g.ranks {
		atUs = max(atUs, r.e.now)
		hasArrivals = hasArrivals || len(r.e.inbox) > 0
	}
	g.running = g.isBusy
	g.isBusy = false
	g.synced = 0
	for _, r := range g.ranks {
		e := r.e
		e.phase = ready
		e.skipTo(atUs)
		if g.running {
			continue
		}
		r.iterations = 0 // they count from the start of a wave
		if len(e.flight) == 0 && !e.hasWork() {
			e.phase = idle
		}
	}
	if !g.running && hasArrivals {
		g.startWave(atUs)
	}
}
