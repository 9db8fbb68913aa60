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

func firstOf(values map[string]any, keys ...string) any {
	for _, key := range keys {
		if values[key] != nil {
			return values[key]
		}
	}
	return json.Number("")
}
