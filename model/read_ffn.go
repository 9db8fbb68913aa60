package model

// This file reads the FFN of each layer, dense or experts, from config.json.

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// sharedWidth returns the total width of the shared experts; 0 without any.
func (c *hfConfig) sharedWidth(expertWidth int64) int64 {
	if key, _ := c.firstKey("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
		"share_expert_dim"); key != "" {
		return c.layerOr(key, 0)
	}
	key, _ := c.firstKey("n_shared_experts", "num_shared_experts")
	return c.layerOr(key, 0) * expertWidth
}

// moePattern sets has[i] for the layers with experts, from frequencies, steps and lists
// (spec#model-moe).
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
	if key, v := c.firstKey("decoder_sparse_step", "interleave_moe_layer_step"); v != nil {
		step = c.layerOr(key, 1)
	}
	list, _ := c.values["mlp_only_layers"].([]any)
	last := cmp.Or(c.countOr("moe_layer_end_index"), layers) // the last layer with experts (ERNIE)
	for i := firstDense; i < layers && step > 0; i++ {
		has[i] = i%freq == 0 && (i+1)%step == 0 && i <= last
	}
	for _, v := range list {
		i, ok := wholeNumber(v)
		if !ok || i < 0 {
			c.fail(BadModel, "mlp_only_layers: got %s, want numbers of layers", showValue(v))
		} else if i < layers {
			has[i] = false
		}
	}
}

// statedPattern sets has[k] (layer k has experts) from moe_layer_freq of config.json, a list of 0 or 1
// or of booleans, one for each layer.
func (c *hfConfig) statedPattern(pattern []any, has []bool) {
	if len(pattern) != len(has) {
		c.fail(BadModel, "moe_layer_freq: got a list of %d, want one entry for each of %d layers", len(pattern), len(has))
		return
	}
	for k, v := range pattern {
		i, ok := wholeNumber(v)
		if _, isFlag := v.(bool); !ok && !isFlag {
			c.fail(BadModel, "moe_layer_freq: got %s for layer %d, want 0 or 1", showValue(v), k)
		}
		has[k] = ok && i != 0 || v == true
	}
}

// fourHiddenMLP are families whose MLP is 4 times as wide as the hidden size where config.json
// states no width.
var fourHiddenMLP = []string{"gpt2", "gptj", "bloom", "falcon", "gpt_bigcode"}

// expertLayers reports for each layer whether it has experts (spec#model-moe).
func (r *layerReader) expertLayers() []bool {
	out := make([]bool, r.layers)
	if n := r.numExperts(); n < 2 || r.values["enable_moe_block"] == false {
		return out
	}
	if list, ok := r.values["mlp_layer_types"].([]any); ok {
		for i := range min(len(list), len(out)) {
			out[i] = list[i] != "dense"
		}
		return out
	}
	if listed, ok := r.values["moe_layers_enum"].(string); ok {
		for entry := range strings.SplitSeq(listed, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(entry))
			if err != nil || n < 0 {
				r.fail(BadModel, "moe_layers_enum: got %q, want numbers of layers", listed)
			} else if n < len(out) {
				out[n] = true
			}
		}
		return out
	}
	if period, ok := r.readCount("expert_layer_period"); ok {
		for i := range out {
			out[i] = int64(i)%period == r.layerOr("expert_layer_offset", 0)
		}
		return out
	}
	r.moePattern(out)
	return out
}

