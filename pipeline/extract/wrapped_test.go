package extract

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// TestWrappedDumps: an array of documents, Tempo's answers and a bare request give
// the tables of the lines they hold.
func TestWrappedDumps(t *testing.T) {
	lines := goodLines(3)
	inner := strings.TrimSuffix(strings.TrimPrefix(lines[0], `{"resourceSpans":`), "}")
	for name, c := range map[string]struct {
		text string
		want string // the lines it holds
	}{
		"array":                   {"[" + strings.Join(lines, ",") + "]", strings.Join(lines, "\n")},
		"array, pretty":           {"[\n" + strings.Join(lines, ",\n") + "\n]\n", strings.Join(lines, "\n")},
		"Tempo batches":           {`{"batches":` + inner + "}", lines[0]},
		"Tempo trace":             {`{"trace":` + lines[0] + "}", lines[0]},
		"Tempo trace of batches":  {`{"trace":{"batches":` + inner + "}}", lines[0]},
		"request without framing": {string(otlptest.Proto([]byte(lines[0]))), lines[0]},
	} {
		if got, want := dumpRows(t, c.text), dumpRows(t, c.want+"\n"); want == 0 || got != want {
			t.Errorf("%s: got %d rows, want %d", name, got, want)
		}
	}
}

// dumpRows is how many rows a dump gives.
func dumpRows(t *testing.T, text string) int64 {
	t.Helper()
	dir := upstreamFolder(t, upstreamRun)
	repo.Write(t, text, dir, "traces.jsonl")
	out := extractTo(t, dir, nil)
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(runs[0].Requests) + len(runs[0].Events) + len(runs[0].Steps) + len(runs[0].Snapshots))
}

// TestForeignFilesAreNamed: an export of another tool is refused by name with the
// way out, as a dump, as a client file, and where nothing else stands in a folder.
func TestForeignFilesAreNamed(t *testing.T) {
	const jaeger = `{"data":[{"traceID":"ab","spans":[{"traceID":"ab","operationName":"llm_request"}]}]}`
	const perf = `{"service_kind":"openai","experiments":[{"requests":[{"response_timestamps":[1]}]}]}`
	files := map[string]string{"traces.json": jaeger, "client_requests.jsonl": perf, "export.json": jaeger, "spans.parquet": "PAR1xx"}
	for name, text := range files {
		dir := upstreamFolder(t, upstreamRun)
		if name == "spans.parquet" {
			dir = upstreamFolder(t, upstreamRun+"files: {traces: spans.parquet}\n")
		}
		repo.Write(t, text, dir, name)
		_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
		if trace.CodeOf(err) != source.CodeUnknownFile || trace.HintOf(err) == "" {
			t.Errorf("%s: got %v, want the tool's name and a way out", name, err)
		}
	}
	dir := upstreamFolder(t, upstreamRun)
	repo.Write(t, `{"when":1,"tokens":3}`+"\n", dir, "client_requests.jsonl")
	_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
	if err == nil || !strings.Contains(err.Error(), "unknown kind (the keys tokens, when)") {
		t.Errorf("got %v, want the keys of the unknown file", err)
	}
}

// edgeParser finds key-value pairs with a scalar value anywhere in a message,
// through the cursor of the JSON reader and OpenTelemetry's decoder.
type edgeParser struct{ out *edge }

func (p edgeParser) Records() *otlp.Batch { return new(otlp.Batch) }

func (p edgeParser) Line(text []byte, _ *otlp.Batch) *source.Error {
	r := source.Cursor{B: text}
	for r.Err == nil && r.Peek() != 0 {
		p.anyJSON(&r)
	}
	return r.Err
}

func (p edgeParser) anyJSON(r *source.Cursor) {
	switch r.Peek() {
	case '[':
		r.I++
		for first := true; r.More(']', &first); {
			p.anyJSON(r)
		}
	case '{':
		p.object(r)
	default:
		r.Skip(0)
	}
}

