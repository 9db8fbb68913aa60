package extract

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// logLine is an iteration as vLLM's front end logs it, at a second of 21 November.
func logLine(engine, index, second int) string {
	return fmt.Sprintf("(APIServer pid=1769) INFO 11-21 23:%02d:%02d [loggers.py:199] Engine %03d: Iteration(%d): 0 context requests, "+
		"0 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 49.21 ms, GPU KV cache usage: 0.4%%\r\n",
		second/60, second%60, engine, index)
}

func fpmLine(worker string, index int) string {
	return fmt.Sprintf(`{"timestamp":12,"event":{"schema":"dynamo.fpm.trace.v1","source":{"producer_id":"p"},"capture_mode":"full",`+
		`"observed_at_unix_ms":%d,"fpm":{"version":1,"worker_id":%q,"dp_rank":0,"counter_id":%d,"wall_time":0.0125,"scheduled_requests":`+
		`{"num_prefill_requests":0,"sum_prefill_tokens":0,"var_prefill_length":0,"sum_prefill_kv_tokens":0,"num_decode_requests":3,`+
		`"sum_decode_kv_tokens":900,"var_decode_kv_tokens":4}}}}`+"\n", 1795303303000+13*index, worker, index)
}

const upstreamRun = "hardware: {name: H100}\nmodel: {config: config.json}\n" +
	"vllm: {version: 0.32.0, max_num_seqs: 8, max_num_batched_tokens: 512}\n"

// upstreamFolder is a run folder with a model and nothing recorded.
func upstreamFolder(t *testing.T, runYAML string) string {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(repo.Root(t), "testdata", "traces", "real", "gqa-low", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "config.json"), string(config))
	put(t, filepath.Join(dir, "run.yaml"), runYAML)
	return dir
}

