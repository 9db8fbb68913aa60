package files

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

func TestParseYAMLRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: {c: 1,\n c: 2}":         `f:3:2: key "c" stands twice`,
		"a: 1\n---\nb: 2":                 "f:2:1: got a second document, want one",
		"a: 1\n...\n]":                    "f:2: did not find expected <document start>",
		"a: [1":                           "f:1: did not find expected ',' or ']'",
		strings.Repeat("? [a]\n: 1\n", 3): "", // keys that are no words are the reader's business
		"a: &x [*x]":                      `f:1:8: anchor "x" contains itself`,
		"":                                "", "# nothing": "", "\xef\xbb\xbfa: 1": "", "a: 1\n---\n": "f:2:1: got a second document, want one",
	} {
		_, err := ParseYAML([]byte(text), "f")
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// A text of half a megabyte is read or refused as fast as its size allows; the
// library alone needs a minute for it.
func TestManyKeysAreRefused(t *testing.T) {
	for _, text := range []string{strings.Repeat("a: 1\n", 100_000), "x:\n" + strings.Repeat("  a: 1\n", 70_000)} {
		if err := DecodeYAML([]byte(text), "f", &struct{ A int }{}); err == nil || !strings.HasPrefix(err.Error(), "f:") ||
			!strings.Contains(err.Error(), "want at most 10000") {
			t.Errorf("got %v", err)
		}
	}
}

func TestDecodeYAMLIsStrict(t *testing.T) {
	var v struct {
		A int `yaml:"a"`
	}
	if err := DecodeYAML([]byte("a: 3"), "f", &v); err != nil || v.A != 3 {
		t.Errorf("got %v, %v", v, err)
	}
	if err := DecodeYAML([]byte("b: 3"), "f", &v); err == nil || err.Error() != `f:1:1: unknown key "b"` {
		t.Errorf("got %v", err)
	}
	if err := DecodeYAML(nil, "f", &v); err != nil {
		t.Error(err)
	}
}

// What is exported means the same and reorders nothing: YAML in every style, JSON, text that is neither.
func TestReadable(t *testing.T) {
	const evil = "a\u202eb\u2066"
	for _, text := range []string{"model: " + evil + "\n", "'" + evil + "': [x]\n",
		"# " + evil + "\na: |\n  k: " + evil + "\n", "first: \"\u202ea\"\n", "\u2066\u202e: last\n",
		`{"a": "` + evil + `"}`, "a: 1\n---\nb: \"" + evil + "\"\n"} {
		got := Readable([]byte(text))
		if strings.ContainsAny(string(got), "\u202e\u2066") || !strings.Contains(string(got), `\u202e`) {
			t.Errorf("%q: got %q", text, got)
		}
		var was, is any
		if yaml.Unmarshal([]byte(text), &was) == nil && (yaml.Unmarshal(got, &is) != nil || !reflect.DeepEqual(was, is)) {
			t.Errorf("%q: got %q, which is %v", text, got, is)
		}
	}
	if got := Readable([]byte("no: [yaml " + "\u202e")); string(got) != `no: [yaml \u202e` {
		t.Errorf("got %q", got)
	}
	if text := []byte("plain: x\n"); &Readable(text)[0] != &text[0] {
		t.Error("a plain text is another one")
	}
}

// yamlInner and yamlOuter have keys in every place where a document can have them.
type yamlInner struct {
	A int `yaml:"a"`
}

type yamlOuter struct {
	yamlInlined `yaml:",inline"`
	List        []yamlInner          `yaml:"list"`
	ByName      map[string]yamlInner `yaml:"by_name"`
	Pointer     *yamlInner           `yaml:"pointer"`
	Any         any                  `yaml:"any"`
	Skipped     int                  `yaml:"-"`
}

type yamlInlined struct {
	B int `yaml:"b"`
}

// TestFaultsAnywhere: a document is refused exactly where the library's own strict decoder refuses it, on the line that
// the library names, and has the values that it gives. Faults of values that an anchor merges have no column.
func TestFaultsAnywhere(t *testing.T) {
	for text, message := range map[string]string{
		"b: 1\nlist: [{a: 1}, {a: 2}]\nby_name: {x: {a: 3}}\npointer: {a: 4}\nany: {c: 5}\n": "",
		"pointer: &p {a: 1}\nlist: [*p]\n":                                                   "",
		"any: &p {a: 1}\npointer: {<<: *p}\n":                                                "",

		"list: [{a: 1}, {c: 2}]\n":             `f:1:17: unknown key "c"`,
		"by_name: {x: {c: 3}}\n":               `f:1:15: unknown key "c"`,
		"pointer: {c: 4}\n":                    `f:1:11: unknown key "c"`,
		"c: 1\nd: 2\n":                         `f:1:1: unknown key "c"`,
		"-: 1\n":                               `f:1:1: unknown key "-"`,
		"Skipped: 1\n":                         `f:1:1: unknown key "Skipped"`,
		"any: &p {c: 1}\nlist: [*p]\n":         `f:1:10: unknown key "c"`,
		"any: &p {c: 1}\npointer: {<<: *p}\n":  `f:1: unknown key "c"`,
		"list: {a: 1}\n":                       "f:1:7: list: got a mapping, want a list",
		"list: [{a: 1}, {a: x}, {a: y}]\n":     `f:1:20: list.1.a: got "x", want an integer`,
		"b: 1\nlist:\n  - a: 1\n  - a: [2]\n":  "f:4:8: list.1.a: got a list, want an integer",
		"by_name:\n  x: {a: 1}\n  y: {a: z}\n": `f:3:10: by_name.y.a: got "z", want an integer`,
		"pointer: 3\n":                         `f:1:10: pointer: got "3", want a mapping`,
		"any: &p {a: x}\npointer: {<<: *p}\n":  `f:1: got "x", want an integer`,
	} {
		var got, want yamlOuter
		err := DecodeYAML([]byte(text), "f", &got)
		dec := yaml.NewDecoder(strings.NewReader(text))
		dec.KnownFields(true)
		wantErr := dec.Decode(&want)
		if (err == nil) != (message == "") || err != nil && err.Error() != message {
			t.Errorf("%q: got %v, want %q", text, err, message)
		}
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%q: got %v, the library %v", text, err, wantErr)
		} else if err != nil {
			library, _ := trace.YAMLError("f", wantErr)
			if ours, ok := errors.AsType[*trace.SyntaxError](err); !ok || ours.Line != library.Line {
				t.Errorf("%q: got %v, the library %v", text, err, wantErr)
			}
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}
