package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// ModelOptions is what a deployment says about its model beside config.json.
// Empty strings and unknown options leave the config's word.
type ModelOptions struct {
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

// LoadModel reads a Hugging Face config.json (spec#model-fields). file is the name
// in error messages. Rejections are trace.SyntaxError with their code.
func LoadModel(r io.Reader, file string, opts ModelOptions) (Model, error) {
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
