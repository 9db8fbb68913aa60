package requestfit

// This file has a load, the input of a fit: the requests of one engine in one period with their
// measured times, its parts in time, and its replay.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Load is the requests that one engine got during one period, and what its clients measured of
// them.
type Load struct {
	Name       string
	Run, Phase string // that it is of
	OriginNs   int64  // stamp of time 0
	Tier       string // what was recorded, see TierSpans
	Deployment *deploy.Deployment
	KVBlocks   int64                    // GPU blocks; 0: the deployment's
	Requests   []sim.Request            // in order of SentUs
	SentUs     []int64                  // when each was sent, as recorded; nil: at its arrival
	Seen       []sim.Measured           // measured times that replays are compared with, one per request
	Stamps     []sim.Measured           // measured times of all requests, also of those that are not compared; nil: Seen
	Point      *Point                   // of a load level: the measured means; nil: Seen applies
	Unstated   []bool                   // requests of which nothing states what they found in the prefix cache; nil: none
	assumed    float64                  // cached share that the replays assume of those, on the scale of shareEstimate
	later      int                      // how many of the last requests are not compared and only share steps with the others
	simulated  map[candidate]*sim.Means // of a load level: what meansAt has simulated with Requests as they are
}

// Before returns the load of the requests sent in the first part of its time, a share in [0, 1].
// Requests that were sent later but while these ran remain in it, because they shared steps with
// them, but without their measurements.
func (l *Load) Before(share float64) *Load {
	n := l.sentIn(share)
	endedUs := 0.0
	for i := range n {
		endedUs = max(endedUs, l.endUs(i))
	}
	all := n
	for all < len(l.Requests) && float64(l.sent(all)) < endedUs {
		all++
	}
	out := *l
	out.simulated = nil
	out.Requests = l.Requests[:all]
	out.Seen = unseen(l.Seen[:all], n, all)
	out.SentUs = l.SentUs[:min(all, len(l.SentUs))] // SentUs and Stamps may be nil
	out.Stamps = unseen(l.Stamps[:min(all, len(l.Stamps))], n, all)
	out.later = all - n
	return &out
}

// Later returns the load with the measurements of only those requests that were sent after that first
// part.
func (l *Load) Later(share float64) *Load {
	out := *l
	out.Seen = unseen(l.Seen, 0, l.sentIn(share))
	return &out
}

// sentIn returns the number of requests sent in the first share of the load's time.
func (l *Load) sentIn(share float64) int {
	n := len(l.Requests)
	for n > 1 && l.sent(n-1) > int64(share*float64(l.sent(len(l.Requests)-1))) {
		n--
	}
	return n
}

// unseen returns a copy without the measurements of requests first to end-1.
func unseen(all []sim.Measured, first, end int) []sim.Measured {
	all = slices.Clone(all)
	for i := first; i < end; i++ {
		unsee(all, i)
	}
	return all
}

// sent returns when request i was sent, us.
func (l *Load) sent(i int) int64 {
	if l.SentUs != nil {
		return l.SentUs[i]
	}
	return l.Requests[i].ArrivalUs
}

// stamps returns the measured times of request i.
func (l *Load) stamps(i int) *sim.Measured {
	if l.Stamps != nil {
		return &l.Stamps[i]
	}
	return &l.Seen[i]
}

// first returns when the first token of request i arrived, us; NaN if unknown.
func (l *Load) first(i int) float64 { return float64(l.sent(i)) + l.stamps(i).TTFTUs }

// last returns when the last token of request i arrived at its client, us; NaN if unknown.
func (l *Load) last(i int) float64 {
	if l.Requests[i].OutputTokens <= 1 {
		return l.first(i)
	}
	return l.first(i) + l.stamps(i).SpanUs
}

// checkMeasured returns an error for a load without a measured time.
func (l *Load) checkMeasured() error {
	if l.Point != nil {
		return nil
	}
	if len(l.Seen) != len(l.Requests) {
		return trace.Errorf(NothingMeasured, "load %s: got %d measured of %d requests, want one each",
			l.Name, len(l.Seen), len(l.Requests))
	}
	if l.IsMeasured() {
		return nil
	}
	return trace.Errorf(NothingMeasured, "load %s: got no time of %d requests, want TTFT, span or E2E of some",
		l.Name, len(l.Requests)).
		WithHint("save the benchmark with per-request times, as `vllm bench serve --save-detailed` does")
}

// IsMeasured reports whether any request has a measured time.
func (l *Load) IsMeasured() bool {
	return slices.ContainsFunc(l.Seen, func(s sim.Measured) bool { return isMeasured(&s) })
}

// isMeasured reports whether any time of a request is known.
func isMeasured(s *sim.Measured) bool { return s.TTFTUs > 0 || s.SpanUs > 0 || s.E2EUs > 0 }

// isNumber reports whether v is neither NaN nor infinite.
func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// config returns the simulator's configuration of the load, with the latency models of a candidate.
func (l *Load) config(m *model, values []float64) (sim.Config, error) {
	parts, err := m.parts(l.Deployment, values)
	if err != nil {
		return sim.Config{}, err
	}
	cfg := sim.DefaultConfig(l.Deployment, nil)
	cfg.Apply(parts)
	cfg.KVBlocks, cfg.Async = l.KVBlocks, l.Deployment.Engine.IsAsync()
	return cfg, nil
}

// Predict replays the load with a coefficient set and returns the simulated times of its requests.
func (l *Load) Predict(set *coeff.Set) ([]sim.Measured, error) {
	m, err := newModel(&Prior{Name: "set", Set: set}, l.Deployment)
	if err != nil {
		return nil, err
	}
	cfg, err := l.config(m, nil)
	if err != nil {
		return nil, err
	}
	res, err := sim.Run(cfg, l.Requests, nil)
	if err != nil {
		return nil, err
	}
	out := make([]sim.Measured, len(res.Requests))
	for i := range out {
		out[i] = res.Requests[i].Measured()
	}
	return out, nil
}

// farOff is the ratio of median TTFTs, simulated to measured or the reverse, beyond which a replay
// is not comparable.
const farOff = 3

// Unlike returns a warning about a load whose replay with a set does not resemble the recorded
// server: the median TTFT is three times the measured one, or a third of it. This happens when
// prompts came from a prefix cache and the recording does not show which: the replay computes them
// all and is overloaded.
func (l *Load) Unlike(set *coeff.Set) ([]trace.Finding, error) {
	if l.Point != nil {
		return nil, nil
	}
	got, err := l.Predict(set)
	if err != nil {
		return nil, err
	}
	var measured, simulated []float64
	for i := range got {
		if a, b := l.Seen[i].TTFTUs, got[i].TTFTUs; a > 0 && b > 0 {
			measured = append(measured, a)
			simulated = append(simulated, b)
		}
	}
	if len(measured) == 0 {
		return nil, nil
	}
	ratio := stat.Median(simulated) / stat.Median(measured)
	if ratio < farOff && ratio > 1.0/farOff {
		return nil, nil
	}
	return []trace.Finding{{
		Code:    ReplayUnlike,
		Message: report.ReplayUnlikeLoad(l.Name, stat.Median(simulated), stat.Median(measured)),
	}}, nil
}
