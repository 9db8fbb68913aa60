package report

// This file draws charts: figures of panels, axes, curves, charts of named rows, and matrices.
// Sizes are CSS pixels with y downwards; drawing.go has the marks that charts consist of.

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
)

// Figure is a titled group of panels with a legend and a note on what to look for and what would be bad.
type Figure struct {
	ID     string // anchor and file name
	Title  string
	Note   string
	Panels []Panel
	Legend []Key
	Closed bool   // folded on the page
	More   string // which panels were omitted; empty for none
}

// Panel is one drawing with a description for screen readers. Narrow is the same drawing for
// phones; nil if D is narrow enough for them.
type Panel struct {
	D      *Drawing
	Desc   string
	Narrow *Drawing
}

// HTML returns the drawing as the page shows it.
func (p Panel) HTML() template.HTML {
	html := inline(p.D, p.Desc)
	if p.Narrow != nil {
		html = `<div class="wd">` + html + `</div><div class="nr">` + inline(p.Narrow, p.Desc) + `</div>`
	}
	return template.HTML(html)
}

// BothWidths returns one panel that is drawn twice, with the widths of a desk and of a phone; nil
// if draw returns nil.
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
	Dash int  // Solid, Dashed or dotted
	Area bool // a filled swatch instead of a line
	Text string
}

// Wide reports whether the figure's panels take the whole width of the page.
func (f *Figure) Wide() bool { return len(f.Panels) > 0 && f.Panels[0].D.W > PanelW+20 }

// Margin of a sheet, and distance between its panels.
const exportPad, exportGap = 16.0, 18.0

// Sheet returns title, legend and panels on one canvas, for a file.
func (f *Figure) Sheet() *Drawing {
	cols := 1
	if !f.Wide() {
		cols = min(max(len(f.Panels), 1), 3)
	}
	cellW := PanelW
	for _, p := range f.Panels {
		cellW = math.Max(cellW, p.D.W)
	}
	out := &Drawing{W: 2*exportPad + float64(cols)*cellW + float64(cols-1)*exportGap}
	out.Heading(point{exportPad, exportPad + 12}, f.Title, 15, ink, anchorStart)
	y := f.drawLegend(out, exportPad+36)
	for i := 0; i < len(f.Panels); i += cols {
		rowH := 0.0
		for j, p := range f.Panels[i:min(i+cols, len(f.Panels))] {
			out.Place(p.D, exportPad+float64(j)*(cellW+exportGap), y)
			rowH = math.Max(rowH, p.D.H)
		}
		y += rowH + exportGap
	}
	out.H = y - exportGap + exportPad
	return out
}

// drawLegend draws the legend at height y and returns the height at which the panels start.
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

// Mini returns the swatch of the legend entry as SVG.
func (k Key) Mini() template.HTML {
	d := Drawing{W: 22, H: 10}
	if k.Area {
		d.Rect(point{0, 1}, point{22, 9}, k.P, 0, "")
	} else {
		d.Seg(point{0, 5}, point{22, 5}, k.P, 2, k.Dash)
	}
	return template.HTML(inline(&d, k.Text))
}

// axis maps values of one quantity to pixels.
type axis struct {
	Label  string  // "step time (ms)": what and unit
	Lo, Hi float64 // the values at its ends
	log    bool    // logarithmic
	Ticks  []tick
	P0, P1 float64 // the pixels of Lo and Hi, which the drawing sets
}

// tick is a value of an axis that has a label.
type tick struct {
	V     float64
	Label string
}

// Linear returns a linear axis over [lo, hi], widened to round ticks, with about as many intervals
// as stated.
func Linear(label string, lo, hi float64, about int) axis {
	if !(hi > lo) {
		lo, hi = lo-0.5, lo+0.5
	}
	step := niceStep((hi - lo) / float64(max(about, 1)))
	first := math.Floor(lo/step + 1e-9)
	last := math.Ceil(hi/step - 1e-9)
	a := axis{Label: label, Lo: first * step, Hi: last * step}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for k := first; k <= last; k++ {
		v := k * step
		a.Ticks = append(a.Ticks, tick{v, grouped(strconv.FormatFloat(v, 'f', decimals, 64))})
	}
	return a
}

// integers returns a linear axis with ticks at whole numbers only.
func integers(label string, lo, hi float64, about int) axis {
	if hi-lo < float64(about) {
		about = max(1, int(hi-lo))
	}
	return Linear(label, math.Floor(lo), math.Max(math.Ceil(hi), math.Floor(lo)+1), about)
}

