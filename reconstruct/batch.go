package reconstruct

// This file has the rules of vLLM's scheduler that reconstruction needs: how a budget of tokens
// becomes chunks of prompts.

import (
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Budget is how many prompt tokens a step can still compute. vLLM's scheduler serves running
// requests first, so the decodes of the step are subtracted from max_num_batched_tokens before any
// new prompt (vllm/v1/core/sched/scheduler.py: schedule()).
type Budget struct {
	Left      int64 // tokens
	Threshold int64 // long_prefill_token_threshold: the longest chunk; 0 for no limit
	Chunked   bool  // chunked prefill; without it a prompt runs in one step
}

// budgetOf returns the budget for prompts in a step that runs so many decode tokens.
func budgetOf(e *vllm.Engine, decodes int64) Budget {
	return Budget{
		Left:      e.MaxNumBatchedTokens - decodes,
		Threshold: e.LongPrefillThreshold,
		Chunked:   e.ChunkedPrefill,
	}
}

// Chunk returns how many of the remaining tokens of a prompt the step can compute.
func (b *Budget) Chunk(remaining int64) int64 {
	if !b.Chunked {
		return remaining
	}
	if b.Threshold > 0 {
		remaining = min(remaining, b.Threshold)
	}
	return max(0, min(remaining, b.Left))
}

// Counts are the requests and tokens of one step as the engine labelled them.
type Counts struct {
	Prefills, PrefillTokens int64
	Decodes, DecodeTokens   int64
}

// FirstDecodes returns the largest number of prefills of a step that can be first decodes. An
// asynchronous engine schedules the first decode of a request before it has processed the first
// token, and therefore counts it as a prefill of one token. Each of them follows a prompt that
// ended in the step before; endedBefore is the number of those.
func (c Counts) FirstDecodes(endedBefore int64) int64 {
	return min(endedBefore, c.Prefills, c.PrefillTokens)
}

// Relabel returns the counts with n first decodes moved from the prefills to the decodes.
func (c Counts) Relabel(n int64) Counts {
	return Counts{
		Prefills:      c.Prefills - n,
		PrefillTokens: c.PrefillTokens - n,
		Decodes:       c.Decodes + n,
		DecodeTokens:  c.DecodeTokens + n,
	}
}

// MayCutPrompt reports whether the last prompt of a step may continue in the next step, because the
// step uses its whole budget. It does not know long_prefill_token_threshold, which cuts prompts
// too.
func (c Counts) MayCutPrompt(budget int64) bool {
	return c.Prefills > 0 && c.PrefillTokens+c.DecodeTokens >= budget
}

// CachedTokens returns how many prompt tokens of a request came from the prefix cache: the recorded
// number, 0 where the engine has no prefix cache, unknown otherwise (spec#cached-tokens).
func CachedTokens(recorded trace.Opt[int64], prefixCaching bool) trace.Opt[int64] {
	if !recorded.OK && !prefixCaching {
		return trace.Some(int64(0))
	}
	return recorded
}

// MaxCachedBlocks returns the largest number of KV blocks of a prompt that can come from the prefix
// cache. Only whole blocks can, and the last token is always computed, because the engine needs its
// logits (vllm/v1/core/kv_cache_manager.py: get_computed_blocks()).
func MaxCachedBlocks(promptTokens, blockSize int64) int64 {
	return max(0, promptTokens-1) / blockSize
}
