package report

// This file has the marks that figures consist of, their colours (paints), and SVG: inline for the
// page, whose style sheet has the colours, or as a file of its own.

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// point is a place in a drawing, in CSS pixels from the top left.
type point struct{ X, Y float64 }

// At returns the point at x and y.
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

// dashPatterns are the lengths of dashes and gaps, pixels.
var dashPatterns = [][]float64{Solid: nil, Dashed: {6, 4}, dotted: {1.5, 3.5}}

// Text anchors.
const (
	anchorStart = iota
	anchorMiddle
	anchorEnd
)

// mark is one drawn thing. A rectangle has opposite corners in pts[0] and pts[1], a circle its
// centre in pts[0], a text its anchor on the baseline in pts[0].
type mark struct {
	kind         int
	pts          []point
	closed       bool // of a path: a line back to its start
	fill, stroke Paint
	width        float64 // of the stroke
	dash         int     // of the stroke: Solid, Dashed or dotted
	opacity      float64 // 0 means 1
	radius       float64 // of a circle
	text         string
	size         float64 // of the text
	anchor       int     // which part of the text is at pts[0]
	bold         bool
	tip          string // tooltip
}

// Drawing is a list of marks on a canvas of W x H pixels, back to front.
type Drawing struct {
	W, H  float64
	Marks []mark
}

// add appends a mark.
func (d *Drawing) add(m mark) { d.Marks = append(d.Marks, m) }

// line appends a polyline.
func (d *Drawing) line(pts []point, p Paint, width float64, dash int) {
	d.add(mark{kind: markPath, pts: pts, stroke: p, width: width, dash: dash})
}

// Seg appends a straight line from a to b.
func (d *Drawing) Seg(a, b point, p Paint, width float64, dash int) {
	d.line([]point{a, b}, p, width, dash)
}

// Rect appends a filled rectangle with corners a and b and an optional tooltip.
func (d *Drawing) Rect(a, b point, p Paint, opacity float64, tip string) {
	d.add(mark{kind: markRect, pts: []point{a, b}, fill: p, opacity: opacity, tip: tip})
}

// Dot appends a filled circle around c with radius r and an optional tooltip.
func (d *Drawing) Dot(c point, r float64, p Paint, opacity float64, tip string) {
	d.add(mark{kind: markCircle, pts: []point{c}, radius: r, fill: p, opacity: opacity, tip: tip})
}

// Label appends a line of text.
func (d *Drawing) Label(at point, text string, size float64, p Paint, anchor int) {
	d.add(mark{kind: markText, pts: []point{at}, text: text, size: size, fill: p, anchor: anchor})
}

// Heading appends a bold line of text.
func (d *Drawing) Heading(at point, text string, size float64, p Paint, anchor int) {
	d.add(mark{kind: markText, pts: []point{at}, text: text, size: size, fill: p, anchor: anchor, bold: true})
}

// Place appends copies of the marks of src, shifted by (dx, dy).
func (d *Drawing) Place(src *Drawing, dx, dy float64) {
	for _, m := range src.Marks {
		moved := make([]point, len(m.pts))
		for i, p := range m.pts {
			moved[i] = point{p.X + dx, p.Y + dy}
		}
		m.pts = moved
		d.add(m)
	}
}

// svgBuf is SVG text being written. Every string is escaped; numbers are rounded to a tenth of a
// pixel, so that the bytes do not depend on the last bits of a float.
type svgBuf struct {
	bytes.Buffer
	flat bool // for a file of its own: colours as attributes instead of classes
}

// px is a length in a drawing; it prints rounded to a tenth.
type px float64

