package model

// This file finds keys of a config.json that may change a size and that are not read.

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
)

// encoderKeys are keys of encoders, which turn images, video or audio into tokens, and of decoders
// that write them.
var encoderKeys = []string{"vision_config", "audio_config", "vision_tower", "mm_vision_tower", "audio_encoder_config", "speech_config",
	"image_token_id", "image_token_index", "audio_token_id", "video_token_id", "talker_config", "code2wav_config"}

// knownKeys are keys of config.json that the loader reads, or that change no
// dimension: tokens, training, dropout, the Python class.
var knownKeys = strings.Fields(keyText)

//go:embed hf_keys.txt
var keyText string

// harmlessParts are parts of keys that change no dimension, whatever else is in them.
var harmlessParts = []string{"token_id", "token_index", "dropout", "pdrop", "rope_", "_coef", "loss", "initializer", "quant", "summary_"}

// unknownKeys returns the keys that may change a size and that this version does not read, sorted.
// A key with a part of harmlessParts in its name is assumed to change none.
func unknownKeys(values map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		known := values[key] == nil || values[key] == false ||
			slices.Contains(knownKeys, key) || slices.Contains(encoderKeys, key)
		for _, part := range harmlessParts {
			known = known || strings.Contains(key, part)
		}
		if !known {
			out = append(out, key)
		}
	}
	quant, _ := values["quantization_config"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(quant)) {
		name := "quantization_config." + key
		if !slices.Contains(knownKeys, name) && !slices.Contains([]string{"null", "false", "{}", "[]"}, showValue(quant[key])) {
			out = append(out, name)
		}
	}
	return out
}

// encoders returns the keys of the outer config that belong to encoders of images, video or audio,
// sorted.
func encoders(outer map[string]any) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(outer)) {
		if outer[key] != nil && slices.Contains(encoderKeys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// unreadKeys returns the first unknown keys for an error message.
func unreadKeys(values map[string]any) string {
	keys := unknownKeys(values)
	if len(keys) == 0 {
		return ""
	}
	return " (keys of its own: " + strings.Join(keys[:min(len(keys), 12)], ", ") + ")"
}
