package source

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// word is a row of the tests: a text and its line.
type word struct {
	Text string
	Line int64
}

// wordDecoder keeps each message as one row. A message with "bad" is broken there, and one with "torn" is a bad row.
type wordDecoder struct{ LineDecoder[word] }

func newWordDecoder() Decoder[*Lines[word]] {
	return wordDecoder{func(w *word) *int64 { return &w.Line }}
}

func (d wordDecoder) Line(text []byte, out *Lines[word]) *Error {
	out.Rows = append(out.Rows, word{Text: strings.TrimSpace(string(text))})
	if at := bytes.Index(text, []byte("bad")); at >= 0 {
		return &Error{At: at, Msg: "got bad"}
	}
	if bytes.Contains(text, []byte("torn")) {
		out.Bad = append(out.Bad, BadLine{What: "torn"})
	}
	if len(bytes.Trim(text, "\x00")) == 0 {
		return &Error{Msg: "nothing"}
	}
	out.Other++
	return nil
}

func (d wordDecoder) Message(data []byte, out *Lines[word]) *Error { return d.Line(data, out) }

// streamed is what Stream made of files.
type streamed struct {
	rows, bad []word
	other     int64
	acc       *Account
	in        []Input
	progress  int64
	err       error
}

// faults returns the drops as text.
func (s *streamed) faults() (out []string) {
	for _, e := range s.acc.ExampleList() {
		out = append(out, fmt.Sprintf("%s %s %s", e.Place, e.Reason, e.What))
	}
	return out
}

// stream writes the texts as files and reads them.
func stream(t *testing.T, o Options, joins bool, texts ...string) *streamed {
	t.Helper()
	dir := t.TempDir()
	s := &streamed{acc: NewAccount(nil)}
	for i, text := range texts {
		name := filepath.Join(dir, fmt.Sprint("f", i))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		s.in = append(s.in, Input{Path: name, Name: fmt.Sprint("f", i), Joins: joins && i+1 < len(texts)})
	}
	s.read(o)
	return s
}

func (s *streamed) read(o Options) {
	if o.Limits.MaxLine == 0 {
		o.Limits = Limits{MaxLine: 1 << 20, MaxExpansion: 100}
	}
	o.Workers = 2
	o.Progress = func(n int64) { s.progress += n }
	s.err = Stream(context.Background(), s.in, o, newWordDecoder, func(p *Parsed[*Lines[word]]) error {
		name := s.in[p.Batch.File].Name
		p.Account(s.acc, name)
		for _, r := range p.Records.Rows {
			s.rows = append(s.rows, word{name + " " + r.Text, r.Line})
		}
		for _, b := range p.Records.Bad {
			s.bad = append(s.bad, word{name + " " + b.What, b.Line})
		}
		s.other += p.Records.Other
		return s.acc.Err
	})
}

// prefixed returns messages after their lengths.
func prefixed(messages ...string) string {
	var b []byte
	for _, m := range messages {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(m))), m...)
	}
	return string(b)
}

// zipped and frame return a text as gzip and as a zstd frame.
func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

func frame(text string) string {
	enc, _ := zstd.NewWriter(nil)
	defer enc.Close()
	return string(enc.EncodeAll([]byte(text), nil))
}

