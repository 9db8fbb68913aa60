package sim

import (
	"context"
	"errors"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
)

// A closed channel ends a run that would take for ever.
func TestRunEndsWhenDone(t *testing.T) {
	done := make(chan struct{})
	close(done)
	cfg := DefaultConfig(testkit.Small(1000), &Blackbox{Beta: []float64{100, 0, 0}})
	cfg.Done = done
	cfg.Deployment.Engine.MaxModelLen.V = 1 << 40
	cfg.KVBlocks = 1 << 24
	_, err := Run(cfg, []Request{{ID: "a", PromptTokens: 10, OutputTokens: 1 << 27}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
