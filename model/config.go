package model

// This file reads fields of a Hugging Face config.json, with the place of each mistake.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// Options are settings of a deployment that override config.json. Empty strings and unknown options
// leave the values of config.json.
type Options struct {
	ID                  string
	DType               string           // vLLM's --dtype; "" and auto: the config's
	KVCacheDType        string           // vLLM's --kv-cache-dtype; "" and auto: the activations' width
	Quantization        string           // vLLM's --quantization; fp8 quantises at load
	NumMLPProj          trace.Opt[int64] // for a model_type that spec#model-mlp-projections does not list
	AssumeFullAttention bool             // take windowed attention for full, with a warning
	QuantConfig         []byte           // hf_quant_config.json of the same folder; nil: none
	MambaCacheDType     string           // vLLM's --mamba-cache-dtype, of convolutions and states; "" and auto: the config's
	MambaSSMCacheDType  string           // vLLM's --mamba-ssm-cache-dtype, of states
	Assume              string           // a model_type of families.go to read an unknown model_type as
	MaxModelLen         trace.Opt[int64] // tokens; a window it never exceeds is inactive
}

// Load returns the model that a Hugging Face config.json describes (spec#model-fields). file is the
// name in error messages. Rejections are trace.SyntaxError with their code.
func Load(r io.Reader, file string, opts Options) (Model, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Model{}, fmt.Errorf("read %s: %w", file, err)
	}
	raw, err := decodeJSON(text, file)
	if err != nil {
		return Model{}, withPlace(err, text)
	}
	var side map[string]any
	if opts.QuantConfig != nil {
		if side, err = decodeJSON(opts.QuantConfig, "hf_quant_config.json"); err != nil {
			return Model{}, withPlace(err, opts.QuantConfig)
		}
	}
	c := &hfConfig{file: file, values: textConfig(raw)}
	m := Model{ID: opts.ID, ModelType: c.text("model_type"), Encoders: encoders(raw)}
	if m.Decoder = c.decoder(raw, side, opts); m.Decoder != nil {
		c.describe(&m, m.Decoder, opts)
		m.UnknownKeys = unknownKeys(c.values)
		m.EncoderParams = encoderParams(raw, m.Decoder.Hidden, opts.ID)
	}
	if opts.Assume != "" {
		m.Warnings = append(m.Warnings, architectureAssumed)
	}
	if c.err != nil {
		return Model{}, withPlace(c.err, text)
	}
	m.BLIS = c.blisReading(&m)
	return m, nil
}

// textConfigs are the keys of a multimodal config.json under which the text decoder's config is.
var textConfigs = []string{"thinker_config", "text_config", "llm_config", "language_config"}

