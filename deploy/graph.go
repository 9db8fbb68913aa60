package deploy

import "math"

// MaxGraphTokens is the largest number of tokens a CUDA graph is captured for:
// twice max_num_seqs, at most 512 (vllm/config: max_cudagraph_capture_size).
func (e *Engine) MaxGraphTokens() int64 { return min(512, 2*e.MaxNumSeqs) }

// GraphTokens is the size of the CUDA graph that runs so many tokens: 1, 2, 4,
// multiples of 8 up to 256 and of 16 up to the largest (vllm/config/vllm.py,
// cudagraph_capture_sizes). Larger steps run as they are: captured is false.
func (e *Engine) GraphTokens(tokens float64) (padded float64, captured bool) {
	largest := float64(e.MaxGraphTokens())
	switch {
	case tokens > largest:
		return tokens, false
	case tokens <= 2:
		return tokens, true
	case tokens <= 4:
		return min(4, largest), true
	case tokens <= 256:
		return min(largest, 8*math.Ceil(tokens/8)), true
	}
	return min(largest, 16*math.Ceil(tokens/16)), true
}
