package model

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestEverydayModels: the parameters of each shape are those that its publisher counts, within 0.5 %.
func TestEverydayModels(t *testing.T) {
	for _, m := range everydayModels {
		d, err := ReadDecoder([]byte(m.config), nil, m.id, Options{})
		if err != nil {
			t.Errorf("%s: %v", m.id, err)
			continue
		}
		if off := float64(d.TotalParams())/m.parameters - 1; math.Abs(off) > 0.005 {
			t.Errorf("%s: got %d parameters, %.2f %% off the published %.0f", m.id, d.TotalParams(), 100*off, m.parameters)
		}
	}
	if len(everydayModels)+len(sameShapes) < 40 {
		t.Errorf("%d everyday models, want at least 40", len(everydayModels)+len(sameShapes))
	}
}

// TestSameShapes: a model without layers of its own has those of another built-in one and its own context.
func TestSameShapes(t *testing.T) {
	for _, s := range sameShapes {
		own, err := LoadBuiltIn(Options{ID: s.id})
		if err != nil {
			t.Fatalf("%s: %v", s.id, err)
		}
		base, err := LoadBuiltIn(Options{ID: s.as})
		if err != nil {
			t.Fatalf("%s of %s: %v", s.as, s.id, err)
		}
		if own.Decoder.TotalParams() != base.Decoder.TotalParams() || SameShapeAs(s.id) != s.as {
			t.Errorf("%s: got %d parameters, want the %d of %s", s.id, own.Decoder.TotalParams(), base.Decoder.TotalParams(), s.as)
		}
		if want, changed := s.changed["max_position_embeddings"]; changed && own.MaxPositionEmbeddings != int64(want.(int)) {
			t.Errorf("%s: got a context of %d, want %d", s.id, own.MaxPositionEmbeddings, want)
		}
		if n := own.MaxPositionEmbeddings; s.changed["max_position_embeddings"] != nil && n != 8<<10 && n != 40<<10 && n != 128<<10 && n != 256<<10 {
			t.Errorf("%s: got a context of %d, want 8, 40, 128 or 256 thousand", s.id, n)
		}
		if !strings.HasSuffix(s.id, "-FP8") || !strings.HasPrefix(s.id, "Qwen/") {
			continue
		}
		config, _ := BuiltInConfig(s.id)
		d, err := ReadDecoder(config, nil, s.id, Options{})
		if err != nil {
			t.Fatal(s.id, err)
		}
		if q := d.Layers[0].Mixer.Linears[0].Quant; q.Block != [2]int64{128, 128} || math.Abs(q.BytesPerWeight-(1+4.0/(128*128))) > 1e-9 {
			t.Errorf("%s: got %+v, want blocks of 128 x 128 with a scale of four bytes", s.id, q)
		}
	}
}

