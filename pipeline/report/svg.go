package report

import (
	"bytes"
	"html"
	"math"
	"strconv"
)

// svgBuf writes SVG text. Every string passes html.EscapeString; numbers are
// rounded to a tenth of a pixel, so that the bytes do not depend on the last bits
// of a float.
type svgBuf struct {
	bytes.Buffer
	flat bool // standalone: colours as attributes instead of classes
}

// inline renders for the page: colours come from the page's style sheet.
// desc is read out by screen readers.
func inline(d *Drawing, desc string) string {
	var b svgBuf
	b.WriteString(`<svg viewBox="0 0 `)
	b.num(d.W)
	b.WriteByte(' ')
	b.num(d.H)
	b.WriteString(`" width="`)
	b.num(d.W)
	b.WriteString(`" role="img" aria-label="`)
	b.text(desc)
	b.WriteString(`">`)
	for i := range d.Marks {
		b.mark(&d.Marks[i])
	}
	b.WriteString("</svg>")
	return b.String()
}

// svg renders a standalone file on a white ground.
func svg(d *Drawing, desc string) []byte {
	b := svgBuf{flat: true}
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 `)
	b.num(d.W)
	b.WriteByte(' ')
	b.num(d.H)
	b.WriteString(`" width="`)
	b.num(d.W)
	b.WriteString(`" height="`)
	b.num(d.H)
	b.WriteString(`" font-family="system-ui,'Segoe UI',Roboto,'Liberation Sans',Arial,sans-serif">` + "\n<title>")
	b.text(desc)
	b.WriteString("</title>\n" + `<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for i := range d.Marks {
		b.mark(&d.Marks[i])
		b.WriteByte('\n')
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (b *svgBuf) mark(m *mark) {
	switch m.kind {
	case markPath:
		b.WriteString(`<path d="`)
		b.path(m.pts, m.closed)
		b.WriteByte('"')
		b.style(m)
		b.end("path", m.tip)
	case markRect:
		x0, x1 := math.Min(m.pts[0].X, m.pts[1].X), math.Max(m.pts[0].X, m.pts[1].X)
		y0, y1 := math.Min(m.pts[0].Y, m.pts[1].Y), math.Max(m.pts[0].Y, m.pts[1].Y)
		b.WriteString("<rect")
		b.attr("x", x0)
		b.attr("y", y0)
		b.attr("width", x1-x0)
		b.attr("height", y1-y0)
		b.style(m)
		b.end("rect", m.tip)
	case markCircle:
		b.WriteString("<circle")
		b.attr("cx", m.pts[0].X)
		b.attr("cy", m.pts[0].Y)
		b.attr("r", m.radius)
		b.style(m)
		b.end("circle", m.tip)
	case markText:
		b.WriteString("<text")
		b.attr("x", m.pts[0].X)
		b.attr("y", m.pts[0].Y)
		b.attr("font-size", m.size)
		if m.bold {
			b.WriteString(` font-weight="600"`)
		}
		if a := [...]string{"", "middle", "end"}[m.anchor]; a != "" {
			b.WriteString(` text-anchor="` + a + `"`)
		}
		b.style(m)
		b.WriteByte('>')
		b.text(m.text)
		b.WriteString("</text>")
	}
}

func (b *svgBuf) end(tag, tip string) {
	if tip == "" {
		b.WriteString("/>")
		return
	}
	b.WriteString("><title>")
	b.text(tip)
	b.WriteString("</title></" + tag + ">")
}

func (b *svgBuf) style(m *mark) {
	if b.flat {
		b.flatStyle(m)
	} else {
		b.classStyle(m)
	}
	if m.stroke != none {
		b.attr("stroke-width", m.width)
		if pat := dashPatterns[m.dash]; pat != nil {
			b.WriteString(` stroke-dasharray="`)
			b.num(pat[0])
			b.WriteByte(' ')
			b.num(pat[1])
			b.WriteByte('"')
		}
		if m.kind == markPath {
			b.WriteString(` stroke-linejoin="round"`)
		}
	}
	if m.opacity > 0 && m.opacity < 1 {
		b.WriteString(` opacity="` + strconv.FormatFloat(m.opacity, 'f', 2, 64) + `"`)
	}
}

func (b *svgBuf) classStyle(m *mark) {
	b.WriteString(` class="`)
	if m.fill != none {
		b.WriteString("f-" + m.fill.name())
	} else {
		b.WriteString("nf")
	}
	if m.stroke != none {
		b.WriteString(" s-" + m.stroke.name())
	}
	b.WriteByte('"')
}

func (b *svgBuf) flatStyle(m *mark) {
	fill := "none"
	if m.fill != none {
		fill = paints[m.fill].light
	}
	b.WriteString(` fill="` + fill + `"`)
	if m.stroke != none {
		b.WriteString(` stroke="` + paints[m.stroke].light + `"`)
	}
}

func (b *svgBuf) path(pts []point, closed bool) {
	for i, p := range pts {
		if i == 0 {
			b.WriteByte('M')
		} else {
			b.WriteByte('L')
		}
		b.num(p.X)
		b.WriteByte(' ')
		b.num(p.Y)
	}
	if closed {
		b.WriteByte('Z')
	}
}

func (b *svgBuf) attr(name string, v float64) {
	b.WriteString(" " + name + `="`)
	b.num(v)
	b.WriteByte('"')
}

func (b *svgBuf) num(v float64) {
	r := math.Round(v*10) / 10
	if r == 0 || math.IsNaN(r) || math.IsInf(r, 0) {
		r = 0
	}
	b.WriteString(strconv.FormatFloat(r, 'f', -1, 64))
}

func (b *svgBuf) text(s string) { b.WriteString(html.EscapeString(limited(s))) }
