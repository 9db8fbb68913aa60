package extract

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// rejectedDump is a run folder in which something of every input is dropped.
func rejectedDump(t *testing.T) RunDir {
	t.Helper()
	lines := goodLines(4)
	lines[1] = strings.Replace(lines[1], `{"key":"queue.running_depth"`, `{"key":"queue.depth"`, 1)
	foreign := otlptest.Span{Scope: "opentelemetry.instrumentation.fastapi", Name: "POST", Trace: 90, ID: 90,
		Events: []string{otlptest.Event("sent", 1), otlptest.Event("sent", 2)}}
	other := otlptest.Span{Scope: "vllm.api", Name: "llm_request", Trace: 91, ID: 91,
		Attrs: []string{otlptest.Str("gen_ai.request.id", "cmpl-91")}, Events: []string{otlptest.Event("api.NEW", 1)}}
	lines = append(lines, otlptest.Line("engine", foreign, other), otlptest.Request(1), `{"resourceMetrics":[]}`, `{"resourceSpans":[`, `{"resourceLogs":1}`)
	kv := `[1.5,[["AllBlocksCleared"],["NoSuchEvent",1]],0,null]
[1.5,[["TransferInitiated",1,"cmpl-1-0-aaaaaaaa","GPU","CPU",1,7],["TransferInitiated",1,"cmpl-1-0-aaaaaaaa","GPU","CPU",1,7]],0,null]
[1.6,[["BlockRemoved"]],0,null]
[1.7,[["AllBlocksCleared"]],0,nul
`
	client := `{"id":"1","status":200,"prompt_tokens":4}
{"status":200}
{"id":"2"
`
	dir := t.TempDir()
	for name, text := range map[string]string{"traces.jsonl": strings.Join(lines, "\n") + "\n", "kv.jsonl": kv, "clients.jsonl": client} {
		repo.Write(t, text, dir, name)
	}
	run := dumpDir(filepath.Join(dir, "traces.jsonl"))
	run.Deployment.Files.KVEvents = []string{"kv.jsonl"}
	run.Deployment.Files.ClientRequests = []string{"clients.jsonl"}
	return run
}

// TestWhyRejectedNamesEveryDroppedRecord: the lines of rejected.jsonl add up
// to the counts of extract.json, by run and reason, each with its place; and
// they are the same for any number of workers.
func TestWhyRejectedNamesEveryDroppedRecord(t *testing.T) {
	run := rejectedDump(t)
	var first []byte
	for _, workers := range []int{1, 3} {
		o := DefaultOptions()
		o.Out = filepath.Join(t.TempDir(), "out")
		o.MaxBadFrac = 1
		o.Workers = workers
		o.WhyRejected = true
		doc, err := Run(context.Background(), []RunDir{run}, o)
		if err != nil {
			t.Fatal(err)
		}
		b := repo.Read(t, o.Out, rejectedName)
		got := rejectedCounts(t, b)
		diff(t, "rejected records", doc.Totals.Records.Dropped, got)
		want := map[string]int64{"not_used": 4, "ignored_signal": 2, "bad_record": 3, "duplicate": 12, "unreadable": 4}
		diff(t, "dropped records", want, doc.Totals.Records.Dropped)
		if first == nil {
			first = b
		}
		if !bytes.Equal(first, b) {
			t.Errorf("%d workers: got\n%s\nwant\n%s", workers, b, first)
		}
	}
	for _, want := range []string{`"file":"kv.jsonl","line":1,"reason":"bad_record"`, `"file":"kv.jsonl","line":3,"reason":"bad_record"`,
		`"file":"kv.jsonl","line":4,`, `"file":"clients.jsonl","line":2,`, `"file":"clients.jsonl","line":3,`, `"file":"traces.jsonl","line":8,`} {
		if !bytes.Contains(first, []byte(want)) {
			t.Errorf("got\n%s\nwant %s", first, want)
		}
	}
}

// rejectedCounts adds up rejected.jsonl by reason.
func rejectedCounts(t *testing.T, b []byte) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	for _, line := range bytes.Split(bytes.TrimSpace(b), source.Newline) {
		var r source.Rejected
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Run == "" || r.File == "" || r.What == "" || r.Records < 1 {
			t.Errorf("got %s, want a run, a file, a text and a number of records", line)
		}
		got[string(r.Reason)] += r.Records
	}
	return got
}

// TestWhyRejectedOfRealRuns is the same over recordings with several runs,
// aborts, lost events and duplicates.
func TestWhyRejectedOfRealRuns(t *testing.T) {
	for _, set := range []string{"real_vllm_cpu/gqa-overflow", "real_vllm_cpu/mha-mixed", "smoke60"} {
		out := extractTo(t, repo.Shared(t, "data", set), func(o *Options) { o.WhyRejected = true })
		var doc result.Extract
		b := repo.Read(t, out, documentName)
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		b = repo.Read(t, out, rejectedName)
		want := map[string]int64{}
		merge(want, doc.Totals.Records.Dropped)
		got := map[string]int64{}
		if len(b) > 0 {
			got = rejectedCounts(t, b)
		}
		diff(t, set, want, got)
	}
}

