package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// queueLaw is the planted delay of a request, us per unit of each alpha feature: an instant delay of
// about 150 us, and half a minute for a queue as long as the batch at a full cache. The law of a
// seed is this with every term up to twice as large or small.
var queueLaw = map[string]float64{
	"batch_saturation":         25,
	"kv_pressure":              25,
	"admission_compute":        400,
	"base_bias":                60,
	"queue_drain":              4e6,
	"queue_memory_interaction": 3e7,
	"memory_admission_gap":     300,
	"queued_regime_bias":       40,
}

// lawOf is the planted law of a seed, by slot.
func lawOf(seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 3))
	var law []float64
	for _, f := range features.AlphaFeatures(features.V11) {
		law = append(law, queueLaw[f.Name]*math.Exp2(2*rng.Float64()-1))
	}
	return law
}

// plantedQueue is a run whose load rises and falls: n requests, of which those that arrive while
// requests wait are delayed by the law of the seed times a scatter of a quarter with the mean 1.
func plantedQueue(run, config string, n int, seed uint64) *rows.Table {
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := features.AlphaFeatures(features.V11)
	t := &rows.Table{Run: run, Config: config, Target: coeff.Queue, P: len(fs), Read: n, Kept: n, Hits: make([]int, len(fs))}
	for range t.P {
		t.Min, t.Max = append(t.Min, math.Inf(1)), append(t.Max, math.Inf(-1))
	}
	const (
		seats     = 64
		rooflineS = 0.2
		stay      = 0.98 // correlation of the load from one arrival to the next
	)
	law := lawOf(seed)
	load := 0.0
	for i := range n {
		load = stay*load + math.Sqrt(1-stay*stay)*rng.NormFloat64()
		demand := seats * (0.9 + 0.5*load) // requests that the server has
		running := math.Min(seats, math.Max(0, math.Round(demand)))
		waiting := math.Max(0, math.Round(demand-seats))
		usage := math.Min(1, 0.8*running/seats*(1+0.05*rng.NormFloat64()))
		prompt := 50 + 4000*rng.Float64()*rng.Float64()
		full := running / seats
		gate := full + usage - full*usage
		value := map[string]float64{
			"batch_saturation":         full,
			"kv_pressure":              usage,
			"admission_compute":        prompt * 3e-5,
			"base_bias":                1,
			"queue_drain":              gate * math.Log1p(waiting) * rooflineS,
			"queue_memory_interaction": gate * usage * waiting / seats,
			"memory_admission_gap":     gate * math.Log1p(prompt/(16*math.Max(1, 20000*(1-usage)))),
			"queued_regime_bias":       gate,
		}
		x := make([]float64, t.P)
		for j, f := range fs {
			x[j] = value[f.Name]
			t.Min[j], t.Max[j] = math.Min(t.Min[j], x[j]), math.Max(t.Max[j], x[j])
		}
		const scatter = 0.25
		y := ridge.Dot(x, law) * math.Exp(scatter*rng.NormFloat64()-scatter*scatter/2)
		regime := rows.Idle
		if waiting > 0 {
			regime = rows.Waiting
		}
		t.X = append(t.X, x...)
		t.Y = append(t.Y, y)
		t.Steps = append(t.Steps, 1)
		t.Regime = append(t.Regime, regime)
		t.TimeNs = append(t.TimeNs, int64(i)*1e8)
		t.FirstStep = append(t.FirstStep, int64(i))
		t.LastStep = append(t.LastStep, int64(i))
		t.Tag = append(t.Tag, rows.TagJourney)
		t.Phase = append(t.Phase, -1)
		t.Factor = append(t.Factor, 1)
		t.HoldOut = append(t.HoldOut, i >= n*4/5)
		t.Sets = append(t.Sets, 0)
		t.FloorUs = append(t.FloorUs, 0)
		t.ID = append(t.ID, run)
		t.Batch = append(t.Batch, running)
		t.Context = append(t.Context, prompt)
	}
	return t
}

// fitQueue fits the queueing delay of planted tables.
func fitQueue(t *testing.T, tables ...*rows.Table) (*alphaFit, *result.Model) {
	t.Helper()
	f := fitterOf(t, tables...)
	for i, p := range f.used {
		p.Alpha = map[string]*rows.Table{coeff.Queue: tables[i]}
		p.Quality.Recorded = 10 * tables[i].Kept
	}
	a, err := f.selectAlpha(t.Context(), coeff.Queue)
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.alphaModel(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return a, m
}

// biasOf is the relative error of the sum of the fit's predictions for the rows of a regime, against
// the law without its scatter.
func biasOf(a *alphaFit, law []float64, regime rows.Regime) float64 {
	var pred, want float64
	for i, us := range a.s.Pred {
		if rows.Regime(a.s.Data.Regime[i]) == regime {
			pred += us
			want += ridge.Dot(a.s.Data.Row(i), law)
		}
	}
	return pred/want - 1
}

// A planted queue returns: waits are not predicted as nothing, and neither instant nor queued delays
// are too short or too long in the sum.
func TestQueueReturns(t *testing.T) {
	for seed := range uint64(4) {
		table := plantedQueue("r", "gpu/a", 1500, seed)
		a, m := fitQueue(t, table)
		for _, regime := range []rows.Regime{rows.Idle, rows.Waiting} {
			if bias := biasOf(a, lawOf(seed), regime); math.Abs(bias) > 0.05 {
				t.Errorf("seed %d, %s: sum of predictions off by %.1f %%, want within 5 %%", seed, regime, 100*bias)
			}
		}
		if !m.Certificate.OK {
			t.Errorf("seed %d: no certificate", seed)
		}
		if *m.Lambda >= 0.1 {
			t.Errorf("seed %d: lambda %g", seed, *m.Lambda)
		}
	}
}

// Relative squares, which the step time has, predict queued delays as nothing where a third of
// the requests that find a queue are served at once: nothing has an error of 1 whatever the delay.
func TestRelativeSquaresForgetQueues(t *testing.T) {
	table := plantedQueue("r", "gpu/a", 1500, 1)
	for i := range table.Y {
		if table.Regime[i] == rows.Waiting && i%3 == 0 {
			table.Y[i] = 100
		}
	}
	a, _ := fitQueue(t, table)
	proportional := 1 + biasOf(a, lawOf(1), rows.Waiting)
	a.s.Opt.Proportional = false
	if err := a.s.SolveRelative(a.s.Variant, a.s.Sel, false); err != nil {
		t.Fatal(err)
	}
	squares := 1 + biasOf(a, lawOf(1), rows.Waiting)
	if proportional < 0.3 || squares > 0.05 {
		t.Errorf("share of queued delays that is predicted: %.2f with proportional and %.2f with relative weights", proportional, squares)
	}
}
