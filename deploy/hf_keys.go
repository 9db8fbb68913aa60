package deploy

import (
	"maps"
	"slices"
	"strings"
)

// otherAttention are keys of models whose attention, or some layers of it, is
// another: linear, state space, sparse, convolutional or shared between layers. A
// model that has one is refused whatever else is said of it.
var otherAttention = []string{"attn_layer_period", "mamba_d_state", "ssm_cfg", "hybrid_override_pattern", "full_attention_interval",
	"linear_attn_config", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
	"linear_value_head_dim", "attn_type_list", "layer_group_size", "mamba_num_heads", "mamba_head_dim", "mamba_expand", "mamba_n_heads",
	"ssm_state_size", "state_size", "conv_L_cache", "full_attn_idxs", "lru_width", "block_types", "time_step_rank", "index_topk",
	"index_n_heads", "num_kv_shared_layers", "kv_share_layers", "sparse_attention_config", "attn_layer_indices", "hybrid_layer_pattern",
	"mamba_layer_indices", "layers_block_type"}

// encoderKeys are keys of what turns images, video or audio into tokens.
var encoderKeys = []string{"vision_config", "audio_config", "vision_tower", "mm_vision_tower", "audio_encoder_config", "speech_config",
	"image_token_id", "image_token_index", "audio_token_id", "video_token_id"}

// knownKeys are keys of config.json that the loader reads, or that change no
// dimension: tokens, training, dropout, the Python class.
var knownKeys = strings.Fields(`
	_name_or_path add_cross_attention alibi apply_residual_connection_post_layernorm architectures attention_bias attention_multiplier
	attention_out_bias attention_qkv_bias attn_implementation attn_logit_softcapping attn_temperature_tuning auto_map bias bias_only_on_qkv
	bos_token_id cache_implementation chat_format chunk_size_feed_forward clip_qkv classifier_dropout compression_config
	cross_attention_hidden_size decoder_sparse_step decoder_start_token_id description diversity_penalty do_sample dtype early_stopping
	embd_pdrop embedding_multiplier emb_pdrop eos_token_id expert_interval experts_per_token export_model_type exponential_decay_length_penalty
	ffn_dim ffn_hidden_size final_logit_softcapping finetuning_task first_k_dense_replace floor_scale forced_bos_token_id forced_eos_token_id
	gradient_checkpointing head_dim hidden_act hidden_activation hidden_size id2label initial_context_length initializer_factor
	initializer_range input_jitter_noise interleave_moe_layer_step intermediate_size intermediate_size_mlp is_decoder is_encoder_decoder
	label2id layer_norm_eps layer_norm_epsilon layer_norm_rms_eps layer_types length_penalty lm_head_bias logit_scale logits_scaling
	max_length max_position_embeddings max_sequence_length max_window_layers min_length mlp_bias mlp_only_layers model_max_length model_type
	moe_intermediate_size moe_k moe_layer_freq moe_layers moe_num_experts moe_topk multi_query n_ctx n_embd n_group n_head n_inner n_layer
	n_positions n_routed_experts n_shared_experts new_decoder_architecture no_repeat_ngram_size no_rope_layer_interval no_rope_layers
	norm_eps norm_epsilon norm_topk_prob num_attention_heads num_beam_groups num_beams num_experts num_experts_per_tok
	num_experts_per_token num_hidden_layers num_key_value_heads num_kv_heads num_layers num_local_experts num_return_sequences
	num_nextn_predict_layers num_shared_experts original_max_position_embeddings output_attentions output_hidden_states output_router_logits
	output_scores pad_token_id parallel_attn partial_rotary_factor prefix pretraining_tp problem_type pruned_heads qk_layernorm qk_norm
	qkv_bias quantization_config query_pre_attn_scalar remove_invalid_values reorder_and_upcast_attn repetition_penalty residual_multiplier
	return_dict return_dict_in_generate rms_norm_eps rope_interleaved rope_local_base_freq rope_parameters rope_scaling rope_theta
	rotary_dim rotary_emb_base rotary_pct routed_scaling_factor router_aux_loss_coef router_jitter_noise router_z_loss_coef
	scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights scale_depth scale_emb scoring_func sep_token_id
	seq_length shared_expert_intermediate_size shared_intermediate_size sliding_window sliding_window_pattern _sliding_window_pattern
	suppress_tokens swiglu_limit task_specific_params temperature text_config tf_legacy_loss tie_encoder_decoder tie_word_embeddings
	tokenizer_class top_k top_p topk_group topk_method torch_dtype torchscript transformers_version transformers.js_config typical_p
	unk_token_id unsloth_fixed unsloth_version use_bfloat16 use_bidirectional_attention use_cache use_embedding_sharing use_flash_attn
	use_logn_attn use_parallel_residual use_qk_norm use_qkv_bias use_rmsnorm use_sliding_window using_mlp vocab_size activation_function
	activation aux_loss_alpha seq_aux begin_suppress_tokens bad_words_ids encoder_no_repeat_ngram_size attention_chunk_size d_model dim_model_base
	attention_probs_dropout_prob hidden_dropout_prob for_llm_class use_mla ep_size layernorm_epsilon add_bias_linear add_qkv_bias
	rope_ratio mup_denominator mup_use_scaling attn_scale
	position_embedding_type use_gated_activation use_parallel_block use_parallel_embedding
	slow_but_exact skip_bias_add masked_softmax_fusion do_layer_norm_before enable_bias layer_norm_elementwise_affine layerdrop
	_remove_final_layer_norm use_bias norm_type mlp_type use_mtp use_cache_quantization vision_config audio_config`)

// harmlessParts are parts of keys that change no dimension, whatever else is in them.
var harmlessParts = []string{"token_id", "token_index", "dropout", "pdrop", "rope_", "_coef", "loss", "initializer", "quant", "summary_"}

// unknownKeys lists the keys nobody has looked at, sorted. Keys of tokens, dropout,
// rope and quantisation decide no dimension, whatever they are called.
func unknownKeys(values map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		known := values[key] == nil || values[key] == false || slices.Contains(knownKeys, key) || slices.Contains(encoderKeys, key)
		for _, part := range harmlessParts {
			known = known || strings.Contains(key, part)
		}
		if !known {
			out = append(out, key)
		}
	}
	return out
}

// encoders lists what of the outer config tells of images, video or audio, sorted.
func encoders(outer map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(outer)) {
		if outer[key] != nil && slices.Contains(encoderKeys, key) {
			out = append(out, key)
		}
	}
	return out
}
