// This file expresses a step-time model in the terms of another one (spec#projection): it draws the
// batches that a deployment will have, asks the model for their times, and fits the other's terms to
// them. Coefficients pooled over all deployments would be wrong wherever a deployment has a factor of
// its own or the other model lacks a term, so a projection is made for one deployment and its lengths.
// The error that the terms cannot follow is measured on batches that were not fitted.
//
// The computation is pure: the same numbers in give the same numbers out.

package export

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// stepper predicts how long one engine step takes, in us.
type stepper interface {
	StepUs(batch []trace.Chunk) (float64, error)
}

// Error is the error of a projection against the model that it represents, on batches that were not
// fitted. Times are relative to the model's.
type Error struct {
	Kind  kind // empty: all
	Steps int
	MAPE  float64 // mean of |projected/model - 1|
	Worst float64 // signed, the one farthest from 0
	Bias  float64 // of the sum of times, signed
}

// Projection is a step-time model in the terms of BLIS's trained-physics model.
type Projection struct {
	Beta   []float64 // by position of features.TrainedPhysicsBeta
	Used   []bool    // by position; false: no batch of the deployment has the term
	Seen   []float64 // largest value of each of the model's own terms; nil for a model without terms
	Errors []Error   // all batches first, then by kind, in the order of kinds
	fitted float64   // MAPE of the batches that were fitted
}

// overall returns the error on all batches.
func (p *Projection) overall() Error { return p.Errors[0] }

// byKind returns the error on each kind of batch.
func (p *Projection) byKind() []Error { return p.Errors[1:] }

// Target is a deployment with its step-time model and its expected use.
type Target struct {
	Deployment *deploy.Deployment
	Model      stepper
	Region     Region
}

// featured is a model that returns the values of its own terms for the batch it timed last.
type featured interface{ Features() []float64 }

// sampled has a target's batches by kind, half of them for the fit and half held out, and the
// largest value of each of the model's terms (seen).
type sampled struct {
	fitted, held map[kind]*rowSet
	seen         []float64
}

// sample returns the batches of the target with the terms of the law l and the model's times. It
// returns an error for a region without requests, and for a time that is not positive.
func (g *Target) sample(l *law) (*sampled, error) {
	r := g.Region
	if !(r.Prompt > 0 && r.Output > 0) || r.Seats < 1 || r.Budget < 1 {
		return nil, trace.Errorf(PoorProjection,
			"region: got %g + %g tokens, %d requests at a time and %d tokens a step, want all above 0",
			r.Prompt, r.Output, r.Seats, r.Budget)
	}
	out := &sampled{fitted: map[kind]*rowSet{}, held: map[kind]*rowSet{}}
	drawn := Draws(r)
	for _, kind := range kinds {
		out.fitted[kind] = &rowSet{}
		out.held[kind] = &rowSet{}
		for i, batch := range drawn[kind] {
			us, err := g.Model.StepUs(batch)
			if err != nil {
				return nil, err
			}
			if !(us > 0) {
				return nil, trace.Errorf(PoorProjection,
					"a batch of %d requests: got %g us, want above 0", len(batch), us)
			}
			out.noteTerms(g.Model)
			half := out.held[kind]
			if i%2 == 0 {
				half = out.fitted[kind]
			}
			half.x = append(half.x, l.terms(batch))
			half.y = append(half.y, us)
			half.w = append(half.w, l.weightOf(len(batch)))
		}
	}
	return out, nil
}

// noteTerms raises s.seen, the largest absolute value of each feature so far, to the features of the
// batch that the model timed last. It does nothing if the model has no features.
func (s *sampled) noteTerms(m stepper) {
	f, ok := m.(featured)
	if !ok {
		return
	}
	x := f.Features()
	if s.seen == nil {
		s.seen = make([]float64, len(x))
	}
	for j, v := range x {
		s.seen[j] = math.Max(s.seen[j], math.Abs(v))
	}
}

// law is a consumer's formula for the step time: terms of a batch, each multiplied by a
// coefficient.
type law struct {
	terms func([]trace.Chunk) []float64
	least []float64 // lower bounds of the coefficients; nil: 0
	busy  []float64 // sizes of batches, in requests, that matter most; nil: all batches alike
}

// weightOf returns the weight of a batch of n requests: 1 at one of the sizes in busy, 1/2 at twice
// or half of it; 1 if there are no such sizes.
func (l *law) weightOf(n int) float64 {
	if l.busy == nil {
		return 1
	}
	most := 0.0
	for _, size := range l.busy {
		doublings := math.Log2(float64(n) / size)
		most = math.Max(most, 1/(1+doublings*doublings*doublings*doublings))
	}
	return most
}

// OnBLIS returns a projection of each target's model on BLIS's trained-physics terms. The fit takes
// every other batch: non-negative least squares of relative errors, reweighted towards absolute
// ones, and then once more with the sum of times of each kind of batch as a further row, because
// queues depend on sums of step times. The other batches measure the error. All targets get the
// same coefficients, each with its own errors.
func OnBLIS(targets ...Target) ([]Projection, error) {
	laws := make([]law, len(targets))
	for i := range targets {
		b, err := features.NewTrainedPhysics(targets[i].Deployment)
		if err != nil {
			return nil, err
		}
		laws[i].terms = func(batch []trace.Chunk) []float64 {
			s := features.BasisSum(batch)
			x := make([]float64, len(features.TrainedPhysicsBeta()))
			b.Beta(&s, x)
			return x
		}
	}
	return project(targets, laws)
}

