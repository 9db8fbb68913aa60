package fit

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
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

// slotBase is the overhead's term that every request takes.
const slotBase = 4

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
		kinds = stat.AppendNew(kinds, k)
		place = append(place, library.NumStep+slices.Index(kinds, k))
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

// libraryPrior is what a coefficient set says of the step times before any row:
// mean and covariance of the coefficients over the configurations of the fit.
type libraryPrior struct {
	mean []float64
	cov  []float64 // p x p
	name string    // where it comes from, in words
}

// priorSets is where the sets come from: the caller, the library or a file.
func priorSets(o *Options) (func(*deploy.Deployment) (*coeff.Set, error), error) {
	if o.Library != nil {
		return o.Library, nil
	}
	if o.Prior == PriorLibrary {
		return LibraryFor, nil
	}
	r, err := files.Open(o.Prior, false)
	if err != nil {
		return nil, trace.Errorf(rows.BadOption, "--prior: got %q, want zero, roofline, library or a coefficient file (%v)", o.Prior, err)
	}
	set, err := coeff.Load(r, o.Prior, features.CheckSet)
	return func(*deploy.Deployment) (*coeff.Set, error) { return set, nil }, errors.Join(err, r.Close())
}

// Standard errors of terms that a set says nothing about: weak, so that data
// decide them as soon as there are any.
const (
	unknownTimeSD = 1e6 // us/s
	unknownUsSD   = 300 // us
)

// setPrior gives the step-time model the prior of its sets.
func (f *fitter) setPrior(s *Solved) error {
	sets, err := priorSets(&f.o)
	if err != nil {
		return err
	}
	p := len(s.Terms)
	prior := &libraryPrior{mean: make([]float64, p), cov: make([]float64, p*p), name: f.o.Prior}
	var means [][]float64
	n := float64(len(f.out.Configs))
	for i := range f.out.Configs {
		d := &f.out.Configs[i].Deployment
		set, err := sets(d)
		if err != nil {
			return fmt.Errorf("--prior %s: %w", f.o.Prior, err)
		}
		known := len(set.Covariance) // terms the set tells of; those that are tried out stand behind them
		if !priorFits(set, f.o.Spec, p) {
			return trace.Errorf(rows.BadOption, "--prior %s: got a set of version %s with %d rows of covariance, want version %s with %d",
				f.o.Prior, set.SpecVersion, known, f.o.Spec, p)
		}
		if i == 0 {
			f.warn(set.FileWarnings()...)
		}
		on := features.On(set, d)
		values := make([]float64, p)
		copy(values, coeff.Values(on.Beta))
		means = append(means, values)
		for j := range known {
			prior.mean[j] += values[j] / n
			for k := range known {
				prior.cov[j*p+k] += on.Covariance[j][k] / n
			}
		}
	}
	for _, m := range means { // configurations the sets say different things of
		for j := range p {
			for k := range p {
				prior.cov[j*p+k] += (m[j] - prior.mean[j]) * (m[k] - prior.mean[k]) / n
			}
		}
	}
	f.prior = prior
	return prior.apply(s)
}

// priorFits reports whether a set is a prior of so many terms of the version: one of the version with all of them,
// or for 1.3 and the experimental version one of 1.2, whose terms come first there.
func priorFits(set *coeff.Set, v features.Version, terms int) bool {
	if features.Layered(v) && set.SpecVersion == features.V12 {
		return len(set.Covariance) == len(set.Beta) && len(set.Beta) <= terms
	}
	return set.SpecVersion == v.Base() && len(set.Covariance) == terms
}

