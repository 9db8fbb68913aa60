package sim

// This file delays prefills while other requests decode, where a flag of vLLM asks for it, and limits
// the prompt tokens of one request in a step.

// cadence implements prefill_schedule_interval, which delays prefills while other requests decode.
// An engine alone begins no prefill until interval steps have executed since the last one with a
// prefill (scheduler.py: schedule(), local_prefill_interval, since 0.33). Ranks in lockstep prefill
// only in every interval-th iteration of a wave (engine/core.py: _should_throttle_prefills(), since
// 0.24).
type cadence struct {
	interval    int64 // steps, or iterations of a wave; 0 and 1: no delays
	shared      bool  // among ranks in lockstep
	executed    int64 // steps with tokens so far: num_executed_steps
	lastPrefill int64 // the last of them with a prefill: last_prefill_step
	bound       bool  // the last step that could admit left requests waiting: prefill_capacity_bound
	hold        bool  // the step being formed delays prefills
	continues   bool  // the step being formed continues a prompt: prefill_scheduled
	admits      bool  // the step being formed begins a prompt: prefill_admitted
}

// begin decides whether the step about to be formed delays prefills. It does not if an interval
// has passed, or if no running request decodes.
func (c *cadence) begin(running []*seq, iteration int64) {
	c.hold = false
	c.continues = false
	c.admits = false
	if c.interval <= 1 || c.bound {
		return
	}
	isDue := c.executed+1-c.lastPrefill >= c.interval
	if c.shared {
		isDue = iteration%c.interval == 0
	}
	if isDue {
		return
	}
	for _, s := range running {
		if !s.chunk { // it decodes
			c.hold = true
			return
		}
	}
}

// end updates the counters after a step with a number of tokens was formed.
func (c *cadence) end(tokens int64) {
	if tokens > 0 {
		c.executed++
	}
	if c.continues || c.admits {
		c.lastPrefill = c.executed
	}
}

// prefillThreshold returns long_prefill_token_threshold for the step being formed, the most prompt
// tokens of one request; 0 for no limit. Since 0.31 it does not apply to a request alone, and may
// be raised to an equal share of max_num_batched_tokens.
func (e *Engine) prefillThreshold() int64 {
	n := e.longPrefill
	if n == 0 || !e.rules.ThresholdNotAlone {
		return n
	}
	requests := int64(len(e.running) + e.numWaiting())
	if requests <= 1 {
		return 0
	}
	if e.rules.ThresholdAdaptive {
		n = max(n, e.cfg.Deployment.Engine.MaxNumBatchedTokens/requests)
	}
	return n
}
