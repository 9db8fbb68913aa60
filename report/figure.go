package report

import "math"

// figure is a titled group of panels with a legend and one sentence that says
// what to look at and what would be bad.
type figure struct {
	id     string // anchor and file name
	title  string
	note   string
	panels []panel
	legend []key
	closed bool   // folded on the page
	more   string // which panels were left out; empty for none
}

// panel is one drawing and what a screen reader says about it. A wide drawing
// has a narrow twin, which phones show instead.
type panel struct {
	d      *drawing
	desc   string
	narrow *drawing
}

// bothWidths draws a panel for a desk and for a phone; nil when there is
// nothing to draw.
func bothWidths(desc string, draw func(w float64) *drawing) []panel {
	d := draw(wideW)
	if d == nil {
		return nil
	}
	return []panel{{d, desc, draw(panelW)}}
}

// key is one legend entry.
type key struct {
	p    paint
	dash int
	area bool // a filled swatch instead of a line
	text string
}

// wide reports whether the figure's panels want the full width.
func (f *figure) wide() bool { return len(f.panels) > 0 && f.panels[0].d.w > panelW+20 }

const exportPad, exportGap = 16.0, 18.0

// sheet lays title, legend and panels out on one canvas for export.
func (f *figure) sheet() *drawing {
	cols := 1
	if !f.wide() {
		cols = min(max(len(f.panels), 1), 3)
	}
	cellW := panelW
	for _, p := range f.panels {
		cellW = math.Max(cellW, p.d.w)
	}
	out := &drawing{w: 2*exportPad + float64(cols)*cellW + float64(cols-1)*exportGap}
	out.heading(point{exportPad, exportPad + 12}, f.title, 15, ink, anchorStart)
	y := f.drawLegend(out, exportPad+36)
	for i := 0; i < len(f.panels); i += cols {
		rowH := 0.0
		for j, p := range f.panels[i:min(i+cols, len(f.panels))] {
			out.place(p.d, exportPad+float64(j)*(cellW+exportGap), y)
			rowH = math.Max(rowH, p.d.h)
		}
		y += rowH + exportGap
	}
	out.h = y - exportGap + exportPad
	return out
}

// drawLegend draws the legend from y down and returns where the panels start.
func (f *figure) drawLegend(out *drawing, y float64) float64 {
	if len(f.legend) == 0 {
		return y
	}
	x := exportPad
	for _, k := range f.legend {
		w := 30 + textWidth(k.text, labelSize) + 16
		if x > exportPad && x+w > out.w-exportPad {
			x, y = exportPad, y+18
		}
		if k.area {
			out.rect(point{x, y - 8}, point{x + 22, y + 1}, k.p, 0, "")
		} else {
			out.seg(point{x, y - 3.5}, point{x + 22, y - 3.5}, k.p, 2, k.dash)
		}
		out.label(point{x + 28, y}, k.text, labelSize, ink, anchorStart)
		x += w
	}
	return y + 16
}
