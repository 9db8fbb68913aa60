package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/blis-train/blis-train/trace"
)

// configOf is a small Llama with further pairs; a later pair replaces an earlier one.
func configOf(t *testing.T, pairs string) (Model, error) {
	t.Helper()
	values := numbersOf(t, `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,`+
		`"intermediate_size":128,"vocab_size":256,"max_position_embeddings":512,"torch_dtype":"bfloat16"}`)
	for key, v := range numbersOf(t, "{"+pairs+"}") {
		values[key] = v
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return Load(bytes.NewReader(text), "config.json", Options{})
}

// TestRefusedConfigurations: each is named by its key and what is wanted in its place.
func TestRefusedConfigurations(t *testing.T) {
	const searched = `"model_type":"nemotron-nas","architectures":["DeciLMForCausalLM"],`
	for pairs, want := range map[string]string{
		`"model_type":7`:                                      `model_type: got 7, want a text such as llama`,
		`"architectures":["BertForMaskedLM"]`:                 `a model that writes no text, want a decoder that writes text`,
		`"model_type":""`:                                     `model_type: missing, want the family of a text decoder`,
		`"hidden_size":66`:                                    `hidden_size/num_attention_heads: got 66/4, want an integer or an explicit head_dim`,
		`"num_key_value_heads":3`:                             `num_key_value_heads: got 3, want a divisor of 4 heads`,
		`"hidden_size":"64"`:                                  `hidden_size: got "64", want a`,
		`"hidden_size":64.5`:                                  `hidden_size: got 64.5, want a`,
		`"hidden_size":null`:                                  `hidden_size: missing, want a positive integer`,
		`"layer_types":["full_attention","spiral"]`:           `layer_types: got "spiral", want full_attention, sliding_attention, chunked_attention, linear_attention, mamba, attention, moe or mlp`,
		`"layer_types":["full_attention","linear_attention"]`: `layer_types: got "linear_attention" for model_type "llama", want attention`,
		searched + `"block_configs":[{"attention":{"n_heads_in_group":0},"ffn":{"ffn_mult":1.5}},{"attention":{"n_heads_in_group":2},"ffn":{"ffn_mult":1.5}}]`: `block_configs[0].attention.n_heads_in_group: got 0, want an integer > 0`,
		searched + `"block_configs":[{"attention":{"n_heads_in_group":2},"ffn":{"ffn_mult":1.5}},{"attention":{"n_heads_in_group":2},"ffn":{"ffn_mult":-1}}]`:  `block_configs[1].ffn.ffn_mult: got -1, want a number > 0`,
		searched + `"block_configs":[{"attention":{"n_heads_in_group":2},"ffn":{}},{}]`:                                                                        `block_configs[0].ffn.ffn_mult: got null, want a number > 0`,
		`"quantization_config":{"quant_method":"gptq","bits":5}`:                                                                                               `quantization_config.bits: got 5, want 2, 3, 4 or 8`,
		`"quantization_config":{"quant_method":"magic"}`:                                                                                                       `quantization_config.quant_method: got "magic", want fp8, fbgemm_fp8, mxfp4`,
		`"quantization_config":{"quant_method":"modelopt","quant_algo":"FP3"}`:                                                                                 `quantization_config.quant_algo: got "FP3", want fp8`,
		`"quantization_config":{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{"model.layers.0.mlp":{"quant_algo":"FP3"}}}`:      `quantization_config.quantized_layers: model.layers.0.mlp: got "FP3", want fp8`,
		`"quantization_config":{"quant_method":"fp8","weight_block_size":[128]}`:                                                                               `quantization_config.weight_block_size: got [128], want two positive integers`,
	} {
		m, err := configOf(t, pairs)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want %q", pairs, m.Decoder, err, want)
			continue
		}
		if e := (*trace.SyntaxError)(nil); !errors.As(err, &e) || e.File != "config.json" || e.Line == 0 || e.Code != BadModel && e.Code != UnsupportedModel {
			t.Errorf("%s: got %+v, want a code and a place", pairs, err)
		}
	}
	for text, want := range map[string]string{
		`[1]`:                      "got one array, want one JSON object",
		`null`:                     "got null, want one JSON object",
		`{"a":1} x`:                "got text behind the JSON object, want nothing",
		"{\"a\":1,\n\"a\":2}":      "a",
		`{"a":`:                    "want one JSON object: ",
		`{"hidden_size":Infinity}`: "model_type: missing",
	} {
		_, err := Load(strings.NewReader(text), "c.json", Options{})
		if e := (*trace.SyntaxError)(nil); err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &e) || e.File != "c.json" {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := Load(strings.NewReader(`{"model_type":"llama"}`), "c.json", Options{QuantConfig: []byte("{")}); err == nil || !strings.Contains(err.Error(), "hf_quant_config.json:1:") {
		t.Errorf("a broken quantization: got %v", err)
	}
	if _, err := Load(iotest.ErrReader(errors.New("torn")), "c.json", Options{}); err == nil || err.Error() != "read c.json: torn" {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	if _, err := ReadDecoderFile(filepath.Join(dir, "config.json"), Options{}); err == nil || trace.CodeOf(err) != MissingConfig {
		t.Errorf("no file: got %v", err)
	}
	config, _ := BuiltInConfig("Qwen/Qwen3-8B")
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := ReadDecoderFile(filepath.Join(dir, "config.json"), Options{}); err != nil || len(d.Layers) != 36 {
		t.Errorf("Qwen3-8B: got %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "hf_quant_config.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadDecoderFile(filepath.Join(dir, "config.json"), Options{}); err == nil || !strings.Contains(err.Error(), "read "+filepath.Join(dir, "hf_quant_config.json")) {
		t.Errorf("a folder as the quantization: got %v", err)
	}
	for name, want := range map[string]string{"a/config.json": "a/hf_quant_config.json", "a/X_config.json": "a/X_hf_quant_config.json", "a/b.json": filepath.Join("a", "hf_quant_config.json")} {
		if got := QuantConfigName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestValuesOfConfigurations: numbers written in other ways, families with keys of their own, and what is not stated.
func TestValuesOfConfigurations(t *testing.T) {
	for name, c := range map[string]struct {
		pairs string
		want  func(m *Model) bool
	}{
		"4.0 heads":        {`"num_attention_heads":4.0,"num_key_value_heads":2e0`, func(m *Model) bool { return m.NumHeads == 4 && m.NumKVHeads == 2 }},
		"no KV heads":      {`"num_key_value_heads":null`, func(m *Model) bool { return m.NumKVHeads == 4 }},
		"falcon":           {`"model_type":"falcon","ffn_hidden_size":256`, func(m *Model) bool { return m.NumKVHeads == 1 }},
		"falcon, all":      {`"model_type":"falcon","multi_query":false,"ffn_hidden_size":256`, func(m *Model) bool { return m.NumKVHeads == 4 }},
		"falcon, new":      {`"model_type":"falcon","new_decoder_architecture":true,"num_kv_heads":2,"ffn_hidden_size":256`, func(m *Model) bool { return m.NumKVHeads == 2 }},
		"falcon, new, all": {`"model_type":"falcon","new_decoder_architecture":true,"ffn_hidden_size":256`, func(m *Model) bool { return m.NumKVHeads == 4 }},
		"searched": {`"model_type":"nemotron-nas","architectures":["DeciLMForCausalLM"],"block_configs":[{"attention":{"n_heads_in_group":4},"ffn":{"ffn_mult":1.5}},{"attention":{"replace_with_linear":true},"ffn":{"replace_with_linear":true}}]`, func(m *Model) bool {
			a, b := &m.Decoder.Layers[0], &m.Decoder.Layers[1]
			return a.Mixer.KVHeads == 1 && a.FFN.Width == 256 && b.Mixer.Kind == LinearOnly && b.FFN.Kind == LinearFFN && b.FFN.Width == 64 && b.FFN.Linears[0].Rows == 64 && b.Mixer.Linears[0].Columns == 64
		}},
		"searched, none": {`"model_type":"nemotron-nas","architectures":["DeciLMForCausalLM"],"block_configs":[{"attention":{"n_heads_in_group":2},"ffn":{"intermediate_size":96}},{"attention":{"no_op":true},"ffn":{"no_op":true}}]`, func(m *Model) bool {
			a, b := &m.Decoder.Layers[0], &m.Decoder.Layers[1]
			return a.Mixer.KVHeads == 2 && a.FFN.Width == 96 && b.Mixer == nil && b.FFN == nil
		}},
		"int4 with zero points": {`"quantization_config":{"quant_method":"awq","bits":4,"group_size":64,"zero_point":true}`, func(m *Model) bool {
			q := m.Decoder.Layers[0].Mixer.Linears[0].Quant
			return math.Abs(q.BytesPerWeight-(0.5+2.5/64)) < 1e-12 && q.ActivationBits == 16
		}},
		"int4 without": {`"quantization_config":{"quant_method":"gptq","bits":4,"group_size":64,"sym":true}`, func(m *Model) bool {
			return math.Abs(m.Decoder.Layers[0].Mixer.Linears[0].Quant.BytesPerWeight-(0.5+2./64)) < 1e-12
		}},
		"int8, unsymmetric": {`"quantization_config":{"quant_method":"gptq","bits":8,"group_size":32,"sym":false}`, func(m *Model) bool {
			return math.Abs(m.Decoder.Layers[0].Mixer.Linears[0].Quant.BytesPerWeight-(1+3./32)) < 1e-12
		}},
		"named layers": {`"quantization_config":{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{"model.layers.0.mlp.down_proj":{"quant_algo":"FP8"}}}`, func(m *Model) bool {
			bytes := func(i int) float64 {
				for _, l := range m.Decoder.Layers[i].FFN.Linears {
					if strings.Contains(l.Name, "down_proj") {
						return l.Quant.BytesPerWeight
					}
				}
				return 0
			}
			return bytes(0) < 1.1 && bytes(1) == 2
		}},
		"float16": {`"torch_dtype":null`, func(m *Model) bool {
			return slices.Contains(m.Decoder.Defaulted, "dtype=bfloat16") && m.Decoder.DTypeBytes == 2
		}},
		"predictors that are no number": {`"num_nextn_predict_layers":null`, func(m *Model) bool {
			return slices.ContainsFunc(m.Decoder.Warnings, func(w string) bool { return strings.Contains(w, "num_nextn_predict_layers: got <nil>, taken for none") })
		}},
	} {
		m, err := configOf(t, c.pairs)
		if err != nil || !c.want(&m) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
	for text, want := range map[string]int64{"7": 7, "7.0": 7, "7e2": 700, "9007199254740992.0": 1 << 53} {
		if got, ok := wholeNumber(numbersOf(t, `{"x":`+text+`}`)["x"]); !ok || got != want {
			t.Errorf("%s: got %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{"7.5", `"7"`, "true", "1e300", "9007199254740994.0"} {
		if got, ok := wholeNumber(numbersOf(t, `{"x":`+text+`}`)["x"]); ok {
			t.Errorf("%s: got %d", text, got)
		}
	}
	if got := showValue(strings.Repeat("x", 100)); got != "a string" {
		t.Errorf("got %s", got)
	}
	if got := showValue(""); got != `Infinity, NaN or ""` {
		t.Errorf("got %s", got)
	}
	for id, want := range map[string]string{"meta-llama/Llama-3.1-8B": "llama", "qwen": "qwen", "x/Meta-Llama-3": "llama"} {
		if got := familyOf(id); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
	assumed, err := Load(strings.NewReader(`{"model_type":"mystery","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":128,"vocab_size":256}`), "c", Options{NumMLPProj: trace.Some[int64](2)})
	if err != nil || assumed.Decoder.Layers[0].FFN.Projections != 2 {
		t.Errorf("an unknown family with two matrices: got %+v, %v", assumed, err)
	}
	two, err := Load(strings.NewReader(`{"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":128,"vocab_size":256}`), "c", Options{NumMLPProj: trace.Some[int64](2)})
	if err != nil || two.Decoder.Layers[0].FFN.Projections != 2 {
		t.Errorf("Llama with two matrices: got %+v, %v", two, err)
	}
}

// TestNamesOfBuiltInModels: in small letters, without publisher and endings, and by their beginning where it fits one shape.
func TestNamesOfBuiltInModels(t *testing.T) {
	for name, want := range map[string]string{"QWEN/QWEN3-8B": "Qwen/Qwen3-8B", "qwen-3-8b": "Qwen/Qwen3-8B", "no-such": "", "qwen": ""} {
		if got, ok := BuiltInID(name); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", name, got, ok)
		}
	}
	chosen := 0
	for _, id := range BuiltInIDs() {
		short := shortName(id)
		for cut := len(short) - 1; cut > 3; cut-- {
			got, ok := BuiltInID(short[:cut])
			if !ok {
				continue
			}
			begun := begunBy(short[:cut])
			others := Alternatives(short[:cut])
			if shortName(got) != shortName(short[:cut]) && len(others) != len(begun)-1 || slices.Contains(others, got) {
				t.Fatalf("%s: got %s and %q of %q", short[:cut], got, others, begun)
			}
			if len(others) > 0 && SameShapeAs(got) != "" && slices.ContainsFunc(others, func(id string) bool { return SameShapeAs(id) == "" }) {
				t.Errorf("%s: got %s with the shape of %s, want one with a shape of its own, of %q", short[:cut], got, SameShapeAs(got), others)
			}
			chosen++
			break
		}
	}
	if chosen < 10 {
		t.Errorf("got %d names by their beginning", chosen)
	}
}

// TestSizesThatVLLMRefuses: parallel sizes at the ends of their ranges, experts that a model does not have.
func TestSizesThatVLLMRefuses(t *testing.T) {
	m, err := LoadBuiltIn(Options{ID: "Qwen/Qwen3-8B"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    Parallel
		want string
	}{
		{Parallel{TP: 1, PP: 1, DP: 1}, ""}, {Parallel{TP: 0, PP: 1, DP: 1}, "tensor_parallel_size: got 0"}, {Parallel{TP: 1, PP: 0, DP: 1}, "pipeline_parallel_size: got 0"}, {Parallel{TP: 1, PP: 1}, "data_parallel_size: got 0"},
		{Parallel{TP: 3, PP: 1, DP: 1}, "tensor_parallel_size: got 3"}, {Parallel{TP: 1, PP: 1, DP: 1, Experts: true}, NoExperts},
	} {
		got, err := m.Decoder.Sizes(c.p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.p, err, c.want)
		}
		if c.want == "" && (got.KV == nil || got.TotalParams != 8190735360 || got.MTPParams != 0 || got.KVBytesPerToken != 2*8*128*2*36 || got.WeightBytes != 2*8190735360 || got.BytesPerKV != 2) {
			t.Errorf("got %+v", got)
		}
	}
	if pool, ok := (&Decoder{}).KVPool(Parallel{TP: 1, PP: 1}, 16); ok || len(pool.Groups) != 0 {
		t.Errorf("no layers: got %+v", pool)
	}
	// A model with windows in one group has blocks of all tokens.
	window := Mixer{Kind: GQA, Heads: 4, KVHeads: 2, DimK: 64, DimV: 64, Window: 100}
	full := window
	full.Window = 0
	d := &Decoder{Layers: []Layer{{Mixer: &window}, {Mixer: &full}}, KVBytes: 2}
	for one, want := range map[bool]int{true: 1, false: 2} {
		pool, ok := d.KVPool(Parallel{TP: 1, PP: 1, OneGroup: one}, 16)
		if !ok || len(pool.Groups) != want || one && (pool.Groups[0].Kind != TokenState || pool.Groups[0].Window != 0 || pool.Groups[0].Layers != 2) {
			t.Errorf("one group %v: got %+v", one, pool)
		}
	}
}

// TestWorkOfSums: heads that differ among layers, tables of each layer, weights of 4 bits, and two kinds of experts.
func TestWorkOfSums(t *testing.T) {
	mixer := func(heads, kv, window int64) *Mixer {
		return &Mixer{Kind: GQA, Heads: heads, KVHeads: kv, DimK: 64, DimV: 64, Window: window}
	}
	d := &Decoder{Vocab: 10, Hidden: 3, KVBytes: 2, Head: Linear{Quant: Quant{BytesPerWeight: 2}}, Layers: []Layer{
		{Mixer: mixer(8, 4, 100), FFN: &FFN{Kind: Experts, Experts: 8, TopK: 2, Linears: []Linear{{Name: "e", Rows: 5, Columns: 7, Count: 8, Active: 2, Placement: ByExpert, Quant: Quant{BytesPerWeight: 0.5, ActivationBits: 4}}}}},
		{Mixer: mixer(8, 2, 0), FFN: &FFN{Kind: Experts, Experts: 8, TopK: 3}},
		{Mixer: mixer(8, 2, 0), FFN: &FFN{Kind: Experts, Experts: 16, TopK: 2}},
	}, PerLayer: []Linear{{Rows: 1000, Columns: 1000, Count: 1}, {Name: "projection", Rows: 11, Columns: 13, Count: 1, Quant: Quant{BytesPerWeight: 2, ActivationBits: 8}}}}
	w := d.Work(Parallel{TP: 1, PP: 1, DP: 1})
	if math.Abs(w.HeadShare-(0.5+0.25+0.25)/3) > 1e-12 || w.Mixers != 3 || w.FFNs != 3 || len(w.Experts) != 3 || w.Experts[0].Layers != 1 || w.Experts[0].Bytes != 5*7*8*0.5 || w.Experts[0].FLOPs != [3]float64{0, 0, 2 * 5 * 7 * 2} {
		t.Errorf("got %+v", w)
	}
	if w.LinearFLOPs != [3]float64{0, 2 * 11 * 13, 140} || w.FixedBytes != 2*11*13 || w.HeadFLOPs != 60 || w.HeadBytes != 60 {
		t.Errorf("got operations %v, %g B, a head of %g and %g", w.LinearFLOPs, w.FixedBytes, w.HeadFLOPs, w.HeadBytes)
	}
	if len(w.Attention) != 2 || w.Attention[0].Reach.Window != 0 || w.Attention[1].Reach.Window != 100 || w.CacheBytes != 2*64*2*(4+2+2) {
		t.Errorf("got %+v, %g B of cache", w.Attention, w.CacheBytes)
	}
	d.Tied = true
	if got := d.TotalParams() - d.ActiveParams(); got != 1_000_000+5*7*6 {
		t.Errorf("got %d parameters that a token does not pass, want the table's and those of six experts", got)
	}
	for want, l := range map[string]Layer{
		"no attention": {}, "no MLP": {Mixer: mixer(4, 4, 0)}, "gated, shared or uneven keys and values": {Mixer: &Mixer{Kind: GQA, Gate: "head"}, FFN: &FFN{}},
		"experts with a latent width, or an MLP beside them": {Mixer: mixer(4, 4, 0), FFN: &FFN{Kind: Experts, BesideWidth: 1}},
		"heads unlike those of earlier layers":               {Mixer: mixer(4, 2, 0), FFN: &FFN{Kind: Dense}},
	} {
		if got := l.notUniform(&Model{NumHeads: 4, NumKVHeads: 4, HeadDim: 64}, true); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for kind, want := range map[MixerKind]int64{Delta: 2*3*5 + 7*11, Mamba2: 7*11 + 2*13*17, Mamba1: 11, GQA: 0} {
		m := &Mixer{Kind: kind, KVHeads: 3, DimK: 5, Heads: 7, DimV: 11, StateGroups: 13, StateSize: 17}
		if got := m.convWidth(); got != want {
			t.Errorf("%s: got %d channels, want %d", kind, got, want)
		}
	}
}

// TestWeightsOfSchemes: bytes of a weight with its share of the scales, in a matrix of 1024 columns; the bits of the
// activations; and the rows and columns that share a scale.
func TestWeightsOfSchemes(t *testing.T) {
	type figures struct {
		bytes float64
		act   int64
		block [2]int64
	}
	want := map[string]figures{
		"FP8": {1, 8, [2]int64{}}, "FP8_PER_CHANNEL_PER_TOKEN": {1 + 4.0/1024, 8, [2]int64{}}, "FP8_PB_WO": {1 + 4.0/(128*128), 8, [2]int64{128, 128}},
		"NVFP4": {0.5 + 1.0/16, 4, [2]int64{1, 16}}, "NVFP4_AWQ": {0.5 + 1.0/16, 4, [2]int64{1, 16}}, "W4A16_NVFP4": {0.5 + 1.0/16, 16, [2]int64{1, 16}}, "W4A8_NVFP4_FP8": {0.5 + 1.0/16, 8, [2]int64{1, 16}},
		"W4A16_AWQ": {0.5 + 2.0/128, 16, [2]int64{1, 128}}, "W4A8_AWQ": {0.5 + 2.0/128, 8, [2]int64{1, 128}},
		"W8A16": {1 + 2.0/1024, 16, [2]int64{}}, "W8A8_SQ_PER_CHANNEL": {1 + 2.0/1024, 8, [2]int64{}},
		"MXFP4": {0.5 + 1.0/32, 16, [2]int64{1, 32}}, "MXFP8": {1 + 1.0/32, 8, [2]int64{1, 32}}, "W4A8_MXFP4_FP8": {0.5 + 1.0/32, 8, [2]int64{1, 32}},
	}
	for name := range schemes {
		q := schemeNamed(name).quant(&Linear{Rows: 512, Columns: 1024})
		if got := (figures{q.BytesPerWeight, q.ActivationBits, q.Block}); got != want[name] || q.Algorithm != strings.ToLower(name) || q.Bits != int64(8*got.bytes) {
			t.Errorf("%s: got %+v", name, q)
		}
	}
	if len(schemes) != len(want) {
		t.Errorf("got %d schemes, want %d", len(schemes), len(want))
	}
}
