package fit

// This file makes the coefficients of a deployment from the kernel tables of package library: the
// terms are fitted to the time of the kernels in drawn batches, and a covariance states how far off
// that can be. It is the prior of fits and, without a recording, the coefficient set of predictions.

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

// Constants of the fit to a deployment's kernel times (spec#library-terms).
const (
	librarySeed    = 1
	libraryBatches = 450   // drawn with the seed, a third each of decode, mixed and prefill steps within the engine's limits
	libraryFitted  = 300   // the others measure how well the terms represent the kernels
	nearPeak       = 1.2e6 // prior of time-like terms, us per second of work at the hardware's peak
	libraryLambda  = 1e-3  // weak, because kernel times have no noise to shrink
	libraryPasses  = 10    // of reweighting by each batch's relative error
	offUnit        = 0.02  // relative error at which a batch keeps its weight
	leastOff       = 0.005 // relative error below which weights grow no further
	mostRegime     = 2     // largest factor on the weight of a regime that is represented worse than the others
	regimePower    = 0.3   // power of a regime's error, relative to the mean, by which a pass changes its weight
	regimeRows     = 3     // independent rows that the batches of a regime count as, because their errors are alike
	unjudgedSD     = 0.15  // relative standard error of a step, for families of models without a measured server
	mapeSD         = 1.25  // standard deviation over mean absolute error, of normal errors: sqrt(pi/2)
)

// tableSD are standard errors of an operator's time by how the tables cover it, relative to the time: repeats of
// a measured kernel differ by 2 %, times between rows and beyond them by 3 %. The 25 % of times from another kernel's
// row, or computed from bytes, was chosen and not measured: there is no row to compare such a time with.
var tableSD = [...]float64{
	library.Measured:     0.02,
	library.Interpolated: 0.03,
	library.Beyond:       0.03,
	library.Substituted:  0.25,
	library.Analytic:     0.25,
}

// expertSpread are other distributions of tokens over a model's experts. Each counts as one
// standard error away, because the router's skew is unknown, and so is whether a row of a table
// that is slower than a later one was disturbed.
var expertSpread = []library.Options{{Load: "power_law_1.01"}, {Load: "balanced"}, {RawExperts: true}}

// slotBase is the 1-based position of base_bias, the constant term of the overhead, among the alpha features.
const slotBase = 4

// libraryRegimes names the regimes in the order of Draws.
var libraryRegimes = [NumRegimes]string{coeff.RegimeDecode, coeff.RegimeMixed, coeff.RegimePrefill}

