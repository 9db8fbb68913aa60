package predictor

import (
	"context"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// decisionRecorded is one run of a shared set.
type decisionRecorded struct {
	run        *trace.Run
	deployment *deploy.Deployment
}

var sets = map[string][]decisionRecorded{} // read once

// extracted are the runs of a shared set; the test is skipped without it.
func extracted(t *testing.T, set string) []decisionRecorded {
	t.Helper()
	if sets[set] != nil {
		return sets[set]
	}
	dirs, err := extract.Discover([]string{repo.Shared(t, "data", set)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	ext, err := extract.Run(context.Background(), dirs, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ext.Runs {
		run, err := table.Read(table.RunDir(o.Out, ext.Runs[i].ID))
		if err != nil {
			t.Fatal(err)
		}
		sets[set] = append(sets[set], decisionRecorded{run, ext.Runs[i].Deployment})
	}
	return sets[set]
}

// On every real and composed run rows and drops add up to the requests, and where
// every step is recorded the two sources of state agree on at least 99 % of the
// rows of a set. What differs falls between a pick-up or a finish and the next
// schedule(), or inside schedule().
func TestSharedRuns(t *testing.T) {
	for _, c := range []struct {
		set, score string
		least      int // rows
	}{
		{"real_vllm_cpu", prefixIndex, 4000}, {"real_stock_otlp", prefixIndex, 677}, {"real_requests_llmservingsim", prefixIndex, 600},
		{"composed", prefixActual, 5700}, // with slow evaluations
	} {
		if c.set == "composed" && !repo.Eval() {
			continue
		}
		var all stateAgreement
		rows := 0
		for _, x := range extracted(t, c.set) {
			run, o := x.run, DefaultOptions()
			o.PrefixScore = c.score
			if c.set == "real_stock_otlp" || c.set == "real_requests_llmservingsim" {
				o.Shared = []string{"*prefill*=1024", "*=0"}
			}
			r, err := Build(source{Run: run, Deployment: x.deployment}, o)
			if err != nil {
				t.Fatal(err)
			}
			sum := len(r.Rows)
			for _, n := range r.Dropped {
				sum += n
			}
			if sum != r.Requests || r.Requests != max(len(run.Requests), len(run.Observed)) && len(run.Requests) == 0 {
				t.Errorf("%s: %d rows and %v, want %d in all", run.ID, len(r.Rows), r.Dropped, r.Requests)
			}
			a := r.Agreement
			t.Logf("%-30s %4d rows of %4d, dropped %v; step and journey state agree on %d of %d (between steps %d, inside schedule() %d, other %d)",
				run.ID, len(r.Rows), r.Requests, r.Dropped, a.Equal, a.Rows, a.Between, a.Inside, a.Other)
			rows += len(r.Rows)
			all.Rows, all.Equal, all.Other = all.Rows+a.Rows, all.Equal+a.Equal, all.Other+a.Other
		}
		t.Logf("%s: %d rows, agreement %d of %d", c.set, rows, all.Equal, all.Rows)
		if rows < c.least || float64(all.Equal) < 0.99*float64(all.Rows) || all.Other > 0 {
			t.Errorf("%s: got %d rows, %d of %d agree, %d unexplained; want at least %d, 99 %%, 0", c.set, rows, all.Equal, all.Rows, all.Other,
				c.least)
		}
	}
}

// KV usage rebuilt from journeys stays within 0.012 of what steps recorded, on
// average over the rows of a run, preempting and prefix-sharing runs included.
func TestRebuiltKVUsage(t *testing.T) {
	for _, set := range repo.Sets("real_vllm_cpu", "composed") {
		for _, x := range extracted(t, set) {
			run, o := x.run, DefaultOptions()
			o.PrefixScore = prefixActual
			recorded, err := Build(source{Run: run, Deployment: x.deployment}, o)
			if err != nil {
				t.Fatal(err)
			}
			b := newBuilder(source{Run: run, Deployment: x.deployment}, o)
			if !b.steps.complete || len(recorded.Rows) == 0 {
				continue
			}
			b.scores()
			b.steps.complete = false // as if some were missing
			b.sweep()
			byID := map[string]float64{}
			for _, r := range b.out.Rows {
				byID[r.RequestID] = r.KVCachePercentage
			}
			off := 0.0
			for _, r := range recorded.Rows {
				off += max(r.KVCachePercentage-byID[r.RequestID], byID[r.RequestID]-r.KVCachePercentage) / float64(len(recorded.Rows))
			}
			if len(b.out.Rows) != len(recorded.Rows) || off > 0.012 {
				t.Errorf("%s: got a mean difference of %.4f on %d rows, want at most 0.012 on %d", run.ID, off, len(b.out.Rows), len(recorded.Rows))
			}
		}
	}
}
