package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// gateWords says in plain words what a gate compares.
var gateWords = map[string]string{
	"beta_mape":                  "step time error on hold-out rows (MAPE)",
	"beta_mape_loco":             "step time error on a configuration left out (MAPE)",
	"beta_max_error":             "largest step time error over the median step",
	"beta_signs":                 "physical terms with a sign physics forbids",
	"beta_beats_constant":        "step time error over that of the best constant",
	"beta_skill":                 "skill between the best constant (0) and the noise floor (1)",
	"bias":                       "size of the total signed bias of the step time",
	"bound_hits":                 "share of rows with a feature at its bound",
	"certificate":                "the solver's optimality certificate holds (1)",
	"folds_distinct":             "folds that repeat the coefficients of another",
	"target_floor":               "median target over what the hardware can reach",
	"worst_configuration":        "step time error of the worst configuration (MAPE)",
	"overhead_of_ttft":           "error of the overhead as a share of TTFT",
	"overhead_inside_loco":       "overhead inside its interval, configuration left out",
	"admission_window_mape":      "admission wait error of 10-second means (MAPE)",
	"admission_window_mape_loco": "admission wait error of 10-second means, configuration left out (MAPE)",
	"admission_max_error":        "largest error of a 10-second mean over the median one",
	"admission_beats_constant":   "admission error over that of the best constant",
	"egress_of_e2e":              "error of the egress as a share of E2E",
	"queue_mape":                 "queue wait error per request (MAPE)",
	"queue_mape_loco":            "queue wait error per request, configuration left out (MAPE)",
	"queue_max_error":            "largest queue wait error over the median wait",
	"queue_beats_constant":       "queue wait error over that of the best constant",
	"ks_ttft":                    "TTFT distribution, largest gap real to simulated (KS)",
	"ks_itl":                     "ITL distribution, largest gap real to simulated (KS)",
	"ks_e2e":                     "E2E distribution, largest gap real to simulated (KS)",
	"median_rel_err_ttft":        "TTFT, median relative error",
	"median_rel_err_itl":         "ITL, median relative error",
	"median_rel_err_e2e":         "E2E, median relative error",
}

// gateIsPercent tells gates whose values are fractions of a measured time.
func gateIsPercent(name string) bool {
	for _, part := range []string{"mape", "wape", "median_rel_err", "bias", "inside", "bound_hits"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return name == "worst_configuration"
}

// GateValue is what a gate measured, in the words of every output: a share in percent.
func GateValue(name string, v *float64) string {
	switch {
	case v == nil:
		return Unknown
	case gateIsPercent(name):
		return Pct(*v)
	case strings.HasPrefix(name, "ks_"):
		return statistic(*v)
	}
	return Short(*v)
}

// GateThreshold is what a gate wants, in the words of its value.
func GateThreshold(g result.Gate) string {
	if gateIsPercent(g.Name) {
		return threshold(g.Threshold)
	}
	return Short(g.Threshold)
}

// gateRank orders gates by what needs a decision: failed, then undecided, then passed.
func gateRank(g result.Gate) int {
	switch {
	case g.Pass != nil && !*g.Pass:
		return 0
	case g.Pass == nil && g.Required:
		return 1
	case g.Pass == nil:
		return 3
	}
	return 2
}

// sortedGates keeps the file's order inside a rank.
func sortedGates(gs []result.Gate) []result.Gate {
	out := slices.Clone(gs)
	slices.SortStableFunc(out, func(a, b result.Gate) int { return cmp.Compare(gateRank(a), gateRank(b)) })
	return out
}

// headlines says which gates failed: one sentence a gate, with the worst scope.
func headlines(gates []result.Gate) []string {
	scopes := map[string][]result.Gate{}
	var names []string
	for _, g := range gates {
		if gateRank(g) == 0 {
			names = AppendNew(names, g.Name)
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
	limit := fmt.Sprintf("must be %s %s (%s)", strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op), GateThreshold(g), g.Name)
	if len(failed) == 1 {
		return fmt.Sprintf("%s: %s is %s, %s", g.Scope, what, GateValue(g.Name, g.Value), limit)
	}
	return fmt.Sprintf("%d scopes: %s is at worst %s in %s, %s", len(failed), what, GateValue(g.Name, g.Value), g.Scope, limit)
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
		groups[g.Note].names = AppendNew(groups[g.Note].names, g.Name)
		groups[g.Note].scopes = AppendNew(groups[g.Note].scopes, g.Scope)
	}
	var out []string
	for _, why := range reasons {
		out = append(out, fmt.Sprintf("%s of %s: %s", listOf(groups[why].names, 3), listOf(groups[why].scopes, 2), why))
	}
	return out
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
