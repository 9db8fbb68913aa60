package library

// This file has the time that decodes take in an attention kernel which gives each sequence to one multiprocessor. Rows
// of the tables do not show it: their sequences are equally long, and no prompt runs beside them.

import (
	"math"
	"strings"
)

// multiprocessors has the number of multiprocessors of GPUs with 100 KB of shared memory each, where FlashAttention 2
// runs one block of threads per multiprocessor. A100 has room for two blocks and was not measured so.
var multiprocessors = map[string]float64{"L40S-48GB": 142, "RTX-PRO-6000-96GB": 188}

// FlashAttention 2 as vLLM calls it. In steps of decodes alone a block of threads reads one KV head of a sequence, for
// all query heads of the group. With fewer blocks than splitBelow for each multiprocessor a sequence is split between
// blocks (flash_attn: num_splits_heuristic() with twice the multiprocessors); otherwise the step waits for the longest
// sequence. In steps with prompts each query head has a block of its own that reads the KV head again, and computes a
// tile of which a decode fills one row.
const (
	splitBelow = 0.8 * 2
	// tileUs is the time of a tile in us per token of context and 128 elements of a head. The requests of
	// RTXPRO6000-Llama-3.1-8B-tp1 before the queue grows show it.
	tileUs = 0.031
)

// wholeSequences has the shape of a layer's attention on such a GPU, as far as one rank has it.
type wholeSequences struct {
	multiprocessors     float64
	queryHeads, kvHeads float64
	window              float64 // tokens; 0: full attention
	tileUs              float64 // per token
	readUs              float64 // in which one multiprocessor reads a token of a KV head, at its share of the bandwidth
}

// wholeSequences returns the attention of heads h whose rows (over requests and tokens) are of a kernel; nil for other
// kernels and GPUs. A request of the deployment is ratio requests of the rows, each of 1/ratio of its KV heads (see
// attention).
func (g *GPU) wholeSequences(h *heads, rows *grid, ratio float64, kernel string) *wholeSequences {
	n := multiprocessors[g.Hardware]
	if n == 0 || !strings.Contains(kernel, "flash_attn_fa2") {
		return nil
	}
	// The rows that read fastest, per token of context of one request, use the whole bandwidth of the GPU.
	usPerToken := math.Inf(1)
	for i, requests := range rows.x {
		c := rows.rows[i]
		last := len(c.x) - 1
		usPerToken = min(usPerToken, c.y[last]/(requests*c.x[last]))
	}
	return &wholeSequences{
		multiprocessors: n,
		queryHeads:      float64(h.query),
		kvHeads:         float64(h.kvHeads),
		window:          float64(h.window),
		tileUs:          tileUs * float64(h.dim) / 128,
		readUs:          usPerToken * ratio / float64(h.kvHeads) * n,
	}
}

// leastUs returns the time in us that the decodes of a batch take at least (spec#library-step).
func (w *wholeSequences) leastUs(in *state) float64 {
	within := func(context float64) float64 {
		if w.window > 0 {
			return min(context, w.window)
		}
		return context
	}
	switch {
	case in.prefills > 0: // a block of threads for each query head of each decode
		return in.decodes * w.queryHeads / w.multiprocessors * within(in.context) * w.tileUs
	case in.run*w.kvHeads >= splitBelow*w.multiprocessors: // sequences are not split
		return within(in.longest) * w.readUs
	}
	return 0
}
