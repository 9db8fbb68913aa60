package model

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/vllm"
)

// TestPackedPoolByHand: three layers with a window alone, one with entries of 4 tokens and three of 128. An entry has
// 1024 B, so that pages of 256 tokens have 65,536 B, those of the index 64 x 132 B rounded up and those of 128 2048 B.
func TestPackedPoolByHand(t *testing.T) {
	of := func(ratio int64) Layer {
		m := &Mixer{Kind: Compressed, Heads: 4, DimK: 512, DimV: 512, Rope: 64, Window: 100, Ratio: ratio}
		if ratio == 4 {
			m.Index = &Index{Dim: 128, TopK: 512, Heads: 8}
		}
		return Layer{Mixer: m}
	}
	layers := []Layer{of(0), of(128), of(4), of(0), of(128), of(0), of(128), {}}
	for _, c := range []struct {
		name    string
		kv      float64
		release vllm.Release
		tables  [3]int // groups of windows, of entries of 4 and of 128
		layers  [3]int64
		bytes   float64
	}{
		// Without padding where a table has one layer: 65,536 + 8704 + 3 x 2048.
		{"newest", 2, vllm.Release{}, [3]int{7, 1, 3}, [3]int64{1, 1, 1}, 80_384},
		{"0.29", 2, vllm.Release{0, 29}, [3]int{7, 1, 3}, [3]int64{1, 1, 1}, 80_384},
		// Tables of three: three windows' pages are the most.
		{"0.28", 2, vllm.Release{0, 28}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3 * 65_536},
		{"0.27", 2, vllm.Release{0, 27}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3 * 65_536},
		{"0.26", 2, vllm.Release{0, 26}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3*65_536 + 8704 + 3*2048},
		{"0.25", 2, vllm.Release{0, 25}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3*65_536 + 8704 + 3*2048},
		{"0.24", 2, vllm.Release{0, 24}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3*65_536 + 8640 + 3*2048},
		{"0.23", 2, vllm.Release{0, 23}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3*65_536 + 8640 + 3*2048},
		{"0.22", 2, vllm.Release{0, 22}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3 * (65_536 + 8640 + 2048)},
		{"0.20", 2, vllm.Release{0, 20}, [3]int{3, 1, 1}, [3]int64{3, 1, 3}, 3 * (65_536 + 8640 + 2048)},
		// Entries of 584 B, pages of multiples of 576 B.
		{"fp8", 1, vllm.Release{}, [3]int{7, 1, 3}, [3]int64{1, 1, 1}, 37_440 + 8640 + 3*1728},
	} {
		d := &Decoder{Layers: layers, KVBytes: c.kv}
		for _, block := range []int64{16, 256} {
			pool, ok := d.packedPool(layers, Parallel{TP: 1, PP: 1, Release: c.release}, block)
			var groups []KVGroup
			for k, g := range []KVGroup{{Window: 100, Block: 64}, {Window: 8, Block: 4}, {Window: 128, Block: 8}} {
				g.Kind, g.Layers = WindowState, c.layers[k]
				groups = append(groups, slices.Repeat([]KVGroup{g}, c.tables[k])...)
			}
			groups = append(groups, KVGroup{Kind: TokenState, Layers: 4, Block: 256})
			if !ok || !reflect.DeepEqual(pool.Groups, groups) || pool.BlockBytes != c.bytes {
				t.Errorf("%s, blocks of %d: got %+v, %v, want %+v and %g B", c.name, block, pool, ok, groups, c.bytes)
			}
		}
	}
	d := &Decoder{Layers: layers, KVBytes: 2}
	if _, ok := d.packedPool(layers, Parallel{Release: vllm.Release{0, 19}}, 256); ok {
		t.Error("0.19 has a pool")
	}
	if _, ok := (&Decoder{KVBytes: 2}).packedPool([]Layer{of(0)}, Parallel{}, 256); ok {
		t.Error("windows alone have a pool")
	}
}

