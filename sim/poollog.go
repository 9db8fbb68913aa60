package sim

// This file puts off deciding which blocks requests hold. Until something can depend on it, a pool counts
// blocks and logs how many each request took and freed; whatever depends on it replays the log first
// (TestLoggedPoolIsThePool). Most recorded requests share no content that is looked up, and then no
// block is ever named: allocation is a third of the time of such a simulation.

// poolLog is what a pool did while it only counted. A holder is a request from the first block that
// it takes until it frees all its blocks; after a preemption it is another one.
type poolLog struct {
	on      bool
	changes []poolChange
	holders int32     // number of times that a request without blocks took some, which numbers the holders
	ids     [][]int32 // by holder: the blocks found by the replay that the request has not been given yet
}

// poolChange is one change of what a holder holds.
type poolChange struct {
	holder int32
	// blocks is how many blocks it took; if negative it freed all, and -1 - blocks of them were registered.
	blocks int32
}

// mostLogged is the number of changes after which a pool replays its log and goes on without one, so
// that a long simulation does not keep its history.
const mostLogged = 1 << 17

// startLog makes a new pool put off which blocks are taken. There must be no functions to call when one is.
func (p *pool) startLog() {
	p.log.on = p.Caching && p.Removed == nil && p.Taken == nil && p.Watch == nil
}

// add logs a change. A full log ends: it is replayed.
func (l *poolLog) add(p *pool, holder, blocks int32) {
	l.changes = append(l.changes, poolChange{holder, blocks})
	if len(l.changes) == mostLogged {
		p.replayLog()
	}
}

// growLogged does what Grow does while the pool only counts.
func (p *pool) growLogged(h *held, want int64) {
	n := want - h.N
	if n <= 0 {
		return
	}
	if h.holder == 0 {
		p.log.holders++
		h.holder = p.log.holders
	}
	p.Free -= n
	h.N = want
	p.log.add(p, h.holder, int32(n))
}

// dropLogged does what Drop does while the pool only counts.
func (p *pool) dropLogged(h *held) {
	if h.N > 0 {
		p.Free += h.N
		p.Gains += h.N
		p.log.add(p, h.holder, int32(-1-min(h.Registered, h.N)))
	}
	*h = held{}
}

// replayLog takes and frees the blocks of the log, in order, and ends it.
func (p *pool) replayLog() {
	if !p.log.on {
		return
	}
	p.log.on = false // so that Grow and Drop below name blocks
	counts := *p     // with the counts of now, which the replay would change
	p.Free = p.Total
	p.log.ids = make([][]int32, p.log.holders+1)
	for _, c := range p.log.changes {
		h := held{IDs: p.log.ids[c.holder]}
		h.N = int64(len(h.IDs))
		if c.blocks > 0 {
			p.Grow(&h, h.N+int64(c.blocks))
		} else {
			h.Registered = int64(-1 - c.blocks)
			p.Drop(&h)
		}
		p.log.ids[c.holder] = h.IDs
	}
	p.log.changes = p.log.changes[:0]
	p.Misses = counts.Misses
	p.Gains = counts.Gains
}

// identify gives h the blocks that a replayed log found for it.
func (p *pool) identify(h *held) {
	p.replayLog()
	if h.holder != 0 {
		h.IDs = p.log.ids[h.holder]
		h.holder = 0
	}
}
