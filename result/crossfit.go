package result

// This file has the coefficients of cross-fitting.

import "slices"

// CrossFits are the coefficients of cross-validation: one set for each block of time, fitted
// without this block (spec#cross-fitting). A validation predicts the requests of a block with the
// set that was fitted without it.
type CrossFits struct {
	Blocks []CrossBlocks `json:"blocks"` // of every phase that the fit used, by run
	Fits   []CrossFit    `json:"fits"`   // by block: the first one was fitted without the first block
}

// CrossFolds is the number of blocks that a phase is cut into.
const CrossFolds = 5

// CrossBlocks are the blocks of time of one phase, on the clock of its requests.
type CrossBlocks struct {
	Run   string `json:"run"`
	Phase string `json:"phase"` // empty: the run has no phases
	// CutsNs are the CrossFolds-1 moments that divide the phase, ascending.
	CutsNs []int64 `json:"cuts_ns"`
	// EmbargoNs is the distance from the held-out block within which nothing was used either: the
	// longest time that a request of the phase was in flight, at most half a block.
	EmbargoNs int64 `json:"embargo_ns"`
}

// Block returns the number of the block, from 0, in which something begins at a moment.
func (b *CrossBlocks) Block(ns int64) int {
	block := 0
	for _, cut := range b.CutsNs {
		if ns >= cut {
			block++
		}
	}
	return block
}

// Teaches reports whether something measured at a moment is used for the coefficients fitted
// without the block: it lies outside the block and farther from its edges than the embargo.
func (b *CrossBlocks) Teaches(block int, ns int64) bool {
	// The first block has no start and the last one no end: what is before or after the phase belongs to them.
	afterStart := block == 0 || ns >= b.CutsNs[block-1]-b.EmbargoNs
	beforeEnd := block == len(b.CutsNs) || ns < b.CutsNs[block]+b.EmbargoNs
	return !(afterStart && beforeEnd)
}

// NewCrossBlocks returns the blocks of equal length into which a phase is divided, from its first
// to its last recorded moment. longestNs is the longest time that one of its requests was in
// flight.
func NewCrossBlocks(run, phase string, firstNs, lastNs, longestNs int64) CrossBlocks {
	blockNs := (lastNs - firstNs) / CrossFolds
	b := CrossBlocks{Run: run, Phase: phase, EmbargoNs: max(0, min(longestNs, blockNs/2))}
	for k := int64(1); k < CrossFolds; k++ {
		b.CutsNs = append(b.CutsNs, firstNs+k*blockNs)
	}
	return b
}

// CrossFit has the coefficients that were fitted without one block of every phase.
type CrossFit struct {
	Learned           int                `json:"learned"`   // steps, or requests, that it learned from
	Lambda            *float64           `json:"lambda"`    // penalty of the ridge regression
	GammaEMA          *float64           `json:"gamma_ema"` // weight of the present step in the preemption average
	Beta              []float64          `json:"beta"`      // values in the order of the fit's own
	DeploymentFactors []DeploymentFactor `json:"deployment_factors,omitempty"`
	HardwareFactors   []HardwareFactor   `json:"hardware_factors,omitempty"`
	Alpha             []CrossAlpha       `json:"alpha"` // of the delays that a replay adds
}

// CrossAlpha is one delay of a CrossFit.
type CrossAlpha struct {
	Target      string                   `json:"target"`                // overhead, admission, egress or queue
	Values      []float64                `json:"values"`                // in the order of the fit's own
	Deployments []DeploymentCoefficients `json:"deployments,omitempty"` // in place of Values, by deployment
}

// BlocksOf returns the blocks of a phase of a run; nil if the fit did not use it.
func (c *CrossFits) BlocksOf(run, phase string) *CrossBlocks {
	if c == nil {
		return nil
	}
	k := slices.IndexFunc(c.Blocks, func(b CrossBlocks) bool { return b.Run == run && b.Phase == phase })
	if k < 0 {
		return nil
	}
	return &c.Blocks[k]
}
