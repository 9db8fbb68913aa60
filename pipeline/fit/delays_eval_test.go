package fit

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
)

// Queues of known delay laws return: sums of predictions within 3 % of the law, and intervals of 90 %
// that hold 87 to 93 % of the planted coefficients and of the mean delays of parts of the run.
func TestEvalPlantedQueues(t *testing.T) {
	repo.NeedEval(t)
	const queues = 75
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

// waitFits are the fits of queue and admission of some runs, and what cross-validation predicts for
// a configuration from the others.
func waitFits(t *testing.T, sources []Source) (*fitter, alphaFits) {
	t.Helper()
	o := Quick()
	o.AlphaTargets = []string{coeff.Admission, coeff.Queue}
	o.KeepSaturated = true
	f, err := newFitter(context.Background(), sources, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, alphas, err := f.choose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alphas {
		if _, err := f.alphaModel(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	return f, alphas
}

// delayErrors compares predictions with measured delays and with a constant, row by row.
type delayErrors struct{ model, constant []float64 }

// add appends the relative errors of one row.
func (e *delayErrors) add(y, pred, constUs float64) {
	e.model = append(e.model, math.Abs(math.Max(0, pred)-y)/y)
	e.constant = append(e.constant, math.Abs(constUs-y)/y)
}

// worse is how much larger the model's error is than the constant's, with the half width of its 95 %
// interval over blocks of time.
func (e *delayErrors) worse() (mean, half float64) {
	n := len(e.model)
	blocks := min(20, max(2, n/8))
	var means []float64
	for b := range blocks {
		var part []float64
		for i := b * n / blocks; i < (b+1)*n/blocks; i++ {
			part = append(part, e.model[i]-e.constant[i])
		}
		means = append(means, stat.Mean(part))
	}
	return stat.Mean(e.model) - stat.Mean(e.constant), stat.StudentT(0.975, float64(blocks-1)) * stat.StdErr(means)
}

// bestConstant is the constant with the smallest relative error on the rows that keep picks.
func bestConstant(d *ridge.Data, list []int32, keep func(i int32) bool) float64 {
	var r stat.Rows
	for _, i := range list {
		if keep(i) {
			r.Y = append(r.Y, d.Y[i])
		}
	}
	return r.BestConstant(nil)
}

// judge splits the hold-out of a fit into requests that were held up for a second or longer, beside
// the best constant of all training rows, and those that found nobody waiting, beside theirs.
func (a *alphaFit) judge() (long, instant delayErrors) {
	d := a.s.Data
	all := bestConstant(d, a.s.Pool.Train, func(int32) bool { return true })
	isIdle := func(i int32) bool { return rows.Regime(d.Regime[i]) == rows.Idle }
	idle := bestConstant(d, a.s.Pool.Train, isIdle)
	for _, i := range a.s.Pool.Hold {
		switch {
		case d.Y[i] >= 1e6:
			long.add(d.Y[i], a.s.Pred[i], all)
		case isIdle(i):
			instant.add(d.Y[i], a.s.Pred[i], idle)
		}
	}
	return long, instant
}

// instantFloor is the error of the median of the ten requests most like each that found nobody
// waiting.
func (a *alphaFit) instantFloor() float64 {
	_, groups := a.s.Samples(rows.HoldOut, a.s.Pred)
	e := rows.JudgeDelays(groups).Errors(nil)
	if e != nil {
		for _, r := range e.Regimes {
			if r.Regime == rows.Idle.String() && r.MAPEFloor != nil {
				return *r.MAPEFloor
			}
		}
	}
	return math.NaN()
}

// Waits of a second and longer on the hold-out of the demo: queue within 15 %, admission within 20 %.
func TestEvalWaitsOfDemo(t *testing.T) {
	repo.NeedEval(t)
	_, alphas := waitFits(t, SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "demo")))
	for _, a := range alphas {
		long, instant := a.judge()
		worse, half := instant.worse()
		e := stat.Mean(long.model)
		fmt.Printf("demo %-9s %d of a second and longer: %.1f %%, constant %.1f; %d instant: %.1f %%, constant %.1f, floor %.1f, worse by %+.1f +- %.1f\n",
			a.target, len(long.model), 100*e, 100*stat.Mean(long.constant), len(instant.model), 100*stat.Mean(instant.model),
			100*stat.Mean(instant.constant), 100*a.instantFloor(), 100*worse, 100*half)
		limit := map[string]float64{coeff.Queue: 0.15, coeff.Admission: 0.20}[a.target]
		if !(e <= limit) {
			t.Errorf("%s: %.3f, want at most %g", a.target, e, limit)
		}
		if a.target == coeff.Queue && worse > half {
			t.Errorf("instant queue is worse than a constant by %.3f +- %.3f", worse, half)
		}
	}
}

// Waits of a second and longer on the composed runs, each fitted alone and each left out of a fit of
// the others. A run that had such waits before is within 20 %. Where the hold-out has the first ones, the fit
// extrapolates: it is nearer than the most alike earlier requests and than the least relative error on the same features.
func TestEvalWaitsOfComposedRuns(t *testing.T) {
	sources := evaluation(t, "composed")
	fmt.Println("composed, requests held up for a second or longer, hold-out of own fits: MAPE, % (constant)")
	pooled := map[string][]float64{}
	for _, src := range sources {
		_, alphas := waitFits(t, []Source{src})
		for _, a := range alphas {
			if a.s == nil {
				continue
			}
			long, _ := a.judge()
			if len(long.model) == 0 {
				continue
			}
			e, c := stat.Mean(long.model), stat.Mean(long.constant)
			before := 0
			for _, i := range a.s.Pool.Train {
				if a.s.Data.Y[i] >= 1e6 {
					before++
				}
			}
			var all []int32
			for i := range a.s.Data.Y {
				all = append(all, int32(i))
			}
			fmt.Printf("  %-24s %-9s %3d requests, %3d before: %5.1f (%.1f); most alike earlier ones %5.1f, of all %5.1f, least relative error %5.1f\n", src.ID,
				a.target, len(long.model), before, 100*e, 100*c, 100*a.alikeWaits(a.s.Pool.Train), 100*a.alikeWaits(all), 100*a.leastRelative())
			pooled[a.target] = append(pooled[a.target], long.model...)
			if !(e < c) {
				t.Errorf("%s %s: %.3f, no nearer than the constant %.3f", src.ID, a.target, e, c)
			}
			if before >= 20 && !(e <= 0.20) {
				t.Errorf("%s %s: %.3f after %d such requests, want at most 0.20", src.ID, a.target, e, before)
			}
		}
	}
	for target, errors := range pooled {
		m := stat.Median(errors)
		fmt.Printf("  %-9s median of %d requests %.1f %%, mean %.1f %%\n", target, len(errors), 100*m, 100*stat.Mean(errors))
		if !(m <= 0.20) {
			t.Errorf("%s: median %.3f, want at most 0.20", target, m)
		}
	}
	f, alphas := waitFits(t, sources)
	for _, a := range alphas {
		nearer, judged := f.printLeftOut(t, a)
		fmt.Printf("  %-9s left out: nearer than the constant on %d of %d runs\n", a.target, nearer, judged)
		if a.target == coeff.Queue && 4*nearer < 3*judged {
			t.Errorf("%s: %d of %d left-out runs nearer than the constant", a.target, nearer, judged)
		}
	}
}

// alikeWaits is the error, on the held-out requests that were held up for a second or longer, of the median of the
// five requests most like each among the given ones.
func (a *alphaFit) alikeWaits(among []int32) float64 {
	d := a.s.Data
	scale := make([]float64, d.P)
	for i := range d.Len() {
		for j, x := range d.Row(i) {
			scale[j] += x * x / float64(d.Len())
		}
	}
	var e []float64
	for _, i := range a.s.Pool.Hold {
		if d.Y[i] < 1e6 {
			continue
		}
		distance := make([]float64, len(among))
		for k, other := range among {
			if other == i {
				distance[k] = math.Inf(1)
				continue
			}
			for j, x := range d.Row(int(i)) {
				if scale[j] > 0 {
					distance[k] += math.Pow(x-d.Row(int(other))[j], 2) / scale[j]
				}
			}
		}
		var like []float64
		for _, k := range stat.Order(distance)[:5] {
			like = append(like, d.Y[among[k]])
		}
		e = append(e, math.Abs(stat.Median(like)-d.Y[i])/d.Y[i])
	}
	return stat.Mean(e)
}

// leastRelative is the error, on the held-out requests that were held up for a second or longer, of the regression on
// the same features with the least absolute relative error on the earlier requests.
func (a *alphaFit) leastRelative() float64 {
	d := a.s.Data
	p := d.P
	beta := make([]float64, p)
	weight := make([]float64, d.Len())
	for i := range weight {
		weight[i] = 1 / (d.Y[i] * d.Y[i])
	}
	scale := make([]float64, p)
	for _, i := range a.s.Pool.Train {
		for j, x := range d.Row(int(i)) {
			scale[j] += x * x * weight[i]
		}
	}
	for range 50 {
		g := make([]float64, p*p)
		for k := range beta {
			beta[k] = 0
			g[k*p+k] = 1e-8*scale[k] + 1e-12
		}
		for _, i := range a.s.Pool.Train {
			for j, x := range d.Row(int(i)) {
				beta[j] += weight[i] * x * d.Y[i]
				for k, z := range d.Row(int(i)) {
					g[j*p+k] += weight[i] * x * z
				}
			}
		}
		stat.Cholesky(g, p)
		stat.CholeskySolve(g, p, beta)
		for _, i := range a.s.Pool.Train {
			off := math.Abs(ridge.Dot(d.Row(int(i)), beta)/d.Y[i] - 1)
			weight[i] = 1 / (d.Y[i] * d.Y[i] * math.Max(off, 0.01))
		}
	}
	var e []float64
	for _, i := range a.s.Pool.Hold {
		if d.Y[i] >= 1e6 {
			e = append(e, math.Abs(ridge.Dot(d.Row(int(i)), beta)/d.Y[i]-1))
		}
	}
	return stat.Mean(e)
}

// printLeftOut predicts each run from a fit of the others and compares the mean absolute error of
// all its requests with that of the best constant of the others.
func (f *fitter) printLeftOut(t *testing.T, a *alphaFit) (nearer, judged int) {
	t.Helper()
	d := a.s.Data
	for c, key := range a.s.Pool.Configs {
		beta, err := f.alphaWithout(a, int32(c))
		if err != nil {
			t.Fatal(err)
		}
		constants := map[rows.Regime]float64{}
		for _, regime := range []rows.Regime{rows.Idle, rows.Waiting} {
			constants[regime] = bestConstant(d, a.s.Pool.Train, func(i int32) bool {
				return d.Config[i] != int32(c) && rows.Regime(d.Regime[i]) == regime
			})
		}
		var off, offConst, sum float64
		n := 0
		for i, y := range d.Y {
			if d.Config[i] == int32(c) {
				n++
				sum += y
				off += math.Abs(math.Max(0, ridge.Dot(d.Row(i), beta)) - y)
				offConst += math.Abs(constants[rows.Regime(d.Regime[i])] - y)
			}
		}
		judged++
		if off < offConst {
			nearer++
		}
		fmt.Printf("  %-60s %-9s left out, %3d requests: WAPE %6.1f %% (constants of each regime %.1f)\n", key, a.target, n, 100*off/sum,
			100*offConst/sum)
	}
	return nearer, judged
}

// Instant queue delays of the real runs are not worse than the best constant by more than the
// interval.
func TestEvalInstantDelaysOfRealRuns(t *testing.T) {
	fmt.Println("real CPU runs, requests that found nobody waiting, hold-out of own fits: MAPE, %")
	worseRuns, judged := 0, 0
	for _, src := range evaluation(t, "real_vllm_cpu") {
		_, alphas := waitFits(t, []Source{src})
		for _, a := range alphas {
			if a.s == nil || a.target != coeff.Queue {
				continue
			}
			_, instant := a.judge()
			if len(instant.model) < 4 {
				fmt.Printf("  %-18s %3d requests\n", src.ID, len(instant.model))
				continue
			}
			worse, half := instant.worse()
			judged++
			word := ""
			if worse > half {
				worseRuns++
				word = "WORSE"
			}
			fmt.Printf("  %-18s %3d requests %5.1f, constant %5.1f, floor %5.1f: %+5.1f +- %4.1f %s\n", src.ID, len(instant.model),
				100*stat.Mean(instant.model), 100*stat.Mean(instant.constant), 100*a.instantFloor(), 100*worse, 100*half, word)
		}
	}
	fmt.Printf("  worse by more than the interval: %d of %d\n", worseRuns, judged)
	if worseRuns > 0 {
		t.Errorf("%d of %d runs are worse than the constant", worseRuns, judged)
	}
}
