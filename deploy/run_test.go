package deploy

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

const goodRun = `name: r
model:
  id: org/Model-8B
  config: config.json
hardware:
  name: H100
tensor_parallel_size: 1
vllm:
  version: "0.15.1"
  max_num_seqs: 256
  max_num_batched_tokens: 8192
phases:
- {name: warmup, start_ns: 0, end_ns: 10}
- {name: main, start_ns: 10, end_ns: 20, load: closed}
files:
  traces: [a.jsonl, "b*.json"]
  kv_events: null
`

func runFS(text string) fstest.MapFS {
	return fstest.MapFS{
		"run.yaml":     {Data: []byte(text)},
		"config.json":  {Data: []byte(llamaConfig)},
		"traces.jsonl": {Data: nil}, "traces-2026.json.zst": {Data: nil}, "x.pb": {Data: nil}, "kv_events.jsonl.gz": {Data: nil},
		"notes.txt": {Data: nil},
	}
}

// TestModelConfigStaysInTheRunFolder: who wrote a run.yaml does not choose other files of the reader's disk;
// who types a path does.
func TestModelConfigStaysInTheRunFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "run")
	repo.Write(t, llamaConfig, top, "config.json")
	repo.Write(t, llamaConfig, dir, "..data", "config.json")
	for from, to := range map[string]string{"out.json": "../config.json", "in.json": "..data/config.json"} {
		if err := os.Symlink(filepath.FromSlash(to), filepath.Join(dir, from)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	for name, good := range map[string]bool{"../config.json": false, filepath.Join(top, "config.json"): false, "out.json": false,
		"in.json": true, "..data/config.json": true, filepath.Join(dir, "in.json"): true} {
		repo.Write(t, strings.Replace(goodRun, "config: config.json", "config: "+name, 1), dir, "run.yaml")
		if _, err := LoadRun(dir); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "leads out of the run folder") {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := LoadRun(dir, "model.config="+name); err != nil {
			t.Errorf("%s, typed: %v", name, err)
		}
	}
	repo.Write(t, goodRun, dir, "run.yaml")
	repo.Write(t, llamaConfig, dir, "config.json")
	if err := os.Symlink(dir, filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRun(filepath.Join(top, "link")); err != nil { // hf_quant_config.json is missing
		t.Errorf("a run folder behind a link: %v", err)
	}
}

func TestRunYAMLFillsInVLLMsDefaults(t *testing.T) {
	d, err := loadRunFS(runFS(goodRun), "run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := d.Engine
	if !e.ChunkedPrefill || !e.PrefixCaching || e.BlockSize != 16 || e.GPUMemoryUtilization != 0.9 || e.SchedulingPolicy != "fcfs" ||
		e.KVBlocksGPU.OK || e.MaxModelLen.OK || e.AsyncScheduling.OK || !e.IsAsync() || d.PP != 1 || d.DP != 1 {
		t.Errorf("engine: got %+v", e)
	}
	if d.Hardware.TFlopsPeak != 989.5 || d.Hardware.InterconnectLatencyUs != 10 || d.Model.BytesPerKV != 2 {
		t.Errorf("got %+v %+v", d.Hardware, d.Model)
	}
	if len(d.Files.Traces) != 2 || d.Files.KVEvents != nil || d.PhaseAt(15).Load != LoadClosed || d.PhaseAt(5).Load != LoadOpen ||
		d.PhaseAt(20) != nil {
		t.Errorf("got %+v %+v", d.Files, d.Phases)
	}
}

func TestMinimalRunYAMLLoadsAndFindsItsFiles(t *testing.T) {
	d, err := loadRunFS(runFS(minimalRunYAML), "run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.Files.Traces, " "); got != "traces-2026.json.zst traces.jsonl x.pb" || len(d.Files.KVEvents) != 1 ||
		d.Files.ClientRequests != nil {
		t.Errorf("got files %+v", d.Files)
	}
}

// A flag of vllm serve without a value is one that was not given.
func TestNullFlagIsNotGiven(t *testing.T) {
	text := strings.Replace(goodRun, "  version:", "  enforce_eager: null\n  version:", 1)
	d, err := loadRunFS(runFS(text), "run.yaml")
	if err != nil || len(d.Engine.Extra) > 0 {
		t.Errorf("got %v, %v, want no other flags", d.Engine.Extra, err)
	}
}

// TestSharedPrefixIsStated: what run.yaml states of shared prompts, in both spellings; 0 is a statement, and
// the phase goes before the client.
func TestSharedPrefixIsStated(t *testing.T) {
	load := func(text string) *Deployment {
		d, err := loadRun(runFS(text), "run.yaml", "r", nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := load(goodRun)
	if d.SharedPrefixAt(15).OK {
		t.Errorf("got %+v, want nothing stated", d.SharedPrefixAt(15))
	}
	for _, key := range []string{"shared_prefix_tokens", "shared-prefix-tokens"} {
		text := strings.Replace(goodRun, "load: closed}", "load: closed, "+key+": 64}", 1) + "client: {" + key + ": 0}\n"
		d = load(text)
		if first, second := d.SharedPrefixAt(5), d.SharedPrefixAt(15); first != trace.Some(int64(0)) || second != trace.Some(int64(64)) {
			t.Errorf("%s: got %+v and %+v, want 0 of the client and 64 of the phase", key, first, second)
		}
		if served := d.Served(); served.Client != (Client{}) {
			t.Errorf("got %+v of what serves, want nothing of the client", served.Client)
		}
	}
	d, err := loadRun(runFS(goodRun), "run.yaml", "r", []string{"client.shared_prefix_tokens=0"})
	if err != nil || d.SharedPrefixAt(5) != trace.Some(int64(0)) {
		t.Errorf("set: got %+v, %v", d.SharedPrefixAt(5), err)
	}
}

// Unknown keys, missing units and impossible values are errors that
// name file, line and the fix.
func TestRunYAMLErrorsNameLineAndFix(t *testing.T) {
	cases := []struct {
		name, old, with string
		code            trace.Code
		line            int64
		says            string // part of message or hint
	}{
		{"misspelt key", "max_num_seqs: 256", "max_num_seq: 256", unknownKey, 10, "max_num_seqs"},
		{"unknown section", "phases:", "phase: 1\nphases:", unknownKey, 12, "phases"},
		{"what prompts share, outside its sections", "phases:", "shared-prefix-tokens: 0\nphases:", unknownKey, 12, "client.shared_prefix_tokens"},
		{"negative prefix", "files:", "client: {shared_prefix_tokens: -1}\nfiles:", badRunYAML, 15, ">= 0 tokens"},
		{"key of another section", "  version:", "  dtype: float16\n  version:", unknownKey, 9, "model.dtype"},
		{"text for a number", "max_num_seqs: 256", "max_num_seqs: many", badRunYAML, 10, "integer"},
		{"no token budget", "max_num_batched_tokens: 8192", "max_num_batched_tokens: 0", vllm.BadKnobs, 11, "--max-num-batched-tokens"},
		{"no seats", "max_num_seqs: 256", "max_num_seqs: -1", vllm.BadKnobs, 10, "--max-num-seqs"},
		{"tp 0", "tensor_parallel_size: 1", "tensor_parallel_size: 0", badRunYAML, 7, ">= 1"},
		{"percent for a share", "  version:", "  gpu_memory_utilization: 90\n  version:", badRunYAML, 9, "0..1"},
		{"NaN", "  name: H100", "  name: H100\n  TFlopsPeak: .nan", badRunYAML, 7, "number"},
		{"unit left out", "  name: H100", "  name: H100\n  pcie_bandwidth: 64", unknownKey, 7, "pcie_bandwidth_gb_s"},
		{"value in another unit", "  name: H100", "  name: H100\n  BwPeakTBs: 3350", badRunYAML, 7, "1e12 B/s"},
		{"tp without a link", "  name: H100\ntensor_parallel_size: 1", "  name: X\n  TFlopsPeak: 1\n  BwPeakTBs: 1\ntensor_parallel_size: 2",
			BadHardware, 0, "interconnect_bandwidth_gb_s"},
		{"no bandwidth", "  name: H100", "  name: X\n  TFlopsPeak: 1", BadHardware, 0, "BwPeakTBs"},
		{"unknown policy", "  version:", "  scheduling_policy: lifo\n  version:", badRunYAML, 9, "fcfs"},
		{"yes for true", "  version:", "  cpu_offloading: 1\n  version:", badRunYAML, 9, "true or false"},
		{"unknown hardware", "name: H100", "name: Z80", unknownHardware, 6, "H100-SXM-80GB"},
		{"phase backwards", "end_ns: 20", "end_ns: 5", badRunYAML, 14, "start_ns"},
		{"phases overlap", "start_ns: 10,", "start_ns: 9,", badRunYAML, 14, "warmup"},
		{"unknown load", "load: closed", "load: shut", badRunYAML, 14, "open"},
		{"no such config", "config: config.json", "config: nope.json", model.MissingConfig, 4, "nope.json"},
		{"not YAML", "name: r", "name: [", badRunYAML, 0, ""},
		{"a list", goodRun, "- 1\n", badRunYAML, 1, "mapping"},
		{"twice the same key", "name: r", "name: r\nname: s", badRunYAML, 2, ""},
		{"flag of a later version", "  version: \"0.15.1\"", "  version: \"0.9.0\"\n  enable_mfu_metrics: true", unknownKey, 10, ""},
		{"bad provenance of tracing", "files:", "tracing: {step_tracing_sample_rate: 2}\nfiles:", badRunYAML, 15, "0..1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(goodRun, c.old) {
				t.Fatalf("%q is not in the good file", c.old)
			}
			_, err := loadRunFS(runFS(strings.Replace(goodRun, c.old, c.with, 1)), "run.yaml")
			var syntax *trace.SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("got %v, want a trace.SyntaxError", err)
			}
			if syntax.Code != c.code || c.line != 0 && syntax.Line != c.line || !strings.Contains(syntax.Msg+syntax.Hint, c.says) {
				t.Errorf("got %s %v (hint %q), want %s on line %d saying %q", syntax.Code, err, syntax.Hint, c.code, c.line, c.says)
			}
		})
	}
}

// All missing fields at once, with the init command.
func TestMissingFieldsAreListedAtOnce(t *testing.T) {
	for text, want := range map[string][]string{
		"":                              {"model.config", "hardware.name", "vllm.version", "vllm.max_num_seqs", "vllm.max_num_batched_tokens"},
		"hardware: {TFlopsPeak: 1}":     {"model.config", "hardware.BwPeakTBs", "vllm.max_num_seqs"},
		"vllm: {max_num_seqs: 1}":       {"model.config", "hardware.name", "vllm.max_num_batched_tokens"},
		"model: null\nhardware: null\n": {"model.config", "hardware.name", "vllm.version"},
	} {
		_, err := loadRunFS(runFS(text), "run.yaml")
		if trace.CodeOf(err) != badRunYAML || !strings.Contains(trace.HintOf(err), "blis-train init") {
			t.Errorf("%q: got %v", text, err)
			continue
		}
		for _, path := range want {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%q: got %v, want %s in it", text, err, path)
			}
		}
	}
	_, err := LoadRun(t.TempDir())
	if trace.CodeOf(err) != missingRunYAML || !strings.Contains(trace.HintOf(err), minimalRunYAML) {
		t.Errorf("no run.yaml: got %v", err)
	}
}

// Flags supply or override every field, so a bare dump works too.
func TestSettingsReplaceRunYAML(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, llamaConfig, dir, "config.json")
	d, err := LoadRun(dir, "model.config=config.json", "hardware.name=H100", "vllm.version=0.15.1", "vllm.max_num_seqs=4",
		"vllm.max_num_batched_tokens=128", "name=bare")
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "bare" || d.Engine.MaxNumSeqs != 4 || d.Engine.VLLMVersion != "0.15.1" {
		t.Errorf("got %+v", d)
	}
	d, err = loadRunFS(runFS(goodRun), "run.yaml", "vllm.max_num_seqs=7", "hardware.TFlopsPeak=1.5", "files.kv_events=[k1, k2]",
		"vllm.async_scheduling=false")
	if err != nil {
		t.Fatal(err)
	}
	if d.Engine.MaxNumSeqs != 7 || d.Hardware.TFlopsPeak != 1.5 || len(d.Files.KVEvents) != 2 || d.Engine.IsAsync() {
		t.Errorf("got %+v", d)
	}
	for _, bad := range []string{"novalue", "=1", "name.x=1", "vllm.max_num_seqs=[", "nonsense.key=1"} {
		if _, err := loadRunFS(runFS(goodRun), "run.yaml", bad); err == nil {
			t.Errorf("setting %q: got no error", bad)
		}
	}
}

// Built-in values equal the datasheets; latency 20 without NVLink.
func TestBuiltInDatasheets(t *testing.T) {
	latency := map[string]float64{"L40S-48GB": 20, "RTX-4090-24GB": 20, "RTX-PRO-6000-96GB": 20, "L4-24GB": 20, "A10G-24GB": 20,
		"RTX-6000-Ada-48GB": 20, "H100-PCIe-80GB": 20, "A100-SXM-40GB": 10, "H100-NVL-94GB": 10, "H20-96GB": 10, "GH200-96GB": 10,
		"GB200-186GB": 10, "GB300-288GB": 10, "B300-SXM-288GB": 10, "MI300X-192GB": 10, "A100-SXM-80GB": 10,
		"H100-SXM-80GB": 10, "H200-SXM-141GB": 10, "B200-SXM-180GB": 10, "MI325X-256GB": 10, "MI355X-288GB": 10, "TPU-v6e-32GB": 10,
		"Gaudi3-128GB": 10, "RTX-5090-32GB": 20, "DGX-Spark-128GB": 20, "T4-16GB": 20}
	if len(Datasheets()) != len(latency) {
		t.Errorf("got %d datasheets, want %d", len(Datasheets()), len(latency))
	}
	for _, h := range Datasheets() {
		if h.InterconnectLatencyUs != latency[h.Name] || !(h.MemoryGB > 0) || !regexp.MustCompile(`, 20\d\d`).MatchString(datasheetSource(h.Name)) {
			t.Errorf("got %+v, want latency %g us", h, latency[h.Name])
		}
	}
	for alias, want := range map[string]string{"h100": "H100-SXM-80GB", "A100": "A100-SXM-80GB", "rtx 4090": "RTX-4090-24GB",
		"RTX4090":  "RTX-4090-24GB",
		"H200-SXM": "H200-SXM-141GB", "RTX PRO 6000": "RTX-PRO-6000-96GB", "NVIDIA L40S": "L40S-48GB", "NVIDIA-B200": "B200-SXM-180GB",
		"H100-80GB": "H100-SXM-80GB", "NVIDIA H100 80GB HBM3": "H100-SXM-80GB", "NVIDIA GeForce RTX 4090": "RTX-4090-24GB",
		"NVIDIA H100 PCIe": "H100-PCIe-80GB", "NVIDIA H100 NVL": "H100-NVL-94GB", "A100-40GB": "A100-SXM-40GB", "NVIDIA L4": "L4-24GB",
		"NVIDIA A10G": "A10G-24GB", "NVIDIA GH200 480GB": "GH200-96GB", "NVIDIA GB200": "GB200-186GB", "B300": "B300-SXM-288GB",
		"NVIDIA RTX 6000 Ada Generation": "RTX-6000-Ada-48GB", "AMD Instinct MI300X": "MI300X-192GB", "nvidia_a100-sxm4-80gb": "A100-SXM-80GB",
		"A100-SXM4-80GB": "A100-SXM-80GB", "A100-SXM4-40GB": "A100-SXM-40GB", "a100sxm40gb": "A100-SXM-40GB", "a100-80": "A100-SXM-80GB",
		"NVIDIA-H100-80GB-HBM3": "H100-SXM-80GB", "H100-SXM5": "H100-SXM-80GB", "h100_sxm": "H100-SXM-80GB", "MI300X_OAM": "MI300X-192GB",
		"H200 SXM5 141GB HBM3e": "H200-SXM-141GB", "gb300": "GB300-288GB", "NVIDIA B300 SXM6": "B300-SXM-288GB", "mi325x": "MI325X-256GB",
		"MI355X": "MI355X-288GB", "tpu v6e": "TPU-v6e-32GB", "Gaudi 3": "Gaudi3-128GB", "RTX 5090": "RTX-5090-32GB",
		"DGX Spark": "DGX-Spark-128GB", "Tesla T4": "T4-16GB", "T4": "T4-16GB"} {
		if h, ok := Datasheet(alias); !ok || h.Name != want {
			t.Errorf("%s: got %q, want %q", alias, h.Name, want)
		}
	}
	for _, none := range []string{"H1", "NVIDIA", "A100-PCIE-80GB"} {
		if h, ok := Datasheet(none); ok {
			t.Errorf("%s is %s", none, h.Name)
		}
	}
	files, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", "hardware"), "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no datasheets: %v", err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		sheets, err := readDatasheets(f, name)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range sheets {
			got, ok := Datasheet(want.Name)
			got.InterconnectLatencyUs = want.InterconnectLatencyUs
			if !ok {
				t.Logf("%s is not built in", want.Name)
			} else if got != want {
				t.Errorf("%s: got %+v, want %+v", want.Name, got, want)
			}
		}
	}
}

