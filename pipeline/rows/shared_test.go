package rows

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit/recordings"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// TestIssue5Batches: on every recorded run the batches rebuilt from journeys,
// summaries and first snapshots equal the snapshots of complete steps, and at
// least 95 % of the steps of runs without preemption are known from them.
func TestIssue5Batches(t *testing.T) { batchesOfSharedRuns(t) }

// TestEvalIssue5Batches: the same of all runs.
func TestEvalIssue5Batches(t *testing.T) {
	repo.NeedEval(t)
	batchesOfSharedRuns(t)
}

func batchesOfSharedRuns(t *testing.T) {
	t.Helper()
	for _, set := range repo.Sets(recordings.RealSet, "composed", "smoke", "smoke60") {
		for _, l := range recordings.Shared(t, set) {
			s := mustRebuild(t, l.Run, l.Deployment, features.V11)
			q := s.Quality
			share := float64(q.FromJourneys) / float64(q.Recorded)
			fmt.Printf("batches: %-40s %5d steps, %6.2f %% known from journeys and summaries, %5d compared with snapshots, %d wrong, %d "+
				"contradictions, %d of %d unrecorded rebuilt\n",
				l.Run.ID, q.Recorded, 100*share, s.crossChecked, len(s.crossWrong), q.Contradictions, q.Rebuilt, q.Unrecorded)
			if len(s.crossWrong) > 0 {
				t.Errorf("%s: steps %v differ from their snapshots", l.Run.ID, s.crossWrong)
			}
			if len(l.Run.Snapshots) > 0 && !hasPreemption(l.Run) && share < 0.95 {
				t.Errorf("%s: %.1f %% of the steps are known, want 95: %v", l.Run.ID, 100*share, q)
			}
			checkTokens(t, s)
			checkBounds(t, l.Run)
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

// checkTokens are invariants of vLLM's scheduler: a step holds at most the token budget,
// and the decodes of a request whose life is known are its output tokens but
// one, its chunks the uncached prompt.
func checkTokens(t *testing.T, s *Steps) {
	t.Helper()
	for _, st := range s.copies() {
		if st.Tag == TagJourney && st.In.ScheduledTokens > float64(s.Dep.Engine.MaxNumBatchedTokens) {
			t.Errorf("%s step %d: %g tokens exceed the budget %d", s.Run.ID, st.ID, st.In.ScheduledTokens, s.Dep.Engine.MaxNumBatchedTokens)
		}
	}
	left := map[string]int64{} // prompt tokens that known chunks leave to compute, by core id
	walk := s.batches.Walk()
	for _, st := range s.copies() {
		for _, m := range walk.AppendMembers(nil, st.ID) {
			if m.Computed >= m.Prompt {
				continue // a decode
			}
			if _, known := left[m.CoreID]; !known {
				left[m.CoreID] = m.Prompt - m.Computed
			}
			left[m.CoreID] -= m.New
		}
	}
	for i := range s.Run.Requests {
		r := &s.Run.Requests[i]
		if n := left[r.CoreID.V]; n != 0 && r.FirstTokenStep.OK {
			t.Errorf("%s %s: the chunks miss the uncached prompt by %d tokens", s.Run.ID, r.CoreID.V, n)
		}
	}
}

// overheads bounds the overhead of every request of the run, in order.
func overheads(r *trace.Run, complete bool) []trace.OverheadBound {
	return trace.BoundOverheads(len(r.Requests), func(i int) trace.OverheadStamps { return r.Requests[i].Stamps() },
		func(yield func(trace.StepMark) bool) {
			for i := range r.Steps {
				if !yield(r.Steps[i].Mark()) {
					return
				}
			}
		}, complete)
}

// checkBounds: the overhead columns of the tables are those the rows use.
func checkBounds(t *testing.T, run *trace.Run) {
	t.Helper()
	for _, complete := range []bool{true, false} {
		same := true
		for i, b := range overheads(run, complete) {
			r := &run.Requests[i]
			if r.OverheadHiUs.OK != b.OK || b.OK && (r.OverheadLoUs.V != b.LoUs || r.OverheadHiUs.V != b.HiUs || r.OverheadExact.V != b.Exact) {
				same = false
			}
		}
		if same {
			return
		}
	}
	t.Errorf("%s: the overhead columns differ from those of its requests", run.ID)
}

func overheadOf(t *testing.T, l recordings.Run) *Table {
	t.Helper()
	s := mustRebuild(t, l.Run, l.Deployment, features.V11)
	table, err := s.Alpha(testSpace(t, l.Deployment, features.V11), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestOverheadOfRealRuns: one constant lies in nearly all intervals of the
// open-loop phase of each synchronous real run (data/real_vllm_cpu: 94 to 100 %).
func TestOverheadOfRealRuns(t *testing.T) { overheadOfRealRuns(t) }

// TestEvalOverheadOfRealRuns: the same of all runs.
func TestEvalOverheadOfRealRuns(t *testing.T) {
	repo.NeedEval(t)
	overheadOfRealRuns(t)
}

func overheadOfRealRuns(t *testing.T) {
	t.Helper()
	for _, l := range recordings.Shared(t, recordings.RealSet) {
		table := overheadOf(t, l)
		open := table.Select(func(i int) bool {
			return !table.Exact[i] && table.Phase[i] >= 0 && l.Deployment.Phases[table.Phase[i]].Load == deploy.LoadOpen
		})
		at, share := bestConstant(open)
		fmt.Printf("overhead: %-20s async %-5t %4d open-loop intervals, %.0f us lies in %5.1f %% of them; %d exact rows in all\n",
			l.Run.ID, l.Deployment.Engine.IsAsync(), open.Kept, at, 100*share, count(table.Exact))
		if !l.Deployment.Engine.IsAsync() && share < 0.94 {
			t.Errorf("%s: the best constant holds in %.1f %% of the intervals", l.Run.ID, 100*share)
		}
	}
}

// bestConstant is the value that lies in the most intervals, and their share.
func bestConstant(t *Table) (at, share float64) {
	for _, x := range t.Lo { // the best value is the lower end of some interval
		n := 0
		for i := range t.Lo {
			if t.Lo[i] <= x && x <= t.Hi[i] {
				n++
			}
		}
		if s := float64(n) / float64(t.Kept); s > share {
			at, share = x, s
		}
	}
	return at, share
}

func count(v []bool) (n int) {
	for _, b := range v {
		if b {
			n++
		}
	}
	return n
}

// TestEvalOverheadOfComposedRuns: exact rows are the emulation's overhead,
// 0.30 ms + 0.40 ms per 1000 prompt tokens + 0.008 ms per concurrent request of
// the load stage, lognormal with cv 0.25, and intervals hold it
// (data/composed/README.md). Stages in which the server idles have few
// concurrent requests: 1 to 20 here.
func TestEvalOverheadOfComposedRuns(t *testing.T) {
	repo.NeedEval(t)
	var ratios []float64
	inside, intervals := 0, 0
	for _, l := range recordings.Shared(t, "composed") {
		table := overheadOf(t, l)
		for i := range table.Kept {
			least := 300 + 0.4*table.Context[i] + 8
			if table.Exact[i] {
				ratios = append(ratios, table.Y[i]/least)
				continue
			}
			intervals++
			if table.Lo[i] <= 2*(least+8*128) && table.Hi[i] >= min(3000, least)/2 { // 2.8 sigma
				inside++
			}
		}
	}
	slices.Sort(ratios)
	n := len(ratios)
	if n < 40 {
		t.Fatalf("%d exact rows", n)
	}
	median := stat.Median(ratios)
	p5 := ratios[n/20]
	p95 := ratios[n-1-n/20]
	share := float64(inside) / float64(intervals)
	fmt.Printf("overhead: composed: %d exact rows, ratio to the emulation at concurrency 1: median %.2f, 5 %% %.2f, 95 %% %.2f; %.1f %% "+
		"of %d intervals meet it\n",
		n, median, p5, p95, 100*share, intervals)
	if median < 1 || median > 1.35 || p5 < 0.6 || p95 > 2 {
		t.Errorf("median %.2f, 5 %% %.2f, 95 %% %.2f", median, p5, p95)
	}
	if share < 0.97 {
		t.Errorf("%.1f %% of the intervals meet the emulation", 100*share)
	}
}

// TestRowsOfSharedRuns: read = kept + dropped, no row below the physical
// floor's order, and evidence for the lag where a run holds prefill.
func TestRowsOfSharedRuns(t *testing.T) { rowsOfSharedRuns(t) }

// TestEvalRowsOfSharedRuns: the same of all runs.
func TestEvalRowsOfSharedRuns(t *testing.T) {
	repo.NeedEval(t)
	rowsOfSharedRuns(t)
}

func rowsOfSharedRuns(t *testing.T) {
	t.Helper()
	for _, set := range repo.Sets(recordings.RealSet, "composed") {
		for _, l := range recordings.Shared(t, set) {
			s := mustRebuild(t, l.Run, l.Deployment, features.V11)
			sp := testSpace(t, l.Deployment, features.V11)
			lag := AssumedLag(l.Run, l.Deployment)
			table, err := s.Beta(sp, Options{Lag: lag})
			if err != nil {
				t.Fatal(err)
			}
			findings := Clean([]*Table{table}, Relative)
			e, err := s.LagEvidence(context.Background(), sp, Options{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			a := s.Audit(sp)
			fmt.Printf("rows: %-24s read %d = kept %d + dropped %v; lag evidence %d; cadence %.1f ms, duration %.2f ms, floor %.1f ms\n",
				l.Run.ID, table.Read, table.Kept, table.Dropped, e.N(), *a.CadenceUsP50/1000, *a.DurationUsP50/1000, *a.PhysicalFloorUs/1000)
			if a.BelowFloor() {
				t.Errorf("%s: %s", l.Run.ID, a.Verdict)
			}
			if table.Read != len(l.Run.Steps) || count(table.HoldOut) == 0 {
				t.Errorf("%s: read %d of %d steps, %d hold-out rows", l.Run.ID, table.Read, len(l.Run.Steps), count(table.HoldOut))
			}
			for _, f := range findings {
				t.Errorf("%s: %v", l.Run.ID, f)
			}
		}
	}
}
