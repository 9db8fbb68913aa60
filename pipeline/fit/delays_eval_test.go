package fit

import (
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Queues of known delay laws return: sums of predictions within 3 % of the law, and intervals of 90 %
// that hold 87 to 93 % of the planted coefficients and of the mean delays of parts of the run.
func TestEvalPlantedQueues(t *testing.T) {
	repo.NeedEval(t)
	const queues = 70
	var bias = map[rows.Regime][]float64{}
	var held, intervals, heldMeans, means int
	for seed := range uint64(queues) {
		a, _ := fitQueue(t, plantedQueue("r", "gpu/a", 2000, 1000+seed))
		law := lawOf(1000 + seed)
		for _, regime := range []rows.Regime{rows.Idle, rows.Waiting} {
			bias[regime] = append(bias[regime], biasOf(a, law, regime))
		}
		o := a.s.Opt
		o.Level = 0.9
		tags := ridge.Identify(a.s.Train.WithinVariation(a.s.Weights))
		for j, i := range a.s.Train.Confidence(a.s.Fit, tags, o).Terms {
			if law[j] > 0 && i.Method != ridge.FromNothing {
				intervals++
				if i.Lo <= law[j] && law[j] <= i.Hi {
					held++
				}
			}
		}
		parts := partsOf(a.s.Train)
		for k, i := range a.s.Train.MeanIntervals(a.s.Fit, parts, o) {
			var want float64
			for _, row := range parts[k] {
				want += ridge.Dot(a.s.Train.Row(int(row)), law) / float64(len(parts[k]))
			}
			if i.Method != ridge.FromNothing {
				means++
				if i.Lo <= want && want <= i.Hi {
					heldMeans++
				}
			}
		}
	}
	fmt.Printf("%d planted queues\n", queues)
	for _, regime := range []rows.Regime{rows.Idle, rows.Waiting} {
		m := stat.Mean(bias[regime])
		fmt.Printf("  %-8s sum of predictions off by %+.2f %% (standard error %.2f)\n", regime, 100*m, 100*stat.StdErr(bias[regime]))
		if math.Abs(m) > 0.03 {
			t.Errorf("%s: bias %.3f, want within 3 %%", regime, m)
		}
	}
	for _, c := range []struct {
		name    string
		held, n int
	}{{"coefficients", held, intervals}, {"mean delays", heldMeans, means}} {
		share := float64(c.held) / float64(c.n)
		fmt.Printf("  intervals of 90 %% of %s: %d of %d hold the truth, %.1f %%\n", c.name, c.held, c.n, 100*share)
		if c.n < 500 || share < 0.87 || share > 0.93 {
			t.Errorf("%s: %.3f of %d intervals hold the truth, want 0.87 to 0.93 of at least 500", c.name, share, c.n)
		}
	}
}

// partsOf are the rows of each regime in each quarter of the run.
func partsOf(d *ridge.Data) [][]int32 {
	parts := make([][]int32, 8)
	for i := range d.Len() {
		k := 4 * i / d.Len()
		if rows.Regime(d.Regime[i]) == rows.Waiting {
			k += 4
		}
		parts[k] = append(parts[k], int32(i))
	}
	var out [][]int32
	for _, list := range parts {
		if len(list) >= 20 {
			out = append(out, list)
		}
	}
	return out
}
