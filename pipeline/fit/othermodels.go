package fit

// This file fits other parameterisations of the step time to the same rows, so that the report can
// compare them: BLIS's black box and trained physics, the roofline, and the linear model of queueing
// theory.

import (
	"context"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Names of the other parameterisations.
const (
	Blackbox       = "blackbox"
	TrainedPhysics = "trained-physics"
	Roofline       = "roofline"
	// Linear3 is the iteration of the three-parameter queueing models: a constant, the
	// tokens computed and the KV tokens read. It is fitted when asked for.
	Linear3 = "linear3"
)

// linear3Terms are those of the three-parameter queueing models' iteration:
//
//	step_us = alpha + beta * tokens computed + gamma * KV tokens read
//
// A sequence with c tokens in KV of which n are new this step computes n and
// reads c + n.
var linear3Terms = []features.Term{
	{Name: "alpha", Unit: "us/step", Doc: "constant"},
	{Name: "beta", Unit: "us/token", Doc: "tokens computed in the step, prefill and decode"},
	{Name: "gamma", Unit: "us/token", Doc: "KV tokens read: the context of every sequence, its new tokens included"},
}

// constantPenalty is the penalty factor of a constant in a fit over several configurations, as that of
// the bias (features.Feature.PenaltyIn): it must not take the differences between configurations.
const constantPenalty = 100

// basisTerms returns the non-negative terms of a basis, of which each is one of the parameterisations
// above except roofline.
func basisTerms(name string, configs int) []Term {
	list := features.BlackboxBeta
	switch name {
	case TrainedPhysics:
		list = features.TrainedPhysicsBeta()
	case Linear3:
		list = linear3Terms
	}
	out := make([]Term, len(list))
	for j, t := range list {
		out[j] = Term{Name: t.Name, Unit: t.Unit, penalty: 1, PerUs: t.Unit == "dimensionless"}
	}
	if configs > 1 && name == TrainedPhysics {
		out[features.PerStep].penalty = constantPenalty
	}
	if name == Linear3 {
		out[0].Constant = true // alpha
	}
	return out
}

// Vectorizer returns the basis of a parameterisation, the function from a step to its features; nil for
// roofline, which reads the physics features. It returns an error for a deployment that the
// parameterisation does not describe.
func Vectorizer(name string, space *features.Space) (*rows.Vectorizer, error) {
	switch name {
	case Linear3:
		return &rows.Vectorizer{P: len(linear3Terms), Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
			x[0], x[1], x[2] = 1, in.ScheduledTokens, in.KVReadTokens
			return 0, nil
		}}, nil
	case Blackbox:
		return summed(len(features.BlackboxBeta), features.Blackbox), nil
	case TrainedPhysics:
		tp, err := features.NewTrainedPhysics(space.Deployment())
		if err != nil {
			return nil, err
		}
		return summed(len(features.TrainedPhysicsBeta()), tp.Beta), nil
	}
	return nil, nil
}

// summed returns a basis of p features that beta computes from the sums of a batch. Steps without known
// requests are an error, because sums need them.
func summed(p int, beta func(*features.Step, []float64)) *rows.Vectorizer {
	step := func(_ *features.StepInput, members []trace.Member, x []float64) (features.Hits, error) {
		if len(members) == 0 {
			return 0, trace.Errorf(rows.UnknownBatch, "no requests known")
		}
		var s features.Step
		for i := range members {
			s.Add(members[i].Chunk)
		}
		beta(&s, x)
		return 0, nil
	}
	return &rows.Vectorizer{P: p, WantMembers: true, Step: step}
}

// OtherTable returns the rows of the run under another basis (another model's features). Again must
// have been called. It returns nil if the basis is not defined for the deployment.
func (p *Run) OtherTable(name string, o Options) (*rows.Table, error) {
	if p.Src.Rows != "" {
		return p.restoreOther(name)
	}
	vec, err := Vectorizer(name, p.space)
	if vec == nil || err != nil { // makeTables has warned of the error
		return nil, nil
	}
	return p.steps.BetaBasis(p.space, *vec, rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gamma: features.DefaultGamma,
		Split: o.Split, Saturated: p.Spans, Stride: p.Src.Stride, Slim: true})
}

