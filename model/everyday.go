package model

// This file adds models to the built-in ones, from the figures that their publishers state.

import (
	"encoding/json"
	"maps"
)

// sameShape is a model (id) with the layers of another one (as). Keys of config.json that differ, such as the longest
// context, are changed.
type sameShape struct {
	id, as  string
	changed map[string]any // values by key; nil: none differs
}

// context returns the change of the longest context alone.
func context(tokens int) map[string]any { return map[string]any{"max_position_embeddings": tokens} }

// blockFP8 is the quantization of Qwen3's FP8 checkpoints (config.json of Qwen/Qwen3-30B-A3B-FP8): blocks of 128 x 128
// weights with a scale each, activations quantized as they come.
var blockFP8 = map[string]any{"quantization_config": map[string]any{
	"activation_scheme": "dynamic",
	"fmt":               "e4m3",
	"quant_method":      "fp8",
	"weight_block_size": []int{128, 128},
}}

// sameShapes are trained anew, distilled or prolonged, with the layers of the model they name.
var sameShapes = []sameShape{
	{"Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", nil},
	{"Qwen/Qwen2.5-Coder-14B-Instruct", "Qwen/Qwen2.5-14B-Instruct", nil},
	{"Qwen/Qwen2.5-Coder-32B-Instruct", "Qwen/Qwen2.5-32B-Instruct", nil},
	{"Qwen/QwQ-32B", "Qwen/Qwen2.5-32B-Instruct", context(40960)},
	{"Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B", context(262144)},
	{"Qwen/Qwen3-4B-Thinking-2507", "Qwen/Qwen3-4B", context(262144)},
	{"Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B", context(262144)},
	{"Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B", context(262144)},
	{"Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-30B-A3B", context(262144)},
	{"Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B", context(262144)},
	{"Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B", context(262144)},
	{"Qwen/Qwen3-Next-80B-A3B-Thinking", "Qwen/Qwen3-Next-80B-A3B-Instruct", nil},
	{"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "Qwen/Qwen2.5-7B-Instruct", context(131072)},
	{"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "Qwen/Qwen2.5-14B-Instruct", context(131072)},
	{"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "Qwen/Qwen2.5-32B-Instruct", context(131072)},
	{"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "meta-llama/Meta-Llama-3.1-8B", nil},
	{"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "meta-llama/Meta-Llama-3.1-70B", nil},
	{"deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", nil},
	{"deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3", nil},
	{"deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3", nil},
	{"deepseek-ai/DeepSeek-V3.1-Terminus", "deepseek-ai/DeepSeek-V3", nil},
	{"meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B", context(8192)},
	{"meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B", context(8192)},
	{"meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Meta-Llama-3.1-70B", nil},
	{"nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "meta-llama/Meta-Llama-3.1-70B", nil},
	{"mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistralai/Mistral-Small-24B-Instruct-2501", context(131072)},
	{"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistralai/Mistral-Small-24B-Instruct-2501", context(131072)},
	{"mistralai/Devstral-Small-2507", "mistralai/Mistral-Small-24B-Instruct-2501", context(131072)},
	{"mistralai/Magistral-Small-2506", "mistralai/Mistral-Small-24B-Instruct-2501", context(40960)},
	{"moonshotai/Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Instruct", map[string]any{
		"max_position_embeddings": 262144,
		"rope_scaling":            map[string]any{"type": "yarn", "factor": 64, "original_max_position_embeddings": 4096},
	}},
	{"moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2.5", nil},
	{"zai-org/GLM-4.5", "zai-org/GLM-4.7", context(131072)},
	{"zai-org/GLM-4.6", "zai-org/GLM-4.7", nil},
	{"Qwen/Qwen2-0.5B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct", nil},
	{"Qwen/Qwen2-1.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct", nil},
	{"Qwen/Qwen2-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct", nil},
	{"Qwen/Qwen2-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct", nil},
	{"Qwen/Qwen3-4B-FP8", "Qwen/Qwen3-4B", blockFP8},
	{"Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B", blockFP8},
	{"Qwen/Qwen3-14B-FP8", "Qwen/Qwen3-14B", blockFP8},
	{"Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen/Qwen3-30B-A3B-FP8", context(262144)},
	{"Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "Qwen/Qwen3-30B-A3B-FP8", context(262144)},
	{"Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "Qwen/Qwen3-30B-A3B-FP8", context(262144)},
	{"Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen/Qwen3-235B-A22B-FP8", context(262144)},
	{"Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "Qwen/Qwen3-235B-A22B-FP8", context(262144)},
	{"01-ai/Yi-34B-Chat", "01-ai/Yi-1.5-34B-Chat", nil},
	{"MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.5", nil},
	{"NousResearch/Hermes-3-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", nil},
	{"NousResearch/Hermes-3-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B", nil},
	{"deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "deepseek-ai/DeepSeek-V2-Lite-Chat", nil},
	{"deepseek-ai/DeepSeek-V2-Chat", "deepseek-ai/DeepSeek-V2.5", nil},
	{"lmsys/vicuna-7b-v1.5", "meta-llama/Llama-2-7b-hf", nil},
	{"lmsys/vicuna-13b-v1.5", "meta-llama/Llama-2-13b-hf", nil},
	{"microsoft/Phi-3-mini-128k-instruct", "microsoft/Phi-3.5-mini-instruct", nil},
	{"nvidia/Llama-3.3-70B-Instruct-FP8", "nvidia/Llama-3.1-70B-Instruct-FP8", nil},
}

// SameShapeAs returns the built-in model whose layers are used for those of another built-in one;
// "" if it has layers of its own.
func SameShapeAs(id string) string {
	for _, s := range sameShapes {
		if s.id == id {
			return s.as
		}
	}
	return ""
}

// addSameShapes adds the configurations of models with the layers of another one.
func addSameShapes(configs map[string][]byte) {
	for _, s := range sameShapes {
		configs[fileOf(s.id)] = changedKeys(configs[fileOf(s.as)], s.changed)
		if quant := configs[quantFileOf(s.as)]; quant != nil {
			configs[quantFileOf(s.id)] = quant
		}
	}
}

// changedKeys returns a configuration with other values of some keys. The language model of one
// with images has its keys in text_config.
func changedKeys(config []byte, changed map[string]any) []byte {
	if len(changed) == 0 {
		return config
	}
	keys := map[string]any{}
	if err := json.Unmarshal(config, &keys); err != nil {
		panic("model: built-in configuration: " + err.Error())
	}
	to := keys
	if text, ok := keys["text_config"].(map[string]any); ok {
		to = text
	}
	maps.Copy(to, changed)
	text, err := json.Marshal(keys)
	if err != nil {
		panic("model: built-in configuration: " + err.Error())
	}
	return text
}
