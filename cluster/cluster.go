package cluster

// This file is the event loop of a cluster simulation: it alternates between events at the gateway
// (gate.go) and advancing the engines of package sim. Times are microseconds since the start of the
// simulation; instance i is the i-th engine of Config.Engines.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// cluster is the state of one simulation: the engines, the gateway and the future events at the
// gateway. Per-request slices are indexed by the request's place in reqs.
type cluster struct {
	cfg      *Config
	reqs     []sim.Request
	src      *sim.Source
	closed   bool            // some request is sent only when another has left
	pd       *disaggregation // nil unless prefill and decode have instances of their own
	engines  []sim.Server
	shadows  [][]*shadow // of each instance, the copies of it that serve a rejected request (gate.go)
	running  int         // index of the engine that is being advanced; -1 for none
	events   events      // future events at the gateway, apart from the new arrivals, which src has
	router   router
	index    *index              // estimates which prompt blocks each instance has in its prefix cache
	exact    *Events             // the same from the engines' KV events; nil when no policy reads them
	view     View                // what policies read
	viewOf   int                 // request for which view.Match was computed; -1 for none
	fresh    bool                // no request was sent since view.Match was computed
	seen     []Request           // each request as policies see it
	planned  []int32             // for each request, the instance for which it was admitted; -1 for none
	prefixes map[uint64]int      // requests so far of each prefix group, by the hash that names the group (meetRequest)
	hashes   map[uint64][]uint64 // block hashes of the prefix of each group of the workload (sim.Request.Group)
	out      Result
}

// Run simulates the cluster from the first arrival until no engine and no event at the gateway is
// left, and returns a record of every request. It is deterministic: the same cfg and reqs give the
// same result.
func Run(cfg *Config, reqs []sim.Request) (*Result, error) {
	c, err := newCluster(cfg, reqs)
	if err != nil {
		return nil, err
	}
	return c.run()
}

// run is the event loop: it advances the engines to the next event at the gateway (or to their end
// if there is none), then handles that event. It ends when no event is left and no engine has work.
func (c *cluster) run() (*Result, error) {
	for {
		at, ok := c.next()
		if !ok {
			at = math.MaxInt64
		}
		if err := c.advance(at); err != nil {
			return nil, err
		}
		// The end of a request in an engine may have caused an earlier event, at which advance stopped,
		// or the first one after there was none.
		now, ok := c.next()
		switch {
		case ok && now <= at:
			if err := c.handleEvent(now); err != nil {
				return nil, err
			}
		case !ok && !c.busy():
			return c.close()
		}
	}
}

// newCluster checks the configuration and returns a cluster at time 0 with idle engines, an empty
// prefix index and an empty ledger (the gateway's own observations).
func newCluster(cfg *Config, reqs []sim.Request) (*cluster, error) {
	if err := cfg.checkConfig(); err != nil {
		return nil, err
	}
	n := len(cfg.Engines)
	own := cfg.withPriorities(reqs)
	src, err := sim.NewSource(own)
	if err != nil {
		return nil, err
	}
	scorers, err := cfg.Routing.scorers()
	if err != nil {
		return nil, err
	}
	router := cfg.Router
	if router == nil {
		if router, err = newRouter(cfg, scorers, tie{seed: uint64(cfg.Seed)}, n); err != nil {
			return nil, err
		}
	}
	c := &cluster{
		cfg:      cfg,
		reqs:     own,
		src:      src,
		running:  -1,
		router:   router,
		viewOf:   -1,
		prefixes: map[uint64]int{},
		hashes:   map[uint64][]uint64{},
		seen:     make([]Request, len(own)),
		planned:  make([]int32, len(own)),
		closed:   slices.ContainsFunc(own, func(r sim.Request) bool { return r.After > 0 || r.Loop > 0 }),
	}
	c.out.Records = make([]record, len(own))
	c.shadows = make([][]*shadow, n)
	if err := c.start(); err != nil {
		return nil, err
	}
	if err := c.disaggregate(scorers); err != nil {
		return nil, err
	}
	total := c.engines[0].Inside().TotalBlocks
	if cfg.Routing.IndexBlocks > 0 {
		total = cfg.Routing.IndexBlocks
	}
	c.index = newIndex(n, total)
	c.view = View{
		BlockSize: cfg.Engines[0].Deployment.Engine.BlockSize,
		Snapshots: make([]snapshot, n),
		Ledger:    newLedger(n, len(own)),
		Match:     make([]int64, n),
	}
	for i := range c.view.Snapshots {
		c.scrape(i, 0)
		c.view.Snapshots[i].AtUs = -1 // not a scrape: even one that is due at 0 replaces it
	}
	if cfg.Routing.IndexUpdate == kvEvents || readsEvents(scorers) {
		c.exact = newEvents(cfg.Routing.EventDelayUs)
		c.view.Exact = make([]int64, n)
		for i, e := range c.engines {
			e.Watch(func(atUs int64, hash uint64, stored bool) { c.exact.Add(i, atUs, hash, stored) })
		}
	}
	if cfg.Live != nil { // the policy clairvoyant reads the engines themselves, which exist only now
		cfg.Live.engines = c.engines
		cfg.Live.reqs = own
	}
	return c, nil
}

