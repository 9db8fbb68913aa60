package cluster

// This file follows the KV events of the engines, from which a gateway knows which blocks each has
// cached.

// Events is the gateway's view of which blocks each engine has in its cache, from the KV events
// (block stored, block removed) that engines publish. An event reaches the gateway DelayUs after it
// happened.
type Events struct {
	DelayUs int64
	where   map[uint64]uint64 // by block hash, the instances that have it, one bit each
	queue   []kvEvent         // events in the order they were added; those before head have been applied
	head    int
}

// kvEvent is a block that an instance has stored or, if stored is false, removed.
type kvEvent struct {
	atUs     int64
	hash     uint64
	instance int32
	stored   bool
}

// newEvents makes an empty view with a delay.
func newEvents(delayUs int64) *Events { return &Events{DelayUs: delayUs, where: map[uint64]uint64{}} }

// Add adds an event that happened at atUs. Events of one instance must be added in order of time.
// Events of different instances may be up to one step out of order: each sets only its own
// instance's bit.
func (e *Events) Add(instance int, atUs int64, hash uint64, stored bool) {
	e.queue = append(e.queue, kvEvent{atUs, hash, int32(instance), stored})
}

// Match sets to[i] to the number of leading blocks that instance i has according to the events that
// have reached the gateway by nowUs.
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
