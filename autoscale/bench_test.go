package autoscale

import "testing"

var sink point

func benchModel(b testing.TB, f Flavour) model {
	m, err := New(f, params{AlphaMs: 6.58, BetaMs: 1.93e-2, GammaMs: 5.46e-5, DeltaMs: 1e-4}, shape{Prompt: 1024, Output: 256},
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
