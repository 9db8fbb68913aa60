package files

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// sectionOf returns the reader of a YAML text and its first section.
func sectionOf(t *testing.T, text string) (*Reader, *Section) {
	t.Helper()
	root, err := ParseYAML([]byte(text), "run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := &Reader{File: "run.yaml", Code: "bad_value"}
	return r, r.Section(root, "")
}

// values has a field for every type that a key can go into.
type values struct {
	Text   string
	Flag   bool
	Count  int64
	Share  float64
	OptB   trace.Opt[bool]
	OptI   trace.Opt[int64]
	OptF   trace.Opt[float64]
	Names  []string
	Any    any
	Nested map[string]any
}

// keys returns a key for every field.
func (v *values) keys() []Key {
	return []Key{
		{Name: "text", Into: &v.Text, OneOf: []string{"a", "b"}}, {Name: "flag", Into: &v.Flag},
		{Name: "count", Into: &v.Count, Unit: "blocks", Range: AtLeast(2)}, {Name: "share", Into: &v.Share, Unit: "of 1", Range: Within(0.25, 0.75)},
		{Name: "opt_b", Into: &v.OptB}, {Name: "opt_i", Into: &v.OptI}, {Name: "opt_f", Into: &v.OptF, Unit: "s"},
		{Name: "names", Into: &v.Names}, {Name: "any", Into: &v.Any}, {Name: "nested", Into: &v.Nested},
	}
}

// TestSectionRead: each type of value, absent and null ones, which leave the default, and an alias.
func TestSectionRead(t *testing.T) {
	r, s := sectionOf(t, "text: b\nflag: TRUE\ncount: 1000\nshare: 0.5\nopt_b: false\nopt_i: -3\nopt_f: 2\n"+
		"names: &n [x, y]\nany: [1, z]\nnested: {k: 7}\nextra: *n\n")
	var got values
	s.Read(got.keys()...)
	want := values{"b", true, 1000, 0.5, trace.Some(false), trace.Some(int64(-3)), trace.Some(2.0), []string{"x", "y"}, []any{1, "z"}, map[string]any{"k": 7}}
	if r.Err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, r.Err, want)
	}
	others := s.Others()
	if len(others) != 1 || others[0].Value != "extra" || len(s.Known()) != 10 || !s.Has("extra") || s.Has("missing") {
		t.Errorf("got the other keys %v, known %q", others, s.Known())
	}
	s.Read(Key{Name: "extra", Into: &got.Names})
	if !reflect.DeepEqual(got.Names, []string{"x", "y"}) {
		t.Errorf("through an alias: got %q", got.Names)
	}

	r, s = sectionOf(t, "text: null\nflag: ~\nnames: one.jsonl\n")
	defaults := values{Text: "a", Flag: true, Count: 4, Share: 0.3, Names: []string{"d"}}
	s.Read(defaults.keys()...)
	if want := (values{Text: "a", Flag: true, Count: 4, Share: 0.3, Names: []string{"one.jsonl"}}); r.Err != nil || !reflect.DeepEqual(defaults, want) {
		t.Errorf("got %+v and %v, want %+v", defaults, r.Err, want)
	}
	if !s.Has("text") || s.Value("text") != nil {
		t.Error("a key with null has no value but is there")
	}
}

