package report

import "math"

// Heat is a matrix of values drawn as coloured cells.
type Heat struct {
	Rows, Cols []string
	XLabel     string
	Value      [][]*float64 // [row][col]; nil is drawn empty
	Tip        [][]string
	Print      func(float64) string
	Log        bool
	Mark       [2]int // row, col of a ringed cell; -1 for none
}

// Draw draws the matrix; cells share the width left of the names.
func (h *Heat) Draw(w float64) *Drawing {
	s := h.extent()
	left := NameWidth(w, h.Rows)
	cw := math.Min(92, (w-left)/float64(max(len(h.Cols), 1)))
	ch := 24.0
	d := &Drawing{W: w, H: 8 + float64(ch*float64(len(h.Rows))) + 42}
	for i, name := range h.Rows {
		y := 4 + float64(ch*float64(i))
		d.Label(Point{left - 10, y + ch/2 + 4}, Clip(name, LabelSize, left-12), LabelSize, Ink, AnchorEnd)
		for j := range h.Cols {
			h.cell(d, i, j, Point{left + float64(cw*float64(j)), y}, cw, ch, s)
		}
	}
	y, right := 4+float64(ch*float64(len(h.Rows))), 0.0
	for j, name := range h.Cols {
		x, half := left+float64(cw*(float64(j)+0.5)), TextWidth(name, TickSize)/2
		if half > cw {
			name, half = Clip(name, TickSize, cw+6), cw/2
		}
		if x-half > right+2 {
			d.Label(Point{x, y + 15}, name, TickSize, Mute, AnchorMiddle)
			right = x + half
		}
	}
	AxisTitle(d, Axis{P0: left, P1: left + float64(cw*float64(len(h.Cols)))}, h.XLabel)
	return d
}

func (h *Heat) extent() (s Span) {
	for _, vs := range h.Value {
		for _, v := range vs {
			switch {
			case v == nil:
			case h.Log:
				s.TakePositive(*v)
			default:
				s.Take(*v)
			}
		}
	}
	return s
}

func (h *Heat) cell(d *Drawing, i, j int, at Point, w, hh float64, s Span) {
	v := h.Value[i][j]
	far := Point{at.X + w - 2, at.Y + hh - 2}
	if v == nil {
		d.Seg(Point{at.X + w/2 - 5, at.Y + hh/2}, Point{at.X + w/2 + 5, at.Y + hh/2}, GridLine, 1.5, Solid)
		return
	}
	frac := h.frac(*v, s)
	d.Rect(at, far, Ramp(frac), 0, h.Tip[i][j])
	if s := h.Print(*v); TextWidth(s, TickSize) <= w+2 {
		d.Label(Point{at.X + (w-2)/2, at.Y + hh/2 + 3}, s, TickSize, onRampText(frac), AnchorMiddle)
	}
	if h.Mark == [2]int{i, j} {
		d.add(mark{kind: markPath, closed: true, stroke: Prefill, width: 3,
			pts: []Point{at, {far.X, at.Y}, far, {at.X, far.Y}}})
	}
}

func (h *Heat) frac(v float64, s Span) float64 {
	if !(s.Hi > s.Lo) {
		return 0
	}
	if h.Log {
		return math.Log(math.Max(v, s.Lo)/s.Lo) / math.Log(s.Hi/s.Lo)
	}
	return (v - s.Lo) / (s.Hi - s.Lo)
}
