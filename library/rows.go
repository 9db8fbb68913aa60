package library

import (
	"errors"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

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
