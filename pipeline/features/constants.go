package features

// This file lists the constants of a deployment that the formulas of features use (docs/spec.md, section 4), with
// names, units and formulas as Explanation prints them. The values are computed with the Space; the functions
// here only read them.

import "slices"

// constant is a number of a space. formula is the text that derives it from others; a constant without
// one is a dimension or setting of the deployment, or follows a rule of docs/spec.md that is no formula of
// constants, such as a sum over the layers of a model.
type constant struct {
	name    string
	unit    string
	formula string
	value   func(*Space) float64
}

// constants returns the numbers of the space, those of its version of the spec: dimensions and settings first,
// then what is derived from them, in the order of docs/spec.md.
func (s *Space) constants() []Quantity {
	if Layered(s.version) {
		out := s.quantities(settingConstants, constants13)
		out = append(out, s.attentionConstants()...)
		out = append(out, s.quantities(reduceConstants13)...)
		return append(out, s.quantities(sharedWith13(constants11))...)
	}
	switch s.version.Base() {
	case V10:
		return s.quantities(modelConstants, settingConstants, constants10)
	case V12:
		return s.quantities(modelConstants, settingConstants, constants11, constants12)
	default:
		return s.quantities(modelConstants, settingConstants, constants11)
	}
}

// The tables below have a constant a line: name, unit, formula, value.

// modelConstants are the dimensions of the model.
var modelConstants = []constant{
	{"num_hidden_layers", "layers", "", func(s *Space) float64 { return s.layers }},
	{"hidden_size", "1", "", func(s *Space) float64 { return s.hidden }},
	{"num_attention_heads", "heads", "", func(s *Space) float64 { return s.heads }},
	{"num_key_value_heads", "heads", "", func(s *Space) float64 { return s.kvHeads }},
	{"head_dim", "1", "", func(s *Space) float64 { return float64(s.dep.Model.HeadDim) }},
	{"intermediate_size", "1", "", func(s *Space) float64 { return float64(s.dep.Model.IntermediateSize) }},
	{"vocab_size", "tokens", "", func(s *Space) float64 { return float64(s.dep.Model.VocabSize) }},
	{"n_mlp_proj", "1", "", func(s *Space) float64 { return float64(s.dep.Model.NumMLPProj) }},
	{"num_experts", "experts", "", func(s *Space) float64 { return s.experts }},
	{"top_k", "experts", "", func(s *Space) float64 { return s.topK }},
	{"moe_intermediate_size", "1", "", func(s *Space) float64 { return float64(s.dep.Model.MoEIntermediateSize) }},
	{"num_moe_layers", "layers", "", func(s *Space) float64 { return s.moeLayers }},
	{"shared_expert_size", "1", "", func(s *Space) float64 { return float64(s.dep.Model.SharedExpertSize) }},
	{"bytes_per_param", "B", "", func(s *Space) float64 { return s.dep.Model.BytesPerParam }},
	{"bytes_per_weight", "B", "", func(s *Space) float64 { return s.dep.Model.BytesPerWeight }},
	{"bytes_per_kv", "B", "", func(s *Space) float64 { return s.dep.Model.BytesPerKV }},
	{"bytes_per_activation", "B", "", func(s *Space) float64 { return s.dep.Model.BytesPerActivation }},
	{"bytes_per_lm_head", "B", "", func(s *Space) float64 { return s.dep.Model.BytesPerLMHead }},
}

// settingConstants are settings of device and engine.
var settingConstants = []constant{
	{"TFlopsPeak", "1e12 FLOP/s", "", func(s *Space) float64 { return s.dep.Hardware.TFlopsPeak }},
	{"TFlopsFP8", "1e12 FLOP/s", "", func(s *Space) float64 { return s.dep.Hardware.TFlopsFP8 }},
	{"BwPeakTBs", "1e12 B/s", "", func(s *Space) float64 { return s.dep.Hardware.BwPeakTBs }},
	{"pcie_bandwidth_gb_s", "1e9 B/s", "", func(s *Space) float64 { return s.dep.Hardware.PCIeBandwidthGBs }},
	{"pcie_efficiency", "1", "", func(s *Space) float64 { return s.dep.Hardware.PCIeEfficiency }},
	{"interconnect_bandwidth_gb_s", "1e9 B/s", "", func(s *Space) float64 { return s.dep.Hardware.InterconnectBandwidthGBs }},
	{"interconnect_latency_us", "us", "", func(s *Space) float64 { return s.dep.Hardware.InterconnectLatencyUs }},
	{"tp", "devices", "", func(s *Space) float64 { return s.tp }},
	{"max_num_seqs", "requests", "", func(s *Space) float64 { return s.maxSeqs }},
	{"max_num_batched_tokens", "tokens", "", func(s *Space) float64 { return s.maxTokens }},
	{"block_size", "tokens", "", func(s *Space) float64 { return s.blockTokens }},
	{"kv_blocks_total_gpu", "blocks", "", func(s *Space) float64 { return float64(s.dep.Engine.KVBlocksGPU.V) }},
	{"kv_blocks_total_cpu", "blocks", "", func(s *Space) float64 { return float64(s.dep.Engine.KVBlocksCPU) }},
	{"chunked_prefill", "1", "", func(s *Space) float64 { return s.chunked }},
	{"cpu_offloading", "1", "", func(s *Space) float64 { return s.offload }},
}

