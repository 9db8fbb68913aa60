package model

// This file finds how the matrices of a checkpoint are quantized, by the rules of each format that
// vLLM reads.

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// quantizer finds the quantization of each matrix of a checkpoint: by its name, otherwise the
// checkpoint's default scheme (spec#model-matrices).
type quantizer struct {
	c        *hfConfig
	plain    Quant              // of matrices that are not quantized
	def      *scheme            // default: of matrices that are neither in kept nor in named; nil: not quantized
	experts  *scheme            // default of experts where that differs; nil: def
	only     string             // def applies only to matrices whose name contains this
	named    map[string]*scheme // by name of the module
	rules    []nameRule         // of modules by regular expressions
	head     bool               // the LM head is quantized too
	kept     patterns           // modules that are not quantized
	kv       float64            // bytes of a cached value as the checkpoint asks for; 0: not stated
	listed   bool               // an ignore list was stated
	modelOpt bool               // a checkpoint of ModelOpt with one scheme for all
}

// scheme is one way to store a weight.
type scheme struct {
	Algorithm string
	Bits      int64    // of a weight
	Group     int64    // weights that share scales; 0: a tensor, -1: a row
	Scale     float64  // bytes of a group's scales and zero points
	Act       int64    // bits of the activations
	Block     [2]int64 // rows and columns of a group that is a rectangle; zero: it is a part of a row
}

// nameRule is the scheme of the modules whose name a regular expression matches from the beginning
// (Python's re.match); nil: not quantized.
type nameRule struct {
	re     *regexp.Regexp
	scheme *scheme
}

// addRule adds a rule. key is its place in config.json, for the error.
func (q *quantizer) addRule(key, form string, s *scheme) {
	re, err := regexp.Compile("^(?:" + form + ")")
	if err != nil {
		q.c.fail(BadModel, "%s: got %q: %v", key, form, err)
		return
	}
	q.rules = append(q.rules, nameRule{re, s})
}

// schemeByRule returns the scheme of the rules that match any part of a module, or the module that vLLM fuses it
// into (nil: not quantized); ok is false where none matches. vLLM takes the first match in the order of the keys in
// config.json. That order is lost in decoding, so matching rules that disagree are refused, also across names.
func (q *quantizer) schemeByRule(parts []string) (s *scheme, ok bool) {
	if len(q.rules) == 0 {
		return nil, false
	}
	// vLLM matches rules with the names of its fused modules, checkpoints also state the parts.
	var names []string
	for _, part := range parts {
		names = append(names, fused.Replace(part))
	}
	names = append(names, parts...)
	for _, name := range names {
		for _, r := range q.rules {
			if !r.re.MatchString("model." + name) {
				continue
			}
			if ok && !reflect.DeepEqual(s, r.scheme) {
				q.c.fail(UnsupportedModel,
					"quantization_config: got rules for %s that disagree, %s the last of them, want one", name, r.re)
			}
			s, ok = r.scheme, true
		}
	}
	return s, ok
}

// quant returns the quantization of a matrix stored by the scheme.
func (s *scheme) quant(l *Linear) Quant {
	group := float64(s.Group)
	if s.Group < 0 {
		group = float64(l.Columns)
	}
	q := Quant{
		Algorithm:      s.Algorithm,
		BytesPerWeight: float64(s.Bits) / 8,
		Bits:           s.Bits,
		ActivationBits: s.Act,
		Block:          s.Block,
	}
	if group > 0 {
		q.BytesPerWeight += s.Scale / group
	}
	if s.Group > 0 && s.Block == [2]int64{} {
		q.Block = [2]int64{1, s.Group}
	}
	return q
}

// fused maps the parts of attention to the module that vLLM fuses them into.
var fused = strings.NewReplacer(".q_proj", ".qkv_proj", ".k_proj", ".qkv_proj", ".v_proj", ".qkv_proj")

