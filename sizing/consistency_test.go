package sizing

import (
	"context"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library/predict"
)

// deployments are servers of different kinds: dense and of experts, one GPU and several, short and long prompts.
var deployments = []struct {
	model, hardware string
	tp              int64
	input, output   int64
	slo             string
}{
	{"Qwen/Qwen3-32B", "H100", 2, 1000, 400, "tpot.mean=25ms"},
	{"meta-llama/Llama-3.1-8B", "H100", 1, 500, 300, "tpot.mean=20ms"},
	{"Qwen/Qwen3-30B-A3B", "H200", 1, 2000, 300, "tpot.mean=25ms"},
	{"openai/gpt-oss-120b", "B200", 1, 1000, 500, "tpot.mean=20ms"},
	{"meta-llama/Llama-3.3-70B-Instruct", "B200", 2, 1500, 400, "tpot.mean=30ms"},
	{"Qwen/Qwen3-8B", "A100", 1, 300, 200, "tpot.mean=30ms"},
	{"Qwen/Qwen3-8B", "H100", 1, 200, 1500, "tpot.mean=25ms"}, // hundreds of long answers at once
}

// oneServer is the candidate of a question with one GPU and size, ready to be simulated.
func oneServer(t *testing.T, q *Question) *candidate {
	t.Helper()
	all, err := q.candidates()
	if err != nil {
		t.Fatal(err)
	}
	c := &all[0]
	if c.server, _, err = c.asked.Server(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c.idleS, err = c.server.WarmUpS(&q.Load, q.Seed); err != nil {
		t.Fatal(err)
	}
	c.warmUpS = c.idleS
	return c
}

// loopsAndArrivals compares on the i-th deployment, at several shares of the highest number of clients, a closed
// loop with Poisson arrivals at the rate that it reaches, and the highest loads of both for one target.
//
// The requests in the system are always n in a loop, and come and go about that number with arrivals. A server
// that answers n at a time in S(n) each and shares its time among them has p(n) = p(0) rate^n S(1)/1 .. S(n)/n
// requests in the system (a symmetric queue). Where S grows evenly, S = a + b n, that is on average b/a more than
// n, and the answers take as much longer. Experts, whose weights are read by and by, grow S unevenly, and the
// difference may be larger at few clients.
func loopsAndArrivals(t *testing.T, i, replications, measured int, shares []float64) {
	d := &deployments[i]
	load := predict.Load{Clients: 16, InputTokens: d.input, OutputTokens: d.output}
	q := question(load, d.slo, d.tp)
	q.Server.Model = d.model
	q.Hardware = []string{d.hardware}
	name := d.model + " on " + d.hardware
	type figures struct{ itl, rate, e2e, inFlight float64 }
	simulated := func(load predict.Load) figures {
		own := *q
		own.Load = load
		c := oneServer(t, &own)
		var samples []*predict.Sample
		for k := range replications {
			s, err := c.simulate(1, own.Seed+int64(k), max(measured, 4*load.Clients))
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, s)
		}
		mean := func(of func(*predict.Sample) float64) float64 { return predict.ValueOf(samples, of).Value }
		return figures{
			itl:      mean(func(s *predict.Sample) float64 { return s.Figure(predict.ITL, 0) }),
			rate:     mean(func(s *predict.Sample) float64 { return float64(s.Served) / s.ServedS }),
			e2e:      mean(func(s *predict.Sample) float64 { return s.Figure(predict.E2E, 0) }) / 1e3,
			inFlight: mean(func(s *predict.Sample) float64 { return s.MeanInFlight }),
		}
	}
	loop := func(clients int) figures {
		own := load
		own.Clients = clients
		return simulated(own)
	}
	highest := func(load predict.Load) float64 {
		own := *q
		own.Load = load
		c := oneServer(t, &own)
		about := load.Amount()
		for {
			found, err := c.highestLoad(context.Background(), 1, about, fineRatio)
			if err != nil {
				t.Fatal(err)
			}
			if !found.isAtLeast {
				return found.highest
			}
			about = found.highest
		}
	}
	mostClients := highest(load)
	most := loop(int(mostClients))
	arrivals := load
	arrivals.Clients = 0
	arrivals.RateRPS = most.rate
	byRate := highest(arrivals)
	t.Logf("%s: at most %g clients, %.4g requests/s; arrivals at most %.4g/s", name, mostClients, most.rate, byRate)
	carried := most.rate   // also by fewer clients: a step takes a leap where the next CUDA graph begins
	var times [][2]float64 // clients and seconds of an answer
	for clients := 1.0; clients < 2*mostClients; clients = math.Max(clients+1, math.Floor(1.5*clients)) {
		times = append(times, [2]float64{clients, loop(int(clients)).e2e})
	}
	for _, share := range shares {
		clients := max(2, int(share*mostClients))
		closed := loop(clients)
		carried = math.Max(carried, closed.rate)
		arrivals.RateRPS = closed.rate
		open := simulated(arrivals)
		excess := open.itl/closed.itl - 1
		expected := meanInSystem(closed.rate, times)/float64(clients) - 1
		t.Logf("  %d clients (%.2g): mean ITL %.4g ms, of arrivals %+.1f %%, by theory %+.1f %%; %.4g requests/s, %+.2f %%", clients, share,
			closed.itl, 100*excess, 100*expected, closed.rate, 100*(open.rate/closed.rate-1))
		// Where fewer clients are answered nearly as fast, arrivals at the rate are close to an overload, and no simulation
		// is long enough for the times that theory has: they lie between those of the loop and of theory.
		isBetween := expected > 1 && excess > -0.05 && excess < expected
		if math.Abs(excess) > 0.05 && math.Abs(excess-expected) > 0.05 && !isBetween {
			t.Errorf("%s, %d clients: mean ITL of arrivals %+.1f %%, want 0 or, by theory, %+.1f %% within 5", name, clients, 100*excess, 100*expected)
		}
		if share < 0.6 && math.Abs(open.rate/closed.rate-1) > 0.05 {
			t.Errorf("%s, %d clients: %.4g requests/s, of arrivals %.4g, want within 5 %%", name, clients, closed.rate, open.rate)
		}
		for _, f := range []figures{closed, open} {
			if math.Abs(f.inFlight/(f.rate*f.e2e)-1) > 0.03 {
				t.Errorf("%s, %d clients: %.4g requests in the system, want rate x E2E = %.4g within 3 %%", name, clients, f.inFlight, f.rate*f.e2e)
			}
		}
	}
	if byRate < 0.85*carried { // the number of requests in the system varies with arrivals
		t.Errorf("%s: arrivals carry %.4g requests/s, up to %g clients %.4g, want at most 15 %% less", name, byRate, mostClients, carried)
	}
	if carried < 0.95*byRate {
		t.Errorf("%s: up to %g clients carry %.4g requests/s, arrivals %.4g, want at most 5 %% more", name, mostClients, carried, byRate)
	}
}

// meanInSystem is the mean number of requests at a server with Poisson arrivals, from the times of its answers
// with so many clients, between which it is linear.
func meanInSystem(rate float64, times [][2]float64) float64 {
	last := times[len(times)-1][0]
	weight, sum, mean := 1.0, 1.0, 0.0
	k := 0
	for n := 1.0; n < 4*last; n++ {
		for k < len(times)-2 && n > times[k+1][0] {
			k++
		}
		a, b := times[k], times[k+1]
		seconds := a[1] + (n-a[0])/(b[0]-a[0])*(b[1]-a[1])
		weight *= rate * seconds / n
		sum += weight
		mean += n * weight
	}
	return mean / sum
}

// TestEvalLoopsAndArrivals: on seven deployments a closed loop and Poisson arrivals at the rate it reaches have the
// same mean ITL and throughput, and clients carry no less than arrivals for the same target.
func TestEvalLoopsAndArrivals(t *testing.T) {
	repo.NeedEval(t)
	for i := range deployments {
		loopsAndArrivals(t, i, leastReplications, measuredRequests/2, []float64{0.25, 0.5, 0.9})
	}
}
