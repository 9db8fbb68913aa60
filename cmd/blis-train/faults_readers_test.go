package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// otherForms are the other engines' logs and benchmarks, by example.
func otherForms(t testing.TB) (list []reader) {
	config, err := os.ReadFile(filepath.Join(recording, "config.json"))
	must(t, err)
	extract := []string{"extract", ".", "-o", "out", "--json", "--max-bad-frac", "1"}
	add := func(name, key, file, text, legal string) {
		texts := map[string]string{"config.json": string(config), "run.yaml": fmt.Sprintf(runText, key+": "+file), file: text}
		list = append(list, reader{name: name, file: file, texts: texts, call: extract, legal: legal})
	}
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.NewReplacer("SS", fmt.Sprintf("%02d", i%60), "MM", fmt.Sprintf("%02d", i/60), "II", fmt.Sprint(i+1)).
				Replace(format) + "\n")
		}
		return b.String()
	}
	add("SGLang log", "iterations", "sglang.log", lines(90, "[2026-03-01 10:MM:SS TP0] Prefill batch, #new-seq: 2, #new-token: 500, "+
		"#cached-token: 128, "+
		"token usage: 0.01, #running-req: 3, #queue-req: 4, cuda graph: False, input throughput (token/s): 10.50"), "")
	add("TensorRT-LLM log", "iterations", "trt.log", lines(90, "[03/01/2026-10:MM:SS] [TRT-LLM] [I] iter = II, global_rank = 0, rank = 0, "+
		"currank_total_requests = 0/1, host_step_time = 250.1ms, prev_device_step_time = 249.0ms, timestamp = 2026-03-01 10:MM:SS, "+
		"num_scheduled_requests: 1, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 300, 'num_generation_tokens': 0}"), "")
	add("sglang.bench_serving", "client_requests", "run.jsonl", strings.Repeat(`{"backend": "sglang", "dataset_name": "random", "request_rate": 4.0, `+
		`"max_concurrency": 2, "duration": 1.5, "completed": 2, "total_input_tokens": 30, "total_output_tokens": 6, "request_throughput": 1.33, `+
		`"mean_e2e_latency_ms": 150.0, "mean_ttft_ms": 100.0, "median_ttft_ms": 100.0, "mean_tpot_ms": 25.0, "input_lens": [10, 20], `+
		`"output_lens": [3, 3], "ttfts": [0.1, 0.1], "itls": [[0.02, 0.03], [0.03, 0.02]], "generated_texts": ["a", "b"], "errors": ["", ""]}`+"\n", 3),
		`.*(request_rate|duration|request_throughput|mean_e2e_latency_ms|mean_ttft_ms|median_ttft_ms|mean_tpot_ms|total_output_tokens|max_concurrency)`)
	add("InferenceX", "client_requests", "agg.json", `[{"hw": "b200", "conc": 16, "model": "m", "framework": "vllm", "precision": "fp8", "isl": 1024, "osl": 256, `+
		`"tp": 4, "ep": 4, "dp_attention": "false", "disagg": false, "spec_decoding": "none", "tput_per_gpu": 900.5, "output_tput_per_gpu": 180.1, `+
		`"mean_ttft": 0.25, "median_ttft": 0.2, "p99_ttft": 0.9, "mean_tpot": 0.012, "mean_intvty": 83.3, "mean_itl": 0.012, "mean_e2el": 3.31}]`,
		`.*(tput_per_gpu|output_tput_per_gpu|p99_ttft|mean_intvty)`)
	return list
}

// modelReaders are configurations of unlike models, sized by inspect.
func modelReaders(t testing.TB) (list []reader) {
	folder := repo.Shared(t, "data", "models_hf")
	for _, name := range []string{"deepseek-ai--DeepSeek-V3.2", "openai--gpt-oss-120b", "Qwen--Qwen3.5-35B-A3B", "moonshotai--Kimi-K2.5",
		"nvidia--Llama-3_3-Nemotron-Super-49B-v1", "mistralai--Mixtral-8x7B-v0.1", "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
		"google--gemma-4-26B-A4B"} {
		b, err := os.ReadFile(filepath.Join(folder, name+"_config.json"))
		must(t, err)
		list = append(list, reader{name: name, file: "config.json", texts: map[string]string{"config.json": string(b)},
			call: []string{"inspect", "--model", "config.json", "--json"}, legal: `.*(_token_id|_token_ids|token_index|token_type_id|pretraining_tp|initializer_range)(\[\])?.*`})
	}
	return list
}

const loadText = `requests: 40
arrivals: {kind: gamma, rate_rps: 5, cv: 2}
prompt:
  kind: lognormal
  mean: 300
  sigma: 0.8
  min: 4
  max: 2000
output:
  kind: uniform
  min: 10
  max: 60
max_tokens: 100
prefix:
  groups: 8
  tokens: 128
  share: 0.5
`

