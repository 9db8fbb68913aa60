package deploy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Model families: spec#model-kv-heads, spec#model-mlp-width, spec#model-mlp-projections and
// spec#model-refused say what follows from them.
var (
	gatedMLP = []string{"llama", "mistral", "mistral3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral",
		"gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "phimoe", "glm4", "glm4_moe", "granite", "granitemoe",
		"cohere", "cohere2", "stablelm", "internlm2", "internlm3", "baichuan", "exaone", "minicpm", "olmo", "olmo2",
		"olmoe", "smollm3", "deepseek", "gpt_oss", "llama4", "llama4_text"}
	plainMLP      = []string{"gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "nemotron"}
	fourHiddenMLP = []string{"gpt2", "gptj", "bloom", "falcon", "gpt_bigcode"}
	stateSpace    = []string{"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2", "rwkv", "recurrent_gemma"}
)

// refuse rejects what neither version models (spec#model-refused).
func (c *hfConfig) refuse(_ *Model, _ ModelOptions) {
	for _, key := range []string{"kv_lora_rank", "q_lora_rank", "qk_rope_head_dim"} {
		if c.has(key) {
			c.fail(unsupportedModel, "%s: got %s, want none (multi-head latent attention is not modelled)", key, show(c.values[key]))
		}
	}
	if c.flag("is_encoder_decoder", false) || c.is("t5", "bart", "whisper") {
		c.fail(unsupportedModel, "model_type: got %q, an encoder-decoder, want a decoder-only model", c.text("model_type"))
	}
	for _, key := range otherAttention {
		if c.has(key) && c.values[key] != false && show(c.values[key]) != "0" {
			c.fail(unsupportedModel, "%s: got %s, want none (linear, state-space, sparse and shared attention are not modelled)", key,
				show(c.values[key]))
		}
	}
	if c.is(stateSpace...) {
		c.fail(unsupportedModel, "model_type: got %q, want attention in every layer", c.text("model_type"))
	}
	for _, kind := range c.layerTypes() {
		if !slices.Contains([]string{"full_attention", "sliding_attention", "chunked_attention"}, kind) {
			c.fail(unsupportedModel, "layer_types: got %q, want full, sliding or chunked attention", kind)
		}
	}
}

func (c *hfConfig) layerTypes() []string {
	list, _ := c.values["layer_types"].([]any)
	kinds := make([]string, len(list))
	for i, v := range list {
		kinds[i], _ = v.(string)
	}
	return kinds
}

// dimensions reads layers, widths, heads and vocabulary (spec#model-aliases to
// spec#model-mlp-width).
func (c *hfConfig) dimensions(m *Model, _ ModelOptions) {
	m.NumLayers = c.need("num_hidden_layers", "n_layer", "num_layers")
	m.HiddenSize = c.need("hidden_size", "n_embd", "d_model")
	m.NumHeads = c.need("num_attention_heads", "n_head")
	m.VocabSize = c.need("vocab_size")
	m.MaxPositionEmbeddings = c.positions()
	if c.err != nil {
		return
	}
	m.NumKVHeads = c.kvHeads(m.NumHeads)
	if c.err == nil && (m.NumKVHeads > m.NumHeads || m.NumHeads%m.NumKVHeads != 0) {
		c.fail(BadModel, "num_key_value_heads: got %d, want a divisor of %d heads", m.NumKVHeads, m.NumHeads)
	}
	var given bool
	if m.HeadDim, given = c.count("head_dim"); !given && c.err == nil {
		if m.HiddenSize%m.NumHeads != 0 {
			c.fail(BadModel, "hidden_size/num_attention_heads: got %d/%d, want an integer or an explicit head_dim", m.HiddenSize,
				m.NumHeads)
			return
		}
		m.HeadDim = m.HiddenSize / m.NumHeads
	}
}

// positions is the position limit as vLLM derives it: the config's, stretched
// by rope scaling unless the stated limit already is; 0 when unknown.
func (c *hfConfig) positions() int64 {
	n := c.countOr("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
	rope, _ := firstOf(c.values, "rope_scaling", "rope_parameters").(map[string]any)
	kind, _ := firstOf(rope, "rope_type", "type").(string)
	number, _ := firstOf(rope, "factor").(json.Number)
	factor, err := number.Float64()
	if err != nil || !(factor >= 1 && factor <= 1e4) || slices.Contains([]string{"su", "longrope", "llama3", "mrope"}, kind) {
		return n
	}
	if kind == "yarn" {
		if original, ok := integer(firstOf(rope, "original_max_position_embeddings")); ok && original > 0 {
			n = original
		}
	}
	return int64(float64(n) * factor)
}

// kvHeads is the number of KV heads (spec#model-kv-heads).
func (c *hfConfig) kvHeads(heads int64) int64 {
	switch {
	case c.is("falcon") && c.flag("new_decoder_architecture", false):
		if n, ok := c.count("num_kv_heads"); ok {
			return n
		}
		return heads
	case c.is("falcon", "gpt_bigcode"):
		if c.flag("multi_query", true) {
			return 1
		}
		return heads
	}
	if n, ok := c.count("num_key_value_heads"); ok {
		return n
	}
	return heads
}

// moe reads the experts, how many a token takes, their layers and widths, and the
// width of dense layers (spec#model-moe).
func (c *hfConfig) moe(m *Model, _ ModelOptions) {
	experts, _ := c.count("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
	isMoE := experts >= 2
	width, hasWidth := c.count("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
	expertWidth, hasExpertWidth := c.count("moe_intermediate_size")
	if !hasExpertWidth {
		expertWidth = width
	}
	m.IntermediateSize = width
	if !hasWidth {
		switch {
		case c.is(fourHiddenMLP...):
			m.IntermediateSize = 4 * m.HiddenSize
		case isMoE && hasExpertWidth:
			m.IntermediateSize = expertWidth
		default:
			c.fail(BadModel, "intermediate_size: missing, want a positive integer (also read as n_inner, ffn_dim, ffn_hidden_size)")
		}
	}
	if isMoE && c.err == nil {
		m.NumExperts, m.MoEIntermediateSize = experts, expertWidth
		c.experts(m)
	}
}

func (c *hfConfig) experts(m *Model) {
	if m.MoEIntermediateSize == 0 {
		m.MoEIntermediateSize = m.IntermediateSize
	}
	m.TopK = c.need("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token")
	if c.err == nil && m.TopK > m.NumExperts {
		c.fail(BadModel, "num_experts_per_tok: got %d, want 1..%d experts", m.TopK, m.NumExperts)
	}
	m.NumMoELayers = c.moeLayers(m.NumLayers)
	if c.err == nil && m.NumMoELayers == 0 {
		c.fail(BadModel, "the layer rules leave 0 of %d layers with the %d experts, want at least 1", m.NumLayers, m.NumExperts)
	}
	if c.is("llama4", "llama4_text") {
		m.MoEIntermediateSize, m.SharedExpertSize = m.IntermediateSize, m.IntermediateSize
		if dense, ok := c.count("intermediate_size_mlp"); ok {
			m.IntermediateSize = dense
		}
		return
	}
	m.SharedExpertSize = c.sharedWidth(m.MoEIntermediateSize)
}

// sharedWidth is Is, the total width of the shared experts; 0 counts as none.
func (c *hfConfig) sharedWidth(expertWidth int64) int64 {
	for _, key := range []string{"shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
		"share_expert_dim"} {
		if c.has(key) {
			return c.layer(key, 0)
		}
	}
	for _, key := range []string{"n_shared_experts", "num_shared_experts"} {
		if c.has(key) {
			return c.layer(key, 0) * expertWidth
		}
	}
	return 0
}

// moeLayers counts the MoE layers Lm.
func (c *hfConfig) moeLayers(layers int64) int64 {
	has := make([]bool, layers)
	c.moePattern(has)
	var n int64
	for _, is := range has {
		if is {
			n++
		}
	}
	return n
}

// moePattern says which layers have experts (spec#model-moe).
func (c *hfConfig) moePattern(has []bool) {
	layers := int64(len(has))
	if pattern, ok := c.values["moe_layer_freq"].([]any); ok {
		c.statedPattern(pattern, has)
		return
	}
	freq := c.layer("moe_layer_freq", 1)
	if freq == 0 {
		c.fail(BadModel, "moe_layer_freq: got 0, want a positive integer or a list of %d", layers)
		return
	}
	firstDense := c.layer("first_k_dense_replace", 0)
	step := int64(1)
	if key, v := c.first("decoder_sparse_step", "interleave_moe_layer_step"); v != nil {
		step = c.layer(key, 1)
	}
	list, _ := c.values["mlp_only_layers"].([]any)
	for i := firstDense; i < layers && step > 0; i++ {
		has[i] = i%freq == 0 && (i+1)%step == 0
	}
	for _, v := range list {
		if i, ok := integer(v); ok && i >= 0 && i < layers {
			has[i] = false
		}
	}
}

func (c *hfConfig) statedPattern(pattern []any, has []bool) {
	if len(pattern) != len(has) {
		c.fail(BadModel, "moe_layer_freq: got a list of %d, want one entry for each of %d layers", len(pattern), len(has))
		return
	}
	for k, v := range pattern {
		i, ok := integer(v)
		has[k] = ok && i != 0 || v == true
	}
}

// projections is the number of MLP projections (spec#model-mlp-projections).
func (c *hfConfig) projections(m *Model, opts ModelOptions) {
	switch {
	case opts.NumMLPProj.OK:
		if m.NumMLPProj = opts.NumMLPProj.V; m.NumMLPProj <= 0 {
			c.fail(BadModel, "n_mlp_proj: got %d, want a positive integer", m.NumMLPProj)
		}
	case c.is(gatedMLP...):
		m.NumMLPProj = 3
	case c.is(plainMLP...):
		m.NumMLPProj = 2
	default:
		c.fail(unsupportedModel, "model_type: got %q, want a known family or model.n_mlp_proj in run.yaml", c.text("model_type"))
		if e, ok := c.err.(*trace.SyntaxError); ok {
			e.Hint = "set model.n_mlp_proj: 3 for a gated MLP (gate, up, down), 2 for a plain one"
		}
	}
}

// window rejects windowed attention that can be active (spec#model-window).
func (c *hfConfig) window(m *Model, opts ModelOptions) {
	sliding, hasSliding := c.count("sliding_window")
	chunk, hasChunk := c.count("attention_chunk_size")
	if c.err != nil || !hasSliding && !hasChunk {
		return
	}
	if !c.flag("use_sliding_window", true) {
		if !hasChunk {
			return
		}
		hasSliding = false
	}
	kinds := c.layerTypes()
	if len(kinds) > 0 && !slices.Contains(kinds, "sliding_attention") && !slices.Contains(kinds, "chunked_attention") {
		return
	}
	size := sliding
	if !hasSliding || hasChunk && chunk < size {
		size = chunk
	}
	if n := longest(opts.MaxModelLen, m.MaxPositionEmbeddings); n.OK && n.V <= size {
		return
	}
	if opts.AssumeFullAttention {
		m.Warnings = append(m.Warnings, fullAttentionAssumed)
		return
	}
	c.fail(unsupportedModel, "attention window: got %d tokens, want none or max_model_len <= the window", size)
	if e, ok := c.err.(*trace.SyntaxError); ok {
		e.Hint = "set vllm.max_model_len, or model.assume_full_attention: true to accept the error on long contexts"
	}
}

// familyName shortens a model id to what people call it: the part after the
// last slash, in lower case.
func familyName(id string) string {
	id = strings.TrimRight(id, "/")
	return strings.ToLower(id[strings.LastIndexByte(id, '/')+1:])
}
