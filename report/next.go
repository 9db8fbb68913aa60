package report

// This file lists what a user should do about a verdict.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// Next returns what to do about a verdict, without repetitions, in this order: what makes all other figures worthless,
// the causes of a failure, then what the coefficients of a passed fit are for, and last what would decide the gates
// without a result. It follows from the diagnoses and from the findings of the fit. It is empty without a validation.
func Next(in Input) []string {
	v := in.Validation
	if v == nil {
		return nil
	}
	by := map[string][]result.Diagnosis{} // by cause
	for _, d := range v.Diagnoses {
		by[d.Cause] = append(by[d.Cause], d)
	}
	// First what makes all other figures worthless.
	var out []string
	if contradicted := by[result.CauseStreams]; len(contradicted) > 0 {
		out = append(out, fmt.Sprintf("Correct run.yaml or the recording of %s first: they contradict each other, and no other figure can be "+
			"trusted before.", listOfDiagnoses(contradicted, diagnosedScope)))
	}
	if slices.ContainsFunc(v.Gates, func(g result.Gate) bool { return g.Name == gate.TargetFloor && gateRank(g) == rankFailed }) {
		out = append(out, "The measured step time is shorter than reading the weights takes, so it cannot be right: correct what "+
			"run.yaml states of the hardware, or, of step traces fitted on duration, fit with the key `beta-target: cadence`. Do this first.")
	}
	isUndecided := func(r result.ValidationRun) bool { return r.Undecided != "" }
	if i := slices.IndexFunc(v.Runs, isUndecided); i >= 0 && v.Verdict != coeff.VerdictInsufficient {
		out = append(out, fmt.Sprintf("The replay of %s cannot be validated: %s.", strings.TrimSpace(v.Runs[i].ID+" "+v.Runs[i].Phase),
			v.Runs[i].Undecided))
	}
	// Before a diagnosis of steps remains without a cause (CauseUnknown), following the curve of the machine's speed is
	// tried too, and removes too little of the error. So where there is one, the runs that drifted by the fit are not
	// named, unless another scope's error is explained by drift.
	drifted := driftedRuns(in.Fit)
	explained := by[result.CauseMachineDrift]
	if len(explained) == 0 && len(by[result.CauseUnknown]) > 0 {
		drifted = nil
	}
	if len(drifted) == 0 {
		for _, d := range explained {
			drifted = appendNew(drifted, gate.RunOf(d.Scope))
		}
	}
	if v.Verdict == coeff.VerdictFail && len(drifted) > 0 {
		out = append(out, fmt.Sprintf("The machine changed speed during %s: repeat the recording on a quiet machine.", listOf(drifted, 3)))
	}
	// What each of the other causes asks for.
	for _, do := range []struct {
		about  []result.Diagnosis
		format string
		of     func(result.Diagnosis) string
	}{
		{by[result.CauseSaturated], "Lower the load of %s: its latencies grow with the length of the recording.", diagnosedScope},
		{by[result.CauseUnseenRegime], "Record loads like that of the failing steps, %s: the fit contains none.", diagnosedTerm},
		{by[result.CauseModelError], "Look at the terms that carry the error, %s: record more such steps, or correct what run.yaml states of " +
			"the hardware.", diagnosedTerm},
		{by[result.CauseLag], "Fit %s again: its steps show another lag than the one used.", diagnosedScope},
		{by[result.CauseSpeed], "Compare the device, its clock and power limit, and the release of vLLM of %s with those that the " +
			"coefficients were fitted on, and fit what differs by itself.", diagnosedScope},
		{slices.Concat(by[result.CauseHardware], by[result.CauseScheduler]),
			"Compare run.yaml with the server's log for %s: device, KV blocks, scheduler limits.", diagnosedScope},
	} {
		if len(do.about) > 0 {
			out = append(out, fmt.Sprintf(do.format, listOfDiagnoses(do.about, do.of)))
		}
	}
	// A failure without a known cause.
	if v.Verdict == coeff.VerdictFail && len(out) == 0 {
		if reproducesBatches(v) {
			out = append(out, "The simulated batches are the recorded ones, so the times of steps or delays differ: record the loads with the "+
				"largest errors again.")
		} else {
			out = append(out, "Compare run.yaml with the server's log (device, KV blocks, scheduler limits), and record the loads with the "+
				"largest errors again.")
		}
	}
	gates := v.Gates
	if v.Verdict == coeff.VerdictPass {
		out = append(out, fmt.Sprintf("Use %s, or `blis-train export` for BLIS and autoscalers.", cmp.Or(in.Use, "`coefficients.yaml`")))
		if s := NextForWaits(v); s != "" {
			out = append(out, s)
			// The gates of waits are covered.
			gates = slices.DeleteFunc(slices.Clone(gates), func(g result.Gate) bool {
				return slices.Equal(g.Purposes, []string{coeff.PurposeWaits})
			})
		}
	}
	// Gates without a result: those that more data would decide, and those that no recording would.
	short, outOfReach := shortOfData(gates)
	if short > 0 {
		do, want := "Record longer", "requests or steps"
		if in.Fit != nil && in.Fit.Requests != nil && len(in.Fit.Requests.Levels) > 0 {
			do, want = "Measure more load levels", "levels"
		}
		out = append(out, fmt.Sprintf("%s: %s because there are too few %s; the note of each states how many would decide it.", do,
			pluralVerb(short, "gate has no verdict", "gates have no verdict"), want))
	}
	if outOfReach > 0 {
		out = append(out, fmt.Sprintf("%s that no recording of reasonable length decides: the error is at the threshold, or the server's own noise "+
			"is too large for it. Record at a steadier load, or accept what is undecided with --allow-insufficient.",
			pluralVerb(outOfReach, "gate has no verdict", "gates have no verdict")))
	}
	return out
}

