package autoscale

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// twin solves the chain by direct sums over all K+1 states, each probability a
// mantissa with its own exponent.
func twin(m *model, lambda float64) moments {
	k := m.seats + m.limits.Queue
	type scaled struct {
		frac float64
		exp  int
	}
	p := make([]scaled, k+1)
	p[0].frac, p[0].exp = math.Frexp(1)
	top := p[0].exp
	for n := range k {
		seats := min(n+1, m.seats)
		tau := m.tauMs(seats)
		if seats < m.seats {
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
		inService += float64(min(n, m.seats)) * v
		queued += float64(max(0, n-m.seats)) * v
	}
	last := math.Ldexp(p[k].frac, p[k].exp-top)
	return moments{
		inService: inService / total,
		queued:    queued / total,
		accepted:  (total - last) / total,
		blocked:   last / total,
	}
}

func closeTo(a, b, rel float64) bool {
	return a == b || math.Abs(a-b) <= rel*math.Max(math.Abs(a), math.Abs(b))
}

// randomModel draws a server that could exist, and now and then an odd one.
func randomModel(rng *rand.Rand) (model, error) {
	logUniform := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) }
	p := params{
		AlphaMs: logUniform(0.1, 100),
		BetaMs:  logUniform(1e-4, 1),
		GammaMs: logUniform(1e-7, 1e-3),
	}
	f := flavours[rng.IntN(len(flavours))]
	if f == wvA4P {
		p.GammaMs, p.DeltaMs = logUniform(0.1, 100), logUniform(1e-5, 1e-1)
	}
	s := shape{Prompt: math.Floor(logUniform(1, 1e5)), Output: math.Floor(logUniform(1, 1e4))}
	if rng.IntN(20) == 0 {
		s.Prompt = 0
	}
	v := Limits{
		MaxBatch:         int(logUniform(1, 600)),
		Queue:            int(logUniform(1, 5000)) - 1,
		MaxBatchedTokens: int(logUniform(64, 32768)),
	}
	return newModel(f, p, s, v)
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
				t.Fatalf("case %d, %s, load %g, %+v %+v %+v: %s: got %.17g, want %.17g (%g)", i, m.flavour, load, m.params, m.shape, m.limits, x.name, x.got, x.want,
					x.got/x.want-1)
			}
		}
	}
	t.Logf("golden: 10000 cases against direct sums, %d of them overloaded", over)
}

// mmnk is the M/M/N/K queue in exact-enough arithmetic: p_n = a^n/n! up to N,
// then p_N (a/N)^(n-N), with a = lambda/mu. Gross and Harris, Fundamentals of
// Queueing Theory, section 2.5.
func mmnk(a float64, n, k int) (inService, queued, blocked float64) {
	big1 := func(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }
	p, load := big1(1), big1(a)
	total := big1(0)
	serving := big1(0)
	waiting := big1(0)
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
				m, err := newModel(wvA4P, params{AlphaMs: 2}, shape{Output: 1}, Limits{MaxBatch: n, Queue: q})
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
	m, err := newModel(wvA4P, params{AlphaMs: 4}, shape{Output: 1}, Limits{MaxBatch: 1, Queue: 3})
	if err != nil {
		t.Fatal(err)
	}
	p := m.Solve(125) // rho = 0.5: p_n = 2^-n * 16/31, K = 4
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"blocked", 1 - p.ThroughputRPS/p.RateRPS, 1.0 / 31}, {"throughput", p.ThroughputRPS, 125 * 30.0 / 31}, {"in service", p.InService, 15.0 / 31},
		{"response", p.WaitMs + p.ServiceMs, (8*1 + 4*2 + 2*3 + 1*4) / 31.0 / (0.125 * 30 / 31)},
		{"wait", p.WaitMs, (4*1 + 2*2 + 1*3) / 31.0 / (0.125 * 30 / 31)}, {"max rate", p.MaxRateRPS, 250},
	} {
		if !closeTo(x.got, x.want, 1e-14) {
			t.Errorf("%s: got %.17g, want %.17g", x.name, x.got, x.want)
		}
	}
}

