package autoscale

import (
	"math"
	"testing"
)

// seatModel has requests of 100 steps that cost the same whatever they hold, and no prompts.
func seatModel(t *testing.T, seats int, outputCV2 float64) model {
	t.Helper()
	m, err := New(corrected, params{AlphaMs: 10, BetaMs: 0.5}, shape{Output: 101, OutputCV2: outputCV2},
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
			got, want := m.Solve(rate).WaitMs, chain.queued/(rate*chain.accepted/1000)
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
		got, want := m.Solve(load*m.MaxRateRPS()).WaitMs, load/(1-load)*service*(1+cv2)/2
		if !closeTo(got, want, 0.02) {
			t.Errorf("cv2 %g: got %g ms, want %g", cv2, got, want)
		}
	}
}

// TestVariabilityOfTheWork is checked against the moments of log-normal lengths.
func TestVariabilityOfTheWork(t *testing.T) {
	const seats, prompt, output, promptCV2, outputCV2 = 32, 400, 100, 2, 0.5
	p := params{AlphaMs: 30, BetaMs: 0.5, GammaMs: 0.01}
	m, err := New(corrected, p, shape{Prompt: prompt, Output: output, PromptCV2: promptCV2, OutputCV2: outputCV2},
		Limits{MaxBatch: seats, Queue: 320, MaxBatchedTokens: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// work = a m + g m k + g m^2/2 + w k, to leading order in m
	a, g, w := p.AlphaMs/seats+p.BetaMs, p.GammaMs, p.BetaMs+p.GammaMs
	moment := func(mean, cv2 float64, k int) float64 {
		return math.Pow(mean, float64(k)) * math.Pow(1+cv2, float64(k*(k-1))/2)
	}
	m1, m2, m3, m4 := moment(output, outputCV2, 1), moment(output, outputCV2, 2), moment(output, outputCV2, 3), moment(output, outputCV2, 4)
	k1, k2 := moment(prompt, promptCV2, 1), moment(prompt, promptCV2, 2)
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
