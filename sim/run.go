package sim

import (
	"math"
	"slices"
)

// Run simulates the requests (sorted by arrival or not; equal arrivals keep
// their order) on one engine until all have left or cfg.StopUs. obs may be nil.
// Errors: a bad configuration or request, or a prediction that is NaN or infinite.
func Run(cfg Config, reqs []Request, obs Observer) (*Result, error) {
	all := make([]RequestResult, len(reqs))
	res, err := Stream(cfg, reqs, obs, func(i int, r *RequestResult) bool {
		all[i] = *r
		return true
	})
	if err != nil {
		return nil, err
	}
	res.Requests = all
	return res, nil
}

// Stream is Run that keeps no results: left is told of every request as it
// leaves, and at the end of those that never did. r is reused. When left returns
// false the run ends there, and the result says Stopped.
func Stream(cfg Config, reqs []Request, obs Observer, left func(i int, r *RequestResult) bool) (*Result, error) {
	d, err := newDriver(cfg, reqs, obs, left)
	if err != nil {
		return nil, err
	}
	return d.run()
}

// Server is an [Engine], or the ranks of a data-parallel deployment.
type Server interface {
	Arrive(i int, r *Request, atUs int64) error
	RunTo(untilUs int64) error
	NextUs() int64
	Yield(atUs int64)
	Inside() inside
	Watch(told func(atUs int64, hash uint64, stored bool))
	Release(i int, atUs int64)
	RankOf(i int) int
	Close() *Result
}

// NewServer makes the idle engine of cfg at time 0, or with cfg.Ranks its engines. obs may be nil.
func NewServer(cfg Config, obs Observer, hooks Hooks) (Server, error) {
	if cfg.Ranks {
		return newRanks(cfg, obs, hooks)
	}
	return NewEngine(cfg, obs, hooks)
}

// driver feeds a server from one source.
type driver struct {
	Server
	alone   *Engine // the server, where it is one engine whose derivatives are wanted; else nil
	stop    int64
	src     *Source
	reqs    []Request
	tell    func(i int, r *RequestResult) bool
	sent    []bool
	from    map[int]*Derivative // by request that follows an answer
	stopped bool
}

func newDriver(cfg Config, reqs []Request, obs Observer, left func(i int, r *RequestResult) bool) (*driver, error) {
	src, err := NewSource(reqs)
	if err != nil {
		return nil, err
	}
	d := &driver{src: src, reqs: reqs, tell: left, sent: make([]bool, len(reqs))}
	if d.stop = cfg.StopUs; d.stop == 0 {
		d.stop = math.MaxInt64
	}
	if d.Server, err = NewServer(cfg, obs, Hooks{Left: d.left}); cfg.Gradient {
		d.alone, _ = d.Server.(*Engine)
	}
	return d, err
}

func (d *driver) left(i int, atUs int64, r *RequestResult) {
	if d.stopped {
		return
	}
	if !d.tell(i, r) {
		d.stopped = true
		d.Yield(math.MinInt64)
		return
	}
	d.src.Left(i, atUs, func(j int, at int64, followed bool) {
		d.Yield(at)
		if d.alone != nil && followed {
			d.carry(j, &d.alone.visits[i].grad.left)
		}
	})
}

// carry notes the answer that request j follows, for its derivatives.
func (d *driver) carry(j int, left *Derivative) {
	from := d.alone.grad.derivative()
	from.set(left)
	from.Us += float64(d.reqs[j].ThinkUs)
	if d.from == nil {
		d.from = map[int]*Derivative{}
	}
	d.from[j] = &from
}

// send hands the next request to the engine.
func (d *driver) send() error {
	at, _ := d.src.Next()
	i := d.src.Take()
	d.sent[i] = true
	r := &d.reqs[i]
	if d.alone == nil {
		return d.Arrive(i, r, at)
	}
	from := d.from[i]
	delete(d.from, i)
	if r.With > 0 {
		from = &d.alone.visits[r.With-1].grad.arrive
	}
	return d.alone.arrive(i, r, at, from)
}

