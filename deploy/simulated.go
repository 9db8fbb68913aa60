package deploy

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

// draftKeys are the flags of speculative decoding.
var draftKeys = []string{"speculative_config", "speculative_model", "num_speculative_tokens", "spec_method", "spec_model", "spec_tokens"}

// WithoutDrafts is d without speculative decoding, as the steps of a log see it, whose passes count
// drafted tokens.
func (d *Deployment) WithoutDrafts() *Deployment {
	if !d.Engine.SpeculativeDecoding {
		return d
	}
	own := *d
	own.Engine.SpeculativeDecoding, own.Engine.Extra = false, maps.Clone(d.Engine.Extra)
	if e := &d.Engine; e.AsyncExcluded() != "" { // the method decides it
		own.Engine.AsyncScheduling = trace.Some(e.IsAsync())
	}
	for _, key := range draftKeys {
		delete(own.Engine.Extra, key)
	}
	return &own
}

// Plain is d as a step-time model sees it: without what only the schedule knows of,
// speculation and pipeline stages, and, unless it is one that adds up layers, the other ranks of
// a model with experts. A step of all stages takes as long as one without.
func (d *Deployment) Plain(layered bool) *Deployment {
	spreads := d.SpreadsExperts() && !layered
	if d.PP <= 1 && !d.Engine.SpeculativeDecoding && !spreads && d.Engine.Transfers() == "" {
		return d
	}
	own := *d.WithoutDrafts()
	own.PP = 1
	own.Engine.AsyncScheduling = d.Engine.AsyncScheduling
	if spreads {
		own.Engine.ExpertParallel, own.DP = false, 1
	}
	if own.Engine.Extra = maps.Clone(own.Engine.Extra); d.Engine.Transfers() != "" {
		delete(own.Engine.Extra, "kv_transfer_config")
	}
	return &own
}

// Transfer gives an engine without a connector that of disaggregated prefill: the rules of releases about connectors hold.
func (d *Deployment) Transfer() {
	if d.Engine.Extra["kv_transfer_config"] == nil {
		d.Engine.Keep("kv_transfer_config", map[string]any{"kv_connector": vllm.PullConnector, "kv_role": "kv_both"})
	}
}

// CheckAlone refuses one server of disaggregated prefill without the others. Code: unsupported_engine.
func (d *Deployment) CheckAlone() error {
	if name := d.Engine.Transfers(); name != "" {
		return trace.Errorf(vllm.UnsupportedEngine, "kv_transfer_config: got connector %q and one kind of engine, want prefill and decode "+
			"instances", name).
			WithHint("simulate --cluster FILE with instances: [{count: 1, role: prefill}, {count: 2, role: decode}]")
	}
	return nil
}

// SpreadsExperts reports whether the experts of a layer lie on several devices whole, or
// on those of several data-parallel ranks.
func (d *Deployment) SpreadsExperts() bool {
	return d.Model.IsMoE() && (d.DP > 1 || d.Engine.ExpertParallel)
}

// Balanced is how many data-parallel ranks stand behind one balancer of vLLM, and how many
// API servers share it: all ranks and as many servers, those of a node with a hybrid
// balancer, one with an external one (vllm/entrypoints/cli/serve.py of 0.33.0).
func (d *Deployment) Balanced() (ranks, servers int64) {
	e := &d.Engine
	ranks = max(1, d.DP)
	local, _ := vllm.Number(e.Extra["data_parallel_size_local"])
	switch {
	case e.Extra["data_parallel_external_lb"] == true || e.Extra["data_parallel_rank"] != nil:
		return 1, 1
	case (e.Extra["data_parallel_hybrid_lb"] == true || e.Extra["data_parallel_start_rank"] != nil) && local >= 1 && local < float64(ranks):
		ranks = int64(local)
	}
	if n, ok := vllm.Number(e.Extra["api_server_count"]); ok && n >= 1 && n <= vllm.MaxDevices {
		return ranks, int64(n)
	}
	return ranks, ranks
}

// maxRanks bounds the engines of one simulation.
const maxRanks = 1024

// CheckSimulated refuses combinations that vLLM refuses or that the simulator cannot
// play. Codes: bad_knobs, unsupported_engine.
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

// objection is words for what is wrong where it is.
type objection struct {
	is  bool
	why string
}

