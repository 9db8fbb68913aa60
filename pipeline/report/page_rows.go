package report

import "math"

// wideW is the width of a figure whose rows carry names.
const wideW, rowH, nameW = 720.0, 21.0, 230.0

// RowMark is one value in a row of a row chart.
type RowMark struct {
	V    float64
	P    Paint
	Ring bool // drawn as a ring around the dot
	Bar  bool // a vertical tick instead of a dot: limits
	Tip  string
}

// ChartRow is a name and its values.
type ChartRow struct {
	Name  string
	Marks []RowMark
	Join  bool // a line from the smallest to the largest dot
}

// RowChart draws one row per name over a shared horizontal axis.
func RowChart(w float64, rows []ChartRow, x axis, refs ...RowMark) *Drawing {
	top, bottom := 20.0, 40.0
	d := &Drawing{W: w, H: top + float64(float64(len(rows))*rowH) + bottom}
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	left := nameWidth(w, names)
	x.P0, x.P1 = left, w-20
	y1, right := d.H-bottom, 0.0
	for _, t := range x.Ticks {
		d.Seg(point{x.Px(t.V), top - 4}, point{x.Px(t.V), y1}, gridLine, 1, Solid)
		if half := textWidth(t.Label, tickSize) / 2; x.Px(t.V)-half > right+4 {
			d.Label(point{x.Px(t.V), y1 + 15}, t.Label, tickSize, Mute, anchorMiddle)
			right = x.Px(t.V) + half
		}
	}
	axisTitle(d, x, x.Label)
	for _, r := range refs {
		if r.V >= x.Lo && r.V <= x.Hi {
			d.Seg(point{x.Px(r.V), top - 6}, point{x.Px(r.V), y1}, r.P, 1.3, Dashed)
			d.Label(point{x.Px(r.V), top - 9}, r.Tip, tickSize, r.P, anchorMiddle)
		}
	}
	for i, r := range rows {
		drawRow(d, r, &x, left, top+float64((float64(i)+0.5)*rowH))
	}
	return d
}

func drawRow(d *Drawing, r ChartRow, x *axis, left, y float64) {
	d.Label(point{left - 12, y + 4}, clip(r.Name, labelSize, left-14), labelSize, ink, anchorEnd)
	var s Span
	for _, m := range r.Marks {
		if !m.Bar {
			s.Take(m.V)
		}
	}
	if r.Join && s.Ok && s.Hi > s.Lo {
		d.Seg(point{x.Px(s.Lo), y}, point{x.Px(s.Hi), y}, AxisLine, 1.5, Solid)
	}
	for _, m := range r.Marks {
		px := x.Px(m.V)
		switch {
		case m.Bar:
			d.add(mark{kind: markPath, pts: []point{{px, y - 7}, {px, y + 7}}, stroke: m.P, width: 2, tip: m.Tip})
		case m.Ring:
			d.add(mark{kind: markCircle, pts: []point{{px, y}}, radius: 7, stroke: m.P, width: 1.6, tip: m.Tip})
		default:
			d.Dot(point{px, y}, 4.2, m.P, 0, m.Tip)
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
