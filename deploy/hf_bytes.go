package deploy

import (
	"encoding/json"
	"strings"
)

// dtypeBytes returns the bytes per value of a dtype name, 0 if unknown (spec#model-dtype).
func dtypeBytes(name string) float64 {
	name = strings.TrimPrefix(name, "torch.")
	switch name {
	case "float32", "float":
		return 4
	case "float16", "bfloat16", "half":
		return 2
	}
	if strings.HasPrefix(name, "fp8") || strings.HasPrefix(name, "float8") {
		return 1
	}
	return 0
}

// byteWidths reads the widths of activations, LM head, KV cache and weights, and the
// type linear layers compute in (spec#model-dtype, spec#model-quantization).
func (c *hfConfig) byteWidths(m *Model, opts ModelOptions) {
	m.BytesPerActivation = c.activationBytes(opts.DType)
	m.BytesPerLMHead = m.BytesPerActivation
	m.BytesPerKV = m.BytesPerActivation
	if name := opts.KVCacheDType; name != "" && name != "auto" {
		if m.BytesPerKV = dtypeBytes(name); m.BytesPerKV == 0 {
			c.fail(unsupportedModel, "kv_cache_dtype: got %q, want auto, bfloat16, float16, float32 or fp8*", name)
		}
	}
	m.BytesPerWeight, m.LinearCompute = m.BytesPerActivation, "native"
	if c.err == nil {
		c.quantization(m, opts.Quantization)
	}
	m.BytesPerParam = m.BytesPerWeight
}

func (c *hfConfig) activationBytes(override string) float64 {
	name := override
	if name == "" || name == "auto" {
		if _, v := c.first("dtype", "torch_dtype"); v == nil {
			c.fail(BadModel, "dtype: missing, want the activations' type (also read as torch_dtype, or model.dtype in run.yaml)")
			return 0
		}
		key, _ := c.first("dtype", "torch_dtype")
		name = c.text(key)
	}
	bytes := dtypeBytes(name)
	if bytes == 0 {
		c.fail(unsupportedModel, "dtype: got %q, want float32, float16, bfloat16 or an fp8 name", name)
	}
	return bytes
}

// quantization takes quantization_config, or vLLM's --quantization fp8,
// which quantises an unquantised model at load.
func (c *hfConfig) quantization(m *Model, flag string) {
	q, ok := c.values["quantization_config"].(map[string]any)
	if !ok {
		switch flag {
		case "":
		case "fp8":
			m.BytesPerWeight, m.LinearCompute = 1, "fp8"
		default:
			c.fail(unsupportedModel, "quantization: got %q without a quantization_config, want fp8 or none", flag)
		}
		return
	}
	method, _ := q["quant_method"].(string)
	switch method {
	case "fp8", "fbgemm_fp8":
		m.BytesPerWeight, m.LinearCompute = 1, "fp8"
	case "awq", "gptq":
		c.weightOnly(m, q)
	case "compressed-tensors":
		c.compressedTensors(m, q)
	default:
		c.fail(unsupportedModel, "quantization_config.quant_method: got %q, want fp8, fbgemm_fp8, awq, gptq or compressed-tensors", method)
	}
}

func (c *hfConfig) weightOnly(m *Model, q map[string]any) {
	bits, ok := integer(firstOf(q, "bits", "w_bit"))
	if !ok || bits != 2 && bits != 3 && bits != 4 && bits != 8 {
		c.fail(unsupportedModel, "quantization_config.bits: got %s, want 2, 3, 4 or 8", show(firstOf(q, "bits", "w_bit")))
		return
	}
	m.BytesPerWeight = float64(bits) / 8
}

func firstOf(values map[string]any, keys ...string) any {
	for _, key := range keys {
		if values[key] != nil {
			return values[key]
		}
	}
	return json.Number("")
}

func (c *hfConfig) compressedTensors(m *Model, q map[string]any) {
	groups, _ := q["config_groups"].(map[string]any)
	if len(groups) > 1 {
		c.fail(unsupportedModel, "quantization_config.config_groups: got %d groups, want exactly one", len(groups))
		return
	}
	for _, g := range groups { // one entry
		group, _ := g.(map[string]any)
		weights, _ := group["weights"].(map[string]any)
		inputs, _ := group["input_activations"].(map[string]any)
		bits, ok := integer(weights["num_bits"])
		if !ok || bits <= 0 || bits > 16 {
			break
		}
		m.BytesPerWeight = float64(bits) / 8
		inputBits, _ := integer(inputs["num_bits"])
		if bits == 8 && weights["type"] == "float" && inputBits == 8 {
			m.LinearCompute = "fp8"
		}
		return
	}
	c.fail(unsupportedModel, "quantization_config.config_groups: want one group with weights.num_bits")
}
