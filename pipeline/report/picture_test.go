package report

import (
	"bytes"
	"encoding/base64"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

var picture = flag.String("picture", "", "write the README's picture of the report of the run folder BLIS_TRAIN_OUT to this file")

// maxPicture is the most bytes the picture may take in the repository.
const maxPicture = 300_000

// TestPicture makes docs/report.png: the verdict in the light scheme beside
// the replay figures in the dark one.
//
//	BLIS_TRAIN_OUT=OUT go test ./pipeline/report -run TestPicture -picture ../../docs/report.png
func TestPicture(t *testing.T) {
	out := os.Getenv("BLIS_TRAIN_OUT")
	if *picture == "" || out == "" {
		t.Skip("no -picture or no BLIS_TRAIN_OUT: nothing to draw")
	}
	b := startBrowser(t)
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(render(t, folder(t, out))), 0o644); err != nil {
		t.Fatal(err)
	}
	b.open(file, 1240, 1400, "light")
	left := b.clip("document.body", 1240, 1400)
	b.open(file, 1240, 1400, "dark")
	right := b.clip("document.getElementById('fig-ecdf')", 1240, 1400)
	sheet := image.NewPaletted(image.Rect(0, 0, left.Bounds().Dx()+right.Bounds().Dx(), left.Bounds().Dy()), nil)
	full := image.NewRGBA(sheet.Bounds())
	draw.Draw(full, left.Bounds(), left, image.Point{}, draw.Src)
	draw.Draw(full, right.Bounds().Add(image.Pt(left.Bounds().Dx(), 0)), right, image.Point{}, draw.Src)
	sheet.Palette = commonColours(full)
	draw.Draw(sheet, sheet.Bounds(), full, image.Point{}, draw.Src)
	var buf bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.BestCompression}
	if err := enc.Encode(&buf, sheet); err != nil {
		t.Fatal(err)
	}
	if buf.Len() > maxPicture {
		t.Fatalf("picture of %d bytes, want at most %d", buf.Len(), maxPicture)
	}
	if err := os.WriteFile(*picture, buf.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v, %d bytes", *picture, sheet.Bounds(), buf.Len())
}

// clip is a screenshot at three quarters of the size of w x h pixels from the top of an element.
func (b *browser) clip(element string, w, h float64) image.Image {
	b.t.Helper()
	var top float64
	b.eval("Math.max(0, "+element+".getBoundingClientRect().top + scrollY - 16)", &top)
	var shot struct {
		Data string `json:"data"`
	}
	b.call("Page.captureScreenshot", anyMap{"format": "png", "captureBeyondViewport": true,
		"clip": anyMap{"x": 0, "y": top, "width": w, "height": h, "scale": 0.75}}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	return img
}

// commonColours are the 256 most frequent colours at five bits a channel.
func commonColours(img *image.RGBA) color.Palette {
	const levels = 1 << 15
	type bucket struct{ n, r, g, b int }
	buckets := make([]bucket, levels)
	for i := 0; i < len(img.Pix); i += 4 {
		r, g, b := int(img.Pix[i]), int(img.Pix[i+1]), int(img.Pix[i+2])
		k := &buckets[r>>3<<10|g>>3<<5|b>>3]
		k.n, k.r, k.g, k.b = k.n+1, k.r+r, k.g+g, k.b+b
	}
	var out color.Palette
	for len(out) < 256 {
		best := 0
		for i := range buckets {
			if buckets[i].n > buckets[best].n {
				best = i
			}
		}
		k := &buckets[best]
		if k.n == 0 {
			break
		}
		out = append(out, color.RGBA{uint8(k.r / k.n), uint8(k.g / k.n), uint8(k.b / k.n), 255})
		k.n = 0
	}
	return out
}
