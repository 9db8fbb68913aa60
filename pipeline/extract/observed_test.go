package extract

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// besideDump extracts a run of the given dump lines with client and KV files,
// given as name, content.
func besideDump(t *testing.T, lines []string, clients, kv map[string]string) (*result.ExtractRun, *trace.Run) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		repo.Write(t, text, dir, name)
		return name
	}
	dep := &deploy.Deployment{Name: "run"}
	if len(lines) > 0 {
		dep.Files.Traces = []string{write("traces.jsonl", strings.Join(lines, "\n"))}
	}
	for name, text := range clients {
		dep.Files.ClientRequests = append(dep.Files.ClientRequests, write(name, text))
	}
	for name, text := range kv {
		dep.Files.KVEvents = append(dep.Files.KVEvents, write(name, text))
	}
	o := DefaultOptions()
	o.Out, o.MaxBadFrac = t.TempDir(), 1
	doc, err := Run(context.Background(), []RunDir{{ID: "run", Dir: dir, Folder: ".", Deployment: dep}}, o)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readAll(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	return &doc.Runs[0], runs[0]
}

// TestClientForms: each client's file is told by its content and gives the
// same request: sent at 1 s, first chunk 100 ms and last 300 ms later, 40
// prompt and 5 output tokens; and one that failed.
func TestClientForms(t *testing.T) {
	const csv = "request_id,client_id,slo_class,prefix_group,prefix_length,streaming,input_tokens,output_tokens," +
		"server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message," +
		"finish_reason\n" +
		"1,c,chat,sys,16,true,39,5,40,990000,1000000,1100000,1300000,5,ok,,length\n" +
		"2,c,chat,,0,true,39,0,40,990000,1000000,0,0,0,error,\"got 500,\nwith a second line\",\n"
	const header = "trace_version: 2\ntime_unit: microseconds\nmode: real\nwarm_up_requests: 0\n"
	forms := map[string]struct {
		text   string
		source string
		id     string
	}{
		"client lines": {`{"id":"1","phase":"p","route":"completions","prompt_tokens":39,"output_tokens":8,"intended_ns":990000000,"send_ns":1000000000,"first_chunk_ns":1100000000,"last_chunk_ns":1300000000,"send_wall_ns":5,"status":200,"error":null,"aborted":false,"usage":{"prompt_tokens":40,"completion_tokens":5},"itl_us":[50000,150000]}
{"id":"2","status":500,"error":"got 500","prompt_tokens":40,"send_ns":1000000000}
`, "client", "1"},
		"llmservingsim": {`{"request_id":"1","input_toks":40,"output_toks":5,"arrival_time":1.0,"queued_ts":1.01,"scheduled_ts":1.02,"first_token_ts":1.1,"last_token_ts":1.3}
{"request_id":"2","input_toks":40,"output_toks":5,"arrival_time":1.0,"last_token_ts":null}
`, "llmservingsim", "1"},
		"guidellm": {`{"metadata":{"version":1,"guidellm_version":"0.4.0"},"args":{},"benchmarks":[{"config":{"strategy":{"type_":"constant"}},"requests":{
"successful":[{"request_id":"g1","response_id":"1","request_type":"text_completions","request_start_time":1.0,"request_end_time":1.3,"request_latency":0.3,"prompt_tokens":40,"output_tokens":5,"time_to_first_token_ms":100.0,"request_args":{"stream":true,"body":{"max_tokens":8}},"info":{"error":null,"timings":{"targeted_start":0.99}}}],
"errored":[{"request_id":"2","request_start_time":1.0,"prompt_tokens":40,"info":{"error":"got 500"}}],"incomplete":[]}}]}`, "guidellm", "1"},
		"TraceV2":                  {csv, "tracev2", "1"},
		"TraceV2 below its header": {header + "---\n" + csv, "tracev2", "1"},
	}
	for name, f := range forms {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/packed %v", name, packed), func(t *testing.T) {
				text := f.text
				if packed {
					text = string(otlptest.Compress([]byte(text)))
				}
				doc, run := besideDump(t, nil, map[string]string{"some.file": text}, nil)
				if len(run.Observed) != 2 || len(doc.Records.Dropped) > 0 || doc.Tables[table.ObservedRequests] != 2 {
					t.Fatalf("got %d requests and the drops %v (%v), want 2 and none", len(run.Observed), doc.Records.Dropped, doc.Examples)
				}
				good, bad := run.Observed[0], run.Observed[1]
				if good.ID != "1" {
					good, bad = bad, good
				}
				got := []any{good.ID, good.Source, good.PromptTokens.V, good.OutputTokens.V, good.Success.V, bad.ID, bad.Success.V}
				if d := cmp.Diff([]any{"1", f.source, int64(40), int64(5), true, "2", false}, got); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
				if f.source == "llmservingsim" { // the engine's stamps, on another clock than the arrival
					if good.EngineFirstNs.V != 11e8 || good.EngineLastNs.V != 13e8 || good.QueuedNs.V != 101e7 || good.SendWallNs.V != 1e9 {
						t.Errorf("got %+v", good)
					}
				} else if good.TTFTUs.V != 1e5 || good.E2EUs.V != 3e5 {
					t.Errorf("got TTFT %v and E2E %v, want 100 and 300 ms", good.TTFTUs, good.E2EUs)
				}
				if f.source != "llmservingsim" && !strings.Contains(bad.Error.V, "500") {
					t.Errorf("got the error %v, want the client's", bad.Error)
				}
			})
		}
	}
	text := strings.Replace(forms["client lines"].text, `"status":200`, `"stream":false,"status":200`, 1)
	if _, run := besideDump(t, nil, map[string]string{"some.file": text}, nil); len(run.Observed) != 2 ||
		run.Observed[0].FirstChunkNs.OK || run.Observed[0].TTFTUs.OK || run.Observed[0].E2EUs.V != 3e5 {
		t.Errorf("got %+v, want no TTFT of an answer that was not streamed", run.Observed)
	}
	doc, run := besideDump(t, nil, map[string]string{"trace.yaml": header, "trace.csv": csv}, nil)
	if len(run.Observed) != 2 || len(doc.Records.Dropped) > 0 {
		t.Errorf("header and CSV as two files: got %d requests and the drops %v", len(run.Observed), doc.Examples)
	}
}

