package sim

// This file makes copies of a workload with slightly other timings.

import (
	"slices"
)

// Twins returns n copies of a workload in which each request is sent up to jitterUs earlier or
// later, so that a score can be averaged over small changes of timing. Copies come in pairs with
// opposite shifts. Requests that wait for another one are not shifted. The same seed gives the same
// shifts.
func Twins(reqs []Request, n int, jitterUs, seed int64) [][]Request {
	out := make([][]Request, n)
	for k := range out {
		out[k] = slices.Clone(reqs)
		for i := range out[k] {
			q := &out[k][i]
			if q.After > 0 || q.Queued || q.With > 0 {
				continue
			}
			by := jitter(uint64(seed), uint64(k/2), uint64(i), jitterUs)
			if k%2 == 1 {
				by = -by
			}
			by = max(by, -q.ArrivalUs)
			q.ArrivalUs += by
			q.EnqueueUs.V += by
			q.AbortAtUs.V += by
		}
	}
	return out
}

// jitter returns a shift for a request of a twin, uniform in [-most, most].
func jitter(seed, twin, request uint64, most int64) int64 {
	u := mix(mix(seed, twin), request)
	return int64(u%uint64(2*most+1)) - most
}

// AssessTwins returns the mean objective (see Objective of a replay) of a candidate over its twins,
// and their scores. It stops as soon as the mean must exceed o.Bound; the mean is then a lower
// bound.
func AssessTwins(cfg Config, twins [][]Request, seen []Measured, o Options) (mean float64, scores []*Score, err error) {
	n := float64(len(twins))
	for _, reqs := range twins {
		one := o
		if o.Bound > 0 {
			one.Bound = max(1e-300, n*(o.Bound-mean)) // what is left for this twin; never 0, which is no bound
		}
		s, err := assess(cfg, reqs, seen, one)
		if err != nil {
			return 0, nil, err
		}
		scores = append(scores, s)
		if mean += s.Objective / n; s.Stopped || o.Bound > 0 && mean > o.Bound {
			return mean, scores, nil
		}
	}
	return mean, scores, nil
}
