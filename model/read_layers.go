package model

// This file reads the layers of a model from config.json, in order, and the kind of each.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

//go:generate go test -run TestModelsPageIsGenerated . -update

// layerReader turns the keys of a config.json into layers, in order.
type layerReader struct {
	*hfConfig
	f       *modelFamily // what config.json does not state
	q       *quantizer   // how matrices are stored
	h       int64        // hidden size
	layers  int64        // number of layers
	i       int64        // the layer being read
	d       *Decoder     // the result
	opts    Options
	experts []bool // by layer: it has experts
}

// readDecoder reads embedding, layers and head.
func (r *layerReader) readDecoder() {
	d := r.d
	d.Vocab = r.requireCount("vocab_size")
	d.Hidden = r.requireCount("hidden_size", "n_embd", "d_model")
	r.h = d.Hidden
	r.layers = r.layerCount()
	d.Tied = r.flag("tie_word_embeddings", false)
	if r.err != nil {
		return
	}
	if n := r.countOr("word_embed_proj_dim"); n > 0 && n != r.h {
		r.fail(UnsupportedModel, "word_embed_proj_dim: got %d, an embedding of another width, want %d", n, r.h)
	}
	d.Embedding = r.newLinear(Sharded, d.Vocab, d.Hidden, embeddingName)
	d.Head = r.newLinear(Sharded, d.Vocab, d.Hidden, headName)
	d.Small = r.f.finalNorms*r.h + r.headHyperParams()
	if r.f.learnedPositions { // learned ones, added to the embedding
		d.Small += r.countOr("max_position_embeddings", "n_positions") * r.h
	}
	if p := r.countOr("hidden_size_per_layer_input"); p > 0 { // Gemma's second table: a vector for each layer
		d.PerLayer = []Linear{r.newLinear(Sharded, r.requireCount("vocab_size_per_layer_input"), r.layers*p, embeddingName+"_per_layer"),
			r.newLinear(Replicated, r.layers*p, r.h, "per_layer_model_projection")}
		d.Small += p
	}
	kinds := r.layerKinds()
	r.experts = r.expertLayers()
	if r.numExperts() >= 2 && !r.alternates() && !slices.Contains(r.experts, true) && r.values["enable_moe_block"] != false {
		r.fail(BadModel, "num_experts: got %d, but the rules leave 0 of %d layers with experts, want at least 1", r.numExperts(), r.layers)
	}
	for r.i = 0; r.i < r.layers && r.err == nil; r.i++ {
		d.Layers = append(d.Layers, r.readLayer(kinds[r.i]))
	}
	if r.err == nil {
		r.readPredictors()
	}
}

