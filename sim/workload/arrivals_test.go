package workload

import (
	"math"
	"strings"
	"testing"
)

// TestArrivalKeys: what each kind of arrivals needs and refuses.
func TestArrivalKeys(t *testing.T) {
	for _, c := range []struct {
		a    ArrivalSpec
		want string
	}{
		{ArrivalSpec{Kind: "constant", RateRPS: 2}, ""}, {ArrivalSpec{Kind: "constant"}, "arrivals.rate_rps: got 0,"},
		{ArrivalSpec{Kind: "poisson", RateRPS: math.Inf(1)}, "arrivals.rate_rps: got +Inf,"},
		{ArrivalSpec{Kind: "gamma", RateRPS: 2, CV: 3}, ""}, {ArrivalSpec{Kind: "gamma", RateRPS: 2}, "arrivals.cv: got 0,"},
		{ArrivalSpec{Kind: "bursts", Burst: 3, EveryS: 4}, ""}, {ArrivalSpec{Kind: "bursts", EveryS: 4}, "arrivals.burst: got 0,"},
		{ArrivalSpec{Kind: "bursts", Burst: 3, EveryS: -4}, "arrivals.every_s: got -4,"},
		{ArrivalSpec{Kind: "closed", Clients: 3, ThinkMs: 5, RampS: 6}, ""}, {ArrivalSpec{Kind: "closed"}, "arrivals.clients: got 0,"},
		{ArrivalSpec{Kind: "closed", Clients: 3, ThinkMs: -5}, "got think_ms -5 and ramp_s 0,"},
		{ArrivalSpec{Kind: "closed", Clients: 3, RampS: math.NaN()}, "got think_ms 0 and ramp_s NaN,"},
		{ArrivalSpec{Kind: "poisson", RateRPS: 2, CV: 3}, "cv"}, {ArrivalSpec{Kind: "closed", Clients: 3, RateRPS: 2}, "rate_rps"},
		{ArrivalSpec{Kind: "constant", RateRPS: 2, ThinkMs: 5}, "think_ms"}, {ArrivalSpec{Kind: "gamma", RateRPS: 2, CV: 3, Burst: 4}, "burst"},
		{ArrivalSpec{Kind: "poisson", RateRPS: 2, EveryS: 3}, "every_s"}, {ArrivalSpec{Kind: "poisson", RateRPS: 2, Clients: 3}, "clients"},
		{ArrivalSpec{Kind: "poisson", RateRPS: 2, RampS: 3}, "ramp_s"}, {ArrivalSpec{Kind: "uniform"}, `arrivals.kind: got "uniform",`},
	} {
		err := c.a.checkArrivals()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.a, err, c.want)
		}
	}
	for ms, want := range map[float64]bool{0: true, 1e-3: true, 0.9e-3: false, 1e9: true, 1.1e9: false, -1: false} {
		if isTarget(ms) != want {
			t.Errorf("a target of %g ms: got %t", ms, !want)
		}
	}
}
