package bootstrap_test

import (
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/bootstrap"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/ridge/ridgetest"
)

// TestEvalIntervalCoverage plants coefficients in 1,000 data sets of serially
// correlated rows, runs the whole route (selection, fit, reweighting, intervals)
// and counts how often the 95 % interval of each identified term holds the truth.
func TestEvalIntervalCoverage(t *testing.T) {
	if os.Getenv("BLIS_TRAIN_EVAL") != "1" {
		t.Skip("slow evaluation: set BLIS_TRAIN_EVAL=1")
	}
	for _, p := range []ridgetest.Shape{
		{Configs: 3, Rows: 1200, Noise: .05, Memory: .6},
		{Configs: 1, Rows: 2000, Noise: .05, Memory: .6},
	} {
		c := coverage(t, p, 1000)
		c.print(p)
		c.check(t)
	}
}

type covered struct {
	sets, hits, tagged, between [ridgetest.NumColumns]int
	width                       [ridgetest.NumColumns]float64
}

func coverage(t *testing.T, p ridgetest.Shape, sets int) *covered {
	var c covered
	var mu sync.Mutex
	par.Each(2, sets, func(_, k int) {
		s := ridgetest.Plant(uint64(k)+1, p)
		s.O.Workers = 1
		conf, tags := intervals(t, s)
		mu.Lock()
		defer mu.Unlock()
		c.count(s, conf, tags)
	})
	return &c
}

// intervals is the whole route from rows to intervals.
func intervals(t *testing.T, s ridgetest.Planted) (bootstrap.Confidence, []ridge.Identification) {
	sel, err := cv.Select(s.D, s.O)
	if err != nil {
		t.Fatal(err)
	}
	w := cells.Weights(s.D, s.O)
	ls, err := ridge.FitRows(s.D, w, nil, sel[0].Lambda, s.O)
	if err != nil {
		t.Fatal(err)
	}
	polish, err := ridge.Reweight(s.D, w, ls, s.O)
	if err != nil {
		t.Fatal(err)
	}
	tags := ridge.Identify(ridge.WithinVariation(s.D, w))
	return bootstrap.Rows(s.D, polish.Best(), tags, s.O, bootstrap.DefaultOptions()), tags
}

func (c *covered) count(s ridgetest.Planted, conf bootstrap.Confidence, tags []ridge.Identification) {
	for j, term := range conf.Terms {
		c.sets[j]++
		if tags[j] == ridge.IdentifiedWithin && term.Method == bootstrap.FromBlocks {
			c.tagged[j]++
		}
		if tags[j] == ridge.BetweenConfigs && term.Method != bootstrap.FromNothing {
			c.between[j]++
		}
		if term.Lo <= s.Beta[j] && s.Beta[j] <= term.Hi {
			c.hits[j]++
		}
		if s.Beta[j] != 0 {
			c.width[j] += (term.Hi - term.Lo) / s.Beta[j]
		}
	}
}

func (c *covered) share(j int) float64 { return float64(c.hits[j]) / float64(c.sets[j]) }

func (c *covered) print(p ridgetest.Shape) {
	fmt.Printf("coverage: %d configurations x %d rows, noise %g, memory %g\n", p.Configs, p.Rows, p.Noise, p.Memory)
	for j := range ridgetest.NumColumns {
		fmt.Printf("  term %2d: within in %4d of %d sets, covered %.3f, mean width %.3g of the truth\n",
			j+1, c.tagged[j], c.sets[j], c.share(j), c.width[j]/float64(c.sets[j]))
	}
}

func (c *covered) check(t *testing.T) {
	var sum float64
	n := 0
	for j := range ridgetest.NumColumns {
		if c.tagged[j] < c.sets[j] {
			if c.between[j] == c.sets[j] && c.share(j) < 0.92 {
				t.Errorf("term %d, between configurations: covered in %.3f, want at least 0.92", j+1, c.share(j))
			}
			continue
		}
		sum, n = sum+c.share(j), n+1
		if c.share(j) < 0.92 || c.share(j) > 0.98 {
			t.Errorf("term %d: covered in %.3f, want 0.92..0.98", j+1, c.share(j))
		}
	}
	fmt.Printf("  mean over %d identified terms %.4f\n", n, sum/float64(n))
	if m := sum / float64(n); n == 0 || math.IsNaN(m) || m < 0.935 || m > 0.965 {
		t.Errorf("mean over terms %.4f, want 0.935..0.965", m)
	}
}

// TestIntervalsHoldTheTruth in most of 12 data sets: the short form of the
// coverage evaluation.
func TestIntervalsHoldTheTruth(t *testing.T) {
	hits, all := 0, 0
	for seed := range uint64(12) {
		s := ridgetest.Plant(100+seed, ridgetest.Shape{Configs: 3, Rows: 400, Noise: .05, Memory: .4})
		conf, tags := intervals(t, s)
		for j, term := range conf.Terms {
			if tags[j] == ridge.IdentifiedWithin && term.Method == bootstrap.FromBlocks {
				all++
				if term.Lo <= s.Beta[j] && s.Beta[j] <= term.Hi {
					hits++
				}
				if v := conf.Covariance[j*ridgetest.NumColumns+j]; math.Abs(math.Sqrt(v)-term.SE) > 1e-9*term.SE {
					t.Errorf("term %d: standard error %g, covariance says %g", j+1, term.SE, math.Sqrt(v))
				}
			}
		}
	}
	if all < 90 || float64(hits) < .88*float64(all) || hits == all {
		t.Errorf("%d of %d intervals hold the truth, want about 95 %%", hits, all)
	}
}
