package cluster

// This file simulates disaggregated prefill as done by vLLM's NIXL connector
// (vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py) and a proxy
// (spec#cluster-disaggregated). A request is sent to a prefill instance with max_tokens 1. After
// its answer it is sent to a decode instance, which reads the prompt's KV blocks from the prefill
// instance and computes the last prompt token again.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Roles of instances.
const (
	rolePrefill = "prefill"
	roleDecode  = "decode"
)

// transferSpec is the time to transfer KV blocks from a prefill to a decode instance: latency +
// bytes / bandwidth.
type transferSpec struct {
	BandwidthGBs float64 `yaml:"bandwidth_gb_s"` // 1e9 B/s of each device's link
	LatencyUs    int64   `yaml:"latency_us"`     // of a transfer
	ProxyUs      int64   `yaml:"proxy_us"`       // from the prefill's answer to the decode instance's API
	Shared       bool    `yaml:"shared_links"`   // transfers of a rank wait for each other
}

// leaseUs is how long vLLM keeps a prefill's blocks for the decode instance to read
// (VLLM_NIXL_ABORT_REQUEST_TIMEOUT, 480 s by default). Releases with LeavingIsWork renew this lease
// while the request waits at the decode instance, so it does not run out.
const leaseUs = int64(480e6)

// pooled is a router among some of the instances, its members. view and ledger are memory for what
// the inner router sees: the cluster reduced to the members.
type pooled struct {
	router
	members []int
	view    View
	ledger  ledger
}

// Route returns the member that the inner router chooses for r.
func (p *pooled) Route(r *Request, v *View) int {
	p.view = View{
		NowUs:     v.NowUs,
		BlockSize: v.BlockSize,
		Ledger:    &p.ledger,
		Snapshots: gather(p.view.Snapshots, v.Snapshots, p.members),
		Match:     gather(p.view.Match, v.Match, p.members),
	}
	if v.Exact != nil {
		p.view.Exact = gather(p.view.Exact, v.Exact, p.members)
	}
	of := gather(p.ledger.Of, v.Ledger.Of, p.members)
	p.ledger = *v.Ledger
	p.ledger.Of = of
	return p.members[p.router.Route(r, &p.view)]
}

// gather returns the elements of from at the members' indices, in the memory of `to`.
func gather[T any](to, from []T, members []int) []T {
	to = to[:0]
	for _, i := range members {
		to = append(to, from[i])
	}
	return to
}

// disaggregation is the state of a cluster whose instances are either prefill or decode instances.
type disaggregation struct {
	decode     *pooled   // router among the decode instances
	isPrefill  []bool    // by instance; false for decode instances
	linkFreeUs [][]int64 // by instance and data-parallel rank, when the link of its device is free
	requests   []handed  // by request
}

// handed is one request that a prefill and then a decode instance serve.
type handed struct {
	atPrefill sim.Request       // as the prefill instance sees it
	atDecode  sim.Request       // as the decode instance sees it
	prefill   sim.RequestResult // its result at the prefill instance
	from      int               // the prefill instance
	isWaiting bool              // the prefill instance still keeps its blocks
}

// Transfers counts the transfers of KV blocks from prefill to decode instances.
type Transfers struct {
	Count   int     `json:"count"`
	Bytes   float64 `json:"bytes"`   // of one device each
	Us      int64   `json:"sum_us"`  // from the decode instance's admission to the last block
	Expired int     `json:"expired"` // begun after the prefill's lease had ended
}

// disaggregate sets up prefill and decode instances if the spec gives instances roles: c.router
// then chooses among prefill instances, c.pd.decode among the others.
func (c *cluster) disaggregate(list []Scorer) error {
	roles := c.cfg.Instances.roles()
	if !slices.ContainsFunc(roles, func(r string) bool { return r != "" }) {
		return nil
	}
	n := len(c.engines)
	pd := &disaggregation{
		isPrefill:  make([]bool, n),
		linkFreeUs: make([][]int64, n),
		requests:   make([]handed, len(c.reqs)),
	}
	pools := map[string]*pooled{rolePrefill: {}, roleDecode: {}}
	for i, role := range roles {
		pools[role].members = append(pools[role].members, i)
		pd.isPrefill[i] = role == rolePrefill
		pd.linkFreeUs[i] = make([]int64, max(1, c.cfg.Engines[i].Deployment.DP))
	}
	for _, p := range pools {
		var err error
		if p.router, err = newRouter(c.cfg, list, tie{seed: uint64(c.cfg.Seed)}, len(p.members)); err != nil {
			return err
		}
	}
	c.router = pools[rolePrefill]
	pd.decode = pools[roleDecode]
	c.pd = pd
	c.closed = true // the end of a prefill causes an event: engines cannot be advanced one after another
	c.out.Transfers = &Transfers{}
	return nil
}

