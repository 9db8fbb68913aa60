package model

// This file reads a config.json as the BLIS simulator does, so that exported coefficients fit its own
// reading of a model.

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// BLISReading has the fields that BLIS's step-time model reads from a config.json, where they
// differ from the model's (spec#blis-reading). BLIS assumes experts in every
// (interleave_moe_layer_step+1)-th layer, or in all layers; it has its own keys for widths, and
// caches keys and values of all KV heads whatever the kind of attention.
//
// Source: inference-sim/inference-sim at f90a1e3, sim/latency/config.go and
// trained_physics_model.go.
type BLISReading struct {
	NumHeads       int64   `json:"num_attention_heads"`
	NumKVHeads     int64   `json:"num_key_value_heads"`
	NumExperts     int64   `json:"num_experts"` // 0 when dense
	TopK           int64   `json:"top_k"`
	NumMoELayers   int64   `json:"num_moe_layers"`
	DenseWidth     int64   `json:"intermediate_size"`     // of a dense layer
	ExpertWidth    int64   `json:"moe_intermediate_size"` // of an expert
	SharedWidth    int64   `json:"shared_expert_size"`
	BytesPerWeight float64 `json:"bytes_per_weight"`
}

// blisExperts are the keys in which BLIS looks for the number of experts: the first with a value of
// 2 or more counts.
var blisExperts = []string{"num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts", "num_routed_experts"}

// blisReading returns the values of config.json as BLIS reads them; nil if these are the model's
// own fields.
func (c *hfConfig) blisReading(m *Model) *BLISReading {
	plain := m.plainReading()
	r := BLISReading{NumHeads: c.countOr("num_attention_heads", "n_head"), BytesPerWeight: c.blisWeights(m)}
	r.NumKVHeads = cmp.Or(c.countOr("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), r.NumHeads)
	// Without a width BLIS stops; the catalog that comes with an export has it.
	r.DenseWidth = cmp.Or(c.countOr("intermediate_size", "ffn_hidden_size"), plain.DenseWidth)
	for _, key := range blisExperts {
		if n := c.countOr(key); n >= 2 && r.NumExperts == 0 {
			r.NumExperts = n
		}
	}
	if r.NumExperts > 0 {
		r.TopK = c.countOr("num_experts_per_tok")
		r.ExpertWidth = cmp.Or(c.countOr("moe_intermediate_size"), r.DenseWidth)
		r.SharedWidth = cmp.Or(c.countOr("shared_expert_intermediate_size"), c.countOr("n_shared_experts")*r.ExpertWidth)
		if r.NumMoELayers = m.NumLayers; c.countOr("interleave_moe_layer_step") > 0 {
			r.NumMoELayers = m.NumLayers / (c.countOr("interleave_moe_layer_step") + 1)
		}
		if r.NumMoELayers == m.NumLayers { // it has no dense layer
			r.DenseWidth = plain.DenseWidth
		}
	}
	if n := c.countOr("intermediate_size_mlp"); n > 0 && r.NumMoELayers < m.NumLayers {
		r.DenseWidth = n
	}
	if r == plain {
		return nil
	}
	return &r
}

// plainReading returns the model's own fields.
func (m *Model) plainReading() BLISReading {
	r := BLISReading{NumHeads: m.NumHeads, NumKVHeads: m.NumKVHeads, DenseWidth: m.IntermediateSize, BytesPerWeight: m.BytesPerWeight}
	if m.IsMoE() {
		r.NumExperts = m.NumExperts
		r.TopK = m.TopK
		r.NumMoELayers = m.NumMoELayers
		r.ExpertWidth = m.MoEIntermediateSize
		r.SharedWidth = m.SharedExpertSize
	}
	return r
}

// AsBLISReads returns the model with the fields of its BLISReading in place of its own.
func (m *Model) AsBLISReads() Model {
	out := *m
	r := m.plainReading()
	if m.BLIS != nil {
		r = *m.BLIS
	}
	out.NumHeads = r.NumHeads
	out.NumKVHeads = r.NumKVHeads
	out.NumExperts = r.NumExperts
	out.TopK = r.TopK
	out.NumMoELayers = r.NumMoELayers
	out.IntermediateSize = r.DenseWidth
	out.MoEIntermediateSize = r.ExpertWidth
	out.SharedExpertSize = r.SharedWidth
	out.BytesPerWeight = r.BytesPerWeight
	return out
}

// The parts of a model's name from which BLIS takes the bits of a weight: w4a16, fp8.
var (
	blisWeightBits = regexp.MustCompile(`(?i)(?:^|[._/-])w(\d+)a\d+(?:$|[._-])`)
	blisFP8Name    = regexp.MustCompile(`(?i)(?:^|[._/-])fp8(?:$|[._-])`)
)

// blisWeights returns the bytes of a weight as BLIS derives them: from bits, fp8 or
// compressed-tensors in quantization_config, else from the model's name, else the width of
// activations.
func (c *hfConfig) blisWeights(m *Model) float64 {
	q, _ := c.values["quantization_config"].(map[string]any)
	method, _ := q["quant_method"].(string)
	number := func(v any) float64 { f, _ := strconv.ParseFloat(fmt.Sprint(v), 64); return f }
	if bits := number(q["bits"]); bits > 0 {
		return bits / 8
	}
	if strings.EqualFold(method, "fp8") {
		return 1
	}
	if groups, _ := q["config_groups"].(map[string]any); strings.EqualFold(method, "compressed-tensors") {
		for _, key := range slices.Sorted(maps.Keys(groups)) {
			group, _ := groups[key].(map[string]any)
			weights, _ := group["weights"].(map[string]any)
			if bits := number(weights["num_bits"]); bits > 0 {
				return bits / 8
			}
		}
	}
	if s := blisWeightBits.FindStringSubmatch(m.ID); s != nil {
		return number(s[1]) / 8
	}
	if blisFP8Name.MatchString(m.ID) {
		return 1
	}
	return m.BytesPerActivation
}
