package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// outputs reads every file below out except the cache, by relative name.
func outputs(t testing.TB, out string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.Walk(out, func(p string, st os.FileInfo, err error) error {
		if err != nil || st.IsDir() || filepath.Base(p) == cacheName {
			return err
		}
		rel, _ := filepath.Rel(out, p)
		files[rel], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func extractTo(t testing.TB, parent string, change func(*Options)) string {
	t.Helper()
	runs, err := Discover([]string{parent}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out, o.MaxBadFrac = filepath.Join(t.TempDir(), "out"), 1
	if change != nil {
		change(&o)
	}
	if _, err := Run(context.Background(), runs, o); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

func compareOutputs(t testing.TB, want, got map[string][]byte, skip string) {
	t.Helper()
	var names []string
	for name := range want {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(got) != len(want) {
		t.Errorf("got %d files, want %d", len(got), len(want))
	}
	for _, name := range names {
		if name != skip && !bytes.Equal(want[name], got[name]) {
			t.Errorf("%s differs (%d and %d bytes)", name, len(want[name]), len(got[name]))
		}
	}
}

// TestSameBytesForAnyWorkers: the same inputs give the same bytes whatever the
// number of workers, and whether sorted tables spill or not.
func TestSameBytesForAnyWorkers(t *testing.T) {
	for _, set := range []string{"smoke60", "real_vllm_cpu/mha-mixed"} {
		dir := repo.Shared(t, "data", set)
		want := outputs(t, extractTo(t, dir, func(o *Options) { o.Workers = 1 }))
		for _, n := range []int{2, 8} {
			compareOutputs(t, want, outputs(t, extractTo(t, dir, func(o *Options) { o.Workers = n })), "")
		}
		compareOutputs(t, want, outputs(t, extractTo(t, dir, func(o *Options) { o.Workers, o.Memory = 2, 4096 })), "")
	}
}

// TestParsersAgree: the fast readers and OpenTelemetry's own decoder give
// byte-identical tables.
func TestParsersAgree(t *testing.T) {
	parsersAgree(t, "smoke", "smoke60", "real_stock_otlp", "real_step_summaries", "real_vllm_cpu/gqa-campaign", "real_vllm_cpu/gqa-overflow",
		"composed/b200-qwen2.5-14b-tp2")
}

// TestEvalParsersAgreeOnAllData is the same over every data set with runs.
func TestEvalParsersAgreeOnAllData(t *testing.T) {
	repo.NeedEval(t)
	parsersAgree(t, "smoke", "smoke60", "real_stock_otlp", "real_step_summaries", "real_requests_llmservingsim", "real_vllm_cpu", "composed")
}

// longLine is a dump that the evaluation alone reads with both parsers.
const longLine = "single_line_30mb.json.zst"

// parsersAgreeOnDump extracts files with both parsers, compares tables, counted records and
// drops, or error codes, and is what dumpRun returns for the fast one.
func parsersAgreeOnDump(t *testing.T, files []string, split bool) (*result.Extract, []*trace.Run, error) {
	t.Helper()
	type outcome struct {
		Spans, Events, Drops map[string]int64
		Fails                trace.Code
	}
	read := func(parser string) (o outcome, tables map[string][]byte, doc *result.Extract, runs []*trace.Run, err error) {
		out := ""
		doc, runs, err = dumpRun(t, files, func(o *Options) { o.Parser, o.SplitEngines, out = parser, split, o.Out })
		var e *trace.Error
		if errors.As(err, &e) {
			o.Fails = e.Code
		} else if err != nil {
			t.Errorf("%s: got %v, want an error with a code", parser, err)
		}
		if doc != nil {
			tables, o.Drops = outputs(t, out), doc.Totals.Records.Dropped
			o.Spans, o.Events = spanCounts(doc)
		}
		return o, tables, doc, runs, err
	}
	fast, tables, doc, runs, err := read("fast")
	slow, slowTables, _, _, _ := read("pdata")
	compareOutputs(t, tables, slowTables, documentName)
	diff(t, "counts of both parsers (-fast +pdata)", fast, slow)
	return doc, runs, err
}

func parsersAgree(t *testing.T, sets ...string) {
	t.Helper()
	for _, set := range sets {
		dir := repo.Shared(t, "data", set)
		fast := outputs(t, extractTo(t, dir, nil))
		slow := outputs(t, extractTo(t, dir, func(o *Options) { o.Parser = "pdata" }))
		compareOutputs(t, fast, slow, documentName) // it names the parser and places columns differently
		fmt.Printf("%s: %d files byte-identical with both parsers\n", set, len(fast)-1)
	}
}

// TestUnchangedInputIsNotParsedAgain, and a changed one is.
func TestUnchangedInputIsNotParsedAgain(t *testing.T) {
	src := repo.Shared(t, "data", "smoke")
	dir := t.TempDir()
	for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Discover([]string{dir}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out, o.MaxBadFrac = filepath.Join(t.TempDir(), "out"), 1
	parsed := 0
	o.Progress = func(stage string, _, _ int64, _ string) { parsed++ }
	run := func(want bool) map[string][]byte {
		t.Helper()
		parsed = 0
		if _, err := Run(context.Background(), runs, o); err != nil {
			t.Fatal(err)
		}
		if (parsed > 0) != want {
			t.Errorf("parsed: got %v, want %v", parsed > 0, want)
		}
		return outputs(t, o.Out)
	}
	first := run(true)
	compareOutputs(t, first, run(false), "")
	o.Force = true
	compareOutputs(t, first, run(true), "")
	o.Force = false
	traces := filepath.Join(dir, "traces.jsonl")
	b, _ := os.ReadFile(traces)
	if err := os.WriteFile(traces, b, 0o644); err != nil { // new time, same bytes
		t.Fatal(err)
	}
	compareOutputs(t, first, run(false), "")
	if err := os.WriteFile(traces, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	run(true)
}
