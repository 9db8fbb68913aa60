package learn

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Learned is what was learned from requests.
type Learned struct {
	Set        *coeff.Set           // values, covariance of the step time, intervals, evidence by term
	Level      *result.RequestLevel // how it was learned, as fit.json says it
	Names      []string             // of the free terms, target/term
	Covariance [][]float64
	directions []direction
}

// Fit learns the coefficients of one configuration from what its requests
// experienced. All loads are of that configuration. Codes: nothing_measured,
// those of the simulator and of the features.
func Fit(ctx context.Context, loads []*Load, prior *Prior, o Options) (*Learned, error) {
	if len(loads) == 0 {
		return nil, trace.Errorf(NothingMeasured, "requests: got no load, want at least one")
	}
	l := &learner{Options: o, ctx: ctx, loads: loads}
	for _, load := range loads {
		if err := load.check(); err != nil {
			return nil, err
		}
		l.twins = append(l.twins, twinsOf(load, o))
	}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	start, seen, err := l.anchored()
	if err != nil {
		return nil, err
	}
	best, e, err := l.best(start, seen)
	if err != nil {
		return nil, err
	}
	found, err := l.search(best, e)
	if err != nil {
		return nil, err
	}
	if loads[0].Point != nil { // a point's error is known beforehand
		post, err := l.posterior(e)
		if err != nil {
			return nil, err
		}
		return l.learned(found, post, nil), nil
	}
	values, post, scatter, err := l.refitted(found)
	if err != nil {
		return nil, err
	}
	answer, err := l.unbiased(found, values, scatter, found == best)
	if err != nil {
		return nil, err
	}
	if answer != found {
		return l.learned(answer, post, scatter), nil
	}
	if post, err = l.posterior(e); err != nil {
		return nil, err
	}
	return l.learned(found, widened(post, found.values, values), scatter), nil
}

const (
	manyTwins = 5    // standard deviations over twins that are no chance
	mostStep  = 0.25 // scatter of steps above which they are no longer like even noise around a mean
	farther   = 3    // times an objective that says a fit is of something else
)

// unbiased is the candidate without the bias of the equations, unless a search has led
// elsewhere, the recordings are not like the real one or the replays are clearly farther
// with it.
func (l *learner) unbiased(from *state, values []float64, u *result.RequestScatter, unsearched bool) (*state, error) {
	if !unsearched {
		return from, nil
	}
	next, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, err
	}
	took, answer := "bias taken off", next
	if u.StepFrac > mostStep || next.objective > float64(farther*from.objective)+float64(manyTwins*from.twins) {
		took, answer = "bias not taken off", from
	}
	l.passes = append(l.passes, result.RequestPass{Name: took, Objective: next.objective})
	return answer, nil
}

// widened is a covariance with the bias that was left in the answer as one more error.
func widened(covariance, answer, unbiased []float64) []float64 {
	n := len(answer)
	for k := range n {
		for i := range n {
			covariance[k*n+i] += float64((answer[k] - unbiased[k]) * (answer[i] - unbiased[i]))
		}
	}
	return covariance
}

// leastGain is by how much a fit that does without the regression's evidence must be
// nearer to take its place.
const leastGain = 0.1

// best is where the passes lead from the regression's answer: with its evidence, or
// without, should that be clearly nearer. Preemptions and waits for KV blocks are
// seen by the simulator alone.
func (l *learner) best(values []float64, seen *evidence) (*state, evidence, error) {
	start, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, evidence{}, err
	}
	l.stamps, l.seen = seen, seen
	with, e, err := l.newton(start)
	if err != nil || seen == nil {
		return with, e, err
	}
	l.stamps = nil
	without, other, err := l.newton(start)
	if err != nil {
		return nil, e, err
	}
	if without.objective < (1-leastGain)*with.objective {
		return without, other, nil
	}
	l.stamps = seen
	return with, *seen, nil
}

// twinsOf are jittered copies of a load; a closed loop sends by itself, its copies
// are the load itself.
func twinsOf(l *Load, o Options) [][]sim.Request {
	return sim.Twins(l.Requests, max(1, o.Twins), o.JitterUs, o.Seed)
}

// learned describes the answer.
func (l *learner) learned(s *state, post []float64, u *result.RequestScatter) *Learned {
	n := len(l.m.free)
	directions := l.directions(s.values, post)
	level := &result.RequestLevel{Prior: l.m.name, Passes: append([]result.RequestPass{}, l.passes...), Objective: s.objective,
		NoiseFloor: s.twins, Evaluations: l.calls, SimulatedSteps: l.steps.Load(), Scatter: u,
		Directions: append([]result.LearnedDirection{}, stat.Map(directions, direction.document)...)}
	if l.seen != nil {
		level.SpanErrorFrac, level.TTFTErrorFrac = result.OrNull(l.seen.errors[rowSpan]), result.OrNull(l.seen.errors[rowTTFT])
	}
	for _, of := range l.loads {
		level.Loads = append(level.Loads, result.RequestLoad{Name: of.Name, Tier: of.Tier, Requests: len(of.Requests) - of.later})
	}
	out := &Learned{Set: l.m.setOf(s.values), Level: level, Names: l.m.names, directions: directions}
	for k := range n {
		out.Covariance = append(out.Covariance, post[k*n:(k+1)*n])
	}
	l.describe(out, s)
	return out
}

