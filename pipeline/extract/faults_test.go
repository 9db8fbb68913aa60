package extract

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// goodLines are the requests 1..n, one a line.
func goodLines(n int64) []string {
	var out []string
	for i := int64(1); i <= n; i++ {
		out = append(out, otlpRequest(i))
	}
	return out
}

// with is the good lines of four requests, the second of them changed.
func with(change func(line string) string) []byte {
	lines := goodLines(4)
	lines[1] = change(lines[1])
	return []byte(strings.Join(lines, "\n") + "\n")
}

// replaced is with one thing in the second line replaced.
func replaced(old, with2 string) []byte {
	return with(func(line string) string {
		if !strings.Contains(line, old) {
			panic("the line has no " + old)
		}
		return strings.Replace(line, old, with2, 1)
	})
}

// protoMessages are the requests as length-prefixed protobuf.
func protoMessages(lines []string) []byte {
	var out []byte
	for _, line := range lines {
		out = append(out, otlpFramed(otlpProto([]byte(line)))...)
	}
	return out
}

func gzipped(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(text)
	z.Close()
	return b.Bytes()
}

func cut(b []byte, n int) []byte { return b[:len(b)-n] }

// faultCase is one kind of damage and what must come of it.
type faultCase struct {
	name    string
	dump    []byte
	keeps   string           // ids of the requests in the tables
	drops   map[string]int64 // by reason; nil for none
	place   string           // of the first example
	says    string           // in its text, or in the error
	errors  trace.Code       // of the error when nothing is kept
	options func(*Options)
}

