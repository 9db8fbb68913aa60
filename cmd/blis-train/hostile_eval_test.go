//go:build linux

package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
)

// bomb is text that costs far more than its size if anything does: a piece so many times behind a
// good dump, with its number in place of %d.
type bomb struct {
	name, piece string
	times       int
	packed      bool
	says        string // what the program must say of it
}

const bombSpan = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"SERVICE"}}]},"scopeSpans":[{"scope":` +
	`{"name":"vllm.scheduler"},"spans":[{"traceId":"b64e72c5037530df5c3c8c2e350a8d1b","spanId":"%016d","name":"llm_core","kind":1,` +
	`"startTimeUnixNano":"1775257652366043040","endTimeUnixNano":"1775257653203915553","attributes":[{"key":"gen_ai.request.id",` +
	`"value":{"stringValue":"r%d"}}ATTRIBUTE],"events":[EVENT]}]}]}]}` + "\n"

// bombs are those of compression, depth and distinct names; a gigabyte each where they are packed.
func bombs() []bomb {
	const expands, unreadable = "expands to more than", "no whole varint"
	const giga = 1 << 30
	span := func(old, with string) string { return strings.Replace(bombSpan, old, with, 1) }
	return []bomb{
		{"zeros", "\x00", giga, true, expands}, {"empty lines", "\n", giga, true, expands}, {"blanks", " ", giga, true, expands},
		{"empty objects", "{}\n", giga / 3, true, expands}, {"brackets", "[", giga, true, expands},
		{"short messages", "\x00\x00\x00\x01\x0a", giga / 5, true, expands},
		{"short messages, not packed", "\x00\x00\x00\x01\x0a", 20_000_000, false, unreadable},
		{"nesting", `{"a":`, 10_000_000, false, ""}, {"empty lines, not packed", "\n", 100_000_000, false, ""},
		{"empty objects, not packed", "{}\n", 33_000_000, false, ""},
		{"a million names of events", span("EVENT", `{"timeUnixNano":"1775257652366105570","name":"e%d","attributes":[]}`), 200_000, false, ""},
		{"names of attributes", span("ATTRIBUTE", `,{"key":"a%d","value":{"intValue":"1"}}`), 200_000, false, ""},
		{"names of services", span("SERVICE", "s%d"), 200_000, false, ""},
	}
}

// write lays the bomb into a run folder, behind the text.
func (b *bomb) write(t *testing.T, dir, text string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "traces.jsonl"))
	noErr(t, err)
	w := io.WriteCloser(f)
	if b.packed {
		w = gzip.NewWriter(f)
	}
	if b.piece[0] != 0 { // a stream of messages has no lines in front
		_, err = io.WriteString(w, text)
		noErr(t, err)
	}
	numbered := strings.Contains(b.piece, "%")
	clean := strings.NewReplacer("SERVICE", "s", "ATTRIBUTE", "", "EVENT", "").Replace(b.piece)
	many := strings.Repeat(clean, max(1, 1<<16/len(clean)))
	for i := 0; i < b.times; {
		if numbered {
			args := make([]any, strings.Count(clean, "%"))
			for k := range args {
				args[k] = i
			}
			_, err = fmt.Fprintf(w, clean, args...)
			i++
		} else {
			_, err = io.WriteString(w, many)
			i += len(many) / len(clean)
		}
		noErr(t, err)
	}
	noErr(t, w.Close())
	if b.packed {
		noErr(t, f.Close())
	}
}

// TestEvalBombs: each is read to its end or refused within 60 seconds of CPU and 1 GB of memory.
func TestEvalBombs(t *testing.T) {
	s := newProcesses(t)
	demo := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	for _, b := range bombs() {
		dir := t.TempDir()
		for _, name := range []string{"run.yaml", "config.json", "kv_events.jsonl"} {
			noErr(t, os.WriteFile(filepath.Join(dir, name), repo.Read(t, demo, name), 0o644))
		}
		b.write(t, dir, string(repo.Read(t, demo, "traces.jsonl")))
		c := s.measured(t, "", "run", dir, "-o", filepath.Join(t.TempDir(), "out"), "-q", "--bootstraps", "50", "--max-bad-frac", "1")
		fmt.Printf("%s: exit %d, %.1f CPU-s, %d MiB\n", b.name, c.Code, c.CPU, c.MiB)
		isRefused := c.Code == 1
		if c.CPU > 60 || c.MiB > 1000 || c.Code < 0 || c.Code > 3 || isRefused != (b.says != "") || !strings.Contains(c.Said, b.says) {
			t.Errorf("%s: exit %d, %.1f CPU-s, %d MiB, %.300s: want at most 60 s, 1000 MiB and %q", b.name, c.Code, c.CPU, c.MiB, c.Said, b.says)
		}
		noErr(t, os.RemoveAll(dir))
	}
}

// TestEvalInterrupts: the first SIGINT ends every stage on a dump of 500 MB within two seconds, at
// any moment, and leaves nothing half-written behind.
func TestEvalInterrupts(t *testing.T) {
	s := newProcesses(t)
	in := s.generatedDump(t, 500e6)
	out := t.TempDir()
	done := filepath.Join(out, "done")
	s.must(t, "run", in, "-o", done, "-q")
	coefficients := filepath.Join(done, "coefficients.yaml")
	job := filepath.Join(out, "job")
	s.must(t, "plan", in, "-o", job, "-q", "--part-bytes", "1000000000")
	const most = 2 * time.Second
	interrupted := func(args ...string) {
		slowest, times := time.Duration(0), 0
		for after := 50 * time.Millisecond; ; after *= 2 {
			dir := filepath.Join(t.TempDir(), "out")
			call := strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "OUT", dir))
			cmd := exec.Command(s.exe, append(call, "-q")...)
			noErr(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
				fmt.Printf("%s: %d interrupts, the slowest took %s\n", strings.Join(args[:2], " "), times, slowest)
				if slowest > most {
					t.Errorf("%s: %s from the interrupt to the end, want at most %s", args[0], slowest, most)
				}
				return
			case <-time.After(after):
			}
			start := time.Now()
			noErr(t, cmd.Process.Signal(os.Interrupt))
			<-ended
			slowest = max(slowest, time.Since(start))
			times += 1
			for _, name := range namesIn(t, dir) {
				if strings.Contains(name, ".tmp") || strings.Contains(name, "/.stage") {
					t.Errorf("%s after %s: %s is left", args[0], after, name)
				}
			}
		}
	}
	for _, args := range [][]string{
		{"extract", in, "-o", "OUT"}, {"inspect", in}, {"run", in, "-o", "OUT"}, {"fit", done, "-o", "OUT"},
		{"fit", done, "-o", "OUT", "--from", "requests"}, {"validate", done, "-o", "OUT"}, {"queue", "fit", done, "-o", "OUT"},
		{"predictor", "rows", done, "-o", "OUT"}, {"predictor", "fit", done, "-o", "OUT"}, {"plan", in, "-o", "OUT"},
		{"simulate", "--deployment", in, "--workload", in, "--coefficients", coefficients, "-o", "OUT"},
		{"check", coefficients, "--data", filepath.Dir(in), "--refit"}, {"diff", coefficients, coefficients, "--data", done},
		{"export", filepath.Join(done, "fit.json"), "-o", "OUT", "--format", "aic-fpm"},
	} {
		interrupted(args...)
	}
	for { // every pass of the plan, each task until an interrupt came too late
		interrupted("collect", job)
		open := strings.Fields(s.must(t, "collect", job, "-q"))
		if len(open) == 0 {
			return
		}
		for _, id := range open {
			interrupted("task", job, id)
		}
	}
}

// clientBomb is a file of one gigabyte that a client or an engine might have written: a beginning, a piece many times,
// and an end.
type clientBomb struct {
	name, key, file   string // key is that of `files` in run.yaml
	head, piece, tail string
}

const benchHead = `{"completed":9,"total_input_tokens":1,"input_lens":[1],"output_lens":[1],"ttfts":[0.1],`

var clientBombs = []clientBomb{
	{"requests", "client_requests", "c.jsonl", "", `{"id":"a","send_ns":1,"usage":{}}` + "\n", ""},
	{"chunks", "client_requests", "c.jsonl", "", `{"id":"a","send_ns":1,"usage":{},"itl_us":[` + strings.Repeat("1,", 50_000) + "1]}\n", ""},
	{"empty objects", "client_requests", "c.jsonl", `{"id":"a","send_ns":1,"usage":{}}` + "\n", "{}\n", ""},
	{"blank lines", "client_requests", "c.jsonl", `{"id":"a","send_ns":1,"usage":{}}` + "\n", "\n", ""},
	{"AIPerf", "client_requests", "c.jsonl", "", `{"metadata":{"x_request_id":"a","request_start_ns":1},"metrics":{}}` + "\n", ""},
	{"GuideLLM", "client_requests", "c.json", `{"guidellm_version":"1","benchmarks":[{"requests":{"successful":[{"request_start_time":1}`,
		`,{"request_start_time":1}`, "]}}]}"},
	{"inference-perf", "client_requests", "c.json", `[{"start_time":1,"end_time":2,"request":"","info":{}}`,
		`,{"start_time":1,"end_time":2,"info":{}}`, "]"},
	{"numbers", "client_requests", "c.json", `{"completed":9,"total_input_tokens":1,"input_lens":[1`, ",1", "]}"},
	{"empty lists", "client_requests", "c.json", benchHead + `"itls":[[0.1]`, ",[]", "]}"},
	{"one text", "client_requests", "c.json", benchHead + `"x":"`, "x", `"}`},
	{"TraceV2", "client_requests", "c.csv", "request_id,input_tokens\n", "r,1\n", ""},
	{"load levels", "client_requests", "c.csv", "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n", "122,52,1,30,4\n", ""},
	{"lines of a log", "iterations", "s.log", "INFO 11-21 23:01:02 [core.py:452] Iteration(7): 1 context requests, 2 context tokens, " +
		"0 generation requests, 0 generation tokens, iteration elapsed time: 26.08 ms\n", "INFO a\n", ""},
	{"blank lines of a log", "iterations", "s.log", "INFO 11-21 23:01:02 [core.py:452] Iteration(7): 1 context requests, 2 context tokens, " +
		"0 generation requests, 0 generation tokens, iteration elapsed time: 26.08 ms\n", "\n", ""},
}

// TestEvalClientBombs: extract takes at most 600 MiB for a gigabyte of any form, whether it reads or refuses it.
func TestEvalClientBombs(t *testing.T) {
	s := newProcesses(t)
	for _, b := range clientBombs {
		dir := t.TempDir()
		smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
		repo.Write(t, repo.Read(t, smoke, "config.json"), dir, "config.json")
		repo.Write(t, "name: r\nmodel: {id: m, config: config.json, dtype: bfloat16}\nhardware: {name: H100-SXM-80GB}\ntensor_parallel_size: 1\n"+
			"vllm: {version: 0.15.1, max_model_len: 4096, max_num_seqs: 64, max_num_batched_tokens: 2048, block_size: 16, kv_blocks_total_gpu: 20000}\n"+
			"files: {"+b.key+": "+b.file+"}\n", dir, "run.yaml")
		f, err := os.Create(filepath.Join(dir, b.file))
		noErr(t, err)
		_, err = f.WriteString(b.head)
		noErr(t, err)
		block := strings.Repeat(b.piece, max(1, 1<<16/len(b.piece)))
		for n := 0; n < 1e9; n += len(block) {
			_, err = f.WriteString(block)
			noErr(t, err)
		}
		_, err = f.WriteString(b.tail)
		noErr(t, errors.Join(err, f.Close()))
		c := s.measured(t, "", "extract", dir, "-o", filepath.Join(t.TempDir(), "out"), "-q", "--max-bad-frac", "1")
		fmt.Printf("%s: exit %d, %d MiB, %.1f CPU-s\n", b.name, c.Code, c.MiB, c.CPU)
		if c.MiB > 600 || c.Code != 0 && c.Code != 1 {
			t.Errorf("%s: exit %d, %d MiB, want at most 600: %.300s", b.name, c.Code, c.MiB, c.Said)
		}
		noErr(t, os.RemoveAll(dir))
	}
}
