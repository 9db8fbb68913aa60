package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// newerCase is randomCase under another release, with what only newer engines do: drafts,
// pipeline stages, prompts from other servers, holds and headroom. Priorities are kept.
func newerCase(seed uint64) (Config, []Request) {
	cfg, reqs := randomCase(seed)
	rng := rand.New(rand.NewPCG(seed, 40))
	e := &cfg.Deployment.Engine
	e.VLLMVersion = []string{"0.15.1", "0.19.1", "0.23.0", "0.24.0", "0.26.0", "0.28.0", "0.31.0", "0.33.0"}[rng.IntN(8)]
	e.Extra = deploy.Values{}
	e.CPUOffloading = false
	switch rng.IntN(4) {
	case 0:
		k := 1 + rng.IntN(4)
		method := []string{"eagle3", "mtp", "ngram", "draft_model"}[rng.IntN(4)]
		e.Extra["speculative_config"] = map[string]any{"method": method, "num_speculative_tokens": k}
		e.MaxNumBatchedTokens += e.MaxNumSeqs
	case 1:
		cfg.Deployment.PP = int64(2 + rng.IntN(2))
	case 2: // before 0.31 loads that have arrived may wait for ever behind a request that thrashes
		e.VLLMVersion = []string{"0.31.0", "0.33.0"}[rng.IntN(2)]
		e.Extra["kv_transfer_config"] = map[string]any{"kv_connector": "NixlConnector"}
		for i := range reqs {
			reqs[i].RemotePrefill = rng.IntN(3) == 0
			reqs[i].RemoteDecode = !reqs[i].RemotePrefill && rng.IntN(6) == 0
			reqs[i].LoadUs, reqs[i].SendUs = rng.Int64N(3000), rng.Int64N(3000)
		}
	}
	if slow := rng.IntN(4) == 0; slow && len(e.Extra) == 0 && cfg.Deployment.PP <= 1 { // a CPU tier whose copies take a step or more
		e.CPUOffloading, e.PrefixCaching, e.KVBlocksCPU = true, true, 4+rng.Int64N(40)
		m := &cfg.Deployment.Model
		m.NumLayers, m.NumKVHeads, m.HeadDim, m.BytesPerKV = 1, 1, 100, 1
		cfg.Deployment.Hardware.PCIeBandwidthGBs, cfg.Deployment.Hardware.PCIeEfficiency = []float64{0.0005, 0.01, 10}[rng.IntN(3)], 1
		if name := []string{"", "LMCacheConnectorV1", "LMCacheMPConnector"}[rng.IntN(3)]; name != "" {
			e.PrefixCaching = rng.IntN(4) > 0
			e.VLLMVersion = []string{"0.15.1", "0.23.0", "0.31.0", "0.33.0"}[rng.IntN(4)] // between, two may preempt each other for ever
			e.Extra["kv_transfer_config"] = map[string]any{"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": map[string]any{
				"lmcache.chunk_size": e.BlockSize * (1 + rng.Int64N(3)), "lmcache.save_decode_cache": rng.IntN(2) == 0,
				"lmcache.cache_policy": []string{"LRU", "fifo", "lfu", "mru"}[rng.IntN(4)]}}
		}
	}
	if rng.IntN(4) == 0 {
		e.Extra["watermark"] = 0.1
	}
	if rng.IntN(4) == 0 {
		e.Extra["prefill_schedule_interval"] = 1 + rng.IntN(4)
	}
	if rng.IntN(4) == 0 {
		e.Extra["max_num_active_seqs"] = 1 + rng.IntN(int(e.MaxNumSeqs))
	}
	for i := range reqs {
		n := rng.IntN(8)
		for range n {
			reqs[i].Accepted = append(reqs[i].Accepted, uint8(rng.IntN(5)))
		}
	}
	return cfg, reqs
}

// verifies watches a run: what a verify scheduled is one token, the drafts it accepted (outputs
// it added) and those it rejected (tokens taken back from what was computed).
type verifies struct {
	open           []verify
	step           int64 // that is to land next
	seen, rejected int64
}

type verify struct {
	s                    *seq
	n, computed, outputs int64
}

