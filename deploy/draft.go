package deploy

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

//go:embed keys.yaml
var keysYAML []byte

// runKeys are those of run.yaml as flags and logs name them, and as it is written.
var runKeys = files.Embedded[struct {
	Own, Engine, Required map[string]string
	Sections              []struct {
		Name string
		Keys []string
	}
}](keysYAML, "keys.yaml")

// Draft is a run.yaml being written from what a command line or a log says:
// values by path ("vllm.max_num_seqs"), each with a note where it did not come
// from there.
type Draft struct {
	values map[string]any
	notes  map[string]string

	findings []trace.Finding // what was left out, and why

	longest  int64 // max_seq_len of the engine's configuration line; 0: a log has none
	kvTokens int64 // size of the KV cache as a log prints it; 0 when it does not
	isCPU    bool  // a log says that the device is a CPU
	hasArgs  bool  // a log prints the arguments that are no defaults
}

// NewDraft returns an empty draft.
func NewDraft() *Draft { return &Draft{values: map[string]any{}, notes: map[string]string{}} }

// Set stores a value under a path of run.yaml, without a remark.
func (d *Draft) Set(path string, value any) { d.SetNoted(path, value, "") }

// SetNoted stores a value with a remark that stands beside it in the file.
func (d *Draft) SetNoted(path string, value any, note string) {
	d.values[path] = value
	d.notes[path] = note
}

// Settings are its values as overrides of a run.yaml, sorted.
func (d *Draft) Settings() (set []string) {
	for _, path := range slices.Sorted(maps.Keys(d.values)) {
		if v := d.values[path]; v != nil {
			set = append(set, path+"="+scalar(v))
		}
	}
	return set
}

// Get returns the value under a path, nil when there is none.
func (d *Draft) Get(path string) any { return d.values[path] }

// find tells of something once.
func (d *Draft) find(f trace.Finding) {
	if !slices.Contains(d.findings, f) {
		d.findings = append(d.findings, f)
	}
}

// Findings are what the draft leaves out, what of it is not modelled, and what
// fit and simulate will refuse: unknown_flag, file_not_read, vllm_release_unknown and
// the codes of [Limits]. m is the model where its config.json is known, else nil.
func (d *Draft) Findings(m *Model) []trace.Finding {
	out := slices.Clone(d.findings)
	version, _ := d.Get("vllm.version").(string)
	if v, ok := parseVersion(version); ok && less(flagsRead().newest, v) {
		out = append(out, trace.Findingf(UnknownFlag, "vLLM %s is newer than the flags this version knows: those of %d.%d are taken", version,
			flagsRead().newest[0], flagsRead().newest[1]))
	}
	get := func(key string) any {
		if path := runKeys().Own[key]; path != "" {
			return d.Get(path)
		}
		return d.Get("vllm." + key)
	}
	for _, h := range hits(get, m != nil && m.IsMoE()) {
		out = append(out, h.finding())
	}
	name, _ := d.Get("hardware.name").(string)
	if _, builtIn := Datasheet(name); d.isCPU && builtIn {
		out = append(out, trace.Findingf(unknownHardware, "hardware.name says %s and the log is of vLLM's CPU back end; name the CPU, with "+
			"hardware.TFlopsPeak and hardware.BwPeakTBs", name))
	}
	out = append(out, unmeasured(name)...)
	if m != nil {
		out = append(out, m.NotModelled()...)
	}
	return out
}

// DropUnknown leaves out the flags that the version does not know, when all sources
// have spoken: one may have named the flag and another the version.
func (d *Draft) DropUnknown() {
	version, _ := d.Get("vllm.version").(string)
	for _, key := range d.otherFlags(ownKeys()) {
		if !isServeFlag(key, version) {
			delete(d.values, "vllm."+key)
			d.unknownFlag("--"+strings.ReplaceAll(key, "_", "-"), key, version)
		}
	}
}

// ownKeys are the keys of vllm that run.yaml reads itself.
func ownKeys() []string {
	for _, s := range runKeys().Sections {
		if s.Name == "vllm" {
			return append(slices.Clone(s.Keys), "speculative_model", "num_speculative_tokens", "speculative_decoding")
		}
	}
	return nil
}

// ModelOptions is what the draft says of its model beside config.json.
func (d *Draft) ModelOptions() ModelOptions {
	text := func(path string) string { s, _ := d.Get(path).(string); return s }
	o := ModelOptions{ID: text("model.id"), DType: text("model.dtype"), KVCacheDType: text("model.kv_cache_dtype"),
		Quantization: text("vllm.quantization"), MambaCacheDType: text("vllm.mamba_cache_dtype"),
		MambaSSMCacheDType: text("vllm.mamba_ssm_cache_dtype")}
	if n, ok := d.Get("vllm.max_model_len").(int64); ok {
		o.MaxModelLen = trace.Some(n)
	}
	return o
}

