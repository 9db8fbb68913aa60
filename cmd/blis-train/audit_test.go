package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/folder"
)

// TestAudit: numpy recomputes features, ridge, errors and distances of a run of the demo from
// its tables, and every number agrees to 1e-10.
func TestAudit(t *testing.T) {
	python := cmp.Or(os.Getenv("BLIS_TRAIN_NUMPY"), "python3")
	if said, err := exec.Command(python, "-c", "import numpy, pyarrow").CombinedOutput(); err != nil {
		t.Skipf("skipped: %s has no numpy and pyarrow (%v %.80s); BLIS_TRAIN_NUMPY names another", python, err, said)
	}
	audit(t, python, "../../testdata/traces/demo/a100-codellama-34b-tp2")
	audit(t, python, repo.Shared(t, "data", "composed", "a100-llama-3.1-8b-tp1")) // with outliers, six of them held out
}

// audit runs and simulates a recording of a synchronous engine, and lets numpy do it again.
func audit(t *testing.T, python, demo string) {
	t.Helper()
	dir := t.TempDir()
	out, sim, config := filepath.Join(dir, "out"), filepath.Join(dir, "sim"), filepath.Join(dir, "pipeline.yaml")
	must(t, os.WriteFile(config, []byte("fit: {spec: \"1.1\", prior: zero, bootstraps: 50}\n"), 0o644))
	command(t, -1, "run", demo, "--config", config, "-o", out, "--quiet")
	command(t, 0, "simulate", "--deployment", filepath.Join(demo, "run.yaml"), "--coefficients", filepath.Join(out, folder.CoefficientsFile),
		"--workload", demo, "-o", sim, "--quiet")
	said, err := exec.Command(python, "-B", filepath.Join(repo.Root(t), "python", "tests", "audit.py"), out, sim).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", python, err, said)
	}
	t.Log(strings.TrimSpace(string(said)))
}