// seatModel has requests of 100 steps that cost the same whatever they hold, and no prompts.
func seatModel(t *testing.T, seats int, outputCV2 float64) model {
	t.Helper()
	m, err := newModel(corrected, params{AlphaMs: 10, BetaMs: 0.5}, shape{Output: 101, OutputCV2: outputCV2},
		Limits{MaxBatch: seats, Queue: 200_000, MaxBatchedTokens: 8192})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSeatWaitOfExponentialOutputs: without prompts the second chain is the first.
func TestSeatWaitOfExponentialOutputs(t *testing.T) {
	for _, seats := range []int{1, 2, 32, 256} {
		m := seatModel(t, seats, 1)
		for _, load := range []float64{0.2, 0.7, 0.95, 1.2} {
			rate := load * m.MaxRateRPS()
			chain := m.chain(rate / 1000)
			got := m.Solve(rate).WaitMs
			want := chain.queued / (rate * chain.accepted / 1000)
			if !closeTo(got, want, 1e-9) {
				t.Errorf("%d seats at %g: got %g ms, want %g", seats, load, got, want)
			}
		}
	}
}

// TestSeatWaitInHeavyTraffic: at one seat it is the Pollaczek-Khinchine formula.
func TestSeatWaitInHeavyTraffic(t *testing.T) {
	for _, cv2 := range []float64{0, 0.5, 1, 3} {
		m := seatModel(t, 1, cv2)
		service := 1000 / m.MaxRateRPS()
		const load = 0.99
		got := m.Solve(load * m.MaxRateRPS()).WaitMs
		want := load / (1 - load) * service * (1 + cv2) / 2
		if !closeTo(got, want, 0.02) {
			t.Errorf("cv2 %g: got %g ms, want %g", cv2, got, want)
		}
	}
}

// TestVariabilityOfTheWork is checked against the moments of log-normal lengths.
func TestVariabilityOfTheWork(t *testing.T) {
	const seats, prompt, output, promptCV2, outputCV2 = 32, 400, 100, 2, 0.5
	p := params{AlphaMs: 30, BetaMs: 0.5, GammaMs: 0.01}
	m, err := newModel(corrected, p, shape{
		Prompt:    prompt,
		Output:    output,
		PromptCV2: promptCV2,
		OutputCV2: outputCV2,
	},
		Limits{MaxBatch: seats, Queue: 320, MaxBatchedTokens: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// work = a m + g m k + g m^2/2 + w k, to leading order in m
	a := p.AlphaMs/seats + p.BetaMs
	g := p.GammaMs
	w := p.BetaMs + p.GammaMs
	moment := func(mean, cv2 float64, k int) float64 {
		return math.Pow(mean, float64(k)) * math.Pow(1+cv2, float64(k*(k-1))/2)
	}
	m1 := moment(output, outputCV2, 1)
	m2 := moment(output, outputCV2, 2)
	m3 := moment(output, outputCV2, 3)
	m4 := moment(output, outputCV2, 4)
	k1 := moment(prompt, promptCV2, 1)
	k2 := moment(prompt, promptCV2, 2)
	mean := a*m1 + g*m1*k1 + g*m2/2 + w*k1
	square := a*a*m2 + g*g*m2*k2 + g*g*m4/4 + w*w*k2 + 2*a*g*m2*k1 + a*g*m3 + 2*a*w*m1*k1 + g*g*m3*k1 + 2*g*w*m1*k2 + g*w*m2*k1
	want := square/(mean*mean) - 1
	got, psi := m.variability(seats, w*k1/mean)
	if !closeTo(got, want, 0.05) {
		t.Errorf("squared coefficient of variation: got %.4f, want %.4f", got, want)
	}
	left := a*m2/2 + g*m2*k1/2 + g*m3/3
	if wantPsi := left / m1 / (a*m1 + g*m1*k1 + g*m2/2); !closeTo(psi, wantPsi, 0.02) {
		t.Errorf("share left of the decodes: got %.4f, want %.4f", psi, wantPsi)
	}
}

var sink point

func benchModel(b testing.TB, f Flavour) model {
	m, err := newModel(f, params{
		AlphaMs: 6.58,
		BetaMs:  1.93e-2,
		GammaMs: 5.46e-5,
		DeltaMs: 1e-4,
	}, shape{Prompt: 1024, Output: 256},
		Limits{MaxBatch: 256, Queue: 2560})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkSolve is one solve at N = 256 with a waiting room of 10 N; Sums is the
// same chain by direct sums over its 2,817 states.
func BenchmarkSolve(b *testing.B) {
	for _, f := range flavours {
		b.Run(string(f), func(b *testing.B) {
			m := benchModel(b, f)
			rate := 0.7 * m.MaxRateRPS()
			b.ReportAllocs()
			for range b.N {
				sink = m.Solve(rate)
			}
		})
	}
	b.Run("direct-sums", func(b *testing.B) {
		m := benchModel(b, inferno3P)
		rate := 0.7 * m.MaxRateRPS() / 1000
		b.ReportAllocs()
		for range b.N {
			sink.InService = twin(&m, rate).inService
		}
	})
}

// TestSolveAllocatesNothing holds for every flavour.
func TestSolveAllocatesNothing(t *testing.T) {
	for _, f := range flavours {
		m := benchModel(t, f)
		rate := 0.7 * m.MaxRateRPS()
		if n := testing.AllocsPerRun(100, func() { sink = m.Solve(rate) }); n != 0 {
			t.Errorf("%s: got %g allocations a solve, want 0", f, n)
		}
	}
}

// TestSeatWaitOfOneSeat: a server of one request at a time, whose service is its constant steps, is the queue M/G/1: the
// formula of Pollaczek and Khinchine, with lambda S^2 (1 + cv2) / 2 (1 - lambda S).
func TestSeatWaitOfOneSeat(t *testing.T) {
	for _, cv2 := range []float64{0, 0.25, 1, 3} {
		for _, load := range []float64{0.01, 0.1, 0.5, 0.9, 0.99} {
			m, err := newModel(corrected, params{AlphaMs: 5}, shape{Prompt: 1, Output: 100, OutputCV2: cv2}, Limits{MaxBatch: 1, Queue: 1_000_000})
			if err != nil {
				t.Fatal(err)
			}
			const serviceMs = 500
			got := m.Solve(1000 * load / serviceMs)
			want := load * serviceMs * (1 + cv2) / 2 / (1 - load)
			if !closeTo(got.WaitMs, want, 1e-6) {
				t.Errorf("cv2 %g, load %g: got a wait of %g ms, want %g", cv2, load, got.WaitMs, want)
			}
		}
	}
}

// TestTailRatio: below a load of 1 the mean of the tail is (1+cv2)/2 times that of the chain; at 1 the ratio is continuous.
func TestTailRatio(t *testing.T) {
	for _, c := range []struct{ load, cv2, want float64 }{
		{0.5, 1, 0.5}, {0.5, 0, 1.0 / 3}, {0.8, 3, 8.0 / 9}, {1, 0, 1}, {2, 1, 2}, {2, 0, 4},
	} {
		if got := tailRatio(c.load, c.cv2); !closeTo(got, c.want, 1e-12) {
			t.Errorf("load %g, cv2 %g: got %g, want %g", c.load, c.cv2, got, c.want)
		}
	}
	if got := tailRatio(1-1e-9, 0.3); !closeTo(got, 1, 1e-8) {
		t.Errorf("just below a load of 1: got %g", got)
	}
}

// TestConstantService4P: with no time that grows with the batch, wva-4p is M/M/c: its times are gamma and alpha.
func TestConstantService4P(t *testing.T) {
	m, err := newModel(wvA4P, params{AlphaMs: 5, GammaMs: 20}, shape{Prompt: 100, Output: 11}, Limits{MaxBatch: 1, Queue: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	got := m.Solve(1000 * 0.5 / 70) // half of the capacity: a wait as long as the service of 20 + 10 x 5 ms
	if !closeTo(got.WaitMs, 70, 1e-9) || got.PrefillMs != 20 || got.ITLMs != 5 || !closeTo(got.TTFTMs, 90, 1e-9) {
		t.Errorf("got %+v", got)
	}
}
