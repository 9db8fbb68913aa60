package sim

// This file derives the limits of an engine, such as max_num_seqs, from its deployment and release.

import (
	"math"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/vllm"
)

// limits are the limits of the deployment and of its vLLM release, computed once.
type limits struct {
	blockSize   int64 // tokens
	maxLen      int64 // tokens of a request: max_model_len
	maxSeqs     int64 // running requests: max_num_seqs, max_num_active_seqs
	budget      int64 // tokens of a step: vLLM's max_num_scheduled_tokens
	longPrefill int64 // long_prefill_token_threshold; 0: off
	watermark   int64 // blocks that an admission leaves free while requests are running, since 0.24
	depth       int64 // steps in flight at most: max_concurrent_batches
	pp          int64 // pipeline stages
	chunked     bool  // chunked prefill
	byPriority  bool  // scheduling policy priority; else fcfs

	rules   vllm.Rules    // behaviours that differ between releases of vLLM
	groups  model.KVUnits // for a model with layers of several kinds: in what the pool is counted
	reaches []model.Reach // windows of the model's attention layers without full attention
}

// setLimits computes the limits, and makes the optional parts of the engine that depend on nothing
// else.
func (e *Engine) setLimits() error {
	d := e.cfg.Deployment
	e.blockSize = d.Engine.BlockSize
	e.maxLen = d.MaxModelLen().Or(math.MaxInt64 / 4) // no limit; sums with it still fit into an int64
	e.maxSeqs = d.Engine.MaxNumSeqs
	e.budget = d.Engine.MaxNumBatchedTokens
	e.longPrefill = d.Engine.LongPrefillThreshold
	e.chunked = d.Engine.ChunkedPrefill
	e.byPriority = d.Engine.SchedulingPolicy == "priority"
	e.reaches = d.Reaches()
	e.groups = d.KVUnits()
	e.pp = max(1, d.PP)
	e.stageFree = make([]int64, e.pp)

	var err error
	if e.rules, err = d.Engine.Rules(); err != nil {
		return err
	}
	spec, err := d.Engine.Speculation()
	if err != nil {
		return err
	}
	r := &e.rules
	if r.MaxNumActiveSeqs > 0 {
		e.maxSeqs = min(e.maxSeqs, r.MaxNumActiveSeqs)
	}
	if r.MaxNumQueuedReqs+r.MaxNumQueuedTokens > 0 {
		_, servers := d.Balanced() // each server counts only its own requests
		e.api = &apiLimits{mostReqs: r.MaxNumQueuedReqs, mostTokens: servers * r.MaxNumQueuedTokens}
	}
	e.setDepth()
	e.cadence = cadence{interval: r.PrefillInterval, lastPrefill: -r.PrefillInterval} // the first may come at once
	if spec != nil {
		e.spec = newSpeculation(e, spec)
	}
	return nil
}

// setDepth sets the number of steps that may be in flight (vLLM's max_concurrent_batches,
// vllm/v1/executor/abstract.py): one for each pipeline stage, and with asynchronous scheduling one
// more if the model runner supports it. It also sets whether frees wait for a step's end.
func (e *Engine) setDepth() {
	e.depth = e.pp
	switch {
	case e.cfg.Async && e.rules.ModelRunnerV2:
		e.depth = e.pp + 1
	case e.cfg.Async && e.pp == 1:
		e.depth = 2
	}
	// Only a connector that writes into blocks (a consumer) could damage one that a step still uses.
	d := &e.cfg.Deployment.Engine
	config, given := d.Extra["kv_transfer_config"].(map[string]any)
	hasConsumer := (d.CPUOffloading || given) && config["kv_role"] != "kv_producer"
	e.frees.on = e.rules.DeferredFrees && e.depth > 1 && hasConsumer
}
