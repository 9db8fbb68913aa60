package autoscale

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Options say how servers are made of recordings and sweeps, and how they are fitted.
type Options struct {
	Flavour Flavour
	Cut     cutOptions
	// QueueRatio is the waiting room over the seats: 10 in workload-variant-autoscaler's
	// allocation, 1 in llm-inferno's model-trainer.
	QueueRatio float64
	HoldOut    float64 // last share of the windows that is not fitted
	Sweep      SweepOptions
	Workers    int
}

// SweepOptions describe the server behind a benchmark sweep, which its files do not.
type SweepOptions struct {
	MaxBatch         int
	MaxBatchedTokens int
	Model            string
	Accelerator      string
	AccCount         int64
	// Loads is how many benchmarks of a sweep are taken, from the lightest load up, closed
	// loops left out; 0 takes all. model-trainer takes 7 (pkg/reader/defaults.go@047f0ae).
	Loads int
	Mean  bool // mean TTFT instead of the median
}

// leastHoldOut is the number of windows from which on some are held out.
const leastHoldOut = 10

// DefaultOptions are those of a bare `queue fit`.
func DefaultOptions() Options {
	return Options{
		Flavour: corrected, Cut: defaultCut(), QueueRatio: 10, HoldOut: 0.3,
		Sweep: SweepOptions{MaxBatch: 256, MaxBatchedTokens: defaultMaxBatchedTokens, AccCount: 1},
	}
}

// Check names the first option out of range.
func (o *Options) Check() error {
	if _, err := parseFlavour(string(o.Flavour)); err != nil {
		return err
	}
	if err := o.Cut.Check(); err != nil {
		return err
	}
	switch {
	case !(o.QueueRatio >= 0) || o.QueueRatio > 1000:
		return trace.Errorf(badOption, "queue ratio: got %g, want 0 to 1000", o.QueueRatio)
	case !(o.HoldOut > 0 && o.HoldOut < 1):
		return trace.Errorf(badOption, "hold-out: got %g, want a share between 0 and 1", o.HoldOut)
	case o.Sweep.MaxBatch < 1 || o.Sweep.MaxBatchedTokens < 1 || o.Sweep.AccCount < 1 || o.Sweep.Loads < 0:
		return trace.Errorf(badOption, "sweep: got %d seats, %d tokens a step, %d devices, %d loads, want >= 1, >= 1, >= 1, >= 0",
			o.Sweep.MaxBatch, o.Sweep.MaxBatchedTokens, o.Sweep.AccCount, o.Sweep.Loads)
	}
	return nil
}

// Record is what of the options stands in the document.
func (o *Options) Record() QueueOptions {
	r := QueueOptions{
		WindowS: float64(o.Cut.WindowNs) / 1e9, HopS: float64(o.Cut.HopNs) / 1e9, MinRequests: o.Cut.MinRequests,
		Semantics: string(o.Cut.Semantics), Observation: "median", HoldOut: o.HoldOut, QueueRatio: o.QueueRatio,
	}
	if o.Sweep.Mean {
		r.Observation = "mean"
	}
	return r
}

// waiting is the waiting room of a server with n seats.
func (o *Options) waiting(n int) int { return int(math.Round(o.QueueRatio * float64(n))) }