// apply fills the terms nobody knows and inverts the covariance.
func (l *libraryPrior) apply(s *Solved) error {
	p := len(s.Terms)
	for j, t := range s.Terms {
		if l.cov[j*p+j] > 0 {
			continue
		}
		sd := float64(unknownUsSD)
		if t.IsTime {
			sd = unknownTimeSD
		}
		l.cov[j*p+j] = sd * sd
	}
	scaled := make([]float64, p*p)
	sd := make([]float64, p)
	for j := range sd {
		sd[j] = math.Sqrt(l.cov[j*p+j])
	}
	for j := range p {
		for k := range p {
			scaled[j*p+k] = l.cov[j*p+k] / (sd[j] * sd[k])
		}
		scaled[j*p+j] += 1e-6 // models span fewer directions than there are terms
	}
	inv := stat.Inverse(scaled, p)
	if inv == nil {
		return trace.Errorf(rows.BadOption, "--prior %s: got a covariance that is not positive definite", l.name)
	}
	for j := range p {
		for k := range p {
			inv[j*p+k] /= sd[j] * sd[k]
		}
	}
	s.Opt.Prior = l.mean
	s.Opt.Precision = inv
	s.Opt.Posterior = true
	lambda, err := s.Pool.TrainData().With(0).NoiseLambda(s.Opt, l.cov)
	s.Opt.Lambdas = []float64{lambda}
	return err
}

// provenance says of every term which share of it the data have, 1 - posterior
// variance over prior variance, and names what the data contradict.
func (f *fitter) provenance(s *Solved, out *result.Model) {
	l := f.prior
	if l == nil {
		return
	}
	p := len(s.Terms)
	g := ridge.OfRows(s.Train, s.Weights, nil, f.o.Workers)
	a := make([]float64, p*p)
	for k := range a {
		a[k] = g.G[k]/g.Q + s.Fit.Lambda*s.Opt.Precision[k]
	}
	post := stat.Inverse(a, p)
	for j := range out.Coefficients {
		c := &out.Coefficients[j]
		share := 0.0
		if post != nil {
			share = math.Min(1, math.Max(0, 1-s.Fit.Lambda*post[j*p+j]/l.cov[j*p+j]))
		}
		c.PriorShare = result.OrNull(1 - share)
		switch {
		case share > 0.99:
			c.Evidence = "data"
		case share < 0.01:
			c.Evidence = "prior"
		default:
			c.Evidence = fmt.Sprintf("data %.2f, prior %.2f", share, 1-share)
		}
		if c.Evidence != "data" && l.mean[j] > 0 {
			c.NotLearned = false // the prior knows what the rows do not show
		}
	}
	out.Warnings = append(out.Warnings, f.contradictions(s)...)
	if t := s.Train.OffPrior(s.Fit, s.Opt, l.cov); t.Distance > t.Limit {
		out.Warnings = append(out.Warnings, trace.Findingf(Implausible, "%s (%s): in the %d directions that these rows tell, "+
			"the coefficients lie %.1f of its standard errors off it (root mean square, limit %.1f); their intervals hold only where it does",
			offPrior, l.name, t.Directions, t.Distance, t.Limit))
	}
}

// offPrior begins the finding of data that contradict the prior (spec#prior-contradicted).
const offPrior = "the data contradict the prior"

// contradictionSD is the standardised distance from which data contradict a prior.
const contradictionSD = 3

// contradictions compares, per configuration and regime, what was measured with
// what the prior says, in its own standard errors.
func (f *fitter) contradictions(s *Solved) []trace.Finding {
	l, p := f.prior, len(s.Terms)
	var found []trace.Finding
	for c, key := range s.Pool.Configs {
		var logs, sds []float64
		for i, y := range s.Train.Y {
			if s.Train.Config[i] != int32(c) {
				continue
			}
			x := s.Train.Row(i)
			mean, variance := ridge.Dot(x, l.mean), 0.0
			for j, u := range x {
				if u != 0 {
					variance += u * ridge.Dot(x, l.cov[j*p:(j+1)*p])
				}
			}
			if mean > 0 {
				logs = append(logs, math.Log(y/mean))
				sds = append(sds, math.Sqrt(variance)/mean)
			}
		}
		if len(logs) == 0 {
			continue
		}
		off, sd := stat.Median(logs), stat.Median(sds)
		if math.Abs(off) > contradictionSD*sd && math.Abs(off) > leastContradiction {
			found = append(found, trace.Findingf(Implausible,
				"configuration %s: steps take %.2f times what the prior (%s) says of %s, %.1f of its standard errors", key, math.Exp(off), l.name,
				f.hardwareOf(key), math.Abs(off)/sd))
		}
	}
	return found
}

