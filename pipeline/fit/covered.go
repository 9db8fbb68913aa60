package fit

// This file computes how far the recordings behind a fit reach: the largest load and the longest
// requests. Later commands warn when a prediction is asked for beyond that (spec#covered-region).

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// burst is the number of gaps between arrivals over which a rate is computed. Of random arrivals it
// scatters by 1/sqrt(50) = 14 %; over fewer gaps a peak would be chance rather than load.
const burst = 50

// coveredBy returns the largest load and the longest requests of a recording, outside the saturated
// spans that the fit excludes (spec#covered-region). sampled: the engine traced a sample of its
// requests only. Then not all arrivals are known, and there is no rate.
func coveredBy(run *trace.Run, saturated []rows.Span, sampled bool) *result.Covered {
	c := &result.Covered{}
	isExcluded := func(ns int64) bool {
		return slices.ContainsFunc(saturated, func(s rows.Span) bool { return s.StartNs <= ns && ns < s.EndNs })
	}
	for i := range run.Steps {
		if s := &run.Steps[i]; !isExcluded(s.TsStartNs) {
			c.Running = max(c.Running, int64(s.RunningDepth))
		}
	}
	var arrivals []int64
	addRequest := func(at trace.Opt[int64], success trace.Opt[bool], prompt, output trace.Opt[int64]) {
		if at.OK && isExcluded(at.V) {
			return
		}
		if at.OK { // results without start times have lengths all the same
			arrivals = append(arrivals, at.V)
		}
		if success.Or(false) {
			c.PromptTokens = max(c.PromptTokens, prompt.Or(0))
			c.OutputTokens = max(c.OutputTokens, output.Or(0))
		}
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		at := r.ArrivedNs
		if !at.OK { // the API server's span is missing: the engine's queue comes next
			at = r.QueuedNs
		}
		addRequest(at, r.Success, r.PromptTokens, r.OutputTokens)
	}
	if len(run.Requests) == 0 { // the engine recorded no request: take those of its clients
		for i := range run.Observed {
			r := &run.Observed[i]
			addRequest(r.SendNs, r.Success, r.PromptTokens, r.OutputTokens)
		}
	}
	slices.Sort(arrivals)
	if !sampled {
		c.RequestsPerS = busiest(arrivals)
	}
	return c
}

// busiest returns the rate, in requests/s, of the `burst` consecutive gaps between arrivals that took
// the least time; nil if there are fewer. arrivals are in ns, ascending.
func busiest(arrivals []int64) *float64 {
	shortestNs := int64(0)
	for i := burst; i < len(arrivals); i++ {
		if spanNs := arrivals[i] - arrivals[i-burst]; spanNs > 0 && (shortestNs == 0 || spanNs < shortestNs) {
			shortestNs = spanNs
		}
	}
	if shortestNs == 0 {
		return nil
	}
	return result.OrNull(burst / (float64(shortestNs) / 1e9))
}

// Cover returns the smallest region that contains both; either may be nil.
func Cover(a, b *result.Covered) *result.Covered {
	if a == nil || b == nil {
		return orOther(a, b)
	}
	out := &result.Covered{Running: max(a.Running, b.Running), PromptTokens: max(a.PromptTokens, b.PromptTokens),
		OutputTokens: max(a.OutputTokens, b.OutputTokens), RequestsPerS: orOther(a.RequestsPerS, b.RequestsPerS)}
	if x, y := a.RequestsPerS, b.RequestsPerS; x != nil && y != nil {
		out.RequestsPerS = result.OrNull(max(*x, *y))
	}
	return out
}
