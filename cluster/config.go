package cluster

import (
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Updates of the index.
const (
	OnRoute      = "on-route"       // when a request is sent: a prefill that has not run is credited
	onFirstToken = "on-first-token" // when its first token comes
	kvEvents     = "kv-events"      // what engines say of their caches, some time later
)

// Config is a cluster.
type Config struct {
	Engines []sim.Config // instances; those of one run may share a latency model
	Routing RouterOptions
	Policy  Policy
	Live    *live // the estimator that looks into the engines; nil: nobody does

	RefreshUs    int64 // between two scrapes of an instance; 0: every decision sees the live state
	Aligned      bool  // all instances are scraped at once; otherwise one after another
	ShowStep     bool  // engines export when their step started
	Update       string
	IndexBlocks  int64 // of an instance's index; 0: as many as its engine has
	EventDelayUs int64 // of KV events

	AdmissionUs, RoutingUs int64 // what the decisions take

	Priorities map[string]int // of classes, beside DefaultPriorities
	Scheduler  string         // "", the deployments' and the requests' own; fcfs; priority-fcfs
	AgeWeight  float64        // priority gained per us of age, with priority-fcfs

	Retry       retry
	ShadowShare float64 // of rejected requests that a copy of their engine serves, to see what would have been
	Seed        int64
	// Observe gives the observer of an instance; nil: nobody watches.
	Observe func(instance int) sim.Observer
}

// retry says what rejected clients do: come back after BaseUs, then Factor times
// as long, until they have come Tries times. Tries 0 or 1: they do not.
type retry struct {
	Tries  int
	BaseUs int64
	Factor float64
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
	bad := func(format string, args ...any) error { return trace.Errorf(codeBadSpec, format, args...) }
	switch {
	case len(c.Engines) < 1 || len(c.Engines) > maxInstances:
		return bad("instances: got %d, want 1 to %d", len(c.Engines), maxInstances)
	case c.Policy == nil:
		return bad("admission: got none, want a policy")
	case c.RefreshUs < 0 || c.AdmissionUs < 0 || c.RoutingUs < 0 || c.EventDelayUs < 0 || c.IndexBlocks < 0:
		return bad("times and blocks: got refresh %d, admission %d, routing %d, event delay %d us, %d index blocks, want all >= 0",
			c.RefreshUs, c.AdmissionUs, c.RoutingUs, c.EventDelayUs, c.IndexBlocks)
	case c.Update != OnRoute && c.Update != onFirstToken && c.Update != kvEvents:
		return bad("index update: got %q, want on-route, on-first-token or kv-events", c.Update)
	case c.Scheduler != "" && c.Scheduler != fcfs && c.Scheduler != priorityFCFS:
		return bad("scheduler: got %q, want fcfs or priority-fcfs", c.Scheduler)
	case !(c.AgeWeight >= 0) || c.AgeWeight > 1:
		return bad("age weight: got %g, want 0 to 1 a us", c.AgeWeight)
	case c.Retry.Tries > 1 && (c.Retry.BaseUs < 1 || !(c.Retry.Factor >= 1)):
		return bad("retry: got base %d us and factor %g, want >= 1 and >= 1", c.Retry.BaseUs, c.Retry.Factor)
	case !(c.ShadowShare >= 0 && c.ShadowShare <= 1):
		return bad("shadow share: got %g, want 0 to 1", c.ShadowShare)
	}
	for i := range c.Engines {
		if e := &c.Engines[i]; e.Gradient || e.StopUs != 0 {
			return bad("instance %d: got derivatives or a stop, want none in a cluster", i)
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
