package verdict

import (
	"fmt"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// gateBar is the value as a bar on a track that ends at twice the threshold.
func gateBar(g result.Gate) string {
	if g.Value == nil || !(g.Threshold > 0) {
		return ""
	}
	d := draw.Drawing{W: draw.BarW, H: draw.BarH}
	d.Rect(draw.At(0, 3), draw.At(draw.BarW, draw.BarH-3), draw.GridLine, 0, "")
	frac := max(0, *g.Value) / (2 * g.Threshold)
	p := draw.Good
	if gateRank(g) == 0 {
		p = draw.Bad
	} else if g.Pass == nil {
		p = draw.AxisLine
	}
	d.Rect(draw.At(0, 3), draw.At(min(frac, 1)*draw.BarW, draw.BarH-3), p, 0, "")
	d.Seg(draw.At(draw.BarW/2, 0), draw.At(draw.BarW/2, draw.BarH), draw.Ink, 1.5, draw.Solid)
	return draw.Inline(&d, fmt.Sprintf("%s, threshold %s", GateValue(g.Name, g.Value), GateThreshold(g)))
}

func gateBarKey(g result.Gate) string {
	if g.Value == nil || g.Threshold == 0 {
		return ""
	}
	return words.SortKey(*g.Value / g.Threshold)
}
