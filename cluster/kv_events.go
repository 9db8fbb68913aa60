package cluster

// Events is the gateway's view of which blocks each engine has, from the engines' KV events. Events
// arrive DelayUs after they happened.
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

// newEvents makes an empty view with a delay.
func newEvents(delayUs int64) *Events { return &Events{DelayUs: delayUs, where: map[uint64]uint64{}} }

// Add adds an event that happened at atUs. Events of one instance must be in order. Those of
// several may be up to a step out of order, which does not reorder events of one instance.
func (e *Events) Add(instance int, atUs int64, hash uint64, stored bool) {
	e.queue = append(e.queue, kvEvent{atUs, hash, int32(instance), stored})
}

// Match is like index.Match, by the events that have arrived by nowUs.
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
