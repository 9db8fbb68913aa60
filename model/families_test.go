package model

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

var update = flag.Bool("update", false, "rewrite docs/models.md and the built-in models")

// family is one published architecture: the keys of its config.json that
// describe it, and its published number of parameters, which the loaded widths
// must add up to.
type family struct {
	name   string
	config string
	opts   Options
	params float64 // published, in 1e9; tables counted once when tied
	tied   bool
	check  func(m Model) bool // what else must hold; nil for nothing
	reject trace.Code
}

func some(n int64) trace.Opt[int64] { return trace.Some(n) }

var families = []family{
	{name: "gpt2", opts: Options{DType: "float32"}, params: 0.1237, tied: true,
		config: `{"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"n_positions":1024,"vocab_size":50257}`,
		check:  func(m Model) bool { return m.NumMLPProj == 2 && m.IntermediateSize == 3072 && m.BytesPerWeight == 4 }},
	{name: "opt-6.7b", params: 6.65, tied: true,
		config: `{"model_type":"opt","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"ffn_dim":16384,"vocab_size":50272,"torch_dtype":"float16"}`},
	{name: "falcon-7b", params: 7.217 - 0.2955, tied: true, // published with the head, which is the embedding
		config: `{"model_type":"falcon","num_hidden_layers":32,"hidden_size":4544,"num_attention_heads":71,"num_kv_heads":71,"multi_query":true,"new_decoder_architecture":false,"vocab_size":65024,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.NumKVHeads == 1 && m.HeadDim == 64 }},
	{name: "falcon-40b", params: 41.84 - 0.5327, tied: true,
		config: `{"model_type":"falcon","num_hidden_layers":60,"hidden_size":8192,"num_attention_heads":128,"num_kv_heads":8,"multi_query":true,"new_decoder_architecture":true,"vocab_size":65024,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.NumKVHeads == 8 }},
	{name: "gemma-7b", params: 8.54, tied: true,
		config: `{"model_type":"gemma","num_hidden_layers":28,"hidden_size":3072,"num_attention_heads":16,"num_key_value_heads":16,"head_dim":256,"intermediate_size":24576,"vocab_size":256000,"hidden_activation":"gelu_pytorch_tanh","torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.NumMLPProj == 3 && m.HeadDim*m.NumHeads != m.HiddenSize }},
	// Keys that the published file leaves to its configuration class.
	{name: "SmolLM3-3B", params: 3.075098624, tied: true,
		config: `{"model_type":"smollm3","num_hidden_layers":36,"hidden_size":2048,"num_attention_heads":16,"num_key_value_heads":4,"intermediate_size":11008,"vocab_size":128256,"torch_dtype":"bfloat16"}`},
	{name: "starcoder2 ties", params: 0.076857344, tied: true,
		config: `{"model_type":"starcoder2","num_hidden_layers":4,"hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":4,"intermediate_size":4096,"vocab_size":32000,"torch_dtype":"bfloat16"}`},
	{name: "olmo2 does not tie", params: 0.126367744,
		config: `{"model_type":"olmo2","num_hidden_layers":4,"hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":4,"intermediate_size":4096,"vocab_size":32000,"torch_dtype":"bfloat16"}`},
	{name: "glm4 without KV heads", params: 9.399951360,
		config: `{"model_type":"glm4","num_hidden_layers":40,"hidden_size":4096,"num_attention_heads":32,"intermediate_size":13696,"vocab_size":151552,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.NumKVHeads == 2 && m.HeadDim == 128 }},
	{name: "qwen3-0.6b without a head's width", params: 0.596, tied: true,
		config: `{"model_type":"qwen3","num_hidden_layers":28,"hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":8,"intermediate_size":3072,"vocab_size":151936,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.HeadDim == 128 }},
	{name: "gemma-2-9b", reject: UnsupportedModel, config: gemma2},
	{name: "gemma-2-9b within its window", opts: Options{MaxModelLen: some(4096)}, params: 9.24, tied: true, config: gemma2},
	{name: "gemma-2-9b one token beyond", opts: Options{MaxModelLen: some(4097)}, reject: UnsupportedModel, config: gemma2},
	{name: "phi-2", params: 2.78,
		config: `{"model_type":"phi","num_hidden_layers":32,"hidden_size":2560,"num_attention_heads":32,"num_key_value_heads":32,"intermediate_size":10240,"vocab_size":51200,"torch_dtype":"float16"}`,
		check:  func(m Model) bool { return m.NumMLPProj == 2 }},
	{name: "phi-3-mini-4k", reject: UnsupportedModel, config: phi3},
	{name: "phi-3-mini-4k taken for full", opts: Options{AssumeFullAttention: true}, params: 3.82, config: phi3,
		check: func(m Model) bool { return len(m.Warnings) == 1 && m.Warnings[0] == fullAttentionAssumed }},
	{name: "qwen2-57b-a14b", params: 57.41,
		config: `{"model_type":"qwen2_moe","num_hidden_layers":28,"hidden_size":3584,"num_attention_heads":28,"num_key_value_heads":4,"intermediate_size":18944,"moe_intermediate_size":2560,"shared_expert_intermediate_size":20480,"num_experts":64,"num_experts_per_tok":8,"decoder_sparse_step":1,"use_sliding_window":false,"sliding_window":65536,"vocab_size":151936,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.SharedExpertSize == 20480 && m.NumMoELayers == 28 && m.TopK == 8 }},
	{name: "qwen3-30b-a3b", params: 30.53,
		config: `{"model_type":"qwen3_moe","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"intermediate_size":6144,"moe_intermediate_size":768,"num_experts":128,"num_experts_per_tok":8,"decoder_sparse_step":1,"mlp_only_layers":[],"vocab_size":151936,"torch_dtype":"bfloat16"}`},
	{name: "deepseek-moe-16b", params: 16.38,
		config: `{"model_type":"deepseek","num_hidden_layers":28,"hidden_size":2048,"num_attention_heads":16,"num_key_value_heads":16,"intermediate_size":10944,"moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,"moe_layer_freq":1,"vocab_size":102400,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.NumMoELayers == 27 && m.SharedExpertSize == 2816 }},
	{name: "deepseek-v2-lite", reject: UnsupportedModel,
		config: `{"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,"kv_lora_rank":512,"q_lora_rank":null,"qk_rope_head_dim":64,"intermediate_size":10944,"vocab_size":102400,"torch_dtype":"bfloat16"}`},
	{name: "llama-4-scout", reject: UnsupportedModel, config: llama4(16, 1)},
	{name: "llama-4-scout within its chunk", opts: Options{MaxModelLen: some(8192)}, params: 107.8, config: llama4(16, 1),
		check: func(m Model) bool {
			return m.NumMoELayers == 48 && m.IntermediateSize == 16384 && m.MoEIntermediateSize == 8192 && m.SharedExpertSize == 8192
		}},
	{name: "llama-4-maverick within its chunk", opts: Options{MaxModelLen: some(8192)}, params: 400.7, config: llama4(128, 2),
		check: func(m Model) bool { return m.NumMoELayers == 24 }},
	{name: "bloom-560m", opts: Options{DType: "half"}, params: 0.559, tied: true,
		config: `{"model_type":"bloom","n_layer":24,"hidden_size":1024,"n_head":16,"vocab_size":250880}`},
	{name: "pythia-1.4b", params: 1.414,
		config: `{"model_type":"gpt_neox","num_hidden_layers":24,"hidden_size":2048,"num_attention_heads":16,"intermediate_size":8192,"vocab_size":50304,"torch_dtype":"float16"}`},
	{name: "starcoder", params: 15.5, tied: true,
		config: `{"model_type":"gpt_bigcode","n_layer":40,"n_embd":6144,"n_head":48,"n_inner":24576,"multi_query":true,"vocab_size":49152,"torch_dtype":"float16"}`,
		check:  func(m Model) bool { return m.NumKVHeads == 1 }},
	{name: "llama-3.1-8b fp8", config: llama31(`{"quant_method":"fp8","activation_scheme":"dynamic"}`),
		check: func(m Model) bool {
			return m.BytesPerWeight == 1 && m.LinearCompute == "fp8" && m.BytesPerLMHead == 2 && m.BytesPerKV == 2
		}},
	{name: "llama-3.1-8b awq", opts: Options{KVCacheDType: "fp8_e4m3"}, config: llama31(`{"quant_method":"awq","bits":4,"group_size":128}`),
		check: func(m Model) bool { return m.BytesPerWeight == 0.5 && m.LinearCompute == "native" && m.BytesPerKV == 1 }},
	{name: "llama-3.1-8b gptq 3 bits", config: llama31(`{"quant_method":"gptq","bits":3}`),
		check: func(m Model) bool { return m.BytesPerWeight == 0.375 }},
	{name: "llama-3.1-8b w8a8 int8", config: llama31(`{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{"num_bits":8,"type":"int"},"input_activations":{"num_bits":8,"type":"int"}}}}`),
		check: func(m Model) bool { return m.BytesPerWeight == 1 && m.LinearCompute == "native" }},
	{name: "llama-3.1-8b bitsandbytes", reject: UnsupportedModel, config: llama31(`{"quant_method":"bitsandbytes","load_in_4bit":true}`)},
	{name: "llama-3.1-8b gptq 5 bits", reject: UnsupportedModel, config: llama31(`{"quant_method":"gptq","bits":5}`)},
	{name: "llama-3.1-8b quantised at load", opts: Options{Quantization: "fp8"}, config: llama31(`null`),
		check: func(m Model) bool { return m.BytesPerWeight == 1 && m.LinearCompute == "fp8" }},
	{name: "llama-3.1-8b quantised by something else", opts: Options{Quantization: "experts_int8"}, reject: UnsupportedModel,
		config: llama31(`null`)},
	{name: "mamba-130m", reject: UnsupportedModel,
		config: `{"model_type":"mamba","num_hidden_layers":24,"hidden_size":768,"state_size":16,"vocab_size":50280,"torch_dtype":"float32"}`},
	{name: "jamba", reject: UnsupportedModel,
		config: `{"model_type":"jamba","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"attn_layer_period":8,"intermediate_size":14336,"vocab_size":65536,"torch_dtype":"bfloat16"}`},
	{name: "linear attention layers", reject: UnsupportedModel,
		config: `{"model_type":"qwen3_next","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"layer_types":["linear_attention","full_attention"],"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "t5", reject: UnsupportedModel, config: `{"model_type":"t5","num_layers":12,"d_model":768}`},
	{name: "layer types without a window", tied: true, opts: Options{}, config: `{"model_type":"cohere2","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"sliding_window":16,"layer_types":["full_attention","full_attention"],"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "chunks count although the sliding window is off", opts: Options{MaxModelLen: some(20)}, reject: UnsupportedModel, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"sliding_window":64,"use_sliding_window":false,"attention_chunk_size":16,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "float32 runs in 16 bits", config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"float32"}`,
		check: func(m Model) bool { return m.BytesPerActivation == 2 && m.BytesPerKV == 2 && m.BytesPerWeight == 2 }},
	{name: "float32 by the newer key", params: 0.126368768, config: `{"model_type":"qwen2","num_hidden_layers":4,"hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":4,"intermediate_size":4096,"vocab_size":32000,"dtype":"float32"}`,
		check: func(m Model) bool { return m.BytesPerActivation == 2 && m.BytesPerKV == 2 && m.BytesPerWeight == 2 }},
	{name: "float32 around a text model", params: 0.126362624, config: `{"model_type":"llava","torch_dtype":"torch.float32","vision_config":{"hidden_size":1024},"text_config":{"model_type":"llama","num_hidden_layers":4,"hidden_size":1024,"num_attention_heads":16,"num_key_value_heads":4,"intermediate_size":4096,"vocab_size":32000}}`,
		check: func(m Model) bool { return m.BytesPerActivation == 2 && m.BytesPerKV == 2 && m.BytesPerWeight == 2 }},
	{name: "float32 as asked for", opts: Options{DType: "float32"}, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"float32"}`,
		check: func(m Model) bool { return m.BytesPerActivation == 4 }},
	{name: "the inner dtype wins", config: `{"model_type":"x","dtype":"fp8_e4m3","text_config":{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}}`,
		check: func(m Model) bool { return m.BytesPerActivation == 2 }},
	{name: "an odd position limit is unknown", config: `{"model_type":"llama","max_position_embeddings":-1,"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`,
		check: func(m Model) bool { return m.MaxPositionEmbeddings == 0 }},
	{name: "one expert is dense", config: `{"model_type":"mixtral","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":4,"intermediate_size":128,"num_local_experts":1,"vocab_size":100,"torch_dtype":"bfloat16"}`,
		check: func(m Model) bool { return !m.IsMoE() && m.NumExperts == 0 && m.TopK == 0 }},
	{name: "sparse step 0 is never", reject: BadModel, config: `{"model_type":"qwen2_moe","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"num_experts":4,"num_experts_per_tok":1,"decoder_sparse_step":0,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "head dim is not a quotient", reject: BadModel, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":65,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "unknown type", reject: UnsupportedModel, config: `{"model_type":"my_llm","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "unknown dtype", reject: UnsupportedModel, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"int4"}`},
	{name: "no dtype is what vLLM takes", config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100}`},
	{name: "layers as text", reject: BadModel, config: `{"model_type":"llama","num_hidden_layers":"2","hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "negative layers", reject: BadModel, config: `{"model_type":"llama","num_hidden_layers":-2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "half a layer", reject: BadModel, config: `{"model_type":"llama","num_hidden_layers":2.5,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "pattern of another length", reject: BadModel, config: `{"model_type":"qwen3_moe","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"num_experts":4,"num_experts_per_tok":1,"moe_layer_freq":[1],"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "not JSON", reject: BadModel, config: `{"model_type":`},
	{name: "not an object", reject: BadModel, config: `[1]`},
}

const (
	gemma2 = `{"model_type":"gemma2","num_hidden_layers":42,"hidden_size":3584,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"intermediate_size":14336,"sliding_window":4096,"vocab_size":256000,"torch_dtype":"bfloat16"}`
	phi3   = `{"model_type":"phi3","num_hidden_layers":32,"hidden_size":3072,"num_attention_heads":32,"num_key_value_heads":32,"intermediate_size":8192,"sliding_window":2047,"vocab_size":32064,"torch_dtype":"bfloat16"}`
)

func llama4(experts, step int) string {
	c := `{"model_type":"llama4","torch_dtype":"bfloat16","vision_config":{"hidden_size":1408},"text_config":{"model_type":"llama4_text","num_hidden_layers":48,"hidden_size":5120,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"intermediate_size":8192,"intermediate_size_mlp":16384,"num_local_experts":E,"num_experts_per_tok":1,"interleave_moe_layer_step":S,"attention_chunk_size":8192,"vocab_size":202048}}`
	c = strings.Replace(c, ":E,", ":"+showValue(experts)+",", 1)
	return strings.Replace(c, ":S,", ":"+showValue(step)+",", 1)
}

func llama31(quantization string) string {
	return `{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16","quantization_config":` + quantization + `}`
}

// Over published architectures the widths add up to the published number of parameters, the others are rejected with their code.
func TestPublishedFamilies(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m, err := Load(strings.NewReader(f.config), "config.json", f.opts)
			if err == nil {
				err = sayable(&m)
			}
			if code := trace.CodeOf(err); code != f.reject || (err != nil) != (f.reject != "") {
				t.Fatalf("got %v, want code %q", err, f.reject)
			}
			if err != nil {
				return
			}
			if f.check != nil && !f.check(m) {
				t.Errorf("got %+v", m)
			}
			if got := float64(m.Decoder.TotalParams()) / 1e9; f.params > 0 && math.Abs(got-f.params) > 0.01*f.params || m.Decoder.Tied != f.tied {
				t.Errorf("got %.4g billion parameters, tied %v, want %.4g, %v", got, m.Decoder.Tied, f.params, f.tied)
			}
		})
	}
}

// Every model beside the repository loads, or is refused with a code: others may
// be added. Those known here have their published size.
func TestEveryModelOfTheDataSetsLoads(t *testing.T) {
	params := map[string]float64{"codellama-34b": 33.74, "llama-2-70b": 68.98, "llama-3.1-8b": 8.03, "mixtral-8x7b": 46.7,
		"qwen2.5-14b": 14.77}
	root := repo.Shared(t, "data", "models")
	files, err := filepath.Glob(filepath.Join(root, "*", "config.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no models: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Load(f, name, Options{})
		f.Close()
		want, known := params[name]
		total := 0.0
		if m.Decoder != nil {
			total = float64(m.Decoder.TotalParams()) / 1e9
		}
		switch {
		case err != nil && (known || trace.CodeOf(err) == ""):
			t.Errorf("%s: %v", name, err)
		case err != nil || !known:
			t.Logf("%s: %.4g billion parameters, %v", name, total, err)
		case math.Abs(total-want) > 0.01*want:
			t.Errorf("%s: got %.4g billion parameters, want %.4g", name, total, want)
		}
	}
}

// sayable is the refusal of a model that specifications up to 1.2 cannot say.
func sayable(m *Model) error {
	if why := m.WhyLayered(); why != "" {
		return trace.Errorf(UnsupportedModel, "%s", why)
	}
	return nil
}

func FuzzLoadModel(f *testing.F) {
	for _, c := range families {
		f.Add(c.config)
	}
	f.Fuzz(func(t *testing.T, config string) {
		m, err := Load(strings.NewReader(config), "config.json", Options{})
		if err != nil && trace.CodeOf(err) == "" {
			t.Errorf("error without a code: %v", err)
		}
		if err == nil && m.Layered != nil {
			back := Model{}
			if text, err := json.Marshal(&m); err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back.Layered, m.Layered) {
				t.Errorf("layers do not come back from %s", text)
			}
			if w := m.Layers().Work(Parallel{TP: 1, PP: 1, DP: 1}); !(w.FixedBytes > 0) && len(w.Experts) == 0 {
				t.Errorf("got work %+v of %+v", w, m.Layered)
			}
			return
		}
		if err == nil && (m.NumLayers <= 0 || m.NumKVHeads <= 0 || m.NumHeads%m.NumKVHeads != 0 || !(m.BytesPerWeight > 0)) {
			t.Errorf("loaded %+v", m)
		}
	})
}

// TestOtherPublishedLayers adds up models of other layers than attention alike, against their published number of parameters in 1e9.
func TestOtherPublishedLayers(t *testing.T) {
	for _, c := range []struct {
		name   string
		params float64
		config string
	}{
		{"deepseek-v2-lite, latent attention", 15.7, `{"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,"num_key_value_heads":16,"kv_lora_rank":512,"q_lora_rank":null,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"intermediate_size":10944,"moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,"moe_layer_freq":1,"vocab_size":102400,"torch_dtype":"bfloat16","tie_word_embeddings":false}`},
		{"gemma-3-4b, defaults of the class", 3.88, `{"model_type":"gemma3","torch_dtype":"bfloat16","text_config":{"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024,"rope_scaling":{"factor":8.0,"rope_type":"linear"}},"vision_config":{}}`},
		{"qwen3-next-80b-a3b", 79.67, `{"model_type":"qwen3_next","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"full_attention_interval":4,"linear_num_key_heads":16,"linear_num_value_heads":32,"linear_key_head_dim":128,"linear_value_head_dim":128,"linear_conv_kernel_dim":4,"intermediate_size":5120,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"num_experts":512,"num_experts_per_tok":10,"decoder_sparse_step":1,"mlp_only_layers":[],"vocab_size":151936,"torch_dtype":"bfloat16","tie_word_embeddings":false}`},
		{"kimi-linear-48b-a3b", 49.1, `{"model_type":"kimi_linear","num_hidden_layers":27,"hidden_size":2304,"num_attention_heads":32,"num_key_value_heads":32,"kv_lora_rank":512,"q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"intermediate_size":9216,"moe_intermediate_size":1024,"num_experts":256,"num_experts_per_token":8,"num_shared_experts":1,"first_k_dense_replace":1,"moe_layer_freq":1,"vocab_size":163840,"torch_dtype":"bfloat16","tie_word_embeddings":false,"linear_attn_config":{"full_attn_layers":[4,8,12,16,20,24,27],"kda_layers":[1,2,3],"num_heads":32,"head_dim":128,"short_conv_kernel_size":4}}`},
		{"glm-4.5-air", 106.85, `{"model_type":"glm4_moe","num_hidden_layers":46,"hidden_size":4096,"num_attention_heads":96,"num_key_value_heads":8,"head_dim":128,"intermediate_size":10944,"moe_intermediate_size":1408,"n_routed_experts":128,"n_shared_experts":1,"num_experts_per_tok":8,"first_k_dense_replace":1,"attention_bias":true,"use_qk_norm":false,"vocab_size":151552,"torch_dtype":"bfloat16","tie_word_embeddings":false}`},
		{"jamba-1.5-mini", 51.6, `{"model_type":"jamba","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"num_experts":16,"num_experts_per_tok":2,"attn_layer_period":8,"attn_layer_offset":4,"expert_layer_period":2,"expert_layer_offset":1,"mamba_d_conv":4,"mamba_d_state":16,"mamba_expand":2,"mamba_dt_rank":256,"vocab_size":65536,"torch_dtype":"bfloat16"}`},
		{"granite-4.0-h-small", 32.2, `{"model_type":"granitemoehybrid","num_hidden_layers":40,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":768,"shared_intermediate_size":1536,"num_local_experts":72,"num_experts_per_tok":10,"layer_types":["mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba","mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba","mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba","mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba"],"mamba_d_conv":4,"mamba_d_head":64,"mamba_d_state":128,"mamba_expand":2,"mamba_n_groups":1,"mamba_n_heads":128,"mamba_conv_bias":true,"vocab_size":100352,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
		{"minimax-text-01", 456, `{"model_type":"minimax_text_01","num_hidden_layers":80,"hidden_size":6144,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"intermediate_size":9216,"num_local_experts":32,"num_experts_per_tok":2,"attn_type_list":[0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1],"shared_intermediate_size":0,"vocab_size":200064,"torch_dtype":"bfloat16"}`},
		{"step-3.5-flash", 196, `{"model_type":"step3p5","num_hidden_layers":45,"hidden_size":4096,"num_attention_heads":64,"num_attention_groups":8,"head_dim":128,"intermediate_size":11264,"moe_num_experts":288,"moe_top_k":8,"moe_intermediate_size":1280,"share_expert_dim":1280,"moe_layers_enum":"3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44","layer_types":["full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention"],"sliding_window":512,"attention_other_setting":{"num_attention_heads":96,"num_attention_groups":8,"head_dim":128},"vocab_size":128896,"torch_dtype":"bfloat16"}`},
	} {
		d, err := ReadDecoder([]byte(c.config), nil, "config.json", Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := float64(d.TotalParams()) / 1e9; math.Abs(got-c.params) > 0.01*c.params {
			t.Errorf("%s: got %.4g billion parameters, want %.4g", c.name, got, c.params)
		}
	}
}

// TestLayersOfSeveralSizes compares parameters, cache and weights with what the shapes come to by hand, of models whose
// layers differ in heads and of one whose family the outer configuration alone names.
func TestLayersOfSeveralSizes(t *testing.T) {
	list := func(first, other string, layers int) string { return first + strings.Repeat(","+other, layers-1) }
	windows := func(layers int) string { // every fourth layer has full attention
		return list(`"full_attention","sliding_attention","sliding_attention","sliding_attention"`,
			`"full_attention","sliding_attention","sliding_attention","sliding_attention"`, layers/4)
	}
	laguna := func(layers, windowHeads int, more string) string {
		heads := fmt.Sprintf("48,%d,%d,%d", windowHeads, windowHeads, windowHeads)
		return fmt.Sprintf(`{"model_type":"laguna","vocab_size":100352,"num_hidden_layers":%d,"num_attention_heads":48,"num_key_value_heads":8,`+
			`"head_dim":128,"num_experts":256,"sliding_window":512,"torch_dtype":"bfloat16","layer_types":[%s],"mlp_layer_types":[%s],`+
			`"num_attention_heads_per_layer":[%s],%s}`, layers, windows(layers), list(`"dense"`, `"sparse"`, layers),
			list(heads, heads, layers/4), more)
	}
	xs := `"hidden_size":2048,"intermediate_size":8192,"num_experts_per_tok":8,"moe_intermediate_size":512,"shared_expert_intermediate_size":512`
	blockFP8 := `,"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"group_0":{"targets":` +
		`["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]},"input_activations":` +
		`{"num_bits":8,"type":"float","strategy":"group","group_size":128,"dynamic":true}}},"kv_cache_scheme":{"num_bits":8,"type":"float"},` +
		`"ignore":["lm_head","re:.*\\.self_attn\\.[qkvog]_proj$","re:.*\\.mlp\\.gate$"]}`
	// Per layer: q and o of the heads, k and v, the gate (one a head), the norms of a head.
	attention := func(hidden, heads int64) int64 {
		return 2*hidden*heads*128 + 2*hidden*8*128 + hidden*heads + 2*128
	}
	// Router with its bias, the experts and the shared one.
	experts := func(hidden, width int64) int64 { return 256*(hidden+1) + 257*3*hidden*width }
	total := func(layers, hidden, windowHeads, dense, width int64) int64 {
		return 2*100352*hidden + hidden + layers*2*hidden + layers/4*attention(hidden, 48) + layers*3/4*attention(hidden, windowHeads) +
			3*hidden*dense + (layers-1)*experts(hidden, width)
	}
	narrow := int64(3*2048*8192 + 39*257*3*2048*512) // MLPs and experts of XS
	xsTotal := total(40, 2048, 64, 8192, 512)
	m3 := `"hidden_size":6144,"num_hidden_layers":60,"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,"vocab_size":200064,` +
		`"intermediate_size":3072,"dense_intermediate_size":12288,"shared_intermediate_size":3072,"num_local_experts":128,` +
		`"num_experts_per_tok":4,"n_shared_experts":1,"use_qk_norm":true,"tie_word_embeddings":false,"moe_layer_freq":[0,0,0,` +
		list("1", "1", 57) + `],"sparse_attention_config":{"use_sparse_attention":true,"sparse_index_dim":128,"sparse_num_index_heads":4,` +
		`"sparse_topk_blocks":16,"sparse_block_size":128,"sparse_attention_freq":[0,0,0,` + list("1", "1", 57) + `]}`
	m3Layer := int64(2*6144*64*128+2*6144*4*128) + 2*128 + 2*6144
	m3Total := 2*200064*6144 + 6144 + 60*m3Layer + 3*3*6144*12288 + 57*(128*6144+128+129*3*6144*3072+(4+1)*128*6144+2*128)
	for _, c := range []struct {
		name, config                   string
		params                         int64
		weights, perToken, fullWindows float64 // bytes
	}{
		{"Laguna XS", laguna(40, 64, xs+`,"gating":true`), xsTotal, 2 * float64(xsTotal), 10 * 2 * 8 * 128 * 2, 30 * 2 * 8 * 128 * 2 * 512},
		{"Laguna XS in fp8", laguna(40, 64, xs+`,"gating":true`+blockFP8), xsTotal, 2*float64(xsTotal-narrow) + float64(narrow)*(1+4./16384),
			10 * 2 * 8 * 128, 30 * 2 * 8 * 128 * 512},
		{"Laguna S", laguna(48, 72, `"hidden_size":3072,"intermediate_size":12288,"num_experts_per_tok":10,"moe_intermediate_size":1024,`+
			`"shared_expert_intermediate_size":1024,"gating":"per-head"`), total(48, 3072, 72, 12288, 1024),
			2 * float64(total(48, 3072, 72, 12288, 1024)), 12 * 2 * 8 * 128 * 2, 36 * 2 * 8 * 128 * 2 * 512},
		{"MiniMax-M3 with images", `{"model_type":"minimax_m3_vl","torch_dtype":"bfloat16","vision_config":{},"text_config":{` + m3 + `}}`, m3Total,
			2 * float64(m3Total), 60*2*4*128*2 + 57*128*2, 0},
	} {
		d, err := ReadDecoder([]byte(c.config), nil, "config.json", Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		cache := d.Cache(d.KVBytes, 1)
		if d.TotalParams() != c.params || math.Abs(d.WeightBytes()-c.weights) > 1e-6*c.weights || cache.BytesPerToken != c.perToken ||
			cache.WindowBytes != c.fullWindows {
			t.Errorf("%s: got %d parameters, %.0f bytes of weights, %g of the cache per token and %g in windows, want %d, %.0f, %g, %g",
				c.name, d.TotalParams(), d.WeightBytes(), cache.BytesPerToken, cache.WindowBytes, c.params, c.weights, c.perToken, c.fullWindows)
		}
	}
	for _, wrong := range []string{laguna(40, 64, xs+`,"gating":"some"`), strings.Replace(laguna(40, 64, xs), `"num_hidden_layers":40`,
		`"num_hidden_layers":44`, 1)} {
		if _, err := ReadDecoder([]byte(wrong), nil, "config.json", Options{}); err == nil {
			t.Errorf("got no error for %s", wrong)
		}
	}
}

// TestPublishedConfigurations adds up config.json files as publishers wrote them, wrappers of images and audio among them, against the
// parameters that transformers 5.24.0 counts of the same file (biases of routers are no parameters there: within 1e-4), or against the
// publisher's figure, 1e9, within 1 %; the rest is refused with its place and a hint.
func TestPublishedConfigurations(t *testing.T) {
	counted := 0
	stated := 0
	refused := 0
	for line := range bytes.Lines(repo.Read(t, "testdata/published.jsonl")) {
		var c struct {
			Name              string
			Params, Published float64
			Refused           bool
			Config            json.RawMessage
		}
		if err := json.Unmarshal(plainJSON(line), &c); err != nil {
			t.Fatal(err)
		}
		d, err := ReadDecoder(c.Config, nil, "config.json", Options{})
		var e *trace.SyntaxError
		switch {
		case c.Refused:
			if refused++; !errors.As(err, &e) || e.Line < 1 || e.Hint == "" {
				t.Errorf("%s: got %v, want a refusal with place and hint", c.Name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.Name, err)
		case c.Params > 0:
			if counted++; math.Abs(float64(d.TotalParams())/c.Params-1) > 1e-4 {
				t.Errorf("%s: got %d parameters, want %.0f", c.Name, d.TotalParams(), c.Params)
			}
		default:
			if stated++; math.Abs(float64(d.TotalParams())/1e9/c.Published-1) > 0.01 && c.Name != "DeepSeek-VL2-tiny" { // with its encoder
				t.Errorf("%s: got %.4g billion parameters, want %.4g", c.Name, float64(d.TotalParams())/1e9, c.Published)
			}
		}
	}
	if t.Logf("%d met as transformers counts them, %d as published, %d refused", counted, stated, refused); counted < 90 {
		t.Errorf("%d configurations counted, want 90", counted)
	}
}

// TestDTRankIsAuto: Jamba's class takes a sixteenth of the hidden size.
func TestDTRankIsAuto(t *testing.T) {
	for _, rank := range []string{`"auto"`, "null", "256"} {
		d, err := ReadDecoder([]byte(llamaWith(`"model_type":"jamba","num_experts":16,"num_experts_per_tok":2,"mamba_dt_rank":`+rank)), nil,
			"config.json", Options{})
		if err != nil || d.Layers[0].Mixer.DTRank != 256 {
			t.Errorf("%s: got %v, %v, want 256", rank, d, err)
		}
	}
}

// TestQuantizationKeysAreNamed: what a quantization_config says beside what is read is named, never skipped.
func TestQuantizationKeysAreNamed(t *testing.T) {
	for quant, want := range map[string]string{
		`{"quant_method":"gptq","bits":4,"modules_in_block_to_quantize":[["self_attn.q_proj"]]}`:    "quantization_config.modules_in_block_to_quantize",
		`{"quant_method":"auto-round","bits":4,"extra_config":{"model.layers.0":{"bits":8}}}`:       "quantization_config.extra_config",
		`{"quant_method":"gptq","bits":4,"group_size":128,"sym":true,"dynamic":{},"lm_head":false}`: "",
	} {
		m, err := Load(strings.NewReader(llamaWith(`"quantization_config":`+quant)), "config.json", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.UnknownKeys, " "); got != want {
			t.Errorf("%s: got unknown keys %q, want %q", quant, got, want)
		}
	}
}

// TestRulesOfModules: GPTQModel's dynamic rules and the regular expressions of compressed-tensors' targets say how modules are stored, also
// vLLM's fused ones, and whether the head is.
func TestRulesOfModules(t *testing.T) {
	bits := func(quant string) string {
		t.Helper()
		d, err := ReadDecoder([]byte(llamaWith(`"quantization_config":`+quant)), nil, "config.json", Options{})
		if err != nil {
			return err.Error()
		}
		out := ""
		for _, i := range []int{0, 20} {
			d.Layers[i].everyLinear(func(l *Linear) { out += fmt.Sprint(l.Quant.Bits, " ") })
		}
		return out + fmt.Sprint(d.Head.Quant.Bits)
	}
	const gptq = `{"quant_method":"gptq","bits":4,"group_size":128,"sym":true,`
	const tensors = `{"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{"a":{"targets":["re:.*self_attn.*"],` +
		`"weights":{"num_bits":8,"type":"float"}},"b":{"targets":["re:.*mlp.*"],"weights":{"num_bits":4,"group_size":128}}}}`
	for quant, want := range map[string]string{
		gptq + `"lm_head":true}`:  "4 4 4 4 4 4 4 4 4 4 4 4 4",
		gptq + `"lm_head":false}`: "4 4 4 4 4 4 4 4 4 4 4 4 16",
		gptq + `"dynamic":{"-:.*down_proj":{},"+:.*\\.20\\..*qkv.*":{"bits":8}}}`:       "4 4 4 4 4 16 8 8 8 4 4 16 16",
		gptq + `"dynamic":{".*\\.0\\.(self_attn\\.[kq]_proj|mlp.up_proj)":{"bits":8}}}`: "8 8 4 4 8 4 4 4 4 4 4 4 16",
		tensors: "8 8 8 8 4 4 8 8 8 8 4 4 16",
		gptq + `"dynamic":{"-:.*mlp.*":{},"+:.*down.*":{"bits":8}}}`: `want one`,
		gptq + `"dynamic":{"-:.*(?!mlp).*":{}}}`:                     `quantization_config.dynamic: got ".*(?!mlp).*"`,
		gptq + `"dynamic":{".*mlp.*":{"bits":5}}}`:                   `quantization_config.dynamic.bits: got 5, want 2, 3, 4 or 8`,
	} {
		if got := bits(quant); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", quant, got, want)
		}
	}
}

// TestAbsentKeyHeadsAreListed: as the family's class has them, else as many as heads.
func TestAbsentKeyHeadsAreListed(t *testing.T) {
	for family, want := range map[string]string{"llama": "num_key_value_heads=32", "mistral": "num_key_value_heads=8"} {
		d, err := ReadDecoder([]byte(`{"model_type":"`+family+`","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,`+
			`"intermediate_size":11008,"vocab_size":32000,"torch_dtype":"float16"}`), nil, "config.json", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(d.Defaulted, " "); !strings.Contains(got, want) || strings.Count(got, "key_value") != 1 {
			t.Errorf("%s: got %q, want %q in it once", family, got, want)
		}
	}
}

// disputed are figures of truth.csv that its own sources contradict, and what we get less than they say.
var disputed = map[string]struct {
	key  string
	less float64
	why  string
}{
	// Norms, sinks, router and attention biases (13,952 and 13,856 parameters a layer) are passed by every token, as they are
	// counted for all other models.
	"openai--gpt-oss-120b": {"active_params", -502272, "small parameters of a layer are active"},
	"openai--gpt-oss-20b":  {"active_params", -332544, "small parameters of a layer are active"},
	// Only experts were converted to NVFP4; quant_method fp8 holds for the rest, and vLLM's fp8 reads no key ignore. The row
	// has one of the shared experts' three matrices at 16 bit (hidden x width x layers x (1 - 2^-14)) and attention at fp8.
	"nvidia--DeepSeek-V4-Flash-NVFP4": {"weight_bytes", 360688128, "a third of the shared experts taken at 16 bit"},
	"nvidia--DeepSeek-V4-Pro-NVFP4":   {"weight_bytes", 1343143872, "a third of the shared experts taken at 16 bit"},
	// mtp.layers.0* is of the multi-token-prediction layer; the row leaves the decoder's first experts at 16 bit.
	"nvidia--Qwen3.5-122B-A10B-NVFP4": {"weight_bytes", 3472883712, "mtp.layers.0* taken for layer 0: 1.4375 B x 3 x 256 x 1024 x 3072"},
	"nvidia--Qwen3.5-397B-A17B-NVFP4": {"weight_bytes", 9261023232, "mtp.layers.0* taken for layer 0: 1.4375 B x 3 x 512 x 1024 x 4096"},
	// quantized_layers names lm_head (W4A16_NVFP4). The publisher's files of the second (huggingface.co, revision 1355db6) are 23.5 GB in
	// all: ours with 1.69 GB of multi-token prediction and 0.89 GB of encoder are 23.4, the row's 24.1.
	"nvidia--Qwen3.6-27B-NVFP4":     {"weight_bytes", 1827635200, "lm_head is named in quantized_layers: 1.4375 B x 248320 x 5120"},
	"nvidia--Qwen3.6-35B-A3B-NVFP4": {"weight_bytes", 731054080, "lm_head is named in quantized_layers: 1.4375 B x 248320 x 2048"},
	// Neither the config nor a file beside it says that anything is quantized: 16 bit, with a warning.
	lightning: {"weight_bytes", 19379542656 - 63155880576, "no file states a quantization"},
}

// published are why a publisher's total parameters are more than 1 % off, and by how much, %.
var published = map[string]struct {
	off float64
	why string
}{
	"deepseek-ai--DeepSeek-V4-Pro":               {-1.7, "rounded to 1.6 T"},
	"moonshotai--Kimi-K2-Instruct":               {-1.3, "rounded to 1 T and more; the published bytes agree to 0.01 %"},
	"moonshotai--Kimi-K2.5":                      {-1.3, "as Kimi-K2; the published bytes agree to 0.2 %"},
	"meta-llama--Llama-4-Scout-17B-16E-Instruct": {-1.1, "the published total has the image encoder"},
	"Qwen--Qwen3-1.7B":                           {1.2, "named after 1.7 B"},
	"XiaomiMiMo--MiMo-7B-Base":                   {8.9, "named after 7 B"},
}

const lightning = "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"

// TestDecodersMatchTruth compares every published configuration with figures that another program computed.
func TestDecodersMatchTruth(t *testing.T) {
	dir := repo.Shared(t, "data", "models_hf")
	f, err := os.Open(filepath.Join(dir, "truth.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	stated := 0
	for _, row := range rows[1:] {
		name := strings.ReplaceAll(row[0], "/", "--")
		t.Run(name, func(t *testing.T) {
			config, err := os.ReadFile(filepath.Join(dir, name+"_config.json"))
			if err != nil {
				t.Fatal(err)
			}
			quant, _ := os.ReadFile(filepath.Join(dir, name+"_hf_quant_config.json"))
			d, err := ReadDecoder(config, quant, name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if quantized := strings.Contains(strings.Join(d.Warnings, " "), "states a quantization"); quantized != (name == lightning) {
				t.Errorf("warnings: got %q", d.Warnings)
			}
			if total, err := strconv.ParseFloat(row[column["published_total_B"]], 64); err == nil {
				stated++
				if off := 100 * (float64(d.TotalParams())/1e9/total - 1); !(math.Abs(off-published[name].off) <= 1) || published[name].off != 0 &&
					math.Abs(off-published[name].off) > 0.05 {
					t.Errorf("total_params: %.2f %% off the published %g B, want at most 1 %% but for what is explained", off, total)
				}
			}
			full := d.Cache(2, 1)
			shipped := d.Cache(d.KVBytes, 1)
			for _, c := range []struct {
				key string
				got float64
			}{{"total_params", float64(d.TotalParams())}, {"active_params", float64(d.ActiveParams())}, {"weight_bytes", d.WeightBytes()},
				{"kv_bytes_per_token", full.BytesPerToken}, {"state_bytes_per_request", full.StateBytes},
				{"kv_bytes_per_token_shipped", shipped.BytesPerToken}, {"window_bytes_per_token", full.WindowPerToken},
				{"window_bytes_full", full.WindowBytes}} {
				want, err := strconv.ParseFloat(row[column[c.key]], 64)
				if err != nil {
					t.Fatal(err)
				}
				if x, ok := disputed[name]; ok && x.key == c.key {
					want -= x.less
				} else if ok && x.why == "no file states a quantization" && c.key == "kv_bytes_per_token_shipped" {
					want = full.BytesPerToken
				}
				if !(math.Abs(c.got-want) <= 1e-9*math.Abs(want)) {
					t.Errorf("%s: got %.2f, want %.2f (%+.2f)", c.key, c.got, want, c.got-want)
				}
			}
		})
	}
	t.Logf("%d of %d publishers state a total: all within 1 %% but %d, which are explained", stated, len(rows)-1, len(published))
	if stated < 42 {
		t.Errorf("%d published totals, want 42", stated)
	}
}

// TestModelsPageIsGenerated compares docs/models.md with what the reader makes of every published configuration; -update
// rewrites it.
func TestModelsPageIsGenerated(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", "models_hf"), "*_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(modelsPage)
	var rows []string
	models := map[string][]string{} // by the rest of their row
	for _, name := range files {
		if !strings.HasSuffix(name, "_hf_quant_config.json") {
			id, row := modelsRow(t, name)
			if models[row] == nil {
				rows = append(rows, row)
			}
			models[row] = append(models[row], id)
		}
	}
	for _, row := range rows {
		b.WriteString("| " + strings.Join(models[row], ", ") + row)
	}
	b.WriteString("\nRead next: [every model on every GPU](predictions.md), [layers in the specification](spec.md#model-layers).\n")
	const page = "../docs/models.md"
	if *update {
		repo.Write(t, b.String(), page)
	} else if b.String() != string(repo.Read(t, page)) {
		t.Errorf("%s is out of date; rerun with -update", page)
	}
}

const modelsPage = `# Models

For those who check whether a model is understood: what ` + "`blis-train inspect --model`" + ` reads of published configurations, generated from them. Models with
the same figures share a row. [How](spec.md#model-layers) layers are read and added up.
Layers are counted by their mixer. GB are 1e9 bytes of weights per GPU of a tensor-parallel group of 1 and 8; "-" where vLLM would not load it
so. KV bytes per token and state bytes per request are those of the whole model: the cache at 16 bit, and in the type the checkpoint asks for.
The last column: the [specifications](spec.md#model-refused) that say steps of the model, and what older ones cannot say of it.

| model | layers | parameters, 1e9 | active | GB, tp 1 | GB, tp 8 | KV B/token, 16 bit | shipped | window + state, MB | specifications |
|---|---|---|---|---|---|---|---|---|---|
`

// modelsRow returns the name of a model and the other cells of its row.
func modelsRow(t *testing.T, name string) (id, row string) {
	d, err := ReadDecoderFile(name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	perGPU := func(tp int64) string {
		s, err := d.Sizes(Parallel{TP: tp, PP: 1, DP: 1})
		if err != nil {
			return "-"
		}
		return fmt.Sprintf("%.1f", s.WeightBytesPerGPU/1e9)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	quant, err := os.ReadFile(QuantConfigName(name))
	if err != nil {
		quant = nil
	}
	m, err := Load(f, "config.json", Options{QuantConfig: quant})
	if err != nil {
		t.Error(err)
	}
	answered := "1.0 to 1.3"
	if why := m.WhyLayered(); why != "" {
		answered = "1.3: " + strings.Replace(why, "got ", "", 1)
	}
	full := d.Cache(2, 1)
	shipped := d.Cache(d.KVBytes, 1)
	id = strings.Replace(strings.TrimSuffix(filepath.Base(name), "_config.json"), "--", "/", 1)
	return id, fmt.Sprintf(" | %s | %.2f | %.2f | %s | %s | %.0f | %.0f | %.1f | %s |\n", d.InWords(), float64(d.TotalParams())/1e9,
		float64(d.ActiveParams())/1e9, perGPU(1), perGPU(8), full.BytesPerToken, shipped.BytesPerToken,
		(full.WindowBytes+full.StateBytes)/1e6, answered)
}
