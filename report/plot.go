package report

import "math"

// Sizes of panels and text, CSS pixels. A panel is as wide as a phone shows.
const (
	panelW, panelH = 340.0, 250.0
	tickSize       = 10.5
	labelSize      = 11.0
	headSize       = 12.0
)

// frame is a panel with a plotting area and two axes.
type frame struct {
	drawing
	x, y axis
}

// newFrame draws title, grid, ticks and axis labels. The y label stands above
// the axis, horizontally, where it can be read.
func newFrame(w, h float64, title string, x, y axis) *frame {
	f := &frame{drawing: drawing{w: w, h: h}, x: x, y: y}
	left := 14.0
	for _, t := range y.ticks {
		left = math.Max(left, textWidth(t.label, tickSize)+12)
	}
	top := 24.0
	if title != "" {
		f.heading(point{0, 13}, clip(title, headSize, w), headSize, ink, anchorStart)
		top += 18
	}
	f.label(point{0, top - 9}, clip(y.label, labelSize, w), labelSize, mute, anchorStart)
	f.x.p0, f.x.p1 = left, w-12
	f.y.p0, f.y.p1 = h-38, top
	f.grid()
	f.label(point{(f.x.p0 + f.x.p1) / 2, h - 6}, clip(x.label, labelSize, w-20), labelSize, mute, anchorMiddle)
	return f
}

func (f *frame) grid() {
	for _, t := range f.y.ticks {
		y := f.y.px(t.v)
		f.seg(point{f.x.p0, y}, point{f.x.p1, y}, gridLine, 1, solid)
		f.label(point{f.x.p0 - 6, y + 3.5}, t.label, tickSize, mute, anchorEnd)
	}
	right := math.Inf(-1)
	for _, t := range f.x.ticks {
		x := f.x.px(t.v)
		f.seg(point{x, f.y.p0}, point{x, f.y.p0 + 4}, axisLine, 1, solid)
		w := textWidth(t.label, tickSize)
		if at := math.Min(x, f.w-w/2); at-w/2 > right+4 {
			f.label(point{at, f.y.p0 + 16}, t.label, tickSize, mute, anchorMiddle)
			right = at + w/2
		}
	}
	f.seg(point{f.x.p0, f.y.p0}, point{f.x.p1, f.y.p0}, axisLine, 1, solid)
}

// at is the pixel of a value pair.
func (f *frame) at(x, y float64) point { return point{f.x.px(x), f.y.px(y)} }

// inside reports whether a value pair lies on the axes.
func (f *frame) inside(x, y float64) bool {
	return x >= f.x.lo && x <= f.x.hi && y >= f.y.lo && y <= f.y.hi
}

// curve draws a polyline through values, thinned to at most maxCurve points.
func (f *frame) curve(xy [][2]float64, p paint, width float64, dash int) {
	pts := make([]point, 0, min(len(xy), maxCurve))
	for _, v := range thin(xy) {
		pts = append(pts, f.at(v[0], v[1]))
	}
	if len(pts) > 0 {
		f.line(pts, p, width, dash)
	}
}

// stairs draws an empirical distribution: flat, then up at each value.
func (f *frame) stairs(xy [][2]float64, p paint, width float64, dash int) {
	var pts []point
	prev := 0.0
	for _, v := range thin(xy) {
		pts = append(pts, f.at(v[0], prev), f.at(v[0], v[1]))
		prev = v[1]
	}
	if len(pts) > 0 {
		f.line(pts, p, width, dash)
	}
}

// area fills between lower and upper values at the same x.
func (f *frame) area(x, lower, upper []float64, p paint, opacity float64) {
	if len(x) < 2 {
		return
	}
	pts := make([]point, 0, 2*len(x))
	for i := range x {
		pts = append(pts, f.at(x[i], upper[i]))
	}
	for i := len(x) - 1; i >= 0; i-- {
		pts = append(pts, f.at(x[i], lower[i]))
	}
	f.add(mark{kind: markPath, pts: pts, closed: true, fill: p, opacity: opacity})
}

// level draws a horizontal reference line with a word at its right end.
func (f *frame) level(y float64, p paint, dash int, word string) {
	if y < f.y.lo || y > f.y.hi {
		return
	}
	f.seg(f.at(f.x.lo, y), f.at(f.x.hi, y), p, 1.2, dash)
	if word != "" {
		f.label(point{f.x.p1, f.y.px(y) - 4}, word, tickSize, p, anchorEnd)
	}
}

// diagonal draws y = factor * x across the area.
func (f *frame) diagonal(factor float64, p paint, dash int) {
	lo := math.Max(f.x.lo, f.y.lo/factor)
	hi := math.Min(f.x.hi, f.y.hi/factor)
	if lo < hi {
		f.seg(f.at(lo, lo*factor), f.at(hi, hi*factor), p, 1.2, dash)
	}
}

// maxCurve is the most points one line may have.
const maxCurve = 240

// thin keeps at most maxCurve points, the first and the last among them.
func thin(xy [][2]float64) [][2]float64 {
	if len(xy) <= maxCurve {
		return xy
	}
	out := make([][2]float64, 0, maxCurve)
	for i := range maxCurve {
		out = append(out, xy[i*(len(xy)-1)/(maxCurve-1)])
	}
	return out
}

// span is the smallest and largest finite value seen.
type span struct {
	lo, hi float64
	ok     bool
}

func (s *span) take(vs ...float64) {
	for _, v := range vs {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
		case !s.ok:
			s.lo, s.hi, s.ok = v, v, true
		default:
			s.lo, s.hi = math.Min(s.lo, v), math.Max(s.hi, v)
		}
	}
}

// takePositive is take for log axes.
func (s *span) takePositive(vs ...float64) {
	for _, v := range vs {
		if v > 0 {
			s.take(v)
		}
	}
}