// Logarithmic returns a logarithmic axis over [lo, hi], both positive. Ticks are at 1, 2 and 5
// times powers of ten if few decades are shown, otherwise at powers of ten.
func Logarithmic(label string, lo, hi float64) axis {
	if !(lo > 0) {
		lo = math.Max(hi/1e6, 1e-9)
	}
	if !(hi > lo) {
		lo, hi = lo/2, lo*2
	}
	a := axis{Label: label, log: true}
	var mult []float64
	switch decades := math.Log10(hi / lo); {
	case decades < 1.5:
		mult = []float64{1, 2, 3, 5, 7}
	case decades < 3:
		mult = []float64{1, 2, 5}
	default:
		mult = []float64{1}
	}
	a.Lo, a.Hi = lo, hi
	e0 := int(math.Floor(math.Log10(lo) + 1e-9))
	e1 := int(math.Ceil(math.Log10(hi) - 1e-9))
	skip := 1 + (e1-e0)/7 // over many decades only every skip-th has a tick
	for e := e0; e <= e1; e++ {
		if len(mult) == 1 && (e-e0)%skip != 0 {
			continue
		}
		for _, m := range mult {
			v := m * math.Pow(10, float64(e))
			if v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				a.Ticks = append(a.Ticks, tick{v, Short(v)})
			}
		}
	}
	return a
}

// Widened returns the range lo to hi with some margin at both ends, for a logarithmic axis.
func Widened(lo, hi float64) (float64, float64) {
	if !(lo > 0) || !(hi >= lo) {
		return lo, hi
	}
	return lo / 1.12, hi * 1.12
}

// Px returns the pixel of value v. Values outside the axis are drawn at its end.
func (a *axis) Px(v float64) float64 {
	lo, hi := a.Lo, a.Hi
	if a.log {
		v = math.Log(math.Max(v, a.Lo*1e-3))
		lo = math.Log(lo)
		hi = math.Log(hi)
	}
	f := (v - lo) / (hi - lo)
	return a.P0 + math.Min(math.Max(f, 0), 1)*(a.P1-a.P0)
}

// niceStep returns the smallest of 1, 2 and 5 times a power of ten that is at least raw.
func niceStep(raw float64) float64 {
	if !(raw > 0) {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*base*(1+1e-9) {
			return m * base
		}
	}
	return 10 * base
}

// axisTitle draws the title of axis x, centred below the plotting area or, if it would not fit,
// further left.
func axisTitle(d *Drawing, x axis, label string) {
	label = clip(label, labelSize, d.W-8)
	half := textWidth(label, labelSize) / 2
	at := math.Max(math.Min((x.P0+x.P1)/2, d.W-half-4), half+4)
	d.Label(point{at, d.H - 6}, label, labelSize, Mute, anchorMiddle)
}

// maxCurve is the largest number of points of one line.
const maxCurve = 240

// sparse returns at most maxCurve of the points, evenly chosen, the first and the last among them.
func sparse[T any](xy []T) []T {
	if len(xy) <= maxCurve {
		return xy
	}
	out := make([]T, 0, maxCurve)
	for i := range maxCurve {
		out = append(out, xy[i*(len(xy)-1)/(maxCurve-1)])
	}
	return out
}

// Span is the smallest and largest finite value seen.
type Span struct {
	Lo, Hi float64
	Ok     bool
}

// Take widens the span to include the finite values.
func (s *Span) Take(vs ...float64) {
	for _, v := range vs {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
		case !s.Ok:
			s.Lo = v
			s.Hi = v
			s.Ok = true
		default:
			s.Lo, s.Hi = math.Min(s.Lo, v), math.Max(s.Hi, v)
		}
	}
}

// TakePositive widens the span to include those of the values that are positive, for logarithmic
// axes; the others are ignored.
func (s *Span) TakePositive(vs ...float64) {
	for _, v := range vs {
		if v > 0 {
			s.Take(v)
		}
	}
}

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

// NewFrame returns a panel of w x h pixels with title, grid, ticks and axis labels. The y label is
// above the axis and horizontal, which is easier to read.
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

// grid draws the grid lines, ticks and tick labels.
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

// At returns the pixel of the values x and y.
func (f *frame) At(x, y float64) point { return point{f.X.Px(x), f.y.Px(y)} }

// Inside reports whether a value pair lies on the axes.
func (f *frame) Inside(x, y float64) bool {
	return x >= f.X.Lo && x <= f.X.Hi && y >= f.y.Lo && y <= f.y.Hi
}

// gap is a point of a curve where nothing was measured.
var gap = [2]float64{math.NaN(), math.NaN()}

// Curve draws polylines through values, broken at gaps and thinned to at most maxCurve points each.
func (f *frame) Curve(xy [][2]float64, p Paint, width float64, dash int) {
	for len(xy) > 0 {
		part, rest := xy, [][2]float64(nil)
		if i := slices.IndexFunc(xy, func(v [2]float64) bool { return math.IsNaN(v[0]) }); i >= 0 {
			part, rest = xy[:i], xy[i+1:]
		}
		pts := make([]point, 0, min(len(part), maxCurve))
		for _, v := range sparse(part) {
			pts = append(pts, f.At(v[0], v[1]))
		}
		if len(pts) > 0 {
			f.line(pts, p, width, dash)
		}
		xy = rest
	}
}

