package validate

import (
	"context"
	"errors"
	"testing"
)

// TestFailedNoiseIsAnError: a noisy replay that cannot be made is no statement that chance does nothing.
func TestFailedNoiseIsAnError(t *testing.T) {
	broken := errors.New("no engine")
	fresh := func() (engine, error) { return engine{}, broken }
	q, err := (&replayedPhase{}).withStepNoise(context.Background(), 1, fresh, nil, 0, nil)
	if q != nil || !errors.Is(err, broken) {
		t.Errorf("got %v, %v", q, err)
	}
}
