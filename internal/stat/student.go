package stat

import (
	"math"

	"github.com/blis-train/blis-train/internal/portable"
)

// StudentT is the p-quantile of Student's t with df > 0 degrees of freedom, 0 < p < 1,
// within 1e-12 of itself; NaN for another df.
//
// Source: Newton's method on the upper tail, 1/2 I_x(df/2, 1/2) at x = df/(df+t^2)
// (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.27), kept between
// bounds that close in. gonum's quantile takes the last bits of package math, which are
// not the same on every architecture.
func StudentT(p, df float64) float64 {
	switch {
	case !(df > 0):
		return math.NaN()
	case p < 0.5:
		return -StudentT(1-p, df)
	case p == 0.5:
		return 0
	}
	lo, hi := 0.0, 1.0
	for studentTail(hi, df) > 1-p {
		lo, hi = hi, 2*hi
	}
	t := float64((lo + hi) / 2)
	for range 100 {
		off := studentTail(t, df) - (1 - p)
		if off > 0 {
			lo = t
		} else {
			hi = t
		}
		next := t + off/studentDensity(t, df)
		if !(next > lo && next < hi) {
			next = (lo + hi) / 2
		}
		if math.Abs(next-t) <= 1e-15*t {
			return next
		}
		t = next
	}
	return t
}

// studentDensity is Student's density.
func studentDensity(t, df float64) float64 {
	return gammaRatio(df/2) / math.Sqrt(df*math.Pi) * portable.Exp(-(df+1)/2*portable.Log1p(t*t/df))
}

// studentTail is the chance of more than t > 0. With b = 1/2 the continued fraction of
// I_x(a, b) (Abramowitz and Stegun, 26.5.8) is summed by Lentz's method (Applied Optics
// 15, 1976), on the side of x where it converges within a few terms.
func studentTail(t, df float64) float64 {
	a, b := float64(df/2), 0.5
	square := float64(t * t)
	x, y := df/(df+square), square/(df+square)
	front := gammaRatio(a) / math.SqrtPi * portable.Exp(-a*portable.Log1p(square/df)) * math.Sqrt(y) // x^a y^b / B(a, b)
	if x < (a+1)/(a+b+2) {
		return front / a * betaFraction(a, b, x) / 2
	}
	near := float64(front * betaFraction(b, a, y))
	return (1 - float64(near/b)) / 2
}

// betaFraction is the continued fraction of the incomplete beta function at x.
func betaFraction(a, b, x float64) float64 {
	const tiny = 1e-300
	c, d := 1.0, 1/(1-(a+b)*x/(a+1))
	out := d
	step := func(factor float64) float64 {
		d = 1 / math.Max(tiny, 1+float64(factor*d))
		c = math.Max(tiny, 1+factor/c)
		return float64(c * d)
	}
	for m := 1.0; m < 10000; m++ {
		out *= step(m * (b - m) * x / ((a + float64(2*m) - 1) * (a + float64(2*m))))
		turn := step(-(a + m) * (a + b + m) * x / ((a + float64(2*m)) * (a + float64(2*m) + 1)))
		out *= turn
		if math.Abs(turn-1) < 1e-16 {
			break
		}
	}
	return out
}

// gammaRatio is gamma(a+1/2)/gamma(a): the asymptotic series from 20 on (Tricomi and
// Erdelyi, Pacific J. Math. 1, 1951), the recurrence of both below.
func gammaRatio(a float64) float64 {
	ratio := 1.0
	for ; a < 20; a++ {
		ratio *= a / (a + 0.5)
	}
	u := 1 / a
	series := 1 + float64(u*(-1.0/8+float64(u*(1.0/128+float64(u*(5.0/1024+float64(u*(-21.0/32768+float64(u*(-399.0/262144+
		float64(u*(869.0/4194304+float64(u*39325.0/33554432)))))))))))))
	return ratio * math.Sqrt(a) * series
}
