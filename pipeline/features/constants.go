package features

// constants lists the space's numbers in the order of the book: dimensions first, then everything
// derived.
func (s *Space) constants() []Quantity {
	if s.version == V10 {
		return append(s.dimensions(), s.constants10()...)
	}
	if Layered(s.version) {
		return append(s.settings(), s.constants13()...)
	}
	if s.version.Base() == V11 {
		return append(s.dimensions(), s.constants11()...)
	}
	return append(append(s.dimensions(), s.constants11()...), s.constants12()...)
}

func given(name string, v float64, unit string) Quantity {
	return Quantity{Name: name, Value: v, Unit: unit}
}

func derived(name string, v float64, unit, formula string) Quantity {
	return Quantity{Name: name, Value: v, Unit: unit, Formula: formula}
}

func (s *Space) dimensions() []Quantity {
	m := &s.dep.Model
	return append([]Quantity{
		given("num_hidden_layers", s.layers, "layers"),
		given("hidden_size", s.hidden, "1"),
		given("num_attention_heads", s.heads, "heads"),
		given("num_key_value_heads", s.kvHeads, "heads"),
		given("head_dim", float64(m.HeadDim), "1"),
		given("intermediate_size", float64(m.IntermediateSize), "1"),
		given("vocab_size", float64(m.VocabSize), "tokens"),
		given("n_mlp_proj", float64(m.NumMLPProj), "1"),
		given("num_experts", s.experts, "experts"),
		given("top_k", s.topK, "experts"),
		given("moe_intermediate_size", float64(m.MoEIntermediateSize), "1"),
		given("num_moe_layers", s.moeLayers, "layers"),
		given("shared_expert_size", float64(m.SharedExpertSize), "1"),
		given("bytes_per_param", m.BytesPerParam, "B"),
		given("bytes_per_weight", m.BytesPerWeight, "B"),
		given("bytes_per_kv", m.BytesPerKV, "B"),
		given("bytes_per_activation", m.BytesPerActivation, "B"),
		given("bytes_per_lm_head", m.BytesPerLMHead, "B"),
	}, s.settings()...)
}

// settings are the dimensions of device and engine.
func (s *Space) settings() []Quantity {
	h, e := &s.dep.Hardware, &s.dep.Engine
	return []Quantity{
		given("TFlopsPeak", h.TFlopsPeak, "1e12 FLOP/s"),
		given("TFlopsFP8", h.TFlopsFP8, "1e12 FLOP/s"),
		given("BwPeakTBs", h.BwPeakTBs, "1e12 B/s"),
		given("pcie_bandwidth_gb_s", h.PCIeBandwidthGBs, "1e9 B/s"),
		given("pcie_efficiency", h.PCIeEfficiency, "1"),
		given("interconnect_bandwidth_gb_s", h.InterconnectBandwidthGBs, "1e9 B/s"),
		given("interconnect_latency_us", h.InterconnectLatencyUs, "us"),
		given("tp", s.tp, "devices"),
		given("max_num_seqs", s.maxSeqs, "requests"),
		given("max_num_batched_tokens", s.maxTokens, "tokens"),
		given("block_size", s.blockTokens, "tokens"),
		given("kv_blocks_total_gpu", float64(e.KVBlocksGPU.Or(0)), "blocks"),
		given("kv_blocks_total_cpu", float64(e.KVBlocksCPU), "blocks"),
		given("chunked_prefill", s.chunked, "1"),
		given("cpu_offloading", s.offload, "1"),
	}
}

func (s *Space) constants10() []Quantity {
	width, active := s.mlp10()
	return []Quantity{
		given("mlp_width", width, "1"),
		given("active_experts", active, "1"),
		derived("kv_dim", s.kvDim, "1", "hidden_size*num_key_value_heads/num_attention_heads"),
		derived("flops_attn_linear", s.attnFLOPs, "FLOP/token/layer", "4*hidden_size*(hidden_size + kv_dim)"),
		derived("flops_mlp_linear", s.mlpFLOPs, "FLOP/token/layer", "2*n_mlp_proj*hidden_size*mlp_width*active_experts"),
		derived("flops_lm_head", s.headFLOPs, "FLOP/token", "2*hidden_size*vocab_size"),
		derived("flops_linear_per_token", s.linearFLOPs, "FLOP/token",
			"num_hidden_layers*(flops_attn_linear + flops_mlp_linear) + flops_lm_head"),
		derived("kv_bytes_per_token", s.kvBytes, "B/token", "2*num_hidden_layers*kv_dim*2*bytes_per_param"),
		derived("block_size_bytes", s.blockBytes, "B/block", "block_size*kv_bytes_per_token"),
		derived("hw_peak_flops", s.peak, "FLOP/s", "TFlopsPeak*1e12/tp"),
		derived("hw_peak_bandwidth", s.bandwidth, "B/s", "BwPeakTBs*1e12/tp"),
		derived("weight_bytes_attn", s.attnBytes, "B/layer", "(2*hidden_size*hidden_size + 2*hidden_size*kv_dim)*bytes_per_param"),
		derived("weight_bytes_per_expert", s.expertBytes, "B/layer", "n_mlp_proj*hidden_size*mlp_width*bytes_per_param"),
		derived("weight_bytes_mlp", s.mlpBytes, "B/layer", "weight_bytes_per_expert*max(1, top_k)"),
		derived("weight_bytes_total", s.totalBytes, "B", "num_hidden_layers*(weight_bytes_attn + weight_bytes_mlp)"),
		derived("hw_pcie_bandwidth_eff", s.pcie, "B/s", "pcie_bandwidth_gb_s*1e9*pcie_efficiency"),
		derived("hw_interconnect_bw", s.link, "B/s", "interconnect_bandwidth_gb_s*1e9"),
		derived("comm_bytes_per_token", s.commBytes, "B/token", "pos(tp - 1)*num_hidden_layers*2*hidden_size*bytes_per_param*2*(tp - 1)/tp"),
		derived("gpu_kv_capacity_bytes", s.gpuKVBytes, "B", "kv_blocks_total_gpu*block_size_bytes"),
		derived("cpu_kv_capacity_bytes", s.cpuKVBytes, "B", "cpu_offloading*kv_blocks_total_cpu*block_size_bytes"),
		derived("roofline_step_time", s.rooflineS, "s", "max(max_num_batched_tokens*flops_linear_per_token/max(1e-6, hw_peak_flops), "+
			"weight_bytes_total/max(1e-6, hw_peak_bandwidth))"),
	}
}

