package deploy

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// GPUs are those of all ranks and stages.
func (d *Deployment) GPUs() int64 {
	p := d.Parallel()
	return p.TP * p.PP * p.DP
}

// Parallel is how the deployment spreads its model.
func (d *Deployment) Parallel() model.Parallel {
	e := &d.Engine
	p := model.Parallel{TP: max(1, d.TP), PP: max(1, d.PP), DP: max(1, d.DP), Experts: e.ExpertParallel, Redundant: e.RedundantExperts(),
		OneGroup: e.Extra["disable_hybrid_kv_cache_manager"] == true, NoPrefixes: !e.PrefixCaching}
	p.Release, _ = e.Release()
	backend := strings.ToUpper(fmt.Sprint(e.Extra["attention_backend"], e.Extra["attention_config"]))
	p.Block, p.PlainCache = e.BlockSize, strings.Contains(backend, "FLASHINFER_MLA_SPARSE_DSV4")
	if s, err := e.Speculation(); err == nil && s != nil {
		p.Drafts, p.MTP = s.Tokens, s.Method == "mtp"
	}
	return p
}

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
