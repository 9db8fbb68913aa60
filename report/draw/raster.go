package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"strconv"
	"strings"

	"github.com/srwiley/rasterx"
	"golang.org/x/image/math/fixed"
)

// rasterise paints an SVG of shapes: path, rect and circle with the attributes that
// svgBuf writes, and nothing else. An element, attribute or path command beyond that
// is an error, so that a mark the writer learns cannot be missing from the picture.
func rasterise(to *rasterx.Dasher, svg []byte) error {
	for in := xml.NewDecoder(bytes.NewReader(svg)); ; {
		t, err := in.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		e, ok := t.(xml.StartElement)
		if !ok || e.Name.Local == "svg" {
			continue
		}
		s := shape{tag: e.Name.Local, join: rasterx.Bevel, opacity: 1}
		for _, a := range e.Attr {
			if err := s.set(a.Name.Local, a.Value); err != nil {
				return fmt.Errorf("svg: %s %s: %w", s.tag, a.Name.Local, err)
			}
		}
		if err := s.paint(to); err != nil {
			return fmt.Errorf("svg: %s: %w", s.tag, err)
		}
	}
}

// shape is one element. Lengths are image pixels.
type shape struct {
	tag                 string
	x, y, width, height float64 // of a rect; x and y of a circle's centre
	radius              float64
	path                string
	fill, stroke        color.Color // nil: none
	strokeWidth         float64
	dashes              []float64
	join                rasterx.JoinMode
	opacity             float64 // 0 to 1
}

func (s *shape) set(name, value string) (err error) {
	number := func(to *float64) { *to, err = strconv.ParseFloat(value, 64) }
	switch name {
	case "x", "cx":
		number(&s.x)
	case "y", "cy":
		number(&s.y)
	case "width":
		number(&s.width)
	case "height":
		number(&s.height)
	case "r":
		number(&s.radius)
	case "stroke-width":
		number(&s.strokeWidth)
	case "opacity":
		number(&s.opacity)
	case "d":
		s.path = value
	case "fill":
		s.fill, err = hexColour(value)
	case "stroke":
		s.stroke, err = hexColour(value)
	case "stroke-dasharray":
		s.dashes, err = coordinates(value)
	case "stroke-linejoin":
		s.join = rasterx.Round // the one that marks have
	default:
		err = fmt.Errorf("got %q, which no mark has", value)
	}
	return err
}

// paint fills the shape, then strokes it.
func (s *shape) paint(to *rasterx.Dasher) error {
	if s.fill != nil {
		to.Clear()
		if err := s.outline(&to.Filler); err != nil {
			return err
		}
		to.SetColor(rasterx.ApplyOpacity(s.fill, s.opacity))
		to.Filler.Draw()
	}
	if s.stroke != nil {
		const miterLimit = 4
		to.Clear()
		to.SetStroke(fixed.Int26_6(s.strokeWidth*64), miterLimit*64, rasterx.ButtCap, rasterx.ButtCap, nil, s.join, s.dashes, 0)
		if err := s.outline(to); err != nil {
			return err
		}
		to.SetColor(rasterx.ApplyOpacity(s.stroke, s.opacity))
		to.Draw()
	}
	return nil
}

// outline hands the shape's edge to a filler or a stroker.
func (s *shape) outline(to rasterx.Adder) error {
	switch {
	case s.tag == "rect" && s.width != 0 && s.height != 0:
		rasterx.AddRect(s.x, s.y, s.x+s.width, s.y+s.height, 0, to)
	case s.tag == "circle" && s.radius != 0:
		rasterx.AddCircle(s.x, s.y, s.radius, to)
	case s.tag == "path":
		return addPath(s.path, to)
	case s.tag != "rect" && s.tag != "circle":
		return fmt.Errorf("no mark is one")
	}
	return nil
}

// pathPoints are how many points each path command takes; all are absolute.
var pathPoints = map[byte]int{'M': 1, 'L': 1, 'Q': 2, 'C': 3, 'Z': 0}

// addPath reads path data: M, L, Q, C with their coordinates apart by blanks, and Z.
func addPath(data string, to rasterx.Adder) error {
	open := false
	for len(data) > 0 {
		command := data[0]
		end := strings.IndexAny(data[1:], "MLQCZ") + 1
		if end == 0 {
			end = len(data)
		}
		at, err := coordinates(data[1:end])
		if n, ok := pathPoints[command]; err != nil || !ok || len(at) != 2*n || !open && command != 'M' {
			return fmt.Errorf("path command: got %q", data[:end])
		}
		p := make([]fixed.Point26_6, len(at)/2)
		for i := range p {
			p[i] = rasterx.ToFixedP(at[2*i], at[2*i+1])
		}
		switch command {
		case 'M':
			if open {
				to.Stop(false)
			}
			to.Start(p[0])
		case 'L':
			to.Line(p[0])
		case 'Q':
			to.QuadBezier(p[0], p[1])
		case 'C':
			to.CubeBezier(p[0], p[1], p[2])
		case 'Z':
			to.Stop(true)
		}
		open, data = command != 'Z', data[end:]
	}
	if open {
		to.Stop(false)
	}
	return nil
}

// coordinates reads numbers that blanks part.
func coordinates(text string) ([]float64, error) {
	var out []float64
	for word := range strings.FieldsSeq(text) {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// hexColour reads #rrggbb; none is nil.
func hexColour(text string) (color.Color, error) {
	if text == "none" {
		return nil, nil
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 32)
	if err != nil || len(text) != len("#rrggbb") {
		return nil, fmt.Errorf("got %q, want #rrggbb", text)
	}
	return color.NRGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}, nil
}
