package files

import (
	"strings"
	"testing"
)

func TestShortName(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for _, c := range []struct{ name, want string }{
		{"", ""},
		{"smoke", "smoke"},
		{long[:100], long[:100]},
		{strings.Repeat("é", 51), strings.Repeat("é", 50) + "-104aa9a8"},
	} {
		if got := ShortName(c.name); got != c.want {
			t.Errorf("%q: got %q, want %q", c.name, got, c.want)
		}
	}
	a, b := ShortName(long), ShortName(long+"y")
	if a == b || len(a) != 109 || a[:100] != long[:100] {
		t.Errorf("got %q and %q, want two names of 109 bytes that begin alike", a, b)
	}
}

func TestIsName(t *testing.T) {
	for _, name := range []string{"0.15.1", "a b", ".hidden", "日本", "console", "com10", "-x", "~", "$HOME"} {
		if !IsName(name) {
			t.Errorf("%q: got false, want true", name)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "/a", `a\b`, "a\x00b", "a\nb", " ", "a.", "a ", "CON", "nul.txt", "com1", "LPT9.x", "a:b", "*", strings.Repeat("x", 101)} {
		if IsName(name) {
			t.Errorf("%q: got true, want false", name)
		}
	}
}
