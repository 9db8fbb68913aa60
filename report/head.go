package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// head is the answer at the top of the page.
type head struct {
	Class, Badge, Kicker, Sentence string
	Failed                         []string
	Next                           []string // what to do about it
	Facts                          []fact
}

// maxHeadlines is how many failed gates the head spells out.
const maxHeadlines = 5

func newHead(in Input) head {
	h := head{Class: "none", Badge: "NOT VALIDATED", Kicker: "Latency coefficients from recorded vLLM traces", Facts: headFacts(in)}
	if in.Validation == nil {
		h.Sentence = "No validation was run: these coefficients are untested."
		return h
	}
	failed, open := 0, 0
	for _, g := range in.Validation.Gates {
		switch gateRank(g) {
		case 0:
			failed++
		case 1:
			open++
		}
	}
	h.Next = nextSteps(in)
	total := len(in.Validation.Gates)
	switch in.Validation.Verdict {
	case result.VerdictPass:
		h.Class, h.Badge = "pass", "PASS"
		h.Sentence = fmt.Sprintf("No gate failed and no required gate lacks data, of %s.", plural(total, "gate"))
	case result.VerdictFail:
		h.Class, h.Badge = "fail", "FAIL"
		h.Sentence = fmt.Sprintf("%d of %s failed.", failed, plural(total, "gate"))
		h.Failed = firstOf(headlines(in.Validation.Gates), maxHeadlines, "the gates below")
	default:
		h.Class, h.Badge = "insufficient", "INSUFFICIENT DATA"
		h.Sentence = fmt.Sprintf("No gate failed, but %s cannot be judged from these data.", plural(open, "required gate"))
		h.Failed = firstOf(undecided(in.Validation.Gates), maxHeadlines, "the gates below")
	}
	return h
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// firstOf is the first n lines and a count of the rest.
func firstOf(lines []string, n int, where string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more in %s", len(lines)-n, where))
}

// headlines says which gates failed: one sentence a gate, with the worst scope.
func headlines(gates []result.Gate) []string {
	scopes := map[string][]result.Gate{}
	var names []string
	for _, g := range gates {
		if gateRank(g) == 0 {
			names = appendNew(names, g.Name)
			scopes[g.Name] = append(scopes[g.Name], g)
		}
	}
	var out []string
	for _, name := range names {
		out = append(out, gateSentence(scopes[name]))
	}
	return out
}

// gateSentence is about one gate that failed in the given scopes.
func gateSentence(failed []result.Gate) string {
	g := failed[0]
	for _, o := range failed[1:] {
		if gateBadness(o) > gateBadness(g) {
			g = o
		}
	}
	what := gateWords[g.Name]
	if what == "" {
		what = g.Name
	}
	limit := fmt.Sprintf("must be %s %s (%s)", strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op), gateThreshold(g), g.Name)
	if len(failed) == 1 {
		return fmt.Sprintf("%s: %s is %s, %s", g.Scope, what, gateValue(g.Name, g.Value), limit)
	}
	return fmt.Sprintf("%d scopes: %s is at worst %s in %s, %s", len(failed), what, gateValue(g.Name, g.Value), g.Scope, limit)
}

// gateBadness grows with the distance from the threshold, on the wrong side.
func gateBadness(g result.Gate) float64 {
	switch {
	case g.Value == nil:
		return math.Inf(-1)
	case strings.HasPrefix(g.Op, ">"):
		return g.Threshold - *g.Value
	}
	return *g.Value - g.Threshold
}

// undecided says which required gates have no verdict, and why: one sentence a reason.
func undecided(gates []result.Gate) []string {
	type group struct{ names, scopes []string }
	groups := map[string]*group{}
	var reasons []string
	for _, g := range gates {
		if gateRank(g) != 1 {
			continue
		}
		if groups[g.Note] == nil {
			groups[g.Note] = &group{}
			reasons = append(reasons, g.Note)
		}
		groups[g.Note].names = appendNew(groups[g.Note].names, g.Name)
		groups[g.Note].scopes = appendNew(groups[g.Note].scopes, g.Scope)
	}
	var out []string
	for _, why := range reasons {
		out = append(out, fmt.Sprintf("%s of %s: %s", listOf(groups[why].names, 3), listOf(groups[why].scopes, 2), why))
	}
	return out
}

// headFacts says what the coefficients are for.
func headFacts(in Input) []fact {
	var out []fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, value})
		}
	}
	if f := in.Fit; f != nil {
		var labels, versions []string
		for _, c := range f.Configs {
			labels = appendNew(labels, c.Label)
			versions = appendNew(versions, c.Deployment.Engine.VLLMVersion)
		}
		add("Fitted on", listOf(labels, 2))
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

func appendNew(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// listOf joins the first n names and counts the rest.
func listOf(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}