// TestSectionRefuses: values of the wrong type and just outside their range, each with its place; values on the
// ends of a range pass.
func TestSectionRefuses(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"count: 2", ""}, {"count: 1", "run.yaml:1:8: count: got 1, want >= 2 blocks"},
		{"count: 4294967296", ""}, {"count: 4294967297", "run.yaml:1:8: count: got 4294967297, want at most 4294967296 blocks"},
		{"count: two", `run.yaml:1:8: count: got "two", want an integer`}, {"count: 2.0", `run.yaml:1:8: count: got "2.0", want an integer`},
		{"count: [2]", "run.yaml:1:8: count: got a list, want an integer"},
		{"share: 0.25", ""}, {"share: 0.75", ""}, {"share: 0.2499", "run.yaml:1:8: share: got 0.2499, want 0.25..0.75 of 1"},
		{"share: 0.7501", "run.yaml:1:8: share: got 0.7501, want 0.25..0.75 of 1"},
		{"share: {a: 1}", "run.yaml:1:8: share: got a mapping, want a number in of 1"},
		{"opt_f: !!int 0x10", `run.yaml:1:8: opt_f: got "0x10", want a number in s`},
		{"opt_f: '1'", `run.yaml:1:8: opt_f: got "1", want a number in s`},
		{"text: c", `run.yaml:1:7: text: got "c", want a or b`}, {"text: [a]", "run.yaml:1:7: text: got a list, want a string"},
		{"flag: 1", `run.yaml:1:7: flag: got "1", want true or false`}, {"opt_b: [true]", "run.yaml:1:8: opt_b: got a list, want true or false"},
		{"names: {a: 1}", "run.yaml:1:8: names: got a mapping, want a file name, a glob, a list of them or null"},
		{"names: [a, [b]]", "run.yaml:1:12: names: got a list in the list, want a file name or a glob"},
		{"nested: 3", `run.yaml:1:9: nested: got "3", want a mapping`},
	} {
		r, s := sectionOf(t, c.line)
		var v values
		s.Read(v.keys()...)
		if got := fmt.Sprint(r.Err); c.want == "" && r.Err != nil || c.want != "" && got != c.want {
			t.Errorf("%s: got %s, want %s", c.line, got, c.want)
		}
	}
	r, s := sectionOf(t, "count: 1\nshare: 9\n")
	var v values
	s.Read(v.keys()...)
	if first, ok := r.Err.(*trace.SyntaxError); !ok || first.Line != 1 || first.Code != "bad_value" {
		t.Errorf("got %v, want the first error", r.Err)
	}
}

// TestSections: sections below a key and in a list name their path; another value in their place is an error.
func TestSections(t *testing.T) {
	r, s := sectionOf(t, "vllm: {seqs: x}\nphases: [{n: 1}, {n: 2}]\nnone: null\n")
	sub := s.Sub("vllm")
	var n int64
	sub.Read(Key{Name: "seqs", Into: &n})
	if want := `run.yaml:1:14: vllm.seqs: got "x", want an integer`; r.Err == nil || r.Err.Error() != want {
		t.Errorf("got %v, want %s", r.Err, want)
	}
	items, nodes := s.Items("phases")
	if len(items) != 2 || len(nodes) != 2 || items[1].PathOf("n") != "phases[].n" || nodes[1].Column != 18 || s.PathOf("n") != "n" {
		t.Errorf("got %v and %v", items, nodes)
	}
	items[1].Read(Key{Name: "n", Into: &n})
	if n != 2 {
		t.Errorf("got %d", n)
	}
	if none := s.Sub("none"); none.Has("x") || none.Value("x") != nil || none.Others() != nil {
		t.Error("a null section has no keys")
	}
	if items, nodes := s.Items("none"); items != nil || nodes != nil {
		t.Error("a null list has no items")
	}
	for text, want := range map[string]string{
		"vllm: 3\n":   `run.yaml:1:7: vllm: got "3", want a mapping`,
		"phases: 3\n": `run.yaml:1:9: phases: got "3", want a list`,
		"[1]":         "run.yaml:1:1: run.yaml: got a list, want a mapping",
	} {
		r, s := sectionOf(t, text)
		s.Sub("vllm")
		s.Items("phases")
		if r.Err == nil || r.Err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, r.Err, want)
		}
	}
}