// Merge takes what other says and d does not.
func (d *Draft) Merge(other *Draft) {
	for _, f := range other.findings {
		d.find(f)
	}
	d.isCPU = d.isCPU || other.isCPU
	d.kvTokens = max(d.kvTokens, other.kvTokens)
	for path, value := range other.values {
		if d.values[path] == nil {
			d.SetNoted(path, value, other.notes[path])
		}
	}
}

// required are the fields without which run.yaml does not load, or a device is not known.
func (d *Draft) required() []string {
	list := []string{"model.config", "hardware.name", "vllm.version", "vllm.max_num_seqs", "vllm.max_num_batched_tokens"}
	id, _ := d.Get("model.id").(string)
	if _, builtIn := ModelNamed(id); builtIn {
		list = list[1:]
	}
	name, _ := d.Get("hardware.name").(string)
	if _, builtIn := Datasheet(name); name != "" && !builtIn {
		list = slices.Insert(list, 1+slices.Index(list, "hardware.name"), "hardware.TFlopsPeak", "hardware.BwPeakTBs", "hardware.memory_gb")
	}
	return list
}

// Missing lists the required fields that the draft lacks, in file order.
func (d *Draft) Missing() []string {
	return stat.Filter(d.required(), func(path string) bool { return d.values[path] == nil })
}

