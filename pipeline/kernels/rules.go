package kernels

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Rules say how an engine puts kernels together.
type Rules string

// Engine is vLLM's own way; Composed that of the composed data sets, whose
// steps are sums of the same tables: custom all-reduce at every size, two per
// layer and none of the embedding; KV writes, embedding, sampling and the
// logits' gather in the host term.
const (
	Engine   Rules = "engine"
	Composed Rules = "composed"
)

// AllRules lists the rules, the default first.
func AllRules() []Rules { return []Rules{Engine, Composed} }

// Check refuses unknown rules.
func (r Rules) Check() error {
	if r != Engine && r != Composed {
		return trace.Errorf(UnknownRules, "rules: got %q, want %s", string(r), trace.OneOf(AllRules()))
	}
	return nil
}

// distribution is how tokens spread over experts, as the tables name it:
// routers trained for balance are still skewed.
const distribution = "power_law_1.2"

// maxCaptured is the largest number of tokens a CUDA graph is captured for:
// twice max_num_seqs, at most 512 (vllm/config: max_cudagraph_capture_size).
func maxCaptured(e *deploy.Engine) int64 { return min(512, 2*e.MaxNumSeqs) }

// padded is the size of the CUDA graph that runs the tokens: 1, 2, 4, multiples
// of 8 up to 256 and of 16 up to the largest captured (vllm/config/vllm.py,
// cudagraph_capture_sizes); larger steps run as they are.
func padded(tokens, captured float64) float64 {
	switch {
	case tokens > captured:
		return tokens
	case tokens <= 2:
		return tokens
	case tokens <= 4:
		return min(4, captured)
	case tokens <= 256:
		return min(captured, 8*math.Ceil(tokens/8))
	}
	return min(captured, 16*math.Ceil(tokens/16))
}

// clean is how the rules read a measured curve.
func (r Rules) clean(c *curve) *curve {
	if r == Engine {
		return c.envelope()
	}
	return c
}
