package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

const loopConfig = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16","max_position_embeddings":8192}`

const loopRun = `name: loop
provenance: simulated
model: {id: llama-8b, config: config.json, dtype: bfloat16, kv_cache_dtype: bfloat16}
hardware: {name: A100-SXM-80GB, TFlopsPeak: 312, TFlopsFP8: 0, BwPeakTBs: 2.039, memory_gb: 80, pcie_bandwidth_gb_s: 32, pcie_efficiency: 0.75, interconnect_bandwidth_gb_s: 600}
tensor_parallel_size: 1
pipeline_parallel_size: 1
data_parallel_size: 1
vllm: {version: 0.15.1, max_model_len: 8192, max_num_seqs: 64, max_num_batched_tokens: 2048, enable_chunked_prefill: true, enable_prefix_caching: false, block_size: 16,
  gpu_memory_utilization: 0.9, num_gpu_blocks_override: null, kv_blocks_total_gpu: 27678, cpu_offloading: false, kv_blocks_total_cpu: 0, async_scheduling: %t, scheduling_policy: fcfs}
tracing: {journey_tracing_sample_rate: 1.0, step_tracing_sample_rate: 1.0, step_tracing_rich_subsample_rate: 1.0, step_tracing_closure_interval: 100, otel_span_event_count_limit: 100000, api: chat}
files: {traces: traces.jsonl}
`

func loopRunText(async bool) string { return fmt.Sprintf(loopRun, async) }

const loopWorkload = `requests: 1500
arrivals: {kind: gamma, rate_rps: 3, cv: 3.5}
prompt: {kind: lognormal, mean: 700, sigma: 1.2, max: 6000}
output: {kind: lognormal, mean: 150, sigma: 0.9, max: 1000}
max_tokens: 1200
`

// loopTruth are the planted step-time coefficients; all others are 0.
var loopTruth = map[string]float64{"prefill_linear_compute": 1.6e6, "prefill_attention": 2e6, "decode_weight_load": 1.3e6,
	"kv_cache_read": 1.5e6, "batch_utilization": 3000, "fixed_step_overhead": 2e6}

const (
	loopOverheadUs = 1500
	loopEgressUs   = 400
)

// TestEvalClosedLoop: simulate with known coefficients, emit a trace dump, run
// the pipeline on it: identifiable coefficients return within 1 %, the lag is
// found, the overhead returns within 5 %, KS < 0.05 on all three metrics.
func TestEvalClosedLoop(t *testing.T) {
	repo.NeedEval(t)
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%t", async), func(t *testing.T) { closeLoop(t, async) })
	}
}

func closeLoop(t *testing.T, async bool) {
	dir := t.TempDir()
	in := filepath.Join(dir, "loop")
	must(t, os.Mkdir(in, 0o755))
	repo.Write(t, loopRunText(async), in, "run.yaml")
	repo.Write(t, loopConfig, in, "config.json")
	repo.Write(t, loopWorkload, dir, "load.yaml")
	repo.Write(t, plantedFile(t), dir, "planted.yaml")
	command(t, 0, "simulate", "--coefficients", filepath.Join(dir, "planted.yaml"), "--deployment", in, "--workload",
		filepath.Join(dir, "load.yaml"),
		"-o", filepath.Join(dir, "sim"), "--emit-otlp", filepath.Join(in, "traces.jsonl"), "--quiet")
	// Without the library's prior, which believes another server than the planted one.
	// Admission windows of a bursty load may fail their gate.
	command(t, -1, "run", in, "-o", filepath.Join(dir, "out"), "--quiet", "--prior", "zero")

	fit := loopDoc[result.Fit](t, filepath.Join(dir, "out", folder.FitFile))
	lag := fit.Beta.PipelineLag["loop"]
	if want := map[bool]int{false: 0, true: 1}[async]; lag.Lag != want || !lag.Measured {
		t.Errorf("lag: got %+v, want %d, measured", lag, want)
	}
	d, err := deploy.LoadRun(in)
	must(t, err)
	set, _, err := (&console{}).loadSet(filepath.Join(dir, "out", folder.CoefficientsFile))
	must(t, err)
	checkLoopCoefficients(t, set, d)
	checkLoopOverhead(t, set, d, dir)
	checkLoopReplay(t, loopDoc[result.Validation](t, filepath.Join(dir, "out", folder.ValidationFile)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, want int, args ...string) {
	t.Helper()
	var errs bytes.Buffer
	if code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), io.Discard, &errs); code != want && want >= 0 ||
		code == exitFailed || code == exitUsage {
		t.Fatalf("%v: exit %d\n%s", args, code, errs.String())
	}
}

func loopDoc[T any](t *testing.T, path string) *T {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	doc := new(T)
	must(t, result.Read(text, doc))
	return doc
}

