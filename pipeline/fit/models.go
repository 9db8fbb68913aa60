package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/features/basis"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
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

// skipOthers says which bases the deployment has no form of.
func (p *prepared) skipOthers(space *features.Space, o Options) {
	for _, name := range o.Models {
		if _, err := vectorizer(name, space); err != nil {
			p.findings = append(p.findings, trace.Findingf(ModelSkipped, "%s: %s: %v", p.src.ID, name, err))
		}
	}
}

// release lets go of the rows of the step-time model, unless somebody asks for
// them afterwards.
func (f *fitter) release() {
	if f.beta = nil; f.o.Rows != nil {
		return
	}
	for _, p := range f.used {
		p.beta, p.frozen, p.alpha = nil, nil, nil
	}
}

// prepareOthers makes the same rows under the other bases. The recordings are
// read again: with all rows of all models beside them they would not be small.
func (f *fitter) prepareOthers(ctx context.Context) error {
	if !slices.ContainsFunc(f.o.Models, func(name string) bool { return name != Roofline }) {
		return nil
	}
	return par.Try(ctx, f.o.Workers, len(f.used), func(i int) error {
		p := f.used[i]
		if err := p.otherTables(f.o); err != nil {
			return fmt.Errorf("run %s: %w", p.src.ID, err)
		}
		return nil
	}, func(done int) { f.progress.Report("other models", int64(done), int64(len(f.used)), "runs") })
}

func (p *prepared) otherTables(o Options) error {
	run, err := p.src.Load()
	if err != nil {
		return err
	}
	steps, err := rows.Rebuild(run, &p.src.Deployment, o.Spec)
	if err != nil {
		return err
	}
	space, err := features.New(o.Spec, &p.src.Deployment)
	if err != nil {
		return err
	}
	opt := rows.BetaOptions{Target: o.BetaTarget, Lag: p.lag.Lag, Gamma: features.DefaultGamma, Split: o.Split, Saturated: p.spans}
	for _, name := range o.Models {
		vec, err := vectorizer(name, space)
		if vec == nil || err != nil { // skipOthers has said so
			continue
		}
		if p.other[name], err = steps.BetaBasis(space, *vec, opt); err != nil {
			return err
		}
	}
	return nil
}

// vectorizer is the basis of a parameterisation; nil for roofline, which reads
// the physics features.
func vectorizer(name string, space *features.Space) (*rows.Vectorizer, error) {
	switch name {
	case Linear3:
		return &rows.Vectorizer{P: len(basis.Linear3Beta), Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
			basis.Linear3(in.ScheduledTokens, in.KVReadTokens, x)
			return 0, nil
		}}, nil
	case Blackbox:
		return &rows.Vectorizer{P: len(basis.BlackboxBeta), WantMembers: true, Step: func(_ *features.StepInput, members []trace.Member, x []float64) (features.Hits, error) {
			s, err := stepOf(members)
			if err == nil {
				basis.Blackbox(&s, x)
			}
			return 0, err
		}}, nil
	case TrainedPhysics:
		tp, err := basis.NewTrainedPhysics(space.Deployment())
		if err != nil {
			return nil, err
		}
		return &rows.Vectorizer{P: len(basis.TrainedPhysicsBeta), WantMembers: true, Step: func(_ *features.StepInput, members []trace.Member, x []float64) (features.Hits, error) {
			s, err := stepOf(members)
			if err == nil {
				tp.Beta(&s, x)
			}
			return 0, err
		}}, nil
	}
	return nil, nil
}

// stepOf sums a batch; approximate steps have no members and are refused.
func stepOf(members []trace.Member) (basis.Step, error) {
	var s basis.Step
	if len(members) == 0 {
		return s, trace.Errorf(rows.UnknownBatch, "no requests known")
	}
	for i := range members {
		s.Add(members[i].Chunk)
	}
	return s, nil
}

// refused10 says why the run has no rows with 1.0 features, for which nobody asks
// where there is one configuration.
func (p *prepared) refused10(steps *rows.Steps) error {
	if err := steps.Refused10(); err != nil {
		return err
	}
	_, err := features.New(features.V10, &p.src.Deployment)
	return err
}

// frozenTable is the run's cadence rows with 1.0 features, an error where 1.0 has
// no input for them.
func (p *prepared) frozenTable(run *trace.Run, o Options) (*rows.Table, error) {
	steps, err := rows.Rebuild(run, &p.src.Deployment, features.V10)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V10, &p.src.Deployment)
	if err != nil {
		return nil, err
	}
	return steps.Beta(space, rows.BetaOptions{Target: rows.Cadence, Lag: p.lag.Lag, Split: o.Split, Saturated: p.spans})
}

// otherModels fits the parameterisations on the same rows.
func (f *fitter) otherModels(ctx context.Context) error {
	f.out.Models = []result.Model{}
	var roofline *result.Model
	var why error
	if slices.Contains(f.o.Models, Roofline) {
		roofline, why = f.roofline()
	}
	f.release()
	if err := f.prepareOthers(ctx); err != nil {
		return err
	}
	for _, name := range f.o.Models {
		m, err := roofline, why
		if name != Roofline {
			m, err = f.otherModel(name)
		}
		if err != nil {
			f.warn(trace.Findingf(ModelSkipped, "%s: %v", name, err))
			continue
		}
		f.out.Models = append(f.out.Models, *m)
	}
	return nil
}

