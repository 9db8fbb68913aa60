package extract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/deploy"
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
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
					text = string(otlpCompress([]byte(text)))
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
		"CSV cut in its gzip": {string(cut(gzipped([]byte(csv)), 500)), -1, map[string]int64{"unreadable": 1}, "f"},
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
