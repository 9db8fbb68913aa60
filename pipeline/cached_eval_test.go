package pipeline

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEvalCachedReplay: the replay of a log with shared prefixes, its cached tokens found from
// the passes, errs per phase within two points of the one that is given the server's own
// counts, and by at most a third of the one that ignores the cache; the same coefficients.
func TestEvalCachedReplay(t *testing.T) {
	repo.NeedEval(t)
	dir := repo.Shared(t, "data", "real_vllm_stock2", "prefix-growth")
	ctx := context.Background()
	o := DefaultExtractOptions()
	o.Out = t.TempDir()
	ext, err := Extract(ctx, []string{dir}, o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := FitTables(ctx, o.Out, ext, fit.DefaultOptions(), result.Header{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tables := table.RunDir(o.Out, ext.Runs[0].ID)
	run, err := table.Read(tables, table.ObservedRequests)
	if err != nil {
		t.Fatal(err)
	}
	truth := testkit.Usage(t, dir)
	errors := func(change func(r *trace.ObservedRequest)) map[string][2]float64 {
		rows := append([]trace.ObservedRequest{}, run.Observed...)
		for i := range rows {
			change(&rows[i])
		}
		if err := table.Write(tables, table.ObservedRequests, o.Format, rows); err != nil {
			t.Fatal(err)
		}
		vo := validate.DefaultOptions()
		vo.IdleDelays = true
		v, err := ValidateTables(ctx, o.Out, ext, f, vo, result.Header{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][2]float64{}
		for _, r := range v.Runs {
			if r.Split.Kind == result.SplitInSample && r.Metrics != nil && r.Metrics.TTFT != nil && r.Requests > 10 {
				out[r.Phase] = [2]float64{*r.Metrics.TTFT.MedianRelErrPaired, *r.Metrics.E2E.MedianRelErrPaired}
				fmt.Printf("    %-6s KS of TTFT %.3f, of E2E %.3f; chance %.3f\n", r.Phase, r.Metrics.TTFT.KSD, r.Metrics.E2E.KSD,
					math.Sqrt(2/float64(r.Requests)))
			}
		}
		return out
	}
	found := errors(func(*trace.ObservedRequest) {})
	given := errors(func(r *trace.ObservedRequest) { r.CachedTokens = trace.Some(truth[r.ID]) })
	ignored := errors(func(r *trace.ObservedRequest) { r.CachedTokens = trace.Some(int64(0)) })
	if len(found) < 4 {
		t.Errorf("got %d phases, want 4", len(found))
	}
	for phase, e := range found {
		fmt.Printf("  %-6s median error of TTFT and E2E: found %.1f %% %.1f %%, given %.1f %% %.1f %%, ignored %.1f %% %.1f %%\n", phase,
			100*e[0], 100*e[1], 100*given[phase][0], 100*given[phase][1], 100*ignored[phase][0], 100*ignored[phase][1])
		for k, what := range []string{"TTFT", "E2E"} {
			if math.Abs(e[k]-given[phase][k]) > 0.02 || e[k] > ignored[phase][k]/3 {
				t.Errorf("%s, %s: found %.3f, given %.3f, ignored %.3f", phase, what, e[k], given[phase][k], ignored[phase][k])
			}
		}
	}
}
