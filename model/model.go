// Package model reads a model's Hugging Face config.json and computes the model's weights, KV cache and
// work per step.
//
// [Load] returns a [Model]: its dimensions where all layers are alike, else its layers as a
// [Decoder]. [Model.Layers] gives the [Decoder] of either: a list of [Layer], each with a
// [Mixer] (attention, state space, linear attention) and an [FFN] (MLP or experts), made of
// [Linear] matrices with their quantization. From the layers and a [Parallel] (how many GPUs
// share them, by which release of vLLM) follow the bytes of weights
// ([Decoder.WeightBytesPerGPU]), the KV cache ([Decoder.KVPool]) and the operations and bytes
// of a step ([Decoder.Work]).
//
// families.go lists the families of models that can be read, read_quantization.go the quantization
// schemes, models.zst the configurations that are built in ([BuiltInIDs]). A configuration that
// cannot be read is refused with a code and a place.
package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Model is the loaded architecture (spec#model-fields). Counts are those of the whole model, before
// sharding; Bytes... fields are bytes per value.
type Model struct {
	ID                    string       `json:"id"`
	ModelType             string       `json:"model_type,omitempty"`
	NumLayers             int64        `json:"num_hidden_layers"`
	HiddenSize            int64        `json:"hidden_size"`
	NumHeads              int64        `json:"num_attention_heads"`
	NumKVHeads            int64        `json:"num_key_value_heads"`
	HeadDim               int64        `json:"head_dim"`
	IntermediateSize      int64        `json:"intermediate_size"`
	VocabSize             int64        `json:"vocab_size"`
	NumMLPProj            int64        `json:"n_mlp_proj"`  // matrices of an MLP: 3 with a gate, 2 without
	NumExperts            int64        `json:"num_experts"` // 0 when dense
	TopK                  int64        `json:"top_k"`       // experts that a token takes
	MoEIntermediateSize   int64        `json:"moe_intermediate_size"`
	NumMoELayers          int64        `json:"num_moe_layers"`
	SharedExpertSize      int64        `json:"shared_expert_size"` // total width of the shared experts
	BytesPerParam         float64      `json:"bytes_per_param"`    // 1.0's one width; = BytesPerWeight when loaded
	BytesPerWeight        float64      `json:"bytes_per_weight"`
	BytesPerKV            float64      `json:"bytes_per_kv"`
	BytesPerActivation    float64      `json:"bytes_per_activation"`
	BytesPerLMHead        float64      `json:"bytes_per_lm_head"`
	LinearCompute         string       `json:"linear_compute"` // native | fp8
	MaxPositionEmbeddings int64        `json:"max_position_embeddings,omitempty"`
	Warnings              []trace.Code `json:"warnings,omitempty"`            // what Options made be assumed: architectureAssumed, ...
	Encoders              []string     `json:"encoders,omitempty"`            // keys of config.json that belong to encoders of images, video or audio
	EncoderParams         int64        `json:"-"`                             // about how many they have; 0: none, or not known
	UnknownKeys           []string     `json:"unknown_keys,omitempty"`        // keys of config.json that this version does not know
	BLIS                  *BLISReading `json:"blis_reading,omitempty"`        // the fields as BLIS reads them; nil: as above
	Tied                  bool         `json:"tie_word_embeddings,omitempty"` // embedding and output head are one matrix
	Decoder               *Decoder     `json:"-"`                             // the layers as config.json has them, nil where the fields above were stated
	// Layered is the decoder where the fields above cannot describe it, because its layers differ. Of
	// those fields only the number of layers, hidden size, vocabulary and bytes per activation and cached
	// value are set then.
	Layered *Decoder     `json:"layers,omitempty"`
	Sizes   *StatedSizes `json:"stated_sizes,omitempty"` // in place of all else where the layers are not known
}

// StatedSizes are the sizes in bytes that run.yaml states for a model of unknown architecture
// (spec#model-stated).
type StatedSizes struct {
	WeightBytesPerGPU float64 `json:"weight_bytes_per_gpu"`
	BytesPerBlock     float64 `json:"bytes_per_block,omitempty"` // of the KV cache, on one GPU
	Why               string  `json:"why"`                       // why the layers are not known
}

// Name returns the last element of a Hugging Face id, in lower case.
func Name(id string) string {
	id = strings.TrimRight(id, "/")
	return strings.ToLower(id[strings.LastIndexByte(id, '/')+1:])
}

// NameKey returns the last element of a Hugging Face id in lower case, letters and digits alone: the names that
// files have for one model differ in owner and punctuation.
func NameKey(id string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return -1
	}, Name(id))
}

// IsMoE reports whether the model has routed experts; one expert is dense (spec#model-moe).
func (m *Model) IsMoE() bool {
	return m.NumExperts >= 2 || m.Layered != nil && m.Layered.hasExperts()
}

// CheckKnown returns an error for a model whose sizes are stated: without layers there are no step
// times.
func (m *Model) CheckKnown() error {
	if m.Sizes == nil {
		return nil
	}
	return trace.Errorf(UnsupportedModel, "model %s: its sizes are stated, its layers are not known (%s), want layers",
		m.ID, m.Sizes.Why).
		WithHint("memory, admission and recordings go on; step times need model.assume, or a family that is known")
}

