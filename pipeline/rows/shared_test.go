package rows

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// shared is the folder of the data catalogue beside the repository; the test
// is skipped where it is absent.
func shared(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
	path := filepath.Join(dir, "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: %v", path, err)
	}
	return path
}

// loaded is one extracted run.
type loaded struct {
	run *trace.Run
	dep *deploy.Deployment
}

// extracted runs the extract stage over a set and reads its tables.
func extracted(t testing.TB, set string) []loaded {
	t.Helper()
	dirs, err := extract.Discover([]string{shared(t, set)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	if _, err := extract.Run(context.Background(), dirs, o); err != nil {
		t.Fatal(err)
	}
	var out []loaded
	for i := range dirs {
		run, err := table.Read(table.RunDir(o.Out, dirs[i].ID))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, loaded{run, dirs[i].Deployment})
	}
	return out
}

// TestIssue5Batches: on every recorded run the batches rebuilt from journeys,
// summaries and first snapshots equal the snapshots of complete steps, and at
// least 95 % of the steps of runs without preemption are known from them.
func TestIssue5Batches(t *testing.T) {
	for _, set := range []string{"real_vllm_cpu", "composed", "smoke", "smoke60"} {
		for _, l := range extracted(t, set) {
			s := mustRebuild(t, l.run, l.dep, features.V11)
			q := s.Quality
			share := float64(q.FromJourneys) / float64(q.Recorded)
			fmt.Printf("batches: %-40s %5d steps, %6.2f %% known from journeys and summaries, %5d compared with snapshots, %d wrong, %d contradictions, %d of %d unrecorded rebuilt\n",
				l.run.ID, q.Recorded, 100*share, q.CrossChecked, q.CrossWrong, q.Contradictions, q.Rebuilt, q.Unrecorded)
			if q.CrossWrong > 0 {
				t.Errorf("%s: steps %v differ from their snapshots", l.run.ID, s.Wrong)
			}
			if len(l.run.Snapshots) > 0 && !hasPreemption(l.run) && share < 0.95 {
				t.Errorf("%s: %.1f %% of the steps are known, want 95: %v", l.run.ID, 100*share, q.Reasons)
			}
			checkTokens(t, s)
			checkBounds(t, l.run)
		}
	}
}

func hasPreemption(run *trace.Run) bool {
	for i := range run.Requests {
		if run.Requests[i].Preemptions.Or(0) > 0 {
			return true
		}
	}
	return false
}

// checkTokens are 03 F4's invariants: a step holds at most the token budget,
// and the decodes of a request whose life is known are its output tokens but
// one, its chunks the uncached prompt.
func checkTokens(t *testing.T, s *Steps) {
	t.Helper()
	for k := range s.All {
		if st := &s.All[k]; st.Tag == TagJourney && st.In.ScheduledTokens > float64(s.Dep.Engine.MaxNumBatchedTokens) {
			t.Errorf("%s step %d: %g tokens exceed the budget %d", s.Run.ID, st.ID, st.In.ScheduledTokens, s.Dep.Engine.MaxNumBatchedTokens)
		}
	}
	for i := range s.plan.lives {
		l := &s.plan.lives[i]
		if l.chunks == nil || l.guess {
			continue
		}
		var n int64
		for _, c := range l.chunks {
			n += c
		}
		if n != l.prompt-l.cached {
			t.Errorf("%s %s: chunks %v, want %d tokens", s.Run.ID, l.id, l.chunks, l.prompt-l.cached)
		}
	}
}

// checkBounds: the overhead columns of the tables are those the rows use.
func checkBounds(t *testing.T, run *trace.Run) {
	t.Helper()
	for _, complete := range []bool{true, false} {
		same := true
		for i, b := range trace.Overheads(run, complete) {
			r := &run.Requests[i]
			if r.OverheadHiUs.OK != b.OK || b.OK && (r.OverheadLoUs.V != b.LoUs || r.OverheadHiUs.V != b.HiUs || r.OverheadExact.V != b.Exact) {
				same = false
			}
		}
		if same {
			return
		}
	}
	t.Errorf("%s: the overhead columns differ from trace.Overheads", run.ID)
}
