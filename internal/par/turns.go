package par

import "sync"

// Turns lets tasks that run at the same time do a part of their work one after the other, in the order
// of their numbers 0, 1 and so on. A task defers End, and calls After with the number before its own
// when it comes to that part.
type Turns struct {
	mu    sync.Mutex
	ended *sync.Cond // another task has ended; with mu
	next  int        // every task before it has ended
}

// NewTurns returns the turns of tasks of which none has ended.
func NewTurns() *Turns {
	t := &Turns{}
	t.ended = sync.NewCond(&t.mu)
	return t
}

// After returns when task i and those before it have ended.
func (t *Turns) After(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next <= i {
		t.ended.Wait()
	}
}

// End ends task i, once those before it have ended.
func (t *Turns) End(i int) {
	t.After(i - 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = i + 1
	t.ended.Broadcast()
}