// upheld is the first objection that is there, "" for none.
func upheld(all []objection) string {
	for _, o := range all {
		if o.is {
			return o.why
		}
	}
	return ""
}

// allToAll are the back ends of all releases that exchange tokens between ranks.
var allToAll = strings.Fields(`naive pplx deepep_high_throughput deepep_low_latency deepep_v2 mori mori_high_throughput mori_low_latency moonep
	nixl_ep allgather_reducescatter flashinfer_all2allv flashinfer_nvlink_two_sided flashinfer_nvlink_one_sided passthrough`)

// contradiction is what vLLM refuses of knobs beside each other (vllm/config of 0.33.0), "" for nothing.
func (d *Deployment) contradiction(s *vllm.Speculation) string {
	e := &d.Engine
	drafts := vllm.Speculation{}
	say := fmt.Sprintf
	n := func(from map[string]any, key string) int64 {
		v, _ := vllm.Number(from[key])
		return trace.Int(v)
	}
	if s != nil {
		drafts = *s
	}
	config := e.Object("kv_transfer_config")
	balancer := e.Object("eplb_config")
	tier := e.OffloadSettings()
	policy := tier["eviction_policy"]
	size := n(tier, "block_size")
	chunk := tier["blocks_per_chunk"]
	backend, _ := e.Extra["all2all_backend"].(string)
	eplb := e.Extra["enable_eplb"] == true
	perRequest := e.Extra["per_request_spec_decode_metrics"]
	role := config["kv_role"]
	dp := max(1, d.DP)
	tokens := e.MaxNumBatchedTokens
	longest := d.MaxModelLen().Or(vllm.MaxTokens)
	threshold := e.LongPrefillThreshold
	local := n(e.Extra, "data_parallel_size_local")
	rank := n(e.Extra, "data_parallel_rank")
	active := n(e.Extra, "max_num_active_seqs")
	more := n(balancer, "num_redundant_experts")
	return upheld([]objection{
		{e.ExpertParallel && !d.Model.IsMoE(), model.NoExperts},
		{eplb && !e.ExpertParallel, "enable_eplb: got no enable_expert_parallel, want it with it"},
		{eplb && d.TP*dp < 2, "enable_eplb: got tensor_parallel_size 1 and data_parallel_size 1, want one of them larger"},
		{more > 0 && !eplb, say("eplb_config.num_redundant_experts: got %d, want enable_eplb with it", more)},
		{dp < 2 && e.Extra["data_parallel_external_lb"] == true, say("data_parallel_external_lb: got data_parallel_size %d, want 2 or more", dp)},
		{backend != "" && !slices.Contains(allToAll, backend),
			say("all2all_backend: got %q, want one of %s", backend, strings.Join(allToAll, ", "))},
		{local > dp, say("data_parallel_size_local: got %d, want at most data_parallel_size %d", local, dp)},
		{rank >= dp && dp > 1, say("data_parallel_rank: got %d, want less than data_parallel_size %d", rank, dp)},
		{d.PP > 1 && d.Model.NumLayers > 0 && d.PP > d.Model.NumLayers,
			say("pipeline_parallel_size: got %d, want at most the model's %d layers", d.PP, d.Model.NumLayers)},
		{!e.ChunkedPrefill && longest < vllm.MaxTokens && tokens < longest,
			say("max_num_batched_tokens: got %d, want at least max_model_len %d without chunked prefill", tokens, longest)},
		{tokens < e.MaxNumSeqs, say("max_num_batched_tokens: got %d, want at least max_num_seqs %d", tokens, e.MaxNumSeqs)},
		{active > e.MaxNumSeqs, say("max_num_active_seqs: got %d, want at most max_num_seqs %d", active, e.MaxNumSeqs)},
		{threshold > longest, say("long_prefill_token_threshold: got %d, want at most max_model_len %d", threshold, longest)},
		{(role != nil || config["kv_connector"] != nil) && role != "kv_producer" && role != "kv_consumer" && role != "kv_both",
			say("kv_transfer_config.kv_role: got %v, want kv_producer, kv_consumer or kv_both", role)},
		{perRequest != nil && perRequest != "none" && s == nil,
			say("per_request_spec_decode_metrics: got %v, want speculative_config with it", perRequest)},
		{e.AsyncScheduling.Or(false) && strings.HasPrefix(e.AsyncExcluded(), "drafts"),
			"async_scheduling: got true, want false with " + e.AsyncExcluded() + " in this release"},
		{drafts.TP > 1 && drafts.TP != d.TP,
			say("speculative_config.draft_tensor_parallel_size: got %d, want 1 or tensor_parallel_size %d", drafts.TP, d.TP)},
		{drafts.Method == "mtp" && drafts.Model == "" && !d.Model.Predicts(),
			say("speculative_config.method: got mtp, want a model with layers of multi-token prediction, which %s has not", d.Model.ID)},
		{policy != nil && policy != "lru" && (policy != "arc" || !e.IsSince(vllm.Release{0, 19})), say(
			"kv_connector_extra_config.eviction_policy: got %v, want lru, or arc from 0.19 on (0.15.1's fails at its first chunk)", policy)},
		{size%max(1, e.BlockSize) != 0 || size > 0 && chunk != nil,
			say("kv_connector_extra_config.block_size: got %d, want a multiple of %d and no blocks_per_chunk beside it", size, e.BlockSize)},
		{chunk != nil && n(tier, "blocks_per_chunk") < 1, say("kv_connector_extra_config.blocks_per_chunk: got %v, want 1 or more", chunk)},
		{tier["max_tracker_size"] != nil && n(tier, "max_tracker_size") < 1,
			say("kv_connector_extra_config.max_tracker_size: got %v, want 1 or more", tier["max_tracker_size"])},
		{s != nil && tokens <= drafts.Lookahead(), say("max_num_batched_tokens: got %d, want more than the drafts of a request", tokens)},
	})
}

