package model

// This file reads the mixer of each layer, attention or recurrence, from config.json.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// itoa returns a number as text.
func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// readMixer returns the mixer of the current layer.
func (r *layerReader) readMixer(kind layerKind) *Mixer {
	switch kind {
	case noMixer:
		return nil
	case oneMatrix:
		return &Mixer{Kind: LinearOnly, Linears: []Linear{r.newLinear(Sharded, r.h, r.h, r.f.attnModule+".linear")}}
	case linearLayer, mambaLayer:
		switch r.f.linear {
		case "gdn", "kda":
			return r.readDelta(r.f.linear)
		case "mamba1":
			return r.readMamba1()
		case "mamba2":
			return r.readMamba2()
		case "lightning":
			return r.readLightning()
		}
		r.fail(UnsupportedModel, "layer_types: got %q for model_type %q, want attention", kind, r.text("model_type"))
		return nil
	}
	switch {
	case r.f.mixer == Compressed:
		return r.readCompressed()
	case r.has("kv_lora_rank"), r.isType("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa") && r.flag("use_mla", true):
		return r.readMLA()
	}
	return r.readGQA(kind)
}

// attn returns the checkpoint's name of a module of the attention block.
func (r *layerReader) attn(module string) string { return r.f.attnModule + "." + module }

// readGQA returns attention with grouped heads.
func (r *layerReader) readGQA(kind layerKind) *Mixer {
	m := &Mixer{Kind: GQA, Heads: r.requireCount("num_attention_heads", "n_head"), Gate: r.outputGate()}
	m.Sink = r.f.sinks || kind == windowLayer && r.flag("add_swa_attention_sink_bias", false) ||
		kind == fullLayer && r.flag("add_full_attention_sink_bias", false)
	if r.err != nil {
		return nil
	}
	// Some families state other sizes for windowed layers, or for single layers, in an inner object.
	outer := r
	defer func() { outer.err = cmp.Or(outer.err, r.err) }()
	if config := r.object(r.values, "attention_other_setting"); config != nil && kind == windowLayer {
		r = r.readerWithin(config)
	}
	own := r.object(r.values, "per_layer_config")
	for _, layer := range slices.Sorted(maps.Keys(own)) {
		if n, err := strconv.ParseInt(layer, 10, 64); err == nil && n == r.i {
			r = r.readerWithin(r.object(own, layer))
		}
	}
	heads := r.requireCount("num_attention_heads", "n_head")
	m.KVHeads = r.kvHeads(m.Heads) // the heads of config.json as a whole, where an inner object states others
	m.Heads = heads
	if key, _ := r.firstKey("num_key_value_heads", "num_attention_groups", "num_kv_heads", "block_configs"); key == "" {
		r.d.defaulted(fmt.Sprintf("num_key_value_heads=%d", m.KVHeads))
	}
	m.DimK = r.headDim(m.Heads)
	m.DimV = r.layerOr("v_head_dim", m.DimK)
	if list, ok := r.values["num_attention_heads_per_layer"].([]any); ok {
		m.Heads = r.headsOfLayer(list)
	}
	// What differs between the kinds of layers of one model.
	switch kind {
	case windowLayer:
		m.Window = r.requireCount("sliding_window")
		m.Heads = r.layerOr("swa_num_attention_heads", m.Heads)
		m.KVHeads = r.layerOr("swa_num_key_value_heads", m.KVHeads)
		m.DimK = r.layerOr("swa_head_dim", m.DimK)
		m.DimV = r.layerOr("swa_v_head_dim", m.DimV)
	case chunkLayer:
		m.Chunk = r.requireCount("attention_chunk_size")
	case fullLayer:
		if block := r.searchedBlock(); block != nil {
			m.KVHeads = m.Heads / max(1, r.headsInGroup(block))
		}
		if r.has("global_head_dim") {
			m.DimK = r.requireCount("global_head_dim")
			m.DimV = m.DimK
		}
		m.KVHeads = r.layerOr("num_global_key_value_heads", m.KVHeads)
		m.KEqV = r.flag("attention_k_eq_v", false)
	}
	if shared := r.layerOr("num_kv_shared_layers", 0); shared > 0 && r.i >= r.layers-shared {
		m.SharesKV = true
	}
	if r.err == nil && (m.KVHeads <= 0 || m.Heads%m.KVHeads != 0) {
		r.fail(BadModel, "num_key_value_heads: got %d, want a divisor of %d heads", m.KVHeads, m.Heads)
		return nil
	}
	r.gqaWeights(m)
	return m
}