// Write writes the draft as run.yaml. Required fields that are missing stand
// there as null with the word "required".
func (d *Draft) Write(w io.Writer) error {
	var b strings.Builder
	for _, s := range runKeys().Sections {
		keys := s.Keys
		if s.Name == "vllm" {
			keys = append(slices.Clone(keys), d.otherFlags(keys)...)
		}
		lines := strings.Join(stat.Map(keys, func(key string) string { return d.line(s.Name, key) }), "")
		if lines != "" && s.Name != "" {
			lines = s.Name + ":\n" + lines
		}
		b.WriteString(lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *Draft) otherFlags(known []string) []string {
	keys := stat.Filter(slices.Sorted(maps.Keys(d.values)), func(path string) bool {
		key, ok := strings.CutPrefix(path, "vllm.")
		return ok && !slices.Contains(known, key)
	})
	return stat.Map(keys, func(path string) string { return strings.TrimPrefix(path, "vllm.") })
}

// line is one "key: value  # note", "" when there is nothing to say.
func (d *Draft) line(section, key string) string {
	path, indent := key, ""
	if section != "" {
		path, indent = section+"."+key, "  "
	}
	value, note := d.values[path], d.notes[path]
	if value == nil && note == "" {
		if !slices.Contains(d.required(), path) {
			return ""
		}
		note = "required: " + runKeys().Required[path]
	}
	line := indent + key + ": " + scalar(value)
	if note != "" {
		line += "  # " + note
	}
	return line + "\n"
}

// scalar writes a value on one line; versions and other number-like strings
// are quoted so that they stay strings.
func scalar(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case int64, bool:
		return fmt.Sprint(v)
	}
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	flowStyle(&n)
	text, err := yaml.Marshal(&n)
	if err != nil {
		return strconv.Quote(fmt.Sprint(v))
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func flowStyle(n *yaml.Node) {
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		flowStyle(c)
	}
}

// FillDefaults adds what vLLM's V1 engine takes for knobs that nobody gave, on
// the draft's hardware, for `vllm serve`: 1024 seats and 8192 tokens on a
// device of 70 GiB and more that is no A100, from 0.28 on 16384 on one of 160 GiB,
// 256 and 2048 on smaller ones; twice as many with performance_mode throughput; not
// more seats than tokens. Unknown devices get nothing. Every value is noted as
// vLLM's default.
func (d *Draft) FillDefaults() {
	name, _ := d.Get("hardware.name").(string)
	sheet, ok := Datasheet(name)
	if !ok {
		return
	}
	const note = "vLLM's default on this device; check the server's start-up log"
	seqs, tokens := int64(256), int64(2048)
	if sheet.MemoryGB >= 70 && !strings.HasPrefix(sheet.Name, "A100") {
		seqs, tokens = 1024, 8192
		version, _ := d.Get("vllm.version").(string)
		if v, known := parseVersion(version); known && !less(v, largerGraphsSince) && sheet.MemoryGB >= 160 {
			tokens = 16384
		}
	}
	if d.Get("vllm.performance_mode") == "throughput" {
		seqs, tokens = 2*seqs, 2*tokens
	}
	if d.Get("vllm.max_num_batched_tokens") == nil {
		if longest, ok := d.Get("vllm.max_model_len").(int64); ok && d.Get("vllm.enable_chunked_prefill") == false {
			tokens = max(tokens, longest)
		}
		d.SetNoted("vllm.max_num_batched_tokens", tokens, note)
	}
	if d.Get("vllm.max_num_seqs") == nil {
		if given, ok := d.Get("vllm.max_num_batched_tokens").(int64); ok && given > 0 {
			seqs = min(seqs, given)
		}
		d.SetNoted("vllm.max_num_seqs", seqs, note)
	}
}

// Speculation is vLLM's --speculative-config, as far as a schedule depends on it.
type Speculation struct {
	Method      string     `json:"method"`
	Model       string     `json:"model"`                                 // of a drafter with weights of its own
	TP          int64      `json:"draft_tensor_parallel_size"`            // devices of the drafter; 0 = the model's
	Tokens      int64      `json:"num_speculative_tokens"`                // k
	ByBatchSize [][3]int64 `json:"num_speculative_tokens_per_batch_size"` // requests from, to, k
	Parallel    bool       `json:"parallel_drafting"`                     // one pass of the drafter
	KeepBlock   bool       `json:"disable_eagle_block_drop"`
	PlainHashes bool       `json:"disable_lookahead_block_hashes"`
	// Rates is P(the first i drafts are accepted), i from 1, never increasing; nil = unknown.
	Rates  []float64 `json:"synthetic_acceptance_rates"`
	Length float64   `json:"synthetic_acceptance_length"` // tokens a verify yields on average; 0 = unknown

	AnyVocabulary bool  `json:"use_heterogeneous_vocab"`
	LookupMin     int64 `json:"prompt_lookup_min"` // tokens of an n-gram; 0 = the release's
	LookupMax     int64 `json:"prompt_lookup_max"`
}

// specKeys are all keys of vLLM's SpeculativeConfig, 0.15.1 to 0.33.0.
var specKeys = strings.Fields(`attention_backend code_revision disable_by_batch_size disable_eagle_block_drop disable_lookahead_block_hashes
	disable_padded_drafter_batch draft_lm_head_quantization draft_load_config draft_model_config draft_parallel_config draft_sample_method
	draft_tensor_parallel_size dspark_draft_topk enable_adaptive_verification enforce_eager fly_entropy_threshold fly_entropy_top_k
	fly_window_size index_share_for_mtp_iteration kv_cache_dtype max_model_len method model moe_backend num_speculative_tokens
	num_speculative_tokens_per_batch_size parallel_drafting prompt_lookup_max prompt_lookup_min quantization rejection_sample_method
	revision speculative_token_tree suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_max_tree_depth
	suffix_decoding_min_token_prob synthetic_acceptance_length synthetic_acceptance_rate synthetic_acceptance_rates target_model_config
	target_parallel_config tensor_parallel_size use_heterogeneous_vocab use_local_argmax_reduction xpress_topc`)

// Methods of speculative decoding that are modelled.
var (
	eagleMethods = []string{"eagle", "eagle3", "mtp"}
	specMethods  = append([]string{"draft_model", "ngram", "ngram_gpu", "suffix", "dflash", "dspark"}, eagleMethods...)
)

// IsEagle reports whether the drafter reads the model's hidden states: EAGLE and MTP.
func (s *Speculation) IsEagle() bool { return slices.Contains(eagleMethods, s.Method) }

// Lookahead is the number of tokens behind those of a step that the drafter's KV takes.
func (s *Speculation) Lookahead() int64 {
	switch {
	case s.IsEagle() || s.Method == "draft_model" || s.Method == "dspark":
		return s.Tokens
	case s.Method == "dflash":
		return s.Tokens + 1
	}
	return 0
}

// Slots is the number of tokens that the drafter adds to its own batch for each request.
func (s *Speculation) Slots() int64 {
	n := int64(0)
	if s.Parallel {
		n = s.Tokens - 1
	}
	if s.Method == "draft_model" {
		n++
	}
	return n
}

// TokensFor is the number of drafts proposed in a step of n requests, as
// num_speculative_tokens_per_batch_size has it: a gap keeps the number before it, and
// more requests than the last range the last.
func (s *Speculation) TokensFor(n int64) int64 {
	k := s.Tokens
	for i, r := range s.ByBatchSize {
		if i == 0 || n >= r[0] {
			k = min(s.Tokens, r[2])
		}
	}
	return k
}

// Speculation reads speculative_config; nil where there is none. Code: bad_knobs.
func (e *Engine) Speculation() (*Speculation, error) {
	given := e.Extra["speculative_config"]
	if given == nil {
		return nil, nil
	}
	text, isText := given.(string)
	if !isText {
		b, err := json.Marshal(given)
		if err != nil {
			return nil, trace.Errorf(BadKnobs, "speculative_config: %v", err)
		}
		text = string(b)
	}
	s, all := &Speculation{}, map[string]any{}
	if err := errors.Join(json.Unmarshal([]byte(text), s), json.Unmarshal([]byte(text), &all)); err != nil {
		return nil, trace.Errorf(BadKnobs, "speculative_config: %v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(specKeys, key) {
			e := trace.Errorf(BadKnobs, "speculative_config: got the key %q, want one of vLLM's", key)
			if near := Nearest(key, specKeys); near != "" {
				return nil, e.WithHint("did you mean " + near + "?")
			}
			return nil, e
		}
	}
	slices.SortFunc(s.ByBatchSize, func(a, b [3]int64) int { return cmp.Compare(a[0], b[0]) })
	s.infer()
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.Length > 0 {
		s.Rates = ratesOf(s.Length, s.Tokens)
	}
	return s, nil
}

// infer is vLLM's rule for a method that is not stated, or that the name of the drafter says better.
func (s *Speculation) infer() {
	name := strings.ToLower(s.Model)
	switch {
	case strings.HasSuffix(s.Method, "_mtp"):
		s.Method = "mtp"
	case strings.Trim(cmp.Or(s.Method, name), "[]") == "ngram":
		s.Method = "ngram"
	case s.Method == "":
		s.Method = "draft_model"
	}
	for _, part := range []string{"eagle-", "eagle3", "dflash", "dspark"} {
		if (s.Method == "draft_model" || s.Method == "mtp") && strings.Contains(name, part) {
			s.Method = strings.TrimSuffix(part, "-")
		}
	}
}

// check refuses what vLLM refuses (vllm/config/speculative.py) and what is not modelled.
func (s *Speculation) check() error {
	bad := func(key, want string, got any) error {
		return trace.Errorf(BadKnobs, "speculative_config.%s: got %v, want %s", key, got, want)
	}
	switch {
	case !slices.Contains(specMethods, s.Method):
		return bad("method", strings.Join(specMethods, ", "), strconv.Quote(s.Method))
	case s.Tokens < 1 || s.Tokens > maxDevices:
		return bad("num_speculative_tokens", fmt.Sprintf("1 to %d", int64(maxDevices)), s.Tokens)
	case s.LookupMax > 0 && s.LookupMin > s.LookupMax:
		return bad("prompt_lookup_min", fmt.Sprintf("at most prompt_lookup_max %d", s.LookupMax), s.LookupMin)
	case len(s.Rates) > 0 && s.Length != 0:
		return bad("synthetic_acceptance_length", "it or synthetic_acceptance_rates, not both", s.Length)
	case s.Length != 0 && !(s.Length >= 1 && s.Length <= float64(s.Tokens+1)):
		return bad("synthetic_acceptance_length", fmt.Sprintf("1 to %d tokens", s.Tokens+1), s.Length)
	case len(s.Rates) > 0 && int64(len(s.Rates)) != s.Tokens:
		return bad("synthetic_acceptance_rates", fmt.Sprintf("%d rates", s.Tokens), s.Rates)
	}
	last := 1.0
	for _, r := range s.Rates {
		if !(r >= 0 && r <= last) {
			return bad("synthetic_acceptance_rates", "rates from 0 to 1 that never increase", s.Rates)
		}
		last = r
	}
	end := int64(0)
	for i, r := range s.ByBatchSize {
		if r[0] <= end || i == 0 && r[0] != 1 || r[1] < r[0] || r[2] < 0 {
			return bad("num_speculative_tokens_per_batch_size", "[from, to, k] from 1 on, apart", s.ByBatchSize)
		}
		end = r[1]
	}
	return nil
}

// ratesOf is vLLM's rule for a mean length alone: as many sure drafts as it has whole
// tokens beyond the first, then the fraction (synthetic rejection sampling).
func ratesOf(length float64, k int64) []float64 {
	rates := make([]float64, k)
	for i := range rates {
		rates[i] = math.Max(0, math.Min(1, length-1-float64(i)))
	}
	return rates
}