func (d *driver) run() (*Result, error) {
	stop := d.stop
	for !d.stopped {
		at, more := d.src.Next()
		if !more || at > stop {
			at = stop
		}
		if err := d.RunTo(at); err != nil {
			return nil, err
		}
		switch next, ok := d.src.Next(); {
		case d.stopped:
		case ok && next <= at && next < stop: // a departure may have made another one come first
			if err := d.send(); err != nil {
				return nil, err
			}
		case d.NextUs() >= stop:
			return d.close(), nil
		}
	}
	return d.close(), nil
}

// close ends the run and tells of the requests that have not left.
func (d *driver) close() *Result {
	stopped := d.stopped
	res := d.Close()
	for i := range d.reqs {
		if r := &d.reqs[i]; !d.sent[i] && !d.stopped {
			res := r.result(r.ArrivalUs)
			d.stopped = !d.tell(i, &res)
		}
	}
	res.Stopped = stopped
	return res
}

// InOrder hands results on in workload order, for n requests: each as soon as
// all before it have left.
func InOrder(n int, each func(i int, r *RequestResult) bool) func(i int, r *RequestResult) bool {
	early := make([]*RequestResult, n) // left before one in front of them
	var free []*RequestResult
	next := 0
	return func(i int, r *RequestResult) bool {
		if i > next {
			if len(free) == 0 {
				free = append(free, &RequestResult{})
			}
			last := len(free) - 1
			early[i], free = free[last], free[:last]
			*early[i] = *r
			return true
		}
		for ok := each(i, r); ; ok = each(next, r) {
			if next++; !ok || next == n || early[next] == nil {
				return ok
			}
			r, early[next] = early[next], nil
			free = append(free, r)
		}
	}
}

// Means are what a benchmark prints of a load, ms: means over the requests that
// finished, and their derivatives by the columns of the simulator.
type Means struct {
	Requests       float64
	Steps          int64 // simulated
	Preemptions    int64 // above 0 the KV cache ran out of blocks
	TTFTMs, TPOTMs float64
	TTFTBy, TPOTBy []float64 // ms per unit of the coefficient; nil without Config.Gradient
}

// MeansOf simulates a load. With derivatives a request that finds nobody waiting
// is a new beginning, as in Assess. Errors are those of the simulator.
func MeansOf(cfg Config, reqs []Request) (*Means, error) {
	m := &Means{}
	if cfg.Restarts = true; cfg.Gradient {
		c, err := gradientColumns(&cfg)
		if err != nil {
			return nil, err
		}
		m.TTFTBy, m.TPOTBy = make([]float64, c.N()), make([]float64, c.N())
	}
	res, err := Stream(cfg, reqs, nil, func(_ int, r *RequestResult) bool { m.Add(r); return true })
	if err != nil {
		return nil, err
	}
	m.Steps = res.Steps
	m.Preemptions = res.Preemptions
	m.TTFTMs = m.TTFTMs / m.Requests
	m.TPOTMs = m.TPOTMs / m.Requests
	for j := range m.TTFTBy {
		m.TTFTBy[j] /= m.Requests
		m.TPOTBy[j] /= m.Requests
	}
	return m, nil
}

// Add takes one request in; what did not finish has no times.
func (m *Means) Add(r *RequestResult) {
	ttft, ok1 := r.TTFTUs()
	itl, ok2 := r.ITLUs()
	if !ok1 || !ok2 {
		return
	}
	m.Requests++
	m.TTFTMs += ttft / 1e3
	m.TPOTMs += itl / 1e3
	if g := r.Gradient; g != nil {
		gaps := float64(r.OutputTokens - 1)
		for j := range m.TTFTBy {
			m.TTFTBy[j] += g.TTFT.By[j] / 1e3
			m.TPOTBy[j] += g.Span.By[j] / gaps / 1e3
		}
	}
}

