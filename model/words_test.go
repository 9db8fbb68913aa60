package model

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestSizesInWords: each size of a layer has a value of its own, and what a layer does not have is not named.
func TestSizesInWords(t *testing.T) {
	gqa := Mixer{Kind: GQA, Heads: 9, KVHeads: 3, DimK: 64, DimV: 64}
	with := func(change func(m *Mixer)) *Mixer {
		m := gqa
		change(&m)
		return &m
	}
	for _, c := range []struct {
		mixer *Mixer
		want  string
	}{
		{nil, "none"},
		{&Mixer{Kind: LinearOnly}, "one matrix"},
		{&gqa, "KIND 9 heads, 3 kv x 64"},
		{with(func(m *Mixer) { m.Window = 1 }), "KIND 1: 9 heads, 3 kv x 64"},
		{with(func(m *Mixer) { m.Chunk = 8 }), "KIND 8: 9 heads, 3 kv x 64"},
		{&Mixer{Kind: MLA, Heads: 9, KVRank: 512, Rope: 32}, "KIND 9 heads, latent 512 + 32"},
		{&Mixer{Kind: Mamba1, Heads: 9, DimV: 7, StateSize: 16}, "KIND 9 x 7, state 16"},
		{&Mixer{Kind: Mamba2, Heads: 9, DimV: 7, StateSize: 16}, "KIND 9 x 7, state 16"},
	} {
		l := &Layer{Mixer: c.mixer}
		want := c.want
		if c.mixer != nil {
			want = strings.ReplaceAll(want, "KIND", fmt.Sprint(l.Kind()))
		}
		if got := l.mixerWords(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, c := range []struct {
		ffn  *FFN
		want string
	}{
		{nil, "none"},
		{&FFN{Kind: LinearFFN}, "one matrix"},
		{&FFN{Kind: Dense, Width: 11}, "dense 11"},
		{&FFN{Kind: Experts, TopK: 2, Experts: 8, Width: 11}, "moe 2 of 8 x 11"},
		{&FFN{Kind: Experts, TopK: 2, Experts: 8, Width: 11, SharedWidth: 1, BesideWidth: 1, Latent: 1}, "moe 2 of 8 x 11, shared 1, dense 1 beside, latent 1"},
	} {
		if got := (&Layer{FFN: c.ffn}).ffnWords(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for text, want := range map[string]string{
		`{"kinds":[{}],"order":[]}`:                  "layers.order: got 0 layers, want 1 to ",
		`{"kinds":[{}],"order":[0,1]}`:               "layers.order[1]: got 1, want one of 1 kinds",
		`{"kinds":[{}],"order":[-1]}`:                "layers.order[0]: got -1, want one of 1 kinds",
		`{"kinds":[null],"order":[0]}`:               "layers.order[0]: got 0, want one of 1 kinds",
		`{"kinds":[{}],"order":[0],"colour":"blue"}`: `unknown field "colour"`,
		`{"kinds":[{}],"order":[0,0]}`:               "",
	} {
		var d Decoder
		err := json.Unmarshal([]byte(text), &d)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && (len(d.Layers) != 2 || d.Kinds != nil || d.Order != nil) {
			t.Errorf("%s: got %+v, %v, want %q", text, d, err, want)
		}
	}
}

// TestWeightsOfGroups: bytes of a scale and of a zero point by the description of a compressed checkpoint.
func TestWeightsOfGroups(t *testing.T) {
	read := func(weights string) Quant {
		t.Helper()
		d, err := ReadDecoder([]byte(llamaWith(`"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],"weights":{`+weights+`}}}}`)), nil, "config.json", Options{})
		if err != nil {
			t.Fatal(weights, err)
		}
		return d.Layers[0].FFN.Linears[0].Quant
	}
	near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
	for _, c := range []struct {
		weights string
		bytes   float64 // of a weight, with its scale
	}{
		{`"num_bits":4,"type":"int","group_size":128`, 0.5 + 2.0/128},
		{`"num_bits":4,"type":"int","group_size":64,"symmetric":true`, 0.5 + 2.0/64},
		{`"num_bits":4,"type":"int","group_size":64,"symmetric":false`, 0.5 + 2.5/64},
		{`"num_bits":4,"type":"float","group_size":16`, 0.5 + 1.0/16},
		{`"num_bits":8,"type":"float"`, 1},
		{`"num_bits":8,"type":"float","block_structure":[128,64]`, 1 + 4.0/(128*64)},
		{`"num_bits":8,"type":"float","block_structure":[128]`, 1},
		{`"num_bits":8,"type":"float","block_structure":"x"`, 1},
	} {
		if got := read(c.weights); !near(got.BytesPerWeight, c.bytes) {
			t.Errorf("%s: got %g bytes a weight (%+v), want %g", c.weights, got.BytesPerWeight, got, c.bytes)
		}
	}
	_, err := ReadDecoder([]byte(llamaWith(`"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group"}}}}`)), nil, "config.json", Options{})
	if err == nil || !strings.Contains(err.Error(), `weights.group_size: got null, want the weights of a group, as strategy "group" has them`) {
		t.Errorf("got %v", err)
	}
}

// TestNearestOfAGeneration: the built-in model with the nearest name is the first that is named.
func TestNearestOfAGeneration(t *testing.T) {
	for _, id := range BuiltInIDs() {
		short := shortName(id)
		near := ofGeneration(short + "x")
		if len(near) > 1 && !quantized.MatchString(short) && shortName(near[0]) != short {
			t.Errorf("%sx: got %v, want %s first", short, near, id)
		}
		if len(near) > 3 {
			t.Errorf("%s: got %d names", id, len(near))
		}
	}
	for _, name := range []string{"gemma", "gemma-3", "gemma-x-1b", ""} {
		if got := ofGeneration(name); got != nil {
			t.Errorf("%q: got %v", name, got)
		}
	}
}

// TestBlocksOfRequests: 16 tokens a block: all tokens, a window of 100, a chunk of 64 and three states of a request.
func TestBlocksOfRequests(t *testing.T) {
	pool := KVPool{Groups: []KVGroup{{Kind: TokenState, Block: 16}, {Kind: WindowState, Window: 100, Block: 16}, {Kind: WindowState, Window: 64, Chunk: true, Block: 16}, {Kind: RecurrentState, States: 3, Block: 64}}}
	for n, want := range map[int64]int64{200: 13 + 8 + 6 + 3, 10: 1 + 2 + 2 + 3, 64: 4 + 5 + 5 + 3, 65: 5 + 6 + 6 + 3} {
		if got := pool.RequestBlocks(n, 1); got != want {
			t.Errorf("%d tokens: got %d blocks, want %d", n, got, want)
		}
	}
	for _, c := range []struct {
		maxLen  int64
		version string
		want    int64
	}{{200, "0.19.1", 62 * 4}, {200, "0.20.0", (1000*30 + 199) / 200}, {200, "", (1000*30 + 199) / 200}, {0, "0.20.0", 62 * 4}} {
		if got := pool.BlocksOf(1000, c.maxLen, 1, c.version); got != c.want {
			t.Errorf("sequences up to %d of vLLM %q: got %d blocks, want %d", c.maxLen, c.version, got, c.want)
		}
	}
	if got := (KVPool{BlockBytes: 10}).Blocks(99); got != 9 {
		t.Errorf("got %d blocks in 99 bytes", got)
	}
	one := Parallel{TP: 1, PP: 1, DP: 1}
	if u := (&Model{Layered: &Decoder{Layers: []Layer{{FFN: &FFN{Kind: Dense, Width: 8}}}}}).KVUnits(one, 16); u.Block != 16 || u.Blocks != 1 {
		t.Errorf("nothing is kept: got %+v", u)
	}
	if u := (&Model{}).KVUnits(one, 32); u.Block != 32 || u.Blocks != 1 || u.Side(1000) != 0 {
		t.Errorf("layers alike: got %+v", u)
	}
	u := KVUnits{Block: 16, Blocks: 3, rest: KVPool{Groups: pool.Groups[1:2]}}
	if got := u.Side(200); got != 3 { // eight blocks of a window in units of three
		t.Errorf("got %d units", got)
	}
}

// TestDefaultsOfClasses: sizes that configurations have: heads in powers of two, widths in multiples of 64, and no odd number of
// experts a token above one.
func TestDefaultsOfClasses(t *testing.T) {
	for class, values := range classDefaults {
		for key, v := range values {
			n, ok := v.(int)
			good := true
			switch key {
			case "num_key_value_heads":
				good = ok && n > 0 && n&(n-1) == 0
			case "head_dim":
				good = ok && n > 0 && n%64 == 0
			case "num_experts_per_tok":
				good = ok && (n == 1 || n > 0 && n%2 == 0)
			}
			if !good {
				t.Errorf("%s: %s: got %v", class, key, v)
			}
		}
	}
}
