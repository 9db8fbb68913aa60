package extract

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// goodLines are the requests 1..n, one a line.
func goodLines(n int64) []string {
	var out []string
	for i := int64(1); i <= n; i++ {
		out = append(out, otlptest.Request(i))
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
		out = append(out, otlptest.Framed(otlptest.Proto([]byte(line)))...)
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
	isCut := map[string]int64{"file_cut": 1}
	deep := func(open, end string) string { return strings.Repeat(open, 10000) + strings.Repeat(end, 10000) }
	extra := func(value string) []byte { // an attribute that nobody reads
		return replaced(`{"key":"http.route"`, `{"key":"x","value":`+value+`},{"key":"http.route"`)
	}
	small := func(o *Options) { o.MaxLine = 1 << 16 }
	spaces := strings.Repeat(" ", 3<<20)
	return []faultCase{
		{name: "truncated last line", dump: cut([]byte(all), 500), keeps: "1 2 3", drops: unreadable, place: "traces:4:",
			says: "the end of the text"},
		{name: "truncated last message", dump: cut(protoMessages(goodLines(4)), 500), keeps: "1 2 3", drops: isCut, place: "traces:4",
			says: "truncated message at byte"},
		{name: "truncated length", dump: append(protoMessages(goodLines(4)), 0, 0), keeps: "1 2 3 4", drops: isCut, place: "traces:5",
			says: "got 2 of 4 bytes"},
		{name: "truncated zstd stream", dump: append(otlptest.Compress([]byte(all)), cut(otlptest.Compress([]byte(otlptest.Request(5))), 20)...),
			keeps: "1 2 3 4", drops: isCut, says: "unexpected end"},
		{name: "truncated gzip stream", dump: cut(gzipped([]byte(all)), 8), keeps: "1 2 3 4", drops: isCut, says: "unexpected end"},
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
			append(otlptest.Framed(deepMessage(10000)), protoMessages(goodLines(4)[2:])...)...), keeps: "1 2 3 4", drops: unreadable,
			place: "traces:3", says: "nested deeper"},
		{name: "line above --max-line", dump: with(func(l string) string { return spaces + l }), options: small, keeps: "1 3 4",
			drops: map[string]int64{"over_limit": 1}, place: "traces:2", says: "--max-line"},
		{name: "line of one block above --max-line", dump: with(func(l string) string { return spaces[:1<<17] + l }), options: small,
			keeps: "1 3 4", drops: map[string]int64{"over_limit": 1}, place: "traces:2", says: "--max-line"},
		{name: "message above --max-line",
			dump: append(append(otlptest.Framed(deepMessage(40000)), otlptest.Framed(bytes.Repeat([]byte{0x1a, 0}, 1<<16))...),
				protoMessages(goodLines(2))...), options: small, keeps: "1 2", drops: map[string]int64{"over_limit": 2}, place: "traces:1",
			says: "--max-line"},
		{name: "packed line above --max-line", dump: otlptest.Compress(with(func(l string) string { return spaces + l })), options: small,
			keeps: "1 3 4", drops: map[string]int64{"over_limit": 1}, place: "traces:2", says: "--max-line"},
		{name: "packed message above --max-line", dump: append(otlptest.Framed(otlptest.Compress([]byte(spaces))),
			otlptest.Framed(otlptest.Compress([]byte(otlptest.Request(1))))...), options: small, keeps: "1",
			drops: map[string]int64{"over_limit": 1}, place: "traces:1", says: "--max-line"},
		{name: "stream above --max-expansion", dump: otlptest.Compress(append([]byte(all), strings.Repeat(spaces+"\n", 70e6/len(spaces))...)),
			options: func(o *Options) { o.MaxExpansion = 50 }, errors: files.TooLarge,
			says: "--max-expansion"},
		{name: "zstd window of 2 GiB", dump: []byte("\x28\xb5\x2f\xfd\x00\xa8\x19\x00\x00{}\n"), errors: codeNoInput, says: "traces"},
		{name: "length of 2 GiB", dump: append(protoMessages(goodLines(2)), 0x7f, 0xff, 0xff, 0xff, 0x0a), keeps: "1 2", drops: isCut,
			place: "traces:3", says: "truncated message"},
		{name: "duplicated export", dump: []byte(all + all), keeps: "1 2 3 4", drops: map[string]int64{"duplicate": 4 * 11}, place: "traces:5"},
		{name: "same ids, other content", dump: []byte(all + strings.Replace(goodLines(4)[1], "/v1/completions", "/v1/chat/completions", 1) +
			"\n"), keeps: "1 2 3 4", drops: map[string]int64{"duplicate": 8, "duplicate_conflict": 3}},
		{name: "integer beyond 64 bits", dump: replaced(`"intValue":"400"`, `"intValue":"9223372036854775808"`), keeps: "1 3 4", drops: unreadable, place: "traces:2:", says: "step.duration_us"},
		{name: "time beyond 63 bits", dump: replaced(fmt.Sprintf(`"startTimeUnixNano":"%d"`, otlptest.WallNs(2e8-2e6)),
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
				if trace.CodeOf(err) != c.errors || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "traces") {
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
	all := strings.Join(goodLines(3), "\n") + "\n" + otlptest.Request(4)[:300]
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
	good := writeDump(t, "traces", []byte(otlptest.Request(1)))
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
	o.Out, o.Stdin = filepath.Join(t.TempDir(), "out"), &silent{strings.NewReader(otlptest.Request(1)), cancel, never}
	_, err := Run(ctx, []RunDir{dumpDir("-")}, o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an interruption", err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Out, tablesDir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// realRuns is the folder of the bundled real runs; of all, with slow evaluations.
func realRuns(t *testing.T) string {
	if repo.Eval() {
		return repo.Shared(t, "data", "real_vllm_cpu")
	}
	return filepath.Join(repo.Root(t), "testdata", "traces", "real")
}

// killedExtraction is the child: it extracts until it is killed or done.
func killedExtraction(t *testing.T, out string) {
	all, err := Find([]string{realRuns(t)})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := Select(all, []string{"cpu-gqa-*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out, o.Memory = out, 1<<16
	if _, err := Run(context.Background(), runs, o); err != nil {
		t.Fatal(err)
	}
}

func testKills(t *testing.T, kills int) {
	out := filepath.Join(t.TempDir(), "out")
	start := time.Now()
	child(out).Run() // how long it takes undisturbed
	took := time.Since(start)
	for i := range kills {
		os.RemoveAll(filepath.Join(out, tablesDir))
		os.Remove(filepath.Join(out, cacheName))
		cmd := child(out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(took * time.Duration(i+1) / time.Duration(kills+1))
		cmd.Process.Kill()
		cmd.Wait()
		noHalfFiles(t, out)
	}
	if b, err := child(out).CombinedOutput(); err != nil {
		t.Fatalf("rerun: %v\n%s", err, b)
	}
	if _, err := readAll(out); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(out, tablesDir, stagePrefix+"*"))
	if len(left) != 0 {
		t.Errorf("the rerun left %v", left)
	}
	fmt.Printf("killed %d times, no half file, rerun succeeded\n", kills)
}

func child(out string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=TestKilledExtraction")
	cmd.Env = append(os.Environ(), "EXTRACT_KILL_OUT="+out)
	return cmd
}

// noHalfFiles checks that whatever has a final name can be read whole.
func noHalfFiles(t *testing.T, out string) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(out, tablesDir, "run=*"))
	for _, dir := range dirs {
		run, err := table.Read(dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if len(run.Requests) == 0 || len(run.Steps) == 0 || len(run.Snapshots) == 0 {
			t.Errorf("%s is incomplete", dir)
		}
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if strings.HasPrefix(f.Name(), ".") && f.Name() != manifestName {
				t.Errorf("%s holds the temporary file %s", dir, f.Name())
			}
		}
	}
}

// TestCancelledExtractionLeavesNothing: an interrupt ends the extraction with an error and
// nothing left behind.
func TestCancelledExtractionLeavesNothing(t *testing.T) {
	runs, err := Discover([]string{repo.Shared(t, "data", "smoke")})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = filepath.Join(t.TempDir(), "out")
	if err := os.MkdirAll(filepath.Join(o.Out, tablesDir, stagePrefix+"x"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.Progress = func(string, int64, int64, string) { cancel() }
	if _, err := Run(ctx, runs, o); err == nil {
		t.Error("a cancelled extraction succeeded")
	}
	left, _ := filepath.Glob(filepath.Join(o.Out, tablesDir, "*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func writeDump(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	repo.Write(t, data, path)
	return path
}

// coreIDs are the ids of the core spans that made it into the tables.
func coreIDs(runs []*trace.Run) string {
	var ids []string
	for _, run := range runs {
		for _, r := range run.Requests {
			ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(r.CoreID.Or("-"), "cmpl-"), "-0-aaaaaaaa"))
		}
	}
	return strings.Join(ids, " ")
}

// TestFlippedByteLosesItsFrameOnly: a stream of several zstd frames loses the
// frame whose byte was flipped, wherever in the frame, and keeps the requests
// before and after; so does a length-prefixed one of either framing.
func TestFlippedByteLosesItsFrameOnly(t *testing.T) {
	forms := map[string]func(n int64) []byte{
		"native json": func(n int64) []byte { return otlptest.Compress([]byte(otlptest.Request(n) + "\n")) },
		"native proto": func(n int64) []byte {
			return otlptest.Compress(otlptest.Framed(otlptest.Proto([]byte(otlptest.Request(n)))))
		},
		"legacy json": func(n int64) []byte { return otlptest.Framed(otlptest.Compress([]byte(otlptest.Request(n)))) },
		"legacy proto": func(n int64) []byte {
			return otlptest.Framed(otlptest.Compress(otlptest.Proto([]byte(otlptest.Request(n)))))
		},
	}
	for name, form := range forms {
		header := 0
		if strings.HasPrefix(name, "legacy") {
			header = 4 // a flip in the length loses the framing
		}
		for _, damaged := range []int64{1, 3, 5} {
			frame := form(damaged)
			for at := header; at < len(frame); at += 1 + len(frame)/3 {
				t.Run(fmt.Sprintf("%s/frame %d byte %d of %d", name, damaged, at, len(frame)), func(t *testing.T) {
					var dump []byte
					var want []string
					for n := int64(1); n <= 5; n++ {
						f := form(n)
						if n == damaged {
							f[at] ^= 0x10
						} else {
							want = append(want, fmt.Sprint(n))
						}
						dump = append(dump, f...)
					}
					doc, runs, err := dumpRun(t, []string{writeDump(t, "traces", dump)}, nil)
					if damaged == 1 && at < header+len(source.ZstdMagic) { // the file cannot be told
						wantNoSpans(t, err, "traces")
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					got := coreIDs(runs)
					if got == "1 2 3 4 5" { // a bit nobody looks at
						return
					}
					if got != strings.Join(want, " ") {
						t.Errorf("got the requests %s, want %v; drops %v", got, want, doc.Runs[0].Examples)
					}
					if doc.Totals.Records.Dropped[string(source.CodeUnreadable)] == 0 || !strings.Contains(doc.Runs[0].Examples[0].What, "byte ") {
						t.Errorf("got the drops %v, want one with the place of the damage", doc.Runs[0].Examples)
					}
				})
			}
		}
	}
}

// TestGapKeepsItsShareOfTheLoss: the bytes of a broken frame count towards the
// bad fraction.
func TestGapKeepsItsShareOfTheLoss(t *testing.T) {
	var dump []byte
	for n := int64(1); n <= 4; n++ {
		f := otlptest.Compress([]byte(otlptest.Request(n) + "\n"))
		if n == 2 {
			f[len(f)/2] ^= 0xff
		}
		dump = append(dump, f...)
	}
	doc, _, err := dumpRun(t, []string{writeDump(t, "traces", dump)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := doc.Runs[0].Records.BadFrac; f < 0.03 || f > 0.6 {
		t.Errorf("got a bad fraction of %v after one of four frames was lost", f)
	}
	second := bytes.Index(dump[1:], source.ZstdMagic) + 1
	third := second + 1 + bytes.Index(dump[second+1:], source.ZstdMagic)
	if want := fmt.Sprintf("zstd frame at byte %d is broken, read on at byte %d", second,
		third); !strings.Contains(doc.Runs[0].Examples[0].What, want) {
		t.Errorf("got %q, want %q", doc.Runs[0].Examples[0].What, want)
	}
}
