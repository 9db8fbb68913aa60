package cluster

// Events is which blocks each engine said it has, some time ago.
type Events struct {
	DelayUs int64
	where   map[uint64]uint64
	queue   []kvEvent
	head    int
}

type kvEvent struct {
	atUs     int64
	hash     uint64
	instance int32
	stored   bool
}

// newEvents is an empty store whose events arrive delayUs after they happened.
func newEvents(delayUs int64) *Events { return &Events{DelayUs: delayUs, where: map[uint64]uint64{}} }

// Add notes an event. Events of one instance come in order; those of several may
// lie a step apart, which moves none beyond another of its own instance.
func (e *Events) Add(instance int, atUs int64, hash uint64, stored bool) {
	e.queue = append(e.queue, kvEvent{atUs, hash, int32(instance), stored})
}

// Match is Index.Match of the events that have arrived by nowUs.
func (e *Events) Match(hashes []uint64, nowUs int64, to []int64) {
	for ; e.head < len(e.queue) && e.queue[e.head].atUs+e.DelayUs <= nowUs; e.head++ {
		ev := &e.queue[e.head]
		if bit := uint64(1) << ev.instance; ev.stored {
			e.where[ev.hash] |= bit
		} else if e.where[ev.hash] &^= bit; e.where[ev.hash] == 0 {
			delete(e.where, ev.hash)
		}
	}
	if e.head > 4096 && 2*e.head > len(e.queue) {
		e.queue = append(e.queue[:0], e.queue[e.head:]...)
		e.head = 0
	}
	(&index{where: e.where}).Match(hashes, to)
}
