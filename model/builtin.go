package model

// This file has the configurations of models that need no config.json from the user.

import (
	"bytes"
	"cmp"
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// models.zst has the config.json and hf_quant_config.json of current models, and the shapes of everyday models
// (published_test.go): a line for each file, with its name, a tab and the JSON.
//
//go:embed models.zst
var modelsPacked []byte

// builtIn returns the files of models.zst by name, such as Qwen--Qwen3-32B_config.json.
var builtIn = sync.OnceValue(func() map[string][]byte {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic("model: models.zst: " + err.Error())
	}
	defer r.Close()
	text, err := r.DecodeAll(modelsPacked, nil)
	if err != nil {
		panic("model: models.zst: " + err.Error())
	}
	configs := map[string][]byte{}
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		name, config, _ := bytes.Cut(line, []byte("\t"))
		configs[string(name)] = config
	}
	addSameShapes(configs) // last, because it copies configurations that must be there
	return configs
})

const configEnding = "_config.json"

// fileOf returns the name of a model's config.json among the built-in files.
func fileOf(id string) string { return strings.Replace(id, "/", "--", 1) + configEnding }

// quantFileOf returns the name of a model's hf_quant_config.json among the built-in files.
func quantFileOf(id string) string {
	return strings.Replace(id, "/", "--", 1) + "_hf_quant" + configEnding
}

// BuiltInIDs returns the Hugging Face ids of the built-in models, sorted.
func BuiltInIDs() []string { return slices.Clone(builtInIDs()) }

var builtInIDs = sync.OnceValue(func() (ids []string) {
	for name := range builtIn() {
		if model, ok := strings.CutSuffix(name, configEnding); ok && !strings.HasSuffix(name, "_hf_quant"+configEnding) {
			ids = append(ids, strings.Replace(model, "--", "/", 1))
		}
	}
	slices.Sort(ids)
	return ids
})

// shortNames has the short names of the built-in models, by id.
var shortNames = sync.OnceValue(func() map[string]string {
	short := map[string]string{}
	for _, id := range builtInIDs() {
		short[id] = shortName(id)
	}
	return short
})

// BuiltInID returns the id of the built-in model with a name. Case does not matter, nor whether a family and its
// generation are joined (qwen3 or qwen-3); a name without the publisher, "Meta-", "-Instruct", "-Chat", "-it" or
// "-hf" is enough, and so is the beginning of a name, where it fits models of one shape only.
func BuiltInID(name string) (id string, ok bool) {
	var found []string
	short := shortName(name)
	for _, id := range builtInIDs() {
		if strings.EqualFold(id, name) {
			return id, true
		}
		if shortNames()[id] == short {
			found = append(found, id)
		}
	}
	if len(found) == 1 {
		return found[0], true
	}
	begun := begunBy(name)
	if len(begun) == 0 {
		return "", false
	}
	for _, id := range begun[1:] {
		if rootShape(id) != rootShape(begun[0]) {
			return "", false
		}
	}
	// Of several with one shape that which has it of its own.
	if i := slices.IndexFunc(begun, func(id string) bool { return SameShapeAs(id) == "" }); i > 0 {
		return begun[i], true
	}
	return begun[0], true
}

// Alternatives returns the other built-in models that a name fits, if BuiltInID had to choose between
// several with the same layers; nil if the name fits one.
func Alternatives(name string) []string {
	chosen, ok := BuiltInID(name)
	if !ok || shortName(chosen) == shortName(name) {
		return nil
	}
	return slices.DeleteFunc(begunBy(name), func(id string) bool { return id == chosen })
}

// familyNumber is a family and its generation, joined or not.
var familyNumber = regexp.MustCompile(`^([a-z]+)-?([0-9])`)

// shortName returns what tells a model from others: its name in small letters without the publisher and
// endings that every model of a kind has.
func shortName(id string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(Name(id), "meta-"), "c4ai-")
	name = strings.ReplaceAll(name, "_", "-")
	for _, ending := range []string{"-hf", "-instruct", "-chat", "-it"} {
		name = strings.TrimSuffix(name, ending)
	}
	return familyNumber.ReplaceAllString(name, "$1-$2")
}

// begunBy returns the built-in models whose name begins with the words of a name. Quantized ones are left out
// where that is not in the name; their weights are others.
func begunBy(name string) []string {
	prefix := shortName(name) + "-" // so that qwen3-3 does not begin qwen3-30b
	if !strings.ContainsAny(prefix, "0123456789") && strings.Count(prefix, "-") < 2 {
		return nil // a family alone
	}
	var out []string
	for _, id := range builtInIDs() {
		rest, begins := strings.CutPrefix(shortNames()[id]+"-", prefix)
		if begins && !quantized.MatchString(rest) {
			out = append(out, id)
		}
	}
	return out
}

// quantized are the parts of names that state how weights are stored.
var quantized = regexp.MustCompile(`(?i)(^|-)(nvfp4|fp8|int4|int8|awq|gptq)(-|$)`)

// rootShape returns the model whose layers are used for a built-in one.
func rootShape(id string) string { return cmp.Or(SameShapeAs(id), id) }

