package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"gopkg.in/yaml.v3"
)

// ownKeys is a type that reads its own keys.
type ownKeys struct{ text string }

// UnmarshalYAML keeps the text of the node's first value.
func (o *ownKeys) UnmarshalYAML(n *yaml.Node) error {
	o.text = n.Content[1].Value
	return nil
}

// TestNumbersOfADocument: what is no decimal, no finite or no whole number is an error with its place and a hint; a type that
// reads its own keys is left to it.
func TestNumbersOfADocument(t *testing.T) {
	type document struct {
		N     int     `yaml:"n"`
		Big   int64   `yaml:"big"`
		X     float64 `yaml:"x"`
		List  []int   `yaml:"list"`
		Items map[string]struct {
			N *int `yaml:"n"`
		} `yaml:"items"`
		Own ownKeys `yaml:"own"`
	}
	const decimal, finite, whole = ", want a decimal number", ", want a finite number", ", want a whole number"
	for _, c := range []struct{ text, want string }{
		{"n: 3\nbig: 4.0\nx: 1.5\nlist: [1, 2.0]\nitems: {a: {n: 5}}\nown: {anything: 1.5}\n", ""}, {"x: '010'", "decode"}, {"n: !!int 010", ""},
		{"n: 010", "f:1:4: got 010" + decimal}, {"x: 0x10", "f:1:4: got 0x10" + decimal}, {"n: 1_000", "f:1:4: got 1_000" + decimal}, {"a: [1, 0b1]", "f:1:8: got 0b1" + decimal},
		{"x: .inf", "f:1:4: got .inf" + finite}, {"x: -.Inf", "f:1:4: got -.Inf" + finite}, {"a: {b: .nan}", "f:1:8: got .nan" + finite},
		{"n: 1.5", "f:1:4: got 1.5" + whole}, {"big: 0.1", "f:1:6: got 0.1" + whole}, {"list: [1, 2.5]", "f:1:11: got 2.5" + whole}, {"items: {a: {n: 1.5}}", "f:1:16: got 1.5" + whole},
	} {
		var doc document
		err := DecodeYAML([]byte(c.text), "f", &doc)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want && !(c.want == "decode" && err != nil && !strings.Contains(got, "decimal")) {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
		if c.text[:2] == "n:" && c.want == "" && len(doc.List) > 0 && (doc.N != 3 || doc.Big != 4 || doc.List[1] != 2 || *doc.Items["a"].N != 5 || doc.Own.text != "1.5") {
			t.Errorf("got %+v", doc)
		}
	}
	if err := DecodeYAML([]byte("a: &x {b: &y [*y]}"), "f", &document{}); err == nil || !strings.HasPrefix(err.Error(), "f:1:") {
		t.Errorf("got %v", err)
	}
	if got := kindName(&yaml.Node{}); got != "nothing" {
		t.Errorf("got %s", got)
	}
	defer func() {
		if got := recover(); got != "files: key a goes into a *[]int" {
			t.Errorf("got %v", got)
		}
	}()
	_, s := sectionOf(t, "a: 1\n")
	s.Read(Key{Name: "a", Into: &[]int{}})
}

// TestSizesOfTexts: the largest text of YAML and the most parts of one are read, one more is refused.
func TestSizesOfTexts(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{strings.Repeat("x", MaxYAML), ""}, {strings.Repeat("x", MaxYAML+1), "f: got 16 MiB of YAML, want at most 16"}, {strings.Repeat("[", 1_500_000), ""}, {strings.Repeat("-", 1_500_000) + "?", "f: got YAML with some "},
	} {
		if err := checkSize([]byte(c.text), "f"); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%d bytes: got %v, want %q", len(c.text), err, c.want)
		}
	}
}

// TestReadersThatFail: the name in the error of a reader that fails, and the largest number of bytes.
func TestReadersThatFail(t *testing.T) {
	failed := errors.New("x")
	if _, err := ReadBounded(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(failed)), "in", 9); !errors.Is(err, failed) || err.Error() != "read in: x" {
		t.Errorf("got %v", err)
	}
	if got, err := ReadBounded(strings.NewReader("abc"), "in", 3); err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ReadBounded(strings.NewReader("abc"), "in", 2); err == nil || err.Error() != "file_too_large: in: got more than 0 MiB, want less" {
		t.Errorf("got %v", err)
	}
	if _, _, err := Hash(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, sum, err := Hash(path); n != 3 || sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || err != nil { // FIPS 180-2
		t.Errorf("got %d, %s, %v", n, sum, err)
	}
	// A file that is replaced keeps its permissions; what is given up leaves nothing.
	p, err := Begin(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("xyz")); err != nil {
		t.Fatal(err)
	}
	p.Abort()
	p.Abort()
	if got, err := os.ReadFile(path); err != nil || string(got) != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", st.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
	if _, err := Begin(filepath.Join(filepath.Dir(path), "none", "f")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]string{"a\x01b": `a\u0001b`, "a\xffb": `a\xffb`, "a\nb\tc": `a\nb\tc`} {
		if got := Line(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
