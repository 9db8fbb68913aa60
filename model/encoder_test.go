package model

import (
	"bytes"
	"strings"
	"testing"
)

// TestEncoderParams adds up encoders by hand: layers of four matrices of attention and an MLP, and the projector.
func TestEncoderParams(t *testing.T) {
	const decoder = `"num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 1024, "vocab_size": 1000`
	for _, c := range []struct {
		name, config string
		want         int64
	}{
		{"none", `{"model_type": "llama", ` + decoder + `}`, 0},
		{"SigLIP", `{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", ` + decoder + `},
			"vision_config": {"model_type": "siglip_vision_model", "hidden_size": 96, "intermediate_size": 400, "num_hidden_layers": 3}}`,
			3*(4*96*96+2*96*400) + 96*512},
		{"with a gate", `{"model_type": "mistral3", "text_config": {"model_type": "mistral", ` + decoder + `},
			"vision_config": {"model_type": "pixtral", "hidden_size": 96, "intermediate_size": 400, "num_hidden_layers": 3}}`,
			3*(4*96*96+3*96*400) + 96*512},
		{"merged patches", `{"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3", ` + decoder + `},
			"vision_config": {"model_type": "qwen3_vl", "hidden_size": 96, "intermediate_size": 400, "depth": 3, "spatial_merge_size": 2, "deepstack_visual_indexes": [1, 2]}}`,
			3*(4*96*96+2*96*400) + 3*(384*384+384*512)},
		{"Qwen2-VL's words", `{"model_type": "qwen2_vl", ` + decoder + `,
			"vision_config": {"embed_dim": 96, "hidden_size": 512, "mlp_ratio": 4, "depth": 3, "spatial_merge_size": 2}}`,
			3*(4*96*96+2*96*384) + 384*384 + 384*512},
		{"sizes that are not stated", `{"model_type": "qwen2_5_vl", ` + decoder + `, "vision_config": {"depth": 3}}`, 0},
	} {
		m, err := Load(strings.NewReader(c.config), "config.json", Options{})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if m.EncoderParams != c.want {
			t.Errorf("%s: got %d parameters, want %d", c.name, m.EncoderParams, c.want)
		}
	}
	// Of built-in models, in 1e6: 0.59 are the 33.4e9 of Qwen3-VL-32B less the 32.8e9 of its decoder, Qwen3-32B.
	for id, want := range map[string]int64{"Qwen/Qwen3-VL-32B-Instruct": 590, "google/gemma-3-4b-it": 420, "moonshotai/Kimi-K2.5": 465,
		"moonshotai/Kimi-K2-Thinking": 0, "Qwen/Qwen3-32B": 0, "google/gemma-4-26B-A4B": 548} {
		config, _ := BuiltInConfig(id)
		m, err := Load(bytes.NewReader(config), id, Options{ID: id})
		if err != nil || m.EncoderParams/1e6 != want {
			t.Errorf("%s: got %d parameters, %v, want %de6", id, m.EncoderParams, err, want)
		}
	}
	for id := range encodersOf {
		if config, _ := BuiltInConfig(id); config == nil {
			t.Errorf("%s is not built in", id)
		}
	}
}
