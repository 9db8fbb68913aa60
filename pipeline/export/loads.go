package export

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// LoadPoint is one load at which a format's terms and the model they stand for were simulated in the
// same traffic.
type LoadPoint struct {
	LoadFrac float64 `json:"load_frac"` // of the model's capacity
	RateRPS  float64 `json:"rate_rps"`
	E2EMs    float64 `json:"e2e_ms"`    // mean, of the model
	E2ERatio float64 `json:"e2e_ratio"` // of the terms over it
}

// comparedLoads are the shares of the capacity at which models are compared.
var comparedLoads = []float64{0.3, 0.6, 0.8}

const comparedRequests = 1500

// CompareLoads simulates a deployment with its coefficient set and with BLIS's terms, in the same
// Poisson traffic of log-normal lengths about the means, at three loads of the set's capacity.
func CompareLoads(set *coeff.Set, d *deploy.Deployment, beta []float64, prompt, output float64) ([]LoadPoint, error) {
	ours, err := sim.NewPhysics(set, d)
	if err != nil {
		return nil, err
	}
	theirs, err := sim.NewTrainedPhysics(make([]float64, 3), beta, d)
	if err != nil {
		return nil, err
	}
	t := workload.ChatTraffic(d, prompt, output)
	capacity, err := t.Capacity(d, ours)
	if err != nil {
		return nil, err
	}
	var out []LoadPoint
	for _, load := range comparedLoads {
		t.Requests, t.RateRPS = comparedRequests, load*capacity
		reqs, _ := t.Draw()
		var ms [2]float64
		for i, m := range []sim.Model{ours, theirs} {
			if ms[i], err = meanE2E(d, m, reqs); err != nil {
				return nil, err
			}
		}
		out = append(out, LoadPoint{LoadFrac: load, RateRPS: t.DrawnRate(), E2EMs: ms[0], E2ERatio: ms[1] / ms[0]})
	}
	return out, nil
}

// meanE2E is the mean time in the engine of the requests that finish, ms.
func meanE2E(d *deploy.Deployment, m sim.Model, reqs []sim.Request) (float64, error) {
	var sum, n float64
	_, err := sim.Stream(sim.DefaultConfig(d, m), reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		if us, ok := r.E2EUs(); ok {
			sum, n = sum+us/1000, n+1
		}
		return true
	}))
	if err == nil && n == 0 {
		err = workload.ErrNothingFinished
	}
	return sum / n, err
}
