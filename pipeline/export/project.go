// This file says a step-time model in the terms of another one: it draws the
// batches that a deployment will have, asks the model for their times, and fits the
// other's terms to them.
//
// A pooled set of coefficients for every deployment is off wherever a deployment's own
// factor, or a term that the other model lacks, matters; a projection is made for one
// deployment and its lengths (spec#projection). What the terms cannot follow stays as
// the projection's error, which is measured on batches that were not fitted.
//
// It is pure: the same numbers in give the same numbers out.
//
// Requests are at a uniform point of their lives. After the relative errors the fit moves toward absolute ones, then
// takes each kind's total as a row of three times its batches' weight.

package export

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// stepper predicts how long one engine step takes, in us.
type stepper interface {
	StepUs(batch []trace.Chunk) (float64, error)
}

// Region is how a deployment will be used.
type Region struct {
	Prompt, Output float64 // mean lengths, tokens, > 0
	Seats          int64   // requests at a time at most
	Budget         int64   // tokens a step
	Longest        int64   // tokens of a request at most; 0: no limit
	Whole          bool    // prompts are never cut (chunked prefill is off)
}

// RegionOf is a deployment's, for requests of the given mean lengths.
func RegionOf(d *deploy.Deployment, prompt, output float64) Region {
	return Region{Prompt: prompt, Output: output, Seats: d.Seats(prompt + output), Budget: d.Engine.MaxNumBatchedTokens,
		Longest: d.LongestSequence().Or(0), Whole: !d.Engine.ChunkedPrefill}
}

// kind is what a batch is made of.
type kind string

// The kinds of batches, and how many of each are drawn at every concurrency.
const (
	decode  kind = "decode"  // decodes alone
	mixed   kind = "mixed"   // decodes and prompts
	prefill kind = "prefill" // prompts alone
)

var kinds = []kind{decode, mixed, prefill}

var draws = []struct {
	kind kind
	n    int
}{{decode, 24}, {mixed, 24}, {prefill, 8}}

// Error is how far a projection is from the model, on batches that were not fitted.
type Error struct {
	Kind  kind // empty: all
	Steps int
	MAPE  float64 // mean of |projected/model - 1|
	Worst float64 // signed, the one farthest from 0
	Bias  float64 // of the sum of times
}

// Projection is a step-time model in the terms of BLIS's trained-physics model.
type Projection struct {
	Beta   []float64 // by position of basis.TrainedPhysicsBeta
	Used   []bool    // false: the deployment never has the term, whatever its batches
	Seen   []float64 // largest value of the model's own terms in the batches; nil when it does not say
	Errors []Error   // all batches first, then by kind
	fitted float64   // MAPE of the batches that were fitted
}

// Draws are the batches of a region: concurrencies 1, 2, 4, ... up to the seats, requests at a
// uniform point of their lives, lengths log-normal about the region's means.
func Draws(r Region) map[kind][][]trace.Chunk {
	out := map[kind][][]trace.Chunk{}
	level := uint64(0)
	for n := int64(1); ; n = min(2*n, r.Seats) {
		for _, d := range draws {
			for k := range d.n {
				out[d.kind] = append(out[d.kind], r.batch(d.kind, n, level, uint64(k)))
			}
		}
		if n >= r.Seats {
			return out
		}
		level++
	}
}

// Keys of the draws.
const (
	keyPrompt uint64 = iota
	keyOutput
	keyAge
	keyPrompts
	keyChunk
)

// Squared coefficients of variation of the lengths, as chat recordings have them.
const (
	promptCV2 = 1
	outputCV2 = 0.5
)

// promptTokens and outputTokens are the u-quantiles of a request's lengths, at least one token; the
// longest request is three quarters prompt, as in simulated traffic.
func (r Region) promptTokens(u float64) int64 {
	return r.cut(stat.LogNormal(r.Prompt, promptCV2, u), 3)
}

func (r Region) outputTokens(u float64) int64 {
	return r.cut(stat.LogNormal(r.Output, outputCV2, u), 1)
}

func (r Region) cut(tokens float64, quarters int64) int64 {
	n := trace.Int(tokens)
	if r.Longest > 0 {
		n = min(n, r.Longest*quarters/4)
	}
	return max(1, n)
}

// batch is one step of n requests.
func (r Region) batch(kind kind, n int64, level, k uint64) []trace.Chunk {
	draw := func(i int64, what uint64) float64 { return stat.Draw(level, k, uint64(i), what, uint64(len(kind))) }
	prompts, decodes := int64(0), n
	if kind != decode { // one prompt in half of them, two in a quarter, ...
		prompts = min(n, 1-int64(math.Log2(1-float64(draw(0, keyPrompts)))))
		decodes = max(n-prompts, min(n-1, 1))
	}
	if kind == prefill {
		decodes = 0
	}
	left := r.Budget
	batch := make([]trace.Chunk, 0, prompts+decodes)
	for i := prompts; i < prompts+decodes && left > 0; i++ {
		c := trace.Chunk{Prompt: r.promptTokens(draw(i, keyPrompt)), New: 1}
		c.Computed = c.Prompt + int64(draw(i, keyAge)*float64(r.outputTokens(draw(i, keyOutput))))
		batch = append(batch, c)
		left--
	}
	for i := int64(0); i < prompts && left > 0; i++ {
		c := trace.Chunk{Prompt: r.promptTokens(draw(i, keyPrompt))}
		if r.Whole && c.Prompt > left && len(batch) > 0 {
			break
		}
		if c.Prompt > r.Budget { // somewhere in the middle of a long one
			c.Computed = min(c.Prompt-1, int64(draw(i, keyChunk)*float64(c.Prompt)))
		}
		c.New = min(left, c.Prompt-c.Computed)
		left -= c.New
		batch = append(batch, c)
	}
	return batch
}

