package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blis-train/blis-train/result"
)

// head is the answer at the top of the page.
type head struct {
	Class, Badge, Kicker, Sentence string
	Failed                         []string
	Facts                          []fact
}

// maxHeadlines is how many failed gates the head spells out.
const maxHeadlines = 6

func newHead(in Input) head {
	h := head{Class: "none", Badge: "NOT VALIDATED", Kicker: "Latency coefficients from recorded vLLM traces", Facts: headFacts(in)}
	if in.Validation == nil {
		h.Sentence = "No validation was run: these coefficients are untested."
		return h
	}
	failed, open := 0, 0
	for _, g := range sortedGates(in.Validation.Gates) {
		switch gateRank(g) {
		case 0:
			failed++
			if failed <= maxHeadlines {
				h.Failed = append(h.Failed, gateSentence(g))
			}
		case 1:
			open++
		}
	}
	if failed > maxHeadlines {
		h.Failed = append(h.Failed, fmt.Sprintf("and %d more, below", failed-maxHeadlines))
	}
	total := len(in.Validation.Gates)
	switch in.Validation.Verdict {
	case result.VerdictPass:
		h.Class, h.Badge = "pass", "PASS"
		h.Sentence = fmt.Sprintf("No gate failed and no required gate lacks data, of %s.", plural(total, "gate"))
	case result.VerdictFail:
		h.Class, h.Badge = "fail", "FAIL"
		h.Sentence = fmt.Sprintf("%d of %s failed.", failed, plural(total, "gate"))
	default:
		h.Class, h.Badge = "insufficient", "INSUFFICIENT DATA"
		h.Sentence = fmt.Sprintf("No gate failed, but %s cannot be judged from these data.", plural(open, "required gate"))
		h.Failed = firstOf(in.Validation.Missing, maxHeadlines, "the gates below")
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

func gateSentence(g result.Gate) string {
	what := gateWords[g.Name]
	if what == "" {
		what = g.Name
	}
	return fmt.Sprintf("%s: %s is %s, must be %s %s (%s)", g.Scope, what, gateValue(g.Name, g.Value), strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op), gateThreshold(g), g.Name)
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
		add("Fitted on", listOf(labels, 4))
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

func verdictSection(in Input, figs []*figure) section {
	s := section{ID: "verdict", Nav: "Verdict", Title: "Verdict and gates",
		Lead: "What was promised, what was measured, and what to do about the difference."}
	s.Blocks = append(s.Blocks, cards(in)...)
	if in.Validation == nil {
		s.Missing = "No validation.json: run `blis-train validate --fit fit.json OUT` to test the coefficients on held-out rows and by replay."
		return s
	}
	s.Blocks = append(s.Blocks, causes(in, figs)...)
	if m := in.Validation.Missing; len(m) > 0 && in.Validation.Verdict == result.VerdictFail {
		s.Blocks = append(s.Blocks, block{Heading: "What could not be judged"}, block{List: firstOf(m, 4, "the gates without enough data below")})
	}
	s.Blocks = append(s.Blocks, gateTables(in.Validation)...)
	s.Blocks = append(s.Blocks, findingBlocks("Findings of the validation", in.Validation.Warnings)...)
	return s
}

// cards are the figures a reader quotes.
func cards(in Input) []block {
	var cs []card
	if f := in.Fit; f != nil && f.Beta.Holdout != nil {
		h := f.Beta.Holdout
		cs = append(cs, card{Name: "Step time, held-out rows", Value: pctOr(h.MAPE),
			Sub: fmt.Sprintf("MAPE; best constant %s, noise floor %s", pctOr(h.MAPEConst), pctOr(h.MAPEFloor))})
		cs = append(cs, card{Name: "Skill", Value: shortOr(h.Skill), Sub: "0 = best constant, 1 = noise floor"})
		if f.Beta.LocoWorst != nil {
			cs = append(cs, card{Name: "Unseen configuration, worst", Value: pctOr(f.Beta.LocoWorst),
				Sub: "MAPE; median " + pctOr(f.Beta.LocoMedian)})
		}
	}
	if v := in.Validation; v != nil {
		for _, m := range []string{"ttft", "itl", "e2e"} {
			if g, ok := worstGate(v.Gates, "ks_"+m); ok {
				cs = append(cs, card{Name: "Replay, worst KS of " + strings.ToUpper(m), Value: share3(*g.Value), Class: gateClass(g),
					Sub: fmt.Sprintf("%s; must be %s %s", g.Scope, g.Op, short(g.Threshold))})
			}
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return []block{{Cards: cs}}
}

// worstGate is the judged gate of that name with the largest value.
func worstGate(gs []result.Gate, name string) (worst result.Gate, ok bool) {
	for _, g := range gs {
		if g.Name == name && g.Pass != nil && g.Value != nil && (!ok || *g.Value > *worst.Value) {
			worst, ok = g, true
		}
	}
	return worst, ok
}

func gateClass(g result.Gate) string {
	if g.Pass == nil {
		return "warn"
	}
	if *g.Pass {
		return "good"
	}
	return "bad"
}

var causeWords = map[string]string{
	result.CauseMachineDrift: "The machine drifted",
	result.CauseUnseenRegime: "A regime was unseen in training",
	result.CauseModelError:   "The model is wrong",
	result.CauseSaturated:    "The run is saturated",
}

// maxCauses is how many diagnoses the page spells out.
const maxCauses = 8

func causes(in Input, figs []*figure) []block {
	ds := in.Validation.Diagnoses
	if len(ds) == 0 {
		return nil
	}
	anchors := anchorsOf(figs)
	var out []cause
	for _, d := range ds[:min(len(ds), maxCauses)] {
		label := causeWords[d.Cause]
		if label == "" {
			label = d.Cause
		}
		if d.Term != "" {
			label += ": term " + d.Term
		}
		if d.Regime != "" {
			label += ", regime " + d.Regime
		}
		c := cause{Label: label, Scope: d.Scope, Sentence: sentence(strings.TrimPrefix(d.Sentence, d.Scope+": ")), Gates: strings.Join(d.Gates, ", ")}
		if id := figureOf(d.Figure, anchors); id != "" {
			c.Anchor, c.FigureTitle = "fig-"+id, anchors[id]
		} else if d.Figure == "saturation" && in.Inspect != nil {
			c.Anchor, c.FigureTitle = "saturation", "the saturation checks"
		}
		out = append(out, c)
	}
	blocks := []block{{Heading: "Why gates failed"}, {Causes: out}}
	if more := len(ds) - maxCauses; more > 0 {
		blocks = append(blocks, block{Text: fmt.Sprintf("And %d more in validation.json, diagnoses.", more)})
	}
	return blocks
}

// sentence starts with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(r)) + s[n:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// figureOf is the id of the figure a diagnosis points at, the validation's own
// before that of the fit; empty when the page has none.
func figureOf(kind string, anchors map[string]string) string {
	id := strings.ReplaceAll(kind, "_", "-")
	for _, id := range []string{"test-" + id, id} {
		if anchors[id] != "" {
			return id
		}
	}
	return ""
}

// anchorsOf maps figure ids to titles.
func anchorsOf(figs []*figure) map[string]string {
	out := map[string]string{}
	for _, f := range figs {
		out[f.id] = f.title
	}
	return out
}
