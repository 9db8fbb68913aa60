package deploy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

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

// loadDraft writes the draft beside a config.json and loads it.
func loadDraft(t *testing.T, d *Draft) (*Deployment, string) {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	if err := d.Write(&b); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, b.String(), dir, RunFile)
	repo.Write(t, llamaConfig, dir, "config.json")
	dep, err := LoadRun(dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return dep, b.String()
}

func TestCommandLineBecomesARunYAML(t *testing.T) {
	d, err := FromCommandLine("VLLM_USE_V1=1 vllm serve meta-llama/Llama-3.1-8B \\\n --tensor-parallel-size=2 -q fp8 --max-num-seqs 128 "+
		"--max-num-batched-tokens 8K --max-model-len 25.6k --no-enable-prefix-caching --enforce-eager --block-size 32 --async-scheduling "+
		"--journey-tracing-sample-rate 0.5 --api-key s3cret --kv-transfer-config '{\"kv_connector\": \"OffloadingConnector\", "+
		"\"kv_connector_extra_config\": {\"num_cpu_blocks\": 500}}' "+
		"--served-model-name a b --scheduling-policy priority --kv-cache-dtype fp8", nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Set("model.config", "config.json")
	d.Set("hardware.name", "H100")
	d.Set("vllm.version", "0.15.1")
	d.Set("vllm.kv_blocks_total_gpu", int64(1000))
	dep, text := loadDraft(t, d)
	e := dep.Engine
	if dep.TP != 2 || e.MaxNumSeqs != 128 || e.MaxNumBatchedTokens != 8192 || e.MaxModelLen.V != 25600 || e.PrefixCaching ||
		e.BlockSize != 32 ||
		!e.AsyncScheduling.V || e.SchedulingPolicy != "priority" || !e.CPUOffloading || e.KVBlocksCPU != 500 {
		t.Errorf("got %+v from\n%s", dep, text)
	}
	if dep.Tracing.JourneySampleRate.V != 0.5 || dep.Model.BytesPerKV != 1 || dep.Model.BytesPerWeight != 1 ||
		dep.Model.LinearCompute != "fp8" {
		t.Errorf("got %+v %+v", dep.Tracing, dep.Model)
	}
	if e.Extra["enforce_eager"] != true {
		t.Errorf("provenance: got %v, want enforce_eager", e.Extra)
	}
	if strings.Contains(text, "s3cret") {
		t.Error("the API key is in run.yaml")
	}
}

func TestOtherFormsOfTheCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"docker run --gpus all vllm/vllm-openai:v0.11.0 --model m --max-num-seqs 7":                  "0.11.0",
		"python3 -m vllm.entrypoints.openai.api_server --model m --max-num-seqs=7":                   "",
		"docker run registry.example/vllm-openai:0.15.1 serve m --max-num-seqs 7 --port 800":         "0.15.1",
		"/opt/bin/vllm serve m --max-num-seqs 7 -tp 1":                                               "",
		"docker run --gpus all -p 80:80 vllm/vllm-openai:v0.11.0 m --max-num-seqs 7":                 "0.11.0",
		"podman run --name vllm-openai -d docker.io/vllm/vllm-openai m --max-num-seqs 7":             "",
		"docker run localhost:5000/vllm/vllm-openai:v0.11.0-x86_64 -tp 1 --model m --max-num-seqs 7": "0.11.0",
		"docker run vllm/vllm-openai:v0.15.1-cu130@sha256:0a --model m --max-num-seqs 7":             "0.15.1",
		"docker run --entrypoint bash vllm/vllm-openai:v0.11.0 -c 'vllm serve m --max-num-seqs 7'":   "0.11.0",
		"docker run vllm/vllm-openai:v0.11.0 bash -c 'vllm serve m --max-num-seqs 7'":                "0.11.0",
		"docker pull vllm/vllm-openai:v0.11.0 && vllm serve m --max-num-seqs 7":                      "0.11.0",
		"docker run --entrypoint python3 vllm/vllm-openai:v0.11.0 -m vllm.entrypoints.openai.api_server " +
			"--model m --max-num-seqs 7": "0.11.0",
	} {
		d, err := FromCommandLine(line, nil)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		version, _ := d.Get("vllm.version").(string)
		if version != want || d.Get("vllm.max_num_seqs") != int64(7) || d.Get("model.id") != "m" || len(d.findings) > 0 {
			t.Errorf("%s: got version %q, %v, %v", line, version, d.values, d.findings)
		}
	}
}

