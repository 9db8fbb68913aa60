package fit

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// Batches of a deployment's own coefficients: seeded, a third each of decode, mixed and prefill steps within the engine's limits.
const (
	libraryBatches = 450
	libraryFitted  = 300   // the others judge
	nearPeak       = 1.2e6 // us per second at the peak
	libraryLambda  = 1e-3  // weak: the batches are no sample, they are the model
	libraryPasses  = 10    // of weights by how far off each batch is
	offUnit        = 0.02  // relative error at which a batch keeps its weight,
	leastOff       = 0.005 // below which no batch weighs more,
	mostRegime     = 2     // how much more than evenly a regime that is further off may count
	regimeRows     = 3     // how many rows a regime's batches count as: what the terms miss of neighbours is alike
	unjudgedSD     = 0.15  // of all of a step whose family no server was measured of: within 30 % (kernels.Sentence) is two of them
	mapeSD         = 1.25  // standard errors in a mean absolute error, of normal errors
)

// tableSD are standard errors of an operator's time by how it was reached: what repeats of a measured kernel differ by, between rows and
// beyond them, from a row that stands for another, and from bytes alone.
var tableSD = [...]float64{library.Measured: 0.02, library.Interpolated: 0.03, library.Beyond: 0.03, library.Substituted: 0.25,
	library.Analytic: 0.25}

// expertSpread are what experts may take as well, each one standard error: nobody knows a router's skew, nor whether a row above a later
// one was disturbed or is what its kernel takes.
var expertSpread = []library.Options{{Load: "power_law_1.01"}, {Load: "balanced"}, {RawExperts: true}}

// Regimes in words, in the order of Draws.
var libraryRegimes = [NumRegimes]string{"decode", "mixed", "prefill"}

// LibraryFor are the coefficients of one deployment that nobody has traced: the terms of version 1.2, or 1.3 where its layers need it,
// fitted to what its kernels take by the published tables and their corrections, with how well the terms hold them and how sure all is
// (spec#library-terms). Code: not_in_library.
//
// The batches: 450, a third each of decode, mixed and prefill; the least sum of relative errors, by ten passes of weights 1/error (at
// least 0.5 %), regimes that are further off counted up to twice; lambda 0.001, times towards 1.2e6 us/s. Each
// correction's standard error, and per table and way it was reached the share of its operators, is projected on the
// terms like the times. So is what experts take more, and less, by rows of each other load (nobody knows a router's
// skew), and where a row above a later one is no disturbance. Representation: a regime weighs as much as three rows, O
// open: 1e6 us/s and 300 us.
func LibraryFor(d *deploy.Deployment) (*coeff.Set, error) {
	step, err := library.Bound(d, library.Options{})
	if err != nil {
		e := trace.Errorf(notInLibrary, "library: %v", err)
		return nil, e.WithHint("give a coefficient file with --coefficients, or simulate with --latency-model roofline")
	}
	s, err := newSums(d, step)
	if err != nil {
		return nil, err
	}
	beta, err := s.fit()
	if err != nil {
		return nil, err
	}
	covariance, err := s.covariance(beta, familySD(step))
	if err != nil {
		return nil, err
	}
	return s.set(d, step, beta, covariance), nil
}

// sums are seeded batches of a deployment: their features, what tables and corrections say each takes, us, and what may move that.
type sums struct {
	version features.Version
	data    ridge.Data
	sources [][]float64 // us by batch, one standard error each
	weights []float64
	fitted  []int32
	judging []int32 // the others
}