// headsOfLayer returns the layer's entry of num_attention_heads_per_layer.
func (r *layerReader) headsOfLayer(list []any) int64 {
	if r.i >= int64(len(list)) {
		r.fail(BadModel, "num_attention_heads_per_layer: got %d entries, want one for each of %d layers", len(list), r.layers)
		return 1
	}
	n, ok := wholeNumber(list[r.i])
	if !ok || n < 1 || n > maxDimension {
		r.fail(BadModel, "num_attention_heads_per_layer[%d]: got %s, want an integer > 0", r.i, showValue(list[r.i]))
		return 1
	}
	return n
}

// searchedBlock returns the layer's entry of block_configs, which architecture search writes
// (nemotron-nas); nil for other models.
func (r *layerReader) searchedBlock() map[string]any {
	list, _ := r.values["block_configs"].([]any)
	if r.i >= int64(len(list)) {
		return nil
	}
	block, _ := list[r.i].(map[string]any)
	return block
}

// headsInGroup returns how many query heads share a key head in such a layer.
func (r *layerReader) headsInGroup(block map[string]any) int64 {
	attention, _ := block["attention"].(map[string]any)
	n, ok := wholeNumber(attention["n_heads_in_group"])
	if !ok || n < 1 {
		r.fail(BadModel, "block_configs[%d].attention.n_heads_in_group: got %s, want an integer > 0", r.i, showValue(attention["n_heads_in_group"]))
	}
	return n
}

// readerWithin returns a reader in which the keys of an inner object take precedence.
func (r *layerReader) readerWithin(inner map[string]any) *layerReader {
	values := maps.Clone(r.values)
	maps.Copy(values, inner)
	c := *r.hfConfig
	c.values = values
	out := *r
	out.hfConfig = &c
	if groups, ok := values["num_attention_groups"]; ok {
		values["num_key_value_heads"] = groups
	}
	return &out
}

// headDim returns the width of a head: as stated, else hidden/heads.
func (r *layerReader) headDim(heads int64) int64 {
	if n, given := r.readCount("head_dim", "attention_head_dim"); given || r.err != nil || heads == 0 {
		return n
	}
	if r.h%heads != 0 {
		r.fail(BadModel, "hidden_size/num_attention_heads: got %d/%d, want an integer or an explicit head_dim", r.h, heads)
		return 0
	}
	return r.h / heads
}

// outputGate returns the granularity of the gate on the attention's output, "" without one.
func (r *layerReader) outputGate() string {
	switch gating := r.values["gating"]; {
	case gating == true || gating == "per-head": // vllm/model_executor/models/laguna.py: LagunaAttention
		return "head"
	case gating == "per-element":
		return "element"
	case gating != nil && gating != false:
		r.fail(UnsupportedModel, "gating: got %s, want true, false, per-head or per-element", showValue(gating))
	case r.f.gate != "" && r.flag("attn_output_gate", true):
		return r.f.gate
	case r.f.headGate && r.flag("use_head_wise_attn_gate", true):
		return "head"
	}
	return ""
}

// gqaWeights adds the matrices and small parameters of grouped-query attention.
func (r *layerReader) gqaWeights(m *Mixer) {
	qRows := m.Heads * m.DimK
	if m.Gate == "element" {
		qRows += m.Heads * m.DimV
	}
	m.Linears = append(m.Linears, r.newLinear(Sharded, qRows, r.h, r.attn("q_proj")))
	if !m.SharesKV {
		m.Linears = append(m.Linears, r.newLinear(KVSharded, m.KVHeads*m.DimK, r.h, r.attn("k_proj")))
	}
	if !m.SharesKV && !m.KEqV {
		m.Linears = append(m.Linears, r.newLinear(KVSharded, m.KVHeads*m.DimV, r.h, r.attn("v_proj")))
	}
	biased := r.isBiased("qkv")
	for i := range m.Linears {
		m.Linears[i].Bias = biased
	}
	o := r.newLinear(ShardedIn, r.h, m.Heads*m.DimV, r.attn("o_proj"))
	o.Bias = r.isBiased("o")
	m.Linears = append(m.Linears, o)
	if m.Gate == "head" {
		m.Linears = append(m.Linears, r.newLinear(Sharded, m.Heads, r.h, r.attn("g_proj")))
	}
	if m.Sink {
		m.Small += m.Heads
	}
	switch {
	case r.f.qkNorm == "head": // one norm of queries, one of keys
		m.Small += 2 * m.DimK
	case r.f.qkNorm == "all":
		m.Small += (m.Heads + m.KVHeads) * m.DimK
	}
	r.blockIndex(m)
}

