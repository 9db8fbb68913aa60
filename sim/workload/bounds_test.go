package workload

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/sim"
)

// Times that no clock reaches are refused as such, on every processor alike: they
// became negative numbers, or on others large ones.
func TestTimesBeyondTheClockAreRefused(t *testing.T) {
	for v, want := range map[float64]int64{
		0: 0, 1.4: 1, 1.5: 2, 1e300: sim.LatestUs + 1, math.Inf(1): sim.LatestUs + 1, -1e300: -1, math.Inf(-1): -1, -0.2: 0} {
		if got := sim.ToUs(v); got != want {
			t.Errorf("%g us: got %d, want %d", v, got, want)
		}
	}
	if got := sim.ToUs(math.NaN()); got != sim.LatestUs+1 {
		t.Errorf("NaN: got %d", got)
	}
	for text, want := range map[string]string{
		"requests: 3\narrivals: {kind: poisson, rate_rps: 1e-300}\nprompt: {kind: uniform, min: 5, max: 9}\noutput: {kind: uniform, min: 1, " +
			"max: 2}\n": "beyond 10000000000000000 us",
		"requests: 3\narrivals: {kind: closed, clients: 2, think_ms: 1e300}\nprompt: {kind: uniform, min: 5, max: 9}\noutput: {kind: uniform, " +
			"min: 1, max: 2}\n": "at most 1e16 us",
		`{"timestamp": 1e300, "input_length": 5, "output_length": 5, "hash_ids": []}`: "beyond 10000000000000000 us",
	} {
		w, g, err := Read([]byte(text), "w")
		if err == nil && g != nil {
			w, err = g.Generate(1)
		}
		if err == nil {
			_, err = sim.Run(sim.Config{}, w.Requests, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %s", text, err, want)
		}
	}
}
