package deploy

import (
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// Codes of loading models and of checking deployments.
const (
	missingField         trace.Code = "missing_field"
	badField             trace.Code = "bad_field"
	badKVHeads           trace.Code = "bad_kv_heads"
	headDimNotIntegral   trace.Code = "head_dim_not_integral"
	BadTopK              trace.Code = "bad_top_k"
	NoMoELayer           trace.Code = "no_moe_layer"
	unknownModelType     trace.Code = "unknown_model_type"
	unknownDType         trace.Code = "unknown_dtype"
	mixedQuantization    trace.Code = "mixed_quantization"
	unknownQuantization  trace.Code = "unknown_quantization"
	mlaAttention         trace.Code = "mla_attention"
	encoderDecoder       trace.Code = "encoder_decoder"
	hybridAttention      trace.Code = "hybrid_attention"
	slidingWindow        trace.Code = "sliding_window"
	fullAttentionAssumed trace.Code = "full_attention_assumed"

	headDimDiffers   trace.Code = "v1_head_dim_differs"
	sharedExperts    trace.Code = "v1_shared_experts_ignored"
	MoELayersDiffer  trace.Code = "v1_moe_layers_differ"
	byteWidthsDiffer trace.Code = "v1_byte_widths_differ"

	BadModel               trace.Code = "bad_model"
	BadHardware            trace.Code = "bad_hardware"
	BadKnobs               trace.Code = "bad_knobs"
	BadTP                  trace.Code = "bad_tp"
	TPHeads                trace.Code = "tp_heads"
	TPKVHeads              trace.Code = "tp_kv_heads"
	UnsupportedPP          trace.Code = "unsupported_pp"
	UnsupportedEP          trace.Code = "unsupported_ep"
	UnsupportedSpeculative trace.Code = "unsupported_speculative"

	unsupportedDP       trace.Code = "unsupported_dp"
	unsupportedCP       trace.Code = "unsupported_context_parallel"
	unsupportedTransfer trace.Code = "unsupported_kv_transfer"
	unsupportedOffload  trace.Code = "unsupported_weight_offload"
	unsupportedOverlap  trace.Code = "unsupported_batch_overlap"
	unsupportedPooling  trace.Code = "unsupported_pooling"
	dataParallel        trace.Code = "data_parallel"
	loraAdapters        trace.Code = "lora_adapters"
	multimodalInputs    trace.Code = "multimodal_inputs"
	otherScheduler      trace.Code = "other_scheduler"
	manyNodes           trace.Code = "many_nodes"
	modelOverridden     trace.Code = "model_overridden"
	unknownModelKeys    trace.Code = "unknown_model_keys"
	rooflineOnly        trace.Code = "roofline_only"
)

// optInt prints an optional count for a message.
func optInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}
