package report

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func gate(name, scope, op string, value, threshold float64) result.Gate {
	pass := op == "<" && value < threshold || op == ">" && value > threshold
	return result.Gate{Gate: coeff.Gate{Name: name, Scope: scope, Value: &value, Op: op, Threshold: threshold, Pass: &pass}, Required: true}
}

// A gate that fails in many scopes is one headline with its worst one, on
// either side of a threshold.
func TestHeadlinesNameTheWorstScope(t *testing.T) {
	got := headlines([]result.Gate{
		gate("beta_mape", "a", "<", 0.20, 0.15), gate("beta_skill", "a", ">", 0.4, 0.5), gate("beta_mape", "b", "<", 0.41, 0.15),
		gate("beta_skill", "b", ">", 0.1, 0.5), gate("bias", "all", "<", 0.08, 0.03), gate("bias", "fine", "<", 0.01, 0.03),
	})
	want := []string{
		"2 scopes: step time error on hold-out rows (MAPE) is at worst 41.0 % in b, must be < 15 % (beta_mape)",
		"2 scopes: skill between the best constant (0) and the noise floor (1) is at worst 0.1 in b, must be > 0.5 (beta_skill)",
		"all: size of the total signed bias of the step time is 8.0 %, must be < 3 % (bias)",
	}
	if strings.ReplaceAll(strings.Join(got, "\n"), "\u00a0", " ") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The head says what to do: a drifting machine comes first, then what the
// diagnoses ask for, then what lacks data; a pass has one step.
func TestNextSteps(t *testing.T) {
	open := gate("ks_ttft", "run", "<", 0.1, 0.15)
	open.Pass, open.Note = nil, "insufficient data: 11 requests"
	in := Input{
		Fit: &result.Fit{Beta: result.Model{Warnings: []trace.Finding{trace.Findingf("machine_drift", "run-1: slower"),
			trace.Findingf("machine_drift", "run-1: faster")}}},
		Validation: &result.Validation{Verdict: coeff.VerdictFail, Gates: []result.Gate{open}, Diagnoses: []result.Diagnosis{
			{Cause: result.CauseModelError, Scope: "c", Regime: "mixed", Term: "prefill_attention", Sentence: "x"},
			{Cause: result.CauseModelError, Scope: "all", Regime: "mixed", Term: "prefill_attention", Sentence: "x"},
			{Cause: result.CauseMachineDrift, Scope: "d"},
			{Cause: result.CauseSaturated, Scope: "run-9"},
			{Cause: result.CauseUnseenRegime, Scope: "e", Regime: "prefill", Term: "kv_cache_read"},
		}},
	}
	got := Next(in)
	starts := []string{"The machine changed speed during run-1: repeat", "Lower the load of run-9:",
		"Record load like that of the failing steps, kv_cache_read in prefill steps:",
		"Look at the terms that carry the error, prefill_attention in mixed steps:", "Record longer: 1 replay gate has no verdict"}
	if len(got) != len(starts) {
		t.Fatalf("got %q, want %d steps", got, len(starts))
	}
	for i, want := range starts {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("step %d: got %q, want %q", i+1, got[i], want)
		}
	}
	if head := head(in); len(head.Next) != len(got) {
		t.Errorf("the head has %d steps, want %d", len(head.Next), len(got))
	}
	in.Validation.Gates = append(in.Validation.Gates, gate("target_floor", "c", ">", 0.01, 1))
	if got := Next(in); !strings.HasPrefix(got[0], "The target is shorter than reading the weights takes") {
		t.Errorf("a target below the floor: got %q first", got[0])
	}
	in.Validation = &result.Validation{Verdict: coeff.VerdictPass}
	if got := Next(in); len(got) != 1 || !strings.Contains(got[0], "coefficients.yaml") {
		t.Errorf("pass: got %q", got)
	}
}

// Diagnoses that say the same are one, with every gate; what lacks data is
// grouped by reason.
func TestSameReasonsAreOne(t *testing.T) {
	ds := joined([]result.Diagnosis{{Scope: "c", Sentence: "x", Gates: []string{"bias"}},
		{Scope: "all", Sentence: "x", Gates: []string{"bias", "beta_mape"}}, {Scope: "d", Sentence: "y"}})
	if len(ds) != 2 || ds[0].Scope != "c, all" || strings.Join(ds[0].Gates, " ") != "bias beta_mape" {
		t.Errorf("got %+v", ds)
	}
	a, b, c := gate("ks_ttft", "r", "<", 0, 1), gate("ks_itl", "r", "<", 0, 1), gate("beta_mape_loco", "all", "<", 0, 1)
	a.Pass, b.Pass, c.Pass = nil, nil, nil
	a.Note, b.Note, c.Note = "few", "few", "one configuration"
	if got := undecided([]result.Gate{a, b, c}); len(got) != 2 || got[0] != "ks_ttft, ks_itl of r: few" ||
		got[1] != "beta_mape_loco of all: one configuration" {
		t.Errorf("got %q", got)
	}
}
