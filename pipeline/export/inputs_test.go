package export

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/coeff"
)

// TestCheckInputs: a recorded input is verified, changed or absent, and a name that leaves the folder
// is not followed.
func TestCheckInputs(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) string {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	same := write(filepath.Join(dir, "run", "run.yaml"), "a: 1\n")
	outside := write(filepath.Join(parent, "outside"), "x")
	write(filepath.Join(dir, "run", "traces.jsonl"), "{}\n")
	got, found, err := CheckInputs([]coeff.Input{{Name: "run/run.yaml", SHA256: same}, {Name: "run/traces.jsonl", SHA256: same},
		{Name: "run/gone", SHA256: same}, {Name: "run", SHA256: same}, {Name: "../outside", SHA256: outside}}, dir)
	if err != nil || got != (Inputs{Verified: 1, Changed: 1, Absent: 3}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if len(found) != 1 || found[0].Code != inputChanged {
		t.Errorf("got %v", found)
	}
}
