package sim

// Heap is a binary heap that returns its items in the order of Before. Of any two items one must be
// before the other, so that the order does not depend on how they were added. It holds the items in
// a slice without the boxing of container/heap, because each event of a simulation passes one.
type Heap[T interface{ Before(T) bool }] []T

// Push adds an item.
func (h *Heap[T]) Push(x T) {
	q := append(*h, x)
	*h = q
	for i := len(q) - 1; i > 0; {
		p := (i - 1) / 2
		if !q[i].Before(q[p]) {
			return
		}
		q[i], q[p] = q[p], q[i]
		i = p
	}
}

// Pop removes the first item and returns it. The heap must not be empty.
func (h *Heap[T]) Pop() T {
	q := *h
	top, last := q[0], len(q)-1
	q[0] = q[last]
	q = q[:last]
	*h = q
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(q) {
			return top
		}
		if c+1 < len(q) && q[c+1].Before(q[c]) {
			c++
		}
		if !q[c].Before(q[i]) {
			return top
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
}
