package sim

// allRanks are the engines of a data-parallel deployment behind their API servers: a scheduler
// and a KV cache for each. Those of a model with experts go in lockstep, see [lockstep];
// others are engines of their own.
type allRanks struct {
	engines  []*Engine
	lockstep *lockstep // nil: each for itself
	balance  *balancer
	until    int64
	running  *Engine // the one that runs, nil: none
}

// newRanks makes the idle ranks of cfg.Deployment at time 0. observe may be nil.
func newRanks(cfg Config, observe Observer, hooks Hooks) (*allRanks, error) {
	d := cfg.Deployment
	r := &allRanks{}
	if d.Model.IsMoE() {
		r.lockstep = newLockstep(&cfg)
	}
	left := hooks.Left
	hooks.Left = func(i int, atUs int64, res *RequestResult) {
		r.balance.left(i)
		left(i, atUs, res)
	}
	behind, _ := d.Balanced()
	for i := range d.DP {
		own, obs := cfg, observe
		own.Seed += i << 32
		if obs != nil {
			obs = &ofRank{obs, int(i)}
		}
		e, err := NewEngine(own, obs, hooks)
		if err != nil {
			return nil, err
		}
		if r.engines = append(r.engines, e); r.lockstep != nil {
			r.lockstep.join(e)
		}
		e.api = r.engines[i-i%behind].api
	}
	r.balance = newBalancer(d, r.engines[0].rules)
	return r, nil
}

// Arrive hands request i to the API at atUs, which sends it to a rank. RunTo(atUs) comes first, or nothing happens until then.
func (r *allRanks) Arrive(i int, q *Request, atUs int64) error {
	r.balance.publish(r.engines, atUs)
	return r.engines[r.balance.pick(i)].Arrive(i, q, atUs)
}

// RunTo is [Engine.RunTo] for all ranks, in the order of time.
func (r *allRanks) RunTo(untilUs int64) error {
	r.until = untilUs
	for {
		first := r.next()
		at := first.NextUs()
		if r.balance.publish(r.engines, min(at, r.until)); at >= r.until {
			return nil
		}
		r.running = first
		err := first.RunTo(at + 1)
		if r.running = nil; err != nil {
			return err
		}
	}
}

// next is the rank in which something happens next.
func (r *allRanks) next() *Engine {
	first := r.engines[0]
	for _, e := range r.engines[1:] {
		if e.NextUs() < first.NextUs() {
			first = e
		}
	}
	return first
}

// NextUs is when something happens next; math.MaxInt64: never.
func (r *allRanks) NextUs() int64 { return r.next().NextUs() }

// Yield is [Engine.Yield] for all ranks.
func (r *allRanks) Yield(atUs int64) {
	if r.until = min(r.until, atUs); r.running != nil {
		r.running.Yield(atUs)
	}
}

// Inside is [Engine.Inside], the ranks' sum.
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

// Watch is [Engine.Watch]: content is findable while a rank has it.
func (r *allRanks) Watch(told func(atUs int64, hash uint64, stored bool)) {
	ranks := map[uint64]int{}
	for _, e := range r.engines {
		e.Watch(func(atUs int64, hash uint64, stored bool) {
			if ranks[hash]--; stored {
				ranks[hash] += 2
			}
			if n := ranks[hash]; n == 0 || stored && n == 1 {
				told(atUs, hash, stored)
			}
		})
	}
}

// Release is [Engine.Release], of the rank that has the blocks.
func (r *allRanks) Release(i int, atUs int64) { r.engines[r.RankOf(i)].Release(i, atUs) }

// RankOf is the rank that request i was sent to.
func (r *allRanks) RankOf(i int) int {
	of := int(r.balance.of[i])
	return r.balance.servers[of/r.balance.ranks].first + of%r.balance.ranks
}

// RankOf is 0 of an engine alone.
func (*Engine) RankOf(int) int { return 0 }

// Close ends the run: the sum of the ranks' results, which it holds too.
func (r *allRanks) Close() *Result {
	ranks := make([]*Result, len(r.engines))
	for i, e := range r.engines {
		ranks[i] = e.Close()
	}
	sum := Totals(ranks)
	sum.Ranks = ranks
	return sum
}

// ofRank tells an observer which rank it sees.
type ofRank struct {
	Observer
	rank int
}

// Step passes a step on.
func (o *ofRank) Step(v *StepView) {
	v.Rank, v.Ranked = o.rank, true
	o.Observer.Step(v)
}
