package vllm

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Transfers names the connector of disaggregated prefill that the server was started with, "" for none.
func (e *Engine) Transfers() string {
	if e.Object("kv_transfer_config")["kv_connector"] == PullConnector {
		return PullConnector
	}
	return ""
}

// OffloadSettings is what the offloading connector was told.
func (e *Engine) OffloadSettings() map[string]any {
	extra, _ := e.Object("kv_transfer_config")["kv_connector_extra_config"].(map[string]any)
	return extra
}

// Offload is how the CPU tier is kept, as the connector was told.
type Offload struct {
	Arc, PromptOnly   bool    // eviction_policy, else lru; offload_prompt_only
	Blocks, Threshold int64   // of a chunk; store_threshold, 0 or 1: any
	Tracked           int64   // max_tracker_size: chunks that store_threshold counts, the last used
	SyncBytes         float64 // of a step's loads inside it, per GPU
	LMCache, Parks    bool    // LMCache instead, in the engine's process or (Parks) a server of its own
	Decodes           bool    // save_decode_cache: chunks of outputs too
	Policy            string  // cache_policy: lru, fifo, lfu or mru
	Fewest            int64   // min_retrieve_tokens
	Bytes             float64 // max_local_cpu_size, per GPU
}

// Offload reads them with the release's defaults.
func (e *Engine) Offload() Offload {
	extra := e.OffloadSettings()
	n := func(key string, since int) int64 {
		if v, _ := Number(extra[key]); e.IsSince(Release{0, since}) {
			return trace.Int(v)
		}
		return 0
	}
	if name := e.Object("kv_transfer_config")["kv_connector"]; name == LMCache || name == LMCacheServer {
		gib, _ := Number(cmp.Or(extra["lmcache.max_local_cpu_size"], any(5)))
		return Offload{LMCache: true, Parks: name == LMCacheServer, Decodes: extra["lmcache.save_decode_cache"] == true,
			Policy: strings.ToLower(fmt.Sprint(cmp.Or(extra["lmcache.cache_policy"], any("lru")))), Bytes: gib * (1 << 30),
			Blocks: max(1, cmp.Or(n("lmcache.chunk_size", 0), 256)/max(1, e.BlockSize)), Fewest: n("lmcache.min_retrieve_tokens", 0)}
	}
	return Offload{Arc: extra["eviction_policy"] == "arc", Threshold: n("store_threshold", 18),
		Tracked:    cmp.Or(n("max_tracker_size", 18), 64_000),
		Blocks:     max(1, n("block_size", 0)/max(1, e.BlockSize), n("blocks_per_chunk", 26)),
		PromptOnly: extra["offload_prompt_only"] != false && e.IsSince(Release{0, 23}), SyncBytes: float64(n("sync_load_budget_bytes", 33))}
}
