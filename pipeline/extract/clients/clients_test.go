package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
	"github.com/google/go-cmp/cmp"
)

// readFiles reads files, given as name, content, as those of one run.
func readFiles(t *testing.T, files map[string]string) *Reader {
	t.Helper()
	dir := t.TempDir()
	c := &Reader{Acc: source.New(nil)}
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
// (docs/formats.md says of which versions): request 1 has 40 prompt and 5 output
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
// the same request, failures and warm-up told apart.
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

// TestLevelsOfBenchmarks: summaries give one level each with its load; the CSV beside
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

// traceRows is a TraceV2 file of n requests, sent every gapUs, of tokens output tokens
// in chunks chunks, 1 s each.
func traceRows(n int, gapUs int64, tokens, chunks int) []string {
	out := []string{"request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens," +
		"output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us," +
		"send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason"}
	for i := range n {
		at := 1_000_000 + int64(i)*gapUs
		out = append(out, fmt.Sprintf("%d,c,t,,,0,,0,true,40,%d,0,0,0,0,0,m,0,40,%d,%d,%d,%d,%d,ok,,stop", i, tokens, at, at, at+100_000,
			at+1_000_000, chunks))
	}
	return out
}

const traceHeader = "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: %d\nserver:\n    type: vllm\n    model: m\n" +
	"network:\n    measured_rtt_ms: 3\n"

// TestTraps: everything that files of clients are known to get wrong is found by
// name, and what can be put right is.
func TestTraps(t *testing.T) {
	always := []string{"the round trip takes", "neither it nor run.yaml states"}
	reversed := func(rows []string) []string {
		out := slices.Clone(rows)
		slices.Reverse(out[1:])
		return out
	}
	for name, c := range map[string]struct {
		rows   []string
		warmUp int
		says   []string
		is     func(rows []trace.ObservedRequest) bool
	}{
		"clean":   {traceRows(30, 3e6, 10, 10), 0, nil, nil},
		"shuffle": {reversed(traceRows(30, 3e6, 10, 10)), 0, []string{"sent before the one above them"}, nil},
		"warm-up missing": {renumbered(traceRows(30, 300_000, 10, 10), 50), 50, []string{"warm-up are not in the file"},
			func(rows []trace.ObservedRequest) bool {
				return rows[0].LoadOnly.V && rows[3].LoadOnly.V && !rows[4].LoadOnly.V // sent 1.2 s after the first, whose likes take 1 s
			}},
		"warm-up present": {traceRows(30, 300_000, 10, 10), 5, []string{"and the file has 5 of them"}, func(rows []trace.ObservedRequest) bool {
			return rows[4].LoadOnly.V && !rows[5].LoadOnly.V
		}},
		"one chunk more": {traceRows(30, 3e6, 10, 11), 0, []string{"one chunk more than tokens"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].OutputTokens.V == 10 && rows[0].Chunks.V == 10
		}},
		"retokenised": {traceRows(30, 3e6, 8, 10), 0, []string{"chunks count"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].OutputTokens.V == 10
		}},
		"two stamps a token": {traceRows(30, 3e6, 10, 20), 0, []string{"stamps a token"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].OutputTokens.V == 10 && !rows[0].Chunks.OK
		}},
		"capped":      {capped(200, 8, 4e6), 0, []string{"the client kept at most"}, nil},
		"closed loop": {capped(200, 4, 1), 0, nil, nil},
		"columns": {withColumns(traceRows(30, 3e6, 10, 10)), 0, []string{"which are not known and not read"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].FinishReason.OK == false
		}},
		"client's tokens": {replaced(traceRows(30, 3e6, 10, 10), ",m,0,40,", ",m,0,0,"), 0, []string{"the server counted 0"}, nil},
		"wall clock":      {onWallClock(traceRows(30, 1e4, 10, 10)), 0, []string{"of the wall clock"}, nil},
		"prefixes":        {replaced(traceRows(30, 3e6, 10, 10), ",0,,0,true,40", ",0,sys,32,true,8"), 0, []string{"share prefixes"}, nil},
	} {
		got := readFiles(t, map[string]string{"t.csv": strings.Join(c.rows, "\n") + "\n", "t.yaml": fmt.Sprintf(traceHeader, c.warmUp)})
		want := append(slices.Clone(always), c.says...)
		for _, words := range want {
			if !slices.ContainsFunc(got.Findings, func(f trace.Finding) bool { return strings.Contains(f.Message, words) }) {
				t.Errorf("%s: got %v, want one that says %q", name, got.Findings, words)
			}
		}
		if len(got.Findings) != len(want) {
			t.Errorf("%s: got the findings %v, want %q", name, got.Findings, want)
		}
		if c.is != nil && !c.is(got.Requests) {
			t.Errorf("%s: got %+v", name, got.Requests[:6])
		}
	}
	wrong := strings.Replace(fmt.Sprintf(traceHeader, 0), "model: m", "model: m\n    max_num_seqs: 32\n    tensor_parallel: 2", 1)
	got := readFiles(t, map[string]string{"t.csv": strings.Join(traceRows(5, 3e6, 10, 10), "\n"), "t.yaml": wrong})
	if !slices.Contains(found(got), "run_contradicted") {
		t.Errorf("got %v, want that the header denies run.yaml", got.Findings)
	}
}

