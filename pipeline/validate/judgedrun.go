package validate

// This file reads the rows of one run, predicts their step times and collects what the gates on steps
// need of them.

import (
	"context"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// judgedRun is one run with its rows: what the errors with predictions from recorded batches
// (teacher-forced) and the drift curve need, without the recording itself. A run without recorded
// steps has no rows: beta is nil.
type judgedRun struct {
	stored
	id       string
	set      *coeff.Set // as it applies to the run's device
	informs  string     // why its replay is not gated
	capped   string     // why its replay is not gated unless it is of a closed loop
	levels   []result.LevelHoldout
	starved  map[string]starvedRequests // by scope of a gate, see gate.ReplayScope
	training bool                       // its recordings were part of the fit
	seen     bool                       // its configuration was part of the fit
	beta     *rows.Table                // rows of step times
	alpha    []*rows.Table              // rows of delays outside a step, by target of the coefficients
	knowsLag bool                       // Lag is known before the rows are made

	// Set by predict, once outliers are dropped.
	pred    []float64      // us, of the kept beta rows
	sample  *rows.Sample   // beta with its predictions
	samples []*rows.Sample // alpha with its predictions
	drift   *drift
}

// stored is the part of a judgedRun, besides its tables, that StoreSteps writes before they are cleaned.
type stored struct {
	Deployment *deploy.Deployment `json:"deployment"`
	Source     string             `json:"source"` // of the recorded requests, result.SourceJourneys and the like
	Saturation *rows.LoadVerdicts `json:"saturation"`
	Lag        int                `json:"lag"`      // steps by which execution lags behind scheduling, see findLag
	Measured   bool               `json:"measured"` // the lag was measured, not assumed
	IsAsync    bool               `json:"is_async"` // the engine schedules asynchronously
	Quality    rows.Quality       `json:"quality"`
	Findings   []trace.Finding    `json:"findings"`
	Parts      []rows.Part        `json:"parts"`
	Identical  *float64           `json:"identical"` // share of batches that a forced replay reproduces; nil: unknown
	Identities []result.Identity  `json:"identities"`
	Blocks     int64              `json:"blocks"` // KV blocks that the steps recorded; 0: unknown
}

// newJudgedRun returns one run before its batches are rebuilt.
func newJudgedRun(run *trace.Run, dep *deploy.Deployment, set *coeff.Set, o *Options, src *Source) *judgedRun {
	t := &judgedRun{
		id:       run.ID,
		informs:  src.Informs,
		capped:   src.Capped,
		levels:   src.Levels,
		training: src.Training,
		stored: stored{
			Deployment: dep,
			Source:     SourceOf(run),
			Saturation: rows.VerdictsOf(run, dep),
			Parts:      rows.Parts(run, dep, o.Split),
		},
	}
	t.useCoefficients(set)
	if len(run.Steps) > 0 {
		t.Blocks = run.Steps[0].BlocksTotal
		t.Lag, t.Measured, t.knowsLag = t.lagOfFit()
		t.IsAsync = rows.IsAsync(run, dep, t.Lag)
	} else if len(run.Requests) == 0 {
		t.Saturation = OfClients(run, dep)
	}
	return t
}

// addSteps rebuilds the batches of the run and makes its rows.
func (t *judgedRun) addSteps(ctx context.Context, run *trace.Run, o *Options, src *Source) error {
	if len(run.Steps) == 0 {
		return t.compareStreams(run, nil, src)
	}
	dep, set := t.Deployment, t.set
	space, err := features.New(set.SpecVersion, dep)
	if err != nil {
		return err
	}
	steps, err := rows.Rebuild(run, dep, set.SpecVersion)
	if err != nil {
		return err
	}
	t.Quality = steps.Quality
	t.Findings = append(t.Findings, steps.Findings...)
	// Of a long recording each of the following parts takes a while: none begins after ctx has ended.
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.compareStreams(run, steps, src); err != nil {
		return err
	}
	if src.Inspection != nil && run.Aggregate == nil {
		if err := t.inspect(run, steps, src); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !t.knowsLag {
		if err := t.findLag(steps, space, set, o); err != nil {
			return err
		}
		t.IsAsync = rows.IsAsync(run, dep, t.Lag)
	}
	// The rows of step times take the most memory, so they are made last, after the requests and the members of the
	// batches have been used and dropped.
	if err := t.makeDelays(ctx, steps, space, o, src); err != nil {
		return err
	}
	var forced *workload.Forced
	if !o.StepsOnly {
		forced, _ = workload.ForceLater(run, dep) // nil for a run that cannot be forced: its batches are not compared
	}
	steps.ForgetRequests()
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.Identical, err = identicalBatches(forced, dep, steps, t.IsAsync); err != nil {
		return err
	}
	steps.ForgetBatches()
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.makeStepTimes(steps, space, o, src)
}

// rowOptions returns the options that the rows of all targets have in common.
func (t *judgedRun) rowOptions(o *Options, src *Source) rows.Options {
	return rows.Options{Gamma: t.set.Gamma, Split: o.Split, Saturated: t.saturatedSpans(), Stride: src.Stride}
}

// makeDelays makes the rows of every delay.
func (t *judgedRun) makeDelays(ctx context.Context, steps *rows.Steps, space *features.Space, o *Options, src *Source) error {
	t.alpha = make([]*rows.Table, len(t.set.Alpha))
	return par.Try(ctx, o.Workers, len(t.alpha), func(i int) (err error) {
		ofAlpha := t.rowOptions(o, src)
		ofAlpha.Target = t.set.Alpha[i].Target
		t.alpha[i], err = steps.Alpha(space, ofAlpha)
		return err
	}, nil)
}

// makeStepTimes makes the rows of the step time.
func (t *judgedRun) makeStepTimes(steps *rows.Steps, space *features.Space, o *Options, src *Source) (err error) {
	ofBeta := t.rowOptions(o, src)
	ofBeta.Target = t.set.BetaTarget
	ofBeta.Lag = t.Lag
	ofBeta.Slim = true
	if t.beta, err = steps.Beta(space, ofBeta); err != nil {
		return err
	}
	t.Findings = append(t.Findings, t.beta.Findings...)
	return nil
}

// lagOfFit returns the lag that is stored with the coefficients of a training run, and whether one is.
func (t *judgedRun) lagOfFit() (lag int, isMeasured, isKnown bool) {
	l, known := t.set.PipelineLag[t.id]
	if !known || !t.training {
		return 0, false, false
	}
	return l.Lag, l.Measured, true
}

// inspect makes the inspection of the run from its batches and passes it on. A run of which an inspection has no
// batches is left out.
func (t *judgedRun) inspect(run *trace.Run, steps *rows.Steps, src *Source) error {
	if _, unsupported := t.Deployment.CheckStepTimes(); unsupported != nil {
		return nil
	}
	got, err := newInspectRun(run, t.Deployment, *src.Inspection)
	if err != nil {
		return err
	}
	steps, err = steps.As(features.DefaultVersion(t.Deployment))
	if err != nil {
		return err
	}
	if err := inspectSteps(got, steps); err != nil {
		return err
	}
	concludeInspection(got, run, t.Identities, nil)
	src.Inspected(run, got)
	return nil
}

// compareStreams checks the streams (kinds of records) of the run against each other and sets the
// result.
func (t *judgedRun) compareStreams(run *trace.Run, steps *rows.Steps, src *Source) (err error) {
	t.Identities, err = compareStreams(run, t.Deployment, steps, src.Extracted, src.Counted)
	t.Findings = append(t.Findings, identityFindings(t.id, t.Identities)...)
	return err
}

// useCoefficients sets the coefficients with which the run is predicted, those that are valid on
// its device.
func (t *judgedRun) useCoefficients(set *coeff.Set) {
	t.set = features.On(set, t.Deployment)
	config := t.Deployment.Config()
	t.seen = slices.ContainsFunc(t.set.Configs, func(c coeff.Config) bool { return c.Key == config })
}

// saturatedSpans returns the saturated parts of a run that is not saturated as a whole. No rows
// come from there, as in the fit.
func (t *judgedRun) saturatedSpans() []rows.Span {
	if t.Saturation.Run.Saturated {
		return nil
	}
	return t.Saturation.Spans()
}

// lags is how many lags of a run are compared: 0, 1 and 2.
const lags = reconstruct.Lags

// findLag sets t.Lag, the number of steps by which execution lags behind scheduling, of a run of which the fit knows
// none. The coefficients themselves measure it: the lag at which they predict rows with prefill best, if it is clearly
// the best, else the engine's default.
func (t *judgedRun) findLag(steps *rows.Steps, space *features.Space, set *coeff.Set, o *Options) error {
	t.Lag = rows.AssumedLag(steps.Run, steps.Dep)
	if set.BetaTarget != coeff.Cadence { // only the time between two schedule() calls can be of another step
		return nil
	}
	var mapes []float64
	err := t.eachLag(steps, space, o, func(_ int, table *rows.Table) bool {
		mape, n := prefillMAPE(table, set)
		if n < reconstruct.LagRows { // leaves fewer than lags errors, so that none is chosen
			return false
		}
		mapes = append(mapes, mape)
		return true
	})
	if err != nil || len(mapes) < lags {
		return err
	}
	order := stat.Order(mapes)
	best, second := order[0], order[1]
	if mapes[best] <= reconstruct.LagMargin*mapes[second] {
		t.Lag = best
		t.Measured = true
	}
	return nil
}

// eachLag joins the steps at every candidate lag until use returns false.
func (t *judgedRun) eachLag(steps *rows.Steps, space *features.Space, o *Options, use func(lag int, table *rows.Table) bool) error {
	for lag := range lags {
		table, err := steps.Beta(space, rows.Options{
			Target:    t.set.BetaTarget,
			Lag:       lag,
			Gamma:     t.set.Gamma,
			Split:     o.Split,
			Saturated: t.saturatedSpans(),
			Slim:      true,
		})
		if err != nil {
			return err
		}
		if !use(lag, table) {
			return nil
		}
	}
	return nil
}

// prefillMAPE returns the mean absolute relative error on one-step rows with prefill, and how many there
// are. Decodes change little from step to step, so only prefill shows which step was timed.
func prefillMAPE(table *rows.Table, set *coeff.Set) (mape float64, n int) {
	var scored stat.Rows
	for i := range table.Kept {
		if table.Regime[i] == rows.Decode || table.Steps[i] != 1 {
			continue
		}
		scored.Y = append(scored.Y, table.Y[i])
		scored.Pred = append(scored.Pred, set.Predict(table.Row(i)))
	}
	e := scored.Errors(nil)
	return e.MAPE, e.Rows
}

// predict sets the predictions of the kept rows and the drift curve.
func (t *judgedRun) predict() (err error) {
	t.drift = &drift{}
	if t.beta == nil {
		return nil
	}
	if t.pred, err = t.predictTable(features.BetaPredictor(t.set), t.beta); err != nil {
		return err
	}
	t.sample = &rows.Sample{Table: t.beta, Pred: t.pred, Beta: coeff.Values(t.set.Beta), Part: t.judgedPart()}
	for _, table := range t.alpha {
		p, err := features.AlphaPredictor(t.set, table.Target)
		if err != nil {
			return err
		}
		pred, err := t.predictTable(p, table)
		if err != nil {
			return err
		}
		t.samples = append(t.samples, &rows.Sample{Table: table, Pred: pred, Part: t.judgedPart()})
	}
	t.drift = DriftOf(t.beta.TimeNs, t.beta.Y, t.pred, t.beta.IsThinned())
	if !t.Deployment.IsComposed() {
		t.Findings = append(t.Findings, t.drift.finding(t.id)...)
	}
	if t.Deployment.Tracing.JourneySampleRate.Or(1) < 1 {
		t.Identical = nil // requests without a journey are missing from every batch
	}
	return nil
}

// predictTable returns the predictions of the rows of a table, us. Warnings of the predictor become
// findings of the run.
func (t *judgedRun) predictTable(p *features.Predictor, table *rows.Table) ([]float64, error) {
	pred := make([]float64, table.Kept)
	for i := range pred {
		var err error
		if pred[i], err = p.PredictRow(table.Row(i), table.Steps[i], 0); err != nil {
			return nil, err
		}
	}
	for _, w := range p.Warnings() {
		if table.Target != t.beta.Target {
			w.Message = table.Target + ": " + w.Message
		}
		t.Findings = append(t.Findings, w)
	}
	return pred, nil
}

// judgedPart returns the rows on which the coefficients are validated: the hold-out of a training
// run, every row of another.
func (t *judgedRun) judgedPart() rows.Judged {
	if t.training {
		return rows.HoldOut
	}
	return rows.Whole
}

// delays returns the run's rows of an alpha target; nil without.
func (t *judgedRun) delays(target string) *rows.Sample {
	for _, s := range t.samples {
		if s.Table.Target == target {
			return s
		}
	}
	return nil
}