// String returns the rounded number; 0 for NaN and infinities.
func (v px) String() string {
	r := math.Round(float64(v)*10) / 10
	if r == 0 || math.IsNaN(r) || math.IsInf(r, 0) {
		r = 0
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}

// printf appends formatted text.
func (b *svgBuf) printf(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// escapeText returns a text as content of an SVG element, limited in length.
func escapeText(s string) string { return html.EscapeString(limitText(s)) }

// inline returns the drawing as SVG for the page, whose style sheet has the colours. Screen readers
// read desc.
func inline(d *Drawing, desc string) string {
	var b svgBuf
	b.printf(`<svg viewBox="0 0 %v %v" width="%v" role="img" aria-label="%s">`, px(d.W), px(d.H), px(d.W), escapeText(desc))
	for i := range d.Marks {
		b.mark(&d.Marks[i])
	}
	b.WriteString("</svg>")
	return b.String()
}

// svg returns the drawing as an SVG file on a white ground.
func svg(d *Drawing, desc string) []byte {
	b := svgBuf{flat: true}
	b.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %v %v" width="%v" height="%v"`, px(d.W), px(d.H), px(d.W), px(d.H))
	b.printf(` font-family="system-ui,'Segoe UI',Roboto,'Liberation Sans',Arial,sans-serif">`+"\n<title>%s</title>\n", escapeText(desc))
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for i := range d.Marks {
		b.mark(&d.Marks[i])
		b.WriteByte('\n')
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// mark writes one mark as an SVG element.
func (b *svgBuf) mark(m *mark) {
	tag := ""
	switch first := m.pts[0]; m.kind {
	case markPath:
		tag = "path"
		b.WriteString(`<path d="`)
		for i, p := range m.pts {
			b.printf("%c%v %v", "ML"[min(i, 1)], px(p.X), px(p.Y))
		}
		if m.closed {
			b.WriteByte('Z')
		}
		b.WriteByte('"')
	case markRect:
		tag = "rect"
		x0 := math.Min(first.X, m.pts[1].X)
		x1 := math.Max(first.X, m.pts[1].X)
		y0 := math.Min(first.Y, m.pts[1].Y)
		y1 := math.Max(first.Y, m.pts[1].Y)
		b.printf(`<rect x="%v" y="%v" width="%v" height="%v"`, px(x0), px(y0), px(x1-x0), px(y1-y0))
	case markCircle:
		tag = "circle"
		b.printf(`<circle cx="%v" cy="%v" r="%v"`, px(first.X), px(first.Y), px(m.radius))
	case markText:
		b.printf(`<text x="%v" y="%v" font-size="%v"`, px(first.X), px(first.Y), px(m.size))
		if m.bold {
			b.WriteString(` font-weight="600"`)
		}
		b.WriteString([...]string{"", ` text-anchor="middle"`, ` text-anchor="end"`}[m.anchor])
	}
	b.style(m)
	switch {
	case m.kind == markText:
		b.printf(">%s</text>", escapeText(m.text))
	case m.tip == "":
		b.WriteString("/>")
	default:
		b.printf("><title>%s</title></%s>", escapeText(m.tip), tag)
	}
}

// colourClasses writes the colours of a mark as classes of the page's style sheet (cssMarks), which has a
// light and a dark scheme.
func (b *svgBuf) colourClasses(m *mark) {
	classes := "nf" // no fill
	if m.fill != none {
		classes = "f-" + paints[m.fill].Name
	}
	if m.stroke != none {
		classes += " s-" + paints[m.stroke].Name
	}
	b.printf(` class="%s"`, classes)
}

// colourAttributes writes the colours of a mark as attributes, for a file of its own. It has the light
// colours, because its ground is white.
func (b *svgBuf) colourAttributes(m *mark) {
	fill := "none"
	if m.fill != none {
		fill = paints[m.fill].Light
	}
	b.printf(` fill="%s"`, fill)
	if m.stroke != none {
		b.printf(` stroke="%s"`, paints[m.stroke].Light)
	}
}

// style writes the colours, line and opacity of a mark.
func (b *svgBuf) style(m *mark) {
	if b.flat {
		b.colourAttributes(m)
	} else {
		b.colourClasses(m)
	}
	if m.stroke != none {
		b.printf(` stroke-width="%v"`, px(m.width))
		if pat := dashPatterns[m.dash]; pat != nil {
			b.printf(` stroke-dasharray="%v %v"`, px(pat[0]), px(pat[1]))
		}
		if m.kind == markPath {
			b.WriteString(` stroke-linejoin="round"`)
		}
	}
	if m.opacity > 0 && m.opacity < 1 {
		b.printf(` opacity="%.2f"`, m.opacity)
	}
}

// Paint is a named colour of the page; it has a light and a dark value, and a
// figure names paints only, so that one inline SVG serves both schemes.
type Paint int

const (
	none Paint = iota
	ink
	Mute
	AxisLine
	gridLine
	surface
	Decode
	Prefill
	Mixed
	Other
	good
	bad
	warn
	onRamp // text on the upper half of the ramp
	ramp0  // first of rampSteps sequential colours, low to high
)

const rampSteps = 7

// paintValue is a name for CSS, and the colours on light and dark pages.
type paintValue struct{ Name, Light, Dark string }

// paints are the colours of figures on light and dark pages. The three regimes are blue, vermilion and
// plum, which people with any kind of colour blindness can distinguish; figures also distinguish
// them by marker or dash. The ramp r0 to r6 is one hue by lightness, so it survives grey print.
var paints = [...]paintValue{
	none:      {"none", "#ffffff", "#000000"},
	ink:       {"ink", "#1c2430", "#e7ebf1"},
	Mute:      {"mute", "#596475", "#a0abba"},
	AxisLine:  {"axis", "#98a3b3", "#5d6878"},
	gridLine:  {"grid", "#e5e9ef", "#29313d"},
	surface:   {"surface", "#ffffff", "#171c24"},
	Decode:    {"decode", "#0a68b4", "#62b5f5"},
	Prefill:   {"prefill", "#c75300", "#f7994d"},
	Mixed:     {"mixed", "#885566", "#d9a3bd"},
	Other:     {"other", "#00826a", "#41c9a6"},
	good:      {"good", "#17774a", "#62d193"},
	bad:       {"bad", "#b3261e", "#ff8d84"},
	warn:      {"warn", "#8a5d00", "#f0c050"},
	onRamp:    {"onramp", "#ffffff", "#0b1118"},
	ramp0:     {"r0", "#eaf1f9", "#1a2634"},
	ramp0 + 1: {"r1", "#cde0f2", "#1d3955"},
	ramp0 + 2: {"r2", "#a5c8e8", "#215079"},
	ramp0 + 3: {"r3", "#74a9d8", "#2a6ca6"},
	ramp0 + 4: {"r4", "#4686c2", "#428cc9"},
	ramp0 + 5: {"r5", "#22639f", "#77b3e4"},
	ramp0 + 6: {"r6", "#103f6d", "#bbdcfb"},
}

// ramp returns the colour of a fraction in [0, 1] on the sequential scale.
func ramp(frac float64) Paint {
	i := int(frac * rampSteps)
	return ramp0 + Paint(min(max(i, 0), rampSteps-1))
}

// onRampText returns a text colour that can be read on ramp(frac).
func onRampText(frac float64) Paint {
	if frac*rampSteps >= 4 { // the last three colours, dark on a light page and light on a dark one
		return onRamp
	}
	return ink
}

// regimePaint returns the colour of a regime (kind of step or of request), the same in every
// figure.
func regimePaint(regime string) Paint {
	switch {
	case regime == "decode" || regime == "idle":
		return Decode
	case strings.HasPrefix(regime, "prefill") || regime == "waiting":
		return Prefill
	case regime == "mixed":
		return Mixed
	}
	return Other
}

// cssVars returns the CSS custom properties of the light or the dark colours.
func cssVars(dark bool) string {
	var b strings.Builder
	for _, p := range paints[1:] {
		v := p.Light
		if dark {
			v = p.Dark
		}
		fmt.Fprintf(&b, "--%s:%s;", p.Name, v)
	}
	return b.String()
}

// cssMarks returns the CSS classes for fill and stroke that figures use.
func cssMarks() string {
	var b strings.Builder
	for _, p := range paints[1:] {
		fmt.Fprintf(&b, ".f-%[1]s{fill:var(--%[1]s)}.s-%[1]s{stroke:var(--%[1]s)}.b-%[1]s{background:var(--%[1]s)}\n", p.Name)
	}
	return b.String()
}

// textWidth returns an estimate of the width of text in pixels, on the large side because fonts
// differ.
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

// clip returns text shortened in the middle to about width pixels, because names of runs differ at
// both ends. Its cost does not grow with the length of the text.
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

// maxClip is a number of bytes that does not fit into any panel.
const maxClip = 160

// ends returns the first and last maxClip bytes of a long text.
func ends(text string) string {
	if len(text) <= 2*maxClip {
		return text
	}
	return strings.ToValidUTF8(text[:maxClip], "") + strings.ToValidUTF8(text[len(text)-maxClip:], "")
}