// BuiltInConfig returns the config.json and hf_quant_config.json of a built-in model; quant may be nil.
func BuiltInConfig(id string) (config, quant []byte) {
	return builtIn()[fileOf(id)], builtIn()[quantFileOf(id)]
}

// LoadBuiltIn returns the built-in model opts.ID.
func LoadBuiltIn(opts Options) (Model, error) {
	config, quant := BuiltInConfig(opts.ID)
	opts.QuantConfig = quant
	return Load(bytes.NewReader(config), opts.ID+configEnding, opts)
}

// mostHints is how many models a hint names.
const mostHints = 3

// NoSuchModel returns the error for a name that is no built-in model. The hint is the nearest of the same family,
// generation and size, or the models that the name begins, or some of its generation: another family, generation
// or size has other layers, whatever its name looks like. Code: config_missing.
func NoSuchModel(name string) error {
	e := trace.Errorf(MissingConfig, "model: got %q, want a built-in model or the path of a config.json", name)
	ids := BuiltInIDs()
	// From the surest hint to the least: models that the name begins or is a part of, a misspelt family, the
	// nearest name with the same numbers, other weights of the model, other models of the generation.
	near := begunBy(name)
	for _, id := range ids { // a variant that its publisher names after the model it comes from: Llama-3_3-Nemotron-Super
		if len(near) == 0 && strings.ContainsRune(name, '-') && strings.Contains("-"+shortName(id)+"-", "-"+shortName(name)+"-") {
			near = append(near, id)
		}
	}
	if len(near) > 0 {
		return e.WithHint("did you mean " + strings.Join(near[:min(len(near), mostHints)], " or ") + "?")
	}
	var families []string
	for _, id := range ids {
		families = append(families, familyOf(id))
	}
	family := familyOf(name)
	if near := files.Nearest(family, families); !slices.Contains(families, family) && isMisspelt(family, near) {
		name = near + strings.TrimPrefix(Name(name), family)
		family = near
	}
	hint, isKnown := BuiltInID(name)
	if !isKnown {
		byName := map[string]string{} // ids by short name
		var names []string
		for _, id := range ids {
			if short := shortName(id); familyOf(id) == family && byName[short] == "" && hasFigures(short, shortName(name)) &&
				(quantized.MatchString(short) || !quantized.MatchString(name)) {
				byName[short] = id
				names = append(names, short)
			}
		}
		hint = byName[files.Nearest(shortName(name), names)]
	}
	if hint != "" {
		return e.WithHint("did you mean " + hint + "?")
	}
	if quantization := quantized.FindString(name); quantization != "" {
		unquantized := strings.Replace(name, quantization, "", 1)
		if id, ok := BuiltInID(unquantized); ok {
			return e.WithHint(id + " is built in with other weights: give that name, with --vllm '--quantization fp8' for fp8")
		}
	}
	const download = "download the model's config.json from Hugging Face and give its path"
	if same := ofGeneration(name); len(same) > 0 {
		return e.WithHint(download + "; built in of this generation: " + strings.Join(same, ", "))
	}
	return e.WithHint(download + "; the built-in ones: blis-train predict")
}

// figures are the numbers in a model's name: its generation, its size, its release.
var figures = regexp.MustCompile(`[0-9]+`)

// hasFigures reports whether a model's name has all numbers of another name. A model of another generation or size
// is another model, however alike the names are.
func hasFigures(short, asked string) bool {
	has := figures.FindAllString(short, -1)
	for _, figure := range figures.FindAllString(asked, -1) {
		if !slices.Contains(has, figure) {
			return false
		}
	}
	return true
}

// ofGeneration returns some of the built-in models with the family and the generation of a name, such as gemma-3-1b,
// the one with the nearest name first.
func ofGeneration(name string) []string {
	words := strings.Split(shortName(name), "-")
	if len(words) < 3 || !figures.MatchString(words[1]) {
		return nil
	}
	generation := words[0] + "-" + words[1] + "-"
	var ids, shorts []string
	for _, id := range BuiltInIDs() {
		if short := shortName(id); strings.HasPrefix(short, generation) && !quantized.MatchString(short) {
			ids = append(ids, id)
			shorts = append(shorts, short)
		}
	}
	if nearest := slices.Index(shorts, files.Nearest(shortName(name), shorts)); nearest > 0 {
		ids[0], ids[nearest] = ids[nearest], ids[0]
	}
	return ids[:min(len(ids), mostHints)]
}

// isMisspelt reports whether a word is the name of a family with a letter more or less, or with two letters
// exchanged. One with another letter is a family of its own (llava and llama, pixtral and mixtral).
func isMisspelt(word, family string) bool {
	const shortest = 4
	if len(word) < shortest || len(family) < shortest || word[0] != family[0] {
		return false
	}
	for _, letter := range word {
		if len(word) == len(family) && !strings.ContainsRune(family, letter) {
			return false
		}
	}
	longer := len(word) - len(family)
	return longer >= -1 && longer <= 1
}

// familyOf returns the word that a model's name starts with, such as qwen or llama.
func familyOf(id string) string {
	name := strings.TrimPrefix(Name(id), "meta-")
	end := strings.IndexFunc(name, func(r rune) bool { return r < 'a' || r > 'z' })
	if end < 0 {
		return name
	}
	return name[:end]
}
