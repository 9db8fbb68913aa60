package deploy

// This file reads run.yaml, section by section, and names every key that is missing or wrong.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// document reads one run.yaml. Its Reader has the first error.
type document struct {
	files.Reader
	missing []string   // paths of required keys that are absent
	sheets  []Hardware // of the hardware.json beside run.yaml
	drafts  string     // the config.json that was read of a draft model
}

// read returns every section of run.yaml; the model is loaded afterwards.
func (d *document) read(root *yaml.Node) *runFile {
	f := newRunFile()
	top := d.Section(root, "")
	for _, part := range f.sections() {
		s := top
		if part.name != "" {
			s = top.Sub(part.name)
		}
		keys := make([]files.Key, len(part.keys))
		for i := range part.keys {
			keys[i] = part.keys[i].Key
		}
		switch part.name {
		case "model":
			s.Read(keys...)
			d.finishModel(f, s)
		case "hardware":
			// The first key is the name; the others override its datasheet.
			s.Read(keys[0])
			if sheet, known := d.datasheet(f.dep.Hardware.Name); known {
				f.dep.Hardware = sheet
			}
			s.Read(keys[1:]...)
			d.finishHardware(&f.dep.Hardware, s)
			if f.dep.Hardware.Name == turing && f.model.DType == "bfloat16" {
				d.Fail(s.Value("name"), model.UnsupportedModel, "leave the dtype out: vLLM then takes float16",
					"%s: got dtype bfloat16, want float16: the device has no bfloat16, vLLM refuses it", turing)
			}
		case "vllm":
			// The first key is the version, on which the default of gpu_memory_utilization depends.
			s.Read(keys[0])
			f.engine.GPUMemoryUtilization = vllm.DefaultMemoryShare(f.engine.VLLMVersion)
			s.Read(keys...)
			d.finishEngine(f, s)
		default:
			s.Read(keys...)
		}
		if s != top {
			d.refuseOthers(s)
		}
	}
	f.dep.Phases = d.readPhases(top)
	client := top.Sub("client")
	client.Read(sharedPrefixKeys(&f.dep.Client.SharedPrefixTokens)...)
	d.refuseOthers(client)
	top.Read(files.Key{Name: "workload", Into: (*map[string]any)(&f.dep.Workload)})
	recordings := top.Sub("files")
	recordings.Read(
		files.Key{Name: "traces", Into: &f.dep.Files.Traces},
		files.Key{Name: "kv_events", Into: &f.dep.Files.KVEvents},
		files.Key{Name: "client_requests", Into: &f.dep.Files.ClientRequests},
		files.Key{Name: "iterations", Into: &f.dep.Files.Iterations},
	)
	f.dep.Files.StatesTraces, f.dep.Files.StatesKVEvents = recordings.Has("traces"), recordings.Has("kv_events")
	d.refuseOthers(recordings)
	d.refuseOthers(top)
	return f
}

// require adds a path to the missing ones unless it was found.
func (d *document) require(found bool, path string) {
	if !found {
		d.missing = append(d.missing, path)
	}
}

// refuseOthers fails on the first key of a section that run.yaml does not have.
func (d *document) refuseOthers(s *files.Section) {
	if others := s.Others(); len(others) > 0 {
		d.refuseKey(s, others[0], s.Known())
	}
}

// refuseKey fails on an unknown key; the hint is the section that has the key, or the nearest legal one.
func (d *document) refuseKey(s *files.Section, key *yaml.Node, legal []string) {
	hint := ""
	if strings.ReplaceAll(key.Value, "-", "_") == sharedPrefixKey {
		hint = fmt.Sprintf("did you mean client.%s, or that of one of phases?", sharedPrefixKey)
	} else if elsewhere, ok := runKeys().ofFlag[key.Value]; ok && elsewhere != s.PathOf(key.Value) {
		hint = fmt.Sprintf("did you mean %s?", elsewhere)
	} else if near := files.Nearest(key.Value, legal); near != "" {
		hint = fmt.Sprintf("did you mean %s?", s.PathOf(near))
	}
	d.Fail(key, unknownKey, hint, "unknown key %q, want one of docs/run-yaml.md", s.PathOf(key.Value))
}

// checkNumberType fails on the name of a number type (float16, fp8_e4m3) that bytesOf does not know. want has the
// names in words.
func (d *document) checkNumberType(s *files.Section, key, value string, bytesOf func(name string) float64, want string) {
	if value != "" && value != "auto" && bytesOf(value) == 0 {
		d.Fail(s.Value(key), model.UnsupportedModel, "auto takes the model's own", "%s: got %q, want %s", s.PathOf(key), value, want)
	}
}

