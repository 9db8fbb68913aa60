package export

// This file compares the coefficients that are exported for BLIS with the model they were made from, under load.

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// LoadPoint compares, at one load and in the same traffic, BLIS's latencies under the exported coefficients with those of
// the model.
type LoadPoint struct {
	LoadFrac  float64 `json:"load_frac"` // of the model's capacity
	RateRPS   float64 `json:"rate_rps"`
	TTFTMs    float64 `json:"ttft_ms"` // means of the model
	ITLMs     float64 `json:"itl_ms"`  // mean over requests of their mean gap
	E2EMs     float64 `json:"e2e_ms"`
	TTFTRatio float64 `json:"ttft_ratio"` // BLIS over model
	ITLRatio  float64 `json:"itl_ratio"`
	E2ERatio  float64 `json:"e2e_ratio"`
}

// comparedLoads are the shares of the capacity at which models are compared.
var comparedLoads = []float64{0.3, 0.6, 0.8}

// ComparedRequests is the number of requests simulated at each load.
const ComparedRequests = 1500

// OnLoads is the comparison of a deployment at several loads.
type OnLoads struct {
	Points []LoadPoint
	// WaitUs is the time that an arriving request waits for the step that asynchronous scheduling has already begun, of
	// the loads together. BLIS has no such step, so the wait is added to its delay before the queue.
	WaitUs float64
}

// ConsumerModel is a function that returns BLIS's model, from the delays of a request before
// the queue, at completion and per token, us (alpha).
type ConsumerModel func(alpha []float64) (sim.Parts, error)

// comparison is the traffic in which two models of a deployment are compared.
type comparison struct {
	traffic  workload.Traffic
	capacity float64 // of the deployment under its own model, requests/s
}

// CompareLoads simulates a deployment twice in the same traffic, with its coefficient set and as
// BLIS would with its own model, and returns the latencies and their ratios. The traffic has
// Poisson arrivals and log-normal lengths with the given means, at comparedLoads, shares of the
// set's capacity. alpha are BLIS's delays before the queue, at completion and per token, us.
func CompareLoads(set *coeff.Set, d *deploy.Deployment, alpha []float64, prompt, output float64,
	blis ConsumerModel) (*OnLoads, error) {
	own, err := sim.EngineOf(d, set)
	if err != nil {
		return nil, err
	}
	c := comparison{traffic: workload.ChatTraffic(d, prompt, output)}
	if c.capacity, err = c.traffic.Capacity(d, own.Latency); err != nil {
		return nil, err
	}
	// BLIS's engine has no asynchronous scheduling and no time of the scheduler, and its empty steps take
	// 1 us.
	out := &OnLoads{}
	theirs := own
	theirs.Async = false
	theirs.EmptyStepUs = 1
	theirs.IdleSleepUs = 0
	theirs.ScheduleUs = 0
	var loads [][]sim.Request
	var ownMs [][3]float64
	for _, load := range comparedLoads {
		reqs := c.requests(load)
		ms, err := meanLatencies(&own, reqs)
		if err != nil {
			return nil, err
		}
		loads = append(loads, reqs)
		ownMs = append(ownMs, ms)
		out.Points = append(out.Points, LoadPoint{LoadFrac: load, RateRPS: c.traffic.DrawnRate(), TTFTMs: ms[0], ITLMs: ms[1], E2EMs: ms[2]})
	}
	// The wait for a step that has already begun is the difference in TTFT that asynchronous scheduling makes. It grows
	// with the load, and BLIS has one: that whose relative errors of TTFT have the least sum of squares.
	if own.Async {
		var sum, weights float64
		for i, reqs := range loads {
			syncMs, err := meanLatencies(&theirs, reqs)
			if err != nil {
				return nil, err
			}
			ttftMs := ownMs[i][0]
			sum += (ttftMs - syncMs[0]) / (ttftMs * ttftMs)
			weights += 1 / (ttftMs * ttftMs)
		}
		out.WaitUs = math.Max(0, 1e3*sum/weights)
	}
	parts, err := blis([]float64{alpha[0] + out.WaitUs, alpha[1], alpha[2]})
	if err != nil {
		return nil, err
	}
	// From here on theirs has BLIS's step times and delays.
	theirs.Apply(parts)
	for i, reqs := range loads {
		theirMs, err := meanLatencies(&theirs, reqs)
		if err != nil {
			return nil, err
		}
		p := &out.Points[i]
		p.TTFTRatio = ratioOf(theirMs[0], ownMs[i][0])
		p.ITLRatio = ratioOf(theirMs[1], ownMs[i][1])
		p.E2ERatio = ratioOf(theirMs[2], ownMs[i][2])
	}
	return out, nil
}

// requests returns the traffic at a load, which is a share of the capacity.
func (c *comparison) requests(load float64) []sim.Request {
	c.traffic.Requests = ComparedRequests
	c.traffic.RateRPS = load * c.capacity
	reqs, _ := c.traffic.Draw()
	return reqs
}

// meanLatencies returns the means in ms of [0] TTFT, [1] ITL (of each request's mean gap) and [2] E2E
// over the requests that finish.
func meanLatencies(cfg *sim.Config, reqs []sim.Request) (mean [3]float64, err error) {
	var n [3]float64
	addUs := func(i int, us float64, known bool) {
		if known {
			mean[i] += us / 1000
			n[i]++
		}
	}
	_, err = sim.Stream(*cfg, reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		e2e, finished := r.E2EUs()
		if finished {
			ttft, hasTTFT := r.TTFTUs()
			itl, hasITL := r.ITLUs()
			addUs(0, ttft, hasTTFT)
			addUs(1, itl, hasITL)
			addUs(2, e2e, true)
		}
		return true
	}))
	if err == nil && n[2] == 0 {
		err = workload.ErrNothingFinished
	}
	for i := range mean {
		mean[i] /= math.Max(1, n[i])
	}
	return mean, err
}

// ratioOf returns theirs/own; 1 where neither has a value: answers of one token have no ITL.
func ratioOf(theirs, own float64) float64 {
	if theirs == own {
		return 1
	}
	return theirs / own
}
