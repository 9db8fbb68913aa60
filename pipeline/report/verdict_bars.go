package report

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

// gateBar is the value as a bar on a track that ends at twice the threshold.
func gateBar(g result.Gate) string {
	if g.Value == nil || !(g.Threshold > 0) {
		return ""
	}
	d := Drawing{W: barW, H: barH}
	d.Rect(At(0, 3), At(barW, barH-3), gridLine, 0, "")
	frac := max(0, *g.Value) / (2 * g.Threshold)
	p := good
	if gateRank(g) == 0 {
		p = bad
	} else if g.Pass == nil {
		p = AxisLine
	}
	d.Rect(At(0, 3), At(min(frac, 1)*barW, barH-3), p, 0, "")
	d.Seg(At(barW/2, 0), At(barW/2, barH), ink, 1.5, Solid)
	return inline(&d, fmt.Sprintf("%s, threshold %s", GateValue(g.Name, g.Value), GateThreshold(g)))
}

func gateBarKey(g result.Gate) string {
	if g.Value == nil || g.Threshold == 0 {
		return ""
	}
	return sortKey(*g.Value / g.Threshold)
}
