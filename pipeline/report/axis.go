package report

import (
	"math"
	"strconv"
)

// axis maps values of one quantity to pixels.
type axis struct {
	Label  string // "step time (ms)": what and unit
	Lo, Hi float64
	log    bool
	Ticks  []tick
	P0, P1 float64 // pixels of lo and hi
}

type tick struct {
	V     float64
	Label string
}

// Linear makes an axis over [lo, hi] widened to round ticks.
func Linear(label string, lo, hi float64, about int) axis {
	if !(hi > lo) {
		lo, hi = lo-0.5, lo+0.5
	}
	step := niceStep((hi - lo) / float64(max(about, 1)))
	first, last := math.Floor(lo/step+1e-9), math.Ceil(hi/step-1e-9)
	a := axis{Label: label, Lo: first * step, Hi: last * step}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for k := first; k <= last; k++ {
		v := k * step
		a.Ticks = append(a.Ticks, tick{v, grouped(strconv.FormatFloat(v, 'f', decimals, 64))})
	}
	return a
}

// integers is linear with ticks at whole numbers only.
func integers(label string, lo, hi float64, about int) axis {
	if hi-lo < float64(about) {
		about = max(1, int(hi-lo))
	}
	return Linear(label, math.Floor(lo), math.Max(math.Ceil(hi), math.Floor(lo)+1), about)
}

// Logarithmic makes a log axis over [lo, hi], both positive, with labels at
// 1-2-5 when few decades are shown, else at powers of ten.
func Logarithmic(label string, lo, hi float64) axis {
	if !(lo > 0) {
		lo = math.Max(hi/1e6, 1e-9)
	}
	if !(hi > lo) {
		lo, hi = lo/2, lo*2
	}
	a := axis{Label: label, log: true}
	var mult []float64
	switch decades := math.Log10(hi / lo); {
	case decades < 1.5:
		mult = []float64{1, 2, 3, 5, 7}
	case decades < 3:
		mult = []float64{1, 2, 5}
	default:
		mult = []float64{1}
	}
	a.Lo, a.Hi = lo, hi
	e0, e1 := int(math.Floor(math.Log10(lo)-1e-9)), int(math.Ceil(math.Log10(hi)+1e-9))
	skip := 1 + (e1-e0)/7
	for e := e0; e <= e1; e++ {
		if len(mult) == 1 && (e-e0)%skip != 0 {
			continue
		}
		for _, m := range mult {
			v := m * math.Pow(10, float64(e))
			if v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				a.Ticks = append(a.Ticks, tick{v, Short(v)})
			}
		}
	}
	return a
}

// Widened gives a log axis a little air on both sides.
func Widened(lo, hi float64) (float64, float64) {
	if !(lo > 0) || !(hi >= lo) {
		return lo, hi
	}
	return lo / 1.12, hi * 1.12
}

// Px is the pixel of v; values outside are held at the border.
func (a *axis) Px(v float64) float64 {
	lo, hi := a.Lo, a.Hi
	if a.log {
		v, lo, hi = math.Log(math.Max(v, a.Lo*1e-3)), math.Log(lo), math.Log(hi)
	}
	f := (v - lo) / (hi - lo)
	return a.P0 + float64(math.Min(math.Max(f, 0), 1)*(a.P1-a.P0))
}

// niceStep rounds a step up to 1, 2 or 5 times a power of ten.
func niceStep(raw float64) float64 {
	if !(raw > 0) {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*base*(1+1e-9) {
			return m * base
		}
	}
	return 10 * base
}

// axisTitle stands centred below the plotting area, or further left when it
// would not fit.
func axisTitle(d *Drawing, x axis, label string) {
	label = clip(label, labelSize, d.W-8)
	half := textWidth(label, labelSize) / 2
	at := math.Max(math.Min((x.P0+x.P1)/2, d.W-half-4), half+4)
	d.Label(point{at, d.H - 6}, label, labelSize, Mute, anchorMiddle)
}

// maxCurve is the most points one line may have.
const maxCurve = 240

// sparse keeps at most maxCurve points, the first and the last among them.
func sparse(xy [][2]float64) [][2]float64 {
	if len(xy) <= maxCurve {
		return xy
	}
	out := make([][2]float64, 0, maxCurve)
	for i := range maxCurve {
		out = append(out, xy[i*(len(xy)-1)/(maxCurve-1)])
	}
	return out
}

// Span is the smallest and largest finite value seen.
type Span struct {
	Lo, Hi float64
	Ok     bool
}

func (s *Span) Take(vs ...float64) {
	for _, v := range vs {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
		case !s.Ok:
			s.Lo, s.Hi, s.Ok = v, v, true
		default:
			s.Lo, s.Hi = math.Min(s.Lo, v), math.Max(s.Hi, v)
		}
	}
}

// TakePositive is take for log axes.
func (s *Span) TakePositive(vs ...float64) {
	for _, v := range vs {
		if v > 0 {
			s.Take(v)
		}
	}
}
