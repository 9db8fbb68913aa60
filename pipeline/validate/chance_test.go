package validate

import (
	"context"
	"errors"
	"testing"
)

// TestFailedNoiseIsAnError: a noisy replay that cannot be made is no statement that chance does nothing.
func TestFailedNoiseIsAnError(t *testing.T) {
	broken := errors.New("no engine")
	q, err := (&replayedPhase{}).chances(context.Background(), 1, func() (engine, error) { return engine{}, broken }, nil, 0)
	if q != nil || !errors.Is(err, broken) {
		t.Errorf("got %v, %v", q, err)
	}
}
