package cluster

import (
	"slices"

	"github.com/blis-train/blis-train/sim"
)

// Updates of the index.
const (
	OnRoute      = "on-route"       // when a request is sent: a prefill that has not run is credited
	onFirstToken = "on-first-token" // when its first token comes
	kvEvents     = "kv-events"      // what engines say of their caches, some time later
)

// Config is a cluster: what its file says, and what stands behind and before the gateway.
type Config struct {
	Spec
	parts
	Policy Policy // in place of what the spec names
	Router router // the same; nil: the spec's
	Live   *live  // the estimator that looks into the engines; nil for all others
}

// Schedulers.
const (
	fcfs         = "fcfs"
	priorityFCFS = "priority-fcfs"
)

// defaultPriorities are those of BLIS and of the gateway API: below 0 a class may
// be shed. Classes without one are standard.
var defaultPriorities = map[string]int{"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}

const standardPriority = 3

func (c *Config) check() error {
	switch {
	case len(c.Engines) < 1 || len(c.Engines) > maxInstances:
		return specErrorf("instances: got %d, want 1 to %d", len(c.Engines), maxInstances)
	case c.Policy == nil:
		return specErrorf("admission: got none, want a policy")
	case c.RefreshUs < 0 || c.AdmissionUs < 0 || c.RoutingUs < 0 || c.Routing.EventDelayUs < 0 || c.Routing.IndexBlocks < 0:
		return specErrorf("times and blocks: got refresh %d, admission %d, routing %d, event delay %d us, %d index blocks, want all >= 0",
			c.RefreshUs, c.AdmissionUs, c.RoutingUs, c.Routing.EventDelayUs, c.Routing.IndexBlocks)
	case !slices.Contains([]string{OnRoute, onFirstToken, kvEvents}, c.Routing.IndexUpdate):
		return specErrorf("index update: got %q, want on-route, on-first-token or kv-events", c.Routing.IndexUpdate)
	case c.Scheduler != "" && c.Scheduler != fcfs && c.Scheduler != priorityFCFS:
		return specErrorf("scheduler: got %q, want fcfs or priority-fcfs", c.Scheduler)
	case !(c.AgeWeight >= 0) || c.AgeWeight > 1:
		return specErrorf("age weight: got %g, want 0 to 1 a us", c.AgeWeight)
	case c.Retry.Kind == "backoff" && (c.Retry.baseUs() < 1 || !(c.Retry.Factor >= 1)):
		return specErrorf("retry: got base %d us and factor %g, want >= 1 and >= 1", c.Retry.baseUs(), c.Retry.Factor)
	case !(c.ShadowShare >= 0 && c.ShadowShare <= 1):
		return specErrorf("shadow share: got %g, want 0 to 1", c.ShadowShare)
	}
	for i := range c.Engines {
		if e := &c.Engines[i]; e.Gradient || e.StopUs != 0 {
			return specErrorf("instance %d: got derivatives or a stop, want none in a cluster", i)
		}
	}
	return nil
}

// priority of a class, higher is more important.
func (c *Config) priority(class string) int {
	if p, ok := c.Priorities[class]; ok {
		return p
	}
	if p, ok := defaultPriorities[class]; ok {
		return p
	}
	return standardPriority
}

// enginePriority is what vLLM gets: smaller first. With age the order of two
// requests never changes, so it is a number too: the arrival less what a class is
// worth in time.
func (c *Config) enginePriority(priority int, arrivalUs int64) int64 {
	if c.AgeWeight > 0 {
		return arrivalUs - sim.ToUs(float64(priority+maxPriority)/c.AgeWeight)
	}
	top := standardPriority
	for _, p := range defaultPriorities {
		top = max(top, p)
	}
	for _, p := range c.Priorities {
		top = max(top, p)
	}
	return int64(top - priority)
}

// maxPriority bounds priorities on both sides.
const maxPriority = 100