// finishModel checks the section model and finds the built-in model.
func (d *document) finishModel(f *runFile, s *files.Section) {
	d.checkNumberType(s, "dtype", f.model.DType, model.DTypeBytes, "auto, float32, float16, bfloat16 or an fp8 name")
	d.checkNumberType(s, "kv_cache_dtype", f.model.KVCacheDType, model.KVTypeBytes, "auto, bfloat16, float16, float32, fp8* or nvfp4")
	f.configAt = s.Value("config")
	if id, known := model.BuiltInID(f.model.ID); known && f.config == "" {
		f.model.ID, f.configIsBuiltIn = id, true
	}
	d.require(f.config != "" || f.configIsBuiltIn, "model.config")
}

// severalDevices matches a name with a number of devices, such as 2xH100 or "2 H100".
var severalDevices = regexp.MustCompile(`^[0-9]+ ?[xX*]? ?[A-Za-z]{1,4}[0-9]{1,4}`)

// finishHardware fails on an unknown device without rates, and names an unnamed one.
func (d *document) finishHardware(h *Hardware, s *files.Section) {
	if h.TFlopsPeak == 0 && h.BwPeakTBs == 0 && h.Name != "" && d.Err == nil {
		hint := "known: " + datasheetNames()
		if severalDevices.MatchString(h.Name) {
			hint = "name one device, and give their number as the tensor-parallel size: --tp, or tensor_parallel_size in run.yaml"
		}
		d.Fail(s.Value("name"), unknownHardware, hint,
			"hardware.name: got %q, want a built-in datasheet, or TFlopsPeak and BwPeakTBs beside it", h.Name)
	}
	d.require(h.TFlopsPeak != 0 || h.Name != "", "hardware.name (or hardware.TFlopsPeak)")
	if h.Name == "" {
		h.Name = "unnamed"
		d.require(h.BwPeakTBs != 0 || h.TFlopsPeak == 0, "hardware.BwPeakTBs")
	}
}

// finishEngine derives the engine from the section vllm. Keys that run.yaml does not have are kept
// as provenance where `vllm serve` of the stated version has them.
func (d *document) finishEngine(f *runFile, s *files.Section) {
	e := &f.engine
	for _, setting := range e.Settings() {
		if setting.Required == "" {
			continue
		}
		value := s.Value(setting.Name)
		isStated := value != nil && value.Value != ""
		d.require(isStated, s.PathOf(setting.Name))
		if err, outside := errors.AsType[*trace.Error](setting.Check()); outside && isStated {
			d.Fail(value, err.Code, err.Hint, "%s", s.PathOf(err.Msg))
		}
	}
	f.prefixesStated = s.Value("enable_prefix_caching") != nil
	d.applyOverride(e, s)

	stateTypes := "auto, float32, float16 or bfloat16" // of recurrent states
	d.checkNumberType(s, "mamba_cache_dtype", e.MambaCacheDType, model.DTypeBytes, stateTypes)
	d.checkNumberType(s, "mamba_ssm_cache_dtype", e.MambaSSMCacheDType, model.DTypeBytes, stateTypes)
	f.model.Quantization = e.Quantization
	f.model.MambaCacheDType = e.MambaCacheDType
	f.model.MambaSSMCacheDType = e.MambaSSMCacheDType
	for key, stated := range map[string]string{"quantization": e.Quantization, "mamba_cache_dtype": e.MambaCacheDType,
		"mamba_ssm_cache_dtype": e.MambaSSMCacheDType} {
		if stated != "" {
			e.Keep(key, stated)
		}
	}

	if e.SpeculativeConfig != nil {
		e.Keep("speculative_config", e.SpeculativeConfig)
	}
	if e.SpeculativeConfig != nil || e.SpeculativeModel != nil || e.SpeculativeTokens != nil {
		e.SpeculativeDecoding = true
	}
	d.keepFlags(&e.Engine, s)
	// Since 0.22 `vllm serve` has short flags for three keys of speculative_config.
	for short, key := range map[string]string{"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"} {
		if v := e.Extra[short]; v != nil {
			config := map[string]any{key: v}
			maps.Copy(config, e.Object("speculative_config"))
			e.Keep("speculative_config", config)
			e.SpeculativeDecoding = true
		}
	}
	f.dep.Engine = e.Engine
}

