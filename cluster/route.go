package cluster

// This file chooses an instance for a request: round-robin, least-loaded and weighted scores. Its
// second part, below ParseScorers, simulates instances that are divided into prefill and decode
// instances.

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// router chooses the instance for a request. Route has no effect on the router's state, because
// admission asks it too; Routed is called when a request is really sent to the chosen instance.
type router interface {
	Route(r *Request, v *View) int
	Routed(r *Request, instance int)
}

// Policies of routing.
const (
	RoundRobin  = "round-robin"
	LeastLoaded = "least-loaded"
	Weighted    = "weighted"
)

// streamTies is the key of the random draws that decide ties.
const streamTies = 1

// newRouter returns the router that cfg.Routing names. list are the scorers of a weighted one, t
// breaks ties.
func newRouter(cfg *Config, list []Scorer, t tie, instances int) (router, error) {
	switch cfg.Routing.Policy {
	case RoundRobin:
		return &roundRobin{n: instances}, nil
	case LeastLoaded:
		return &leastLoaded{tie: t}, nil
	case Weighted:
		return newWeighted(list, t, instances), nil
	case LLMD:
		return newLLMD(cfg), nil
	}
	return nil, trace.Errorf(codeBadSpec,
		"routing policy: got %q, want round-robin, least-loaded, weighted or llmd", cfg.Routing.Policy)
}

// newWeighted returns a router that adds scores, with weights normalised to a sum of 1.
func newWeighted(list []Scorer, t tie, instances int) *weighted {
	w := &weighted{tie: t, total: make([]float64, instances), one: make([]float64, instances)}
	sum := 0.0
	for _, s := range list {
		sum += s.Weight
	}
	for _, s := range list {
		w.scores = append(w.scores, scorers[s.Name])
		w.weights = append(w.weights, s.Weight/sum)
	}
	return w
}

// Weigh returns the weighted score of every instance for a request.
func Weigh(list []Scorer, r *Request, v *View) []float64 {
	w := newWeighted(list, tie{}, len(v.Snapshots))
	w.weigh(r, v)
	return w.total
}

// readsEvents reports whether the scorers need the engines' own KV events.
func readsEvents(list []Scorer) bool {
	return slices.ContainsFunc(list, func(s Scorer) bool { return s.Name == "precise-prefix-cache" })
}

// roundRobin uses the instances in turn.
type roundRobin struct{ n, next int }

// Route returns the next instance.
func (r *roundRobin) Route(*Request, *View) int { return r.next }

// Routed moves on to the instance after it.
func (r *roundRobin) Routed(*Request, int) { r.next = (r.next + 1) % r.n }

// tie chooses among instances of equal score.
type tie struct {
	seed   uint64
	choose func(n int) int // among n equal instances; nil: by the seed and the request
	equal  []int
}

// bestInstance returns the one of n instances with the largest value; ties are broken by t.
func (t *tie) bestInstance(r *Request, n int, value func(i int) float64) int {
	t.equal = append(t.equal[:0], 0)
	for i := 1; i < n; i++ {
		switch top := value(t.equal[0]); {
		case value(i) > top:
			t.equal = append(t.equal[:0], i)
		case value(i) == top:
			t.equal = append(t.equal, i)
		}
	}
	switch {
	case len(t.equal) == 1:
		return t.equal[0]
	case t.choose != nil:
		return t.equal[t.choose(len(t.equal))]
	}
	return t.equal[stat.DrawN(uint64(len(t.equal)), t.seed, streamTies, uint64(r.Index))]
}

// leastLoaded chooses the instance with the smallest View.Load.
type leastLoaded struct{ tie }

// Route returns the least loaded instance.
func (l *leastLoaded) Route(r *Request, v *View) int {
	return l.bestInstance(r, len(v.Snapshots), func(i int) float64 { return -float64(v.Load(i)) })
}

// Routed does nothing: the load is read from the view.
func (l *leastLoaded) Routed(*Request, int) {}

// weighted chooses the instance with the largest weighted sum of scores, each limited to [0, 1].
// one is memory for the scores of one scorer, total for the sums.
type weighted struct {
	tie
	scores              []score
	weights, total, one []float64
}

