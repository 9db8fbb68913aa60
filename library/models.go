package library

import "github.com/blis-train/blis-train/deploy"

// shape is a published architecture.
type shape struct {
	id                                 string
	layers, hidden, heads, kvHeads     int64
	headDim, intermediate, vocabulary  int64
	experts, topK, expertWidth, shared int64 // 0: dense
}

// shapes are the models the design points are drawn for, as their config.json
// on huggingface.co has them: dense from 1 to 123 billion parameters, and the
// mixtures of experts whose experts are in the published tables.
var shapes = []shape{
	{"meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 0, 0, 0, 0},
	{"meta-llama/Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128256, 0, 0, 0, 0},
	{"Qwen/Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 0, 0, 0, 0},
	{"Qwen/Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064, 0, 0, 0, 0},
	{"mistralai/Mistral-7B-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, 0, 0, 0, 0},
	{"meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 0, 0, 0, 0},
	{"meta-llama/Llama-2-13b-hf", 40, 5120, 40, 40, 128, 13824, 32000, 0, 0, 0, 0},
	{"Qwen/Qwen2.5-14B", 48, 5120, 40, 8, 128, 13824, 152064, 0, 0, 0, 0},
	{"Qwen/Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, 0, 0, 0, 0},
	{"codellama/CodeLlama-34b-hf", 48, 8192, 64, 8, 128, 22016, 32000, 0, 0, 0, 0},
	{"meta-llama/Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, 0, 0, 0, 0},
	{"Qwen/Qwen2.5-72B", 80, 8192, 64, 8, 128, 29568, 152064, 0, 0, 0, 0},
	{"mistralai/Mistral-Large-Instruct-2407", 88, 12288, 96, 8, 128, 28672, 32768, 0, 0, 0, 0},
	{"mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32, 8, 128, 14336, 32000, 8, 2, 14336, 0},
	{"mistralai/Mixtral-8x22B-v0.1", 56, 6144, 48, 8, 128, 16384, 32768, 8, 2, 16384, 0},
	{"Qwen/Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 6144, 151936, 128, 8, 768, 0},
	{"Qwen/Qwen3-235B-A22B", 94, 4096, 64, 4, 128, 12288, 151936, 128, 8, 1536, 0},
	{"Qwen/Qwen3-Coder-480B-A35B-Instruct", 62, 6144, 96, 8, 128, 8192, 151936, 160, 8, 2560, 0},
}

// Weights are the kinds of weights the library knows, as file names spell them.
const (
	libraryBf16 = "bf16"
	libraryFp8  = "fp8"
)

// model is the architecture with weights of one kind; the KV cache has kvBytes
// per value.
func (s *shape) model(weights string, kvBytes float64) deploy.Model {
	m := deploy.Model{
		ID: s.id, NumLayers: s.layers, HiddenSize: s.hidden, NumHeads: s.heads, NumKVHeads: s.kvHeads, HeadDim: s.headDim,
		IntermediateSize: s.intermediate, VocabSize: s.vocabulary, NumMLPProj: 3, NumExperts: s.experts, TopK: s.topK,
		MoEIntermediateSize: s.expertWidth, SharedExpertSize: s.shared,
		BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: kvBytes, BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native",
	}
	if s.experts > 0 {
		m.NumMoELayers = s.layers
	}
	if weights == libraryFp8 {
		m.BytesPerParam, m.BytesPerWeight, m.LinearCompute = 1, 1, "fp8"
	}
	return m
}

// same reports whether a model has this shape, whatever its name and vocabulary.
func (s *shape) same(m *deploy.Model) bool {
	return s.layers == m.NumLayers && s.hidden == m.HiddenSize && s.heads == m.NumHeads && s.intermediate == m.IntermediateSize &&
		(s.experts == m.NumExperts || s.experts == 0 && !m.IsMoE())
}
