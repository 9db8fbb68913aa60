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
	left := nameWidth(w, h.Rows)
	cw := math.Min(92, (w-left)/float64(max(len(h.Cols), 1)))
	ch := 24.0
	d := &Drawing{W: w, H: 8 + float64(ch*float64(len(h.Rows))) + 42}
	for i, name := range h.Rows {
		y := 4 + float64(ch*float64(i))
		d.Label(point{left - 10, y + ch/2 + 4}, clip(name, labelSize, left-12), labelSize, ink, anchorEnd)
		for j := range h.Cols {
			h.cell(d, i, j, point{left + float64(cw*float64(j)), y}, cw, ch, s)
		}
	}
	y, right := 4+float64(ch*float64(len(h.Rows))), 0.0
	for j, name := range h.Cols {
		x, half := left+float64(cw*(float64(j)+0.5)), textWidth(name, tickSize)/2
		if half > cw {
			name, half = clip(name, tickSize, cw+6), cw/2
		}
		if x-half > right+2 {
			d.Label(point{x, y + 15}, name, tickSize, Mute, anchorMiddle)
			right = x + half
		}
	}
	axisTitle(d, axis{P0: left, P1: left + float64(cw*float64(len(h.Cols)))}, h.XLabel)
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

func (h *Heat) cell(d *Drawing, i, j int, at point, w, hh float64, s Span) {
	v := h.Value[i][j]
	far := point{at.X + w - 2, at.Y + hh - 2}
	if v == nil {
		d.Seg(point{at.X + w/2 - 5, at.Y + hh/2}, point{at.X + w/2 + 5, at.Y + hh/2}, gridLine, 1.5, Solid)
		return
	}
	frac := h.frac(*v, s)
	d.Rect(at, far, ramp(frac), 0, h.Tip[i][j])
	if s := h.Print(*v); textWidth(s, tickSize) <= w+2 {
		d.Label(point{at.X + (w-2)/2, at.Y + hh/2 + 3}, s, tickSize, onRampText(frac), anchorMiddle)
	}
	if h.Mark == [2]int{i, j} {
		d.add(mark{kind: markPath, closed: true, stroke: Prefill, width: 3,
			pts: []point{at, {far.X, at.Y}, far, {at.X, far.Y}}})
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