// otherTables returns the rows of the run under the bases of all other models, in the order of
// o.Models. The recording is read again, slice by slice if it is long.
func (p *Run) otherTables(ctx context.Context, o Options) ([]*rows.Table, error) {
	all := make([]*rows.Table, len(o.Models))
	turns := par.NewTurns()
	err := visitParts(p.Src, o, func(k int, part Source) error {
		defer turns.End(k)
		q := &Run{Src: part, Spans: p.Spans, runFacts: runFacts{Lag: p.Lag}}
		if err := q.Again(ctx, o); err != nil {
			return err
		}
		tables := make([]*rows.Table, len(all)) // of this part
		err := par.Try(ctx, o.Workers, len(all), func(i int) (err error) {
			tables[i], err = q.OtherTable(o.Models[i], o)
			if tables[i] != nil {
				tables[i].ForgetDetails()
			}
			return err
		}, nil)
		if err != nil {
			return err
		}
		turns.After(k - 1)
		for i, t := range tables {
			if all[i] == nil {
				p.Src.reserveRows(t)
			}
			all[i] = joinTables(all[i], t)
		}
		return nil
	})
	return all, err
}

// prepareOthers makes rows of the other parameterisations (bases) of the step time, by model and run;
// nil for a run that has none. They are not made together with the first because the rows of all
// models at once would take several times the memory. Together the others have no more columns than
// the first.
func (f *fitter) prepareOthers(ctx context.Context) (byModel [][]*rows.Table, err error) {
	byModel = make([][]*rows.Table, len(f.o.Models))
	for m := range byModel {
		byModel[m] = make([]*rows.Table, len(f.used))
	}
	if !f.o.Others() {
		return byModel, nil
	}
	err = par.Try(ctx, f.o.Workers, len(f.used), func(i int) error {
		tables, err := f.used[i].otherTables(ctx, f.o)
		if err != nil {
			return fmt.Errorf("run %s: %w", f.used[i].Src.ID, err)
		}
		for m, t := range tables {
			byModel[m][i] = t
		}
		return nil
	}, func(done int) { f.progress.Report("other models", int64(done), int64(len(f.used)), "runs") })
	return byModel, err
}

// otherModels fits the other models to the same steps.
func (f *fitter) otherModels(ctx context.Context) error {
	f.out.Models = []result.Model{}
	// The rows of the first model are no longer needed; those of the others take their place in
	// memory.
	f.release()
	tables, err := f.prepareOthers(ctx)
	if err != nil {
		return err
	}
	models := make([]*result.Model, len(f.o.Models))
	skipped := make([]error, len(f.o.Models))
	err = par.Try(ctx, f.atOnce, len(models), func(i int) error {
		if name := f.o.Models[i]; name == Roofline {
			models[i], skipped[i] = f.roofline, f.noRoofline
		} else {
			models[i], skipped[i] = f.otherModel(tables[i], name)
		}
		tables[i] = nil
		return nil
	}, nil)
	if err != nil {
		return err
	}
	for i, name := range f.o.Models {
		if skipped[i] != nil {
			f.warn(trace.Findingf(ModelSkipped, "%s: %v", name, skipped[i]))
			continue
		}
		f.out.Models = append(f.out.Models, *models[i])
	}
	return nil
}

// otherModel returns the part of the document about a model fitted to rows under another basis.
func (f *fitter) otherModel(tables []*rows.Table, name string) (*result.Model, error) {
	tables = slices.DeleteFunc(tables, func(t *rows.Table) bool { return t == nil || t.Kept == 0 })
	rows.Clean(tables, rows.Relative)
	p := Pooled(tables, nil)
	if len(p.Train) == 0 {
		return nil, fmt.Errorf("no training rows with known requests")
	}
	s := &Solved{Pool: p, Terms: basisTerms(name, len(p.Configs))}
	// The other models are always fitted by the default recipe and objective, whatever the first one has.
	o := f.o
	o.Recipe = Relative
	o.Objective = ""
	s.Opt = ridgeOptions(s.Terms, EpsBetaUs, o)
	sel, err := ridge.Select(p.TrainData(), s.Opt)
	if err != nil {
		return nil, err
	}
	s.Findings = p.Words(sel[0].Findings)
	if err := s.SolveRelative(0, &sel[0], f.o.RefitAll); err != nil {
		return nil, err
	}
	return f.otherResult(s, Selections{Rel: sel}, name)
}

