package library

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/learn"
)

// TestEvalPoints prints, for each group of measured points, how a few points of it,
// learned with the library that has never seen the group as their prior, predict the
// others: points chosen for what they teach, random ones, the library alone, one
// factor for the group, and AIConfigurator.
func TestEvalPoints(t *testing.T) {
	b, m, points := realData(t)
	ctx := context.Background()
	for _, g := range groupsOf(m.points) {
		var in []*load
		for _, l := range m.points {
			if l.group != g {
				in = append(in, l)
			}
		}
		c, err := b.learn(ctx, append(in, m.served...), m.cycles)
		if err != nil {
			t.Fatal(err)
		}
		var loads []*learn.Load
		var others []point
		for i := range points {
			p := &points[i]
			if p.Group() != g {
				continue
			}
			l, err := p.load(p.Harness(), 1)
			if err != nil {
				t.Fatal(err)
			}
			loads = append(loads, &learn.Load{Name: p.ID, Deployment: p.Deployment, Requests: l.reqs,
				Point: &learn.Point{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}})
			others = append(others, *p)
		}
		f, err := b.familyOf(loads[0].Deployment)
		if err != nil {
			t.Fatal(err)
		}
		prior := &learn.Prior{Name: "library without " + g, Set: b.artifact(f, c, coeff.ExpectedError{}, nil)}
		t.Logf("%s, %d points", g, len(loads))
		t.Logf("   AIConfigurator            %s", otherErrors(others))
		judgeGroup(t, loads, prior)
		if slices.ContainsFunc(loads, func(l *learn.Load) bool { return isFull(t, l, prior) }) {
			t.Log("   the same with a KV cache of 8 bits")
			for _, l := range loads {
				d := *l.Deployment
				d.Model.BytesPerKV = 1
				l.Deployment = &d
			}
			judgeGroup(t, loads, prior)
		}
	}
}

// judgeGroup prints the errors of all methods on a group; levels that say that the KV
// cache is larger than stated are named, in no fit, and judged apart.
func judgeGroup(t *testing.T, loads []*learn.Load, prior *learn.Prior) {
	var fair, full []*learn.Load
	for _, l := range loads {
		if isFull(t, l, prior) {
			t.Logf("   %s: the simulated server runs out of KV blocks, the measured one did not", l.Name)
			full = append(full, l)
		} else {
			fair = append(fair, l)
		}
	}
	none := map[int]bool{}
	alone := restErrors(t, fair, none, prior.Set)
	t.Logf("   library alone             %s", alone)
	if tpot, ttft := stat.Mean(alone.tpot), stat.Median(alone.ttft); tpot > 0.08 || ttft > 0.23 {
		t.Errorf("library alone: TPOT MAPE %.1f %%, TTFT median %.1f %%, want at most 8 and 23 %%", 100*tpot, 100*ttft)
	}
	o := learn.DefaultOptions()
	o.Search = learn.SearchNone
	for _, n := range []int{9, 3} {
		chosen, err := learn.Choose(context.Background(), fair, prior, n, o)
		if err != nil {
			t.Fatal(err)
		}
		rest, set := fitRest(t, fair, chosen, prior, o)
		t.Logf("   %d points, chosen          %s", n, rest)
		if len(full) > 0 {
			t.Logf("   %d points, the %d left out  %s", n, len(full), restErrors(t, full, none, set))
		}
		rest, _ = fitRest(t, fair, rand.New(rand.NewPCG(1, uint64(n))).Perm(len(fair))[:n], prior, o)
		t.Logf("   %d points, random          %s", n, rest)
		t.Logf("   %d points, one factor      %s", n, factorErrors(t, fair, chosen, prior.Set))
	}
}

func isFull(t *testing.T, l *learn.Load, prior *learn.Prior) bool {
	t.Helper()
	_, full, err := l.Full(prior)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

func fitRest(t *testing.T, loads []*learn.Load, chosen []int, prior *learn.Prior, o learn.Options) (*pointErrors, *coeff.Set) {
	t.Helper()
	var seen []*learn.Load
	left := map[int]bool{}
	for _, i := range chosen {
		seen, left[i] = append(seen, loads[i]), true
	}
	got, err := learn.Fit(context.Background(), seen, prior, o)
	if err != nil {
		t.Fatal(err)
	}
	return restErrors(t, loads, left, got.Set), got.Set
}

type pointErrors struct{ tpot, ttft []float64 }

func (e *pointErrors) String() string {
	return fmt.Sprintf("TPOT MAPE %.1f %%, TTFT median %.1f %%, mean %.1f %%", 100*stat.Mean(e.tpot), 100*stat.Median(e.ttft),
		100*stat.Mean(e.ttft))
}

func (e *pointErrors) add(tpot, ttft float64) {
	e.tpot, e.ttft = append(e.tpot, math.Abs(tpot-1)), append(e.ttft, math.Abs(ttft-1))
}

func restErrors(t *testing.T, loads []*learn.Load, without map[int]bool, set *coeff.Set) *pointErrors {
	t.Helper()
	e := &pointErrors{}
	for i, l := range loads {
		if without[i] {
			continue
		}
		p, err := l.PredictPoint(set)
		if err != nil {
			t.Fatal(err)
		}
		e.add(p.TPOTMs/l.Point.TPOTMs, p.TTFTMs/l.Point.TTFTMs)
	}
	return e
}

// factorErrors take one factor on TPOT and one on TTFT from the chosen points.
func factorErrors(t *testing.T, loads []*learn.Load, chosen []int, set *coeff.Set) string {
	t.Helper()
	left := map[int]bool{}
	var tpot, ttft []float64
	all := make([]learn.Point, len(loads))
	for i, l := range loads {
		var err error
		if all[i], err = l.PredictPoint(set); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range chosen {
		left[i] = true
		tpot, ttft = append(tpot, loads[i].Point.TPOTMs/all[i].TPOTMs), append(ttft, loads[i].Point.TTFTMs/all[i].TTFTMs)
	}
	e := &pointErrors{}
	for i, l := range loads {
		if !left[i] {
			e.add(stat.Median(tpot)*all[i].TPOTMs/l.Point.TPOTMs, stat.Median(ttft)*all[i].TTFTMs/l.Point.TTFTMs)
		}
	}
	return e.String()
}

func otherErrors(points []point) string {
	e := &pointErrors{}
	for i := range points {
		if p := &points[i]; !math.IsNaN(p.OtherTPOTMs) && !math.IsNaN(p.OtherTTFTMs) {
			e.add(p.OtherTPOTMs/p.TPOTMs, p.OtherTTFTMs/p.TTFTMs)
		}
	}
	return e.String()
}
