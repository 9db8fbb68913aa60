package deploy

// This file refuses deployments that vLLM does not start with, or that the simulator does not model.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Transfer sets the connector of disaggregated prefill on an engine that states none, so that its
// release's scheduler rules for connectors apply.
func (d *Deployment) Transfer() {
	if d.Engine.Extra["kv_transfer_config"] == nil {
		d.Engine.Keep("kv_transfer_config", map[string]any{"kv_connector": vllm.PullConnector, "kv_role": "kv_both"})
	}
}

// CheckAlone returns an error for a server of disaggregated prefill that is simulated without the
// others. Code: unsupported_engine.
func (d *Deployment) CheckAlone() error {
	if name := d.Engine.Transfers(); name != "" {
		return trace.Errorf(vllm.UnsupportedEngine, "kv_transfer_config: got connector %q and one kind of engine, want prefill and decode "+
			"instances", name).
			WithHint("simulate --cluster FILE with instances: [{count: 1, role: prefill}, {count: 2, role: decode}]")
	}
	return nil
}

// maxRanks is the largest number of data-parallel engines of one simulation.
const maxRanks = 1024

// CheckSimulated returns an error for settings that vLLM refuses or that the simulator does not
// model. Codes: bad_knobs, unsupported_engine.
func (d *Deployment) CheckSimulated() error {
	s, err := d.Engine.Speculation()
	if err != nil {
		return err
	}
	refuse := func(what, hint string) error {
		return trace.Errorf(vllm.UnsupportedEngine, "%s", what).WithHint(hint)
	}
	if why := d.unplayed(); why != "" {
		return refuse(why, "trace or simulate a server with LMCache's CPU memory alone")
	}
	if why := d.contradiction(s); why != "" {
		return trace.Errorf(vllm.BadKnobs, "%s", why).WithHint("vLLM refuses it too")
	}
	switch {
	case d.DP > maxRanks:
		return trace.Errorf(vllm.UnsupportedEngine, "data_parallel_size: got %d, want at most %d", d.DP, maxRanks)
	case d.DP > 1 && d.PP > 1:
		return trace.Errorf(vllm.UnsupportedEngine, "pipeline_parallel_size: got %d with data_parallel_size %d, want 1 of one of them: "+
			"stages of several ranks are not modelled", d.PP, d.DP)
	case s == nil && d.Engine.SpeculativeDecoding:
		return refuse("speculative decoding: got no speculative_config, want method and num_speculative_tokens",
			"write vllm.speculative_config as the server was started with it")
	case s == nil:
		return nil
	case d.PP > 1 && !d.Engine.IsSince(draftsWithPPSince):
		return refuse("pipeline_parallel_size: got speculative decoding beside it, want 1 before vLLM 0.33",
			"vLLM refuses it too; set pipeline_parallel_size 1")
	case s.Rates == nil && s.Method != "suffix" && s.Method != "ngram" && s.Method != "ngram_gpu":
		return refuse("speculative_config: got no acceptance, want synthetic_acceptance_length or synthetic_acceptance_rates",
			"tokens per verify of a server: 1 + accepted/drafts of vllm:spec_decode_num_accepted_tokens_total and .._num_drafts_total")
	case s.Rates == nil:
		return refuse("speculative_config: got "+s.Method+" without an acceptance, want synthetic_acceptance_length or "+
			"synthetic_acceptance_rates", "what n-gram drafts accept depends on the text: take it from the counters of a server with the same text")
	case s.Method == "dflash" || s.Method == "dspark" || s.Method == "draft_model" && d.Drafter == nil:
		return refuse(fmt.Sprintf("speculative_config: got %s with the model %q, whose size is not known, want a built-in one, a folder with "+
			"its config.json, or eagle, eagle3, mtp, ngram or suffix", s.Method, s.Model),
			"built-in models: blis-train predict; a folder is looked up beside run.yaml")
	case s.Method == "draft_model" && !s.AnyVocabulary && d.Drafter.VocabSize != d.Model.VocabSize:
		return trace.Errorf(vllm.BadKnobs, "speculative_config.model: got %s with a vocabulary of %d tokens, want the %d of %s", s.Model,
			d.Drafter.VocabSize, d.Model.VocabSize, d.Model.ID).WithHint("vLLM refuses it too; use_heterogeneous_vocab allows it")
	}
	return nil
}

// objection is a condition under which a deployment is refused, and the error's text.
type objection struct {
	applies bool
	why     string
}