// newSums draws the batches and prices them.
func newSums(d *deploy.Deployment, step *library.Step) (*sums, error) {
	s := &sums{version: features.V12}
	if features.DefaultVersion(d) == features.V13 {
		s.version = features.V13
	}
	space, err := features.New(s.version, d)
	if err != nil {
		return nil, err
	}
	s.data.P = len(space.BetaFeatures())
	learned := library.Learned()
	price := step.NewPricer()
	theta := learned.On(d.Hardware.Name)
	place := sourcesOf(step)
	var others []*library.Pricer
	for _, o := range expertSpread {
		if other, err := library.Bound(d, o); err == nil { // without such rows nothing is known of them
			others = append(others, other.NewPricer())
		}
	}
	n := slices.Max(place) + 1
	s.sources = make([][]float64, n+2*len(others))
	for k := range s.sources {
		s.sources[k] = make([]float64, libraryBatches)
	}
	q := NewDraws(5, 1)
	x := make([]float64, s.data.P)
	buf := []trace.Chunk(nil)
	var y [library.NumStep]float64
	for i := range libraryBatches {
		regime := int32(i) % NumRegimes
		buf = Within(q.Batch(regime, buf), &d.Engine)
		if _, err := space.Beta(new(space.Sum(buf)), x); err != nil {
			return nil, err
		}
		batch := library.BatchOf(buf)
		price.Features(&batch, &theta, &y)
		s.data.X, s.data.Y = append(s.data.X, x...), append(s.data.Y, ridge.Dot(theta[:], y[:]))
		s.data.Config = append(s.data.Config, 0)
		s.data.Regime = append(s.data.Regime, regime)
		s.fitted = append(s.fitted, int32(i))
		for k := range y {
			_, se := learned.Value(k, d.Hardware.Name)
			s.sources[k][i] = se * y[k]
		}
		for k, us := range step.Us(&batch) {
			s.sources[place[k]][i] += tableSD[step.Operators[k].Reached] * us
		}
		for k, other := range others { // terms are not negative: more and less apart
			more := other.Parts(&batch)[library.Experts] - price.Parts(&batch)[library.Experts]
			s.sources[n+2*k][i], s.sources[n+2*k+1][i] = max(0, more), max(0, -more)
		}
	}
	s.fitted, s.judging = s.fitted[:libraryFitted], s.fitted[libraryFitted:]
	s.weights = ridge.Weights(&s.data, s.options(0))
	return s, nil
}

// sourcesOf numbers what is uncertain of each operator's time, behind the corrections: operators of one table, reached alike, are wrong
// alike.
func sourcesOf(step *library.Step) (place []int) {
	type kind struct {
		table   string
		reached library.Reached
	}
	var kinds []kind
	for i := range step.Operators {
		k := kind{step.Operators[i].Table, step.Operators[i].Reached}
		at := slices.Index(kinds, k)
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, k)
		}
		place = append(place, library.NumStep+at)
	}
	return place
}

// familySD is the standard error of all kernels of a step together.
func familySD(step *library.Step) float64 {
	if j, _ := library.Learned().JudgedAs(step); j != nil {
		return mapeSD * j.TPOTMape
	}
	return unjudgedSD
}

// options are those of a projection on terms of which times tend to a value: what one deployment cannot tell apart runs near the peak,
// not at 0 by accident.
func (s *sums) options(towards float64) ridge.Options {
	o := ridge.DefaultOptions(s.data.P)
	o.EpsUs = 1
	o.Workers = 1
	o.Prior = make([]float64, s.data.P)
	for j, f := range features.BetaFeatures(s.version) {
		if f.IsTime() && f.Kind != features.Constant {
			o.Prior[j] = towards
		}
	}
	return o
}

// project are the terms' coefficients nearest to what batches take.
func (s *sums) project(us []float64, towards float64) ([]float64, error) {
	data := s.data
	data.Y = us
	fit, err := ridge.FitRows(&data, s.weights, s.fitted, libraryLambda, s.options(towards))
	return fit.Beta, err
}

// fit are the terms' coefficients of least absolute relative error: where a step leaves its graphs no term bends, and the others need not
// bend for it.
func (s *sums) fit() ([]float64, error) {
	even := slices.Clone(s.weights)
	more := slices.Repeat([]float64{1}, int(NumRegimes))
	for pass := 0; ; pass++ {
		beta, err := s.project(s.data.Y, nearPeak)
		if err != nil || pass == libraryPasses {
			return beta, err
		}
		missed := s.missed(beta, s.fitted)
		for r, m := range missed {
			more[r] = min(mostRegime, max(1./mostRegime, more[r]*math.Pow(m/max(leastOff, stat.Mean(missed)), 0.3)))
		}
		for _, i := range s.fitted {
			s.weights[i] = even[i] * more[s.data.Regime[i]] * offUnit / max(leastOff, s.off(beta, i))
		}
	}
}

// off is a batch's relative error.
func (s *sums) off(beta []float64, i int32) float64 {
	return math.Abs(ridge.Dot(s.data.Row(int(i)), beta)/s.data.Y[i] - 1)
}

