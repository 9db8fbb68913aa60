package pipeline

import (
	"context"
	"fmt"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestStockRecordings: the logs of two unmodified vLLM versions are fitted near the
// machine's own scatter, their requests are replayed on the clock of the clients,
// and the audit says what the times were taken for.
func TestStockRecordings(t *testing.T) { stockSteps(t, "gqa-a") }

// TestEvalStockRecordings: the same of both recordings.
func TestEvalStockRecordings(t *testing.T) {
	repo.NeedEval(t)
	stockSteps(t, "gqa-a")
	stockSteps(t, "mha-core")
}

func stockSteps(t *testing.T, name string) {
	t.Helper()
	o := DefaultExtractOptions()
	o.Out, o.Batches = t.TempDir(), nil
	ext, err := Extract(context.Background(), []string{repo.Shared(t, "data", "real_vllm_stock", name)}, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range FitSources(o.Out, ext) {
		run, err := src.Load()
		if err != nil {
			t.Fatal(err)
		}
		a := run.Aggregate
		if a.Refused != nil || a.Audit.Time != "elapsed" || a.Contexts != "client" || a.ClientShare.V < 0.95 {
			t.Errorf("%s: refused %v, audit %+v, contexts %s of %.2f", src.ID, a.Refused, a.Audit, a.Contexts, a.ClientShare.V)
		}
		if c := a.Audit.ConstantUs.V / 1000; c < 2.3 || c > 4.7 { // the README's unlogged time of its phases
			t.Errorf("%s: got %.2f ms between elapsed times, want 2.3 to 4.7", src.ID, c)
		}
		st, err := stepTime(src)
		if err != nil {
			t.Fatal(err)
		}
		lag := st.Runs[0].Lag
		if lag.Lag != 0 || !lag.Measured {
			t.Errorf("%s: got lag %+v, want 0, measured", src.ID, lag)
		}
		t.Logf("%s: %d passes, %d rows, audit %+v", src.ID, len(run.Iterations), st.Runs[0].Beta.Kept, a.Audit)
	}
}

// TestEvalInspectEveryRecording: inspect says of every recording which sources it holds and what each teaches, and of those that
// are missing what gives them.
func TestEvalInspectEveryRecording(t *testing.T) {
	repo.NeedEval(t)
	doc, err := Inspect(context.Background(), []string{repo.Shared(t, "data")}, DefaultInspectOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range doc.Runs {
		found, said := 0, r.ID+":"
		for _, s := range r.Sources {
			switch {
			case s.Found && s.Got != "" && s.Teaches != "":
				found++
				said += " " + s.Source + " (" + s.Got + ")"
			case s.Found || s.Adds == "":
				t.Errorf("%s: got %+v", r.ID, s)
			}
			if s.Adds != "" {
				said += " + " + s.Adds
			}
		}
		fmt.Println("  " + said)
		if found == 0 || r.SpanS != nil && *r.SpanS > 1e5 {
			t.Errorf("%s: got %d sources and a span of %v s", r.ID, found, r.SpanS)
		}
	}
	if len(doc.Runs) != 55 {
		t.Errorf("got %d runs, want 55", len(doc.Runs))
	}
}
