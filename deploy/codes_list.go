package deploy

import "github.com/blis-train/blis-train/trace"

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: missingRunYAML, Kind: "error", Meaning: "The run directory has no run.yaml and the flags do not supply what it would say.",
		Action: "Write one with `blis-train init`, or give every missing field with --set."},
	{Code: badRunYAML, Kind: "error", Meaning: "A value in run.yaml has the wrong type or is impossible.",
		Action: "Fix the named line; docs/run-yaml.md lists keys, units and bounds."},
	{Code: unknownKey, Kind: "error", Meaning: "run.yaml holds a key that is neither ours nor a `vllm serve` flag of the stated version.",
		Action: "Correct the spelling, or move the key to the section the hint names."},
	{Code: BadSetting, Kind: "error", Meaning: "A --set override is not key=value with a key of run.yaml.",
		Action: "Write it as section.key=value, such as vllm.max_num_seqs=128."},
	{Code: missingConfig, Kind: "error", Meaning: "The model's config.json named by model.config cannot be read.",
		Action: "Copy the model's Hugging Face config.json beside run.yaml and name it there."},
	{Code: unknownHardware, Kind: "error", Meaning: "hardware.name is no built-in datasheet and no peak rates stand beside it.",
		Action: "Use a name the hint lists, or give TFlopsPeak and BwPeakTBs."},
	{Code: badCommandLine, Kind: "error", Meaning: "The text given to init is not a command that runs `vllm serve`.",
		Action: "Paste the whole command, quoted as one argument."},
	{Code: unknownFlag, Kind: "warning", Meaning: "The command line, its --config file or the log holds a flag that this version of " +
		"blis-train does not know for that vLLM; init leaves it out.",
		Action: "Correct the spelling (docs/run-yaml.md lists the flags); a new one needs nothing unless it changes how steps run."},
	{Code: fileNotRead, Kind: "warning", Meaning: "The file that --config of the command line names cannot be read here.",
		Action: "Run init where the file is, or give its flags on the command line."},
	{Code: unknownRelease, Kind: "warning",
		Meaning: "vLLM's release is newer than the newest whose flags are known; those of that one are taken.",
		Action:  "Look at the flags that init leaves out."},
	{Code: notAVLLMLog, Kind: "error", Meaning: "The log holds none of the lines that vLLM prints at start.",
		Action: "Give the server's log from its first line on."},
	{Code: asyncAssumed, Kind: "warning", Meaning: "vllm.version is no release number, so asynchronous scheduling was taken as on, the " +
		"newest default.",
		Action: "Set vllm.async_scheduling as the server printed it at start, or give the version's number."},
	{Code: kvBlocksAssumed, Kind: "finding", Meaning: "The number of KV blocks is not recorded and was estimated from memory.",
		Action: "Set vllm.kv_blocks_total_gpu in run.yaml: the server's num_gpu_blocks less the null block."},

	{Code: missingField, Kind: "error", Meaning: "A required field of run.yaml or config.json is absent.",
		Action: "Add every field the message lists."},
	{Code: badField, Kind: "error", Meaning: "A field of config.json is not of the type or range it must have.",
		Action: "Compare the file with the model's published config.json."},
	{Code: badKVHeads, Kind: "error", Meaning: "The number of KV heads does not divide the number of attention heads.",
		Action: "Compare the file with the model's published config.json."},
	{Code: headDimNotIntegral, Kind: "error", Meaning: "hidden_size is not a multiple of the heads and head_dim is not given.",
		Action: "Add head_dim to config.json."},
	{Code: BadTopK, Kind: "error", Meaning: "The experts per token are not within 1 and the number of experts.",
		Action: "Compare the file with the model's published config.json."},
	{Code: NoMoELayer, Kind: "error", Meaning: "The model has experts, but the layer rules leave no layer that uses them.",
		Action: "Check mlp_only_layers, moe_layer_freq, decoder_sparse_step and first_k_dense_replace."},
	{Code: unknownModelType, Kind: "error", Meaning: "The number of MLP projections is not known for this model_type.",
		Action: "Set model.n_mlp_proj in run.yaml: 3 for a gated MLP, 2 for a plain one."},
	{Code: unknownDType, Kind: "error", Meaning: "A dtype name is not one whose width is known.",
		Action: "Use float32, float16, bfloat16 or an fp8 name."},
	{Code: mixedQuantization, Kind: "error", Meaning: "Layers are quantised in more than one way, which the byte model does not cover.",
		Action: "Use a uniformly quantised checkpoint; mixed ones are not modelled."},
	{Code: unknownQuantization, Kind: "error", Meaning: "The quantisation method or its bit width is not modelled.",
		Action: "fp8, fbgemm_fp8, awq, gptq and compressed-tensors are; others are rejected."},
	{Code: mlaAttention, Kind: "error", Meaning: "The model uses multi-head latent attention, whose KV cache is not modelled.",
		Action: "Such models cannot be trained for yet."},
	{Code: encoderDecoder, Kind: "error", Meaning: "The model is an encoder-decoder.", Action: "Only decoder-only models are modelled."},
	{Code: hybridAttention, Kind: "error", Meaning: "The model has state-space, linear, sparse or shared attention layers.",
		Action: "Only models with attention in every layer are modelled."},
	{Code: slidingWindow, Kind: "error", Meaning: "An attention window is active and shorter than the longest sequence.",
		Action: "Set vllm.max_model_len to what the server used, or accept the error with model.assume_full_attention: true."},
	{Code: fullAttentionAssumed, Kind: "warning", Meaning: "Windowed attention was taken for full attention at the user's word.",
		Action: "Expect attention and KV terms that are too large beyond the window."},
	{Code: headDimDiffers, Kind: "warning", Meaning: "Spec 1.0 takes hidden_size/heads for the head dimension; this model's differs.",
		Action: "Use spec 1.1, which reads head_dim."},
	{Code: sharedExperts, Kind: "warning", Meaning: "Spec 1.0 ignores the model's shared experts.",
		Action: "Use spec 1.1, which counts them."},
	{Code: MoELayersDiffer, Kind: "warning", Meaning: "Spec 1.0 takes every layer for an MoE layer; this model has dense ones.",
		Action: "Use spec 1.1, which counts MoE layers."},
	{Code: byteWidthsDiffer, Kind: "warning",
		Meaning: "Spec 1.0 has one byte width; this model's weights, KV cache and activations differ.",
		Action:  "Use spec 1.1, which has a width for each."},

	{Code: BadModel, Kind: "error", Meaning: "A model dimension is not positive or out of range.",
		Action: "Check config.json against the published model."},
	{Code: BadHardware, Kind: "error", Meaning: "A rate of the hardware is missing or impossible for this deployment.",
		Action: "Fill in the datasheet value in the unit docs/run-yaml.md names."},
	{Code: BadKnobs, Kind: "error", Meaning: "An engine knob is missing or impossible.",
		Action: "Give the flag the message names as the server printed it at start."},
	{Code: BadTP, Kind: "error", Meaning: "tensor_parallel_size is below 1.", Action: "Give the number of devices one replica runs on."},
	{Code: TPHeads, Kind: "error", Meaning: "tensor_parallel_size does not divide the attention heads.",
		Action: "Check tensor_parallel_size; vLLM does not start like this."},
	{Code: TPKVHeads, Kind: "error", Meaning: "tensor_parallel_size neither divides the KV heads nor is a multiple of them.",
		Action: "Check tensor_parallel_size; vLLM does not start like this."},
	{Code: UnsupportedPP, Kind: "error", Meaning: "Pipeline parallelism is not modelled.",
		Action: "Trace a server with pipeline_parallel_size 1."},
	{Code: UnsupportedEP, Kind: "error", Meaning: "Expert parallelism is not modelled.",
		Action: "Trace a server without --enable-expert-parallel."},
	{Code: UnsupportedSpeculative, Kind: "error", Meaning: "Speculative decoding is not modelled.",
		Action: "Trace a server without --speculative-config."},
	{Code: unsupportedDP, Kind: "error",
		Meaning: "Data parallelism of a model with experts is not modelled: its engines wait for each other " +
			"in every step.", Action: "Trace a server with data_parallel_size 1."},
	{Code: unsupportedCP, Kind: "error", Meaning: "Context parallelism is not modelled.",
		Action: "Trace a server with decode_context_parallel_size and prefill_context_parallel_size 1."},
	{Code: unsupportedTransfer, Kind: "error",
		Meaning: "KV caches or encoder outputs that come from or go to other servers are not modelled.",
		Action:  "Trace a server that prefills and decodes by itself."},
	{Code: unsupportedOffload, Kind: "error", Meaning: "Weights kept in CPU memory are not modelled.",
		Action: "Trace a server without --cpu-offload-gb."},
	{Code: unsupportedOverlap, Kind: "error", Meaning: "Dual-batch overlap and micro-batches are not modelled.",
		Action: "Trace a server without --enable-dbo."},
	{Code: unsupportedPooling, Kind: "error", Meaning: "Models that pool instead of generating are not modelled.",
		Action: "Trace a server that generates."},
	{Code: dataParallel, Kind: "warning",
		Meaning: "The server runs several engines side by side; description, trace and simulation are of one.",
		Action:  "Give the trace of one engine."},
	{Code: loraAdapters, Kind: "warning", Meaning: "LoRA adapters are loaded; their part of a step goes into the other terms.",
		Action: "Expect other step times with another mix of adapters."},
	{Code: multimodalInputs, Kind: "warning", Meaning: "The model takes images, video or audio, whose encoder is not modelled.",
		Action: "Use recordings of text requests alone."},
	{Code: otherScheduler, Kind: "warning",
		Meaning: "The engine schedules by other rules than vLLM's own, which replays and simulations follow.",
		Action:  "Trace a server with vLLM's own scheduler."},
	{Code: manyNodes, Kind: "warning", Meaning: "The server spans several nodes; the datasheet's interconnect is that of one.",
		Action: "Give hardware.interconnect_bandwidth_gb_s and interconnect_latency_us as measured between them."},
	{Code: modelOverridden, Kind: "warning", Meaning: "The server changed its model's config.json with --hf-overrides.",
		Action: "Write the overridden values into the config.json beside run.yaml."},
	{Code: rooflineOnly, Kind: "warning",
		Meaning: "The device is known by its vendor's rates alone: nothing measured on it stands behind the " +
			"features and the library.", Action: "Fit recordings of your own; do not rest on the library."},
	{Code: unknownModelKeys, Kind: "warning",
		Meaning: "config.json holds keys this version does not know; where they change attention or the " +
			"MLP, the features are wrong.", Action: "Look what the keys do; report those that decide how long a step takes."},
}