// isBiased reports whether the matrices of a part (qkv, o, mlp) have biases.
func (r *layerReader) isBiased(part string) bool {
	stated := r.flag("attention_bias", false)
	switch r.f.biases {
	case "all", "use_bias":
		return r.flag("use_bias", r.f.biases == "all")
	case "qkv":
		return part == "qkv" && r.flag("attention_bias", true)
	case "attention_bias":
		return part != "mlp" && stated
	}
	return false
}

// blockIndex reads MiniMax-M3's index, which selects blocks of tokens with several query heads and
// one key.
func (r *layerReader) blockIndex(m *Mixer) {
	config := r.object(r.values, "sparse_attention_config")
	if config == nil || config["use_sparse_attention"] == false {
		return
	}
	if list, ok := config["sparse_attention_freq"].([]any); ok && (r.i >= int64(len(list)) || showValue(list[r.i]) == "0") {
		return
	}
	in := r.readerWithin(config)
	m.Index = &Index{Heads: in.requireCount("sparse_num_index_heads"), Dim: in.requireCount("sparse_index_dim"),
		TopK: in.requireCount("sparse_topk_blocks"), Unit: in.requireCount("sparse_block_size")}
	r.err = in.err
	index := m.Index
	m.Linears = append(m.Linears, r.newLinear(Sharded, index.Heads*index.Dim, r.h, r.attn("index_q_proj")),
		r.newLinear(Replicated, index.Dim, r.h, r.attn("index_k_proj")))
	m.Small += 2 * index.Dim // norms of its queries and keys
}

// readMLA returns multi-head latent attention.
func (r *layerReader) readMLA() *Mixer {
	m := &Mixer{
		Kind:   MLA,
		Heads:  r.requireCount("num_attention_heads"),
		KVRank: r.requireCount("kv_lora_rank"),
		Rope:   r.requireCount("qk_rope_head_dim"),
		QRank:  r.layerOr("q_lora_rank", 0),
		DimV:   r.requireCount("v_head_dim"),
	}
	nope := r.requireCount("qk_nope_head_dim")
	m.KVHeads = 1
	m.DimK = nope + m.Rope
	if m.QRank > 0 {
		m.Linears = append(m.Linears, r.newLinear(Replicated, m.QRank, r.h, r.attn("q_a_proj")),
			r.newLinear(Sharded, m.Heads*m.DimK, m.QRank, r.attn("q_b_proj")))
	} else {
		m.Linears = append(m.Linears, r.newLinear(Sharded, m.Heads*m.DimK, r.h, r.attn("q_proj")))
	}
	m.Linears = append(m.Linears, r.newLinear(Replicated, m.KVRank+m.Rope, r.h, r.attn("kv_a_proj_with_mqa")),
		r.newLinear(Sharded, m.Heads*(nope+m.DimV), m.KVRank, r.attn("kv_b_proj")), r.newLinear(ShardedIn, r.h, m.Heads*m.DimV, r.attn("o_proj")))
	if r.flag("mla_use_output_gate", false) {
		m.Gate = "element"
		m.Linears = append(m.Linears, r.newLinear(Sharded, m.Heads*m.DimV, r.h, r.attn("g_proj")))
	}
	m.Small += m.QRank + m.KVRank // norms of both latents
	if r.has("index_topk") {
		m.Index = r.tokenIndex()
		if x := m.Index; !x.Shared {
			m.Linears = append(m.Linears, r.newLinear(Replicated, x.Heads*x.Dim, m.QRank, r.attn("indexer.wq_b")),
				r.newLinear(Replicated, x.Dim, r.h, r.attn("indexer.wk")),
				r.newLinear(Replicated, x.Heads, r.h, r.attn("indexer.weights_proj"), r.attn("indexers_proj")))
			m.Small += 2 * x.Dim // a norm of its keys, with a bias
		}
	}
	return m
}

