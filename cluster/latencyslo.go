package cluster

import "math"

// latencySLO rejects what may be shed if and only if it has a target, predictions
// exist, none meets it, every instance runs something and none has hardly any KV in
// use. Source: llm-d's latency-slo admitter.
type latencySLO struct {
	blind
	Estimate estimator
}

// idleKV is the KV usage below which an instance counts as free.
const idleKV = 0.02

// Decide looks for an instance that meets the target.
func (l *latencySLO) Decide(r *Request, v *View, _ int) (Decision, error) {
	d := admit()
	if r.Priority >= 0 || r.SLOTTFTUs == 0 {
		return d, nil
	}
	best, idle := math.Inf(1), false
	for i := range v.Snapshots {
		s := &v.Snapshots[i]
		idle = idle || s.BatchSize == 0 || s.KVUsage() < idleKV
		x, err := l.Estimate.TTFT(r, v, i)
		if err != nil {
			return d, err
		}
		if x.Us < best {
			best, d.Queued = x.Us, x.Queued
		}
	}
	d.PredictedUs, d.BoundUs, d.P90Us = best, best, best
	if math.IsInf(best, 0) || math.IsNaN(best) || idle || best+float64(r.WaitedUs) <= float64(r.SLOTTFTUs) {
		return d, nil
	}
	d.Admit, d.Reason = false, reasonPredicted
	return d, nil
}