// lmCacheSettings are those of LMCache that are played.
var lmCacheSettings = []string{"chunk_size", "max_local_cpu_size", "save_decode_cache", "cache_policy", "min_retrieve_tokens"}

// unplayed says what of LMCache is not played (lmcache 0.5.6), "" for nothing.
func (d *Deployment) unplayed() string {
	e, say := &d.Engine, fmt.Sprintf
	tier, extra := e.Offload(), e.OffloadSettings()
	if !tier.LMCache {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		name, own := strings.CutPrefix(key, "lmcache.")
		off := slices.Contains([]string{"<nil>", "false", "", "0"}, fmt.Sprint(extra[key])) != (name == "local_cpu")
		own = own && !strings.HasPrefix(name, "mp.") && !slices.Contains(lmCacheSettings, name)
		if (own || key == "use_native" || key == "skip_last_n_tokens") && !off {
			return say("kv_connector_extra_config.%s: got %v, want it left out: a tier in CPU memory is played, with %s", key, extra[key],
				strings.Join(lmCacheSettings, ", "))
		}
	}
	chunk := cmp.Or(extra["lmcache.chunk_size"], any(256))
	tokens, _ := vllm.Number(chunk)
	return upheld([]objection{
		{tokens < 1 || math.Mod(tokens, float64(max(1, e.BlockSize))) != 0,
			say("kv_connector_extra_config.lmcache.chunk_size: got %v, want a multiple of block_size %d", chunk, e.BlockSize)},
		{!slices.Contains([]string{"lru", "fifo", "lfu", "mru"}, tier.Policy),
			say("kv_connector_extra_config.lmcache.cache_policy: got %s, want lru, fifo, lfu or mru", tier.Policy)},
		{!(tier.Bytes > 0), say("kv_connector_extra_config.lmcache.max_local_cpu_size: got %g bytes, want more than 0", tier.Bytes)},
		{!e.CPUOffloading, "cpu_offloading: got false with LMCache, want true"},
		{tier.Parks && e.KVBlocksCPU <= 0, "kv_blocks_total_cpu: got 0, want the blocks that LMCache's server holds (its --l1-size-gb)"},
		{e.Object("kv_transfer_config")["kv_role"] != "kv_both", "kv_transfer_config.kv_role: got one side, want kv_both with LMCache"},
	})
}

// draftsWithPPSince is the first release whose model runner takes drafts and pipeline stages together.
var draftsWithPPSince = vllm.Release{0, 33}

