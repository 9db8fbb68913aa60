package cluster

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// shadow is a copy of an engine that serves one request the gateway turned away,
// beside everything the engine itself is sent afterwards (spec#cluster-shadow).
type shadow struct {
	*sim.Engine
	untilUs int64 // followed no longer
	over    bool  // the first token is there
}

// streamShadow keys the draws of the shadow sample.
const streamShadow = 4

// followedTargets is how many times its target a shadow is followed for.
const followedTargets = 4

// FollowedUs is how long from the decision the shadow of a request was followed: one
// without a first token then is as good as for ever. -1: it has no shadow.
func (r *record) FollowedUs() int64 {
	switch {
	case !r.Shadowed:
		return -1
	case r.SLOTTFTUs == 0:
		return math.MaxInt64
	}
	return followedTargets * r.SLOTTFTUs
}

// shadow begins one for a sample of the requests that instance i's gateway decided
// to turn away.
func (c *cluster) shadow(req, i int, now int64) error {
	if stat.Draw(uint64(c.cfg.Seed), streamShadow, uint64(req)) >= c.cfg.ShadowShare || !c.engines[i].CanClone() {
		return nil
	}
	rec := &c.out.Records[req]
	rec.Shadowed = true
	s := &shadow{untilUs: math.MaxInt64}
	if us := rec.FollowedUs(); us < math.MaxInt64 {
		s.untilUs = now + us
	}
	s.Engine = c.engines[i].Clone(sim.Hooks{
		First: func(k int, atUs int64) {
			if k == req {
				rec.Shadow, s.over = trace.Some(atUs-now), true
				s.Yield(math.MinInt64)
			}
		},
	})
	c.shadows[i] = append(c.shadows[i], s)
	return s.Arrive(req, &c.reqs[req], now)
}

// follow brings the shadows of instance i up to now, drops those that are over, and
// hands the others the request that the instance is sent; -1: none.
func (c *cluster) follow(i, req int, now int64) error {
	kept := c.shadows[i][:0]
	for _, s := range c.shadows[i] {
		if err := s.RunTo(min(now, s.untilUs)); err != nil {
			return err
		}
		if s.over || now >= s.untilUs {
			continue
		}
		kept = append(kept, s)
		if req < 0 {
			continue
		}
		if err := s.Arrive(req, &c.reqs[req], now); err != nil {
			return err
		}
	}
	clear(c.shadows[i][len(kept):])
	c.shadows[i] = kept
	return nil
}