// roles returns the role of each instance, in order; "" for one that does prefill and decode.
func (n *instances) roles() (out []string) {
	for _, g := range n.Groups {
		out = append(out, slices.Repeat([]string{g.Role}, g.Count)...)
	}
	return out
}

// checkRoles returns an error for roles that cannot serve requests together, and for impossible
// transfer times.
func (s *Spec) checkRoles() error {
	roles := s.Instances.roles()
	for i, g := range s.Instances.Groups {
		if g.Role != "" && g.Role != rolePrefill && g.Role != roleDecode {
			return specErrorf(at("instances", i, "role"), "instances[%d].role: got %q, want prefill or decode", i, g.Role)
		}
	}
	t := &s.Transfer
	hasPrefill := slices.Contains(roles, rolePrefill)
	hasDecode := slices.Contains(roles, roleDecode)
	switch {
	case !(t.BandwidthGBs > 0 && t.BandwidthGBs <= 1e9),
		t.LatencyUs < 0 || t.LatencyUs > sim.LatestUs,
		t.ProxyUs < 0 || t.ProxyUs > sim.LatestUs:
		return specErrorf(at("transfer"), "transfer: got %g GB/s, latency %d us, proxy %d us, want > 0, >= 0 and >= 0",
			t.BandwidthGBs, t.LatencyUs, t.ProxyUs)
	case !hasPrefill && !hasDecode:
		return nil
	case !hasPrefill || !hasDecode || slices.Contains(roles, ""):
		return specErrorf(at("instances"),
			"instances: got roles %q, want prefill and decode instances and no others", roles).
			withHint("instances: [{count: 1, role: prefill}, {count: 2, role: decode}]")
	}
	return s.checkBlind("prefill and decode instances")
}

// checkBlind returns an error if the policy, the routing or shadows would need a prediction for, or
// the state of, a single engine. It is called when an instance is more than one engine; instances
// names these in the error.
func (s *Spec) checkBlind(instances string) error {
	switch {
	case s.NeedsController() ||
		slices.Contains([]string{policyClairvoyant, policySeed, policyLatencySLO}, s.Admission.Policy):
		return specErrorf(at("admission", "policy"), "admission policy: got %q with %s, want one that predicts nothing", s.Admission.Policy,
			instances)
	case s.Routing.Policy == LLMD:
		return specErrorf(at("routing", "policy"), "routing policy: got %q with %s, want round-robin, least-loaded or weighted", LLMD, instances)
	case s.ShadowShare > 0:
		return specErrorf(at("shadow_share"), "shadow_share: got %g with %s, want 0", s.ShadowShare, instances)
	}
	return nil
}

// requestFor returns request i as instance gets it. With disaggregated prefill a prefill instance
// gets it with one output token, and a decode instance with its prompt computed elsewhere; the time
// after which the client aborts counts from the arrival at the gateway.
func (c *cluster) requestFor(i, instance int, now int64) *sim.Request {
	if c.pd == nil {
		return &c.reqs[i]
	}
	h := &c.pd.requests[i]
	own := c.reqs[i]
	if own.AbortAfterUs.OK {
		own.AbortAfterUs.V = max(0, own.AbortAfterUs.V-(now-c.out.Records[i].ArrivalUs))
	}
	if !c.pd.isPrefill[instance] {
		own.RemotePrefill = true
		h.atDecode = own
		return &h.atDecode
	}
	// One token ends the prefill. The blocks stay for SendUs after the end, which never passes:
	// releasePrefill frees them after the transfer. The engine adds SendUs to a time, so it is not the
	// largest number.
	own.OutputTokens = 1
	own.MaxTokens = 1
	own.RemoteDecode = true
	own.SendUs = math.MaxInt64 / 4
	h.from = instance
	h.atPrefill = own
	return &h.atPrefill
}

