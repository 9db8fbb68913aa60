package extract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// kvText is a line of KV events.
const kvText = `[1.5,[["BlockRemoved",[1],"GPU"]],0,1]` + "\n"

// TestSpansOfAnyName: a file is a dump of spans by its content, in every form in which spans are read, and nothing else is
// one, whatever its name.
func TestSpansOfAnyName(t *testing.T) {
	line := []byte(goodLines(1)[0])
	message := otlptest.Proto(line)
	proto := otlptest.Framed(message)
	metrics := func(metric string) string { // a message of OTLP with the frame of spans
		field := func(number byte, content string) string {
			return string([]byte{number<<3 | 2, byte(len(content))}) + content
		}
		message := field(1, field(1, "")+field(2, field(1, "")+field(2, metric)))
		return string([]byte{0, 0, 0, byte(len(message))}) + message
	}
	name16, unit8 := strings.Repeat("m", 16), strings.Repeat("u", 8)
	for name, c := range map[string]struct {
		text string
		want kind
	}{
		"lines":              {string(line) + "\n", kindSpans},
		"gzip":               {string(gzipped(line)), kindSpans},
		"zstd":               {string(otlptest.Compress(line)), kindSpans},
		"proto":              {string(proto), kindSpans},
		"proto, zstd":        {string(otlptest.Compress(proto)), kindSpans},
		"one message":        {string(message), kindSpans},
		"framed":             {string(otlptest.Framed(otlptest.Compress(message))), kindSpans},
		"framed JSON":        {string(otlptest.Framed(otlptest.Compress(line))), kindSpans},
		"snake case":         {strings.ReplaceAll(string(line), "resourceSpans", "resource_spans"), kindSpans},
		"printed":            {strings.Replace(string(line), `{"resourceSpans":[`, "{\n  \"resourceSpans\": [\n", 1), kindSpans},
		"a list":             {"[" + string(line) + "]", kindSpans},
		"Tempo":              {`{"trace":` + strings.Replace(string(line), "resourceSpans", "batches", 1) + "}", kindSpans},
		"metrics before":     {`{"resourceMetrics":[]}` + "\n" + string(line), kindSpans},
		"KV events":          {kvText, kindKVEvents},
		"metrics":            {`{"resourceMetrics":[{}]}`, kindOther},
		"metrics, proto":     {metrics("\x0a\x10" + name16 + "\x12\x08" + unit8 + "\x3a\x00"), kindOther},
		"logs, proto":        {metrics("\x09" + unit8), kindOther},
		"a word in a log":    {`INFO got {"resourceSpans":[]} from the collector` + "\n", kindOther},
		"a word in a value":  {`{"msg":"{\"resourceSpans\":[","level":"info"}` + "\n", kindOther},
		"a deeper key":       {`{"log":{"resourceSpans":[]}}` + "\n", kindOther},
		"batches of others":  {`{"batches":[{"id":1}]}`, kindOther},
		"a list of numbers":  {"[1.5,[[1,2]]]\n", kindOther},
		"a client":           {clientText, kindClient},
		"a log":              {logText, kindLog},
		"config.json":        {`{"model_type":"llama"}`, kindOther},
		"zeros":              {strings.Repeat("\x00", 100), kindEmpty},
		"a lone zero length": {"\x00\x00\x00\x00", kindEmpty},
	} {
		dir := t.TempDir()
		repo.Write(t, c.text, dir, "f")
		path := filepath.Join(dir, "f")
		if got, why := contentOf(&source.Input{Path: path, Name: "f"}); got != c.want {
			t.Errorf("%s: got kind %d, %q, want %d", name, got, why, c.want)
		}
	}
}

// TestFoundSpans: spans and KV events are read under any name where run.yaml states none, and no file has the usual name; the
// rest of a rotated set is read with them. Hidden files, documents and folders below are left alone.
func TestFoundSpans(t *testing.T) {
	spans := strings.Join(goodLines(2), "\n")
	for _, c := range []struct {
		name, yaml     string
		files          map[string]string
		traces, events string
		unread         string
	}{
		{"any name", "", map[string]string{"t.jsonl": spans, "events.log": kvText, ".hidden.jsonl": spans, "sub/t.jsonl": spans,
			"x.provenance.json": `{"command":"x"}`, "rejected.jsonl": `{"reason":"unreadable","text":"{\"resourceSpans\":[]}"}`},
			"t.jsonl", "events.log", "rejected.jsonl x.provenance.json"},
		{"rotated within a line", "", map[string]string{"otel.jsonl.1": spans[:len(spans)-9], "otel.jsonl": spans[len(spans)-9:]},
			"otel.jsonl.1 otel.jsonl", "", ""},
		{"the usual name", "", map[string]string{"traces.jsonl": spans, "t.jsonl": spans, "kv_events.jsonl": kvText, "kv.bin": kvText},
			"traces.jsonl", "kv_events.jsonl", "kv.bin t.jsonl"},
		{"named", "files: {traces: a.jsonl}", map[string]string{"a.jsonl": spans, "b.jsonl": spans}, "a.jsonl", "", "b.jsonl"},
		{"none, as named", "files: {traces: null, kv_events: []}", map[string]string{"a.jsonl": spans, "b.jsonl": kvText}, "", "", "a.jsonl b.jsonl"},
		{"others named", "files: {kv_events: kv.jsonl}", map[string]string{"a.jsonl": spans, "kv.jsonl": kvText}, "a.jsonl", "kv.jsonl", ""},
	} {
		dir := smallRun(t, t.TempDir(), "a", nil)
		run := string(repo.Read(t, dir, deploy.RunFile))
		if c.yaml != "" {
			repo.Write(t, run+c.yaml+"\n", dir, deploy.RunFile)
		}
		if err := os.Remove(filepath.Join(dir, "traces.jsonl")); err != nil {
			t.Fatal(err)
		}
		for name, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
				t.Fatal(err)
			}
			repo.Write(t, text, dir, name)
		}
		runs, err := Discover([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		s, err := runs[0].findInputs()
		if err != nil {
			t.Fatal(err)
		}
		names := func(in []source.Input) string {
			var out []string
			for _, f := range in {
				out = append(out, f.Name)
			}
			return strings.Join(out, " ")
		}
		var unread []source.Input
		for _, u := range s.unread {
			unread = append(unread, u.Input)
		}
		if got := [3]string{names(s.traces), names(s.kv), names(unread)}; got != [3]string{c.traces, c.events, c.unread} {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}

// TestNothingToRead: where a folder has no recording, the error names what is there and not read.
func TestNothingToRead(t *testing.T) {
	for name, want := range map[string]string{
		"sub/t.jsonl": "a client request in the folder; sub/t.jsonl: not read; its spans are read where `files.traces` of run.yaml names it",
		"x.jsonl":     "in the folder; x.jsonl: not read; got the keys",
	} {
		dir := smallRun(t, t.TempDir(), "a", nil)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.Remove(filepath.Join(dir, "traces.jsonl")))
		must(os.MkdirAll(filepath.Join(dir, "sub"), 0o777))
		text := goodLines(1)[0]
		if name == "x.jsonl" {
			text = `{"a":1}`
		}
		repo.Write(t, text, dir, name)
		_, err := extractArgs(t, t.TempDir(), nil, dir)
		if trace.CodeOf(err) != codeNoInput || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