// The engine's own line names the model where the log begins behind the arguments, and a
// drafter's model in it is not the model.
func TestModelOfTheEnginesLine(t *testing.T) {
	const line = "INFO 11-20 09:14:04 [core.py:77] Initializing a V1 LLM engine (v0.16.0) with config: model='org/m', " +
		"speculative_config=SpeculativeConfig(method='eagle3', model='drafter'), dtype=torch.bfloat16, max_seq_len=4096%s\n"
	for more, want := range map[string]string{"": "org/m", ", served_model_name=alias": "alias"} {
		d, err := FromLog(strings.NewReader(fmt.Sprintf(line, more)), "log")
		if err != nil || d.Get("model.id") != want {
			t.Errorf("%q: got %v (%v), want %s", more, d.Get("model.id"), err, want)
		}
	}
}

func TestBadCommandLines(t *testing.T) {
	for line, want := range map[string]trace.Code{
		"":                                     vllm.BadCommandLine,
		"sglang serve m":                       vllm.BadCommandLine,
		"vllm serve m 'open":                   vllm.BadCommandLine,
		"vllm serve m other":                   vllm.BadCommandLine,
		"docker pull vllm/vllm-openai:v0.11.0": vllm.BadCommandLine,
		"docker pull vllm/vllm-openai:v0.11.0 && echo ok": vllm.BadCommandLine,
		"docker run rocm/vllm:0.11.0 m":                   vllm.BadCommandLine, // its entry point is not known
	} {
		if _, err := FromCommandLine(line, nil); trace.CodeOf(err) != want {
			t.Errorf("%q: got %v, want %s", line, err, want)
		}
	}
}

func TestDefaultsOfTheDeviceAreNoted(t *testing.T) {
	for name, want := range map[string][2]int64{"H100": {1024, 8192}, "A100": {256, 2048}, "RTX-4090": {256, 2048}} {
		d, err := FromCommandLine("vllm serve m", nil)
		if err != nil {
			t.Fatal(err)
		}
		d.Set("hardware.name", name)
		d.FillDefaults()
		if d.Get("vllm.max_num_seqs") != want[0] || d.Get("vllm.max_num_batched_tokens") != want[1] {
			t.Errorf("%s: got %v, want %v", name, d.values, want)
		}
		var b bytes.Buffer
		if err := d.Write(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "vLLM's default") != 2 || strings.Count(b.String(), "# required:") != len(d.Missing()) ||
			len(d.Missing()) != 2 {
			t.Errorf("%s: %d missing\n%s", name, len(d.Missing()), b.String())
		}
	}
}

