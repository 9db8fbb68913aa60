package cluster

import ()

// rate is an exponentially weighted rate of events.
type rate struct {
	perUs float64
	atUs  int64
}

func (r *rate) addAmount(atUs int64, amount float64) {
	r.perUs = r.perUsAt(atUs) + amount/rateWindowUs
	r.atUs = atUs
}

func (r *rate) perUsAt(us int64) float64 { return r.perUs * rateDecay(us-r.atUs) }

// perSecond corrects for the time before the window was full; a start shorter than
// leastUs counts as that long.
func (r *rate) perSecond(us int64) float64 {
	return r.perUsAt(us) / (1 - rateDecay(max(us, leastUs))) * 1e6
}

// flow is requests that are sent somewhere: how many, and their prompt tokens to compute.
type flow struct{ tokens, prompts rate }

func (f *flow) addPrompt(atUs, tokens int64) {
	f.tokens.addAmount(atUs, float64(tokens))
	f.prompts.addAmount(atUs, 1)
}
