package cluster

import (
	"math"
	"testing"
)

// Of eight answers that began together four ended with 40 tokens: their age, 32 to 48, is
// where the other four are, halfway on average, so 4 of 4 + 4/2 end there. Four that begin now
// do not end for two windows.
func TestLeavingByHand(t *testing.T) {
	l := newLedger(2, 12)
	class := l.Class("standard", 3)
	begin := func(from, to int) {
		for k := from; k < to; k++ {
			l.Sent(&Request{Index: k, Class: class, PromptTokens: 100}, 1, 0, 0)
			l.FirstToken(k, 1, 0)
		}
	}
	l.Stepped(1) // nobody's token shows it
	begin(0, 8)
	for range 40 {
		l.Stepped(1)
	}
	if got := l.Leaving(1); got != nil {
		t.Errorf("nobody has ended: got %g", got)
	}
	for k := range 4 {
		l.Left(k, 1, 0, 40, true)
	}
	begin(8, 12)
	if got := l.Leaving(0); got != nil {
		t.Errorf("an idle instance: got %g", got)
	}
	got := l.Leaving(1)
	for w, want := range []float64{4 * 2. / 3 / 8, 4. / 3 * 2 / 3 / (4./3 + 4)} {
		if math.Abs(got[w]-want/ageSteps) > 1e-12 {
			t.Errorf("window %d: got %g, want %g", w, got[w], want/ageSteps)
		}
	}
}
