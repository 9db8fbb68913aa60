package vllm

// This file computes the batch sizes that an engine captures as CUDA graphs.

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Releases that changed which CUDA graphs are captured (vllm/config/vllm.py:
// _set_cudagraph_sizes()).
var (
	budgetGraphSince  = Release{0, 23} // captures max_num_batched_tokens itself where it is the cap
	LargerGraphsSince = Release{0, 28} // captures up to 1024 tokens on compute capability 10.x
	decodeGraphsSince = Release{0, 29} // captures uniform decode batches: requests times tokens of a verify
)

// The largest batch that is captured unless a flag sets it, in tokens.
const (
	mostGraphTokens             = 512
	mostGraphTokensCapability10 = 1024
)

// decodeTokens returns the query tokens of a request that decodes: one, and its drafts.
func (e *Engine) decodeTokens() int64 {
	k, _ := Number(e.Object("speculative_config")["num_speculative_tokens"])
	return 1 + max(0, int64(math.Min(k, 1<<20)))
}

// GraphSizes are the numbers of tokens for which CUDA graphs are captured, ascending.
type GraphSizes []int64

// GraphSizes returns the sizes that the engine's release captures with its flags: 1, 2, 4,
// multiples of 8 below 256 and of 16 from there, up to the least of twice max_num_seqs times the
// tokens of a verify, 512 (1024) and the token budget; from 0.29 on also those of uniform decode
// batches (vllm/config/vllm.py: _set_cudagraph_sizes()). capability10: the device has compute
// capability 10.x.
func (e *Engine) GraphSizes(capability10 bool) GraphSizes {
	if !e.CapturesGraphs() {
		return nil
	}
	tokensPerRequest := e.decodeTokens()
	largest := int64(mostGraphTokens)
	if capability10 && e.IsSince(LargerGraphsSince) {
		largest = mostGraphTokensCapability10
	}
	if sizes := e.statedGraphs(); len(sizes) > 0 {
		return slices.DeleteFunc(sizes, func(size int64) bool { return e.MaxNumBatchedTokens > 0 && size > e.MaxNumBatchedTokens })
	}
	most := min(largest, 2*e.MaxNumSeqs*tokensPerRequest)
	statedMost, _ := Number(e.graphSetting("max_cudagraph_capture_size"))
	isStated := statedMost >= 1
	if isStated {
		most = int64(statedMost)
	}
	budget := cmp.Or(max(0, e.MaxNumBatchedTokens), most) // a size beyond the tokens of a step is never used
	// Every size up to 32 for interactivity, then the grid, then the decode batches of newer releases.
	var sizes GraphSizes
	if e.Extra["performance_mode"] == "interactivity" {
		for i := range min(most, budget, 32) {
			sizes = append(sizes, i+1)
		}
	}
	sizes = sizes.appendGrid(min(most, budget), 1)
	if budget <= most && e.IsSince(budgetGraphSince) {
		sizes = append(sizes, budget)
	}
	if e.IsSince(decodeGraphsSince) && !isStated {
		for query, requests := range e.decodeTiers(tokensPerRequest) { // in any order: the sizes are sorted below
			sizes = sizes.appendGrid(min(requests, min(most, budget)/query), query)
			if requests*query <= min(most, budget) {
				sizes = append(sizes, requests*query)
			}
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// decodeTiers returns the largest uniform decode batch in requests, by the query tokens of a
// request (one and its drafts): that of query tokens or, with num_speculative_tokens_per_batch_size, one for each
// number of drafts.
func (e *Engine) decodeTiers(query int64) map[int64]int64 {
	s, err := e.Speculation()
	if err != nil || s == nil || s.ByBatchSize == nil {
		return map[int64]int64{query: e.MaxNumSeqs}
	}
	tiers := map[int64]int64{}
	for n := range e.MaxNumSeqs {
		tiers[1+s.TokensFor(n+1)] = n + 1
	}
	return tiers
}

// CapturesGraphs reports whether any step runs in a CUDA graph (vllm/config/vllm.py). Without compilation
// (optimization_level below 1, or a compilation mode below 3, VLLM_COMPILE) only graphs of a whole step are
// captured.
func (e *Engine) CapturesGraphs() bool {
	mode, _ := e.graphSetting("cudagraph_mode").(string)
	mode = strings.ToUpper(mode)
	most, isStated := Number(e.graphSetting("max_cudagraph_capture_size"))
	if e.Extra["enforce_eager"] == true || mode == "NONE" || e.graphSetting("use_cudagraph") == false || isStated && most < 1 {
		return false
	}
	isCompiled := true
	if level, isGiven := Number(e.Extra["compilation_config"]); isGiven && level < 3 { // a level alone, up to 0.11
		isCompiled = false
	}
	for key, least := range map[string]float64{"optimization_level": 1, "level": 3, "mode": 3} {
		if level, isGiven := Number(e.graphSetting(key)); isGiven && level < least {
			isCompiled = false
		}
	}
	return isCompiled || mode == "FULL" || mode == "FULL_DECODE_ONLY"
}

// GraphsOfDecodesOnly reports whether steps with prompts run without graphs (cudagraph_mode
// FULL_DECODE_ONLY).
func (e *Engine) GraphsOfDecodesOnly() bool {
	mode, _ := e.graphSetting("cudagraph_mode").(string)
	return strings.EqualFold(mode, "FULL_DECODE_ONLY")
}

// graphSetting returns the value of a flag, or of its namesake in compilation_config.
func (e *Engine) graphSetting(key string) any {
	if v := e.Extra[key]; v != nil {
		return v
	}
	return e.Object("compilation_config")[key]
}

// statedGraphs returns the sizes of --cudagraph-capture-sizes (--cuda-graph-sizes up to 0.12), nil
// where the flag is not given.
func (e *Engine) statedGraphs() (sizes GraphSizes) {
	list, _ := e.graphSetting("cudagraph_capture_sizes").([]any)
	before, _ := e.graphSetting("cuda_graph_sizes").([]any)
	for _, v := range slices.Concat(list, before) {
		if n, ok := Number(v); ok && n >= 1 && n <= MaxTokens {
			sizes = append(sizes, int64(n))
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// appendGrid returns the sizes with 1, 2, 4, multiples of 8 below 256 and of 16 from there, up to
// most, each times query.
func (g GraphSizes) appendGrid(most, query int64) GraphSizes {
	for n := int64(1); n <= most; {
		g = append(g, n*query)
		switch {
		case n < 4:
			n *= 2
		case n < 8:
			n = 8
		case n < 256:
			n += 8
		default:
			n += 16
		}
	}
	return g
}

// Tokens returns the size that a step of so many tokens is padded to. A step larger than every
// graph runs without one: then captured is false and its size is not changed.
func (g GraphSizes) Tokens(tokens float64) (padded float64, captured bool) {
	at, _ := slices.BinarySearch(g, trace.Int(math.Ceil(tokens)))
	if at == len(g) {
		return tokens, false
	}
	return float64(g[at]), true
}