// listOfDiagnoses returns one text of each diagnosis as a list, without repetitions; after four it
// counts the rest.
func listOfDiagnoses(ds []result.Diagnosis, of func(result.Diagnosis) string) string {
	var names []string
	for _, d := range ds {
		names = appendNew(names, of(d))
	}
	return listOf(names, 4)
}

// diagnosedScope returns the scope of a diagnosis, for listOfDiagnoses.
func diagnosedScope(d result.Diagnosis) string { return d.Scope }

// diagnosedTerm returns a text such as "prefill_attention in mixed steps", for listOfDiagnoses.
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

// driftedRuns returns the measured runs whose held-out part ran at another speed than the fitted
// part.
func driftedRuns(f *result.Fit) []string {
	if f == nil {
		return nil
	}
	var out []string
	for _, w := range slices.Concat(f.Warnings, f.Beta.Warnings) {
		run, ok := runOfSpeedChange(w.Message)
		if ok && string(w.Code) == result.CauseMachineDrift && !isComposed(f, run) {
			out = appendNew(out, run)
		}
	}
	return out
}

// isComposed reports whether a run of the fit was composed from measured kernels: then no machine
// ran it that could have changed its speed.
func isComposed(f *result.Fit, run string) bool {
	return slices.ContainsFunc(f.Configs, func(c result.FitConfig) bool {
		return slices.Contains(c.Runs, run) && c.Deployment.IsComposed()
	})
}

// NextForWaits returns what would decide the verdict for waits of the configurations that have too few
// windows of queueing delays; "" if there is none.
func NextForWaits(v *result.Validation) string {
	const needed = gate.FewestValues // windows of a configuration that decide
	fewest := needed                 // windows of the undecided configuration with the fewest
	for i := range v.Configs {
		c := &v.Configs[i]
		undecided := v.VerdictFor(coeff.PurposeWaits, c.Scope).Verdict == coeff.VerdictInsufficient
		if undecided && c.Alpha != nil && c.Alpha.Admission != nil {
			fewest = min(fewest, max(1, c.Alpha.Admission.Windows))
		}
	}
	if fewest >= needed { // none is undecided for lack of windows
		return ""
	}
	return fmt.Sprintf("Record about %d times as long to decide waits (%d of %d held-out windows).",
		(needed+fewest-1)/fewest, fewest, needed)
}

// shortOfData returns the numbers of required gates without a result: those that more data would
// decide, and those that no recording of reasonable length would.
func shortOfData(gates []result.Gate) (short, outOfReach int) {
	for _, g := range gates {
		switch {
		case gateRank(g) != rankUndecided || !strings.HasPrefix(g.Note, gate.InsufficientData):
		case strings.Contains(g.Note, gate.NotWithinReach):
			outOfReach++
		default:
			short++
		}
	}
	return short, outOfReach
}

// reproducesBatches reports whether the simulator's scheduler forms nearly all recorded batches in
// every run in which that could be compared. It is false if there is no such run.
func reproducesBatches(v *result.Validation) bool {
	compared := false
	for i := range v.Runs {
		q := v.Runs[i].Replay
		if q == nil || q.IdenticalBatchesShare == nil {
			continue
		}
		if *q.IdenticalBatchesShare < nearlyAllBatches {
			return false
		}
		compared = true
	}
	return compared
}

// nearlyAllBatches is the share of batches from which on the scheduler is not the cause of errors,
// as in the diagnosis.
const nearlyAllBatches = 0.9
