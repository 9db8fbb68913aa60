package deploy

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// describe fills the model's fields from its layers: all of them where the layers are alike, full grouped-query attention
// with a dense MLP or experts, which the specifications up to 1.2 read; else the layers themselves are the description.
func (c *hfConfig) describe(m *Model, d *Decoder, opts ModelOptions) {
	m.MaxPositionEmbeddings = c.positions()
	size, stated := int64(0), *m
	for i := range d.Layers {
		if x := d.Layers[i].Mixer; x != nil && x.Window+x.Chunk > 0 && (size == 0 || x.Window+x.Chunk < size) {
			size = x.Window + x.Chunk
		}
	}
	longest := longest(opts.MaxModelLen, m.MaxPositionEmbeddings)
	beyond := size > 0 && !(longest.OK && longest.V <= size) // a window that can be active (spec#model-window)
	if why := d.flat(m, beyond && !opts.AssumeFullAttention); why != "" {
		*m, m.Layered = stated, d
		m.summarise()
		return
	}
	if beyond {
		m.Warnings = append(m.Warnings, fullAttentionAssumed)
	}
	if m.NumMoELayers == m.NumLayers { // experts in every layer: a width that nothing has
		m.IntermediateSize = cmp.Or(c.countOr("intermediate_size_mlp"),
			c.countOr("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), m.IntermediateSize)
	}
}

// summarise sets the fields that a model of unlike layers has too.
func (m *Model) summarise() {
	d := m.Layered
	m.NumLayers, m.HiddenSize, m.VocabSize, m.Tied = int64(len(d.Layers)), d.Hidden, d.Vocab, d.Tied
	m.BytesPerActivation, m.BytesPerKV = d.DTypeBytes, d.KVBytes
}

// flat fills the fields that models of equal layers have; where they cannot say this one it tells why. windows: those of
// its attention can be active.
func (d *Decoder) flat(m *Model, windows bool) (why string) {
	m.NumLayers, m.HiddenSize, m.VocabSize, m.Tied = int64(len(d.Layers)), d.Hidden, d.Vocab, d.Tied
	m.BytesPerActivation, m.BytesPerKV, m.BytesPerLMHead = d.DTypeBytes, d.KVBytes, float64(d.Head.Quant.Bits)/8
	for i := range d.Layers {
		l := &d.Layers[i]
		if why = l.notUniform(m, windows); why != "" {
			return fmt.Sprintf("layer %d: got %s", i, why)
		}
		if l.FFN.Kind == Experts {
			m.NumMoELayers++
		}
		m.NumMLPProj = l.FFN.Projections
		if l.everyLinear(func(x *Linear) { why = cmp.Or(why, m.width(x)) }); why != "" {
			return "quantization: got " + why
		}
	}
	m.IntermediateSize = cmp.Or(m.IntermediateSize, m.MoEIntermediateSize)
	m.BytesPerParam = m.BytesPerWeight
	return ""
}

// width takes the quantization of a matrix, which is that of all but the router, embedding and head.
func (m *Model) width(x *Linear) string {
	b, compute := float64(x.Quant.Bits)/8, "native"
	if x.Quant.ActivationBits == 8 && strings.HasPrefix(x.Quant.Algorithm, "fp8") {
		compute = "fp8"
	}
	switch {
	case x.Placement == Replicated: // the router
		return ""
	case x.Quant.ActivationBits < 8:
		return fmt.Sprintf("activations of %d bit", x.Quant.ActivationBits)
	case m.BytesPerWeight != 0 && (b != m.BytesPerWeight || compute != m.LinearCompute):
		return fmt.Sprintf("%s at %g bytes a weight and others at %g", x.Name, b, m.BytesPerWeight)
	}
	m.BytesPerWeight, m.LinearCompute = b, compute
	return ""
}

// WhyLayered says what the specifications up to 1.2 cannot say of the model, "" where they can.
func (m *Model) WhyLayered() string {
	if m.Layered == nil {
		return ""
	}
	return cmp.Or(m.Layered.flat(&Model{}, true), "layers")
}

// Layers is the model as the list of its layers: the one that features, memory and simulator add up (spec#model-layers).
// Equal layers are made of the fields that say them, without norms and biases.
func (m *Model) Layers() *Decoder {
	if m.Layered != nil {
		return m.Layered
	}
	bits := int64(8 * m.BytesPerWeight)
	q, plain := Quant{BytesPerWeight: m.BytesPerWeight, Bits: bits, ActivationBits: 16}, Quant{BytesPerWeight: m.BytesPerActivation,
		Bits: int64(8 * m.BytesPerActivation), ActivationBits: 16}
	switch {
	case m.LinearCompute == "fp8":
		q.Algorithm, q.ActivationBits = "fp8", 8
	case m.BytesPerWeight < m.BytesPerActivation:
		q.Algorithm = fmt.Sprintf("int%d", bits)
	}
	h, queries, keys := m.HiddenSize, m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	matrix := func(name string, rows, columns int64, at Placement, q Quant) Linear {
		return Linear{Name: name, Rows: rows, Columns: columns, Count: 1, Placement: at, Quant: q}
	}
	mlp := func(width int64) []Linear {
		return []Linear{matrix("up_proj", (m.NumMLPProj-1)*width, h, Sharded, q), matrix("down_proj", h, width, ShardedIn, q)}
	}
	l := Layer{Mixer: &Mixer{Kind: GQA, Heads: m.NumHeads, KVHeads: m.NumKVHeads, DimK: m.HeadDim, DimV: m.HeadDim, Linears: []Linear{
		matrix("q_proj", queries, h, Sharded, q), matrix("k_proj", keys, h, KVSharded, q), matrix("v_proj", keys, h, KVSharded, q),
		matrix("o_proj", h, queries, ShardedIn, q)}},
		FFN: &FFN{Kind: Dense, Width: m.IntermediateSize, Projections: m.NumMLPProj, Linears: mlp(m.IntermediateSize)}}
	d := &Decoder{Vocab: m.VocabSize, Hidden: h, Tied: m.Tied, KVBytes: m.BytesPerKV, DTypeBytes: m.BytesPerActivation,
		Embedding: matrix(embeddingName, m.VocabSize, h, Sharded, plain), Head: matrix(headName, m.VocabSize, h, Sharded, plain)}
	d.Head.Quant.BytesPerWeight = m.BytesPerLMHead
	if m.Decoder != nil {
		d.MTP = m.Decoder.MTP
	}
	for range m.NumLayers {
		d.Layers = append(d.Layers, l)
	}
	if m.IsMoE() {
		width := m.MoEIntermediateSize
		f := &FFN{Kind: Experts, Width: width, Projections: m.NumMLPProj, Experts: m.NumExperts, TopK: m.TopK, SharedWidth: m.SharedExpertSize,
			Linears: []Linear{matrix("gate", m.NumExperts, h, Replicated, plain)}}
		for _, x := range mlp(width) {
			x.Name, x.Placement, x.Count, x.Active = "experts."+x.Name, ByExpert, m.NumExperts, m.TopK
			f.Linears = append(f.Linears, x)
		}
		if m.SharedExpertSize > 0 {
			f.Linears = append(f.Linears, mlp(m.SharedExpertSize)...)
		}
		for i := m.NumLayers - min(m.NumMoELayers, m.NumLayers); i < m.NumLayers; i++ {
			d.Layers[i].FFN = f
		}
	}
	return d
}

// notUniform compares a layer with what the fields of earlier ones say, and adds its own; "" when they can say it.
func (l *Layer) notUniform(m *Model, windows bool) string {
	x, f := l.Mixer, l.FFN
	switch {
	case x == nil:
		return "no attention"
	case f == nil || f.Kind == LinearFFN:
		return "no MLP"
	case x.Kind != GQA || x.Index != nil || windows && x.Window+x.Chunk > 0:
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
	return trace.Int(math.Trunc(float64(n) * factor))
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
	if key, _ := c.first("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
		"share_expert_dim"); key != "" {
		return c.layerOr(key, 0)
	}
	key, _ := c.first("n_shared_experts", "num_shared_experts")
	return c.layerOr(key, 0) * expertWidth
}

// moePattern says which layers have experts (spec#model-moe).
func (c *hfConfig) moePattern(has []bool) {
	layers := int64(len(has))
	if pattern, ok := c.values["moe_layer_freq"].([]any); ok {
		c.statedPattern(pattern, has)
		return
	}
	freq := c.layerOr("moe_layer_freq", 1)
	if freq == 0 {
		c.fail(BadModel, "moe_layer_freq: got 0, want a positive integer or a list of %d", layers)
		return
	}
	firstDense := c.layerOr("first_k_dense_replace", 0)
	step := int64(1)
	if key, v := c.first("decoder_sparse_step", "interleave_moe_layer_step"); v != nil {
		step = c.layerOr(key, 1)
	}
	list, _ := c.values["mlp_only_layers"].([]any)
	last := cmp.Or(c.countOr("moe_layer_end_index"), layers)
	for i := firstDense; i < layers && step > 0; i++ {
		has[i] = i%freq == 0 && (i+1)%step == 0 && i <= last
	}
	for _, v := range list {
		i, ok := integer(v)
		if !ok || i < 0 {
			c.fail(BadModel, "mlp_only_layers: got %s, want numbers of layers", show(v))
		} else if i < layers {
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
		if _, isFlag := v.(bool); !ok && !isFlag {
			c.fail(BadModel, "moe_layer_freq: got %s for layer %d, want 0 or 1", show(v), k)
		}
		has[k] = ok && i != 0 || v == true
	}
}

var fourHiddenMLP = []string{"gpt2", "gptj", "bloom", "falcon", "gpt_bigcode"} // an MLP of 4h unless it says otherwise

// dtypeBytes returns the bytes per value of a dtype name, 0 if unknown (spec#model-dtype).
func dtypeBytes(name string) float64 {
	name = strings.TrimPrefix(name, "torch.")
	switch name {
	case "float32", "float":
		return 4
	case "float16", "bfloat16", "half":
		return 2
	}
	if strings.HasPrefix(name, "fp8") || strings.HasPrefix(name, "float8") {
		return 1
	}
	return 0
}

func (c *hfConfig) activationBytes(override string) float64 {
	name := override
	if name == "" || name == "auto" {
		key, _ := c.first("dtype", "torch_dtype")
		name = c.text(key)
	}
	bytes := dtypeBytes(name)
	if bytes == 0 {
		c.fail(unsupportedModel, "dtype: got %q, want float32, float16, bfloat16 or an fp8 name", name)
	}
	return bytes
}

func firstOf(values map[string]any, keys ...string) any {
	for _, key := range keys {
		if values[key] != nil {
			return values[key]
		}
	}
	return json.Number("")
}

// encoderKeys are keys of what turns images, video or audio into tokens.
var encoderKeys = []string{"vision_config", "audio_config", "vision_tower", "mm_vision_tower", "audio_encoder_config", "speech_config",
	"image_token_id", "image_token_index", "audio_token_id", "video_token_id", "talker_config", "code2wav_config"}

// knownKeys are keys of config.json that the loader reads, or that change no
// dimension: tokens, training, dropout, the Python class.
var knownKeys = strings.Fields(keyText)

//go:embed hf_keys.txt
var keyText string

// harmlessParts are parts of keys that change no dimension, whatever else is in them.
var harmlessParts = []string{"token_id", "token_index", "dropout", "pdrop", "rope_", "_coef", "loss", "initializer", "quant", "summary_"}

// unknownKeys lists the keys nobody has looked at, sorted. Keys of tokens, dropout,
// rope and quantisation decide no dimension, whatever they are called.
func unknownKeys(values map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		known := values[key] == nil || values[key] == false || slices.Contains(knownKeys, key) || slices.Contains(encoderKeys, key)
		for _, part := range harmlessParts {
			known = known || strings.Contains(key, part)
		}
		if !known {
			out = append(out, key)
		}
	}
	quant, _ := values["quantization_config"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(quant)) {
		name := "quantization_config." + key
		if !slices.Contains(knownKeys, name) && !slices.Contains([]string{"null", "false", "{}", "[]"}, show(quant[key])) {
			out = append(out, name)
		}
	}
	return out
}

// encoders lists what of the outer config tells of images, video or audio, sorted.
func encoders(outer map[string]any) []string {
	return stat.Filter(slices.Sorted(maps.Keys(outer)), func(key string) bool {
		return outer[key] != nil && slices.Contains(encoderKeys, key)
	})
}
