package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
)

// rejectedDump is a run folder in which something of every input is dropped.
func rejectedDump(t *testing.T) RunDir {
	t.Helper()
	lines := goodLines(4)
	lines[1] = strings.Replace(lines[1], `{"key":"queue.running_depth"`, `{"key":"queue.depth"`, 1)
	foreign := otlpSpan{Scope: "opentelemetry.instrumentation.fastapi", Name: "POST", Trace: 90, ID: 90,
		Events: []string{otlpEvent("sent", 1), otlpEvent("sent", 2)}}
	other := otlpSpan{Scope: "vllm.api", Name: "llm_request", Trace: 91, ID: 91,
		Attrs: []string{otlpStr("gen_ai.request.id", "cmpl-91")}, Events: []string{otlpEvent("api.NEW", 1)}}
	lines = append(lines, otlpLine("engine", foreign, other), otlpRequest(1), `{"resourceMetrics":[]}`, `{"resourceSpans":[`, `{"resourceLogs":1}`)
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := dumpDir(filepath.Join(dir, "traces.jsonl"))
	run.Deployment.Files.KVEvents, run.Deployment.Files.ClientRequests = []string{"kv.jsonl"}, []string{"clients.jsonl"}
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
		o.Out, o.MaxBadFrac, o.Workers, o.WhyRejected = filepath.Join(t.TempDir(), "out"), 1, workers, true
		doc, err := Run(context.Background(), []RunDir{run}, o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(o.Out, rejectedName))
		if err != nil {
			t.Fatal(err)
		}
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
		b, err := os.ReadFile(filepath.Join(out, documentName))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		b, err = os.ReadFile(filepath.Join(out, rejectedName))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{}
		merge(want, doc.Totals.Records.Dropped)
		got := map[string]int64{}
		if len(b) > 0 {
			got = rejectedCounts(t, b)
		}
		diff(t, set, want, got)
	}
}
