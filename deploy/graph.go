package deploy

import (
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Releases that changed which CUDA graphs are captured (vllm/config/vllm.py, _set_cudagraph_sizes).
var (
	budgetGraphSince   = [2]int{0, 23} // max_num_batched_tokens itself, where it is the cap
	largerGraphsSince  = [2]int{0, 28} // 1024 tokens on compute capability 10.x
	decodeGraphsSince  = [2]int{0, 29} // sizes of uniform decode batches: requests times tokens of a verify
	mostGraphTokens    = int64(512)
	mostGraphTokens100 = int64(1024)
)

// isSince reports whether the stated release is v or later; one that cannot be read is the newest.
func (e *Engine) isSince(v [2]int) bool {
	at, known := e.Release()
	return !known || !less(at, v)
}

// decodeTokens are the query tokens of one request that decodes: one and its drafts.
func (e *Engine) decodeTokens() int64 {
	config, _ := e.Extra["speculative_config"].(map[string]any)
	k, _ := number(config["num_speculative_tokens"])
	return 1 + max(0, int64(math.Min(k, 1<<20)))
}

// isBlackwell reports compute capability 10.x, by the device's name.
func (h *Hardware) isBlackwell() bool {
	name := aliasKey(h.Name)
	return strings.Contains(name, "b200") || strings.Contains(name, "b300")
}

// GraphSizes are the numbers of tokens that CUDA graphs are captured for, ascending.
type GraphSizes []int64

// GraphSizes are those of the stated release: 1, 2, 4, multiples of 8 below 256 and of 16
// from there, up to twice the seats times the tokens of a verify, 512 (1024) and the token
// budget; from 0.29 on also those of uniform decode batches. Simulator and kernel tables
// ask here alike.
func (d *Deployment) GraphSizes() GraphSizes {
	e := &d.Engine
	query, largest := e.decodeTokens(), mostGraphTokens
	if e.isSince(largerGraphsSince) && d.Hardware.isBlackwell() {
		largest = mostGraphTokens100
	}
	most, budget := min(largest, 2*e.MaxNumSeqs*query), e.MaxNumBatchedTokens
	if n, ok := number(e.Extra["max_cudagraph_capture_size"]); ok && n >= 1 {
		most = int64(n)
	}
	if budget <= 0 {
		budget = most
	}
	var sizes GraphSizes
	if e.Extra["performance_mode"] == "interactivity" {
		for n := range min(most, budget, 32) {
			sizes = append(sizes, n+1)
		}
	}
	sizes = sizes.grid(min(most, budget), 1)
	if budget <= most && e.isSince(budgetGraphSince) {
		sizes = append(sizes, budget)
	}
	if e.isSince(decodeGraphsSince) {
		seats := min(e.MaxNumSeqs, largest)
		sizes = sizes.grid(min(seats, min(most, budget)/query), query)
		if seats*query <= min(most, budget) {
			sizes = append(sizes, seats*query)
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
