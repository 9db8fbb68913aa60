package report

import "slices"

// regimeOrder is the order in which regimes are drawn and listed.
var regimeOrder = []string{"decode", "mixed", "prefill", "idle", "waiting"}

// regimesIn lists the regimes that occur, known ones first.
func regimesIn(next func(yield func(string))) []string {
	var seen []string
	next(func(r string) { seen = AppendNew(seen, r) })
	slices.SortStableFunc(seen, func(a, b string) int { return regimeIndex(a) - regimeIndex(b) })
	return seen
}

func regimeIndex(r string) int {
	if i := slices.Index(regimeOrder, r); i >= 0 {
		return i
	}
	return len(regimeOrder)
}

func regimeKeys(regimes []string) []Key {
	var out []Key
	for _, r := range regimes {
		out = append(out, Key{P: regimePaint(r), Area: true, Text: r})
	}
	return out
}

// maxPanels is the most panels of a figure with one per regime or run.
const maxPanels = 12

// keep drops figures without panels.
func keep(fs ...*Figure) []*Figure {
	var out []*Figure
	for _, f := range fs {
		if f != nil && len(f.Panels) > 0 {
			out = append(out, f)
		}
	}
	return out
}