// LibraryFor returns the coefficients of a deployment from published kernel tables (AIConfigurator's, in package library)
// and their corrections alone, without a recording (spec#library-terms). The terms are those of version 1.2,
// or of 1.3 if the model's layers need it. Code: not_in_library.
//
// The terms are fitted to the time of the kernels in 300 seeded batches, a third each of decode,
// mixed and prefill steps; 150 more measure how well the terms represent it. The fit minimises the sum
// of relative errors, by ten passes of weights 1/error (at least 0.5 %); regimes with larger errors
// count up to twice; times are drawn towards 1.2e6 us/s with lambda 0.001.
//
// The covariance is the sum of what could change these times: each correction's standard error; the
// operators' errors by table and by how it covers them; and other loads of the experts. Each is
// projected on the terms as the times are. A regime counts as three independent rows. Terms that no
// batch shows keep the standard errors of a fit without a library, 1e6 us/s and 300 us.
func LibraryFor(d *deploy.Deployment) (*coeff.Set, error) {
	step, err := library.Bound(d, library.Options{})
	if err != nil {
		e := trace.Errorf(notInLibrary, "library: %v", err)
		return nil, e.WithHint("give a coefficient file with --coefficients, or simulate with --latency-model roofline")
	}
	s, err := newKernelSums(d, step)
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

// kernelSums are drawn batches of a deployment, and the time that its kernels take for each.
type kernelSums struct {
	version features.Version
	data    ridge.Data  // features, and the sum of the kernels' times, us; the regimes are those of Draws
	sources [][]float64 // by source of uncertainty, then by batch: one standard error of its time, us
	weights []float64   // of the batches
	fitted  []int32     // batches that are fitted
	judging []int32     // the others
}

// newKernelSums returns the sums of the times of the kernels in drawn batches.
func newKernelSums(d *deploy.Deployment, step *library.Step) (*kernelSums, error) {
	s := &kernelSums{version: features.V12}
	if features.DefaultVersion(d) == features.V13 {
		s.version = features.V13
	}
	space, err := features.New(s.version, d)
	if err != nil {
		return nil, err
	}
	s.data.P = len(space.BetaFeatures())
	learned := library.Learned()
	pricer := step.NewPricer()
	theta := learned.On(d.Hardware.Name) // the corrections: a step's time is theta times its parts
	place := sourcesOf(step)
	var others []*library.Pricer // of the other loads of experts
	for _, o := range expertSpread {
		other, err := library.Bound(d, o)
		switch {
		case trace.CodeOf(err) == library.NoRows: // this load was not measured: its uncertainty stays unknown
		case err != nil:
			return nil, err
		default:
			others = append(others, other.NewPricer())
		}
	}
	// s.sources has the corrections first, then the tables of operators, then two for each other load.
	firstLoad := slices.Max(place) + 1
	s.sources = make([][]float64, firstLoad+2*len(others))
	for k := range s.sources {
		s.sources[k] = make([]float64, libraryBatches)
	}
	q := NewDraws(BatchCoordinates, librarySeed)
	row := make([]float64, s.data.P)
	buf := []trace.Chunk(nil)
	var parts [library.NumStep]float64
	for i := range libraryBatches {
		regime := int32(i) % NumRegimes
		buf = Within(q.Batch(regime, buf), &d.Engine)
		if _, err := space.Beta(new(space.Sum(buf)), row); err != nil {
			return nil, err
		}
		batch := library.BatchOf(buf)
		// Outside CUDA graphs the parts are those of the slower of GPU and host, and theta decides which that is.
		pricer.Features(&batch, &theta, &parts)
		s.data.X = append(s.data.X, row...)
		s.data.Y = append(s.data.Y, ridge.Dot(theta[:], parts[:]))
		s.data.Config = append(s.data.Config, 0)
		s.data.Regime = append(s.data.Regime, regime)
		s.fitted = append(s.fitted, int32(i))
		// One standard error of each source: of the corrections, of each operator's table, and of the
		// distribution of tokens over experts. The last two are of the tables' times, without the corrections that are in
		// the target: those scale kernels by about a percent, or a tenth with prompts, which hardly changes an error.
		for k := range parts {
			_, se := learned.Value(k, d.Hardware.Name)
			s.sources[k][i] = se * parts[k]
		}
		for k, us := range step.Us(&batch) {
			s.sources[place[k]][i] += tableSD[step.Operators[k].Reached] * us
		}
		for k, other := range others {
			// The fit to a source has no negative terms, so that more time and less time are two sources.
			moreUs := other.Parts(&batch)[library.Experts] - pricer.Parts(&batch)[library.Experts]
			s.sources[firstLoad+2*k][i] = max(0, moreUs)
			s.sources[firstLoad+2*k+1][i] = max(0, -moreUs)
		}
	}
	// The regimes follow each other in turn, so both parts have a third of each.
	s.judging = s.fitted[libraryFitted:]
	s.fitted = s.fitted[:libraryFitted]
	s.weights = ridge.Weights(&s.data, s.options(0)) // weights do not depend on the prior
	return s, nil
}

// sourcesOf returns for each operator the number of the source of its time's uncertainty, after
// those of the corrections. Operators of one table that it covers in the same way have a common
// error.
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

// familySD returns the relative standard error of the step times of the model's family.
func familySD(step *library.Step) float64 {
	if j, _ := library.Learned().JudgedAs(step); j != nil {
		return mapeSD * j.TPOTMape
	}
	return unjudgedSD
}

// options returns the ridge options with `towards`, us/s, as prior of the time-like terms; 0 for none.
// The prior keeps terms that one deployment does not separate near the hardware's peak, instead of
// making some of them 0.
func (s *kernelSums) options(towards float64) ridge.Options {
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

// project returns the terms fitted to times of the batches, us.
func (s *kernelSums) project(us []float64, towards float64) ([]float64, error) {
	data := s.data
	data.Y = us
	fit, err := ridge.FitRows(&data, s.weights, s.fitted, libraryLambda, s.options(towards))
	return fit.Beta, err
}

// fit returns the terms that fit the kernels' times with the least absolute relative error. Step
// times jump where a batch becomes too large for CUDA graphs, which no term follows; squared errors
// would distort the other terms there.
func (s *kernelSums) fit() ([]float64, error) {
	even := slices.Clone(s.weights)
	factor := slices.Repeat([]float64{1}, int(NumRegimes)) // on the weights of each regime
	for pass := 0; ; pass++ {
		beta, err := s.project(s.data.Y, nearPeak)
		if err != nil || pass == libraryPasses {
			return beta, err
		}
		missed := s.medianErrors(beta, s.fitted)
		mean := max(leastOff, stat.Mean(missed))
		// A regime whose errors are larger than the mean gains weight, so that none is given up.
		for r, regimeError := range missed {
			next := factor[r] * math.Pow(regimeError/mean, regimePower)
			factor[r] = min(mostRegime, max(1./mostRegime, next))
		}
		// A squared error times 1/|error| is an absolute error.
		for _, i := range s.fitted {
			s.weights[i] = even[i] * factor[s.data.Regime[i]] * offUnit / max(leastOff, s.relativeError(beta, i))
		}
	}
}

// relativeError returns the absolute relative error of batch i.
func (s *kernelSums) relativeError(beta []float64, i int32) float64 {
	return math.Abs(ridge.Dot(s.data.Row(int(i)), beta)/s.data.Y[i] - 1)
}

// covariance returns the covariance of the terms' errors: each source of uncertainty shifts the
// times of the batches and therefore the terms fitted to them, and the terms do not represent the
// times exactly. A direction that no batch determines keeps the uncertainty it has without a
// library. family is the relative standard error of all step times of the model's family.
func (s *kernelSums) covariance(beta []float64, family float64) ([][]float64, error) {
	terms := s.data.P
	information := make([]float64, terms*terms)
	sd := make([]float64, terms)
	missed := s.medianErrors(beta, s.judging)
	// Information of the batches: how exactly the terms can represent the times. The shares of the
	// batches of a regime add up to regimeRows rows.
	for _, i := range s.fitted {
		row := s.data.Row(int(i))
		errorUs := missed[s.data.Regime[i]] * s.data.Y[i]
		share := regimeRows * float64(NumRegimes) / float64(len(s.fitted))
		weight := share / (errorUs * errorUs)
		for k := range information {
			information[k] += weight * row[k/terms] * row[k%terms]
		}
	}
	for j, f := range features.BetaFeatures(s.version) {
		// A term that no batch determines keeps the wide prior of a fit without a library.
		open := float64(unknownUsSD)
		if f.IsTime() {
			open = unknownTimeSD
		}
		if information[j*terms+j] > 0 {
			information[j*terms+j] += 1 / (open * open)
			sd[j] = 1 / math.Sqrt(information[j*terms+j])
		}
	}
	// The matrix is inverted with a diagonal of ones, because the units of the terms differ by orders of
	// magnitude.
	for j := range terms {
		for k := range terms {
			information[j*terms+k] *= sd[j] * sd[k]
		}
		if sd[j] == 0 { // no batch has the term
			information[j*terms+j] = 1
		}
	}
	inverse := stat.Inverse(information, terms)
	out := make([][]float64, terms)
	for j := range out {
		out[j] = make([]float64, terms)
		for k := range terms {
			out[j][k] = sd[j]*sd[k]*inverse[j*terms+k] + family*family*beta[j]*beta[k]
		}
	}
	// Each source of uncertainty moves the terms along one direction, independently of the others.
	for _, us := range s.sources {
		// Without a prior: b is the change of the terms, in which a prior of the terms cancels.
		b, err := s.project(us, 0)
		if err != nil {
			return nil, err
		}
		for j := range terms {
			for k := range terms {
				out[j][k] += b[j] * b[k]
			}
		}
	}
	return out, nil
}

// medianErrors returns the median absolute relative errors of batches, by regime, rounded to 0.0001.
func (s *kernelSums) medianErrors(beta []float64, batches []int32) []float64 {
	var byRegime [NumRegimes][]float64
	for _, i := range batches {
		r := s.data.Regime[i]
		byRegime[r] = append(byRegime[r], s.relativeError(beta, i))
	}
	var medians []float64
	for _, errors := range byRegime {
		medians = append(medians, stat.Round(stat.Median(errors), 4))
	}
	return medians
}

// set returns the coefficient file of a deployment.
func (s *kernelSums) set(d *deploy.Deployment, step *library.Step, beta []float64, covariance [][]float64) *coeff.Set {
	learned := library.Learned()
	overhead := coeff.AlphaModel{
		Target:       coeff.Overhead,
		Replay:       true,
		Coefficients: features.NewCoefficients(features.AlphaFeatures(s.version)),
	}
	out := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion,
		SpecVersion:   s.version,
		FeatureSet:    features.SetOf(s.version),
		Recipe:        Relative,
		Command:       PriorLibrary,
		Inputs:        step.Inputs(),
		BetaTarget:    coeff.Cadence,
		Gamma:         features.DefaultGamma,
		Beta:          features.NewCoefficients(features.BetaFeatures(s.version)),
		Covariance:    covariance,
		Alpha:         []coeff.AlphaModel{overhead},
		TrainedOn: coeff.TrainedOn{
			Hardware:     []string{d.Hardware.Name},
			VLLMVersions: step.Versions(),
			Date:         learned.Version,
			Samples:      int64(len(s.fitted)),
			Lambda:       libraryLambda,
			Gamma:        features.DefaultGamma,
		},
		Library: &coeff.Library{
			Version:        learned.Version,
			Family:         step.Family,
			Judged:         learned.Sentence(step),
			Representation: s.medianErrors(beta, s.judging),
		},
	}
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
		lo, hi := s.featureRange(j)
		if hi == 0 { // no batch has the term
			t.Identified = coeff.PriorOnly
			continue
		}
		half := stat.Normal95 * math.Sqrt(covariance[j][j])
		t.Identified = coeff.Within
		t.Evidence = "kernels+silicon"
		t.Range = &[2]float64{lo, hi}
		t.CI95 = &[2]float64{math.Max(0, t.Value-half), t.Value + half}
	}
	for i := range overhead.Coefficients {
		overhead.Coefficients[i].Identified = coeff.PriorOnly
	}
	base := &overhead.Coefficients[slotBase-1]
	base.Value = learned.OverheadUs()
	base.Identified = coeff.BetweenConfigs
	base.Evidence = "silicon"
	for r, name := range libraryRegimes {
		out.Identifiability = append(out.Identifiability, fmt.Sprintf(
			"%s batches: the terms hold the sums of kernels within %.1f %% (median)", name, 100*out.Library.Representation[r]))
	}
	return out
}

// featureRange returns the smallest and largest value of a feature over the batches.
func (s *kernelSums) featureRange(j int) (lo, hi float64) {
	lo = math.Inf(1)
	for i := j; i < len(s.data.X); i += s.data.P {
		lo = math.Min(lo, s.data.X[i])
		hi = math.Max(hi, s.data.X[i])
	}
	return lo, hi
}

const notInLibrary trace.Code = "not_in_library"
