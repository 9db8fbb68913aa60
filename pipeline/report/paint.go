package report

import (
	"fmt"
	"strings"
)

// Paint is a named colour of the page; it has a light and a dark value, and a
// figure names paints only, so that one inline SVG serves both schemes.
type Paint int

const (
	none Paint = iota
	ink
	Mute
	AxisLine
	gridLine
	surface
	Decode
	Prefill
	Mixed
	Other
	good
	bad
	warn
	onRamp // text on the upper half of the ramp
	ramp0  // first of rampSteps sequential colours, low to high
)

const rampSteps = 7

// paints lists name, light and dark value in the order of the constants. The
// three regimes are blue, vermilion and plum, which stay apart under every
// dichromacy; figures also tell them apart by
// marker or dash. The ramp is one hue by lightness, so it survives grey print.
var paints = []struct{ name, light, dark string }{
	{"none", "#ffffff", "#000000"},
	{"ink", "#1c2430", "#e7ebf1"},
	{"mute", "#596475", "#a0abba"},
	{"axis", "#98a3b3", "#5d6878"},
	{"grid", "#e5e9ef", "#29313d"},
	{"surface", "#ffffff", "#171c24"},
	{"decode", "#0a68b4", "#62b5f5"},
	{"prefill", "#c75300", "#f7994d"},
	{"mixed", "#885566", "#d9a3bd"},
	{"other", "#00826a", "#41c9a6"},
	{"good", "#17774a", "#62d193"},
	{"bad", "#b3261e", "#ff8d84"},
	{"warn", "#8a5d00", "#f0c050"},
	{"onramp", "#ffffff", "#0b1118"},
	{"r0", "#eaf1f9", "#1a2634"},
	{"r1", "#cde0f2", "#1d3955"},
	{"r2", "#a5c8e8", "#215079"},
	{"r3", "#74a9d8", "#2a6ca6"},
	{"r4", "#4686c2", "#428cc9"},
	{"r5", "#22639f", "#77b3e4"},
	{"r6", "#103f6d", "#bbdcfb"},
}

// ramp returns the sequential paint of a fraction in [0, 1].
func ramp(frac float64) Paint {
	i := int(frac * rampSteps)
	return ramp0 + Paint(min(max(i, 0), rampSteps-1))
}

// onRampText is the readable text colour on ramp(frac).
func onRampText(frac float64) Paint {
	if frac*rampSteps >= 4 {
		return onRamp
	}
	return ink
}

// regimePaint colours a regime everywhere on the page alike.
func regimePaint(regime string) Paint {
	switch {
	case regime == "decode" || regime == "idle":
		return Decode
	case strings.HasPrefix(regime, "prefill") || regime == "waiting":
		return Prefill
	case regime == "mixed":
		return Mixed
	}
	return Other
}

// cssVars are the custom properties of one scheme.
func cssVars(dark bool) string {
	var b strings.Builder
	for _, p := range paints[1:] {
		v := p.light
		if dark {
			v = p.dark
		}
		fmt.Fprintf(&b, "--%s:%s;", p.name, v)
	}
	return b.String()
}

// cssMarks are the fill and stroke classes figures use.
func cssMarks() string {
	var b strings.Builder
	for _, p := range paints[1:] {
		fmt.Fprintf(&b, ".f-%[1]s{fill:var(--%[1]s)}.s-%[1]s{stroke:var(--%[1]s)}.b-%[1]s{background:var(--%[1]s)}\n", p.name)
	}
	return b.String()
}

func (p Paint) name() string { return paints[p].name }
