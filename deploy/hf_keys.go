package deploy

import (
	_ "embed"
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
var knownKeys = strings.Fields(keyText)

//go:embed hf_keys.txt
var keyText string

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
