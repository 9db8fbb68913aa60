package sim

// setRules resolves what the scheduler does from the deployment's release and flags.
func (e *Engine) setRules() (err error) {
	d := e.cfg.Deployment
	if e.rules, err = d.Engine.Rules(); err != nil {
		return err
	}
	spec, err := d.Engine.Speculation()
	if err != nil {
		return err
	}
	if n := e.rules.MaxNumActiveSeqs; n > 0 {
		e.maxSeqs = min(e.maxSeqs, n)
	}
	if r := &e.rules; r.MaxNumQueuedReqs+r.MaxNumQueuedTokens > 0 {
		_, servers := d.Balanced() // each counts its own tokens
		e.api = &apiLimits{mostReqs: r.MaxNumQueuedReqs, mostTokens: servers * r.MaxNumQueuedTokens}
	}
	e.pp = max(1, d.PP)
	e.setDepth()
	e.cadence = cadence{interval: e.rules.PrefillInterval, lastPrefill: -e.rules.PrefillInterval}
	if spec != nil {
		e.spec = newSpeculation(e, spec)
		e.ahead = e.spec.lookahead
	}
	return nil
}

// setDepth is vLLM's max_concurrent_batches: the pipeline's stages, and one more with
// asynchronous scheduling as far as the model runner can.
func (e *Engine) setDepth() {
	switch e.depth = e.pp; {
	case e.cfg.Async && e.rules.ModelRunnerV2:
		e.depth = e.pp + 1
	case e.cfg.Async && e.pp == 1:
		e.depth = 2
	}
	e.gpuFree = make([]int64, e.pp)
	d := &e.cfg.Deployment.Engine
	config, given := d.Extra["kv_transfer_config"].(map[string]any)
	e.defers = e.rules.DeferredFrees && e.depth > 1 && (d.CPUOffloading || given) && config["kv_role"] != "kv_producer"
}
