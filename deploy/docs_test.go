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
)

var update = flag.Bool("update", false, "rewrite generated parts of docs")

const runYAMLDoc = "../docs/run-yaml.md"

// The generated parts of docs/run-yaml.md are current; -update rewrites them.
func TestRunYAMLDocIsGenerated(t *testing.T) {
	text := repo.Read(t, runYAMLDoc)
	want := replaceBetween(t, string(text), "hardware", hardwareTable())
	want = replaceBetween(t, want, "knobs", knobTable(t))
	want = replaceBetween(t, want, "flags", flagsTable(flagEffects(t)))
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
	open, end := "<!-- "+part+": generated, see deploy/docs_test.go -->\n", "<!-- end of "+part+" -->\n"
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

// flagEffects reads testdata/flag_effects.txt: what becomes of the flags that neither limits.yaml nor a field of their own decides.
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
	effects, limited := flagEffects(t), map[string]bool{}
	for _, l := range limits() {
		for _, key := range append(l.Given, l.Key) {
			limited[key] = true
			_, own := runKeys().Own[key]
			if _, known := flagsRead().kinds[key]; !known && !own && key != "speculative_decoding" {
				t.Errorf("limits.yaml: %s is no flag of vLLM", key)
			}
		}
	}
	for flag := range flagsRead().kinds {
		n := 0
		_, own := runKeys().Own[flag]
		for _, is := range []bool{limited[flag] || own, effects[flag] != ""} {
			if is {
				n++
			}
		}
		if n != 1 && !strings.Contains(forkFlags, "\n"+flag+" ") {
			t.Errorf("%s stands in %d of limits.yaml, keys.yaml and flag_effects.txt, want 1", flag, n)
		}
	}
	var source strings.Builder
	for _, pattern := range []string{"*.go", "../cmd/blis-train/*.go", "../pipeline/*/*.go", "../sim/*.go", "../sim/*/*.go"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if text, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, "_test.go") {
				source.Write(text)
			}
		}
	}
	for flag, effect := range effects {
		if _, known := flagsRead().kinds[flag]; !known {
			t.Errorf("flag_effects.txt: %s is no flag of vLLM", flag)
		}
		if effect == "read" && !strings.Contains(source.String(), `"`+flag+`"`) && !strings.Contains(source.String(), "vllm."+flag) {
			t.Errorf("%s is said to be read, and no source names it", flag)
		}
	}
}

// knobTable says of each what becomes of it, as the code decides it.
func knobTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| knob | vLLM | what becomes of it |\n|---|---|---|\n")
	effects := flagEffects(t)
	var more []string
	for _, f := range flagsRead().flags {
		limited := slices.ContainsFunc(limits(), func(l Limit) bool { return l.Key == f.name || slices.Contains(l.Given, f.name) })
		if !slices.Contains(askedKnobs, f.name) && (limited || effects[f.name] == "read" || effects[f.name] == "kept") && !isSecret(f.name) {
			more = append(more, f.name)
		}
	}
	for _, key := range append(slices.Clone(askedKnobs), more...) {
		var words []string
		_, own := runKeys().Own[key]
		if _, known := flagsRead().kinds[key]; !known && !own {
			t.Errorf("%s is no flag of vLLM", key)
		}
		for _, l := range limits() {
			if l.Key != key && !slices.Contains(l.Given, key) {
				continue
			}
			how := "warned"
			if l.Refused {
				how = "refused"
			}
			words = append(words, fmt.Sprintf("%s `%s`: %s", how, l.Code, l.What))
		}
		switch {
		case key == "kv_offloading_size":
			words = append(words, "modelled: a CPU tier of KV blocks (`cpu_offloading`, `kv_blocks_total_cpu`)")
		case key == "kv_transfer_config":
			words = append(words, "modelled with "+strings.Join(tierConnectors, ", ")+": a CPU tier of KV blocks")
		case len(words) == 0 && (own || effects[key] == "read"):
			words = append(words, "modelled")
		case len(words) == 0:
			words = append(words, "kept")
		}
		span := ""
		for _, f := range flagsRead().flags {
			if f.name == key {
				span = flagSpan(f)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, span, strings.Join(words, "; "))
	}
	return b.String()
}

