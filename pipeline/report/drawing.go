package report

// point is a place in a drawing, in CSS pixels from the top left.
type point struct{ X, Y float64 }

// At is the point at x and y.
func At(x, y float64) point { return point{x, y} }

// Kinds of marks.
const (
	markPath = iota
	markRect
	markCircle
	markText
)

// Line patterns, so that lines differ without colour too.
const (
	Solid = iota
	Dashed
	dotted
)

var dashPatterns = [][]float64{Solid: nil, Dashed: {6, 4}, dotted: {1.5, 3.5}}

// Text anchors.
const (
	anchorStart = iota
	anchorMiddle
	anchorEnd
)

// mark is one drawn thing. Rect uses pts[0] and pts[1] as opposite corners,
// circle pts[0] and radius, text pts[0] as its baseline anchor.
type mark struct {
	kind         int
	pts          []point
	closed       bool
	fill, stroke Paint
	width        float64
	dash         int
	opacity      float64 // 0 means 1
	radius       float64
	text         string
	size         float64
	anchor       int
	bold         bool
	tip          string
}

// Drawing is a list of marks on a canvas of w x h pixels, back to front.
type Drawing struct {
	W, H  float64
	Marks []mark
}

func (d *Drawing) add(m mark) { d.Marks = append(d.Marks, m) }

// line is a polyline.
func (d *Drawing) line(pts []point, p Paint, width float64, dash int) {
	d.add(mark{kind: markPath, pts: pts, stroke: p, width: width, dash: dash})
}

// Seg is one straight line.
func (d *Drawing) Seg(a, b point, p Paint, width float64, dash int) {
	d.line([]point{a, b}, p, width, dash)
}

// Rect is a filled rectangle with an optional tooltip.
func (d *Drawing) Rect(a, b point, p Paint, opacity float64, tip string) {
	d.add(mark{kind: markRect, pts: []point{a, b}, fill: p, opacity: opacity, tip: tip})
}

// Dot is a filled circle with an optional tooltip.
func (d *Drawing) Dot(c point, r float64, p Paint, opacity float64, tip string) {
	d.add(mark{kind: markCircle, pts: []point{c}, radius: r, fill: p, opacity: opacity, tip: tip})
}

// Label is a line of text.
func (d *Drawing) Label(at point, text string, size float64, p Paint, anchor int) {
	d.add(mark{kind: markText, pts: []point{at}, text: text, size: size, fill: p, anchor: anchor})
}

// Heading is a bold line of text.
func (d *Drawing) Heading(at point, text string, size float64, p Paint, anchor int) {
	d.add(mark{kind: markText, pts: []point{at}, text: text, size: size, fill: p, anchor: anchor, bold: true})
}

// Place copies the marks of src shifted by (dx, dy).
func (d *Drawing) Place(src *Drawing, dx, dy float64) {
	for _, m := range src.Marks {
		pts := make([]point, len(m.pts))
		for i, p := range m.pts {
			pts[i] = point{p.X + dx, p.Y + dy}
		}
		m.pts = pts
		d.add(m)
	}
}
