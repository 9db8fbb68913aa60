package vllm

// This file reads the settings of a tier of KV blocks in CPU memory, of vLLM itself or of LMCache.

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// KV connectors that are modelled.
const (
	PullConnector = "NixlConnector"      // disaggregated prefill: the decode server pulls the blocks
	LMCache       = "LMCacheConnectorV1" // LMCache in the engine's process
	LMCacheServer = "LMCacheMPConnector" // LMCache as a server of its own
)

// TierConnectors are the connectors of a CPU tier of KV blocks.
var TierConnectors = []string{"OffloadingConnector", LMCache, LMCacheServer}

// Transfers returns the connector of disaggregated prefill that the server was started with, "" for
// none.
func (e *Engine) Transfers() string {
	if e.Object("kv_transfer_config")["kv_connector"] == PullConnector {
		return PullConnector
	}
	return ""
}

// Offload has the settings of the CPU tier of KV blocks. The tier stores whole chunks.
type Offload struct {
	Blocks int64 // GPU blocks of a chunk

	// The offloading connector.
	Arc        bool    // eviction_policy arc; false: lru
	PromptOnly bool    // offload_prompt_only
	Threshold  int64   // store_threshold: lookups before a chunk is stored; 0 and 1: at once
	Tracked    int64   // max_tracker_size: the chunks that Threshold counts, least recently used first out
	SyncBytes  float64 // sync_load_budget_bytes: loads of a step that run inside it, per GPU

	// LMCache.
	LMCache bool
	Parks   bool    // LMCache runs as a server of its own: loads wait for it outside the step
	Decodes bool    // save_decode_cache: chunks of outputs are stored too
	Policy  string  // cache_policy: lru, fifo, lfu or mru
	Fewest  int64   // min_retrieve_tokens
	Bytes   float64 // max_local_cpu_size, per GPU
}

// OffloadSettings returns the connector's own settings, as given.
func (e *Engine) OffloadSettings() map[string]any {
	extra, _ := e.Object("kv_transfer_config")["kv_connector_extra_config"].(map[string]any)
	return extra
}

// Offload returns the settings of the CPU tier, with the defaults of the release
// (vllm/v1/kv_offload/cpu/spec.py) or of LMCache 0.5.6.
func (e *Engine) Offload() Offload {
	extra := e.OffloadSettings()
	// integer returns a setting; 0 where it is not given, or for a release before 0.since, which does not have it.
	integer := func(key string, since int) int64 {
		if !e.IsSince(Release{0, since}) {
			return 0
		}
		v, _ := Number(extra[key])
		return trace.Int(v)
	}
	blockSize := max(1, e.BlockSize)

	name := e.Object("kv_transfer_config")["kv_connector"]
	if name == LMCache || name == LMCacheServer {
		gib, _ := Number(cmp.Or(extra["lmcache.max_local_cpu_size"], any(5)))
		return Offload{
			LMCache: true,
			Parks:   name == LMCacheServer,
			Decodes: extra["lmcache.save_decode_cache"] == true,
			Policy:  strings.ToLower(fmt.Sprint(cmp.Or(extra["lmcache.cache_policy"], any("lru")))),
			Bytes:   gib * (1 << 30),
			Blocks:  max(1, cmp.Or(integer("lmcache.chunk_size", 0), 256)/blockSize),
			Fewest:  integer("lmcache.min_retrieve_tokens", 0),
		}
	}
	return Offload{
		Arc:        extra["eviction_policy"] == "arc",
		PromptOnly: extra["offload_prompt_only"] != false && e.IsSince(Release{0, 23}),
		Threshold:  integer("store_threshold", 18),
		Tracked:    cmp.Or(integer("max_tracker_size", 18), 64_000),
		Blocks:     max(1, integer("block_size", 0)/blockSize, integer("blocks_per_chunk", 26)),
		SyncBytes:  float64(integer("sync_load_budget_bytes", 33)),
	}
}
