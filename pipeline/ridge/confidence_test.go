package ridge_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// TestEvalIntervalCoverage plants coefficients in 1,000 data sets of serially
// correlated rows, runs the whole route (selection, fit, reweighting, intervals)
// and counts how often the 95 % interval of each identified term holds the truth, and
// how often the one printed with the published value does.
func TestEvalIntervalCoverage(t *testing.T) {
	repo.NeedEval(t)
	for _, p := range []ridge.Shape{
		{Configs: 3, Rows: 1200, Noise: .05, Memory: .6},
		{Configs: 1, Rows: 2000, Noise: .05, Memory: .6},
	} {
		c := coverage(t, p, 1000)
		c.print(p)
		c.check(t)
	}
}

// TestEvalPosteriorCoverage draws the truth from the prior, fits few and many rows with it
// and counts how often the interval of the published value holds the truth.
func TestEvalPosteriorCoverage(t *testing.T) {
	repo.NeedEval(t)
	for _, rows := range []int{150, 600, 2000} {
		c := posteriorCoverage(t, rows, 400)
		c.print(ridge.Shape{Configs: 1, Rows: rows, Noise: .05, Memory: .6})
		c.check(t)
	}
}

// TestEvalOffPrior draws the truth from the prior and counts how often the rows contradict
// it, which one in a hundred may, and how often where all times are twice those of the truth.
func TestEvalOffPrior(t *testing.T) {
	repo.NeedEval(t)
	const sets = 400
	for _, rows := range []int{20, 150, 2000} {
		for _, times := range []float64{1, 2} {
			contradicted, directions := 0, 0
			for seed := range uint64(sets) {
				s := ridge.PlantDrawn(seed+1, ridge.Shape{Configs: 1, Rows: rows, Noise: .05, Memory: .6}, 0.2)
				for i := range s.D.Y {
					s.D.Y[i] *= times
				}
				off := s.D.OffPrior(posteriorMean(t, s), s.O, stat.Inverse(s.O.Precision, s.D.P))
				directions += off.Directions
				if off.Distance > off.Limit {
					contradicted++
				}
			}
			share := float64(contradicted) / sets
			fmt.Printf("%d rows, %g times the truth: %.4f of the sets contradict the prior, in %.2f directions\n",
				rows, times, share, float64(directions)/sets)
			switch {
			case times == 1 && share > 0.03:
				t.Errorf("%d rows: %.4f of right priors contradicted, want at most 0.03", rows, share)
			case times == 2 && share < 0.9:
				t.Errorf("%d rows: %.4f of wrong priors contradicted, want at least 0.9", rows, share)
			}
		}
	}
}

// posteriorCoverage counts over data sets of one configuration whose truth is drawn from
// the prior.
func posteriorCoverage(t *testing.T, rows, sets int) *covered {
	var c covered
	var mu sync.Mutex
	par.Each(2, sets, func(_, k int) {
		s := ridge.PlantDrawn(uint64(k)+1, ridge.Shape{Configs: 1, Rows: rows, Noise: .05, Memory: .6}, 0.2)
		s.O.Workers = 1
		fit := posteriorMean(t, s)
		conf := s.D.Posterior(fit, s.O)
		mu.Lock()
		defer mu.Unlock()
		tags := make([]string, ridge.NumColumns)
		for j := range tags {
			tags[j] = coeff.Within
			if s.Beta[j] == 0 { // no column: nothing to hold
				tags[j] = coeff.PriorOnly
			}
		}
		c.count(s, fit, conf, tags)
	})
	return &c
}

type covered struct {
	sets, hits, published, outside, tagged, between [ridge.NumColumns]int
	width                                           [ridge.NumColumns]float64
}

func coverage(t *testing.T, p ridge.Shape, sets int) *covered {
	var c covered
	var mu sync.Mutex
	par.Each(2, sets, func(_, k int) {
		s := ridge.Plant(uint64(k)+1, p)
		s.O.Workers = 1
		fit := fitted(t, s)
		conf, tags := intervals(s, fit)
		mu.Lock()
		defer mu.Unlock()
		c.count(s, fit, conf, tags)
	})
	return &c
}

// posteriorMean is the route of a fit with a prior.
func posteriorMean(t *testing.T, s ridge.Planted) ridge.Fit {
	sel, err := ridge.Select(s.D, s.O)
	if err != nil {
		t.Fatal(err)
	}
	ls, err := ridge.FitRows(s.D, ridge.Weights(s.D, s.O), nil, sel[0].Lambda, s.O)
	if err != nil {
		t.Fatal(err)
	}
	fit, err := ridge.PosteriorMean(s.D, ls, s.O)
	if err != nil {
		t.Fatal(err)
	}
	return fit
}

// fitted is the whole route from rows to published values.
func fitted(t *testing.T, s ridge.Planted) ridge.Fit {
	sel, err := ridge.Select(s.D, s.O)
	if err != nil {
		t.Fatal(err)
	}
	w := ridge.Weights(s.D, s.O)
	ls, err := ridge.FitRows(s.D, w, nil, sel[0].Lambda, s.O)
	if err != nil {
		t.Fatal(err)
	}
	polish, err := ridge.Reweight(s.D, w, ls, s.O)
	if err != nil {
		t.Fatal(err)
	}
	return polish.Best()
}