// tokenIndex returns the index of DeepSeek-V3.2 and GLM-5, which selects tokens. A shared index
// uses an earlier layer's selection.
func (r *layerReader) tokenIndex() *Index {
	index := &Index{
		Heads: r.requireCount("index_n_heads"),
		Dim:   r.requireCount("index_head_dim"),
		TopK:  r.requireCount("index_topk"),
		Unit:  1,
	}
	freq := r.layerOr("index_topk_freq", 1)
	offset := r.layerOr("index_skip_topk_offset", 2)
	if types, ok := r.values["indexer_types"].([]any); ok && r.i < int64(len(types)) {
		index.Shared = types[r.i] == "shared"
	} else if p := r.text("index_topk_pattern"); r.i < int64(len(p)) { // of full and shared layers: FSSF
		index.Shared = p[r.i] == 'S'
	} else if freq > 1 && r.i >= offset {
		index.Shared = (r.i-offset+1)%freq != 0
	}
	return index
}

// readCompressed returns DeepSeek-V4's attention: a window, and entries of compress_ratios[i]
// tokens.
func (r *layerReader) readCompressed() *Mixer {
	ratios, _ := r.values["compress_ratios"].([]any)
	if ratios == nil {
		// transformers 5.24 writes a rate for each layer type instead of a ratio for each layer.
		types, _ := r.values["layer_types"].([]any)
		rates := r.object(r.values, "compress_rates")
		for _, kind := range types {
			ratios = append(ratios, cmp.Or(rates[fmt.Sprint(kind)], any(json.Number("0"))))
		}
	}
	if n := int64(len(ratios)); n < r.layers || n <= r.i {
		r.fail(BadModel, "compress_ratios: got %d entries, want one for each of %d layers", len(ratios), r.layers)
		return nil
	}
	ratio, ok := wholeNumber(ratios[r.i])
	if !ok || ratio != 0 && ratio != 4 && ratio != 128 {
		r.fail(UnsupportedModel, "compress_ratios[%d]: got %s, want 0, 4 or 128", r.i, showValue(ratios[r.i]))
		return nil
	}
	m := &Mixer{
		Kind:    Compressed,
		Heads:   r.requireCount("num_attention_heads"),
		KVHeads: 1,
		DimK:    r.requireCount("head_dim"),
		QRank:   r.requireCount("q_lora_rank"),
		ORank:   r.requireCount("o_lora_rank"),
		OGroups: r.requireCount("o_groups"),
		Window:  r.requireCount("sliding_window"),
		Ratio:   ratio,
		Rope:    r.requireCount("qk_rope_head_dim"),
		Sink:    true,
	}
	m.DimV = m.DimK
	if r.err != nil {
		return nil
	}
	wa := r.newLinear(Sharded, m.ORank, m.Heads*m.DimV/m.OGroups, r.attn("wo_a"))
	wa.Count = m.OGroups
	m.Linears = []Linear{
		r.newLinear(Replicated, m.QRank, r.h, r.attn("wq_a")),
		r.newLinear(Sharded, m.Heads*m.DimK, m.QRank, r.attn("wq_b")),
		r.newLinear(Replicated, m.DimK, r.h, r.attn("wkv")),
		wa,
		r.newLinear(ShardedIn, r.h, m.OGroups*m.ORank, r.attn("wo_b")),
	}
	m.Small = m.QRank + m.DimK + m.Heads // norms of queries and keys, sinks
	if ratio > 0 {
		r.compressor(m, m.DimK, "compressor")
	}
	if ratio == 4 {
		m.Index = &Index{
			Heads: r.requireCount("index_n_heads"),
			Dim:   r.requireCount("index_head_dim"),
			TopK:  r.requireCount("index_topk"),
			Unit:  ratio,
		}
		m.Linears = append(m.Linears, r.newLinear(Replicated, m.Index.Heads*m.Index.Dim, m.QRank, r.attn("indexer.wq_b")),
			r.newLinear(Replicated, m.Index.Heads, r.h, r.attn("indexer.weights_proj")))
		r.compressor(m, m.Index.Dim, "indexer.compressor")
	}
	return m
}

