package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestMessagesByHand: the messages of a stream and what of it is lost, with the place, the bytes and the reason.
func TestMessagesByHand(t *testing.T) {
	long := strings.Repeat("x", smallMessage+1)
	big := frame(strings.Repeat("y", 100_001))
	for _, c := range []struct {
		name   string
		form   form
		stream string
		want   string // the messages, or their lengths where they are long, and the faults
	}{
		{"two", formProto, prefixed("ab") + prefixed("c"), "ab c"},
		{"an empty one", formProto, prefixed("ab") + prefixed("") + prefixed("c"), "ab  c"},
		{"half a length", formProto, prefixed("ab") + "\x00\x00\x01", "ab; file_cut at 6 of 3: truncated length at byte 6: got 3 of 4 bytes: " + cutMessage},
		{"half a message", formProto, prefixed("ab") + "\x00\x00\x00\x05cd", "ab; file_cut at 6 of 6: truncated message at byte 6: got 2 of 5 bytes: " + cutMessage},
		{"a length alone", formProto, "\x00\x00\x00\x05", "; file_cut at 0 of 4: truncated message at byte 0: got 0 of 5 bytes: " + cutMessage},
		{"a long one", formProto, prefixed(long) + prefixed("c"), fmt.Sprint(len(long), " c")},
		{"half a long one", formProto, prefixed(long)[:1000], fmt.Sprintf("; file_cut at 0 of 1000: truncated message at byte 0: got 996 of %d bytes: %s", len(long), cutMessage)},
		{"one above the limit", formProto, prefixed("ab") + prefixed(strings.Repeat("z", 100_001)) + prefixed("c"),
			"ab; over_limit at 6 of 100005: message of 100001 bytes, want at most 100000 (--max-line)| c"},
		{"half of one above the limit", formProto, prefixed(strings.Repeat("z", 100_001))[:504], "; file_cut at 0 of 504: truncated message at byte 0: got 500 of 100001 bytes: " + cutMessage},
		{"frames", formFramed, prefixed(frame(strings.Repeat("y", 101))) + prefixed(frame("c")), strings.Repeat("y", 101) + " c"},
		{"a frame above the limit", formFramed, prefixed(big) + prefixed(frame("c")),
			fmt.Sprintf("; over_limit at 0 of %d: message expands to more than 100000 bytes (--max-line)| c", len(big)+4)},
		{"a frame at the limit", formFramed, prefixed(frame(strings.Repeat("y", 100_000))), "100000"},
		{"no frame", formFramed, prefixed("abcdef") + prefixed(frame("c")), "; unreadable at 0 of 10: zstd frame at byte 4: invalid input: magic number mismatch| c"},
	} {
		src := &Source{Name: "f", form: c.form, Limits: Limits{MaxLine: 100_000, MaxExpansion: 300}}
		src.readFrom(strings.NewReader(c.stream))
		r := &messages{src: src, awaitLong: func() {}}
		var buf []byte
		var got []string
		for {
			b, err := r.next(&buf)
			if b != nil {
				var texts []string
				from := 0
				for _, end := range b.ends {
					text := string(b.data[from:end])
					if len(text) > 1000 {
						text = fmt.Sprint(len(text))
					}
					texts = append(texts, text)
					from = end
				}
				all := strings.Join(texts, " ")
				for _, f := range b.faults {
					all += fmt.Sprintf("; %s at %d of %d: %s", f.code, f.offset, f.bytes, f.msg)
					if f.line != int64(len(b.ends))+1 || !f.byMessage {
						t.Errorf("%s: got the fault %+v", c.name, f)
					}
				}
				got = append(got, all)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(c.name, err)
			}
		}
		src.Close()
		if text := strings.TrimSuffix(strings.Join(got, "| "), "| "); text != c.want {
			t.Errorf("%s:\ngot  %.300q\nwant %.300q", c.name, text, c.want)
		}
	}
	broken := &Source{Name: "f", form: formProto, Limits: Limits{MaxLine: 100}}
	broken.readFrom(io.MultiReader(strings.NewReader(prefixed("ab")), &errOnce{errors.New("gone")}))
	var buf []byte
	b, err := (&messages{src: broken}).next(&buf)
	if b == nil || len(b.ends) != 1 || err == nil || err.Error() != "f: read: gone" {
		t.Errorf("got %+v, %v", b, err)
	}
	for text, want := range map[string]string{"\x1f\x8bx": "f: gzip: unexpected EOF", "\x28\xb5\x2f\xfd": ""} {
		s := &Source{Name: "f"}
		s.readFrom(bytes.NewReader([]byte(text)))
		if err := s.unpack(); want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
		s.Close()
	}
}
