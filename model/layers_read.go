package model

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// modelFamily is a row of families.yaml: what holds for models of its types beside the keys of config.json.
type modelFamily struct {
	Types     []string          `yaml:"types"`
	Mixer     string            `yaml:"mixer"`
	Linear    MixerKind         `yaml:"linear"`
	Period    int64             `yaml:"period"`
	PeriodKey string            `yaml:"period_key"`
	Norms     int64             `yaml:"norms"`
	Final     int64             `yaml:"final"`
	Proj      int64             `yaml:"proj"`
	QKNorm    string            `yaml:"qk_norm"`
	Biases    string            `yaml:"biases"`
	Attn      string            `yaml:"attn"`
	MLP       string            `yaml:"mlp"`
	MoE       string            `yaml:"moe"`
	Gate      string            `yaml:"gate"`
	Sinks     bool              `yaml:"sinks"`
	HeadGate  bool              `yaml:"headgate"`
	ShareGate bool              `yaml:"sharegate"`
	Corrected bool              `yaml:"corrected"`
	ExpertB   bool              `yaml:"expert_biases"`
	Positions bool              `yaml:"positions"`
	Keys      map[string]string `yaml:"keys"`
	Inner     map[string]any    `yaml:"inner"`
	Defaults  map[string]any    `yaml:"defaults"`
}

//go:generate go test -run TestModelsPageIsGenerated . -update

//go:embed families.yaml
var familyText []byte

var familyRows = sync.OnceValue(func() map[string]*modelFamily {
	var rows []yaml.Node
	if err := yaml.Unmarshal(familyText, &rows); err != nil {
		panic("families.yaml: " + err.Error())
	}
	byType := map[string]*modelFamily{}
	for i := range rows {
		f := newFamily(3)
		if err := rows[i].Decode(f); err != nil {
			panic("families.yaml: " + err.Error())
		}
		for _, name := range f.Types {
			byType[name] = f
		}
	}
	return byType
})

// newFamily is what holds unless a row says otherwise.
func newFamily(projections int64) *modelFamily {
	return &modelFamily{Norms: 2, Final: 1, Proj: projections, Attn: "self_attn", MLP: "mlp", MoE: "mlp"}
}

// layerReader turns the keys of a config.json into layers.
type layerReader struct {
	*hfConfig
	f       *modelFamily
	q       *quantizer
	h       int64
	layers  int64
	i       int64 // the layer being read
	d       *Decoder
	opts    Options
	experts []bool // layers with experts
}

// sizeKey are keys that state a size: null, they are said to be.
var sizeKey = regexp.MustCompile(`(_size|_dim|_rank|_replace|_freq|_step)$|^(n|num)_|experts`)

// one is the entry of a list of equal ones, one for each layer.
func one(v any) any {
	if list, _ := v.([]any); len(list) > 0 && !slices.ContainsFunc(list, func(x any) bool { return !reflect.DeepEqual(x, list[0]) }) {
		return list[0]
	}
	return v
}

// withDefaults names keys as other families do, supplies absent ones by the family's defaults, and returns those and sizes that
// are null, sorted.
func (c *hfConfig) withDefaults(f *modelFamily, inner bool) []string {
	var keys []string
	for from, to := range f.Keys {
		if v := one(c.values[from]); v != nil {
			delete(c.values, from)
			c.values[to] = v
		}
	}
	for key, value := range c.values {
		if value == nil && sizeKey.MatchString(key) {
			keys = append(keys, key+"=null")
		}
	}
	defaults := map[string]any{"tie_word_embeddings": false}
	maps.Copy(defaults, f.Defaults)
	if inner {
		maps.Copy(defaults, f.Inner)
	}
	for key, value := range defaults {
		if _, stated := c.values[key]; stated || value == nil {
			continue
		}
		if n, isInt := value.(int); isInt {
			value = json.Number(fmt.Sprint(n))
		}
		c.values[key] = value
		keys = append(keys, fmt.Sprintf("%s=%v", key, value))
	}
	slices.Sort(keys)
	return keys
}

