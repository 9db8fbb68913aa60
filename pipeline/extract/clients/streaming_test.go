package clients

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestStreamingClient runs our own client against a stub server that states usage and metrics.
func TestStreamingClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	out, err := exec.Command(python, filepath.Join(repo.Root(t), "python", "tests", "streaming.py")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
