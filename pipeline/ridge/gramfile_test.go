package ridge

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzReadGram: no panic, and what is read writes and reads back the same.
func FuzzReadGram(f *testing.F) {
	s := ThreeConfigs(41)
	cells, _, err := s.D.Subset(upTo(320)).Cut(s.O)
	if err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, File{Configs: []string{"a", "b"}, Runs: []string{"a", "b"}, Regimes: []string{"x", "y", "z"},
		Sets: cells}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"format":"blis-train gram 1","sets":[{"features":1,"cells":[{"wxy":[1],"wxx":[1]}]}],"configs":["a"],"runs":["a"],"regimes":["a"]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		file, err := Read(bytes.NewReader(in))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := Write(&first, file); err != nil {
			t.Fatal(err)
		}
		text := first.String()
		again, err := Read(&first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(&second, again); err != nil || second.String() != text {
			t.Fatalf("not the same after reading back (%v)", err)
		}
	})
}

func TestReadGramRefuses(t *testing.T) {
	good := `{"format":"blis-train gram 1","configs":["a"],"runs":["a"],"regimes":["a"],"sets":[{"features":1,"cells":[{"config":0,"wxy":[1],"wxx":[1]}]}]}`
	if _, err := Read(strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`gram 1`, `gram 2`, "format"},
		{`"wxx":[1]`, `"wxx":[1,2]`, "want 1 and 1"},
		{`"config":0`, `"config":3`, "labels"},
		{`"features":1`, `"features":0`, "sums"},
		{`"config":0`, `"colour":0`, "unknown field"},
	} {
		_, err := Read(strings.NewReader(strings.Replace(good, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s: got %v, want an error with %q", c.from, c.to, err, c.want)
		}
	}
}
