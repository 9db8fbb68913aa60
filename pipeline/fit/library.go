package fit

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/kernels"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// Batches of a deployment's own coefficients: seeded, a third each of decode, mixed and prefill steps within the engine's limits.
const (
	libraryBatches = 450
	libraryFitted  = 300   // the others judge
	nearPeak       = 1.2e6 // us per second at the peak
	libraryLambda  = 1e-2  // weak: the batches are no sample, they are the model
	interpolated   = 0.03  // standard error of a table between its rows, of a term
	termSD         = 0.4   // of a term whatever the tables say: another split between terms takes the same time
	substituted    = 0.25  // of a row that stands for another
)

// slotBase is the overhead's term that every request takes.
const slotBase = 4

// Regimes in words, in the order of Draws.
var libraryRegimes = [NumRegimes]string{"decode", "mixed", "prefill"}

// libraryVersion is the version of the library's terms for a deployment: 1.2, and 1.3 for unlike layers.
func libraryVersion(d *deploy.Deployment) features.Version {
	if features.DefaultVersion(d) == features.V13 {
		return features.V13
	}
	return features.V12
}

// LibraryFor are the coefficients of one deployment that nobody has traced: the terms of [libraryVersion] fitted to what its kernels take
// by the published tables and their corrections, with how well the terms hold them and how sure all is
// (spec#library-terms). Code: not_in_library.
func LibraryFor(d *deploy.Deployment) (*coeff.Set, error) {
	step, err := kernels.Bound(d, kernels.Options{})
	if err != nil {
		e := trace.Errorf(coeff.NotInLibrary, "library: %v", err)
		return nil, e.WithHint("give a coefficient file with --coefficients, or simulate with --latency-model roofline")
	}
	data, err := libraryRows(d, step)
	if err != nil {
		return nil, err
	}
	seen, n := make([]int32, 0, len(data.Y)), len(data.Y)*libraryFitted/libraryBatches
	for i := range n {
		seen = append(seen, int32(i))
	}
	o := ridge.DefaultOptions(data.P)
	o.EpsUs, o.Workers, o.Prior = 1, 1, make([]float64, data.P)
	for j, f := range features.BetaFeatures(libraryVersion(d)) {
		if f.IsTime() && f.Kind != features.Constant { // what one deployment cannot tell apart runs near the peak, not at 0 by accident
			o.Prior[j] = nearPeak
		}
	}
	fit, err := ridge.FitRows(data, ridge.Weights(data, o), seen, libraryLambda, o)
	if err != nil {
		return nil, err
	}
	return librarySet(d, step, data, fit.Beta, n), nil
}

// libraryRows are the batches' features beside what the tables say of them, us.
func libraryRows(d *deploy.Deployment, step *kernels.Step) (*ridge.Data, error) {
	space, err := features.New(libraryVersion(d), d)
	if err != nil {
		return nil, err
	}
	data := &ridge.Data{P: len(space.BetaFeatures())}
	theta, price := kernels.Learned().On(d.Hardware.Name), step.NewPricer()
	q, x, buf := NewDraws(5, 1), make([]float64, data.P), []trace.Chunk(nil)
	var y [kernels.NumStep]float64
	for i := range libraryBatches {
		regime := int32(i) % NumRegimes
		buf = Within(q.Batch(regime, buf), &d.Engine)
		in := space.Sum(buf)
		if _, err := space.Beta(&in, x); err != nil {
			return nil, err
		}
		batch := kernels.BatchOf(buf)
		price.Features(&batch, &theta, &y)
		data.X, data.Y = append(data.X, x...), append(data.Y, ridge.Dot(theta[:], y[:]))
		data.Config, data.Regime = append(data.Config, 0), append(data.Regime, regime)
	}
	return data, nil
}