// decoder reads embedding, layers and head.
func (r *layerReader) decoder() {
	d := r.d
	d.Vocab, d.Hidden = r.need("vocab_size"), r.need("hidden_size", "n_embd", "d_model")
	r.h, r.layers = d.Hidden, r.layerCount()
	d.Tied = r.flag("tie_word_embeddings", false)
	if r.err != nil {
		return
	}
	if n := r.countOr("word_embed_proj_dim"); n > 0 && n != r.h {
		r.fail(UnsupportedModel, "word_embed_proj_dim: got %d, an embedding of another width, want %d", n, r.h)
	}
	d.Embedding = r.matrix(Sharded, d.Vocab, d.Hidden, embeddingName)
	d.Head = r.matrix(Sharded, d.Vocab, d.Hidden, headName)
	d.Small = r.f.Final*r.h + r.hyperParams(1)
	if r.f.Positions { // learned ones, added to the embedding
		d.Small += r.countOr("max_position_embeddings", "n_positions") * r.h
	}
	if p := r.countOr("hidden_size_per_layer_input"); p > 0 { // Gemma's second table: a vector for each layer
		d.PerLayer = []Linear{r.matrix(Sharded, r.need("vocab_size_per_layer_input"), r.layers*p, embeddingName+"_per_layer"),
			r.matrix(Replicated, r.layers*p, r.h, "per_layer_model_projection")}
		d.Small += p
	}
	kinds := r.kinds()
	r.experts = r.expertLayers()
	if r.numExperts() >= 2 && !r.alternates() && !slices.Contains(r.experts, true) && r.values["enable_moe_block"] != false {
		r.fail(BadModel, "num_experts: got %d, but the rules leave 0 of %d layers with experts, want at least 1", r.numExperts(), r.layers)
	}
	for r.i = 0; r.i < r.layers && r.err == nil; r.i++ {
		d.Layers = append(d.Layers, r.layer(kinds[r.i]))
	}
	if r.err == nil {
		r.predictors()
	}
}

// predictors reads the layers of multi-token prediction (DeepSeek-V3's and those made like it): a projection of the hidden state
// beside a token's embedding, norms of both, and a full layer as the last one is, which shares embedding and head.
func (r *layerReader) predictors() {
	keys := []string{"num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"}
	n := r.countOr(keys...)
	kinds := []layerKind{fullLayer}
	for _, key := range keys {
		v, stated := r.values[key]
		if none, isInt := integer(v); n == 0 && stated && (!isInt || none != 0) {
			r.d.Warnings = append(r.d.Warnings, fmt.Sprintf("%s: got %v, taken for none", key, v))
		}
	}
	if r.alternates() {
		kinds = append(kinds, onlyExperts)
	}
	for r.i = r.layers; r.i < r.layers+min(n, maxPredictors) && len(r.experts) > 0; r.i++ {
		r.experts = append(r.experts, r.experts[r.layers-1] && !r.has("moe_layers_enum"))
		if list, key := r.stated(); r.i < int64(len(list)) {
			kinds[0] = r.kindNamed(key, list[r.i])
		}
		for i, kind := range kinds {
			l := r.layer(kind)
			if r.err != nil { // a list without an entry for it: the model itself is read
				r.d.MTP, r.err = nil, nil
				r.d.Warnings = append(r.d.Warnings, predictorsUnread)
				return
			}
			if i == 0 {
				projection := r.matrix(Replicated, r.h, 2*r.h, "eh_proj")
				projection.Quant = r.q.plain
				l.Mixer.Linears = append(l.Mixer.Linears, projection)
				l.Small += 3 * r.h
			}
			r.d.MTP = append(r.d.MTP, l)
		}
	}
}

const (
	maxPredictors    = 16
	predictorsUnread = "the layers of multi-token prediction are not read"
)

// layerCount is the number of layers: as stated, else the length of their list.
func (r *layerReader) layerCount() int64 {
	if list, key := r.stated(); key == "hybrid_override_pattern" || key == "layers_block_type" {
		if n := r.countOr("num_hidden_layers"); n > 0 && n != int64(len(list)) {
			r.fail(BadModel, "%s: got %d entries, want one for each of %d layers", key, len(list), n)
		}
		return int64(len(list))
	}
	n := r.need("num_hidden_layers", "n_layer", "num_layers")
	if n > maxLayers {
		r.fail(BadModel, "num_hidden_layers: got %d, want at most %d", n, maxLayers)
	}
	return n
}

