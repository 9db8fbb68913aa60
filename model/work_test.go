package model

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// entriesRead returns the cache entries that the token at a position (from 0) reads, by the words of spec#model-reach.
func (r Reach) entriesRead(position int64) (list []int64) {
	tokens := position + 1
	switch {
	case r.Chunk > 0:
		for i := position - position%r.Chunk; i <= position; i++ {
			list = append(list, i)
		}
	case r.Ratio > 0:
		for i := range tokens / r.Ratio {
			list = append(list, i)
		}
	default:
		for i := max(0, tokens-max(r.Window, tokens*boolInt(r.Window == 0))); i < tokens; i++ {
			list = append(list, i)
		}
	}
	if r.TopK > 0 && int64(len(list)) > r.TopK {
		list = list[:r.TopK] // which ones is the index's matter
	}
	return list
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// TestReachCountsEntries compares the pairs of every reach with a count token by token, and the entries read together.
func TestReachCountsEntries(t *testing.T) {
	for _, r := range []Reach{{}, {Window: 4}, {Window: 1}, {Chunk: 5}, {TopK: 3}, {Ratio: 3}, {Ratio: 4, TopK: 2}, {Ratio: 1, TopK: 6}} {
		for c := range int64(20) {
			for n := int64(1); n < 14; n++ {
				pairs := int64(0)
				seen := map[int64]bool{}
				for i := c; i < c+n; i++ {
					read := r.entriesRead(i)
					pairs += int64(len(read))
					for _, e := range read {
						seen[e] = true
					}
				}
				if got := r.Pairs(c, n); got != pairs {
					t.Fatalf("%+v, %d new tokens behind %d: got %d pairs, want %d", r, n, c, got, pairs)
				}
				want := int64(len(seen))
				switch {
				case r.TopK > 0: // each token may choose other entries
					all := c + n
					if r.Ratio > 0 {
						all /= r.Ratio
					}
					want = min(all, r.TopK*n)
				case r.Chunk > 0: // entries of its chunk, and all new ones
					want = min(c+n, c%r.Chunk+n)
				}
				if got := r.Read(c, n); got != want {
					t.Fatalf("%+v, %d new tokens behind %d: got %d entries, want %d", r, n, c, got, want)
				}
			}
		}
	}
	for _, c := range []struct {
		r          Reach
		near       int64
		pairs, all float64
	}{
		{Reach{}, 0, 900, 300}, {Reach{Window: 8}, 8, 80, 7*2 + 10}, {Reach{TopK: 8}, 8, 80, 80}, {Reach{Chunk: 8}, 0, 80, 24}, {Reach{Ratio: 3}, 0, 300, 100}, {Reach{Ratio: 3, TopK: 8}, 0, 80, 80},
		{Reach{Window: 1000}, 1000, 900, 300},
	} {
		if got := c.r.Near(); got != c.near {
			t.Errorf("%+v: got near %d", c.r, got)
		}
		// Two requests of 10 queries and 300 tokens together, whose pairs are 900 under full attention.
		if p, read := c.r.Approximate(2, 10, 900, 300); p != c.pairs || read != c.all {
			t.Errorf("%+v: got %g pairs and %g entries, want %g and %g", c.r, p, read, c.pairs, c.all)
		}
	}
	if !(Reach{}.compare(Reach{Window: 1}) < 0) || !(Reach{Chunk: 2}.compare(Reach{Window: 1}) < 0) || (Reach{TopK: 1}).compare(Reach{TopK: 1}) != 0 {
		t.Error("reaches are ordered by window, chunk, ratio and top-k, the full one first")
	}
	w := Work{Attention: []AttentionWork{{}, {Reach: Reach{Window: 4}}, {Reach: Reach{TopK: 2}}}}
	if got := w.Reaches(); !reflect.DeepEqual(got, []Reach{{Window: 4}, {TopK: 2}}) {
		t.Errorf("got %v", got)
	}
}

// TestWorkOfMixers: the sums of single mixers with 8 heads of 16 and 2 KV heads, on two GPUs, at 2 bytes a value, for 3
// layers. The comment at each case has its arithmetic.
func TestWorkOfMixers(t *testing.T) {
	of := func(m Mixer) (w Work) {
		w.addMixer(&m, 2, 2, 3)
		return w
	}
	for _, c := range []struct {
		name string
		m    Mixer
		want Work
	}{
		{"grouped queries", Mixer{Kind: GQA, Heads: 8, KVHeads: 2, DimK: 16, DimV: 32, Window: 64}, Work{
			// A pair: 2 x 8 x (16 + 32) = 768 FLOP; an entry: 2 x 48 x 2 B = 192 B; widths: (8 + 2 + 2) x 48 = 576.
			Attention: []AttentionWork{{Reach{Window: 64}, 3 * 768, 3 * 768, 3 * 192, 0}}, Widths: 3 * 576}},
		{"one KV head on two GPUs", Mixer{Kind: GQA, Heads: 8, KVHeads: 1, DimK: 16, DimV: 16}, Work{
			// A KV head is copied: 2 x 32 x 2 B = 128 B; widths: (8 + 2 + 2) x 32 = 384.
			Attention: []AttentionWork{{Reach{}, 3 * 512, 3 * 512, 3 * 128, 0}}, Widths: 3 * 384}},
		{"grouped queries with an index", Mixer{Kind: GQA, Heads: 8, KVHeads: 2, DimK: 16, DimV: 16, Index: &Index{TopK: 4, Unit: 16, Heads: 3, Dim: 10}}, Work{
			// Queries read 4 x 16 tokens; the index scores all: 2 x 3 x 10 = 60 FLOP, 2 x 10 x 2 B = 40 B.
			Attention: []AttentionWork{{Reach{TopK: 64}, 3 * 512, 3 * 512, 3 * 128, 0}, {Reach{}, 3 * 60, 3 * 60, 3 * 40, 0}}, Widths: 3 * 384}},
		{"latents", Mixer{Kind: MLA, Heads: 8, KVHeads: 1, DimK: 24, DimV: 16, KVRank: 32, Rope: 8}, Work{
			// Prefill 2 x 8 x 40 = 640; decode 2 x 8 x (32 + 32 + 8) = 1152; 2 x 40 x 2 B = 160 B; keys and values again: 2 x 32 x 8 x (16 + 16) = 16384.
			Attention: []AttentionWork{{Reach{}, 3 * 640, 3 * 1152, 3 * 160, 3 * 16384}}, Widths: 3 * (8*40 + 2*2*40)}},
		{"latents with an index", Mixer{Kind: MLA, Heads: 8, KVHeads: 1, DimK: 24, DimV: 16, KVRank: 32, Rope: 8, Index: &Index{TopK: 7, Heads: 3, Dim: 128, Shared: true}}, Work{
			Attention: []AttentionWork{{Reach{TopK: 7}, 3 * 1152, 3 * 1152, 3 * 160, 0}}, Widths: 3 * (8*40 + 2*2*40)}},
		{"a gated delta rule", Mixer{Kind: Delta, Heads: 8, KVHeads: 8, DimK: 16, DimV: 32}, Work{
			// Decode 6 x 8 x 16 x 32 = 24576; prefill 8 x (4 x 512 + 128 x 48) = 65536.
			StateDecodeFLOPs: 3 * 24576, StatePrefillFLOPs: 3 * 65536, Widths: 3 * 2 * (8*(16+16+32) + 8*32)}},
		{"a scan", Mixer{Kind: Mamba1, Heads: 8, DimV: 32, StateSize: 4}, Work{StateDecodeFLOPs: 3 * 6 * 8 * 4 * 32, StatePrefillFLOPs: 3 * 6 * 8 * 4 * 32}},
	} {
		got := of(c.m)
		if c.m.Kind == Mamba1 {
			got.Widths = 0 // of the convolution, which has a test of its own
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v\nwant %+v", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		f    FFN
		want float64
	}{{FFN{Kind: Dense, Width: 10, Projections: 3}, 30}, {FFN{Kind: Experts, Width: 10, TopK: 2, SharedWidth: 5, BesideWidth: 3, Projections: 2}, 56}, {FFN{Kind: LinearFFN, Width: 10, Projections: 1}, 0}} {
		if got := c.f.Widths(); got != c.want {
			t.Errorf("%+v: got %g, want %g", c.f, got, c.want)
		}
	}
}

// TestWorkOfUniformModel: two layers of hidden 8, 2 heads of 4, 1 KV head, an MLP of 16 and a vocabulary of 100, at 2 bytes
// on one GPU. Matrices: q 64, k and v 32 each, o 64, MLP 3 x 128 = 384, so 576 values a layer.
func TestWorkOfUniformModel(t *testing.T) {
	m := Model{NumLayers: 2, HiddenSize: 8, NumHeads: 2, NumKVHeads: 1, HeadDim: 4, IntermediateSize: 16, VocabSize: 100, NumMLPProj: 3,
		BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2}
	w := m.Layers().Work(Parallel{TP: 1, DP: 1})
	want := Work{Mixers: 2, FFNs: 2, LinearFLOPs: [3]float64{2 * 2 * 576}, FixedBytes: 2 * 2 * 576, HeadFLOPs: 1600, HeadBytes: 1600, HeadShare: 0.5,
		Attention: []AttentionWork{{Reach{}, 2 * 32, 2 * 32, 2 * 16, 0}}, Widths: 2*(2+1+1)*8 + 2*3*16, CacheBytes: 2 * 16}
	if !reflect.DeepEqual(w, want) {
		t.Errorf("got %+v\nwant %+v", w, want)
	}
	if got := m.WeightBytes(); got != 2*2*576+2*2*800 {
		t.Errorf("got %g bytes of weights", got)
	}
	m.NumExperts, m.TopK, m.MoEIntermediateSize, m.NumMoELayers, m.SharedExpertSize = 4, 2, 6, 1, 5
	w = m.Layers().Work(Parallel{TP: 1, DP: 1})
	// An expert has 3 x 6 x 8 = 144 values, the shared one 120, the router 32.
	if e := w.Experts; len(e) != 1 || e[0] != (ExpertWork{Experts: 4, TopK: 2, Layers: 1, Bytes: 4 * 144 * 2, FLOPs: [3]float64{2 * 2 * 144}}) {
		t.Errorf("got %+v", e)
	}
	if w.FixedBytes != 2*(576+192+120+32) || w.LinearFLOPs[0] != 2*(576+192+120+32+288) || w.Widths != 2*4*8+3*16+3*(2*6+5) {
		t.Errorf("got %+v", w)
	}
	m.LinearCompute, m.BytesPerWeight = "fp8", 1
	if w = m.Layers().Work(Parallel{TP: 1, DP: 1}); w.LinearFLOPs[1] == 0 || w.FixedBytes != 576+192+120+2*32 || m.Layers().Layers[0].Mixer.Linears[0].Quant.Algorithm != "fp8" {
		t.Errorf("fp8: got %+v", w)
	}
	m.LinearCompute, m.BytesPerWeight = "native", 0.5
	if q := m.Layers().Layers[0].Mixer.Linears[0].Quant; q.Algorithm != "int4" || q.Bits != 4 || q.ActivationBits != 16 {
		t.Errorf("got %+v", q)
	}
}

// TestModelChecks: dimensions at both ends of their range, models whose sizes are stated, and what is not modelled.
func TestModelChecks(t *testing.T) {
	good := func() Model {
		return Model{ID: "m", NumLayers: 2, HiddenSize: 8, NumHeads: 2, NumKVHeads: 1, HeadDim: 4, IntermediateSize: 16, VocabSize: 100, NumMLPProj: 3, BytesPerParam: 2}
	}
	decoder := func(change func(d *Decoder)) func(m *Model) {
		return func(m *Model) {
			m.Layered = &Decoder{Layers: []Layer{{}}, Hidden: 1, Vocab: 1, KVBytes: 2, DTypeBytes: 2}
			change(m.Layered)
		}
	}
	for name, c := range map[string]struct {
		change func(m *Model)
		want   string
	}{
		"good":         {func(m *Model) {}, ""},
		"largest":      {func(m *Model) { m.HiddenSize = 1 << 30 }, ""},
		"too large":    {func(m *Model) { m.HiddenSize = 1 << 31 }, "model hidden_size: got"},
		"no layers":    {func(m *Model) { m.NumLayers = 0 }, "model num_hidden_layers: got 0, want 1 to"},
		"no bytes":     {func(m *Model) { m.BytesPerParam = 0 }, "model bytes_per_param: got 0, want > 0 B"},
		"experts":      {func(m *Model) { m.NumExperts, m.TopK = 4, 4 }, ""},
		"top 5 of 4":   {func(m *Model) { m.NumExperts, m.TopK = 4, 5 }, "model top_k: got 5, want 1..4 experts"},
		"top 0 of 4":   {func(m *Model) { m.NumExperts = 4 }, "model top_k: got 0"},
		"one expert":   {func(m *Model) { m.NumExperts = 1 }, ""},
		"sizes":        {func(m *Model) { m.NumLayers, m.Sizes = 0, &StatedSizes{} }, ""},
		"layers":       {decoder(func(d *Decoder) {}), ""},
		"none":         {decoder(func(d *Decoder) { d.Layers = nil }), "model layers: got 0 layers"},
		"hidden 0":     {decoder(func(d *Decoder) { d.Hidden = 0 }), "model layers"},
		"vocabulary 0": {decoder(func(d *Decoder) { d.Vocab = 0 }), "model layers"},
		"no KV bytes":  {decoder(func(d *Decoder) { d.KVBytes = 0 }), "model layers"},
		"no dtype":     {decoder(func(d *Decoder) { d.DTypeBytes = math.NaN() }), "model layers"},
	} {
		m := good()
		c.change(&m)
		err := m.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	m := good()
	if m.CheckKnown() != nil || m.NotModelled() != nil || !m.Predicts() {
		t.Error("a model whose layers are known")
	}
	m.Sizes = &StatedSizes{Why: "it is secret"}
	if err := m.CheckKnown(); err == nil || !strings.Contains(err.Error(), "model m: its sizes are stated, its layers are not known (it is secret), want layers") {
		t.Errorf("got %v", err)
	}
	m.Encoders = []string{"vision_config", "audio_config"}
	m.UnknownKeys = strings.Split("abcdefg", "")
	m.Warnings = []trace.Code{architectureAssumed, fullAttentionAssumed}
	var got []string
	for _, f := range m.NotModelled() {
		got = append(got, f.Message)
	}
	if len(got) != 5 || !strings.HasPrefix(got[0], "vision_config, audio_config: ") || !strings.Contains(got[1], "says a, b, c, d, e, f and 1 more,") || !strings.HasPrefix(got[2], "m: it is secret") {
		t.Errorf("got %q", got)
	}
	m.Decoder = &Decoder{Warnings: []string{"a key", formatUnstated + ": weights are taken at 2 bytes", modulesUnlisted}}
	for i, f := range m.NotModelled()[2:4] {
		if want := "m: " + m.Decoder.Warnings[i+1]; f.Message != want {
			t.Errorf("got %q, want %q", f.Message, want)
		}
	}
	m.UnknownKeys = m.UnknownKeys[:6]
	if f := m.NotModelled(); strings.Contains(f[1].Message, "more,") {
		t.Errorf("got %q", f[1].Message)
	}
	for name, want := range map[string]bool{"llama": false, "qwen3_next": true, "mimo_v2_flash": true} {
		d := good()
		d.ModelType, d.Decoder = name, &Decoder{}
		if d.Predicts() != want {
			t.Errorf("%s: got %t", name, d.Predicts())
		}
		d.Decoder.MTP = []Layer{{}}
		if !d.Predicts() {
			t.Errorf("%s with such layers: got false", name)
		}
	}
	refused := RefusedModel(&trace.SyntaxError{File: "config.json", Code: BadModel, Msg: "got no layers", Hint: "add them"})
	if len(refused) != 1 || refused[0].Message != "config.json: got no layers; extract refuses it; add them" {
		t.Errorf("got %+v", refused)
	}
	if other := RefusedModel(os.ErrNotExist); len(other) != 1 || other[0].Code != BadModel || other[0].Message != os.ErrNotExist.Error() {
		t.Errorf("got %+v", other)
	}
	plain := good()
	plain.BLIS = &BLISReading{NumHeads: 3, NumKVHeads: 5, NumExperts: 7, TopK: 9, NumMoELayers: 11, DenseWidth: 13, ExpertWidth: 15, SharedWidth: 17, BytesPerWeight: 19}
	read := plain.AsBLISReads()
	if read.NumHeads != 3 || read.NumKVHeads != 5 || read.NumExperts != 7 || read.TopK != 9 || read.NumMoELayers != 11 || read.IntermediateSize != 13 ||
		read.MoEIntermediateSize != 15 || read.SharedExpertSize != 17 || read.BytesPerWeight != 19 || read.HiddenSize != 8 {
		t.Errorf("got %+v", read)
	}
	plain.BLIS = nil
	if same := plain.AsBLISReads(); !reflect.DeepEqual(same, plain) {
		t.Errorf("got %+v", same)
	}
}

// TestFindConfig: a config.json is found in a folder, and in the cache of Hugging Face's client at a branch and at a commit.
func TestFindConfig(t *testing.T) {
	cache, folder := t.TempDir(), t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	put := func(text string, parts ...string) string {
		path := filepath.Join(parts...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	repository := filepath.Join(cache, "models--org--m")
	put("abc\n", repository, "refs", "main")
	put("def", repository, "refs", "v2")
	put("../../../escape", repository, "refs", "bad")
	main := put("{}", repository, "snapshots", "abc", "config.json")
	second := put("{}", repository, "snapshots", "def", "config.json")
	inFolder := put("{}", folder, "config.json")
	for _, c := range [][3]string{
		{"org/m", "", main}, {"org/m", "main", main}, {"org/m", "v2", second}, {"org/m", "def", second}, {"org/m", "none", ""}, {"org/m", "../x", ""}, {"org/m", "bad", ""},
		{folder, "", inFolder}, {"", "", ""}, {"org/other", "", ""}, {"a/b/c", "", ""}, {"../m", "", ""},
	} {
		if got := FindConfig(c[0], c[1]); got != c[2] {
			t.Errorf("%s at %q: got %q, want %q", c[0], c[1], got, c[2])
		}
	}
	t.Setenv("HF_HUB_CACHE", "")
	t.Setenv("HF_HOME", folder)
	if got := hubFolder(); got != filepath.Join(folder, "hub") {
		t.Errorf("got %s", got)
	}
	t.Setenv("HF_HOME", "")
	t.Setenv("XDG_CACHE_HOME", cache)
	if got := hubFolder(); got != filepath.Join(cache, "huggingface", "hub") {
		t.Errorf("got %s", got)
	}
}

// TestBuiltInNames: every built-in model loads, and the hints for names that are not built in.
func TestBuiltInNames(t *testing.T) {
	for name, want := range map[string]string{
		"meta-llama/Llama-3.1-8X": "meta-llama/Meta-Llama-3.1-8B", "qwne/Qwne3-32B": "Qwen/Qwen3-32B",
	} {
		err := NoSuchModel(name)
		if trace.CodeOf(err) != MissingConfig || !strings.Contains(trace.HintOf(err), want) {
			t.Errorf("%s: got %v, %s", name, err, trace.HintOf(err))
		}
	}
	for id, want := range map[string]string{"meta-llama/Meta-Llama-3.1-8B": "llama", "Qwen/Qwen3-32B": "qwen", "deepseek-ai/DeepSeek-R1": "deepseek"} {
		if got := familyOf(id); got != want {
			t.Errorf("%s: got the family %s", id, got)
		}
	}
	for _, c := range []struct {
		word, family string
		want         bool
	}{{"qwne", "qwen", true}, {"lama", "llama", true}, {"xlama", "llama", false}, {"llma", "llama", true}, {"llava", "llama", false}, {"gema", "gemma", true}, {"gem", "gemma", false}, {"mistrall", "mistral", true}, {"mistralll", "mistral", false}} {
		if got := isMisspelt(c.word, c.family); got != c.want {
			t.Errorf("%s for %s: got %t", c.word, c.family, got)
		}
	}
	if !hasFigures("llama-3.1-8b", "llama-8b-3") || hasFigures("llama-3.1-8b", "llama-70b") {
		t.Error("numbers of a name decide")
	}
	m, err := LoadBuiltIn(Options{ID: "meta-llama/Meta-Llama-3.1-8B"})
	if err != nil || m.NumLayers != 32 || m.HiddenSize != 4096 || m.NumKVHeads != 8 || m.VocabSize != 128256 {
		t.Errorf("got %+v and %v", m, err)
	}
	if config, quant := BuiltInConfig("meta-llama/Meta-Llama-3.1-8B"); len(config) == 0 || quant != nil {
		t.Errorf("got %d bytes and %d", len(config), len(quant))
	}
	ids := BuiltInIDs()
	if !slices.IsSorted(ids) || len(ids) < 30 {
		t.Errorf("got %d ids", len(ids))
	}
	changed := changedKeys([]byte(`{"a": 1, "text_config": {"b": 2, "c": 3}}`), map[string]any{"b": 5})
	if string(changed) != `{"a":1,"text_config":{"b":5,"c":3}}` {
		t.Errorf("got %s", changed)
	}
	if changed = changedKeys([]byte(`{"a": 1, "b": 2}`), map[string]any{"b": 5}); string(changed) != `{"a":1,"b":5}` {
		t.Errorf("got %s", changed)
	}
	if changed = changedKeys([]byte(`{"a":  1}`), nil); string(changed) != `{"a":  1}` {
		t.Errorf("got %s", changed)
	}
}