// drafter is what a drafter adds to each GPU: bytes of weights that a pass of it reads, bytes of a KV block, and the
// passes of a step, one after the other; zeros without one on the GPU. EAGLE
// and MTP are taken as one layer and the LM head of the model. Estimates.
func (d *Deployment) drafter() (weights, block float64, passes int64) {
	s, err := d.Engine.Speculation()
	if err != nil || s == nil {
		return 0, 0, 0
	}
	if passes = s.Tokens; s.Parallel {
		passes = 1
	}
	p := d.Parallel()
	p.PP = 1
	p.MTP = false
	p.Drafts = 0
	m, share := d.Drafter, 1.0
	switch {
	case m != nil && s.Method == "draft_model":
		p.TP = cmp.Or(s.TP, p.TP)
		weights = m.Layers().WeightBytesPerGPU(p)
	case s.IsEagle():
		m = &d.Model
		share = 1 / float64(max(1, m.NumLayers))
		layers := m.Layers()
		table := p.BytesPerGPU(&layers.Embedding, nil)
		head, around := table, table // a tied table is one
		if !layers.Tied {
			head = p.BytesPerGPU(&layers.Head, nil)
			around += head
		}
		weights = (layers.WeightBytesPerGPU(p)-around)*share + head
	default:
		return 0, 0, 0
	}
	pool, _ := m.Layers().KVPool(p, d.Engine.BlockSize)
	return weights, pool.BlockBytes * share, passes
}

// DrafterUs is the time of one pass of the drafter that takes part in a step, us: reading its weights; 0 without a drafter
// on the GPU. passes is how many there are.
func (d *Deployment) DrafterUs() (passUs float64, passes int64) {
	weights, _, passes := d.drafter()
	if !(d.Hardware.BwPeakTBs > 0) {
		return 0, 0
	}
	return weights / (d.Hardware.BwPeakTBs * 1e6), passes
}

// estimated says which parts of a simulation rest on no measurement.
func (d *Deployment) estimated() (out []trace.Finding) {
	if us, passes := d.DrafterUs(); us > 0 {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: the drafter's time is an estimate: %d times %.0f us a step, its weights read "+
			"from memory, one layer and the LM head where it is no model of its own", d.Name, passes, us))
	}
	if d.PP > 1 {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: the %d pipeline stages are taken as equal parts of a step, what they send each "+
			"other as free", d.Name, d.PP))
	}
	if d.Engine.Transfers() != "" {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: unjudged: no server with prefill apart from decode was compared, and what "+
			"transfers take is as cluster.yaml says", d.Name))
	}
	if d.Engine.Offload().LMCache {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: unjudged: no server with LMCache was compared; it is taken as 0.5.6 with "+
			"the settings of kv_connector_extra_config: its configuration file and environment (LMCACHE_*) are not seen", d.Name))
	}
	if d.SpreadsExperts() && !d.Sums {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: unjudged: no public measurement of data-parallel attention with expert "+
			"parallelism stands behind these times; the experts' part of a step is computed from one engine's coefficients, and the "+
			"exchange between ranks (%.0f us for 1000 tokens) from the datasheet's link", d.Name, d.ExchangeUs(1000)))
	}
	return out
}

// ExchangeUs is how long the ranks of a model with experts take in a step to hand on the
// hidden states of so many tokens in all, and back, us: with all-gather and reduce-scatter,
// vLLM's default, every rank receives all others' tokens in each layer with experts; with an
// all-to-all back end a token goes to at most top-k ranks. 0 without ranks. An estimate.
func (d *Deployment) ExchangeUs(tokens float64) float64 {
	m, h := &d.Model, &d.Hardware
	if !m.IsMoE() || d.DP < 2 || !(h.InterconnectBandwidthGBs > 0) {
		return 0
	}
	ranks, received := float64(d.DP), tokens
	if backend, _ := d.Engine.Extra["all2all_backend"].(string); backend != "" && backend != "allgather_reducescatter" && backend != "naive" {
		received = tokens / ranks * math.Min(ranks, float64(m.TopK))
	}
	bytes := received * (ranks - 1) / ranks * float64(m.HiddenSize) * m.BytesPerActivation
	return 2 * float64(m.NumMoELayers) * (h.InterconnectLatencyUs + bytes/(h.InterconnectBandwidthGBs/2*1e3))
}