// The steady state of a busy engine is a step in which every running request
// decodes one token and nobody is admitted or preempted. What follows runs such a
// step in two short loops over the running list instead of the general ones;
// the result is the same (TestSteadyPathIsExact).

// isSteady reports whether the next step will be of that kind for certain:
// everybody decodes, nobody can be admitted, and blocks suffice even if every
// request needs one.
func (e *Engine) isSteady() bool {
	n := int64(len(e.running))
	return e.quick && e.allDecode && n > 0 && n <= e.budget && n <= e.pool.Free && (e.waits() == 0 || n >= e.maxSeqs) &&
		len(e.parked)+len(e.leaving) == 0
}

// scheduleSteady forms the step: one token and at most one block for each.
func (e *Engine) scheduleSteady() {
	b := &e.batch
	var context, blocks int64
	size, caching := e.blockSize, e.pool.Caching // loads of the loop
	for _, s := range e.running {
		c := s.computed
		if c == (s.held.N-s.side)*size {
			e.pool.Grow(&s.held, s.held.N+1)
		}
		if caching && c+1 >= (s.held.Registered+1)*size {
			e.registerBlocks(s, c+1)
		}
		context += c
		blocks += s.held.N
		s.computed = c + 1
	}
	b.AddDecodes(int64(len(e.running)), context, blocks)
	for i := range b.reaches {
		r := b.reaches[i]
		near := b.reaches[i].Near()
		entries := int64(0)
		for _, s := range e.running {
			if near > 0 {
				entries += min(s.computed, near)
			} else {
				entries += r.Read(s.computed-1, 1)
			}
		}
		b.reached.AddDecodes(i, entries)
	}
}

// updateSteady gives everybody a token.
func (e *Engine) updateSteady(step int64) {
	left, gaps := false, e.cfg.TokenGaps
	for _, s := range e.running {
		s.outputs++
		if gaps {
			e.gap(s, e.now-s.lastToken)
			s.lastToken = e.now
		}
		if s.outputs >= s.target {
			e.stop(s, step)
			left = true
		}
	}
	if left {
		e.sweep()
	}
}

// Twins are n copies of a workload, each send moved evenly by up to jitterUs to
// either side; the second of every two copies moves them the other way. Requests
// that wait for another one are left alone. The same seed moves them the same.
func Twins(reqs []Request, n int, jitterUs, seed int64) [][]Request {
	out := make([][]Request, n)
	for k := range out {
		out[k] = slices.Clone(reqs)
		for i := range out[k] {
			q := &out[k][i]
			if q.After > 0 || q.Queued || q.With > 0 {
				continue
			}
			by := jitter(uint64(seed), uint64(k/2), uint64(i), jitterUs)
			if k%2 == 1 {
				by = -by
			}
			by = max(by, -q.ArrivalUs)
			q.ArrivalUs += by
			q.EnqueueUs.V += by
			q.AbortAtUs.V += by
		}
	}
	return out
}

// jitter is even in [-most, most].
func jitter(seed, twin, request uint64, most int64) int64 {
	u := mix(mix(seed, twin), request)
	return int64(u%uint64(2*most+1)) - most
}

// AssessTwins is the mean objective of a candidate over its twins, and the
// scores. It stops at the first twin that makes the mean certain to exceed the
// bound; the mean is then a number it exceeds.
func AssessTwins(cfg Config, twins [][]Request, seen []Measured, o Options) (mean float64, scores []*Score, err error) {
	n := float64(len(twins))
	for _, reqs := range twins {
		one := o
		if o.Bound > 0 {
			one.Bound = max(1e-300, n*(o.Bound-mean))
		}
		s, err := assess(cfg, reqs, seen, one)
		if err != nil {
			return 0, nil, err
		}
		scores = append(scores, s)
		if mean += s.Objective / n; s.Stopped || o.Bound > 0 && mean > o.Bound {
			return mean, scores, nil
		}
	}
	return mean, scores, nil
}