func TestDatasheetsBesideRunYAMLGoFirst(t *testing.T) {
	fsys := runFS(strings.Replace(goodRun, "name: H100", "name: H100-SXM-80GB", 1))
	fsys[hardwareFile] = &fstest.MapFile{Data: []byte(`{"H100-SXM-80GB": {"TFlopsPeak": 800, "BwPeakTBs": 3, "pcie_efficiency": 0.5}, "mine": {"TFlopsPeak": 1, "BwPeakTBs": 1}}`)}
	d, err := loadRunFS(fsys, "run.yaml")
	if err != nil || d.Hardware.TFlopsPeak != 800 || d.Hardware.PCIeEfficiency != 0.5 || d.Hardware.InterconnectLatencyUs != 10 {
		t.Errorf("got %+v, %v", d, err)
	}
	d, err = loadRunFS(fsys, "run.yaml", "hardware.name=mine", "hardware.BwPeakTBs=2")
	if err != nil || d.Hardware.TFlopsPeak != 1 || d.Hardware.BwPeakTBs != 2 {
		t.Errorf("got %+v, %v", d, err)
	}
	fsys[hardwareFile] = &fstest.MapFile{Data: []byte(`{"x": {"peak": 1}}`)}
	if _, err = loadRunFS(fsys, "run.yaml"); trace.CodeOf(err) != BadHardware {
		t.Errorf("got %v, want %s", err, BadHardware)
	}
}

