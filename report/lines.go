package report

// This file makes the lines at the top of the report: for each configuration, what its coefficients
// can be used for.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// UseLine summarises what the coefficients of one configuration can be used for. The report and the
// terminal show the same lines.
type UseLine struct {
	Class  string // CSS class of the verdict for the decisive purpose: pass, fail, insufficient or none
	Scope  string // the configuration, or the test run
	Uses   string // purposes that passed, failed and lack data, and how much of the recording was used
	Region string // how far the recordings reach; empty: not known
	Error  string // the error to expect; empty: nothing was compared
}

// Lines returns a UseLine for every configuration and test run of the validation or, without one,
// for every configuration of the fit.
func Lines(in Input) []UseLine {
	if in.Validation == nil {
		return fittedLines(in.Fit)
	}
	var out []UseLine
	for i := range in.Validation.Configs {
		c := &in.Validation.Configs[i]
		out = append(out, UseLine{Scope: c.Scope, Class: classOf(in.Validation.VerdictFor(in.Validation.For, c.Scope).Verdict),
			Uses: usesText(in.Validation, c.Scope) + usedText(in, c), Region: regionText(in.Fit, c), Error: expectedError(in, c)})
	}
	return out
}

// fittedLines returns the lines of coefficients that were not validated.
func fittedLines(f *result.Fit) []UseLine {
	if f == nil {
		return nil
	}
	var out []UseLine
	for i := range f.Configs {
		c := &f.Configs[i]
		l := UseLine{Scope: c.Label, Class: "none", Uses: "not validated yet", Region: coveredText(c.Covered)}
		if e, _ := f.HoldoutOf(c.Key); e != nil {
			l.Error = stepTarget(f) + Pct(*e) + " (held-out steps)"
		}
		out = append(out, l)
	}
	return out
}

// classOf returns the CSS class of a verdict.
func classOf(verdict string) string {
	if verdict == coeff.VerdictNotApplicable {
		return "none"
	}
	return verdict
}

// usesText returns the purposes by their verdicts.
func usesText(v *result.Validation, scope string) string {
	by := map[string][]string{} // purposes by verdict
	for _, p := range coeff.Purposes {
		verdict := v.VerdictFor(p, scope).Verdict
		by[verdict] = append(by[verdict], p)
	}
	var parts []string
	for _, w := range []struct{ verdict, words string }{{coeff.VerdictPass, "usable for "}, {coeff.VerdictFail, "not "},
		{coeff.VerdictInsufficient, "too few data for "}} {
		if names := by[w.verdict]; len(names) > 0 {
			parts = append(parts, w.words+strings.Join(names, ", "))
		}
	}
	switch {
	case len(parts) == 0:
		return "no purpose could be validated"
	case len(by[coeff.VerdictPass]) == 0 && len(by[coeff.VerdictFail]) > 0:
		parts[0] = "not usable for " + strings.Join(by[coeff.VerdictFail], ", ")
	}
	return strings.Join(parts, "; ")
}