// handsOver reports whether request i, which has left a prefill instance with result r, goes on to
// a decode instance. If so it keeps r and schedules the handover; if the request did not finish,
// its blocks are released.
func (c *cluster) handsOver(i, instance int, atUs int64, r *sim.RequestResult) bool {
	switch {
	case c.pd == nil || !c.pd.isPrefill[instance]:
		return false
	case r.Outcome != sim.OutcomeFinished: // no instance will read its blocks
		c.engines[instance].Release(i, atUs)
		return false
	}
	h := &c.pd.requests[i]
	h.prefill, h.isWaiting = *r, true
	at := atUs + c.cfg.Transfer.ProxyUs
	c.events.push(at, handing, i)
	if c.running >= 0 {
		c.engines[c.running].Yield(at)
	}
	return true
}

// handToDecode sends request i, whose prompt is computed, to a decode instance that the router
// chooses.
func (c *cluster) handToDecode(i int, now int64) error {
	c.refreshView(i, now)
	target := c.pd.decode.Route(&c.seen[i], &c.view)
	c.pd.decode.Routed(&c.seen[i], target)
	rec := &c.out.Records[i]
	rec.Instance = target
	rec.Prefill = trace.Some(int64(c.pd.requests[i].from))
	return c.sendTo(i, target, now)
}

// loadedAtUs returns the time, us, when the KV blocks of a number of tokens of request i have been
// transferred to decode instance `to`, if the transfer is requested at nowUs (spec#cluster-disaggregated).
// With shared links it waits for earlier transfers of both ranks. It also counts the transfer and
// releases the blocks at the prefill instance.
func (c *cluster) loadedAtUs(to, i int, nowUs, tokens int64) int64 {
	h, t := &c.pd.requests[i], &c.cfg.Transfer
	d := c.cfg.Engines[to].Deployment
	bytes := d.KVBytes(tokens)
	us := sim.ToUs(math.Ceil(bytes / (t.BandwidthGBs * 1e3))) // 1 GB/s is 1e3 bytes/us
	start := nowUs
	if t.Shared {
		here := &c.pd.linkFreeUs[to][c.engines[to].RankOf(i)]
		there := &c.pd.linkFreeUs[h.from][c.engines[h.from].RankOf(i)]
		start = max(start, *here, *there)
		*here, *there = start+us, start+us
	}
	done := start + us + t.LatencyUs
	c.out.Transfers.Count++
	c.out.Transfers.Bytes += bytes
	c.out.Transfers.Us += done - nowUs
	rules, err := c.cfg.Engines[h.from].Deployment.Engine.Rules()
	if err == nil && !rules.LeavingIsWork && start > h.prefill.FinishedUs.V+leaseUs {
		c.out.Transfers.Expired++
	}
	c.releasePrefill(i, done)
	return done
}

// releasePrefill lets the prefill instance of request i free its blocks at atUs, once.
func (c *cluster) releasePrefill(i int, atUs int64) {
	if h := &c.pd.requests[i]; h.isWaiting {
		h.isWaiting = false
		c.engines[h.from].Release(i, atUs)
	}
}

// joinRecords completes the record of a request that a prefill and a decode instance served: when
// it was queued and first scheduled, and the cached tokens, are those of the prefill instance.
func (c *cluster) joinRecords(i, instance int, atUs int64, rec *record) {
	if c.pd == nil || c.pd.isPrefill[instance] {
		return
	}
	p := &c.pd.requests[i].prefill
	rec.EnqueuedUs = p.EnqueuedUs
	rec.QueuedUs = p.QueuedUs
	rec.ScheduledUs = p.ScheduledUs
	rec.ScheduledStep = p.ScheduledStep
	rec.CachedTokens = p.CachedTokens
	rec.Preemptions += p.Preemptions
	c.releasePrefill(i, atUs) // of a request that left before its transfer; others were released by loadedAtUs
}
