package requestfit

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/sim"
)

// TestConfirmedCandidates: a candidate is taken if the held-out loads are closer with it, and not if they are as close. A replay
// that fails, of the held-out loads or of those of the fit, is an error.
func TestConfirmedCandidates(t *testing.T) {
	whole := twoRequests(t)
	broken := *whole
	broken.Seen = whole.Seen[:1]
	m, err := newModel(Roofline(whole.Deployment), whole.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	near := m.mean
	far := make([]float64, len(near))
	none := make([]float64, len(near))
	for j := range far {
		far[j] = 1e3 * near[j]
		none[j] = math.NaN()
	}
	for name, c := range map[string]struct {
		held, loads []*Load
		from, to    []float64
		taken       bool
		want        string
	}{
		"closer":               {[]*Load{whole}, []*Load{whole}, far, near, true, ""},
		"as close":             {[]*Load{whole}, []*Load{whole}, near, near, false, ""},
		"farther":              {[]*Load{whole}, []*Load{whole}, near, far, false, ""},
		"held-out loads fail":  {[]*Load{&broken}, []*Load{whole}, far, near, false, "measured requests: got 1 for 2"},
		"loads of a fit fail":  {[]*Load{whole}, []*Load{&broken}, far, near, false, "measured requests: got 1 for 2"},
		"the candidate's fail": {[]*Load{whole}, []*Load{whole}, far, none, false, "prediction: got NaN us, want a finite number"},
	} {
		l := &learner{Options: DefaultOptions(), ctx: context.Background(), loads: c.loads, m: m}
		l.Search, l.Holdout = SearchSPSA, c.held
		for _, load := range c.loads {
			l.twins = append(l.twins, [][]sim.Request{load.Requests})
		}
		from := &state{values: c.from}
		got, err := l.confirmed(from, c.to)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, c.want)
			continue
		}
		if err != nil {
			if len(l.passes) != 0 {
				t.Errorf("%s: got the passes %v", name, l.passes)
			}
			continue
		}
		if (got != from) != c.taken || len(l.passes) == 1 != c.taken || c.taken && (l.passes[0].Name != SearchSPSA || l.passes[0].Objective != got.objective) {
			t.Errorf("%s: taken %v with the passes %+v", name, got != from, l.passes)
		}
	}
}

// TestWhereThePassesStart: at the answer of the regression, or at the prior where that is closer. The objective of the answer
// that was left is kept, and an error of either replay is an error.
func TestWhereThePassesStart(t *testing.T) {
	load := twoRequests(t)
	m, err := newModel(Roofline(load.Deployment), load.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	// The server's times are those of the prior.
	if load.Seen, err = load.Predict(m.setOf(m.mean)); err != nil {
		t.Fatal(err)
	}
	far := slices.Clone(m.mean)
	none := make([]float64, len(far))
	for j := range far {
		far[j] *= 3
		none[j] = math.NaN()
	}
	for name, c := range map[string]struct {
		values []float64
		seen   *evidence
		starts int // passes named start: of the answer that was left, of the passes with its equations and of those without
		atMean bool
		want   string
	}{
		"the prior is closer":     {far, &evidence{}, 3, true, ""},
		"the answer is as close":  {m.mean, &evidence{}, 2, true, ""},
		"no regression":           {far, nil, 1, false, ""},
		"the answer's times fail": {none, &evidence{}, 0, false, "prediction: got NaN us, want a finite number"},
	} {
		l := &learner{Options: DefaultOptions(), ctx: t.Context(), loads: []*Load{load}, m: m, twins: [][][]sim.Request{{load.Requests}}}
		l.Passes = 0
		got, _, err := l.best(c.values, c.seen)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, c.want)
		}
		if len(l.passes) != c.starts {
			t.Errorf("%s: got the passes %+v, want %d", name, l.passes, c.starts)
		}
		if err == nil && slices.Equal(got.values, m.mean) != c.atMean {
			t.Errorf("%s: ended at %v", name, got.values)
		}
		if c.starts == 3 && (l.passes[0].Name != "start" || !(l.passes[0].Objective > l.passes[1].Objective) || l.passes[1] != l.passes[2]) {
			t.Errorf("%s: got the passes %+v", name, l.passes)
		}
	}
}
