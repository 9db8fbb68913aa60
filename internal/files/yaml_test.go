package files

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
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
	if err := DecodeYAML([]byte("b: 3"), "f", &v); err == nil || !strings.Contains(err.Error(), "field b not found") {
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

// TestUnknownKeysAnywhere: a document has the error, and the values, that the library's own strict
// decoder gives it.
func TestUnknownKeysAnywhere(t *testing.T) {
	for _, text := range []string{
		"b: 1\nlist: [{a: 1}, {a: 2}]\nby_name: {x: {a: 3}}\npointer: {a: 4}\nany: {c: 5}\n",
		"list: [{a: 1}, {c: 2}]\n",
		"by_name: {x: {c: 3}}\n",
		"pointer: {c: 4}\n",
		"c: 1\nd: 2\n",
		"-: 1\n",
		"Skipped: 1\n",
		"pointer: &p {a: 1}\nlist: [*p]\n",
		"any: &p {c: 1}\nlist: [*p]\n",
		"any: &p {a: 1}\npointer: {<<: *p}\n",
		"any: &p {c: 1}\npointer: {<<: *p}\n",
		"list: {a: 1}\n",
	} {
		var got, want yamlOuter
		err := DecodeYAML([]byte(text), "f", &got)
		dec := yaml.NewDecoder(strings.NewReader(text))
		dec.KnownFields(true)
		wantErr := dec.Decode(&want)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%q: got %v, want %v", text, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}