// idleSplits returns the indices at which a curve over time has to be broken: points that follow
// the one before after more than `times` the median interval.
func idleSplits(x []float64, times float64) []int {
	var steps []float64
	for i := 1; i < len(x); i++ {
		steps = append(steps, x[i]-x[i-1])
	}
	median := stat.Median(steps)
	out := []int{}
	for i, d := range steps {
		if d > times*median {
			out = append(out, i+1)
		}
	}
	return out
}

// Stairs draws an empirical distribution function: horizontal lines with a rise at each value. xy are values and the
// shares up to and including them.
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

// Level draws a horizontal reference line at y with a word at its right end.
func (f *frame) Level(y float64, p Paint, dash int, word string) {
	if y < f.y.Lo || y > f.y.Hi {
		return
	}
	f.Seg(f.At(f.X.Lo, y), f.At(f.X.Hi, y), p, 1.2, dash)
	if word != "" {
		f.Label(point{f.X.P1, f.y.Px(y) - 4}, word, tickSize, p, anchorEnd)
	}
}

// Diagonal draws the line y = factor * x across the plotting area.
func (f *frame) Diagonal(factor float64, p Paint, dash int) {
	lo := math.Max(f.X.Lo, f.y.Lo/factor)
	hi := math.Min(f.X.Hi, f.y.Hi/factor)
	if lo < hi {
		f.Seg(f.At(lo, lo*factor), f.At(hi, hi*factor), p, 1.2, dash)
	}
}

// Width of a figure whose rows have names, height of a row, and largest width of the names.
const wideW, rowH, nameW = 720.0, 21.0, 330.0

// RowMark is one value in a row of a row chart.
type RowMark struct {
	V    float64 // on the chart's axis
	P    Paint
	Ring bool // drawn as a ring around the dot
	Bar  bool // a vertical tick instead of a dot: limits
	Tip  string
}

// ChartRow is a row of a chart: its name and its values.
type ChartRow struct {
	Name  string
	Marks []RowMark
	Join  bool // a line from the smallest to the largest dot
}

// RowChart draws one row for each name over a common horizontal axis x, with vertical reference
// lines refs.
func RowChart(w float64, rows []ChartRow, x axis, refs ...RowMark) *Drawing {
	top, bottom := 20.0, 40.0
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	left, fits := nameWidth(w, names)
	height := rowH
	if !fits { // each name gets a line of its own above its marks
		left, height = 10, rowH+nameLine
	}
	d := &Drawing{W: w, H: top + float64(len(rows))*height + bottom}
	x.P0, x.P1 = left, w-20
	// Grid lines, each with its label unless it would run into the label before it.
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
		y := top + float64(i+1)*height - rowH/2
		if fits {
			d.Label(point{left - 12, y + 4}, r.Name, labelSize, ink, anchorEnd)
		} else {
			d.Label(point{0, y - 11}, clip(r.Name, labelSize, w), labelSize, ink, anchorStart)
		}
		drawRow(d, r, &x, y)
	}
	return d
}

// nameLine is the height of a line with a name above the marks of its row.
const nameLine = 18.0

