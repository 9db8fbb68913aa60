package deploy

import (
	"encoding/json"
	"slices"
	"strings"
)

// uniform fills the fields that the specifications up to 1.2 read: of models whose layers are alike, full grouped-query
// attention with a dense MLP or experts. Others are refused by what they have (spec#model-refused).
func (c *hfConfig) uniform(m *Model, d *Decoder, opts ModelOptions) {
	m.NumLayers, m.HiddenSize, m.VocabSize = int64(len(d.Layers)), d.Hidden, d.Vocab
	m.MaxPositionEmbeddings = c.positions()
	m.BytesPerActivation, m.BytesPerKV, m.BytesPerLMHead = d.DTypeBytes, d.KVBytes, float64(d.Head.Quant.Bits)/8
	for i := range d.Layers {
		l := &d.Layers[i]
		if why := l.notUniform(m); why != "" {
			c.fail(unsupportedModel, "layer %d: got %s, want full grouped-query attention and an MLP or experts, alike in all layers", i, why)
			c.hint(sizesAlone)
			return
		}
		if l.FFN.Kind == Experts {
			m.NumMoELayers++
		}
		m.NumMLPProj = l.FFN.Projections
		if l.everyLinear(func(x *Linear) { c.width(m, x) }); c.err != nil {
			return
		}
	}
	if m.IntermediateSize == 0 { // experts in every layer
		m.IntermediateSize = c.countOr("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
		if n, ok := c.count("intermediate_size_mlp"); ok {
			m.IntermediateSize = n
		}
	}
	if m.IntermediateSize == 0 {
		m.IntermediateSize = m.MoEIntermediateSize
	}
	m.BytesPerParam = m.BytesPerWeight
	c.window(m, d, opts)
}

// width takes the quantization of a matrix, which is that of all but the router, embedding and head.
func (c *hfConfig) width(m *Model, x *Linear) {
	b, compute := float64(x.Quant.Bits)/8, "native"
	if x.Quant.ActivationBits == 8 && strings.HasPrefix(x.Quant.Algorithm, "fp8") {
		compute = "fp8"
	}
	switch {
	case x.Placement == Replicated: // the router
		return
	case x.Quant.ActivationBits < 8:
		c.fail(unsupportedModel, "quantization_config: got activations of %d bit (%s), want 8 or 16", x.Quant.ActivationBits, x.Quant.Algorithm)
	case m.BytesPerWeight != 0 && (b != m.BytesPerWeight || compute != m.LinearCompute):
		c.fail(unsupportedModel, "quantization_config: got %s at %g bytes a weight and others at %g, want one width", x.Name, b, m.BytesPerWeight)
	}
	c.hint(sizesAlone)
	m.BytesPerWeight, m.LinearCompute = b, compute
}

const sizesAlone = "blis-train inspect --model prints layers and sizes of this model; specifications up to 1.2 cannot say its steps"

// notUniform compares a layer with what the fields of earlier ones say, and adds its own; "" when they can say it.
func (l *Layer) notUniform(m *Model) string {
	x, f := l.Mixer, l.FFN
	switch {
	case x == nil:
		return "no attention"
	case f == nil || f.Kind == LinearFFN:
		return "no MLP"
	case x.Kind != GQA || x.Index != nil:
		return l.Kind() + " attention"
	case x.Gate != "" || x.KEqV || x.SharesKV || x.DimK != x.DimV:
		return "gated, shared or uneven keys and values"
	case f.Latent > 0 || f.BesideWidth > 0:
		return "experts with a latent width, or an MLP beside them"
	}
	for _, n := range []struct {
		field *int64
		value int64
	}{{&m.NumHeads, x.Heads}, {&m.NumKVHeads, x.KVHeads}, {&m.HeadDim, x.DimK}} {
		if *n.field != 0 && *n.field != n.value {
			return "heads unlike those of earlier layers"
		}
		*n.field = n.value
	}
	width := &m.IntermediateSize
	if f.Kind == Experts {
		width, m.NumExperts, m.TopK, m.SharedExpertSize = &m.MoEIntermediateSize, f.Experts, f.TopK, f.SharedWidth
	}
	if *width != 0 && *width != f.Width {
		return "a width unlike that of earlier layers"
	}
	*width = f.Width
	return ""
}

// window rejects windows and chunks that can be active (spec#model-window).
func (c *hfConfig) window(m *Model, d *Decoder, opts ModelOptions) {
	var size int64
	for i := range d.Layers {
		if n := d.Layers[i].Mixer.Window + d.Layers[i].Mixer.Chunk; n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	if n := longest(opts.MaxModelLen, m.MaxPositionEmbeddings); size == 0 || n.OK && n.V <= size {
		return
	}
	if opts.AssumeFullAttention {
		m.Warnings = append(m.Warnings, fullAttentionAssumed)
		return
	}
	c.fail(unsupportedModel, "attention window: got %d tokens, want none or max_model_len <= the window", size)
	c.hint("set vllm.max_model_len, or model.assume_full_attention: true to accept the error on long contexts")
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
	if n, ok := c.count("num_key_value_heads", "num_attention_groups"); ok {
		return n
	}
	return heads
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

// familyName shortens a model id to what people call it: the part after the
// last slash, in lower case.
func familyName(id string) string {
	id = strings.TrimRight(id, "/")
	return strings.ToLower(id[strings.LastIndexByte(id, '/')+1:])
}

var fourHiddenMLP = []string{"gpt2", "gptj", "bloom", "falcon", "gpt_bigcode"} // an MLP of 4h unless it says otherwise