// constants10 are the constants derived in spec 1.0.
var constants10 = []constant{
	{"mlp_width", "1", "", func(s *Space) float64 { return s.mlpWidth }},
	{"active_experts", "1", "", func(s *Space) float64 { return s.activeExperts }},
	{"kv_dim", "1", "hidden_size*num_key_value_heads/num_attention_heads", func(s *Space) float64 { return s.kvDim }},
	{"flops_attn_linear", "FLOP/token/layer", "4*hidden_size*(hidden_size + kv_dim)", func(s *Space) float64 { return s.attnFLOPs }},
	{"flops_mlp_linear", "FLOP/token/layer", "2*n_mlp_proj*hidden_size*mlp_width*active_experts", func(s *Space) float64 { return s.mlpFLOPs }},
	{"flops_lm_head", "FLOP/token", "2*hidden_size*vocab_size", func(s *Space) float64 { return s.headFLOPs }},
	{"flops_linear_per_token", "FLOP/token",
		"num_hidden_layers*(flops_attn_linear + flops_mlp_linear) + flops_lm_head",
		func(s *Space) float64 { return s.linearFLOPs }},
	{"kv_bytes_per_token", "B/token", "2*num_hidden_layers*kv_dim*2*bytes_per_param", func(s *Space) float64 { return s.kvBytes }},
	{"block_size_bytes", "B/block", "block_size*kv_bytes_per_token", func(s *Space) float64 { return s.blockBytes }},
	{"hw_peak_flops", "FLOP/s", "TFlopsPeak*1e12/tp", func(s *Space) float64 { return s.peak }},
	{"hw_peak_bandwidth", "B/s", "BwPeakTBs*1e12/tp", func(s *Space) float64 { return s.bandwidth }},
	{"weight_bytes_attn", "B/layer", "(2*hidden_size*hidden_size + 2*hidden_size*kv_dim)*bytes_per_param", func(s *Space) float64 { return s.attnBytes }},
	{"weight_bytes_per_expert", "B/layer", "n_mlp_proj*hidden_size*mlp_width*bytes_per_param", func(s *Space) float64 { return s.expertBytes }},
	{"weight_bytes_mlp", "B/layer", "weight_bytes_per_expert*max(1, top_k)", func(s *Space) float64 { return s.mlpBytes }},
	{"weight_bytes_total", "B", "num_hidden_layers*(weight_bytes_attn + weight_bytes_mlp)", func(s *Space) float64 { return s.totalBytes }},
	{"hw_pcie_bandwidth_eff", "B/s", "pcie_bandwidth_gb_s*1e9*pcie_efficiency", func(s *Space) float64 { return s.pcie }},
	{"hw_interconnect_bw", "B/s", "interconnect_bandwidth_gb_s*1e9", func(s *Space) float64 { return s.link }},
	{"comm_bytes_per_token", "B/token",
		"pos(tp - 1)*num_hidden_layers*2*hidden_size*bytes_per_param*2*(tp - 1)/tp",
		func(s *Space) float64 { return s.commBytes }},
	{"gpu_kv_capacity_bytes", "B", "kv_blocks_total_gpu*block_size_bytes", func(s *Space) float64 { return s.gpuKVBytes }},
	{"cpu_kv_capacity_bytes", "B", "cpu_offloading*kv_blocks_total_cpu*block_size_bytes", func(s *Space) float64 { return s.cpuKVBytes }},
	{"roofline_step_time", "s",
		"max(max_num_batched_tokens*flops_linear_per_token/max(1e-6, hw_peak_flops), weight_bytes_total/max(1e-6, hw_peak_bandwidth))",
		func(s *Space) float64 { return s.rooflineS }},
}

