package ridge_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// The measured selection: 13 lambdas x 3 gammas x 3 lags x 5 folds, nested
// leave-one-configuration-out over 8 configurations, 500 bootstrap draws.
const (
	benchRows    = 1_000_000
	benchCols    = 16
	benchConfigs = 8
	benchGammas  = 3
	benchLags    = 3
)

// benchData is made once; one Data per lag, gammas as variants of column 11.
var benchData = sync.OnceValue(func() []*ridge.Data {
	lags := make([]*ridge.Data, benchLags)
	for l := range lags {
		lags[l] = benchRowsOf(uint64(l) + 1)
	}
	return lags
})

// benchRowsOf plants 16 columns of which the last four are rare or constant.
func benchRowsOf(seed uint64) *ridge.Data {
	rng := rand.New(rand.NewPCG(seed, 2))
	n := benchRows
	d := &ridge.Data{
		P: benchCols, X: make([]float64, n*benchCols), Y: make([]float64, n),
		Config: make([]int32, n), Regime: make([]int32, n), Time: make([]int64, n),
	}
	for g := range benchGammas {
		d.Variants = append(d.Variants, ridge.Variant{
			Gamma: []float64{.02, .05, .1}[g],
			Cols:  []int{11}, Values: [][]float64{make([]float64, n)},
		})
	}
	for i := range n {
		x := d.Row(i)
		c := i / (n / benchConfigs)
		for j := range x {
			x[j] = rng.Float64() * (1 + float64(c)/4)
		}
		x[14], x[15] = 0, 1
		if rng.Float64() < .5 {
			x[0] = 0
			x[1] = 0
			x[6] = 0
		}
		d.Config[i], d.Regime[i], d.Time[i] = int32(c), int32(rng.IntN(3)), int64(i)
		for g := range d.Variants {
			d.Variants[g].Values[0][i] = x[11] * (1 + .1*float64(g)*rng.Float64())
		}
		for j, v := range x {
			d.Y[i] += v * float64(j+1) * 100
		}
		d.Y[i] *= 1 + .05*rng.NormFloat64()
	}
	return d
}

func benchOptions() ridge.Options {
	o := ridge.DefaultOptions(benchCols)
	o.Penalty[15] = 100
	return o
}

// selectAll is the whole selection, from rows in memory to intervals.
func selectAll(b *testing.B, lags []*ridge.Data, o ridge.Options) (best ridge.Selection, terms int) {
	chosen, variant := -1, 0
	for l, d := range lags {
		sel, err := ridge.Select(d, o)
		if err != nil {
			b.Fatal(err)
		}
		v, _ := ridge.ChooseVariant(sel, .05)
		if chosen < 0 || sel[v].Score < best.Score {
			best = sel[v]
			chosen = l
			variant = v
		}
	}
	d := lags[chosen].With(variant)
	w := ridge.Weights(d, o)
	fit, err := ridge.FitRows(d, w, nil, best.Lambda, o)
	if err != nil {
		b.Fatal(err)
	}
	tags := ridge.Identify(d.WithinVariation(w))
	conf := d.Confidence(fit, tags, o)
	return best, len(conf.Terms)
}

func BenchmarkSelect1M(b *testing.B) {
	lags := benchData()
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			o := benchOptions()
			o.Workers = workers
			for b.Loop() {
				selectAll(b, lags, o)
			}
		})
	}
}

func BenchmarkCut1M(b *testing.B) {
	d := benchData()[0]
	o := benchOptions()
	for b.Loop() {
		if _, _, err := d.Cut(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReweight1M(b *testing.B) {
	d := benchData()[0].With(0)
	o := benchOptions()
	w := ridge.Weights(d, o)
	fit, err := ridge.FitRows(d, w, nil, 1e-4, o)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := ridge.Reweight(d, w, fit, o); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSelectCensored is the interval grid over 20,000 rows of 8
// configurations.
func BenchmarkSelectCensored(b *testing.B) {
	d, bounds, o := censoredBench(20000, 8)
	for b.Loop() {
		if _, err := d.SelectIntervals(b.Context(), bounds, o); err != nil {
			b.Fatal(err)
		}
	}
}

func censoredBench(n, configs int) (*ridge.Data, ridge.Bounds, ridge.Options) {
	rng := rand.New(rand.NewPCG(9, 9))
	const p = 11
	d := &ridge.Data{P: p}
	var bounds ridge.Bounds
	for i := range n {
		delay := 800.0
		for j := range p {
			x := rng.Float64()
			if j == 3 {
				x = 1
			}
			d.X = append(d.X, x)
			delay += 100 * x * float64(j%3)
		}
		delay += 100 * rng.NormFloat64()
		wait := 50000 * rng.Float64()
		bounds.Lo = append(bounds.Lo, max(0, delay+wait-50000))
		bounds.Hi = append(bounds.Hi, delay+wait)
		d.Y = append(d.Y, 0)
		d.Config = append(d.Config, int32(i*configs/n))
		d.Regime = append(d.Regime, int32(i%2))
		d.Time = append(d.Time, int64(i))
	}
	o := ridge.DefaultOptions(p)
	o.EpsUs = 1000
	return d, bounds, o
}