// TestStreamForms: every framing gives the same words with their line or message.
func TestStreamForms(t *testing.T) {
	lines := "{one}\n\n{two}\n{three}"
	pack := string([]byte{0x92, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xa3}) + "one"
	request := "\x0a\x0a\x12two" + strings.Repeat("x", 8)
	many := strings.TrimSuffix(strings.Repeat("{word}\n", 300_000), "\n") // 2.1 MB: three batches
	for _, c := range []struct {
		name, text string
		want       []word
		lines      int64 // of the account
	}{
		{"lines", lines, []word{{"f0 {one}", 1}, {"f0 {two}", 3}, {"f0 {three}", 4}}, 4},
		{"byte order mark", "\xef\xbb\xbf" + lines, []word{{"f0 {one}", 1}, {"f0 {two}", 3}, {"f0 {three}", 4}}, 4},
		{"gzip", zipped(lines), []word{{"f0 {one}", 1}, {"f0 {two}", 3}, {"f0 {three}", 4}}, 4},
		{"zstd in gzip", zipped(frame(lines)), []word{{"f0 {one}", 1}, {"f0 {two}", 3}, {"f0 {three}", 4}}, 4},
		{"document", "{\n\"one\": 1}\n", []word{{"f0 {\n\"one\": 1}", 1}}, 3},
		{"document with a comma at the end of a line", "[1,\n2]", []word{{"f0 [1,\n2]", 1}}, 2},
		{"messages", prefixed("\x0aone", "\x0atwo"), []word{{"f0 one", 1}, {"f0 two", 2}}, 2},
		{"JSON messages", prefixed("\x0aone", " {two}"), []word{{"f0 one", 1}, {"f0 {two}", 2}}, 2},
		{"frames", prefixed(frame("one"), frame("{two}")), []word{{"f0 one", 1}, {"f0 {two}", 2}}, 2},
		{"a request as sent", request, []word{{"f0 " + strings.TrimSpace(request), 1}}, 1},
		{"MessagePack", pack + pack, []word{{`f0 [1.5,"one"]`, 1}, {`f0 [1.5,"one"]`, 2}}, 2},
		{"nothing", "", nil, 0}, {"blanks", " \n\t ", nil, 0},
		{"many", many, nil, 300_000},
	} {
		s := stream(t, Options{}, false, c.text)
		if s.err != nil || len(s.acc.Dropped) != 0 || s.acc.Lines != c.lines || s.progress != int64(len(c.text)) && c.name != "blanks" {
			t.Errorf("%s: got %v, %v, %d lines, progress %d", c.name, s.err, s.faults(), s.acc.Lines, s.progress)
		}
		sum := sha256.Sum256([]byte(c.text))
		if s.in[0].Size != int64(len(c.text)) || s.in[0].Sum != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: got %d bytes and %s", c.name, s.in[0].Size, s.in[0].Sum)
		}
		if c.name == "many" {
			if n := len(s.rows); n != 300_000 || s.rows[n-1].Line != 300_000 || s.rows[200_000].Line != 200_001 {
				t.Errorf("%s: got %d words", c.name, n)
			}
			continue
		}
		if !reflect.DeepEqual(s.rows, c.want) || s.other != int64(len(c.want)) {
			t.Errorf("%s: got %v, want %v", c.name, s.rows, c.want)
		}
	}
}

