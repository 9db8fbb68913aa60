package report

import (
	"math"
	"strconv"
	"strings"
)

// axis maps values of one quantity to pixels.
type axis struct {
	label  string // "step time (ms)": what and unit
	lo, hi float64
	log    bool
	ticks  []tick
	p0, p1 float64 // pixels of lo and hi
}

type tick struct {
	v     float64
	label string
}

// linear makes an axis over [lo, hi] widened to round ticks.
func linear(label string, lo, hi float64, about int) axis {
	if !(hi > lo) {
		lo, hi = lo-0.5, lo+0.5
	}
	step := niceStep((hi - lo) / float64(max(about, 1)))
	first, last := math.Floor(lo/step+1e-9), math.Ceil(hi/step-1e-9)
	a := axis{label: label, lo: first * step, hi: last * step}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for k := first; k <= last; k++ {
		v := k * step
		a.ticks = append(a.ticks, tick{v, groupDigits(strconv.FormatFloat(v, 'f', decimals, 64))})
	}
	return a
}

// integers is linear with ticks at whole numbers only.
func integers(label string, lo, hi float64, about int) axis {
	if hi-lo < float64(about) {
		about = max(1, int(hi-lo))
	}
	return linear(label, math.Floor(lo), math.Max(math.Ceil(hi), math.Floor(lo)+1), about)
}

// logarithmic makes a log axis over [lo, hi], both positive, with labels at
// 1-2-5 when few decades are shown, else at powers of ten.
func logarithmic(label string, lo, hi float64) axis {
	if !(lo > 0) {
		lo = math.Max(hi/1e6, 1e-9)
	}
	if !(hi > lo) {
		lo, hi = lo/2, lo*2
	}
	a := axis{label: label, log: true}
	var mult []float64
	switch decades := math.Log10(hi / lo); {
	case decades < 1.5:
		mult = []float64{1, 2, 3, 5, 7}
	case decades < 3:
		mult = []float64{1, 2, 5}
	default:
		mult = []float64{1}
	}
	a.lo, a.hi = lo, hi
	e0, e1 := int(math.Floor(math.Log10(lo)-1e-9)), int(math.Ceil(math.Log10(hi)+1e-9))
	skip := 1 + (e1-e0)/7
	for e := e0; e <= e1; e++ {
		if len(mult) == 1 && (e-e0)%skip != 0 {
			continue
		}
		for _, m := range mult {
			v := m * math.Pow(10, float64(e))
			if v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				a.ticks = append(a.ticks, tick{v, short(v)})
			}
		}
	}
	return a
}

// widened gives a log axis a little air on both sides.
func widened(lo, hi float64) (float64, float64) {
	if !(lo > 0) || !(hi >= lo) {
		return lo, hi
	}
	return lo / 1.12, hi * 1.12
}

// px is the pixel of v; values outside are held at the border.
func (a *axis) px(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		v, lo, hi = math.Log(math.Max(v, a.lo*1e-3)), math.Log(lo), math.Log(hi)
	}
	f := (v - lo) / (hi - lo)
	return a.p0 + math.Min(math.Max(f, 0), 1)*(a.p1-a.p0)
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

// short prints a tick or a value with at most three significant digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "n/a"
	case a >= 1e7 || a < 1e-3:
		s := strconv.FormatFloat(v, 'e', 2, 64)
		mant, exp, _ := strings.Cut(s, "e")
		if strings.Contains(mant, ".") {
			mant = strings.TrimRight(strings.TrimRight(mant, "0"), ".")
		}
		n, _ := strconv.Atoi(exp)
		return minus(mant) + "e" + strconv.Itoa(n)
	case a >= 100:
		return groupDigits(strconv.FormatFloat(v, 'f', 0, 64))
	default:
		decimals := 2 - int(math.Floor(math.Log10(a)))
		s := strconv.FormatFloat(v, 'f', max(decimals, 0), 64)
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return minus(s)
	}
}

// minus sets a typographic minus before a number.
func minus(s string) string {
	if strings.HasPrefix(s, "-") && strings.Trim(s, "-0.,") != "" {
		return "−" + s[1:]
	}
	return strings.TrimPrefix(s, "-")
}

// groupDigits puts a comma between thousands.
func groupDigits(s string) string {
	sign, frac := "", ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		s, frac = s[:i], s[i:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if sign != "" && strings.Trim(s+frac, "0.,") == "" {
		sign = ""
	}
	return minus(sign + s + frac)
}