// readPredictors reads the layers of multi-token prediction as DeepSeek-V3 has them: a projection of the
// hidden state concatenated with a token's embedding, norms of both, and a layer like the model's last.
// They share the model's embedding and head.
func (r *layerReader) readPredictors() {
	keys := []string{"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}
	n := r.countOr(keys...)
	kinds := []layerKind{fullLayer}
	// A key that states no whole number is named, and counts as none.
	for _, key := range keys {
		v, stated := r.values[key]
		if none, isInt := wholeNumber(v); n == 0 && stated && (!isInt || none != 0) {
			r.d.Warnings = append(r.d.Warnings, fmt.Sprintf("%s: got %v, taken for none", key, v))
		}
	}
	if r.alternates() {
		kinds = append(kinds, onlyExperts)
	}
	for r.i = r.layers; r.i < r.layers+min(n, maxPredictors) && len(r.experts) > 0; r.i++ {
		r.experts = append(r.experts, r.experts[r.layers-1] && !r.has("moe_layers_enum"))
		if list, key := r.statedKinds(); r.i < int64(len(list)) {
			kinds[0] = r.kindNamed(key, list[r.i])
		}
		for i, kind := range kinds {
			l := r.readLayer(kind)
			if r.err != nil { // a list without an entry for this layer; the rest of the model is right
				r.d.MTP, r.err = nil, nil
				r.d.Warnings = append(r.d.Warnings, predictorsUnread)
				return
			}
			if i == 0 { // the projection and three norms: of the hidden state, of the embedding and of the result
				projection := r.newLinear(Replicated, r.h, 2*r.h, "eh_proj")
				projection.Quant = r.q.plain
				l.Mixer.Linears = append(l.Mixer.Linears, projection)
				l.Small += 3 * r.h
			}
			r.d.MTP = append(r.d.MTP, l)
		}
	}
}

const (
	maxPredictors    = 16
	predictorsUnread = "the layers of multi-token prediction are not read"
)

// layerCount returns the number of layers: as stated, else the length of a list with one entry for
// each.
func (r *layerReader) layerCount() int64 {
	if list, key := r.statedKinds(); key == "hybrid_override_pattern" || key == "layers_block_type" {
		if n := r.countOr("num_hidden_layers"); n > 0 && n != int64(len(list)) {
			r.fail(BadModel, "%s: got %d entries, want one for each of %d layers", key, len(list), n)
		}
		return int64(len(list))
	}
	n := r.requireCount("num_hidden_layers", "n_layer", "num_layers")
	if n > maxLayers {
		r.fail(BadModel, "num_hidden_layers: got %d, want at most %d", n, maxLayers)
	}
	return n
}

const maxLayers = 10_000

// readLayer returns one layer whose mixer is of the given kind.
func (r *layerReader) readLayer(kind layerKind) Layer {
	var l Layer
	blocks := int64(2) // mixer and FFN, as far as the layer has them: the norms are divided between the two
	if kind != onlyFFN && kind != onlyExperts {
		l.Mixer = r.readMixer(kind)
		if e, ok := r.err.(*trace.SyntaxError); ok && (kind != fullLayer && kind != windowLayer || r.has("kv_lora_rank")) {
			e.Code = UnsupportedModel // of a form that we cannot read
		}
	}
	if l.Mixer == nil {
		blocks--
	}
	switch {
	case kind == onlyExperts:
		l.FFN = r.readExperts()
	case kind == onlyFFN:
		l.FFN = r.readDense()
	case !r.alternates():
		l.FFN = r.readFFN()
	}
	if l.FFN == nil {
		blocks--
	}
	l.Small = r.f.layerNorms*r.h*blocks/2 + r.extraParams(l.FFN)
	return l
}

// newLinear returns one matrix. parts are the names of its parts in the checkpoint where vLLM fuses
// several.
func (r *layerReader) newLinear(at Placement, rows, columns int64, name string, parts ...string) Linear {
	l := Linear{Name: name, Rows: rows, Columns: columns, Count: 1, Placement: at}
	l.Quant = r.q.quantOf(r.i, &l, parts)
	return l
}

// hyperParams returns the parameters of one hyper-connection of DeepSeek-V4, which mixes hc_mult
// streams of the hidden size: a matrix with (2 + hc_mult) hc_mult rows over all streams, a base for each
// row, and three scales. A layer has two, around mixer and FFN.
func (r *layerReader) hyperParams() int64 {
	streams := r.countOr("hc_mult")
	if streams == 0 {
		return 0
	}
	rows := (2 + streams) * streams
	return rows*streams*r.h + rows + 3
}

// headHyperParams returns the parameters of the hyper-connection before the head, which only reads the
// streams: a row and a base for each, and a scale.
func (r *layerReader) headHyperParams() int64 {
	streams := r.countOr("hc_mult")
	if streams == 0 {
		return 0
	}
	return streams*streams*r.h + streams + 1
}

// extraParams returns the number of parameters of a layer outside mixer, FFN and norms.
func (r *layerReader) extraParams(ffn *FFN) int64 {
	n := 2 * r.hyperParams()
	if r.countOr("attn_res_block_size") > 0 {
		n += 4 * r.h // Kimi-K3's attention residuals: a query and a norm for each of both blocks
	}
	if r.isType("gemma4_text", "gemma4") {
		n++ // the layer's scalar
		if ffn != nil && ffn.Kind == Experts {
			n += 3 * r.h // norms around the experts
		}
		if p := r.countOr("hidden_size_per_layer_input"); p > 0 { // its gate, its projection and a norm
			n += 2*r.h*p + r.h
		}
	}
	return n
}

// layerKind is the kind of a layer as config.json names it.
type layerKind string

const (
	fullLayer   layerKind = "full_attention"
	windowLayer layerKind = "sliding_attention"
	chunkLayer  layerKind = "chunked_attention"
	linearLayer layerKind = "linear_attention"
	noMixer     layerKind = "no_op"
	oneMatrix   layerKind = "replace_with_linear"
	onlyFFN     layerKind = "mlp"
	onlyExperts layerKind = "moe"
	mambaLayer  layerKind = "mamba"
	attnLayer   layerKind = "attention"
	sparseLayer layerKind = "deepseek_sparse_attention"
)

// alternates reports whether each layer is either a mixer or an FFN, not both.
func (r *layerReader) alternates() bool { return r.isType("nemotron_h") }

// layerKinds returns the kind of every layer.
func (r *layerReader) layerKinds() []layerKind {
	kinds := make([]layerKind, r.layers)
	if list, key := r.statedKinds(); list != nil {
		if int64(len(list)) < r.layers {
			r.fail(BadModel, "%s: got %d entries, want one for each of %d layers", key, len(list), r.layers)
			return kinds
		}
		for i := range kinds { // entries beyond the layers are of multi-token prediction
			kinds[i] = r.kindNamed(key, list[i])
		}
		return kinds
	}
	rest := r.windowKind()
	for i := range kinds {
		kinds[i] = rest
		if r.isFull(int64(i)) {
			kinds[i] = fullLayer
		}
	}
	return kinds
}

// statedKinds returns the list of kinds that config.json has, and its key; nil without one.
func (r *layerReader) statedKinds() ([]any, string) {
	for _, key := range []string{"layers_block_type", "layer_types", "hybrid_layer_pattern", "attn_type_list", "block_configs",
		"no_rope_layers"} {
		if list, ok := r.values[key].([]any); ok && len(list) > 0 {
			return list, key
		}
	}
	if pattern := r.text("hybrid_override_pattern"); pattern != "" {
		list := make([]any, len(pattern))
		for i, c := range pattern {
			list[i] = string(c)
		}
		return list, "hybrid_override_pattern"
	}
	return nil, ""
}

// kindNamed returns the kind that an entry of a list stands for.
func (r *layerReader) kindNamed(key string, entry any) layerKind {
	if key == "block_configs" {
		block, _ := entry.(map[string]any)
		attention, _ := block["attention"].(map[string]any)
		switch {
		case attention["no_op"] == true:
			return noMixer
		case attention["replace_with_linear"] == true:
			return oneMatrix
		}
		return fullLayer
	}
	name := fmt.Sprint(entry)
	kind, ok := map[string]map[string]layerKind{ // by key of config.json and entry
		"hybrid_override_pattern": {"M": mambaLayer, "*": fullLayer, "-": onlyFFN, "E": onlyExperts},
		"hybrid_layer_pattern":    {"0": fullLayer, "1": windowLayer},
		"attn_type_list":          {"0": linearLayer, "1": fullLayer},
		"no_rope_layers":          {"0": fullLayer, "1": chunkLayer},
	}[key][name]
	if ok {
		return kind
	}
	switch kind = layerKind(name); kind {
	case attnLayer:
		return fullLayer
	case windowLayer, chunkLayer:
		if r.countOr("sliding_window", "attention_chunk_size") == 0 {
			return fullLayer
		}
		return kind
	case fullLayer, linearLayer, mambaLayer, onlyFFN, onlyExperts:
		return kind
	case sparseLayer, "indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention":
		return fullLayer // readMLA and readCompressed read the index and the compression
	}
	r.fail(UnsupportedModel, "%s: got %q, want full_attention, sliding_attention, chunked_attention, linear_attention, mamba, "+
		"attention, moe or mlp", key, name)
	return fullLayer
}

// windowKind returns the kind of the layers that isFull excludes.
func (r *layerReader) windowKind() layerKind {
	switch {
	case r.f.linear != "":
		return linearLayer
	case r.countOr("attention_chunk_size") > 0:
		return chunkLayer
	case r.countOr("sliding_window") > 0 && r.flag("use_sliding_window", true):
		return windowLayer
	}
	return fullLayer
}

// isFull reports whether layer i has full attention, in a config without a list of layer types.
func (r *layerReader) isFull(i int64) bool {
	if config, ok := r.values["linear_attn_config"].(map[string]any); ok { // Kimi's list counts layers from 1
		full, _ := config["full_attn_layers"].([]any)
		return slices.Contains(full, any(json.Number(fmt.Sprint(i+1))))
	}
	if period, ok := r.readCount("attn_layer_period"); ok {
		return i%period == r.layerOr("attn_layer_offset", 0)
	}
	if p := r.text("sliding_window_pattern"); p != "" { // of local and global layers: LLLG
		return p[i%int64(len(p))] == 'G' || i == r.layers-1
	}
	period := r.f.period
	if n := r.countOr(r.f.periodKey, "sliding_window_pattern"); n > 0 {
		period = n
	}
	if first := r.countOr("max_window_layers"); first > 0 { // Qwen2: the first layers have full attention
		return i < first
	}
	return period > 0 && (i+1)%period == 0
}

// KVTypeBytes returns the bytes of a cached value by --kv-cache-dtype, 0 for an unknown name.
func KVTypeBytes(name string) float64 {
	return cmp.Or(map[string]float64{"nvfp4": 0.5 + 1.0/16, "int8": 1}[name], DTypeBytes(name))
}