// usedText returns how many of the recorded steps of a configuration or test run were fitted or
// compared, and how many of its recorded requests were judged; "" if neither is known.
func usedText(in Input, c *result.ConfigErrors) string {
	var parts []string
	add := func(used, recorded int, noun string) {
		if recorded > 0 {
			parts = append(parts, fmt.Sprintf("%s of %s %s", trace.Thousands(int64(used)), trace.Thousands(int64(max(used, recorded))), noun))
		}
	}
	// Steps: recorded and kept by the fit, or compared in a test run.
	steps, usedSteps := 0, 0
	if in.Fit != nil && in.Fit.Requests == nil {
		for _, r := range in.Fit.Runs {
			if r.Config == c.Config && !c.TestRun || r.ID == c.Scope { // of the configuration, or the test run itself
				steps += r.Steps.Recorded
			}
		}
		for _, r := range in.Fit.Beta.Rows.ByRun {
			if slices.Contains(c.Runs, r.Run) {
				usedSteps += r.Kept
			}
		}
	}
	if c.TestRun && c.Steps != nil {
		usedSteps = c.Steps.Rows
	}
	add(usedSteps, steps, "recorded steps")
	// Requests: recorded, and compared in a replay that gates judge.
	requests, judged := 0, 0
	seen := map[[2]string]bool{} // runs and phases
	for i := range in.Validation.Runs {
		r := &in.Validation.Runs[i]
		key := [2]string{r.ID, r.Phase}
		// Of other configurations or test runs, another split of the same requests, or load levels, which have none.
		if r.Config != c.Config || seen[key] || c.TestRun && r.ID != c.Scope || r.Source == result.SourcePoints {
			continue
		}
		seen[key] = true // the entry that is gated comes first
		requests += r.Replayed - r.Rebuilt
		if r.Judged() {
			judged += r.Requests
		}
	}
	if in.Extract != nil {
		recorded := 0
		for i := range in.Extract.Runs {
			r := &in.Extract.Runs[i]
			if slices.Contains(c.Runs, r.ID) {
				n := &r.Requests
				recorded += int(n.Engine + n.APIOnly + n.Stock)
			}
		}
		requests = max(requests, recorded)
	}
	if !in.Validation.Options.StepsOnly {
		add(judged, requests, "requests")
	}
	if len(parts) == 0 {
		return ""
	}
	return "; used " + strings.Join(parts, ", ")
}

// regionText returns the load and the lengths that the recordings of a configuration cover.
func regionText(f *result.Fit, c *result.ConfigErrors) string {
	if f == nil {
		return ""
	}
	i := slices.IndexFunc(f.Configs, func(fc result.FitConfig) bool { return fc.Key == c.Config })
	if i < 0 {
		return "never fitted"
	}
	return coveredText(f.Configs[i].Covered)
}

// coveredText describes a covered region (spec#covered-region).
func coveredText(c *result.Covered) string {
	if c == nil {
		return ""
	}
	load := Plural(int(c.Running), "running request")
	if c.RequestsPerS != nil {
		load += fmt.Sprintf(" (%s/s)", brief(*c.RequestsPerS))
	}
	var lengths []string // those that somebody counted
	if c.PromptTokens > 0 {
		lengths = append(lengths, "prompts of "+trace.Thousands(c.PromptTokens))
	}
	if c.OutputTokens > 0 {
		lengths = append(lengths, "outputs of "+trace.Thousands(c.OutputTokens))
	}
	if len(lengths) == 0 {
		return "up to " + load
	}
	return fmt.Sprintf("up to %s, %s tokens", load, strings.Join(lengths, " and "))
}

// expectedError returns the error to expect: the mean error of the step time, and the median error
// of a request in the worst gated replay.
func expectedError(in Input, c *result.ConfigErrors) string {
	var parts []string
	if c.Steps != nil && c.Steps.MAPE != nil {
		parts = append(parts, stepTarget(in.Fit)+Pct(*c.Steps.MAPE))
	}
	runs := judgedReplays(in.Validation, c)
	for _, name := range metricNames {
		worst := -1.0
		for _, r := range runs {
			if m := metricNamed(r.Metrics, name); m != nil && m.MedianRelErrPaired != nil {
				worst = max(worst, *m.MedianRelErrPaired)
			}
		}
		if worst >= 0 {
			parts = append(parts, strings.ToUpper(name)+" "+Pct(worst))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ")
}

// stepTarget returns the name of the time that the step error is about. Coefficients of spec
// version 1.0 predict the scheduler's time, not that of the step.
func stepTarget(f *result.Fit) string {
	if f != nil && f.Beta.Target == coeff.Duration {
		return "step.duration_us (the scheduler's time, not the step's) "
	}
	return "steps "
}

// judgedReplays returns the replays of a configuration that gates judge.
func judgedReplays(v *result.Validation, c *result.ConfigErrors) (out []*result.ValidationRun) {
	for i := range v.Runs {
		if r := &v.Runs[i]; r.Judged() && slices.Contains(c.Runs, r.ID) {
			out = append(out, r)
		}
	}
	return out
}
