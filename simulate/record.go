package simulate

// This file writes what happens in a simulation to files.

import (
	"bufio"
	"errors"
	"io"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace/table"
)

// runRecorded simulates the first seed and writes requests and events to files as they happen. add
// is called with the result of every request.
func (s *Simulation) runRecorded(cfg sim.Config, reqs *requests, add func(*sim.RequestResult)) (*sim.Result, error) {
	obs, done, err := s.Observers(reqs.list)
	if err != nil {
		return nil, err
	}
	rows, err := table.Create[sim.RequestResult](s.o.Out, "requests", table.Parquet)
	if err != nil {
		return nil, err
	}
	blis, err := s.o.blisWriter()
	if err != nil {
		rows.Abort()
		return nil, err
	}
	i := 0
	res, err := reqs.stream(cfg, obs, func(r *sim.RequestResult) error {
		add(r)
		i++
		return errors.Join(rows.Append(*r.Timed()), blis.writeRequest(i-1, r))
	})
	if err != nil {
		rows.Abort()
		if blis != nil {
			blis.f.Abort()
		}
		return nil, err
	}
	if err := errors.Join(rows.Close(), blis.close()); err != nil {
		return nil, err
	}
	return res, done(res)
}

// stream simulates the requests and calls each with the result of every request, in the order of
// the workload.
func (q *requests) stream(cfg sim.Config, obs sim.Observer, each func(*sim.RequestResult) error) (res *sim.Result, err error) {
	var failed error
	left := sim.InOrder(q.len(), func(_ int, r *sim.RequestResult) bool {
		failed = each(r)
		return failed == nil
	})
	if q.drawn.N > 0 {
		res, err = sim.StreamDrawn(cfg, q.drawn, left)
	} else {
		res, err = sim.Stream(cfg, q.list, obs, left)
	}
	return res, errors.Join(err, failed)
}

// Observers opens the event log and the trace dump that the options ask for, and returns the
// observer that writes them; nil if there are none. done completes the files and gives them their
// names.
func (s *Simulation) Observers(reqs []sim.Request) (obs sim.Observer, done func(*sim.Result) error, err error) {
	var both manyObservers
	var closers []func(*sim.Result) error
	if path := s.o.EventLog; path != "" {
		f, err := files.Begin(path)
		if err != nil {
			return nil, nil, err
		}
		log := &sim.Log{W: bufio.NewWriter(f.File), Requests: reqs}
		both = append(both, log)
		closers = append(closers, func(*sim.Result) error { return errors.Join(log.Flush(), f.Commit()) })
	}
	if path := s.o.EmitOTLP; path != "" {
		dump, closer, err := s.openDump(path, reqs)
		if err != nil {
			return nil, nil, err
		}
		both = append(both, dump)
		closers = append(closers, closer)
	}
	if len(both) > 0 {
		obs = both
	}
	done = func(r *sim.Result) error {
		var errs []error
		for _, closeFile := range closers {
			errs = append(errs, closeFile(r))
		}
		return errors.Join(errs...)
	}
	return obs, done, nil
}

// openDump opens the trace dump and its KV events.
func (s *Simulation) openDump(path string, reqs []sim.Request) (*sim.Dump, func(*sim.Result) error, error) {
	f, err := files.Begin(path)
	if err != nil {
		return nil, nil, err
	}
	var kv *files.Pending
	var events io.Writer
	if name := s.o.EmitKVEvents; name != "" {
		if kv, err = files.Begin(name); err != nil {
			return nil, nil, err
		}
		events = kv
	}
	o := sim.DefaultDumpOptions(s.Deployment)
	o.Seed = s.o.Seed
	dump, err := sim.NewDump(f, events, s.Deployment, reqs, o)
	if err != nil {
		return nil, nil, err
	}
	return dump, func(r *sim.Result) error {
		err := errors.Join(dump.Close(r.Steps), f.Commit())
		if kv != nil {
			err = errors.Join(err, kv.Commit())
		}
		return err
	}, nil
}

// manyObservers passes steps and events to several observers.
type manyObservers []sim.Observer

// Step passes a step to every observer.
func (m manyObservers) Step(v *sim.StepView) {
	for _, o := range m {
		o.Step(v)
	}
}

// Event passes an event to every observer.
func (m manyObservers) Event(e *sim.Event) {
	for _, o := range m {
		o.Event(e)
	}
}

// KV passes a KV event to the observers that accept them.
func (m manyObservers) KV(e *sim.KVEvent) {
	for _, o := range m {
		if kv, ok := o.(sim.KVObserver); ok {
			kv.KV(e)
		}
	}
}