// upheld returns the text of the first objection whose condition is true, "" for none.
func upheld(all []objection) string {
	for _, o := range all {
		if o.applies {
			return o.why
		}
	}
	return ""
}

// allToAll are the back ends, of all releases, that exchange tokens between ranks.
var allToAll = strings.Fields(`naive pplx deepep_high_throughput deepep_low_latency deepep_v2 mori mori_high_throughput mori_low_latency moonep
	nixl_ep allgather_reducescatter flashinfer_all2allv flashinfer_nvlink_two_sided flashinfer_nvlink_one_sided passthrough`)

// contradiction returns the first combination of settings that vLLM refuses (vllm/config of
// 0.33.0), "" for none.
func (d *Deployment) contradiction(s *vllm.Speculation) string {
	e := &d.Engine
	drafts := vllm.Speculation{} // zeros without speculation
	sentence := fmt.Sprintf
	integerOf := func(from map[string]any, key string) int64 {
		v, _ := vllm.Number(from[key])
		return trace.Int(v)
	}
	if s != nil {
		drafts = *s
	}
	// The settings that take part in a combination, where they need more than a field of the
	// deployment.
	config := e.Object("kv_transfer_config")
	balancer := e.Object("eplb_config")
	tier := e.OffloadSettings() // of the KV cache in CPU memory
	policy := tier["eviction_policy"]
	tierBlock := integerOf(tier, "block_size") // tokens
	blocksPerChunk := tier["blocks_per_chunk"]
	backend, _ := e.Extra["all2all_backend"].(string)
	eplb := e.Extra["enable_eplb"] == true
	perRequest := e.Extra["per_request_spec_decode_metrics"]
	role := config["kv_role"]
	dp := max(1, d.DP)
	tokens := e.MaxNumBatchedTokens
	longest := d.MaxModelLen().Or(vllm.MaxTokens)
	longPrefill := e.LongPrefillThreshold
	localRanks := integerOf(e.Extra, "data_parallel_size_local")
	rank := integerOf(e.Extra, "data_parallel_rank")
	mostActive := integerOf(e.Extra, "max_num_active_seqs")
	redundant := integerOf(balancer, "num_redundant_experts")
	return upheld([]objection{
		{e.ExpertParallel && !d.Model.IsMoE(), model.NoExperts},
		{eplb && !e.ExpertParallel, "enable_eplb: got no enable_expert_parallel, want it with it"},
		{eplb && d.TP*dp < 2, "enable_eplb: got tensor_parallel_size 1 and data_parallel_size 1, want one of them larger"},
		{redundant > 0 && !eplb, sentence("eplb_config.num_redundant_experts: got %d, want enable_eplb with it", redundant)},
		{dp < 2 && e.Extra["data_parallel_external_lb"] == true, sentence("data_parallel_external_lb: got data_parallel_size %d, want 2 or more", dp)},
		{backend != "" && !slices.Contains(allToAll, backend),
			sentence("all2all_backend: got %q, want one of %s", backend, strings.Join(allToAll, ", "))},
		{localRanks > dp, sentence("data_parallel_size_local: got %d, want at most data_parallel_size %d", localRanks, dp)},
		{rank >= dp && dp > 1, sentence("data_parallel_rank: got %d, want less than data_parallel_size %d", rank, dp)},
		{d.PP > 1 && d.Model.NumLayers > 0 && d.PP > d.Model.NumLayers,
			sentence("pipeline_parallel_size: got %d, want at most the model's %d layers", d.PP, d.Model.NumLayers)},
		{!e.ChunkedPrefill && longest < vllm.MaxTokens && tokens < longest,
			sentence("max_num_batched_tokens: got %d, want at least max_model_len %d without chunked prefill", tokens, longest)},
		{tokens < e.MaxNumSeqs, sentence("max_num_batched_tokens: got %d, want at least max_num_seqs %d", tokens, e.MaxNumSeqs)},
		{mostActive > e.MaxNumSeqs, sentence("max_num_active_seqs: got %d, want at most max_num_seqs %d", mostActive, e.MaxNumSeqs)},
		{longPrefill > longest, sentence("long_prefill_token_threshold: got %d, want at most max_model_len %d", longPrefill, longest)},
		{(role != nil || config["kv_connector"] != nil) && role != "kv_producer" && role != "kv_consumer" && role != "kv_both",
			sentence("kv_transfer_config.kv_role: got %v, want kv_producer, kv_consumer or kv_both", role)},
		{perRequest != nil && perRequest != "none" && s == nil,
			sentence("per_request_spec_decode_metrics: got %v, want speculative_config with it", perRequest)},
		{e.AsyncScheduling.Or(false) && strings.HasPrefix(e.AsyncExcluded(), "drafts"),
			"async_scheduling: got true, want false with " + e.AsyncExcluded() + " in this release"},
		{drafts.TP > 1 && drafts.TP != d.TP,
			sentence("speculative_config.draft_tensor_parallel_size: got %d, want 1 or tensor_parallel_size %d", drafts.TP, d.TP)},
		{drafts.Method == "mtp" && drafts.Model == "" && !d.Model.Predicts(),
			sentence("speculative_config.method: got mtp, want a model with layers of multi-token prediction, which %s has not", d.Model.ID)},
		{policy != nil && policy != "lru" && (policy != "arc" || !e.IsSince(vllm.Release{0, 19})), sentence(
			"kv_connector_extra_config.eviction_policy: got %v, want lru, or arc from 0.19 on (0.15.1's fails at its first chunk)", policy)},
		{tierBlock%max(1, e.BlockSize) != 0 || tierBlock > 0 && blocksPerChunk != nil,
			sentence("kv_connector_extra_config.block_size: got %d, want a multiple of %d and no blocks_per_chunk beside it", tierBlock, e.BlockSize)},
		{blocksPerChunk != nil && integerOf(tier, "blocks_per_chunk") < 1, sentence("kv_connector_extra_config.blocks_per_chunk: got %v, want 1 or more", blocksPerChunk)},
		{tier["max_tracker_size"] != nil && integerOf(tier, "max_tracker_size") < 1,
			sentence("kv_connector_extra_config.max_tracker_size: got %v, want 1 or more", tier["max_tracker_size"])},
		{s != nil && tokens <= drafts.Lookahead(), sentence("max_num_batched_tokens: got %d, want more than the drafts of a request", tokens)},
	})
}