// quantOf returns the quantization of a matrix of layer i. parts are its names in the checkpoint,
// several where vLLM fuses matrices.
func (q *quantizer) quantOf(i int64, l *Linear, parts []string) Quant {
	if len(parts) == 0 {
		parts = []string{l.Name}
	}
	if l.Name != embeddingName && l.Name != headName {
		var inLayer []string
		for _, part := range parts {
			inLayer = append(inLayer, "layers."+itoa(i)+"."+part)
		}
		parts = inLayer
	}
	// A name that the checkpoint lists decides.
	for _, name := range parts {
		if s, ok := q.named[name]; ok {
			return s.quant(l)
		}
		if q.kept.matchesName(name) {
			return q.plain
		}
	}
	// Otherwise a rule that matches, or the default.
	s := q.def
	if l.Placement == ByExpert && q.experts != nil {
		s = q.experts
	}
	byRule, ruled := q.schemeByRule(parts)
	if ruled {
		s = byRule
	}
	isTable := strings.HasPrefix(l.Name, embeddingName) ||
		l.Name == headName && !q.head ||
		l.Name == "per_layer_model_projection"
	// vLLM builds these modules of DeepSeek's sparse attention without a quantization, whatever the
	// checkpoint states.
	isNeverQuantized := strings.HasSuffix(l.Name, "indexer.weights_proj") || strings.Contains(l.Name, "compressor.")
	if s == nil || isNeverQuantized || isTable || !ruled && !strings.Contains(l.Name, q.only) {
		return q.plain
	}
	return s.quant(l)
}

// patterns is an ignore list of exact names, wildcards and regular expressions. The name of a module
// covers its submodules.
type patterns struct {
	exact, prefix map[string]bool
	wild          map[string][]string // other wildcards by their text before the first * or ?
	regex         []*regexp.Regexp
}

// canonical returns a layer's name without the prefixes that wrapper classes add.
func canonical(name string) string {
	for {
		short := name
		for _, p := range []string{"model.", "language_model.", "backbone.", "decoder.", "transformer."} {
			short = strings.TrimPrefix(short, p)
		}
		if short == name {
			return name
		}
		name = short
	}
}

// addPattern adds one entry of an ignore list.
func (p *patterns) addPattern(text string) error {
	if p.exact == nil {
		p.exact = map[string]bool{}
		p.prefix = map[string]bool{}
		p.wild = map[string][]string{}
	}
	if form, isRegex := strings.CutPrefix(text, "re:"); isRegex {
		re, err := regexp.Compile("^(?:" + form + ")")
		p.regex = append(p.regex, re)
		return err
	}
	text = canonical(text)
	switch at := strings.IndexAny(text, "*?"); {
	case at < 0:
		p.exact[text] = true
	case at == len(text)-1 && text[at] == '*':
		p.prefix[text[:at]] = true
	default:
		p.wild[text[:at]] = append(p.wild[text[:at]], text)
	}
	return nil
}

// matchesName reports whether the list contains a module or one that it is part of.
func (p *patterns) matchesName(name string) bool {
	if len(p.exact)+len(p.prefix)+len(p.wild)+len(p.regex) == 0 {
		return false
	}
	for end := range len(name) + 1 {
		if p.prefix[name[:end]] || (end == len(name) || name[end] == '.') && p.exact[name[:end]] {
			return true
		}
		if slices.ContainsFunc(p.wild[name[:end]], func(w string) bool { return patternCovers(w, name) }) {
			return true
		}
	}
	return slices.ContainsFunc(p.regex, func(re *regexp.Regexp) bool { return re.MatchString("model." + name) })
}

