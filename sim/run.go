package sim

// This file runs a whole workload through one server: it sends each request at its arrival and
// advances simulated time in between.

import (
	"math"
)

// Run simulates the requests on one engine until all have left or until cfg.StopUs. Requests need
// not be sorted; those with equal arrivals keep their order. obs may be nil. Errors: a bad
// configuration or request, or a prediction that is NaN or infinite.
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

// Stream does what Run does without keeping results: it calls left for every request when it
// leaves, and at the end for those that never did. r is reused after the call. If left returns
// false, the run ends and Result.Stopped is set.
func Stream(cfg Config, reqs []Request, obs Observer, left func(i int, r *RequestResult) bool) (*Result, error) {
	d, err := newDriver(cfg, reqs, obs, left)
	if err != nil {
		return nil, err
	}
	return d.run()
}

// Server is an [Engine], or all ranks of a data-parallel deployment. The methods are those of
// Engine.
type Server interface {
	Arrive(i int, r *Request, atUs int64) error
	RunTo(untilUs int64) error
	NextUs() int64
	Yield(atUs int64)
	Inside() inside
	Watch(changed func(atUs int64, hash uint64, stored bool))
	Release(i int, atUs int64)
	RankOf(i int) int
	Close() *Result
}

// NewServer returns an idle engine at time 0, or with cfg.Ranks all ranks. obs may be nil.
func NewServer(cfg Config, obs Observer, hooks Hooks) (Server, error) {
	if cfg.Ranks {
		return newRanks(cfg, obs, hooks)
	}
	return NewEngine(cfg, obs, hooks)
}

// source gives a driver its requests.
type source interface {
	// Next, Left: as of Source.
	Next() (atUs int64, ok bool)
	Left(i int, atUs int64, sent func(j int, atUs int64, followed bool))
	// take returns the next request and its index, or an error if it is invalid.
	take() (i int, r *Request, err error)
	// unsent calls each for the requests that were not taken, until it returns false.
	unsent(each func(i int, r *Request) bool) error
}

// known is the source of requests that are all in memory.
type known struct {
	*Source
	sent []bool // by index of the request
}

// take returns the next request, which NewSource has checked.
func (k *known) take() (i int, r *Request, err error) {
	i = k.Take()
	k.sent[i] = true
	return i, &k.reqs[i], nil
}

// unsent calls each for the requests that were not taken.
func (k *known) unsent(each func(i int, r *Request) bool) error {
	for i := range k.reqs {
		if !k.sent[i] && !each(i, &k.reqs[i]) {
			break
		}
	}
	return nil
}

// driver sends the requests of a workload to a server and reports their results.
type driver struct {
	Server
	alone   *Engine // the server if it is one engine with derivatives; otherwise nil
	stop    int64   // Config.StopUs, or never
	src     source
	reqs    []Request                          // of known
	onLeft  func(i int, r *RequestResult) bool // the caller's; false stops the run
	from    map[int]*Derivative                // derivatives of the arrival of requests that follow an answer
	leaving int                                // the request for which left is being called
	follow  func(j int, at int64, followed bool)
	stopped bool // onLeft returned false
}

// newDriver returns a driver at time 0. left is called with each result.
func newDriver(cfg Config, reqs []Request, obs Observer, left func(i int, r *RequestResult) bool) (*driver, error) {
	src, err := NewSource(reqs)
	if err != nil {
		return nil, err
	}
	d := &driver{src: &known{Source: src, sent: make([]bool, len(reqs))}, reqs: reqs, onLeft: left}
	return d, d.start(cfg, obs)
}

// start makes the server of the driver.
func (d *driver) start(cfg Config, obs Observer) (err error) {
	d.follow = d.followed // made once, because a method value is allocated
	d.stop = cfg.StopUs
	if d.stop == 0 {
		d.stop = math.MaxInt64
	}
	d.Server, err = NewServer(cfg, obs, Hooks{Left: d.left})
	if cfg.Gradient {
		d.alone, _ = d.Server.(*Engine)
	}
	return err
}

// left is the server's hook for request i: it reports the result, and makes the requests arrive
// that wait for this one's end.
func (d *driver) left(i int, atUs int64, r *RequestResult) {
	if d.stopped {
		return
	}
	if !d.onLeft(i, r) {
		d.stopped = true
		d.Yield(math.MinInt64) // at once
		return
	}
	d.leaving = i
	d.src.Left(i, atUs, d.follow)
}

// followed is called with the arrival of request j, which waited for the one that is leaving. isThink is
// false if its own arrival made it come later than its think time after that.
func (d *driver) followed(j int, at int64, isThink bool) {
	d.Yield(at) // so that request j is sent before the server passes its arrival
	if d.alone != nil && isThink {
		d.carryDerivative(j, &d.alone.visits[d.leaving].grad.left)
	}
}

// carryDerivative stores the derivatives of the arrival time of request j, which follows another
// one's end (left) by its think time.
func (d *driver) carryDerivative(j int, left *Derivative) {
	from := d.alone.grad.derivative()
	from.set(left)
	from.Us += float64(d.reqs[j].ThinkUs)
	if d.from == nil {
		d.from = map[int]*Derivative{}
	}
	d.from[j] = &from
}

// sendNext submits the next request of the workload to the server.
func (d *driver) sendNext() error {
	at, _ := d.src.Next()
	i, r, err := d.src.take()
	if err != nil {
		return err
	}
	if d.alone == nil {
		return d.Arrive(i, r, at)
	}
	from := d.from[i]
	delete(d.from, i)
	if r.With > 0 { // a further sample arrives with its request, which Take returned before
		from = &d.alone.visits[r.With-1].grad.arrive
	}
	return d.alone.arrive(i, r, at, from)
}

// run sends every request at its arrival and advances time between arrivals, until all have left or
// the stop time is reached.
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
		case d.stopped: // the loop ends
		case ok && next <= at && next < stop: // a departure may have made an earlier request due
			if err := d.sendNext(); err != nil {
				return nil, err
			}
		case d.NextUs() >= stop:
			return d.finish()
		}
	}
	return d.finish()
}

// finish ends the run, reports the requests that were never sent, and returns the result.
func (d *driver) finish() (*Result, error) {
	stopped := d.stopped // before the end of time; onLeft may still return false below
	res := d.Close()
	res.Stopped = stopped
	if d.stopped {
		return res, nil
	}
	return res, d.src.unsent(func(i int, r *Request) bool {
		unsent := r.result(r.ArrivalUs)
		return d.onLeft(i, &unsent)
	})
}

// InOrder returns a function for Stream that calls each for n requests in workload order: for a
// request as soon as it and all before it have left.
func InOrder(n int, each func(i int, r *RequestResult) bool) func(i int, r *RequestResult) bool {
	early := make([]*RequestResult, n) // results that wait for an earlier request
	var free []*RequestResult          // memory of early ones that each has seen
	next := 0                          // the request for which each is called next
	return func(i int, r *RequestResult) bool {
		if i > next {
			if len(free) == 0 {
				free = append(free, &RequestResult{})
			}
			last := len(free) - 1
			early[i] = free[last]
			free = free[:last]
			*early[i] = *r
			return true
		}
		for ok := each(i, r); ; ok = each(next, r) { // i is next; then those that waited for it
			if next++; !ok || next == n || early[next] == nil {
				return ok
			}
			r = early[next]
			early[next] = nil
			free = append(free, r) // not overwritten before each has returned
		}
	}
}
