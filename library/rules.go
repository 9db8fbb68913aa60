package library

import "github.com/blis-train/blis-train/trace"

// Rules say how an engine puts kernels together.
type Rules string

// Engine is vLLM's own way; Composed that of the composed data sets, whose
// steps are sums of the same tables: custom all-reduce at every size, two per
// layer and none of the embedding; KV writes, embedding, sampling and the
// logits' gather in the host term.
const (
	Engine   Rules = "engine"
	Composed Rules = "composed"
)

// allRules lists the rules, the default first.
func allRules() []Rules { return []Rules{Engine, Composed} }

// Check refuses unknown rules.
func (r Rules) Check() error {
	if r != Engine && r != Composed {
		return trace.Errorf(unknownRules, "rules: got %q, want %s", string(r), trace.OneOf(allRules()))
	}
	return nil
}

// distribution is how tokens spread over experts, as the tables name it:
// routers trained for balance are still skewed.
const distribution = "power_law_1.2"

// clean is how the rules read a measured curve.
func (r Rules) clean(c *curve) *curve {
	if r == Engine {
		return c.envelope()
	}
	return c
}
