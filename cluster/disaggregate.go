package cluster

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Disaggregated prefill, as vLLM's NIXL connector and a proxy do it (spec#cluster-disaggregated): a
// request goes to a prefill instance with max_tokens 1; when that has answered, to a decode instance, which
// reads the prompt's KV blocks from the first and computes the last prompt token again.

// Roles of instances.
const (
	rolePrefill = "prefill"
	roleDecode  = "decode"
)

// transferSpec is how KV blocks come from a prefill to a decode instance: latency + bytes / bandwidth.
type transferSpec struct {
	BandwidthGBs float64 `yaml:"bandwidth_gb_s"` // 1e9 B/s of each device's link
	LatencyUs    int64   `yaml:"latency_us"`     // of a transfer
	ProxyUs      int64   `yaml:"proxy_us"`       // from the prefill's answer to the decode instance's API
	Shared       bool    `yaml:"shared_links"`   // transfers of one instance follow each other; else none meets another
}

// leaseUs is how long releases before 0.23 keep a prefill's blocks for the decode instance; later ones renew the lease
// while the request waits there.
const leaseUs = int64(480e6)

// pooled is a router among some of the instances.
type pooled struct {
	router
	members []int
	view    View
	ledger  ledger
}

// Route chooses among the members.
func (p *pooled) Route(r *Request, v *View) int {
	p.view = View{NowUs: v.NowUs, BlockSize: v.BlockSize, Ledger: &p.ledger, Snapshots: gather(p.view.Snapshots, v.Snapshots, p.members),
		Match: gather(p.view.Match, v.Match, p.members)}
	if v.Exact != nil {
		p.view.Exact = gather(p.view.Exact, v.Exact, p.members)
	}
	of := gather(p.ledger.Of, v.Ledger.Of, p.members)
	p.ledger = *v.Ledger
	p.ledger.Of = of
	return p.members[p.router.Route(r, &p.view)]
}

func gather[T any](to, from []T, members []int) []T {
	to = to[:0]
	for _, i := range members {
		to = append(to, from[i])
	}
	return to
}

// disaggregation is the state of a cluster whose instances have roles.
type disaggregation struct {
	decode    *pooled
	isPrefill []bool
	free      []int64 // by instance: when its link is
	requests  []handed
}

// handed is one request on its way through both.
type handed struct {
	at        [2]sim.Request    // as the prefill and the decode instance see it
	prefill   sim.RequestResult // what it experienced there
	from      int
	isWaiting bool // the prefill instance keeps its blocks
}

// Transfers are those of KV blocks from prefill to decode instances.
type Transfers struct {
	Count   int     `json:"count"`
	Bytes   float64 `json:"bytes"`   // of one device each
	Us      int64   `json:"sum_us"`  // from the decode instance's admission to the last block
	Expired int     `json:"expired"` // begun after the prefill's lease had ended
}

// disaggregate splits the instances by role; nil where they have none.
func (c *cluster) disaggregate(list []Scorer) error {
	roles := c.cfg.Instances.roles()
	if !slices.ContainsFunc(roles, func(r string) bool { return r != "" }) {
		return nil
	}
	n := len(c.engines)
	pd := &disaggregation{isPrefill: make([]bool, n), free: make([]int64, n), requests: make([]handed, len(c.reqs))}
	pools := map[string]*pooled{rolePrefill: {}, roleDecode: {}}
	for i, role := range roles {
		pools[role].members = append(pools[role].members, i)
		pd.isPrefill[i] = role == rolePrefill
	}
	for _, p := range pools {
		var err error
		if p.router, err = newRouter(c.cfg, list, tie{seed: uint64(c.cfg.Seed)}, len(p.members)); err != nil {
			return err
		}
	}
	c.router, pd.decode, c.pd, c.closed = pools[rolePrefill], pools[roleDecode], pd, true
	c.out.Transfers = &Transfers{}
	return nil
}

// roles are those of the instances, by instance.
func (n *instances) roles() (out []string) {
	for _, g := range n.Groups {
		out = append(out, slices.Repeat([]string{g.Role}, g.Count)...)
	}
	return out
}