// noisyLog writes a log of about so many bytes: nine lines in ten are others, two
// engines alternate, lines are coloured, torn, glued and end in CRLF, and one engine
// starts again halfway. It returns the iterations that are whole and the torn ones.
func noisyLog(t testing.TB, w *bufio.Writer, bytes int64) (whole, torn int64) {
	t.Helper()
	others := []string{
		`(APIServer pid=3115) INFO:     127.0.0.1:42636 - "POST /v1/completions HTTP/1.1" 200 OK`,
		"\x1b[0;36m(EngineCore_DP0 pid=77)\x1b[0;0m INFO 11-21 23:21:43 [kv_cache_utils.py:1] GPU KV cache size: 87,296 tokens",
		"(APIServer pid=7) INFO 11-21 23:21:43 [loggers.py:123] Engine 000: Avg prompt throughput: 5.0 tokens/s, GPU KV cache usage: 3.1%",
		"Loading: 100%|##########| 4/4 [00:01<00:00,  3.1it/s]\r",
	}
	written := int64(0)
	index := [2]int{}
	pause := 0
	for n := 0; written < bytes; n++ {
		for k := range 9 {
			line := others[(n+k)%len(others)]
			if k%3 == 0 {
				line += "\r"
			}
			m, _ := w.WriteString(line + "\n")
			written += int64(m)
		}
		e := n % 2
		if written > bytes/2 && e == 0 && pause == 0 {
			index[0], pause = 0, 60
		}
		at := n/200 + pause
		line := fmt.Sprintf("\x1b[32m(APIServer pid=7)\x1b[0m INFO 11-%02d %02d:%02d:%02d [loggers.py:199] Engine %03d: Iteration(%d): "+
			"0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, "+
			"iteration elapsed time: 49.21 ms, GPU KV cache usage: 0.4%%\r\n", 1+at/86400%28, at/3600%24, at/60%60, at%60, e, index[e])
		switch {
		case n%1000 == 999:
			line = line[:130] + "\n"
			torn++
		case n%1000 == 500:
			line = "(APIServer pid=7) (EngineCore pid=8) " + line
			whole++
		default:
			whole++
		}
		index[e]++
		m, _ := w.WriteString(line)
		written += int64(m)
	}
	return whole, torn
}

// TestNoisyLog: of a log full of other lines, colours, torn lines, two engines and a
// restart, over a rotated set, every whole iteration is kept and every torn one
// counted; with BLIS_TRAIN_EVAL=1 a gigabyte, its speed and memory printed.
func TestNoisyLog(t *testing.T) {
	size, eval := int64(4<<20), repo.Eval()
	if eval {
		size = 1 << 30
	}
	dir := upstreamFolder(t, upstreamRun)
	f, err := os.Create(filepath.Join(dir, "server.log.1"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	whole, torn := noisyLog(t, w, size)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var tail strings.Builder
	z := gzip.NewWriter(&tail)
	fmt.Fprint(z, strings.Repeat(logLine(7, 0, 0), 1)+logLine(7, 1, 1)+strings.Repeat("noise\n", 1<<16))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, tail.String()[:tail.Len()-20], dir, "other.log.gz") // a killed writer
	start := time.Now()
	doc, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	kept, r := int64(0), doc.Runs[0].Records
	for i := range doc.Runs {
		kept += doc.Runs[i].Tables[table.Iterations]
	}
	if kept != whole+2 || r.Kept != kept || r.Dropped["unreadable"] != torn || r.Dropped["file_cut"] != 1 || len(doc.Runs) != 4 || !r.Balanced() {
		t.Errorf("got %d iterations in %d runs, account %+v; want %d in 4, %d torn and a cut file", kept, len(doc.Runs), r, whole+2, torn)
	}
	if eval {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Printf("  %d MB of log, %d iterations: %.1f s with tables, two workers, %.0f MB/s; heap held %d MB\n",
			size>>20, whole, took.Seconds(), float64(size)/1e6/took.Seconds(), m.HeapSys>>20)
	}
}

// TestServerEqualsClient: for every real run the requests that completed and
// failed, and the tokens of each request, equal what the client saw, warm-up
// included; and the decodes of the recorded batches sum to the output tokens
// less one per request wherever every step was recorded with its snapshots.
func TestServerEqualsClient(t *testing.T) {
	out := extractTo(t, realRuns(t), nil)
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		t.Run(run.ID, func(t *testing.T) {
			compareClient(t, run)
			compareDecodes(t, run)
		})
	}
}