func plantedFile(t *testing.T) []byte {
	t.Helper()
	s := &coeff.Set{SchemaVersion: coeff.SchemaVersion, ToolVersion: "planted", Command: "planted", SpecVersion: features.V11,
		Recipe: "relative", BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma,
		TrainedOn: coeff.TrainedOn{Models: []string{"llama-8b"}, Hardware: []string{"A100-SXM-80GB"}, TPs: []int64{1},
			VLLMVersions: []string{"0.15.1"}, Date: "2026-01-01", Samples: 1}}
	s.Beta = features.NewCoefficients(features.BetaFeatures(features.V11))
	for i := range s.Beta {
		s.Beta[i].Value, s.Beta[i].Identified = loopTruth[s.Beta[i].Name], coeff.Within
	}
	for _, target := range []string{coeff.Egress, coeff.Overhead} {
		m := coeff.AlphaModel{Target: target, Replay: true, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))}
		for i := range m.Coefficients {
			m.Coefficients[i].Identified = coeff.Within
			if m.Coefficients[i].Name == "base_bias" {
				m.Coefficients[i].Value = map[string]float64{coeff.Overhead: loopOverheadUs, coeff.Egress: loopEgressUs}[target]
			}
		}
		s.Alpha = append(s.Alpha, m)
	}
	b, err := folder.SetBytes(s)
	must(t, err)
	return b
}

// checkLoopCoefficients compares what one configuration can tell apart. Three
// things it cannot, by construction: the per-layer, GQA and bias constants
// (only their sum), and decode attention against KV reads, both proportional to
// the context of decodes up to the one step that prefills (only their sum per
// context token).
func checkLoopCoefficients(t *testing.T, set *coeff.Set, d *deploy.Deployment) {
	t.Helper()
	got := map[string]float64{}
	for _, c := range set.Beta {
		got[c.Name] = c.Value
	}
	report := func(name string, got, want float64) {
		t.Logf("%-40s planted %12.2f returned %12.2f (%+.3f %%)", name, want, got, 100*(got/want-1))
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("%s: got %g, want %g within 1 %%", name, got, want)
		}
	}
	for _, name := range []string{"prefill_linear_compute", "prefill_attention", "decode_weight_load", "batch_utilization"} {
		report(name, got[name], loopTruth[name])
	}
	per := contributions(t, d, features.StepInput{DecodeTokens: 1, ScheduledTokens: 1, NumDecodeReqs: 1, NumSampledSeqs: 1,
		DecodeContextTokens: 1e4, KVReadTokens: 1e4, RunningDepth: 1})
	sum := func(c map[string]float64, names ...string) float64 {
		total := 0.0
		for _, n := range names {
			total += c[n] * per[n]
		}
		return total
	}
	report("decode context, us per 10,000 tokens", sum(got, "decode_attention", "kv_cache_read"),
		sum(loopTruth, "decode_attention", "kv_cache_read"))
	constant := []string{"fixed_step_overhead", "gqa_efficiency", "bias"}
	report("constant, us per step", sum(got, constant...), sum(loopTruth, constant...))
}

// contributions are the features of one step by name.
func contributions(t *testing.T, d *deploy.Deployment, in features.StepInput) map[string]float64 {
	t.Helper()
	sp, err := features.New(features.V11, d)
	must(t, err)
	x := make([]float64, len(sp.BetaFeatures()))
	_, err = sp.Beta(&in, x)
	must(t, err)
	out := map[string]float64{}
	for i, f := range sp.BetaFeatures() {
		out[f.Name] = x[i]
	}
	return out
}

// checkLoopOverhead replays the workload with the returned coefficients: the
// median overhead of a request is the planted one.
func checkLoopOverhead(t *testing.T, set *coeff.Set, d *deploy.Deployment, dir string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "load.yaml"))
	must(t, err)
	_, load, err := workload.Read(data, "load.yaml")
	must(t, err)
	w, err := load.Generate(1)
	must(t, err)
	cfg, err := sim.EngineOf(d, set)
	must(t, err)
	res, err := sim.Run(cfg, w.Requests, nil)
	must(t, err)
	var overhead []float64
	for i := range res.Requests {
		overhead = append(overhead, float64(res.Requests[i].EnqueuedUs.V-res.Requests[i].ArrivalUs))
	}
	slices.Sort(overhead)
	median := stat.Quantile(overhead, 0.5)
	t.Logf("overhead: planted %d us, returned median %.0f us (p5 %.0f, p95 %.0f)", loopOverheadUs, median, stat.Quantile(overhead, .05),
		stat.Quantile(overhead, .95))
	if math.Abs(median/loopOverheadUs-1) > 0.05 {
		t.Errorf("overhead: got %g us, want %d within 5 %%", median, loopOverheadUs)
	}
}

func checkLoopReplay(t *testing.T, v *result.Validation) {
	t.Helper()
	if len(v.Runs) == 0 {
		t.Fatal("no run was validated")
	}
	for _, r := range v.Runs {
		if r.Metrics == nil || r.Metrics.TTFT == nil || r.Metrics.ITL == nil || r.Metrics.E2E == nil {
			t.Fatalf("run %s: a metric is missing", r.ID)
		}
		for name, d := range map[string]float64{"ttft": r.Metrics.TTFT.KSD, "itl": r.Metrics.ITL.KSD, "e2e": r.Metrics.E2E.KSD} {
			t.Logf("%s: KS %.4f", name, d)
			if !(d < 0.05) {
				t.Errorf("%s: KS %g, want < 0.05", name, d)
			}
		}
	}
}
