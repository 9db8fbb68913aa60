package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// broken are configurations that must be refused, with a place and a hint.
var broken = map[string]string{
	"empty":                 `{}`,
	"null":                  `null`,
	"a list":                `[]`,
	"not JSON":              `{"model_type": "llama",`,
	"text behind":           `{"model_type":"llama"} x`,
	"encoder":               `{"model_type":"bert","architectures":["BertModel"],"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"vocab_size":30522}`,
	"masked":                `{"model_type":"roberta","architectures":["RobertaForMaskedLM"],"hidden_size":768}`,
	"classifier":            `{"model_type":"qwen3","architectures":["Qwen3ForSequenceClassification"],"hidden_size":1024,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"intermediate_size":3072,"vocab_size":151936,"torch_dtype":"bfloat16"}`,
	"encoder-decoder":       `{"model_type":"t5","is_encoder_decoder":true,"d_model":512,"vocab_size":32128}`,
	"speech":                `{"model_type":"whisper","d_model":1280,"vocab_size":51866}`,
	"diffusion":             `{"_class_name":"FluxTransformer2DModel","_diffusers_version":"0.30.0","num_layers":19}`,
	"adapter":               `{"peft_type":"LORA","base_model_name_or_path":"meta-llama/Llama-3.1-8B","r":16}`,
	"unknown family":        `{"model_type":"quasar","hidden_size":1024,"num_hidden_layers":28,"num_attention_heads":16,"flux_width":3,"vocab_size":100}`,
	"type is a number":      llamaWith(`"model_type":7`),
	"text for layers":       llamaWith(`"num_hidden_layers":"32"`),
	"layers negative":       llamaWith(`"num_hidden_layers":-1`),
	"layers huge":           llamaWith(`"num_hidden_layers":100000000`),
	"fractional heads":      llamaWith(`"num_attention_heads":31.5`),
	"heads do not divide":   llamaWith(`"num_key_value_heads":7`),
	"infinite hidden":       llamaWith(`"hidden_size":Infinity`),
	"no hidden":             llamaWith(`"hidden_size":null`),
	"no vocabulary":         llamaWith(`"vocab_size":null`),
	"no width":              llamaWith(`"intermediate_size":null`),
	"odd dtype":             llamaWith(`"torch_dtype":"int3"`),
	"odd layer kind":        llamaWith(`"layer_types":["hyena"],"num_hidden_layers":1`),
	"short layer list":      llamaWith(`"layer_types":["full_attention"]`),
	"quantized somehow":     llamaWith(`"quantization_config":{"quant_method":"aqlm"}`),
	"quantization text":     llamaWith(`"quantization_config":"fp8"`),
	"groups without bits":   llamaWith(`"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{}}}}`),
	"ignore is a text":      llamaWith(`"quantization_config":{"quant_method":"fp8","modules_to_not_convert":"lm_head"}`),
	"bad pattern":           llamaWith(`"quantization_config":{"quant_method":"compressed-tensors","ignore":["re:(["]}`),
	"zero block":            llamaWith(`"quantization_config":{"quant_method":"fp8","weight_block_size":[0,128]}`),
	"encoder by its type":   `{"model_type":"swin","num_heads":[3,6,12]}`,
	"list of a config":      llamaWith(`"text_config":[1,2]`),
	"nested twice":          `{"model_type":"qwen3_vl","text_config":{"text_config":{"model_type":"llama"}}}`,
	"layers true":           llamaWith(`"num_hidden_layers":true`),
	"heads a list":          llamaWith(`"num_attention_heads":[32,32]`),
	"hidden of 31 digits":   llamaWith(`"hidden_size":1000000000000000000000000000000`),
	"head_dim not a number": llamaWith(`"head_dim":NaN`),
	"window a text":         `{"model_type":"gemma3_text","num_hidden_layers":4,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"sliding_window":"big","vocab_size":100,"torch_dtype":"bfloat16"}`,
	"latent without ranks":  llamaWith(`"model_type":"deepseek_v3"`),
	"group of 0":            llamaWith(`"quantization_config":{"quant_method":"gptq","bits":4,"group_size":0}`),
	"group a text":          llamaWith(`"quantization_config":{"quant_method":"awq","bits":4,"group_size":"big"}`),
	"block of one side":     llamaWith(`"quantization_config":{"quant_method":"fp8","weight_block_size":[128]}`),
	"ignore of numbers":     llamaWith(`"quantization_config":{"quant_method":"fp8","ignored_layers":[1,{}]}`),
	"config_groups a list":  llamaWith(`"quantization_config":{"quant_method":"compressed-tensors","config_groups":[]}`),
	"pattern too short":     `{"model_type":"nemotron_h","hybrid_override_pattern":"M*","num_hidden_layers":4,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":128,"mamba_num_heads":8,"mamba_head_dim":16,"n_groups":2,"ssm_state_size":16,"conv_kernel":4,"vocab_size":100,"torch_dtype":"bfloat16"}`,
	"layers of experts":     llamaWith(`"model_type":"step3p5","num_attention_groups":8,"moe_layers_enum":"1,2,abc","moe_num_experts":8,"moe_top_k":2,"moe_intermediate_size":64`),
	"frequency of texts":    llamaWith(`"model_type":"deepseek","num_hidden_layers":2,"moe_layer_freq":["x","y"],"n_routed_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":64`),
	"dense layer a text":    llamaWith(`"model_type":"qwen3_moe","mlp_only_layers":["x"],"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":64`),
	"period of 0":           llamaWith(`"model_type":"jamba","attn_layer_period":0,"attn_layer_offset":4,"mamba_d_state":16,"mamba_d_conv":4,"mamba_expand":2,"num_experts":8,"num_experts_per_tok":2`),
	"more experts than all": llamaWith(`"model_type":"qwen3_moe","num_experts":8,"num_experts_per_tok":16,"moe_intermediate_size":64`),
	"short list of blocks":  llamaWith(`"model_type":"nemotron-nas","block_configs":[{"attention":{"n_heads_in_group":8},"ffn":{"ffn_mult":2.6}}]`),
	"ratios missing":        `{"model_type":"deepseek_v4","num_hidden_layers":2,"hidden_size":64,"vocab_size":100,"num_attention_heads":4,"head_dim":16,"torch_dtype":"bfloat16"}`,
}

