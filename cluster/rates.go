package cluster

// This file measures rates of arrivals and tokens, with recent ones weighing most.

import "math"

// rate is an exponentially weighted rate of amounts: an amount counts fully when it is added and
// by 1/e after rateWindowUs. perUs is the rate at atUs, per us.
type rate struct {
	perUs float64
	atUs  int64
}

// addAmount adds an amount at atUs, which must not be before earlier ones.
func (r *rate) addAmount(atUs int64, amount float64) {
	r.perUs = r.perUsAt(atUs) + amount/rateWindowUs
	r.atUs = atUs
}

// perUsAt returns the rate at a time of us microseconds, per us.
func (r *rate) perUsAt(us int64) float64 { return r.perUs * rateDecay(us-r.atUs) }

// perSecond returns the rate at a time of us microseconds, per second. Shortly after time 0 the window is
// not full yet, so the rate is divided by the part of it that is; times before leastUs count as leastUs.
func (r *rate) perSecond(us int64) float64 {
	return r.perUsAt(us) / (1 - rateDecay(max(us, leastUs))) * 1e6
}

// flow is the recent rate of requests that are sent to an instance, and of the prompt tokens that they
// need computed.
type flow struct{ tokens, prompts rate }

// addPrompt adds a request that is sent at atUs and needs a number of prompt tokens.
func (f *flow) addPrompt(atUs, tokens int64) {
	f.tokens.addAmount(atUs, float64(tokens))
	f.prompts.addAmount(atUs, 1)
}

// rateDecay returns the factor, in (0, 1], by which an exponentially averaged rate falls in a time
// of us microseconds.
func rateDecay(us int64) float64 { return math.Exp(-float64(us) / rateWindowUs) }
