package cluster

// This file handles the events at the gateway: arrival, admission, routing, and what engines report
// back (first tokens, ends). It also has shadows: copies of an engine that serve a rejected
// request to learn which TTFT it would have had.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// kind is a kind of event at the gateway. Events of the same microsecond are processed in this
// order.
type kind uint8

const (
	arrival kind = iota
	admitting
	routing
	handing // a request is sent from a prefill to a decode instance
)

// event is a future event of a request at the gateway.
type event struct {
	at   int64 // us
	kind kind
	seq  int64 // the order of scheduling
	req  int32 // index of the request
}

// Before orders events by time, then kind, then the order in which they were scheduled.
func (a event) Before(b event) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.seq, b.seq)) < 0
}

// events are the future events at the gateway.
type events struct {
	heap sim.Heap[event]
	seq  int64
}

// push schedules an event of kind k for request req at time `at`, us.
func (q *events) push(at int64, k kind, req int) {
	q.seq++
	q.heap.Push(event{at: at, kind: k, seq: q.seq, req: int32(req)})
}

// handleEvent processes the gateway's next event, at time now. New arrivals come before retries, decisions
// and routing of the same time (spec#cluster-order).
func (c *cluster) handleEvent(now int64) error {
	if at, ok := c.src.Next(); ok && at == now {
		c.arrive(c.src.Take(), now)
		return nil
	}
	ev := c.events.heap.Pop()
	switch ev.kind {
	case arrival:
		c.out.Retries++
		c.arrive(int(ev.req), now)
		return nil
	case admitting:
		return c.admitRequest(int(ev.req), now)
	case handing:
		return c.handToDecode(int(ev.req), now)
	default: // routing
		return c.sendRequest(int(ev.req), now)
	}
}

// arrive processes an arrival of request i at the gateway, the first or a retry after a rejection,
// and schedules its admission after the delay cfg.AdmissionUs.
func (c *cluster) arrive(i int, now int64) {
	rec, r := &c.out.Records[i], &c.seen[i]
	rec.Tries++
	if rec.Tries == 1 {
		c.meetRequest(i, now)
	}
	r.Try = rec.Tries - 1
	r.WaitedUs = now - rec.ArrivalUs
	c.events.push(now+c.cfg.AdmissionUs, admitting, i)
}

// meetRequest fills the record of request i and the Request that policies read, at its first
// arrival. Two requests are in one prefix group if their first groupBlocks blocks are equal.
func (c *cluster) meetRequest(i int, now int64) {
	q := &c.reqs[i]
	rec := &c.out.Records[i]
	p := c.cfg.priority(q.SLOClass)
	r := &c.seen[i]
	*r = Request{
		Index:        i,
		Class:        c.view.Ledger.Class(q.SLOClass, p),
		ClassName:    q.SLOClass,
		Priority:     p,
		PromptTokens: q.PromptTokens,
		SLOTTFTUs:    q.SLOTTFTUs,
		Blocks:       q.PromptTokens / c.view.BlockSize,
	}
	r.Hashes = c.hashesOf(i)
	if len(r.Hashes) >= groupBlocks {
		h := r.Hashes[groupBlocks-1]
		c.prefixes[h]++
		if c.prefixes[h] > 1 { // with its first request a group is not known yet
			r.Prefix = h
		}
	}
	rec.ID = q.ID
	rec.ArrivalUs = now
	rec.PromptTokens = q.PromptTokens
	rec.SLOClass = q.SLOClass
	rec.Outcome = sim.OutcomeUnfinished
	rec.Class = q.SLOClass
	rec.Priority = p
	rec.Group = q.Group
	rec.SLOTTFTUs = q.SLOTTFTUs
	rec.Instance = -1
}

// groupBlocks is the number of leading blocks that requests of a prefix group share.
const groupBlocks = 4

// hashesOf returns the hashes of the leading prompt blocks of request i that other requests may
// share. A request with content hashes of its own, or of no group, gets a list of its own. Requests
// of one workload group share their first GroupTokens tokens and get slices of one cached list.
func (c *cluster) hashesOf(i int) []uint64 {
	q := &c.reqs[i]
	if len(q.Hashes) > 0 || q.Group == 0 {
		return q.BlockHashes(i, c.view.BlockSize, nil)
	}
	n := int(min(q.GroupTokens, q.PromptTokens) / c.view.BlockSize)
	if list := c.hashes[q.Group]; len(list) >= n {
		return list[:n]
	}
	list := q.BlockHashes(i, c.view.BlockSize, nil)
	c.hashes[q.Group] = list
	return list
}

