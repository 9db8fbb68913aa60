package report

import (
	"bytes"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// pngDPI makes one CSS pixel two image pixels: a vg length is 1/72 inch.
const pngDPI = 144

// boldWeight is the value of WeightBold in golang.org/x/image/font.
const boldWeight = 3

// filePNG renders a drawing on a white ground at twice its size in pixels.
// The typeface is Liberation Sans, which the plot library carries.
func filePNG(d *drawing) ([]byte, error) {
	c := vgimg.NewWith(
		vgimg.UseWH(vg.Length(d.w), vg.Length(d.h)),
		vgimg.UseDPI(pngDPI),
		vgimg.UseBackgroundColor(color.White),
	)
	p := raster{c: c, h: d.h}
	for i := range d.marks {
		p.mark(&d.marks[i])
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// raster draws marks on a vg canvas, whose y axis points up.
type raster struct {
	c *vgimg.Canvas
	h float64
}

func (r raster) at(p point) vg.Point {
	return vg.Point{X: vg.Length(p.x), Y: vg.Length(r.h - p.y)}
}

func (r raster) mark(m *mark) {
	if m.kind == markText {
		r.text(m)
		return
	}
	path := r.path(m)
	if m.fill != none {
		r.c.SetColor(withOpacity(m.fill, m.opacity))
		r.c.Fill(path)
	}
	if m.stroke != none {
		r.c.SetColor(withOpacity(m.stroke, m.opacity))
		r.c.SetLineWidth(vg.Length(m.width))
		r.c.SetLineDash(dashLengths(m.dash), 0)
		r.c.Stroke(path)
	}
}

func (r raster) path(m *mark) vg.Path {
	var p vg.Path
	switch m.kind {
	case markCircle:
		c := r.at(m.pts[0])
		p.Move(vg.Point{X: c.X + vg.Length(m.radius), Y: c.Y})
		p.Arc(c, vg.Length(m.radius), 0, 2*math.Pi)
		p.Close()
	case markRect:
		a, b := m.pts[0], m.pts[1]
		for i, q := range []point{a, {b.x, a.y}, b, {a.x, b.y}} {
			lineTo(&p, r.at(q), i == 0)
		}
		p.Close()
	default:
		for i, q := range m.pts {
			lineTo(&p, r.at(q), i == 0)
		}
		if m.closed {
			p.Close()
		}
	}
	return p
}

func lineTo(p *vg.Path, at vg.Point, first bool) {
	if first {
		p.Move(at)
		return
	}
	p.Line(at)
}

func (r raster) text(m *mark) {
	f := font.From(plot.DefaultFont, vg.Length(m.size))
	f.Variant = "Sans"
	if m.bold {
		f.Weight = boldWeight
	}
	face := font.DefaultCache.Lookup(f, vg.Length(m.size))
	at := r.at(m.pts[0])
	text := cleanText(m.text)
	switch m.anchor {
	case anchorMiddle:
		at.X -= face.Width(text) / 2
	case anchorEnd:
		at.X -= face.Width(text)
	}
	r.c.SetColor(m.fill.rgb())
	r.c.FillString(face, at, text)
}

func withOpacity(p paint, opacity float64) color.NRGBA {
	c := p.rgb()
	if opacity > 0 && opacity < 1 {
		c.A = uint8(opacity*255 + 0.5)
	}
	return c
}

func dashLengths(dash int) []vg.Length {
	var out []vg.Length
	for _, v := range dashPatterns[dash] {
		out = append(out, vg.Length(v))
	}
	return out
}