// TestTraceV2PromptsOfClients: a TraceV2 prompt is the group's prefix and the
// request's own tokens, or what the server counted; sessions grow where the
// header, in front of the rows or in a file of their stem, says so.
func TestTraceV2PromptsOfClients(t *testing.T) {
	const rows = "request_id,session_id,round_index,prefix_group,prefix_length,input_tokens,output_tokens,server_input_tokens," +
		"arrival_time_us\n" +
		"1,,0,sys,512,297,5,0,1\n2,,0,sys,512,297,5,820,2\n3,s,0,,0,10,5,0,3\n4,s,1,,0,10,5,0,4\n"
	const header = "trace_version: 2\ntime_unit: microseconds\nmode: real\nwarm_up_requests: 0\nsession_context_growth: accumulate\n"
	for name, c := range map[string]struct {
		files map[string]string
		last  int64
	}{
		"rows":                  {map[string]string{"t.csv": rows}, 10},
		"one file":              {map[string]string{"t.csv": header + rows}, 25},
		"header of the stem":    {map[string]string{"t.csv": rows, "t.yaml": header}, 25},
		"header of another one": {map[string]string{"t.csv": rows, "u.yaml": header}, 10},
	} {
		doc, run := besideDump(t, nil, c.files, nil)
		var got []int64
		for _, o := range run.Observed {
			got = append(got, o.PromptTokens.V)
		}
		if d := cmp.Diff([]int64{809, 820, 10, c.last}, got); d != "" || len(doc.Records.Dropped) > 0 {
			t.Errorf("%s: dropped %v, prompts (-want +got):\n%s", name, doc.Records.Dropped, d)
		}
	}
}

