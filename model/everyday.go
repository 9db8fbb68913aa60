package model

// This file adds models to the built-in ones, from the figures that their publishers state.

import (
	"encoding/json"
	"maps"
)

// publishedShape is a model that many serve and that models.gz has no file of: the keys of its config.json that
// decide layers, weights and lengths, as its publisher has them on Hugging Face.
type publishedShape struct {
	id string
	// parameters are those that the publisher counts in the language model, without modules that predict several
	// tokens; a test compares them with what the shape adds up to.
	parameters float64
	config     string
}

// sameShape is a model with the layers of another one. Keys that differ, such as the longest context, are changed.
type sameShape struct {
	id, as  string
	changed map[string]any
}

// everydayModels were written down from the figures that their publishers state on the model cards, not from files
// at hand; TestEverydayModels compares the parameters that each shape adds up to with the published count. Of
// these a public repository holds the config.json, with which the shape was compared key by key:
//
//	GLM-4.7                     ai-dynamo/aiconfigurator a0ba9ec6 (of its FP8 form, without the biases and norms of attention)
//	GLM-4.7-Flash               ai-dynamo/aiconfigurator 19d098ad
//	Qwen3-Next-80B-A3B          ai-dynamo/aiconfigurator 1b7cfb10
//	Llama-3.3-70B-Instruct      ai-dynamo/aiconfigurator f577ab84
//	Kimi-K2-Thinking            ai-dynamo/aiconfigurator 821eb9a6
//	Yi-1.5-34B-Chat             inference-sim/inference-sim 64e43c88 (of Yi-34B)
var everydayModels = []publishedShape{
	{"Qwen/Qwen2.5-0.5B-Instruct", 494032768, `{"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,"max_position_embeddings":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen2.5-1.5B-Instruct", 1543714304, `{"model_type":"qwen2","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"max_position_embeddings":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen2.5-3B-Instruct", 3085938688, `{"model_type":"qwen2","hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":2,"vocab_size":151936,"max_position_embeddings":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen2.5-7B-Instruct", 7615616512, `{"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,"max_position_embeddings":32768,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen2.5-14B-Instruct", 14770033664, `{"model_type":"qwen2","hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":152064,"max_position_embeddings":32768,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen2.5-32B-Instruct", 32763876352, `{"model_type":"qwen2","hidden_size":5120,"intermediate_size":27648,"num_hidden_layers":64,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":152064,"max_position_embeddings":32768,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen2.5-72B-Instruct", 72706203648, `{"model_type":"qwen2","hidden_size":8192,"intermediate_size":29568,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":152064,"max_position_embeddings":32768,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen3-4B", 4022468096, `{"model_type":"qwen3","hidden_size":2560,"intermediate_size":9728,"num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"max_position_embeddings":40960,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen3-14B", 14768307200, `{"model_type":"qwen3","hidden_size":5120,"intermediate_size":17408,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"max_position_embeddings":40960,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"Qwen/Qwen3-Next-80B-A3B-Instruct", 80e9, `{"model_type":"qwen3_next","hidden_size":2048,"intermediate_size":5120,"num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"full_attention_interval":4,"linear_conv_kernel_dim":4,"linear_key_head_dim":128,"linear_num_key_heads":16,"linear_num_value_heads":32,"linear_value_head_dim":128,"num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,"decoder_sparse_step":1,"mlp_only_layers":[],"vocab_size":151936,"max_position_embeddings":262144,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1777088000, `{"model_type":"qwen2","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"max_position_embeddings":131072,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"meta-llama/Llama-3.2-1B-Instruct", 1235814400, `{"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"vocab_size":128256,"max_position_embeddings":131072,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"meta-llama/Llama-3.2-3B-Instruct", 3212749824, `{"model_type":"llama","hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":28,"num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"vocab_size":128256,"max_position_embeddings":131072,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"meta-llama/Llama-2-7b-hf", 6738415616, `{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000,"max_position_embeddings":4096,"tie_word_embeddings":false,"torch_dtype":"float16"}`},
	{"meta-llama/Llama-2-13b-hf", 13015864320, `{"model_type":"llama","hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":40,"vocab_size":32000,"max_position_embeddings":4096,"tie_word_embeddings":false,"torch_dtype":"float16"}`},
	{"meta-llama/Llama-2-70b-hf", 68976648192, `{"model_type":"llama","hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":32000,"max_position_embeddings":4096,"tie_word_embeddings":false,"torch_dtype":"float16"}`},
	{"codellama/CodeLlama-34b-Instruct-hf", 33743970304, `{"model_type":"llama","hidden_size":8192,"intermediate_size":22016,"num_hidden_layers":48,"num_attention_heads":64,"num_key_value_heads":8,"vocab_size":32000,"max_position_embeddings":16384,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"mistralai/Mistral-7B-Instruct-v0.3", 7248023552, `{"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":32768,"max_position_embeddings":32768,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"mistralai/Mistral-Nemo-Instruct-2407", 12247782400, `{"model_type":"mistral","hidden_size":5120,"intermediate_size":14336,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":131072,"max_position_embeddings":131072,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"mistralai/Mistral-Small-24B-Instruct-2501", 23572403200, `{"model_type":"mistral","hidden_size":5120,"intermediate_size":32768,"num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":131072,"max_position_embeddings":32768,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"mistralai/Codestral-22B-v0.1", 22247282688, `{"model_type":"mistral","hidden_size":6144,"intermediate_size":16384,"num_hidden_layers":56,"num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,"vocab_size":32768,"max_position_embeddings":32768,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"mistralai/Mistral-Large-Instruct-2411", 122610069504, `{"model_type":"mistral","hidden_size":12288,"intermediate_size":28672,"num_hidden_layers":88,"num_attention_heads":96,"num_key_value_heads":8,"head_dim":128,"vocab_size":32768,"max_position_embeddings":131072,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"google/gemma-2-9b-it", 9241705984, `{"model_type":"gemma2","hidden_size":3584,"intermediate_size":14336,"num_hidden_layers":42,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"vocab_size":256000,"max_position_embeddings":8192,"sliding_window":4096,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"google/gemma-2-27b-it", 27227128320, `{"model_type":"gemma2","hidden_size":4608,"intermediate_size":36864,"num_hidden_layers":46,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"vocab_size":256000,"max_position_embeddings":8192,"sliding_window":4096,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"google/gemma-3-4b-it", 3880099328, `{"model_type":"gemma3_text","hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"vocab_size":262208,"max_position_embeddings":131072,"sliding_window":1024,"sliding_window_pattern":6,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"google/gemma-3-12b-it", 11766034176, `{"model_type":"gemma3_text","hidden_size":3840,"intermediate_size":15360,"num_hidden_layers":48,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"vocab_size":262208,"max_position_embeddings":131072,"sliding_window":1024,"sliding_window_pattern":6,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"google/gemma-3-27b-it", 27009346304, `{"model_type":"gemma3_text","hidden_size":5376,"intermediate_size":21504,"num_hidden_layers":62,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"vocab_size":262208,"max_position_embeddings":131072,"sliding_window":1024,"sliding_window_pattern":6,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"microsoft/phi-4", 14659507200, `{"model_type":"phi3","hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"vocab_size":100352,"max_position_embeddings":16384,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"microsoft/Phi-4-mini-instruct", 3836021760, `{"model_type":"phi3","hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":24,"num_key_value_heads":8,"vocab_size":200064,"max_position_embeddings":131072,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
	{"microsoft/Phi-3.5-mini-instruct", 3821079552, `{"model_type":"phi3","hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064,"max_position_embeddings":131072,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"microsoft/Phi-3-medium-128k-instruct", 13960238080, `{"model_type":"phi3","hidden_size":5120,"intermediate_size":17920,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":10,"vocab_size":32064,"max_position_embeddings":131072,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"zai-org/GLM-4.7", 352.8e9, `{"model_type":"glm4_moe","hidden_size":5120,"intermediate_size":12288,"num_hidden_layers":92,"num_attention_heads":96,"num_key_value_heads":8,"head_dim":128,"vocab_size":151552,"max_position_embeddings":202752,"attention_bias":true,"use_qk_norm":true,"n_routed_experts":160,"n_shared_experts":1,"num_experts_per_tok":8,"moe_intermediate_size":1536,"first_k_dense_replace":3,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"zai-org/GLM-4.5-Air", 106.85e9, `{"model_type":"glm4_moe","hidden_size":4096,"intermediate_size":10944,"num_hidden_layers":46,"num_attention_heads":96,"num_key_value_heads":8,"head_dim":128,"vocab_size":151552,"max_position_embeddings":131072,"attention_bias":true,"use_qk_norm":false,"n_routed_experts":128,"n_shared_experts":1,"num_experts_per_tok":8,"moe_intermediate_size":1408,"first_k_dense_replace":1,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"zai-org/GLM-4.7-Flash", 30e9, `{"model_type":"glm4_moe_lite","hidden_size":2048,"intermediate_size":10240,"num_hidden_layers":47,"num_attention_heads":20,"num_key_value_heads":20,"head_dim":64,"kv_lora_rank":512,"q_lora_rank":768,"qk_nope_head_dim":192,"qk_rope_head_dim":64,"v_head_dim":256,"vocab_size":154880,"max_position_embeddings":202752,"n_routed_experts":64,"n_shared_experts":1,"num_experts_per_tok":4,"moe_intermediate_size":1536,"first_k_dense_replace":1,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"01-ai/Yi-1.5-9B-Chat", 8829407232, `{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":48,"num_attention_heads":32,"num_key_value_heads":4,"vocab_size":64000,"max_position_embeddings":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"01-ai/Yi-1.5-34B-Chat", 34388917248, `{"model_type":"llama","hidden_size":7168,"intermediate_size":20480,"num_hidden_layers":60,"num_attention_heads":56,"num_key_value_heads":8,"vocab_size":64000,"max_position_embeddings":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"allenai/OLMo-2-1124-7B-Instruct", 7298617344, `{"model_type":"olmo2","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":100352,"max_position_embeddings":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`},
	{"HuggingFaceTB/SmolLM3-3B", 3075098624, `{"model_type":"smollm3","hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":4,"vocab_size":128256,"max_position_embeddings":65536,"tie_word_embeddings":true,"torch_dtype":"bfloat16"}`},
}

// context returns the change of the longest context alone.
func context(tokens int) map[string]any { return map[string]any{"max_position_embeddings": tokens} }

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

// addEveryday adds the configurations of this file to those of models.gz.
func addEveryday(configs map[string][]byte) {
	for _, m := range everydayModels {
		configs[fileOf(m.id)] = []byte(m.config)
	}
	for _, s := range sameShapes {
		configs[fileOf(s.id)] = changedKeys(configs[fileOf(s.as)], s.changed)
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