const maxLayers = 10_000

// layer reads one layer whose mixer is of kind.
func (r *layerReader) layer(kind layerKind) Layer {
	var l Layer
	blocks := int64(2)
	if kind != onlyFFN && kind != onlyExperts {
		l.Mixer = r.mixer(kind)
		if e, ok := r.err.(*trace.SyntaxError); ok && (kind != fullLayer && kind != windowLayer || r.has("kv_lora_rank")) {
			e.Code = UnsupportedModel // of a form that we cannot read
		}
	}
	if l.Mixer == nil {
		blocks--
	}
	switch {
	case kind == onlyExperts:
		l.FFN = r.moe()
	case kind == onlyFFN:
		l.FFN = r.dense()
	case !r.alternates():
		l.FFN = r.ffn()
	}
	if l.FFN == nil {
		blocks--
	}
	l.Small = r.f.Norms*r.h*blocks/2 + r.extraParams(l.FFN)
	return l
}

// matrix is a linear group of one matrix; names are its parts in the checkpoint.
func (r *layerReader) matrix(at Placement, rows, columns int64, name string, parts ...string) Linear {
	l := Linear{Name: name, Rows: rows, Columns: columns, Count: 1, Placement: at}
	l.Quant = r.q.of(r.i, &l, parts)
	return l
}

// hyperParams is one hyper-connection of DeepSeek-V4, which mixes hc_mult streams of the hidden size (mixers of the
// streams, their base, and scales); the head has one that only reads.
func (r *layerReader) hyperParams(head int64) int64 {
	m := r.countOr("hc_mult")
	if m == 0 {
		return 0
	}
	if head == 1 {
		return m*m*r.h + m + 1
	}
	mix := (2 + m) * m
	return mix*m*r.h + mix + 3
}

// extraParams is what a layer has beside mixer, ffn and norms.
func (r *layerReader) extraParams(ffn *FFN) int64 {
	n := 2 * r.hyperParams(0)
	if r.countOr("attn_res_block_size") > 0 {
		n += 4 * r.h // Kimi-K3's attention residuals: a query and a norm for each of both blocks
	}
	if r.is("gemma4_text", "gemma4") {
		n++ // the layer's scalar
		if ffn != nil && ffn.Kind == Experts {
			n += 3 * r.h // norms around the experts
		}
		if p := r.countOr("hidden_size_per_layer_input"); p > 0 {
			n += 2*r.h*p + r.h
		}
	}
	return n
}

// layerKind is a layer's mixer before it is read.
type layerKind string

const (
	fullLayer   layerKind = "full_attention"
	windowLayer layerKind = "sliding_attention"
	chunkLayer  layerKind = "chunked_attention"
	linearLayer layerKind = "linear_attention"
	noMixer     layerKind = "no_op"
	oneMatrix   layerKind = "replace_with_linear"
	onlyFFN     layerKind = "mlp"
	onlyExperts layerKind = "moe"
	mambaLayer  layerKind = "mamba"
	attnLayer   layerKind = "attention"
	sparseLayer layerKind = "deepseek_sparse_attention"
)

// alternates says that a layer is a mixer or an ffn, never both.
func (r *layerReader) alternates() bool { return r.is("nemotron_h") }

// kinds reads the kind of every layer.
func (r *layerReader) kinds() []layerKind {
	kinds := make([]layerKind, r.layers)
	if list, key := r.stated(); list != nil {
		if int64(len(list)) < r.layers {
			r.fail(BadModel, "%s: got %d entries, want one for each of %d layers", key, len(list), r.layers)
			return kinds
		}
		for i := range kinds { // entries beyond the layers are of multi-token prediction
			kinds[i] = r.kindNamed(key, list[i])
		}
		return kinds
	}
	rest := r.windowKind()
	for i := range kinds {
		if kinds[i] = fullLayer; !r.isFull(int64(i)) {
			kinds[i] = rest
		}
	}
	return kinds
}

