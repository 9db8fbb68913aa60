package coeff

import (
	"testing"

	"gopkg.in/yaml.v3"
)

// TestWithPoints: every exponent has a point before it, and only the text changes.
func TestWithPoints(t *testing.T) {
	in := []any{1e-7, 1e6 * 1e15, -2e-300, 6.5e-7, 0.25, 3, "1e-07"}
	var n yaml.Node
	if err := n.Encode(in); err != nil {
		t.Fatal(err)
	}
	layOutNode(&n)
	want := []string{"1.0e-07", "1.0e+21", "-2.0e-300", "6.5e-07", "0.25", "3", "1e-07"}
	for i, c := range n.Content {
		if c.Value != want[i] {
			t.Errorf("%v: got %s, want %s", in[i], c.Value, want[i])
		}
	}
	var back []any
	if err := n.Decode(&back); err != nil || back[0] != in[0] || back[2] != in[2] || back[6] != in[6] {
		t.Errorf("read back: got %v (%v), want %v", back, err, in)
	}
}
