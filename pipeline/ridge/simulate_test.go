package ridge

// simulate_test.go makes rows with known coefficients, for the tests of ridge.

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Planted is a data set with known coefficients.
type Planted struct {
	D    *Data
	O    Options
	Beta []float64 // us per unit of each column
}

// Shape shape a simulated data set.
type Shape struct {
	Configs, Rows int
	Noise         float64 // relative standard deviation
	Memory        float64 // autocorrelation of the noise per row
}

// Columns of the simulated rows. Costs are in seconds at an ideal rate, so a
// coefficient of 1e6 us/s means exactly that rate.
const (
	ColWork     = iota // comes in bursts, like a queue being drained
	colSquare          // work times position
	colLoad            // fixed cost of the configuration that work hides
	colContext         // grows while requests age
	ColRead            // context times batch
	ColBatch           // 0..1, drifts
	colMix             // 0..1, where both kinds of work meet
	ColShape           // constant inside a configuration
	ColRare            // a decaying trace of rare events
	ColNever           // all zero
	ColConstant        // 1
	NumColumns
)

// Plant simulates rows whose neighbours resemble each other: batch and context
// drift, work comes in bursts, and the noise is an AR(1) process with the given
// memory. E[y | x] = x.beta exactly.
func Plant(seed uint64, p Shape) Planted {
	return plant(rand.New(rand.NewPCG(seed, 1)), typical(), p)
}

func typical() []float64 {
	return []float64{1.6e6, 2.2e6, 1.25e6, 1.8e6, 1.4e6, 3200, 260, 300, 900, 0, 410}
}

// PlantDrawn is Plant with coefficients drawn from a prior that the options carry: normal
// about the typical ones, each with the given relative standard deviation and half of it
// in common.
func PlantDrawn(seed uint64, p Shape, sd float64) Planted {
	rng := rand.New(rand.NewPCG(seed, 2))
	mean := typical()
	beta := make([]float64, NumColumns)
	precision := make([]float64, NumColumns*NumColumns)
	common, n := rng.NormFloat64(), 0.0
	for _, b := range mean {
		if b > 0 {
			n++
		}
	}
	for j, b := range mean {
		if b == 0 {
			precision[j*NumColumns+j] = 1
			continue
		}
		beta[j] = b * (1 + sd*(common+rng.NormFloat64())/math.Sqrt2)
		for k, c := range mean { // the covariance of the relative errors is sd^2/2 (I + 11')
			if c > 0 {
				precision[j*NumColumns+k] = -1 / (n + 1) / (sd * sd / 2 * b * c)
			}
		}
		precision[j*NumColumns+j] += 1 / (sd * sd / 2 * b * b)
	}
	out := plant(rng, beta, p)
	out.O.Prior = mean
	out.O.Precision = precision
	out.O.Posterior = true
	out.O.Lambdas = []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3}
	return out
}

// plant simulates rows of the coefficients.
func plant(rng *rand.Rand, beta []float64, p Shape) Planted {
	out := Planted{D: &Data{P: NumColumns}, O: DefaultOptions(NumColumns), Beta: beta}
	out.O.Penalty[colMix] = 10
	out.O.Penalty[ColRare] = 10
	out.O.Penalty[ColShape] = 100
	if p.Configs > 1 {
		out.O.Penalty[ColConstant] = 100
	}
	for c := range p.Configs {
		simulateRun(rng, out.D, p, out.Beta, c)
	}
	return out
}

func simulateRun(rng *rand.Rand, d *Data, p Shape, beta []float64, config int) {
	size := math.Pow(1.7, float64(config%3)) // a larger model: more work, more load
	width := []float64{1, .5, .25, .4, .8}[config%5]
	x := make([]float64, NumColumns)
	batch := 0.0
	context := 0.0
	burst := 0.0
	rare := 0.0
	noise := rng.NormFloat64()
	for i := range p.Rows {
		batch = .97*batch + .24*rng.NormFloat64()
		context = .99*context + .14*rng.NormFloat64()
		rare = .8 * rare
		if rng.Float64() < .01 {
			rare += .3 * rng.Float64()
		}
		if burst = math.Max(0, burst-1); rng.Float64() < .05 {
			burst = float64(rng.IntN(6))
		}
		fillRow(rng, x, batch, context, burst, rare, size, width)
		noise = p.Memory*noise + math.Sqrt(1-p.Memory*p.Memory)*rng.NormFloat64()
		d.X = append(d.X, x...)
		d.Y = append(d.Y, Dot(x, beta)*(1+p.Noise*noise))
		d.Config = append(d.Config, int32(config))
		d.Regime = append(d.Regime, regimeOfRow(x))
		d.Time = append(d.Time, int64(i))
	}
}

func fillRow(rng *rand.Rand, x []float64, batch, context, burst, rare, size, width float64) {
	clear(x)
	requests := math.Round(64 / (1 + math.Exp(-batch)))
	mean := 600 * math.Exp(.6*context)
	if burst > 0 {
		tokens := 128 + 3968*rng.Float64()
		x[ColWork] = tokens * size * 4e-6
		x[colSquare] = tokens * (tokens/2 + 500*rng.Float64()) * size * 2e-10
	}
	x[colLoad] = math.Max(0, .006*size-x[ColWork]/2)
	x[colContext] = requests * size * 2e-5 * (1 + .3*rng.Float64())
	x[ColRead] = requests * mean * size * 5e-8
	x[ColBatch] = requests / 256
	if burst > 0 && requests > 0 {
		x[colMix] = math.Min(1, 40*x[ColWork]/(40*x[ColWork]+x[ColBatch]))
	}
	x[ColShape] = width
	x[ColRare] = rare
	x[ColConstant] = 1
}

func regimeOfRow(x []float64) int32 {
	switch {
	case x[ColWork] == 0:
		return 0
	case x[ColBatch] == 0:
		return 1
	}
	return 2
}

// Near compares element by element, relative to the wanted value (absolute
// 1e-15 where that is 0); NaN equals NaN.
func Near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %d values, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if math.IsNaN(want[i]) && math.IsNaN(got[i]) {
			continue
		}
		if !(math.Abs(got[i]-want[i]) <= math.Max(tol*math.Abs(want[i]), 1e-15)) {
			t.Errorf("%s[%d]: got %v, want %v (relative %g)", what, i, got[i], want[i], math.Abs(got[i]-want[i])/math.Abs(want[i]))
			return
		}
	}
}

// ThreeConfigs is a small data set.
func ThreeConfigs(seed uint64) Planted {
	return Plant(seed, Shape{Configs: 3, Rows: 300, Noise: .05, Memory: .5})
}
