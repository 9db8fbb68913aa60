package files

import (
	"strings"
	"testing"
)

// TestYAMLIsBounded: a text that would take far more memory than its size is refused before it is parsed.
func TestYAMLIsBounded(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"many values", "x: [" + strings.Repeat("a,", 2_000_000) + "a]", "keys and values"},
		{"many lines", strings.Repeat("- a\n", 1_100_000), "keys and values"},
		{"a long text", "x: " + strings.Repeat("a", MaxYAML), "MiB of YAML"},
		{"a coefficient file of a thousand runs", strings.Repeat("# text of a comment that is long\n", 100_000) + "x: 1", ""},
	} {
		_, err := ParseYAML([]byte(c.text), "a.yaml")
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}
