package model

// This file has the configurations of models that need no config.json from the user.

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// models.gz has the config.json and hf_quant_config.json of current models: a line for each file, with
// its name, a tab and the JSON.
//
//go:embed models.gz
var modelsGzip []byte

// builtIn returns the files of models.gz by name, such as Qwen--Qwen3-32B_config.json.
var builtIn = sync.OnceValue(func() map[string][]byte {
	r, err := gzip.NewReader(bytes.NewReader(modelsGzip))
	if err != nil {
		panic("model: models.gz: " + err.Error())
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic("model: models.gz: " + err.Error())
	}
	configs := map[string][]byte{}
	for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		name, config, _ := bytes.Cut(line, []byte("\t"))
		configs[string(name)] = config
	}
	addEveryday(configs)
	return configs
})

const configEnding = "_config.json"

// fileOf returns the name of a model's config.json among the built-in files.
func fileOf(id string) string { return strings.Replace(id, "/", "--", 1) + configEnding }

// BuiltInIDs returns the Hugging Face ids of the built-in models, sorted.
func BuiltInIDs() (ids []string) {
	for name := range builtIn() {
		if model, ok := strings.CutSuffix(name, configEnding); ok && !strings.HasSuffix(name, "_hf_quant"+configEnding) {
			ids = append(ids, strings.Replace(model, "--", "/", 1))
		}
	}
	slices.Sort(ids)
	return ids
}

// BuiltInID returns the id of the built-in model with a name. Case does not matter; a name without
// the publisher, "Meta-", "-Instruct", "-Chat", "-it" or "-hf" is enough where it fits only one model.
func BuiltInID(name string) (id string, ok bool) {
	short := func(id string) string {
		name := strings.TrimPrefix(Name(id), "meta-")
		for _, ending := range []string{"-hf", "-instruct", "-chat", "-it"} {
			name = strings.TrimSuffix(name, ending)
		}
		return name
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

// BuiltInConfig returns the config.json and hf_quant_config.json of a built-in model; quant may be nil.
func BuiltInConfig(id string) (config, quant []byte) {
	name := strings.Replace(id, "/", "--", 1)
	return builtIn()[name+configEnding], builtIn()[name+"_hf_quant"+configEnding]
}

// LoadBuiltIn returns the built-in model opts.ID.
func LoadBuiltIn(opts Options) (Model, error) {
	config, quant := BuiltInConfig(opts.ID)
	opts.QuantConfig = quant
	return Load(bytes.NewReader(config), opts.ID+configEnding, opts)
}

// NoSuchModel returns the error for a name that is no built-in model, with the nearest of the same
// family as hint: another family has other layers, whatever its name looks like. Code:
// config_missing.
func NoSuchModel(name string) error {
	e := trace.Errorf(MissingConfig, "model: got %q, want a built-in model or the path of a config.json", name)
	var known []string
	for _, id := range BuiltInIDs() {
		if familyOf(id) == familyOf(name) {
			known = append(known, id, path.Base(id))
		}
	}
	if near := files.Nearest(name, known); near != "" {
		return e.WithHint("did you mean " + near + "?")
	}
	return e.WithHint("download the model's config.json from Hugging Face and give its path; " +
		"the built-in ones: blis-train predict")
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
