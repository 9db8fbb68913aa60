package model

import "testing"

// TestBytesAsBLISReads: a weight has the bits of the quantization over 8, of the name without one, or else an activation's.
func TestBytesAsBLISReads(t *testing.T) {
	groups := func(bits any) map[string]any {
		return map[string]any{"quant_method": "compressed-tensors", "config_groups": map[string]any{
			"group_0": map[string]any{}, "group_1": map[string]any{"weights": map[string]any{"num_bits": bits}}}}
	}
	for _, c := range []struct {
		id   string
		q    any
		want float64
	}{
		{"m", map[string]any{"bits": 4}, 0.5}, {"m", map[string]any{"bits": "3"}, 0.375}, {"m-w8a8", map[string]any{"bits": 0}, 1},
		{"m", map[string]any{"quant_method": "FP8"}, 1}, {"m", groups(6), 0.75}, {"m", groups(0), 2}, {"m-w4a16", nil, 0.5},
		{"m-fp8", nil, 1}, {"m-FP8-dynamic", nil, 1}, {"mfp8", nil, 2}, {"m", nil, 2},
	} {
		cfg := &hfConfig{values: map[string]any{"quantization_config": c.q}}
		if got := cfg.blisWeights(&Model{ID: c.id, BytesPerActivation: 2}); got != c.want {
			t.Errorf("%s, %v: got %g bytes, want %g", c.id, c.q, got, c.want)
		}
	}
}
