package validate

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// mustBePositive are the terms no server does without; the bias may be 0.
var mustBePositive = []string{"prefill_linear_compute", "decode_weight_load", "fixed_step_overhead"}

const mayBeZero = "bias"

// checkSigns counts the terms with an impossible sign among those that the data
// identify within configurations.
func checkSigns(set *coeff.Set) signCheck {
	var s signCheck
	for i := range set.Beta {
		c := &set.Beta[i]
		positive := slices.Contains(mustBePositive, c.Name)
		if c.Identified != coeff.Within || !positive && c.Name != mayBeZero {
			continue
		}
		s.checked++
		if c.Value < 0 || positive && c.Value == 0 {
			s.violations++
		}
	}
	return s
}

// signCheck counts impossible signs among identified terms.
type signCheck struct {
	checked, violations int
}

func (s signCheck) gate(r *rules) result.Gate {
	if s.checked == 0 {
		g := r.gate(gateBetaSigns, scopeAll, nil, noteNotIdentified)
		g.Required = false
		return g
	}
	v := float64(s.violations)
	return r.gate(gateBetaSigns, scopeAll, &v, "")
}