// otherResult returns the part of the document about another model.
func (f *fitter) otherResult(s *Solved, m Selections, name string) (*result.Model, error) {
	out := Model(s, m, &f.o, name, f.o.BetaTarget)
	out.GammaEMA = nil // these models have no preemption average
	out.Recipe = Relative
	s.Judge(out, false, f.o.Workers)
	return out, f.locoOther(s, out)
}

// locoOther cross-validates one of the other models over configurations: each is predicted by a fit of the
// others (leave one configuration out). It is locoBeta without hardware factors and the frozen recipe, which
// the other models do not have.
func (f *fitter) locoOther(s *Solved, out *result.Model) error {
	if len(s.Pool.Configs) < 2 {
		return nil
	}
	for c, key := range s.Pool.Configs {
		beta, err := f.leaveOut(s, int32(c))
		if err != nil {
			return err
		}
		out.Loco = append(out.Loco, locoEntry(key, trainErrors(s, ridge.Predict(s.Train, beta), int32(c))))
	}
	out.LocoMedian, out.LocoWorst = locoMAPEs(out.Loco)
	return nil
}

// rooflineSlots is the number of terms of version 1.1. Later versions add terms for costs that a
// roofline does not have.
var rooflineSlots = len(features.BetaFeatures(features.V11))

// rooflineModel returns the model without free terms: all work runs at the hardware's peak. The bias of its
// predictions shows how far from the peak the engine runs.
func (f *fitter) rooflineModel() (*result.Model, error) {
	if f.o.Spec.Base() == features.V10 {
		return nil, fmt.Errorf("the roofline reads 1.1 features")
	}
	// Nothing is solved: a Solved with given coefficients is judged like a fitted one.
	pool := f.beta
	solved := &Solved{Pool: pool, Terms: featureTerms(features.BetaFeatures(f.o.Spec), len(pool.Configs), PriorZero)}
	solved.Opt = ridgeOptions(solved.Terms, EpsBetaUs, f.o)
	solved.Data = pool.Data.With(f.gamma)
	solved.Train = solved.Data.Subset(pool.Train)
	solved.Fit.Beta = make([]float64, len(solved.Terms))
	out := &result.Model{
		Name: Roofline, SpecVersion: string(f.o.Spec), Target: f.o.BetaTarget, Rows: RowCounts(pool.Tables),
		NullDirections: []string{}, Loco: []result.Loco{}, Grid: []result.GridPoint{}, BoundHits: []result.BoundHit{},
		Warnings: []trace.Finding{},
	}
	out.Rows.Holdout = len(pool.Hold)
	for j, t := range solved.Terms {
		if j < rooflineSlots && t.IsTime && t.Name != features.FixedStepOverhead { // that one is in nominal seconds
			solved.Fit.Beta[j] = RooflinePrior
		}
		out.Coefficients = append(out.Coefficients, result.Coefficient{Coefficient: coeff.Coefficient{
			Name: t.Name, Value: solved.Fit.Beta[j], Unit: t.Unit, Identified: coeff.PriorOnly,
		}})
	}
	solved.Pred = ridge.Predict(solved.Data, solved.Fit.Beta)
	solved.Judge(out, false, f.o.Workers)
	for c, key := range pool.Configs {
		var peakUs, measuredUs float64
		for i, k := range solved.Data.Config {
			if k == int32(c) {
				peakUs += solved.Pred[i]
				measuredUs += solved.Data.Y[i]
			}
		}
		out.Utilisation = append(out.Utilisation, result.Utilisation{Config: key, Share: peakUs / measuredUs})
	}
	return out, nil
}
