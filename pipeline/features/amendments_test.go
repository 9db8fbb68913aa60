package features

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
)

// everyAmendment is a version with all of them.
func everyAmendment(v Version) Version {
	for _, a := range Amendments() {
		v = v.With(a.Name)
	}
	return v
}

// The formula of every slot of an amended version is what its function computes, on dense models
// and mixtures.
func TestAmendedFormulas(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 1))
	for _, base := range []Version{V11, V12} {
		v := everyAmendment(base)
		for _, d := range []*deploy.Deployment{dense(2), moe(2)} {
			s := space(t, v, d)
			x, y := make([]float64, len(s.beta)), make([]float64, len(s.alpha))
			for range 200 {
				in, q := randomStep(r, s), randomQueue(r, s)
				if _, err := s.Beta(&in, x); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Alpha(&q, y); err != nil {
					t.Fatal(err)
				}
				compareFormulas(t, s.scope(in.Values(), s.beta, x), s.beta, x)
				compareFormulas(t, s.scope(q.Values(), s.alpha, y), s.alpha, y)
			}
		}
	}
}

func compareFormulas(t *testing.T, sc *scope, fs []Feature, x []float64) {
	t.Helper()
	for i := range fs {
		got, err := sc.eval(fs[i].Formula)
		if err != nil || !close(min(fs[i].Bound, got), x[i]) {
			t.Fatalf("%s: the formula gives %g (%v), the function %g", fs[i].Name, got, err, x[i])
		}
	}
}

func TestAmendmentsChangeWhatTheySay(t *testing.T) {
	if !slices.IsSortedFunc(Amendments(), func(a, b Amendment) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the amendments are not sorted by name")
	}
	plain := SetOf(V11)
	for _, a := range Amendments() {
		got := SetOf(V11.With(a.Name))
		if changes := len(a.beta)+len(a.alpha) > 0; changes == (got.Hash == plain.Hash) {
			t.Errorf("%s: hash %s beside %s of 1.1", a.Name, got.Hash, plain.Hash)
		}
		if got := V11.With(a.Name).Base(); got != V11 {
			t.Errorf("%s: got base %s, want 1.1", a.Name, got)
		}
	}
	var q QueueInput
	s := space(t, V11.With("queue-pole"), dense(1))
	for running, want := range map[float64]float64{0: 0, 128: 1, 256: 100} {
		q.RunningDepth = running
		if got := queuePole.alpha(s, &q); !close(got, want) {
			t.Errorf("pole at %g of 256 seats: got %g, want %g", running, got, want)
		}
	}
	in := StepInput{PrefillTokens: 512, NumPrefillReqs: 1, DecodeTokens: 3}
	if got := diverse(&in); got < 10 || got > 11 {
		t.Errorf("3 decodes and a prompt of 512 tokens: got %g tokens' worth of experts, want 4 + ln(512)", got)
	}
}

func TestUnknownAmendmentsAreRefused(t *testing.T) {
	for v, want := range map[Version]string{
		"1.1+pole":                  `got amendment "pole", want log-queue, `,
		"1.1+queue-pole+log-queue":  "sorted by name",
		"1.1+queue-pole+queue-pole": "once each",
		"1.0+queue-pole":            "want 1.0 as it is",
		"2.0+queue-pole":            "want 1.0, 1.1, 1.2 or experimental",
	} {
		if err := CheckVersion(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", v, err, want)
		}
		if BetaFeatures(v) != nil || AlphaFeatures(v) != nil {
			t.Errorf("%s has features", v)
		}
	}
}

// A time-based average forgets as much in 100 ms as gamma says, in one step or in ten.
func TestRenewalByTime(t *testing.T) {
	v := V11.With(TimeAverage)
	if got := Renewal(V11, 0.3, 5e6); got != 0.3 {
		t.Errorf("by step: got %g, want 0.3", got)
	}
	if got := Renewal(v, 0.3, 100_000); !close(got, 0.3) {
		t.Errorf("after 100 ms: got %g, want 0.3", got)
	}
	kept := 1.0
	for range 10 {
		kept *= 1 - Renewal(v, 0.3, 10_000)
	}
	if !close(kept, 0.7) {
		t.Errorf("after ten steps of 10 ms: got %g kept, want 0.7", kept)
	}
}

// The book has the amendments as the code has them.
func TestSpecHasEveryAmendment(t *testing.T) {
	text := specText(t)
	for _, a := range Amendments() {
		for _, row := range append([]string{fmt.Sprintf("| `%s` | %s | %s |", a.Name, a.Model, a.Doc)}, formulaRows(a)...) {
			if !strings.Contains(text, row+"\n") {
				t.Errorf("docs/spec.md lacks\n%s", row)
			}
		}
	}
}

func formulaRows(a Amendment) []string {
	var rows []string
	for _, f := range slices.Concat(a.beta, a.alpha) {
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s | %s | %s | %s | `%s` |", a.Name, f.Name, f.Kind, short(f.Penalty), signText(&f),
			short(f.Bound), f.Formula))
	}
	return rows
}
