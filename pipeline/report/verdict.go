package report

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

func section(in Input, figs []*Figure) PageSection {
	s := PageSection{ID: "verdict", Nav: "Verdict", Title: "Verdict and gates",
		Lead: "What was promised, what was measured, and what to do about the difference."}
	s.Blocks = append(s.Blocks, cards(in)...)
	if in.Validation == nil {
		s.Missing = "No validation.json: run `blis-train validate --fit fit.json OUT` to test the coefficients on held-out rows and by replay."
		return s
	}
	s.Blocks = append(s.Blocks, causes(in, figs)...)
	if m := in.Validation.Missing; len(m) > 0 && in.Validation.Verdict == coeff.VerdictFail {
		s.Blocks = append(s.Blocks, Block{Heading: "What could not be judged"},
			Block{List: FirstOf(undecided(in.Validation.Gates), 4, "the gates without enough data below")})
	}
	s.Blocks = append(s.Blocks, gateTables(in.Validation)...)
	s.Blocks = append(s.Blocks, FindingBlocks("Findings of the validation", in.Validation.Warnings)...)
	return s
}

// cards are the figures a reader quotes.
func cards(in Input) []Block {
	var cs []card
	if f := in.Fit; f != nil && f.Beta.Holdout != nil {
		h := f.Beta.Holdout
		cs = append(cs, card{Name: "Step time, held-out rows", Value: pctOr(h.MAPE),
			Sub: fmt.Sprintf("MAPE; best constant %s, noise floor %s", pctOr(h.MAPEConst), pctOr(h.MAPEFloor))})
		cs = append(cs, card{Name: "Skill", Value: ShortOr(h.Skill), Sub: "0 = best constant, 1 = noise floor"})
		if f.Beta.LocoWorst != nil {
			cs = append(cs, card{Name: "Unseen configuration, worst", Value: pctOr(f.Beta.LocoWorst),
				Sub: "MAPE; median " + pctOr(f.Beta.LocoMedian)})
		}
	}
	if v := in.Validation; v != nil {
		for _, m := range []string{"ttft", "itl", "e2e"} {
			if g, ok := worstGate(v.Gates, "ks_"+m); ok {
				cs = append(cs, card{Name: "Replay, worst KS of " + strings.ToUpper(m), Value: statistic(*g.Value), Class: gateClass(g),
					Sub: fmt.Sprintf("%s; must be %s %s", g.Scope, g.Op, Short(g.Threshold))})
			}
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return []Block{{Cards: cs}}
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
