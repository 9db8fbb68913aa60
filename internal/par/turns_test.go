package par

import (
	"slices"
	"testing"
)

// TestTurns: parts of tasks that run together are done in the order of the tasks, also after a task that ended early or
// panicked.
func TestTurns(t *testing.T) {
	for range 20 {
		turns := NewTurns()
		var order []int // appended to in turns alone, so that the race detector finds an overlap
		begun := make(chan bool, 8)
		func() {
			defer func() {
				if p, ok := recover().(*Panic); !ok || p.Value != "five" {
					t.Errorf("got panic %v, want five", p)
				}
			}()
			Each(8, 8, func(_, i int) {
				defer turns.End(i)
				if begun <- true; i == 0 {
					for len(begun) < 8 { // all tasks run before the first one ends
					}
				}
				switch i {
				case 3:
					return
				case 5:
					panic("five")
				}
				turns.After(i - 1)
				order = append(order, i)
			})
		}()
		if want := []int{0, 1, 2, 4, 6, 7}; !slices.Equal(order, want) {
			t.Fatalf("got %v, want %v", order, want)
		}
	}
}
