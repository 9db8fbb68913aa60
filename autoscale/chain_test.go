package autoscale

import (
	"math"
	"math/rand/v2"
	"testing"
)

// twin solves the chain by direct sums over all K+1 states, each probability a
// mantissa with its own exponent.
func twin(m *model, lambda float64) moments {
	k := m.n + m.v.Queue
	type scaled struct {
		frac float64
		exp  int
	}
	p := make([]scaled, k+1)
	p[0].frac, p[0].exp = math.Frexp(1)
	top := p[0].exp
	for n := range k {
		seats := min(n+1, m.n)
		tau := m.tauMs(seats)
		if seats < m.n {
			a, b := m.lineAt(m.chunksAt(float64(seats)), lambda)
			tau = a + b*float64(seats)
		}
		f, e := math.Frexp(p[n].frac * (lambda * tau / float64(seats)))
		p[n+1] = scaled{f, e + p[n].exp}
		top = max(top, p[n+1].exp)
	}
	var total, inService, queued float64
	for n := range p {
		v := math.Ldexp(p[n].frac, p[n].exp-top)
		total += v
		inService += float64(min(n, m.n)) * v
		queued += float64(max(0, n-m.n)) * v
	}
	last := math.Ldexp(p[k].frac, p[k].exp-top)
	return moments{inService: inService / total, queued: queued / total, accepted: (total - last) / total, blocked: last / total}
}

func closeTo(a, b, rel float64) bool {
	return a == b || math.Abs(a-b) <= rel*math.Max(math.Abs(a), math.Abs(b))
}

// randomModel draws a server that could exist, and now and then an odd one.
func randomModel(rng *rand.Rand) (model, error) {
	logUniform := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) }
	p := params{AlphaMs: logUniform(0.1, 100), BetaMs: logUniform(1e-4, 1), GammaMs: logUniform(1e-7, 1e-3)}
	f := flavours[rng.IntN(len(flavours))]
	if f == wvA4P {
		p.GammaMs, p.DeltaMs = logUniform(0.1, 100), logUniform(1e-5, 1e-1)
	}
	s := shape{Prompt: math.Floor(logUniform(1, 1e5)), Output: math.Floor(logUniform(1, 1e4))}
	if rng.IntN(20) == 0 {
		s.Prompt = 0
	}
	v := Limits{MaxBatch: int(logUniform(1, 600)), Queue: int(logUniform(1, 5000)) - 1, MaxBatchedTokens: int(logUniform(64, 32768))}
	return New(f, p, s, v)
}

// TestTwin: the closed form agrees with direct sums over all states, also above capacity.
func TestTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	over := 0
	for i := range 10_000 {
		m, err := randomModel(rng)
		if err != nil {
			t.Fatal(err)
		}
		load := math.Exp(rng.NormFloat64()*1.5 - 0.3)
		if i%10 == 0 {
			load = 1 + rng.NormFloat64()*1e-6 // the geometric tail is nearly flat
		}
		if load > 1 {
			over++
		}
		lambda := load * m.MaxRateRPS() / 1000
		got, want := m.chain(lambda), twin(&m, lambda)
		for _, x := range []struct {
			name      string
			got, want float64
		}{{"in service", got.inService, want.inService}, {"queued", got.queued, want.queued}, {"accepted", got.accepted, want.accepted},
			{"blocked", got.blocked, want.blocked}} {
			if !closeTo(x.got, x.want, 1e-10) && math.Abs(x.got-x.want) > 1e-290 {
				t.Fatalf("case %d, %s, load %g, %+v %+v %+v: %s: got %.17g, want %.17g (%g)", i, m.flavour, load, m.p, m.s, m.v, x.name, x.got, x.want,
					x.got/x.want-1)
			}
		}
	}
	t.Logf("golden: 10000 cases against direct sums, %d of them overloaded", over)
}