// constants11 are the constants derived in spec 1.1.
var constants11 = []constant{
	{"linear_peak_tflops", "1e12 FLOP/s", "", func(s *Space) float64 { return s.linearTFlops }},
	{"q_dim", "1", "num_attention_heads*head_dim", func(s *Space) float64 { return s.qDim }},
	// KV heads are replicated when tp exceeds them
	{"kv_dim", "1", "max(num_key_value_heads, tp)*head_dim", func(s *Space) float64 { return s.kvDim }},
	// four projections, a multiply-add counts 2
	{"flops_attn_linear", "FLOP/token/layer", "4*hidden_size*(q_dim + kv_dim)", func(s *Space) float64 { return s.attnFLOPs }},
	{"flops_mlp_dense", "FLOP/token/layer", "2*n_mlp_proj*hidden_size*intermediate_size", func(s *Space) float64 { return s.mlpFLOPs }},
	// k experts, the shared ones, and the router on every device
	{"flops_mlp_moe", "FLOP/token/layer",
		"pos(num_experts)*(2*n_mlp_proj*hidden_size*(top_k*moe_intermediate_size + " +
			"shared_expert_size) + 2*hidden_size*num_experts*tp)",
		func(s *Space) float64 { return s.moeFLOPs }},
	{"flops_body_per_token", "FLOP/token",
		"num_hidden_layers*flops_attn_linear + " +
			"(num_hidden_layers - num_moe_layers)*flops_mlp_dense + num_moe_layers*flops_mlp_moe",
		func(s *Space) float64 { return s.linearFLOPs }},
	// per scheduled sequence
	{"flops_lm_head_per_seq", "FLOP/sequence", "2*hidden_size*vocab_size", func(s *Space) float64 { return s.headFLOPs }},
	{"weight_bytes_attn", "B/layer", "2*hidden_size*(q_dim + kv_dim)*bytes_per_weight", func(s *Space) float64 { return s.attnBytes }},
	{"weight_bytes_mlp_dense", "B/layer", "n_mlp_proj*hidden_size*intermediate_size*bytes_per_weight", func(s *Space) float64 { return s.mlpBytes }},
	{"weight_bytes_per_expert", "B/layer",
		"pos(num_experts)*n_mlp_proj*hidden_size*moe_intermediate_size*bytes_per_weight",
		func(s *Space) float64 { return s.expertBytes }},
	// read in every step: shared experts, and the router on every device
	{"weight_bytes_moe_fixed", "B/layer",
		"pos(num_experts)*(n_mlp_proj*hidden_size*shared_expert_size*bytes_per_weight + " +
			"hidden_size*num_experts*tp*bytes_per_activation)",
		func(s *Space) float64 { return s.moeFixedBytes }},
	{"weight_bytes_lm_head", "B", "hidden_size*vocab_size*bytes_per_lm_head", func(s *Space) float64 { return s.headBytes }},
	// every weight but the embedding
	{"weight_bytes_full", "B",
		"num_hidden_layers*weight_bytes_attn + " +
			"(num_hidden_layers - num_moe_layers)*weight_bytes_mlp_dense + " +
			"num_moe_layers*(num_experts*weight_bytes_per_expert + weight_bytes_moe_fixed) + " +
			"weight_bytes_lm_head",
		func(s *Space) float64 { return s.totalBytes }},
	// over all layers and devices
	{"kv_bytes_per_token", "B/token", "2*num_hidden_layers*kv_dim*bytes_per_kv", func(s *Space) float64 { return s.kvBytes }},
	{"block_size_bytes", "B/block", "block_size*kv_bytes_per_token", func(s *Space) float64 { return s.blockBytes }},
	{"group_peak_flops", "FLOP/s", "TFlopsPeak*1e12*tp", func(s *Space) float64 { return s.peak }},
	{"group_peak_linear_flops", "FLOP/s", "linear_peak_tflops*1e12*tp", func(s *Space) float64 { return s.linearPeak }},
	{"group_peak_bandwidth", "B/s", "BwPeakTBs*1e12*tp", func(s *Space) float64 { return s.bandwidth }},
	// each device moves its shard over its own link
	{"group_pcie_bandwidth", "B/s", "pcie_bandwidth_gb_s*1e9*pcie_efficiency*tp", func(s *Space) float64 { return s.pcie }},
	// one direction
	{"link_bandwidth", "B/s", "interconnect_bandwidth_gb_s*1e9/2", func(s *Space) float64 { return s.link }},
	// two per layer and one of the embedding
	{"allreduces_per_step", "1", "pos(tp - 1)*(2*num_hidden_layers + 1)", func(s *Space) float64 { return s.allreduces }},
	{"allreduce_latency", "s", "interconnect_latency_us*1e-6", func(s *Space) float64 { return s.allreduceS }},
	// a ring all-reduce moves 2(tp-1)/tp of its buffer
	{"comm_bytes_per_token", "B/token", "allreduces_per_step*2*(tp - 1)/tp*hidden_size*bytes_per_activation", func(s *Space) float64 { return s.commBytes }},
	// gathering the logits
	{"comm_bytes_per_seq", "B/sequence", "pos(tp - 1)*(tp - 1)/tp*vocab_size*bytes_per_activation", func(s *Space) float64 { return s.gatherBytes }},
	{"cpu_gpu_capacity_ratio", "1", "cpu_offloading*kv_blocks_total_cpu/max(1, kv_blocks_total_gpu)", func(s *Space) float64 { return s.cpuGPURatio }},
	// the largest legal step at the roofline
	{"roofline_step_time", "s",
		"max(max_num_batched_tokens*flops_body_per_token/group_peak_linear_flops + " +
			"min(max_num_seqs, max_num_batched_tokens)*flops_lm_head_per_seq/group_peak_flops, weight_bytes(max_num_batched_tokens, min(max_num_seqs, max_num_batched_tokens))/group_peak_bandwidth)",
		func(s *Space) float64 { return s.rooflineS }},
}

