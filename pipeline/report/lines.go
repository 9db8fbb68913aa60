package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// line says what the coefficients of one configuration are good for. The report's
// head and the terminal show the same lines.
type line struct {
	Class  string // pass | fail | insufficient | none: of the purpose that decides
	Scope  string // the configuration, or the test run
	Uses   string // purposes that passed, failed and lack data
	Region string // how far the recordings reach; empty: not known
	Error  string // the error to expect; empty: nothing was compared
}

// Lines are one for every configuration and test run of the validation, or of the fit
// without one.
func Lines(in Input) []line {
	if in.Validation == nil {
		return fittedLines(in.Fit)
	}
	var out []line
	for i := range in.Validation.Configs {
		c := &in.Validation.Configs[i]
		out = append(out, line{Scope: c.Scope, Class: classOf(in.Validation.VerdictFor(in.Validation.For, c.Scope).Verdict),
			Uses: uses(in.Validation, c.Scope), Region: region(in.Fit, c), Error: expected(in.Validation, c)})
	}
	return out
}

// fittedLines are about coefficients that nothing has judged yet.
func fittedLines(f *result.Fit) []line {
	if f == nil {
		return nil
	}
	var out []line
	for i := range f.Configs {
		c := &f.Configs[i]
		l := line{Scope: c.Label, Class: "none", Uses: "not validated yet", Region: covered(c.Covered)}
		if e := result.HoldoutOf(f, c.Key); e != nil {
			l.Error = "steps " + Pct(*e) + " (held-out rows)"
		}
		out = append(out, l)
	}
	return out
}

// classOf is the style of a verdict.
func classOf(verdict string) string {
	if verdict == coeff.VerdictNotApplicable {
		return "none"
	}
	return verdict
}

// uses lists the purposes by what became of them.
func uses(v *result.Validation, scope string) string {
	by := map[string][]string{}
	for _, p := range coeff.Purposes {
		got := v.VerdictFor(p, scope).Verdict
		by[got] = append(by[got], p)
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
		return "nothing could be judged"
	case len(by[coeff.VerdictPass]) == 0 && len(by[coeff.VerdictFail]) > 0:
		parts[0] = "not usable for " + strings.Join(by[coeff.VerdictFail], ", ")
	}
	return strings.Join(parts, "; ")
}

// region is what the recordings behind a configuration cover.
func region(f *result.Fit, c *result.ConfigErrors) string {
	if f == nil {
		return ""
	}
	i := slices.IndexFunc(f.Configs, func(fc result.FitConfig) bool { return fc.Key == c.Config })
	if i < 0 {
		return "never fitted"
	}
	return covered(f.Configs[i].Covered)
}

// covered is a covered region in words (spec#covered-region).
func covered(c *result.Covered) string {
	if c == nil {
		return ""
	}
	load := Plural(int(c.Running), "running request")
	if c.RequestsPerS != nil {
		load += fmt.Sprintf(" (%s/s)", brief(*c.RequestsPerS))
	}
	return fmt.Sprintf("up to %s, prompts of %s and outputs of %s tokens", load, Thousands(c.PromptTokens),
		Thousands(c.OutputTokens))
}

// expected is the mean error of the step time, and the median error of a request in
// the worst of the replays that were judged: those of requests the fit never saw where
// there are enough, else whole phases.
func expected(v *result.Validation, c *result.ConfigErrors) string {
	var parts []string
	if c.Steps != nil && c.Steps.MAPE != nil {
		parts = append(parts, "steps "+Pct(*c.Steps.MAPE))
	}
	runs := judged(v, c)
	for _, name := range metricNames {
		worst := -1.0
		for _, r := range runs {
			if m := metric(r.Metrics, name); m != nil && m.MedianRelErrPaired != nil {
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
	s := strings.Join(parts, ", ")
	if slices.ContainsFunc(runs, func(r *result.ValidationRun) bool { return r.Split.Kind == result.SplitInSample }) {
		s += " (in-sample)"
	}
	return s
}

// judged are the replays of a configuration with enough requests to be judged.
func judged(v *result.Validation, c *result.ConfigErrors) []*result.ValidationRun {
	var unseen, all []*result.ValidationRun
	for i := range v.Runs {
		r := &v.Runs[i]
		if r.Metrics == nil || !r.Sufficient || r.Saturated || !slices.Contains(c.Runs, r.ID) {
			continue
		}
		all = append(all, r)
		if r.Split.Kind != result.SplitInSample {
			unseen = append(unseen, r)
		}
	}
	if len(unseen) > 0 {
		return unseen
	}
	return all
}

// Next says what to do about the verdict, most useful first; empty without a validation.
func Next(in Input) []string {
	if in.Validation == nil {
		return nil
	}
	return nextSteps(in)
}
