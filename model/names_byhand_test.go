package model

import (
	"math"
	"strings"
	"testing"
)

// TestNameKey: letters and digits of the last element of an id, in lower case.
func TestNameKey(t *testing.T) {
	for id, want := range map[string]string{
		"meta-llama/Llama-3.1-8B": "llama318b", "az09/AZaz09": "azaz09", "a/b/": "b", "a/`{/:x": "x", "": "", "Qwen3_8B-FP8": "qwen38bfp8",
	} {
		if got := NameKey(id); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
}

// TestShipped: the layers that were read, unless there are layers of every kind.
func TestShipped(t *testing.T) {
	read := &Decoder{Vocab: 7}
	layered := &Decoder{Vocab: 8}
	m := Model{Decoder: read}
	if m.Shipped() != read {
		t.Error("got other layers than were read")
	}
	m.Layered = layered
	if got := m.Shipped(); got.Vocab != 8 {
		t.Errorf("got %+v, want the layers of every kind", got)
	}
}

// TestOtherMixers: keys of other attention count unless they are null or false.
func TestOtherMixers(t *testing.T) {
	for _, c := range []struct {
		values map[string]any
		want   bool
	}{
		{nil, false}, {map[string]any{"hidden_size": 1}, false}, {map[string]any{"mamba_d_state": 16}, true},
		{map[string]any{"mamba_d_state": nil}, false}, {map[string]any{"index_topk": false}, false}, {map[string]any{"index_topk": true}, true},
		{map[string]any{"my_mamba_d": 1}, false}, {map[string]any{"mamba_d_state": nil, "conv_L_cache": 3}, true},
	} {
		x := hfConfig{values: c.values}
		if got := x.hasOtherMixers(); got != c.want {
			t.Errorf("%v: got %v, want %v", c.values, got, c.want)
		}
	}
}

// TestKVUnits: a model of six full layers, three of a window of 100 tokens and three recurrent has two full groups
// where a group has three layers.
func TestKVUnits(t *testing.T) {
	if got := (&Model{}).KVUnits(Parallel{TP: 1}, 48); got.Block != 48 || got.Blocks != 1 || got.Side(5000) != 0 {
		t.Errorf("alike: got %+v", got)
	}
	full := Mixer{Kind: GQA, Heads: 4, KVHeads: 2, DimK: 64, DimV: 64}
	window := full
	window.Window = 100
	var d Decoder
	d.Hidden, d.Vocab, d.KVBytes, d.DTypeBytes = 256, 1000, 2, 2
	for range 3 {
		d.Layers = append(d.Layers, Layer{Mixer: &full}, Layer{Mixer: &full}, Layer{Mixer: &window})
	}
	u := (&Model{Layered: &d}).KVUnits(Parallel{TP: 1}, 16)
	if u.Block != 16 || u.Blocks != 2 {
		t.Errorf("got %+v, want units of two blocks of 16 tokens", u)
	}
	// A window of 100 holds at most 100 tokens with the one under way: 7 blocks and one more, which are 4 units.
	for n, want := range map[int64]int64{16: 1, 17: 2, 32: 2, 33: 2, 49: 3, 96: 4, 100: 4, 5000: 4} {
		if got := u.Side(n); got != want {
			t.Errorf("%d tokens: got %d units aside, want %d", n, got, want)
		}
	}
	d.Layers = []Layer{{Mixer: &window}}
	if u := (&Model{Layered: &d}).KVUnits(Parallel{TP: 1}, 16); u.Blocks != 1 || u.Block < math.MaxInt32 || u.Side(5000) != 8 {
		t.Errorf("windows alone: got %+v", u)
	}
}

// TestLoads: each size with which vLLM does not load a model, and the size beside it with which it does.
func TestLoads(t *testing.T) {
	gqa := func(heads, kv int64) *Decoder {
		return &Decoder{KVBytes: 2, Layers: []Layer{{}, {Mixer: &Mixer{Kind: GQA, Heads: heads, KVHeads: kv}}}}
	}
	of := func(m Mixer) *Decoder { return &Decoder{KVBytes: 2, Layers: []Layer{{Mixer: &m}}} }
	compressed := func(bytes float64) *Decoder {
		d := of(Mixer{Kind: Compressed, Heads: 4, KVHeads: 1})
		d.KVBytes = bytes
		return d
	}
	one := Parallel{TP: 1, PP: 1}
	tp := func(n int64) Parallel { return Parallel{TP: n, PP: 1} }
	for _, c := range []struct {
		d    *Decoder
		p    Parallel
		want string
	}{
		{gqa(8, 4), Parallel{TP: 1, PP: 2}, ""},
		{gqa(8, 4), Parallel{TP: 1, PP: 3}, "pipeline_parallel_size: got 3, want at most 2 layers"},
		{gqa(8, 4), tp(8), ""},
		{gqa(8, 4), tp(3), "tensor_parallel_size: got 3, want a divisor of 8 heads"},
		{gqa(12, 4), tp(2), ""},
		{gqa(12, 4), tp(6), "tensor_parallel_size: got 6, want a divisor or a multiple of 4 KV heads"},
		{of(Mixer{Kind: Mamba1, Heads: 3, KVHeads: 1}), tp(2), ""},
		{of(Mixer{Kind: Mamba2, Heads: 6, StateGroups: 1}), tp(2), ""},
		{of(Mixer{Kind: Mamba2, Heads: 6, StateGroups: 3}), tp(3), ""},
		{of(Mixer{Kind: Mamba2, Heads: 6, StateGroups: 3}), tp(2), "tensor_parallel_size: got 2, want a divisor of 3 groups"},
		{of(Mixer{Kind: Mamba2, Heads: 6, StateGroups: 2}), tp(3), "tensor_parallel_size: got 3, want a divisor of 2 groups"},
		{of(Mixer{Kind: Delta, Heads: 8, KVHeads: 4}), tp(4), ""},
		{of(Mixer{Kind: Delta, Heads: 8, KVHeads: 4}), tp(8), "tensor_parallel_size: got 8, want a divisor of 4 key heads"},
		{compressed(1), one, ""},
		{compressed(1), Parallel{TP: 1, PP: 1, Block: 512}, ""},
		{compressed(1), Parallel{TP: 1, PP: 1, Block: 128}, "block_size: got 128, want a multiple of 256 tokens"},
		{compressed(2), one, ""},
		{compressed(2), Parallel{TP: 1, PP: 1, Block: 256}, "kv_cache_dtype: got 2 bytes a value, want fp8: DeepSeek-V4's attention takes no other"},
		{compressed(2), Parallel{TP: 1, PP: 1, Block: 256, PlainCache: true}, ""},
		{gqa(8, 4), Parallel{TP: 1, PP: 1, Block: 128}, ""},
	} {
		got := ""
		if err := c.d.Loads(c.p); err != nil {
			got, _, _ = strings.Cut(err.Error(), "\n")
		}
		if got != c.want && !(c.want != "" && strings.Contains(got, c.want)) {
			t.Errorf("%+v: got %q, want %q", c.p, got, c.want)
		}
	}
}

// TestAssumedFamily: a family that was given is named in a warning.
func TestAssumedFamily(t *testing.T) {
	config := `{"model_type": "MT", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "dtype": "bfloat16"}`
	for _, c := range [][2]string{{"llama", ""}, {"unheard-of", "llama"}} {
		d, err := ReadDecoder([]byte(strings.Replace(config, "MT", c[0], 1)), nil, "config.json", Options{Assume: c[1]})
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		got := strings.Contains(strings.Join(d.Warnings, "; "), `model_type "unheard-of" is read as llama`)
		if got != (c[1] != "") || len(d.Layers) != 2 {
			t.Errorf("%v: got %q", c, d.Warnings)
		}
		if c[1] == "" && strings.Contains(strings.Join(d.Warnings, "; "), "is read as") {
			t.Errorf("nothing assumed: got %q", d.Warnings)
		}
	}
}