// posterior is the covariance of the free terms after the evidence.
func (l *learner) posterior(e evidence) ([]float64, error) {
	n := len(l.m.free)
	information := make([]float64, n*n)
	for k := range information {
		information[k] = e.sum.G[k]/(e.variance*e.design) + l.m.precision[k]
	}
	return l.m.inverse(information)
}

// inverse of an information matrix of the free terms.
func (m *model) inverse(information []float64) ([]float64, error) {
	out := stat.Inverse(information, len(m.free))
	if out == nil {
		return nil, trace.Errorf(coeff.ImpossibleCoefficient, "prior %s: got an information matrix that is singular", m.name).
			WithHint("is every request or load level of the one deployment, and its times in the unit stated?")
	}
	return out, nil
}

// normal95 is half the width of a 95 % interval in standard errors.
const normal95 = 1.959963984540054

// describe puts intervals and evidence on the terms. One that no time of any load depends
// on is the prior's, though it moves with others where the prior has them go together.
func (l *learner) describe(out *Learned, s *state) {
	n := len(s.values)
	for k, v := range s.values {
		c := l.m.at(out.Set, k)
		half := float64(normal95 * math.Sqrt(out.Covariance[k][k]))
		c.CI95, c.CI95Given = &[2]float64{math.Max(0, v-half), v + half}, coeff.GivenPrior
		share := 1 - out.Covariance[k][k]/(l.m.sd[k]*l.m.sd[k])
		if !slices.ContainsFunc(s.blocks, func(b *ridge.Gram) bool { return b.G[k*n+k] > 0 }) {
			share = 0
		}
		switch {
		case share > 0.9:
			c.Identified, c.Evidence = coeff.Within, "data"
		case share < 0.1:
			c.Identified, c.Evidence = coeff.PriorOnly, "prior"
		default:
			c.Identified, c.Evidence = coeff.Within, fmt.Sprintf("data %.2f, prior %.2f", share, 1-share)
		}
	}
	out.Set.Covariance = make([][]float64, len(out.Set.Beta))
	for j := range out.Set.Covariance {
		out.Set.Covariance[j] = make([]float64, len(out.Set.Beta))
	}
	for k := range l.m.beta {
		for i := range l.m.beta {
			out.Set.Covariance[l.m.free[k]][l.m.free[i]] = out.Covariance[k][i]
		}
	}
}

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	ReplayUnlike    trace.Code = "replay_unlike"
	BadPoints       trace.Code = "bad_points"
)

