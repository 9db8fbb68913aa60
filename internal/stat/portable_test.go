package stat

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const bits = 300 // of the reference

func number(x float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(x) }

// bigExp is e^x from the series at x/2^40, squared forty times.
func bigExp(x *big.Float) *big.Float {
	r := new(big.Float).SetPrec(bits+60).SetMantExp(x, -40)
	sum, term := new(big.Float).SetPrec(bits+60).SetInt64(1), new(big.Float).SetPrec(bits+60).SetInt64(1)
	for n := int64(1); n < 20; n++ {
		term.Mul(term, r).Quo(term, number(float64(n)))
		sum.Add(sum, term)
	}
	for range 40 {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog is log x: Newton's iteration on bigExp from a float64.
func bigLog(x *big.Float) *big.Float {
	f := new(big.Float)
	e := x.MantExp(f)
	m, _ := f.Float64()
	y := number(math.Log(m) + float64(e)*math.Ln2)
	for range 3 {
		up := bigExp(new(big.Float).Neg(y))
		y.Add(y, up.Mul(up, x).Sub(up, number(1)))
	}
	return y
}

// ulps is how far got is from want, in units of want's last place.
func ulps(got float64, want *big.Float) float64 {
	w, _ := want.Float64()
	unit := math.Nextafter(math.Abs(w), math.Inf(1)) - math.Abs(w)
	off, _ := new(big.Float).Sub(number(got), want).Float64()
	return math.Abs(off) / unit
}

// Every function stays within the units of the last place that its comment names.
func TestAccuracy(t *testing.T) {
	one := number(1)
	rng := rand.New(rand.NewPCG(5, 6))
	spread := func(most float64) float64 { return (2*rng.Float64() - 1) * math.Ldexp(most, -rng.IntN(40)) }
	positive := func() float64 { return math.Ldexp(0.5+rng.Float64()/2, rng.IntN(60)-30) }
	for _, c := range []struct {
		name string
		most float64
		f    func(float64) float64
		want func(*big.Float) *big.Float
		draw func() float64
	}{
		{"Exp", 1, Exp, bigExp, func() float64 { return spread(700) }},
		{"Exp2", 2, Exp2, func(x *big.Float) *big.Float { return bigExp(x.Mul(x, bigLog(number(2)))) },
			func() float64 { return spread(1000) }},
		{"Expm1", 4, Expm1, func(x *big.Float) *big.Float { y := bigExp(x); return y.Sub(y, one) }, func() float64 { return spread(30) }},
		{"Log", 1, Log, bigLog, positive},
		{"Log near 1", 1, Log, bigLog, func() float64 { return 1 + spread(0.3) }},
		{"Log1p", 4, Log1p, func(x *big.Float) *big.Float { return bigLog(x.Add(x, one)) }, func() float64 { return math.Max(-0.99, spread(8)) }},
		{"Pow", 2.7 + 21, func(x float64) float64 { return Pow(x, -2.7) },
			func(x *big.Float) *big.Float { y := bigLog(x); return bigExp(y.Mul(y, number(-2.7))) }, positive},
	} {
		worst := 0.0
		for range 400 {
			x := c.draw()
			if off := ulps(c.f(x), c.want(number(x))); off > worst {
				worst = off
				if off > c.most {
					t.Errorf("%s(%g): off by %.2f units in the last place, want at most %g", c.name, x, off, c.most)
				}
			}
		}
		t.Logf("%s: off by %.2f units in the last place at most", c.name, worst)
	}
}

// Special arguments give what package math gives, and whole powers of short numbers are exact.
func TestSpecialValues(t *testing.T) {
	inf := math.Inf(1)
	values := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 2, -2, 3, 1e-300,
		709.9, 710, -745, -746, -750, 1e300, -1e300, inf, -inf, math.NaN()}
	for _, x := range values {
		for _, f := range []struct {
			name      string
			got, want float64
		}{
			{"Exp", Exp(x), math.Exp(x)}, {"Exp2", Exp2(x), math.Exp2(x)}, {"Expm1", Expm1(x), math.Expm1(x)}, {"Log", Log(x), math.Log(x)},
			{"Log1p", Log1p(x), math.Log1p(x)}, {"Log2", Log2(x), math.Log2(x)}, {"Log10", Log10(x), math.Log10(x)},
		} {
			if !nearUlps(f.got, f.want, 4) {
				t.Errorf("%s(%g) = %g, want %g", f.name, x, f.got, f.want)
			}
		}
		for _, y := range values {
			if got, want := Pow(x, y), math.Pow(x, y); !nearUlps(got, want, 8) {
				t.Errorf("Pow(%g, %g) = %g, want %g", x, y, got, want)
			}
		}
	}
	if got := Log(0x1p-1070); !nearUlps(got, -1070*math.Ln2, 1) { // math.Log of amd64 says -709.1
		t.Errorf("Log(2^-1070) = %g", got)
	}
	exact := 1.0
	for n := range 23 {
		if got := Pow(10, float64(n)); got != exact {
			t.Errorf("10^%d = %g", n, got)
		}
		if got := Log2(math.Ldexp(1, n-11)); got != float64(n-11) {
			t.Errorf("log2(2^%d) = %g", n-11, got)
		}
		exact *= 10
	}
}

func nearUlps(a, b, ulps float64) bool {
	if a == b || a != a && b != b {
		return true
	}
	return math.Abs(a-b) <= ulps*(math.Nextafter(math.Abs(b), math.Inf(1))-math.Abs(b))
}

// The bits of a hundred thousand results, which no architecture may change: this test
// says so on whatever runs it.
func TestSameBitsEverywhere(t *testing.T) {
	rng, sum := rand.New(rand.NewPCG(7, 8)), fnv.New64a()
	for range 10000 {
		x := math.Ldexp(rng.Float64()-0.25, rng.IntN(24)-12)
		a := math.Abs(x)
		for _, v := range []float64{Exp(x), Exp2(x), Expm1(x), Log(a), Log1p(a), Log2(a), Log10(a), Pow(a, x/64), Pow(a, 3)} {
			_ = binary.Write(sum, binary.LittleEndian, v)
		}
	}
	if got, want := fmt.Sprintf("%016x", sum.Sum64()), "03552e634929c383"; got != want {
		t.Errorf("digest of results: got %s, want %s", got, want)
	}
}

func BenchmarkExp(b *testing.B) {
	for _, f := range []struct {
		name string
		f    func(float64) float64
	}{{"portable", Exp}, {"math", math.Exp}} {
		b.Run(f.name, func(b *testing.B) {
			sum := 0.0
			for i := range b.N {
				sum += f.f(float64(i&1023)/64 - 8)
			}
			sink = sum
		})
	}
}

func BenchmarkLog(b *testing.B) {
	for _, f := range []struct {
		name string
		f    func(float64) float64
	}{{"portable", Log}, {"math", math.Log}} {
		b.Run(f.name, func(b *testing.B) {
			sum := 0.0
			for i := range b.N {
				sum += f.f(float64(i&1023)/64 + 0.01)
			}
			sink = sum
		})
	}
}

var sink float64
