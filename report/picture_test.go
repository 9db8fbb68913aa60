package report

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

var picture = flag.String("picture", "", "write the README's picture of the report of the run folder BLIS_TRAIN_OUT to this file")

// maxPicture is the most bytes the picture may take in the repository.
const maxPicture = 300_000

// TestPicture makes docs/report.png: the verdict in the light scheme beside
// the replay figures in the dark one.
//
//	BLIS_TRAIN_OUT=OUT go test ./report -run TestPicture -picture ../docs/report.png
func TestPicture(t *testing.T) {
	out := os.Getenv("BLIS_TRAIN_OUT")
	if *picture == "" || out == "" {
		t.Skip("no -picture or no BLIS_TRAIN_OUT: nothing to draw")
	}
	b := startBrowser(t)
	file := filepath.Join(t.TempDir(), "report.html")
	repo.Write(t, render(t, folder(t, out)), file)
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
	repo.Write(t, buf.Bytes(), *picture)
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
		r := int(img.Pix[i])
		g := int(img.Pix[i+1])
		b := int(img.Pix[i+2])
		k := &buckets[r>>3<<10|g>>3<<5|b>>3]
		k.n += 1
		k.r += r
		k.g += g
		k.b += b
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

// TestAxisTicks: ticks rise, lie on the axis, carry different labels and are
// neither too few nor too many, whatever the range.
func TestAxisTicks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 3000 {
		lo := math.Pow(10, r.Float64()*14-7)
		hi := lo * (1.001 + math.Pow(10, r.Float64()*6-3))
		for kind, a := range map[string]axis{"log": Logarithmic("", lo, hi), "linear": Linear("", lo, hi, 5)} {
			if kind == "linear" && (a.Lo > lo*(1+1e-9) || a.Hi < hi*(1-1e-9)) {
				t.Fatalf("linear axis [%g, %g] does not hold [%g, %g]", a.Lo, a.Hi, lo, hi)
			}
			if len(a.Ticks) > 14 || (kind == "linear" && len(a.Ticks) < 2) {
				t.Fatalf("%s axis [%g, %g] has %d ticks", kind, lo, hi, len(a.Ticks))
			}
			for i, k := range a.Ticks {
				if k.V < a.Lo*(1-1e-9) || k.V > a.Hi*(1+1e-9) {
					t.Fatalf("%s axis [%g, %g]: tick %g outside", kind, a.Lo, a.Hi, k.V)
				}
				if i > 0 && (k.V <= a.Ticks[i-1].V || k.Label == a.Ticks[i-1].Label) {
					t.Fatalf("%s axis [%g, %g]: ticks %v", kind, a.Lo, a.Hi, a.Ticks)
				}
			}
		}
	}
}

// TestAxisDegenerate: empty, inverted and non-positive ranges give a usable axis.
func TestAxisDegenerate(t *testing.T) {
	for _, r := range [][2]float64{{0, 0}, {5, 5}, {-3, -3}, {2, 1}, {0, 10}} {
		for _, a := range []axis{Linear("", r[0], r[1], 5), Logarithmic("", r[0], r[1])} {
			a.P0, a.P1 = 0, 100
			if px := a.Px(r[0]); math.IsNaN(px) || px < 0 || px > 100 {
				t.Errorf("range %v, log %v: pixel %g", r, a.log, px)
			}
		}
	}
}

// TestAxisMonotone: larger values never lie before smaller ones.
func TestAxisMonotone(t *testing.T) {
	for _, a := range []axis{Linear("", -2, 7, 5), Logarithmic("", 0.01, 500)} {
		a.P0, a.P1 = 10, 300
		last := math.Inf(-1)
		for v := 0.001; v < 1000; v *= 1.07 {
			px := a.Px(v)
			if px < last || px < 10 || px > 300 {
				t.Fatalf("log %v: pixel of %g is %g after %g", a.log, v, px, last)
			}
			last = px
		}
	}
}

// TestClip: a clipped name keeps both ends and fits.
func TestClip(t *testing.T) {
	long := "h100-codellama-34b-tp1-async-open-loop-poisson-rate-12.5"
	got := clip(long, labelSize, 150)
	if textWidth(got, labelSize) > 150 || got[:4] != "h100" || got[len(got)-3:] != "2.5" {
		t.Errorf("clip: %q", got)
	}
	if clip("short", labelSize, 150) != "short" {
		t.Error("a short name was clipped")
	}
}

type rgb [3]float64

