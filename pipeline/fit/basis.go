package fit

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// skipOthers says which bases the deployment has no form of.
func (p *Run) skipOthers(space *features.Space, o Options) {
	for _, name := range o.Models {
		if _, err := Vectorizer(name, space); err != nil {
			p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %s: %v", p.Src.ID, name, err))
		}
	}
}

// Again reads the recording and rebuilds its batches once more, for rows under other
// bases. Of stored rows there is nothing to do, and slices are read for each basis.
func (p *Run) Again(o Options) error {
	if p.Src.Rows != "" || p.Src.Slices != nil {
		return nil
	}
	run, err := p.Src.Load()
	if err != nil {
		return err
	}
	steps, err := rows.Rebuild(run, &p.Src.Deployment, o.Spec)
	if err != nil {
		return err
	}
	p.steps = withoutRequests(steps)
	p.space, err = features.New(o.Spec, &p.Src.Deployment)
	return err
}

// withoutRequests keeps of the requests only the batches.
func withoutRequests(steps *rows.Steps) *rows.Steps {
	less := *steps.Run
	less.Requests, less.Observed, less.KVEvents = nil, nil, nil
	steps.Run = &less
	return steps
}

// OtherTable makes the same rows under another basis, after Again; nil where the
// deployment has no form of it.
func (p *Run) OtherTable(name string, o Options) (*rows.Table, error) {
	if p.Src.Rows != "" {
		return p.restoreOther(name)
	}
	if p.Src.Slices != nil {
		return p.otherParts(name, o)
	}
	vec, err := Vectorizer(name, p.space)
	if vec == nil || err != nil { // skipOthers has said so
		return nil, nil
	}
	return p.steps.BetaBasis(p.space, *vec, rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gamma: features.DefaultGamma,
		Split: o.Split, Saturated: p.Spans, Stride: p.Src.Stride, Slim: true})
}

// Vectorizer is the basis of a parameterisation; nil for roofline, which reads
// the physics features.
func Vectorizer(name string, space *features.Space) (*rows.Vectorizer, error) {
	switch name {
	case Linear3:
		return &rows.Vectorizer{P: len(features.Linear3Beta), Step: func(in *features.StepInput, _ []trace.Member,
			x []float64) (features.Hits, error) {
			features.Linear3(in.ScheduledTokens, in.KVReadTokens, x)
			return 0, nil
		}}, nil
	case Blackbox:
		return &rows.Vectorizer{P: len(features.BlackboxBeta), WantMembers: true,
			Step: func(_ *features.StepInput, members []trace.Member, x []float64) (features.Hits, error) {
				s, err := stepOf(members)
				if err == nil {
					features.Blackbox(&s, x)
				}
				return 0, err
			}}, nil
	case TrainedPhysics:
		tp, err := features.NewTrainedPhysics(space.Deployment())
		if err != nil {
			return nil, err
		}
		return &rows.Vectorizer{P: len(features.TrainedPhysicsBeta), WantMembers: true,
			Step: func(_ *features.StepInput, members []trace.Member, x []float64) (features.Hits, error) {
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
func stepOf(members []trace.Member) (features.Step, error) {
	var s features.Step
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
func (p *Run) refused10(steps *rows.Steps) error {
	if err := steps.Refused10(); err != nil {
		return err
	}
	_, err := features.New(features.V10, &p.Src.Deployment)
	return err
}

// frozenTable is the run's cadence rows with 1.0 features, an error where 1.0 has
// no input for them.
func (p *Run) frozenTable(as *rows.Steps, o Options) (*rows.Table, error) {
	steps, err := as.As(features.V10)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V10, &p.Src.Deployment)
	if err != nil {
		return nil, err
	}
	return steps.Beta(space, rows.Options{Target: coeff.Cadence, Lag: p.Lag.Lag, Split: o.Split, Saturated: p.Spans, Stride: p.Src.Stride,
		Slim: true})
}
