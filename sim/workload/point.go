package workload

// This file draws the requests of one load level of a benchmark.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Point is one load level of a benchmark: the lengths of its requests and how they were sent.
type Point struct {
	Requests                  int
	InputTokens, OutputTokens int64
	// RangeRatio spreads both lengths evenly over (1 - r) to (1 + r) times, the ends rounded down and up, as
	// vllm bench serve --random-range-ratio does.
	RangeRatio float64
	// RateRPS sends Poisson arrivals; 0: all at once.
	RateRPS float64
	// Concurrency is the most requests in flight; 0: no limit. Without a rate it
	// is a closed loop.
	Concurrency int
}

// Generator returns the generator of the requests without the limit of Concurrency.
func (p Point) Generator() (*Generator, error) {
	if !(p.RangeRatio >= 0 && p.RangeRatio < 1) || p.RateRPS < 0 || p.Concurrency < 0 {
		return nil, trace.Errorf(codeBadWorkload,
			"point: got range ratio %g, rate %g/s, concurrency %d, want 0 <= ratio < 1, >= 0, >= 0",
			p.RangeRatio, p.RateRPS, p.Concurrency)
	}
	length := func(n int64) LengthSpec {
		lo := float64(n) * (1 - p.RangeRatio)
		hi := float64(n) * (1 + p.RangeRatio)
		return LengthSpec{Kind: "uniform", Min: max(1, int64(lo)), Max: int64(math.Ceil(hi))}
	}
	g := &Generator{
		Requests: p.Requests, Prompt: length(p.InputTokens), Output: length(p.OutputTokens),
		Arrivals: ArrivalSpec{Kind: "bursts", Burst: max(1, p.Requests), EveryS: 1}, // one burst of all
	}
	if p.RateRPS > 0 {
		g.Arrivals = ArrivalSpec{Kind: "poisson", RateRPS: p.RateRPS}
	}
	return g, g.Check()
}

// Workload draws the requests of the load level; the same seed gives the same ones.
func (p Point) Workload(seed int64) (*Workload, error) {
	g, err := p.Generator()
	if err != nil {
		return nil, err
	}
	w, err := g.Generate(seed)
	if err != nil || p.Concurrency == 0 {
		return w, err
	}
	return w, w.Close(Loop{Clients: p.Concurrency, KeepArrivals: p.RateRPS > 0})
}
