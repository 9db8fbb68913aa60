package deploy

import (
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// Codes of loading models and of checking deployments.
const (
	MissingField         trace.Code = "missing_field"
	BadField             trace.Code = "bad_field"
	BadKVHeads           trace.Code = "bad_kv_heads"
	HeadDimNotIntegral   trace.Code = "head_dim_not_integral"
	BadTopK              trace.Code = "bad_top_k"
	NoMoELayer           trace.Code = "no_moe_layer"
	UnknownModelType     trace.Code = "unknown_model_type"
	UnknownDType         trace.Code = "unknown_dtype"
	MixedQuantization    trace.Code = "mixed_quantization"
	UnknownQuantization  trace.Code = "unknown_quantization"
	MLAAttention         trace.Code = "mla_attention"
	EncoderDecoder       trace.Code = "encoder_decoder"
	HybridAttention      trace.Code = "hybrid_attention"
	SlidingWindow        trace.Code = "sliding_window"
	FullAttentionAssumed trace.Code = "full_attention_assumed"

	HeadDimDiffers   trace.Code = "v1_head_dim_differs"
	SharedExperts    trace.Code = "v1_shared_experts_ignored"
	MoELayersDiffer  trace.Code = "v1_moe_layers_differ"
	ByteWidthsDiffer trace.Code = "v1_byte_widths_differ"

	BadModel               trace.Code = "bad_model"
	BadHardware            trace.Code = "bad_hardware"
	BadKnobs               trace.Code = "bad_knobs"
	BadTP                  trace.Code = "bad_tp"
	TPHeads                trace.Code = "tp_heads"
	TPKVHeads              trace.Code = "tp_kv_heads"
	UnsupportedPP          trace.Code = "unsupported_pp"
	UnsupportedEP          trace.Code = "unsupported_ep"
	UnsupportedSpeculative trace.Code = "unsupported_speculative"
)

// optInt prints an optional count for a message.
func optInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}
