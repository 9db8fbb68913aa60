package vllm

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Releases that changed which CUDA graphs are captured (vllm/config/vllm.py, _set_cudagraph_sizes).
var (
	budgetGraphSince   = Release{0, 23} // max_num_batched_tokens itself, where it is the cap
	LargerGraphsSince  = Release{0, 28} // 1024 tokens on compute capability 10.x
	decodeGraphsSince  = Release{0, 29} // sizes of uniform decode batches: requests times tokens of a verify
	mostGraphTokens    = int64(512)
	mostGraphTokens100 = int64(1024)
)

// decodeTokens are the query tokens of one request that decodes: one and its drafts.
func (e *Engine) decodeTokens() int64 {
	k, _ := Number(e.Object("speculative_config")["num_speculative_tokens"])
	return 1 + max(0, int64(math.Min(k, 1<<20)))
}

// GraphSizes are the numbers of tokens that CUDA graphs are captured for, ascending.
type GraphSizes []int64

// GraphSizes are those of the engine's release and flags; capability10 says that the device has compute capability 10.x.
func (e *Engine) GraphSizes(capability10 bool) GraphSizes {
	if !e.CapturesGraphs() {
		return nil
	}
	query := e.decodeTokens()
	largest := mostGraphTokens
	if capability10 && e.IsSince(LargerGraphsSince) {
		largest = mostGraphTokens100
	}
	if sizes := e.statedGraphs(); len(sizes) > 0 {
		return stat.Filter(sizes, func(n int64) bool { return n <= e.MaxNumBatchedTokens || e.MaxNumBatchedTokens <= 0 })
	}
	most := min(largest, 2*e.MaxNumSeqs*query)
	budget := e.MaxNumBatchedTokens
	n, stated := Number(e.graphSetting("max_cudagraph_capture_size"))
	if stated = stated && n >= 1; stated {
		most = int64(n)
	}
	budget = cmp.Or(max(0, budget), most)
	var sizes GraphSizes
	if e.Extra["performance_mode"] == "interactivity" {
		for n := range min(most, budget, 32) {
			sizes = append(sizes, n+1)
		}
	}
	sizes = sizes.grid(min(most, budget), 1)
	if budget <= most && e.IsSince(budgetGraphSince) {
		sizes = append(sizes, budget)
	}
	if e.IsSince(decodeGraphsSince) && !stated {
		for query, seats := range e.decodeTiers(query) {
			seats = min(seats, largest)
			sizes = sizes.grid(min(seats, min(most, budget)/query), query)
			if seats*query <= min(most, budget) {
				sizes = append(sizes, seats*query)
			}
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// decodeTiers are the seats of uniform decode batches by the tokens of a request: one tier, or those of
// num_speculative_tokens_per_batch_size.
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

// CapturesGraphs reports whether any step runs in a CUDA graph (vllm/config/vllm.py): without compilation only those do that
// hold a whole step.
func (e *Engine) CapturesGraphs() bool {
	mode, _ := e.graphSetting("cudagraph_mode").(string)
	mode = strings.ToUpper(mode)
	most, isStated := Number(e.graphSetting("max_cudagraph_capture_size"))
	if e.Extra["enforce_eager"] == true || mode == "NONE" || e.graphSetting("use_cudagraph") == false || isStated && most < 1 {
		return false
	}
	isPlain := false
	for key, compiled := range map[string]float64{"optimization_level": 1, "level": 3, "mode": 3} {
		level, ok := Number(e.graphSetting(key))
		isPlain = isPlain || ok && level < compiled
	}
	return !isPlain || mode == "FULL" || mode == "FULL_DECODE_ONLY"
}

// graphSetting is a flag that may also stand in compilation_config.
func (e *Engine) graphSetting(key string) any {
	if v := e.Extra[key]; v != nil {
		return v
	}
	return e.Object("compilation_config")[key]
}

// statedGraphs are the sizes of --cudagraph-capture-sizes (to 0.12 --cuda-graph-sizes), none where it is not given.
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

// grid appends 1, 2, 4, multiples of 8 below 256 and of 16 from there, up to most, each times query.
func (g GraphSizes) grid(most, query int64) GraphSizes {
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

// Tokens is the size that a step of so many tokens is padded to. Larger steps run as they
// are: captured is false.
func (g GraphSizes) Tokens(tokens float64) (padded float64, captured bool) {
	at, _ := slices.BinarySearch(g, trace.Int(math.Ceil(tokens)))
	if at == len(g) {
		return tokens, false
	}
	return float64(g[at]), true
}