func faultCases(t *testing.T) []faultCase {
	all := strings.Join(goodLines(4), "\n") + "\n"
	unreadable := map[string]int64{"unreadable": 1}
	deep := func(open, end string) string { return strings.Repeat(open, 10000) + strings.Repeat(end, 10000) }
	extra := func(value string) []byte { // an attribute that nobody reads
		return replaced(`{"key":"http.route"`, `{"key":"x","value":`+value+`},{"key":"http.route"`)
	}
	small := func(o *Options) { o.MaxLine = 1 << 16 }
	spaces := strings.Repeat(" ", 3<<20)
	return []faultCase{
		{name: "truncated last line", dump: cut([]byte(all), 500), keeps: "1 2 3", drops: unreadable, place: "traces:4:",
			says: "the end of the text"},
		{name: "truncated last message", dump: cut(protoMessages(goodLines(4)), 500), keeps: "1 2 3", drops: unreadable, place: "traces:4",
			says: "truncated message at byte"},
		{name: "truncated length", dump: append(protoMessages(goodLines(4)), 0, 0), keeps: "1 2 3 4", drops: unreadable, place: "traces:5",
			says: "got 2 of 4 bytes"},
		{name: "truncated zstd stream", dump: append(otlpCompress([]byte(all)), cut(otlpCompress([]byte(otlpRequest(5))), 20)...),
			keeps: "1 2 3 4", drops: unreadable, says: "unexpected end"},
		{name: "truncated gzip stream", dump: cut(gzipped([]byte(all)), 8), keeps: "1 2 3 4", drops: unreadable, says: "unexpected end"},
		{name: "empty file", dump: nil, errors: codeNoInput, says: "traces"},
		{name: "blank file", dump: []byte("\n \r\n\n"), errors: codeNoInput, says: "traces"},
		{name: "byte order mark", dump: append([]byte("\xef\xbb\xbf"), all...), keeps: "1 2 3 4"},
		{name: "UTF-16", dump: []byte("\xff\xfe{\x00\"\x00}\x00"), errors: codeNoInput, says: "UTF-16"},
		{name: "CRLF", dump: []byte(strings.ReplaceAll(all, "\n", "\r\n")), keeps: "1 2 3 4"},
		{name: "NUL in a line", dump: replaced(`"vllm.api"`, "\"vllm\x00api\""), keeps: "1 3 4", drops: unreadable, place: "traces:2:", says: `'\x00'`},
		{name: "NUL after the last line", dump: append([]byte(all), make([]byte, 4096)...), keeps: "1 2 3 4",
			drops: map[string]int64{"nul_padding": 1}, place: "traces:5", says: "4096"},
		{name: "invalid UTF-8", dump: replaced("/v1/completions", "/v1/\xffcompletions"), keeps: "1 2 3 4"},
		{name: "lone surrogate", dump: replaced("/v1/completions", `/v1/\ud800completions`), keeps: "1 2 3 4"},
		{name: "10000 arrays in a field nobody reads", dump: replaced(`"status"`, `"unknown":`+deep("[", "]")+`,"status"`), keeps: "1 3 4",
			drops: unreadable, place: "traces:2:", says: "nested deeper"},
		{name: "10000 array values", dump: extra(deep(`{"arrayValue":{"values":[`, `]}}`)), keeps: "1 3 4", drops: unreadable, place: "traces:2:", says: "nested deeper"},
		{name: "10000 lists of pairs", dump: extra(deep(`{"kvlistValue":{"values":[{"key":"k","value":`, `}]}}`)), keeps: "1 3 4", drops: unreadable, place: "traces:2:", says: "nested deeper"},
		{name: "10000 protobuf values", dump: append(protoMessages(goodLines(2)),
			append(otlpFramed(deepMessage(10000)), protoMessages(goodLines(4)[2:])...)...), keeps: "1 2 3 4", drops: unreadable,
			place: "traces:3", says: "nested deeper"},
		{name: "line above --max-line", dump: with(func(l string) string { return spaces + l }), options: small, keeps: "1 3 4",
			drops: map[string]int64{"over_limit": 1}, place: "traces:2", says: "--max-line"},
		{name: "line of one block above --max-line", dump: with(func(l string) string { return spaces[:1<<17] + l }), options: small,
			keeps: "1 3 4", drops: map[string]int64{"over_limit": 1}, place: "traces:2", says: "--max-line"},
		{name: "message above --max-line",
			dump: append(append(otlpFramed(deepMessage(40000)), otlpFramed(bytes.Repeat([]byte{0x1a, 0}, 1<<16))...),
				protoMessages(goodLines(2))...), options: small, keeps: "1 2", drops: map[string]int64{"over_limit": 2}, place: "traces:1",
			says: "--max-line"},
		{name: "packed line above --max-line", dump: otlpCompress(with(func(l string) string { return spaces + l })), options: small,
			keeps: "1 3 4", drops: map[string]int64{"over_limit": 1}, place: "traces:2", says: "--max-line"},
		{name: "packed message above --max-line", dump: append(otlpFramed(otlpCompress([]byte(spaces))),
			otlpFramed(otlpCompress([]byte(otlpRequest(1))))...), options: small, keeps: "1",
			drops: map[string]int64{"over_limit": 1}, place: "traces:1", says: "--max-line"},
		{name: "stream above --max-expansion", dump: otlpCompress(append([]byte(all), strings.Repeat(spaces+"\n", 40)...)),
			options: func(o *Options) { o.MaxExpansion = 50 }, keeps: "1 2 3 4", drops: map[string]int64{"over_limit": 1},
			says: "--max-expansion"},
		{name: "zstd window of 2 GiB", dump: []byte("\x28\xb5\x2f\xfd\x00\xa8\x19\x00\x00{}\n"), errors: codeNoInput, says: "traces"},
		{name: "length of 2 GiB", dump: append(protoMessages(goodLines(2)), 0x7f, 0xff, 0xff, 0xff, 0x0a), keeps: "1 2", drops: unreadable,
			place: "traces:3", says: "truncated message"},
		{name: "duplicated export", dump: []byte(all + all), keeps: "1 2 3 4", drops: map[string]int64{"duplicate": 4 * 11}, place: "traces:5"},
		{name: "same ids, other content", dump: []byte(all + strings.Replace(goodLines(4)[1], "/v1/completions", "/v1/chat/completions", 1) +
			"\n"), keeps: "1 2 3 4", drops: map[string]int64{"duplicate": 8, "duplicate_conflict": 3}},
		{name: "integer beyond 64 bits", dump: replaced(`"intValue":"400"`, `"intValue":"9223372036854775808"`), keeps: "1 3 4", drops: unreadable, place: "traces:2:", says: "step.duration_us"},
		{name: "time beyond 63 bits", dump: replaced(fmt.Sprintf(`"startTimeUnixNano":"%d"`, otlpWallNs(2e8-2e6)),
			`"startTimeUnixNano":"18446744073709551615"`), keeps: "1 3 4 2", drops: map[string]int64{"bad_record": 3}, place: "traces:2", says: "63 bits"},
		{name: "negative count", dump: replaced(`"flags":256`, `"flags":256,"droppedEventsCount":-1`), keeps: "1 3 4", drops: unreadable, place: "traces:2:", says: "count of 32 bits"},
		{name: "attribute of the wrong type", dump: replaced(`{"key":"queue.running_depth","value":{"intValue":"1"}}`,
			`{"key":"queue.running_depth","value":{"stringValue":"1"}}`), keeps: "1 2 3 4", drops: map[string]int64{"bad_record": 1}, place: "traces:2", says: "queue.running_depth has another type"},
		{name: "attribute missing", dump: replaced(`{"key":"queue.running_depth",`, `{"key":"queue.depth",`), keeps: "1 2 3 4",
			drops: map[string]int64{"bad_record": 1}, place: "traces:2", says: "queue.running_depth is missing"},
		{name: "event of another span with a wrong attribute", dump: replaced(`"name":"step.BATCH_SUMMARY","attributes":[`,
			`"name":"journey.QUEUED","attributes":[{"key":"scheduler.step","value":{"stringValue":"x"}},`), keeps: "1 2 3 4", drops: map[string]int64{"not_used": 1}, place: "traces:2", says: "journey.QUEUED"},
		{name: "core span without an id", dump: replaced(`{"key":"gen_ai.request.id","value":{"stringValue":"cmpl-2-0-aaaaaaaa"}}`, ""), keeps: "1 - 3 4", drops: map[string]int64{"bad_record": 5}, place: "traces:2"},
		{name: "two lines glued", dump: []byte(strings.Replace(all, "\n", "", 1)), keeps: "1 2 3 4"},
		{name: "JSON of something else", dump: []byte(`{"id":"1","status":200}`), errors: codeNoInput,
			says: "traces:1:1: (byte 0) got an object with the key \"id\", want resourceSpans"},
		{name: "a line of something else", dump: with(func(string) string { return `{"id":"1","status":200}` }), keeps: "1 3 4",
			drops: unreadable, place: "traces:2:1", says: "want resourceSpans"},
		{name: "an HTML page", dump: []byte("<html><body>502 Bad Gateway</body></html>"), errors: codeNoInput, says: "<html>"},
		{name: "half a page of garbage", dump: append([]byte(all), "<html>\n"...), keeps: "1 2 3 4", drops: unreadable, place: "traces:5:1"},
	}
}

