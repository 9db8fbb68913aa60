package cluster

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// OptimiseDoc is optimise.json: tuned policies on seeds and loads they were not tuned
// on. Goodput throughout.
type OptimiseDoc struct {
	result.Header
	Policy   string           `json:"policy"` // the one asked for
	Method   string           `json:"method"`
	Calls    int              `json:"calls"` // of every policy
	Train    []int64          `json:"train_seeds"`
	Test     []int64          `json:"test_seeds"`
	Baseline *float64         `json:"baseline_goodput"`          // always-admit, train seeds
	Critical *float64         `json:"baseline_goodput_critical"` // and of class critical: the constraint is 1 point below
	Tuned    []optimisePolicy `json:"policies"`
	Warnings []trace.Finding  `json:"warnings"`
}

// optimisePolicy is one policy, tuned or as it is.
type optimisePolicy struct {
	Policy      string              `json:"policy"`
	Method      string              `json:"method"` // "" untuned
	Parameters  map[string]float64  `json:"parameters"`
	Posterior   *float64            `json:"posterior_goodput"` // of the search, at what it recommends
	Train       *float64            `json:"train_goodput"`
	Test        *float64            `json:"test_goodput"`
	Gap         *float64            `json:"optimism_gap"` // train - test
	Critical    *float64            `json:"test_goodput_critical"`
	Transfer    []optimiseTransfer  `json:"transfer"`
	Sensitivity []optimiseParameter `json:"sensitivity"`
}

// optimiseTransfer is the goodput on another load or other engines.
type optimiseTransfer struct {
	To      string   `json:"to"`
	Goodput *float64 `json:"goodput"`
	Always  *float64 `json:"always_admit"`
	Tested  bool     `json:"tested"` // false: always-admit serves 99 % there, nothing needs rejecting
}

// optimiseParameter is what the full range of a parameter moves.
type optimiseParameter struct {
	Name   string   `json:"name"`
	Lo     float64  `json:"from"`
	Hi     float64  `json:"to"`
	Moves  *float64 `json:"goodput_range"` // largest paired difference over its range
	Band   *float64 `json:"interval"`      // half width of that difference's 95 % interval
	Effect string   `json:"effect"`        // yes, or no effect
}
