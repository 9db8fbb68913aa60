package deploy

// This file compares the settings that a server's log states with those of a run.yaml.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Contradiction is a setting of run.yaml that a log states differently.
type Contradiction struct {
	Setting  string // key of run.yaml
	Sentence string
}

// Against compares the settings in a log with the deployment of a run.yaml and returns those that
// differ; settings that only one of them has are not compared.
func (d *Draft) Against(dep *Deployment) (unlike []Contradiction) {
	e, m := &dep.Engine, &dep.Model
	if d.Get("vllm.block_size") == nil {
		d.Set("vllm.block_size", e.BlockSize)
	}
	d.CountKVBlocks(m)
	// Settings that are not among the non-default arguments have vLLM's default.
	if d.hasArgs && d.Get("vllm.scheduling_policy") == nil {
		d.Set("vllm.scheduling_policy", vllm.DefaultSchedulingPolicy)
	}
	if d.hasArgs && !d.isCPU && d.Get("vllm.gpu_memory_utilization") == nil {
		d.Set("vllm.gpu_memory_utilization", vllm.DefaultMemoryShare(e.VLLMVersion))
	}
	if v, isKnown := e.Release(); d.hasArgs && d.Get("vllm.async_scheduling") == nil && isKnown && v.Before(vllm.AsyncSchedulingSince) {
		d.Set("vllm.async_scheduling", false)
	}
	run := comparedSettings(dep)
	if _, isGPU := Datasheet(dep.Hardware.Name); d.isCPU && isGPU {
		d.Set("hardware.name", "vLLM's CPU back end")
	}
	for _, key := range slices.Sorted(maps.Keys(run)) {
		logged, stated := d.Get(key), run[key]
		if opt, ok := stated.(trace.Opt[int64]); ok {
			if !opt.OK {
				continue
			}
			stated = opt.V
		}
		if logged != nil && stated != nil && !d.agrees(key, logged, stated, m) {
			unlike = append(unlike, Contradiction{
				Setting:  key,
				Sentence: fmt.Sprintf("%s: the log says %v%s, run.yaml %v", key, logged, d.noteOf(key), stated),
			})
		}
	}
	return append(unlike, d.furtherAgainst(dep)...)
}

// comparedSettings returns the settings of a deployment that a log or command line may contradict, by their keys in run.yaml.
func comparedSettings(dep *Deployment) map[string]any {
	e, m := &dep.Engine, &dep.Model
	return map[string]any{
		"model.id":                    m.ID,
		"model.dtype":                 m.BytesPerActivation, // types as bytes of a value, see agrees
		"model.kv_cache_dtype":        m.BytesPerKV,
		"hardware.name":               dep.Hardware.Name,
		"tensor_parallel_size":        dep.TP,
		"pipeline_parallel_size":      dep.PP,
		"data_parallel_size":          dep.DP,
		"vllm.version":                e.VLLMVersion,
		"vllm.max_model_len":          e.MaxModelLen,
		"vllm.max_num_seqs":           e.MaxNumSeqs,
		"vllm.max_num_batched_tokens": e.MaxNumBatchedTokens,
		"vllm.enable_chunked_prefill": e.ChunkedPrefill,
		"vllm.enable_prefix_caching":  e.PrefixCaching,
		"vllm.block_size":             e.BlockSize,
		"vllm.gpu_memory_utilization": e.GPUMemoryUtilization,
		"vllm.kv_blocks_total_gpu":    e.KVBlocksGPU,
		"vllm.async_scheduling":       e.IsAsync(),
		"vllm.scheduling_policy":      e.SchedulingPolicy,
		"vllm.enforce_eager":          e.Extra["enforce_eager"],
	}
}

// Unlike returns the settings that two sources of a draft, such as a command line and a log, state differently. The
// names of the sources are those of d and of other, as subjects of a sentence; d has priority.
func (d *Draft) Unlike(other *Draft, name, otherName string) (unlike []Contradiction) {
	keys := slices.Collect(maps.Keys(comparedSettings(&Deployment{})))
	for _, key := range furtherSettings {
		keys = append(keys, pathOfFlag(key))
	}
	unknown := &model.Model{}
	for _, key := range slices.Sorted(slices.Values(keys)) {
		stated, differs := d.Get(key), other.Get(key)
		if stated == nil || differs == nil || isComposite(stated) || isComposite(differs) {
			continue
		}
		compared := stated
		switch key {
		case "model.dtype", "model.kv_cache_dtype":
			bytes := model.DTypeBytes(fmt.Sprint(stated))
			if bytes == 0 { // auto
				continue
			}
			compared = bytes
		case "model.id", "vllm.version":
			compared = fmt.Sprint(stated)
		case "vllm.kv_blocks_total_gpu":
			if _, isNumber := stated.(int64); !isNumber {
				continue
			}
		}
		if !other.agrees(key, differs, compared, unknown) {
			unlike = append(unlike, Contradiction{
				Setting:  key,
				Sentence: fmt.Sprintf("%s: %s says %v%s, %s %v, which is taken", key, otherName, differs, other.noteOf(key), name, stated),
			})
		}
	}
	return unlike
}

// isComposite reports whether a setting is a list or a mapping, whose form differs between sources.
func isComposite(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.ContainsAny(v, "{[(")
	case int64, float64, bool:
		return false
	}
	return true
}

