package fit

import (
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
)

func TestEveryAmendmentHasATrigger(t *testing.T) {
	if len(entries) != len(features.Amendments()) {
		t.Fatalf("%d triggers, %d amendments", len(entries), len(features.Amendments()))
	}
	for i, a := range features.Amendments() {
		if entries[i].name != a.Name {
			t.Errorf("trigger %d is that of %s, want %s", i, entries[i].name, a.Name)
		}
	}
}

// An amendment wins by the hold-out, unless configurations left out say otherwise; a fit that fails
// is a note.
func TestWhatWins(t *testing.T) {
	fitOf := func(holdOut, leftOut float64) *result.Fit {
		return &result.Fit{Beta: result.Model{Holdout: &result.Errors{MAPE: &holdOut}, LocoMedian: &leftOut}}
	}
	for _, c := range []struct {
		with, left float64
		wins       bool
	}{{0.09, 0.1, true}, {0.09, 0.11, false}, {0.099, 0.1, false}, {0.11, 0.05, false}} {
		r := result.Amendment{Model: "steps"}
		setBeside(&r, fitOf(0.1, 0.1), fitOf(c.with, c.left), nil)
		if r.Wins != c.wins || r.Verdict() == "" {
			t.Errorf("%v: got %+v", c, r)
		}
	}
	r := result.Amendment{Model: "waits"}
	if setBeside(&r, fitOf(0.1, 0.1), fitOf(0.1, 0.1), nil); r.Note == "" || r.Wins {
		t.Errorf("no waits: got %+v, want a note", r)
	}
}

func TestTriggersReadFullServers(t *testing.T) {
	b := &base{doc: &result.Fit{}}
	for range 30 {
		b.waits = append(b.waits, wait{seats: 1, memory: 0.2, gate: 1, queue: 1, us: 100, predUs: 150},
			wait{seats: 0.1, memory: 0.95, gate: 0.95, queue: 1, us: 100, predUs: 50},
			wait{seats: 0.1, memory: 0.1, gate: 0.2, us: 100, predUs: 900})
	}
	b.waits[0].queue = 61
	if got := b.fullError(); got != 0.5 {
		t.Errorf("error on a full server: got %g, want 0.5", got)
	}
	if got := b.bothFull(); got != 0.5 {
		t.Errorf("the rarer reason: got %g, want 0.5", got)
	}
	if got := b.queueTail(); got != 30.5 {
		t.Errorf("longest queue over the mean: got %g, want 30.5", got)
	}
	if got := (&base{doc: &result.Fit{}}).fullError(); got == got {
		t.Errorf("no rows: got %g, want nothing", got)
	}
}
