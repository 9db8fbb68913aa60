package par

import (
	"errors"
	"testing"
)

// TestOneWorkerStopsAtAnError: task 2 fails, so task 3 does not run.
func TestOneWorkerStopsAtAnError(t *testing.T) {
	failed := errors.New("failed")
	last := -1
	err := each(1, 4, func(_, i int) error {
		if last = i; i == 2 {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) || last != 2 {
		t.Errorf("got %v after task %d, want failed after 2", err, last)
	}
}