// constants12 are the constants that spec 1.2 derives in addition to those of 1.1.
var constants12 = []constant{
	{"activation_bytes_per_token", "B/token",
		"bytes_per_activation*(num_hidden_layers*(8*hidden_size*tp + 2*q_dim + 4*kv_dim) + " +
			"n_mlp_proj*((num_hidden_layers - num_moe_layers)*intermediate_size + " +
			"num_moe_layers*(top_k*moe_intermediate_size + shared_expert_size)))",
		func(s *Space) float64 { return s.activationBytes }},
}

// constants13 are the constants that spec 1.3 derives from the layers of the model.
var constants13 = []constant{
	{"blocks", "mixers and ffns", "", func(s *Space) float64 { return s.blocks }},
	{"engines", "engines", "", func(s *Space) float64 { return s.engines }},
	{"kv_head_share", "1", "", func(s *Space) float64 { return s.gqa }},
	{"flops_body_per_token", "FLOP/token", "", func(s *Space) float64 { return s.linearFLOPs }},
	{"flops_lm_head_per_seq", "FLOP/sequence", "", func(s *Space) float64 { return s.headFLOPs }},
	{"weight_bytes_fixed", "B", "", func(s *Space) float64 { return s.fixedWeights }},
	{"weight_bytes_experts", "B", "", func(s *Space) float64 { return s.expertWeights }},
	{"weight_bytes_lm_head", "B", "", func(s *Space) float64 { return s.headBytes }},
	{"kv_bytes_per_token", "B/token", "", func(s *Space) float64 { return s.kvBytes }},
	{"activation_bytes_per_token", "B/token", "", func(s *Space) float64 { return s.activationBytes }},
	{"state_flops_per_prefill_token", "FLOP/token", "", func(s *Space) float64 { return s.statePrefillFLOPs }},
	{"state_flops_per_decode_token", "FLOP/token", "", func(s *Space) float64 { return s.stateDecodeFLOPs }},
	{"state_bytes_per_seq", "B/sequence", "", func(s *Space) float64 { return s.stateBytes }},
	{"group_peak_linear_flops", "FLOP/s", "", func(s *Space) float64 { return s.linearPeak }},
	{"hidden_size", "1", "", func(s *Space) float64 { return s.hidden }},
	{"vocab_size", "tokens", "", func(s *Space) float64 { return float64(s.dep.Model.VocabSize) }},
	{"bytes_per_activation", "B", "", func(s *Space) float64 { return s.dep.Model.BytesPerActivation }},
}

// reduceConstants13 are constants of spec 1.3 that are listed after those of attention.
var reduceConstants13 = []constant{
	{"allreduces_per_step", "1", "pos(tp - 1)*(blocks + 1)", func(s *Space) float64 { return s.allreduces }},
}

// namesSharedWith13 names the constants of 1.1 that spec 1.3 derives in the same way.
var namesSharedWith13 = []string{
	"block_size_bytes",
	"group_peak_flops",
	"group_peak_bandwidth",
	"group_pcie_bandwidth",
	"link_bandwidth",
	"allreduce_latency",
	"comm_bytes_per_token",
	"comm_bytes_per_seq",
	"cpu_gpu_capacity_ratio",
	"roofline_step_time",
}

// sharedWith13 returns the constants that namesSharedWith13 names.
func sharedWith13(all []constant) []constant {
	var out []constant
	for _, c := range all {
		if slices.Contains(namesSharedWith13, c.name) {
			out = append(out, c)
		}
	}
	return out
}

// quantities returns the values of groups of constants.
func (s *Space) quantities(groups ...[]constant) []Quantity {
	var out []Quantity
	for _, group := range groups {
		for _, c := range group {
			out = append(out, s.quantity(c))
		}
	}
	return out
}

// quantity returns a constant as a quantity with its value.
func (s *Space) quantity(c constant) Quantity {
	return Quantity{Name: c.name, Value: c.value(s), Unit: c.unit, Formula: c.formula}
}
