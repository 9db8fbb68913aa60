package report

import "math"

// Sizes of panels and text, CSS pixels. A panel is as wide as a phone shows.
const (
	PanelW, PanelH = 340.0, 250.0
	tickSize       = 10.5
	labelSize      = 11.0
	headSize       = 12.0
	barW, barH     = 110.0, 12.0 // of a bar in a table
)

// frame is a panel with a plotting area and two axes.
type frame struct {
	Drawing
	X, y axis
}

// NewFrame draws title, grid, ticks and axis labels. The y label stands above
// the axis, horizontally, where it can be read.
func NewFrame(w, h float64, title string, x, y axis) *frame {
	f := &frame{Drawing: Drawing{W: w, H: h}, X: x, y: y}
	left := 14.0
	for _, t := range y.Ticks {
		left = math.Max(left, textWidth(t.Label, tickSize)+12)
	}
	top := 24.0
	if title != "" {
		f.Heading(point{0, 13}, clip(title, headSize, w), headSize, ink, anchorStart)
		top += 18
	}
	f.Label(point{0, top - 9}, clip(y.Label, labelSize, w), labelSize, Mute, anchorStart)
	f.X.P0, f.X.P1 = left, w-12
	f.y.P0, f.y.P1 = h-38, top
	f.grid()
	f.Label(point{(f.X.P0 + f.X.P1) / 2, h - 6}, clip(x.Label, labelSize, w-20), labelSize, Mute, anchorMiddle)
	return f
}

func (f *frame) grid() {
	for _, t := range f.y.Ticks {
		y := f.y.Px(t.V)
		f.Seg(point{f.X.P0, y}, point{f.X.P1, y}, gridLine, 1, Solid)
		f.Label(point{f.X.P0 - 6, y + 3.5}, t.Label, tickSize, Mute, anchorEnd)
	}
	right := math.Inf(-1)
	for _, t := range f.X.Ticks {
		x := f.X.Px(t.V)
		f.Seg(point{x, f.y.P0}, point{x, f.y.P0 + 4}, AxisLine, 1, Solid)
		w := textWidth(t.Label, tickSize)
		if at := math.Min(x, f.W-w/2); at-w/2 > right+4 {
			f.Label(point{at, f.y.P0 + 16}, t.Label, tickSize, Mute, anchorMiddle)
			right = at + w/2
		}
	}
	f.Seg(point{f.X.P0, f.y.P0}, point{f.X.P1, f.y.P0}, AxisLine, 1, Solid)
}

// At is the pixel of a value pair.
func (f *frame) At(x, y float64) point { return point{f.X.Px(x), f.y.Px(y)} }

// Inside reports whether a value pair lies on the axes.
func (f *frame) Inside(x, y float64) bool {
	return x >= f.X.Lo && x <= f.X.Hi && y >= f.y.Lo && y <= f.y.Hi
}

// Curve draws a polyline through values, thinned to at most maxCurve points.
func (f *frame) Curve(xy [][2]float64, p Paint, width float64, dash int) {
	pts := make([]point, 0, min(len(xy), maxCurve))
	for _, v := range sparse(xy) {
		pts = append(pts, f.At(v[0], v[1]))
	}
	if len(pts) > 0 {
		f.line(pts, p, width, dash)
	}
}

// Stairs draws an empirical distribution: flat, then up at each value.
func (f *frame) Stairs(xy [][2]float64, p Paint, width float64, dash int) {
	var pts []point
	prev := 0.0
	for _, v := range sparse(xy) {
		pts = append(pts, f.At(v[0], prev), f.At(v[0], v[1]))
		prev = v[1]
	}
	if len(pts) > 0 {
		f.line(pts, p, width, dash)
	}
}

// Area fills between lower and upper values at the same x.
func (f *frame) Area(x, lower, upper []float64, p Paint, opacity float64) {
	if len(x) < 2 {
		return
	}
	pts := make([]point, 0, 2*len(x))
	for i := range x {
		pts = append(pts, f.At(x[i], upper[i]))
	}
	for i := len(x) - 1; i >= 0; i-- {
		pts = append(pts, f.At(x[i], lower[i]))
	}
	f.add(mark{kind: markPath, pts: pts, closed: true, fill: p, opacity: opacity})
}

// Level draws a horizontal reference line with a word at its right end.
func (f *frame) Level(y float64, p Paint, dash int, word string) {
	if y < f.y.Lo || y > f.y.Hi {
		return
	}
	f.Seg(f.At(f.X.Lo, y), f.At(f.X.Hi, y), p, 1.2, dash)
	if word != "" {
		f.Label(point{f.X.P1, f.y.Px(y) - 4}, word, tickSize, p, anchorEnd)
	}
}

// Diagonal draws y = factor * x across the area.
func (f *frame) Diagonal(factor float64, p Paint, dash int) {
	lo := math.Max(f.X.Lo, f.y.Lo/factor)
	hi := math.Min(f.X.Hi, f.y.Hi/factor)
	if lo < hi {
		f.Seg(f.At(lo, lo*factor), f.At(hi, hi*factor), p, 1.2, dash)
	}
}