// refreshView makes c.view the cluster as it looks for request i at time now: scraped metrics, and
// in Match and Exact how many of its leading blocks each instance is expected to have. It does
// nothing if the view is already that.
func (c *cluster) refreshView(i int, now int64) {
	if c.fresh && c.viewOf == i && c.view.NowUs == now {
		return
	}
	c.view.NowUs = now
	c.viewOf = i
	c.fresh = true
	if c.cfg.RefreshUs == 0 {
		for k := range c.engines {
			c.scrape(k, now)
		}
	}
	r := &c.seen[i]
	if c.exact != nil {
		c.exact.Match(r.Hashes, now, c.view.Exact)
	}
	if c.cfg.Routing.IndexUpdate == kvEvents {
		copy(c.view.Match, c.view.Exact)
	} else {
		c.index.Match(r.Hashes, c.view.Match)
	}
}

// admitRequest asks the policy whether to admit request i. An admitted request is scheduled for
// routing. A rejected one is scheduled to arrive again if the retry policy allows, otherwise it
// leaves with outcome rejected, and a shadow of it may start.
func (c *cluster) admitRequest(i int, now int64) error {
	c.refreshView(i, now)
	r, rec := &c.seen[i], &c.out.Records[i]
	if rec.Tries == 1 {
		for k := range c.view.Match {
			rec.Potential = max(rec.Potential, c.view.CachedTokens(r, k))
		}
	}
	target := c.router.Route(r, &c.view)
	d, err := c.cfg.Policy.Decide(r, &c.view, target)
	if err != nil {
		return err
	}
	rec.Decision = d
	rec.DecidedUs = now
	if d.Admit {
		// A prediction is valid for its instance only. Without one the request is routed again when
		// it is sent, unless nothing can change until then.
		sendsNow := c.cfg.RoutingUs == 0 && len(c.events.heap) == 0
		c.planned[i] = -1
		if !math.IsNaN(d.PredictedUs) || sendsNow {
			c.planned[i] = int32(target)
		}
		c.events.push(now+c.cfg.RoutingUs, routing, i)
		return nil
	}
	retry := &c.cfg.Retry
	if retry.Kind == "backoff" && rec.Tries < retry.Tries {
		delayUs := sim.ToUs(float64(retry.baseUs()) * math.Pow(retry.Factor, float64(rec.Tries-1)))
		c.events.push(now+delayUs, arrival, i)
		return nil
	}
	if err := c.startShadow(i, target, now); err != nil {
		return err
	}
	rec.Outcome = sim.OutcomeRejected
	rec.Reason = trace.Code(d.Reason)
	rec.Judge(&c.reqs[i])
	c.src.Left(i, now, func(int, int64, bool) {}) // no engine runs now that would have to yield to an arrival
	return nil
}

// sendRequest sends an admitted request to the instance for which it was admitted, or to the
// router's present choice if no instance was fixed.
func (c *cluster) sendRequest(i int, now int64) error {
	r, rec := &c.seen[i], &c.out.Records[i]
	target := int(c.planned[i])
	c.refreshView(i, now)
	if target < 0 {
		target = c.router.Route(r, &c.view)
	}
	c.router.Routed(r, target)
	rec.Instance = target
	rec.Expected = c.view.CachedTokens(r, target)
	return c.sendTo(i, target, now)
}

// sendTo sends request i to instance target and records that in the ledger, in the prefix index and
// in the target's shadows.
func (c *cluster) sendTo(i, target int, now int64) error {
	r := &c.seen[i]
	c.view.Ledger.Sent(r, target, now, c.view.CachedTokens(r, target))
	if c.cfg.Routing.IndexUpdate == OnRoute {
		c.index.Record(r, target)
	}
	c.fresh = false
	if err := c.followShadows(target, i, now); err != nil {
		return err
	}
	return c.engines[target].Arrive(i, c.requestFor(i, target, now), now)
}

