package report

import "math"

// Figure is a titled group of panels with a legend and one sentence that says
// what to look at and what would be bad.
type Figure struct {
	ID     string // anchor and file name
	Title  string
	Note   string
	Panels []Panel
	Legend []Key
	Closed bool   // folded on the page
	More   string // which panels were left out; empty for none
}

// Panel is one drawing and what a screen reader says about it. A wide drawing
// has a narrow twin, which phones show instead.
type Panel struct {
	D      *Drawing
	Desc   string
	Narrow *Drawing
}

// BothWidths draws a panel for a desk and for a phone; nil when there is
// nothing to draw.
func BothWidths(desc string, draw func(w float64) *Drawing) []Panel {
	d := draw(wideW)
	if d == nil {
		return nil
	}
	return []Panel{{d, desc, draw(PanelW)}}
}

// Key is one legend entry.
type Key struct {
	P    Paint
	Dash int
	Area bool // a filled swatch instead of a line
	Text string
}

// Wide reports whether the figure's panels want the full width.
func (f *Figure) Wide() bool { return len(f.Panels) > 0 && f.Panels[0].D.W > PanelW+20 }

const exportPad, exportGap = 16.0, 18.0

// Sheet lays title, legend and panels out on one canvas for export.
func (f *Figure) Sheet() *Drawing {
	cols := 1
	if !f.Wide() {
		cols = min(max(len(f.Panels), 1), 3)
	}
	cellW := PanelW
	for _, p := range f.Panels {
		cellW = math.Max(cellW, p.D.W)
	}
	out := &Drawing{W: 2*exportPad + float64(float64(cols)*cellW) + float64(float64(cols-1)*exportGap)}
	out.Heading(point{exportPad, exportPad + 12}, f.Title, 15, ink, anchorStart)
	y := f.drawLegend(out, exportPad+36)
	for i := 0; i < len(f.Panels); i += cols {
		rowH := 0.0
		for j, p := range f.Panels[i:min(i+cols, len(f.Panels))] {
			out.Place(p.D, exportPad+float64(float64(j)*(cellW+exportGap)), y)
			rowH = math.Max(rowH, p.D.H)
		}
		y += rowH + exportGap
	}
	out.H = y - exportGap + exportPad
	return out
}

// drawLegend draws the legend from y down and returns where the panels start.
func (f *Figure) drawLegend(out *Drawing, y float64) float64 {
	if len(f.Legend) == 0 {
		return y
	}
	x := exportPad
	for _, k := range f.Legend {
		w := 30 + textWidth(k.Text, labelSize) + 16
		if x > exportPad && x+w > out.W-exportPad {
			x, y = exportPad, y+18
		}
		if k.Area {
			out.Rect(point{x, y - 8}, point{x + 22, y + 1}, k.P, 0, "")
		} else {
			out.Seg(point{x, y - 3.5}, point{x + 22, y - 3.5}, k.P, 2, k.Dash)
		}
		out.Label(point{x + 28, y}, k.Text, labelSize, ink, anchorStart)
		x += w
	}
	return y + 16
}

func (k Key) Svg() string {
	d := Drawing{W: 22, H: 10}
	if k.Area {
		d.Rect(point{0, 1}, point{22, 9}, k.P, 0, "")
	} else {
		d.Seg(point{0, 5}, point{22, 5}, k.P, 2, k.Dash)
	}
	return inline(&d, k.Text)
}