func linearRGB(t *testing.T, hex string) rgb {
	t.Helper()
	var v [3]uint8
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &v[0], &v[1], &v[2]); err != nil {
		t.Fatalf("%q: %v", hex, err)
	}
	var out rgb
	for i, c := range v {
		s := float64(c) / 255
		if s <= 0.04045 {
			out[i] = s / 12.92
		} else {
			out[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return out
}

func luminance(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

func contrast(a, b rgb) float64 {
	x, y := luminance(a), luminance(b)
	return (math.Max(x, y) + 0.05) / (math.Min(x, y) + 0.05)
}

// TestContrast: words reach 4.5:1 and lines 3:1 on their ground in both
// schemes (WCAG 2.1, 1.4.3 and 1.4.11).
func TestContrast(t *testing.T) {
	for _, dark := range []bool{false, true} {
		value := func(p Paint) rgb {
			if dark {
				return linearRGB(t, paints[p].Dark)
			}
			return linearRGB(t, paints[p].Light)
		}
		for _, p := range []Paint{ink, Mute, good, bad, warn, Decode} {
			if c := contrast(value(p), value(surface)); c < 4.5 {
				t.Errorf("dark %v: text in %s has contrast %.2f", dark, paints[p].Name, c)
			}
		}
		for _, p := range []Paint{Decode, Prefill, Mixed, Other} {
			if c := contrast(value(p), value(surface)); c < 3 {
				t.Errorf("dark %v: line in %s has contrast %.2f", dark, paints[p].Name, c)
			}
		}
		for i := range 7 {
			frac := (float64(i) + 0.5) / 7
			if c := contrast(value(ramp(frac)), value(onRampText(frac))); c < 3.5 {
				t.Errorf("dark %v: text on ramp step %d has contrast %.2f", dark, i, c)
			}
		}
	}
}

// Dichromat simulation in linear RGB. Source: Machado, Oliveira and Fernandes,
// IEEE TVCG 15 (2009), severity 1.0.
var dichromats = map[string][3]rgb{
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

func apply(m [3]rgb, c rgb) (out rgb) {
	for i, row := range m {
		out[i] = math.Min(math.Max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return out
}

// lab is CIE L*a*b* under D65.
func lab(c rgb) rgb {
	f := func(v float64) float64 {
		if v > 216.0/24389 {
			return math.Cbrt(v)
		}
		return (24389.0/27*v + 16) / 116
	}
	x := f((0.4124564*c[0] + 0.3575761*c[1] + 0.1804375*c[2]) / 0.95047)
	y := f(0.2126729*c[0] + 0.7151522*c[1] + 0.0721750*c[2])
	z := f((0.0193339*c[0] + 0.1191920*c[1] + 0.9503041*c[2]) / 1.08883)
	return rgb{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// TestRegimesApart: the three regimes stay apart (CIE76 distance above 20)
// under each dichromacy, in both schemes.
func TestRegimesApart(t *testing.T) {
	pairs := [][2]Paint{{Decode, Prefill}, {Decode, Mixed}, {Prefill, Mixed}}
	for kind, m := range dichromats {
		for _, p := range pairs {
			for scheme, hex := range map[string][2]string{
				"light": {paints[p[0]].Light, paints[p[1]].Light}, "dark": {paints[p[0]].Dark, paints[p[1]].Dark},
			} {
				a := lab(apply(m, linearRGB(t, hex[0])))
				b := lab(apply(m, linearRGB(t, hex[1])))
				d := math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
				if d < 20 {
					t.Errorf("%s, %s: %s and %s are %.1f apart", kind, scheme, paints[p[0]].Name, paints[p[1]].Name, d)
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 12.345: "12.3", 1234567: "1,234,567", -0.5: "−0.5", 3e-6: "3e-6",
		2.5e9: "2.5e9", 100: "100", 0.001: "0.001", -1500: "−1,500"} {
		if got := Short(v); got != want {
			t.Errorf("short(%g) = %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.0461: "4.6\u00a0%", -0.02: "−2.0\u00a0%", 1.5: "150\u00a0%", 0: "0.0\u00a0%",
		-3e-17: "0.0\u00a0%", 0.0004: "0.040\u00a0%"} {
		if got := Pct(v); got != want {
			t.Errorf("pct(%g) = %q, want %q", v, got, want)
		}
	}
	if got := Short(math.NaN()); got != "n/a" {
		t.Errorf("short(NaN) = %q", got)
	}
}

// Times read in ms, four digits, no exponent beside plain numbers.
func TestTimesInOneStyle(t *testing.T) {
	for us, want := range map[float64]string{946901: "946.9", 3.172e7: "31,720", 7.8e7: "78,000", 374.4: "0.3744", 3170: "3.17", 0: "0",
		-1500: "−1.5"} {
		v, unit := milli(us, "us/s")
		if got := fourDigits(v); got != want || unit != "ms/s" {
			t.Errorf("%g us/s: got %s %s, want %s ms/s", us, got, unit, want)
		}
	}
	if v, unit := milli(12, "tokens"); v != 12 || unit != "tokens" {
		t.Errorf("got %g %s, want 12 tokens", v, unit)
	}
	if got := Range(0, 903); got != "0 .. 903" {
		t.Errorf("got %q, want %q", got, "0 .. 903")
	}
}
