package model

// This file lists the families of models that can be read, with what their config.json does not state.

import (
	"cmp"
	"sync"
)

// modelFamily has the properties of some types of models that their config.json does not state: the
// values of absent keys in their Hugging Face configuration class, and properties for which there
// is no key.
type modelFamily struct {
	types []string // values of model_type, without the suffix _text

	// defaults are the values of absent keys; the reader lists those it used in [Decoder].Defaulted.
	// nil keeps a key absent. textDefaults apply too where the decoder's keys are in a text_config,
	// which the configurations of models with images and audio write in part.
	defaults     map[string]any
	textDefaults map[string]any
	renamed      map[string]string // this family's word for a key -> the word that the reader knows

	mixer  MixerKind // Compressed; "": MLA where config.json has a kv_lora_rank, else GQA
	linear string    // mixer of the layers without attention: gdn, kda, mamba1, mamba2 or lightning

	// Without a list of layer types every period-th layer has full attention. The others have the mixer
	// of linear, or attention within a chunk or a window. periodKey is the key that overrides period.
	period    int64
	periodKey string

	layerNorms  int64 // vectors of the hidden size in the norms of a layer, two for a norm with a bias; unset: 2
	finalNorms  int64 // the same in the norm after the last layer; unset: 1
	mlpMatrices int64 // 3 with a gate, 2 without; unset: 3

	qkNorm   string // norms of queries and keys: "head" has one weight vector of a head's width each, "all" of all heads
	biases   string // matrices with a bias; see isBiased: "all", "qkv", "attention_bias", "use_bias" or "" for none
	gate     string // granularity of the gate on the attention's output: "element" or "head"
	headGate bool   // one gate a head, where use_head_wise_attn_gate is on
	sinks    bool   // an attention sink for each head

	// Names of a layer's modules in the checkpoint, which lists of (un)quantized modules use.
	// Unset: self_attn, mlp and mlp.
	attnModule string
	mlpModule  string
	moeModule  string

	sharedExpertGate bool // shared experts are weighted by a gate
	routerBias       bool // the router has a correction bias for each expert
	expertBiases     bool // the matrices of experts have biases
	learnedPositions bool // an embedding of positions
}

const (
	none        = -1  // no norms at all
	layerItself = "-" // the experts are modules of the layer, without a name between
)

// withFallbacks returns the family with the values that its unset fields stand for.
func (f modelFamily) withFallbacks() *modelFamily {
	f.layerNorms = normVectors(f.layerNorms, 2)
	f.finalNorms = normVectors(f.finalNorms, 1)
	f.mlpMatrices = cmp.Or(f.mlpMatrices, 3)
	f.attnModule = cmp.Or(f.attnModule, "self_attn")
	f.mlpModule = cmp.Or(f.mlpModule, "mlp")
	f.moeModule = cmp.Or(f.moeModule, "mlp")
	if f.moeModule == layerItself {
		f.moeModule = ""
	}
	return &f
}

// normVectors returns the vectors of a norm: n, fallback where n is 0, and 0 where it is none.
func normVectors(n, fallback int64) int64 {
	if n == none {
		return 0
	}
	return cmp.Or(n, fallback)
}

// familyByType returns the family of each model_type.
var familyByType = sync.OnceValue(func() map[string]*modelFamily {
	byType := map[string]*modelFamily{}
	for i := range modelFamilies {
		f := modelFamilies[i].withFallbacks()
		for _, name := range f.types {
			byType[name] = f
		}
	}
	return byType
})