func (w *verifies) look(t *testing.T, e *Engine) {
	if len(e.flight) > 0 && e.flight[0].step == w.step {
		w.open = w.open[:0] // not yet: what a later schedule() has added is part of its state
	} else {
		for _, v := range w.open {
			if v.s.status != statusRunning || v.s.outputs >= v.s.target {
				continue
			}
			accepted, rejected := v.s.outputs-v.outputs-1, v.computed-v.s.computed
			if w.seen, w.rejected = w.seen+1, w.rejected+rejected; v.n != accepted+rejected+1 || accepted < 0 || rejected < 0 {
				t.Errorf("step %d: %d tokens scheduled, %d accepted, %d rejected", w.step, v.n, accepted, rejected)
			}
		}
		w.open = w.open[:0]
	}
	if len(e.flight) == 0 {
		w.step = 0
		return
	}
	w.step = e.flight[0].step
	for _, it := range e.flight[0].items {
		s := it.s
		decodes := s.computed-max(s.flying, it.n) == s.tokens()-1 // it does not compute again what a preemption took
		if decodes && it.drafts > 0 && !it.fresh && s.status == statusRunning && !s.drains && int32(s.idx) == it.idx {
			w.open = append(w.open, verify{s, it.n, s.computed, s.outputs})
		}
	}
}

// Under every release: blocks are conserved over park, abort, flush and preemption, everybody
// leaves, and who finishes has exactly its tokens; a verify of n tokens is one token, the
// drafts it accepts and those it rejects; and first come, first served: nobody is admitted
// before one that was picked up earlier.
func TestNewerEnginesConserve(t *testing.T) {
	var seen, rejected int64
	defer func() {
		if t.Logf("%d verifies, %d drafts rejected", seen, rejected); rejected == 0 {
			t.Error("no verify was seen")
		}
	}()
	for seed := range uint64(cases(t)) {
		cfg, reqs := newerCase(seed)
		var engine *Engine
		watch := &verifies{}
		res := runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			engine = e
			if when == "iteration" {
				watch.look(t, e)
			}
			checkAllBlocks(t, e, when)
			for _, v := range e.visits {
				if v != nil && v.s != nil && (v.s.computed < 0 || v.s.inFlight < 0 || v.s.flying < 0 || v.s.stale < 0) {
					t.Errorf("%s: request %d: %+v", when, v.s.idx, *v.s)
				}
			}
			for i := range e.cur {
				if it := &e.cur[i]; when == "schedule" && int64(it.drafts) >= it.n && it.drafts > 0 {
					t.Errorf("step %d: %d drafts of %d tokens", e.step, it.drafts, it.n)
				}
			}
		})
		if engine != nil {
			checkAllFree(t, engine)
			if c := engine.cpu; c != nil && c.t1.Len()+c.t2.Len() > c.capacity {
				t.Errorf("%d chunks, want at most %d", c.t1.Len()+c.t2.Len(), c.capacity)
			}
		}
		seen, rejected = seen+watch.seen, rejected+watch.rejected
		checkOrder(t, &cfg, reqs, res.Requests)
		if res.AcceptedTokens > res.DraftTokens || res.DraftTokens > 0 && res.Verifies == 0 {
			t.Errorf("%d drafts, %d accepted in %d verifies", res.DraftTokens, res.AcceptedTokens, res.Verifies)
		}
		checkOutputs(t, &cfg, reqs, res.Requests)
		if t.Failed() {
			t.Fatalf("seed %d: vLLM %s: %+v", seed, cfg.Deployment.Engine.VLLMVersion, cfg.Deployment)
		}
	}
}