func (p edgeParser) object(r *source.Cursor) {
	key := ""
	eachKey(r, func(k string) {
		switch {
		case k == "key" && r.Peek() == '"':
			v, _ := r.Str()
			key = string(v)
		case k == "value" && r.Peek() == '{':
			p.value(r, key)
		default:
			p.anyJSON(r)
		}
	})
}

func (p edgeParser) value(r *source.Cursor, key string) {
	eachKey(r, func(k string) {
		switch k {
		case "intValue":
			v, _ := r.Int64()
			p.out.ints[key] = strconv.FormatInt(v, 10)
		case "doubleValue":
			p.out.floats[key], _ = r.Float()
		case "stringValue":
			v, _ := r.Str()
			p.out.strs[key] = string(v)
		default:
			p.anyJSON(r)
		}
	})
}

// eachKey stops at the value of each key of an object, which visit reads.
func eachKey(r *source.Cursor, visit func(key string)) {
	r.Take('{')
	for first := true; r.More('}', &first); {
		k, ok := r.Key()
		if !ok {
			return
		}
		r.Space()
		visit(string(k))
	}
}

func (p edgeParser) Message(data []byte, _ *otlp.Batch) *source.Error {
	var u ptrace.ProtoUnmarshaler
	traces, err := u.UnmarshalTraces(data)
	if err != nil {
		return &source.Error{Msg: err.Error()}
	}
	for _, rs := range traces.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				for key, v := range span.Attributes().All() {
					switch v.Type() {
					case pcommon.ValueTypeInt:
						p.out.ints[key] = v.AsString()
					case pcommon.ValueTypeDouble:
						p.out.floats[key] = v.Double()
					case pcommon.ValueTypeStr:
						p.out.strs[key] = v.Str()
					}
				}
			}
		}
	}
	return nil
}

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
	for name, data := range map[string][]byte{"plain": plain, "framed": framed, "zstd": otlptest.Compress(plain), "gzip": gzipped(framed)} {
		doc, got := besideDump(t, goodLines(1), nil, map[string]string{"kv.msgpack": string(data)})
		if d := different(want.KVEvents, got.KVEvents); d != "" || len(doc.Records.Dropped) > 0 {
			t.Errorf("%s: dropped %v, rows (-want +got):\n%s", name, doc.Records.Dropped, d)
		}
	}
	for name, data := range map[string][]byte{"cut": plain[:len(plain)-3],
		"wrong type": append(append([]byte{}, plain...), 0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0xc1)} {
		doc, got := besideDump(t, goodLines(1), nil, map[string]string{"kv.msgpack": string(data)})
		if n := len(got.KVEvents); n != map[string]int{"cut": 2, "wrong type": 5}[name] || doc.Records.Dropped["unreadable"]+doc.Records.Dropped["file_cut"] != 1 ||
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
			"other.jsonl": otlptest.Line("x", otlptest.Span{Scope: "django", Name: "GET", Trace: 1, ID: 1}) + "\n"}, true, "django"},
		{"a fresh live file", "{traces: 'traces.json*'}", map[string]string{"traces.json": ""}, false, "traces.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := smallRun(t, t.TempDir(), "a", goodLines(2))
			for name, text := range c.extra {
				repo.Write(t, text, dir, name)
			}
			if c.files != "" {
				b := repo.Read(t, dir, "run.yaml")
				repo.Write(t, string(b)+"files: "+c.files+"\n", dir, "run.yaml")
			}
			doc, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
			code := codeNoInput
			if strings.Contains(c.says, "unknown kind") {
				code = source.CodeUnknownFile
			}
			switch {
			case c.refused && (trace.CodeOf(err) != code || !strings.Contains(err.Error(), c.says) || trace.HintOf(err) == ""):
				t.Errorf("got %v, want %s with %q", err, code, c.says)
			case !c.refused && err != nil:
				t.Error(err)
			case !c.refused && (!hasCode(doc.Runs[0].Warnings, codeNoInput) || !strings.Contains(doc.Runs[0].Warnings[0].Message, c.says)):
				t.Errorf("got the warnings %v, want %s with %q", doc.Runs[0].Warnings, codeNoInput, c.says)
			}
		})
	}
}