// stated is the list of kinds that the config holds, and its key.
func (r *layerReader) stated() ([]any, string) {
	for _, key := range []string{"layers_block_type", "layer_types", "hybrid_layer_pattern", "attn_type_list", "block_configs",
		"no_rope_layers"} {
		if list, ok := r.values[key].([]any); ok && len(list) > 0 {
			return list, key
		}
	}
	if pattern := r.text("hybrid_override_pattern"); pattern != "" {
		list := make([]any, len(pattern))
		for i, c := range pattern {
			list[i] = string(c)
		}
		return list, "hybrid_override_pattern"
	}
	return nil, ""
}

// kindNamed is the kind that an entry of a list names.
func (r *layerReader) kindNamed(key string, entry any) layerKind {
	if key == "block_configs" {
		block, _ := entry.(map[string]any)
		attention, _ := block["attention"].(map[string]any)
		switch {
		case attention["no_op"] == true:
			return noMixer
		case attention["replace_with_linear"] == true:
			return oneMatrix
		}
		return fullLayer
	}
	name := fmt.Sprint(entry)
	kind, ok := map[string]map[string]layerKind{
		"hybrid_override_pattern": {"M": mambaLayer, "*": fullLayer, "-": onlyFFN, "E": onlyExperts},
		"hybrid_layer_pattern":    {"0": fullLayer, "1": windowLayer},
		"attn_type_list":          {"0": linearLayer, "1": fullLayer},
		"no_rope_layers":          {"0": fullLayer, "1": chunkLayer},
	}[key][name]
	if ok {
		return kind
	}
	switch kind = layerKind(name); kind {
	case attnLayer:
		return fullLayer
	case windowLayer, chunkLayer:
		if r.countOr("sliding_window", "attention_chunk_size") == 0 {
			return fullLayer
		}
		return kind
	case fullLayer, linearLayer, mambaLayer, onlyFFN, onlyExperts:
		return kind
	case sparseLayer, "indexed_attention", "compressed_sparse_attention", "heavily_compressed_attention":
		return fullLayer // its index, or the tokens of an entry, say the rest
	}
	r.fail(UnsupportedModel, "%s: got %q, want full_attention, sliding_attention, chunked_attention, linear_attention, mamba, "+
		"attention, moe or mlp", key, name)
	return fullLayer
}

// windowKind is the kind of the layers that a period leaves: by what the config states.
func (r *layerReader) windowKind() layerKind {
	switch {
	case r.f.Linear != "":
		return linearLayer
	case r.countOr("attention_chunk_size") > 0:
		return chunkLayer
	case r.countOr("sliding_window") > 0 && r.flag("use_sliding_window", true):
		return windowLayer
	}
	return fullLayer
}

// isFull says whether layer i is full attention where no list says so.
func (r *layerReader) isFull(i int64) bool {
	if config, ok := r.values["linear_attn_config"].(map[string]any); ok { // 1-based
		full, _ := config["full_attn_layers"].([]any)
		return slices.Contains(full, any(json.Number(fmt.Sprint(i+1))))
	}
	if period, ok := r.count("attn_layer_period"); ok {
		return i%period == r.layerOr("attn_layer_offset", 0)
	}
	if p := r.text("sliding_window_pattern"); p != "" { // of local and global layers: LLLG
		return p[i%int64(len(p))] == 'G' || i == r.layers-1
	}
	period := r.f.Period
	if n := r.countOr(r.f.PeriodKey, "sliding_window_pattern"); n > 0 {
		period = n
	}
	if first := r.countOr("max_window_layers"); first > 0 {
		return i < first
	}
	return period > 0 && (i+1)%period == 0
}

// ReadDecoderFile reads the config.json of that name and the hf_quant_config.json beside it, when there is one: of that
// name, or named as config.json is (X_config.json, X_hf_quant_config.json).
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

// QuantConfigName is the file beside a config.json that may say how it is quantized.
func QuantConfigName(config string) string {
	if before, ok := strings.CutSuffix(config, "config.json"); ok {
		return before + "hf_quant_config.json"
	}
	return filepath.Join(filepath.Dir(config), "hf_quant_config.json")
}