// TestUpstreamFolder: logs and forward-pass traces are found by their content in
// one folder, each engine and each restart is a run of its own, and what is torn
// or stands twice is counted.
func TestUpstreamFolder(t *testing.T) {
	dir := upstreamFolder(t, upstreamRun)
	var log strings.Builder
	log.WriteString("vLLM API server version 0.32.0\n\x1b[32mLoading: 100%|####| 4/4\r\n")
	for i := range 40 {
		log.WriteString(logLine(0, i, i) + logLine(1, 100+i, i) + "INFO: \"POST /v1/completions HTTP/1.1\" 200 OK\n")
	}
	log.WriteString(logLine(0, 40, 40)[:140] + "\n" + logLine(0, 39, 39)) // torn; again
	put(t, filepath.Join(dir, "server.log.1"), log.String())
	put(t, filepath.Join(dir, "server.log"), logLine(0, 0, 90)+logLine(0, 1, 91)) // a restart, in the live file of the set
	var parts [3]strings.Builder
	for i := range 30 {
		parts[i/10].WriteString(fpmLine("w1", 1000+i))
	}
	for i := range parts {
		text := string(gzipped([]byte(parts[i].String())))
		if i == 2 {
			text = text[:len(text)-12] // a killed writer
		}
		put(t, filepath.Join(dir, fmt.Sprintf("fpm.w1.%d.jsonl.gz", 9+i)), text)
	}
	put(t, filepath.Join(dir, "fpm.w2.0.jsonl"), fpmLine("w2", 5))
	out := filepath.Join(t.TempDir(), "out")
	doc, err := extractArgs(t, out, []string{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		it := r.Iterations
		got = append(got, fmt.Sprintf("%d %d..%d", len(it), it[0].Index, it[len(it)-1].Index))
	}
	want := "40 0..39, 2 0..1, 40 100..139, 30 1000..1029, 1 5..5"
	if text := strings.Join(got, ", "); !strings.HasPrefix(text, "40 0..39, 2 0..1, 40 100..139, ") || !strings.HasSuffix(text, "1 5..5") {
		t.Errorf("got runs %s, want %s", text, want)
	}
	r := doc.Runs[0].Records
	if r.Dropped["duplicate"] != 1 || r.Dropped["unreadable"] < 2 || !r.Balanced() {
		t.Errorf("got %+v, want one duplicate, a torn line and a cut file", r)
	}
}

// TestBenchBesideLog: the result of vllm bench serve is found by its content, its
// load is a phase, and a result without requests is a load level, with the flag that is missing.
func TestBenchBesideLog(t *testing.T) {
	dir := upstreamFolder(t, upstreamRun)
	put(t, filepath.Join(dir, "vllm.out"), logLine(0, 0, 0)+logLine(0, 1, 1))
	const head = `{"date": "20261121-232246", "backend": "vllm", "completed": 2, "failed": 1, "total_input_tokens": 123, "max_concurrency": null`
	const lists = `, "input_lens": [10, 20, 30], "output_lens": [3, 1, 0], "ttfts": [0.5, 0.25, 0.0], "itls": [[0.1, 0.2], [], []],
"start_times": [100.0, 100.5, 101.0], "generated_texts": ["a", "b", ""], "errors": ["", "", "Traceback\nTimeoutError: x"]}`
	put(t, filepath.Join(dir, "bench_open.json"), head+lists)
	out := filepath.Join(t.TempDir(), "out")
	doc, err := extractArgs(t, out, nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 || len(runs[0].Observed) != 3 || len(runs[0].Iterations) != 2 {
		t.Fatalf("got %d runs, %+v", len(runs), runs[0])
	}
	r := runs[0].Observed[0]
	if r.ID != "open-0" || r.SendNs.V != 100e9 || r.FirstChunkNs.V != 100.5e9 || r.LastChunkNs.V != 100.8e9 || r.TTFTUs.V != 5e5 ||
		r.E2EUs.V != 8e5 || r.Phase.V != "bench_open" || !r.Success.V || len(r.ChunkGapsUs) != 2 {
		t.Errorf("got %+v", r)
	}
	if r := runs[0].Observed[2]; r.Success.V || r.Error.V != "TimeoutError: x" || r.FirstChunkNs.OK {
		t.Errorf("got %+v, want a failed request", r)
	}
	if p := doc.Runs[0].Deployment.Phases; len(p) != 1 || p[0].Name != "bench_open" || p[0].Load != "open" || p[0].StartNs != 100e9 {
		t.Errorf("got phases %+v", p)
	}
	put(t, filepath.Join(dir, "bench_open.json"), head+`, "total_output_tokens": 20, "request_throughput": 2.5, "request_rate": "inf",
"mean_ttft_ms": 40, "median_ttft_ms": 35, "mean_tpot_ms": 8}`)
	doc, err = extractArgs(t, out, nil, dir)
	if err != nil || doc.Runs[0].Tables[table.Points] != 1 || !slices.ContainsFunc(doc.Runs[0].Warnings, func(f trace.Finding) bool {
		return f.Code == "client_file" && strings.Contains(f.Message, "--save-detailed")
	}) {
		t.Errorf("got %v, %+v, want a point and the flag that is missing", err, doc)
	}
}

// TestStockRecordings: what unmodified vLLM wrote is read whole, and its totals are
// those of the clients.
func TestStockRecordings(t *testing.T) {
	out := extractTo(t, repo.Shared(t, "data", "real_vllm_stock"), nil)
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]int{"stock-gqa-a": {5953, 929}, "stock-mha-core": {8946, 990}}
	for _, run := range runs {
		w := want[run.ID]
		if len(run.Iterations) != w[0] || len(run.Observed) != w[1] || len(run.Requests) != w[1] {
			t.Errorf("%s: got %d iterations, %d and %d requests, want %v", run.ID, len(run.Iterations), len(run.Observed), len(run.Requests), w)
		}
		var context, generated, prompts, outputs int64
		for i := range run.Iterations {
			context, generated = context+run.Iterations[i].ContextTokens, generated+run.Iterations[i].GenerationTokens
		}
		for i := range run.Observed {
			prompts, outputs = prompts+run.Observed[i].PromptTokens.V, outputs+run.Observed[i].OutputTokens.V
		}
		if hits := map[string]int64{"stock-gqa-a": 768, "stock-mha-core": 1024}[run.ID]; context+hits != prompts {
			t.Errorf("%s: got %d context tokens and %d cached ones, clients sent %d", run.ID, context, hits, prompts)
		}
		if generated != outputs-int64(len(run.Observed)) {
			t.Errorf("%s: got %d generation tokens, clients got %d less one a request", run.ID, generated, outputs)
		}
		if s := run.Iterations[0].StampStepNs; s != trace.Some[int64](1e9) {
			t.Errorf("%s: got stamps of %v ns", run.ID, s)
		}
	}
}

// TestSilentLog: a log of vLLM without iterations names the flag.
func TestSilentLog(t *testing.T) {
	dir := upstreamFolder(t, upstreamRun)
	put(t, filepath.Join(dir, "server.log"), "(APIServer pid=1) INFO 11-21 23:19:33 [a.py:1] vLLM API server version 0.32.0\nready\n")
	_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
	if e := (*trace.Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Hint, "--enable-logging-iteration-details") {
		t.Errorf("got %v, want the flag", err)
	}
}
