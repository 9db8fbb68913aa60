package main

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func queueRun(t *testing.T, args ...string) *autoscale.Queue {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	var stderr strings.Builder
	if code := run(append(append([]string{"blis-train", "queue"}, args...), "-o", out, "-q"), strings.NewReader(""), io.Discard,
		&stderr); code != exitOK {
		t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
	}
	data := repo.Read(t, out, folder.QueueFile)
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "docs", "schema", "queue.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	q := &autoscale.Queue{}
	if err := json.Unmarshal(data, q); err != nil {
		t.Fatal(err)
	}
	return q
}

// TestQueueOfBundledRuns: a recording gives physical parameters above the hardware's floor,
// every window is accounted for, and the document follows its schema.
func TestQueueOfBundledRuns(t *testing.T) {
	tables := filepath.Join(t.TempDir(), "tables")
	var stderr strings.Builder
	if code := run([]string{"blis-train", "extract", filepath.Join("..", "..", "testdata", "traces", "real"), "-o", tables, "-q"},
		strings.NewReader(""), io.Discard, &stderr); code != exitOK {
		t.Fatal(stderr.String())
	}
	q := queueRun(t, "fit", tables, "--track", "--window", "20s", "--min-requests", "10")
	for i := range q.Servers {
		s := &q.Servers[i]
		n := s.Windows.Kept
		for _, d := range s.Windows.Dropped {
			n += d
		}
		if n != s.Windows.Read {
			t.Errorf("%s: %d windows read, %d accounted for", s.ID, s.Windows.Read, n)
		}
		if s.Reason == "" && (len(s.Physical) != 3 || len(s.Effective) != 3 || len(s.Tracks) != 4) {
			t.Errorf("%s: %d physical and %d effective parameters, %d tuners", s.ID, len(s.Physical), len(s.Effective), len(s.Tracks))
		}
		for _, p := range s.Physical {
			if p.Utilisation == nil || !(*p.Utilisation > 0 && *p.Utilisation <= 1) {
				t.Errorf("%s: %s is %g, at a utilisation of %v", s.ID, p.Name, p.Value, p.Utilisation)
			}
		}
	}
}

// TestEvalQueueRealRuns prints the calibration of every recording under ../shared, and on
// simulated and real windows what the batch fit is worth beside the tuners.
func TestEvalQueueRealRuns(t *testing.T) {
	repo.NeedEval(t)
	shared := repo.Shared(t, "data", "real_vllm_cpu")
	tables := filepath.Join(t.TempDir(), "tables")
	var stderr strings.Builder
	if code := run([]string{"blis-train", "extract", shared, "-o", tables, "-q"}, strings.NewReader(""), io.Discard, &stderr); code != exitOK {
		t.Fatal(stderr.String())
	}
	q := queueRun(t, "fit", tables, "--track", "--window", "20s", "--min-requests", "10")
	for i := range q.Servers {
		s := &q.Servers[i]
		if s.Reason != "" {
			t.Logf("%s: %s", s.ID, s.Reason)
			continue
		}
		if len(s.Physical) == 0 || len(s.Effective) == 0 {
			t.Errorf("%s: no parameters", s.ID)
		}
		for _, x := range s.Scores {
			if x.TTFTWape != nil {
				t.Logf("%s %s on %s (%d windows): WAPE TTFT %.1f %%, ITL %.1f %%", s.ID, x.Estimator, x.Set, x.Windows, 100**x.TTFTWape, 100**x.ITLWape)
			}
		}
	}
}
