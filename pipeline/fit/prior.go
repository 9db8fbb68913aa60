package fit

// This file draws the step-time coefficients to a prior, the mean and covariance of coefficient sets
// (--prior library or a file), and describes what prior and data each contribute.

import (
	"errors"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// libraryPrior is the prior of the step time: mean and covariance of the coefficients,
// from coefficient sets of the configurations of the fit.
type libraryPrior struct {
	mean []float64
	cov  []float64 // p x p
	name string    // where it comes from, in words

	means [][]float64 // by configuration
}

// PriorSets returns the function that gives a deployment's coefficient set for Options.Prior: the
// caller's, the library's, or that of a file.
func PriorSets(o *Options) (func(*deploy.Deployment) (*coeff.Set, error), error) {
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

// Standard errors of terms that a set does not have: large, so that any data decide them.
const (
	unknownTimeSD = 1e6 // us/s
	unknownUsSD   = 300 // us
)

// setPrior makes the prior of the step time from the coefficient sets of the fit's configurations:
// their mean, and the mean of their covariances plus the covariance between them.
func (f *fitter) setPrior(s *Solved) error {
	sets, err := PriorSets(&f.o)
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
		known := len(set.Covariance) // terms of the set; of a set of 1.2, later versions have more after them
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
	for _, m := range means { // the covariance between the sets of the configurations
		for j := range p {
			for k := range p {
				prior.cov[j*p+k] += (m[j] - prior.mean[j]) * (m[k] - prior.mean[k]) / n
			}
		}
	}
	prior.means = means
	f.prior = prior
	return prior.apply(s)
}

// uncalibratedError returns the weighted relative error on the training rows of the prior's own step times, those of
// each configuration by its own set: what would be predicted without the measurements.
func (f *fitter) uncalibratedError(s *Solved) float64 {
	train := s.Pool.TrainData().With(f.gamma)
	weights := ridge.Weights(train, s.Opt)
	squares := 0.0 // sum of w*(y - prediction)^2
	sum := 0.0     // sum of w*y^2
	for c, mean := range f.prior.means {
		var list []int32
		for i, config := range train.Config {
			if config == int32(c) {
				list = append(list, int32(i))
			}
		}
		gram := ridge.OfRows(train, weights, list, f.o.Workers)
		squares += gram.SSE(mean)
		sum += gram.Q
	}
	return math.Sqrt(squares / sum)
}

// priorFits reports whether a set can be the prior of a model of that version with so many terms.
// Its terms have to be those of the version. Version 1.3 and the experimental one also accept a set
// of 1.2, whose terms are the first of theirs.
func priorFits(set *coeff.Set, v features.Version, terms int) bool {
	if features.Layered(v) && set.SpecVersion == features.V12 {
		return len(set.Covariance) == len(set.Beta) && len(set.Beta) <= terms
	}
	return set.SpecVersion == v.Base() && len(set.Covariance) == terms
}

// apply puts the prior into the options of the model: terms that no set has get a wide prior, the
// covariance is inverted, and lambda follows from the noise of the rows. That is the only lambda, so
// nothing is left to choose (spec#posterior).
func (prior *libraryPrior) apply(s *Solved) error {
	p := len(s.Terms)
	for j, t := range s.Terms {
		if prior.cov[j*p+j] > 0 {
			continue
		}
		sd := float64(unknownUsSD)
		if t.IsTime {
			sd = unknownTimeSD
		}
		prior.cov[j*p+j] = sd * sd
	}
	scaled := make([]float64, p*p)
	sd := make([]float64, p)
	for j := range sd {
		sd[j] = math.Sqrt(prior.cov[j*p+j])
	}
	for j := range p {
		for k := range p {
			scaled[j*p+k] = prior.cov[j*p+k] / (sd[j] * sd[k])
		}
		scaled[j*p+j] += 1e-6 // a covariance of few sets and sources has fewer directions than there are terms
	}
	precision := stat.Inverse(scaled, p)
	if precision == nil {
		return trace.Errorf(rows.BadOption, "--prior %s: got a covariance that is not positive definite", prior.name)
	}
	for j := range p {
		for k := range p {
			precision[j*p+k] /= sd[j] * sd[k]
		}
	}
	s.Opt.Prior = prior.mean
	s.Opt.Precision = precision
	s.Opt.Posterior = true
	lambda, err := s.Pool.TrainData().With(0).NoiseLambda(s.Opt, prior.cov) // one lambda serves every gamma
	s.Opt.Lambdas = []float64{lambda}
	return err
}

// provenance sets for every term how much the data decide it, 1 - posterior variance over prior
// variance, and warns of configurations whose data contradict the prior (spec#prior-contradicted).
func (f *fitter) provenance(s *Solved, out *result.Model) {
	prior := f.prior
	if prior == nil {
		return
	}
	p := len(s.Terms)
	gram := ridge.OfRows(s.Train, s.Weights, nil, f.o.Workers)
	// lambda times the inverse of information is the posterior covariance (spec#posterior).
	information := make([]float64, p*p)
	for k := range information {
		information[k] = gram.G[k]/gram.Q + s.Fit.Lambda*s.Opt.Precision[k]
	}
	post := stat.Inverse(information, p)
	for j := range out.Coefficients {
		c := &out.Coefficients[j]
		share := 0.0
		if post != nil {
			share = math.Min(1, math.Max(0, 1-s.Fit.Lambda*post[j*p+j]/prior.cov[j*p+j]))
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
		if c.Evidence != "data" && prior.mean[j] > 0 {
			c.NotLearned = false // the prior has information that the rows do not have
		}
	}
	out.Warnings = append(out.Warnings, f.contradictions(s)...)
	if distance := s.Train.OffPrior(s.Fit, s.Opt, prior.cov); distance.Distance > distance.Limit {
		out.Warnings = append(out.Warnings, trace.Finding{
			Code:    Implausible,
			Message: report.ContradictsPrior(prior.name, distance.Directions, distance.Distance, distance.Limit),
		})
	}
}

// contradictionSD is the standardised distance from which data contradict a prior.
const contradictionSD = 3

// contradictions returns a finding for each configuration whose measured times differ from the
// prior's, in the prior's standard errors.
func (f *fitter) contradictions(s *Solved) []trace.Finding {
	prior, p := f.prior, len(s.Terms)
	var found []trace.Finding
	for c, key := range s.Pool.Configs {
		var logs, sds []float64
		for i, y := range s.Train.Y {
			if s.Train.Config[i] != int32(c) {
				continue
			}
			// The prior's prediction of the row, and its variance x' cov x.
			x := s.Train.Row(i)
			mean := ridge.Dot(x, prior.mean)
			variance := 0.0
			for j, u := range x {
				if u != 0 {
					variance += u * ridge.Dot(x, prior.cov[j*p:(j+1)*p])
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
		logRatio, sd := stat.Median(logs), stat.Median(sds)
		if math.Abs(logRatio) > contradictionSD*sd && math.Abs(logRatio) > leastContradiction {
			found = append(found, trace.Finding{
				Code:    Implausible,
				Message: report.UnlikePrior(key, f.hardwareOf(key), prior.name, math.Exp(logRatio), math.Abs(logRatio)/sd),
			})
		}
	}
	return found
}

// leastContradiction is the smallest log ratio of measured to predicted time that is reported: no
// prior is precise enough for less.
const leastContradiction = 0.15

// hardwareOf returns the device of a configuration.
func (f *fitter) hardwareOf(key string) string {
	for i := range f.out.Configs {
		if f.out.Configs[i].Key == key {
			return f.out.Configs[i].Deployment.Hardware.Name
		}
	}
	return ""
}
