package report

// This file makes the section on the verdict: key figures, gates, and why gates failed.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// verdictSection returns the key figures, the gates, the causes of failed gates, and the
// distributions of the first replays.
func verdictSection(in Input, figs figureSet) Section {
	s := Section{ID: "verdict", Nav: "Verdict", Title: "Verdict and gates",
		Lead: "The thresholds, the measured values, and what to do where they are missed."}
	s.Blocks = append(s.Blocks, FigureBlocks(figs.First)...)
	s.Blocks = append(s.Blocks, cardBlocks(in)...)
	if in.Validation == nil {
		s.Missing = "No validation.json: run `blis-train validate --fit fit.json OUT` to test the coefficients on held-out steps and by replay."
		return s
	}
	s.Blocks = append(s.Blocks, causeBlocks(in, figs.all())...)
	// Of an insufficient verdict the head has these reasons.
	if m := in.Validation.Missing; len(m) > 0 && in.Validation.Verdict == coeff.VerdictFail {
		s.Blocks = append(s.Blocks, Block{Heading: "Gates without enough data"},
			Block{List: FirstOf(Undecided(in.Validation.Gates), 4, "the gates without enough data below")})
	}
	s.Blocks = append(s.Blocks, gateTables(in.Validation)...)
	s.Blocks = append(s.Blocks, FindingBlocks("Findings of the validation", in.Validation.Warnings)...)
	return s
}

// cardBlocks returns the key figures, each on a card.
func cardBlocks(in Input) []Block {
	var cs []card
	if f := in.Fit; f != nil && f.Beta.Holdout != nil {
		h := f.Beta.Holdout
		cs = append(cs, card{Name: "Step time, held-out steps", Value: pctOr(h.MAPE), Class: worstClass(in.Validation, gate.BetaMAPE),
			Sub: fmt.Sprintf("MAPE; best constant %s, noise floor %s", pctOr(h.MAPEConst), pctOr(h.MAPEFloor))})
		cs = append(cs, card{Name: "Skill", Value: ShortOr(h.Skill), Class: worstClass(in.Validation, gate.BetaSkill),
			Sub: "0 = best constant, 1 = noise floor"})
		if f.Beta.LocoWorst != nil {
			cs = append(cs, card{Name: "Unseen configuration, worst", Value: pctOr(f.Beta.LocoWorst),
				Sub: "MAPE; median " + pctOr(f.Beta.LocoMedian)})
		}
	}
	if v := in.Validation; v != nil {
		for _, name := range []string{gate.Bias, gate.BetaMaxError} {
			if g, ok := worstGate(v.Gates, name); ok && !*g.Pass {
				what := gate.Named(name).What
				cs = append(cs, card{Name: strings.ToUpper(what[:1]) + what[1:], Value: GateFigure(&g), Class: "bad",
					Sub: fmt.Sprintf("%s; must be %s %s", g.Scope, g.Op, GateThreshold(g))})
			}
		}
		// The error of each metric: of paired requests in a replay or, without one, of load levels.
		for _, m := range []string{"ttft", "itl", "e2e"} {
			g, ok := worstGate(v.Gates, "paired_err_"+m)
			name := "Replay, signed error of "
			if !ok {
				g, ok = worstGate(v.Gates, "median_rel_err_"+m)
				name = "Load levels, median error of "
			}
			if ok {
				cs = append(cs, card{Name: name + strings.ToUpper(m), Value: GateFigure(&g), Class: gateClass(g),
					Sub: fmt.Sprintf("%s; must be %s %s", g.Scope, g.Op, GateThreshold(g))})
			}
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return []Block{{Cards: cs}}
}

// worstClass returns the CSS class of the named gate in its worst scope; "" if it has no result.
func worstClass(v *result.Validation, name string) string {
	if v == nil {
		return ""
	}
	if i := slices.IndexFunc(sortedGates(v.Gates), func(g result.Gate) bool { return g.Name == name }); i >= 0 {
		return gateClass(sortedGates(v.Gates)[i])
	}
	return ""
}

// maxCauses is the largest number of diagnoses on the page.
const maxCauses = 8

// causeBlocks returns why gates failed, each cause with a link to the figure that shows it.
func causeBlocks(in Input, figs []*Figure) []Block {
	ds := in.Validation.Diagnoses
	if len(ds) == 0 {
		return nil
	}
	ds = mergeDiagnoses(ds)
	titles := map[string]string{} // by figure id
	for _, f := range figs {
		titles[f.ID] = f.Title
	}
	var out []cause
	for _, d := range ds[:min(len(ds), maxCauses)] {
		label := Explanations[d.Cause].What
		if label == "" {
			label = d.Cause
		}
		if d.Term != "" {
			label += ": term " + d.Term
		}
		if d.Regime != "" {
			label += ", regime " + d.Regime
		}
		c := cause{Label: label, Scope: d.Scope, Sentence: sentence(strings.TrimPrefix(d.Sentence, d.Scope+": ")),
			Gates: strings.Join(d.Gates, ", ")}
		if id := figureID(d.Figure, titles); id != "" {
			c.Anchor = "fig-" + id
			c.FigureTitle = titles[id]
		} else if d.Figure == "saturation" && in.Inspect != nil {
			c.Anchor = "saturation"
			c.FigureTitle = "the saturation checks"
		}
		out = append(out, c)
	}
	blocks := []Block{{Heading: "Why gates failed"}, {Causes: out}}
	if more := len(ds) - maxCauses; more > 0 {
		blocks = append(blocks, Block{Text: fmt.Sprintf("And %d more in validation.json, diagnoses.", more)})
	}
	return blocks
}

// mergeDiagnoses merges diagnoses with an equal sentence and cause into one, whose scope and gates
// list those of all. With a single configuration the scope "all" repeats that configuration's
// diagnosis.
func mergeDiagnoses(ds []result.Diagnosis) []result.Diagnosis {
	var out []result.Diagnosis
	for _, d := range ds {
		i := slices.IndexFunc(out, func(o result.Diagnosis) bool { return o.Sentence == d.Sentence && o.Cause == d.Cause })
		if i < 0 {
			out = append(out, d)
			continue
		}
		out[i].Scope += ", " + d.Scope
		out[i].Gates = slices.Clone(out[i].Gates)
		for _, g := range d.Gates {
			out[i].Gates = appendNew(out[i].Gates, g)
		}
	}
	return out
}

// figureID returns the id of the figure that a diagnosis refers to: that of the figure on held-out
// data ("test-" and the kind) if the page has it, else that of the fit, else "". titles has the
// title of every figure of the page by its id.
func figureID(kind string, titles map[string]string) string {
	id := strings.ReplaceAll(kind, "_", "-")
	for _, id := range []string{"test-" + id, id} {
		if titles[id] != "" {
			return id
		}
	}
	return ""
}
