package report

import "strings"

// point is a place in a drawing, in CSS pixels from the top left.
type point struct{ x, y float64 }

// Kinds of marks.
const (
	markPath = iota
	markRect
	markCircle
	markText
)

// Line patterns, so that lines differ without colour too.
const (
	solid = iota
	dashed
	dotted
)

var dashPatterns = [][]float64{solid: nil, dashed: {6, 4}, dotted: {1.5, 3.5}}

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
	fill, stroke paint
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

// drawing is a list of marks on a canvas of w x h pixels, back to front.
type drawing struct {
	w, h  float64
	marks []mark
}

func (d *drawing) add(m mark) { d.marks = append(d.marks, m) }

// line is a polyline.
func (d *drawing) line(pts []point, p paint, width float64, dash int) {
	d.add(mark{kind: markPath, pts: pts, stroke: p, width: width, dash: dash})
}

// seg is one straight line.
func (d *drawing) seg(a, b point, p paint, width float64, dash int) {
	d.line([]point{a, b}, p, width, dash)
}

// rect is a filled rectangle with an optional tooltip.
func (d *drawing) rect(a, b point, p paint, opacity float64, tip string) {
	d.add(mark{kind: markRect, pts: []point{a, b}, fill: p, opacity: opacity, tip: tip})
}

// dot is a filled circle with an optional tooltip.
func (d *drawing) dot(c point, r float64, p paint, opacity float64, tip string) {
	d.add(mark{kind: markCircle, pts: []point{c}, radius: r, fill: p, opacity: opacity, tip: tip})
}

// label is a line of text.
func (d *drawing) label(at point, text string, size float64, p paint, anchor int) {
	d.add(mark{kind: markText, pts: []point{at}, text: text, size: size, fill: p, anchor: anchor})
}

// heading is a bold line of text.
func (d *drawing) heading(at point, text string, size float64, p paint, anchor int) {
	d.add(mark{kind: markText, pts: []point{at}, text: text, size: size, fill: p, anchor: anchor, bold: true})
}

// place copies the marks of src shifted by (dx, dy).
func (d *drawing) place(src *drawing, dx, dy float64) {
	for _, m := range src.marks {
		pts := make([]point, len(m.pts))
		for i, p := range m.pts {
			pts[i] = point{p.x + dx, p.y + dy}
		}
		m.pts = pts
		d.add(m)
	}
}

// textWidth estimates the width of text in pixels; a bit generous, since
// fonts differ.
func textWidth(text string, size float64) float64 {
	w := 0.0
	for _, r := range text {
		switch {
		case r == 'i' || r == 'l' || r == '.' || r == ',' || r == ' ' || r == ':' || r == 'j' || r == 't' || r == 'f':
			w += 0.32
		case r == 'm' || r == 'w' || r == 'M' || r == 'W':
			w += 0.86
		case r >= 'A' && r <= 'Z':
			w += 0.68
		default:
			w += 0.61
		}
	}
	return w * size
}

// clip shortens text to about width pixels, keeping both ends, where run
// names differ. Its cost does not grow with the length of the text.
func clip(text string, size, width float64) string {
	if len(text) <= maxClip && textWidth(text, size) <= width {
		return text
	}
	r := []rune(ends(text))
	for keep := min(len(r)-1, maxClip); keep > 2; keep-- {
		head := keep * 3 / 5
		s := string(r[:head]) + "…" + string(r[len(r)-(keep-head):])
		if textWidth(s, size) <= width {
			return s
		}
	}
	return "…"
}

// maxClip is more bytes than any panel has room for.
const maxClip = 160

// ends returns the first and last bytes of a long text.
func ends(text string) string {
	if len(text) <= 2*maxClip {
		return text
	}
	return strings.ToValidUTF8(text[:maxClip], "") + strings.ToValidUTF8(text[len(text)-maxClip:], "")
}
