package autoscale

// This file has the options of queue fit and queue validate.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Options decide how recordings and sweeps become servers, and how servers are fitted.
type Options struct {
	Flavour Flavour
	Cut     cutOptions
	// QueueRatio is the waiting room as a multiple of max_num_seqs: 10 in
	// workload-variant-autoscaler's allocation, 1 in llm-inferno's model-trainer.
	QueueRatio float64
	HoldOut    float64 // share of the windows, the last ones, that is held out of the fit
	Sweep      SweepOptions
	Workers    int
}

// SweepOptions describe the server behind a benchmark sweep, because its files do not.
type SweepOptions struct {
	MaxBatch, MaxBatchedTokens int
	Model, Accelerator         string
	AccCount                   int64
	// Loads is how many benchmarks of each sweep are used, the lightest loads first, closed loops
	// not counted; 0 for all. model-trainer uses 7 (pkg/reader/defaults.go@047f0ae).
	Loads int
	// Mean uses the mean TTFT instead of the median, Median never the mean. With neither, the mean
	// is used if every row of a table has ttft_ms_mean.
	Mean, Median bool
}

// DefaultOptions returns the default options of `queue fit`.
func DefaultOptions() Options {
	return Options{
		Flavour:    corrected,
		Cut:        defaultCut,
		QueueRatio: 10,
		HoldOut:    0.3,
		Sweep:      SweepOptions{MaxBatch: 256, MaxBatchedTokens: defaultMaxBatchedTokens, AccCount: 1},
	}
}

// Check returns an error for the first option out of range.
func (o *Options) Check() error {
	if err := cmp.Or(o.Flavour.checkName(), o.Cut.Check()); err != nil {
		return err
	}
	switch {
	case !(o.QueueRatio >= 0) || o.QueueRatio > 1000:
		return trace.Errorf(badOption, "queue ratio: got %g, want 0 to 1000", o.QueueRatio)
	case !(o.HoldOut > 0 && o.HoldOut < 1):
		return trace.Errorf(badOption, "hold-out: got %g, want a share between 0 and 1", o.HoldOut)
	case min(o.Sweep.MaxBatch, o.Sweep.MaxBatchedTokens) < 1 ||
		max(o.Sweep.MaxBatch, o.Sweep.MaxBatchedTokens) > 1<<24 ||
		o.Sweep.AccCount < 1 || o.Sweep.Loads < 0:
		return trace.Errorf(badOption,
			"sweep: got %d seats, %d tokens a step, %d devices, %d loads, want 1 to 16777216, the same, >= 1, >= 0",
			o.Sweep.MaxBatch, o.Sweep.MaxBatchedTokens, o.Sweep.AccCount, o.Sweep.Loads)
	}
	return nil
}

// Record returns the options in the form of the document.
func (o *Options) Record() QueueOptions {
	r := QueueOptions{
		WindowS:     float64(o.Cut.WindowNs) / 1e9,
		HopS:        float64(o.Cut.HopNs) / 1e9,
		MinRequests: o.Cut.MinRequests,
		Semantics:   string(o.Cut.Semantics),
		Observation: "median",
		HoldOut:     o.HoldOut,
		QueueRatio:  o.QueueRatio,
	}
	if o.Sweep.Mean {
		r.Observation = "mean"
	}
	return r
}

// waiting returns the size of the waiting room of a server with max_num_seqs n, requests.
func (o *Options) waiting(n int) int { return int(math.Round(o.QueueRatio * float64(n))) }