// Target is a deployment with the model of its steps, and how it will be used.
type Target struct {
	Deployment *deploy.Deployment
	Model      stepper
	Region     Region
}

// featured is a model that says what its last batch was to its own terms.
type featured interface{ Features() []float64 }

// sampled are a target's batches by kind: half to fit, half to judge.
type sampled struct {
	fitted, held map[kind]*rowSet
	seen         []float64
}

func (g *Target) sample(l *law) (*sampled, error) {
	r := g.Region
	if !(r.Prompt > 0 && r.Output > 0) || r.Seats < 1 || r.Budget < 1 {
		return nil, trace.Errorf(PoorProjection, "region: got %g + %g tokens, %d seats and %d tokens a step, want all above 0", r.Prompt,
			r.Output,
			r.Seats, r.Budget)
	}
	out := &sampled{fitted: map[kind]*rowSet{}, held: map[kind]*rowSet{}}
	drawn := Draws(r)
	for _, kind := range kinds {
		out.fitted[kind], out.held[kind] = &rowSet{}, &rowSet{}
		for i, batch := range drawn[kind] {
			us, err := g.Model.StepUs(batch)
			if err != nil {
				return nil, err
			}
			if !(us > 0) {
				return nil, trace.Errorf(PoorProjection, "a batch of %d requests: got %g us, want above 0", len(batch), us)
			}
			out.see(g.Model)
			half := out.held[kind]
			if i%2 == 0 {
				half = out.fitted[kind]
			}
			half.x, half.y, half.w = append(half.x, l.terms(batch)), append(half.y, us), append(half.w, l.weigh(len(batch)))
		}
	}
	return out, nil
}

// see keeps the largest value of each of the model's own terms.
func (s *sampled) see(m stepper) {
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

// law is what a consumer multiplies a batch's coefficients with.
type law struct {
	terms func([]trace.Chunk) []float64
	least []float64 // of the coefficients; nil: 0
	busy  []float64 // requests of the batches that matter; nil: all alike
}

// weigh is the weight of a batch of n requests: 1 for as many as one of busy, 1/2 for twice or half of it.
func (l *law) weigh(n int) float64 {
	most := 0.0
	for _, b := range l.busy {
		off := math.Log2(float64(n) / b)
		most = math.Max(most, 1/(1+off*off*off*off))
	}
	if l.busy == nil {
		return 1
	}
	return most
}

// OnBLIS projects the targets' models on one set of trained-physics terms. The fit takes every
// other batch: non-negative least squares of relative errors moved toward absolute ones, and again
// with the sum of times of each kind of batch as a row, since sums are what a queue feels. The other
// batches judge it, one projection a target with the same coefficients.
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

// project fits one set of coefficients to a law of each target; with coefficients that have bounds by weighted relative least squares
// alone.
func project(targets []Target, laws []law) ([]Projection, error) {
	var fitted []*rowSet
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

// rowSet is batches as terms, times and weights.
type rowSet struct {
	x    [][]float64
	y, w []float64
}

// sum is the terms and the times of all batches together.
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

// used are the terms that the target's batches have.
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

// solve fits coefficients of at least so much (nil: 0) to the batches of each set and to their sums.
func solve(sets []*rowSet, least []float64) ([]float64, error) {
	d := &ridge.Data{P: len(sets[0].x[0])}
	var w []float64
	add := func(x []float64, us, weight float64) { // weight: of the relative error
		d.X, d.Y, w = append(d.X, x...), append(d.Y, us-ridge.Dot(x[:len(least)], least)), append(w, weight/(us*us))
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
	}
	for _, s := range sets {
		for i, x := range s.x {
			add(x, s.y[i], s.w[i])
		}
	}
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
	row := 0
	for _, s := range sets {
		weight := 0.0
		for _, us := range s.y {
			weight += w[row] * us * us
			row++
		}
		if x, us := s.sum(); least == nil {
			add(x, us, sumWeight*weight)
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

// sumWeight is what the sum of a kind's times weighs beside its batches: with 3, sums are within a few
// percent wherever the terms can have them so, and batches hardly worse (TestEvalBLISProjection).
const sumWeight = 3

// barely is the penalty that decides between terms the batches cannot tell apart.
const barely = 1e-9

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
			sum, diff = sum+s.y[i], diff+us-s.y[i]
		}
	}
	e.MAPE = e.MAPE / float64(e.Steps)
	e.Bias = diff / sum
	return e
}
