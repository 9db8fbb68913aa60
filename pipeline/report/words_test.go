package report

import (
	"testing"

	"github.com/blis-train/blis-train/pipeline/validate"
)

// TestGateWords: every gate the validation knows is said in plain words.
func TestGateWords(t *testing.T) {
	known := validate.Defaults()
	for _, g := range known {
		if m := Gates()[g.Name]; m.What == "" || m.Means == "" || m.Do == "" {
			t.Errorf("gate %s lacks words", g.Name)
		}
	}
	if len(words().Gates) != len(known) {
		t.Errorf("%d gates with words, %d gates", len(words().Gates), len(known))
	}
}