// project returns the projections of the targets on a law for each, with one set of coefficients
// for all. It fits the coefficients to the fitted half of every target's batches, and measures each
// target's errors on the other half. Laws with lower bounds are fitted by weighted relative least
// squares alone.
func project(targets []Target, laws []law) ([]Projection, error) {
	var fitted []*rowSet // of all targets and kinds
	samples := make([]*sampled, len(targets))
	for i := range targets {
		s, err := targets[i].sample(&laws[i])
		if err != nil {
			return nil, err
		}
		samples[i] = s
		for _, kind := range kinds {
			fitted = append(fitted, s.fitted[kind])
		}
	}
	beta, err := solve(fitted, laws[0].least)
	if err != nil {
		return nil, fmt.Errorf("projection: %w", err)
	}
	// Errors of each target: all held-out batches, each kind, and the batches that were fitted.
	out := make([]Projection, len(targets))
	for i, s := range samples {
		p := &out[i]
		*p = Projection{Beta: beta, Used: s.used(), Seen: s.seen}
		p.Errors = append(p.Errors, p.errorOf("", s.held[decode], s.held[mixed], s.held[prefill]))
		for _, kind := range kinds {
			p.Errors = append(p.Errors, p.errorOf(kind, s.held[kind]))
		}
		p.fitted = p.errorOf("", s.fitted[decode], s.fitted[mixed], s.fitted[prefill]).MAPE
	}
	return out, nil
}

// rowSet has batches as rows of a regression: their terms (x), times in us (y) and weights (w). Each kind has batches in
// both halves (Draws), so no set that sample returns is empty.
type rowSet struct {
	x    [][]float64
	y, w []float64
}

// sum returns the sums of the terms and of the times (us) of all batches, which are at least one. They are not weighted:
// the sum stands for the time in which a queue is served, to which every batch contributes its own.
func (r *rowSet) sum() (x []float64, us float64) {
	x = make([]float64, len(r.x[0]))
	for i, row := range r.x {
		us += r.y[i]
		for j, v := range row {
			x[j] += v
		}
	}
	return x, us
}

// used returns for each term whether any batch of the target has it: whether its sum is not 0, because a term of BLIS's,
// like that of any law here, is never negative.
func (s *sampled) used() []bool {
	out := make([]bool, len(s.fitted[decode].x[0]))
	for _, r := range s.fitted {
		x, _ := r.sum()
		for j, v := range x {
			out[j] = out[j] || v != 0
		}
	}
	return out
}

// solve returns the coefficients, with the given lower bounds (nil: 0), that fit the batches of
// each set best and, without bounds, their sums.
func solve(sets []*rowSet, least []float64) ([]float64, error) {
	d := &ridge.Data{P: len(sets[0].x[0])}
	var w []float64
	// addRow adds a row with a weight of its relative error. The solver bounds coefficients by 0, so what
	// the lower bounds alone would take is subtracted from the time, and they are added to the solution.
	addRow := func(x []float64, us, weight float64) {
		d.X = append(d.X, x...)
		d.Y = append(d.Y, us-ridge.Dot(x[:len(least)], least))
		w = append(w, weight/(us*us))
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
	}
	for _, s := range sets {
		for i, x := range s.x {
			addRow(x, s.y[i], s.w[i])
		}
	}
	// Without bounds the weights move from relative towards absolute errors (ridge.FitPublished).
	o := ridge.DefaultOptions(d.P)
	if least == nil {
		_, polish, err := ridge.FitPublished(d, w, barely, o)
		if err != nil {
			return nil, err
		}
		if polish.Kept {
			w = polish.Weights
		}
	}
	// The last fit has a row for the sum of each set, as heavy as sumWeight times its batches.
	row := 0 // position in w, which has the batches of the sets in order
	for _, s := range sets {
		weight := 0.0
		for _, us := range s.y {
			weight += w[row] * us * us
			row++
		}
		if least == nil {
			x, us := s.sum()
			addRow(x, us, sumWeight*weight)
		}
	}
	f, err := ridge.FitRows(d, w, nil, barely, o)
	if err != nil {
		return nil, err
	}
	for i, v := range least {
		f.Beta[i] += v
	}
	return f.Beta, nil
}

// sumWeight is the weight of the row with a kind's sum, relative to that of all its batches. With
// 3, sums are within a few percent wherever the terms allow it, and single batches are hardly worse
// (TestEvalBLISProjection).
const sumWeight = 3

// barely is a ridge penalty just large enough to decide between terms that are collinear in the
// batches.
const barely = 1e-9

// errorOf returns the error of the projection on the batches in sets.
func (p *Projection) errorOf(kind kind, sets ...*rowSet) Error {
	e := Error{Kind: kind}
	var sum, diff float64
	for _, s := range sets {
		for i, x := range s.x {
			us := 0.0
			for j, v := range x {
				us += v * p.Beta[j]
			}
			rel := us/s.y[i] - 1
			e.Steps++
			e.MAPE += math.Abs(rel)
			if math.Abs(rel) > math.Abs(e.Worst) {
				e.Worst = rel
			}
			sum += s.y[i]
			diff = diff + us - s.y[i]
		}
	}
	e.MAPE /= float64(e.Steps)
	e.Bias = diff / sum
	return e
}