// librarySet is the coefficient file of a deployment whose terms were fitted to the first rows; the others judge.
func librarySet(d *deploy.Deployment, step *kernels.Step, data *ridge.Data, beta []float64, fitted int) *coeff.Set {
	learned, v := kernels.Learned(), libraryVersion(d)
	s := &coeff.Set{SchemaVersion: coeff.SchemaVersion, SpecVersion: v, FeatureSet: features.SetOf(v),
		Recipe: "relative", Command: "library", BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma,
		Beta: features.NewCoefficients(features.BetaFeatures(v)), TrainedOn: coeff.TrainedOn{Hardware: []string{d.Hardware.Name},
			VLLMVersions: step.Versions(), Date: learned.Version, Samples: int64(fitted), Lambda: libraryLambda, Gamma: features.DefaultGamma},
		Alpha: []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: features.NewCoefficients(
			features.AlphaFeatures(v))}}}
	none := []float64{0, 0}
	s.Library = &coeff.Library{Version: learned.Version, Weights: step.DType, MoE: d.Model.IsMoE(), Rules: "engine", Family: step.Family,
		Judged: learned.Sentence(step), Host: coeff.HostWork{RankUs: none, SyncStepUs: none, SyncSequenceUs: none}}
	if j, _ := learned.JudgedAs(step); j != nil {
		s.Library.Expected = coeff.ExpectedError{TPOTMape: j.TPOTMape, TTFTMedian: j.TTFTMedian, Points: j.Points, OnGPU: true}
	}
	var worst float64
	s.Library.Representation, worst = libraryQuality(data, beta, fitted)
	_, scaleSE := learned.Value(kernels.ScaleGPU, d.Hardware.Name)
	table := 0.0
	for i := range step.Operators {
		switch step.Operators[i].Reached {
		case kernels.Interpolated, kernels.Beyond:
			table = max(table, interpolated)
		case kernels.Substituted:
			table = substituted
		}
	}
	own := math.Sqrt(float64(worst*worst) + float64(table*table) + float64(termSD*termSD))
	s.Covariance = make([][]float64, data.P)
	for j := range s.Beta {
		t := &s.Beta[j]
		t.Value, s.Covariance[j] = beta[j], make([]float64, data.P)
		lo, hi := math.Inf(1), 0.0
		for i := j; i < len(data.X); i += data.P {
			lo, hi = math.Min(lo, data.X[i]), math.Max(hi, data.X[i])
		}
		if t.Identified, t.Evidence = coeff.Within, "kernels+silicon"; hi == 0 {
			t.Identified, t.Evidence = coeff.PriorOnly, ""
			continue
		}
		t.Range = &[2]float64{lo, hi}
		for k := range beta {
			s.Covariance[j][k] = float64(scaleSE * scaleSE * beta[j] * beta[k])
		}
		s.Covariance[j][j] += float64(own * own * beta[j] * beta[j])
		if half := float64(1.959963984540054 * math.Sqrt(s.Covariance[j][j])); half > 0 {
			t.CI95 = &[2]float64{math.Max(0, t.Value-half), t.Value + half}
		}
	}
	_, hostSE := learned.Value(kernels.HostStep, "")
	bias := slices.IndexFunc(s.Beta, func(c coeff.Coefficient) bool { return c.Name == "bias" })
	if bias >= 0 && beta[bias] > 2*hostSE { // what is as good as 0 has nowhere to go
		s.Covariance[bias][bias] += float64(hostSE * hostSE)
	}
	us, _ := learned.Value(kernels.NumStep, "")
	for i := range s.Alpha[0].Coefficients {
		t := &s.Alpha[0].Coefficients[i]
		if t.Identified = coeff.PriorOnly; i == slotBase-1 {
			t.Value, t.Identified, t.Evidence = us, coeff.BetweenConfigs, "silicon"
		}
	}
	s.Inputs = step.Inputs()
	for r, e := range libraryRegimes {
		s.Identifiability = append(s.Identifiability, fmt.Sprintf("%s batches: the terms hold the sums of kernels within %.1f %% (median)", e,
			100*s.Library.Representation[r]))
	}
	return s
}

// libraryQuality is the median relative error by regime on the batches that were not fitted, and the largest of them.
func libraryQuality(data *ridge.Data, beta []float64, fitted int) (by []float64, worst float64) {
	var off [NumRegimes][]float64
	for i := fitted; i < len(data.Y); i++ {
		off[data.Regime[i]] = append(off[data.Regime[i]], math.Abs(ridge.Dot(data.Row(i), beta)/data.Y[i]-1))
	}
	for r := range off {
		by = append(by, stat.Round(stat.Median(off[r]), 4))
		worst = max(worst, by[r])
	}
	return by, worst
}
