package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// largestBinary is what a stripped binary for linux/amd64 may weigh, in bytes.
const largestBinary = 31_000_000

// TestEvalSize builds the binary as a release does (.goreleaser.yaml): without build tags,
// stripped, stamped with its commit.
func TestEvalSize(t *testing.T) {
	repo.NeedEval(t)
	t.Chdir(repo.Root(t))
	name := filepath.Join(t.TempDir(), "blis-train")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.releaseCommit=abc", "-o", name, "./cmd/blis-train")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("stripped linux/amd64: %.2f MB", float64(st.Size())/1e6)
	if st.Size() >= largestBinary {
		t.Errorf("the binary weighs %d bytes, want below %d: see docs/decisions/0021-release.md", st.Size(), int64(largestBinary))
	}
	text, err := exec.Command(name, "--version").Output()
	if err != nil {
		t.Skipf("built, but it does not run on this machine: %v", err)
	}
	if !strings.Contains(string(text), "commit abc") {
		t.Errorf("--version: got %s, want the commit of -ldflags", text)
	}
}