// furtherSettings are flags of `vllm serve` that change what runs in a step or how long it takes, and that a log prints among its
// non-default arguments if they were given.
var furtherSettings = []string{"quantization", "speculative_config", "enable_expert_parallel", "cpu_offload_gb", "kv_transfer_config", "kv_offloading_size",
	"kv_cache_memory_bytes", "long_prefill_token_threshold", "max_num_partial_prefills", "max_long_partial_prefills"}

// furtherAgainst compares settings that have a default: one that only the log or only run.yaml has differs from it too.
func (d *Draft) furtherAgainst(dep *Deployment) (unlike []Contradiction) {
	e, m := &dep.Engine, &dep.Model
	hasTier := givenValue(d.Get("vllm.kv_transfer_config")) != "" || givenValue(d.Get("vllm.kv_offloading_size")) != ""
	if d.hasArgs && e.CPUOffloading && !hasTier {
		unlike = append(unlike, Contradiction{
			Setting:  "vllm.cpu_offloading",
			Sentence: "vllm.cpu_offloading: the log has neither kv_offloading_size nor kv_transfer_config, run.yaml says true",
		})
	}
	isQuantized := m.BytesPerWeight < m.BytesPerActivation
	for _, key := range furtherSettings {
		setting := pathOfFlag(key)
		logged := givenValue(d.Get(setting))
		stated := givenValue(e.Extra[key])
		isLogged := d.hasArgs // the log would print a value other than the default
		switch key {
		case "quantization":
			isLogged = d.isUnquantized
			if d.isUnquantized && stated == "" && isQuantized {
				stated = fmt.Sprintf("has a model with weights of %g bytes", m.BytesPerWeight)
			}
			if isQuantized && stated == "" { // by its config.json
				continue
			}
		case "enable_expert_parallel":
			stated = givenValue(e.ExpertParallel)
		case "long_prefill_token_threshold":
			stated = givenValue(e.LongPrefillThreshold)
		case "speculative_config": // its form differs
			if (logged == "") == (stated == "") {
				continue
			}
		}
		if logged == stated || logged == "" && !isLogged {
			continue
		}
		unlike = append(unlike, Contradiction{
			Setting:  setting,
			Sentence: fmt.Sprintf("%s: the log says %s, run.yaml %s", setting, cmp.Or(logged, "nothing, which is the default"), cmp.Or(stated, "nothing")),
		})
	}
	return unlike
}

// givenValue returns a setting as text, "" for one that is not given or has its default.
func givenValue(v any) string {
	switch text := fmt.Sprint(v); text {
	case "<nil>", "", "false", "False", "0", "1", "None", "none", "map[]":
		return ""
	default:
		return text
	}
}

// noteOf returns how a setting was derived from what the log prints, in parentheses; empty for one that it prints.
func (d *Draft) noteOf(path string) string {
	if note := d.notes[path]; note != "" {
		return " (" + note + ")"
	}
	return ""
}

// agrees reports whether the values of a setting in a log and in run.yaml are equal, or cannot be compared.
func (d *Draft) agrees(key string, logged, stated any, m *model.Model) bool {
	text := fmt.Sprint(logged)
	switch key {
	case "vllm.version":
		v, known := vllm.ParseRelease(text)
		run, stable := vllm.ParseRelease(stated.(string))
		return !known || stable && v == run || text == stated
	case "vllm.kv_blocks_total_gpu": // printed in rounded tokens, with or without the null block
		n, _ := logged.(int64)
		return isNearBlocks(stated.(int64), n)
	case "model.id": // served names and paths may be anything
		id := stated.(string)
		isHub := func(id string) bool { return strings.Count(id, "/") == 1 && id[0] != '/' && id[0] != '.' }
		return !isHub(text) || !isHub(id) || model.Name(text) == model.Name(id)
	case "model.dtype", "model.kv_cache_dtype":
		b := model.DTypeBytes(text)
		if text == "auto" && m.BytesPerWeight == m.BytesPerActivation { // no quantized checkpoint
			b = m.BytesPerActivation
		}
		return b == 0 || b == stated
	}
	return text == fmt.Sprint(stated)
}

// mostFromSheet is how many times the figure of a built-in device may be that of its datasheet, or the reverse.
const mostFromSheet = 1.3

// AgainstDatasheet states which figures of a built-in device are not those of its datasheet; "" for none. Kernels are
// looked up by the name and limits computed from the figures, so that one of the two is of another device.
func (d *Deployment) AgainstDatasheet() string {
	sheet, isBuiltIn := Datasheet(d.Hardware.Name)
	if !isBuiltIn {
		return ""
	}
	var unlike []string
	for _, figure := range []struct {
		key           string
		stated, sheet float64
	}{
		{"TFlopsPeak", d.Hardware.TFlopsPeak, sheet.TFlopsPeak},
		{"BwPeakTBs", d.Hardware.BwPeakTBs, sheet.BwPeakTBs},
		{"memory_gb", d.Hardware.MemoryGB, sheet.MemoryGB},
	} {
		ratio := figure.stated / figure.sheet
		if ratio > mostFromSheet || ratio > 0 && ratio < 1/mostFromSheet {
			unlike = append(unlike, fmt.Sprintf("%s %g, want about %g", figure.key, figure.stated, figure.sheet))
		}
	}
	if len(unlike) == 0 {
		return ""
	}
	return fmt.Sprintf("hardware: got %s, as in the datasheet of %s: the name or the figures are of another device", strings.Join(unlike, "; "), d.Hardware.Name)
}