// covariance is what the sums leave open of the terms. Whatever moves the sums moves their projection; batches of one regime are wrong
// together by what the terms miss, so that a regime counts as few rows; and what no batch tells stays as open as without a library.
func (s *sums) covariance(beta []float64, family float64) ([][]float64, error) {
	p := s.data.P
	a := make([]float64, p*p)
	sd := make([]float64, p)
	missed := s.missed(beta, s.judging)
	for _, i := range s.fitted {
		x := s.data.Row(int(i))
		e := missed[s.data.Regime[i]] * s.data.Y[i]
		w := regimeRows * float64(NumRegimes) / float64(len(s.fitted)) / (e * e)
		for k := range a {
			a[k] += w * x[k/p] * x[k%p]
		}
	}
	for j, f := range features.BetaFeatures(s.version) {
		open := float64(unknownUsSD)
		if f.IsTime() {
			open = unknownTimeSD
		}
		if sd[j] = 0; a[j*p+j] > 0 {
			a[j*p+j] += 1 / (open * open)
			sd[j] = 1 / math.Sqrt(a[j*p+j])
		}
	}
	for k := range a {
		if a[k] *= sd[k/p] * sd[k%p]; k/p == k%p && sd[k%p] == 0 {
			a[k] = 1
		}
	}
	inverse := stat.Inverse(a, p)
	out := make([][]float64, p)
	for j := range out {
		out[j] = make([]float64, p)
		for k := range p {
			out[j][k] = sd[j]*sd[k]*inverse[j*p+k] + family*family*beta[j]*beta[k]
		}
	}
	for _, us := range s.sources {
		b, err := s.project(us, 0)
		if err != nil {
			return nil, err
		}
		for j := range p {
			for k := range p {
				out[j][k] += b[j] * b[k]
			}
		}
	}
	return out, nil
}

// missed is the median relative error by regime of batches.
func (s *sums) missed(beta []float64, batches []int32) (by []float64) {
	var off [NumRegimes][]float64
	for _, i := range batches {
		off[s.data.Regime[i]] = append(off[s.data.Regime[i]], s.off(beta, i))
	}
	for r := range off {
		by = append(by, stat.Round(stat.Median(off[r]), 4))
	}
	return by
}

// set is the coefficient file of a deployment.
func (s *sums) set(d *deploy.Deployment, step *library.Step, beta []float64, covariance [][]float64) *coeff.Set {
	learned := library.Learned()
	out := &coeff.Set{SchemaVersion: coeff.SchemaVersion, SpecVersion: s.version, FeatureSet: features.SetOf(s.version),
		Recipe: "relative", Command: "library", BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma, Covariance: covariance,
		Beta: features.NewCoefficients(features.BetaFeatures(s.version)), TrainedOn: coeff.TrainedOn{Hardware: []string{d.Hardware.Name},
			VLLMVersions: step.Versions(), Date: learned.Version, Samples: int64(len(s.fitted)), Lambda: libraryLambda,
			Gamma: features.DefaultGamma},
		Alpha: []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: features.NewCoefficients(
			features.AlphaFeatures(s.version))}}, Inputs: step.Inputs()}
	out.Library = &coeff.Library{Version: learned.Version, Family: step.Family, Judged: learned.Sentence(step),
		Representation: s.missed(beta, s.judging)}
	if features.Layered(s.version) {
		own := coeff.ConfigOf(d, []string{}, 0)
		own.Layers = own.Deployment.LayerSums()
		own.Layers.Family = out.Library.Family
		own.Layers.Judged = out.Library.Judged
		out.Configs = []coeff.Config{own}
	}
	for j := range out.Beta {
		t := &out.Beta[j]
		t.Value = beta[j]
		lo, hi := math.Inf(1), 0.0
		for i := j; i < len(s.data.X); i += s.data.P {
			lo = math.Min(lo, s.data.X[i])
			hi = math.Max(hi, s.data.X[i])
		}
		if t.Identified, t.Evidence = coeff.Within, "kernels+silicon"; hi == 0 {
			t.Identified, t.Evidence = coeff.PriorOnly, ""
			continue
		}
		half := 1.959963984540054 * math.Sqrt(covariance[j][j])
		t.Range, t.CI95 = &[2]float64{lo, hi}, &[2]float64{math.Max(0, t.Value-half), t.Value + half}
	}
	us, _ := learned.Value(library.NumStep, "")
	for i := range out.Alpha[0].Coefficients {
		t := &out.Alpha[0].Coefficients[i]
		if t.Identified = coeff.PriorOnly; i == slotBase-1 {
			t.Value = us
			t.Identified = coeff.BetweenConfigs
			t.Evidence = "silicon"
		}
	}
	for r, e := range libraryRegimes {
		out.Identifiability = append(out.Identifiability, fmt.Sprintf("%s batches: the terms hold the sums of kernels within %.1f %% (median)", e,
			100*out.Library.Representation[r]))
	}
	return out
}

const notInLibrary trace.Code = "not_in_library"

// slotBase is the overhead's term that every request takes.
const slotBase = 4