func (f *fitter) otherModel(name string) (*result.Model, error) {
	var tables []*rows.Table
	for _, p := range f.used {
		if t := p.other[name]; t != nil && t.Kept > 0 {
			tables = append(tables, t)
		}
		delete(p.other, name)
	}
	rows.Clean(tables, rows.Relative)
	p := newPool(tables, nil)
	if len(p.train) == 0 {
		return nil, fmt.Errorf("no training rows with known requests")
	}
	s := &solved{pool: p, terms: basisTerms(name, len(p.configs))}
	o := f.o
	o.Recipe, o.Objective = Relative, ""
	s.opt = ridgeOptions(s.terms, epsBetaUs, o)
	sel, err := cv.Select(p.trainData(), s.opt)
	if err != nil {
		return nil, err
	}
	s.findings = p.words(sel[0].Findings)
	if err := s.solveRelative(0, &sel[0], f.o.RefitAll); err != nil {
		return nil, err
	}
	return f.otherResult(s, modelSelections{rel: sel}, name)
}

// basisTerms are the non-negative terms of a basis. The constant of a fit over
// several configurations is penalised like the bias (01 section 1).
func basisTerms(name string, configs int) []term {
	list, constant := basis.BlackboxBeta, 0
	switch name {
	case TrainedPhysics:
		list, constant = basis.TrainedPhysicsBeta, basis.PerStep
	case Linear3:
		list = basis.Linear3Beta
	}
	out := make([]term, len(list))
	for j, t := range list {
		out[j] = term{name: t.Name, unit: t.Unit, penalty: 1, perUs: t.Unit == "dimensionless"}
	}
	if configs > 1 && name == TrainedPhysics {
		out[constant].penalty = 100
	}
	out[constant].constant = name == Linear3
	return out
}

// otherResult is the document's form of another parameterisation.
func (f *fitter) otherResult(s *solved, m modelSelections, name string) (*result.Model, error) {
	gamma := f.gamma
	f.gamma = 0 // these models have no preemption average
	out, err := f.model(s, m, name, f.o.BetaTarget)
	f.gamma = gamma
	if err != nil {
		return nil, err
	}
	out.GammaEMA, out.Recipe = nil, Relative
	s.judge(out, false, f.o.Workers)
	return out, f.locoOther(s, m, out)
}

func (f *fitter) locoOther(s *solved, m modelSelections, out *result.Model) error {
	if len(s.pool.configs) < 2 {
		return nil
	}
	for c, key := range s.pool.configs {
		beta, err := f.leaveOut(s, m, int32(c))
		if err != nil {
			return err
		}
		out.Loco = append(out.Loco, leftOut(key, s.trainErrors(gram.Predict(s.train, beta), int32(c))))
	}
	out.LocoMedian, out.LocoWorst = spread(out.Loco, func(l result.Loco) *float64 { return l.MAPE })
	return nil
}

// roofline has no free terms: every hardware time at its peak. Its bias says
// how far from the peak the engine runs.
func (f *fitter) roofline() (*result.Model, error) {
	if f.o.Spec != features.V11 {
		return nil, fmt.Errorf("the roofline reads 1.1 features")
	}
	p := f.beta
	s := &solved{pool: p, terms: featureTerms(features.BetaFeatures(f.o.Spec), len(p.configs), PriorZero)}
	s.opt = ridgeOptions(s.terms, epsBetaUs, f.o)
	s.data = p.data.With(f.gamma)
	s.train = s.data.Subset(p.train)
	s.fit.Beta = make([]float64, len(s.terms))
	out := &result.Model{
		Name: Roofline, SpecVersion: string(f.o.Spec), Target: f.o.BetaTarget, Rows: countRows(p.tables),
		NullDirections: []string{}, Loco: []result.Loco{}, Grid: []result.GridPoint{}, BoundHits: []result.BoundHit{}, Warnings: []trace.Finding{},
	}
	out.Rows.Holdout = len(p.hold)
	for j, t := range s.terms {
		if t.isTime && t.name != nominalTerm {
			s.fit.Beta[j] = rooflinePrior
		}
		out.Coefficients = append(out.Coefficients, result.Coefficient{Coefficient: coeff.Coefficient{
			Name: t.name, Value: s.fit.Beta[j], Unit: t.unit, Identified: string(ridge.PriorOnly),
		}})
	}
	s.pred = gram.Predict(s.data, s.fit.Beta)
	s.judge(out, false, f.o.Workers)
	for c, key := range p.configs {
		var pred, y float64
		for i, k := range s.data.Config {
			if k == int32(c) {
				pred, y = pred+s.pred[i], y+s.data.Y[i]
			}
		}
		out.Utilisation = append(out.Utilisation, result.Utilisation{Config: key, Share: pred / y})
	}
	return out, nil
}
