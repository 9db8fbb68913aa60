package extract

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/trace"
)

// packed is a JSON value as MessagePack, as msgspec writes it: the first number
// of a batch as a float, base64 texts of hashes as bytes.
func packed(t *testing.T, v any) []byte {
	t.Helper()
	switch v := v.(type) {
	case nil:
		return []byte{0xc0}
	case bool:
		return []byte{map[bool]byte{true: 0xc3, false: 0xc2}[v]}
	case json.Number:
		return packedNumber(t, v)
	case string:
		if b, err := base64.StdEncoding.DecodeString(v); err == nil && len(v) == 4 {
			return append([]byte{0xc4, byte(len(b))}, b...)
		}
		return append([]byte{0xd9, byte(len(v))}, v...)
	case []any:
		out := []byte{0x90 | byte(len(v))}
		if len(v) > 15 {
			out = binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(len(v)))
		}
		for _, e := range v {
			out = append(out, packed(t, e)...)
		}
		return out
	}
	t.Fatalf("got %T", v)
	return nil
}

func packedNumber(t *testing.T, v json.Number) []byte {
	if u, err := strconv.ParseUint(string(v), 10, 64); err == nil {
		switch {
		case u < 128:
			return []byte{byte(u)}
		case u < 1<<16:
			return binary.BigEndian.AppendUint16([]byte{0xcd}, uint16(u))
		}
		return binary.BigEndian.AppendUint64([]byte{0xcf}, u)
	}
	if i, err := v.Int64(); err == nil {
		return binary.BigEndian.AppendUint64([]byte{0xd3}, uint64(i))
	}
	f, err := v.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(f))
}

// packedLines is each JSON line as one message.
func packedLines(t *testing.T, text string) (messages [][]byte) {
	t.Helper()
	for line := range strings.Lines(text) {
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		var v []any
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, packed(t, v))
	}
	return messages
}

const kvLines = `[1.1,[["TransferInitiated",7,"r","GPU","CPU",2,5]],0,null]
[1.25,[["BlockStored",[18446744073709551615,"q83v",-3],9223372036854775808,[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],16,null,"GPU",null]],null,null]
[1.3,[["TransferCompleted",7,"r","GPU","CPU",2,true,5],["BlockRemoved",[70000,200],"GPU"],["AllBlocksCleared"]]]
`

// TestKVEventsInMessagePack: what the socket carries, one message after another
// or each behind its length, is the same rows as the JSON lines of it.
func TestKVEventsInMessagePack(t *testing.T) {
	_, want := besideDump(t, goodLines(1), nil, map[string]string{"kv.jsonl": kvLines})
	if len(want.KVEvents) != 5 {
		t.Fatalf("got %d events, want 5", len(want.KVEvents))
	}
	var plain, framed []byte
	for _, m := range packedLines(t, kvLines) {
		plain = append(plain, m...)
		framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(m))), m...)
	}
	for name, data := range map[string][]byte{"plain": plain, "framed": framed, "zstd": otlpCompress(plain), "gzip": gzipped(framed)} {
		doc, got := besideDump(t, goodLines(1), nil, map[string]string{"kv.msgpack": string(data)})
		if d := different(want.KVEvents, got.KVEvents); d != "" || len(doc.Records.Dropped) > 0 {
			t.Errorf("%s: dropped %v, rows (-want +got):\n%s", name, doc.Records.Dropped, d)
		}
	}
	for name, data := range map[string][]byte{"cut": plain[:len(plain)-3],
		"wrong type": append(append([]byte{}, plain...), 0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0xc1)} {
		doc, got := besideDump(t, goodLines(1), nil, map[string]string{"kv.msgpack": string(data)})
		if n := len(got.KVEvents); n != map[string]int{"cut": 2, "wrong type": 5}[name] || doc.Records.Dropped["unreadable"] != 1 ||
			!doc.Records.Balanced() {
			t.Errorf("%s: got %d events, dropped %v", name, n, doc.Records.Dropped)
		}
	}
}