// deepMessage is a TracesData whose one attribute nests n array values.
func deepMessage(n int) []byte {
	wrap := func(field byte, body []byte) []byte {
		return append(binary.AppendUvarint([]byte{field<<3 | 2}, uint64(len(body))), body...)
	}
	var sizes []int // of each level, innermost first, so that nothing is copied n times
	size := 0
	for range 2 * n {
		size += 1 + len(binary.AppendUvarint(nil, uint64(size)))
		sizes = append(sizes, size)
	}
	value := make([]byte, 0, size)
	for i := 2*n - 1; i >= 0; i-- {
		inner := 0
		if i > 0 {
			inner = sizes[i-1]
		}
		field := byte(5) // arrayValue of an AnyValue, then values of the ArrayValue
		if i%2 == 0 {
			field = 1
		}
		value = binary.AppendUvarint(append(value, field<<3|2), uint64(inner))
	}
	pair := append(wrap(1, []byte("k")), wrap(2, value)...)
	return wrap(1, wrap(2, wrap(2, wrap(9, pair))))
}

// TestFaults: each kind of damage is one clear error or counted drops with a
// place, and the good records before and after it survive. See also
// TestFlippedByteLosesItsFrameOnly.
func TestFaults(t *testing.T) {
	for _, c := range faultCases(t) {
		t.Run(c.name, func(t *testing.T) {
			doc, runs, err := dumpRun(t, []string{writeDump(t, "traces", c.dump)}, c.options)
			if c.errors != "" {
				var e *trace.Error
				if !errors.As(err, &e) || e.Code != c.errors || !strings.Contains(e.Msg, c.says) || !strings.Contains(e.Msg, "traces") {
					t.Fatalf("got %v, want %s with %q", err, c.errors, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkFault(t, &c, doc, runs)
		})
	}
}

// checkFault compares what was kept and dropped.
func checkFault(t *testing.T, c *faultCase, doc *result.Extract, runs []*trace.Run) {
	t.Helper()
	if got := coreIDs(runs); got != c.keeps {
		t.Errorf("got the requests %s, want %s", got, c.keeps)
	}
	r := doc.Runs[0].Records
	if !r.Balanced() {
		t.Errorf("read %d, kept %d, dropped %v", r.Read, r.Kept, r.Dropped)
	}
	if len(c.drops) == 0 {
		if len(r.Dropped) > 0 {
			t.Errorf("got the drops %v (%v), want none", r.Dropped, doc.Runs[0].Examples)
		}
		return
	}
	diff(t, "drops", c.drops, r.Dropped)
	if len(doc.Runs[0].Examples) == 0 {
		t.Fatal("got no example")
	}
	e := doc.Runs[0].Examples[0]
	if !strings.HasPrefix(e.Place, c.place) || !strings.Contains(e.What, c.says) {
		t.Errorf("got the example %q at %s, want %q at %s", e.What, e.Place, c.says, c.place)
	}
}

// brokenPipe gives its text, then an error that is not the end.
type brokenPipe struct{ r io.Reader }

var errBroken = errors.New("input/output error")

func (b *brokenPipe) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

// TestReadErrorKeepsWhatWasRead: an input that fails halfway loses its rest.
func TestReadErrorKeepsWhatWasRead(t *testing.T) {
	all := strings.Join(goodLines(3), "\n") + "\n" + otlpRequest(4)[:300]
	doc, runs, err := dumpRun(t, []string{"-"}, func(o *Options) { o.Stdin = &brokenPipe{strings.NewReader(all)} })
	if err != nil {
		t.Fatal(err)
	}
	c := faultCase{keeps: "1 2 3", drops: map[string]int64{"unreadable": 1}, says: "input/output error"}
	checkFault(t, &c, doc, runs)
}

// TestUnreadableFile: a file that is missing or a folder ends the run with one
// error that names it.
func TestUnreadableFile(t *testing.T) {
	good := writeDump(t, "traces", []byte(otlpRequest(1)))
	folder := filepath.Join(t.TempDir(), "folder.json")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{folder, filepath.Join(t.TempDir(), "missing.json")} {
		doc, _, err := dumpRun(t, []string{good, bad}, nil)
		if doc != nil || err == nil || !strings.Contains(err.Error(), filepath.Base(bad)) {
			t.Errorf("got %v, want an error that names %s", err, bad)
		}
	}
}

// silent is a pipe whose writer says nothing after its first bytes.
type silent struct {
	first io.Reader
	quiet func() // called when the reader waits
	never chan struct{}
}

func (s *silent) Read(p []byte) (int, error) {
	n, err := s.first.Read(p)
	if err == io.EOF {
		s.quiet()
		<-s.never
	}
	return n, err
}

// TestInterruptWhileInputIsSilent: an interrupt does not wait for the writer of
// a pipe, and leaves nothing behind.
func TestInterruptWhileInputIsSilent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	never := make(chan struct{})
	defer close(never)
	o := DefaultOptions()
	o.Out, o.Stdin = filepath.Join(t.TempDir(), "out"), &silent{strings.NewReader(otlpRequest(1)), cancel, never}
	_, err := Run(ctx, []RunDir{dumpDir("-")}, o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an interruption", err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Out, tablesDir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