// TestBlocksOfARequest: a chunk holds what is under way beside it, a window one token less, and both a block more.
func TestBlocksOfARequest(t *testing.T) {
	for _, c := range []struct {
		group    KVGroup
		n, under int64
		want     int64
	}{
		{KVGroup{Block: 16}, 160, 5, 10}, {KVGroup{Block: 16}, 161, 5, 11}, {KVGroup{Kind: RecurrentState, States: 3, Block: 16}, 1000, 5, 3},
		{KVGroup{Block: 16, Window: 33, Chunk: true}, 1000, 15, 3 + 1}, {KVGroup{Block: 16, Window: 33, Chunk: true}, 1000, 16, 4 + 1},
		{KVGroup{Block: 16, Window: 33}, 1000, 16, 3 + 1}, {KVGroup{Block: 16, Window: 33}, 1000, 17, 4 + 1}, {KVGroup{Block: 16, Window: 33}, 16, 17, 1 + 1},
		{KVGroup{Block: 16, Window: 33, Chunk: true}, 16, 17, 1 + 1},
	} {
		if got := (KVPool{Groups: []KVGroup{c.group}}).RequestBlocks(c.n, c.under); got != c.want {
			t.Errorf("%+v: got %d blocks", c, got)
		}
	}
}

// TestWorkOfCompressed: two layers of 4 heads of 512 on two GPUs. A pair has 2 x 4 x 1024 operations, and 2 x 8 x 128 in
// the index; an entry has 1024 B on each GPU and 132 B in the index.
func TestWorkOfCompressed(t *testing.T) {
	m := &Mixer{Kind: Compressed, Heads: 4, DimK: 512, DimV: 512, Rope: 64, Window: 100, Ratio: 4, Index: &Index{Dim: 128, TopK: 512, Heads: 8}}
	var w Work
	w.addMixer(m, 2, 2, 2)
	window := AttentionWork{Reach: Reach{Window: 100}, PrefillFLOPs: 16_384, DecodeFLOPs: 16_384, Bytes: 4096}
	want := []AttentionWork{window, {Reach: Reach{Ratio: 4, TopK: 512}, PrefillFLOPs: 16_384, DecodeFLOPs: 16_384, Bytes: 4096},
		{Reach: Reach{Ratio: 4}, PrefillFLOPs: 4096, DecodeFLOPs: 4096, Bytes: 528}}
	if !reflect.DeepEqual(w.Attention, want) || w.Widths != 2*(4+2+2)*1024 {
		t.Errorf("got %+v with %g values, want %+v", w.Attention, w.Widths, want)
	}
	m.Ratio = 0
	w = Work{}
	if w.addMixer(m, 2, 2, 2); !reflect.DeepEqual(w.Attention, []AttentionWork{window}) {
		t.Errorf("a window alone: got %+v", w.Attention)
	}
}

// TestSharesOfMatrices: the part of a matrix on one of 4 GPUs, and its bytes.
func TestSharesOfMatrices(t *testing.T) {
	p := Parallel{TP: 4, DP: 2}
	experts := p
	experts.Experts, experts.Redundant = true, 2
	for _, c := range []struct {
		p    Parallel
		l    Linear
		kv   int64
		want float64
	}{
		{p, Linear{Placement: Sharded}, 2, 0.25}, {p, Linear{Placement: ShardedIn}, 2, 0.25}, {p, Linear{Placement: KVSharded}, 2, 0.5}, {p, Linear{Placement: KVSharded}, 8, 0.25},
		{p, Linear{Placement: ByExpert, Count: 10}, 1, 0.125}, {experts, Linear{Placement: ByExpert, Count: 10}, 1, 0.2}, {p, Linear{}, 2, 1},
	} {
		if got := c.p.share(&c.l, c.kv); got != c.want {
			t.Errorf("%+v: got %g", c, got)
		}
	}
	plain := Quant{BytesPerWeight: 2}
	in := Linear{Name: "in", Rows: 100, Columns: 10, Count: 1, Placement: Sharded, Quant: plain}
	vocab := in
	for _, name := range []string{embeddingName, headName} {
		vocab.Name = name
		if got := p.BytesPerGPU(&vocab, nil); got != 128*10*2/4 {
			t.Errorf("%s: got %g B, want those of 128 rows", name, got)
		}
	}
	mamba := &Mixer{Kind: Mamba2, StateGroups: 1, StateSize: 16}
	if got := p.BytesPerGPU(&in, mamba); got != (100+2*3*16)*10*2/4 {
		t.Errorf("one group: got %g B", got)
	}
	mamba.StateGroups = 4
	if got := p.BytesPerGPU(&in, mamba); got != 100*10*2/4 {
		t.Errorf("a group for each GPU: got %g B", got)
	}
	if got := p.BytesPerGPU(&in, nil); got != 100*10*2/4 {
		t.Errorf("no mixer: got %g B", got)
	}
}

