package model

// This file finds the family by whose rules a config.json is read, and fills in what the family has
// where the file states nothing.

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// sizeKey matches keys that state a size. Where their value is null, the report names them.
var sizeKey = regexp.MustCompile(`(_size|_dim|_rank|_replace|_freq|_step)$|^(n|num)_|experts`)

// collapseEqual returns the common entry of a list whose entries, one for each layer, are all
// equal, and any other value unchanged.
func collapseEqual(v any) any {
	if list, _ := v.([]any); len(list) > 0 && !slices.ContainsFunc(list, func(x any) bool { return !reflect.DeepEqual(x, list[0]) }) {
		return list[0]
	}
	return v
}

// withDefaults renames the family's keys to those that the reader uses, and sets absent keys to the
// family's defaults. inner is set if the values come from a text_config. It returns the keys that
// it set and the sizes that are null, sorted.
func (c *hfConfig) withDefaults(f *modelFamily, inner bool) []string {
	var keys []string
	for from, to := range f.renamed {
		if v := collapseEqual(c.values[from]); v != nil {
			delete(c.values, from)
			c.values[to] = v
		}
	}
	for key, value := range c.values {
		if value == nil && sizeKey.MatchString(key) {
			keys = append(keys, key+"=null")
		}
	}
	defaults := map[string]any{"tie_word_embeddings": false}
	maps.Copy(defaults, f.defaults)
	maps.Copy(defaults, classDefaults[strings.TrimSuffix(c.text("model_type"), "_text")])
	if inner {
		maps.Copy(defaults, f.textDefaults)
	}
	for key, value := range defaults {
		if _, stated := c.values[key]; stated || value == nil {
			continue
		}
		if n, isInt := value.(int); isInt {
			value = json.Number(fmt.Sprint(n))
		}
		c.values[key] = value
		keys = append(keys, fmt.Sprintf("%s=%v", key, value))
	}
	slices.Sort(keys)
	return keys
}

// defaulted adds an assumed value to d.Defaulted, once.
func (d *Decoder) defaulted(what string) {
	if !slices.Contains(d.Defaulted, what) {
		d.Defaulted = append(d.Defaulted, what)
	}
}

// The beginnings of warnings that the bytes of weights are a guess.
const (
	formatUnstated  = "the name states a quantization, but neither a quantization_config nor an hf_quant_config.json beside it does"
	modulesUnlisted = "a ModelOpt checkpoint without a list of modules left at 16 bit: all matrices are taken as quantized, but embedding, " +
		"router and head"
)

// warnings adds warnings of quantization that is not stated, unknown keys and encoders, and an
// error for an impossible size.
func (c *hfConfig) warnings(r *layerReader, raw map[string]any) {
	warn := func(format string, args ...any) { r.d.Warnings = append(r.d.Warnings, fmt.Sprintf(format, args...)) }
	if r.q.def == nil && len(r.q.named) == 0 && quantizedName.MatchString(c.file) {
		warn("%s: weights are taken at %g bytes", formatUnstated, r.d.DTypeBytes)
	}
	if r.q.modelOpt && !r.q.listed {
		warn("%s", modulesUnlisted)
	}
	if keys := unknownKeys(c.values); len(keys) > 0 {
		warn("keys that could change a size and are not read: %s", strings.Join(keys, ", "))
	}
	if list := encoders(raw); len(list) > 0 {
		warn("the text decoder alone is counted; not: %s", strings.Join(list, ", "))
	}
	if total := r.d.TotalParams(); total <= 0 || total > maxParams {
		c.fail(BadModel, "hidden_size: the layers add up to %d parameters, want 1 to %d", total, int64(maxParams))
	}
}

const maxParams = 1e15

var quantizedName = regexp.MustCompile(`(?i)[-_](fp8|fp4|nvfp4|mxfp4|int4|int8|awq|gptq|w4a16|w8a8)([^a-z0-9]|$)`)

// notGenerating matches the names of architectures that do not generate text.
var notGenerating = regexp.MustCompile(`(ForSequenceClassification|ForTokenClassification|ForMaskedLM|ForQuestionAnswering|` +
	`ForImageClassification|ForCTC|EncoderModel)$`)

// encoderType matches model types that read or write no text.
var encoderType = regexp.MustCompile(`(?i)bert|electra|mpnet|^clip|siglip|^(vit|swin|dino|deit|beit)`)

// family returns the family by whose rules this config is read; nil with an error in c.err.
func (c *hfConfig) family(raw map[string]any, assume string, proj trace.Opt[int64]) *modelFamily {
	for _, key := range textConfigs {
		c.object(raw, key)
	}
	class, _ := raw["_class_name"].(string)
	switch {
	case class != "" || raw["_diffusers_version"] != nil:
		c.refused("_class_name", class, "a diffusion model")
	case c.flag("is_encoder_decoder", false):
		c.refused("is_encoder_decoder", "true", "an encoder-decoder")
	}
	list, _ := raw["architectures"].([]any)
	for _, entry := range list {
		if name, _ := entry.(string); notGenerating.MatchString(name) {
			c.refused("architectures", name, "a model that writes no text")
		}
	}
	if _, isText := raw["model_type"].(string); raw["model_type"] != nil && !isText {
		c.fail(BadModel, "model_type: got %s, want a text such as llama", showValue(raw["model_type"]))
	}
	if c.err != nil {
		return nil
	}
	name := c.text("model_type")
	if assume != "" {
		name = assume
	}
	f, ok := familyByType()[strings.TrimSuffix(name, "_text")]
	switch {
	case ok:
		if proj.OK {
			own := *f
			own.mlpMatrices = proj.V
			return &own
		}
		return f
	case proj.OK && name != "" && !c.hasOtherMixers():
		return modelFamily{mlpMatrices: proj.V}.withFallbacks()
	case encoderType.MatchString(name):
		c.refused("model_type", name, "an encoder")
	case name == "":
		c.fail(BadModel, "model_type: missing, want the family of a text decoder, such as llama or qwen3_moe")
		c.hint("give the config.json of the model itself, as published on Hugging Face")
	default:
		c.fail(UnsupportedModel, "model_type: got %q, want a family that is known%s", name, unreadKeys(c.values))
		c.hint("model.assume: " + nearestFamily(name) + " in run.yaml reads it as that family; or state weight_bytes_per_gpu and " +
			"kv_blocks_total_gpu of the server")
	}
	return nil
}

// hasOtherMixers reports whether a config has keys of mixers other than plain grouped-query attention.
func (c *hfConfig) hasOtherMixers() bool {
	for key, value := range c.values {
		if value != nil && value != false && otherMixer.MatchString(key) {
			return true
		}
	}
	return false
}

// otherMixer matches keys of mixers other than plain grouped-query attention.
var otherMixer = regexp.MustCompile(`^(attn_layer_|attn_type_list|mamba_|ssm_|hybrid_|full_att|linear_|layer_group_size|state_size|conv_L|` +
	`lru_|block_types|time_step_rank|index_|num_kv_shared|kv_share|sparse_attention|layers_block_type|kv_lora|q_lora|qk_rope)`)

// nearestFamily returns the known model_type that shares the longest prefix with name, for a hint.
func nearestFamily(name string) string {
	best, length := "llama", 2
	for _, known := range slices.Sorted(maps.Keys(familyByType())) {
		n := 0
		for n < min(len(known), len(name)) && known[n] == name[n] {
			n++
		}
		if n > length {
			best, length = known, n
		}
	}
	return best
}
