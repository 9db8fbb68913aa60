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
	d := Drawing{W: BarW, H: BarH}
	d.Rect(At(0, 3), At(BarW, BarH-3), GridLine, 0, "")
	frac := max(0, *g.Value) / (2 * g.Threshold)
	p := Good
	if gateRank(g) == 0 {
		p = Bad
	} else if g.Pass == nil {
		p = AxisLine
	}
	d.Rect(At(0, 3), At(min(frac, 1)*BarW, BarH-3), p, 0, "")
	d.Seg(At(BarW/2, 0), At(BarW/2, BarH), Ink, 1.5, Solid)
	return Inline(&d, fmt.Sprintf("%s, threshold %s", GateValue(g.Name, g.Value), GateThreshold(g)))
}

func gateBarKey(g result.Gate) string {
	if g.Value == nil || g.Threshold == 0 {
		return ""
	}
	return SortKey(*g.Value / g.Threshold)
}
