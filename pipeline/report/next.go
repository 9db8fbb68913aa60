package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// nextSteps says what to do about the verdict, most useful first: what the
// diagnoses and the findings of the fit ask for, each once.
func nextSteps(in Input) []string {
	v := in.Validation
	by := map[string][]result.Diagnosis{}
	for _, d := range v.Diagnoses {
		by[d.Cause] = append(by[d.Cause], d)
	}
	var out []string
	if slices.ContainsFunc(v.Gates, func(g result.Gate) bool { return g.Name == "target_floor" && gateRank(g) == 0 }) {
		out = append(out, "The target is shorter than reading the weights takes, so that it is no step time: fit with `--beta-target "+
			"cadence`, or correct what run.yaml says of the hardware. Nothing else counts before.")
	}
	drifted := driftedRuns(in.Fit)
	if v.Verdict == coeff.VerdictFail && len(drifted)+len(by[result.CauseMachineDrift]) > 0 {
		during := "the recording"
		if len(drifted) > 0 {
			during = listOf(drifted, 3)
		}
		out = append(out, fmt.Sprintf("The machine changed speed during %s: repeat the recording on a quiet machine; until then, judge the "+
			"model by the drift-corrected replay.", during))
	}
	if ds := by[result.CauseSaturated]; len(ds) > 0 {
		out = append(out, fmt.Sprintf("Lower the load of %s: a saturated run tells how long it was recorded, not how fast the engine is.",
			places(ds, diagnosedScope)))
	}
	if ds := by[result.CauseUnseenRegime]; len(ds) > 0 {
		out = append(out, fmt.Sprintf("Record load like that of the failing steps, %s: the fit never saw its like.", places(ds, diagnosedTerm)))
	}
	if ds := by[result.CauseModelError]; len(ds) > 0 {
		out = append(out, fmt.Sprintf("Look at the terms that carry the error, %s: record more such steps, or correct what run.yaml says of "+
			"the hardware.", places(ds, diagnosedTerm)))
	}
	if ds := by[result.CauseLag]; len(ds) > 0 {
		out = append(out, fmt.Sprintf("Fit %s again: its lag is not the one that its rows tell.", places(ds, diagnosedScope)))
	}
	if ds := slices.Concat(by[result.CauseHardware], by[result.CauseScheduler]); len(ds) > 0 {
		out = append(out, fmt.Sprintf("Compare run.yaml with the server's log for %s: device, KV blocks, scheduler limits.",
			places(ds, diagnosedScope)))
	}
	if n := shortOfRequests(v.Gates); n > 0 {
		out = append(out, fmt.Sprintf("Record longer: %s for want of requests (164 in the compared part decide one).",
			pluralVerb(n, "replay gate has no verdict", "replay gates have no verdict")))
	}
	if v.Verdict == coeff.VerdictPass {
		out = append(out, "Use coefficients.yaml, or `blis-train export` for BLIS and autoscalers.")
	}
	return out
}

// places lists what of the diagnoses, each once and a few of many.
func places(ds []result.Diagnosis, of func(result.Diagnosis) string) string {
	var names []string
	for _, d := range ds {
		names = AppendNew(names, of(d))
	}
	return listOf(names, 4)
}

func diagnosedScope(d result.Diagnosis) string { return d.Scope }

// diagnosedTerm is "term in mixed steps", as far as it is known.
func diagnosedTerm(d result.Diagnosis) string {
	switch {
	case d.Term == "" && d.Regime == "":
		return d.Scope
	case d.Term == "":
		return d.Regime + " steps"
	case d.Regime == "":
		return d.Term
	}
	return fmt.Sprintf("%s in %s steps", d.Term, d.Regime)
}

// driftedRuns are the runs whose held-out part ran at another speed than what was fitted.
func driftedRuns(f *result.Fit) []string {
	if f == nil {
		return nil
	}
	var out []string
	for _, w := range slices.Concat(f.Warnings, f.Beta.Warnings) {
		run, _, ok := strings.Cut(w.Message, ": ")
		if ok && string(w.Code) == result.CauseMachineDrift && !isComposed(f, run) {
			out = AppendNew(out, run)
		}
	}
	return out
}

// isComposed reports whether a run of the fit was put together from measured kernels:
// there was no machine that could have been quieter.
func isComposed(f *result.Fit, run string) bool {
	return slices.ContainsFunc(f.Configs, func(c result.FitConfig) bool {
		return slices.Contains(c.Runs, run) && c.Deployment.IsComposed()
	})
}

// shortOfRequests counts the required gates that lack requests.
func shortOfRequests(gates []result.Gate) int {
	n := 0
	for _, g := range gates {
		if gateRank(g) == 1 && strings.HasPrefix(g.Note, "insufficient data") {
			n++
		}
	}
	return n
}