// TestStreamFaults: what is broken is dropped with its place, its bytes and its reason, and what follows is read.
func TestStreamFaults(t *testing.T) {
	two := frame("{one}\n") + frame("{two}\n")
	broken := []byte(two)
	broken[len(frame("{one}\n"))-2] ^= 0xff // the checksum of the first frame
	limits := Limits{MaxLine: 8, MaxExpansion: 100}
	big := "{" + strings.Repeat("x", 3<<20) + "}"
	for _, c := range []struct {
		name, text string
		limits     Limits
		anyText    bool
		rows       []word
		faults     []string
		badBytes   int64
	}{
		{"a bad line", "{one}\n{ bad}\n{two}\n", Limits{}, false, []word{{"f0 {one}", 1}, {"f0 {two}", 3}}, []string{"f0:2:3 unreadable (byte 8) got bad"}, 6},
		{"a bad message", prefixed("\x0aone", "\x0abad", "\x0atwo"), Limits{}, false, []word{{"f0 one", 1}, {"f0 two", 3}}, []string{"f0:2:2 unreadable message (byte 1) got bad"}, 4},
		{"a bad document", "{\n \"x\": bad}", Limits{}, false, nil, []string{"f0:2:7 unreadable (byte 8) got bad"}, 12},
		{"NUL bytes at the end", "{one}\n\x00\x00\x00", Limits{}, false, []word{{"f0 {one}", 1}}, []string{"f0:2 nul_padding (byte 6) 3 trailing NUL bytes"}, 0},
		{"a line of 8 and of 9 bytes", "{345678}\n{3456789}\n{a}\n", limits, false, []word{{"f0 {345678}", 1}, {"f0 {a}", 3}},
			[]string{"f0:2 over_limit (byte 9) line of more than 8 bytes (--max-line)"}, 9},
		{"a line beyond a block", big + "\n{a}\n", limits, false, []word{{"f0 {a}", 2}}, []string{"f0:1 over_limit (byte 0) line of more than 8 bytes (--max-line)"}, 3<<20 + 2},
		{"a message of 8 and of 9 bytes", prefixed("\x0a2345678", "\x0a23456789", "\x0ab"), limits, false, []word{{"f0 2345678", 1}, {"f0 b", 3}},
			[]string{"f0:2 over_limit message (byte 12) message of 9 bytes, want at most 8 (--max-line)"}, 13},
		{"a frame that expands beyond 8 bytes", prefixed(frame("12345678"), frame("123456789")), limits, false, nil,
			[]string{"f0:1 over_limit message (byte 0) message of 21 bytes, want at most 8 (--max-line)", "f0:2 over_limit message (byte 25) message of 22 bytes, want at most 8 (--max-line)"}, 51},
		{"a cut length", prefixed("\x0aone") + "\x00\x00", Limits{}, false, []word{{"f0 one", 1}},
			[]string{"f0:2 file_cut message (byte 8) truncated length at byte 8: got 2 of 4 bytes: " + cutMessage}, 2},
		{"a cut message", prefixed("\x0aone", "\x0atwo")[:14], Limits{}, false, []word{{"f0 one", 1}},
			[]string{"f0:2 file_cut message (byte 8) truncated message at byte 8: got 2 of 4 bytes: " + cutMessage}, 6},
		{"a cut long message", prefixed("\x0aone", strings.Repeat("x", 100_000))[:50_000], Limits{}, false, []word{{"f0 one", 1}},
			[]string{"f0:2 file_cut message (byte 8) truncated message at byte 8: got 49988 of 100000 bytes: " + cutMessage}, 49992},
		{"a cut message beyond the limit", prefixed("\x0aone", "\x0a23456789")[:18], limits, false, []word{{"f0 one", 1}},
			[]string{"f0:2 file_cut message (byte 8) truncated message at byte 8: got 6 of 9 bytes: " + cutMessage}, 10},
		{"a document of 9 bytes", "{\n  \"a\":1}", limits, false, nil, []string{"f0:1 over_limit (byte 0) JSON document over many lines of more than 8 bytes (--max-line); JSON lines are expected"}, 10},
		{"other text", "hello\nworld\n", Limits{}, false, nil, []string{`f0:1 not_otlp (byte 0) not OTLP JSON or length-prefixed protobuf, starts with "hello\nworld\n"`}, 12},
		{"other text that is wanted", "hello\nworld\n", Limits{}, true, []word{{"f0 hello", 1}, {"f0 world", 2}}, nil, 0},
		{"UTF-16", "\xff\xfe{\x00", Limits{}, false, nil, []string{"f0:1 not_otlp (byte 0) UTF-16 byte order mark, want UTF-8"}, 4},
		{"a cut gzip file", zipped("{one}\n{two}\n")[:20], Limits{}, false, []word{{"f0 {one}", 1}}, nil, -1},
		{"compressed four times", zipped(zipped(zipped(zipped("{}")))), Limits{}, false, nil, nil, -1},
	} {
		s := stream(t, Options{Limits: c.limits, AnyText: c.anyText}, false, c.text)
		if s.err != nil || !reflect.DeepEqual(s.rows, c.rows) {
			t.Errorf("%s: got %v and %v", c.name, s.rows, s.err)
		}
		if c.badBytes < 0 {
			if len(s.faults()) != 1 || s.acc.BadBytes <= 0 {
				t.Errorf("%s: got %q", c.name, s.faults())
			}
			continue
		}
		if got := s.faults(); !reflect.DeepEqual(got, c.faults) || s.acc.BadBytes != c.badBytes || s.acc.Read != int64(len(got)) {
			t.Errorf("%s: got %q, %d read, %d bytes; want %q, %d", c.name, got, s.acc.Read, s.acc.BadBytes, c.faults, c.badBytes)
		}
	}
	s := stream(t, Options{}, false, string(broken))
	if len(s.rows) == 0 || s.rows[len(s.rows)-1].Text != "f0 {two}" || len(s.faults()) != 1 || !strings.Contains(s.faults()[0], "is broken, read on at byte "+fmt.Sprint(len(frame("{one}\n")))) {
		t.Errorf("a broken frame: got %v, %q", s.rows, s.faults())
	}
	s = stream(t, Options{}, false, "{torn}\n{one}\n", "{torn}\n")
	if want := []word{{"f0 torn", 1}, {"f1 torn", 1}}; !reflect.DeepEqual(s.bad, want) || len(s.rows) != 3 {
		t.Errorf("torn rows: got %v", s.bad)
	}
	// Of equal faults three are shown and all are counted.
	s = stream(t, Options{}, false, strings.Repeat("{bad}\n", 50))
	if s.acc.Read != 50 || s.acc.Dropped[CodeUnreadable] != 50 || s.acc.Truncated != 50 || s.acc.BadBytes != 250 || len(s.faults()) != 3 {
		t.Errorf("got %d read, %v, %d bytes", s.acc.Read, s.acc.Dropped, s.acc.BadBytes)
	}
	// Beyond 64 MB a stream may be 900 times as large as the bytes read, rounded down.
	for _, c := range []struct {
		out, packed int64
		ok          bool
	}{{64e6, 1, true}, {64e6 + 1, 1, false}, {90_099_999, 100_000, true}, {90_100_000, 100_000, false}} {
		src := &Source{Name: "f", raw: &counter{n: c.packed}, Limits: Limits{MaxExpansion: 900}, out: c.out - 1}
		if n, err := (&expansionGuard{src, strings.NewReader("x")}).Read(make([]byte, 8)); c.ok != (err == nil) || c.ok && n != 1 || !c.ok && trace.CodeOf(err) != files.TooLarge {
			t.Errorf("%d of %d bytes: got %d and %v", c.out, c.packed, n, err)
		}
	}
	if err := Stream(context.Background(), []Input{{Path: "nowhere", Name: "n"}}, Options{Workers: 1}, newWordDecoder, nil); err == nil {
		t.Error("a missing file was read")
	}
	stop := errors.New("stop")
	s = &streamed{acc: NewAccount(func(Rejected) error { return stop })}
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("{bad}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.in = []Input{{Path: name, Name: "f"}}
	if s.read(Options{}); s.err != stop {
		t.Errorf("got %v, want the error of the sink", s.err)
	}
}

// TestRotatedFiles: a line that continues in the next file of a set is one line of the first; a whole last line
// without its newline is one too; one that was cut is a fault of its file.
func TestRotatedFiles(t *testing.T) {
	for _, c := range []struct {
		name  string
		texts []string
		want  []word
		drops int
	}{
		{"divided", []string{"{\"a\":1}\n{\"b\"", ":2}\n{\"c\":3}\n"}, []word{{`f0 {"a":1}`, 1}, {`f0 {"b":2}`, 2}, {`f1 {"c":3}`, 2}}, 0},
		{"whole without newline", []string{"{\"a\":1}", "{\"c\":3}\n"}, []word{{`f0 {"a":1}`, 1}, {`f1 {"c":3}`, 1}}, 0},
		{"divided in three", []string{"{\"b\"", ":", "2}\n{\"c\":3}\n"}, []word{{`f1 {"b":2}`, 1}, {`f2 {"c":3}`, 2}}, 0},
		{"cut", []string{"{\"bad", "{\"c\":3}\n"}, []word{{`f1 {"c":3}`, 1}}, 1},
	} {
		s := stream(t, Options{}, true, c.texts...)
		if s.err != nil || !reflect.DeepEqual(s.rows, c.want) || len(s.faults()) != c.drops {
			t.Errorf("%s: got %v, %q and %v, want %v", c.name, s.rows, s.faults(), s.err, c.want)
		}
	}
}

// TestStoredParts: the parts of a file, decoded one by one and stored, read as the file itself does.
func TestStoredParts(t *testing.T) {
	for name, text := range map[string]string{"lines": "{one}\n{bad}\n{three}\n{torn}\n{five}\n", "messages": prefixed("\x0aone", "\x0abad", "\x0athree", "\x0atorn")} {
		whole := stream(t, Options{}, false, text)
		parts, err := Cut(whole.in, 10)
		if err != nil || len(parts[0]) < 3 || parts[0][0].OfLines() != (name == "lines") || parts[0][0].Form != name {
			t.Fatalf("%s: got %+v and %v", name, parts, err)
		}
		again := &streamed{acc: NewAccount(nil), in: []Input{whole.in[0]}}
		dir := t.TempDir()
		for i := range parts[0] {
			in := whole.in[0]
			in.Part = &parts[0][i]
			var b bytes.Buffer
			if err := Store(context.Background(), in, Options{Workers: 1, Limits: Limits{MaxLine: 1 << 20}}, newWordDecoder, &b); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			again.in[0].Stored = append(again.in[0].Stored, file)
		}
		again.read(Options{})
		if again.err != nil || !reflect.DeepEqual(again.rows, whole.rows) || !reflect.DeepEqual(again.bad, whole.bad) || !reflect.DeepEqual(again.faults(), whole.faults()) ||
			again.acc.Lines != whole.acc.Lines || again.acc.Bytes != whole.acc.Bytes || again.acc.BadBytes != whole.acc.BadBytes {
			t.Errorf("%s: got %v, %q, %v\nwant %v, %q", name, again.rows, again.faults(), again.err, whole.rows, whole.faults())
		}
	}
	for name, text := range map[string]string{"short": "{one}\n", "compressed": frame("{one}\n{two}\n"), "a byte order mark": "\xef\xbb\xbf{one}\n{two}\n", "a document": "{\n\"one\": 1}\n"} {
		s := stream(t, Options{}, false, text)
		if parts, err := Cut(s.in, 10); err != nil || parts[0] != nil {
			t.Errorf("%s: got %v and %v", name, parts, err)
		}
	}
	set := stream(t, Options{}, true, "{one}\n{tw", "o}\n{three}\n{four}\n", "{five}\n{six}\n{seven}\n")
	if parts, err := Cut(set.in, 5); err != nil || parts[0] != nil || parts[1] != nil || len(parts[2]) != 5 {
		t.Errorf("a rotated set whose first file ends inside a line: got %v and %v", parts, err)
	}
}

// TestAccount: the figures of an account: 10 read, 2 dropped as unreadable and 1 as a duplicate, which was readable;
// 30 of 200 bytes bad, 15 %, against 2 of 10 records, 20 %.
func TestAccount(t *testing.T) {
	var rejected []Rejected
	a := NewAccount(func(r Rejected) error { rejected = append(rejected, r); return nil })
	a.Read, a.Bytes, a.BadBytes = 10, 200, 30
	a.Keep(8)
	a.Keep(-1)
	a.Drop(CodeUnreadable, 2, Place{"f", 3, 4}, "got %d", 5)
	a.Drop(CodeDuplicate, 1, Place{"g", 7, 0}, "again")
	a.Drop(CodeDuplicate, 0, Place{"g", 8, 0}, "none")
	want := result.Records{Read: 10, Kept: 7, Dropped: map[string]int64{"unreadable": 2, "duplicate": 1}, BadFrac: 0.2}
	if got := a.Records(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	a.BadBytes = 50
	if got := a.Records().BadFrac; got != 0.25 {
		t.Errorf("50 of 200 bytes: got %g", got)
	}
	if got := NewAccount(nil).Records(); got.BadFrac != 0 {
		t.Errorf("nothing read: got %+v", got)
	}
	wantRejected := []Rejected{{"", "f", 3, 4, CodeUnreadable, "got 5", 2}, {"", "g", 7, 0, CodeDuplicate, "again", 1}}
	if !reflect.DeepEqual(rejected, wantRejected) {
		t.Errorf("got %+v", rejected)
	}
	for i := range 5 {
		a.Drop(CodeBadRecord, 1, Place{"h", int64(i + 1), 0}, "x")
	}
	var places []string
	for _, e := range a.ExampleList() {
		places = append(places, e.Place)
	}
	if fmt.Sprint(places) != "[h:1 h:2 h:3 g:7 f:3:4]" {
		t.Errorf("got %q", places)
	}
	a.Scope("b", "y", 2)
	a.Scope("b", "x", 3)
	a.Scope("a", "z", 1)
	a.Scope("b", "y", 4)
	if got := a.ScopeCounts(); !reflect.DeepEqual(got, []result.ScopeCount{{Scope: "a", Event: "z", Count: 1}, {Scope: "b", Event: "x", Count: 3}, {Scope: "b", Event: "y", Count: 6}}) {
		t.Errorf("got %+v", got)
	}
}

// TestStamps: with three stamps the bounds are 24 h around the second smallest and second largest, with 200 around the
// third of each end.
func TestStamps(t *testing.T) {
	const day = int64(24 * 3600e9)
	var s Stamps
	if s.Check("x", 1) != "" || s.AnyStray() || s.Any() {
		t.Error("without stamps none is a stray")
	}
	for _, v := range []int64{5, 1000, 10} {
		s.See(v)
	}
	if s.Lo != 5 || s.Hi != 1000 || !s.Any() || s.AnyStray() {
		t.Errorf("got %d to %d", s.Lo, s.Hi)
	}
	for v, want := range map[int64]string{10 + day: "", 11 + day: "x: got 86400000000011 ns, want -86399999999990 to 86400000000010 ns", 10 - day: "", 9 - day: "x: got -86399999999991 ns"} {
		if got := s.Check("x", v); !strings.HasPrefix(got, strings.TrimSuffix(want, " ns")) || (want == "") != (got == "") {
			t.Errorf("%d: got %q, want %q", v, got, want)
		}
	}
	var before Stamps // of a clock that is below 0
	if before.See(-7); before.Lo != -7 || before.Hi != -7 {
		t.Errorf("one stamp of -7 ns: got %d to %d", before.Lo, before.Hi)
	}
	s.See(11 + day)
	if s.AnyStray() { // the second largest is 1000 now
		t.Error("a day and 11 ns are within a day of 1,000")
	}
	s.See(1001 + 2*day)
	if !s.AnyStray() {
		t.Error("two days are a stray")
	}
	var many Stamps
	for v := range int64(200) {
		many.See(v)
	}
	if many.Check("x", 197+day) != "" || many.Check("x", 198+day) == "" || many.Check("x", 2-day) != "" || many.Check("x", 1-day) == "" {
		t.Error("with 200 stamps the bounds are a day around the third of each end")
	}
	var sample Sample
	if _, _, ok := sample.Spread(); ok {
		t.Error("an empty sample has no median")
	}
	for v := range int64(5000) {
		sample.Add(v)
	}
	// Every second of 5,000 is kept: 0, 2, ..., 4998. The 10, 50 and 90 % are numbers 250, 1250 (of 1249.5) and 2249.
	if median, spread, ok := sample.Spread(); !ok || len(sample.vals) != 2500 || median != 2500 || spread != 3998 {
		t.Errorf("got %d kept, median %d, spread %d", len(sample.vals), median, spread)
	}
}

// TestUntilDone: a read from a silent pipe ends with the context.
func TestUntilDone(t *testing.T) {
	if UntilDone(context.Background(), nil) != nil {
		t.Error("no reader stays none")
	}
	if got, err := io.ReadAll(UntilDone(context.Background(), strings.NewReader(strings.Repeat("ab", 300_000)))); err != nil || len(got) != 600_000 {
		t.Errorf("got %d bytes and %v", len(got), err)
	}
	silent, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	r := UntilDone(ctx, silent)
	go cancel()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestFormats: the first format that accepts a head, and which prove it.
func TestFormats(t *testing.T) {
	formats := []Format[int]{
		{Name: "a", Sniff: func(h []byte) bool { return bytes.HasPrefix(h, []byte("a")) }},
		{Name: "guess", IsGuess: true, Sniff: func(h []byte) bool { return bytes.HasPrefix(h, []byte("b")) }},
	}
	if FormatOf(formats, []byte("ab")) != &formats[0] || FormatOf(formats, []byte("b")) != &formats[1] || FormatOf(formats, []byte("c")) != nil {
		t.Error("got another format")
	}
	if !IsProven(formats, []byte("a")) || IsProven(formats, []byte("b")) || IsProven(formats, nil) {
		t.Error("a guess proves nothing")
	}
	for head, want := range map[string]bool{"\x28\xb5\x2f\xfd": true, "\x50\x2a\x4d\x18": true, "\x5f\x2a\x4d\x18": true, "\x4f\x2a\x4d\x18": false, "\x60\x2a\x4d\x18": false, "\x28\xb5\x2f": false} {
		if got := isZstd([]byte(head)); got != want {
			t.Errorf("% x: got %t", head, got)
		}
	}
	for head, want := range map[string]bool{"\x0a\x05\x0a\x03": true, "\x0a\x05\x12\x03": true, "\x0a\x05\x1a\x03": false, "\x0a\x01\x0a\x03": false, "\x0b\x05\x0a\x03": false, "\x0a\x05\x0a": false,
		"\x0a\x80\x80\x01\x0a": true, "\x0a\x80\x80\x01": false} {
		if got := isRequest([]byte(head)); got != want {
			t.Errorf("% x: got %t", head, got)
		}
	}
}
