package stat

import "math"

// This file has the elementary functions of package math with the same bits on
// every architecture: math.Exp and others are assembly on some, and the compiler may fuse
// the products and sums of the rest. Here every product that feeds a sum is rounded by an
// explicit conversion, which the language says forbids it.
//
// Not here because they are exact anywhere: Sqrt, Floor, Ceil, Trunc, Round, Abs, Min, Max,
// Frexp, Ldexp, Modf and FMA.

// ln2Hi is ln 2 in 32 bits, so that a product with an exponent is exact; ln2Lo is the rest.
const (
	ln2Hi = 0x1.62e42feep-1
	ln2Lo = math.Ln2 - ln2Hi
)

// Exp is e^x, within one unit in the last place.
//
// Source: x = k ln 2 + r with |r| <= ln(2)/2, the remainder in two parts (Cody and Waite,
// Software Manual for the Elementary Functions, 1980, ch. 6), and Taylor's series of e^r.
func Exp(x float64) float64 {
	switch {
	case x != x || x > 710:
		return x * math.MaxFloat64 // NaN, +Inf
	case x < -746:
		return 0
	}
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	hi, lo := x-float64(k*ln2Hi), float64(k*ln2Lo)
	r := hi - lo
	tail := 1.0 / 6227020800 // 1/13!
	tail = float64(tail*r) + 1.0/479001600
	tail = float64(tail*r) + 1.0/39916800
	tail = float64(tail*r) + 1.0/3628800
	tail = float64(tail*r) + 1.0/362880
	tail = float64(tail*r) + 1.0/40320
	tail = float64(tail*r) + 1.0/5040
	tail = float64(tail*r) + 1.0/720
	tail = float64(tail*r) + 1.0/120
	tail = float64(tail*r) + 1.0/24
	tail = float64(tail*r) + 1.0/6
	tail = float64(tail*r) + 1.0/2
	y := 1 + (r + (float64(r*r*tail) + ((hi - r) - lo)))
	if k < -1021 || k > 1023 {
		return math.Ldexp(y, int(k))
	}
	return y * math.Float64frombits(uint64(int64(k)+1023)<<52)
}

// Exp2 is 2^x, within two units in the last place.
func Exp2(x float64) float64 {
	if !(math.Abs(x) < 1100) {
		return Exp(x) // 0, +Inf, NaN
	}
	k := math.Floor(x + 0.5)
	return math.Ldexp(Exp((x-k)*math.Ln2), int(k))
}

// Expm1 is e^x - 1, within four units in the last place for small x too.
//
// Source: W. Kahan's division by the logarithm of what was subtracted from (Higham,
// Accuracy and Stability of Numerical Algorithms, 2002, 1.14.1).
func Expm1(x float64) float64 {
	u := Exp(x)
	if u == 1 {
		return x
	}
	if math.Abs(x) > 1 {
		return u - 1
	}
	return (u - 1) * (x / Log(u))
}

// Log is the natural logarithm, within one unit in the last place; NaN below 0, -Inf at 0.
//
// Source: x = 2^k (1+f) with 1+f between sqrt(1/2) and sqrt(2), and the series of
// 2 atanh(s) at s = f/(2+f), of which 2s is f - f^2/2 + s f^2/2 (P. T. P. Tang, ACM TOMS
// 16, 1990, says why this order loses nothing).
func Log(x float64) float64 {
	switch {
	case x != x || x > math.MaxFloat64:
		return x
	case x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	}
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = f*2, e-1
	}
	f--
	s := f / (2 + f)
	z := float64(s * s)
	sum := 2.0 / 21
	sum = float64(sum*z) + 2.0/19
	sum = float64(sum*z) + 2.0/17
	sum = float64(sum*z) + 2.0/15
	sum = float64(sum*z) + 2.0/13
	sum = float64(sum*z) + 2.0/11
	sum = float64(sum*z) + 2.0/9
	sum = float64(sum*z) + 2.0/7
	sum = float64(sum*z) + 2.0/5
	sum = float64(sum*z) + 2.0/3
	half, k := float64(0.5*f*f), float64(e)
	return float64(k*ln2Hi) - ((half - (float64(s*(half+float64(z*sum))) + float64(k*ln2Lo))) - f)
}

// Log1p is log(1+x), within four units in the last place for small x too. Source: as Expm1.
func Log1p(x float64) float64 {
	u := 1 + x
	if u == 1 || u > math.MaxFloat64 {
		return x
	}
	if math.Abs(x) > 1 || u <= 0 {
		return Log(u)
	}
	return Log(u) * (x / (u - 1))
}

// Log2 is exact for powers of two, elsewhere within two units in the last place of itself
// or of x's exponent.
func Log2(x float64) float64 {
	f, e := math.Frexp(x)
	if f == 0.5 {
		return float64(e - 1)
	}
	return float64(Log(f)*(1/math.Ln2)) + float64(e)
}

// Log10 is Log2 in decades.
func Log10(x float64) float64 { return Log2(x) * (math.Ln2 / math.Ln10) }

// Pow is x^y, within |y| + |ln x| units in the last place, exact where a whole power of a short
// number is. Special cases are those of math.Pow.
//
// Source: the whole part of y by squaring, the exponent kept apart (Knuth, The Art of
// Computer Programming 2, 4.6.3), the rest by Exp and Log.
func Pow(x, y float64) float64 {
	whole, part := math.Modf(math.Abs(y))
	if !(math.Abs(x) <= math.MaxFloat64) || x == 0 || !(whole < 1<<63) || x < 0 && part != 0 {
		return math.Pow(x, y) // without arithmetic
	}
	if part > 0.5 {
		whole, part = whole+1, part-1
	}
	out, exponent := 1.0, 0
	switch part {
	case 0:
	case 0.5:
		out = math.Sqrt(x)
	default:
		out = Exp(part * Log(x))
	}
	f, e := math.Frexp(x)
	for n := int64(whole); n > 0; n >>= 1 {
		if e < -1<<12 || e > 1<<12 { // more than any result
			exponent += e
			break
		}
		if n&1 == 1 {
			out, exponent = out*f, exponent+e
		}
		f, e = float64(f*f), 2*e
		if math.Abs(f) < 0.5 {
			f, e = 2*f, e-1
		}
	}
	if y < 0 {
		out, exponent = 1/out, -exponent
	}
	return math.Ldexp(out, exponent)
}
