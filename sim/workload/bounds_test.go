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

// A key that the kind has no use for is a mistake: nothing of a workload is ignored.
func TestKeysOfOtherKindsAreRefused(t *testing.T) {
	const rest = "output: {kind: constant, value: 20}\n"
	const poisson, fixed = "arrivals: {kind: poisson, rate_rps: 5}\n", "prompt: {kind: constant, value: 5}\n"
	for text, want := range map[string]string{
		"arrivals: {kind: poisson, rate_rps: 5, burst: 3}\n" + fixed:         "arrivals.burst: got it with kind poisson",
		"arrivals: {kind: closed, clients: 5, rate_rps: 3}\n" + fixed:        "arrivals.rate_rps: got it with kind closed",
		poisson + "prompt: {kind: constant, value: 5, sigma: 1}\n":           "prompt.sigma: got it with kind constant",
		poisson + "prompt: {kind: uniform, min: 1, max: 5, values: [2]}\n":   "prompt.values: got it with kind uniform",
		poisson + fixed + "prefix: {groups: 3}\n":                            "prefix: got 3 groups of 0 tokens at share 0",
		poisson + fixed + "classes: [{name: a, share: 1, ttft_ms: 1e300}]\n": `class "a": got share 1, targets 1e+300 and 0 ms`,
		poisson + fixed + "classes: [{name: a, share: 1, ttft_ms: 1e-4}]\n":  `class "a": got share 1, targets 0.0001 and 0 ms`,
	} {
		if _, _, err := Read([]byte("requests: 3\n"+text+rest), "w"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
