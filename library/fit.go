package library

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// fitted is what one family's tables come to.
type fitted struct {
	*design
	tables     *Tables
	beta       []float64   // us/s, kernels alone
	covariance [][]float64 // between models
	lambda     float64
	options    ridge.Options // of the last fit
	gram       *ridge.Gram   // of balanced weights
	regimes    [learn.NumRegimes]quality
}

// quality is how well the terms hold the tables in one regime.
type quality struct {
	Rows            int
	MedianAPE       float64 // median relative error over all rows
	Bias            float64 // mean signed relative error
	Worst           float64 // mean relative error of the worst deployment
	WorstDeployment string
}

// termOptions are those of a family without a prior.
func termOptions(p int) ridge.Options {
	o := ridge.DefaultOptions(p)
	o.EpsUs, o.Objective, o.SkipNested = 1, ridge.Cross, true
	return o
}

// solve fits one table: lambda by leaving models out, then towards the least
// relative error.
func (t *design) solve(o ridge.Options) (ridge.Fit, error) {
	w := ridge.Weights(&t.Data, o)
	sel, err := ridge.Select(&t.Data, o)
	if err != nil {
		return ridge.Fit{}, err
	}
	fit, _, err := ridge.FitPublished(&t.Data, w, sel[0].Lambda, o)
	return fit, err
}

// fit evaluates the family's design points and fits them; without any it has no rows.
func (f *fitted) fit(o *Options) error {
	t, err := tableOf(f.tables, f.family, o)
	if err != nil || len(t.Y) == 0 {
		return err
	}
	f.design = t
	f.options = termOptions(betaSlots)
	f.gram = ridge.OfRows(&t.Data, ridge.Weights(&t.Data, f.options), nil, 1)
	fit, err := t.solve(f.options)
	if err != nil {
		return err
	}
	f.beta, f.lambda = fit.Beta, fit.Lambda
	return nil
}

// assess compares the fit with its own tables.
func (f *fitted) assess() {
	pred := ridge.Predict(&f.Data, f.beta)
	for r := range learn.NumRegimes {
		byRun := make([][]float64, len(f.deps))
		q := &f.regimes[r]
		for i, y := range f.Y {
			if f.Regime[i] == r {
				e := pred[i]/y - 1
				byRun[f.Run[i]] = append(byRun[f.Run[i]], math.Abs(e))
				q.Bias += e
				q.Rows++
			}
		}
		q.Bias /= float64(max(1, q.Rows))
		q.MedianAPE = stat.Median(slices.Concat(byRun...))
		for run, es := range byRun {
			if m := stat.Mean(es); m > q.Worst {
				q.Worst, q.WorstDeployment = m, f.deps[run].Label()
			}
		}
	}
}

var betaSlots = len(features.BetaFeatures(features.V12))

// poolTerms fits every family again with the terms of all families of its kind as
// the prior: each term is pulled towards the median over GPUs and weights as
// strongly as it is the same there. How strongly altogether each family decides by
// leaving models out.
func poolTerms(families []*fitted) error {
	for _, moe := range []bool{false, true} {
		var kind []*fitted
		for _, f := range families {
			if f.family.MoE == moe {
				kind = append(kind, f)
			}
		}
		if len(kind) < 3 {
			continue
		}
		common, spread := libraryBetween(kind)
		for _, f := range kind {
			o := termOptions(betaSlots)
			o.Prior = common
			for j := range o.Penalty {
				o.Penalty[j] = 1 / math.Max(spread[j]*spread[j], 1e-4)
			}
			least := slices.Min(o.Penalty)
			for j := range o.Penalty {
				o.Penalty[j] /= least
			}
			fit, err := f.solve(o)
			if err != nil {
				return err
			}
			f.beta, f.lambda, f.options = fit.Beta, fit.Lambda, o
		}
	}
	return nil
}

// libraryBetween are the median of every term over families and how far they lie from
// it, as a share of a step's time.
func libraryBetween(kind []*fitted) (common, spread []float64) {
	common, spread = make([]float64, betaSlots), make([]float64, betaSlots)
	for j := range common {
		var values, off []float64
		for _, f := range kind {
			values = append(values, f.beta[j])
		}
		common[j] = stat.Median(values)
		for _, f := range kind {
			s, ybar := f.gram.Scale()
			off = append(off, math.Abs(f.beta[j]-common[j])*s[j]/ybar)
		}
		spread[j] = stat.Mean(off)
	}
	return common, spread
}

// betweenModels is the covariance of a new model's coefficients about the
// family's: each model of the design is fitted alone with the family as its
// prior, and what the terms then leave of it is the rest.
func (f *fitted) betweenModels() error {
	f.covariance = make([][]float64, betaSlots)
	for j := range f.covariance {
		f.covariance[j] = make([]float64, betaSlots)
	}
	o := f.options
	o.Prior = f.beta
	w := ridge.Weights(&f.Data, o)
	n := float64(len(f.models))
	for m := range f.models {
		var rows []int32
		for i, c := range f.Config {
			if c == int32(m) {
				rows = append(rows, int32(i))
			}
		}
		own, err := ridge.FitRows(&f.Data, w, rows, ownLambda, o)
		if err != nil {
			return err
		}
		for j := range f.covariance {
			for k := range f.covariance {
				f.covariance[j][k] += (own.Beta[j] - f.beta[j]) * (own.Beta[k] - f.beta[k]) / n
			}
		}
	}
	for j, b := range f.beta {
		f.covariance[j][j] += square(leastShare * b)
	}
	return nil
}

const (
	ownLambda  = 1e-3 // how strongly a model's own fit is held to its family
	leastShare = 0.02 // standard error of a term below which no family claims to know it
)

