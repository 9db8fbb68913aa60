package race

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
)

// sentences say who wins each formable split, by how much, or that no difference
// is shown. Nothing is claimed without a paired interval that leaves 0 out.
func sentences(doc *result.PredictorScores) []string {
	out := []string{}
	for _, s := range doc.Splits {
		if s.Name == random {
			if line := flattery(doc, &s); line != "" {
				out = append(out, line)
			}
			continue
		}
		at := fmt.Sprintf("%s, %s, %s: ", s.Scope, s.Target, s.Name)
		if s.Reason != "" {
			out = append(out, at+"not formable: "+s.Reason)
			continue
		}
		out = append(out, at+winner(doc, &s))
		if line := duel(doc, &s, model.Physics, model.Trees); line != "" {
			out = append(out, at+line)
		}
		if line := duel(doc, &s, model.PhysicsTrees, model.Physics); line != "" {
			out = append(out, at+line)
		}
	}
	return out
}

// flattery is how much better trees look on a random split than on the next minutes.
func flattery(doc *result.PredictorScores, s *result.PredictorSplit) string {
	of := func(split string) *float64 {
		for i := range doc.Cells {
			if c := &doc.Cells[i]; c.Scope == s.Scope && c.Target == s.Target && c.Split == split && c.Model == model.Trees {
				return c.MAPE
			}
		}
		return nil
	}
	leak, honest := of(random), of(Time)
	if leak == nil || honest == nil {
		return ""
	}
	return fmt.Sprintf("%s, %s, random - time: trees %+.1f points (%s against %s)", s.Scope, s.Target, 100*(*leak-*honest), asPercent(leak),
		asPercent(honest))
}

// winner names the model with the smallest MAPE and those it is shown to beat.
func winner(doc *result.PredictorScores, s *result.PredictorSplit) string {
	var best *result.PredictorCell
	for i := range doc.Cells {
		c := &doc.Cells[i]
		if c.Scope == s.Scope && c.Target == s.Target && c.Split == s.Name && c.MAPE != nil && (best == nil || *c.MAPE < *best.MAPE) {
			best = c
		}
	}
	if best == nil {
		return "no model has a figure"
	}
	beaten, open := []string{}, []string{}
	for _, m := range doc.Models {
		if m.Name == best.Model {
			continue
		}
		switch c := contrastOf(doc, s, best.Model, m.Name); {
		case c == nil || c.Difference == nil:
		case c.IsShown:
			beaten = append(beaten, m.Name)
		default:
			open = append(open, m.Name)
		}
	}
	line := fmt.Sprintf("%s has the smallest MAPE, %s", best.Model, asPercent(best.MAPE))
	if len(beaten) > 0 {
		line += fmt.Sprintf("; shown better than %s", listed(beaten))
	}
	if len(open) > 0 {
		line += fmt.Sprintf("; no difference shown to %s", listed(open))
	}
	return line
}

// duel compares two models on a split.
func duel(doc *result.PredictorScores, s *result.PredictorSplit, a, b string) string {
	c := contrastOf(doc, s, a, b)
	if c == nil || c.Difference == nil {
		return ""
	}
	if c.Band == nil {
		return fmt.Sprintf("%s against %s: no difference shown (%d blocks give no interval)", a, b, c.Blocks)
	}
	better, worse, d, lo, hi := a, b, *c.Difference, c.Band[0], c.Band[1]
	if math.Abs(d) < 1e-12 {
		return fmt.Sprintf("%s and %s predict the same", a, b)
	}
	if d > 0 {
		better, worse, d, lo, hi = b, a, -d, -hi, -lo
	}
	if !c.IsShown {
		return fmt.Sprintf("%s against %s: no difference shown (%+.1f points, %+.1f to %+.1f)", better, worse, 100*d, 100*lo, 100*hi)
	}
	return fmt.Sprintf("%s beats %s by %.1f points of MAPE (%.1f to %.1f)", better, worse, -100*d, -100*hi, -100*lo)
}

// contrastOf is the contrast of two models, turned so that a comes first; nil
// without.
func contrastOf(doc *result.PredictorScores, s *result.PredictorSplit, a, b string) *result.PredictorContrast {
	for i := range doc.Contrasts {
		c := doc.Contrasts[i]
		if c.Scope != s.Scope || c.Target != s.Target || c.Split != s.Name {
			continue
		}
		if c.A == a && c.B == b {
			return &c
		}
		if c.A == b && c.B == a {
			c.A, c.B = a, b
			if c.Difference != nil {
				c.Difference = result.OrNull(-*c.Difference)
			}
			if c.Band != nil {
				c.Band = &[2]float64{-c.Band[1], -c.Band[0]}
			}
			return &c
		}
	}
	return nil
}

func asPercent(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}

func listed(names []string) string {
	out := ""
	for i, n := range names {
		switch {
		case i > 0 && i == len(names)-1:
			out += " and "
		case i > 0:
			out += ", "
		}
		out += n
	}
	return out
}
