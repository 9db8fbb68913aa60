package fit

import (
	"context"
	"fmt"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

func amendPct(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", 100**v)
}

// TestEvalAmendments prints the table of docs/decisions/0020: every amendment tried once on the
// composed and the real runs.
func TestEvalAmendments(t *testing.T) {
	repo.NeedEval(t)
	wins := map[string]int{}
	for _, set := range []string{"composed", "real_vllm_cpu"} {
		sources := SourcesOf(t, repo.Shared(t, "data", set))
		tried, err := TryEach(context.Background(), sources, DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s: amendment | trigger | hold-out without, with, %% | left out without, with, %%\n", set)
		for _, a := range tried {
			if a.Wins {
				wins[a.Name]++
			}
			value := "-"
			if a.Value != nil {
				value = fmt.Sprintf("%.3g", *a.Value)
			}
			fmt.Printf("  %-20s %-5s | %-65s %6s of %4g %-5v | %6s %6s | %6s %6s | wins %v %s\n", a.Name, a.Model, a.Trigger, value, a.Threshold,
				a.Triggered, amendPct(a.Without), amendPct(a.With), amendPct(a.WithoutLeftOut), amendPct(a.WithLeftOut), a.Wins, a.Note)
		}
	}
	for name, n := range wins {
		if n == 2 {
			t.Errorf("%s wins on the composed and on the real runs: by docs/decisions/0020-amendments.md it is to become the default", name)
		}
	}
}
