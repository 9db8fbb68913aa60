package report

// This file makes the head of the page: the verdict and what to do next.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// maxHeadlines is how many sentences on failed gates the head has.
const maxHeadlines = 5

// headOf returns the head of the page: the verdict in a sentence, the gates that failed, and what
// to do next.
func headOf(in Input) Head {
	h := Head{Class: "none", Badge: "NOT VALIDATED", Kicker: "Latency coefficients from recordings of vLLM", Facts: headFacts(in)}
	if in.Validation == nil {
		h.Sentence = "No validation was run: these coefficients are untested."
		return h
	}
	v := in.Validation
	h.Next = Next(in)
	h.Sentence = headline(v)
	h.Lines = Lines(in)
	switch v.Verdict {
	case coeff.VerdictPass:
		h.Class, h.Badge = "pass", "PASS"
	case coeff.VerdictFail:
		h.Class, h.Badge = "fail", "FAIL"
		h.Failed = FirstOf(Failed(Decisive(v)), maxHeadlines, "the gates below")
	case coeff.VerdictNotApplicable:
		h.Class = "insufficient"
		h.Badge = "NOT APPLICABLE"
	default:
		h.Class = "insufficient"
		h.Badge = "INSUFFICIENT DATA"
		h.Failed = FirstOf(Undecided(Decisive(v)), maxHeadlines, "the gates below")
	}
	return h
}

// headline returns a sentence with the verdict on the decisive purpose, as counts of
// configurations.
func headline(v *result.Validation) string {
	what := purposeNouns[v.For]
	if what == "" {
		what = "their use"
	}
	count := map[string]int{}
	for i := range v.Configs {
		count[v.VerdictFor(v.For, v.Configs[i].Scope).Verdict]++
	}
	n := len(v.Configs)
	pass := count[coeff.VerdictPass]
	switch {
	case n == 0:
		return fmt.Sprintf("For %s: no configuration was compared.", what)
	case pass == n && v.Verdict != coeff.VerdictPass:
		return fmt.Sprintf("For %s: %s, but their errors taken together do not.", what, pluralVerb(n, "configuration passes", "configurations pass"))
	}
	parts := []string{pluralVerb(pass, "configuration passes", "configurations pass")}
	if pass == 0 {
		parts = []string{"no configuration passes"}
	} else if pass < n {
		parts[0] = fmt.Sprintf("%d of %d configurations pass", pass, n)
	}
	for _, w := range []struct{ verdict, one, many string }{{coeff.VerdictFail, "fails", "fail"},
		{coeff.VerdictInsufficient, "lacks data", "lack data"}, {coeff.VerdictNotApplicable, "has nothing to judge", "have nothing to judge"}} {
		if k := count[w.verdict]; k > 0 {
			parts = append(parts, pluralVerb(k, w.one, w.many))
		}
	}
	return fmt.Sprintf("For %s: %s.", what, strings.Join(parts, ", "))
}

// Decisive returns the gates that belong to the decisive purpose.
func Decisive(v *result.Validation) []result.Gate {
	return slices.DeleteFunc(slices.Clone(v.Gates), func(g result.Gate) bool { return !isDecisive(v, &g) })
}

// headFacts returns what the coefficients were fitted to (configurations, vLLM versions, runs) and how (the
// feature set and recipe of the step-time model). Without a fit it returns only what made the validation.
func headFacts(in Input) []Fact {
	var out []Fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, FactOf(name, value))
		}
	}
	if f := in.Fit; f != nil {
		var labels, versions []string
		for _, c := range f.Configs {
			labels = appendNew(labels, c.Label)
			versions = appendNew(versions, c.Deployment.Engine.VLLMVersion)
		}
		if on := listOf(labels, 2); on != "" {
			add("Fitted on", on+", as run.yaml and config.json describe it")
		}
		add("vLLM", listOf(versions, 4))
		add("Runs", runCounts(f))
		add("Model", fmt.Sprintf("spec %s, recipe %s", f.Beta.SpecVersion, f.Beta.Recipe))
		add("Step-time target", f.Beta.Target)
		add("Data up to", f.TrainingDate)
		add("Made by", "blis-train "+f.ToolVersion)
	} else if v := in.Validation; v != nil {
		add("Made by", "blis-train "+v.ToolVersion)
	}
	return out
}

// runCounts returns a text with the numbers of runs, as "3 fitted of 4, 1 saturated".
func runCounts(f *result.Fit) string {
	used, saturated := 0, 0
	for _, r := range f.Runs {
		if r.Used {
			used++
		}
		if r.Saturated {
			saturated++
		}
	}
	s := fmt.Sprintf("%d fitted of %d", used, len(f.Runs))
	if saturated > 0 {
		s += fmt.Sprintf(", %d saturated", saturated)
	}
	return s
}
