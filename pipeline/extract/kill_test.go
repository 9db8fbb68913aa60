package extract

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace/table"
)

// realRuns is the folder of the bundled real runs; of all, with slow evaluations.
func realRuns(t *testing.T) string {
	if repo.Eval() {
		return repo.Shared(t, "data", "real_vllm_cpu")
	}
	return filepath.Join(repo.Root(t), "testdata", "traces", "real")
}

// killedExtraction is the child: it extracts until it is killed or done.
func killedExtraction(t *testing.T, out string) {
	runs, err := Discover([]string{realRuns(t)}, []string{"cpu-gqa-*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out, o.Memory = out, 1<<16
	if _, err := Run(context.Background(), runs, o); err != nil {
		t.Fatal(err)
	}
}

func testKills(t *testing.T, kills int) {
	out := filepath.Join(t.TempDir(), "out")
	start := time.Now()
	child(out).Run() // how long it takes undisturbed
	took := time.Since(start)
	for i := range kills {
		os.RemoveAll(filepath.Join(out, tablesDir))
		os.Remove(filepath.Join(out, cacheName))
		cmd := child(out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(took * time.Duration(i+1) / time.Duration(kills+1))
		cmd.Process.Kill()
		cmd.Wait()
		noHalfFiles(t, out)
	}
	if b, err := child(out).CombinedOutput(); err != nil {
		t.Fatalf("rerun: %v\n%s", err, b)
	}
	if _, err := readAll(out); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(out, tablesDir, stagePrefix+"*"))
	if len(left) != 0 {
		t.Errorf("the rerun left %v", left)
	}
	fmt.Printf("killed %d times, no half file, rerun succeeded\n", kills)
}

func child(out string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=TestKilledExtraction")
	cmd.Env = append(os.Environ(), "EXTRACT_KILL_OUT="+out)
	return cmd
}

// noHalfFiles checks that whatever has a final name can be read whole.
func noHalfFiles(t *testing.T, out string) {
	t.Helper()
	dirs, _ := filepath.Glob(filepath.Join(out, tablesDir, "run=*"))
	for _, dir := range dirs {
		run, err := table.Read(dir)
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if len(run.Requests) == 0 || len(run.Steps) == 0 || len(run.Snapshots) == 0 {
			t.Errorf("%s is incomplete", dir)
		}
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if strings.HasPrefix(f.Name(), ".") && f.Name() != manifestName {
				t.Errorf("%s holds the temporary file %s", dir, f.Name())
			}
		}
	}
}

// TestCancelledExtractionLeavesNothing: an interrupt ends the extraction with an error and
// nothing left behind.
func TestCancelledExtractionLeavesNothing(t *testing.T) {
	runs, err := Discover([]string{repo.Shared(t, "data", "smoke")}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = filepath.Join(t.TempDir(), "out")
	if err := os.MkdirAll(filepath.Join(o.Out, tablesDir, stagePrefix+"x"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.Progress = func(string, int64, int64, string) { cancel() }
	if _, err := Run(ctx, runs, o); err == nil {
		t.Error("a cancelled extraction succeeded")
	}
	left, _ := filepath.Glob(filepath.Join(o.Out, tablesDir, "*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