func (s *Space) constants11() []Quantity {
	return []Quantity{
		given("linear_peak_tflops", s.linearPeak/s.tp/1e12, "1e12 FLOP/s"),
		derived("q_dim", s.qDim, "1", "num_attention_heads*head_dim"),
		derived("kv_dim", s.kvDim, "1", "max(num_key_value_heads, tp)*head_dim"),
		derived("flops_attn_linear", s.attnFLOPs, "FLOP/token/layer", "4*hidden_size*(q_dim + kv_dim)"),
		derived("flops_mlp_dense", s.mlpFLOPs, "FLOP/token/layer", "2*n_mlp_proj*hidden_size*intermediate_size"),
		derived("flops_mlp_moe", s.moeFLOPs, "FLOP/token/layer", "pos(num_experts)*(2*n_mlp_proj*hidden_size*(top_k*moe_intermediate_size + "+
			"shared_expert_size) + 2*hidden_size*num_experts*tp)"),
		derived("flops_body_per_token", s.linearFLOPs, "FLOP/token", "num_hidden_layers*flops_attn_linear + (num_hidden_layers - "+
			"num_moe_layers)*flops_mlp_dense + num_moe_layers*flops_mlp_moe"),
		derived("flops_lm_head_per_seq", s.headFLOPs, "FLOP/sequence", "2*hidden_size*vocab_size"),
		derived("weight_bytes_attn", s.attnBytes, "B/layer", "2*hidden_size*(q_dim + kv_dim)*bytes_per_weight"),
		derived("weight_bytes_mlp_dense", s.mlpBytes, "B/layer", "n_mlp_proj*hidden_size*intermediate_size*bytes_per_weight"),
		derived("weight_bytes_per_expert", s.expertBytes, "B/layer",
			"pos(num_experts)*n_mlp_proj*hidden_size*moe_intermediate_size*bytes_per_weight"),
		derived("weight_bytes_moe_fixed", s.moeFixedBytes, "B/layer",
			"pos(num_experts)*(n_mlp_proj*hidden_size*shared_expert_size*bytes_per_weight + hidden_size*num_experts*tp*bytes_per_activation)"),
		derived("weight_bytes_lm_head", s.headBytes, "B", "hidden_size*vocab_size*bytes_per_lm_head"),
		derived("weight_bytes_full", s.totalBytes, "B", "num_hidden_layers*weight_bytes_attn + (num_hidden_layers - "+
			"num_moe_layers)*weight_bytes_mlp_dense + num_moe_layers*(num_experts*weight_bytes_per_expert + weight_bytes_moe_fixed) + "+
			"weight_bytes_lm_head"),
		derived("kv_bytes_per_token", s.kvBytes, "B/token", "2*num_hidden_layers*kv_dim*bytes_per_kv"),
		derived("block_size_bytes", s.blockBytes, "B/block", "block_size*kv_bytes_per_token"),
		derived("group_peak_flops", s.peak, "FLOP/s", "TFlopsPeak*1e12*tp"),
		derived("group_peak_linear_flops", s.linearPeak, "FLOP/s", "linear_peak_tflops*1e12*tp"),
		derived("group_peak_bandwidth", s.bandwidth, "B/s", "BwPeakTBs*1e12*tp"),
		derived("group_pcie_bandwidth", s.pcie, "B/s", "pcie_bandwidth_gb_s*1e9*pcie_efficiency*tp"),
		derived("link_bandwidth", s.link, "B/s", "interconnect_bandwidth_gb_s*1e9/2"),
		derived("allreduces_per_step", s.allreduces, "1", "pos(tp - 1)*(2*num_hidden_layers + 1)"),
		derived("allreduce_latency", s.allreduceS, "s", "interconnect_latency_us*1e-6"),
		derived("comm_bytes_per_token", s.commBytes, "B/token", "allreduces_per_step*2*(tp - 1)/tp*hidden_size*bytes_per_activation"),
		derived("comm_bytes_per_seq", s.gatherBytes, "B/sequence", "pos(tp - 1)*(tp - 1)/tp*vocab_size*bytes_per_activation"),
		derived("cpu_gpu_capacity_ratio", s.cpuGPURatio, "1", "cpu_offloading*kv_blocks_total_cpu/max(1, kv_blocks_total_gpu)"),
		derived("roofline_step_time", s.rooflineS, "s", "max(max_num_batched_tokens*flops_body_per_token/group_peak_linear_flops + "+
			"min(max_num_seqs, max_num_batched_tokens)*flops_lm_head_per_seq/group_peak_flops, weight_bytes(max_num_batched_tokens, "+
			"min(max_num_seqs, max_num_batched_tokens))/group_peak_bandwidth)"),
	}
}