// onWallClock moves the stamps to 2025.
func onWallClock(rows []string) []string {
	for i := range rows {
		rows[i] = regexp.MustCompile(`,([12]\d{6})`).ReplaceAllString(rows[i], ",175999999$1")
	}
	return rows
}

func replaced(rows []string, from, to string) []string {
	for i := 1; i < len(rows); i++ {
		rows[i] = strings.ReplaceAll(rows[i], from, to)
	}
	return rows
}

// renumbered gives the rows ids from n on.
func renumbered(rows []string, n int) []string {
	for i := 1; i < len(rows); i++ {
		_, rest, _ := strings.Cut(rows[i], ",")
		rows[i] = fmt.Sprintf("%d,%s", n+i-1, rest)
	}
	return rows
}

// capped is a client that sends bursts of twelve requests of 1 s each, but never has
// more than most in flight.
func capped(n, most int, periodUs int64) []string {
	rows := traceRows(1, 1, 10, 10)[:1]
	var busy []int64
	for i := range n {
		at := 1_000_000 + int64(i/12)*periodUs + int64(i%12)*20_000
		if len(busy) >= most {
			at = max(at, busy[len(busy)-most])
		}
		busy = append(busy, at+1_000_000+int64(i))
		rows = append(rows, fmt.Sprintf("%d,c,t,,,0,,0,true,40,10,0,0,0,0,0,m,0,40,%d,%d,%d,%d,10,ok,,stop", i, at, at, at+100_000,
			at+1_000_000+int64(i)))
	}
	return rows
}

// withColumns lacks the last column and has one that nobody knows.
func withColumns(rows []string) []string {
	for i := range rows {
		rows[i] = rows[i][:strings.LastIndexByte(rows[i], ',')] + map[bool]string{true: ",shoe_size", false: ",43"}[i == 0]
	}
	return rows
}

