package simulate

import (
	"bufio"
	"errors"
	"io"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
)

// Observers opens the files a run is watched into; done closes them under
// their final names.
func (s *Simulation) Observers(reqs []sim.Request) (sim.Observer, func(*sim.Result) error, error) {
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
		dump, closer, err := s.dump(path, reqs)
		if err != nil {
			return nil, nil, err
		}
		both = append(both, dump)
		closers = append(closers, closer)
	}
	var obs sim.Observer
	if len(both) > 0 {
		obs = both
	}
	return obs, func(r *sim.Result) error {
		return errors.Join(stat.Map(closers, func(c func(*sim.Result) error) error { return c(r) })...)
	}, nil
}

func (s *Simulation) dump(path string, reqs []sim.Request) (*sim.Dump, func(*sim.Result) error, error) {
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

// manyObservers passes everything to each.
type manyObservers []sim.Observer

// Step passes a step on.
func (m manyObservers) Step(v *sim.StepView) {
	for _, o := range m {
		o.Step(v)
	}
}

// Event passes an event on.
func (m manyObservers) Event(e *sim.Event) {
	for _, o := range m {
		o.Event(e)
	}
}

// KV passes a KV event on to those that listen.
func (m manyObservers) KV(e *sim.KVEvent) {
	for _, o := range m {
		if kv, ok := o.(sim.KVObserver); ok {
			kv.KV(e)
		}
	}
}