// checkAllBlocks checks that every block is free, or held by somebody inside or leaving.
func checkAllBlocks(t *testing.T, e *Engine, when string) {
	var held []*held
	for _, v := range e.visits {
		if v != nil && v.s != nil {
			held = append(held, &v.s.held)
		}
	}
	for _, s := range slices.Concat(e.leaving, e.fenced) {
		held = append(held, &s.held)
	}
	if err := e.pool.Check(held); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// checkOutputs checks that everybody has left, and who finished with its tokens.
func checkOutputs(t *testing.T, cfg *Config, reqs []Request, res []RequestResult) {
	for i := range res {
		r, q := &res[i], &reqs[i]
		want := min(q.OutputTokens, cfg.Deployment.Engine.MaxModelLen.V-q.PromptTokens)
		done := r.FinishStatus == trace.FinishStopped || r.FinishStatus == trace.FinishLength
		if r.Outcome == OutcomeUnfinished || done && r.OutputTokens != want {
			t.Errorf("request %d: %d tokens, want %d: %+v", i, r.OutputTokens, want, r)
		}
	}
}

// checkAllFree checks that an engine whose requests have left has its blocks back.
func checkAllFree(t *testing.T, e *Engine) {
	free, held := e.pool.Free, map[int32]bool{}
	for _, s := range e.leaving { // before 0.23 an idle engine does not look whether they were read
		if len(s.held.IDs) == 0 {
			free += s.held.N
		}
		for _, b := range s.held.IDs {
			held[b] = true
		}
	}
	if free+int64(len(held)) != e.pool.Total || e.rules.LeavingIsWork && len(e.leaving) > 0 {
		t.Errorf("%d of %d blocks free at the end", e.pool.Free, e.pool.Total)
	}
}

// From 0.22 on a finished request's blocks are free before they are copied to the CPU tier, and the
// step that takes one waits for the copy; before, who needs them waits for them to come free.
func TestCopiedBlocksAreFreeAtOnce(t *testing.T) {
	run := func(version string, gbs float64) (started, first int64) {
		d := testkit.Small(6, func(e *deploy.Engine) {
			e.VLLMVersion, e.BlockSize, e.PrefixCaching, e.CPUOffloading, e.KVBlocksCPU = version, 4, true, true, 40
		})
		cfg := DefaultConfig(d, &Blackbox{Beta: []float64{100, 0, 0}})
		cfg.Async = false
		d.Hardware.PCIeBandwidthGBs, d.Hardware.PCIeEfficiency = gbs, 1
		d.Model.NumLayers, d.Model.NumKVHeads, d.Model.HeadDim, d.Model.BytesPerKV = 1, 1, 100, 1
		res, err := Run(cfg, []Request{{PromptTokens: 8, OutputTokens: 1}, {PromptTokens: 23, OutputTokens: 1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &res.Requests[1]
		return r.ScheduledUs.V, r.FirstTokenUs.V - r.ScheduledUs.V
	}
	for _, c := range []struct {
		version string
		gbs     float64
		waits   bool // to be admitted
		flushes bool // in its step
	}{{"0.20.2", 0.001, true, false}, {"0.22.1", 0.001, false, true}, {"0.33.0", 0.001, false, true}, {"0.33.0", 1000, false, false}} {
		started, first := run(c.version, c.gbs)
		if started > 100 != c.waits || first > 100 != c.flushes {
			t.Errorf("vLLM %s, %g GB/s: admitted at %d us, first token %d us later, want waiting %t and %t", c.version, c.gbs, started, first,
				c.waits, c.flushes)
		}
	}
}

// checkOrder checks that requests are first admitted in the order of their pick-up.
func checkOrder(t *testing.T, cfg *Config, reqs []Request, res []RequestResult) {
	if e := &cfg.Deployment.Engine; e.SchedulingPolicy == "priority" || e.CPUOffloading { // who waits for a load is passed over
		return
	}
	for i := range res {
		for j := range res {
			a, b := &res[i], &res[j]
			if reqs[i].RemotePrefill || !b.ScheduledUs.OK || !a.QueuedUs.OK || a.QueuedStep >= b.QueuedStep {
				continue
			}
			if left := a.FinishedUs.OK && a.FinishedUs.V <= b.ScheduledUs.V; !left && (!a.ScheduledUs.OK || a.ScheduledStep > b.ScheduledStep) {
				t.Errorf("request %d was picked up in step %d and admitted in %d, request %d in %d and %d", i, a.QueuedStep, a.ScheduledStep,
					j, b.QueuedStep, b.ScheduledStep)
			}
		}
	}
}
