package vllm

// This file reads the settings by which an engine is spread over devices.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// RedundantExperts returns how many experts of a layer EPLB stores twice.
func (e *Engine) RedundantExperts() int64 {
	if e.Extra["enable_eplb"] != true {
		return 0
	}
	n, ok := Number(e.Object("eplb_config")["num_redundant_experts"])
	if !ok { // a flag of its own up to 0.11
		n, _ = Number(e.Extra["num_redundant_experts"])
	}
	return max(0, int64(math.Min(n, MaxDevices)))
}

// EPLBInterval returns the number of forward passes between two rebalancings of experts; 0: none.
func (e *Engine) EPLBInterval() int64 {
	if e.Extra["enable_eplb"] != true {
		return 0
	}
	if n, ok := Number(e.Object("eplb_config")["step_interval"]); ok && n >= 1 {
		return trace.Int(math.Trunc(n))
	}
	return 3000 // vLLM's default (vllm/config/parallel.py: EPLBConfig.step_interval)
}