// TestChunkFile: the times of chunks stand in a file of their own, in any order; those
// of requests that are not there are counted.
func TestChunkFile(t *testing.T) {
	rows := strings.Join(traceRows(2, 3e6, 3, 3), "\n") + "\n"
	const chunks = "request_id,chunk_index,timestamp_us\n1,1,4500000\n1,0,4100000\n1,2,5000000\n" +
		"0,0,1100000\n0,1,1600000\n0,2,2000000\n7,0,1\nx\n"
	c := readFiles(t, map[string]string{"t.csv": rows, "t.itl.csv": chunks, "t.yaml": fmt.Sprintf(traceHeader, 0)})
	if len(c.Requests) != 2 || c.Acc.Dropped[CodeClientFile] != 1 || c.Acc.Dropped["unreadable"] != 1 {
		t.Fatalf("got %d rows, %v", len(c.Requests), c.Acc.Dropped)
	}
	if d := cmp.Diff([][]float64{{500_000, 400_000}, {400_000, 500_000}}, [][]float64{c.Requests[0].ChunkGapsUs, c.Requests[1].ChunkGapsUs}); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestBlocksHeldAtOnce: requests that hold more than the cache contradict run.yaml, unless they may share what they hold.
func TestBlocksHeldAtOnce(t *testing.T) {
	for caching, odd := range map[bool]bool{false: true, true: false} {
		dep := &deploy.Deployment{TP: 1, Engine: vllm.Engine{BlockSize: 16, KVBlocksGPU: trace.Some(int64(20)), PrefixCaching: caching}}
		c := &Reader{Acc: source.New(nil)}
		for range 4 {
			c.Requests = append(c.Requests, trace.ObservedRequest{SendNs: trace.Some(int64(1000)), TTFTUs: trace.Some(5.0), E2EUs: trace.Some(500.0),
				PromptTokens: trace.Some(int64(100)), OutputTokens: trace.Some(int64(10))})
		}
		c.checkKVBlocks(dep)
		if got := slices.Contains(found(c), string(source.CodeRunContradicted)); got != odd {
			t.Errorf("prefix caching %v: contradicted %v, want %v (%v)", caching, got, odd, c.Findings)
		}
	}
}

// TestOddUnit: times that no device can have are of another unit.
func TestOddUnit(t *testing.T) {
	dep := &deploy.Deployment{TP: 1, Hardware: deploy.Hardware{BwPeakTBs: 3.35}}
	dep.Model = model.Model{NumLayers: 32, HiddenSize: 4096, HeadDim: 128, NumHeads: 32, NumKVHeads: 8, NumMLPProj: 3,
		IntermediateSize: 14336,
		VocabSize:        128_256, BytesPerWeight: 2, BytesPerLMHead: 2}
	for us, odd := range map[float64]bool{10_000: false, 10: true, 1e9: true} {
		c := &Reader{Acc: source.New(nil)}
		for range 10 {
			c.Requests = append(c.Requests, trace.ObservedRequest{Success: trace.Some(true), OutputTokens: trace.Some(int64(11)), TTFTUs: trace.Some(5.0),
				E2EUs: trace.Some(5 + 10*us)})
		}
		c.checkTimeUnit(dep)
		if got := slices.Contains(found(c), string(source.CodeRunContradicted)); got != odd {
			t.Errorf("%g us a token: called odd %v, want %v (%v)", us, got, odd, c.Findings)
		}
	}
}

// TestNames: the first bytes of each tool's export name it with a way out; what is
// read here is nobody's.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"data":[{"traceID":"ab","spans":[{"traceID":"ab","spanID":"c","operationName":"llm_request","startTime":1}]}]}`: "a Jaeger export",
		`{"data":[{"traceID":"ab","processes":{"p1":{}}}]}`:                                                               "a Jaeger export",
		`[{"traceId":"ab","id":"c","name":"x","timestamp":1,"duration":2,"localEndpoint":{"serviceName":"v"}}]`:           "a Zipkin export",
		`{"Timestamp":"2026-01-01","TraceId":"ab","SpanId":"c","SpanName":"llm_request","SpanAttributes":{}}`:             "rows of ClickHouse",
		"Timestamp,TraceId,SpanId,ParentSpanId,SpanName,SpanAttributes\n":                                                 "rows of ClickHouse",
		"PAR1\x15\x04": "a Parquet file",
		`{"service_kind":"openai","endpoint":"v1/completions","experiments":[{"requests":[]}]}`:       "Perf Analyzer",
		`{"experiments":[{"requests":[{"timestamp":1,"response_timestamps":[2]}]}]}`:                  "Perf Analyzer",
		`{"load_summary":{"count":3},"successes":{"count":3},"failures":{}}`:                          "",
		`[{"start_time":1.5,"info":{"input_tokens":3,"output_token_times":[1.6]}}]`:                   "",
		`{"resourceSpans":[{"resource":{"attributes":[{"key":"traceID"},{"key":"operationName"}]}}]}`: "",
		`{"id":"r1","send_ns":1,"itl_us":[1,2]}`:                                                      "",
		`{"batches":[{"resource":{},"scopeSpans":[]}]}`:                                               "",
		`{"date":"x","completed":3,"total_input_tokens":1}`:                                           "",
		`(APIServer pid=7) INFO 11-21 23:19:33 [api_utils.py:339] vLLM API server version 0.25.1`:     "",
	} {
		err := RefuseForeign("f", []byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60s: got %v, want nobody's", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Msg, want) || err.Hint == ""):
			t.Errorf("%.60s: got %v, want %s and a way out", text, err, want)
		}
	}
}

