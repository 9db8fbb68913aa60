package autoscale

import (
	"math/big"
	"testing"
)

// mmnk is the M/M/N/K queue in exact-enough arithmetic: p_n = a^n/n! up to N,
// then p_N (a/N)^(n-N), with a = lambda/mu. Gross and Harris, Fundamentals of
// Queueing Theory, section 2.5.
func mmnk(a float64, n, k int) (inService, queued, blocked float64) {
	big1 := func(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }
	p, load := big1(1), big1(a)
	total, serving, waiting := big1(0), big1(0), big1(0)
	for i := 0; i <= k; i++ {
		if i > 0 {
			p.Mul(p, load)
			p.Quo(p, big1(float64(min(i, n))))
		}
		total.Add(total, p)
		serving.Add(serving, new(big.Float).Mul(p, big1(float64(min(i, n)))))
		waiting.Add(waiting, new(big.Float).Mul(p, big1(float64(max(0, i-n)))))
	}
	over := func(x *big.Float) float64 { f, _ := new(big.Float).Quo(x, total).Float64(); return f }
	return over(serving), over(waiting), over(p)
}

// TestClosedForms: with a time in service that does not depend on the batch, the
// chain is M/M/1/K (N = 1) or M/M/N/K.
func TestClosedForms(t *testing.T) {
	cases := 0
	for _, n := range []int{1, 2, 7, 64, 256} {
		for _, q := range []int{0, 1, 10, 500, 2560} {
			for _, rho := range []float64{1e-3, 0.1, 0.5, 0.9, 1 - 1e-9, 1, 1 + 1e-9, 1.1, 3} {
				m, err := New(wvA4P, params{AlphaMs: 2}, shape{Output: 1}, Limits{MaxBatch: n, Queue: q})
				if err != nil {
					t.Fatal(err)
				}
				got := m.chain(rho * float64(n) / 2)
				inService, queued, blocked := mmnk(rho*float64(n), n, n+q)
				for _, x := range []struct {
					name      string
					got, want float64
				}{{"in service", got.inService, inService}, {"queued", got.queued, queued}, {"blocked", got.blocked, blocked}} {
					cases++
					if !closeTo(x.got, x.want, 1e-12) {
						t.Errorf("N %d, Q %d, rho %g: %s: got %.17g, want %.17g (%.1e)", n, q, rho, x.name, x.got, x.want, x.got/x.want-1)
					}
				}
			}
		}
	}
	t.Logf("golden: %d values of M/M/1/K and M/M/N/K", cases)
}

// TestMM1KFormula: the textbook's two lines for one server.
func TestMM1KFormula(t *testing.T) {
	m, err := New(wvA4P, params{AlphaMs: 4}, shape{Output: 1}, Limits{MaxBatch: 1, Queue: 3})
	if err != nil {
		t.Fatal(err)
	}
	p := m.Solve(125) // rho = 0.5: p_n = 2^-n * 16/31, K = 4
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"blocked", p.BlockedFrac, 1.0 / 31}, {"throughput", p.ThroughputRPS, 125 * 30.0 / 31}, {"in service", p.InService, 15.0 / 31},
		{"response", p.ResponseMs, (8*1 + 4*2 + 2*3 + 1*4) / 31.0 / (0.125 * 30 / 31)},
		{"wait", p.WaitMs, (4*1 + 2*2 + 1*3) / 31.0 / (0.125 * 30 / 31)}, {"max rate", p.MaxRateRPS, 250},
	} {
		if !closeTo(x.got, x.want, 1e-14) {
			t.Errorf("%s: got %.17g, want %.17g", x.name, x.got, x.want)
		}
	}
}