// Route returns the instance with the largest sum for r.
func (w *weighted) Route(r *Request, v *View) int {
	w.weigh(r, v)
	return w.bestInstance(r, len(w.total), func(i int) float64 { return w.total[i] })
}

// weigh sets w.total to the weighted sum of every instance for r.
func (w *weighted) weigh(r *Request, v *View) {
	clear(w.total)
	for k, s := range w.scores {
		s(r, v, w.one)
		for i := range w.total {
			w.total[i] += min(1, max(0, w.one[i])) * w.weights[k]
		}
	}
}

// Routed does nothing: the scores are read from the view.
func (w *weighted) Routed(*Request, int) {}

// Scorer is one term of a weighted score: the name of a scorer and its weight.
type Scorer struct {
	Name   string
	Weight float64
}

// score computes the score of every instance for a request and writes it to the slice `to`.
type score func(r *Request, v *View, to []float64)

// scorers are the scores by name. They follow BLIS (inference-sim) and llm-d's scheduler.
// queue-depth-effective is what BLIS called queue-depth before that came to mean the waiting queue
// alone.
var scorers = map[string]score{
	"prefix-affinity": func(r *Request, v *View, to []float64) {
		for i := range to {
			to[i] = 0
			if r.Blocks > 0 {
				to[i] = float64(v.Match[i]) / float64(r.Blocks)
			}
		}
	},
	"queue-depth": func(_ *Request, v *View, to []float64) {
		scoreFewest(to, func(i int) int64 { return v.Snapshots[i].QueueDepth })
	},
	"queue-depth-effective": func(_ *Request, v *View, to []float64) { scoreFewest(to, v.Load) },
	"kv-utilization": func(_ *Request, v *View, to []float64) {
		for i := range to {
			to[i] = 1 - v.Snapshots[i].KVUsage()
		}
	},
	"load-balance": func(_ *Request, v *View, to []float64) {
		for i := range to {
			to[i] = 1 / (1 + float64(v.Load(i)))
		}
	},
	"precise-prefix-cache": func(_ *Request, v *View, to []float64) {
		scoreFewest(to, func(i int) int64 { return -v.Exact[i] })
	},
}

// short maps the abbreviations that cluster.yaml may use to the names of scorers.
var short = map[string]string{"pa": "prefix-affinity", "qd": "queue-depth", "kv": "kv-utilization",
	"qde": "queue-depth-effective", "ppc": "precise-prefix-cache", "lb": "load-balance"}

// scoreFewest sets `to` from a count of each instance: 1 for the smallest, 0 for the largest,
// linear between; 1 for all if all are equal.
func scoreFewest(to []float64, count func(i int) int64) {
	lo := int64(math.MaxInt64)
	hi := int64(math.MinInt64)
	for i := range to {
		lo = min(lo, count(i))
		hi = max(hi, count(i))
	}
	for i := range to {
		to[i] = 1
		if hi > lo {
			to[i] = float64(hi-count(i)) / float64(hi-lo)
		}
	}
}

// ParseScorers reads weighted scorers such as "pa:4,qd:3", with full or abbreviated names.
func ParseScorers(text string) ([]Scorer, error) {
	var out []Scorer
	for _, part := range strings.Split(text, ",") {
		name, weight, ok := strings.Cut(strings.TrimSpace(part), ":")
		name = cmp.Or(short[name], name)
		w, err := strconv.ParseFloat(weight, 64)
		if scorers[name] == nil || !ok || err != nil || !(w > 0) || math.IsInf(w, 0) {
			return nil, trace.Errorf(codeBadSpec, "scorers: got %q, want NAME:WEIGHT with weight > 0 and one of %s",
				strings.TrimSpace(part), strings.Join(slices.Sorted(maps.Keys(scorers)), ", "))
		}
		if slices.ContainsFunc(out, func(s Scorer) bool { return s.Name == name }) {
			return nil, trace.Errorf(codeBadSpec, "scorers: got %s twice, want each once", name)
		}
		out = append(out, Scorer{name, w})
	}
	return out, nil
}

// rateDecay returns the factor, in (0, 1], by which an exponentially averaged rate falls in a time
// of us microseconds.
func rateDecay(us int64) float64 { return math.Exp(-float64(us) / rateWindowUs) }

