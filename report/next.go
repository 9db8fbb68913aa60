package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// Next lists what to do about a verdict, the most useful first, without repetitions. It follows
// from the diagnoses and from the findings of the fit. It is empty without a validation.
func Next(in Input) []string {
	v := in.Validation
	if v == nil {
		return nil
	}
	by := map[string][]result.Diagnosis{}
	for _, d := range v.Diagnoses {
		by[d.Cause] = append(by[d.Cause], d)
	}
	var out []string
	if slices.ContainsFunc(v.Gates, func(g result.Gate) bool { return g.Name == gate.TargetFloor && gateRank(g) == rankFailed }) {
		out = append(out, "The measured step time is shorter than reading the weights takes, so it cannot be right: correct what "+
			"run.yaml says of the hardware, or, of step traces fitted on duration, fit with the key `beta-target: cadence`. Do this first.")
	}
	isUndecided := func(r result.ValidationRun) bool { return r.Undecided != "" }
	if i := slices.IndexFunc(v.Runs, isUndecided); i >= 0 && v.Verdict != coeff.VerdictInsufficient {
		out = append(out, fmt.Sprintf("The replay of %s cannot be validated: %s.", strings.TrimSpace(v.Runs[i].ID+" "+v.Runs[i].Phase),
			v.Runs[i].Undecided))
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
	for _, do := range []struct {
		about  []result.Diagnosis
		format string
		of     func(result.Diagnosis) string
	}{
		{by[result.CauseStreams], "Correct run.yaml or the recording of %s first: they contradict each other, and no other figure can be " +
			"trusted before.", diagnosedScope},
		{by[result.CauseSaturated], "Lower the load of %s: its latencies grow with the length of the recording.", diagnosedScope},
		{by[result.CauseUnseenRegime], "Record loads like that of the failing steps, %s: the fit contains none.", diagnosedTerm},
		{by[result.CauseModelError], "Look at the terms that carry the error, %s: record more such steps, or correct what run.yaml says of " +
			"the hardware.", diagnosedTerm},
		{by[result.CauseLag], "Fit %s again: its steps show another lag than the one used.", diagnosedScope},
		{slices.Concat(by[result.CauseHardware], by[result.CauseScheduler]),
			"Compare run.yaml with the server's log for %s: device, KV blocks, scheduler limits.", diagnosedScope},
	} {
		if len(do.about) > 0 {
			out = append(out, fmt.Sprintf(do.format, listOfDiagnoses(do.about, do.of)))
		}
	}
	if n := shortOfRequests(v.Gates); n > 0 {
		do, want := "Record longer", "requests"
		if in.Fit != nil && in.Fit.Requests != nil && len(in.Fit.Requests.Levels) > 0 {
			do, want = "Measure more load levels", "levels"
		}
		out = append(out, fmt.Sprintf("%s: %s because there are too few %s; the note of each says how many would decide it.", do,
			pluralVerb(n, "replay gate has no verdict", "replay gates have no verdict"), want))
	}
	switch {
	case v.Verdict == coeff.VerdictFail && len(out) == 0:
		out = append(out, "Compare run.yaml with the server's log (device, KV blocks, scheduler limits), and record the loads with the largest "+
			"errors again.")
	case v.Verdict == coeff.VerdictPass:
		out = append(out, "Use coefficients.yaml, or `blis-train export` for BLIS and autoscalers.")
	}
	return out
}

// listOfDiagnoses lists one text of each diagnosis, without repetitions; after four it counts the
// rest.
func listOfDiagnoses(ds []result.Diagnosis, of func(result.Diagnosis) string) string {
	var names []string
	for _, d := range ds {
		names = appendNew(names, of(d))
	}
	return listOf(names, 4)
}

// diagnosedScope is the scope of a diagnosis, for listOfDiagnoses.
func diagnosedScope(d result.Diagnosis) string { return d.Scope }

// diagnosedTerm is a text such as "prefill_attention in mixed steps", for listOfDiagnoses.
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

// driftedRuns are the measured runs whose held-out part ran at another speed than the fitted part.
func driftedRuns(f *result.Fit) []string {
	if f == nil {
		return nil
	}
	var out []string
	for _, w := range slices.Concat(f.Warnings, f.Beta.Warnings) {
		run, _, ok := strings.Cut(w.Message, ": ")
		if ok && string(w.Code) == result.CauseMachineDrift && !isComposed(f, run) {
			out = appendNew(out, run)
		}
	}
	return out
}

// isComposed reports whether a run of the fit was composed from measured kernels, so that no
// machine can have been busy.
func isComposed(f *result.Fit, run string) bool {
	return slices.ContainsFunc(f.Configs, func(c result.FitConfig) bool {
		return slices.Contains(c.Runs, run) && c.Deployment.IsComposed()
	})
}

// shortOfRequests counts the required gates that lack requests.
func shortOfRequests(gates []result.Gate) int {
	n := 0
	for _, g := range gates {
		if gateRank(g) == rankUndecided && strings.HasPrefix(g.Note, gate.InsufficientData) {
			n++
		}
	}
	return n
}
