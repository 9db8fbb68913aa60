package deploy

// This file refuses command lines with values with which vLLM does not start, before a run.yaml is written.

import (
	"errors"
	"regexp"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// keyWord matches a word that may be a key of run.yaml.
var keyWord = regexp.MustCompile(`[a-z]+(?:_[a-z]+)+`)

// standIn is a built-in model with which ranges of values are checked where the model is not known.
const standIn = "Qwen/Qwen3-8B"

// CheckStated returns an error if the command line of stated has values with which vLLM does not start: one
// outside the range of its key, or several that exclude each other. d is the whole draft, with the defaults and
// what other sources state; keys that it lacks get values that do not matter. Code: bad_command_line.
func (d *Draft) CheckStated(stated *Draft) error {
	trial := NewDraft()
	for path, value := range d.values {
		if !strings.HasPrefix(path, "hardware.") { // a device of one's own may lack its rates
			trial.values[path] = value
		}
	}
	for path, value := range map[string]any{
		"hardware.name":               "H100",
		"vllm.version":                vllm.NewestFlags().String(),
		"vllm.max_num_batched_tokens": int64(1 << 20),
		"vllm.max_num_seqs":           int64(1),
		"vllm.kv_blocks_total_gpu":    int64(1 << 20), // whatever the memory
	} {
		if trial.values[path] == nil {
			trial.values[path] = value
		}
	}
	id, _ := trial.Get("model.id").(string)
	_, isBuiltIn := model.BuiltInID(id)
	hasModel := isBuiltIn || trial.Get("model.config") != nil
	if !hasModel {
		trial.values["model.id"] = standIn
	}
	loaded, err := LoadSettings(trial.Settings()...)
	if err == nil {
		err = loaded.CheckSimulated()
	}
	if err == nil {
		err = loaded.CheckSupported()
	}
	var text string
	isKnobs := false
	if at, ok := errors.AsType[*trace.SyntaxError](err); ok && at.File == SettingsName {
		text = at.Msg
	}
	if knobs, ok := errors.AsType[*trace.Error](err); ok && knobs.Code == vllm.BadKnobs {
		text = knobs.Msg
		isKnobs = true
	}
	path, why, found := strings.Cut(text, ": ")
	if !found || !stated.states(path) {
		return nil
	}
	// Other settings in the message: their values must be the command line's too.
	others := 0
	for _, word := range keyWord.FindAllString(why, -1) {
		if _, isKey := runKeys().ofFlag[word]; !isKey {
			continue
		}
		if !stated.states(word) {
			return nil // a default is in the way, or what another source states
		}
		others++
	}
	if isKnobs && others == 0 && !hasModel {
		return nil // it depends on the model
	}
	key := path[strings.LastIndexByte(path, '.')+1:]
	return trace.Errorf(vllm.BadCommandLine, "command line: --%s: %s", strings.ReplaceAll(key, "_", "-"), why)
}

// states reports whether the draft has a value for a path of run.yaml, or for a flag.
func (d *Draft) states(path string) bool {
	return d.Get(path) != nil || d.Get(pathOfFlag(path)) != nil
}
