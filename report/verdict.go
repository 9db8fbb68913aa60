package report

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/result"
)

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
		s.Blocks = append(s.Blocks, block{Heading: "What could not be judged"}, block{List: firstOf(undecided(in.Validation.Gates), 4, "the gates without enough data below")})
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
