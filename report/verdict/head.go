package verdict

import (
	"fmt"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// maxHeadlines is how many failed gates the head spells out.
const maxHeadlines = 5

func Head(in input.Input) page.Head {
	h := page.Head{Class: "none", Badge: "NOT VALIDATED", Kicker: "Latency coefficients from recorded vLLM traces", Facts: headFacts(in)}
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
	case coeff.VerdictPass:
		h.Class, h.Badge = "pass", "PASS"
		h.Sentence = fmt.Sprintf("No gate failed and no required gate lacks data, of %s.", words.Plural(total, "gate"))
	case coeff.VerdictFail:
		h.Class, h.Badge = "fail", "FAIL"
		h.Sentence = fmt.Sprintf("%d of %s failed.", failed, words.Plural(total, "gate"))
		h.Failed = words.FirstOf(headlines(in.Validation.Gates), maxHeadlines, "the gates below")
	default:
		h.Class, h.Badge = "insufficient", "INSUFFICIENT DATA"
		h.Sentence = fmt.Sprintf("No gate failed, but %s cannot be judged from these data.", words.Plural(open, "required gate"))
		h.Failed = words.FirstOf(undecided(in.Validation.Gates), maxHeadlines, "the gates below")
	}
	return h
}

// headFacts says what the coefficients are for.
func headFacts(in input.Input) []page.Fact {
	var out []page.Fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, page.FactOf(name, value))
		}
	}
	if f := in.Fit; f != nil {
		var labels, versions []string
		for _, c := range f.Configs {
			labels = words.AppendNew(labels, c.Label)
			versions = words.AppendNew(versions, c.Deployment.Engine.VLLMVersion)
		}
		add("Fitted on", words.ListOf(labels, 2))
		add("vLLM", words.ListOf(versions, 4))
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