func TestSecretsStayOutOfProvenance(t *testing.T) {
	d, err := loadRunFS(runFS(goodRun), "run.yaml", "vllm.api_key=s3cret", "vllm.seed=3")
	if err != nil || len(d.Engine.Extra) != 1 || d.Engine.Extra["seed"] != 3 {
		t.Errorf("got %v, %v", d.Engine.Extra, err)
	}
}

func TestDatasheetFilesAreStrict(t *testing.T) {
	if _, err := readDatasheets(strings.NewReader(`{"x": {"TFlops": 1}}`), "x.json"); trace.CodeOf(err) != BadHardware {
		t.Errorf("got %v, want %s", err, BadHardware)
	}
}

// Every knob of the engine is part of the configuration, the rest is not.
func TestConfiguration(t *testing.T) {
	base, err := loadRunFS(runFS(goodRun), "run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if base.Label() != "model-8b H100-SXM-80GB tp1" || !strings.HasPrefix(base.Config(), base.Label()+" #") {
		t.Errorf("got %q", base.Config())
	}
	for _, set := range []string{"vllm.max_num_seqs=255", "vllm.max_num_batched_tokens=8191", "vllm.enable_chunked_prefill=false",
		"vllm.cpu_offloading=true",
		"vllm.gpu_memory_utilization=0.8", "vllm.enable_prefix_caching=false", "vllm.block_size=32", "vllm.kv_blocks_total_gpu=5",
		"vllm.kv_blocks_total_cpu=5",
		"tensor_parallel_size=2", "hardware.name=H200", "model.id=other", "model.kv_cache_dtype=fp8"} {
		d, err := loadRunFS(runFS(goodRun), "run.yaml", set)
		if err != nil {
			t.Fatal(err)
		}
		if d.Config() == base.Config() {
			t.Errorf("%s: the configuration stays %s", set, d.Config())
		}
	}
	for _, set := range []string{"name=other", "vllm.version=0.14.0", "vllm.async_scheduling=false", "workload={a: 1}", "vllm.seed=3",
		"vllm.max_model_len=100"} {
		d, err := loadRunFS(runFS(goodRun), "run.yaml", set)
		if err != nil {
			t.Fatal(err)
		}
		if d.Config() != base.Config() {
			t.Errorf("%s: the configuration changes to %s", set, d.Config())
		}
	}
}