// Overlap returns how many entries of DeepSeek-V4 contain each token: 2 at ratio 4, where
// neighbouring entries overlap, else 1.
func (m *Mixer) Overlap() int64 {
	if m.Ratio == 4 {
		return 2
	}
	return 1
}

// compressor adds the parameters that turn tokens into entries of width dim: values, gates,
// positions within an entry, a norm.
func (r *layerReader) compressor(m *Mixer, dim int64, name string) {
	width := m.Overlap() * dim
	m.Linears = append(m.Linears, r.newLinear(Replicated, width, r.h, r.attn(name+".wkv")), r.newLinear(Replicated, width, r.h,
		r.attn(name+".wgate")))
	m.Small += m.Ratio*width + dim
}

// stateBytes returns the bytes of a value of a recurrent state.
func (r *layerReader) stateBytes() float64 {
	for _, name := range []string{r.opts.MambaSSMCacheDType, r.text("mamba_ssm_cache_dtype"), r.text("mamba_ssm_dtype")} {
		if b := DTypeBytes(name); b > 0 {
			return b
		}
	}
	return r.convBytes()
}

// convBytes returns the bytes of a value in a convolution's state.
func (r *layerReader) convBytes() float64 {
	return cmp.Or(DTypeBytes(r.opts.MambaCacheDType), r.d.DTypeBytes)
}

// readDelta returns a gated delta rule: Qwen's gdn, or Kimi's kda, which decays each dimension of a
// key separately.
func (r *layerReader) readDelta(form string) *Mixer {
	m := &Mixer{Kind: Delta, Form: form, ConvBytes: r.convBytes(), Gate: "element"}
	if form == "kda" {
		return r.readKDA(m)
	}
	m.KVHeads = r.requireCount("linear_num_key_heads")
	m.Heads = r.requireCount("linear_num_value_heads")
	m.DimK = r.requireCount("linear_key_head_dim")
	m.DimV = r.requireCount("linear_value_head_dim")
	m.Conv = r.requireCount("linear_conv_kernel_dim")
	m.StateBytes = r.stateBytes()
	values := m.Heads * m.DimV
	name := func(s string) string { return "linear_attn." + s }
	m.Linears = []Linear{
		r.newLinear(Sharded, 2*m.KVHeads*m.DimK+values, r.h, name("in_proj_qkv")),
		r.newLinear(Sharded, values, r.h, name("in_proj_z")),
		r.newLinear(Sharded, m.Heads, r.h, name("in_proj_b")),
		r.newLinear(Sharded, m.Heads, r.h, name("in_proj_a")),
		r.newLinear(ShardedIn, r.h, values, name("out_proj")),
	}
	m.Small = m.convWidth()*m.Conv + 2*m.Heads + m.DimV // convolution, A_log and dt_bias, norm
	return m
}

// readKDA returns the mixer m as Kimi Delta Attention.
func (r *layerReader) readKDA(m *Mixer) *Mixer {
	inner := r.readerWithin(r.object(r.values, "linear_attn_config"))
	m.Heads = inner.requireCount("num_heads")
	m.DimK = inner.requireCount("head_dim")
	m.Conv = inner.requireCount("short_conv_kernel_size")
	m.KVHeads = m.Heads
	m.DimV = m.DimK
	m.StateBytes = 4
	if r.err = inner.err; r.err != nil {
		return nil
	}
	width := m.Heads * m.DimK
	for _, part := range []string{"q_proj", "k_proj", "v_proj"} {
		m.Linears = append(m.Linears, r.newLinear(Sharded, width, r.h, r.attn(part)))
	}
	lowRank := func(name string) {
		m.Linears = append(m.Linears, r.newLinear(Replicated, m.DimK, r.h, r.attn(name+"_a_proj")), r.newLinear(Sharded, width, m.DimK,
			r.attn(name+"_b_proj")))
	}
	lowRank("f")
	if inner.flag("use_full_rank_gate", false) {
		m.Linears = append(m.Linears, r.newLinear(Sharded, width, r.h, r.attn("g_proj")))
	} else {
		lowRank("g")
	}
	m.Linears = append(m.Linears, r.newLinear(Sharded, m.Heads, r.h, r.attn("b_proj")), r.newLinear(ShardedIn, r.h, width, r.attn("o_proj")))
	m.Small = m.convWidth()*m.Conv + m.Heads + width + m.DimV // convolution, A_log, dt_bias, norm
	return m
}

