package sim

// showStep hands the step to the observer.
func (e *engine) showStep(end int64) {
	if e.obs == nil {
		return
	}
	v := &e.view
	v.Batch, v.EndUs, v.Finished = e.batch, end, e.finished
	v.FreeBlocks = e.pool.free
	v.LabelledPrefillReqs, v.LabelledDecodeReqs, v.LabelledPrefillTokens, v.LabelledDecodeTokens = 0, 0, 0, 0
	v.Members = v.Members[:0]
	for _, s := range e.running {
		n := int64(0)
		if s.stepMark == e.step {
			n = s.newTokens
		}
		v.Members = append(v.Members, Member{Request: s.idx, Computed: s.computed, Prompt: s.prompt, New: n, OutputTokens: s.outputs,
			Preemptions: s.preempted, Blocks: s.blocks, Registered: s.registered, CachedTokens: max(0, s.cached)})
		switch {
		case n == 0:
		case s.outputs == 0:
			v.LabelledPrefillReqs++
			v.LabelledPrefillTokens += n
		default:
			v.LabelledDecodeReqs++
			v.LabelledDecodeTokens += n
		}
	}
	e.obs.Step(v)
}

// kvLog hands KV events to the observer in the producer's order.
type kvLog struct {
	obs     KVObserver
	pending bool
	ev      KVEvent
	hashes  []uint64
}

func (l *kvLog) send(ev KVEvent) {
	l.pending = true
	l.ev = ev
	l.obs.KV(&l.ev)
}

func (l *kvLog) removed(hash uint64) {
	l.hashes = append(l.hashes[:0], hash)
	l.send(KVEvent{Kind: BlockRemoved, Request: -1, Hashes: l.hashes, Blocks: 1})
}

func (l *kvLog) stored(e *engine, s *seq, from, to int64) {
	l.hashes = l.hashes[:0]
	for b := from; b < to; b++ {
		l.hashes = append(l.hashes, s.blockHash(b, e.blockSize))
	}
	ev := KVEvent{Kind: BlockStored, AtUs: e.now, Request: s.idx, Step: e.step, Hashes: l.hashes, Blocks: to - from}
	if from > 0 {
		ev.Parent, ev.HasParent = s.blockHash(from-1, e.blockSize), true
	}
	l.send(ev)
}

// publish marks the end of an update: what came before is one line of the file.
func (l *kvLog) publish(at int64) {
	if l.pending {
		l.pending = false
		l.obs.KV(&KVEvent{Kind: Published, AtUs: at, Request: -1})
	}
}