// The estimate stays near what real servers printed at start.
func TestKVCacheEstimateNearRealServers(t *testing.T) {
	root := repo.Shared(t, "data")
	for _, name := range []string{"real_stock_otlp/jan20-codellama-prefill-1", "real_stock_otlp/jan20-codellama-train-1",
		"real_requests_llmservingsim/RTX4090-Llama-3.1-8B-tp1", "real_step_summaries/20260217-202857-llama-2-70b-tp4-general"} {
		d, err := LoadRun(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		want, estimated, err := d.KVBlocks()
		if err != nil || estimated {
			t.Fatalf("%s: %d, %v, %v", name, want, estimated, err)
		}
		d.Engine.KVBlocksGPU = trace.Opt[int64]{}
		got, estimated, err := d.KVBlocks()
		if err != nil || !estimated || math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("%s: got %d blocks, %v, want %d within 5 %%", name, got, err, want)
		}
		pool, ok := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
		ofDevice := 100 * float64(got-want) * pool.BlockBytes / (d.Hardware.MemoryGB * gib)
		t.Logf("%s: estimated %d, printed %d: %+.1f %%, %+.2f %% of the device's memory", name, got, want,
			100*(float64(got)/float64(want)-1), ofDevice)
		if !ok || math.Abs(ofDevice) > 3 {
			t.Errorf("%s: %+.2f %% of the device's memory off, want at most 3 %%", name, ofDevice)
		}
	}
}

