package sim

// This file shows the state of a running engine, as a gateway or its metrics page would see it.

// inside is the state of an engine as its metrics page would show it. Requests in the input queue
// count as waiting.
type inside struct {
	Waiting     int64 // requests
	Running     int64 // requests
	FreeBlocks  int64
	TotalBlocks int64
	StepStartUs int64 // start of the step that executes; -1 for none
}

// Inside returns the present state of the engine. RunTo must have been called for the present time
// before.
func (e *Engine) Inside() inside {
	start := int64(-1)
	if len(e.flight) > 0 && e.flight[0].tokens > 0 { // the oldest step in flight executes
		start = e.flight[0].start
	}
	return inside{
		Waiting:     int64(e.numWaiting() + len(e.inbox)),
		Running:     int64(len(e.running)),
		FreeBlocks:  e.pool.Free,
		TotalBlocks: e.pool.Total,
		StepStartUs: start,
	}
}

// Work is the internal state of one request in an engine. Policies may not read it; it is for tests
// and reference predictions.
type Work struct {
	Computed  int64 // tokens in KV, including those of the step under way
	Prompt    int64 // tokens
	InStep    int64 // tokens that the step under way computes; 0 where it may be one of decodes alone
	Outputs   int64 // output tokens so far
	Remaining int64 // output tokens that it will still produce
	Priority  int64
	Running   bool
}

// Each calls visit for every request inside the engine: running ones, then waiting ones, then those
// in the input queue.
func (e *Engine) Each(visit func(Work)) {
	scheduled := scheduled(e.cur)
	show := func(s *seq, running bool) {
		w := Work{
			Computed:  s.computed,
			Prompt:    s.prompt,
			Outputs:   s.outputs,
			Remaining: s.target - s.outputs,
			Priority:  s.req.Priority,
			Running:   running,
		}
		if running {
			w.InStep = scheduled.tokensOf(s)
		}
		visit(w)
	}
	for _, s := range e.running {
		show(s, true)
	}
	for _, q := range []*waitQueue{&e.front, &e.waiting} {
		for i := range q.len() {
			show(q.at(i), false)
		}
	}
	for _, s := range e.inbox {
		show(s, false)
	}
}

// Watch makes the engine call changed for every block of shared content that becomes findable
// (stored) or is evicted. It must be called before the first request.
func (e *Engine) Watch(changed func(atUs int64, hash uint64, stored bool)) {
	e.pool.Watch = func(hash uint64, stored bool) { changed(e.now, hash, stored) }
	e.pool.replayLog()
}

// BlockHashes appends to `to` the hashes of the leading blocks of request i that other requests may
// share. Each hash includes the blocks before it.
func (r *Request) BlockHashes(i int, blockSize int64, to []uint64) []uint64 {
	c := r.content(i)
	for b := range c.Shared(blockSize) {
		h, _ := c.Block(b, blockSize)
		to = append(to, h)
	}
	return to
}
