package ridge

import (
	"math"
	"math/rand/v2"
)

// planted is a data set with known coefficients.
type planted struct {
	d    *Data
	o    Options
	beta []float64 // us per unit of each column
}

// plantOptions shape a simulated data set.
type plantOptions struct {
	configs, rows int
	noise         float64 // relative standard deviation
	memory        float64 // autocorrelation of the noise per row
}

// Columns of the simulated rows. Costs are in seconds at an ideal rate, so a
// coefficient of 1e6 us/s means exactly that rate.
const (
	colWork     = iota // comes in bursts, like a queue being drained
	colSquare          // work times position
	colLoad            // fixed cost of the configuration that work hides
	colContext         // grows while requests age
	colRead            // context times batch
	colBatch           // 0..1, drifts
	colMix             // 0..1, where both kinds of work meet
	colShape           // constant inside a configuration
	colRare            // a decaying trace of rare events
	colNever           // all zero
	colConstant        // 1
	numColumns
)

// plant simulates rows whose neighbours resemble each other: batch and context
// drift, work comes in bursts, and the noise is an AR(1) process with the given
// memory. E[y | x] = x.beta exactly.
func plant(seed uint64, p plantOptions) planted {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := planted{
		d:    &Data{P: numColumns},
		o:    DefaultOptions(numColumns),
		beta: []float64{1.6e6, 2.2e6, 1.25e6, 1.8e6, 1.4e6, 3200, 260, 300, 900, 0, 410},
	}
	out.o.Penalty[colMix], out.o.Penalty[colRare], out.o.Penalty[colShape] = 10, 10, 100
	if p.configs > 1 {
		out.o.Penalty[colConstant] = 100
	}
	for c := range p.configs {
		simulateRun(rng, out.d, p, out.beta, c)
	}
	return out
}

func simulateRun(rng *rand.Rand, d *Data, p plantOptions, beta []float64, config int) {
	size := math.Pow(1.7, float64(config%3)) // a larger model: more work, more load
	width := []float64{1, .5, .25, .4, .8}[config%5]
	x := make([]float64, numColumns)
	batch, context, burst, rare, noise := 0.0, 0.0, 0.0, 0.0, rng.NormFloat64()
	for i := range p.rows {
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
		noise = p.memory*noise + math.Sqrt(1-p.memory*p.memory)*rng.NormFloat64()
		d.X = append(d.X, x...)
		d.Y = append(d.Y, Dot(x, beta)*(1+p.noise*noise))
		d.Config = append(d.Config, int32(config))
		d.Regime = append(d.Regime, regimeOf(x))
		d.Time = append(d.Time, int64(i))
	}
}

func fillRow(rng *rand.Rand, x []float64, batch, context, burst, rare, size, width float64) {
	clear(x)
	requests := math.Round(64 / (1 + math.Exp(-batch)))
	mean := 600 * math.Exp(.6*context)
	if burst > 0 {
		tokens := 128 + 3968*rng.Float64()
		x[colWork] = tokens * size * 4e-6
		x[colSquare] = tokens * (tokens/2 + 500*rng.Float64()) * size * 2e-10
	}
	x[colLoad] = math.Max(0, .006*size-x[colWork]/2)
	x[colContext] = requests * size * 2e-5 * (1 + .3*rng.Float64())
	x[colRead] = requests * mean * size * 5e-8
	x[colBatch] = requests / 256
	if burst > 0 && requests > 0 {
		x[colMix] = math.Min(1, 40*x[colWork]/(40*x[colWork]+x[colBatch]))
	}
	x[colShape] = width
	x[colRare] = rare
	x[colConstant] = 1
}

func regimeOf(x []float64) int32 {
	switch {
	case x[colWork] == 0:
		return 0
	case x[colBatch] == 0:
		return 1
	}
	return 2
}
