package library

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
)

// fileName is the family's file in the library.
func (f *fitted) fileName() string {
	name := strings.ToLower(f.tables.Hardware.Name) + "-" + f.family.Weights
	if f.family.MoE {
		name += "-moe"
	}
	return name + ".yaml"
}

// artifact is the family's coefficient file: kernels times the GPU's factor,
// with the host work that is the same on every deployment.
func (b *builder) artifact(f *fitted, c *correction, expected coeff.ExpectedError, inputs []coeff.Input) *coeff.Set {
	values, scale, scaleSE, measured := c.on(f)
	s := setOf(values)
	kind := "dense models"
	if f.family.MoE {
		kind = "mixtures of experts"
	}
	s.Command = fmt.Sprintf("library build --rules %s --batches %d --seed %d", b.Rules, b.Batches, b.Seed)
	s.TrainedOn = coeff.TrainedOn{Hardware: []string{f.tables.Hardware.Name}, VLLMVersions: []string{f.tables.Version}, Date: b.Date,
		Samples: int64(len(f.Y)), Lambda: f.lambda, Gamma: features.DefaultGamma}
	s.Library = &coeff.Library{Version: b.Date, Weights: f.family.Weights, MoE: f.family.MoE, Rules: string(b.Rules), Expected: expected,
		Host: coeff.HostWork{RankUs: c.pair(hostRank), SyncStepUs: c.pair(syncStep), SyncSequenceUs: c.pair(syncSequence)}}
	s.Inputs = inputs
	s.Covariance = c.spread(f, scale, scaleSE)
	f.describe(s, measured)
	s.Identifiability = []string{fmt.Sprintf("%s with %s weights on %s: %d deployments of %d models, kernels of vLLM %s, times %.3f",
		kind, f.family.Weights, f.tables.Hardware.Name, len(f.deps), len(f.models), f.tables.Version, scale)}
	for r := range learn.NumRegimes {
		q := &f.regimes[r]
		s.Identifiability = append(s.Identifiability, fmt.Sprintf("%s batches: the terms hold the tables within %.1f %% (median; mean of "+
			"the worst deployment, %s, %.1f %%)",
			regimeNames[r], 100*q.MedianAPE, q.WorstDeployment, 100*q.Worst))
	}
	return s
}

// on are the coefficients of step time and overhead on one GPU of the family,
// and the factor on its kernels; a GPU without measured servers takes the mean
// of the others', known no better than before.
func (c *correction) on(f *fitted) (values []float64, scale, se float64, measured bool) {
	values = make([]float64, numColumns)
	scale, se = stat.Mean(c.Theta[numCommon:]), scaleSD
	if len(c.GPUs) == 0 {
		scale = 1
	}
	if i := slices.Index(c.GPUs, f.tables.Hardware.Name); i >= 0 {
		p := c.pair(numCommon + i)
		scale, se, measured = p[0], p[1], true
	}
	for j, v := range f.beta {
		values[j] = scale * v
	}
	values[slotBias-1] += c.Theta[hostStep]
	values[slotSequences-1] += float64(seqsUnit * c.Theta[hostSequence])
	values[betaSlots+slotBase-1] = c.Theta[entry]
	return values, scale, se, measured
}

// pair is a parameter and its standard error.
func (c *correction) pair(k int) []float64 {
	se := c.prior(k).sd
	if n := len(c.Theta); c.Covariance != nil {
		se = math.Sqrt(c.Covariance[k*n+k])
	}
	return []float64{c.Theta[k], se}
}

// spread is the covariance of a new model's coefficients: between models, and
// of the correction.
func (c *correction) spread(f *fitted, scale, scaleSE float64) [][]float64 {
	out := make([][]float64, betaSlots)
	for j := range out {
		out[j] = make([]float64, betaSlots)
		for k := range out[j] {
			out[j][k] = float64(scale*scale*f.covariance[j][k]) + float64(square(scaleSE)*f.beta[j]*f.beta[k])
		}
	}
	out[slotBias-1][slotBias-1] += square(c.pair(hostStep)[1])
	out[slotSequences-1][slotSequences-1] += square(seqsUnit * c.pair(hostSequence)[1])
	return out
}

// describe says of every term what it rests on, its interval and the range of
// its feature.
func (f *fitted) describe(s *coeff.Set, measured bool) {
	for j, feature := range features.BetaFeatures(features.V12) {
		t := &s.Beta[j]
		lo, hi := math.Inf(1), 0.0
		for i := j; i < len(f.X); i += f.P {
			lo, hi = math.Min(lo, f.X[i]), math.Max(hi, f.X[i])
		}
		if half := float64(1.959963984540054 * math.Sqrt(s.Covariance[j][j])); half > 0 {
			t.CI95 = &[2]float64{math.Max(0, t.Value-half), t.Value + half}
		}
		switch {
		case j == slotBias-1:
			t.Evidence, t.Identified, lo, hi = onSilicon, coeff.BetweenConfigs, 1, 1
		case hi == 0:
			t.Identified = coeff.PriorOnly
			continue
		case measured:
			t.Evidence, t.Identified = onKernelsAndSilicon, coeff.Within
		default:
			t.Evidence, t.Identified = onKernels, coeff.Within
		}
		if feature.IsTime() || j == slotBias-1 {
			t.Range = &[2]float64{lo, hi}
		}
	}
	for i := range s.Alpha[0].Coefficients {
		t := &s.Alpha[0].Coefficients[i]
		if t.Identified = coeff.PriorOnly; i == slotBase-1 {
			t.Identified, t.Evidence = coeff.BetweenConfigs, onSilicon
		}
	}
}

// What a coefficient of the library rests on.
const (
	onKernels           = "kernels"         // published kernel times
	onKernelsAndSilicon = "kernels+silicon" // those, corrected by measured servers of that GPU
	onSilicon           = "silicon"         // measured servers alone
)
