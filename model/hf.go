package model

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Options is what a deployment says about its model beside config.json.
// Empty strings and unknown options leave the config's word.
type Options struct {
	ID                  string
	DType               string           // vLLM's --dtype; "" and auto: the config's
	KVCacheDType        string           // vLLM's --kv-cache-dtype; "" and auto: the activations' width
	Quantization        string           // vLLM's --quantization; fp8 quantises at load
	NumMLPProj          trace.Opt[int64] // for a model_type that spec#model-mlp-projections does not list
	AssumeFullAttention bool             // take windowed attention for full, with a warning
	QuantConfig         []byte           // the hf_quant_config.json beside config.json; nil: none
	MambaCacheDType     string           // vLLM's --mamba-cache-dtype, of convolutions and states; "" and auto: the config's
	MambaSSMCacheDType  string           // vLLM's --mamba-ssm-cache-dtype, of states
	Assume              string           // a family of families.yaml to read an unknown model_type as
	MaxModelLen         trace.Opt[int64] // tokens; a window it never exceeds is inactive
}

// Load reads a Hugging Face config.json (spec#model-fields). file is the name
// in error messages. Rejections are trace.SyntaxError with their code.
func Load(r io.Reader, file string, opts Options) (Model, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Model{}, fmt.Errorf("read %s: %w", file, err)
	}
	raw, err := decodeJSON(text, file)
	if err != nil {
		return Model{}, placed(err, text)
	}
	var side map[string]any
	if opts.QuantConfig != nil {
		if side, err = decodeJSON(opts.QuantConfig, "hf_quant_config.json"); err != nil {
			return Model{}, placed(err, opts.QuantConfig)
		}
	}
	c := &hfConfig{file: file, values: textConfig(raw)}
	m := Model{ID: opts.ID, ModelType: c.text("model_type"), Encoders: encoders(raw)}
	if m.Decoder = c.decoder(raw, side, opts); m.Decoder != nil {
		c.describe(&m, m.Decoder, opts)
		m.UnknownKeys = unknownKeys(c.values)
	}
	if opts.Assume != "" {
		m.Warnings = append(m.Warnings, architectureAssumed)
	}
	if c.err != nil {
		return Model{}, placed(c.err, text)
	}
	m.BLIS = c.blisReading(&m)
	return m, nil
}

// textConfigs are keys of the text decoder's own config, and of what has one.
var textConfigs = []string{"thinker_config", "text_config", "llm_config", "language_config"}

// textConfig replaces the top level by text_config when that is an object
// (spec#model-text-config), keeping the outer dtype and quantisation where the inner has none.
func textConfig(outer map[string]any) map[string]any {
	for _, key := range textConfigs {
		inner, _ := outer[key].(map[string]any)
		if inner == nil {
			continue
		}
		if inner["dtype"] == nil && inner["torch_dtype"] == nil {
			inner["dtype"], inner["torch_dtype"] = outer["dtype"], outer["torch_dtype"]
		}
		for _, key := range []string{"quantization_config", "tie_word_embeddings"} {
			if v, stated := outer[key]; stated && inner[key] == nil {
				inner[key] = v
			}
		}
		if key == textConfigs[0] {
			return textConfig(inner)
		}
		return inner
	}
	return outer
}

// hfConfig reads fields of a decoded config and keeps the first error.
type hfConfig struct {
	file   string
	values map[string]any
	err    error
}

func (c *hfConfig) fail(code trace.Code, format string, args ...any) {
	if c.err == nil {
		c.err = &trace.SyntaxError{File: c.file, Code: code, Msg: fmt.Sprintf(format, args...)}
	}
}

// first returns the first key whose value is not null.
func (c *hfConfig) first(keys ...string) (key string, value any) {
	for _, key := range keys {
		if v := c.values[key]; v != nil {
			return key, v
		}
	}
	return "", nil
}

// maxDimension is far above any model, and products of two stay exact.
const maxDimension = 1 << 30

func (c *hfConfig) has(key string) bool { return c.values[key] != nil }