func square(v float64) float64 { return float64(v * v) }

// design is a family's design points as rows of a fit: features against what the
// batch's kernels take, us. Config is the model, Run the deployment.
type design struct {
	ridge.Data
	family family
	models []string
	deps   []*deploy.Deployment // by Run
}

// tableOf evaluates the design points of one family. Deployments that the
// tables do not hold (a head size, experts over tp) are left out; a family
// without any has no rows.
func tableOf(t *Tables, f family, o *Options) (*design, error) {
	out := &design{family: f, Data: ridge.Data{P: len(features.BetaFeatures(features.V12))}}
	for _, d := range f.deployments(t.Hardware, o.Without) {
		stepper, err := t.For(d, o.Rules)
		if err != nil {
			if missing(err) {
				continue
			}
			return nil, err
		}
		if n := len(out.models); n == 0 || out.models[n-1] != d.Model.ID {
			out.models = append(out.models, d.Model.ID)
		}
		if err := out.add(d, stepper, o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// missing reports whether the tables lack what a deployment needs.
func missing(err error) bool {
	coded := (*trace.Error)(nil)
	return errors.As(err, &coded) && coded.Code == noRows
}

// add evaluates one deployment's batches, regime after regime.
func (t *design) add(d *deploy.Deployment, s *Stepper, o *Options) error {
	space, err := features.New(features.V12, d)
	if err != nil {
		return err
	}
	q := learn.NewDraws(5, o.Seed+uint64(len(t.deps)))
	x, buf := make([]float64, t.P), []trace.Chunk(nil)
	run := int32(len(t.deps))
	t.deps = append(t.deps, d)
	for i := range o.Batches {
		regime := int32(i % int(learn.NumRegimes))
		buf = q.Batch(regime, buf)
		in := space.Sum(buf)
		if _, err := space.Beta(&in, x); err != nil {
			return err
		}
		forget(x)
		parts := s.StepMs(buf)
		t.X = append(t.X, x...)
		t.Y = append(t.Y, 1e3*parts.TotalMs())
		t.Config = append(t.Config, int32(len(t.models)-1))
		t.Regime = append(t.Regime, regime)
		t.Run = append(t.Run, run)
		t.Time = append(t.Time, int64(i))
	}
	return nil
}

// forget blanks the terms that kernels cannot teach: what belongs to the host,
// and constants in us that mean another thing on every model.
func forget(x []float64) {
	for i, f := range features.BetaFeatures(features.V12) {
		if !f.IsTime() && (f.Kind == features.Constant) {
			x[i] = 0
		}
	}
}

// judged is one measured point beside what was predicted for it.
type judged struct {
	Group, Name    string
	TP             int64
	TPOTMs, TTFTMs float64 // predicted
	TPOTErr        float64 // predicted/measured - 1
	TTFTErr        float64
	E2EErr         float64 // of TTFT + (output tokens - 1)*TPOT, the means a point has
	TPOTSD         float64 // of log TPOT by the library's own account, 0 when not asked for
}

// judge predicts loads with a correction.
func (b *builder) judge(ctx context.Context, c *correction, ls []*load) ([]judged, error) {
	es, err := b.evidence(ctx, c, ls, nil)
	if err != nil {
		return nil, err
	}
	out := make([]judged, len(ls))
	for i, l := range ls {
		tpot, ttft := es[2*i], es[2*i+1]
		out[i] = l.judged(l.ttftMs*stat.Exp(ttft.log), l.tpotMs*stat.Exp(tpot.log))
		out[i].TPOTSD = math.Sqrt(tpot.modelVariance + c.variance(tpot.by))
	}
	return out, nil
}

// judged is the load beside a prediction of its means.
func (l *load) judged(ttftMs, tpotMs float64) judged {
	gaps := 0.0
	for i := range l.reqs {
		gaps += float64(l.reqs[i].OutputTokens-1) / float64(len(l.reqs))
	}
	return judged{Group: l.group, Name: l.name, TP: l.dep.TP, TPOTMs: tpotMs, TTFTMs: ttftMs, TPOTErr: tpotMs/l.tpotMs - 1,
		TTFTErr: ttftMs/l.ttftMs - 1, E2EErr: (float64(ttftMs)+float64(gaps*tpotMs))/(l.ttftMs+float64(gaps*l.tpotMs)) - 1}
}

// variance is that of a prediction whose log changes so with the parameters.
func (c *correction) variance(by []float64) float64 {
	n := len(c.Theta)
	if c.Covariance == nil {
		sum := 0.0
		for k, u := range by {
			sum += square(u * c.prior(k).sd)
		}
		return sum
	}
	sum := 0.0
	for k, u := range by {
		sum += float64(u * ridge.Dot(by, c.Covariance[k*n:(k+1)*n]))
	}
	return sum
}

// groupsOf are the groups of loads, sorted.
func groupsOf(ls []*load) []string {
	var out []string
	for _, l := range ls {
		out = append(out, l.group)
	}
	return distinct(out)
}

// leaveGroupsOut judges every group of points by a correction that has not seen
// it. always are loads that every correction sees.
func (b *builder) leaveGroupsOut(ctx context.Context, points, always []*load, ys []*cycles) ([]judged, error) {
	var out []judged
	for _, g := range groupsOf(points) {
		in, left := slices.Clone(always), []*load(nil)
		for _, l := range points {
			if l.group == g {
				left = append(left, l)
			} else {
				in = append(in, l)
			}
		}
		c, err := b.learn(ctx, in, ys)
		if err != nil {
			return nil, err
		}
		js, err := b.judge(ctx, c, left)
		if err != nil {
			return nil, err
		}
		out = append(out, js...)
	}
	return out, nil
}