// textConfig returns the object of the text decoder (spec#model-text-config): text_config or a
// namesake if there is one, with the outer dtype, family and quantization where it has none; otherwise
// outer itself.
func textConfig(outer map[string]any) map[string]any {
	for _, key := range textConfigs {
		inner, _ := outer[key].(map[string]any)
		if inner == nil {
			continue
		}
		if inner["dtype"] == nil && inner["torch_dtype"] == nil {
			inner["dtype"] = outer["dtype"]
			inner["torch_dtype"] = outer["torch_dtype"]
		}
		if name, _ := outer["model_type"].(string); inner["model_type"] == nil {
			if name = strings.TrimSuffix(name, "_vl"); familyByType()[name] != nil {
				inner["model_type"] = name
			}
		}
		for _, key := range []string{"quantization_config", "tie_word_embeddings"} {
			if v, stated := outer[key]; stated && inner[key] == nil {
				inner[key] = v
			}
		}
		if key == textConfigs[0] { // thinker_config has a text_config in turn
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

// fail records an error, unless there is one already.
func (c *hfConfig) fail(code trace.Code, format string, args ...any) {
	if c.err == nil {
		c.err = &trace.SyntaxError{File: c.file, Code: code, Msg: fmt.Sprintf(format, args...)}
	}
}

// firstKey returns the first key whose value is not null.
func (c *hfConfig) firstKey(keys ...string) (key string, value any) {
	for _, key := range keys {
		if v := c.values[key]; v != nil {
			return key, v
		}
	}
	return "", nil
}

// maxDimension is far above any model's dimensions, and products of two are exact in int64.
const maxDimension = 1 << 30

// has reports whether a key has a value.
func (c *hfConfig) has(key string) bool { return c.values[key] != nil }

// text returns a text; "" if it is absent.
func (c *hfConfig) text(key string) string {
	s, _ := c.values[key].(string)
	return s
}

// flag returns a boolean field, def when it is absent.
func (c *hfConfig) flag(key string, def bool) bool {
	if v, ok := c.values[key].(bool); ok {
		return v
	}
	return def
}

// readCount returns a positive integer under the first non-null key, or ok = false.
func (c *hfConfig) readCount(keys ...string) (n int64, ok bool) {
	key, v := c.firstKey(keys...)
	if v == nil {
		return 0, false
	}
	n, isInt := wholeNumber(v)
	if !isInt || n <= 0 || n > maxDimension {
		c.fail(BadModel, "%s: got %s, want an integer from 1 to %d", key, showValue(v), maxDimension)
		return 0, false
	}
	return n, true
}

// unlimited are the fields in which -1 means no limit.
var unlimited = []string{"max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "moe_layer_end_index"}

// countOr returns what readCount does for an optional field: absent, null, 0 and false all give 0,
// and so does -1 in the fields of unlimited.
func (c *hfConfig) countOr(keys ...string) int64 {
	key, v := c.firstKey(keys...)
	if n, isInt := wholeNumber(v); v == nil || v == false || isInt && (n == 0 || n == -1 && slices.Contains(unlimited, key)) {
		return 0
	}
	n, _ := c.readCount(key)
	return n
}

// requireCount returns what readCount does for a required field.
func (c *hfConfig) requireCount(keys ...string) int64 {
	n, ok := c.readCount(keys...)
	if !ok {
		also := ""
		if len(keys) > 1 {
			also = " (also read as " + trace.OneOf(keys[1:]) + ")"
		}
		c.fail(BadModel, "%s: missing, want a positive integer%s", keys[0], also)
	}
	return n
}

// layerOr returns a non-negative integer field, def when it is absent.
func (c *hfConfig) layerOr(key string, def int64) int64 {
	v := c.values[key]
	if v == nil {
		return def
	}
	n, isInt := wholeNumber(v)
	if !isInt || n < 0 || n > maxDimension {
		c.fail(BadModel, "%s: got %s, want an integer from 0 to %d", key, showValue(v), maxDimension)
		return def
	}
	return n
}

// isType reports whether model_type is one of these.
func (c *hfConfig) isType(types ...string) bool { return slices.Contains(types, c.text("model_type")) }

// wholeNumber returns a JSON number that is an integer, also one written as 4096.0.
func wholeNumber(v any) (int64, bool) {
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

// showValue returns a value for an error message, shortened.
func showValue(v any) string {
	if v == "" {
		return `Infinity, NaN or ""`
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > 80 {
		return fmt.Sprintf("a %T", v)
	}
	return string(b)
}

// decodeJSON returns one JSON object; errors have line and column.
func decodeJSON(text []byte, file string) (map[string]any, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	dec := json.NewDecoder(bytes.NewReader(plainJSON(text)))
	dec.UseNumber()
	var values map[string]any
	if err := dec.Decode(&values); err != nil {
		line, col := trace.Position(text, errorOffset(err, dec))
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

// plainJSON returns a text with the words Infinity and NaN, which Python's json writes and Go's
// refuses, replaced by "" padded with spaces to their length, so that places in errors stay right.
// The reader then refuses them if it needs a number.
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
			if &out[0] == &text[0] { // the caller's text is not changed
				out = bytes.Clone(text)
			}
			copy(out[i:], append([]byte(`""`), bytes.Repeat([]byte(" "), len(word)-2)...))
			i += len(word) - 1
		}
	}
	return out
}

var pythonNumber = regexp.MustCompile(`^(-?Infinity|NaN)`)

// errorOffset returns the byte at which decoding failed.
func errorOffset(err error, dec *json.Decoder) int64 {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return syntax.Offset
	}
	return dec.InputOffset()
}

// positions returns the longest sequence as vLLM derives it (vllm/config/model.py:
// _get_and_verify_max_len()): the config's limit, multiplied by the factor of rope scaling unless
// the limit already includes it; 0 when unknown.
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
		if original, ok := wholeNumber(firstOf(rope, "original_max_position_embeddings")); ok && original > 0 {
			n = original
		}
	}
	return trace.Int(math.Trunc(float64(n) * factor))
}

// kvHeads returns the number of KV heads (spec#model-kv-heads); heads where config.json does not
// state it.
func (c *hfConfig) kvHeads(heads int64) int64 {
	switch {
	case c.isType("falcon") && c.flag("new_decoder_architecture", false):
		if n, ok := c.readCount("num_kv_heads"); ok {
			return n
		}
		return heads
	case c.isType("falcon", "gpt_bigcode"):
		if c.flag("multi_query", true) {
			return 1
		}
		return heads
	}
	if n, ok := c.readCount("num_key_value_heads", "num_attention_groups"); ok {
		return n
	}
	return heads
}

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

// activationBytes returns the bytes of an activation: of the dtype in override (vLLM's --dtype),
// else of the config's. With --dtype auto vLLM runs a float32 checkpoint in 16 bits
// (vllm/config/model.py: _resolve_auto_dtype()).
func (c *hfConfig) activationBytes(override string) float64 {
	name := override
	isAuto := name == "" || name == "auto"
	if isAuto {
		key, _ := c.firstKey("dtype", "torch_dtype")
		name = c.text(key)
	}
	bytes := DTypeBytes(name)
	if isAuto && bytes > 2 {
		bytes = 2
	}
	if bytes == 0 {
		c.fail(UnsupportedModel, "dtype: got %q, want float32, float16, bfloat16 or an fp8 name", name)
	}
	return bytes
}

// firstOf returns the first value that is not null, an empty json.Number when there is none.
func firstOf(values map[string]any, keys ...string) any {
	for _, key := range keys {
		if values[key] != nil {
			return values[key]
		}
	}
	return json.Number("")
}

// ReadDecoderFile returns the layers in a config.json, and in the quantization file beside it if
// there is one ([QuantConfigName]).
func ReadDecoderFile(name string, opts Options) (*Decoder, error) {
	config, err := files.Read(name, MaxFileSize, false)
	if err != nil {
		return nil, trace.Errorf(MissingConfig, "read %s: %v", name, err).WithHint("give the model's Hugging Face config.json")
	}
	quant, err := files.Read(QuantConfigName(name), MaxFileSize, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, trace.Errorf(MissingConfig, "read %s: %v", QuantConfigName(name), err).WithHint("mend it, or take it away")
	}
	return ReadDecoder(config, quant, name, opts)
}

// QuantConfigName returns the name of the ModelOpt quantization file that belongs to a config.json,
// in the same folder: hf_quant_config.json, or X_hf_quant_config.json for X_config.json.
func QuantConfigName(config string) string {
	if before, ok := strings.CutSuffix(config, "config.json"); ok {
		return before + "hf_quant_config.json"
	}
	return filepath.Join(filepath.Dir(config), "hf_quant_config.json")
}

// ReadDecoder returns the layers in the text of a config.json and, when not nil, of its
// hf_quant_config.json. Errors are trace.SyntaxErrors with the place of the key and a hint.
func ReadDecoder(config, quant []byte, file string, opts Options) (*Decoder, error) {
	opts.QuantConfig = quant
	m, err := Load(bytes.NewReader(config), file, opts)
	return m.Decoder, err
}

// decoder returns the layers, their quantization and the cache's type; nil with an error in c.err.
func (c *hfConfig) decoder(raw, side map[string]any, opts Options) *Decoder {
	f := c.family(raw, opts.Assume, opts.NumMLPProj)
	if f == nil {
		return nil
	}
	isInner := reflect.ValueOf(c.values).Pointer() != reflect.ValueOf(raw).Pointer() // see textConfig
	d := &Decoder{Defaulted: c.withDefaults(f, isInner)}
	if opts.Assume != "" {
		d.Warnings = append(d.Warnings, fmt.Sprintf("model_type %q is read as %s", c.text("model_type"), opts.Assume))
	}
	if key, _ := c.firstKey("dtype", "torch_dtype"); key == "" { // vLLM's --dtype auto then takes the device's
		c.values["dtype"] = "bfloat16"
		d.defaulted("dtype=bfloat16")
	}
	d.DTypeBytes = c.activationBytes(opts.DType)
	r := &layerReader{hfConfig: c, f: f, d: d, opts: opts, q: c.readQuantizer(side, d.DTypeBytes, opts.Quantization)}
	if c.err == nil {
		r.readDecoder()
	}
	if c.err != nil {
		return nil
	}
	d.KVBytes = d.DTypeBytes
	if r.q.kv > 0 {
		d.KVBytes = r.q.kv
	}
	if f.mixer == Compressed {
		d.KVBytes = 1 // fp8_ds_mla
	}
	if name := opts.KVCacheDType; name != "" && name != "auto" {
		d.KVBytes = KVTypeBytes(name)
	}
	c.warnings(r, raw)
	return d
}

// refused records that a model of another purpose cannot be read.
func (c *hfConfig) refused(key, got, what string) {
	c.fail(UnsupportedModel, "%s: got %q, %s, want a decoder that writes text", key, got, what)
	c.hint("give the config.json of a model served for text generation (...ForCausalLM or ...ForConditionalGeneration)")
}

// hint adds a hint to the recorded error, unless it has one.
func (c *hfConfig) hint(text string) {
	if e, ok := c.err.(*trace.SyntaxError); ok && e.Hint == "" {
		e.Hint = text
	}
}

// withPlace gives an error the line and column of the key that its message begins with, and a hint.
func withPlace(err error, text []byte) error {
	e, ok := err.(*trace.SyntaxError)
	if !ok {
		return err
	}
	if e.Line == 0 {
		e.Line, e.Col = 1, 1
		path := leadingKey.FindString(e.Msg)
		if at := bytes.Index(text, []byte(`"`+path[strings.LastIndexByte(path, '.')+1:]+`"`)); path != "" && at >= 0 {
			e.Line, e.Col = trace.Position(text, int64(at)+1)
		}
	}
	if e.Hint == "" {
		e.Hint = "compare with the config.json that the model's publisher ships"
	}
	return e
}

var leadingKey = regexp.MustCompile(`^[A-Za-z_0-9.]+`)

// MaxFileSize is far above any run.yaml, config.json or hardware.json. A YAML parser takes about 100 times as much
// memory for a file of empty lists.
const MaxFileSize = 4 << 20
