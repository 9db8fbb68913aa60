package validate

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// Notes of null gates.
const (
	noteInsufficient  = "insufficient data: %d requests, want at least %d for a critical distance below %.2f"
	noteSaturated     = "saturated"
	noteInSample      = "in_sample"
	noteRebuilt       = "load rebuilt from steps"
	noteOneConfig     = "not applicable with one configuration"
	noteNoFit         = "no fit report given"
	noteNoRows        = "no rows"
	noteNoSteps       = "learned from requests: no steps were recorded"
	noteNoFloor       = "no noise floor: fewer than 50 rows"
	noteOtherSource   = "%s requests: errors are printed, not gated"
	noteSampled       = "journeys are sampled at %g: the rest of the load is unknown"
	noteNoStamps      = "stamps missing on one side"
	noteNoReplay      = "not replayed"
	noteNotIdentified = "no term is identified"
)

// scopeAll is the scope of a gate that judges all runs together.
const scopeAll = coeff.ScopeAll

// replayGateNames are the gates that stand per replayed run, phase and split.
var replayGateNames = []string{gateKSTTFT, gateMedianTTFT, gateKSITL, gateMedianITL, gateKSE2E, gateMedianE2E}

// failedByScope lists the names of failed gates per scope prefix, in gate order.
func failedByScope(gates []result.Gate) ([]string, map[string][]string) {
	var order []string
	names := map[string][]string{}
	for _, g := range gates {
		if g.Pass == nil || *g.Pass {
			continue
		}
		if names[g.Scope] == nil {
			order = append(order, g.Scope)
		}
		if !slices.Contains(names[g.Scope], g.Name) {
			names[g.Scope] = append(names[g.Scope], g.Name)
		}
	}
	return order, names
}

// runOfScope is the run id of a replay scope "id/phase (in-sample)".
func runOfScope(scope string) string {
	id, _, _ := strings.Cut(strings.TrimSuffix(scope, " (in-sample)"), "/")
	return id
}
