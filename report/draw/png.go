package draw

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	"github.com/srwiley/rasterx"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// pngScale is how many image pixels make one CSS pixel.
const pngScale = 2

// PNG is the standalone SVG on a white ground, rasterised at twice its size in
// pixels. Text is set in the Go typeface, as outlines. The error is that of
// reading the SVG, or the encoder's.
func PNG(d *Drawing) ([]byte, error) {
	w, h := int(math.Ceil(d.W*pngScale)), int(math.Ceil(d.H*pngScale))
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	if err := rasterise(rasterx.NewDasher(w, h, &scanner{dst: img}), outlined(d)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// outlined is the drawing as an SVG of shapes alone, in image pixels.
func outlined(d *Drawing) []byte {
	b := svgBuf{flat: true, outlines: true}
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg"`)
	b.attr("width", d.W)
	b.attr("height", d.H)
	b.WriteString(">\n")
	for i := range d.Marks {
		b.mark(&d.Marks[i])
		b.WriteByte('\n')
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// scanner fills paths for rasterx. Each is rasterised inside its own bounds: a
// figure is thousands of small marks, and rasterx's own scanner goes over the
// whole image for each of them.
type scanner struct {
	dst    *image.RGBA
	paint  image.Uniform
	fill   vector.Rasterizer
	points []pathPoint
	box    fixed.Rectangle26_6
}

type pathPoint struct {
	at    fixed.Point26_6
	start bool // of a new contour
}

// Start and Line build the path, in 1/64 of a pixel.
func (s *scanner) Start(at fixed.Point26_6) { s.take(pathPoint{at, true}) }

func (s *scanner) Line(to fixed.Point26_6) { s.take(pathPoint{to, false}) }

func (s *scanner) take(p pathPoint) {
	dot := fixed.Rectangle26_6{Min: p.at, Max: p.at.Add(fixed.Point26_6{X: 1, Y: 1})}
	if len(s.points) == 0 {
		s.box = dot
	}
	s.box = s.box.Union(dot)
	s.points = append(s.points, p)
}

// Draw fills the path by the nonzero rule. A stroke's two sides come as contours
// of their own, neither closed: their areas add up.
func (s *scanner) Draw() {
	in := image.Rect(s.box.Min.X.Floor(), s.box.Min.Y.Floor(), s.box.Max.X.Ceil(), s.box.Max.Y.Ceil()).Intersect(s.dst.Bounds())
	if len(s.points) == 0 || in.Empty() {
		return
	}
	s.fill.Reset(in.Dx(), in.Dy())
	for _, p := range s.points {
		x, y := float32(p.at.X)/64-float32(in.Min.X), float32(p.at.Y)/64-float32(in.Min.Y)
		if p.start {
			s.fill.MoveTo(x, y)
			continue
		}
		s.fill.LineTo(x, y)
	}
	s.fill.Draw(s.dst, in, &s.paint, image.Point{})
}

// SetColor takes one colour; figures have no gradients.
func (s *scanner) SetColor(c any) { s.paint.C, _ = c.(color.Color) }

// Clear forgets the path.
func (s *scanner) Clear() { s.points = s.points[:0] }

// GetPathExtent is the box around the path.
func (s *scanner) GetPathExtent() fixed.Rectangle26_6 { return s.box }

// SetBounds, SetWinding and SetClip change nothing: the image is the bound, all
// fills are nonzero, nothing is clipped.
func (s *scanner) SetBounds(int, int) {}

func (s *scanner) SetWinding(bool) {}

func (s *scanner) SetClip(image.Rectangle) {}