// WarningsV1 lists what spec 1.0 ignores of the model (spec#model-frozen).
func (m *Model) WarningsV1() []trace.Finding {
	var fs []trace.Finding
	if m.HeadDim*m.NumHeads != m.HiddenSize {
		fs = append(fs, trace.Findingf(headDimDiffers, "head_dim %d x %d heads: got %d, 1.0 takes hidden_size %d", m.HeadDim, m.NumHeads,
			m.HeadDim*m.NumHeads, m.HiddenSize))
	}
	if m.SharedExpertSize > 0 {
		fs = append(fs, trace.Findingf(sharedExperts, "shared experts of width %d are ignored by 1.0", m.SharedExpertSize))
	}
	if m.IsMoE() && m.NumMoELayers != m.NumLayers {
		fs = append(fs, trace.Findingf(MoELayersDiffer, "MoE layers: got %d, 1.0 takes all %d", m.NumMoELayers, m.NumLayers))
	}
	b := m.BytesPerParam
	if m.BytesPerKV != b || m.BytesPerActivation != b || m.BytesPerLMHead != b {
		fs = append(fs, trace.Findingf(byteWidthsDiffer, "bytes per weight %g, KV %g, activation %g, LM head %g: 1.0 takes %g for all",
			m.BytesPerWeight, m.BytesPerKV, m.BytesPerActivation, m.BytesPerLMHead, b))
	}
	return fs
}
