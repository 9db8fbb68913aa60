package deploy

// This file fills in what a command line or log leaves to vLLM's defaults.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/vllm"
)

// FillDefaults adds vLLM's defaults of max_num_seqs and max_num_batched_tokens on the draft's device
// (vllm/engine/arg_utils.py: get_batch_defaults(), for `vllm serve`): 1024 and 8192 on a device of
// 70 GiB and more that is not an A100, 256 and 2048 on others, 16384 tokens from 0.28 on with 160 GiB;
// twice as many with performance_mode throughput; no more sequences than tokens. A device without a
// datasheet gets none. A comment in run.yaml marks the values as defaults.
func (d *Draft) FillDefaults() {
	name, _ := d.Get("hardware.name").(string)
	sheet, ok := Datasheet(name)
	if !ok {
		return
	}
	const note = "vLLM's default on this device; check the server's start-up log"
	seqs, tokens := int64(256), int64(2048)
	if sheet.MemoryGB >= 70 && !strings.HasPrefix(sheet.Name, "A100") {
		seqs, tokens = 1024, 8192
		version, _ := d.Get("vllm.version").(string)
		if v, known := vllm.ParseRelease(version); known && !v.Before(vllm.LargerGraphsSince) && sheet.MemoryGB >= 160 {
			tokens = 16384
		}
	}
	if d.Get("vllm.performance_mode") == "throughput" {
		seqs, tokens = 2*seqs, 2*tokens
	}
	if d.Get("vllm.max_num_batched_tokens") == nil {
		if longest, ok := d.Get("vllm.max_model_len").(int64); ok && d.Get("vllm.enable_chunked_prefill") == false {
			tokens = max(tokens, longest)
		}
		d.SetNoted("vllm.max_num_batched_tokens", tokens, note)
	}
	if d.Get("vllm.max_num_seqs") == nil {
		if given, ok := d.Get("vllm.max_num_batched_tokens").(int64); ok && given > 0 {
			seqs = min(seqs, given)
		}
		d.SetNoted("vllm.max_num_seqs", seqs, note)
	}
}

// CountKVBlocks sets kv_blocks_total_gpu if a log states the size of the KV cache only in tokens. m
// is the model, whose groups of layers each allocate blocks of their own (spec#kv-groups); nil: all
// layers are assumed to be equal.
func (d *Draft) CountKVBlocks(m *model.Model) {
	if d.kvTokens == 0 || d.Get("vllm.kv_blocks_total_gpu") != nil {
		return
	}
	positive := func(path string, def int64) int64 {
		if n, ok := d.Get(path).(int64); ok && n > 0 {
			return n
		}
		return def
	}
	size := positive("vllm.block_size", vllm.DefaultBlockSize)
	pool := model.KVPool{Groups: []model.KVGroup{{Kind: model.TokenState, Block: size}}}
	note := fmt.Sprintf("%d tokens in blocks of %d", d.kvTokens, size)
	version, _ := d.Get("vllm.version").(string)
	release, _ := vllm.ParseRelease(version)
	if m != nil {
		if first := m.Layers().Layers[0].Mixer; first != nil && first.Kind == model.Compressed && version != "" && release.Before(model.WidestPagesSince) {
			return // these releases logged a size of other pages than they allocated
		}
		laidOut, ok := m.Layers().KVPool(model.Parallel{TP: positive("tensor_parallel_size", 1), PP: 1, DP: 1, Release: release}, size)
		if ok && len(laidOut.Groups) > 1 {
			pool = laidOut
			note = fmt.Sprintf("%d tokens of requests that draw blocks for %d groups of layers", d.kvTokens, len(laidOut.Groups))
		}
	}
	// Tokens of a request that may be in a step: with asynchronous scheduling those of two steps.
	inFlight := positive("vllm.max_num_batched_tokens", 0)
	if d.Get("vllm.async_scheduling") != false {
		inFlight *= 2
	}
	if blocks := pool.BlocksOf(d.kvTokens, positive("vllm.max_model_len", 0), inFlight, version); blocks > 1 {
		d.SetNoted("vllm.kv_blocks_total_gpu", blocks-1, note+", less the null block")
	}
}
