package deploy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/vllm"
)

var update = flag.Bool("update", false, "rewrite generated parts of docs")

const runYAMLDoc = "../docs/run-yaml.md"

// The generated parts of docs/run-yaml.md are current; -update rewrites them.
func TestRunYAMLDocIsGenerated(t *testing.T) {
	text := repo.Read(t, runYAMLDoc)
	want := replaceBetween(t, string(text), "hardware", hardwareTable())
	want = replaceBetween(t, want, "knobs", knobTable(t))
	if *update {
		repo.Write(t, want, runYAMLDoc)
		return
	}
	if string(text) != want {
		t.Errorf("%s is out of date; rerun with -update", runYAMLDoc)
	}
}

// replaceBetween puts body between the markers of the part.
func replaceBetween(t *testing.T, text, part, body string) string {
	t.Helper()
	open := "<!-- " + part + ": generated, see deploy/docs_test.go -->\n"
	end := "<!-- end of " + part + " -->\n"
	before, rest, ok1 := strings.Cut(text, open)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no markers for %s", runYAMLDoc, part)
	}
	return before + open + body + end + after
}

func hardwareTable() string {
	var b strings.Builder
	b.WriteString("| name | TFlopsPeak | TFlopsFP8 | BwPeakTBs | memory_gb | pcie_bandwidth_gb_s | interconnect_bandwidth_gb_s | " +
		"interconnect_latency_us | source |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, h := range Datasheets() {
		fmt.Fprintf(&b, "| %s | %g | %g | %g | %g | %g | %g | %g | %s |\n", h.Name, h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.MemoryGB,
			h.PCIeBandwidthGBs, h.InterconnectBandwidthGBs, h.InterconnectLatencyUs, datasheetSource(h.Name))
	}
	return b.String()
}

// askedKnobs are the knobs people ask about.
var askedKnobs = []string{"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel", "enable_eplb",
	"decode_context_parallel_size", "prefill_context_parallel_size", "nnodes", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
	"enable_chunked_prefill", "max_num_partial_prefills", "long_prefill_token_threshold", "scheduling_policy", "scheduler_cls",
	"async_scheduling", "num_scheduler_steps", "enable_prefix_caching", "block_size", "gpu_memory_utilization", "num_gpu_blocks_override",
	"kv_cache_dtype", "kv_cache_memory_bytes", "cpu_offload_gb", "kv_offloading_size", "kv_transfer_config", "ec_transfer_config",
	"dtype", "quantization", "enforce_eager", "compilation_config", "optimization_level", "attention_backend", "moe_backend",
	"performance_mode", "all2all_backend", "enable_dbo", "speculative_config", "enable_lora", "limit_mm_per_prompt", "runner",
	"disable_cascade_attn", "stream_interval", "hf_overrides"}

// flagEffects reads testdata/flag_effects.txt: what becomes of the flags that neither vllm/limit_table.go nor a field of their own decides.
func flagEffects(t *testing.T) map[string]string {
	text, err := os.ReadFile("testdata/flag_effects.txt")
	if err != nil {
		t.Fatal(err)
	}
	effects, effect := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		for _, word := range strings.Fields(line) {
			if name, ok := strings.CutSuffix(word, ":"); ok && line[0] != ' ' {
				effect = name
			} else if line[0] != '#' {
				if effects[word] != "" {
					t.Errorf("flag_effects.txt: %s stands twice", word)
				}
				effects[word] = effect
			}
		}
	}
	return effects
}

// TestEveryFlagHasAnEffect: each flag of each release of vLLM is a field, a limit, read, kept for the coefficients, or changes neither
// a size nor a step; what is read stands in the source.
func TestEveryFlagHasAnEffect(t *testing.T) {
	effects := flagEffects(t)
	limited := map[string]bool{}
	for _, l := range vllm.Limits() {
		for _, key := range append(l.Given, l.Key) {
			limited[key] = true
			_, own := runKeys().ofFlag[key]
			if known := vllm.IsFlag(key, ""); !known && !own && key != "speculative_decoding" {
				t.Errorf("vllm/limit_table.go: %s is no flag of vLLM", key)
			}
		}
	}
	forkFlags := string(repo.Read(t, "../vllm/fork_flags.txt"))
	for _, f := range vllm.AllFlags() {
		flag, n := f.Name, 0
		_, own := runKeys().ofFlag[flag]
		for _, is := range []bool{limited[flag] || own, effects[flag] != ""} {
			if is {
				n++
			}
		}
		if n != 1 && !strings.Contains(forkFlags, "\n"+flag+" ") {
			t.Errorf("%s stands in %d of vllm/limit_table.go, the keys of run.yaml and flag_effects.txt, want 1", flag, n)
		}
	}
	var source strings.Builder
	for _, pattern := range []string{"*.go", "../model/*.go", "../vllm/*.go", "../cmd/blis-train/*.go", "../pipeline/*/*.go", "../sim/*.go", "../sim/*/*.go",
		"../library/*.go", "../simulate/*.go"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, "_test.go") {
				source.Write(text)
			}
		}
	}
	for flag, effect := range effects {
		if !vllm.IsFlag(flag, "") {
			t.Errorf("flag_effects.txt: %s is no flag of vLLM", flag)
		}
		if effect == "read" && !strings.Contains(source.String(), `"`+flag+`"`) && !strings.Contains(source.String(), "vllm."+flag) {
			t.Errorf("%s is said to be read, and no source names it", flag)
		}
	}
}