func intervals(s ridge.Planted, fit ridge.Fit) (ridge.Confidence, []string) {
	tags := ridge.Identify(s.D.WithinVariation(ridge.Weights(s.D, s.O)))
	return s.D.Confidence(fit, tags, s.O), tags
}

func (c *covered) count(s ridge.Planted, fit ridge.Fit, conf ridge.Confidence, tags []string) {
	for j, term := range conf.Terms {
		c.sets[j]++
		if tags[j] == coeff.Within && term.Method != ridge.FromNothing {
			c.tagged[j]++
		}
		if tags[j] == coeff.BetweenConfigs && term.Method != ridge.FromNothing {
			c.between[j]++
		}
		if term.Lo <= s.Beta[j] && s.Beta[j] <= term.Hi {
			c.hits[j]++
		}
		if lo, hi := term.Holding(fit.Beta[j]); lo <= s.Beta[j] && s.Beta[j] <= hi {
			c.published[j]++
		}
		if fit.Beta[j] < term.Lo || fit.Beta[j] > term.Hi {
			c.outside[j]++
		}
		if s.Beta[j] != 0 {
			c.width[j] += (term.Hi - term.Lo) / s.Beta[j]
		}
	}
}

func (c *covered) share(hits, j int) float64 { return float64(hits) / float64(c.sets[j]) }

func (c *covered) print(p ridge.Shape) {
	fmt.Printf("coverage: %d configurations x %d rows, noise %g, memory %g\n", p.Configs, p.Rows, p.Noise, p.Memory)
	for j := range ridge.NumColumns {
		fmt.Printf("  term %2d: within in %4d of %d sets, truth held %.3f, by the interval printed with the value %.3f, value outside %.3f, "+
			"mean width %.3g of the truth\n", j+1, c.tagged[j], c.sets[j], c.share(c.hits[j], j), c.share(c.published[j], j),
			c.share(c.outside[j], j), c.width[j]/float64(c.sets[j]))
	}
}

func (c *covered) check(t *testing.T) {
	for _, of := range []struct {
		name string
		hits [ridge.NumColumns]int
	}{{"the estimate", c.hits}, {"the published value", c.published}} {
		var sum float64
		n := 0
		for j := range ridge.NumColumns {
			share := c.share(of.hits[j], j)
			if c.tagged[j] < c.sets[j] {
				if c.between[j] == c.sets[j] && share < 0.92 {
					t.Errorf("term %d, between configurations, %s: covered in %.3f, want at least 0.92", j+1, of.name, share)
				}
				continue
			}
			sum, n = sum+share, n+1
			if share < 0.92 || share > 0.99 {
				t.Errorf("term %d, %s: covered in %.3f, want 0.92..0.99", j+1, of.name, share)
			}
		}
		fmt.Printf("  interval of %s: mean over %d identified terms %.4f\n", of.name, n, sum/float64(n))
		if m := sum / float64(n); n == 0 || math.IsNaN(m) || m < 0.93 || m > 0.97 {
			t.Errorf("%s: mean over terms %.4f, want 0.93..0.97", of.name, m)
		}
	}
}

// TestIntervalsHoldTheTruth in most of 12 data sets: the short form of the
// coverage evaluation.
func TestIntervalsHoldTheTruth(t *testing.T) {
	hits, all := 0, 0
	for seed := range uint64(12) {
		s := ridge.Plant(100+seed, ridge.Shape{Configs: 3, Rows: 400, Noise: .05, Memory: .4})
		fit := fitted(t, s)
		conf, tags := intervals(s, fit)
		for j, term := range conf.Terms {
			if tags[j] == coeff.Within && term.Method == ridge.FromBlocks {
				all++
				if term.Lo <= s.Beta[j] && s.Beta[j] <= term.Hi {
					hits++
				}
				if v := conf.Covariance[j*ridge.NumColumns+j]; math.Abs(math.Sqrt(v)-term.SE) > 1e-9*term.SE {
					t.Errorf("term %d: standard error %g, covariance says %g", j+1, term.SE, math.Sqrt(v))
				}
			}
		}
	}
	if all < 90 || float64(hits) < .88*float64(all) || hits == all {
		t.Errorf("%d of %d intervals hold the truth, want about 95 %%", hits, all)
	}
}

// A term that one block holds has no interval, however many draws hold that block; one in all blocks has.
func TestNoIntervalFromOneBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 7))
	for _, held := range []int{5, 2000} {
		d := &ridge.Data{P: 2}
		for i := range 2000 {
			x := 0.0
			if i%5 == 0 && i < held {
				x = 1
			}
			d.X, d.Y = append(d.X, 1, x), append(d.Y, (1000+300*x)*(1+0.02*rng.NormFloat64()))
			d.Config = append(d.Config, 0)
			d.Regime = append(d.Regime, 0)
		}
		o := ridge.DefaultOptions(2)
		fit, err := ridge.FitRows(d, ridge.Weights(d, o), nil, 1e-6, o)
		if err != nil {
			t.Fatal(err)
		}
		got := d.Confidence(fit, []string{coeff.Within, coeff.Within}, o).Terms[1]
		if known := got.Method != ridge.FromNothing; known != (held > 5) || known && (got.Lo < 200 || got.Hi > 400) {
			t.Errorf("%d rows: got %+v", held, got)
		}
	}
}