// TestGuideLLMIsStreamed: a result file takes the memory of its rows, not of its
// bytes; what stands around the requests may come in any order.
func TestGuideLLMIsStreamed(t *testing.T) {
	const n = 600
	path := filepath.Join(t.TempDir(), "g.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("lorem ipsum ", 1<<13) // 96 kB, as prompts with documents have
	fmt.Fprintf(f, `{"guidellm_version":"0.4.0","args":{"x":[1,{"y":null}]},"benchmarks":[{"metrics":{"a":[1,2]},"requests":{"total":[%q],"errored":null,"successful":[`, body)
	for i := range n {
		if i > 0 {
			fmt.Fprint(f, ",")
		}
		fmt.Fprintf(f, `{"request_id":"r%d","request_start_time":1.5,"prompt_tokens":40,"request_args":{"stream":true,"body":{"max_tokens":8,"prompt":%q}}}`, i, body)
	}
	fmt.Fprint(f, `]},"config":{"strategy":{"type_":"constant"}}}]}`)
	size, _ := f.Seek(0, 1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	in := []source.Input{{Path: path, Name: "g.json"}}
	c := &Reader{Names: in, Acc: source.New(nil)}
	if err := c.ReadFile(&in[0], source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if len(c.Requests) != n || c.Requests[0].Phase.V != "constant" || c.Requests[n-1].AskedTokens.V != 8 || in[0].Gave != n || c.Acc.Bytes != size {
		t.Errorf("got %d rows, the first %+v, %d of %d bytes", len(c.Requests), c.Requests[0], c.Acc.Bytes, size)
	}
	if grown := int64(after.HeapSys - before.HeapSys); grown > size/3 {
		t.Errorf("the heap grew by %d MB for a file of %d MB", grown>>20, size>>20)
	}
}

// TestBrokenGuideLLM: what is cut or of another form is an error with what was
// read before it.
func TestBrokenGuideLLM(t *testing.T) {
	const good = `{"guidellm_version":"1","benchmarks":[{"requests":{"successful":[{"request_id":"a","request_start_time":1},{"request_id":"b","request_start_time":1}]}}]}`
	for text, rows := range map[string]int{
		good: 2, good[:len(good)-10]: 1, strings.Replace(good, `[{"request_id":"a","request_start_time":1},`, `[7,`, 1): 0, strings.Replace(good, `{"successful"`, `[{"successful"`, 1): 0,
		strings.Replace(good, `"benchmarks":[`, `"benchmarks":null,"x":[`, 1): 0,
	} {
		path := filepath.Join(t.TempDir(), "g.json")
		repo.Write(t, text, path)
		in := []source.Input{{Path: path, Name: "g.json"}}
		c := &Reader{Names: in, Acc: source.New(nil)}
		if err := c.ReadFile(&in[0], source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
			t.Fatal(err)
		}
		if lost := c.Acc.Records().Dropped["unreadable"]; len(c.Requests) != rows || (lost == 1) != (rows < 2 && !strings.Contains(text, "null")) {
			t.Errorf("%s: got %d rows and %d lost, want %d", text, len(c.Requests), lost, rows)
		}
	}
}

const benchText = `{"completed": 2, "total_input_tokens": 3, "input_lens": [10, 20], "output_lens": [3, 1], "ttfts": [0.5, 0.25], "itls": [[0.1, 0.2], []],
"start_times": [100.0, 100.5], "errors": ["", "boom"], "max_concurrency": 4}`

// TestBenchLists: lists that do not belong together are refused with their sizes.
func TestBenchLists(t *testing.T) {
	for from, want := range map[string]string{
		"":                 "",
		`[3, 1]`:           "got 1 output_lens for 2 input_lens",
		`[0.5, 0.25]`:      "got 1 ttfts for 2 input_lens",
		`[[0.1, 0.2], []]`: "got 1 itls for 2 input_lens",
		`["", "boom"]`:     "got 1 errors for 2 input_lens",
	} {
		text := benchText
		if from != "" {
			first, _, _ := strings.Cut(from, ", ")
			if strings.HasPrefix(from, "[[") {
				first = "[[0.1]"
			}
			text = strings.Replace(text, from, first+"]", 1)
		}
		_, err := readBenchResult(walker{json.NewDecoder(strings.NewReader(text))})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", from, err, want)
		}
	}
}

// FuzzBench: no text panics the reader of vllm bench results.
func FuzzBench(f *testing.F) {
	f.Add(benchText)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := readBenchResult(walker{json.NewDecoder(strings.NewReader(text))})
		if err != nil {
			return
		}
		for i := range b.inputs {
			if r := b.request(i); !r.PromptTokens.OK || !r.Success.OK {
				t.Errorf("got %+v", r)
			}
		}
	})
}