func TestRealServerLogs(t *testing.T) {
	root := repo.Shared(t, "data", "real_stock_otlp")
	logs, err := filepath.Glob(filepath.Join(root, "*", "vllm.log.gz"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		d, err := FromLog(z, name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := LoadRun(filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		d.Set("model.config", "config.json")
		d.Set("hardware.name", "H100")
		got, text := loadDraft(t, d)
		g, w := got.Engine, want.Engine
		if g.VLLMVersion != w.VLLMVersion || g.MaxModelLen != w.MaxModelLen || g.MaxNumSeqs != w.MaxNumSeqs ||
			g.MaxNumBatchedTokens != w.MaxNumBatchedTokens || g.ChunkedPrefill != w.ChunkedPrefill || g.PrefixCaching != w.PrefixCaching ||
			g.KVBlocksGPU.V != w.KVBlocksGPU.V-1 || got.Model.ID != want.Model.ID || got.TP != 1 {
			t.Errorf("%s: got\n%+v\nwant\n%+v\n%s", name, g, w, text)
		}
	}
}

func TestALogOfSomethingElseIsRefused(t *testing.T) {
	if _, err := FromLog(strings.NewReader("hello\nworld\n"), "x.log"); trace.CodeOf(err) != vllm.BadCommandLine {
		t.Errorf("got %v, want %s", err, vllm.BadCommandLine)
	}
}

// A log of one endless line, or of zeros, takes no memory and ends.
func TestHostileLogs(t *testing.T) {
	line := "non-default args: {'max_num_seqs': 7}\n"
	long := io.MultiReader(strings.NewReader(line), io.LimitReader(zeros{}, 64<<20), strings.NewReader("\n"+line))
	before := new(runtime.MemStats)
	runtime.ReadMemStats(before)
	if d, err := FromLog(long, "log"); err != nil || d.Get("vllm.max_num_seqs") != int64(7) {
		t.Errorf("got %v", err)
	}
	after := new(runtime.MemStats)
	if runtime.ReadMemStats(after); after.TotalAlloc-before.TotalAlloc > 16<<20 {
		t.Errorf("allocated %d MB for one long line", (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	if _, err := FromLog(strings.NewReader("\xfd7zXZ\x00xxxx"), "log.xz"); trace.CodeOf(err) != files.Packed {
		t.Errorf("got %v", err)
	}
	if _, err := FromLog(strings.NewReader("\x28\xb5\x2f\xfdxxxx"), "log.zst"); err == nil {
		t.Error("got no error for a damaged frame of zstd")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// FuzzLog: any text is a draft that loads or is refused with a code.
func FuzzLog(f *testing.F) {
	f.Add([]byte("INFO utils: non-default args: {'model': '/m/x', 'max_num_seqs': 256, 'kv_transfer_config': {'kv_connector': " +
		"'OffloadingConnector'}}\n" +
		"Initializing a V1 LLM engine (v0.11.0) with config: model='/m/x', dtype=torch.bfloat16, max_seq_len=8192, device_config=cpu\n" +
		"num_gpu_blocks is: 2537\nGPU KV cache size: 44,640 tokens\nAsynchronous scheduling is enabled.\n"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, log []byte) {
		d, err := FromLog(bytes.NewReader(log), "log")
		if err != nil {
			return
		}
		d.SetNoted("hardware.name", "H100", "given")
		d.FillDefaults()
		var text strings.Builder
		if err := d.Write(&text); err != nil {
			t.Fatal(err)
		}
		if _, err := loadRunFS(runFS(text.String()), "run.yaml"); err != nil && trace.CodeOf(err) == "" {
			t.Errorf("error without a code: %v", err)
		} else if e := (*trace.SyntaxError)(nil); errors.As(err, &e) && strings.Contains(e.Msg, "did not find") {
			t.Errorf("a draft that is no YAML: %v\n%s", err, text.String())
		}
	})
}

func FuzzShellAndPython(f *testing.F) {
	f.Add("vllm serve m --max-num-seqs 8k", "{'a': [1, (2.5, None)], 'b': <Enum: 1>}")
	f.Fuzz(func(t *testing.T, line, literal string) {
		_, _ = FromCommandLine(line, nil)
		_, _ = vllm.ParsePython(literal)
	})
}

// TestModelOfALog: the name that clients use, else the model, a folder without its last slash.
func TestModelOfALog(t *testing.T) {
	for args, want := range map[string]any{
		"'model': '/models/llama/'": "/models/llama",
		"'model': 'org/llama'":      "org/llama",
		"'model': '/models/llama/', 'served_model_name': ['chat/', 'b']": "chat",
		"'max_num_seqs': 3": nil,
	} {
		d, err := FromLog(strings.NewReader("non-default args: {"+args+"}\n"), "log")
		if err != nil || d.Get("model.id") != want {
			t.Errorf("%s: got %v, %v, want %v", args, d.Get("model.id"), err, want)
		}
	}
}

// The logs of vLLM on a CPU print neither blocks nor, in new versions, how the
// engine schedules.
func TestLogOfACPUServer(t *testing.T) {
	const line = "(EngineCore pid=1) INFO 11-21 23:05:52 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m/x', " +
		"dtype=torch.bfloat16, max_seq_len=4096, kv_cache_dtype=auto, device_config=%s, seed=0, served_model_name=x\n" +
		"(EngineCore pid=1) INFO 11-21 23:06:33 [kv_cache_utils.py:2327] %s KV cache size: 131,072 tokens, Maximum concurrency 32.00x\n"
	d, err := FromLog(strings.NewReader(fmt.Sprintf(line, "cpu", "CPU")), "log")
	if err != nil {
		t.Fatal(err)
	}
	d.CountKVBlocks(nil)
	if d.Get("vllm.async_scheduling") != false || d.Get("vllm.block_size") != int64(128) || d.Get("vllm.kv_blocks_total_gpu") != int64(1023) {
		t.Errorf("cpu: got %v", d.values)
	}
	if d, err = FromLog(strings.NewReader(fmt.Sprintf(line, "cuda", "GPU")), "log"); err != nil {
		t.Fatal(err)
	}
	d.CountKVBlocks(nil)
	if d.Get("vllm.async_scheduling") != nil || d.Get("vllm.kv_blocks_total_gpu") != int64(8191) {
		t.Errorf("cuda: got %v", d.values)
	}
}

// TestCommandLinesInWrappers: a server is found in what other programs and shells are given, and nothing behind it is its flag.
func TestCommandLinesInWrappers(t *testing.T) {
	for _, line := range []string{
		"python3 -m dynamo.vllm --model openai/gpt-oss-120b -tp 2 --enable-expert-parallel",
		"nsys profile -o x bash -lc 'cd /w && vllm serve openai/gpt-oss-120b -tp 2 -ep 2>&1 | tee log'",
		"ssh host \"OMP_NUM_THREADS=1 vllm serve openai/gpt-oss-120b -tp 2 --enable-expert-parallel; echo done\"",
		"python -m vllm.entrypoints.cli.main serve openai/gpt-oss-120b -tp 2 -ep > log",
		"srun -n 1 numactl -N 0 vllm serve openai/gpt-oss-120b --tensor-parallel-size=2 --enable-expert-parallel &",
	} {
		d, err := FromCommandLine(line, nil)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if d.Get("model.id") != "openai/gpt-oss-120b" || d.Get("tensor_parallel_size") != int64(2) ||
			d.Get("vllm.enable_expert_parallel") != true {
			t.Errorf("%s: got %v", line, d.values)
		}
		if missing := d.Missing(); slices.Contains(missing, "model.config") {
			t.Errorf("%s: still asks for %v, though the model is built in", line, missing)
		}
	}
}

// TestLogWordings: the lines of a start as vLLM 0.15 to 0.33 word them, by what they say of the engine.
func TestLogWordings(t *testing.T) {
	const engine = "(EngineCore_DP0 pid=9) INFO 10-15 08:12:30 [core.py:77] Initializing a V1 LLM engine (v%s) with config: model='m', " +
		"dtype=torch.bfloat16, max_seq_len=4096, enable_prefix_caching=True\n"
	const older, newer = "GPU KV cache size: 87,296 tokens\nINFO Maximum concurrency for 4,096 tokens per request: 21.31x\n",
		"%s KV cache size: 87,296 tokens, Maximum concurrency for 4,096 tokens per request: 21.31x\n"
	for _, c := range []struct {
		version, lines string
		async          any
	}{
		{"0.15.1", older + "[vllm.py:625] Asynchronous scheduling is enabled.\n", true},
		{"0.19.1", older + "Async scheduling not supported with ngram-based speculative decoding and will be disabled.\n" +
			"Asynchronous scheduling is disabled.\n", false},
		{"0.23.0", older + "Asynchronous scheduling is enabled.\n(EngineCore pid=2) Asynchronous scheduling is disabled.\n", false},
		{"0.26.0", older, nil},
		{"0.28.0", fmt.Sprintf(newer, "GPU") + "Async scheduling will be disabled because it is not supported with the `ray` distributed " +
			"executor backend. \n", false},
		{"0.31.0", fmt.Sprintf(newer, "XPU") + "Async scheduling is disabled because the V1 model runner does not support it with pipeline " +
			"parallelism.\n", false},
		{"0.32.0", fmt.Sprintf(newer, "CPU"), nil},
		{"0.33.0", fmt.Sprintf(newer, "GPU + host") + "Disabling asynchronous scheduling by default for pooling model.\n", false},
	} {
		d, err := FromLog(strings.NewReader(fmt.Sprintf(engine, c.version)+"INFO 10-15 08:15:30 [kv_cache_utils.py:1] "+c.lines+
			"INFO [scheduler.py:253] Chunked prefill is enabled with max_num_batched_tokens=2048.\n"), "log")
		if err != nil {
			t.Fatal(err)
		}
		d.CountKVBlocks(nil)
		got := [...]any{d.Get("vllm.version"), d.Get("vllm.async_scheduling"), d.Get("vllm.kv_blocks_total_gpu"),
			d.Get("vllm.max_num_batched_tokens"), d.Get("vllm.enable_prefix_caching")}
		if got != [...]any{c.version, c.async, int64(87296/16 - 1), int64(2048), true} {
			t.Errorf("%s: got %v, want asynchronous scheduling %v", c.version, got, c.async)
		}
	}
}
