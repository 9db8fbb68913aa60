package model

import (
	"strings"
	"testing"
)

// TestBLISReading: layouts as BLIS takes them. Scout has experts in all of its 48 layers with a shared one of 8192, Maverick in 24 of
// them, GLM-4.5-Air in all but the first; BLIS reads 24 and 16 without a shared one, and all.
func TestBLISReading(t *testing.T) {
	const llama4 = `{"model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40,
		"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
		"num_experts_per_tok": 1, "torch_dtype": "bfloat16", "max_position_embeddings": 8192, `
	const dense = `{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256,
		"vocab_size": 1000, "torch_dtype": "bfloat16"`
	for name, c := range map[string]struct {
		id, config string
		opts       Options
		want       *BLISReading
	}{
		"Scout": {"s", llama4 + `"num_local_experts": 16, "interleave_moe_layer_step": 1}`, Options{},
			&BLISReading{40, 8, 16, 1, 24, 16384, 8192, 0, 2}},
		"Maverick": {"m", llama4 + `"num_local_experts": 128, "interleave_moe_layer_step": 2}`, Options{},
			&BLISReading{40, 8, 128, 1, 16, 16384, 8192, 0, 2}},
		"GLM-4.5-Air": {"g", `{"model_type": "glm4_moe", "num_hidden_layers": 46, "hidden_size": 4096, "num_attention_heads": 96,
			"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151552, "intermediate_size": 10944, "moe_intermediate_size": 1408,
			"n_routed_experts": 128, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_experts_per_tok": 8,
			"torch_dtype": "bfloat16"}`, Options{}, &BLISReading{96, 8, 128, 8, 46, 10944, 1408, 1408, 2}},
		"Mixtral": {"x", `{"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
			"num_key_value_heads": 8, "vocab_size": 32000, "intermediate_size": 14336, "num_local_experts": 8,
			"num_experts_per_tok": 2, "torch_dtype": "bfloat16"}`, Options{}, nil},
		"dense": {"d", dense + "}", Options{}, nil},
		"dense, quantized at load": {"d", dense + "}", Options{Quantization: "fp8"},
			&BLISReading{NumHeads: 4, NumKVHeads: 4, DenseWidth: 256, BytesPerWeight: 2}},
		"dense, quantized by name": {"org/d-FP8-dynamic", dense + "}", Options{Quantization: "fp8"}, nil},
	} {
		c.opts.ID = c.id
		m, err := Load(strings.NewReader(c.config), "config.json", c.opts)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (m.BLIS == nil) != (c.want == nil) || m.BLIS != nil && *m.BLIS != *c.want {
			t.Errorf("%s: got %+v, want %+v", name, m.BLIS, c.want)
		}
	}
}