// withPriorities returns the requests as the engines get them: with an engine priority derived from
// the class if cfg.Scheduler is priority-fcfs, otherwise the same slice unchanged.
func (c *Config) withPriorities(reqs []sim.Request) []sim.Request {
	if c.Scheduler != priorityFCFS {
		return reqs
	}
	own := slices.Clone(reqs)
	for i := range own {
		own[i].Priority = c.enginePriority(c.priority(own[i].SLOClass), own[i].ArrivalUs)
	}
	return own
}

// start makes c.engines from cfg.Engines. It sets the scheduling policy of each, a seed that
// differs between instances, and the hooks by which an engine reports steps, first tokens and ends
// to the gateway.
func (c *cluster) start() error {
	number := int64(0) // engines before instance i, counting each data-parallel rank as one
	for i := range c.cfg.Engines {
		ec := c.cfg.Engines[i]
		if c.cfg.Scheduler != "" {
			d := *ec.Deployment
			d.Engine.SchedulingPolicy = fcfs
			if c.cfg.Scheduler == priorityFCFS {
				d.Engine.SchedulingPolicy = "priority"
			}
			ec.Deployment = &d
		}
		// The ranks of a data-parallel instance add their rank << 32 themselves.
		ec.Seed += number << 32
		number += max(1, ec.Deployment.DP)
		ec.Ranks = ec.Deployment.DP > 1
		if roles := c.cfg.Instances.roles(); i < len(roles) && roles[i] == roleDecode {
			ec.Load = func(req int, nowUs, tokens int64) int64 { return c.loadedAtUs(i, req, nowUs, tokens) }
		}
		var obs sim.Observer
		if c.cfg.Observe != nil {
			obs = c.cfg.Observe(i)
		}
		e, err := sim.NewServer(ec, obs, sim.Hooks{
			Step:  func() { c.view.Ledger.Stepped(i) },
			First: func(req int, atUs int64) { c.firstToken(req, i, atUs) },
			Left:  func(req int, atUs int64, r *sim.RequestResult) { c.requestLeft(req, i, atUs, r) },
		})
		if err != nil {
			return err
		}
		c.engines = append(c.engines, e)
	}
	return nil
}

// next returns the time of the gateway's next event, a new arrival or a scheduled event. ok is
// false if there is none.
func (c *cluster) next() (atUs int64, ok bool) {
	atUs, ok = c.src.Next()
	if len(c.events.heap) > 0 && (!ok || c.events.heap[0].at < atUs) {
		return c.events.heap[0].at, true
	}
	return atUs, ok
}

// busy reports whether any engine still has something to do, now or at a known later time.
func (c *cluster) busy() bool {
	return slices.ContainsFunc(c.engines, func(e sim.Server) bool { return e.NextUs() != math.MaxInt64 })
}

// advance simulates all engines up to untilUs. In a closed loop, where the end of one request
// causes the arrival of another, it repeatedly steps the engine whose next action is earliest, and
// stops early at an arrival that such a step has caused. Otherwise engines cannot affect each other
// before untilUs and are advanced one after another.
func (c *cluster) advance(untilUs int64) error {
	if c.closed {
		for {
			until := untilUs
			if at, ok := c.next(); ok {
				until = min(until, at)
			}
			first := 0
			for i, e := range c.engines {
				if e.NextUs() < c.engines[first].NextUs() {
					first = i
				}
			}
			at := c.engines[first].NextUs()
			if at >= until {
				untilUs = until
				break
			}
			if err := c.runTo(first, at+1); err != nil {
				return err
			}
		}
	}
	for i := range c.engines {
		if err := c.runTo(i, untilUs); err != nil {
			return err
		}
	}
	return nil
}