// numExperts returns the number of routed experts.
func (r *layerReader) numExperts() int64 {
	return r.countOr("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
}

// readFFN returns the FFN of the current layer.
func (r *layerReader) readFFN() *FFN {
	if block := r.searchedBlock(); block != nil {
		return r.readSearchedFFN(block)
	}
	if r.experts[r.i] {
		return r.readExperts()
	}
	return r.readDense()
}

// readDense returns a dense MLP.
func (r *layerReader) readDense() *FFN {
	f := &FFN{Kind: Dense, Projections: r.f.mlpMatrices, Width: r.denseWidth()}
	if r.i >= r.layers-r.layerOr("num_kv_shared_layers", 0) && r.flag("use_double_wide_mlp", false) {
		f.Width *= 2
	}
	f.Linears = r.mlpLinears(f.Width, r.f.mlpModule)
	return f
}

// readSearchedFFN returns the FFN of a layer from an architecture search (nemotron-nas). ffn_mult m
// stands for a width of 2 m h / 3, rounded up to a multiple of 256.
func (r *layerReader) readSearchedFFN(block map[string]any) *FFN {
	config := r.object(block, "ffn")
	switch {
	case config["no_op"] == true:
		return nil
	case config["replace_with_linear"] == true:
		return &FFN{Kind: LinearFFN, Width: r.h, Linears: []Linear{r.newLinear(Sharded, r.h, r.h, r.f.mlpModule+".linear")}}
	}
	width, ok := wholeNumber(config["intermediate_size"])
	number, _ := config["ffn_mult"].(json.Number)
	if mult, err := number.Float64(); !ok && err == nil && mult > 0 && mult < 1e4 {
		width = (int64(2*mult*float64(r.h)/3) + 255) / 256 * 256
		ok = true
	}
	if !ok {
		r.fail(BadModel, "block_configs[%d].ffn.ffn_mult: got %s, want a number > 0", r.i, showValue(config["ffn_mult"]))
		return nil
	}
	return &FFN{Kind: Dense, Projections: r.f.mlpMatrices, Width: width, Linears: r.mlpLinears(width, r.f.mlpModule)}
}

// denseWidth returns the width of a dense MLP.
func (r *layerReader) denseWidth() int64 {
	if r.isType("granitemoehybrid") {
		return r.requireCount("shared_intermediate_size")
	}
	if n, ok := r.readCount("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"); ok {
		return n
	}
	if r.isType(fourHiddenMLP...) {
		return 4 * r.h
	}
	return r.requireCount("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
}

// mlpLinears returns the matrices of an MLP whose module in the checkpoint is name.
func (r *layerReader) mlpLinears(width int64, name string) []Linear {
	down := r.newLinear(ShardedIn, r.h, width, name+".down_proj")
	up := r.newLinear(Sharded, width, r.h, name+".up_proj")
	if r.f.mlpMatrices == 3 {
		up = r.newLinear(Sharded, 2*width, r.h, name+".gate_up_proj", name+".gate_proj", name+".up_proj")
	}
	up.Bias = r.isBiased("mlp") || r.flag("mlp_bias", false)
	down.Bias = up.Bias
	return []Linear{up, down}
}

// readExperts returns experts, router, shared experts and a parallel dense MLP.
func (r *layerReader) readExperts() *FFN {
	f := &FFN{Kind: Experts, Projections: r.f.mlpMatrices, Experts: r.numExperts(),
		TopK:   r.requireCount("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token", "top_k_experts", "moe_top_k"),
		Latent: r.layerOr("moe_latent_size", r.layerOr("routed_expert_hidden_size", 0))}
	var given bool
	if f.Width, given = r.readCount("moe_intermediate_size", "expert_intermediate_size"); !given {
		f.Width = r.requireCount("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
	}
	if r.err == nil && f.TopK > f.Experts {
		r.fail(BadModel, "num_experts_per_tok: got %d, want 1..%d experts", f.TopK, f.Experts)
	}
	f.SharedWidth = r.sharedWidth(f.Width)
	if r.isType("llama4", "llama4_text") {
		f.SharedWidth = f.Width
	}
	at := strings.TrimPrefix(r.f.moeModule+".", ".") // the module's name, before those of its parts
	in := r.h                                        // width that the experts work in
	if f.Latent > 0 {
		in = f.Latent
		f.Linears = append(f.Linears, r.newLinear(Replicated, in, r.h, at+"fc1_latent_proj"), r.newLinear(Replicated, r.h, in, at+"fc2_latent_proj"))
	}
	up := r.newLinear(ByExpert, f.Width, in, at+"experts.up_proj", r.expertNames(at)...)
	if r.f.mlpMatrices == 3 {
		up = r.newLinear(ByExpert, 2*f.Width, in, at+"experts.gate_up_proj", r.expertNames(at)...)
	}
	down := r.newLinear(ByExpert, in, f.Width, at+"experts.down_proj", r.expertNames(at)...)
	for _, l := range []*Linear{&up, &down} {
		l.Count = f.Experts
		l.Active = f.TopK
		l.Bias = r.f.expertBiases
	}
	router := Linear{
		Name:      at + "gate",
		Rows:      f.Experts,
		Columns:   r.h,
		Count:     1,
		Placement: Replicated,
		Quant:     r.q.plain,
		Bias:      r.f.expertBiases,
	}
	f.Linears = append(f.Linears, router, up, down)
	r.addBesideMLP(f, at)
	return f
}

// expertNames returns the names that lists of modules use for the matrices of experts.
func (r *layerReader) expertNames(at string) []string {
	return []string{at + "experts", at + "experts.0.up_proj", at + "experts.0.w1"}
}

// addBesideMLP adds what runs in parallel with the experts: shared experts, a dense MLP (Gemma 4),
// and small parameters of the router.
func (r *layerReader) addBesideMLP(f *FFN, at string) {
	if f.SharedWidth > 0 {
		name := at + "shared_experts"
		if r.has("shared_expert_intermediate_size") || r.isType("llama4_text") {
			name = at + "shared_expert"
		}
		f.Linears = append(f.Linears, r.mlpLinears(f.SharedWidth, name)...)
		if r.f.sharedExpertGate {
			f.Small += r.h
		}
	}
	if r.f.routerBias && r.i >= r.layerOr("num_hash_layers", 0) { // DeepSeek-V4's first layers route by a hash
		f.Small += f.Experts
	}
	if r.flag("latent_moe_use_norm", false) {
		f.Small += f.Latent
	}
	if r.isType("gemma4_text", "gemma4") {
		f.BesideWidth = r.requireCount("intermediate_size")
		f.Linears = append(f.Linears, r.mlpLinears(f.BesideWidth, r.f.mlpModule)...)
		f.Small += r.h + f.Experts // the router's scales: of its input and of each expert
	}
}