// checkRoles verifies that roles go together.
func (s *Spec) checkRoles() error {
	roles := s.Instances.roles()
	for i, g := range s.Instances.Groups {
		if g.Role != "" && g.Role != rolePrefill && g.Role != roleDecode {
			return specErrorf("instances[%d].role: got %q, want prefill or decode", i, g.Role)
		}
	}
	t := &s.Transfer
	switch hasPrefill, hasDecode := slices.Contains(roles, rolePrefill), slices.Contains(roles, roleDecode); {
	case !(t.BandwidthGBs > 0 && t.BandwidthGBs <= 1e9) || t.LatencyUs < 0 || t.ProxyUs < 0 || max(t.LatencyUs, t.ProxyUs) > sim.LatestUs:
		return specErrorf("transfer: got %g GB/s, latency %d us, proxy %d us, want > 0, >= 0 and >= 0", t.BandwidthGBs, t.LatencyUs, t.ProxyUs)
	case !hasPrefill && !hasDecode:
		return nil
	case !hasPrefill || !hasDecode || slices.Contains(roles, ""):
		return trace.Errorf(codeBadSpec, "instances: got roles %q, want prefill and decode instances and no others", roles).
			WithHint("instances: [{count: 1, role: prefill}, {count: 2, role: decode}]")
	case s.NeedsController() || slices.Contains([]string{"clairvoyant", "predictive-seed", "latency-slo"}, s.Admission.Policy):
		return specErrorf("admission policy: got %q with prefill and decode instances, want one that predicts nothing", s.Admission.Policy)
	case s.Routing.Policy == LLMD:
		return specErrorf("routing policy: got %q with prefill and decode instances, want round-robin, least-loaded or weighted", LLMD)
	case s.ShadowShare > 0:
		return specErrorf("shadow_share: got %g with prefill and decode instances, want 0", s.ShadowShare)
	}
	return nil
}

// at is request i as its instance sees it.
func (c *cluster) at(i, instance int, now int64) *sim.Request {
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
		h.at[1] = own
		return &h.at[1]
	}
	own.OutputTokens, own.MaxTokens, own.RemoteDecode, own.SendUs = 1, 1, true, math.MaxInt64/4
	h.from = instance
	h.at[0] = own
	return &h.at[0]
}

// handsOver notes what a prefill instance has done with a request; true: a decode instance goes on with it.
func (c *cluster) handsOver(i, instance int, atUs int64, r *sim.RequestResult) bool {
	switch {
	case c.pd == nil || !c.pd.isPrefill[instance]:
		return false
	case r.Outcome != sim.OutcomeFinished: // nobody will read its blocks
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

// hand sends a request with its prompt's KV blocks to a decode instance.
func (c *cluster) hand(i int, now int64) error {
	c.look(i, now)
	target := c.pd.decode.Route(&c.seen[i], &c.view)
	c.pd.decode.Routed(&c.seen[i], target)
	rec := &c.out.Records[i]
	rec.Instance, rec.Prefill = target, trace.Some(int64(c.pd.requests[i].from))
	return c.sendTo(i, target, now)
}

// load is when the KV blocks of so many tokens have come to instance to.
func (c *cluster) load(to, i int, nowUs, tokens int64) int64 {
	h, t := &c.pd.requests[i], &c.cfg.Transfer
	d := c.cfg.Engines[to].Deployment
	bytes := float64(math.Ceil(float64(tokens)/float64(d.Engine.BlockSize)) * d.KVBlockBytes())
	us, start := sim.ToUs(math.Ceil(bytes/(t.BandwidthGBs*1e3))), nowUs
	if t.Shared {
		start = max(start, c.pd.free[to], c.pd.free[h.from])
		c.pd.free[to], c.pd.free[h.from] = start+us, start+us
	}
	done := start + us + t.LatencyUs
	c.out.Transfers.Count++
	c.out.Transfers.Bytes += bytes
	c.out.Transfers.Us += done - nowUs
	rules, err := c.cfg.Engines[h.from].Deployment.Engine.Rules()
	if err == nil && !rules.LeavingIsWork && start > h.prefill.FinishedUs.V+leaseUs {
		c.out.Transfers.Expired++
	}
	c.release(i, done)
	return done
}

// release lets the prefill instance of request i have its blocks back, at atUs.
func (c *cluster) release(i int, atUs int64) {
	if h := &c.pd.requests[i]; h.isWaiting {
		h.isWaiting = false
		c.engines[h.from].Release(i, atUs)
	}
}

// join puts what both instances did with a request into one result: queued and admitted by the prefill instance,
// with the tokens it found cached.
func (c *cluster) join(i, instance int, atUs int64, rec *record) {
	if c.pd == nil || c.pd.isPrefill[instance] {
		return
	}
	p := &c.pd.requests[i].prefill
	rec.EnqueuedUs, rec.QueuedUs, rec.ScheduledUs, rec.ScheduledStep = p.EnqueuedUs, p.QueuedUs, p.ScheduledUs, p.ScheduledStep
	rec.CachedTokens = p.CachedTokens
	rec.Preemptions += p.Preemptions
	c.release(i, atUs)
}