func (c *hfConfig) text(key string) string {
	s, _ := c.values[key].(string)
	return s
}

// flag returns a boolean field, def when absent.
func (c *hfConfig) flag(key string, def bool) bool {
	if v, ok := c.values[key].(bool); ok {
		return v
	}
	return def
}

// count returns a positive integer under the first non-null key, or ok = false.
func (c *hfConfig) count(keys ...string) (n int64, ok bool) {
	key, v := c.first(keys...)
	if v == nil {
		return 0, false
	}
	n, isInt := integer(v)
	if !isInt || n <= 0 || n > maxDimension {
		c.fail(BadModel, "%s: got %s, want an integer from 1 to %d", key, show(v), maxDimension)
		return 0, false
	}
	return n, true
}

var unlimited = []string{"max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "moe_layer_end_index"}

// countOr is count for a field that may be absent, 0 or false, and a limit or last layer -1: 0.
func (c *hfConfig) countOr(keys ...string) int64 {
	key, v := c.first(keys...)
	if n, isInt := integer(v); v == nil || v == false || isInt && (n == 0 || n == -1 && slices.Contains(unlimited, key)) {
		return 0
	}
	n, _ := c.count(key)
	return n
}

// need is count for a required field.
func (c *hfConfig) need(keys ...string) int64 {
	n, ok := c.count(keys...)
	if !ok {
		also := ""
		if len(keys) > 1 {
			also = " (also read as " + trace.OneOf(keys[1:]) + ")"
		}
		c.fail(BadModel, "%s: missing, want a positive integer%s", keys[0], also)
	}
	return n
}

// layerOr returns a non-negative integer field, def when absent.
func (c *hfConfig) layerOr(key string, def int64) int64 {
	v := c.values[key]
	if v == nil {
		return def
	}
	n, isInt := integer(v)
	if !isInt || n < 0 || n > maxDimension {
		c.fail(BadModel, "%s: got %s, want an integer from 0 to %d", key, show(v), maxDimension)
		return def
	}
	return n
}

func (c *hfConfig) is(types ...string) bool { return slices.Contains(types, c.text("model_type")) }

func integer(v any) (int64, bool) {
	num, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if n, err := num.Int64(); err == nil {
		return n, true
	}
	f, err := num.Float64()
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

func show(v any) string {
	if v == "" {
		return `Infinity, NaN or ""`
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > 80 {
		return fmt.Sprintf("a %T", v)
	}
	return string(b)
}

// decodeJSON reads one JSON object; errors carry line and column.
func decodeJSON(text []byte, file string) (map[string]any, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	dec := json.NewDecoder(bytes.NewReader(plainJSON(text)))
	dec.UseNumber()
	var values map[string]any
	if err := dec.Decode(&values); err != nil {
		line, col := trace.Position(text, offset(err, dec))
		msg := "want one JSON object: " + err.Error()
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			msg = fmt.Sprintf("got one %s, want one JSON object", wrong.Value)
		}
		return nil, &trace.SyntaxError{File: file, Line: line, Col: col, Code: BadModel, Msg: msg}
	}
	if values == nil {
		return nil, &trace.SyntaxError{File: file, Code: BadModel, Msg: "got null, want one JSON object"}
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		line, col := trace.Position(text, dec.InputOffset()+1)
		return nil, &trace.SyntaxError{File: file, Line: line, Col: col, Code: BadModel, Msg: "got text behind the JSON object, want nothing"}
	}
	if e := trace.TwiceKey(plainJSON(text)); e != nil {
		e.File, e.Code = file, BadModel
		return nil, e
	}
	return values, nil
}

// plainJSON replaces the bare words that Python writes for numbers (Infinity, NaN) by empty strings of equal length: no
// size of a model is one of them.
func plainJSON(text []byte) []byte {
	inString := false
	out := text
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == 'I' || c == 'N' || c == '-'):
			word := pythonNumber.Find(text[i:])
			if len(word) == 0 {
				continue
			}
			if &out[0] == &text[0] {
				out = bytes.Clone(text)
			}
			copy(out[i:], append([]byte(`""`), bytes.Repeat([]byte(" "), len(word)-2)...))
			i += len(word) - 1
		}
	}
	return out
}

