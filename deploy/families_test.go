package deploy

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// family is one published architecture: the keys of its config.json that
// describe it, and its published number of parameters, which the loaded widths
// must add up to.
type family struct {
	name   string
	config string
	opts   ModelOptions
	params float64 // published, in 1e9; tables counted once when tied
	tied   bool
	check  func(m Model) bool // what else must hold; nil for nothing
	reject trace.Code
}

func some(n int64) trace.Opt[int64] { return trace.Some(n) }

var families = []family{
	{name: "gpt2", opts: ModelOptions{DType: "float32"}, params: 0.1237, tied: true,
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
	{name: "gemma-2-9b", reject: unsupportedModel, config: gemma2},
	{name: "gemma-2-9b within its window", opts: ModelOptions{MaxModelLen: some(4096)}, params: 9.24, tied: true, config: gemma2},
	{name: "gemma-2-9b one token beyond", opts: ModelOptions{MaxModelLen: some(4097)}, reject: unsupportedModel, config: gemma2},
	{name: "phi-2", params: 2.78,
		config: `{"model_type":"phi","num_hidden_layers":32,"hidden_size":2560,"num_attention_heads":32,"num_key_value_heads":32,"intermediate_size":10240,"vocab_size":51200,"torch_dtype":"float16"}`,
		check:  func(m Model) bool { return m.NumMLPProj == 2 }},
	{name: "phi-3-mini-4k", reject: unsupportedModel, config: phi3},
	{name: "phi-3-mini-4k taken for full", opts: ModelOptions{AssumeFullAttention: true}, params: 3.82, config: phi3,
		check: func(m Model) bool { return len(m.Warnings) == 1 && m.Warnings[0] == fullAttentionAssumed }},
	{name: "qwen2-57b-a14b", params: 57.41,
		config: `{"model_type":"qwen2_moe","num_hidden_layers":28,"hidden_size":3584,"num_attention_heads":28,"num_key_value_heads":4,"intermediate_size":18944,"moe_intermediate_size":2560,"shared_expert_intermediate_size":20480,"num_experts":64,"num_experts_per_tok":8,"decoder_sparse_step":1,"use_sliding_window":false,"sliding_window":65536,"vocab_size":151936,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.SharedExpertSize == 20480 && m.NumMoELayers == 28 && m.TopK == 8 }},
	{name: "qwen3-30b-a3b", params: 30.53,
		config: `{"model_type":"qwen3_moe","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"intermediate_size":6144,"moe_intermediate_size":768,"num_experts":128,"num_experts_per_tok":8,"decoder_sparse_step":1,"mlp_only_layers":[],"vocab_size":151936,"torch_dtype":"bfloat16"}`},
	{name: "deepseek-moe-16b", params: 16.38,
		config: `{"model_type":"deepseek","num_hidden_layers":28,"hidden_size":2048,"num_attention_heads":16,"num_key_value_heads":16,"intermediate_size":10944,"moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,"moe_layer_freq":1,"vocab_size":102400,"torch_dtype":"bfloat16"}`,
		check:  func(m Model) bool { return m.NumMoELayers == 27 && m.SharedExpertSize == 2816 }},
	{name: "deepseek-v2-lite", reject: unsupportedModel,
		config: `{"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,"kv_lora_rank":512,"q_lora_rank":null,"qk_rope_head_dim":64,"intermediate_size":10944,"vocab_size":102400,"torch_dtype":"bfloat16"}`},
	{name: "llama-4-scout", reject: unsupportedModel, config: llama4(16, 1)},
	{name: "llama-4-scout within its chunk", opts: ModelOptions{MaxModelLen: some(8192)}, params: 107.8, config: llama4(16, 1),
		check: func(m Model) bool {
			return m.NumMoELayers == 48 && m.IntermediateSize == 16384 && m.MoEIntermediateSize == 8192 && m.SharedExpertSize == 8192
		}},
	{name: "llama-4-maverick within its chunk", opts: ModelOptions{MaxModelLen: some(8192)}, params: 400.7, config: llama4(128, 2),
		check: func(m Model) bool { return m.NumMoELayers == 24 }},
	{name: "bloom-560m", opts: ModelOptions{DType: "half"}, params: 0.559, tied: true,
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
	{name: "llama-3.1-8b awq", opts: ModelOptions{KVCacheDType: "fp8_e4m3"}, config: llama31(`{"quant_method":"awq","bits":4,"group_size":128}`),
		check: func(m Model) bool { return m.BytesPerWeight == 0.5 && m.LinearCompute == "native" && m.BytesPerKV == 1 }},
	{name: "llama-3.1-8b gptq 3 bits", config: llama31(`{"quant_method":"gptq","bits":3}`),
		check: func(m Model) bool { return m.BytesPerWeight == 0.375 }},
	{name: "llama-3.1-8b w8a8 int8", config: llama31(`{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{"num_bits":8,"type":"int"},"input_activations":{"num_bits":8,"type":"int"}}}}`),
		check: func(m Model) bool { return m.BytesPerWeight == 1 && m.LinearCompute == "native" }},
	{name: "llama-3.1-8b bitsandbytes", reject: unsupportedModel, config: llama31(`{"quant_method":"bitsandbytes","load_in_4bit":true}`)},
	{name: "llama-3.1-8b gptq 5 bits", reject: unsupportedModel, config: llama31(`{"quant_method":"gptq","bits":5}`)},
	{name: "llama-3.1-8b quantised at load", opts: ModelOptions{Quantization: "fp8"}, config: llama31(`null`),
		check: func(m Model) bool { return m.BytesPerWeight == 1 && m.LinearCompute == "fp8" }},
	{name: "llama-3.1-8b quantised by something else", opts: ModelOptions{Quantization: "experts_int8"}, reject: unsupportedModel,
		config: llama31(`null`)},
	{name: "mamba-130m", reject: unsupportedModel,
		config: `{"model_type":"mamba","num_hidden_layers":24,"hidden_size":768,"state_size":16,"vocab_size":50280,"torch_dtype":"float32"}`},
	{name: "jamba", reject: unsupportedModel,
		config: `{"model_type":"jamba","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"attn_layer_period":8,"intermediate_size":14336,"vocab_size":65536,"torch_dtype":"bfloat16"}`},
	{name: "linear attention layers", reject: unsupportedModel,
		config: `{"model_type":"qwen3_next","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"layer_types":["linear_attention","full_attention"],"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "t5", reject: unsupportedModel, config: `{"model_type":"t5","num_layers":12,"d_model":768}`},
	{name: "layer types without a window", tied: true, opts: ModelOptions{}, config: `{"model_type":"cohere2","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"sliding_window":16,"layer_types":["full_attention","full_attention"],"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "chunks count although the sliding window is off", opts: ModelOptions{MaxModelLen: some(20)}, reject: unsupportedModel, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"sliding_window":64,"use_sliding_window":false,"attention_chunk_size":16,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "the inner dtype wins", config: `{"model_type":"x","dtype":"float32","text_config":{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}}`,
		check: func(m Model) bool { return m.BytesPerActivation == 2 }},
	{name: "an odd position limit is unknown", config: `{"model_type":"llama","max_position_embeddings":-1,"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`,
		check: func(m Model) bool { return m.MaxPositionEmbeddings == 0 }},
	{name: "one expert is dense", config: `{"model_type":"mixtral","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":4,"intermediate_size":128,"num_local_experts":1,"vocab_size":100,"torch_dtype":"bfloat16"}`,
		check: func(m Model) bool { return !m.IsMoE() && m.NumExperts == 0 && m.TopK == 0 }},
	{name: "sparse step 0 is never", reject: BadModel, config: `{"model_type":"qwen2_moe","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"num_experts":4,"num_experts_per_tok":1,"decoder_sparse_step":0,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "head dim is not a quotient", reject: BadModel, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":65,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "unknown type", reject: unsupportedModel, config: `{"model_type":"my_llm","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"bfloat16"}`},
	{name: "unknown dtype", reject: unsupportedModel, config: `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100,"torch_dtype":"int4"}`},
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
	c = strings.Replace(c, ":E,", ":"+show(experts)+",", 1)
	return strings.Replace(c, ":S,", ":"+show(step)+",", 1)
}

func llama31(quantization string) string {
	return `{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16","quantization_config":` + quantization + `}`
}

// Over published architectures the widths add up to the published number of parameters, the others are rejected with their code.
func TestPublishedFamilies(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			m, err := LoadModel(strings.NewReader(f.config), "config.json", f.opts)
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
		m, err := LoadModel(f, name, ModelOptions{})
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
		return trace.Errorf(unsupportedModel, "%s", why)
	}
	return nil
}

func FuzzLoadModel(f *testing.F) {
	for _, c := range families {
		f.Add(c.config)
	}
	f.Fuzz(func(t *testing.T, config string) {
		m, err := LoadModel(strings.NewReader(config), "config.json", ModelOptions{})
		if err != nil && trace.CodeOf(err) == "" {
			t.Errorf("error without a code: %v", err)
		}
		if err == nil && m.Layered != nil {
			d, back := Deployment{Model: m, TP: 1}, Model{}
			if text, err := json.Marshal(&m); err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back.Layered, m.Layered) {
				t.Errorf("layers do not come back from %s", text)
			}
			if w := m.Layers().Work(d.Parallel()); !(w.FixedBytes > 0) && len(w.Experts) == 0 {
				t.Errorf("got work %+v of %+v", w, m.Layered)
			}
			return
		}
		if err == nil && (m.NumLayers <= 0 || m.NumKVHeads <= 0 || m.NumHeads%m.NumKVHeads != 0 || !(m.BytesPerWeight > 0)) {
			t.Errorf("loaded %+v", m)
		}
	})
}

// Every run beside the repository loads, or is refused with a code: others may
// be added.
func TestEveryRunOfTheDataSetsLoads(t *testing.T) {
	root := repo.Shared(t, "data")
	n := 0
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != RunFile {
			return err
		}
		d, err := LoadRun(filepath.Dir(name))
		if err == nil {
			n++
			if err = d.Check(); err == nil {
				err = d.CheckSupported()
			}
		}
		if err != nil {
			if trace.CodeOf(err) == "" {
				t.Errorf("%s: %v: no code", name, err)
			}
			t.Log(err)
			return nil
		}
		t.Log(d.Config(), d.Files)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("no run.yaml found")
	}
	t.Logf("runs: %d", n)
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
		d, err := ReadDecoder([]byte(c.config), nil, "config.json", ModelOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := float64(d.TotalParams()) / 1e9; math.Abs(got-c.params) > 0.01*c.params {
			t.Errorf("%s: got %.4g billion parameters, want %.4g", c.name, got, c.params)
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
		d, err := ReadDecoder(c.Config, nil, "config.json", ModelOptions{})
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

// TestStatedSizes: a model of an unknown architecture has the memory that run.yaml states, and no step times.
func TestStatedSizes(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, llamaWith(`"model_type":"quasar","flux_width":3`), dir, "config.json")
	load := func(set ...string) (*Deployment, error) {
		return LoadRun(dir, append([]string{"model.config=config.json", "hardware.name=H100", "vllm.version=0.19.0", "vllm.max_num_seqs=64",
			"vllm.max_num_batched_tokens=2048"}, set...)...)
	}
	for _, set := range [][]string{nil, {"model.weight_bytes_per_gpu=16e9"}, {"model.bytes_per_block=2e6"}, {"vllm.kv_blocks_total_gpu=100"}} {
		if d, err := load(set...); err == nil {
			t.Errorf("%q: got %v, want a refusal", set, d.Model)
		}
	}
	for _, c := range []struct {
		set    []string
		blocks int64
	}{{[]string{"vllm.kv_blocks_total_gpu=1234"}, 1234}, {[]string{"model.bytes_per_block=2e6"}, 29998}, {[]string{"model.bytes_per_block=2e6",
		"vllm.kv_cache_memory_bytes=4000000000"}, 1999}} {
		d, err := load(append(c.set, "model.weight_bytes_per_gpu=16e9")...)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := d.KVBlocks()
		if err != nil || n != c.blocks {
			t.Errorf("%q: got %d blocks, %v, want %d", c.set, n, err, c.blocks)
		}
		if _, err := d.CheckStepTimes(); err == nil || d.CheckTables() == nil || len(d.NotModelled()) == 0 {
			t.Errorf("%q: step times are not refused, or not said", c.set)
		}
	}
	d, err := load("model.assume=llama")
	if err != nil {
		t.Fatal(err)
	}
	if said := fmt.Sprint(d.NotModelled()); !strings.Contains(said, "flux_width") || !strings.Contains(said, "as model.assume says") {
		t.Errorf("got %s, want the unknown key and the family taken", said)
	}
}

// TestDTRankIsAuto: Jamba's class takes a sixteenth of the hidden size.
func TestDTRankIsAuto(t *testing.T) {
	for _, rank := range []string{`"auto"`, "null", "256"} {
		d, err := ReadDecoder([]byte(llamaWith(`"model_type":"jamba","num_experts":16,"num_experts_per_tok":2,"mamba_dt_rank":`+rank)), nil,
			"config.json", ModelOptions{})
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
		m, err := LoadModel(strings.NewReader(llamaWith(`"quantization_config":`+quant)), "config.json", ModelOptions{})
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
		d, err := ReadDecoder([]byte(llamaWith(`"quantization_config":`+quant)), nil, "config.json", ModelOptions{})
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
			`"intermediate_size":11008,"vocab_size":32000,"torch_dtype":"float16"}`), nil, "config.json", ModelOptions{})
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
			d, err := ReadDecoder(config, quant, name, ModelOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if quantized := strings.Contains(strings.Join(d.Warnings, " "), "says quantized"); quantized != (name == lightning) {
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
	for _, name := range files {
		if !strings.HasSuffix(name, "_hf_quant_config.json") {
			b.WriteString(modelsRow(t, name))
		}
	}
	const page = "../docs/models.md"
	if *update {
		repo.Write(t, b.String(), page)
	} else if b.String() != string(repo.Read(t, page)) {
		t.Errorf("%s is out of date; rerun with -update", page)
	}
}

const modelsPage = `# Models

What ` + "`blis-train inspect --model`" + ` reads of published configurations, generated from them. [How](spec.md#model-layers) layers are read and added up.
Layers are counted by their mixer. GB are 1e9 bytes of weights per GPU of a tensor-parallel group of 1 and 8; "-" where vLLM would not load it
so. KV bytes per token and state bytes per request are those of the whole model: the cache at 16 bit, and in the type the checkpoint asks for.
The last column: the [specifications](spec.md#model-refused) that say steps of the model, and what older ones cannot say of it.

| model | layers | parameters, 1e9 | active | GB, tp 1 | GB, tp 8 | KV B/token, 16 bit | shipped | window + state, MB | specifications |
|---|---|---|---|---|---|---|---|---|---|
`

func modelsRow(t *testing.T, name string) string {
	d, err := ReadDecoderFile(name, ModelOptions{})
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
	m, err := LoadModel(f, "config.json", ModelOptions{QuantConfig: quant})
	if err != nil {
		t.Error(err)
	}
	answered := "1.0 to 1.3"
	if why := m.WhyLayered(); why != "" {
		answered = "1.3: " + strings.Replace(why, "got ", "", 1)
	}
	full := d.Cache(2, 1)
	shipped := d.Cache(d.KVBytes, 1)
	id := strings.Replace(strings.TrimSuffix(filepath.Base(name), "_config.json"), "--", "/", 1)
	return fmt.Sprintf("| %s | %s | %.2f | %.2f | %s | %s | %.0f | %.0f | %.1f | %s |\n", id, d.InWords(), float64(d.TotalParams())/1e9,
		float64(d.ActiveParams())/1e9, perGPU(1), perGPU(8), full.BytesPerToken, shipped.BytesPerToken,
		(full.WindowBytes+full.StateBytes)/1e6, answered)
}

var updatePython = flag.Bool("update-python", false, "rewrite the deployment rules of the Python package")

// What the Python evaluator reads of a config.json: model types by their MLP, and keys of attention it refuses.
var (
	gatedMLP = []string{"llama", "mistral", "mistral3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral",
		"gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "phimoe", "glm4", "glm4_moe", "granite", "granitemoe",
		"cohere", "cohere2", "stablelm", "internlm2", "internlm3", "baichuan", "exaone", "minicpm", "olmo", "olmo2",
		"olmoe", "smollm3", "deepseek", "gpt_oss", "llama4", "llama4_text"}
	plainMLP       = []string{"gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "nemotron"}
	stateSpace     = []string{"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2", "rwkv", "recurrent_gemma"}
	otherAttention = []string{"attn_layer_period", "mamba_d_state", "ssm_cfg", "hybrid_override_pattern", "full_attention_interval",
		"linear_attn_config", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
		"linear_value_head_dim", "attn_type_list", "layer_group_size", "mamba_num_heads", "mamba_head_dim", "mamba_expand", "mamba_n_heads",
		"ssm_state_size", "state_size", "conv_L_cache", "full_attn_idxs", "lru_width", "block_types", "time_step_rank", "index_topk",
		"index_n_heads", "num_kv_shared_layers", "kv_share_layers", "sparse_attention_config", "attn_layer_indices", "hybrid_layer_pattern",
		"mamba_layer_indices", "layers_block_type"}
)

// pythonRules are the tables by which the Python package reads config.json and run.yaml.
func pythonRules() ([]byte, error) {
	type sheet struct {
		Sheet   Hardware `json:"sheet"`
		Names   []string `json:"names"`   // in the form that names are compared in
		Aliases []string `json:"aliases"` // likewise
	}
	doc := struct {
		Gated      []string `json:"gated_mlp"`
		Plain      []string `json:"plain_mlp"`
		FourHidden []string `json:"four_hidden_mlp"`
		StateSpace []string `json:"state_space"`
		Other      []string `json:"other_attention"`
		Block      int      `json:"block_size"`
		Memory     float64  `json:"gpu_memory_utilization"`
		PCIe       float64  `json:"pcie_efficiency"`
		Latency    float64  `json:"latency_us"`
		Sheets     []sheet  `json:"datasheets"`
		Flags      []string `json:"serve_flags"` // name, first and last release as MAJOR.MINOR, 0.0 without one
		// AllReduce are the curves of a device and number of GPUs inside CUDA graphs and outside, Fused that
		// of the fused kernel and its largest tensor in bytes: "BYTES:US BYTES:US ...".
		AllReduce map[string]map[string][2]string `json:"all_reduce"`
		Fused     map[string][2]string            `json:"fused_all_reduce"`
	}{gatedMLP, plainMLP, fourHiddenMLP, stateSpace, otherAttention, defaultBlockSize, defaultGPUMemoryUtilization, DefaultPCIeEfficiency,
		DefaultLatencyUs, nil, nil, map[string]map[string][2]string{}, map[string][2]string{}}
	points := func(a *AllReduce) string {
		var out []string
		for i := range a.Bytes {
			out = append(out, fmt.Sprintf("%v:%v", a.Bytes[i], a.TimeUs[i]))
		}
		return strings.Join(out, " ")
	}
	for _, h := range builtin() {
		for gpus := range h.Graph {
			if doc.AllReduce[h.Name] == nil {
				doc.AllReduce[h.Name] = map[string][2]string{}
			}
			doc.AllReduce[h.Name][fmt.Sprint(gpus)] = [2]string{points(h.Graph[gpus]), points(h.Eager[gpus])}
		}
	}
	for _, tp := range []int64{2, 4, 8} {
		d := Deployment{TP: tp, Hardware: Hardware{Name: "B200-SXM-180GB"}}
		d.Engine.Extra = map[string]any{"compilation_config": "fuse_allreduce_rms"}
		c, most := d.FusedAllReduce()
		doc.Fused[fmt.Sprint(tp)] = [2]string{points(c), fmt.Sprint(most)}
	}
	for _, h := range builtin() {
		s := sheet{Sheet: h.Hardware, Aliases: aliases(h.Name)}
		for _, n := range append([]string{h.Name}, h.Names...) {
			s.Names = append(s.Names, aliasKey(n))
		}
		doc.Sheets = append(doc.Sheets, s)
	}
	for _, f := range flagsRead().flags {
		doc.Flags = append(doc.Flags, fmt.Sprintf("%s %d.%d %d.%d", f.name, f.since[0], f.since[1], f.until[0], f.until[1]))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	err := enc.Encode(doc)
	return b.Bytes(), err
}

// pythonRuns are variants of run.yaml: the first is whole, each other changes something.
var pythonRuns = []struct{ from, to string }{
	{"", ""}, {"name: H100", "name: NVIDIA A100-SXM4-80GB"}, {"name: H100", "name: b200, memory_gb: 170"},
	{"name: H100", "name: X1"},
	{"name: H100", "TFlopsPeak: 100"}, {"name: H100", "TFlopsPeak: 100, BwPeakTBs: 1.5"}, {"name: H100", "name: H100, pcie_efficiency: 2"},
	{"name: H100", "nam: H100"}, {"config: config.json", "config: nothing.json"}, {"config: config.json", "id: x"},
	{"config: config.json", "config: config.json, dtype: int3"}, {"config: config.json", "config: config.json, kv_cache_dtype: fp8"},
	{"config: config.json", "config: config.json, n_mlp_proj: 2"}, {"max_num_seqs: 256", "max_num_seqs: 0"},
	{"max_num_seqs: 256", "max_num_seqs: many"}, {"max_num_seqs: 256", "max_num_seqs: 9999999"}, {", max_num_seqs: 256", ""},
	{"max_num_seqs: 256", "max_num_seqs: 256, block_size: 0"}, {"max_num_seqs: 256", "max_num_seqs: 256, num_gpu_blocks_override: 500"},
	{"max_num_seqs: 256", "max_num_seqs: 256, num_gpu_blocks_override: 500, kv_blocks_total_gpu: 1000"},
	{"max_num_seqs: 256", "max_num_seqs: 256, num_gpu_blocks_override: 500, kv_blocks_total_gpu: 499"},
	{"max_num_seqs: 256", "max_num_seqs: 256, max_num_seq: 3"}, {"max_num_seqs: 256", "max_num_seqs: 256, cpu_offloading: true"},
	{"max_num_seqs: 256", "max_num_seqs: 256, enable_prefix_caching: 1"}, {"max_num_seqs: 256", "max_num_seqs: 256, quantization: fp8"},
	{"max_num_seqs: 256", "max_num_seqs: 256, enable_expert_parallel: true"}, {"max_num_seqs: 256", "max_num_seqs: 256, enable_dbo: true"},
	{"max_num_seqs: 256", "max_num_seqs: 256, decode_context_parallel_size: 2"}, {"max_num_seqs: 256", "max_num_seqs: 256, task: embed"},
	{"version: \"0.15.1\"", "version: v0.11.0rc1, task: embed"},
	{"max_num_seqs: 256", "max_num_seqs: 256, cpu_offload_gb: 4"}, {"max_num_seqs: 256", "max_num_seqs: 256, num_speculative_tokens: 3"},
	{"max_num_seqs: 256", "max_num_seqs: 256, kv_transfer_config: {kv_connector: NixlConnector}"},
	{"tensor_parallel_size: 1", "tensor_parallel_size: 2"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 3"},
	{"tensor_parallel_size: 1", "tensor_parallel_size: 0"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 1.5"},
	{"tensor_parallel_size: 1", "pipeline_parallel_size: 2"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 1\ntp: 2"},
	{"tensor_parallel_size: 1", "tensor_parallel_size: 1\ntensor_parallel_size: 1"}, {"tensor_parallel_size: 1", "vllm"},
}

const pythonRun = `# a whole one
model: {config: config.json}
hardware: {name: H100}
tensor_parallel_size: 1   # devices
vllm: {version: "0.15.1", max_num_seqs: 256, max_num_batched_tokens: 8192}
`

const pythonConfig = `{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16"}`

// pythonDeployments prints, for each folder, the code of the refusal, or what was read.
const pythonDeployments = `
import json, sys
sys.path.insert(0, sys.argv[1])
import blis_train_coefficients as btc
for path in sys.argv[2:]:
    try:
        d = btc.load_deployment(path)
        btc.Space(d)
        print(json.dumps(d))
    except btc.CoefficientError as e:
        print(json.dumps({"code": e.code}))
`

// TestPythonDeployments: the Python package reads run.yaml and config.json as we do: the same model, hardware and engine, or
// the same code.
func TestPythonDeployments(t *testing.T) {
	root := filepath.Join("..", "python")
	want, err := pythonRules()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "blis_train_coefficients", "deployments.json")
	if *updatePython {
		repo.Write(t, want, path)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is stale (%v): go test ./deploy -run TestPythonDeployments -update-python", path, err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	runs, err := filepath.Glob("../testdata/traces/*/*/run.yaml")
	if err != nil || len(runs) == 0 {
		t.Fatalf("recordings: got %v (%v), want some", runs, err)
	}
	for _, r := range pythonRuns {
		text := strings.Replace(pythonRun, r.from, r.to, 1)
		dir := t.TempDir()
		for name, data := range map[string]string{RunFile: text, "config.json": pythonConfig} {
			repo.Write(t, data, dir, name)
		}
		runs = append(runs, filepath.Join(dir, RunFile))
	}
	out, err := exec.Command(python, append([]string{"-B", "-c", pythonDeployments, root}, runs...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refused := 0
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(runs) {
		t.Fatalf("got %d answers, want %d:\n%s", len(lines), len(runs), out)
	}
	for i, run := range runs {
		if comparePython(t, run, lines[i]) {
			refused++
		}
	}
	t.Logf("%d descriptions of runs, %d of them refused with the same code", len(runs), refused)
}

// comparePython holds one answer of the package against what is loaded here, and reports whether both refuse.
func comparePython(t *testing.T, run, answer string) bool {
	t.Helper()
	text, _ := os.ReadFile(run)
	var got struct {
		Code trace.Code `json:"code"`
		Deployment
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatalf("%s: %v\n%s", run, err, answer)
	}
	d, err := LoadRunFile(run)
	if err == nil {
		err = d.CheckSupported()
	}
	if code := trace.CodeOf(err); err != nil || got.Code != "" {
		if code != got.Code {
			t.Errorf("%s: got code %q, want %q (%v)\n%s", run, got.Code, code, err, text)
		}
		return true
	}
	d.Model.Encoders = nil
	d.Model.UnknownKeys = nil
	d.Model.MaxPositionEmbeddings = 0
	d.Model.BLIS = nil
	d.Model.Tied = false // memory's alone
	if len(got.Model.Warnings) == 0 {
		got.Model.Warnings = nil
	}
	for _, e := range []*Deployment{d, &got.Deployment} {
		if len(e.Engine.Extra) == 0 {
			e.Engine.Extra = nil
		}
	}
	for _, pair := range [][2]any{{got.Model, d.Model}, {got.Hardware, d.Hardware}, {got.Engine, d.Engine}, {got.TP, d.TP}, {got.PP, d.PP},
		{got.DP, d.DP}} {
		a, errA := json.Marshal(pair[0])
		b, errB := json.Marshal(pair[1])
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s (%v):\n got %s\nwant %s", run, err, a, b)
		}
	}
	return false
}

// TestPythonTakesNumpy: the evaluator takes numpy's numbers as it takes Python's.
func TestPythonTakesNumpy(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import numpy").Run() != nil {
		t.Skip("skipped: no python3 with numpy on PATH")
	}
	out, err := exec.Command(python, "-B", "-c", `import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import blis_train_coefficients as b
c = b.load(sys.argv[2])
plain = [(512, 512, 1)] * 32 + [(0, 100, 100)]
want = b.step_time(c, plain)
for kind in (np.int64, np.int32, np.uint16):
    got = b.step_time(c, [tuple(kind(v) for v in r) for r in plain])
    assert got == want, (kind, got, want)
assert b.step_time(c, np.array(plain)) == want
`, filepath.Join("..", "python"), filepath.Join("..", "docs", "examples", "real", "coefficients.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
