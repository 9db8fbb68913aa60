package model

// This file estimates the weights of an encoder of images, which share a GPU's memory with the KV cache.

import "strings"

// encodersOf has the parameters of encoders that the built-in configuration does not state: that of Gemma 3 and Mistral
// Small is their text decoder's, that of Llama 4 and Qwen2.5-VL is shortened, and Kimi-K2-Thinking, without an encoder, has that
// of Kimi-K2.5. They are the totals of the published checkpoints less their text decoders.
var encodersOf = map[string]int64{
	"google/gemma-3-4b-it":                          420e6,
	"google/gemma-3-12b-it":                         421e6,
	"google/gemma-3-27b-it":                         423e6,
	"mistralai/Mistral-Small-3.1-24B-Instruct-2503": 439e6,
	"mistralai/Mistral-Small-3.2-24B-Instruct-2506": 439e6,
	"meta-llama/Llama-4-Scout-17B-16E-Instruct":     871e6,
	"meta-llama/Llama-4-Maverick-17B-128E-Instruct": 871e6,
	"Qwen/Qwen2.5-VL-7B-Instruct":                   677e6,
	"moonshotai/Kimi-K2-Thinking":                   0,
}

// gatedEncoders are parts of the model_type of encoders whose MLP has a gate: three matrices and not two.
var gatedEncoders = []string{"pixtral", "qwen2_5_vl", "gemma4_vision"}

// encoderParams returns about how many parameters the encoder of images of a model has that its config.json describes; 0
// without one, or where its sizes are not stated. hidden is the width of the text decoder.
//
// A layer has four matrices of attention and an MLP. Behind the layers a projector gives vectors of the decoder's width. One
// that merges neighbouring patches has two matrices, and so has each further one (deepstack).
func encoderParams(raw map[string]any, hidden int64, id string) int64 {
	if thinker, _ := raw["thinker_config"].(map[string]any); thinker != nil {
		raw = thinker
	}
	vision, _ := raw["vision_config"].(map[string]any)
	c := &hfConfig{values: vision}
	width := c.sizeOf("embed_dim", "vt_hidden_size", "hidden_size", "width") // of Qwen2-VL hidden_size is the decoder's
	layers := c.sizeOf("vt_num_hidden_layers", "num_hidden_layers", "depth", "layers")
	inner := c.sizeOf("vt_intermediate_size", "intermediate_size", "mlp_dim")
	if inner == 0 {
		inner = width * c.sizeOf("mlp_ratio")
	}
	if known, isKnown := encodersOf[id]; isKnown || width == 0 || layers == 0 || inner == 0 {
		return known
	}
	kind := c.text("model_type")
	if kind == "" {
		kind, _ = raw["model_type"].(string)
	}
	matrices := int64(2)
	for _, gated := range gatedEncoders {
		if strings.Contains(kind, gated) {
			matrices = 3
		}
	}
	attention := width
	if qkv := c.sizeOf("qkv_hidden_size"); qkv > 0 {
		attention = qkv
	}
	total := layers * (4*width*attention + matrices*width*inner)
	merged := c.sizeOf("spatial_merge_size")
	if kernel, _ := vision["merge_kernel_size"].([]any); merged == 0 && len(kernel) > 0 {
		merged, _ = wholeNumber(kernel[0])
	}
	if merged == 0 {
		return total + width*hidden
	}
	further, _ := vision["deepstack_visual_indexes"].([]any)
	wide := width * merged * merged
	return total + int64(1+len(further))*wide*(wide+hidden)
}

// sizeOf returns the first of some keys that is a whole number from 1 to maxEncoderSize; 0 without one.
func (c *hfConfig) sizeOf(keys ...string) int64 {
	for _, key := range keys {
		if n, isInt := wholeNumber(c.values[key]); isInt && n >= 1 && n <= maxEncoderSize {
			return n
		}
	}
	return 0
}

// maxEncoderSize is far above the width or the number of layers of any encoder. The products of encoderParams fit.
const maxEncoderSize = 1 << 17