// keptFlags are the flags that run.yaml keeps as provenance, of any release.
func keptFlags() []vllm.Flag {
	return slices.DeleteFunc(slices.Clone(vllm.AllFlags()), func(f vllm.Flag) bool { return hasField(f.Name) })
}

// knobTable lists the knobs by what becomes of them, as the code decides it.
func knobTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| what becomes of it | knobs, with the releases of vLLM that have them |\n|---|---|\n")
	var fates []string
	knobs := map[string][]string{}
	effects := flagEffects(t)
	var more []string
	for _, f := range keptFlags() {
		limited := slices.ContainsFunc(vllm.Limits(), func(l vllm.Limit) bool { return l.Key == f.Name || slices.Contains(l.Given, f.Name) })
		if !slices.Contains(askedKnobs, f.Name) && (limited || effects[f.Name] == "read" || effects[f.Name] == "kept") && !vllm.IsSecret(f.Name) {
			more = append(more, f.Name)
		}
	}
	for _, key := range append(slices.Clone(askedKnobs), more...) {
		var words []string
		_, own := runKeys().ofFlag[key]
		if known := vllm.IsFlag(key, ""); !known && !own {
			t.Errorf("%s is no flag of vLLM", key)
		}
		for _, l := range vllm.Limits() {
			if l.Key != key && !slices.Contains(l.Given, key) {
				continue
			}
			how := "warned"
			if l.Refused {
				how = "refused"
			}
			words = append(words, fmt.Sprintf("%s `%s`: %s", how, l.Code(), strings.TrimSuffix(l.What, ",")))
		}
		switch {
		case key == "kv_offloading_size":
			words = append(words, "modelled: a CPU tier of KV blocks (`cpu_offloading`, `kv_blocks_total_cpu`)")
		case key == "kv_transfer_config":
			words = append(words, "modelled with "+strings.Join(vllm.TierConnectors, ", ")+": a CPU tier of KV blocks")
		case len(words) == 0 && (own || effects[key] == "read"):
			words = append(words, "modelled")
		case len(words) == 0:
			words = append(words, "kept")
		}
		span := ""
		for _, f := range keptFlags() {
			if f.Name == key {
				span = flagSpan(f)
			}
		}
		fate := strings.Join(words, "; ")
		if knobs[fate] == nil {
			fates = append(fates, fate)
		}
		knob := "`" + key + "`"
		if span != "" {
			knob += " (" + span + ")"
		}
		knobs[fate] = append(knobs[fate], knob)
	}
	slices.Sort(fates)
	for _, fate := range fates {
		fmt.Fprintf(&b, "| %s | %s |\n", fate, strings.Join(knobs[fate], ", "))
	}
	return b.String()
}

func flagSpan(f vllm.Flag) string {
	switch {
	case f.Since != (vllm.Release{}) && f.Until != (vllm.Release{}):
		return fmt.Sprintf("%s to %s", f.Since, f.Until)
	case f.Since != (vllm.Release{}):
		return "from " + f.Since.String()
	case f.Until != (vllm.Release{}):
		return "to " + f.Until.String()
	}
	return ""
}

func TestServeFlagsAreSortedAndDistinctFromOurs(t *testing.T) {
	if !slices.IsSortedFunc(keptFlags(), func(a, b vllm.Flag) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the flags are not sorted by name")
	}
	for i, f := range keptFlags() {
		if i > 0 && keptFlags()[i-1].Name == f.Name {
			t.Errorf("%s stands twice", f.Name)
		}
		if target, own := runKeys().ofFlag[f.Name]; own && !strings.HasPrefix(target, "tracing.") && f.Name != "model" {
			t.Errorf("%s has a field of its own and is provenance too", f.Name)
		}
	}
	if !isServeFlag("enforce_eager", "0.15.1") || isServeFlag("num_scheduler_steps", "0.15.1") ||
		!isServeFlag("num_scheduler_steps", "0.9.2") ||
		isServeFlag("enable_mfu_metrics", "0.9.2") || !isServeFlag("enable_mfu_metrics", "unknown") {
		t.Error("versions of flags are not respected")
	}
}

// Every key the loader knows stands in the page.
func TestRunYAMLDocNamesEveryKey(t *testing.T) {
	text := repo.Read(t, runYAMLDoc)
	for _, s := range runKeys().sections {
		for _, k := range s.keys {
			key := k.Name
			if !strings.Contains(string(text), key) {
				t.Errorf("%s.%s is not in %s", s.name, key, runYAMLDoc)
			}
		}
	}
}