func TestKVCacheEstimateNeedsRoom(t *testing.T) {
	d, err := loadRunFS(runFS(goodRun), "run.yaml", "hardware.memory_gb=16")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.EstimateKVBlocks(); trace.CodeOf(err) != BadHardware {
		t.Errorf("8B on 16 GB: got %v, want %s", err, BadHardware)
	}
	d.Hardware.MemoryGB = 0
	if _, err := d.EstimateKVBlocks(); trace.CodeOf(err) != BadHardware {
		t.Errorf("unknown memory: got %v, want %s", err, BadHardware)
	}
}

func FuzzRunYAML(f *testing.F) {
	f.Add(goodRun)
	f.Add(minimalRunYAML)
	f.Fuzz(func(t *testing.T, text string) {
		_, err := loadRunFS(runFS(text), "run.yaml")
		if err != nil && trace.CodeOf(err) == "" {
			t.Errorf("error without a code: %v", err)
		}
	})
}

// loadRunFS is LoadRun over a file system; name is run.yaml's path in it.
func loadRunFS(fsys fs.FS, name string, set ...string) (*Deployment, error) {
	return loadRun(fsys, name, ".", set)
}

// datasheetSource says where the figures of a built-in device are from, with the date.
func datasheetSource(name string) string {
	for _, h := range builtin() {
		if h.Name == name {
			return h.Source
		}
	}
	return ""
}