const clusterText = `instances:
  - count: 2
snapshot_refresh_us: 10000
shadow_share: 0.5
routing:
  policy: weighted
  scorers: "prefix-affinity:4,queue-depth:3"
goodput_slo_targets:
  standard:
    ttft_ms: 50
    e2e_ms: 5000
`

// otherDocuments are workloads, clusters and what the neighbours' commands leave, and the calls that read them.
func otherDocuments(t testing.TB, program string) (list []reader) {
	w := newWorld(t, program, t.TempDir(), nil)
	do := func(args ...string) {
		t.Helper()
		r, err := w.call(args...)
		must(t, err)
		if r.code == 1 || r.code == 2 {
			t.Fatal(args, r.stderr)
		}
	}
	deployment := map[string]string{}
	for name, text := range w.texts("in") {
		if !strings.Contains(name, "traces") && !strings.Contains(name, "kv_events") {
			deployment[name] = text
		}
	}
	simulate := func(name, file, text, legal string, more ...string) {
		texts := map[string]string{file: text, "load.yaml": loadText}
		for k, v := range deployment {
			texts[k] = v
		}
		texts[file] = text
		call := append([]string{"simulate", "--latency-model", "roofline", "--deployment", "in", "-o", "again", "--json"}, more...)
		list = append(list, reader{name: name, file: file, texts: texts, call: call, legal: legal})
	}
	var mooncake, azure strings.Builder
	azure.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	for i := range 9 {
		fmt.Fprintf(&mooncake, `{"timestamp": %d, "input_length": 60, "output_length": 5, "hash_ids": [%d]}`+"\n", 1000*i, i+1)
		fmt.Fprintf(&azure, "2023-11-16 18:17:%02d.9799600,300,10\n", i)
	}
	simulate("generator", "load.yaml", loadText, "cv|sigma", "--workload", "load.yaml")
	simulate("cluster", "cluster.yaml", clusterText, "snapshot_refresh_us|ttft_ms|e2e_ms", "--workload", "load.yaml",
		"--cluster", "cluster.yaml")
	simulate("Mooncake", "mooncake.jsonl", mooncake.String(), `.*hash_ids.*`, "--workload", "mooncake.jsonl")
	simulate("Azure", "azure.csv", azure.String(), "", "--workload", "azure.csv")

	sweep, err := filepath.Abs("../../testdata/sweeps/llama-3.1-8b.csv")
	must(t, err)
	real, err := filepath.Abs("../../testdata/traces/real")
	must(t, err)
	// The queueing parameters, the predictor and the ledger.
	do("queue", "fit", sweep, "-o", "q", "--flavour", "inferno-3p", "--loads", "7", "--queue-ratio", "1", "--model", "llama",
		"--accelerator", "H100", "--quiet")
	do("run", "in", "-o", "out", "--bootstraps", "50", "--quiet", "--ledger", "ledger.jsonl")
	do("predictor", "fit", real, "-o", "p", "--fit", "none", "--quiet")
	problem := "capacity:\n  H100: 8\nunit_cost:\n  H100: 400\nservers:\n  - name: chat\n    model: llama\n    priority: 1\n" +
		"    rate_rps: 40\n" +
		"    itl_ms: 12\n    prompt_tokens: 512\n    output_tokens: 128\n"
	text := func(name string) string {
		b, err := os.ReadFile(filepath.Join(w.dir, name))
		must(t, err)
		return string(b)
	}
	add := func(file, legal string, texts map[string]string, call ...string) {
		list = append(list, reader{name: file + " by " + call[0] + " " + call[1], file: file, texts: texts, call: call, legal: legal})
	}
	queue := map[string]string{"queue.json": text("q/queue.json"), "problem.yaml": problem}
	add("queue.json", "", queue, "queue", "size", "queue.json", "-o", "again", "--itl-ms", "12", "--json")
	add("queue.json", "", queue, "export", "--format", "inferno-models", "queue.json", "-o", "exported", "--ignore-verdict")
	add("problem.yaml", "priority|itl_ms", queue, "queue", "allocate", "queue.json", "problem.yaml", "-o", "again", "--json")
	add("ledger.jsonl", `.*(tool_version|headline|bytes).*`, map[string]string{"ledger.jsonl": text("ledger.jsonl")}, "log", "ledger.jsonl", "--json")
	add("predictor.json", "", map[string]string{"predictor.json": text("p/predictor.json")}, "export", "--format",
		"predictor-xgboost", "predictor.json", "-o", "exported", "--ignore-verdict")
	coefficients := map[string]string{"coefficients.yaml": text("out/coefficients.yaml")}
	for k, v := range deployment {
		coefficients[k] = v
	}
	add("coefficients.yaml", "", coefficients, "check", "coefficients.yaml", "--against", "in", "--json", "--ignore-verdict")
	other := map[string]string{"coefficients.yaml": text("out/coefficients.yaml"), "b.yaml": text("out/coefficients.yaml")}
	add("b.yaml", "", other, "diff", "coefficients.yaml", "b.yaml", "--json")
	return list
}