// runTo advances engine i to untilUs. If a scrape of its metrics is due on the way, the engine
// stops there and the scrape is made from its state at that time.
func (c *cluster) runTo(i int, untilUs int64) error {
	c.running = i
	defer func() { c.running = -1 }()
	e := c.engines[i]
	// Without an end in sight no decision follows that could read a scrape. Of several scrapes that
	// are due only the last is made, because no decision lies between them.
	if at := c.scrapeDue(i, untilUs); at > c.view.Snapshots[i].AtUs && untilUs != math.MaxInt64 {
		if e.NextUs() < at {
			if err := e.RunTo(at); err != nil {
				return err
			}
		}
		if e.NextUs() >= at { // not if RunTo returned early, at an arrival that an end caused
			c.scrape(i, at)
		}
	}
	if e.NextUs() >= untilUs {
		return nil
	}
	return e.RunTo(untilUs)
}

// scrapeDue returns the time of the last scrape of instance i that is due at or before atUs; -1 for
// none. Instances are scraped every RefreshUs, each with its own phase unless cfg.Scrape is
// aligned.
func (c *cluster) scrapeDue(i int, atUs int64) int64 {
	if c.cfg.RefreshUs == 0 {
		return -1
	}
	phase := int64(0)
	if c.cfg.Scrape != "aligned" {
		phase = int64(i) * c.cfg.RefreshUs / int64(len(c.engines))
	}
	if atUs < phase {
		return -1
	}
	return phase + (atUs-phase)/c.cfg.RefreshUs*c.cfg.RefreshUs
}

// scrape replaces the gateway's snapshot of instance i by its present metrics: queue depth, batch
// size and KV blocks as a metrics endpoint would report them at atUs.
func (c *cluster) scrape(i int, atUs int64) {
	in := c.engines[i].Inside()
	s := &c.view.Snapshots[i]
	*s = snapshot{
		AtUs:        atUs,
		QueueDepth:  in.Waiting,
		BatchSize:   in.Running,
		FreeBlocks:  in.FreeBlocks,
		TotalBlocks: in.TotalBlocks,
		StepStartUs: -1,
	}
	if c.cfg.ExportStep {
		s.StepStartUs = in.StepStartUs
	}
}

// close ends the shadows and the engines and returns the result with each engine's own.
func (c *cluster) close() (*Result, error) {
	for i, e := range c.engines {
		if err := c.followShadows(i, -1, math.MaxInt64); err != nil {
			return nil, err
		}
		c.out.Engines = append(c.out.Engines, e.Close())
	}
	return &c.out, nil
}

// record is what happened to one request.
type record struct {
	sim.RequestResult // from its engine, except that ArrivalUs is its first arrival at the gateway
	Class             string
	Priority          int              // priority of its class
	Group             uint64           // group of the workload whose requests share a prefix; 0: none
	SLOTTFTUs         int64            // TTFT target; 0 for none
	Instance          int              // the instance that served it; -1 if it was rejected
	Prefill           trace.Opt[int64] // the instance that computed its prompt, if another decoded
	Tries             int              // number of its arrivals at the gateway
	DecidedUs         int64            // time of the last decision
	Decision          Decision         // the last decision
	Expected          int64            // cached tokens that the index expected on its instance
	Potential         int64            // the most cached tokens that the index expected on any instance at its first arrival
	// Shadowed is set if the request was rejected and a copy of an engine served it all the same,
	// together with all later requests. Shadow is the time from the decision to its first token
	// there, us; unknown if it took longer than FollowedUs.
	Shadowed bool
	Shadow   trace.Opt[int64]
}

// Admitted reports whether the gateway admitted the request.
func (r *record) Admitted() bool { return r.Instance >= 0 }

// TookUs returns the time from the last decision at the gateway to the first token, in us; ok is
// false without a first token.
func (r *record) TookUs() (us int64, ok bool) {
	return r.FirstTokenUs.V - r.DecidedUs, r.FirstTokenUs.OK
}

// Result is the result of one simulation.
type Result struct {
	Records []record // in workload order
	Engines []*sim.Result
	Retries int // number of arrivals of requests that had been rejected before
	// Transfers of KV blocks; nil without prefill and decode instances.
	Transfers *Transfers
}