// patternCovers reports whether a wildcard (* for any text, ? for one character) matches a module's
// name, or that of a module which contains it. On a mismatch it returns to the last * and lets it
// match one character more.
func patternCovers(pattern, name string) bool {
	var (
		star = -1 // index of the last * in the pattern, -1 before the first
		mark = 0  // end of the text that it has taken
		i, j = 0, 0
	)
	for {
		switch {
		case j == len(pattern) && (i == len(name) || name[i] == '.'):
			return true
		case j < len(pattern) && pattern[j] == '*':
			star, mark = j, i
			j++
		case i < len(name) && j < len(pattern) && (pattern[j] == '?' || pattern[j] == name[i]):
			i, j = i+1, j+1
		case star >= 0 && mark < len(name):
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
}

// schemes are the quantizations of a checkpoint (spec#model-matrices), by the names of ModelOpt's
// quant_algo. Other formats are mapped to the same names.
var schemes = map[string]scheme{
	"FP8":                       {Bits: 8, Act: 8},
	"FP8_PER_CHANNEL_PER_TOKEN": {Bits: 8, Act: 8, Group: -1, Scale: 4},
	"FP8_PB_WO":                 {Bits: 8, Act: 8, Group: 16384, Scale: 4, Block: [2]int64{128, 128}},
	"NVFP4":                     {Bits: 4, Act: 4, Group: 16, Scale: 1},
	"NVFP4_AWQ":                 {Bits: 4, Act: 4, Group: 16, Scale: 1},
	"W4A16_NVFP4":               {Bits: 4, Act: 16, Group: 16, Scale: 1},
	"W4A8_NVFP4_FP8":            {Bits: 4, Act: 8, Group: 16, Scale: 1},
	"W4A16_AWQ":                 {Bits: 4, Act: 16, Group: 128, Scale: 2},
	"W4A8_AWQ":                  {Bits: 4, Act: 8, Group: 128, Scale: 2},
	"W8A16":                     {Bits: 8, Act: 16, Group: -1, Scale: 2},
	"W8A8_SQ_PER_CHANNEL":       {Bits: 8, Act: 8, Group: -1, Scale: 2},
	"MXFP4":                     {Bits: 4, Act: 16, Group: 32, Scale: 1},
	"MXFP8":                     {Bits: 8, Act: 8, Group: 32, Scale: 1},
	"W4A8_MXFP4_FP8":            {Bits: 4, Act: 8, Group: 32, Scale: 1},
}

// readQuantizer returns the quantization in quantization_config of config.json, or else in the
// hf_quant_config.json of the same folder (side), which is vLLM's order.
func (c *hfConfig) readQuantizer(side map[string]any, dtypeBytes float64, flag string) *quantizer {
	bits := int64(8 * dtypeBytes)
	q := &quantizer{c: c, plain: Quant{BytesPerWeight: dtypeBytes, Bits: bits, ActivationBits: bits}}
	config := c.object(c.values, "quantization_config")
	where := "quantization_config"
	if config == nil {
		config = c.object(c.values, "compression_config")
	}
	if config == nil && side != nil {
		if config, where = side, "hf_quant_config.json"; c.object(side, "quantization") != nil {
			config = c.object(side, "quantization")
		}
	}
	if config == nil { // only vLLM's --quantization can ask for one, at load
		switch flag {
		case "", "auto":
		case "fp8":
			q.def = schemeNamed("FP8")
		default:
			c.fail(UnsupportedModel, "quantization: got %q without a quantization_config, want fp8 or none", flag)
		}
		return q
	}
	q.readConfig(config, where)
	// A config.json that has one of these keys, even null, decides the KV cache's type.
	_, statesScheme := config["kv_cache_scheme"]
	_, statesAlgo := config["kv_cache_quant_algo"]
	if q.kv == 0 && !statesScheme && !statesAlgo {
		q.readKV(c.object(side, "quantization"), "hf_quant_config.json")
	}
	return q
}

// schemeNamed returns a copy of a scheme of the table, nil for an unknown name.
func schemeNamed(name string) *scheme {
	s, ok := schemes[name]
	if !ok {
		return nil
	}
	s.Algorithm = strings.ToLower(name)
	return &s
}

// object returns the object under a key, nil without one, and records an error for any other value.
func (c *hfConfig) object(values map[string]any, key string) map[string]any {
	m, isObject := values[key].(map[string]any)
	if values[key] != nil && !isObject && c.err == nil {
		c.fail(BadModel, "%s: got %s, want an object", key, showValue(values[key]))
	}
	return m
}

// readConfig reads one description of a checkpoint's quantization.
func (q *quantizer) readConfig(config map[string]any, where string) {
	method, _ := config["quant_method"].(string)
	keys := []string{"modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"}
	if method == "fp8" {
		// vLLM's Fp8Config reads only these two; modules in the other lists stay fp8.
		keys = keys[:2]
	}
	for _, key := range keys {
		list, isList := config[key].([]any)
		if config[key] != nil && !isList {
			q.c.fail(BadModel, "%s.%s: got %s, want a list of module names", where, key, showValue(config[key]))
		}
		q.listed = q.listed || isList
		for _, entry := range list {
			name, isText := entry.(string)
			if !isText {
				q.c.fail(BadModel, "%s.%s: got %s, want names of modules", where, key, showValue(entry))
			} else if err := q.kept.addPattern(name); err != nil {
				q.c.fail(BadModel, "%s.%s: got %q: %v", where, key, name, err)
			}
		}
	}
	q.readKV(config, where)
	algo, _ := config["quant_algo"].(string)
	switch {
	case method == "fp8" || method == "fbgemm_fp8":
		q.def = q.readBlocks(config, where)
		if q.c.text("expert_dtype") == "fp4" {
			q.experts = schemeNamed("MXFP4")
		}
		q.readNamed(config, where)
	case method == "mxfp4":
		q.def, q.only = schemeNamed("MXFP4"), "experts"
	case method == "awq" || method == "gptq" || method == "auto-round" || method == "awq_marlin" || method == "gptq_marlin":
		q.def = q.readIntegers(config, where)
		q.head = config["lm_head"] == true
		dynamic := q.c.object(config, "dynamic") // GPTQModel's: "-:" leaves at 16 bit, "+:" or neither overrides
		for _, form := range slices.Sorted(maps.Keys(dynamic)) {
			values, _ := dynamic[form].(map[string]any)
			if form, skip := strings.CutPrefix(form, "-:"); skip {
				q.addRule(where+".dynamic", form, nil)
				continue
			}
			own := maps.Clone(config)
			maps.Copy(own, values)
			q.addRule(where+".dynamic", strings.TrimPrefix(form, "+:"), q.readIntegers(own, where+".dynamic"))
		}
	case method == "compressed-tensors" || method == "" && algo == "" && config["config_groups"] != nil:
		q.compressedTensors(config, where)
	case algo != "":
		if q.def = schemeNamed(algo); q.def == nil && algo != "MIXED_PRECISION" {
			q.refuseUnknown(where+".quant_algo", algo)
		}
		if q.def != nil && q.def.Group > 0 {
			q.def.Group = q.groupSize(config["group_size"], q.def.Group, where)
		}
		q.readNamed(config, where)
		q.modelOpt = algo != "MIXED_PRECISION"
	default:
		q.refuseUnknown(where+".quant_method", method)
	}
}

// refuseUnknown records that a quantization is not known.
func (q *quantizer) refuseUnknown(key, got string) {
	q.c.fail(UnsupportedModel, "%s: got %q, want fp8, fbgemm_fp8, mxfp4, awq, gptq, compressed-tensors or modelopt (%s)", key, got,
		strings.Join(slices.Sorted(maps.Keys(schemes)), ", "))
	q.c.hint("state weight_bytes_per_gpu and kv_blocks_total_gpu of the server; its steps are not modelled")
}

// readNamed reads quantized_layers, the quantization of modules by their names.
func (q *quantizer) readNamed(config map[string]any, where string) {
	layers := q.c.object(config, "quantized_layers")
	q.named = make(map[string]*scheme, len(layers))
	for name, entry := range layers {
		values, _ := entry.(map[string]any)
		algo, _ := values["quant_algo"].(string)
		s := schemeNamed(algo)
		if s == nil {
			q.refuseUnknown(where+".quantized_layers: "+name, algo)
			return
		}
		if s.Group > 0 {
			s.Group = q.groupSize(values["group_size"], s.Group, where+".quantized_layers: "+name)
		}
		q.named[canonical(name)] = s
	}
}

// groupSize returns the number of weights that share a scale: -1 for a row; other if v is not
// stated.
func (q *quantizer) groupSize(v any, other int64, where string) int64 {
	if v == nil || v == json.Number("") {
		return other
	}
	n, ok := wholeNumber(v)
	if !ok || n < -1 || n == 0 || n > maxDimension {
		q.c.fail(BadModel, "%s.group_size: got %s, want -1 (a row) or 1 to %d", where, showValue(v), maxDimension)
	}
	return n
}

// readBlocks returns the scheme fp8 with a scale for each tensor, or for each block if
// weight_block_size states one.
func (q *quantizer) readBlocks(config map[string]any, where string) *scheme {
	s := schemeNamed("FP8")
	list, isList := config["weight_block_size"].([]any)
	if !isList {
		return s
	}
	if len(list) == 2 {
		a, okA := wholeNumber(list[0])
		b, okB := wholeNumber(list[1])
		if okA && okB && a > 0 && b > 0 {
			s.Group = a * b
			s.Scale = 4
			s.Algorithm = "fp8_block"
			s.Block = [2]int64{a, b}
			// DeepSeek-V4 stores scales as 8-bit exponents. V3.1 and V3.2 round to powers of two as well
			// but store fp32.
			if q.c.has("compress_ratios") {
				s.Scale = 1
			}
			return s
		}
	}
	q.c.fail(BadModel, "%s.weight_block_size: got %s, want two positive integers", where, showValue(config["weight_block_size"]))
	return s
}

// readIntegers returns the scheme of AWQ or GPTQ: weights of b bits, a 16-bit scale for each group,
// and with zero_point or without sym a zero point of b bits.
func (q *quantizer) readIntegers(config map[string]any, where string) *scheme {
	bits, ok := wholeNumber(firstOf(config, "bits", "w_bit"))
	if !ok || !slices.Contains([]int64{2, 3, 4, 8}, bits) {
		q.c.fail(UnsupportedModel, "%s.bits: got %s, want 2, 3, 4 or 8", where, showValue(firstOf(config, "bits", "w_bit")))
		return nil
	}
	s := &scheme{Algorithm: "int" + itoa(bits), Bits: bits, Act: 16, Scale: 2}
	s.Group = q.groupSize(firstOf(config, "group_size", "q_group_size"), 128, where)
	if config["zero_point"] == true || config["sym"] == false {
		s.Scale += float64(bits) / 8 // a zero point
	}
	return s
}

// compressedTensors reads config_groups: targets Linear, or modules by name.
func (q *quantizer) compressedTensors(config map[string]any, where string) {
	groups := q.c.object(config, "config_groups")
	q.named = map[string]*scheme{}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		group, _ := groups[key].(map[string]any)
		s := q.readGroup(group, where+".config_groups."+key)
		if s == nil {
			return
		}
		targets, _ := group["targets"].([]any)
		for _, target := range targets {
			name, _ := target.(string)
			if form, isRegex := strings.CutPrefix(name, "re:"); isRegex {
				q.addRule(where+".config_groups."+key+".targets", form, s)
			} else if name == "Linear" {
				q.def = s
			} else {
				q.named[canonical(name)] = s
			}
		}
		if len(targets) == 0 {
			q.def = s
		}
	}
	if len(groups) == 0 {
		q.c.fail(BadModel, "%s.config_groups: got none, want at least one group with weights.num_bits", where)
	}
}

// readGroup returns the scheme of one group of compressed-tensors.
func (q *quantizer) readGroup(group map[string]any, where string) *scheme {
	weights := q.c.object(group, "weights")
	inputs := q.c.object(group, "input_activations")
	bits, ok := wholeNumber(weights["num_bits"])
	if !ok || bits < 2 || bits > 8 {
		q.c.fail(UnsupportedModel, "%s.weights.num_bits: got %s, want 2 to 8", where, showValue(weights["num_bits"]))
		return nil
	}
	kind, _ := weights["type"].(string)
	s := &scheme{Algorithm: "int" + itoa(bits), Bits: bits, Act: 16, Scale: 2}
	if n, ok := wholeNumber(inputs["num_bits"]); ok {
		s.Act = n
	}
	s.Group = q.groupSize(weights["group_size"], -1, where+".weights")
	if strategy, _ := weights["strategy"].(string); s.Group < 0 && strings.HasSuffix(strategy, "group") {
		q.c.fail(BadModel, "%s.weights.group_size: got %s, want the weights of a group, as strategy %q has them", where,
			showValue(weights["group_size"]), strategy)
	}
	if symmetric, ok := weights["symmetric"].(bool); ok && !symmetric {
		s.Scale += float64(bits) / 8 // a zero point
	}
	if kind == "float" {
		s.Algorithm, s.Scale = "fp"+itoa(bits), 1 // a scale of one byte: NVFP4 in groups of 16, MXFP4 and MXFP8 of 32
		if s.Group < 0 && bits == 8 {
			s.Group = 0
		}
		if block, ok := weights["block_structure"].([]any); ok && len(block) == 2 {
			a, _ := wholeNumber(block[0])
			b, _ := wholeNumber(block[1])
			s.Group = a * b
			s.Scale = 4
			s.Block = [2]int64{a, b}
		}
	}
	return s
}

// readKV reads the bytes of a cached value from the checkpoint's description.
func (q *quantizer) readKV(config map[string]any, where string) {
	scheme, isObject := config["kv_cache_scheme"].(map[string]any)
	name, _ := firstOf(config, "kv_cache_quant_algo", "kv_cache_scheme").(string)
	if bits, ok := wholeNumber(scheme["num_bits"]); isObject && ok {
		q.kv = float64(bits) / 8
	}
	switch strings.ToUpper(name) {
	case "":
	case "FP8", "INT8":
		q.kv = 1
	case "NVFP4": // 4 bits, and a scale of one byte for 16 values
		q.kv = 0.5 + 1.0/16
	default:
		q.c.fail(UnsupportedModel, "%s.kv_cache_quant_algo: got %q, want FP8, INT8 or NVFP4", where, name)
	}
}
