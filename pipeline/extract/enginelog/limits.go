package enginelog

// This file finds steps and passes that run.yaml rules out, because a limit or the size of the KV
// cache is stated wrongly there.

import (
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// limitKeys are the keys of run.yaml that limit the requests and tokens of a step, and that of the
// KV blocks, which are equal in all steps.
var limitKeys = [...]string{"max_num_seqs", "max_num_batched_tokens", "kv_blocks_total_gpu"}

// kvBlocksKey is the place of the KV blocks in limitKeys.
const kvBlocksKey = 2

// Limits counts the steps or passes that are impossible by run.yaml.
type Limits struct {
	seen   int64
	stated [len(limitKeys)]int64 // 0: not stated
	beyond [len(limitKeys)]int64 // steps with another value
	most   [len(limitKeys)]int64 // the largest such value
}

// LimitsOf returns the limits of an engine as run.yaml states it.
func LimitsOf(e *vllm.Engine) Limits {
	return Limits{stated: [...]int64{e.MaxNumSeqs, e.MaxNumBatchedTokens, e.KVBlocksGPU.V}}
}

// See counts a step or pass with its requests, tokens and, where they are known, KV blocks.
func (l *Limits) See(values ...int64) {
	l.seen++
	for i, v := range values {
		isBeyond := v > l.stated[i] || i == kvBlocksKey && v != l.stated[i]
		if l.stated[i] > 0 && isBeyond {
			l.beyond[i]++
			l.most[i] = max(l.most[i], v)
		}
	}
}

// Findings returns the limits that the recording contradicts. what is the word for its steps.
func (l *Limits) Findings(what string) []trace.Finding {
	var out []trace.Finding
	for i, key := range limitKeys {
		if l.beyond[i] > 0 {
			out = append(out, trace.Findingf(source.CodeRunContradicted,
				"vllm.%s: run.yaml says %d, %d of %d %s have another number, up to %d",
				key, l.stated[i], l.beyond[i], l.seen, what, l.most[i]).About("vllm."+key))
		}
	}
	return out
}