// drawRow draws the marks of one row of a row chart, and the line that joins them.
func drawRow(d *Drawing, r ChartRow, x *axis, y float64) {
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

// nameWidth returns the width that the names need left of a chart, at most nameW and somewhat less
// than half of the drawing, and whether all names fit into it.
func nameWidth(width float64, names []string) (left float64, fits bool) {
	need := 60.0
	fits = true
	for _, n := range names {
		need = math.Max(need, textWidth(n[:min(len(n), maxClip)], labelSize)+16)
		fits = fits && len(n) <= maxClip
	}
	limit := math.Min(nameW, 0.46*width)
	return math.Min(need, limit), fits && need <= limit
}

// rowFigure adds to fig a chart of named rows on a logarithmic axis over the range s, and returns
// fig; nil without rows. total is the number of rows before any were omitted.
func rowFigure(fig *Figure, rows []ChartRow, s Span, label string, total int) *Figure {
	if len(rows) == 0 || !s.Ok {
		return nil
	}
	if len(rows) > maxChartRows {
		fig.More = fmt.Sprintf("The first %d of %d runs; the table holds more.", maxChartRows, total)
		rows = rows[:maxChartRows]
	}
	lo, hi := Widened(s.Lo, s.Hi)
	fig.Panels = BothWidths(fig.Title+", one row per run", func(w float64) *Drawing {
		return RowChart(w, rows, Logarithmic(label, lo, hi))
	})
	return fig
}

// maxChartRows is the largest number of named rows in one chart; the tables have all.
const maxChartRows = 30

// Heat is a matrix of values drawn as coloured cells.
type Heat struct {
	Rows, Cols []string
	XLabel     string
	Value      [][]*float64 // [row][col]; nil is drawn empty
	Tip        [][]string
	Print      func(float64) string // text of a value in its cell
	Log        bool                 // colours by the logarithm of the value
	Mark       [2]int               // row, col of a cell with a frame; -1 for none
}

// HeatOf returns a matrix of shares, still without values.
func HeatOf(rows, cols []string, label string) Heat {
	h := Heat{Rows: rows, Cols: cols, XLabel: label, Print: Pct, Mark: [2]int{-1, -1}}
	for range rows {
		h.Value = append(h.Value, make([]*float64, len(cols)))
		h.Tip = append(h.Tip, make([]string, len(cols)))
	}
	return h
}

// Sizes of a matrix, CSS pixels.
const (
	mostCellW   = 92.0 // few columns do not fill the width
	cellH       = 24.0
	cellGap     = 2.0  // between two cells
	matrixTop   = 4.0  // above the cells
	matrixNames = 46.0 // below them: the names of the columns and the title of their axis
	colNameY    = 15.0 // from the cells to the baseline of the columns' names
)

// Draw draws the matrix with a width of w pixels; the cells share what the names leave.
func (h *Heat) Draw(w float64) *Drawing {
	s := h.extent()
	left, _ := nameWidth(w, h.Rows)
	cellW := math.Min(mostCellW, (w-left)/float64(max(len(h.Cols), 1)))
	bottom := matrixTop + cellH*float64(len(h.Rows))
	d := &Drawing{W: w, H: bottom + matrixNames}
	for i, name := range h.Rows {
		y := matrixTop + cellH*float64(i)
		d.Label(point{left - 10, y + cellH/2 + 4}, clip(name, labelSize, left-12), labelSize, ink, anchorEnd)
		for j := range h.Cols {
			h.cell(d, i, j, point{left + cellW*float64(j), y}, cellW, s)
		}
	}
	// Names of the columns below them. A name may reach half a cell into those beside its own, so up to the width of two
	// cells it stays whole, and a longer one is shortened to about one. A name that would run into the one before it is
	// left out.
	const overhang = 6 // by which a shortened name may be wider than its cell: widths are estimates on the large side
	right := 0.0       // end of the last name
	for j, name := range h.Cols {
		x := left + cellW*(float64(j)+0.5)
		half := textWidth(name, tickSize) / 2
		if half > cellW {
			name = clip(name, tickSize, cellW+overhang)
			half = cellW / 2
		}
		if x-half > right+2 {
			d.Label(point{x, bottom + colNameY}, name, tickSize, Mute, anchorMiddle)
			right = x + half
		}
	}
	axisTitle(d, axis{P0: left, P1: left + cellW*float64(len(h.Cols))}, h.XLabel)
	return d
}

// extent returns the range of the values.
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

// cell draws the cell of row i and column j, w pixels wide, with its top left corner at `at`: a dash for no value. s
// is the range of all values.
func (h *Heat) cell(d *Drawing, i, j int, at point, w float64, s Span) {
	v := h.Value[i][j]
	far := point{at.X + w - cellGap, at.Y + cellH - cellGap}
	if v == nil {
		d.Seg(point{at.X + w/2 - 5, at.Y + cellH/2}, point{at.X + w/2 + 5, at.Y + cellH/2}, gridLine, 1.5, Solid)
		return
	}
	frac := h.frac(*v, s)
	d.Rect(at, far, ramp(frac), 0, h.Tip[i][j])
	if s := h.Print(*v); textWidth(s, tickSize) <= w+2 { // a little wider is an estimate on the large side
		d.Label(point{at.X + (w-cellGap)/2, at.Y + cellH/2 + 3}, s, tickSize, onRampText(frac), anchorMiddle)
	}
	if h.Mark == [2]int{i, j} {
		d.add(mark{kind: markPath, closed: true, stroke: Prefill, width: 3, pts: []point{at, {far.X, at.Y}, far, {at.X, far.Y}}})
	}
}

// frac returns the place of a value in the range s, 0 to 1, on the matrix's scale.
func (h *Heat) frac(v float64, s Span) float64 {
	if !(s.Hi > s.Lo) {
		return 0
	}
	if h.Log {
		return math.Log(math.Max(v, s.Lo)/s.Lo) / math.Log(s.Hi/s.Lo)
	}
	return (v - s.Lo) / (s.Hi - s.Lo)
}