// TestDecodeYAMLNode: an unknown key in a map of structs and a fraction for a whole number are errors with their
// place; what is decoded elsewhere goes through.
func TestDecodeYAMLNode(t *testing.T) {
	type item struct {
		N    int      `yaml:"n"`
		Big  int64    `yaml:"big"`
		X    float64  `yaml:"x"`
		Deep []*int64 `yaml:"deep"`
	}
	for _, c := range []struct{ text, want string }{
		{"a: {n: 1, x: 1.5}\nb: {deep: [1, 2.0]}", ""},
		{"a: {n: 1}\nb: {m: 1}", `:2:5: unknown key "m"`},
		{"a: {n: 1.5}", ":1:8: got 1.5, want a whole number"},
		{"a: {big: 1e-1}", ":1:10: got 1e-1, want a whole number"},
		{"a: {deep: [1, 2.5]}", ":1:15: got 2.5, want a whole number"},
	} {
		root, err := ParseYAML([]byte(c.text), "")
		if err != nil {
			t.Fatal(err)
		}
		into := map[string]item{}
		err = DecodeYAMLNode(root, &into)
		if c.want == "" && (err != nil || into["a"].N != 1 || into["a"].X != 1.5 || *into["b"].Deep[1] != 2) ||
			c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want[1:])) {
			t.Errorf("%s: got %+v and %v, want %s", c.text, into, err, c.want)
		}
	}
	one := Embedded[item]([]byte("n: 3"), "e.yaml")
	if first, second := one(), one(); first.N != 3 || first != second {
		t.Error("an embedded document is decoded once")
	}
	defer func() {
		if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "e.yaml: ") {
			t.Errorf("got %v", r)
		}
	}()
	Embedded[item]([]byte("m: 3"), "e.yaml")()
}

// TestDecimal: numbers without leading zeros, underscores or a prefix.
func TestDecimal(t *testing.T) {
	for text, want := range map[string]bool{"0": true, "10": true, "-1.5": true, "01": false, "1_0": false, "0x1": false, "": false, "x": false} {
		if got := IsDecimal(text); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
	if IsNull(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}) || !IsNull(nil) || !IsNull(&yaml.Node{}) {
		t.Error("a text is not null, an empty node is")
	}
}

// TestNearest: a legal word that shares the last parts, one that the word begins, then the nearest within a third of
// the word's length, an exchange counting one.
func TestNearest(t *testing.T) {
	for _, c := range []struct {
		word  string
		legal []string
		want  string
	}{
		{"rate", []string{"rats", "request-rate"}, "request-rate"}, {"request-rate", []string{"rate"}, "rate"}, {"te", []string{"x-te"}, ""},
		{"timeout", []string{"timeouts", "timeout_s"}, "timeout_s"}, {"timeout", []string{"timeout-s"}, "timeout-s"}, {"ti", []string{"ti_s"}, ""},
		{"modle", []string{"model"}, "model"}, {"modxy", []string{"model"}, ""}, {"modelxy", []string{"model"}, "model"}, {"abcxyz", []string{"abc"}, ""},
		{"tp", []string{"dp"}, ""}, {"tpp", []string{"tp", "dpp"}, "tp"}, {"ab", []string{"ba"}, ""}, {"abc", []string{"bac"}, "bac"}, {"abc", []string{"acb"}, "acb"},
		{"concurency", []string{"concurrency"}, "concurrency"}, {"prefil", []string{"prefill_tokens"}, "prefill_tokens"},
		{"prefi", []string{"prefill_tokens"}, ""}, {"trpefi", []string{"prefill_tokens"}, ""}, {"nothing", nil, ""},
		{strings.Repeat("a", 101), []string{strings.Repeat("a", 100)}, ""}, {strings.Repeat("a", 99), []string{strings.Repeat("a", 100)}, strings.Repeat("a", 100)},
	} {
		if got := Nearest(c.word, c.legal); got != c.want {
			t.Errorf("%s among %q: got %q, want %q", c.word, c.legal, got, c.want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"kitten", "sitting", 3}, {"", "abc", 3}, {"abc", "", 3}, {"ab", "ba", 1}, {"abcd", "acbd", 1}, {"ca", "abc", 3}, {"same", "same", 0}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