// firstToken is called by an engine when request i gets its first token. The policy learns from it
// (not for a prefill instance, whose first token is not the user's), then the ledger and the prefix
// index record it.
func (c *cluster) firstToken(i, instance int, atUs int64) {
	rec := &c.out.Records[i]
	if c.pd == nil || !c.pd.isPrefill[instance] {
		c.cfg.Policy.Seen(&c.seen[i], &c.view, &rec.Decision, instance, atUs, atUs-rec.DecidedUs)
	}
	c.view.Ledger.FirstToken(i, instance, atUs)
	if c.cfg.Routing.IndexUpdate == onFirstToken {
		c.index.Record(&c.seen[i], instance)
	}
}

// requestLeft is called by an engine when request i has left it with result r. Unless the request
// goes on to a decode instance, its record gets the result, and requests that waited for its end
// may arrive.
func (c *cluster) requestLeft(i, instance int, atUs int64, r *sim.RequestResult) {
	rec := &c.out.Records[i]
	c.view.Ledger.Left(i, instance, atUs, r.OutputTokens, r.Outcome == sim.OutcomeFinished)
	if c.handsOver(i, instance, atUs, r) {
		return
	}
	// Latencies count from the arrival at the gateway, not from that at the engine.
	arrivalUs := rec.ArrivalUs
	rec.RequestResult = *r
	c.joinRecords(i, instance, atUs, rec)
	rec.ArrivalUs = arrivalUs
	if arrivalUs != r.ArrivalUs { // the engine judged targets by its own arrival
		rec.Judge(&c.reqs[i])
	}
	c.src.Left(i, atUs, func(_ int, at int64, _ bool) {
		if c.running >= 0 { // it must not run past the arrival that this end caused
			c.engines[c.running].Yield(at)
		}
	})
}

// shadow is a copy of an engine that serves one rejected request, together with all requests that
// the engine itself gets afterwards. It shows which TTFT the rejected request would have had
// (spec#cluster-shadow).
//
// Error bounds of predictions are learned from admitted requests only, so nothing is guaranteed
// about their coverage of shadows.
type shadow struct {
	*sim.Engine       // the copy
	untilUs     int64 // end of the time for which it is simulated
	over        bool  // the rejected request has its first token
}

// streamShadow is the stream of random draws that choose which rejected requests get a shadow.
const streamShadow = 4

// followedTargets is how long a shadow is simulated after the decision, in multiples of its
// request's TTFT target.
const followedTargets = 4

// FollowedUs returns the time from the decision for which the shadow of a request was simulated; -1 without a
// shadow. A shadow without a first token by then counts as one that never gets it.
func (r *record) FollowedUs() int64 {
	switch {
	case !r.Shadowed:
		return -1
	case r.SLOTTFTUs == 0:
		return math.MaxInt64
	}
	return followedTargets * r.SLOTTFTUs
}

// startShadow starts a shadow of rejected request req on a copy of instance i. It does nothing if
// the request is not in the sample (cfg.ShadowShare of requests) or the engine cannot be copied.
func (c *cluster) startShadow(req, i int, now int64) error {
	e, ok := c.engines[i].(*sim.Engine)
	if stat.Draw(uint64(c.cfg.Seed), streamShadow, uint64(req)) >= c.cfg.ShadowShare || !ok || !e.CanClone() {
		return nil
	}
	rec := &c.out.Records[req]
	rec.Shadowed = true
	s := &shadow{untilUs: math.MaxInt64}
	if us := rec.FollowedUs(); us < math.MaxInt64 {
		s.untilUs = now + us
	}
	s.Engine = e.Clone(sim.Hooks{
		First: func(k int, atUs int64) {
			if k == req {
				rec.Shadow = trace.Some(atUs - now)
				s.over = true
				s.Yield(math.MinInt64) // ends its RunTo at once
			}
		},
	})
	c.shadows[i] = append(c.shadows[i], s)
	return s.Arrive(req, &c.reqs[req], now)
}

// followShadows simulates the shadows of instance i up to now and removes those that have their
// answer or have reached their end. The others get request req, which the instance itself gets at
// this time too; req -1 for none.
func (c *cluster) followShadows(i, req int, now int64) error {
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
