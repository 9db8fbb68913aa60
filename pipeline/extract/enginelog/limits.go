package enginelog

import (
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// limitKeys are the knobs that bound the requests and tokens of a step, and the size of the KV cache, which is one number.
var limitKeys = [...]string{"max_num_seqs", "max_num_batched_tokens", "kv_blocks_total_gpu"}

// Limits count the steps or passes that run.yaml rules out.
type Limits struct {
	seen            int64
	stated, n, most [len(limitKeys)]int64 // stated 0: not
}

// LimitsOf are those of an engine as run.yaml states it.
func LimitsOf(e *vllm.Engine) Limits {
	return Limits{stated: [...]int64{e.MaxNumSeqs, e.MaxNumBatchedTokens, e.KVBlocksGPU.V}}
}

// See takes requests, tokens and, where they are known, KV blocks of a step or pass.
func (l *Limits) See(values ...int64) {
	l.seen++
	for i, v := range values {
		if l.stated[i] > 0 && (v > l.stated[i] || i == len(limitKeys)-1 && v != l.stated[i]) {
			l.n[i], l.most[i] = l.n[i]+1, max(l.most[i], v)
		}
	}
}

// Findings name what run.yaml contradicts.
func (l *Limits) Findings(what string) (out []trace.Finding) {
	for i, key := range limitKeys {
		if l.n[i] > 0 {
			out = append(out, trace.Findingf(source.CodeRunContradicted, "vllm.%s: run.yaml says %d, %d of %d %s have another number, up to %d", key,
				l.stated[i],
				l.n[i], l.seen, what, l.most[i]))
		}
	}
	return out
}
