package validate

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// evidenceRows is how many rows with prefill the lag of a new run is read from
// at least, and lagMargin by how much the best lag must win (01 T-2).
const (
	evidenceRows = 20
	lagMargin    = 0.8
)

// taught is one run with its training rows: what the teacher-forced part and
// the drift curve need, without the recording itself.
type taught struct {
	id       string
	dep      *deploy.Deployment
	set      *coeff.Set // as it holds on the run's device
	source   string     // of the recorded requests
	training bool
	seen     bool // its configuration was part of the fit
	sat      *Saturation
	lag      runLag
	quality  rows.Quality
	beta     *rows.Table
	pred     []float64 // us, of the kept beta rows
	alpha    []*rows.Table
	drift    *Drift
	level    float64 // median drift factor, once asked for
	findings []trace.Finding
	parts    []rows.Part
	// identical is the share of batches a forced replay reproduces; nil unknown.
	identical *float64
}

// runLag is the lag used and whether the data told it.
type runLag struct {
	lag      int
	measured bool
}

// teach rebuilds the batches of one run and makes its rows.
func teach(run *trace.Run, dep *deploy.Deployment, set *coeff.Set, o *Options, training bool) (*taught, error) {
	set = set.On(dep)
	t := &taught{id: run.ID, dep: dep, set: set, source: sourceOfRun(run), training: training, sat: Saturate(run, dep), parts: rows.Parts(run, dep, o.Split)}
	t.seen = slices.ContainsFunc(set.Configs, func(c coeff.Config) bool { return c.Key == dep.Config() })
	if len(run.Steps) == 0 {
		return t, nil
	}
	sp, err := features.New(set.SpecVersion, dep)
	if err != nil {
		return nil, err
	}
	steps, err := rows.Rebuild(run, dep, set.SpecVersion)
	if err != nil {
		return nil, err
	}
	t.quality = steps.Quality
	t.findings = append(t.findings, steps.Findings...)
	if err := t.measureLag(steps, sp, set, o); err != nil {
		return nil, err
	}
	t.beta, err = steps.Beta(sp, rows.BetaOptions{Target: set.BetaTarget, Lag: t.lag.lag, Gamma: set.Gamma, Split: o.Split, Saturated: t.spans()})
	if err != nil {
		return nil, err
	}
	t.findings = append(t.findings, t.beta.Findings...)
	if !o.StepsOnly {
		t.identical = identicalBatches(run, dep, steps, t.lag.lag > 0)
	}
	for _, m := range set.Alpha {
		a, err := steps.Alpha(sp, rows.AlphaOptions{Target: m.Target, Gamma: set.Gamma, Split: o.Split, Saturated: t.spans()})
		if err != nil {
			return nil, err
		}
		t.alpha = append(t.alpha, a)
	}
	return t, nil
}

// spans are the saturated parts of a run that is not saturated as a whole: no
// rows come from there, as in the fit.
func (t *taught) spans() []rows.Span {
	if t.sat.Run.Saturated {
		return nil
	}
	return t.sat.Spans()
}

// measureLag takes the lag of a training run from the artifact. For another run
// the coefficients themselves are the instrument: the lag at which they predict
// rows with prefill best, if it wins clearly, else the engine's default.
func (t *taught) measureLag(steps *rows.Steps, sp *features.Space, set *coeff.Set, o *Options) error {
	for _, l := range set.PipelineLag {
		if l.Run == t.id && t.training {
			t.lag = runLag{l.Lag, l.Measured}
			return nil
		}
	}
	t.lag = runLag{lag: rows.AssumedLag(t.dep)}
	if set.BetaTarget != coeff.Cadence {
		return nil
	}
	var mapes []float64
	for lag := 0; lag <= 2; lag++ {
		b, err := steps.Beta(sp, rows.BetaOptions{Target: set.BetaTarget, Lag: lag, Gamma: set.Gamma, Split: o.Split})
		if err != nil {
			return err
		}
		mape, n := prefillMAPE(b, set)
		if n < evidenceRows {
			return nil
		}
		mapes = append(mapes, mape)
	}
	order := stat.Order(mapes)
	if mapes[order[0]] <= lagMargin*mapes[order[1]] {
		t.lag = runLag{order[0], true}
	}
	return nil
}

func prefillMAPE(b *rows.Table, set *coeff.Set) (float64, int) {
	var s scored
	for i := range b.Kept {
		if b.Regime[i] != rows.Decode && b.Steps[i] == 1 {
			s.add(b.Y[i], set.Predict(b.Row(i)), 1)
		}
	}
	e := s.errors()
	if e.MAPE == nil {
		return 0, 0
	}
	return *e.MAPE, e.Rows
}

// predict fills the predictions of the kept rows and the drift curve.
func (t *taught) predict() error {
	if t.beta == nil {
		t.drift = &Drift{}
		return nil
	}
	p := t.set.BetaPredictor()
	t.pred = make([]float64, t.beta.Kept)
	for i := range t.pred {
		v, err := p.PredictRow(t.beta.Row(i), t.beta.Steps[i], 0)
		if err != nil {
			return err
		}
		t.pred[i] = v
	}
	t.findings = append(t.findings, p.Warnings()...)
	t.drift = DriftOf(t.beta.TimeNs, t.beta.Y, t.pred)
	t.findings = append(t.findings, t.drift.finding(t.id)...)
	return nil
}

// tested reports whether row i of a table judges the coefficients: hold-out rows
// of a training run, every row of another.
func (t *taught) tested(b *rows.Table, i int) bool { return !t.training || b.HoldOut[i] }