// ReadDecoder reads a config.json and, when not nil, the hf_quant_config.json beside it as layers. Errors are
// trace.SyntaxErrors with the place of the key and a hint.
func ReadDecoder(config, quant []byte, file string, opts Options) (*Decoder, error) {
	opts.QuantConfig = quant
	m, err := Load(bytes.NewReader(config), file, opts)
	return m.Decoder, err
}

// decoder reads everything but the text itself; nil with an error.
func (c *hfConfig) decoder(raw, side map[string]any, opts Options) *Decoder {
	f := c.family(raw, opts.Assume, opts.NumMLPProj)
	if f == nil {
		return nil
	}
	d := &Decoder{Defaulted: c.withDefaults(f, reflect.ValueOf(c.values).Pointer() != reflect.ValueOf(raw).Pointer())}
	if opts.Assume != "" {
		d.Warnings = append(d.Warnings, fmt.Sprintf("model_type %q is read as %s", c.text("model_type"), opts.Assume))
	}
	if key, _ := c.first("dtype", "torch_dtype"); key == "" { // vLLM's --dtype auto then takes the device's
		c.values["dtype"] = "bfloat16"
		d.defaulted("dtype=bfloat16")
	}
	d.DTypeBytes = c.activationBytes(opts.DType)
	r := &layerReader{hfConfig: c, f: f, d: d, opts: opts, q: c.readQuantizer(side, d.DTypeBytes, opts.Quantization)}
	if c.err == nil {
		r.decoder()
	}
	if c.err != nil {
		return nil
	}
	d.KVBytes = d.DTypeBytes
	if r.q.kv > 0 {
		d.KVBytes = r.q.kv
	}
	if f.Mixer == string(Compressed) {
		d.KVBytes = 1 // fp8_ds_mla
	}
	if name := opts.KVCacheDType; name != "" && name != "auto" {
		d.KVBytes = KVTypeBytes(name)
	}
	c.warnings(r, raw)
	return d
}

// defaulted lists what was taken for an absent key, once.
func (d *Decoder) defaulted(what string) {
	if !slices.Contains(d.Defaulted, what) {
		d.Defaulted = append(d.Defaulted, what)
	}
}

// KVTypeBytes is the bytes of a cached value by --kv-cache-dtype, 0 for a name it does not know.
func KVTypeBytes(name string) float64 {
	return cmp.Or(map[string]float64{"nvfp4": 0.5 + 1.0/16, "int8": 1}[name], DTypeBytes(name))
}

// warnings: what was not stated, and keys nobody has looked at.
func (c *hfConfig) warnings(r *layerReader, raw map[string]any) {
	warn := func(format string, args ...any) { r.d.Warnings = append(r.d.Warnings, fmt.Sprintf(format, args...)) }
	if r.q.def == nil && len(r.q.named) == 0 && quantizedName.MatchString(c.file) {
		warn("the name says quantized, but neither a quantization_config nor an hf_quant_config.json beside it does: weights are taken "+
			"at %g bytes", r.d.DTypeBytes)
	}
	if r.q.modelOpt && !r.q.listed {
		warn("a ModelOpt checkpoint without a list of modules left at 16 bit: all matrices are taken as quantized, but embedding, " +
			"router and head")
	}
	if keys := unknownKeys(c.values); len(keys) > 0 {
		warn("keys that could change a size and are not read: %s", strings.Join(keys, ", "))
	}
	if list := encoders(raw); len(list) > 0 {
		warn("the text decoder alone is counted; not: %s", strings.Join(list, ", "))
	}
	if total := r.d.TotalParams(); total <= 0 || total > maxParams {
		c.fail(BadModel, "hidden_size: the layers add up to %d parameters, want 1 to %d", total, int64(maxParams))
	}
}

const maxParams = 1e15

var quantizedName = regexp.MustCompile(`(?i)[-_](fp8|fp4|nvfp4|mxfp4|int4|int8|awq|gptq|w4a16|w8a8)([^a-z0-9]|$)`)

// notGenerating are architectures that write no text, by the end of their name.
var notGenerating = regexp.MustCompile(`(ForSequenceClassification|ForTokenClassification|ForMaskedLM|ForQuestionAnswering|` +
	`ForImageClassification|ForCTC|EncoderModel)$`)