// readMamba2 returns a state space with scalar decay in each head.
func (r *layerReader) readMamba2() *Mixer {
	m := &Mixer{
		Kind:        Mamba2,
		Heads:       r.requireCount("mamba_num_heads", "mamba_n_heads"),
		DimV:        r.requireCount("mamba_head_dim", "mamba_d_head"),
		StateGroups: r.requireCount("n_groups", "mamba_n_groups"),
		StateSize:   r.requireCount("ssm_state_size", "mamba_d_state"),
		Conv:        r.requireCount("conv_kernel", "mamba_d_conv"),
		StateBytes:  r.stateBytes(),
		ConvBytes:   r.convBytes(),
	}
	inner := m.Heads * m.DimV
	name := "mamba."
	if r.alternates() {
		name = "mixer."
	}
	m.Linears = []Linear{r.newLinear(Sharded, 2*inner+2*m.StateGroups*m.StateSize+m.Heads, r.h, name+"in_proj"),
		r.newLinear(ShardedIn, r.h, inner, name+"out_proj")}
	m.Small = m.convWidth()*m.Conv + 3*m.Heads + inner // convolution; A_log, D and dt_bias; norm
	if r.flag("use_conv_bias", false) || r.flag("mamba_conv_bias", false) {
		m.Small += m.convWidth()
	}
	return m
}

// readMamba1 returns a selective state space.
func (r *layerReader) readMamba1() *Mixer {
	m := &Mixer{
		Kind:       Mamba1,
		Heads:      1,
		StateSize:  r.requireCount("mamba_d_state"),
		Conv:       r.requireCount("mamba_d_conv"),
		StateBytes: r.stateBytes(),
		ConvBytes:  r.convBytes(),
		DimV:       r.requireCount("mamba_expand") * r.h,
	}
	m.DTRank = (r.h + 15) / 16 // mamba_dt_rank auto
	if r.text("mamba_dt_rank") != "auto" {
		m.DTRank = cmp.Or(r.countOr("mamba_dt_rank"), m.DTRank)
	}
	inner := m.DimV
	m.Linears = []Linear{
		r.newLinear(Sharded, 2*inner, r.h, "mamba.in_proj"),
		r.newLinear(ShardedIn, m.DTRank+2*m.StateSize, inner, "mamba.x_proj"),
		r.newLinear(Sharded, inner, m.DTRank, "mamba.dt_proj"),
		r.newLinear(ShardedIn, r.h, inner, "mamba.out_proj"),
	}
	// The convolution with its bias, the bias of dt_proj, A_log, D, and norms of dt, B and C.
	m.Small = inner*(m.Conv+1) + inner + inner*m.StateSize + inner + m.DTRank + 2*m.StateSize
	return m
}

// readLightning returns MiniMax's linear attention.
func (r *layerReader) readLightning() *Mixer {
	m := &Mixer{Kind: Lightning, Heads: r.requireCount("num_attention_heads"), StateBytes: 4}
	m.KVHeads = m.Heads
	m.DimK = r.headDim(m.Heads)
	m.DimV = m.DimK
	width := m.Heads * m.DimK
	m.Linears = []Linear{
		r.newLinear(Sharded, 3*width, r.h, r.attn("qkv_proj")),
		r.newLinear(Sharded, width, r.h, r.attn("output_gate")),
		r.newLinear(ShardedIn, r.h, width, r.attn("out_proj")),
	}
	m.Small = width // a norm of the result
	return m
}

// convWidth returns how many channels the mixer's convolution has.
func (m *Mixer) convWidth() int64 {
	switch m.Kind {
	case Delta:
		return 2*m.KVHeads*m.DimK + m.Heads*m.DimV
	case Mamba2:
		return m.Heads*m.DimV + 2*m.StateGroups*m.StateSize
	case Mamba1:
		return m.DimV
	}
	return 0
}
