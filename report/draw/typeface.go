package draw

import (
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"

	"github.com/blis-train/blis-train/report/words"
)

// typefaces are Go Regular and Go Bold, a third of the size of a metric twin of Arial.
var typefaces = sync.OnceValue(func() [2]*sfnt.Font {
	var out [2]*sfnt.Font
	for i, data := range [][]byte{goregular.TTF, gobold.TTF} {
		f, err := sfnt.Parse(data)
		if err != nil {
			panic(err) // the embedded file is damaged: no build of ours
		}
		out[i] = f
	}
	return out
})

// glyph is the outline of one character and how far it moves the pen, in units of the em.
type glyph struct {
	outline sfnt.Segments
	advance float64
}

// line is a line of text as glyphs, and its width in units of the em.
func line(text string, bold bool) (glyphs []glyph, width float64) {
	f := typefaces()[0]
	if bold {
		f = typefaces()[1]
	}
	var buf sfnt.Buffer
	em := fixed.I(int(f.UnitsPerEm()))
	for _, r := range words.Printable(text) {
		i, err := f.GlyphIndex(&buf, r)
		if err != nil {
			continue
		}
		segments, err := f.LoadGlyph(&buf, i, em, nil)
		if err != nil {
			continue
		}
		advance, err := f.GlyphAdvance(&buf, i, em, font.HintingNone)
		if err != nil {
			continue
		}
		g := glyph{append(sfnt.Segments(nil), segments...), float64(advance) / float64(em)}
		glyphs, width = append(glyphs, g), width+g.advance
	}
	return glyphs, width
}

// textPath writes the outlines of a mark's text as the data of an SVG path.
func (b *svgBuf) textPath(m *mark) {
	glyphs, width := line(m.text, m.bold)
	pen := m.pts[0]
	switch m.anchor {
	case AnchorMiddle:
		pen.X -= width * m.size / 2
	case AnchorEnd:
		pen.X -= float64(width * m.size)
	}
	for _, g := range glyphs {
		b.glyph(g.outline, pen, m.size/float64(fixed.I(int(typefaces()[0].UnitsPerEm()))))
		pen.X += float64(g.advance * m.size)
	}
}

// glyph writes one outline with its origin at pen.
func (b *svgBuf) glyph(outline sfnt.Segments, pen Point, scale float64) {
	for i, s := range outline {
		if s.Op == sfnt.SegmentOpMoveTo && i > 0 {
			b.WriteByte('Z')
		}
		b.WriteByte("MLQC"[s.Op])
		for k, p := range s.Args[:[...]int{1, 1, 2, 3}[s.Op]] {
			if k > 0 {
				b.WriteByte(' ')
			}
			b.num(pen.X + float64(float64(p.X)*scale))
			b.WriteByte(' ')
			b.num(pen.Y + float64(float64(p.Y)*scale))
		}
	}
	if len(outline) > 0 {
		b.WriteByte('Z')
	}
}
