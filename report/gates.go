package report

import (
	"cmp"
	"fmt"
	"html/template"
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
	"overhead_inside":            "overhead predictions inside their measured interval",
	"overhead_inside_loco":       "overhead inside its interval, configuration left out",
	"admission_window_mape":      "admission wait error of 10-second means (MAPE)",
	"admission_window_mape_loco": "admission wait error of 10-second means, configuration left out (MAPE)",
	"admission_max_error":        "largest error of a 10-second mean over the median one",
	"admission_beats_constant":   "admission error over that of the best constant",
	"egress_wape":                "egress error (WAPE)",
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

func gateValue(name string, v *float64) string {
	switch {
	case v == nil:
		return unknown
	case gateIsPercent(name):
		return pct(*v)
	case strings.HasPrefix(name, "ks_"):
		return share3(*v)
	}
	return short(*v)
}

func gateThreshold(g result.Gate) string {
	if gateIsPercent(g.Name) {
		return thresholdPct(g.Threshold)
	}
	return short(g.Threshold)
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

// maxJudged is how many judged gates stand in one table; beyond, those that
// passed are folded away.
const maxJudged = 40

// gateTables are the judged gates, those that lack data, and, folded, those
// that are not required.
func gateTables(v *result.Validation) []block {
	judged := &table{ID: "gates", Caption: "Gates", Cols: gateCols(), Note: "A failed gate makes the command exit with 3. Under each threshold stands why; a gate's name leads to its clause in the specification, and `blis-train validate --gates list` prints them all."}
	open := &table{ID: "gates-open", Caption: "Gates without enough data", Cols: gateCols(), Note: "A gate without a verdict is never a pass."}
	rest := &table{ID: "gates-rest", Caption: "Gates that are not required here", Cols: gateCols(), Closed: true}
	passed := judged
	if judgedGates(v.Gates) > maxJudged {
		passed = &table{ID: "gates-passed", Caption: "Gates that passed", Cols: gateCols(), Closed: true}
		judged.Caption = "Gates that failed"
	}
	for _, g := range sortedGates(v.Gates) {
		t := judged
		switch gateRank(g) {
		case 1:
			t = open
		case 2:
			t = passed
		case 3:
			t = rest
		}
		t.grow(func() row { return gateRow(g) })
	}
	open.Closed = open.total > 12 && v.Verdict != result.VerdictInsufficient
	out := tables(capped(judged, "failed ones first", "validation.json, gates"))
	out = append(out, tables(capped(open, "in the order of the file", "validation.json, gates"))...)
	if passed != judged {
		out = append(out, tables(capped(passed, "in the order of the file", "validation.json, gates"))...)
	}
	return append(out, tables(capped(rest, "in the order of the file", "validation.json, gates"))...)
}

func judgedGates(gs []result.Gate) int {
	n := 0
	for _, g := range gs {
		if g.Pass != nil {
			n++
		}
	}
	return n
}

func gateCols() []column {
	return []column{
		{Head: "Result"}, {Head: "Gate"}, {Head: "Value", Num: true}, {Head: "Must be"},
		{Head: "Against threshold", Help: "the tick is the threshold; the bar ends at twice the threshold"}, {Head: "Scope"},
	}
}

func gateRow(g result.Gate) row {
	verdict := cell{Text: "pass", Class: "ok nb", Key: "2"}
	switch gateRank(g) {
	case 0:
		verdict = cell{Text: "FAIL", Class: "ko nb", Key: "0"}
	case 1:
		verdict = cell{Text: "no data", Class: "na nb", Key: "1"}
	case 3:
		verdict = cell{Text: "not judged", Class: "dim nb", Key: "3"}
	}
	value := cell{Text: gateValue(g.Name, g.Value), Class: "n"}
	if g.Value != nil {
		value.Key = sortKey(*g.Value)
	}
	name := cell{Text: g.Name, Sub: gateWords[g.Name], Class: "id"}
	if name.Sub != "" { // a gate we know has a clause
		name.Href = result.GateClause(g.Name)
	}
	scope := cell{Text: g.Scope, Class: "w"}
	if g.Pass == nil {
		scope.Sub = g.Note
	}
	return row{Cells: []cell{
		verdict,
		name,
		value,
		{Text: strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op) + "\u00a0" + gateThreshold(g), Sub: g.Source},
		{Mini: template.HTML(gateBar(g)), Key: gateBarKey(g)},
		scope,
	}}
}

const barW, barH = 110.0, 12.0

// gateBar is the value as a bar on a track that ends at twice the threshold.
func gateBar(g result.Gate) string {
	if g.Value == nil || !(g.Threshold > 0) {
		return ""
	}
	d := drawing{w: barW, h: barH}
	d.rect(point{0, 3}, point{barW, barH - 3}, gridLine, 0, "")
	frac := max(0, *g.Value) / (2 * g.Threshold)
	p := good
	if gateRank(g) == 0 {
		p = bad
	} else if g.Pass == nil {
		p = axisLine
	}
	d.rect(point{0, 3}, point{min(frac, 1) * barW, barH - 3}, p, 0, "")
	d.seg(point{barW / 2, 0}, point{barW / 2, barH}, ink, 1.5, solid)
	return inlineSVG(&d, fmt.Sprintf("%s, threshold %s", gateValue(g.Name, g.Value), gateThreshold(g)))
}

func gateBarKey(g result.Gate) string {
	if g.Value == nil || g.Threshold == 0 {
		return ""
	}
	return sortKey(*g.Value / g.Threshold)
}
