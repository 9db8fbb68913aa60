package report

import "math"

// wideW is the width of a figure whose rows carry names.
const wideW, rowH, nameW = 720.0, 21.0, 230.0

// rowMark is one value in a row of a row chart.
type rowMark struct {
	v    float64
	p    paint
	ring bool // drawn as a ring around the dot
	bar  bool // a vertical tick instead of a dot: limits
	tip  string
}

// chartRow is a name and its values.
type chartRow struct {
	name  string
	marks []rowMark
	join  bool // a line from the smallest to the largest dot
}

// rowChart draws one row per name over a shared horizontal axis.
func rowChart(w float64, rows []chartRow, x axis, refs ...rowMark) *drawing {
	top, bottom := 20.0, 40.0
	d := &drawing{w: w, h: top + float64(len(rows))*rowH + bottom}
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	left := nameWidth(w, names)
	x.p0, x.p1 = left, w-20
	y1, right := d.h-bottom, 0.0
	for _, t := range x.ticks {
		d.seg(point{x.px(t.v), top - 4}, point{x.px(t.v), y1}, gridLine, 1, solid)
		if half := textWidth(t.label, tickSize) / 2; x.px(t.v)-half > right+4 {
			d.label(point{x.px(t.v), y1 + 15}, t.label, tickSize, mute, anchorMiddle)
			right = x.px(t.v) + half
		}
	}
	axisTitle(d, x, x.label)
	for _, r := range refs {
		if r.v >= x.lo && r.v <= x.hi {
			d.seg(point{x.px(r.v), top - 6}, point{x.px(r.v), y1}, r.p, 1.3, dashed)
			d.label(point{x.px(r.v), top - 9}, r.tip, tickSize, r.p, anchorMiddle)
		}
	}
	for i, r := range rows {
		drawRow(d, r, &x, left, top+(float64(i)+0.5)*rowH)
	}
	return d
}

func drawRow(d *drawing, r chartRow, x *axis, left, y float64) {
	d.label(point{left - 12, y + 4}, clip(r.name, labelSize, left-14), labelSize, ink, anchorEnd)
	var s span
	for _, m := range r.marks {
		if !m.bar {
			s.take(m.v)
		}
	}
	if r.join && s.ok && s.hi > s.lo {
		d.seg(point{x.px(s.lo), y}, point{x.px(s.hi), y}, axisLine, 1.5, solid)
	}
	for _, m := range r.marks {
		px := x.px(m.v)
		switch {
		case m.bar:
			d.add(mark{kind: markPath, pts: []point{{px, y - 7}, {px, y + 7}}, stroke: m.p, width: 2, tip: m.tip})
		case m.ring:
			d.add(mark{kind: markCircle, pts: []point{{px, y}}, radius: 7, stroke: m.p, width: 1.6, tip: m.tip})
		default:
			d.dot(point{px, y}, 4.2, m.p, 0, m.tip)
		}
	}
}

// nameWidth is the room names need left of a chart, at most nameW and a good third of the
// drawing.
func nameWidth(width float64, names []string) float64 {
	w := 60.0
	for _, n := range names {
		w = math.Max(w, textWidth(n[:min(len(n), maxClip)], labelSize)+16)
	}
	return math.Min(w, math.Min(nameW, 0.38*width))
}

// axisTitle stands centred below the plotting area, or further left when it
// would not fit.
func axisTitle(d *drawing, x axis, label string) {
	label = clip(label, labelSize, d.w-8)
	half := textWidth(label, labelSize) / 2
	at := math.Max(math.Min((x.p0+x.p1)/2, d.w-half-4), half+4)
	d.label(point{at, d.h - 6}, label, labelSize, mute, anchorMiddle)
}

// heat is a matrix of values drawn as coloured cells.
type heat struct {
	rows, cols []string
	xLabel     string
	value      [][]*float64 // [row][col]; nil is drawn empty
	tip        [][]string
	print      func(float64) string
	log        bool
	mark       [2]int // row, col of a ringed cell; -1 for none
}

// drawing draws the matrix; cells share the width left of the names.
func (h *heat) drawing(w float64) *drawing {
	s := h.extent()
	left := nameWidth(w, h.rows)
	cw := math.Min(92, (w-left)/float64(max(len(h.cols), 1)))
	ch := 24.0
	d := &drawing{w: w, h: 8 + ch*float64(len(h.rows)) + 42}
	for i, name := range h.rows {
		y := 4 + ch*float64(i)
		d.label(point{left - 10, y + ch/2 + 4}, clip(name, labelSize, left-12), labelSize, ink, anchorEnd)
		for j := range h.cols {
			h.cell(d, i, j, point{left + cw*float64(j), y}, cw, ch, s)
		}
	}
	y, right := 4+ch*float64(len(h.rows)), 0.0
	for j, name := range h.cols {
		x, half := left+cw*(float64(j)+0.5), textWidth(name, tickSize)/2
		if half > cw {
			name, half = clip(name, tickSize, cw+6), cw/2
		}
		if x-half > right+2 {
			d.label(point{x, y + 15}, name, tickSize, mute, anchorMiddle)
			right = x + half
		}
	}
	axisTitle(d, axis{p0: left, p1: left + cw*float64(len(h.cols))}, h.xLabel)
	return d
}

func (h *heat) extent() (s span) {
	for _, vs := range h.value {
		for _, v := range vs {
			switch {
			case v == nil:
			case h.log:
				s.takePositive(*v)
			default:
				s.take(*v)
			}
		}
	}
	return s
}

func (h *heat) cell(d *drawing, i, j int, at point, w, hh float64, s span) {
	v := h.value[i][j]
	far := point{at.x + w - 2, at.y + hh - 2}
	if v == nil {
		d.seg(point{at.x + w/2 - 5, at.y + hh/2}, point{at.x + w/2 + 5, at.y + hh/2}, gridLine, 1.5, solid)
		return
	}
	frac := h.frac(*v, s)
	d.rect(at, far, ramp(frac), 0, h.tip[i][j])
	if s := h.print(*v); textWidth(s, tickSize) <= w+2 {
		d.label(point{at.x + (w-2)/2, at.y + hh/2 + 3}, s, tickSize, onRampText(frac), anchorMiddle)
	}
	if h.mark == [2]int{i, j} {
		d.add(mark{kind: markPath, closed: true, stroke: prefill, width: 3,
			pts: []point{at, {far.x, at.y}, far, {at.x, far.y}}})
	}
}

func (h *heat) frac(v float64, s span) float64 {
	if !(s.hi > s.lo) {
		return 0
	}
	if h.log {
		return math.Log(math.Max(v, s.lo)/s.lo) / math.Log(s.hi/s.lo)
	}
	return (v - s.lo) / (s.hi - s.lo)
}