// TestNothingUnsupportedPassesInSilence: every knob that no step time covers is told
// with its code and the next step, and what is refused is refused with that code.
func TestNothingUnsupportedPassesInSilence(t *testing.T) {
	on := map[string]string{"pipeline_parallel_size": "pipeline_parallel_size=2", "data_parallel_size": "data_parallel_size=2",
		"enable_expert_parallel": "vllm.enable_expert_parallel=true", "speculative_config": "vllm.speculative_config={method: ngram}",
		"decode_context_parallel_size":  "vllm.decode_context_parallel_size=2",
		"prefill_context_parallel_size": "vllm.prefill_context_parallel_size=2",
		"kv_transfer_config":            "vllm.kv_transfer_config={kv_connector: NixlConnector}",
		"ec_transfer_config":            "vllm.ec_transfer_config={ec_connector: x}", "cpu_offload_gb": "vllm.cpu_offload_gb=1.5",
		"offload_group_size": "vllm.offload_group_size=2", "enable_dbo": "vllm.enable_dbo=true", "ubatch_size": "vllm.ubatch_size=2",
		"runner": "vllm.runner=pooling", "task": "vllm.task=embed", "enable_lora": "vllm.enable_lora=true",
		"lora_modules": "vllm.lora_modules=[a=b]", "limit_mm_per_prompt": "vllm.limit_mm_per_prompt={image: 2}",
		"scheduler_cls": "vllm.scheduler_cls=mine", "max_num_partial_prefills": "vllm.max_num_partial_prefills=2",
		"num_scheduler_steps": "vllm.num_scheduler_steps=8", "nnodes": "vllm.nnodes=2",
		"hf_overrides": "vllm.hf_overrides={num_hidden_layers: 2}", "convert": "vllm.convert=embed",
		"mm_encoder_only":  "vllm.mm_encoder_only=true",
		"diffusion_config": "vllm.diffusion_config={steps: 8}", "engram_config": "vllm.engram_config={path: x}",
		"quantization_config":     "vllm.quantization_config={linear: fp8}",
		"kv_sharing_fast_prefill": "vllm.kv_sharing_fast_prefill=true", "mamba_cache_mode": "vllm.mamba_cache_mode=all",
		"disable_sliding_window":     "vllm.disable_sliding_window=true",
		"kv_cache_dtype_skip_layers": "vllm.kv_cache_dtype_skip_layers=[sliding_window]",
		"use_replayssm":              "vllm.use_replayssm=true", "mamba_block_size": "vllm.mamba_block_size=512",
		"prefix_match_unit":        "vllm.prefix_match_unit=64",
		"max_num_scheduled_tokens": "vllm.max_num_scheduled_tokens=512",
		"enable_elastic_ep":        "vllm.enable_elastic_ep=true", "device_memory_utilization": "vllm.device_memory_utilization=0.9"}
	experts := strings.Replace(llamaConfig, `"llama"`, `"mixtral", "num_local_experts": 8, "num_experts_per_tok": 2`, 1)
	for _, l := range vllm.Limits() {
		fsys := fstest.MapFS{"run.yaml": {Data: []byte(minimalRunYAML)}, "config.json": {Data: []byte(llamaConfig)}}
		if l.Code() == vllm.UnsupportedEngine {
			fsys["config.json"].Data = []byte(experts)
		}
		set := on[l.Key]
		if l.Key == "kv_transfer_config" && !l.Simulated {
			set = strings.Replace(set, "Nixl", "Mooncake", 1)
		}
		d, err := loadRunFS(fsys, "run.yaml", set, "vllm.version=unknown")
		if err != nil {
			t.Errorf("%s: %v", l.Key, err)
			continue
		}
		found := d.NotModelled()
		if len(found) != 1 || found[0].Code != l.Code() || !strings.Contains(found[0].Message, l.Next) {
			t.Errorf("%s: got %v, want one %s with the next step %q", l.Key, found, l.Code(), l.Next)
		}
		err = d.CheckSupported()
		if l.Refused != (err != nil) || l.Refused && trace.CodeOf(err) != l.Code() {
			t.Errorf("%s: got %v, want refused %v", l.Key, err, l.Refused)
		}
		if l.Refused && hintOf(err) != l.Next {
			t.Errorf("%s: got hint %q, want %q", l.Key, hintOf(err), l.Next)
		}
	}
	clean, err := loadRunFS(fstest.MapFS{"run.yaml": {Data: []byte(minimalRunYAML)}, "config.json": {Data: []byte(llamaConfig)}}, "run.yaml",
		"vllm.kv_transfer_config={kv_connector: OffloadingConnector}", "vllm.enable_dbo=false", "vllm.enforce_eager=true")
	if err != nil || len(clean.NotModelled()) > 0 || clean.CheckSupported() != nil {
		t.Errorf("got %v, %v for a deployment that is modelled", err, clean.NotModelled())
	}
}

