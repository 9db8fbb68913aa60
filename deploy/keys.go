package deploy

// This file lists the keys of run.yaml, each with the field in which it is stored.

import (
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// runFile has the values of a run.yaml as written. [document.read] fills it, and loadRun makes a
// [Deployment] of it.
type runFile struct {
	dep    Deployment // all but the model and the files of what was found
	model  model.Options
	config string // the model's config.json
	sizes  model.StatedSizes
	engine vllm.Stated

	configAt        *yaml.Node // where run.yaml names config
	configIsBuiltIn bool       // the model is one of [model.BuiltInIDs] and names no config.json
	prefixesStated  bool       // run.yaml has enable_prefix_caching
}

// newRunFile returns the defaults that do not depend on other keys.
func newRunFile() *runFile {
	f := &runFile{
		dep: Deployment{
			TP: 1, PP: 1, DP: 1,
			Hardware: Hardware{PCIeEfficiency: DefaultPCIeEfficiency, InterconnectLatencyUs: DefaultLatencyUs},
		},
		model: model.Options{KVCacheDType: "auto"},
	}
	f.engine.Engine = vllm.Engine{
		ChunkedPrefill:   vllm.DefaultChunkedPrefill,
		PrefixCaching:    vllm.DefaultPrefixCaching,
		BlockSize:        vllm.DefaultBlockSize,
		SchedulingPolicy: vllm.DefaultSchedulingPolicy,
	}
	return f
}

// runSection is a part of run.yaml: the keys of one mapping, "" for those of the document itself.
type runSection struct {
	name string
	keys []vllm.Setting
}

// sections returns the keys of run.yaml that have one value, in the order in which they are
// written, each with the field in which it is stored. The keys phases, workload and files are read
// elsewhere; init does not write them.
func (f *runFile) sections() []runSection {
	h := &f.dep.Hardware
	t := &f.dep.Tracing
	text := func(name string, into *string) files.Key { return files.Key{Name: name, Into: into} }
	ranks := func(name string, into *int64, unit string) vllm.Setting {
		return vllm.Setting{Key: files.Key{Name: name, Into: into, Unit: unit, Range: files.AtLeast(1)}, Flag: name, Log: []string{name}}
	}
	// The upper bounds are far above any device: they catch a value in another unit.
	rate := func(name string, into *float64, unit string, most float64, required string) vllm.Setting {
		return vllm.Setting{Key: files.Key{Name: name, Into: into, Unit: unit, Range: files.Within(0, most)}, Required: required}
	}
	share := func(name string, into any, unit string) vllm.Setting {
		return vllm.Setting{Key: files.Key{Name: name, Into: into, Unit: unit, Range: files.Within(0, 1)}, Flag: name}
	}
	return []runSection{
		{"", []vllm.Setting{
			{Key: text("name", &f.dep.Name)},
			{Key: text("provenance", &f.dep.Provenance)},
		}},
		{"model", []vllm.Setting{
			{Key: text("id", &f.model.ID), Flag: "model", Log: []string{"served_model_name"}},
			{Key: text("config", &f.config), Required: "the model's Hugging Face config.json, relative to this file"},
			{Key: text("dtype", &f.model.DType), Flag: "dtype", Log: []string{"dtype"}},
			{Key: text("kv_cache_dtype", &f.model.KVCacheDType), Flag: "kv_cache_dtype", Log: []string{"kv_cache_dtype"}},
			{Key: files.Key{Name: "n_mlp_proj", Into: &f.model.NumMLPProj, Unit: "projections", Range: files.AtLeast(1)}},
			{Key: files.Key{Name: "assume_full_attention", Into: &f.model.AssumeFullAttention}},
			{Key: text("assume", &f.model.Assume)},
			rate("weight_bytes_per_gpu", &f.sizes.WeightBytesPerGPU, "B", maxRate, ""),
			rate("bytes_per_block", &f.sizes.BytesPerBlock, "B", maxRate, ""),
		}},
		{"hardware", []vllm.Setting{
			{Key: text("name", &h.Name), Required: "a built-in datasheet (H100, A100, ...), or any name with TFlopsPeak and BwPeakTBs beside it"},
			rate("TFlopsPeak", &h.TFlopsPeak, "1e12 FLOP/s", 1e5, "dense 16-bit rate of one device, 1e12 FLOP/s"),
			rate("TFlopsFP8", &h.TFlopsFP8, "1e12 FLOP/s", 1e5, ""),
			rate("BwPeakTBs", &h.BwPeakTBs, "1e12 B/s", 1e3, "bandwidth of its memory, 1e12 B/s"),
			rate("memory_gb", &h.MemoryGB, "1e9 B", 1e5, "its memory, 1e9 B"),
			rate("pcie_bandwidth_gb_s", &h.PCIeBandwidthGBs, "1e9 B/s", 1e4, ""),
			rate("pcie_efficiency", &h.PCIeEfficiency, "of the bandwidth", 1, ""),
			rate("interconnect_bandwidth_gb_s", &h.InterconnectBandwidthGBs, "1e9 B/s", 1e5, ""),
			rate("interconnect_latency_us", &h.InterconnectLatencyUs, "us", 1e5, ""),
		}},
		{"", []vllm.Setting{
			ranks("tensor_parallel_size", &f.dep.TP, "devices"),
			ranks("pipeline_parallel_size", &f.dep.PP, "devices"),
			ranks("data_parallel_size", &f.dep.DP, "engines"),
		}},
		{"vllm", f.engine.Settings()},
		{"tracing", []vllm.Setting{
			share("journey_tracing_sample_rate", &t.JourneySampleRate, "requests per request"),
			share("step_tracing_sample_rate", &t.StepSampleRate, "steps per step"),
			share("step_tracing_rich_subsample_rate", &t.RichSubsampleRate, "steps per sampled step"),
			{Key: files.Key{Name: "step_tracing_closure_interval", Into: &t.ClosureInterval, Unit: "steps", Range: files.AtLeast(1)},
				Flag: "step_tracing_closure_interval"},
			{Key: files.Key{Name: "otel_span_event_count_limit", Into: &t.EventCountLimit, Unit: "events", Range: files.AtLeast(1)}},
			{Key: text("api", &t.API)},
			{Key: text("published", &t.Published)},
		}},
	}
}

// keyIndex finds keys of run.yaml by their names on the command line and in logs.
type keyIndex struct {
	sections []runSection
	ofFlag   map[string]string // path by flag of vllm serve: "model.id" by "model"
	ofLog    map[string]string // path by name in the engine's configuration line
	required map[string]string // what to write at a path that run.yaml must have
}

// runKeys returns the index of all keys.
var runKeys = sync.OnceValue(func() *keyIndex {
	x := &keyIndex{
		sections: newRunFile().sections(),
		ofFlag:   map[string]string{},
		// These two have no key in sections: run.yaml keeps them among the other flags.
		ofLog:    map[string]string{"enforce_eager": "vllm.enforce_eager", "seed": "vllm.seed"},
		required: map[string]string{},
	}
	for _, section := range x.sections {
		for _, k := range section.keys {
			path := k.Name
			if section.name != "" {
				path = section.name + "." + k.Name
			}
			if k.Flag != "" {
				x.ofFlag[k.Flag] = path
			}
			for _, name := range k.Log {
				x.ofLog[name] = path
			}
			if k.Required != "" {
				x.required[path] = k.Required
			}
		}
	}
	return x
})

// pathOfFlag returns the path in run.yaml of a flag of `vllm serve`: that of its own key, else one
// in the section vllm, where other flags are recorded as provenance.
func pathOfFlag(flag string) string {
	if path, hasField := runKeys().ofFlag[flag]; hasField {
		return path
	}
	return "vllm." + flag
}

// hasField reports whether run.yaml has a key of its own for a flag. Flags about recording do not
// count.
func hasField(flag string) bool {
	path, own := runKeys().ofFlag[flag]
	return own && !strings.HasPrefix(path, "tracing.")
}

// takesInteger reports whether a flag takes only whole numbers. max_model_len may also be "auto".
func takesInteger(flag string) bool {
	for _, section := range runKeys().sections {
		for _, k := range section.keys {
			if k.Flag != flag || flag == "max_model_len" {
				continue
			}
			switch k.Into.(type) {
			case *int64, *trace.Opt[int64]:
				return true
			}
		}
	}
	return false
}

// vllmKeys returns the keys of the section vllm that are not plain flags of `vllm serve`.
func vllmKeys() (keys []string) {
	i := slices.IndexFunc(runKeys().sections, func(s runSection) bool { return s.name == "vllm" })
	for _, k := range runKeys().sections[i].keys {
		if k.Flag != "" || !vllm.IsFlag(k.Name, "") {
			keys = append(keys, k.Name)
		}
	}
	return keys
}
