package model

import (
	"slices"
	"strings"
	"testing"
)

// TestDefaultsOfTheFamilies: what a configuration class of transformers 5.24 has for the keys that a config.json
// leaves out. A family without an entry has none, and input embeddings apart from the output's.
func TestDefaultsOfTheFamilies(t *testing.T) {
	want := map[string]string{
		"afmoe":            "head_dim=128 num_experts_per_tok=6",
		"bloom":            "tie_word_embeddings=true",
		"cohere":           "tie_word_embeddings=true",
		"cohere2":          "tie_word_embeddings=true",
		"ernie4_5":         "head_dim=128 num_key_value_heads=2 tie_word_embeddings=true",
		"ernie4_5_moe":     "num_key_value_heads=4 tie_word_embeddings=true",
		"falcon":           "tie_word_embeddings=true",
		"gemma":            "head_dim=256 num_key_value_heads=16 tie_word_embeddings=true",
		"gemma2":           "head_dim=256 num_key_value_heads=4 sliding_window=4096 tie_word_embeddings=true",
		"gemma3":           "head_dim=256 num_attention_heads=8 num_key_value_heads=4 sliding_window=4096 tie_word_embeddings=true vocab_size=262208",
		"gemma4":           "attention_k_eq_v=false enable_moe_block=false global_head_dim=512 head_dim=256 hidden_size_per_layer_input=0 num_kv_shared_layers=0 sliding_window=512 tie_word_embeddings=true",
		"glm":              "head_dim=128 num_key_value_heads=2",
		"glm4":             "head_dim=128 num_key_value_heads=2",
		"glm4_moe":         "num_experts_per_tok=8 num_key_value_heads=8",
		"glm4v_moe":        "num_experts_per_tok=8 num_key_value_heads=8",
		"gpt2":             "tie_word_embeddings=true",
		"gpt_bigcode":      "tie_word_embeddings=true",
		"gpt_oss":          "attention_bias=true head_dim=64 num_experts_per_tok=4 num_key_value_heads=8 sliding_window=128",
		"granitemoe":       "num_experts_per_tok=2",
		"granitemoehybrid": "mamba_conv_bias=true mamba_d_conv=4 mamba_d_state=256 mamba_n_groups=1",
		"internlm3":        "head_dim=128 num_key_value_heads=2",
		"jamba":            "attn_layer_offset=4 attn_layer_period=8 expert_layer_offset=1 expert_layer_period=2 mamba_d_conv=4 mamba_d_state=16 mamba_dt_rank=auto mamba_expand=2 num_experts_per_tok=2 num_key_value_heads=8",
		"llama4":           "attention_chunk_size=8192 head_dim=128 interleave_moe_layer_step=1 num_experts_per_tok=1 num_key_value_heads=8",
		"mimo":             "use_sliding_window=false",
		"minimax_m2":       "head_dim=128 num_experts_per_tok=8 num_key_value_heads=8",
		"ministral":        "num_key_value_heads=8",
		"ministral3":       "head_dim=128 num_key_value_heads=8",
		"mistral":          "num_key_value_heads=8",
		"mistral3":         "num_key_value_heads=8",
		"mixtral":          "num_experts_per_tok=2 num_key_value_heads=8",
		"nemotron_h":       "conv_kernel=4 mamba_head_dim=64 mamba_ssm_cache_dtype=float32 n_groups=8 ssm_state_size=128 use_conv_bias=true",
		"olmoe":            "num_experts_per_tok=8",
		"opt":              "tie_word_embeddings=true",
		"phimoe":           "num_experts_per_tok=2 num_key_value_heads=8",
		"qwen2":            "use_sliding_window=false",
		"qwen2_5_omni":     "use_sliding_window=false",
		"qwen2_5_vl":       "num_key_value_heads=8 use_sliding_window=false",
		"qwen2_moe":        "num_experts_per_tok=4 num_key_value_heads=16 use_sliding_window=false",
		"qwen2_vl":         "num_key_value_heads=8 use_sliding_window=false",
		"qwen3":            "head_dim=128 num_key_value_heads=32 use_sliding_window=false",
		"qwen3_5":          "head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 num_key_value_heads=4",
		"qwen3_5_moe":      "head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 num_experts_per_tok=8 num_key_value_heads=2",
		"qwen3_moe":        "num_experts_per_tok=8 num_key_value_heads=4 use_sliding_window=false",
		"qwen3_next":       "head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 num_experts_per_tok=10 num_key_value_heads=2",
		"qwen3_omni_moe":   "num_experts_per_tok=8 num_key_value_heads=4 use_sliding_window=false",
		"qwen3_vl":         "head_dim=128 num_key_value_heads=32 use_sliding_window=false",
		"qwen3_vl_moe":     "num_experts_per_tok=4 num_key_value_heads=16 use_sliding_window=false",
		"seed_oss":         "head_dim=128 num_key_value_heads=8 use_sliding_window=false",
		"smollm3":          "num_key_value_heads=4 tie_word_embeddings=true",
		"solar_open":       "head_dim=128 num_experts_per_tok=8 num_key_value_heads=8",
		"starcoder2":       "num_key_value_heads=2 tie_word_embeddings=true",
	}
	for name, f := range familyByType() {
		c := &hfConfig{values: map[string]any{"model_type": name}}
		got := slices.DeleteFunc(c.withDefaults(f, false), func(v string) bool { return v == "tie_word_embeddings=false" })
		if strings.Join(got, " ") != want[name] {
			t.Errorf("%s: got %s, want %s", name, strings.Join(got, " "), want[name])
		}
	}
	for name := range want {
		if familyByType()[name] == nil {
			t.Errorf("%s is no family", name)
		}
	}
	// The text part of a model with images is written in part by two families alone.
	const sizes = "hidden_size=4096 intermediate_size=%s num_attention_heads=32 num_hidden_layers=32 tie_word_embeddings=false vocab_size=32000"
	for name, want := range map[string]string{
		"llama":   strings.Replace(sizes, "%s", "11008", 1),
		"mistral": strings.Replace(strings.Replace(sizes, "%s", "14336", 1), " tie", " num_key_value_heads=8 tie", 1),
		"qwen2":   "tie_word_embeddings=false use_sliding_window=false",
	} {
		c := &hfConfig{values: map[string]any{"model_type": name + "_text"}}
		if got := strings.Join(c.withDefaults(familyByType()[name], true), " "); got != want {
			t.Errorf("%s in a text_config: got %s, want %s", name, got, want)
		}
	}
}
