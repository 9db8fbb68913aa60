package clients

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/vllm"
	"github.com/google/go-cmp/cmp"
)

// readFiles reads files, given as name, content, as those of one run.
func readFiles(t *testing.T, files map[string]string) *Reader {
	t.Helper()
	dir := t.TempDir()
	c := &Reader{Acc: source.NewAccount(nil)}
	for name, text := range files {
		path := filepath.Join(dir, name)
		repo.Write(t, text, path)
		c.Names = append(c.Names, source.Input{Path: path, Name: name})
	}
	slices.SortFunc(c.Names, func(a, b source.Input) int { return strings.Compare(a.Name, b.Name) })
	for i := range c.Names {
		if !IsClientFile([]byte(files[c.Names[i].Name])) {
			t.Errorf("%s is not known by its content", c.Names[i].Name)
		}
		if err := c.ReadFile(&c.Names[i], source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
			t.Fatal(err)
		}
	}
	c.Finish(&deploy.Deployment{TP: 1, Engine: vllm.Engine{MaxNumSeqs: 64, BlockSize: 16}})
	if r := c.Acc.Records(); !r.Balanced() {
		t.Errorf("account: %+v", r)
	}
	return c
}

// found are the codes of what was found, sorted.
func found(c *Reader) []string {
	var out []string
	for _, f := range c.Findings {
		out = append(out, string(f.Code))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The forms below are written anew after the documentation and the tests of the tools
// (docs/formats.md names the versions): request 1 has 40 prompt and 5 output
// tokens, its first chunk comes 100 ms and its last 300 ms after it was sent at 2 s.
const (
	aiperfText = `{"metadata":{"session_num":0,"x_request_id":"1","turn_index":0,"request_start_ns":2000000000,"request_end_ns":2300000000,` +
		`"benchmark_phase":"profiling","was_cancelled":false},"metrics":{"input_sequence_length":{"value":40,"unit":"tokens"},` +
		`"time_to_first_token":{"value":100.0,"unit":"ms"},"request_latency":{"value":0.3,"unit":"sec"},"output_sequence_length":{"value":5,` +
		`"unit":"tokens"},"inter_chunk_latency":{"value":[50,50,50,50],"unit":"ms"}},"error":null}
{"metadata":{"session_num":1,"x_request_id":"2","request_start_ns":2500000000,"request_end_ns":2500000001,"benchmark_phase":"profiling",` +
		`"was_cancelled":true},"metrics":{"error_isl":{"value":40,"unit":"tokens"}},"error":{"code":499,"type":"RequestCancellationError",` +
		`"message":"gone"}}
{"metadata":{"session_num":2,"x_request_id":"w","request_start_ns":1000000000,"benchmark_phase":"warmup"},"metrics":{` +
		`"input_sequence_length":{"value":40,"unit":"tokens"},"time_to_first_token":{"value":100,"unit":"ms"}}}
`
	perRequestText = `[{"start_time":2.0,"end_time":2.3,"request":"{}","response":"","info":{"request_metrics":{"text":{"input_tokens":38}},` +
		`"response_metrics":{"output_tokens":4,"server_usage":{"prompt_tokens":40,"completion_tokens":5,"prompt_tokens_details":` +
		`{"cached_tokens":16}},"output_token_times":[2.1,2.15,2.2,2.25,2.3]},"input_tokens":38},"error":null},
{"start_time":2.5,"end_time":2.6,"info":{"request_metrics":{"text":{"input_tokens":40}}},"error":{"error_type":"HTTP Error 500",` +
		`"error_msg":"x"}}]`
	perRequestOld = `[{"start_time":2.0,"end_time":2.3,"info":{"input_tokens":40,"output_tokens":5,"output_token_times":[2.1,2.15,2.2,2.25,2.3]},` +
		`"error":null}]`
	stageText = `{"load_summary":{"count":60,"requested_rate":4.0,"achieved_rate":4.1,"send_duration":15},"successes":{"count":60,"latency":` +
		`{"request_latency":{"mean":0.48,"median":0.47},"time_per_output_token":{"mean":0.0035},"time_to_first_token":{"mean":0.033,` +
		`"median":0.032}},"throughput":{"requests_per_sec":3.9},"prompt_len":{"mean":200.5},"output_len":{"mean":62.35}},"failures":{"count":0}}`
	genaiText = `{"request_throughput":{"unit":"requests/sec","avg":3.5},"request_latency":{"unit":"ms","avg":900},"request_count":{"unit":"count",` +
		`"avg":70},"time_to_first_token":{"unit":"ms","avg":45,"p50":40},"inter_token_latency":{"unit":"ms","avg":8.1},` +
		`"output_sequence_length":{"unit":"tokens","avg":100,"std":3},"input_sequence_length":{"unit":"tokens","avg":550,"std":0},` +
		`"input_config":{"perf_analyzer":{"stimulus":{"concurrency":4}}}}`
	perfCSV = "Metric,avg,min,max,p99,p95,p90,p75,p50,p25,p10,p5,p1\nTime To First Token (ms),45.00,1,2,3,4,5,6,40.00,7,8,9,9\n" +
		"Request Latency (ms),900.00,1,2,3,4,5,6,7,7,8,9,9\nInter Token Latency (ms),8.10,1,2,3,4,5,6,7,7,8,9,9\n" +
		"Output Sequence Length (tokens),100.00,1,2,3,4,5,6,7,7,8,9,9\n\"Input Sequence Length " +
		"(tokens)\",\"1,550.00\",1,2,3,4,5,6,7,7,8,9,9\n\n" +
		"Metric,Value\nRequest Throughput (per sec),3.50\nRequest Count (count),70.00\n"
)

// TestRequestsOfBenchmarks: the per-request exports of AIPerf and inference-perf give
// the same request, with failures and warm-up marked.
func TestRequestsOfBenchmarks(t *testing.T) {
	for name, c := range map[string]struct {
		text, source string
		rows, failed int
		cached       int64
	}{
		"profile_export.jsonl":               {aiperfText, sourceAIPerf, 3, 1, 0},
		"per_request_lifecycle_metrics.json": {perRequestText, sourceInferencePerf, 2, 1, 16},
		"older.json":                         {perRequestOld, sourceInferencePerf, 1, 0, 0},
	} {
		got := readFiles(t, map[string]string{name: c.text})
		if len(got.Requests) != c.rows || len(got.Points) > 0 || len(got.Loads) != 1 {
			t.Errorf("%s: got %d rows, %d points, loads %+v", name, len(got.Requests), len(got.Points), got.Loads)
			continue
		}
		r := &got.Requests[0]
		if d := cmp.Diff([]any{"1", c.source, int64(40), int64(5), int64(5), int64(2e9), int64(2.1e9), int64(2.3e9), c.cached, true},
			[]any{r.ID, r.Source, r.PromptTokens.V, r.OutputTokens.V, r.Chunks.V, r.SendNs.V, r.FirstChunkNs.V, r.LastChunkNs.V, r.CachedTokens.V,
				r.Success.V}); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		failed := 0
		for i := range got.Requests {
			if !got.Requests[i].Success.V {
				failed++
			}
		}
		if failed != c.failed {
			t.Errorf("%s: got %d failed, want %d", name, failed, c.failed)
		}
	}
	got := readFiles(t, map[string]string{"p.jsonl": aiperfText})
	if !got.Requests[2].LoadOnly.V || got.Requests[0].LoadOnly.V {
		t.Error("the warm-up is not told apart")
	}
	odd := strings.Replace(aiperfText, `{"value":100.0,"unit":"ms"}`, `{"value":100.0,"unit":"fortnights"}`, 1)
	if got := readFiles(t, map[string]string{"p.jsonl": odd}); len(got.Requests) != 2 || got.Acc.Dropped["unreadable"] != 1 {
		t.Errorf("a unit that nobody knows: got %d rows, %v", len(got.Requests), got.Acc.Dropped)
	}
}

// TestLevelsOfBenchmarks: summaries give one level each with its load; the CSV of
// a JSON of the same name is the same level, the mean over stages none.
func TestLevelsOfBenchmarks(t *testing.T) {
	point := func(c *Reader) string {
		var out []string
		for _, p := range c.Points {
			out = append(out, fmt.Sprintf("%s n%d c%d r%g in%g out%g ttft%.4g tpot%.4g e2e%.4g", p.Strategy, p.Requests.V, p.Clients.V,
				p.OfferedRPS.V,
				p.PromptTokens, p.OutputTokens, p.TTFTMs.V, p.TPOTMs, p.E2EMs.V))
		}
		return strings.Join(out, "; ")
	}
	phases := strings.Replace(genaiText, `{"perf_analyzer":{"stimulus":{"concurrency":4}}}`, `{"phases":[{"name":"warmup","concurrency":1},`+
		`{"name":"profiling","concurrency":4}]}`, 1)
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		drops int64
		codes []string
	}{
		"inference-perf": {map[string]string{"stage_0_lifecycle_metrics.json": stageText, "summary_lifecycle_metrics.json": stageText},
			"poisson@4 n60 c0 r4 in200.5 out62.35 ttft33 tpot7.286 e2e480", 1, []string{"client_file"}},
		"genai-perf": {map[string]string{"profile_export_genai_perf.json": genaiText, "profile_export_genai_perf.csv": perfCSV},
			"concurrent@4 n70 c4 r0 in550 out100 ttft45 tpot8.1 e2e900", 1, nil},
		"CSV alone": {map[string]string{"a.csv": perfCSV}, " n70 c0 r0 in1550 out100 ttft45 tpot8.1 e2e900", 0, nil},
		"AIPerf": {map[string]string{"a.json": strings.Replace(genaiText, `"perf_analyzer":{"stimulus":{"concurrency":4}}`,
			`"loadgen":{"concurrency":null,"request_rate":2.5}`, 1)}, "poisson@2.5 n70 c0 r2.5 in550 out100 ttft45 tpot8.1 e2e900", 0, nil},
		"AIPerf, phases": {map[string]string{"a.json": phases}, "concurrent@4 n70 c4 r0 in550 out100 ttft45 tpot8.1 e2e900", 0, nil},
		"vllm bench": {map[string]string{"b.json": `{"completed":10,"total_input_tokens":1000,"total_output_tokens":500,"request_rate":"inf",` +
			`"max_concurrency":2,"request_throughput":1.5,"mean_ttft_ms":40,"median_ttft_ms":38,"mean_tpot_ms":9}`},
			"concurrent@2 n10 c2 r0 in100 out50 ttft40 tpot9 e2e0", 0, []string{"client_file"}},
		"levels": {map[string]string{"l.csv": "input_tokens,output_tokens,rate_rps,ttft_ms,tpot_ms,concurrency\n100,20,,9,4,2\n"},
			"concurrent@2 n0 c2 r0 in100 out20 ttft9 tpot4 e2e0", 0, nil},
	} {
		got := readFiles(t, c.files)
		if d := cmp.Diff(c.want, point(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if n := got.Acc.Read - got.Acc.Kept; n != c.drops || !slices.Equal(found(got), c.codes) {
			t.Errorf("%s: %d dropped, want %d; found %v, want %v", name, n, c.drops, found(got), c.codes)
		}
	}
}