// TestEverydayNames: names as people write them, and hints that stay in the family.
func TestEverydayNames(t *testing.T) {
	// A name that begins several models of one shape names those that it was not taken for; a name of one model none.
	for name, want := range map[string]string{
		"mistral-small":                   "mistralai/Mistral-Small-3.1-24B-Instruct-2503 mistralai/Mistral-Small-3.2-24B-Instruct-2506",
		"mistral-small-24b-instruct-2501": "", "llama-3.1-8b": "", "qwen3-8b": "", "no-such-model": "",
	} {
		if got := strings.Join(Alternatives(name), " "); got != want {
			t.Errorf("%s: alternatives %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"Qwen2.5-7B": "Qwen/Qwen2.5-7B-Instruct", "qwen2.5-72b-instruct": "Qwen/Qwen2.5-72B-Instruct", "Qwen3-4B": "Qwen/Qwen3-4B",
		"Qwen3-14B": "Qwen/Qwen3-14B", "QwQ-32B": "Qwen/QwQ-32B", "Qwen3-Next-80B-A3B": "Qwen/Qwen3-Next-80B-A3B-Instruct",
		"Llama-3.3-70B": "meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.2-3B": "meta-llama/Llama-3.2-3B-Instruct",
		"llama-3-8b": "meta-llama/Meta-Llama-3-8B-Instruct", "Llama-2-70b-chat": "meta-llama/Llama-2-70b-hf",
		"gemma-3-27b": "google/gemma-3-27b-it", "gemma-2-9b-it": "google/gemma-2-9b-it", "phi-4": "microsoft/phi-4",
		"Mistral-7B-Instruct-v0.3": "mistralai/Mistral-7B-Instruct-v0.3", "Mistral-Small-3.2-24B-Instruct-2506": "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
		"Mistral-Nemo-Instruct-2407": "mistralai/Mistral-Nemo-Instruct-2407", "DeepSeek-V3.1": "deepseek-ai/DeepSeek-V3.1",
		"deepseek-r1-distill-llama-70b": "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "DeepSeek-R1-0528": "deepseek-ai/DeepSeek-R1-0528",
		"GLM-4.7": "zai-org/GLM-4.7", "glm-4.5-air": "zai-org/GLM-4.5-Air", "GLM-4.6": "zai-org/GLM-4.6", "Kimi-K2-Thinking": "moonshotai/Kimi-K2-Thinking",
		"Qwen3-Coder-30B-A3B": "Qwen/Qwen3-Coder-30B-A3B-Instruct", "SmolLM3-3B": "HuggingFaceTB/SmolLM3-3B",
		// beginnings of names, and generations that are joined
		"llama-4-maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
		"qwen3-next": "Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-235b": "Qwen/Qwen3-235B-A22B", "qwen3-coder-480b": "Qwen/Qwen3-Coder-480B-A35B-Instruct",
		"mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1", "mistral-7b": "mistralai/Mistral-7B-Instruct-v0.3", "llama3-8b": "meta-llama/Meta-Llama-3-8B-Instruct",
		"mistral-small-3.2": "mistralai/Mistral-Small-3.2-24B-Instruct-2506", "qwen-3-32b": "Qwen/Qwen3-32B", "phi4": "microsoft/phi-4",
		"gemma3-27b": "google/gemma-3-27b-it", "kimi-k2": "moonshotai/Kimi-K2-Instruct", "nemotron-h": "nvidia/Nemotron-H-56B-Base-8K",
		"minimax-m2": "MiniMaxAI/MiniMax-M2", "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite-Chat", "command-r-plus": "CohereLabs/c4ai-command-r-plus",
		"tinyllama-1.1b": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "vicuna-13b": "lmsys/vicuna-13b-v1.5", "granite-3.3-8b": "ibm-granite/granite-3.3-8b-instruct",
		"ministral-8b": "mistralai/Ministral-8B-Instruct-2410", "starcoder2-15b": "bigcode/starcoder2-15b", "gemma-3-1b": "google/gemma-3-1b-it",
		"opt-125m": "facebook/opt-125m", "qwen3-8b-fp8": "Qwen/Qwen3-8B-FP8", "llama-3.3-70b-instruct-fp8": "nvidia/Llama-3.3-70B-Instruct-FP8",
	} {
		if id, ok := BuiltInID(name); !ok || id != want {
			t.Errorf("%s: got %q, %v, want %s", name, id, ok, want)
		}
	}
	for name, want := range map[string]string{
		"lama-3.1-8b": "Llama-3.1-8B", "deepsek-v3": "DeepSeek-V3", "gema-3-27b": "gemma-3-27b-it", "gpt-oss": "gpt-oss-120b", "minimax-m": "MiniMax-M", "nemotron-super-49b": "Nemotron-Super-49B",
		"llama-3.1-8b-fp8": "Meta-Llama-3.1-8B is built in with other weights", "gemma-3-2b": "built in of this generation: google/gemma-3-12b-it",
		"deepseek-v4": "DeepSeek-V4-Flash", "gemma-4-31b": "Gemma-4-31B-IT-NVFP4", "mistral-smal-3.2": "Mistral-Small-3.2",
	} {
		if id, ok := BuiltInID(name); ok || !strings.Contains(trace.HintOf(NoSuchModel(name)), want) {
			t.Errorf("%s: got %q, hint %q, want %s", name, id, trace.HintOf(NoSuchModel(name)), want)
		}
	}
	for _, name := range []string{"llava-1.5-7b", "pixtral-12b", "ministral-3b", "phi", "qwen", "llama", "nemo", "gemini-2", "Qwen2.5-8B", "gemma-5-27b", "phi-9", "Mistral-Smal-24B", "GLM-9", "gpt-4o", "claude-4", "Llama-3.3-71B", "falcon-7b",
		"starcoder2-7b", "minimax-m1", "qwen1.5-7b", "smollm2-360m", "qwen2-vl-7b", "gemma-2-7b", "deepseek-v1", "phi-3-large"} {
		if id, ok := BuiltInID(name); ok {
			t.Errorf("%s: got %s, want no model", name, id)
			continue
		}
		near, hints := strings.CutPrefix(trace.HintOf(NoSuchModel(name)), "did you mean ")
		if hints && familyOf(strings.TrimSuffix(near, "?")) != familyOf(name) {
			t.Errorf("%s: hint at %s, of another family", name, near)
		}
	}
}
