package race

import (
	"context"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/predictor/decision"
	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/predictor/trees"
)

// Weights of the stratified sample's rows.
const (
	natural = "natural" // seen / kept of the bucket: the mix of the traffic
	flat    = "flat"    // 1: the mix of the buckets
	sqrt    = "sqrt"    // the square root of the first
)

// What a full bucket keeps.
const (
	uniform = "uniform" // a uniform sample of all rows that came
	newest  = "newest"  // the last ones, as llm-d does
)

// emulateLLMD reproduces habits of llm-d's latency predictor 0.9.
const emulateLLMD = "llmd-0.9"

// ScopeAll is all rows together; other scopes are configurations.
const ScopeAll = "all"

// Targets are the two predicted latencies.
var Targets = []string{"ttft_ms", "tpot_ms"}

// Run is one run's rows.
type Run struct {
	ID, Config string
	Rows       []decision.Row
}

// Estimates are physics estimates of a run's rows in ms, by row.
type Estimates struct{ TTFT, TPOT []float64 }

// Physics estimates every row of the runs with coefficients that did not see what
// is hidden; nil hides nothing.
type Physics func(ctx context.Context, hidden []Hidden) ([]Estimates, error)

// Options of a race.
type Options struct {
	Features string // llmd or full
	Models   []string
	Splits   []string
	Weights  string
	Recency  string
	Emulate  string // EmulateLLMD or empty
	Seed     uint64
	Draws    int // of the bootstrap
	Bins     int
	Workers  int
	Physics  Physics // nil: none
	IsRefit  bool    // Physics obeys hidden
	// PhysicsReason says why there is no Physics.
	PhysicsReason string
}

// DefaultOptions are everything but physics.
func DefaultOptions() Options {
	return Options{Features: decision.FeaturesFull, Models: model.Names, Splits: splitNames, Weights: natural, Recency: uniform,
		Seed: 1, Draws: 1000, Bins: trees.MaxBins, PhysicsReason: "no coefficients were given"}
}

// Check names the first option out of bounds.
func (o *Options) Check() error {
	for _, m := range o.Models {
		if !slices.Contains(model.Names, m) {
			return fmt.Errorf("--models: got %q, want some of %v", m, model.Names)
		}
	}
	for _, s := range o.Splits {
		if !slices.Contains(splitNames, s) {
			return fmt.Errorf("--split: got %q, want some of %v", s, splitNames)
		}
	}
	switch {
	case len(o.Models) == 0 || len(o.Splits) == 0:
		return fmt.Errorf("--models, --split: got none, want at least one each")
	case o.Weights != natural && o.Weights != flat && o.Weights != sqrt:
		return fmt.Errorf("--weights: got %q, want %s, %s or %s", o.Weights, natural, flat, sqrt)
	case o.Recency != uniform && o.Recency != newest:
		return fmt.Errorf("--recency: got %q, want %s or %s", o.Recency, uniform, newest)
	case o.Emulate != "" && o.Emulate != emulateLLMD:
		return fmt.Errorf("--emulate: got %q, want %s", o.Emulate, emulateLLMD)
	case o.Draws < 100:
		return fmt.Errorf("--bootstraps: got %d, want at least 100", o.Draws)
	}
	return nil
}
