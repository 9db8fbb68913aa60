package requestfit

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
)

// plantedShare is a load of a server whose prompts had a share cached, of which nothing is stated.
func plantedShare(t *testing.T, truth *coeff.Set, share, rate float64, n int, seed uint64) *Load {
	t.Helper()
	d := h100(t)
	d.Engine.PrefixCaching = true
	l := planted(t, d, truth, rate, n, seed)
	l.Unstated = slices.Repeat([]bool{true}, n)
	l.assume(share)
	l.Seen = nil
	l.experience(t, truth, 0.05, seed)
	l.assume(0)
	return l
}

// priorOf is a prior around a set whose every term has the given relative standard error.
func priorOf(set *coeff.Set, sd float64) *Prior {
	own := *set
	own.Library = nil
	own.Covariance = make([][]float64, len(own.Beta))
	for j, c := range own.Beta {
		own.Covariance[j] = make([]float64, len(own.Beta))
		own.Covariance[j][j] = sd * sd * c.Value * c.Value
	}
	return &Prior{Name: "measured", Set: &own}
}

// intervalOf is the interval of a term.
func intervalOf(l *Learned, name string) (value, low, high float64) {
	for _, c := range l.Set.Beta {
		if c.Name == name {
			return c.Value, c.CI95[0], c.CI95[1]
		}
	}
	return math.NaN(), math.NaN(), math.NaN()
}

// TestCachedShare: what nothing states of cached prompt tokens is estimated with an interval, which widens
// that of what a prompt token costs; a prior of a few percent tells that nothing was cached.
func TestCachedShare(t *testing.T) { testCachedShare(t, 30, "known costs") }

// TestEvalCachedShare: the same of more requests, with the library's prior too, which knows less.
func TestEvalCachedShare(t *testing.T) {
	repo.NeedEval(t)
	testCachedShare(t, 400, "")
}

func testCachedShare(t *testing.T, n int, which string) {
	t.Helper()
	set, err := fit.LibraryFor(h100(t))
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Search = SearchNone
	slow := *set // a prompt token takes longer than what is not known of the front end's work on it
	slow.Beta = slices.Clone(set.Beta)
	for j := range slow.Beta {
		if slow.Beta[j].Name == "prefill_linear_compute" {
			slow.Beta[j].Value *= 16
		}
	}
	for _, c := range []struct {
		name  string
		share float64
		truth *coeff.Set
		prior *Prior
		small bool
	}{
		{"nothing cached, library", 0, set, &Prior{Name: "library", Set: set}, false},
		{"nothing cached, known costs", 0, &slow, priorOf(&slow, 0.01), true},
		{"half cached, library", 0.5, set, &Prior{Name: "library", Set: set}, false},
		{"half cached, known costs", 0.5, set, priorOf(set, 0.02), false},
	} {
		if !strings.Contains(c.name, which) {
			continue
		}
		l := plantedShare(t, c.truth, c.share, 2, n, 7)
		got, err := fitShare(context.Background(), []*Load{l}, nil, c.prior, o)
		if err != nil {
			t.Fatal(err)
		}
		e := got.Level.CachedShare
		want, _, _ := intervalOf(&Learned{Set: withIntervals(c.truth)}, "prefill_linear_compute")
		value, low, high := intervalOf(got, "prefill_linear_compute")
		t.Logf("%s: %s, assumed %.3f; prefill %.3g of %.3g, %.3g to %.3g", c.name, e, e.Share, value/want, 1.0, low/want, high/want)
		if !(e.Low <= c.share && c.share <= e.High) || e.Requests != n || e.IsSmall() != c.small {
			t.Errorf("%s: got %+v, want an interval around %g, small %v", c.name, e, c.share, c.small)
		}
		if !(low <= want && want <= high) {
			t.Errorf("%s: prefill_linear_compute: got %g to %g, want %g inside", c.name, low, high, want)
		}
	}
}

// withIntervals is a set of certain values.
func withIntervals(set *coeff.Set) *coeff.Set {
	out := *set
	out.Beta = slices.Clone(set.Beta)
	for j := range out.Beta {
		out.Beta[j].CI95 = &[2]float64{out.Beta[j].Value, out.Beta[j].Value}
	}
	return &out
}