func hintOf(err error) string {
	if e, ok := err.(*trace.Error); ok {
		return e.Hint
	}
	return ""
}

// TestOtherAttentionIsRefusedWhateverIsSaid: following the hint about MLP projections
// does not lead past the layers that are no attention.
func TestOtherAttentionIsRefusedWhateverIsSaid(t *testing.T) {
	for _, key := range otherAttention {
		text := strings.Replace(llamaConfig, `"llama"`, `"qwen3_next", "`+key+`": 4`, 1)
		_, err := model.Load(strings.NewReader(text), "config.json", model.Options{NumMLPProj: trace.Some(int64(3)), AssumeFullAttention: true})
		if trace.CodeOf(err) != model.UnsupportedModel {
			t.Errorf("%s: got %v, want %s", key, err, model.UnsupportedModel)
		}
	}
	for config, want := range map[string]string{`"vision_config": {}`: "vision_config", `"novel_gate": 2`: ""} {
		text := strings.Replace(llamaConfig, "{", "{"+config+", ", 1)
		m, err := model.Load(strings.NewReader(text), "config.json", model.Options{})
		if err != nil || len(m.NotModelled()) != 1 || strings.Join(m.Encoders, "") != want {
			t.Errorf("%s: got %v, %v", config, err, m.NotModelled())
		}
	}
}