func llamaWith(pairs string) string {
	base := map[string]string{"model_type": `"llama"`, "num_hidden_layers": "32", "hidden_size": "4096", "num_attention_heads": "32",
		"num_key_value_heads": "8", "intermediate_size": "14336", "vocab_size": "128256", "torch_dtype": `"bfloat16"`}
	out := []string{pairs}
	for _, key := range slices.Sorted(maps.Keys(base)) {
		if !strings.Contains(pairs, `"`+key+`"`) {
			out = append(out, fmt.Sprintf("%q:%s", key, base[key]))
		}
	}
	return "{" + strings.Join(out, ",\n") + "}"
}

func TestBrokenConfigs(t *testing.T) {
	for name, config := range broken {
		d, err := ReadDecoder([]byte(config), nil, "config.json", Options{})
		var e *trace.SyntaxError
		if !errors.As(err, &e) || e.Line < 1 || e.Hint == "" || e.Code == "" {
			t.Errorf("%s: got %v (%v), want an error with place, code and hint", name, err, d)
		}
	}
	if _, err := ReadDecoder([]byte(llamaWith(`"x":[Infinity,-Infinity,NaN,"Infinity \" NaN"]`)), nil, "config.json", Options{}); err != nil {
		t.Error(err)
	}
}

// TestMutatedConfigs changes every eighteenth key of every kind of published configuration: it is read or refused with a
// reason, never a panic.
func TestMutatedConfigs(t *testing.T) { mutatedConfigs(t, 18) }

// TestEvalMutatedConfigs changes every key.
func TestEvalMutatedConfigs(t *testing.T) {
	repo.NeedEval(t)
	mutatedConfigs(t, 1)
}

func mutatedConfigs(t *testing.T, every int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", "models_hf"), "*_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := decodeJSON(text, name)
		if err != nil || strings.Contains(name, "hf_quant") || seen[fmt.Sprint(raw["model_type"])] {
			continue
		}
		seen[fmt.Sprint(raw["model_type"])] = true
		for _, inner := range []string{"", "text_config", "quantization_config", "linear_attn_config", "sparse_attention_config"} {
			values := raw
			if inner != "" {
				values, _ = raw[inner].(map[string]any)
			}
			for i, key := range slices.Sorted(maps.Keys(values)) {
				if i%every != 0 {
					continue
				}
				old := values[key]
				for _, v := range []any{nil, json.Number("-1"), json.Number("536870912"), []any{"x", nil}} {
					values[key] = v
					outer := maps.Clone(raw)
					if text, ok := raw["text_config"].(map[string]any); ok {
						outer["text_config"] = maps.Clone(text)
					}
					c := &hfConfig{file: "config.json", values: textConfig(outer)}
					if d := c.decoder(outer, nil, Options{}); d != nil {
						_, _ = d.Sizes(Parallel{TP: 8, PP: 2, DP: 3})
					} else if c.err == nil {
						t.Errorf("%s: %s=%v: neither a model nor an error", filepath.Base(name), key, v)
					}
				}
				values[key] = old
			}
		}
	}
}

// TestIgnoreLists matches names as vLLM does: a module covers what is in it, wildcards reach across dots, wrappers do not count.
func TestIgnoreLists(t *testing.T) {
	for pattern, want := range map[string]bool{"model.layers.3.self_attn": true, "model.layers.3.self_attn*": true, "self_attn": false,
		"language_model.model.layers.3.self_attn.q_proj": true, "*.self_attn.*": true, "*.q_proj": true, "model.layers.*.self_attn": true,
		"model.layers.30*": false, "layers.?.self_attn": true, "re:.*self_attn.*": true, "re:model\\.layers\\.3\\..*": true, "re:q_proj": false,
		"lm_head": false, "model.layers.3.self_attn.q": false, "mtp.layers.3*": false, "*": true, "*x*": false} {
		var p patterns
		if err := p.addPattern(pattern); err != nil || p.matchesName("layers.3.self_attn.q_proj") != want {
			t.Errorf("%s: got %v, %v, want %v", pattern, !want, err, want)
		}
	}
}

// TestBuiltInModels: the models in the binary are those of the collected configurations, to the key; -update packs them anew.
func TestBuiltInModels(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", "models_hf"), "*_config.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var text bytes.Buffer
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(filepath.Base(name) + "\t")
		if err := json.Compact(&text, plainJSON(data)); err != nil {
			t.Fatal(name, err)
		}
		text.WriteByte('\n')
	}
	for _, m := range everydayModels {
		text.WriteString(fileOf(m.id) + "\t" + m.config + "\n")
	}
	if *update {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("models.zst", w.EncodeAll(text.Bytes(), nil), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	// One model of another one's layers has that one's hf_quant_config.json too: Llama-3.3-70B-Instruct-FP8.
	if want := len(lines) + len(sameShapes) + 1; len(builtIn()) != want {
		t.Errorf("%d files are built in, want %d", len(builtIn()), want)
	}
	for _, line := range lines {
		if name, config, _ := strings.Cut(line, "\t"); string(builtIn()[name]) != config {
			t.Errorf("%s differs from what is built in: go test ./model -run TestBuiltInModels -update", name)
		}
	}
}