// Choose picks the n loads that would tell most together, one after the other: the
// largest determinant of what is known after them, with the prior (D-optimality). Only
// what is asked of the loads counts, not what was measured. A load that runs the prior's
// server out of KV blocks is not chosen: it tells the size of the cache before it tells
// what a step costs. Errors are those of the simulator.
func Choose(ctx context.Context, loads []*Load, prior *Prior, n int, o Options) ([]int, error) {
	l := &learner{Options: o, ctx: ctx}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	grams, taken := make([]*ridge.Gram, len(loads)), make([]bool, len(loads))
	err = par.Try(ctx, o.Workers, len(loads), func(i int) error {
		cfg, err := loads[i].config(l.m, l.m.mean)
		if err != nil {
			return err
		}
		means, err := sim.MeansOf(cfg, loads[i].Requests)
		if err != nil {
			return err
		}
		if taken[i] = means.Preemptions > 0; taken[i] {
			return nil
		}
		point := Point{TTFTMs: means.TTFTMs, TPOTMs: means.TPOTMs}
		score, err := point.assess(cfg, loads[i].Requests, l.m.theta(loads[i], l.m.mean), true)
		if err == nil {
			grams[i] = l.freeColumns(loads[i], score.Blocks[0], 1/(pointTPOTSD*pointTPOTSD))
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	known := append([]float64(nil), l.m.precision...)
	var chosen []int
	for len(chosen) < min(n, len(loads)) {
		best, most := -1, math.Inf(-1)
		for i, g := range grams {
			if taken[i] {
				continue
			}
			if d := logDet(known, g.G, len(l.m.free)); d > most {
				best, most = i, d
			}
		}
		if best < 0 {
			break
		}
		taken[best], chosen = true, append(chosen, best)
		addTo(known, grams[best].G)
	}
	return chosen, nil
}

// logDet is the log determinant of a + b; -Inf when it is not positive definite.
func logDet(a, b []float64, n int) float64 {
	sum := slices.Clone(a)
	addTo(sum, b)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, sum)) {
		return math.Inf(-1)
	}
	return chol.LogDet()
}

// Document is a set on one deployment in the form of a fit, for formats that are
// written from fits: the set's own terms, and BLIS's trained-physics terms fitted
// to what the set predicts for the design's batches on that deployment, as far as
// its token budget and seats allow them.
func Document(set *coeff.Set, d *deploy.Deployment) (*result.Fit, error) {
	on := features.On(set, d)
	doc := &result.Fit{TrainingDate: on.TrainedOn.Date, FeatureSet: features.SetOf(on.SpecVersion),
		Configs: []result.FitConfig{{Key: d.Config(), Label: d.Label(), Deployment: *d, Runs: []string{}}}}
	doc.Inputs, doc.Command = on.Inputs, on.Command
	doc.Beta = modelOf("beta", on.BetaTarget, on.Beta)
	doc.Beta.SpecVersion, doc.Beta.Recipe, doc.Beta.Covariance = string(on.SpecVersion), on.Recipe, on.Covariance
	doc.Beta.GammaEMA = new(on.Gamma)
	for i := range on.Alpha {
		a := &on.Alpha[i]
		m := modelOf("alpha", a.Target, a.Coefficients)
		base := a.Coefficients[overheadBase-1].Value
		m.Replay, m.Covariance, m.Interval = a.Replay, a.Covariance, &result.IntervalErrors{MedianPredUs: &base}
		m.TargetErrors = &result.TargetErrors{MedianPredUs: &base}
		doc.Alpha = append(doc.Alpha, m)
	}
	if on.AlphaModel(coeff.Egress) == nil { // a library counts all time outside the engine before it
		m := modelOf("alpha", coeff.Egress, features.NewCoefficients(features.AlphaFeatures(on.SpecVersion)))
		m.Replay, m.TargetErrors = true, &result.TargetErrors{MedianPredUs: new(0.0)}
		doc.Alpha = append(doc.Alpha, m)
	}
	m, err := trainedPhysics(on, d)
	switch {
	case err == nil:
		doc.Models = []result.Model{*m}
	case trace.CodeOf(err) != deploy.BadModel: // one that BLIS refuses, as it has fewer KV heads than GPUs
		return nil, err
	}
	return doc, nil
}

func modelOf(name, target string, cs []coeff.Coefficient) result.Model {
	m := result.Model{Name: name, Target: target}
	for _, c := range cs {
		m.Coefficients = append(m.Coefficients, result.Coefficient{Coefficient: c})
	}
	return m
}

const documentLambda = 3e-3

// overheadBase is the slot of the overhead that an idle server has.
const overheadBase = 4

// documentBatches are enough for eleven terms.
const documentBatches = 1200

// trainedPhysics fits BLIS's terms to the set's predictions.
func trainedPhysics(on *coeff.Set, d *deploy.Deployment) (*result.Model, error) {
	tp, err := features.NewTrainedPhysics(d)
	if err != nil {
		return nil, err
	}
	space, err := features.New(on.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	rows := &ridge.Data{P: len(features.TrainedPhysicsBeta())}
	x, z := make([]float64, len(on.Beta)), make([]float64, rows.P)
	q := fit.NewDraws(5, 1)
	var buf []trace.Chunk
	for i := range documentBatches {
		regime := int32(i) % fit.NumRegimes
		buf = fit.Within(q.Batch(regime, buf), &d.Engine)
		if hits, err := space.Beta(new(space.Sum(buf)), x); err != nil || hits != 0 || len(buf) == 0 {
			continue
		}
		tp.Beta(new(features.BasisSum(buf)), z)
		rows.X, rows.Y = append(rows.X, z...), append(rows.Y, on.Predict(x))
		rows.Config, rows.Regime = append(rows.Config, 0), append(rows.Regime, regime)
	}
	o := ridge.DefaultOptions(rows.P)
	o.Prior = make([]float64, rows.P)
	for j, t := range features.TrainedPhysicsBeta() {
		if t.Unit == "dimensionless" { // what one deployment cannot tell apart shares at about the peak, so that no term is 0 by accident
			o.Prior[j] = 1
		}
	}
	w := ridge.Weights(rows, o)
	best, _, err := ridge.FitPublished(rows, w, documentLambda, o)
	if err != nil {
		return nil, err
	}
	cs := make([]coeff.Coefficient, rows.P)
	for j, t := range features.TrainedPhysicsBeta() {
		cs[j] = coeff.Coefficient{Name: t.Name, Unit: t.Unit, Value: best.Beta[j], Identified: coeff.Within}
	}
	m := modelOf("trained-physics", on.BetaTarget, cs)
	pred := ridge.Predict(rows, best.Beta)
	errors := make([]float64, len(pred))
	for i, y := range rows.Y {
		errors[i] = max(pred[i]/y, y/pred[i]) - 1
	}
	m.Holdout = &result.Errors{Rows: len(pred), MAPE: new(stat.Mean(errors))}
	return &m, nil
}
