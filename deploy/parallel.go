package deploy

// This file states how a deployment is spread over devices.

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// GPUs returns the number of devices of all ranks and stages.
func (d *Deployment) GPUs() int64 {
	p := d.Parallel()
	return p.TP * p.PP * p.DP
}

// Parallel returns how the deployment shards its model.
func (d *Deployment) Parallel() model.Parallel {
	e := &d.Engine
	backend := strings.ToUpper(fmt.Sprint(e.Extra["attention_backend"], e.Extra["attention_config"]))
	p := model.Parallel{
		TP:         max(1, d.TP),
		PP:         max(1, d.PP),
		DP:         max(1, d.DP),
		Experts:    e.ExpertParallel,
		Redundant:  e.RedundantExperts(),
		OneGroup:   e.Extra["disable_hybrid_kv_cache_manager"] == true,
		NoPrefixes: !e.PrefixCaching,
		Block:      e.BlockSize,
		PlainCache: strings.Contains(backend, "FLASHINFER_MLA_SPARSE_DSV4"),
	}
	p.Release, _ = e.Release()
	if s, err := e.Speculation(); err == nil && s != nil {
		p.Drafts = s.Tokens
		p.MTP = s.Method == "mtp"
	}
	return p
}

// draftKeys are the flags of speculative decoding.
var draftKeys = []string{"speculative_config", "speculative_model", "num_speculative_tokens", "spec_method", "spec_model", "spec_tokens"}

// WithoutDrafts returns the deployment without speculative decoding. The steps of a log are fitted
// with it, because logs count drafted tokens like others.
func (d *Deployment) WithoutDrafts() *Deployment {
	if !d.Engine.SpeculativeDecoding {
		return d
	}
	own := *d
	own.Engine.SpeculativeDecoding = false
	own.Engine.Extra = maps.Clone(d.Engine.Extra)
	// The drafter may have switched asynchronous scheduling off: that stays.
	if e := &d.Engine; e.AsyncExcluded() != "" {
		own.Engine.AsyncScheduling = trace.Some(e.IsAsync())
	}
	for _, key := range draftKeys {
		delete(own.Engine.Extra, key)
	}
	return &own
}

// WithSpeculation returns the deployment with one key of speculative_config set.
func (d *Deployment) WithSpeculation(key string, value any) *Deployment {
	own := *d
	own.Engine.Extra = maps.Clone(d.Engine.Extra)
	config := map[string]any{}
	if given, ok := own.Engine.Extra["speculative_config"].(map[string]any); ok {
		config = maps.Clone(given)
	}
	config[key] = value
	own.Engine.Extra["speculative_config"] = config
	return &own
}

// Plain returns the deployment for which a step-time model is asked: without speculation, pipeline
// stages and transfers, which only the schedule depends on. A step takes as long with pipeline
// stages as without. For step times that are not sums over layers (layered false) the other ranks
// of a model with experts are removed too.
func (d *Deployment) Plain(layered bool) *Deployment {
	spreads := d.SpreadsExperts() && !layered
	if d.PP <= 1 && !d.Engine.SpeculativeDecoding && !spreads && d.Engine.Transfers() == "" {
		return d
	}
	own := *d.WithoutDrafts()
	own.PP = 1
	own.Engine.AsyncScheduling = d.Engine.AsyncScheduling
	if spreads {
		own.Engine.ExpertParallel = false
		own.DP = 1
	}
	own.Engine.Extra = maps.Clone(own.Engine.Extra)
	if d.Engine.Transfers() != "" {
		delete(own.Engine.Extra, "kv_transfer_config")
	}
	return &own
}

// SpreadsExperts reports whether whole experts are spread over devices, or experts over
// data-parallel ranks.
func (d *Deployment) SpreadsExperts() bool {
	return d.Model.IsMoE() && (d.DP > 1 || d.Engine.ExpertParallel)
}

// Balanced returns the number of data-parallel ranks behind one balancer of vLLM, and the number of
// API servers that share it (vllm/entrypoints/cli/serve.py of 0.33.0): all ranks and as many
// servers, with a hybrid balancer those of a node, with an external balancer one of each.
func (d *Deployment) Balanced() (ranks, servers int64) {
	e := &d.Engine
	ranks = max(1, d.DP)
	local, _ := vllm.Number(e.Extra["data_parallel_size_local"])
	isExternal := e.Extra["data_parallel_external_lb"] == true || e.Extra["data_parallel_rank"] != nil
	isHybrid := e.Extra["data_parallel_hybrid_lb"] == true || e.Extra["data_parallel_start_rank"] != nil
	switch {
	case isExternal:
		return 1, 1
	case isHybrid && local >= 1 && local < float64(ranks):
		ranks = int64(local)
	}
	if n, ok := vllm.Number(e.Extra["api_server_count"]); ok && n >= 1 && n <= vllm.MaxDevices {
		return ranks, int64(n)
	}
	return ranks, ranks
}

// ExchangeUs returns an estimate of the time in a step, us, in which the ranks of a model with
// experts send the hidden states of tokens (of all ranks) to the experts and back. With all-gather
// and reduce-scatter, vLLM's default, every rank receives the tokens of all others in each layer
// with experts; with an all-to-all back end a token goes to at most top-k ranks. It is 0 without
// ranks.
func (d *Deployment) ExchangeUs(tokens float64) float64 {
	m, h := &d.Model, &d.Hardware
	if !m.IsMoE() || d.DP < 2 || !(h.InterconnectBandwidthGBs > 0) {
		return 0
	}
	ranks := float64(d.DP)
	backend, _ := d.Engine.Extra["all2all_backend"].(string)
	isGathered := backend == "" || backend == "allgather_reducescatter" || backend == "naive"
	// layerUs returns the time of a layer whose tokens go to topK experts. Of what a rank receives, its own share does
	// not cross the link. There and back; the datasheet's rate is of both directions together.
	layerUs := func(topK int64) float64 {
		received := tokens
		if !isGathered {
			received = tokens / ranks * math.Min(ranks, float64(topK))
		}
		bytes := received * (ranks - 1) / ranks * float64(m.HiddenSize) * m.BytesPerActivation
		return 2 * (h.InterconnectLatencyUs + bytes/(h.InterconnectBandwidthGBs/2*1e3))
	}
	if m.Layered == nil {
		return float64(m.NumMoELayers) * layerUs(m.TopK)
	}
	// The fields for equal layers do not count those of a model with unlike ones.
	us := 0.0
	for i := range m.Layered.Layers {
		if f := m.Layered.Layers[i].FFN; f != nil && f.Kind == model.Experts {
			us += layerUs(f.TopK)
		}
	}
	return us
}