// TestWordsOfLayers: the sizes of each kind.
func TestWordsOfLayers(t *testing.T) {
	for want, m := range map[string]*Mixer{
		"none": nil, "one matrix": {Kind: LinearOnly}, string(MLA) + " 3 heads, latent 4 + 5": {Kind: MLA, Heads: 3, KVRank: 4, Rope: 5},
		string(Mamba1) + " 3 x 6, state 7": {Kind: Mamba1, Heads: 3, DimV: 6, StateSize: 7}, string(Mamba2) + " 3 x 6, state 7": {Kind: Mamba2, Heads: 3, DimV: 6, StateSize: 7},
		"window 8: 3 heads, 2 kv x 9": {Kind: GQA, Heads: 3, KVHeads: 2, DimK: 9, Window: 8}, "chunk 8: 3 heads, 2 kv x 9": {Kind: GQA, Heads: 3, KVHeads: 2, DimK: 9, Chunk: 8},
		string(GQA) + " 3 heads, 2 kv x 9": {Kind: GQA, Heads: 3, KVHeads: 2, DimK: 9},
	} {
		if got := (&Layer{Mixer: m}).mixerWords(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, f := range map[string]*FFN{
		"none": nil, "one matrix": {Kind: LinearFFN}, "dense 5": {Kind: Dense, Width: 5}, "moe 2 of 8 x 5": {Kind: Experts, TopK: 2, Experts: 8, Width: 5},
		"moe 2 of 8 x 5, shared 6, dense 7 beside, latent 9": {Kind: Experts, TopK: 2, Experts: 8, Width: 5, SharedWidth: 6, BesideWidth: 7, Latent: 9},
	} {
		if got := (&Layer{FFN: f}).ffnWords(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestOrderOfLayers: each entry names one of the kinds.
func TestOrderOfLayers(t *testing.T) {
	for text, want := range map[string]string{
		`{"kinds": [{}, {"ffn": {"kind": "dense", "width": 7}}], "order": [1, 0, 1]}`: "",
		`{"kinds": [{}], "order": [1]}`:                                               "layers.order[0]: got 1, want one of 1 kinds", `{"kinds": [{}], "order": [0, -1]}`: "layers.order[1]: got -1, want one of 1 kinds",
		`{"kinds": [null], "order": [0]}`: "layers.order[0]: got 0, want one of 1 kinds", `{"kinds": [{}], "order": []}`: "layers.order: got 0 layers, want 1 to",
		`{"kinds": [{}], "other": 1}`: "unknown field",
	} {
		var d Decoder
		err := json.Unmarshal([]byte(text), &d)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if want == "" && (len(d.Layers) != 3 || d.Layers[1].FFN != nil || d.Layers[0].FFN.Width != 7 || d.Layers[2].FFN.Width != 7 || d.Kinds != nil || d.Order != nil) {
			t.Errorf("got %+v", d)
		}
	}
}

// TestBytesOfACachedValue: types of a cache and of a checkpoint's scheme.
func TestBytesOfACachedValue(t *testing.T) {
	for name, want := range map[string]float64{"int8": 1, "nvfp4": 0.5625, "fp8": 1, "bfloat16": 2} {
		if got := KVTypeBytes(name); got != want {
			t.Errorf("%s: got %g B, want %g", name, got, want)
		}
	}
	for text, want := range map[string]float64{
		`{"kv_cache_quant_algo": "fp8"}`: 1, `{"kv_cache_quant_algo": "INT8"}`: 1, `{"kv_cache_quant_algo": "NVFP4"}`: 0.5625, `{"kv_cache_scheme": {"num_bits": 4}}`: 0.5,
		`{"kv_cache_scheme": "FP8"}`: 1, `{}`: 0, `{"kv_cache_quant_algo": "FP6"}`: -1,
	} {
		q := &quantizer{c: &hfConfig{}}
		q.readKV(numbersOf(t, text), "q")
		if got := q.kv; (q.c.err != nil) != (want < 0) || want >= 0 && got != want {
			t.Errorf("%s: got %g B, %v, want %g", text, got, q.c.err, want)
		}
	}
}

// numbersOf reads an object with its numbers as they are written.
func numbersOf(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestQuantizedGroups: bits, activations, the size of a group and the bytes of its scale.
func TestQuantizedGroups(t *testing.T) {
	for text, want := range map[string]*scheme{
		`{"weights": {"num_bits": 4, "type": "int", "group_size": 128}}`:                                       {Algorithm: "int4", Bits: 4, Act: 16, Scale: 2, Group: 128},
		`{"weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": false}}`:                   {Algorithm: "int4", Bits: 4, Act: 16, Scale: 2.5, Group: 128},
		`{"weights": {"num_bits": 8, "type": "int", "symmetric": true}, "input_activations": {"num_bits": 8}}`: {Algorithm: "int8", Bits: 8, Act: 8, Scale: 2, Group: -1},
		`{"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}`:                  {Algorithm: "fp8", Bits: 8, Act: 8, Scale: 1, Group: 0},
		`{"weights": {"num_bits": 8, "type": "float", "group_size": 32}}`:                                      {Algorithm: "fp8", Bits: 8, Act: 16, Scale: 1, Group: 32},
		`{"weights": {"num_bits": 4, "type": "float"}}`:                                                        {Algorithm: "fp4", Bits: 4, Act: 16, Scale: 1, Group: -1},
		`{"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 64]}}`:     {Algorithm: "fp8", Bits: 8, Act: 16, Scale: 4, Group: 8192, Block: [2]int64{128, 64}},
		`{"weights": {"num_bits": 2, "type": "int"}}`:                                                          {Algorithm: "int2", Bits: 2, Act: 16, Scale: 2, Group: -1},
		`{"weights": {"num_bits": 1, "type": "int"}}`:                                                          nil, `{"weights": {"num_bits": 9, "type": "int"}}`: nil, `{"weights": {}}`: nil,
	} {
		q := &quantizer{c: &hfConfig{}}
		if got := q.readGroup(numbersOf(t, text), "q"); !reflect.DeepEqual(got, want) || (q.c.err != nil) != (want == nil) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, q.c.err, want)
		}
	}
	q := &quantizer{c: &hfConfig{}}
	q.readGroup(numbersOf(t, `{"weights": {"num_bits": 4, "type": "int", "strategy": "group"}}`), "q")
	if q.c.err == nil || !strings.Contains(q.c.err.Error(), "want the weights of a group") {
		t.Errorf("a group without its size: got %v", q.c.err)
	}
}

// TestPatternOfExperts: the layers with experts of six.
func TestPatternOfExperts(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "111111", `{"first_k_dense_replace": 2}`: "001111", `{"moe_layer_freq": 2}`: "101010", `{"decoder_sparse_step": 2}`: "010101",
		`{"interleave_moe_layer_step": 3, "first_k_dense_replace": 3}`: "000001", `{"mlp_only_layers": [0, 4, 9]}`: "011101", `{"moe_layer_end_index": 3}`: "111100",
		`{"moe_layer_freq": [0, 1, 2, true, false, 1]}`: "011101", `{"moe_layer_freq": 0}`: "!", `{"moe_layer_freq": [1]}`: "!", `{"moe_layer_freq": [1, 1, 1, 1, 1, "x"]}`: "!",
		`{"mlp_only_layers": [-1]}`: "!", `{"mlp_only_layers": ["x"]}`: "!",
	} {
		c := &hfConfig{values: numbersOf(t, text)}
		has := make([]bool, 6)
		c.moePattern(has)
		got := ""
		for _, h := range has {
			got += map[bool]string{false: "0", true: "1"}[h]
		}
		if c.err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, c.err, want)
		}
	}
}

// TestLayersThatShareAnIndex of six: those between two that select tokens themselves. Without an offset it is vLLM's, 2.
func TestLayersThatShareAnIndex(t *testing.T) {
	const counts = `"index_n_heads": 2, "index_head_dim": 3, "index_topk": 5`
	for text, want := range map[string]string{
		`{` + counts + `}`: "000000", `{"index_topk_freq": 1, ` + counts + `}`: "000000", `{"index_topk_freq": 2, ` + counts + `}`: "001010",
		`{"index_topk_freq": 3, ` + counts + `}`: "001101", `{"index_topk_freq": 3, "index_skip_topk_offset": 1, ` + counts + `}`: "011011",
		`{"index_topk_freq": 3, "index_topk_pattern": "FSFFSS", ` + counts + `}`: "010011", `{"index_topk_freq": 2, "index_topk_pattern": null, ` + counts + `}`: "001010",
		`{"index_topk_freq": 3, "indexer_types": ["full", "shared", "full", "shared"], ` + counts + `}`: "010101",
	} {
		got := ""
		for i := range int64(6) {
			r := &layerReader{hfConfig: &hfConfig{values: numbersOf(t, text)}, i: i}
			x := r.tokenIndex()
			if r.err != nil || x.Heads != 2 || x.Dim != 3 || x.TopK != 5 || x.Unit != 1 {
				t.Fatalf("%s: got %+v, %v", text, x, r.err)
			}
			got += map[bool]string{false: "0", true: "1"}[x.Shared]
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
