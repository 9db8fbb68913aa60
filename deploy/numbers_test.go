package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestRefusedDrafters: what a simulation refuses of drafts and of experts, one setting away from what it takes.
func TestRefusedDrafters(t *testing.T) {
	const rates = "num_speculative_tokens: 3, synthetic_acceptance_length: 2, "
	moe := []string{"model.id=mistralai/Mixtral-8x7B-v0.1", "vllm.enable_expert_parallel=true"}
	for _, c := range []struct {
		want string // "": accepted
		code trace.Code
		set  []string
	}{
		{"speculative decoding: got no speculative_config", vllm.UnsupportedEngine, []string{"vllm.speculative_decoding=true"}},
		{"pipeline_parallel_size: got speculative decoding beside it", vllm.UnsupportedEngine, []string{
			"vllm.version=0.32.0", "pipeline_parallel_size=2", "vllm.speculative_config={" + rates + "method: eagle}"}},
		{"", "", []string{"vllm.version=0.33.0", "pipeline_parallel_size=2", "vllm.speculative_config={" + rates + "method: eagle}"}},
		{"speculative_config: got no acceptance", vllm.UnsupportedEngine, []string{"vllm.speculative_config={num_speculative_tokens: 3, method: eagle}"}},
		{"speculative_config: got ngram without an acceptance", vllm.UnsupportedEngine, []string{
			"vllm.speculative_config={num_speculative_tokens: 3, method: ngram}"}},
		{"enable_eplb: got tensor_parallel_size 1 and data_parallel_size 1", vllm.BadKnobs, append([]string{"vllm.enable_eplb=true"}, moe...)},
		{"", "", append([]string{"vllm.enable_eplb=true", "tensor_parallel_size=2"}, moe...)},
		{"eplb_config.num_redundant_experts: got 1, want enable_eplb", vllm.BadKnobs, []string{"vllm.eplb_config={num_redundant_experts: 1}"}},
		{"data_parallel_size: got 2000, want at most ", vllm.UnsupportedEngine, []string{"data_parallel_size=2000"}},
	} {
		err := settings(t, append([]string{"vllm.version=0.33.0"}, c.set...)...).CheckSimulated()
		if trace.CodeOf(err) != c.code || c.want != "" && !strings.HasPrefix(err.Error(), string(c.code)+": "+c.want) && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.set, err, c.want)
		}
	}
	for version, want := range map[string]bool{"0.18.0": false, "0.19.0": true} {
		d := settings(t, "vllm.version="+version, "vllm.kv_blocks_total_gpu=1000", "vllm.kv_transfer_config={kv_connector: OffloadingConnector, kv_role: kv_both, "+
			"kv_connector_extra_config: {num_cpu_blocks: 1000, eviction_policy: arc}}")
		if why := d.contradiction(nil); (why == "") != want {
			t.Errorf("arc in %s: got %q", version, why)
		}
	}
}