// classDefaults are the values that the configuration class of one model_type has for absent keys, beside
// those of its family. A class without an entry derives the number of KV heads and the width of a head from
// the other sizes.
//
// Source: huggingface/transformers 5.24, models/*/configuration_*.py.
var classDefaults = map[string]map[string]any{
	"afmoe":          {"head_dim": 128, "num_experts_per_tok": 6},
	"ernie4_5":       {"num_key_value_heads": 2, "head_dim": 128},
	"ernie4_5_moe":   {"num_key_value_heads": 4},
	"gemma":          {"head_dim": 256},
	"gemma2":         {"head_dim": 256},
	"glm":            {"num_key_value_heads": 2, "head_dim": 128},
	"glm4":           {"num_key_value_heads": 2, "head_dim": 128},
	"glm4_moe":       {"num_key_value_heads": 8, "num_experts_per_tok": 8},
	"glm4v_moe":      {"num_key_value_heads": 8, "num_experts_per_tok": 8},
	"gpt_oss":        {"head_dim": 64, "num_experts_per_tok": 4},
	"granitemoe":     {"num_experts_per_tok": 2},
	"internlm3":      {"num_key_value_heads": 2, "head_dim": 128},
	"jamba":          {"num_key_value_heads": 8, "num_experts_per_tok": 2},
	"llama4":         {"num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 1},
	"minimax_m2":     {"num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 8},
	"ministral3":     {"head_dim": 128},
	"mixtral":        {"num_experts_per_tok": 2},
	"olmoe":          {"num_experts_per_tok": 8},
	"phimoe":         {"num_key_value_heads": 8, "num_experts_per_tok": 2},
	"qwen2_5_vl":     {"num_key_value_heads": 8},
	"qwen2_moe":      {"num_key_value_heads": 16, "num_experts_per_tok": 4},
	"qwen2_vl":       {"num_key_value_heads": 8},
	"qwen3":          {"num_key_value_heads": 32, "head_dim": 128},
	"qwen3_5":        {"num_key_value_heads": 4, "head_dim": 256},
	"qwen3_5_moe":    {"num_key_value_heads": 2, "head_dim": 256, "num_experts_per_tok": 8},
	"qwen3_moe":      {"num_key_value_heads": 4, "num_experts_per_tok": 8},
	"qwen3_next":     {"num_key_value_heads": 2, "head_dim": 256, "num_experts_per_tok": 10},
	"qwen3_omni_moe": {"num_key_value_heads": 4, "num_experts_per_tok": 8},
	"qwen3_vl":       {"num_key_value_heads": 32, "head_dim": 128},
	"qwen3_vl_moe":   {"num_key_value_heads": 16, "num_experts_per_tok": 4},
	"seed_oss":       {"num_key_value_heads": 8, "head_dim": 128},
	"smollm3":        {"num_key_value_heads": 4, "tie_word_embeddings": true},
	"solar_open":     {"num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 8},
}

// modelFamilies lists the families of models that can be read. Unless a row states otherwise, every
// layer has attention, a gated MLP and two norms, there are no biases, and embedding and output head
// are two matrices.
var modelFamilies = []modelFamily{
	{
		types:    []string{"mistral", "mistral3", "ministral", "ministral3"},
		biases:   "attention_bias",
		defaults: map[string]any{"num_key_value_heads": 8},
		textDefaults: map[string]any{
			"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
			"intermediate_size": 14336, "vocab_size": 32000,
		},
	},
	{
		types:  []string{"llama"},
		biases: "attention_bias",
		textDefaults: map[string]any{
			"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
			"intermediate_size": 11008, "vocab_size": 32000,
		},
	},
	{
		types: []string{
			"phi3", "internlm3", "granite", "exaone", "smollm3", "deepseek", "granitemoe",
			"granitemoeshared",
		},
		biases: "attention_bias",
	},
	{types: []string{"internlm2", "baichuan", "minicpm"}},
	{
		types: []string{
			"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "mimo", "seed_oss",
		},
		biases:           "qkv",
		sharedExpertGate: true,
		defaults:         map[string]any{"use_sliding_window": false},
	},
	{
		types:    []string{"qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe"},
		biases:   "attention_bias",
		qkNorm:   "head",
		defaults: map[string]any{"use_sliding_window": false},
	},
	{
		types:     []string{"mixtral"},
		moeModule: "block_sparse_moe",
		defaults:  map[string]any{"num_key_value_heads": 8},
	},
	{
		types:      []string{"phimoe"},
		biases:     "all",
		moeModule:  "block_sparse_moe",
		layerNorms: 4,
		finalNorms: 2,
	},
	{
		types:    []string{"gemma"},
		defaults: map[string]any{"tie_word_embeddings": true, "num_key_value_heads": 16},
	},
	{
		types:      []string{"gemma2"},
		layerNorms: 4,
		period:     2,
		defaults: map[string]any{
			"tie_word_embeddings": true, "sliding_window": 4096, "num_key_value_heads": 4,
		},
	},
	{
		types:      []string{"gemma3"},
		layerNorms: 4,
		qkNorm:     "head",
		period:     6,
		periodKey:  "sliding_window_pattern",
		defaults: map[string]any{
			"tie_word_embeddings": true, "head_dim": 256, "sliding_window": 4096,
			"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
		},
	},
	{
		types:      []string{"gemma4"},
		layerNorms: 4,
		qkNorm:     "head",
		period:     6,
		moeModule:  layerItself,
		defaults: map[string]any{
			"tie_word_embeddings": true, "head_dim": 256, "global_head_dim": 512,
			"sliding_window": 512, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0,
			"enable_moe_block": false, "attention_k_eq_v": false,
		},
	},
	{types: []string{"arcee"}, biases: "attention_bias", mlpMatrices: 2},
	{
		types:       []string{"apertus"},
		biases:      "attention_bias",
		mlpMatrices: 2,
		qkNorm:      "head",
	},
	{
		types:  []string{"hunyuan_v1_dense", "hunyuan_v1_moe"},
		biases: "attention_bias",
		qkNorm: "head",
		renamed: map[string]string{
			"num_shared_expert": "n_shared_experts", "moe_topk": "num_experts_per_tok",
			"moe_intermediate_size": "moe_intermediate_size",
		},
	},
	{
		types:      []string{"ernie4_5", "ernie4_5_moe"},
		biases:     "use_bias",
		routerBias: true,
		renamed: map[string]string{
			"moe_num_shared_experts": "n_shared_experts",
			"moe_layer_start_index":  "first_k_dense_replace",
			"moe_layer_interval":     "decoder_sparse_step",
		},
		defaults: map[string]any{"tie_word_embeddings": true},
	},
	{types: []string{"bailing_moe", "bailing_moe_v2"}, qkNorm: "head", routerBias: true},
	{types: []string{"glm"}, biases: "qkv"},
	{types: []string{"glm4"}, biases: "qkv", layerNorms: 4},
	{
		types:      []string{"glm4_moe", "glm4v_moe", "solar_open"},
		biases:     "attention_bias",
		routerBias: true,
	},
	{
		types:      []string{"cohere"},
		layerNorms: 1,
		defaults:   map[string]any{"tie_word_embeddings": true},
	},
	{
		types:      []string{"cohere2"},
		layerNorms: 1,
		period:     4,
		defaults:   map[string]any{"tie_word_embeddings": true},
	},
	{types: []string{"stablelm"}, layerNorms: 4, finalNorms: 2},
	{types: []string{"olmo"}, layerNorms: none, finalNorms: none},
	{types: []string{"olmo2", "olmo3", "olmoe"}, qkNorm: "all"},
	{
		types:      []string{"exaone4", "exaone_moe"},
		qkNorm:     "head",
		routerBias: true,
		period:     4,
		periodKey:  "sliding_window_pattern",
	},
	{
		types:      []string{"afmoe"},
		layerNorms: 4,
		qkNorm:     "head",
		gate:       "element",
		biases:     "attention_bias",
		routerBias: true,
		period:     4,
		periodKey:  "sliding_window_pattern",
		renamed: map[string]string{
			"num_dense_layers":           "first_k_dense_replace",
			"global_attn_every_n_layers": "sliding_window_pattern",
		},
	},
	{
		types:      []string{"dots1"},
		qkNorm:     "head",
		biases:     "attention_bias",
		routerBias: true,
	},
	{
		types:        []string{"gpt_oss"},
		biases:       "attention_bias",
		expertBiases: true,
		sinks:        true,
		period:       2,
		defaults: map[string]any{
			"sliding_window": 128, "attention_bias": true, "num_key_value_heads": 8,
		},
	},
	{
		types:     []string{"llama4"},
		moeModule: "feed_forward",
		mlpModule: "feed_forward",
		period:    4,
		defaults:  map[string]any{"attention_chunk_size": 8192, "interleave_moe_layer_step": 1},
	},
	{types: []string{"mimo_v2_flash"}, routerBias: true},
	{
		types:      []string{"step3p5", "step3p7"},
		routerBias: true,
		qkNorm:     "head",
		headGate:   true,
		moeModule:  "moe",
	},
	{
		types:      []string{"laguna"},
		biases:     "attention_bias",
		qkNorm:     "head",
		routerBias: true,
	},
	{types: []string{"deepseek_v2"}},
	{types: []string{"deepseek_v3", "kimi_k2", "glm4_moe_lite"}, routerBias: true},
	{types: []string{"deepseek_v32", "glm_moe_dsa"}, routerBias: true},
	{
		types:      []string{"deepseek_v4", "deepseek_ref"},
		mixer:      Compressed,
		attnModule: "attn",
		mlpModule:  "ffn",
		moeModule:  "ffn",
		routerBias: true,
		defaults:   map[string]any{"expert_dtype": nil, "compress_ratios": nil},
	},
	{
		types:      []string{"minimax_m2"},
		qkNorm:     "all",
		moeModule:  "block_sparse_moe",
		routerBias: true,
	},
	{
		types:      []string{"minimax_m3"},
		qkNorm:     "head",
		moeModule:  "block_sparse_moe",
		routerBias: true,
	},
	{
		types:     []string{"minimax", "minimax_text_01", "minimax_m1"},
		linear:    "lightning",
		moeModule: "block_sparse_moe",
	},
	{
		types:            []string{"qwen3_next", "qwen3_5", "qwen3_5_moe"},
		linear:           "gdn",
		qkNorm:           "head",
		sharedExpertGate: true,
		period:           4,
		periodKey:        "full_attention_interval",
		gate:             "element",
		defaults: map[string]any{
			"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
			"linear_value_head_dim": 128,
		},
	},
	{
		types:      []string{"kimi_linear"},
		linear:     "kda",
		routerBias: true,
		moeModule:  "block_sparse_moe",
	},
	{types: []string{"nemotron-nas", "deci"}},
	{
		types:       []string{"nemotron_h"},
		linear:      "mamba2",
		mlpMatrices: 2,
		attnModule:  "mixer",
		mlpModule:   "mixer",
		moeModule:   "mixer",
		routerBias:  true,
		defaults: map[string]any{
			"conv_kernel": 4, "n_groups": 8, "ssm_state_size": 128, "mamba_head_dim": 64,
			"use_conv_bias": true, "mamba_ssm_cache_dtype": "float32",
		},
	},
	{
		types:     []string{"granitemoehybrid"},
		linear:    "mamba2",
		moeModule: "block_sparse_moe",
		mlpModule: "shared_mlp",
		defaults: map[string]any{
			"mamba_d_conv": 4, "mamba_d_state": 256, "mamba_n_groups": 1,
			"mamba_conv_bias": true,
		},
	},
	{
		types:      []string{"jamba"},
		linear:     "mamba1",
		attnModule: "self_attn",
		moeModule:  "feed_forward",
		mlpModule:  "feed_forward",
		defaults: map[string]any{
			"mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2, "mamba_dt_rank": "auto",
			"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
			"expert_layer_offset": 1, "tie_word_embeddings": false,
		},
	},
	{
		types:            []string{"gpt2", "gpt_bigcode"},
		mlpMatrices:      2,
		layerNorms:       4,
		finalNorms:       2,
		biases:           "all",
		learnedPositions: true,
		defaults:         map[string]any{"tie_word_embeddings": true},
	},
	{
		types:            []string{"opt"},
		mlpMatrices:      2,
		layerNorms:       4,
		finalNorms:       2,
		biases:           "all",
		learnedPositions: true,
		defaults:         map[string]any{"tie_word_embeddings": true},
	},
	{
		types:       []string{"bloom"},
		mlpMatrices: 2,
		layerNorms:  4,
		finalNorms:  4,
		biases:      "all",
		defaults:    map[string]any{"tie_word_embeddings": true},
	},
	{
		types:       []string{"starcoder2"},
		mlpMatrices: 2,
		layerNorms:  4,
		finalNorms:  2,
		biases:      "all",
		defaults:    map[string]any{"tie_word_embeddings": true, "num_key_value_heads": 2},
	},
	{
		types:       []string{"gpt_neox"},
		mlpMatrices: 2,
		layerNorms:  4,
		finalNorms:  2,
		biases:      "all",
	},
	{
		types:       []string{"gptj", "phi"},
		mlpMatrices: 2,
		layerNorms:  2,
		finalNorms:  2,
		biases:      "all",
	},
	{
		types:       []string{"falcon"},
		mlpMatrices: 2,
		layerNorms:  2,
		finalNorms:  2,
		defaults:    map[string]any{"tie_word_embeddings": true},
	},
	{types: []string{"nemotron"}, mlpMatrices: 2, layerNorms: 4, finalNorms: 2},
}
