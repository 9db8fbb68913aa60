package sim

// This file simulates all engines of a data-parallel deployment on one clock: a rank is one engine,
// with its own scheduler and KV cache. balancer.go sends requests to ranks, lockstep.go makes the
// ranks of a mixture-of-experts model step together.

// allRanks is all engines of a data-parallel deployment behind their API servers. It implements
// [Server].
type allRanks struct {
	engines  []*Engine
	lockstep *lockstep // nil: independent
	balance  *balancer
	until    int64   // RunTo returns before anything at or after it happens, us
	running  *Engine // the engine whose RunTo is being executed; nil for none
}

// newRanks returns idle ranks at time 0, with a seed each. observe may be nil; it gets the steps
// and events of all ranks.
func newRanks(cfg Config, observe Observer, hooks Hooks) (*allRanks, error) {
	d := cfg.Deployment
	r := &allRanks{}
	if d.Model.IsMoE() {
		r.lockstep = newLockstep(&cfg)
	}
	left := hooks.Left
	hooks.Left = func(i int, atUs int64, res *RequestResult) {
		r.balance.forget(i)
		left(i, atUs, res)
	}
	ranksOfServer, _ := d.Balanced()
	for i := range d.DP {
		own := cfg
		own.Seed += i << 32 // far from the seeds that a caller gives to other runs
		obs := observe
		if obs != nil {
			obs = &ofRank{Observer: obs, rank: int(i)}
		}
		e, err := NewEngine(own, obs, hooks)
		if err != nil {
			return nil, err
		}
		r.engines = append(r.engines, e)
		if r.lockstep != nil {
			r.lockstep.join(e)
		}
		// API limits hold over all ranks of the same servers, so these share the first one's counts.
		e.api = r.engines[i-i%ranksOfServer].api
	}
	r.balance = newBalancer(d, r.engines[0].rules)
	return r, nil
}

// Arrive submits request i to the API at atUs, whose server sends it to a rank. The caller must
// have called RunTo(atUs), unless nothing happens before atUs.
func (r *allRanks) Arrive(i int, q *Request, atUs int64) error {
	r.balance.publish(r.engines, atUs)
	return r.engines[r.balance.pickRank(i)].Arrive(i, q, atUs)
}

// RunTo does what [Engine.RunTo] does, for all ranks in the order of time.
func (r *allRanks) RunTo(untilUs int64) error {
	r.until = untilUs
	for {
		first := r.nextRank()
		at := first.NextUs()
		r.balance.publish(r.engines, min(at, r.until)) // before the counts change
		if at >= r.until {
			return nil
		}
		r.running = first
		err := first.RunTo(at + 1)
		r.running = nil
		if err != nil {
			return err
		}
	}
}

// nextRank returns the rank in which something happens first.
func (r *allRanks) nextRank() *Engine {
	first := r.engines[0]
	for _, e := range r.engines[1:] {
		if e.NextUs() < first.NextUs() {
			first = e
		}
	}
	return first
}

// NextUs returns the time at which something happens next in any rank, us; math.MaxInt64 for never.
func (r *allRanks) NextUs() int64 { return r.nextRank().NextUs() }

// Yield does what [Engine.Yield] does, for all ranks.
func (r *allRanks) Yield(atUs int64) {
	r.until = min(r.until, atUs)
	if r.running != nil {
		r.running.Yield(atUs)
	}
}

// Inside returns the sum of [Engine.Inside] over the ranks. StepStartUs is the latest of theirs.
func (r *allRanks) Inside() inside {
	sum := inside{StepStartUs: -1}
	for _, e := range r.engines {
		in := e.Inside()
		sum.Waiting += in.Waiting
		sum.Running += in.Running
		sum.StepStartUs = max(sum.StepStartUs, in.StepStartUs)
		sum.FreeBlocks += in.FreeBlocks
		sum.TotalBlocks += in.TotalBlocks
	}
	return sum
}

// Watch does what [Engine.Watch] does: changed is called when the first rank has a content and when
// the last one has lost it.
func (r *allRanks) Watch(changed func(atUs int64, hash uint64, stored bool)) {
	holders := map[uint64]int{} // ranks that have the content
	for _, e := range r.engines {
		e.Watch(func(atUs int64, hash uint64, stored bool) {
			if stored {
				holders[hash]++
			} else {
				holders[hash]--
			}
			if n := holders[hash]; n == 0 || stored && n == 1 {
				changed(atUs, hash, stored)
			}
		})
	}
}

// Release does what [Engine.Release] does, for the rank to which request i was sent.
func (r *allRanks) Release(i int, atUs int64) { r.engines[r.RankOf(i)].Release(i, atUs) }

// RankOf returns the rank to which request i was sent.
func (r *allRanks) RankOf(i int) int {
	b := r.balance
	server, place := b.splitSlot(b.slots[i])
	return server.first + place
}

// RankOf returns 0, the rank of an engine alone.
func (*Engine) RankOf(int) int { return 0 }

// Close ends the run and returns the sum of the ranks' results; Result.Ranks has each.
func (r *allRanks) Close() *Result {
	ranks := make([]*Result, len(r.engines))
	for i, e := range r.engines {
		ranks[i] = e.Close()
	}
	sum := Totals(ranks)
	sum.Ranks = ranks
	return sum
}

// ofRank is an observer that adds the rank to what it passes on.
type ofRank struct {
	Observer
	rank int
}

// Step passes step v on with its rank.
func (o *ofRank) Step(v *StepView) {
	v.Rank, v.Ranked = o.rank, true
	o.Observer.Step(v)
}
