package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

var updatePython = flag.Bool("update-python", false, "rewrite the deployment rules of the Python package")

// What the Python evaluator reads of a config.json: model types by their MLP, and keys of attention it refuses.
var (
	gatedMLP = []string{"llama", "mistral", "mistral3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral",
		"gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "phimoe", "glm4", "glm4_moe", "granite", "granitemoe",
		"cohere", "cohere2", "stablelm", "internlm2", "internlm3", "baichuan", "exaone", "minicpm", "olmo", "olmo2",
		"olmoe", "smollm3", "deepseek", "gpt_oss", "llama4", "llama4_text"}
	plainMLP       = []string{"gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "nemotron"}
	stateSpace     = []string{"mamba", "mamba2", "falcon_mamba", "jamba", "bamba", "zamba", "zamba2", "rwkv", "recurrent_gemma"}
	otherAttention = []string{"attn_layer_period", "mamba_d_state", "ssm_cfg", "hybrid_override_pattern", "full_attention_interval",
		"linear_attn_config", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads",
		"linear_value_head_dim", "attn_type_list", "layer_group_size", "mamba_num_heads", "mamba_head_dim", "mamba_expand", "mamba_n_heads",
		"ssm_state_size", "state_size", "conv_L_cache", "full_attn_idxs", "lru_width", "block_types", "time_step_rank", "index_topk",
		"index_n_heads", "num_kv_shared_layers", "kv_share_layers", "sparse_attention_config", "attn_layer_indices", "hybrid_layer_pattern",
		"mamba_layer_indices", "layers_block_type"}
)

// pythonRules are the tables by which the Python package reads config.json and run.yaml.
func pythonRules() ([]byte, error) {
	type sheet struct {
		Sheet   Hardware `json:"sheet"`
		Names   []string `json:"names"`   // in the form that names are compared in
		Aliases []string `json:"aliases"` // likewise
	}
	doc := struct {
		Gated      []string `json:"gated_mlp"`
		Plain      []string `json:"plain_mlp"`
		FourHidden []string `json:"four_hidden_mlp"`
		StateSpace []string `json:"state_space"`
		Other      []string `json:"other_attention"`
		Block      int      `json:"block_size"`
		Memory     float64  `json:"gpu_memory_utilization"`
		PCIe       float64  `json:"pcie_efficiency"`
		Latency    float64  `json:"latency_us"`
		Sheets     []sheet  `json:"datasheets"`
		Flags      []string `json:"serve_flags"` // name, first and last release as MAJOR.MINOR, 0.0 without one
		// AllReduce are the curves of a device and number of GPUs inside CUDA graphs and outside, Fused that
		// of the fused kernel and its largest tensor in bytes: "BYTES:US BYTES:US ...".
		AllReduce map[string]map[string][2]string `json:"all_reduce"`
		Fused     map[string][2]string            `json:"fused_all_reduce"`
	}{gatedMLP, plainMLP, []string{"gpt2", "gptj", "bloom", "falcon", "gpt_bigcode"}, stateSpace, otherAttention, vllm.DefaultBlockSize, vllm.DefaultGPUMemoryUtilization, DefaultPCIeEfficiency,
		DefaultLatencyUs, nil, nil, map[string]map[string][2]string{}, map[string][2]string{}}
	points := func(a *AllReduce) string {
		var out []string
		for i := range a.Bytes {
			out = append(out, fmt.Sprintf("%v:%v", a.Bytes[i], a.TimeUs[i]))
		}
		return strings.Join(out, " ")
	}
	for _, h := range builtin() {
		for gpus := range h.Graph {
			if doc.AllReduce[h.Name] == nil {
				doc.AllReduce[h.Name] = map[string][2]string{}
			}
			doc.AllReduce[h.Name][fmt.Sprint(gpus)] = [2]string{points(h.Graph[gpus]), points(h.Eager[gpus])}
		}
	}
	for _, tp := range []int64{2, 4, 8} {
		d := Deployment{TP: tp, Hardware: Hardware{Name: "B200-SXM-180GB"}}
		d.Engine.Extra = map[string]any{"compilation_config": "fuse_allreduce_rms"}
		c, most := d.FusedAllReduce()
		doc.Fused[fmt.Sprint(tp)] = [2]string{points(c), fmt.Sprint(most)}
	}
	for _, h := range builtin() {
		s := sheet{Sheet: h.Hardware, Aliases: aliases(h.Name)}
		for _, n := range append([]string{h.Name}, h.Names...) {
			s.Names = append(s.Names, aliasKey(n))
		}
		doc.Sheets = append(doc.Sheets, s)
	}
	for _, f := range keptFlags() {
		doc.Flags = append(doc.Flags, fmt.Sprintf("%s %d.%d %d.%d", f.Name, f.Since[0], f.Since[1], f.Until[0], f.Until[1]))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	err := enc.Encode(doc)
	return b.Bytes(), err
}

// pythonRuns are variants of run.yaml: the first is whole, each other changes something.
var pythonRuns = []struct{ from, to string }{
	{"", ""}, {"name: H100", "name: NVIDIA A100-SXM4-80GB"}, {"name: H100", "name: b200, memory_gb: 170"},
	{"name: H100", "name: X1"},
	{"name: H100", "TFlopsPeak: 100"}, {"name: H100", "TFlopsPeak: 100, BwPeakTBs: 1.5"}, {"name: H100", "name: H100, pcie_efficiency: 2"},
	{"name: H100", "nam: H100"}, {"config: config.json", "config: nothing.json"}, {"config: config.json", "id: x"},
	{"config: config.json", "config: config.json, dtype: int3"}, {"config: config.json", "config: config.json, kv_cache_dtype: fp8"},
	{"config: config.json", "config: config.json, n_mlp_proj: 2"}, {"max_num_seqs: 256", "max_num_seqs: 0"},
	{"max_num_seqs: 256", "max_num_seqs: many"}, {"max_num_seqs: 256", "max_num_seqs: 9999999"}, {", max_num_seqs: 256", ""},
	{"max_num_seqs: 256", "max_num_seqs: 256, block_size: 0"}, {"max_num_seqs: 256", "max_num_seqs: 256, num_gpu_blocks_override: 500"},
	{"max_num_seqs: 256", "max_num_seqs: 256, num_gpu_blocks_override: 500, kv_blocks_total_gpu: 1000"},
	{"max_num_seqs: 256", "max_num_seqs: 256, num_gpu_blocks_override: 500, kv_blocks_total_gpu: 499"},
	{"max_num_seqs: 256", "max_num_seqs: 256, max_num_seq: 3"}, {"max_num_seqs: 256", "max_num_seqs: 256, cpu_offloading: true"},
	{"max_num_seqs: 256", "max_num_seqs: 256, enable_prefix_caching: 1"}, {"max_num_seqs: 256", "max_num_seqs: 256, quantization: fp8"},
	{"max_num_seqs: 256", "max_num_seqs: 256, enable_expert_parallel: true"}, {"max_num_seqs: 256", "max_num_seqs: 256, enable_dbo: true"},
	{"max_num_seqs: 256", "max_num_seqs: 256, decode_context_parallel_size: 2"}, {"max_num_seqs: 256", "max_num_seqs: 256, task: embed"},
	{"version: \"0.15.1\"", "version: v0.11.0rc1, task: embed"},
	{"max_num_seqs: 256", "max_num_seqs: 256, cpu_offload_gb: 4"}, {"max_num_seqs: 256", "max_num_seqs: 256, num_speculative_tokens: 3"},
	{"max_num_seqs: 256", "max_num_seqs: 256, kv_transfer_config: {kv_connector: NixlConnector}"},
	{"tensor_parallel_size: 1", "tensor_parallel_size: 2"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 3"},
	{"tensor_parallel_size: 1", "tensor_parallel_size: 0"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 1.5"},
	{"tensor_parallel_size: 1", "pipeline_parallel_size: 2"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 1\ntp: 2"},
	{"tensor_parallel_size: 1", "tensor_parallel_size: 1\ntensor_parallel_size: 1"}, {"tensor_parallel_size: 1", "vllm"},
}

const pythonRun = `# a whole one
model: {config: config.json}
hardware: {name: H100}
tensor_parallel_size: 1   # devices
vllm: {version: "0.15.1", max_num_seqs: 256, max_num_batched_tokens: 8192}
`

const pythonConfig = `{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16"}`

// pythonDeployments prints, for each folder, the code of the refusal, or what was read.
const pythonDeployments = `
import json, sys
sys.path.insert(0, sys.argv[1])
import blis_train_coefficients as btc
for path in sys.argv[2:]:
    try:
        d = btc.load_deployment(path)
        btc.Space(d)
        print(json.dumps(d))
    except btc.CoefficientError as e:
        print(json.dumps({"code": e.code}))
`

// TestPythonDeployments: the Python package reads run.yaml and config.json as we do: the same model, hardware and engine, or
// the same code.
func TestPythonDeployments(t *testing.T) {
	root := filepath.Join("..", "python")
	want, err := pythonRules()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "blis_train_coefficients", "deployments.json")
	if *updatePython {
		repo.Write(t, want, path)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is stale (%v): go test ./deploy -run TestPythonDeployments -update-python", path, err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	runs, err := filepath.Glob("../testdata/traces/*/*/run.yaml")
	if err != nil || len(runs) == 0 {
		t.Fatalf("recordings: got %v (%v), want some", runs, err)
	}
	for _, r := range pythonRuns {
		text := strings.Replace(pythonRun, r.from, r.to, 1)
		dir := t.TempDir()
		for name, data := range map[string]string{RunFile: text, "config.json": pythonConfig} {
			repo.Write(t, data, dir, name)
		}
		runs = append(runs, filepath.Join(dir, RunFile))
	}
	out, err := exec.Command(python, append([]string{"-B", "-c", pythonDeployments, root}, runs...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refused := 0
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(runs) {
		t.Fatalf("got %d answers, want %d:\n%s", len(lines), len(runs), out)
	}
	for i, run := range runs {
		if comparePython(t, run, lines[i]) {
			refused++
		}
	}
	t.Logf("%d descriptions of runs, %d of them refused with the same code", len(runs), refused)
}

// comparePython holds one answer of the package against what is loaded here, and reports whether both refuse.
func comparePython(t *testing.T, run, answer string) bool {
	t.Helper()
	text, _ := os.ReadFile(run)
	var got struct {
		Code trace.Code `json:"code"`
		Deployment
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatalf("%s: %v\n%s", run, err, answer)
	}
	d, err := LoadRunFile(run)
	if err == nil {
		err = d.CheckSupported()
	}
	if code := trace.CodeOf(err); err != nil || got.Code != "" {
		if code != got.Code {
			t.Errorf("%s: got code %q, want %q (%v)\n%s", run, got.Code, code, err, text)
		}
		return true
	}
	d.Model.Encoders = nil
	d.Model.UnknownKeys = nil
	d.Model.MaxPositionEmbeddings = 0
	d.Model.BLIS = nil
	d.Model.Tied = false // memory's alone
	if len(got.Model.Warnings) == 0 {
		got.Model.Warnings = nil
	}
	for _, e := range []*Deployment{d, &got.Deployment} {
		if len(e.Engine.Extra) == 0 {
			e.Engine.Extra = nil
		}
	}
	for _, pair := range [][2]any{{got.Model, d.Model}, {got.Hardware, d.Hardware}, {got.Engine, d.Engine}, {got.TP, d.TP}, {got.PP, d.PP},
		{got.DP, d.DP}} {
		a, errA := json.Marshal(pair[0])
		b, errB := json.Marshal(pair[1])
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s (%v):\n got %s\nwant %s", run, err, a, b)
		}
	}
	return false
}

// TestPythonTakesNumpy: the evaluator takes numpy's numbers as it takes Python's.
func TestPythonTakesNumpy(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import numpy").Run() != nil {
		t.Skip("skipped: no python3 with numpy on PATH")
	}
	out, err := exec.Command(python, "-B", "-c", `import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import blis_train_coefficients as b
c = b.load(sys.argv[2])
plain = [(512, 512, 1)] * 32 + [(0, 100, 100)]
want = b.step_time(c, plain)
for kind in (np.int64, np.int32, np.uint16):
    got = b.step_time(c, [tuple(kind(v) for v in r) for r in plain])
    assert got == want, (kind, got, want)
assert b.step_time(c, np.array(plain)) == want
`, filepath.Join("..", "python"), filepath.Join("..", "docs", "examples", "real", "coefficients.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
