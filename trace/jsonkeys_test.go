package trace

import (
	"strings"
	"testing"
)

// TestCheckObjects: a text of two bytes an object is refused, one of documents' density is not.
func TestCheckObjects(t *testing.T) {
	for _, c := range []struct {
		name, text string
		refused    bool
	}{
		{"few", strings.Repeat("{},", 10_000), false},
		{"empty", strings.Repeat("{},", 10_001), true},
		{"dense", strings.Repeat(`{"name":"a","value":1},`, 100_000), true},
		{"a document", strings.Repeat(`{"name":"queueing_us","value":1.25},`, 100_000), false},
	} {
		if err := CheckObjects([]byte(c.text)); (err != nil) != c.refused {
			t.Errorf("%s: got %v, want refused %v", c.name, err, c.refused)
		}
	}
}
