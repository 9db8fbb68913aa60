package sim

// What happens outside the engine, ordered by (time, sequence number).

type outsideKind uint8

const (
	outsideArrive outsideKind = iota
	outsideEnqueue
	outsideAbort
	outsideDepart
)

type outsideEvent struct {
	at   int64
	seq  int64
	kind outsideKind
	req  int32
}

// outsideQueue is a binary heap of outside events. The open-loop arrivals are
// kept apart, as an order over the workload, so that the heap stays small.
type outsideQueue struct {
	heap []outsideEvent
	seq  int64
}

func (a *outsideEvent) before(b *outsideEvent) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *outsideQueue) push(at int64, kind outsideKind, req int) {
	q.seq++
	q.heap = append(q.heap, outsideEvent{at, q.seq, kind, int32(req)})
	h := q.heap
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func (q *outsideQueue) pop() outsideEvent {
	h := q.heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	q.heap = h[:last]
	h = q.heap
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return top
		}
		if c+1 < len(h) && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			return top
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