// applyOverride derives the number of KV blocks from num_gpu_blocks_override, less the null block,
// which vLLM reserves, and compares them where the server's own figure is stated too.
func (d *document) applyOverride(e *vllm.Stated, s *files.Section) {
	override := e.KVBlocksOverride
	switch {
	case !override.OK:
	case !e.KVBlocksGPU.OK:
		e.KVBlocksGPU = trace.Some(max(1, override.V-1))
	case !isNearBlocks(e.KVBlocksGPU.V, override.V):
		d.Fail(s.Value("kv_blocks_total_gpu"), badRunYAML, "keep the one that the server's log prints",
			"vllm.kv_blocks_total_gpu: got %d blocks, want the %d of num_gpu_blocks_override", e.KVBlocksGPU.V, override.V)
	}
}

// isNearBlocks reports whether two sizes of a KV cache differ by no more than rounding and the null block: two blocks,
// or one per cent of the second.
func isNearBlocks(n, of int64) bool {
	return math.Abs(float64(n-of)) <= math.Max(2, 0.01*float64(of))
}

// keepFlags stores the other flags of `vllm serve`, and fails on any other key.
func (d *document) keepFlags(e *vllm.Engine, s *files.Section) {
	for _, key := range s.Others() {
		if !isServeFlag(key.Value, e.VLLMVersion) {
			d.refuseKey(s, key, append(serveFlags(e.VLLMVersion), s.Known()...))
			return
		}
		node := s.Value(key.Value)
		if node == nil || vllm.IsSecret(key.Value) {
			continue
		}
		var value any
		if err := node.Decode(&value); err != nil {
			d.Fail(key, badRunYAML, "", "vllm.%s: %v", key.Value, err)
			return
		}
		if why := vllm.RefusedValue(key.Value, value); why != "" {
			d.Fail(node, badRunYAML, "", "vllm.%s: %s", key.Value, why)
			return
		}
		e.Keep(key.Value, value)
	}
}

// sharedPrefixKey is the key of the sections client and phases that states what prompts share.
const sharedPrefixKey = "shared_prefix_tokens"

// sharedPrefixKeys returns the key, and the spelling that it has as an option and in pipeline.yaml.
func sharedPrefixKeys(into *trace.Opt[int64]) []files.Key {
	key := files.Key{Name: sharedPrefixKey, Into: into, Unit: "tokens", Range: files.AtLeast(0)}
	asOption := key
	asOption.Name = strings.ReplaceAll(sharedPrefixKey, "_", "-")
	return []files.Key{key, asOption}
}

// readPhases returns the phases of the run, which may not overlap.
func (d *document) readPhases(top *files.Section) []Phase {
	var phases []Phase
	items, nodes := top.Items("phases")
	for i, s := range items {
		var start, end trace.Opt[int64]
		p := Phase{Load: LoadOpen}
		time := files.Range{Min: 0, Max: math.MaxInt64}
		s.Read(sharedPrefixKeys(&p.SharedPrefixTokens)...)
		s.Read(
			files.Key{Name: "name", Into: &p.Name},
			files.Key{Name: "load", Into: &p.Load, OneOf: []string{LoadOpen, LoadClosed}},
			files.Key{Name: "start_ns", Into: &start, Unit: "ns", Range: &time},
			files.Key{Name: "end_ns", Into: &end, Unit: "ns", Range: &time},
		)
		d.refuseOthers(s)
		p.StartNs, p.EndNs = start.V, end.V
		var before Phase
		if len(phases) > 0 {
			before = phases[len(phases)-1]
		}
		switch {
		case p.Name == "" || !start.OK || !end.OK:
			d.Fail(nodes[i], badRunYAML, "", "phases[]: want name, start_ns and end_ns")
		case p.EndNs <= p.StartNs:
			d.Fail(nodes[i], badRunYAML, "", "phase %q: got end_ns %d, want > start_ns %d", p.Name, p.EndNs, p.StartNs)
		case len(phases) > 0 && p.StartNs < before.EndNs:
			d.Fail(nodes[i], badRunYAML, "", "phase %q: got start_ns %d, want >= %d, the end of phase %q", p.Name, p.StartNs,
				before.EndNs, before.Name)
		case slices.ContainsFunc(phases, func(q Phase) bool { return q.Name == p.Name }):
			d.Fail(nodes[i], badRunYAML, "name each stretch of the recording differently, as in low-1 and low-2",
				"phase %q: got the name twice, want a name of its own", p.Name)
		}
		phases = append(phases, p)
	}
	return phases
}

// datasheet returns a device in the hardware.json beside run.yaml, or else one of the built-in
// ones. It returns false if there is none.
func (d *document) datasheet(name string) (Hardware, bool) {
	for _, h := range d.sheets {
		if name != "" && aliasKey(h.Name) == aliasKey(name) {
			return h, true
		}
	}
	return Datasheet(name)
}