// TestSpansWithoutIDs: spans without span ids are no duplicates of one another;
// requests are linked by their own ids, and a warning says so.
func TestSpansWithoutIDs(t *testing.T) {
	lines := goodLines(3)
	want := readText(t, lines...)
	for i, line := range lines {
		for _, field := range []string{"spanId", "parentSpanId", "traceId"} {
			for {
				from := strings.Index(line, `"`+field+`":"`)
				if from < 0 {
					break
				}
				line = line[:from] + line[from+strings.Index(line[from:], ",")+1:]
			}
		}
		lines[i] = line
	}
	doc, got := readDump(t, []byte(strings.Join(append(lines, lines[0]), "\n")))
	if coreIDs(got) != coreIDs(want) || len(got[0].Steps) != len(want[0].Steps) || doc.Runs[0].Requests.APILinked != 3 {
		t.Errorf("got the requests %s, %d steps and %d links", coreIDs(got), len(got[0].Steps), doc.Runs[0].Requests.APILinked)
	}
	if n := doc.Runs[0].Records.Dropped["duplicate"]; n == 0 || doc.Runs[0].Losses.DuplicateSpans != 3 {
		t.Errorf("got %d duplicates, want the three spans of the repeated line", doc.Runs[0].Losses.DuplicateSpans)
	}
	if !hasCode(doc.Runs[0].Warnings, codeIncomplete) {
		t.Errorf("got the warnings %v, want %s", doc.Runs[0].Warnings, codeIncomplete)
	}
}

func hasCode(list []trace.Finding, code trace.Code) bool {
	for _, f := range list {
		if f.Code == code {
			return true
		}
	}
	return false
}

// TestInputThatGivesNothing: a named input without one record is an error that
// names it, one file of several or one that was found is a warning.
func TestInputThatGivesNothing(t *testing.T) {
	metrics := `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[]}]}]}` + "\n"
	for _, c := range []struct {
		name, files string
		extra       map[string]string
		refused     bool
		says        string
	}{
		{"an unknown client file, named", "{traces: traces.jsonl, client_requests: c.json}", map[string]string{"c.json": `{"requests": [{"prompt": 3}]}`}, true,
			"c.json: got a client file of unknown kind (the keys requests)"},
		{"an HTML page for a client file", "{traces: traces.jsonl, client_requests: c.json}", map[string]string{"c.json": "<html>"}, true,
			"not a client file"},
		{"an empty KV file, named", "{traces: traces.jsonl, kv_events: kv_events.jsonl}", map[string]string{"kv_events.jsonl": ""}, true,
			"kv_events.jsonl"},
		{"an empty KV file, found", "", map[string]string{"kv_events.jsonl": ""}, false, "kv_events.jsonl"},
		{"metrics among the dumps", "{traces: '*.jsonl'}", map[string]string{"metrics.jsonl": metrics}, false, "metrics.jsonl"},
		{"metrics alone", "{traces: [traces.jsonl, metrics.jsonl]}", map[string]string{"metrics.jsonl": metrics}, true, "metrics.jsonl"},
		{"spans of somebody else", "{traces: [traces.jsonl, other.jsonl]}", map[string]string{
			"other.jsonl": otlpLine("x", otlpSpan{Scope: "django", Name: "GET", Trace: 1, ID: 1}) + "\n"}, true, "django"},
		{"a fresh live file", "{traces: 'traces.json*'}", map[string]string{"traces.json": ""}, false, "traces.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := smallRun(t, t.TempDir(), "a", goodLines(2))
			for name, text := range c.extra {
				put(t, filepath.Join(dir, name), text)
			}
			if c.files != "" {
				b, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
				if err != nil {
					t.Fatal(err)
				}
				put(t, filepath.Join(dir, "run.yaml"), string(b)+"files: "+c.files+"\n")
			}
			doc, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
			var e *trace.Error
			code := codeNoInput
			if strings.Contains(c.says, "unknown kind") {
				code = forms.CodeUnknownFile
			}
			switch {
			case c.refused && (!errors.As(err, &e) || e.Code != code || !strings.Contains(e.Msg, c.says) || e.Hint == ""):
				t.Errorf("got %v, want %s with %q", err, code, c.says)
			case !c.refused && err != nil:
				t.Error(err)
			case !c.refused && (!hasCode(doc.Runs[0].Warnings, codeNoInput) || !strings.Contains(doc.Runs[0].Warnings[0].Message, c.says)):
				t.Errorf("got the warnings %v, want %s with %q", doc.Runs[0].Warnings, codeNoInput, c.says)
			}
		})
	}
}
