package autoscale

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/sim"
)

// TestSteadyState: with the parameters of a simulated steady state the four-parameter formula gives
// the simulator's TTFT and ITL at the loads it was fitted to.
func TestSteadyState(t *testing.T) {
	d := simulatedEngine(Limits{MaxBatch: 64, MaxBatchedTokens: 2048}, 2000)
	step, err := sim.NewLinear3([]float64{6600, 20, 0.05})
	if err != nil {
		t.Fatal(err)
	}
	s, err := SteadyState(d, step, 2, wvA4P, 300, 120)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Points) != len(steadyLoads) {
		t.Fatalf("got %d points", len(s.Points))
	}
	for _, p := range s.Points {
		ttft, itl := *p.TTFTErr, *p.ITLErr
		t.Logf("load %.2f, %.3g requests/s: TTFT %.4g ms %+.1f %%, ITL %.4g ms %+.1f %%", p.LoadFrac, p.RateRPS, p.TTFTMs, 100*ttft,
			p.ITLMs, 100*itl)
		if !(math.Abs(ttft) <= 0.15 && math.Abs(itl) <= 0.10) {
			t.Errorf("load %.2f: TTFT %+.1f %%, ITL %+.1f %%, want within 15 and 10 %%", p.LoadFrac, 100*ttft, 100*itl)
		}
	}
}
