package workload

// This file draws the requests of a workload specification of BLIS (spec.go).

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// generate draws the requests of the specification: each client by itself, then all in order of
// arrival, up to num_requests. The random numbers are not those of BLIS, so counts, rates and
// lengths agree with it on average, and single requests do not. The result depends on the file's
// seed and on the given one.
func (s *specV2) generate(seed int64) (*Workload, error) {
	groups, prefix := s.prefixGroups()
	w := &Workload{}
	for i := range s.Clients {
		c := &s.Clients[i]
		rng := rand.New(rand.NewPCG(uint64(seed)^uint64(s.Seed)<<32, uint64(i)+0x5bec))
		if c.Concurrency > 0 { // the only client
			for k := range s.NumRequests {
				w.addRequest(c.request(rng, 0, groups, prefix))
				w.Requests[k].ID = strconv.Itoa(k)
			}
			s.setTargets(w)
			// As in BLIS (sim/workload/generator.go), the clients start evenly over one think time.
			return w, w.Close(Loop{Clients: c.Concurrency, ThinkUs: c.ThinkUs, RampUs: c.ThinkUs})
		}
		if err := s.addArrivals(w, c, rng, groups, prefix); err != nil {
			return nil, err
		}
	}
	stat.SortStable(w.Requests, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	if s.NumRequests > 0 && len(w.Requests) > s.NumRequests {
		w.Requests = w.Requests[:s.NumRequests]
	}
	for i := range w.Requests {
		w.Requests[i].ID = strconv.Itoa(i)
	}
	s.setTargets(w)
	if len(w.Requests) == 0 {
		return nil, trace.Errorf(codeBadWorkload,
			"workload specification: got no request before the horizon, want at least one")
	}
	return w, nil
}

// setTargets sets the goodput targets of requests to those of their classes. A client's
// slo_target_us is used for TTFT if the class has no ttft_ms.
func (s *specV2) setTargets(w *Workload) {
	for i := range w.Requests {
		q := &w.Requests[i]
		t := s.Targets[q.SLOClass]
		q.SLOITLUs = sim.ToUs(t.ITLMs * 1e3)
		q.SLOE2EUs = sim.ToUs(t.E2EMs * 1e3)
		if t.TTFTMs > 0 {
			q.SLOTTFTUs = sim.ToUs(t.TTFTMs * 1e3)
		}
	}
}

// addArrivals adds the requests of client c, which has a share of the aggregate rate. groups and
// prefix are the number and the tokens of each prefix group, by its name. It draws at most
// num_requests, because the clients' requests are cut to that number once they are merged.
func (s *specV2) addArrivals(w *Workload, c *specClient, rng *rand.Rand, groups map[string]uint64,
	prefix map[string]int64) error {
	gap := c.Arrival.gaps(s.rateOf(c) / 1e6) // requests per us
	end := int64(sim.LatestUs)
	if s.Horizon > 0 {
		end = s.Horizon
	}
	if c.Lifecycle != nil {
		end = min(end, c.lastWindow())
	}
	drawn := 0
	for at := int64(0); s.NumRequests == 0 || drawn < s.NumRequests; {
		at += max(1, sim.ToUs(math.Floor(gap(rng))))
		if at >= end {
			return nil
		}
		if !c.isActive(at) {
			continue
		}
		drawn++
		if len(w.Requests) >= MaxGenerated {
			return trace.Errorf(codeBadWorkload,
				"workload specification: got more than %d requests, want fewer: give num_requests or horizon",
				MaxGenerated)
		}
		w.addRequest(c.request(rng, at, groups, prefix))
	}
	return nil
}

// request draws a request of the client that arrives at `at`, us.
func (c *specClient) request(rng *rand.Rand, at int64, groups map[string]uint64, prefix map[string]int64) sim.Request {
	q := sim.Request{ArrivalUs: at, PromptTokens: c.Input.draw(rng), OutputTokens: c.Output.draw(rng),
		SLOClass:  c.SLOClass,
		SLOTTFTUs: c.TargetUs}
	if c.PrefixGroup != "" { // the prefix comes before the drawn prompt
		q.Group = groups[c.PrefixGroup]
		q.GroupTokens = prefix[c.PrefixGroup]
		q.PromptTokens += q.GroupTokens
	}
	timeout := int64(0) // us; 0: none
	if c.Concurrency > 0 {
		timeout = specTimeoutUs
	}
	if c.TimeoutUs != nil {
		timeout = *c.TimeoutUs
	}
	if timeout > 0 {
		q.AbortAfterUs = trace.Some(timeout)
		q.AbortKind = sim.OutcomeTimedOut
	}
	return q
}

// prefixGroups numbers the prefix groups from 1 and returns their tokens: what the first client of
// the group that states a length states.
func (s *specV2) prefixGroups() (ids map[string]uint64, tokens map[string]int64) {
	ids = map[string]uint64{}
	tokens = map[string]int64{}
	for i := range s.Clients {
		c := &s.Clients[i]
		if c.PrefixGroup == "" {
			continue
		}
		if ids[c.PrefixGroup] == 0 {
			ids[c.PrefixGroup] = uint64(len(ids) + 1)
		}
		if tokens[c.PrefixGroup] == 0 {
			tokens[c.PrefixGroup] = c.PrefixTokens
		}
	}
	for name, n := range tokens {
		if n == 0 {
			tokens[name] = specPrefixTokens
		}
	}
	return ids, tokens
}

// rateOf returns the client's rate, requests/s: its fraction of the sum over the clients whose
// windows overlap its own, times the aggregate rate.
func (s *specV2) rateOf(c *specClient) float64 {
	sum := 0.0
	for i := range s.Clients {
		if o := &s.Clients[i]; c.overlaps(o) {
			sum += o.RateFraction
		}
	}
	return s.AggregateRate * c.RateFraction / sum
}

// overlaps reports whether the windows of two clients overlap.
func (c *specClient) overlaps(o *specClient) bool {
	if c.Lifecycle == nil || o.Lifecycle == nil {
		return true
	}
	for _, a := range c.Lifecycle.Windows {
		for _, b := range o.Lifecycle.Windows {
			if a.StartUs < b.EndUs && b.StartUs < a.EndUs {
				return true
			}
		}
	}
	return false
}

// isActive reports whether the client sends at the time `at`, us.
func (c *specClient) isActive(at int64) bool {
	if c.Lifecycle == nil {
		return true
	}
	return slices.ContainsFunc(c.Lifecycle.Windows, func(w specWindow) bool { return at >= w.StartUs && at < w.EndUs })
}

// lastWindow returns the end of the client's last window, us.
func (c *specClient) lastWindow() (end int64) {
	for _, w := range c.Lifecycle.Windows {
		end = max(end, w.EndUs)
	}
	return end
}

// gaps returns a function that draws times between arrivals, us, at a rate per us. If a gamma or
// Weibull process has both shape and scale, these are used instead of the rate.
func (a *specArrival) gaps(rate float64) func(*rand.Rand) float64 {
	cv := 1.0
	if a.CV != nil {
		cv = *a.CV
	}
	fitted := a.Shape != nil && a.ScaleUs != nil
	switch a.Process {
	case "constant":
		return func(*rand.Rand) float64 { return 1 / rate }
	case "gamma":
		shape, scale := 1/(cv*cv), cv*cv/rate
		if fitted {
			shape, scale = *a.Shape, *a.ScaleUs
		}
		return func(rng *rand.Rand) float64 { return Gamma(rng, shape) * scale }
	case "weibull":
		shape := weibullShape(cv)
		scale := 1 / rate / math.Gamma(1+1/shape)
		if fitted {
			shape, scale = *a.Shape, *a.ScaleUs
		}
		return func(rng *rand.Rand) float64 { return scale * math.Pow(rng.ExpFloat64(), 1/shape) }
	}
	return func(rng *rand.Rand) float64 { return rng.ExpFloat64() / rate }
}

// weibullShape returns the shape k of a Weibull distribution with a coefficient of variation cv. It
// solves G(1+2/k)/G(1+1/k)^2 = 1 + cv^2, with G the gamma function, by bisection, because the left
// side falls with k.
func weibullShape(cv float64) float64 {
	lo, hi := 0.1, 200.0 // of k, for any cv that checkClient accepts
	for range 60 {       // halves the interval to less than the precision of a float64
		k := (lo + hi) / 2
		one, _ := math.Lgamma(1 + 1/k)
		two, _ := math.Lgamma(1 + 2/k)
		if math.Expm1(two-2*one) > cv*cv {
			lo = k
		} else {
			hi = k
		}
	}
	return (lo + hi) / 2
}

// draw returns a random length, tokens, at least 1.
func (l *specLength) draw(rng *rand.Rand) int64 {
	p := l.Params
	var v float64
	switch l.Type {
	case "constant":
		v = math.Floor(p["value"])
	case "gaussian":
		v = p["mean"] + p["std_dev"]*rng.NormFloat64()
	case "exponential":
		v = p["mean"] * rng.ExpFloat64()
	case "lognormal":
		v = math.Exp(p["mu"] + p["sigma"]*rng.NormFloat64())
	case "pareto_lognormal":
		if rng.Float64() < p["mix_weight"] {
			v = p["xm"] * math.Exp(rng.ExpFloat64()/p["alpha"])
		} else {
			v = math.Exp(p["mu"] + p["sigma"]*rng.NormFloat64())
		}
	case "empirical":
		values, err := l.chances()
		if err != nil {
			return 1 // unreachable: checkLength has read them
		}
		u := rng.Float64() * values[len(values)-1].sum
		k, _ := slices.BinarySearchFunc(values, u, func(c chance, u float64) int { return cmp.Compare(c.sum, u) })
		v = float64(values[min(k, len(values)-1)].tokens)
	}
	n := int64(math.Round(math.Min(v, 1e9)))
	if most := trace.Int(math.Trunc(p["max"])); most > 0 {
		n = min(n, most)
	}
	return max(n, trace.Int(math.Trunc(p["min"])), 1)
}

// chance is a length, and the sum of the weights of this and all smaller lengths.
type chance struct {
	tokens int64
	sum    float64
}

// chances returns the lengths of an empirical distribution in increasing order.
func (l *specLength) chances() ([]chance, error) {
	weights := map[int64]float64{}
	for key, v := range l.Params {
		n, err := strconv.ParseInt(key, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("params: got %q, want tokens >= 1 with type empirical", key)
		}
		weights[n] = v
	}
	var out []chance
	sum := 0.0
	for _, n := range slices.Sorted(maps.Keys(weights)) {
		if v := weights[n]; v > 0 {
			sum += v
			out = append(out, chance{tokens: n, sum: sum})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("params: got no length with a chance above 0, want at least one with type empirical")
	}
	return out, nil
}