// encoderType are model types that read and write no text.
var encoderType = regexp.MustCompile(`(?i)bert|electra|mpnet|^clip|siglip|^(vit|swin|dino|deit|beit)`)

// family finds the row of families.yaml that reads this config; nil with an error.
func (c *hfConfig) family(raw map[string]any, assume string, proj trace.Opt[int64]) *modelFamily {
	for _, key := range textConfigs {
		c.object(raw, key)
	}
	class, _ := raw["_class_name"].(string)
	switch {
	case class != "" || raw["_diffusers_version"] != nil:
		c.refused("_class_name", class, "a diffusion model")
	case c.flag("is_encoder_decoder", false):
		c.refused("is_encoder_decoder", "true", "an encoder-decoder")
	}
	list, _ := raw["architectures"].([]any)
	for _, entry := range list {
		if name, _ := entry.(string); notGenerating.MatchString(name) {
			c.refused("architectures", name, "a model that writes no text")
		}
	}
	if _, isText := raw["model_type"].(string); raw["model_type"] != nil && !isText {
		c.fail(BadModel, "model_type: got %s, want a text such as llama", show(raw["model_type"]))
	}
	if c.err != nil {
		return nil
	}
	name := c.text("model_type")
	if assume != "" {
		name = assume
	}
	f, ok := familyRows()[strings.TrimSuffix(name, "_text")]
	switch {
	case ok:
		if proj.OK {
			own := *f
			own.Proj = proj.V
			return &own
		}
		return f
	case proj.OK && name != "" && !c.hasOtherMixers():
		return newFamily(proj.V)
	case encoderType.MatchString(name):
		c.refused("model_type", name, "an encoder")
	case name == "":
		c.fail(BadModel, "model_type: missing, want the family of a text decoder, such as llama or qwen3_moe")
		c.hint("give the config.json of the model itself, as published on Hugging Face")
	default:
		c.fail(UnsupportedModel, "model_type: got %q, want a family that is known%s", name, unreadKeys(c.values))
		c.hint("model.assume: " + nearestFamily(name) + " in run.yaml reads it as that family; or state weight_bytes_per_gpu and " +
			"kv_blocks_total_gpu of the server")
	}
	return nil
}

// hasOtherMixers says that a config has keys of layers that are not attention as llama's.
func (c *hfConfig) hasOtherMixers() bool {
	for key, value := range c.values {
		if value != nil && value != false && otherMixer.MatchString(key) {
			return true
		}
	}
	return false
}

var otherMixer = regexp.MustCompile(`^(attn_layer_|attn_type_list|mamba_|ssm_|hybrid_|full_att|linear_|layer_group_size|state_size|conv_L|` +
	`lru_|block_types|time_step_rank|index_|num_kv_shared|kv_share|sparse_attention|layers_block_type|kv_lora|q_lora|qk_rope)`)

func (c *hfConfig) refused(key, got, what string) {
	c.fail(UnsupportedModel, "%s: got %q, %s, want a decoder that writes text", key, got, what)
	c.hint("give the config.json of a model served for text generation (...ForCausalLM or ...ForConditionalGeneration)")
}

// hint adds what to do to the error, unless it has a hint.
func (c *hfConfig) hint(text string) {
	if e, ok := c.err.(*trace.SyntaxError); ok && e.Hint == "" {
		e.Hint = text
	}
}

func unreadKeys(values map[string]any) string {
	keys := unknownKeys(values)
	if len(keys) == 0 {
		return ""
	}
	return " (keys of its own: " + strings.Join(keys[:min(len(keys), 12)], ", ") + ")"
}

// nearestFamily is the known type that shares the longest beginning.
func nearestFamily(name string) string {
	best, length := "llama", 2
	for _, known := range slices.Sorted(maps.Keys(familyRows())) {
		n := 0
		for n < min(len(known), len(name)) && known[n] == name[n] {
			n++
		}
		if n > length {
			best, length = known, n
		}
	}
	return best
}

// placed gives an error the line and column of the key that its message begins with, and a hint.
func placed(err error, text []byte) error {
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