// TestFlagsThatServeRefuses: a flag that no release has, the beginning of one, one of run.yaml's own, and releases and engines
// whose flags are not known.
func TestFlagsThatServeRefuses(t *testing.T) {
	for _, c := range []struct{ flag, version, want, hint string }{
		{"--max-num-seq 4", "0.24.0", "", ""}, // argparse: max-num-seqs
		{"--max-num-seqz 4", "0.24.0", "--max-num-seqz: no flag of `vllm serve` 0.24.0, which does not start with it", "did you mean --max-num-seqs?"},
		{"--xyzzy-plugh-quux 4", "0.24.0", "--xyzzy-plugh-quux: no flag", "correct or remove it, or name another --vllm-version"},
		{"--max-num-seqz 4", vllm.NewestFlags().String(), "--max-num-seqz: no flag", "did you mean --max-num-seqs?"},
		{"--max-num-seqz 4", "9.0.0", "", ""},
		{"--max-num-seqz 4", "of tomorrow", "", ""},
		{"--max-num-seqs 4", "0.24.0", "", ""},
	} {
		d, err := FromCommandLine("vllm serve m "+c.flag, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := d.RefusedFlag(c.version)
		if c.want == "" {
			if got != nil {
				t.Errorf("%s of %s: got %v", c.flag, c.version, got)
			}
			continue
		}
		if trace.CodeOf(got) != vllm.BadCommandLine || !strings.Contains(got.Error(), "command line: "+c.want) || hintOf(got) != c.hint {
			t.Errorf("%s of %s: got %v (%s), want %s (%s)", c.flag, c.version, got, hintOf(got), c.want, c.hint)
		}
	}
	d, _ := FromCommandLine("vllm serve m --max-num-seqz 4", nil)
	d.isOthers = true
	if err := d.RefusedFlag("0.24.0"); err != nil {
		t.Errorf("another engine: got %v", err)
	}
}

// TestNestedFlags: members of a flag that is a mapping, and the CPU tier that two flags turn on.
func TestNestedFlags(t *testing.T) {
	d, err := FromCommandLine("vllm serve m --kv-transfer-config.kv_connector OffloadingConnector "+
		"--kv-transfer-config.kv_connector_extra_config.num_cpu_blocks 700 --kv-transfer-config.kv_connector_extra_config.block_size 32", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(d.Get("vllm.kv_transfer_config")),
		"map[kv_connector:OffloadingConnector kv_connector_extra_config:map[block_size:32 num_cpu_blocks:700]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if d.Get("vllm.cpu_offloading") != true || d.Get("vllm.kv_blocks_total_cpu") != int64(700) || d.notes["vllm.cpu_offloading"] != "from --kv-transfer-config" {
		t.Errorf("got %v", d.values)
	}
	for line, blocks := range map[string]any{
		`--kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"num_cpu_blocks": 9e2}}'`: int64(900),
		"--kv-offloading-size 4": nil,
	} {
		d, err = FromCommandLine("vllm serve m "+line, nil)
		if err != nil || d.Get("vllm.cpu_offloading") != true || d.Get("vllm.kv_blocks_total_cpu") != blocks {
			t.Errorf("%s: got %v, %v", line, d.values, err)
		}
	}
	if d, err = FromCommandLine(`vllm serve m --kv-transfer-config '{"kv_connector": "NixlConnector"}'`, nil); err != nil || d.Get("vllm.cpu_offloading") != nil {
		t.Errorf("no tier: got %v, %v", d.values, err)
	}
	if d, err = FromCommandLine(`vllm serve m --compilation-config '{"level": 3, "xyzzy": 1}'`, nil); err != nil || len(d.findings) != 1 ||
		d.findings[0].Code != UnknownFlag || !strings.HasPrefix(d.findings[0].Message, "--compilation-config: xyzzy: got no key that this version knows") {
		t.Errorf("unknown members: got %v, %v", d.findings, err)
	}
}

// TestFurtherLogWordings: lines of older releases and other devices, in any case where a release changed it.
func TestFurtherLogWordings(t *testing.T) {
	for _, c := range []struct {
		line, path string
		want       any
	}{
		{"Setting kv cache block size to 64 for the FLASHMLA backend.", "vllm.block_size", int64(64)},
		{"Setting attention block size to 528 tokens", "vllm.block_size", int64(528)},
		{"num_gpu_blocks is: 4321", "vllm.kv_blocks_total_gpu", int64(4320)},
		{"# GPU blocks: 500, # CPU blocks: 10", "vllm.kv_blocks_total_gpu", int64(499)},
		{"# cuda blocks: 600", "vllm.kv_blocks_total_gpu", int64(599)},
		{"Overriding num_gpu_blocks=9 with num_gpu_blocks_override=700", "vllm.kv_blocks_total_gpu", int64(699)},
		{"Using configuration from E=8,N=1,device_name=NVIDIA_H100_80GB_HBM3.json", "hardware.name", "H100-SXM-80GB"},
		{"GPU 0: NVIDIA H100 80GB HBM3 (UUID: 1)", "hardware.name", "H100-SXM-80GB"},
		{"Async Scheduling with spec decode is DISABLED", "vllm.async_scheduling", false},
		{"Disabling asynchronous scheduling", "vllm.async_scheduling", false},
		{"a line of something else", "hardware.name", nil},
	} {
		d := NewDraft()
		if read := d.readLogLine(c.line); read != (c.want != nil) || d.Get(c.path) != c.want {
			t.Errorf("%s: got %v in %v, want %v", c.line, d.Get(c.path), d.values, c.want)
		}
	}
	d := NewDraft()
	d.readArgs("{'model_tag': 'x', 'max_num_seqs': 9, 'api_key': 's', 'xyzzy_plugh': 1, 'served_model_name': ['a', 'b'], 'kv_offloading_size': 4.0}")
	if !d.hasArgs || d.Get("vllm.max_num_seqs") != int64(9) || d.Get("vllm.api_key") != nil || d.Get("model.id") != "a" || d.Get("vllm.cpu_offloading") != true ||
		len(d.findings) != 1 || !strings.HasPrefix(d.findings[0].Message, "xyzzy_plugh is no flag of `vllm serve` that this version knows") {
		t.Errorf("got %v, %v", d.values, d.findings)
	}
	d = NewDraft()
	if d.readArgs("[1, 2]"); d.hasArgs || len(d.findings) != 1 || !strings.HasPrefix(d.findings[0].Message, "the log's non-default args are not a Python mapping") {
		t.Errorf("got %v", d.findings)
	}
}

// TestFindingsOfADraft: a release newer than the flags that are known, a GPU's name beside a log of the CPU back end, what of the
// model is not modelled, and the keys that a draft must have.
func TestFindingsOfADraft(t *testing.T) {
	newest := vllm.NewestFlags()
	for version, want := range map[string]int{newest.String(): 0, fmt.Sprintf("%d.%d.0", newest[0], newest[1]+1): 1} {
		d := NewDraft()
		d.Set("vllm.version", version)
		got := d.Findings(nil)
		if len(got) != want || want > 0 && (got[0].Code != UnknownFlag || !strings.HasPrefix(got[0].Message, "vLLM "+version+" is newer than the flags")) {
			t.Errorf("%s: got %v", version, got)
		}
	}
	for name, want := range map[string]bool{"H100-SXM-80GB": true, "Xeon": false} {
		for _, isCPU := range []bool{false, true} {
			d := NewDraft()
			d.Set("hardware.name", name)
			d.isCPU = isCPU
			says := func(f trace.Finding) bool {
				return f.Code == unknownHardware && strings.HasPrefix(f.Message, "hardware.name says "+name+" and the log is of vLLM's CPU back end")
			}
			if got := d.Findings(nil); slices.ContainsFunc(got, says) != (want && isCPU) {
				t.Errorf("%s, CPU %t: got %v", name, isCPU, got)
			}
		}
	}
	d := NewDraft()
	d.Set("vllm.cpu_offload_gb", int64(4))
	if got := d.Findings(nil); len(got) != 1 || got[0].Code != vllm.NotModelled && got[0].Code != vllm.UnsupportedEngine || !strings.Contains(got[0].Message, "cpu_offload_gb") {
		t.Errorf("offloaded weights: got %v", got)
	}
	d = NewDraft()
	d.Set("hardware.name", "none such")
	if got, want := strings.Join(d.required(), " "), "model.config hardware.name hardware.TFlopsPeak hardware.BwPeakTBs hardware.memory_gb vllm.version "+
		"vllm.max_num_seqs vllm.max_num_batched_tokens"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	d.Set("hardware.name", "H100-SXM-80GB")
	d.Set("model.id", "meta-llama/Llama-3.1-8B")
	if got, want := strings.Join(d.required(), " "), "hardware.name vllm.version vllm.max_num_seqs vllm.max_num_batched_tokens"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := NewDraft()
	other.addFinding(trace.Findingf(UnknownFlag, "of the other"))
	other.kvTokens, other.isCPU = 700, true
	d.kvTokens = 600
	if d.Merge(other); len(d.findings) != 1 || d.findings[0].Message != "of the other" || d.kvTokens != 700 || !d.isCPU {
		t.Errorf("merged: got %+v", d)
	}
}

// TestBlocksOfGroups: a log's tokens in a model whose layers draw from several groups, and asynchronous steps.
func TestBlocksOfGroups(t *testing.T) {
	count := func(d *Draft, m *model.Model) any {
		d.kvTokens = 160_000
		d.CountKVBlocks(m)
		return d.Get("vllm.kv_blocks_total_gpu")
	}
	plain := settings(t).Model
	d := NewDraft()
	if got := count(d, &plain); got != int64(9999) || d.notes["vllm.kv_blocks_total_gpu"] != "160000 tokens in blocks of 16, less the null block" {
		t.Errorf("alike: got %v, %s", got, d.notes["vllm.kv_blocks_total_gpu"])
	}
	grouped := settings(t, "model.id=google/gemma-3-27b-it", "vllm.max_model_len=8192").Model
	sizes := map[bool]any{}
	for _, async := range []bool{false, true} {
		d = NewDraft()
		d.Set("vllm.version", "0.24.0")
		d.Set("vllm.max_model_len", int64(8192))
		d.Set("vllm.max_num_batched_tokens", int64(2048))
		if !async {
			d.Set("vllm.async_scheduling", false)
		}
		sizes[async] = count(d, &grouped)
		if note := d.notes["vllm.kv_blocks_total_gpu"]; !strings.HasPrefix(note, "160000 tokens of requests that draw blocks for ") {
			t.Errorf("groups: got %q", note)
		}
	}
	// A window's layers hold what is in flight twice with asynchronous steps: more blocks for as many tokens.
	if a, b := sizes[false], sizes[true]; a == nil || b == nil || a.(int64) >= b.(int64) {
		t.Errorf("got %v blocks, %v with asynchronous steps", a, b)
	}
}

// TestLogsOfOtherDevices: a log of the CPU back end beside a GPU's run.yaml, blocks that a log states as tokens, and a
// quantization that only one of them has.
func TestLogsOfOtherDevices(t *testing.T) {
	sentence := func(dep *Deployment, setting string, set func(*Draft)) string {
		d := NewDraft()
		set(d)
		for _, c := range d.Against(dep) {
			if c.Setting == setting {
				return c.Sentence
			}
		}
		return ""
	}
	dep := settings(t, "vllm.kv_blocks_total_gpu=1000")
	for _, c := range []struct {
		setting, want string
		set           func(*Draft)
	}{
		{"hardware.name", "hardware.name: the log says vLLM's CPU back end, run.yaml H100-SXM-80GB", func(d *Draft) { d.isCPU = true }},
		{"hardware.name", "", func(*Draft) {}},
		{"vllm.kv_blocks_total_gpu", "vllm.kv_blocks_total_gpu: the log says 1249 (20000 tokens in blocks of 16, less the null block), run.yaml 1000",
			func(d *Draft) { d.kvTokens = 20_000 }},
		{"vllm.scheduling_policy", "", func(d *Draft) { d.hasArgs = true }},
		{"vllm.quantization", "vllm.quantization: the log says fp8, run.yaml nothing", func(d *Draft) { d.Set("vllm.quantization", "fp8") }},
		{"vllm.quantization", "", func(d *Draft) { d.isUnquantized = true }},
		{"vllm.long_prefill_token_threshold", "vllm.long_prefill_token_threshold: the log says 512, run.yaml nothing",
			func(d *Draft) { d.Set("vllm.long_prefill_token_threshold", int64(512)) }},
	} {
		if got := sentence(dep, c.setting, c.set); got != c.want {
			t.Errorf("%s: got %q, want %q", c.setting, got, c.want)
		}
	}
	eight := settings(t, "model.id=meta-llama/Llama-3.1-8B", "vllm.quantization=fp8")
	if got := sentence(eight, "vllm.quantization", func(d *Draft) { d.isUnquantized = true }); got !=
		"vllm.quantization: the log says nothing, which is the default, run.yaml fp8" {
		t.Errorf("got %q", got)
	}
}

// TestRecordingsOfAFolder: the recordings that a folder has by their usual names, by kind.
func TestRecordingsOfAFolder(t *testing.T) {
	fsys := fstest.MapFS{}
	for _, name := range strings.Fields(`client_requests.jsonl client_requests.jsonl.1.gz client_requests.json kv_events.msgpack kv_events.json
		traces.jsonl traces.json traces-a.jsonl.zst spans.pb notes.pb.txt traces/x.pb`) {
		fsys[name] = &fstest.MapFile{}
	}
	got := findFiles(fsys)
	if want := "{Traces:[spans.pb traces-a.jsonl.zst traces.json traces.jsonl] KVEvents:[kv_events.msgpack] ClientRequests:[client_requests.jsonl client_requests.jsonl.1.gz]"; !strings.HasPrefix(fmt.Sprintf("%+v", got), want) {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// TestTablesOfADeployment: settings whose steps are no sums of kernels, those that the schedule models, and those of whole
// experts.
func TestTablesOfADeployment(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string
	}{
		{nil, ""},
		{[]string{"vllm.cpu_offload_gb=4"}, "cpu_offload_gb"},
		{[]string{"model.id=mistralai/Mixtral-8x7B-v0.1", "tensor_parallel_size=2", "vllm.enable_expert_parallel=true"}, ""},
		{[]string{"tensor_parallel_size=3"}, "tensor_parallel_size"},
	} {
		err := settings(t, c.set...).CheckTables()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.set, err, c.want)
		}
	}
	if _, err := settings(t, "pipeline_parallel_size=33").EstimateKVBlocks(); err == nil || !strings.Contains(err.Error(), "pipeline_parallel_size: got 33, want at most the model's 32 layers") {
		t.Errorf("got %v", err)
	}
	if _, err := settings(t, "pipeline_parallel_size=32").EstimateKVBlocks(); err != nil {
		t.Error(err)
	}
}