var pythonNumber = regexp.MustCompile(`^(-?Infinity|NaN)`)

func offset(err error, dec *json.Decoder) int64 {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return syntax.Offset
	}
	return dec.InputOffset()
}

// describe fills the model's fields from its layers: all of them where the layers are alike, full grouped-query attention
// with a dense MLP or experts, which the specifications up to 1.2 read; else the layers themselves are the description.
func (c *hfConfig) describe(m *Model, d *Decoder, opts Options) {
	m.MaxPositionEmbeddings = c.positions()
	size, stated := int64(0), *m
	for i := range d.Layers {
		if x := d.Layers[i].Mixer; x != nil && x.Window+x.Chunk > 0 && (size == 0 || x.Window+x.Chunk < size) {
			size = x.Window + x.Chunk
		}
	}
	longest := opts.MaxModelLen
	if !longest.OK && m.MaxPositionEmbeddings > 0 {
		longest = trace.Some(m.MaxPositionEmbeddings)
	}
	beyond := size > 0 && !(longest.OK && longest.V <= size) // a window that can be active (spec#model-window)
	if why := d.flat(m, beyond && !opts.AssumeFullAttention); why != "" {
		*m, m.Layered = stated, d
		m.summarise()
		return
	}
	if beyond {
		m.Warnings = append(m.Warnings, fullAttentionAssumed)
	}
	if m.NumMoELayers == m.NumLayers { // experts in every layer: a width that nothing has
		m.IntermediateSize = cmp.Or(c.countOr("intermediate_size_mlp"),
			c.countOr("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), m.IntermediateSize)
	}
}

// summarise sets the fields that a model of unlike layers has too.
func (m *Model) summarise() {
	d := m.Layered
	m.NumLayers = int64(len(d.Layers))
	m.HiddenSize = d.Hidden
	m.VocabSize = d.Vocab
	m.Tied = d.Tied
	m.BytesPerActivation = d.DTypeBytes
	m.BytesPerKV = d.KVBytes
}

// flat fills the fields that models of equal layers have; where they cannot say this one it tells why. windows: those of
// its attention can be active.
func (d *Decoder) flat(m *Model, windows bool) (why string) {
	m.NumLayers = int64(len(d.Layers))
	m.HiddenSize = d.Hidden
	m.VocabSize = d.Vocab
	m.Tied = d.Tied
	m.BytesPerActivation = d.DTypeBytes
	m.BytesPerKV = d.KVBytes
	m.BytesPerLMHead = float64(d.Head.Quant.Bits) / 8
	for i := range d.Layers {
		l := &d.Layers[i]
		if why = l.notUniform(m, windows); why != "" {
			return fmt.Sprintf("layer %d: got %s", i, why)
		}
		if l.FFN.Kind == Experts {
			m.NumMoELayers++
		}
		m.NumMLPProj = l.FFN.Projections
		if l.everyLinear(func(x *Linear) { why = cmp.Or(why, m.width(x)) }); why != "" {
			return "quantization: got " + why
		}
	}
	m.IntermediateSize = cmp.Or(m.IntermediateSize, m.MoEIntermediateSize)
	m.BytesPerParam = m.BytesPerWeight
	return ""
}

// width takes the quantization of a matrix, which is that of all but the router, embedding and head.
func (m *Model) width(x *Linear) string {
	b, compute := float64(x.Quant.Bits)/8, "native"
	if x.Quant.ActivationBits == 8 && strings.HasPrefix(x.Quant.Algorithm, "fp8") {
		compute = "fp8"
	}
	switch {
	case x.Placement == Replicated: // the router
		return ""
	case x.Quant.ActivationBits < 8:
		return fmt.Sprintf("activations of %d bit", x.Quant.ActivationBits)
	case m.BytesPerWeight != 0 && (b != m.BytesPerWeight || compute != m.LinearCompute):
		return fmt.Sprintf("%s at %g bytes a weight and others at %g", x.Name, b, m.BytesPerWeight)
	}
	m.BytesPerWeight, m.LinearCompute = b, compute
	return ""
}

// WhyLayered says what the specifications up to 1.2 cannot say of the model, "" where they can.
func (m *Model) WhyLayered() string {
	if m.Layered == nil {
		return ""
	}
	return cmp.Or(m.Layered.flat(&Model{}, true), "layers")
}

// Layers is the model as the list of its layers: the one that features, memory and simulator add up (spec#model-layers).
// Equal layers are made of the fields that say them, without norms and biases.
func (m *Model) Layers() *Decoder {
	if m.Layered != nil {
		return m.Layered
	}
	bits := int64(8 * m.BytesPerWeight)
	q := Quant{BytesPerWeight: m.BytesPerWeight, Bits: bits, ActivationBits: 16}
	plain := Quant{BytesPerWeight: m.BytesPerActivation,
		Bits: int64(8 * m.BytesPerActivation), ActivationBits: 16}
	switch {
	case m.LinearCompute == "fp8":
		q.Algorithm, q.ActivationBits = "fp8", 8
	case m.BytesPerWeight < m.BytesPerActivation:
		q.Algorithm = fmt.Sprintf("int%d", bits)
	}
	h := m.HiddenSize
	queries := m.NumHeads * m.HeadDim
	keys := m.NumKVHeads * m.HeadDim
	matrix := func(name string, rows, columns int64, at Placement, q Quant) Linear {
		return Linear{Name: name, Rows: rows, Columns: columns, Count: 1, Placement: at, Quant: q}
	}
	mlp := func(width int64) []Linear {
		return []Linear{matrix("up_proj", (m.NumMLPProj-1)*width, h, Sharded, q), matrix("down_proj", h, width, ShardedIn, q)}
	}
	l := Layer{Mixer: &Mixer{Kind: GQA, Heads: m.NumHeads, KVHeads: m.NumKVHeads, DimK: m.HeadDim, DimV: m.HeadDim, Linears: []Linear{
		matrix("q_proj", queries, h, Sharded, q), matrix("k_proj", keys, h, KVSharded, q), matrix("v_proj", keys, h, KVSharded, q),
		matrix("o_proj", h, queries, ShardedIn, q)}},
		FFN: &FFN{Kind: Dense, Width: m.IntermediateSize, Projections: m.NumMLPProj, Linears: mlp(m.IntermediateSize)}}
	d := &Decoder{Vocab: m.VocabSize, Hidden: h, Tied: m.Tied, KVBytes: m.BytesPerKV, DTypeBytes: m.BytesPerActivation,
		Embedding: matrix(embeddingName, m.VocabSize, h, Sharded, plain), Head: matrix(headName, m.VocabSize, h, Sharded, plain)}
	d.Head.Quant.BytesPerWeight = m.BytesPerLMHead
	if m.Decoder != nil {
		d.MTP = m.Decoder.MTP
	}
	for range m.NumLayers {
		d.Layers = append(d.Layers, l)
	}
	if m.IsMoE() {
		width := m.MoEIntermediateSize
		f := &FFN{Kind: Experts, Width: width, Projections: m.NumMLPProj, Experts: m.NumExperts, TopK: m.TopK, SharedWidth: m.SharedExpertSize,
			Linears: []Linear{matrix("gate", m.NumExperts, h, Replicated, plain)}}
		for _, x := range mlp(width) {
			x.Name = "experts." + x.Name
			x.Placement = ByExpert
			x.Count = m.NumExperts
			x.Active = m.TopK
			f.Linears = append(f.Linears, x)
		}
		if m.SharedExpertSize > 0 {
			f.Linears = append(f.Linears, mlp(m.SharedExpertSize)...)
		}
		for i := m.NumLayers - min(m.NumMoELayers, m.NumLayers); i < m.NumLayers; i++ {
			d.Layers[i].FFN = f
		}
	}
	return d
}

// notUniform compares a layer with what the fields of earlier ones say, and adds its own; "" when they can say it.
func (l *Layer) notUniform(m *Model, windows bool) string {
	x, f := l.Mixer, l.FFN
	switch {
	case x == nil:
		return "no attention"
	case f == nil || f.Kind == LinearFFN:
		return "no MLP"
	case x.Kind != GQA || x.Index != nil || windows && x.Window+x.Chunk > 0:
		return l.Kind() + " attention"
	case x.Gate != "" || x.KEqV || x.SharesKV || x.DimK != x.DimV:
		return "gated, shared or uneven keys and values"
	case f.Latent > 0 || f.BesideWidth > 0:
		return "experts with a latent width, or an MLP beside them"
	}
	for _, n := range []struct {
		field *int64
		value int64
	}{{&m.NumHeads, x.Heads}, {&m.NumKVHeads, x.KVHeads}, {&m.HeadDim, x.DimK}} {
		if *n.field != 0 && *n.field != n.value {
			return "heads unlike those of earlier layers"
		}
		*n.field = n.value
	}
	width := &m.IntermediateSize
	if f.Kind == Experts {
		width = &m.MoEIntermediateSize
		m.NumExperts = f.Experts
		m.TopK = f.TopK
		m.SharedExpertSize = f.SharedWidth
	}
	if *width != 0 && *width != f.Width {
		return "a width unlike that of earlier layers"
	}
	*width = f.Width
	return ""
}

// positions is the position limit as vLLM derives it: the config's, stretched
// by rope scaling unless the stated limit already is; 0 when unknown.
func (c *hfConfig) positions() int64 {
	n := c.countOr("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
	rope, _ := firstOf(c.values, "rope_scaling", "rope_parameters").(map[string]any)
	kind, _ := firstOf(rope, "rope_type", "type").(string)
	number, _ := firstOf(rope, "factor").(json.Number)
	factor, err := number.Float64()
	if err != nil || !(factor >= 1 && factor <= 1e4) || slices.Contains([]string{"su", "longrope", "llama3", "mrope"}, kind) {
		return n
	}
	if kind == "yarn" {
		if original, ok := integer(firstOf(rope, "original_max_position_embeddings")); ok && original > 0 {
			n = original
		}
	}
	return trace.Int(math.Trunc(float64(n) * factor))
}

// kvHeads is the number of KV heads (spec#model-kv-heads).
func (c *hfConfig) kvHeads(heads int64) int64 {
	switch {
	case c.is("falcon") && c.flag("new_decoder_architecture", false):
		if n, ok := c.count("num_kv_heads"); ok {
			return n
		}
		return heads
	case c.is("falcon", "gpt_bigcode"):
		if c.flag("multi_query", true) {
			return 1
		}
		return heads
	}
	if n, ok := c.count("num_key_value_heads", "num_attention_groups"); ok {
		return n
	}
	return heads
}

// sharedWidth is Is, the total width of the shared experts; 0 counts as none.
func (c *hfConfig) sharedWidth(expertWidth int64) int64 {
	if key, _ := c.first("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size",
		"share_expert_dim"); key != "" {
		return c.layerOr(key, 0)
	}
	key, _ := c.first("n_shared_experts", "num_shared_experts")
	return c.layerOr(key, 0) * expertWidth
}

// moePattern says which layers have experts (spec#model-moe).
func (c *hfConfig) moePattern(has []bool) {
	layers := int64(len(has))
	if pattern, ok := c.values["moe_layer_freq"].([]any); ok {
		c.statedPattern(pattern, has)
		return
	}
	freq := c.layerOr("moe_layer_freq", 1)
	if freq == 0 {
		c.fail(BadModel, "moe_layer_freq: got 0, want a positive integer or a list of %d", layers)
		return
	}
	firstDense := c.layerOr("first_k_dense_replace", 0)
	step := int64(1)
	if key, v := c.first("decoder_sparse_step", "interleave_moe_layer_step"); v != nil {
		step = c.layerOr(key, 1)
	}
	list, _ := c.values["mlp_only_layers"].([]any)
	last := cmp.Or(c.countOr("moe_layer_end_index"), layers)
	for i := firstDense; i < layers && step > 0; i++ {
		has[i] = i%freq == 0 && (i+1)%step == 0 && i <= last
	}
	for _, v := range list {
		i, ok := integer(v)
		if !ok || i < 0 {
			c.fail(BadModel, "mlp_only_layers: got %s, want numbers of layers", show(v))
		} else if i < layers {
			has[i] = false
		}
	}
}

func (c *hfConfig) statedPattern(pattern []any, has []bool) {
	if len(pattern) != len(has) {
		c.fail(BadModel, "moe_layer_freq: got a list of %d, want one entry for each of %d layers", len(pattern), len(has))
		return
	}
	for k, v := range pattern {
		i, ok := integer(v)
		if _, isFlag := v.(bool); !ok && !isFlag {
			c.fail(BadModel, "moe_layer_freq: got %s for layer %d, want 0 or 1", show(v), k)
		}
		has[k] = ok && i != 0 || v == true
	}
}

var fourHiddenMLP = []string{"gpt2", "gptj", "bloom", "falcon", "gpt_bigcode"} // an MLP of 4h unless it says otherwise

// DTypeBytes returns the bytes per value of a dtype name, 0 if unknown (spec#model-dtype).
func DTypeBytes(name string) float64 {
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
		key, _ := c.first("dtype", "torch_dtype")
		name = c.text(key)
	}
	bytes := DTypeBytes(name)
	if bytes == 0 {
		c.fail(UnsupportedModel, "dtype: got %q, want float32, float16, bfloat16 or an fp8 name", name)
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

// encoderKeys are keys of what turns images, video or audio into tokens.
var encoderKeys = []string{"vision_config", "audio_config", "vision_tower", "mm_vision_tower", "audio_encoder_config", "speech_config",
	"image_token_id", "image_token_index", "audio_token_id", "video_token_id", "talker_config", "code2wav_config"}

// knownKeys are keys of config.json that the loader reads, or that change no
// dimension: tokens, training, dropout, the Python class.
var knownKeys = strings.Fields(keyText)

//go:embed hf_keys.txt
var keyText string

// harmlessParts are parts of keys that change no dimension, whatever else is in them.
var harmlessParts = []string{"token_id", "token_index", "dropout", "pdrop", "rope_", "_coef", "loss", "initializer", "quant", "summary_"}

// unknownKeys lists the keys nobody has looked at, sorted. Keys of tokens, dropout,
// rope and quantisation decide no dimension, whatever they are called.
func unknownKeys(values map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		known := values[key] == nil || values[key] == false || slices.Contains(knownKeys, key) || slices.Contains(encoderKeys, key)
		for _, part := range harmlessParts {
			known = known || strings.Contains(key, part)
		}
		if !known {
			out = append(out, key)
		}
	}
	quant, _ := values["quantization_config"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(quant)) {
		name := "quantization_config." + key
		if !slices.Contains(knownKeys, name) && !slices.Contains([]string{"null", "false", "{}", "[]"}, show(quant[key])) {
			out = append(out, name)
		}
	}
	return out
}

// encoders lists what of the outer config tells of images, video or audio, sorted.
func encoders(outer map[string]any) []string {
	return stat.Filter(slices.Sorted(maps.Keys(outer)), func(key string) bool {
		return outer[key] != nil && slices.Contains(encoderKeys, key)
	})
}

// models.gz holds the config.json and hf_quant_config.json of current models, one a line behind its file's name; without weights.
//
//go:embed models.gz
var modelsGzip []byte

// builtIn are the files of models.gz by name, such as Qwen--Qwen3-32B_config.json.
var builtIn = sync.OnceValue(func() map[string][]byte {
	r, err := gzip.NewReader(bytes.NewReader(modelsGzip))
	if err == nil {
		var text []byte
		if text, err = io.ReadAll(r); err == nil {
			out := map[string][]byte{}
			for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
				name, config, _ := bytes.Cut(line, []byte("\t"))
				out[string(name)] = config
			}
			return out
		}
	}
	panic("deploy: models.gz: " + err.Error())
})

const configEnding = "_config.json"

// BuiltInIDs are the built-in models as Hugging Face names them, sorted.
func BuiltInIDs() (ids []string) {
	for name := range builtIn() {
		if model, ok := strings.CutSuffix(name, configEnding); ok && !strings.HasSuffix(name, "_hf_quant"+configEnding) {
			ids = append(ids, strings.Replace(model, "--", "/", 1))
		}
	}
	slices.Sort(ids)
	return ids
}

// BuiltInID is the built-in model of a name: in any case, or the only one of the name without its publisher, "Meta-" and "-Instruct".
func BuiltInID(name string) (id string, ok bool) {
	short := func(id string) string {
		return strings.TrimSuffix(strings.TrimPrefix(Name(id), "meta-"), "-instruct")
	}
	var found []string
	for _, id := range BuiltInIDs() {
		if strings.EqualFold(id, name) {
			return id, true
		}
		if short(id) == short(name) {
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		return "", false
	}
	return found[0], true
}

// BuiltInConfig are the files of a built-in model; quant may be nil.
func BuiltInConfig(id string) (config, quant []byte) {
	name := strings.Replace(id, "/", "--", 1)
	return builtIn()[name+configEnding], builtIn()[name+"_hf_quant"+configEnding]
}

// LoadBuiltIn reads the built-in model of opts.ID.
func LoadBuiltIn(opts Options) (Model, error) {
	config, quant := BuiltInConfig(opts.ID)
	opts.QuantConfig = quant
	return Load(bytes.NewReader(config), opts.ID+configEnding, opts)
}

// NoSuchModel is the error for a name that is no built-in model, with the nearest as hint. Code: config_missing.
func NoSuchModel(name string) error {
	e := trace.Errorf(MissingConfig, "model: got %q, want a built-in model or the path of a config.json", name)
	known := append(BuiltInIDs(), stat.Map(BuiltInIDs(), path.Base)...)
	if near := files.Nearest(name, known); near != "" {
		return e.WithHint("did you mean " + near + "?")
	}
	return e.WithHint("download the model's config.json from Hugging Face and give its path; the built-in ones: blis-train predict")
}

// BLISReading is what BLIS's step time takes a config.json for, where that is not what the layers are: experts in
// layers/(interleave_moe_layer_step+1) layers or else in all of them, widths by its own keys, keys and values by KV heads
// whatever the attention is (inference-sim/inference-sim sim/latency/config.go and trained_physics_model.go at f90a1e3;
// spec#blis-reading).
type BLISReading struct {
	NumHeads       int64   `json:"num_attention_heads"`
	NumKVHeads     int64   `json:"num_key_value_heads"`
	NumExperts     int64   `json:"num_experts"` // 0 when dense
	TopK           int64   `json:"top_k"`
	NumMoELayers   int64   `json:"num_moe_layers"`
	DenseWidth     int64   `json:"intermediate_size"`     // of a dense layer
	ExpertWidth    int64   `json:"moe_intermediate_size"` // of an expert
	SharedWidth    int64   `json:"shared_expert_size"`
	BytesPerWeight float64 `json:"bytes_per_weight"`
}

// blisExperts are the keys BLIS looks for a number of experts in: the first of two and more.
var blisExperts = []string{"num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts", "num_routed_experts"}

// blisReading reads the values of config.json as BLIS does; nil where it finds what the model has.
func (c *hfConfig) blisReading(m *Model) *BLISReading {
	plain := m.plainReading()
	r := BLISReading{NumHeads: c.countOr("num_attention_heads", "n_head"), BytesPerWeight: c.blisWeights(m)}
	r.NumKVHeads = cmp.Or(c.countOr("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), r.NumHeads)
	// Without a width BLIS stops; the catalog that is written beside an export has it.
	r.DenseWidth = cmp.Or(c.countOr("intermediate_size", "ffn_hidden_size"), plain.DenseWidth)
	for _, key := range blisExperts {
		if n := c.countOr(key); n >= 2 && r.NumExperts == 0 {
			r.NumExperts = n
		}
	}
	if r.NumExperts > 0 {
		r.TopK, r.ExpertWidth = c.countOr("num_experts_per_tok"), cmp.Or(c.countOr("moe_intermediate_size"), r.DenseWidth)
		r.SharedWidth = cmp.Or(c.countOr("shared_expert_intermediate_size"), c.countOr("n_shared_experts")*r.ExpertWidth)
		if r.NumMoELayers = m.NumLayers; c.countOr("interleave_moe_layer_step") > 0 {
			r.NumMoELayers = m.NumLayers / (c.countOr("interleave_moe_layer_step") + 1)
		}
		if r.NumMoELayers == m.NumLayers { // it has no dense layer
			r.DenseWidth = plain.DenseWidth
		}
	}
	if n := c.countOr("intermediate_size_mlp"); n > 0 && r.NumMoELayers < m.NumLayers {
		r.DenseWidth = n
	}
	if r == plain {
		return nil
	}
	return &r
}

// plainReading is the model's own fields in the reading's form.
func (m *Model) plainReading() BLISReading {
	r := BLISReading{NumHeads: m.NumHeads, NumKVHeads: m.NumKVHeads, DenseWidth: m.IntermediateSize, BytesPerWeight: m.BytesPerWeight}
	if m.IsMoE() {
		r.NumExperts = m.NumExperts
		r.TopK = m.TopK
		r.NumMoELayers = m.NumMoELayers
		r.ExpertWidth = m.MoEIntermediateSize
		r.SharedWidth = m.SharedExpertSize
	}
	return r
}

// AsBLISReads is the model with the fields that BLIS's step time reads as BLIS reads them.
func (m *Model) AsBLISReads() Model {
	out := *m
	r := m.plainReading()
	if m.BLIS != nil {
		r = *m.BLIS
	}
	out.NumHeads = r.NumHeads
	out.NumKVHeads = r.NumKVHeads
	out.NumExperts = r.NumExperts
	out.TopK = r.TopK
	out.NumMoELayers = r.NumMoELayers
	out.IntermediateSize = r.DenseWidth
	out.MoEIntermediateSize = r.ExpertWidth
	out.SharedExpertSize = r.SharedWidth
	out.BytesPerWeight = r.BytesPerWeight
	return out
}

// blisWeights are the bytes of a weight as BLIS finds them: bits, fp8 and compressed-tensors of quantization_config, else words of
// the model's name, else the width of activations.
func (c *hfConfig) blisWeights(m *Model) float64 {
	q, _ := c.values["quantization_config"].(map[string]any)
	method, _ := q["quant_method"].(string)
	number := func(v any) float64 { f, _ := strconv.ParseFloat(fmt.Sprint(v), 64); return f }
	if bits := number(q["bits"]); bits > 0 {
		return bits / 8
	}
	if strings.EqualFold(method, "fp8") {
		return 1
	}
	if groups, _ := q["config_groups"].(map[string]any); strings.EqualFold(method, "compressed-tensors") {
		for _, key := range slices.Sorted(maps.Keys(groups)) {
			group, _ := groups[key].(map[string]any)
			weights, _ := group["weights"].(map[string]any)
			if bits := number(weights["num_bits"]); bits > 0 {
				return bits / 8
			}
		}
	}
	if s := blisWeightBits.FindStringSubmatch(m.ID); s != nil {
		return number(s[1]) / 8
	}
	if blisFP8Name.MatchString(m.ID) {
		return 1
	}
	return m.BytesPerActivation
}

var (
	blisWeightBits = regexp.MustCompile(`(?i)(?:^|[._/-])w(\d+)a\d+(?:$|[._-])`)
	blisFP8Name    = regexp.MustCompile(`(?i)(?:^|[._/-])fp8(?:$|[._-])`)
)
