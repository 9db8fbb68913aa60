package ridge

import (
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/internal/par"
)

// TestEvalIntervalCoverage plants coefficients in 1,000 data sets of serially
// correlated rows, runs the whole route (selection, fit, reweighting, intervals)
// and counts how often the 95 % interval of each identified term holds the truth.
func TestEvalIntervalCoverage(t *testing.T) {
	if os.Getenv("BLIS_TRAIN_EVAL") != "1" {
		t.Skip("slow evaluation: set BLIS_TRAIN_EVAL=1")
	}
	for _, p := range []plantOptions{
		{configs: 3, rows: 1200, noise: .05, memory: .6},
		{configs: 1, rows: 2000, noise: .05, memory: .6},
	} {
		c := coverage(t, p, 1000)
		c.print(p)
		c.check(t)
	}
}

type covered struct {
	sets, hits, tagged, between [numColumns]int
	width                       [numColumns]float64
}

func coverage(t *testing.T, p plantOptions, sets int) *covered {
	var c covered
	var mu sync.Mutex
	par.Each(2, sets, func(_, k int) {
		s := plant(uint64(k)+1, p)
		s.o.Workers = 1
		conf, tags := intervals(t, s)
		mu.Lock()
		defer mu.Unlock()
		c.count(s, conf, tags)
	})
	return &c
}

// intervals is the whole route from rows to intervals.
func intervals(t *testing.T, s planted) (Confidence, []Identification) {
	sel, err := Select(s.d, s.o)
	if err != nil {
		t.Fatal(err)
	}
	w := Weights(s.d, s.o)
	ls, err := FitRows(s.d, w, nil, sel[0].Lambda, s.o)
	if err != nil {
		t.Fatal(err)
	}
	polish, err := Reweight(s.d, w, ls, s.o)
	if err != nil {
		t.Fatal(err)
	}
	tags := Identify(WithinVariation(s.d, w))
	return ConfidenceRows(s.d, polish.Best(), tags, s.o, DefaultConfidence()), tags
}

func (c *covered) count(s planted, conf Confidence, tags []Identification) {
	for j, term := range conf.Terms {
		c.sets[j]++
		if tags[j] == IdentifiedWithin && term.Method == FromBlocks {
			c.tagged[j]++
		}
		if tags[j] == BetweenConfigs && term.Method != FromNothing {
			c.between[j]++
		}
		if term.Lo <= s.beta[j] && s.beta[j] <= term.Hi {
			c.hits[j]++
		}
		if s.beta[j] != 0 {
			c.width[j] += (term.Hi - term.Lo) / s.beta[j]
		}
	}
}

func (c *covered) share(j int) float64 { return float64(c.hits[j]) / float64(c.sets[j]) }

func (c *covered) print(p plantOptions) {
	fmt.Printf("coverage: %d configurations x %d rows, noise %g, memory %g\n", p.configs, p.rows, p.noise, p.memory)
	for j := range numColumns {
		fmt.Printf("  term %2d: within in %4d of %d sets, covered %.3f, mean width %.3g of the truth\n",
			j+1, c.tagged[j], c.sets[j], c.share(j), c.width[j]/float64(c.sets[j]))
	}
}

func (c *covered) check(t *testing.T) {
	var sum float64
	n := 0
	for j := range numColumns {
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
