package report

import (
	"fmt"
	"math"

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
	a := axis{Lo: 0, Hi: 2 * size, P0: 4, P1: barW - 4}
	if ci[0] < 0 || c.Value < 0 {
		a.Lo = -2 * size
	}
	d := Drawing{W: barW, H: 14}
	d.Seg(At(a.P0, 7), At(a.P1, 7), gridLine, 1, Solid)
	if a.Lo < 0 {
		d.Seg(At(a.Px(0), 1), At(a.Px(0), 13), AxisLine, 1, Solid)
	}
	d.Rect(At(a.Px(ci[0]), 2.5), At(math.Max(a.Px(ci[1]), a.Px(ci[0])+1), 11.5), Decode, 0.4, "")
	d.Seg(At(a.Px(c.Value), 1), At(a.Px(c.Value), 13), Decode, 2, Solid)
	v, unit := Milli(c.Value, c.Unit)
	lo, _ := Milli(ci[0], c.Unit)
	hi, _ := Milli(ci[1], c.Unit)
	return inline(&d, fmt.Sprintf("%s; 95 %% interval %s %s", FourDigits(v), Range(lo, hi), unit))
}
