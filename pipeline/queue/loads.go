package queue

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
)

// LoadPoint is a load at which two models of a deployment's steps met the same requests.
type LoadPoint struct {
	Load     float64 // share of the first model's capacity
	RateRPS  float64 // requests per second
	E2EMs    float64 // mean in the engine, of the first
	E2ERatio float64 // of the second over it
}

// comparedLoads are the shares of the capacity at which models are compared.
var comparedLoads = []float64{0.3, 0.6, 0.8}

// CompareLoads simulates a deployment with each of two models of its steps, in the same Poisson
// traffic of log-normal lengths about the means, at three loads of the first one's capacity.
func CompareLoads(d *deploy.Deployment, first, second latency.Model, prompt, output float64) ([]LoadPoint, error) {
	t := chatTraffic(d, prompt, output)
	capacity, err := t.capacity(d, first)
	if err != nil {
		return nil, err
	}
	var out []LoadPoint
	for _, load := range comparedLoads {
		t.Requests, t.RateRPS = steadyRequests, load*capacity
		reqs, _ := t.requests()
		var ms [2]float64
		for i, m := range []latency.Model{first, second} {
			if ms[i], err = meanE2E(d, m, reqs); err != nil {
				return nil, err
			}
		}
		out = append(out, LoadPoint{Load: load, RateRPS: t.drawnRate(), E2EMs: ms[0], E2ERatio: ms[1] / ms[0]})
	}
	return out, nil
}

// meanE2E is the mean time in the engine of the requests that finish, ms.
func meanE2E(d *deploy.Deployment, m latency.Model, reqs []sim.Request) (float64, error) {
	var sum, n float64
	_, err := sim.Stream(sim.DefaultConfig(d, m), reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		if us, ok := r.E2EUs(); ok {
			sum, n = sum+us/1000, n+1
		}
		return true
	}))
	if err == nil && n == 0 {
		err = errNothingFinished
	}
	return sum / n, err
}

// chatTraffic is a burst of requests with the scatter of lengths that chat recordings have.
func chatTraffic(d *deploy.Deployment, prompt, output float64) Traffic {
	return Traffic{Shape: queueing.Shape{Prompt: prompt, Output: output, PromptCV2: chatPromptCV2, OutputCV2: chatOutputCV2},
		Prompts: logNormalLaw, Output: logNormalLaw, Requests: steadyBurst, Seed: steadySeed, RateRPS: 1e6,
		Longest: d.LongestSequence().Or(math.MaxInt32)}
}