// What YAML says of settings survives JSON, to the last digit of a stamp.
func TestValuesSurviveJSON(t *testing.T) {
	var want map[string]any
	text := "phases: [{end_wall_ns: 1795302397582730346, share: 0.25}]\nseed: 18446744073709551615\n" +
		"below: -9007199254740993\nrate: 1.5e300\non: true\nnone: null\nname: a\n"
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	d := Deployment{Workload: want}
	d.Engine.Extra = want
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var got Deployment
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]vllm.Values{"workload": got.Workload, "vllm.extra": got.Engine.Extra} {
		if !reflect.DeepEqual(map[string]any(v), want) {
			t.Errorf("%s: got %v, want %v", name, v, want)
		}
	}
}

// TestEveryBuiltInModelIsADeployment: by its name alone, whatever its layers.
func TestEveryBuiltInModelIsADeployment(t *testing.T) {
	for _, id := range model.BuiltInIDs() {
		d, err := LoadSettings("model.id="+id, "hardware.name=B200", "vllm.version=0.24.0", "vllm.max_num_seqs=256",
			"vllm.max_num_batched_tokens=8192")
		if err != nil || d.Model.Decoder == nil || d.Model.ID != id || len(d.Read) > 0 {
			t.Errorf("%s: got %+v, %v", id, d, err)
		}
	}
}

// TestModelNames: any case, without the publisher, and the nearest for a slip.
func TestModelNames(t *testing.T) {
	if id, ok := model.BuiltInID("qwen3-32b"); !ok || id != "Qwen/Qwen3-32B" {
		t.Errorf("got %q", id)
	}
	if id, ok := model.BuiltInID("meta-llama/Llama-3.1-8B-Instruct"); !ok || id != "meta-llama/Meta-Llama-3.1-8B" {
		t.Errorf("got %q", id)
	}
	if _, ok := model.BuiltInID("Qwen3"); ok || !slices.Contains(model.BuiltInIDs(), "openai/gpt-oss-120b") {
		t.Error("Qwen3 is a model, or gpt-oss is none")
	}
	if err := model.NoSuchModel("Qwen/Qwen3-23B"); !strings.Contains(err.Error(), "Qwen3-23B") {
		t.Error(err)
	}
}