// Check returns an error for dimensions that no model can have.
func (m *Model) Check() error {
	if m.Layered != nil {
		if len(m.Layered.Layers) == 0 || m.Layered.Hidden <= 0 || m.Layered.Vocab <= 0 || !(m.Layered.KVBytes > 0 && m.Layered.DTypeBytes > 0) {
			return trace.Errorf(BadModel, "model layers: got %d layers, hidden size %d, vocabulary %d, %g B a cached value, want all > 0",
				len(m.Layered.Layers), m.Layered.Hidden, m.Layered.Vocab, m.Layered.KVBytes)
		}
		return nil
	}
	if m.Sizes != nil {
		return nil
	}
	dims := []struct {
		name  string
		value int64
	}{
		{"num_hidden_layers", m.NumLayers}, {"hidden_size", m.HiddenSize}, {"num_attention_heads", m.NumHeads},
		{"num_key_value_heads", m.NumKVHeads}, {"intermediate_size", m.IntermediateSize},
		{"vocab_size", m.VocabSize}, {"n_mlp_proj", m.NumMLPProj},
	}
	for _, dim := range dims {
		if dim.value <= 0 || dim.value > maxDimension {
			return trace.Errorf(BadModel, "model %s: got %d, want 1 to %d", dim.name, dim.value, maxDimension)
		}
	}
	if !(m.BytesPerParam > 0) {
		return trace.Errorf(BadModel, "model bytes_per_param: got %g, want > 0 B", m.BytesPerParam)
	}
	if m.IsMoE() && (m.TopK < 1 || m.TopK > m.NumExperts) {
		return trace.Errorf(BadModel, "model top_k: got %d, want 1..%d experts", m.TopK, m.NumExperts)
	}
	return nil
}

// Codes of models.
const (
	BadModel             trace.Code = "bad_model"
	MissingConfig        trace.Code = "missing_config"
	UnsupportedModel     trace.Code = "unsupported_model"
	architectureAssumed  trace.Code = "architecture_assumed"
	fullAttentionAssumed trace.Code = "full_attention_assumed"
	SameLayers           trace.Code = "same_layers"
)

// WeightBytes returns the bytes of every weight of the model, embedding and LM
// head included.
func (m *Model) WeightBytes() float64 { return m.Layers().WeightBytes() }

// RefusedModel returns the error of a config.json that [Load] refuses as warnings, for callers that
// continue without the model.
func RefusedModel(err error) []trace.Finding {
	var e *trace.SyntaxError
	if !errors.As(err, &e) {
		return []trace.Finding{{Code: BadModel, Message: err.Error()}}
	}
	return []trace.Finding{trace.Findingf(e.Code, "%s: %s; extract refuses it%s", e.File, e.Msg, strings.TrimSuffix("; "+e.Hint, "; "))}
}

// NotModelled returns warnings about parts of the model that step times do not cover.
func (m *Model) NotModelled() (out []trace.Finding) {
	if len(m.Encoders) > 0 {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: the encoder's time for images, video and audio is a part of the other terms; use "+
			"recordings of text requests alone", strings.Join(m.Encoders, ", ")))
	}
	if len(m.UnknownKeys) > 0 {
		const most = 6
		keys := m.UnknownKeys
		more := ""
		if n := len(keys) - most; n > 0 {
			keys = keys[:most]
			more = fmt.Sprintf(" and %d more", n)
		}
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: the model's config.json says %s%s, which this version does not know; where it "+
			"changes attention or the MLP, the features are wrong", m.ID, strings.Join(keys, ", "), more))
	}
	if m.Decoder != nil {
		for _, w := range m.Decoder.Warnings {
			if strings.HasPrefix(w, formatUnstated) || w == modulesUnlisted {
				out = append(out, trace.Findingf(vllm.NotModelled, "%s: %s", m.ID, w))
			}
		}
	}
	if m.Sizes != nil {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: %s; its memory is that of stated sizes, its step times are not modelled", m.ID,
			m.Sizes.Why))
	}
	if slices.Contains(m.Warnings, architectureAssumed) {
		out = append(out, trace.Findingf(architectureAssumed, "%s: model_type %q is read as model.assume says", m.ID, m.ModelType))
	}
	if slices.Contains(m.Warnings, fullAttentionAssumed) {
		out = append(out, trace.Findingf(fullAttentionAssumed, "%s: windowed attention is taken for full attention, as "+
			"model.assume_full_attention says", m.ID))
	}
	return out
}

// NoExperts is the message for expert parallelism of a model without experts.
const NoExperts = "enable_expert_parallel: got a model without experts, want one with experts or the flag off"

// predictsUnstated are families with multi-token-prediction layers that their config.json does not
// state.
var predictsUnstated = []string{"qwen3_next", "longcat_flash", "mimo_v2", "step3p", "step5", "dots3_note"}

// Predicts reports whether the model may have multi-token-prediction layers; true where that is not
// known.
func (m *Model) Predicts() bool {
	return m.Decoder == nil || len(m.Decoder.MTP) > 0 || slices.Contains(m.Decoder.Warnings, predictorsUnread) ||
		slices.ContainsFunc(predictsUnstated, func(family string) bool { return strings.HasPrefix(m.ModelType, family) })
}