func flagSpan(f serveFlag) string {
	switch {
	case f.since != always && f.until != always:
		return fmt.Sprintf("%s to %s", minor(f.since), minor(f.until))
	case f.since != always:
		return "from " + minor(f.since)
	case f.until != always:
		return "to " + minor(f.until)
	}
	return ""
}

func flagsTable(effects map[string]string) string {
	var items []string
	for _, f := range flagsRead().flags {
		if effects[f.name] != "none" {
			continue
		}
		item := "`" + f.name + "`"
		if span := flagSpan(f); span != "" {
			item += " (" + span + ")"
		}
		items = append(items, item)
	}
	return strings.Join(items, ",\n") + ".\n"
}

func minor(v [2]int) string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

func TestServeFlagsAreSortedAndDistinctFromOurs(t *testing.T) {
	if !slices.IsSortedFunc(flagsRead().flags, func(a, b serveFlag) int { return strings.Compare(a.name, b.name) }) {
		t.Error("the flags are not sorted by name")
	}
	for i, f := range flagsRead().flags {
		if i > 0 && flagsRead().flags[i-1].name == f.name {
			t.Errorf("%s stands twice", f.name)
		}
		if target, own := runKeys().Own[f.name]; own && !strings.HasPrefix(target, "tracing.") && f.name != "model" {
			t.Errorf("%s has a field of its own and is provenance too", f.name)
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
	for _, s := range runKeys().Sections {
		for _, key := range s.Keys {
			if !strings.Contains(string(text), key) {
				t.Errorf("%s.%s is not in %s", s.Name, key, runYAMLDoc)
			}
		}
	}
}

// The command that docs/recording.md tells people to start vLLM with is one that
// `init` understands, to the last flag.
func TestServeCommandOfThePageIsRead(t *testing.T) {
	text := repo.Read(t, "../docs/recording.md")
	n := 0
	for i, block := range strings.Split(string(text), "```") {
		if i%2 == 0 || !strings.Contains(block, "step-tracing-enabled") {
			continue
		}
		n++
		var lines []string
		for _, line := range strings.Split(block, "\n")[1:] {
			line, _, _ = strings.Cut(line, "   #")
			lines = append(lines, strings.TrimSuffix(line, "\\"))
		}
		d, err := FromCommandLine(strings.Join(lines, " "), nil)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]any{"model.id": "meta-llama/Llama-3.1-8B", "tracing.step_tracing_sample_rate": 1.0,
			"tracing.step_tracing_rich_subsample_rate": 0.1,
			"tracing.step_tracing_closure_interval":    int64(100), "tracing.otel_span_event_count_limit": int64(100000),
			"vllm.enable_journey_tracing": true} {
			got := d.Get(key)
			if i, ok := got.(int64); ok && want == float64(i) {
				continue
			}
			if got != want {
				t.Errorf("%s: got %v, want %v", key, got, want)
			}
		}
	}
	if n != 1 {
		t.Errorf("docs/recording.md holds %d commands with step tracing, want 1", n)
	}
}

// A number that the engine would refuse is refused here, with its flag.
func TestCommandLineWantsWholeNumbers(t *testing.T) {
	for line, want := range map[string]string{
		"vllm serve m --max-num-seqs x":             `--max-num-seqs: got "x", want a whole number`,
		"vllm serve m --max-num-seqs":               `--max-num-seqs: got "", want a whole number`,
		"vllm serve m -tp two":                      `-tp: got "two", want a whole number`,
		"vllm serve m --max-num-batched-tokens 1.5": `--max-num-batched-tokens: got "1.5", want a whole number`,
	} {
		if _, err := FromCommandLine(line, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
	for _, longest := range []string{"auto", "-1"} {
		d, err := FromCommandLine("vllm serve m --max-num-seqs 1k --max-model-len "+longest, nil)
		if err != nil {
			t.Fatal(err)
		}
		log := NewDraft()
		log.Set("vllm.max_model_len", int64(4096))
		var text strings.Builder
		want := "max_model_len: null  # " + longest + ": the longest that fits; give"
		if err := d.Write(&text); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("--max-model-len %s: got %s %v", longest, text.String(), err)
		}
		if d.Merge(log); d.Get("vllm.max_model_len") != int64(4096) {
			t.Errorf("what the log says is not taken: got %v", d.Get("vllm.max_model_len"))
		}
	}
}
