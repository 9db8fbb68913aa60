package sim

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
	c.hold = false
	c.chunks = false
	c.admits = false
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
