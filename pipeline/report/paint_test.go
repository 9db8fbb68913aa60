package report

import (
	"fmt"
	"math"
	"testing"
)

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
				return linearRGB(t, paints[p].dark)
			}
			return linearRGB(t, paints[p].light)
		}
		for _, p := range []Paint{ink, Mute, good, bad, warn, Decode} {
			if c := contrast(value(p), value(surface)); c < 4.5 {
				t.Errorf("dark %v: text in %s has contrast %.2f", dark, paints[p].name, c)
			}
		}
		for _, p := range []Paint{Decode, Prefill, Mixed, Other} {
			if c := contrast(value(p), value(surface)); c < 3 {
				t.Errorf("dark %v: line in %s has contrast %.2f", dark, paints[p].name, c)
			}
		}
		for i := range rampSteps {
			frac := (float64(i) + 0.5) / rampSteps
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
				"light": {paints[p[0]].light, paints[p[1]].light}, "dark": {paints[p[0]].dark, paints[p[1]].dark},
			} {
				a, b := lab(apply(m, linearRGB(t, hex[0]))), lab(apply(m, linearRGB(t, hex[1])))
				d := math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
				if d < 20 {
					t.Errorf("%s, %s: %s and %s are %.1f apart", kind, scheme, paints[p[0]].name, paints[p[1]].name, d)
				}
			}
		}
	}
}
