package arch

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow: the trees of all files stay until the end, and collecting around them was a fifth of
// what the tests cost.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
