package draw

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"

	"github.com/srwiley/rasterx"
)

// raster is what PNG makes of a drawing.
func raster(t *testing.T, d *Drawing) image.Image {
	t.Helper()
	data, err := PNG(d)
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func rgbAt(img image.Image, x, y int) [3]uint8 {
	c := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)
	return [3]uint8{c.R, c.G, c.B}
}

// Marks stand where the SVG says, in their colour, at two pixels a unit.
func TestPNGMarks(t *testing.T) {
	d := &Drawing{W: 60, H: 40}
	d.Rect(At(5, 5), At(15, 15), Decode, 0, "a tooltip")
	d.Rect(At(20, 5), At(30, 15), Decode, 0.5, "")
	d.Seg(At(5, 25), At(55, 25), Bad, 3, Solid)
	d.Seg(At(5, 35), At(55, 35), Bad, 3, Dashed)
	d.Dot(At(45, 10), 5, Good, 0, "")
	img := raster(t, d)
	if b := img.Bounds(); b.Dx() != 120 || b.Dy() != 80 {
		t.Fatalf("got %v, want 120 x 80 pixels", b)
	}
	white, decode, bad, good := [3]uint8{255, 255, 255}, [3]uint8{0x0a, 0x68, 0xb4}, [3]uint8{0xb3, 0x26, 0x1e}, [3]uint8{0x17, 0x77, 0x4a}
	for _, c := range []struct {
		what string
		x, y int
		want [3]uint8
	}{
		{"ground", 1, 1, white}, {"rectangle", 11, 11, decode}, {"its last pixel", 29, 29, decode}, {"beyond it", 31, 20, white},
		{"line", 60, 50, bad}, {"line, 1.4 above its middle", 60, 47, bad}, {"above the line", 60, 45, white},
		{"first dash", 14, 70, bad}, {"first gap", 26, 70, white}, {"second dash", 34, 70, bad},
		{"circle", 90, 20, good}, {"its rim", 98, 20, good}, {"corner of its box", 81, 11, white},
	} {
		if got := rgbAt(img, c.x, c.y); got != c.want {
			t.Errorf("%s: got %v at %d,%d, want %v", c.what, got, c.x, c.y, c.want)
		}
	}
	half := rgbAt(img, 50, 20)
	for i := range half {
		if want := (int(decode[i]) + 255) / 2; int(half[i]) < want-2 || int(half[i]) > want+2 {
			t.Errorf("half opaque: got %v", half)
		}
	}
}

// Text is set in the embedded typeface: it begins, is centred or ends at its anchor.
func TestPNGText(t *testing.T) {
	for anchor, want := range map[int]float64{AnchorStart: 100, AnchorMiddle: 100 - 17.2, AnchorEnd: 100 - 34.3} {
		d := &Drawing{W: 100, H: 30}
		d.Label(At(50, 20), "II", 43, Ink, anchor) // each 0.399 em wide: 34.3 units in all
		img := raster(t, d)
		first, dark := -1, 0
		for x := range 200 {
			for y := range 60 {
				if c := rgbAt(img, x, y); c[0] < 128 {
					if dark++; first < 0 {
						first = x
					}
				}
			}
		}
		// the serif begins 0.06 em right of the pen
		if at := float64(first) - 2*0.06*43; dark == 0 || at < 2*want-100-3 || at > 2*want-100+3 {
			t.Errorf("anchor %d: %d dark pixels, the first at %d", anchor, dark, first)
		}
	}
	if wide, bold := width("Step time", false), width("Step time", true); bold <= wide {
		t.Errorf("bold text is %.2f em wide, regular %.2f", bold, wide)
	}
}

func width(text string, bold bool) float64 {
	_, w := line(text, bold)
	return w
}

// What the writer of SVG does not write is refused: a mark that it learns must not be
// missing from pictures.
func TestRasteriseRefuses(t *testing.T) {
	for _, svg := range []string{
		`<ellipse fill="#000000"/>`, `<rect rx="3" fill="#000000"/>`, `<rect width="wide"/>`, `<rect fill="red"/>`, `<path d="M1 2H3" fill="#000000"/>`,
		`<path d="M1 2L3" fill="#000000"/>`, `<path d="L1 2" fill="#000000"/>`, `<path d="M1 2ZL3 4" stroke="#000000"/>`, `<path d="x"`,
	} {
		to := rasterx.NewDasher(9, 9, &scanner{dst: image.NewRGBA(image.Rect(0, 0, 9, 9))})
		if err := rasterise(to, []byte("<svg>"+svg+"</svg>")); err == nil {
			t.Errorf("%s: no error", svg)
		}
	}
}

// A drawing of what no font has, and one of nothing, are pictures too.
func TestPNGOfLittle(t *testing.T) {
	d := &Drawing{W: 30, H: 20}
	raster(t, d)
	d.Label(At(-20, 25), "beyond every edge of the picture", 30, Ink, AnchorStart)
	d.Seg(At(-10, -10), At(50, 50), Bad, 2, Solid)
	d.Label(At(2, 15), "漢\u202e\x1b", 12, Ink, AnchorStart)
	raster(t, d)
}

func BenchmarkPNG(b *testing.B) {
	d := &Drawing{W: 1100, H: 1100}
	for i := range 2000 {
		at := At(float64(20+i%100*10), float64(20+i/100*50))
		d.Dot(at, 3, Decode, 0.5, "")
		d.Label(at, "0.5", TickSize, Mute, AnchorStart)
	}
	for b.Loop() {
		if _, err := PNG(d); err != nil {
			b.Fatal(err)
		}
	}
}