// TestClientRequestsJoinByID: the client's id is part of the spans' ids.
func TestClientRequestsJoinByID(t *testing.T) {
	doc, run := besideDump(t, goodLines(2), map[string]string{"c.jsonl": `{"id":"1","status":200,"usage":{"prompt_tokens":4,"completion_tokens":2}}
{"id":"9","status":200}
`}, nil)
	got := map[string]string{}
	for _, o := range run.Observed {
		got[o.ID] = o.CoreID.Or("none")
	}
	if d := cmp.Diff(map[string]string{"1": "cmpl-1-0-aaaaaaaa", "9": "none"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	lost := trace.Finding{Code: codeIncomplete, Message: "1 of 2 client requests have no core span"}
	if !slices.Contains(doc.Warnings, lost) {
		t.Errorf("got %v, want %v", doc.Warnings, lost)
	}
}

// TestBrokenClientFiles: what is damaged is counted and placed, the rest kept.
func TestBrokenClientFiles(t *testing.T) {
	csv := "request_id,input_tokens,output_tokens,arrival_time_us\n"
	for i := range 400 {
		csv += fmt.Sprintf("%d,1,1,%d\n", i, i*7919*7919)
	}
	for name, c := range map[string]struct {
		text  string
		kept  int
		drops map[string]int64
		place string
	}{
		"cut line":            {"{\"id\":\"1\"}\n{\"id\":\"2", 1, map[string]int64{"unreadable": 1}, "f:2"},
		"no id":               {"{\"id\":\"1\"}\n{}\n{\"id\":\"3\"}\n", 2, map[string]int64{"unreadable": 1}, "f:2"},
		"wrong type":          {"{\"id\":\"1\"}\n{\"id\":\"2\",\"send_ns\":\"x\"}\n", 1, map[string]int64{"unreadable": 1}, "f:2"},
		"CSV short row":       {"request_id,input_tokens\n1,2\n3\n4,5\n", 2, map[string]int64{"unreadable": 1}, "f:3"},
		"CSV bare quote":      {"request_id,input_tokens\n1,2\n3,a\"b\n4,5\n", 2, map[string]int64{"unreadable": 1}, "f:3"},
		"CSV of no number":    {"request_id,input_tokens\n1,2\n3,x\n4,5\n", 2, map[string]int64{"unreadable": 1}, "f:3"},
		"CSV cut in its gzip": {string(cut(gzipped([]byte(csv)), 500)), -1, map[string]int64{"file_cut": 1}, "f"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, run := besideDump(t, goodLines(1), map[string]string{"f": c.text}, nil)
			diff(t, "drops", c.drops, doc.Records.Dropped)
			if c.kept >= 0 && len(run.Observed) != c.kept || c.kept < 0 && (len(run.Observed) == 0 || len(run.Observed) == 400) {
				t.Errorf("got %d requests, want %d", len(run.Observed), c.kept)
			}
			if len(doc.Examples) == 0 || doc.Examples[0].Place != c.place {
				t.Errorf("got the examples %v, want one at %s", doc.Examples, c.place)
			}
			if !doc.Records.Balanced() || len(run.Requests) != 1 {
				t.Errorf("records %+v, %d requests", doc.Records, len(run.Requests))
			}
		})
	}
}

// TestWorkersCopiesOfTransfersAreOne: tensor-parallel workers repeat transfer
// events, in one line or in later ones; one row stands for all, successful
// when all were.
func TestWorkersCopiesOfTransfersAreOne(t *testing.T) {
	doc, run := besideDump(t, goodLines(1), nil, map[string]string{"kv.jsonl": `[1.1,[["TransferInitiated",7,"r","GPU","CPU",2,5],["TransferInitiated",7,"r","GPU","CPU",2,5]],0,null]
[1.2,[["TransferCompleted",7,"r","GPU","CPU",2,true,5]],0,null]
[1.3,[["TransferCompleted",7,"r","GPU","CPU",2,false,5],["TransferCompleted",8,"r","GPU","CPU",2,true,5]],0,null]
[1.4,[["CacheStoreCommitted","r","CPU",1,5],["CacheStoreCommitted","r","CPU",1,5]],0]
[1.5,[["BlockStored",[18446744073709551615,"q83v"],9223372036854775808,[1,2],16,null,"GPU",null]],null,null]
`})
	var got []string
	for _, e := range run.KVEvents {
		got = append(got, fmt.Sprintf("%g %s %d x%d %v", e.WallS, e.Kind, e.TransferID.V, e.Copies, e.Success.V))
	}
	want := []string{"1.1 TransferInitiated 7 x2 false", "1.2 TransferCompleted 7 x2 false", "1.3 TransferCompleted 8 x1 true",
		"1.4 CacheStoreCommitted 0 x1 false", "1.4 CacheStoreCommitted 0 x1 false", "1.5 BlockStored 0 x1 false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"18446744073709551615", "q83v"}, run.KVEvents[5].Hashes); d != "" ||
		run.KVEvents[5].Parent.V != "9223372036854775808" {
		t.Errorf("block hashes beyond 53 bits: %v %v", run.KVEvents[5].Hashes, run.KVEvents[5].Parent)
	}
	diff(t, "drops", map[string]int64{"duplicate": 2}, doc.Records.Dropped)
}

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
	config := repo.Read(t, repo.Root(t), "testdata", "traces", "real", "gqa-low", "config.json")
	repo.Write(t, string(config), dir, "config.json")
	repo.Write(t, runYAML, dir, "run.yaml")
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
	repo.Write(t, log.String(), dir, "server.log.1")
	repo.Write(t, logLine(0, 0, 90)+logLine(0, 1, 91), dir, "server.log") // a restart, in the live file of the set
	var parts [3]strings.Builder
	for i := range 30 {
		parts[i/10].WriteString(fpmLine("w1", 1000+i))
	}
	for i := range parts {
		text := string(gzipped([]byte(parts[i].String())))
		if i == 2 {
			text = text[:len(text)-12] // a killed writer
		}
		repo.Write(t, text, dir, fmt.Sprintf("fpm.w1.%d.jsonl.gz", 9+i))
	}
	repo.Write(t, fpmLine("w2", 5), dir, "fpm.w2.0.jsonl")
	doc, runs := extracted(t, nil, dir)
	want := "40 0..39, 2 0..1, 40 100..139, 30 1000..1029, 1 5..5"
	if text := passesOf(runs); !strings.HasPrefix(text, "40 0..39, 2 0..1, 40 100..139, ") || !strings.HasSuffix(text, "1 5..5") {
		t.Errorf("got runs %s, want %s", text, want)
	}
	r := doc.Runs[0].Records
	if r.Dropped["duplicate"] != 1 || r.Dropped["unreadable"] != 1 || r.Dropped["file_cut"] != 1 || !r.Balanced() {
		t.Errorf("got %+v, want one duplicate, a torn line and a cut file", r)
	}
}

// TestRanksInLockstep: the logs of data-parallel ranks of a model with experts are one run, of each pass that all have the row
// of the rank with the most tokens; one rank alone, whose time is everybody's and whose load is its own, is refused.
func TestRanksInLockstep(t *testing.T) {
	line := func(rank, index, tokens int) string {
		return strings.Replace(logLine(rank, index, index), "0 context requests, 0 context", fmt.Sprintf("1 context requests, %d context",
			tokens), 1)
	}
	one, two := "", ""
	for i := range 40 {
		if one += line(0, i, 10+i%2*100); i != 7 { // lost in one
			two += line(1, i, 60)
		}
	}
	for name, c := range map[string]struct{ run, log, want string }{
		"both":       {upstreamRun, one + two, "39 rows, 1 missing, 3290 tokens"},
		"one alone":  {upstreamRun, one, "several_engines"},
		"before":     {strings.Replace(upstreamRun, "0.32", "0.22", 1), one + two, "0.23 or newer"},
		"no experts": {upstreamRun, one + two, "40 rows, 0 missing, 2400 tokens"},
	} {
		run := c.run + "data_parallel_size: 2\n"
		moe := `{"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, `
		dir := upstreamFolder(t, run)
		if name != "no experts" {
			config := string(repo.Read(t, dir, "config.json"))
			repo.Write(t, moe+strings.Replace(config[strings.Index(config, "{")+1:], `"model_type"`, `"_"`, 1), dir, "config.json")
		}
		repo.Write(t, c.log, dir, "server.log")
		out := filepath.Join(t.TempDir(), "out")
		doc, err := extractArgs(t, out, nil, dir)
		got := fmt.Sprint(err, trace.CodeOf(err))
		if err == nil {
			runs, err := readAll(out)
			if err != nil {
				t.Fatal(err)
			}
			its := runs[0].Iterations
			var total int64
			for _, it := range its {
				total += it.ContextTokens
			}
			got = fmt.Sprintf("%d rows, %d missing, %d tokens", len(its), its[len(its)-1].Index+1-int64(len(its)),
				total)
			if !doc.Runs[0].Records.Balanced() {
				t.Errorf("%s: %+v", name, doc.Runs[0].Records)
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestProcessesOfOneLog: passes of servers that write into one file are told apart by their counts and processes, those of one
// engine that several API servers write are one count, and so are those of SGLang's ranks, whose copies count once.
func TestProcessesOfOneLog(t *testing.T) {
	front := func(process string, engine, index int) string {
		return strings.Replace(logLine(engine, index, index), "APIServer pid=1769", process, 1)
	}
	sglang := func(ranks string, at, reqs int) string {
		return fmt.Sprintf("[2026-05-10 12:00:%02d.%03d %s] Decode batch, #running-req: %d, #token: %d, token usage: 0.02, #queue-req: 0\n",
			at/100, at%100*10, ranks, reqs, 100*reqs+at*reqs)
	}
	write := func(n int, lines func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(lines(i))
		}
		return b.String()
	}
	for name, c := range map[string]struct{ log, runs string }{
		"two servers, begun at once": {write(30, func(i int) string { return front("APIServer pid=1", 0, i) + front("APIServer pid=2", 0, i) }),
			"30 0..29, 30 0..29"},
		"two servers, the second begun later": {write(80, func(i int) string {
			if i < 30 {
				return front("APIServer pid=1", 0, i)
			}
			return front("APIServer pid=1", 0, i) + front("APIServer pid=2", 0, i-30)
		}), "80 0..79, 50 0..49"},
		"two containers, whose processes have one number": {write(80, func(i int) string {
			if i < 30 {
				return front("APIServer pid=1", 0, i)
			}
			return front("APIServer pid=1", 0, i) + strings.Replace(front("APIServer pid=1", 0, i-30), "23:00", "23:02", 1)
		}), "80 0..79, 50 0..49"},
		"a log that begins within both": {write(30, func(i int) string {
			return front("APIServer pid=1", 0, 500+i) + front("APIServer pid=2", 0, 100+i)
		}), "30 500..529, 30 100..129"},
		"two API servers share the engines": {write(40, func(i int) string {
			a, b := i/3%2, i/5%2
			return front(fmt.Sprintf("ApiServer_%d pid=%d", a, 8+a), 0, i) + front(fmt.Sprintf("ApiServer_%d pid=%d", b, 8+b), 1, 7+i)
		}), "40 0..39, 40 7..46"},
		"a restart": {write(90, func(i int) string { return front("APIServer pid=1", 0, i) }) + write(100, func(i int) string {
			return strings.Replace(front("APIServer pid=4", 0, i), "23:0", "23:3", 1)
		}), "90 0..89, 100 0..99"},
		"cores of two ranks beside two API servers": {write(20, func(i int) string {
			return strings.Replace(strings.Replace(front("EngineCore_DP0 pid=5", 0, i), "Engine 000: ", "", 1), "loggers", "core", 1) +
				"(ApiServer_1 pid=9) INFO: POST\n" + strings.Replace(front("EngineCore_DP1 pid=6", 0, i), "Engine 000: ", "", 1)
		}), "20 0..19, 20 0..19"},
		"SGLang's attention in data parallel": {write(20, func(i int) string {
			return sglang("DP0 TP0 EP0", 3*i, 4) + sglang("DP1 TP4 EP4", 3*i+1, 2)
		}), "20 0..19, 20 0..19"},
		"SGLang's stages and copies": {write(20, func(i int) string {
			return sglang("TP0 PP0", 3*i, 4) + sglang("TP1 PP0", 3*i, 4) + sglang("TP0 PP1", 3*i+1, 4)
		}), "20 0..19"},
	} {
		dir := upstreamFolder(t, upstreamRun)
		repo.Write(t, c.log, dir, "server.log")
		doc, runs := extracted(t, nil, dir)
		if text := passesOf(runs); text != c.runs || !doc.Runs[0].Records.Balanced() || len(doc.Runs[0].Records.Dropped) > 0 {
			t.Errorf("%s: got runs %s, dropped %v; want %s", name, text, doc.Runs[0].Records.Dropped, c.runs)
		}
		if it := runs[0].Iterations[0]; it.Form == trace.IterationSGLang && it.StampStepNs.V != 1e6 {
			t.Errorf("%s: got stamps of %d ns, want 1e6", name, it.StampStepNs.V)
		}
	}
}

// TestBenchBesideLog: the result of vllm bench serve is found by its content, its
// load is a phase, and a result without requests is a load level, with the flag that is missing.
func TestBenchBesideLog(t *testing.T) {
	dir := upstreamFolder(t, upstreamRun)
	repo.Write(t, logLine(0, 0, 0)+logLine(0, 1, 1), dir, "vllm.out")
	const head = `{"date": "20261121-232246", "backend": "vllm", "completed": 2, "failed": 1, "total_input_tokens": 123, "max_concurrency": null`
	const lists = `, "input_lens": [10, 20, 30], "output_lens": [3, 1, 0], "ttfts": [0.5, 0.25, 0.0], "itls": [[0.1, 0.2], [], []],
"start_times": [100.0, 100.5, 101.0], "generated_texts": ["a", "b", ""], "errors": ["", "", "Traceback\nTimeoutError: x"]}`
	repo.Write(t, head+lists, dir, "bench_open.json")
	doc, runs := extracted(t, nil, dir)
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
	repo.Write(t, head+`, "total_output_tokens": 20, "request_throughput": 2.5, "request_rate": "inf",
"mean_ttft_ms": 40, "median_ttft_ms": 35, "mean_tpot_ms": 8}`, dir, "bench_open.json")
	doc, err := extractArgs(t, t.TempDir(), nil, dir)
	if err != nil || doc.Runs[0].Tables[table.Points] != 1 || !slices.ContainsFunc(doc.Runs[0].Warnings, func(f trace.Finding) bool {
		return f.Code == "client_file" && strings.Contains(f.Message, "--save-detailed")
	}) {
		t.Errorf("got %v, %+v, want a point and the flag that is missing", err, doc)
	}
}

// TestStockRecordings: what unmodified vLLM wrote is read whole, and its totals are
// those of the clients.
func TestStockRecordings(t *testing.T) { stockRecordings(t, "gqa-a") }

// TestEvalStockRecordings: the same of both recordings.
func TestEvalStockRecordings(t *testing.T) {
	repo.NeedEval(t)
	stockRecordings(t, "gqa-a", "mha-core")
}

func stockRecordings(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		checkStock(t, repo.Shared(t, "data", "real_vllm_stock", name))
	}
}

// checkStock compares what is read of a recording with what its client sent and got.
func checkStock(t *testing.T, dir string) {
	t.Helper()
	out := extractTo(t, dir, nil)
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
			context += run.Iterations[i].ContextTokens
			generated += run.Iterations[i].GenerationTokens
		}
		for i := range run.Observed {
			prompts += run.Observed[i].PromptTokens.V
			outputs += run.Observed[i].OutputTokens.V
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

// TestHitRatesBesideClients: a log without iterations, whatever stands before its first line of statistics, tells the clients
// beside it what the cache gave them.
func TestHitRatesBesideClients(t *testing.T) {
	const bench = `{"date": "x", "backend": "vllm", "completed": 2, "total_input_tokens": 200, "max_concurrency": null, "input_lens": [100, 100],
"output_lens": [2, 2], "ttfts": [0.5, 0.25], "itls": [[0.1], [0.2]], "start_times": [100.0, 101.0], "generated_texts": ["a", "b"], "errors": ["", ""]}`
	const stats = ": Avg prompt throughput: 5.0 tokens/s, Running: 1 reqs, %s: 3.1%%, " +
		"Prefix cache hit rate: 40.0%%, External prefix cache hit rate: 9.0%%\n"
	for name, log := range map[string]string{
		"short":                 "(APIServer pid=1) vLLM API server version 0.24.0\nEngine 000" + fmt.Sprintf(stats, "GPU KV cache usage"),
		"cut at its beginning":  "gine 001" + fmt.Sprintf(stats, "CPU KV cache usage") + strings.Repeat("INFO: some other line\n", 1<<14),
		"several API servers":   "(ApiServer_1 pid=3) INFO 11-21 23:19:33 [x.py:1] Engine 000" + fmt.Sprintf(stats, "XPU KV cache usage"),
		"aggregated statistics": "(APIServer pid=3) INFO [loggers.py:1] 2 Engines Aggregated" + fmt.Sprintf(stats, "GPU KV cache usage"),
	} {
		dir := upstreamFolder(t, upstreamRun)
		repo.Write(t, log, dir, "server.log")
		repo.Write(t, bench, dir, "bench.json")
		out := filepath.Join(t.TempDir(), "out")
		if _, err := extractArgs(t, out, nil, dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runs, err := readAll(out)
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, r := range runs[0].Observed {
			sum += r.CachedTokens.V
		}
		if sum != 80 {
			t.Errorf("%s: got %d of 200 tokens cached, want 80", name, sum)
		}
	}
}

// TestSilentLog: a log of vLLM without iterations names the flag, of several API servers the one that makes them one.
func TestSilentLog(t *testing.T) {
	dir := upstreamFolder(t, upstreamRun)
	repo.Write(t, "(APIServer pid=1) INFO 11-21 23:19:33 [a.py:1] vLLM API server version 0.32.0\nready\n", dir, "server.log")
	_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
	hint := trace.HintOf(err)
	if !strings.Contains(hint, "--enable-logging-iteration-details") || strings.Contains(hint, "--api-server") {
		t.Errorf("got %v, want the flag", err)
	}
	two := strings.Replace(upstreamRun, "{version", "{api_server_count: 2, version", 1)
	for _, more := range []string{"data_parallel_size: 2\n" + upstreamRun, two} {
		dir := upstreamFolder(t, more)
		repo.Write(t, "(ApiServer_1 pid=1) WARNING 11-21 23:19:33 [loggers.py:1387] AsyncLLM created with api_server_count more than 1; "+
			"disabling stats logging to avoid incomplete stats.\n", dir, "server.log")
		if _, err = extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir); !strings.Contains(trace.HintOf(err), "--api-server-count 1") {
			t.Errorf("%s: got %v, hint %q", more, err, trace.HintOf(err))
		}
	}
}