// lmCacheSettings are the settings of LMCache that the simulator models.
var lmCacheSettings = []string{"chunk_size", "max_local_cpu_size", "save_decode_cache", "cache_policy", "min_retrieve_tokens"}

// unplayed returns the first setting of LMCache (0.5.6) that the simulator does not model, "" for none.
func (d *Deployment) unplayed() string {
	e := &d.Engine
	sentence := fmt.Sprintf
	tier := e.Offload()
	extra := e.OffloadSettings()
	if !tier.LMCache {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		name, isLMCache := strings.CutPrefix(key, "lmcache.")
		// A setting that is off changes nothing. Of local_cpu, the tier in CPU memory that is simulated, on is what
		// changes nothing.
		isUnset := slices.Contains([]string{"<nil>", "false", "", "0"}, fmt.Sprint(extra[key]))
		changesNothing := isUnset != (name == "local_cpu")
		isOther := isLMCache && !strings.HasPrefix(name, "mp.") && !slices.Contains(lmCacheSettings, name)
		if (isOther || key == "use_native" || key == "skip_last_n_tokens") && !changesNothing {
			return sentence("kv_connector_extra_config.%s: got %v, want it left out: a tier in CPU memory is played, with %s", key, extra[key],
				strings.Join(lmCacheSettings, ", "))
		}
	}
	chunk := cmp.Or(extra["lmcache.chunk_size"], any(256)) // tokens; LMCache's default
	tokens, _ := vllm.Number(chunk)
	return upheld([]objection{
		{tokens < 1 || math.Mod(tokens, float64(max(1, e.BlockSize))) != 0,
			sentence("kv_connector_extra_config.lmcache.chunk_size: got %v, want a multiple of block_size %d", chunk, e.BlockSize)},
		{!slices.Contains([]string{"lru", "fifo", "lfu", "mru"}, tier.Policy),
			sentence("kv_connector_extra_config.lmcache.cache_policy: got %s, want lru, fifo, lfu or mru", tier.Policy)},
		{!(tier.Bytes > 0), sentence("kv_connector_extra_config.lmcache.max_local_cpu_size: got %g bytes, want more than 0", tier.Bytes)},
		{!e.CPUOffloading, "cpu_offloading: got false with LMCache, want true"},
		{tier.Parks && e.KVBlocksCPU <= 0, "kv_blocks_total_cpu: got 0, want the blocks that LMCache's server holds (its --l1-size-gb)"},
		{e.Object("kv_transfer_config")["kv_role"] != "kv_both", "kv_transfer_config.kv_role: got one side, want kv_both with LMCache"},
	})
}

// draftsWithPPSince is the first release whose model runner supports speculative decoding with pipeline
// stages.
var draftsWithPPSince = vllm.Release{0, 33}
