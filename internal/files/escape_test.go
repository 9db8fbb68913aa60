package files

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain, ü and 漢\u00a0字": "plain, ü and 漢\u00a0字", "a\nb\tc\r": `a\nb\tc\u000d`, "\x1b[31mred": `\u001b[31mred`,
		"\u009b31m": `\u009b31m`, "\x9b31m": `\x9b31m`, "evil\u202etxt.exe": `evil\u202etxt.exe`, "": "", "\x7f": `\u007f`,
	} {
		if got := Line(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestWord(t *testing.T) {
	for in, want := range map[string]string{
		"H100-SXM-80GB": "H100-SXM-80GB", "": "''", "x; rm -rf ~": "'x; rm -rf ~'", "it's": `'it'\''s'`, "$(id)": "'$(id)'", "a\nb": `'a\nb'`,
	} {
		if got := Word(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

// However a text is cut into writes, the stream is the same.
func TestWriterPutsCharactersTogether(t *testing.T) {
	const text = "漢\x1b[2J\u009b字\r\n\tü\xf0\x9f"
	var whole bytes.Buffer
	w := &Writer{W: &whole}
	w.Write([]byte(text))
	w.Flush()
	if want := "漢\\u001b[2J\\u009b字\\u000d\n\tü\\xf0\\x9f"; whole.String() != want {
		t.Errorf("got %q, want %q", whole.String(), want)
	}
	for size := 1; size < len(text); size++ {
		var cut bytes.Buffer
		w := &Writer{W: &cut}
		for i := 0; i < len(text); i += size {
			w.Write([]byte(text[i:min(len(text), i+size)]))
		}
		w.Flush()
		if cut.String() != whole.String() {
			t.Errorf("in pieces of %d: got %q, want %q", size, cut.String(), whole.String())
		}
	}
}

// What is escaped in a JSON document means the same to its reader.
func TestWriterKeepsJSON(t *testing.T) {
	name := "run\x1b]0;x\a\u009b\u202e"
	var out bytes.Buffer
	if err := json.NewEncoder(&Writer{W: &out}).Encode(name); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != name {
		t.Errorf("got %q, %v, want %q", back, err, name)
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b[0m")
	f.Fuzz(func(t *testing.T, s string) {
		out := Line(s)
		if strings.IndexFunc(out, isHarmful) >= 0 || !utf8.ValidString(out) || Line(out) != out {
			t.Errorf("%q: got %q", s, out)
		}
	})
}