// served is what the server recorded of one client request: all samples of n.
type served struct {
	prompt, output int64
	success        bool
	samples        int
}

func servedByID(run *trace.Run) map[string]*served {
	out := map[string]*served{}
	for _, r := range run.Requests {
		if !r.APIID.OK {
			continue
		}
		id := strings.TrimPrefix(strings.TrimPrefix(r.APIID.V, "chat"), "cmpl-")
		s := out[id]
		if s == nil {
			s = &served{success: true}
			out[id] = s
		}
		s.samples++
		s.prompt = r.PromptTokens.V
		s.output += r.OutputTokens.V
		s.success = s.success && r.Success.Or(false)
	}
	return out
}

func compareClient(t *testing.T, run *trace.Run) {
	server := servedByID(run)
	var differ []string
	completed, failed := 0, 0
	for i := range run.Observed {
		o := &run.Observed[i]
		s := server[o.ID]
		if o.Success.V {
			completed++
		} else {
			failed++
		}
		switch {
		case s == nil:
			differ = append(differ, o.ID+": the server has no such request")
		case s.success != o.Success.V:
			differ = append(differ, fmt.Sprintf("%s: server success %v, client %v", o.ID, s.success, o.Success.V))
		case o.Success.V && (s.prompt != o.PromptTokens.V || s.output != o.OutputTokens.V):
			differ = append(differ, fmt.Sprintf("%s: server %d + %d tokens, client %d + %d", o.ID, s.prompt, s.output, o.PromptTokens.V,
				o.OutputTokens.V))
		case !o.CoreID.OK:
			differ = append(differ, o.ID+": not joined to a core span")
		}
		delete(server, o.ID)
	}
	for id := range server {
		differ = append(differ, id+": the client has no such request")
	}
	sort.Strings(differ)
	for _, d := range differ {
		t.Error(d)
	}
	fmt.Printf("%s: %d completed and %d failed at client and server, %d differences\n", run.ID, completed, failed, len(differ))
}

// compareDecodes sums decodes over batches. A decode is a chunk of one token
// with the whole prompt in KV (spec#phases); a request's first token comes from its
// prefill, and each RESUME after it yields one more from a recomputed prefill.
// Aborted requests are left out (a token in flight is never delivered).
func compareDecodes(t *testing.T, run *trace.Run) {
	decodes := map[string]int64{}
	complete := map[string]bool{}
	for _, r := range run.Requests {
		complete[r.CoreID.V] = r.Success.Or(false) && r.FinishStatus.V == trace.FinishLength
	}
	resumed := map[string]int64{} // RESUMEs after the first token
	started := map[string]bool{}
	for _, e := range run.Events {
		switch {
		case e.Kind == kindFirstToken:
			started[e.CoreID] = true
		case e.Kind == kindScheduled && e.ScheduleKind.V == "RESUME" && started[e.CoreID]:
			resumed[e.CoreID]++
		}
	}
	withSnaps := map[int64]bool{}
	for _, s := range run.Snapshots {
		withSnaps[s.StepID] = true
		if (trace.Chunk{Computed: s.ComputedTokens, Prompt: s.PromptTokens, New: s.ScheduledTokens}).IsDecode() {
			decodes[s.CoreID]++
		}
	}
	first, last := int64(math.MaxInt64), int64(0)
	for _, s := range run.Steps {
		if s.RunningDepth > 0 && !withSnaps[s.ID] {
			t.Logf("%s: step %d has no snapshots; decodes not compared", run.ID, s.ID)
			return
		}
		first, last = min(first, s.ID), max(last, s.ID)
	}
	if int64(len(run.Steps)) != last-first+1 {
		t.Logf("%s: steps are missing; decodes not compared", run.ID)
		return
	}
	checked, wrong := 0, 0
	for _, r := range run.Requests {
		if !complete[r.CoreID.V] {
			continue
		}
		checked++
		if got, want := decodes[r.CoreID.V], r.OutputTokens.V-1-resumed[r.CoreID.V]; got != want {
			wrong++
			if wrong <= 5 {
				t.Errorf("%s: got %d decode tokens, want %d", r.CoreID.V, got, want)
			}
		}
	}
	fmt.Printf("%s: decodes of %d requests equal output tokens less one (%d resumed)\n", run.ID, checked-wrong, len(resumed))
}

// TestKilledExtractionLeavesNothingUnderAFinalName kills the process at random
// points (the test binary runs itself), then reruns.
func TestKilledExtractionLeavesNothingUnderAFinalName(t *testing.T) {
	if dir := os.Getenv("EXTRACT_KILL_OUT"); dir != "" {
		killedExtraction(t, dir)
		return
	}
	testKills(t, 3)
}

// TestEvalKilledTwentyTimes is the same at twenty points.
func TestEvalKilledTwentyTimes(t *testing.T) {
	repo.NeedEval(t)
	testKills(t, 20)
}
