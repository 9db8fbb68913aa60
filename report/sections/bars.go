package sections

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// intervalBar draws the interval on the scale of the value itself, -2 to +2
// times when it is negative or its interval crosses zero, else 0 to 2 times.
func intervalBar(c result.Coefficient) string {
	ci := c.Interval()
	if ci == nil || c.Value == 0 {
		return ""
	}
	size := math.Abs(c.Value)
	a := draw.Axis{Lo: 0, Hi: 2 * size, P0: 4, P1: draw.BarW - 4}
	if ci[0] < 0 || c.Value < 0 {
		a.Lo = -2 * size
	}
	d := draw.Drawing{W: draw.BarW, H: 14}
	d.Seg(draw.At(a.P0, 7), draw.At(a.P1, 7), draw.GridLine, 1, draw.Solid)
	if a.Lo < 0 {
		d.Seg(draw.At(a.Px(0), 1), draw.At(a.Px(0), 13), draw.AxisLine, 1, draw.Solid)
	}
	d.Rect(draw.At(a.Px(ci[0]), 2.5), draw.At(math.Max(a.Px(ci[1]), a.Px(ci[0])+1), 11.5), draw.Decode, 0.4, "")
	d.Seg(draw.At(a.Px(c.Value), 1), draw.At(a.Px(c.Value), 13), draw.Decode, 2, draw.Solid)
	v, unit := words.Milli(c.Value, c.Unit)
	lo, _ := words.Milli(ci[0], c.Unit)
	hi, _ := words.Milli(ci[1], c.Unit)
	return draw.Inline(&d, fmt.Sprintf("%s; 95 %% interval %s %s", words.FourDigits(v), words.Range(lo, hi), unit))
}
