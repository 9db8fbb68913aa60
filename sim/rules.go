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
	e.pp = max(1, d.PP)
	e.setDepth()
	e.cadence = cadence{interval: e.rules.PrefillInterval, lastPrefill: -e.rules.PrefillInterval}
	if spec != nil {
		e.spec = newSpeculation(e, spec)
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

// cadence holds prefills back while others decode (prefill_schedule_interval): no
// prefill until so many executed steps have passed since the last with one, or, among
// ranks in lockstep, but in every so many iterations of the wave.
type cadence struct {
	interval    int64
	shared      bool  // ranks in lockstep count their iterations instead
	executed    int64 // steps with tokens
	lastPrefill int64 // of them, the last with a prefill
	bound       bool  // the last step that could admit left requests waiting for capacity
	hold        bool  // in the step being formed
	chunks      bool  // the step being formed goes on with a prompt
	admits      bool  // it begins one
}

// begins decides whether the step about to be formed holds prefills back.
func (c *cadence) begins(running []*seq, iteration int64) {
	c.hold, c.chunks, c.admits = false, false, false
	if c.interval <= 1 || c.bound || !c.shared && c.executed+1-c.lastPrefill >= c.interval || c.shared && iteration%c.interval == 0 {
		return
	}
	for _, s := range running {
		if !s.chunk {
			c.hold = true
			return
		}
	}
}

// ends counts the step.
func (c *cadence) ends(tokens int64) {
	if tokens > 0 {
		c.executed++
	}
	if c.chunks || c.admits {
		c.lastPrefill = c.executed
	}
}

// prefillThreshold is the step's long_prefill_token_threshold, 0 = off.
func (e *Engine) prefillThreshold() int64 {
	n := e.longPrefill
	if n == 0 || !e.rules.ThresholdNotAlone {
		return n
	}
	requests := int64(len(e.running) + e.waits())
	if requests <= 1 {
		return 0
	}
	if e.rules.ThresholdAdaptive {
		n = max(n, e.cfg.Deployment.Engine.MaxNumBatchedTokens/requests)
	}
	return n
}

// queue is the one whose head is served next.
func (e *Engine) next() *waitQueue {
	if e.front.len() > 0 {
		return &e.front
	}
	return &e.waiting
}

// skip passes a waiting request over in this step.
func (e *Engine) skip(s *seq) {
	e.skipped = append(e.skipped, s)
	if !s.deferred {
		s.deferred = true
		e.deferred++
	}
}

// undefer forgets that s was passed over: it runs or has left.
func (e *Engine) undefer(s *seq) {
	if s.deferred {
		s.deferred = false
		e.deferred--
	}
}

// putBack returns the requests passed over in this step to where their release keeps
// them, the first of them first.
func (e *Engine) putBack() {
	for i := range e.skipped {
		s := e.skipped[len(e.skipped)-1-i]
		holds := s.computed > 0 || s.status == statusLoading || s.status == statusParked
		if e.rules.SkippedFirst && !e.byPriority || e.rules.HoldersFirst && holds {
			e.front.prepend(s)
		} else {
			e.waiting.prepend(s)
		}
	}
	clear(e.skipped)
	e.skipped = e.skipped[:0]
}

// unqueue takes a waiting request out wherever it is.
func (e *Engine) unqueue(s *seq) {
	e.waiting.remove(s)
	if e.front.len() > 0 {
		e.front.remove(s)
	}
}
