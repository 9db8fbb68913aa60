package validate

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestFailedNoiseIsAnError: a noisy replay that cannot be made is no statement that chance does nothing.
func TestFailedNoiseIsAnError(t *testing.T) {
	broken := errors.New("no engine")
	p := &replayedPhase{newEngines: []func() (engine, error){func() (engine, error) { return engine{}, broken }}}
	q, err := p.withStepNoise(context.Background(), 1, nil, 0, byKind[[]float64]{})
	if !reflect.DeepEqual(q, noisyTimes{}) || !errors.Is(err, broken) {
		t.Errorf("got %v, %v", q, err)
	}
}

// TestFewerReplaysOfLongRecordings: up to 2,000 requests get all replays, more get fewer but seven.
func TestFewerReplaysOfLongRecordings(t *testing.T) {
	for requests, want := range map[int]int{0: 99, 1: 99, 2_000: 99, 2_001: 98, 20_000: 9, 28_286: 7, 1_000_000: 7} {
		if got := noisyReplays(requests); got != want {
			t.Errorf("%d requests: got %d replays, want %d", requests, got, want)
		}
	}
	if got := chanceFactor(chanceReplays); got != 1 {
		t.Errorf("%d replays: got %g, want 1", chanceReplays, got)
	}
}

// TestChanceOfFewerReplays: the chance of seven replays is that of 99 on average over forty trials,
// within 5 %, and its factor is needed.
func TestChanceOfFewerReplays(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const trials = 40
	chanceOf := func(replays int) (mean float64) {
		for range trials {
			noisy := make([][]float64, replays)
			for k := range noisy {
				for range 200 {
					noisy[k] = append(noisy[k], 100*(1+rng.ExpFloat64()))
				}
			}
			var m result.Metric
			compareShapes(&m, noisy[0], noisy)
			mean += *m.ChanceKSD / trials
		}
		return mean
	}
	all := chanceOf(chanceReplays)
	few := chanceOf(fewestReplays)
	if few < 0.95*all || few > 1.05*all {
		t.Errorf("got %.4f of %d replays and %.4f of %d, want them equal", few, fewestReplays, all, chanceReplays)
	}
	if without := few / chanceFactor(fewestReplays); without > 0.8*all {
		t.Errorf("without its factor: got %.4f, want less than %.4f", without, 0.8*all)
	}
}