// The rest of this file simulates disaggregated prefill as done by vLLM's NIXL connector
// (vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py) and a proxy
// (spec#cluster-disaggregated). A request is sent to a prefill instance with max_tokens 1. After
// its answer it is sent to a decode instance, which reads the prompt's KV blocks from the prefill
// instance and computes the last prompt token again.

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

// leaseUs is how long vLLM releases before 0.23 keep a prefill's blocks for the decode instance to
// read. Later releases renew the lease while the request waits at the decode instance.
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
	decode    *pooled
	isPrefill []bool
	free      [][]int64 // for each instance and data-parallel rank, when its link is free, us
	requests  []handed
}

// handed is one request that a prefill and then a decode instance serve.
type handed struct {
	at        [2]sim.Request    // as the prefill and the decode instance see it
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
		isPrefill: make([]bool, n),
		free:      make([][]int64, n),
		requests:  make([]handed, len(c.reqs)),
	}
	pools := map[string]*pooled{rolePrefill: {}, roleDecode: {}}
	for i, role := range roles {
		pools[role].members = append(pools[role].members, i)
		pd.isPrefill[i] = role == rolePrefill
		pd.free[i] = make([]int64, max(1, c.cfg.Engines[i].Deployment.DP))
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
	c.closed = true
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
			return specErrorf("instances[%d].role: got %q, want prefill or decode", i, g.Role)
		}
	}
	t := &s.Transfer
	hasPrefill := slices.Contains(roles, rolePrefill)
	hasDecode := slices.Contains(roles, roleDecode)
	switch {
	case !(t.BandwidthGBs > 0 && t.BandwidthGBs <= 1e9),
		t.LatencyUs < 0 || t.LatencyUs > sim.LatestUs,
		t.ProxyUs < 0 || t.ProxyUs > sim.LatestUs:
		return specErrorf("transfer: got %g GB/s, latency %d us, proxy %d us, want > 0, >= 0 and >= 0",
			t.BandwidthGBs, t.LatencyUs, t.ProxyUs)
	case !hasPrefill && !hasDecode:
		return nil
	case !hasPrefill || !hasDecode || slices.Contains(roles, ""):
		return trace.Errorf(codeBadSpec,
			"instances: got roles %q, want prefill and decode instances and no others", roles).
			WithHint("instances: [{count: 1, role: prefill}, {count: 2, role: decode}]")
	}
	return s.checkBlind("prefill and decode instances")
}

// checkBlind returns an error if the policy, the routing or shadows would need a prediction for, or
// the state of, a single engine. It is called when an instance is more than one engine; instances
// names these in the error.
func (s *Spec) checkBlind(instances string) error {
	switch {
	case s.NeedsController() ||
		slices.Contains([]string{"clairvoyant", "predictive-seed", "latency-slo"}, s.Admission.Policy):
		return specErrorf("admission policy: got %q with %s, want one that predicts nothing", s.Admission.Policy,
			instances)
	case s.Routing.Policy == LLMD:
		return specErrorf("routing policy: got %q with %s, want round-robin, least-loaded or weighted", LLMD, instances)
	case s.ShadowShare > 0:
		return specErrorf("shadow_share: got %g with %s, want 0", s.ShadowShare, instances)
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
		h.at[1] = own
		return &h.at[1]
	}
	// One token ends the prefill. SendUs never comes: releasePrefill frees the blocks after the transfer.
	own.OutputTokens = 1
	own.MaxTokens = 1
	own.RemoteDecode = true
	own.SendUs = math.MaxInt64 / 4
	h.from = instance
	h.at[0] = own
	return &h.at[0]
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
// transferred to decode instance `to`, if the transfer is requested at nowUs. With shared links it
// waits for earlier transfers of both ranks. It also counts the transfer and releases the blocks at
// the prefill instance.
func (c *cluster) loadedAtUs(to, i int, nowUs, tokens int64) int64 {
	h, t := &c.pd.requests[i], &c.cfg.Transfer
	d := c.cfg.Engines[to].Deployment
	bytes := d.KVBytes(tokens)
	us := sim.ToUs(math.Ceil(bytes / (t.BandwidthGBs * 1e3)))
	start := nowUs
	if t.Shared {
		here := &c.pd.free[to][c.engines[to].RankOf(i)]
		there := &c.pd.free[h.from][c.engines[h.from].RankOf(i)]
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
	c.releasePrefill(i, atUs)
}