// leastContradiction is a difference no prior is precise enough to call wrong, log.
const leastContradiction = 0.15

func (f *fitter) hardwareOf(key string) string {
	for i := range f.out.Configs {
		if f.out.Configs[i].Key == key {
			return f.out.Configs[i].Deployment.Hardware.Name
		}
	}
	return ""
}

// Regimes of a drawn batch, as ridge balances them.
const (
	decodeOnly int32 = iota
	mixedBatch
	prefillOnly
	NumRegimes // how many there are
)

// Bounds of the batches.
const (
	maxDecodes = 512
	maxContext = 32768 // tokens of one request
	maxCached  = 1 << 20
)

// Draws are a low-discrepancy sequence of d numbers in [0, 1): Kronecker's with
// the generalised golden ratio, shifted by the seed (M. Roberts, "The
// unreasonable effectiveness of quasirandom sequences", 2018).
type Draws struct {
	step, at []float64
}

// NewDraws begins such a sequence.
func NewDraws(d int, seed uint64) *Draws {
	g := 1.5
	for range 60 { // g^(d+1) = g + 1
		g = math.Pow(1+g, 1/float64(d+1))
	}
	rng := rand.New(rand.NewPCG(seed, 0x11b))
	q := &Draws{}
	for i := range d {
		q.step = append(q.step, math.Pow(1/g, float64(i+1)))
		q.at = append(q.at, rng.Float64())
	}
	return q
}

func (q *Draws) next() []float64 {
	for i := range q.at {
		_, q.at[i] = math.Modf(q.at[i] + q.step[i])
	}
	return q.at
}

// logBetween is log-uniform over whole numbers.
func logBetween(lo, hi, u float64) int64 {
	return int64(math.Floor(math.Exp(math.Log(lo) + u*(math.Log(hi+1)-math.Log(lo)))))
}

// Batch draws one batch of a regime into buf.
func (q *Draws) Batch(regime int32, buf []trace.Chunk) []trace.Chunk {
	u, buf := q.next(), buf[:0]
	if regime != prefillOnly {
		n := logBetween(1, maxDecodes, u[0])
		context := min(logBetween(16, maxContext, u[1]), maxCached/n)
		for range n {
			buf = append(buf, trace.Chunk{Computed: context, Prompt: 1, New: 1})
		}
	}
	if regime != decodeOnly {
		tokens := logBetween(16, 8192, u[2])
		prompts := min(logBetween(1, 16, u[3]), tokens)
		cached := int64(0)
		if u[4] < 0.3 { // behind an earlier chunk or a cached prefix
			cached = logBetween(64, maxContext/2, u[4]/0.3)
		}
		for i := range prompts {
			c := trace.Chunk{New: tokens / prompts}
			if i == 0 {
				c.New, c.Computed = c.New+tokens%prompts, cached
			}
			c.Prompt = c.Computed + c.New
			buf = append(buf, c)
		}
	}
	return buf
}

// Within is the part of a batch that an engine would run in one step.
func Within(batch []trace.Chunk, e *deploy.Engine) []trace.Chunk {
	tokens := int64(0)
	for i := range batch {
		c := &batch[i]
		if int64(i) >= e.MaxNumSeqs || tokens >= e.MaxNumBatchedTokens {
			return batch[:i]
		}
		if left := e.MaxNumBatchedTokens - tokens; c.New > left {
			c.New = left
		}
		tokens += c.New
	}
	return batch
}
