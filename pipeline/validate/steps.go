package validate

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// evidenceRows is how many rows with prefill the lag of a new run is read from
// at least, and lagMargin by how much the best lag must win (spec#lag).
const (
	evidenceRows = 20
	lagMargin    = 0.8
)

// judgedRun is one run with its training rows: what the teacher-forced part and
// the drift curve need, without the recording itself.
type judgedRun struct {
	stored
	id       string
	set      *coeff.Set // as it holds on the run's device
	informs  string     // why its replay decides nothing
	told     []result.LevelHoldout
	starved  map[string]starved // by scope of a gate
	training bool
	seen     bool // its configuration was part of the fit
	beta     *rows.Table
	pred     []float64 // us, of the kept beta rows
	alpha    []*rows.Table
	sample   *rows.Sample   // of beta, once asked for
	samples  []*rows.Sample // of alpha
	drift    *drift
}

// stored is what of a judgedRun is kept beside its tables before it is cleaned.
type stored struct {
	Deployment *deploy.Deployment `json:"deployment"`
	Source     string             `json:"source"` // of the recorded requests
	Saturation *rows.LoadVerdicts `json:"saturation"`
	Lag        int                `json:"lag"`
	Measured   bool               `json:"measured"` // the data told the lag
	Quality    rows.Quality       `json:"quality"`
	Findings   []trace.Finding    `json:"findings"`
	Parts      []rows.Part        `json:"parts"`
	Identical  *float64           `json:"identical"` // share of batches a forced replay reproduces; nil unknown
	Blocks     int64              `json:"blocks"`    // KV blocks that the steps recorded; 0 unknown
}

// newJudgedRun rebuilds the batches of one run and makes its rows.
func newJudgedRun(run *trace.Run, dep *deploy.Deployment, set *coeff.Set, o *Options, src *Source) (*judgedRun, error) {
	t := &judgedRun{id: run.ID, training: src.Training, stored: stored{Deployment: dep, Source: SourceOf(run),
		Saturation: rows.VerdictsOf(run, dep), Parts: rows.Parts(run, dep, o.Split)}}
	t.under(set)
	set = t.set
	if len(run.Steps) == 0 {
		if len(run.Requests) == 0 {
			t.Saturation = OfClients(run, dep)
		}
		return t, nil
	}
	t.Blocks = run.Steps[0].BlocksTotal
	sp, err := features.New(set.SpecVersion, dep)
	if err != nil {
		return nil, err
	}
	var forced *workload.Forced
	if !o.StepsOnly {
		forced, _ = workload.ForceLater(run, dep) // a run that cannot be forced is not judged by it
	}
	steps, err := rows.Rebuild(run, dep, set.SpecVersion)
	if err != nil {
		return nil, err
	}
	t.Quality = steps.Quality
	t.Findings = append(t.Findings, steps.Findings...)
	if err := t.measureLag(steps, sp, set, o); err != nil {
		return nil, err
	}
	t.beta, err = steps.Beta(sp, rows.Options{Target: set.BetaTarget, Lag: t.Lag, Gamma: set.Gamma, Split: o.Split,
		Saturated: t.spans(), Stride: src.Stride, Slim: true})
	if err != nil {
		return nil, err
	}
	t.Findings = append(t.Findings, t.beta.Findings...)
	if !o.StepsOnly {
		if t.Identical, err = identicalBatches(forced, dep, steps, t.Lag > 0); err != nil {
			return nil, err
		}
	}
	for i := range set.Alpha {
		m := &set.Alpha[i]
		a, err := steps.Alpha(sp, rows.Options{Target: m.Target, Gamma: set.Gamma, Split: o.Split, Saturated: t.spans(), Stride: src.Stride})
		if err != nil {
			return nil, err
		}
		t.alpha = append(t.alpha, a)
	}
	return t, nil
}

// under sets the coefficients that judge the run.
func (t *judgedRun) under(set *coeff.Set) {
	t.set = features.On(set, t.Deployment)
	t.seen = slices.ContainsFunc(t.set.Configs, func(c coeff.Config) bool { return c.Key == t.Deployment.Config() })
}

// spans are the saturated parts of a run that is not saturated as a whole: no
// rows come from there, as in the fit.
func (t *judgedRun) spans() []rows.Span {
	if t.Saturation.Run.Saturated {
		return nil
	}
	return t.Saturation.Spans()
}

// measureLag takes the lag of a training run from the artifact. For another run
// the coefficients themselves are the instrument: the lag at which they predict
// rows with prefill best, if it wins clearly, else the engine's default.
func (t *judgedRun) measureLag(steps *rows.Steps, sp *features.Space, set *coeff.Set, o *Options) error {
	if l, known := set.PipelineLag[t.id]; known && t.training {
		t.Lag, t.Measured = l.Lag, l.Measured
		return nil
	}
	t.Lag = rows.AssumedLag(t.Deployment)
	if set.BetaTarget != coeff.Cadence {
		return nil
	}
	var mapes []float64
	err := t.atLags(steps, sp, o, func(_ int, b *rows.Table) bool {
		mape, n := prefillMAPE(b, set)
		if n < evidenceRows {
			return false
		}
		mapes = append(mapes, mape)
		return true
	})
	if err != nil || len(mapes) < lags {
		return err
	}
	order := stat.Order(mapes)
	if mapes[order[0]] <= lagMargin*mapes[order[1]] {
		t.Lag, t.Measured = order[0], true
	}
	return nil
}

// lags are how many of them may be meant: 0, 1 and 2.
const lags = 3

// atLags joins the steps at every lag until use says no.
func (t *judgedRun) atLags(steps *rows.Steps, sp *features.Space, o *Options, use func(lag int, b *rows.Table) bool) error {
	for lag := range lags {
		b, err := steps.Beta(sp, rows.Options{Target: t.set.BetaTarget, Lag: lag, Gamma: t.set.Gamma, Split: o.Split,
			Saturated: t.spans(), Slim: true})
		if err != nil {
			return err
		}
		if !use(lag, b) {
			return nil
		}
	}
	return nil
}

func prefillMAPE(b *rows.Table, set *coeff.Set) (float64, int) {
	var scored stat.Rows
	for i := range b.Kept {
		if b.Regime[i] != rows.Decode && b.Steps[i] == 1 {
			scored.Y, scored.Pred = append(scored.Y, b.Y[i]), append(scored.Pred, set.Predict(b.Row(i)))
		}
	}
	e := scored.Errors(nil)
	return e.MAPE, e.Rows
}

// predict fills the predictions of the kept rows and the drift curve.
func (t *judgedRun) predict() (err error) {
	t.drift = &drift{}
	if t.beta == nil {
		return nil
	}
	if t.pred, err = t.predictions(features.BetaPredictor(t.set), t.beta); err != nil {
		return err
	}
	t.sample = &rows.Sample{Table: t.beta, Pred: t.pred, Beta: coeff.Values(t.set.Beta), Part: t.part()}
	for _, a := range t.alpha {
		p, err := features.AlphaPredictor(t.set, a.Target)
		if err != nil {
			return err
		}
		pred, err := t.predictions(p, a)
		if err != nil {
			return err
		}
		t.samples = append(t.samples, &rows.Sample{Table: a, Pred: pred, Part: t.part()})
	}
	t.drift = DriftOf(t.beta.TimeNs, t.beta.Y, t.pred, t.beta.IsThinned())
	if !t.Deployment.IsComposed() {
		t.Findings = append(t.Findings, t.drift.Finding(t.id)...)
	}
	if t.Deployment.Tracing.JourneySampleRate.Or(1) < 1 {
		t.Identical = nil // whoever left no journey is missing from every batch
	}
	return nil
}

// predictions of a table's rows; what they warn of are findings of the run.
func (t *judgedRun) predictions(p *features.Predictor, of *rows.Table) ([]float64, error) {
	out := make([]float64, of.Kept)
	for i := range out {
		var err error
		if out[i], err = p.PredictRow(of.Row(i), of.Steps[i], 0); err != nil {
			return nil, err
		}
	}
	for _, w := range p.Warnings() {
		if of.Target != t.beta.Target {
			w.Message = of.Target + ": " + w.Message
		}
		t.Findings = append(t.Findings, w)
	}
	return out, nil
}

// part is what judges the coefficients: the hold-out of a training run, every row
// of another.
func (t *judgedRun) part() rows.Judged {
	if t.training {
		return rows.HoldOut
	}
	return rows.Whole
}

// delays are the run's rows of an alpha target; nil without.
func (t *judgedRun) delays(target string) *rows.Sample {
	for _, s := range t.samples {
		if s.Table.Target == target {
			return s
		}
	}
	return nil
}

// scope is a set of runs judged together: the training runs of one
// configuration, or one test run.
type scope struct {
	name, config string
	seen, test   bool
	runs         []*judgedRun
}

// scopes groups the runs that may be judged: saturated ones are left out.
// Training configurations come first, in order of their first run, then test runs.
func scopes(all []*judgedRun, label func(config string) string) []*scope {
	var train, test []*scope
	at := map[string]*scope{}
	for _, t := range all {
		if t.Saturation.Run.Saturated || t.beta == nil {
			continue
		}
		config := t.Deployment.Config()
		if !t.training {
			test = append(test, &scope{name: t.id, config: config, seen: t.seen, test: true, runs: []*judgedRun{t}})
			continue
		}
		s := at[config]
		if s == nil {
			s = &scope{name: label(config), config: config, seen: true}
			at[config] = s
			train = append(train, s)
		}
		s.runs = append(s.runs, t)
	}
	return append(train, test...)
}

// scores are the rows of all scopes with what is predicted of them.
type scores struct {
	steps   *rows.StepErrors
	targets []string
	delays  []*rows.Delays // by target
}

func newScores(groups []*scope, set *coeff.Set, workers int) *scores {
	steps := stat.Map(groups, func(s *scope) []*rows.Sample {
		return stat.Map(s.runs, func(t *judgedRun) *rows.Sample { return t.sample })
	})
	j := &scores{steps: rows.JudgeSteps(steps, true, workers)}
	for _, m := range set.Alpha {
		var delays [][]*rows.Sample
		for _, s := range groups {
			var group []*rows.Sample
			for _, t := range s.runs {
				if d := t.delays(m.Target); d != nil {
					group = append(group, d)
				}
			}
			delays = append(delays, group)
		}
		j.targets, j.delays = append(j.targets, m.Target), append(j.delays, rows.JudgeDelays(delays))
	}
	return j
}

// config fills the document's entry of a scope.
func (j *scores) config(s *scope) result.ConfigErrors {
	c := result.ConfigErrors{Scope: s.name, Config: s.config, Runs: []string{}, Seen: s.seen, TestRun: s.test}
	var group []*rows.Sample
	for _, t := range s.runs {
		c.Runs = append(c.Runs, t.id)
		group = append(group, t.sample)
	}
	if c.Steps = j.steps.Errors(group...); c.Steps != nil {
		c.TargetOverFloor = s.overFloor()
	}
	c.BoundHits = s.boundHits()
	c.Alpha = j.alphaErrors(s.runs)
	return c
}

// alphaErrors judges every alpha target on the tested rows of the given runs.
func (j *scores) alphaErrors(runs []*judgedRun) *result.AlphaErrors {
	out := &result.AlphaErrors{}
	for k, target := range j.targets {
		d := j.delays[k]
		in := func(s *rows.Sample) bool {
			return slices.ContainsFunc(runs, func(t *judgedRun) bool { return t.delays(target) == s })
		}
		switch target {
		case coeff.Overhead:
			out.Overhead = d.Intervals(in)
		case coeff.Admission:
			out.Admission = d.Errors(in)
		case coeff.Egress:
			out.Egress = d.Errors(in)
		case coeff.Queue:
			out.Queue = d.Errors(in)
		}
	}
	return out
}

// overFloor is the median tested target per step over the median physical floor (spec#target-audit).
func (s *scope) overFloor() *float64 {
	var y, floor []float64
	for _, t := range s.runs {
		for i := range t.beta.Kept {
			if t.sample.Judges(i) && t.beta.FloorUs[i] > 0 {
				y = append(y, t.beta.Y[i]/t.beta.Steps[i])
				floor = append(floor, t.beta.FloorUs[i]/t.beta.Steps[i])
			}
		}
	}
	if len(y) == 0 {
		return nil
	}
	return result.OrNull(stat.Median(y) / stat.Median(floor))
}

// boundHits is the largest share of candidate rows over the slots.
func (s *scope) boundHits() *float64 {
	hits, read := []int(nil), 0
	for _, t := range s.runs {
		if hits == nil {
			hits = make([]int, len(t.beta.Hits))
		}
		for j, n := range t.beta.Hits {
			hits[j] += n
		}
		read += t.beta.Kept + t.beta.DroppedFor(features.FeatureOutOfRange)
	}
	if read == 0 {
		return nil
	}
	return result.Share(slices.Max(append(hits, 0)), read)
}

// configLabels names each configuration: model, hardware and tp where that is
// unique among the runs, else the whole key.
func configLabels(all []*judgedRun) func(string) string {
	label := map[string]string{}
	count := map[string]int{}
	for _, t := range all {
		key := t.Deployment.Config()
		if _, ok := label[key]; !ok {
			label[key] = t.Deployment.Label()
			count[t.Deployment.Label()]++
		}
	}
	return func(key string) string {
		if l := label[key]; count[l] == 1 {
			return l
		}
		return key
	}
}

// Compare fills one metric from samples in ms. Real and sim hold one value per
// compared request in order of arrival; paired tells that real[i] and sim[i] are
// the same request. It returns nil when either side is empty.
func Compare(real, sim []float64, paired bool) *result.Metric {
	if len(real) == 0 || len(sim) == 0 {
		return nil
	}
	k := stat.KolmogorovSmirnov(real, sim)
	m := &result.Metric{
		KSD: k.D, PAsymptotic: k.PAsymptotic, PExact: result.OrNull(k.PExact),
		NReal: k.N, NSim: k.M,
		DAtQuantile: k.AShare, DAtMs: k.At, DRealCDF: k.AShare, DSimCDF: k.BShare,
		WassersteinMs: stat.Wasserstein(real, sim),
		RealVsRealD:   halvesD(real),
		RealMs:        statsOf(real), SimMs: statsOf(sim),
	}
	m.MedianRelErr = math.Abs(m.SimMs.P50-m.RealMs.P50) / m.RealMs.P50
	if paired {
		m.MedianRelErrPaired = result.OrNull(medianPairedError(real, sim))
	}
	return m
}

// medianPairedError is the median of |sim-real|/real over the pairs with a
// positive real value; NaN when there is none.
func medianPairedError(real, sim []float64) float64 {
	var e []float64
	for i, r := range real {
		if r > 0 {
			e = append(e, math.Abs(sim[i]-r)/r)
		}
	}
	if len(e) == 0 {
		return math.NaN()
	}
	return stat.Median(e)
}

// halvesD is D between the first and the second half of the real requests: what
// the machine itself does between two measurements.
func halvesD(real []float64) *float64 {
	if len(real) < 4 {
		return nil
	}
	h := len(real) / 2
	return new(stat.KolmogorovSmirnov(real[:h], real[h:]).D)
}

// statsOf describes a non-empty sample.
func statsOf(s []float64) result.SampleStats {
	o := stat.Sorted(s)
	return result.SampleStats{P50: stat.Quantile(o, 0.5), P90: stat.Quantile(o, 0.9), P99: stat.Quantile(o, 0.99), Mean: stat.Mean(s)}
}

// Sizes of aggregated figures: they bound the report whatever the number of rows.
const (
	maxECDFPoints = 120
	maxQQPoints   = 60
	figureDigits  = 5
)

// ecdf is the empirical distribution of a non-empty sample as at most
// maxECDFPoints points [value, share at or below], first and last included.
func ecdf(sample []float64) [][2]float64 {
	o := stat.Sorted(sample)
	n := len(o)
	k := min(n, maxECDFPoints)
	out := make([][2]float64, 0, k)
	for i := 0; i < k; i++ {
		at := n - 1
		if k > 1 {
			at = i * (n - 1) / (k - 1)
		}
		out = append(out, [2]float64{short(o[at]), short(float64(at+1) / float64(n))})
	}
	return out
}

// short rounds a number that is only drawn.
func short(v float64) float64 { return stat.Round(v, figureDigits) }

// quantilePairs are [quantile of a, quantile of b] at equal probabilities.
func quantilePairs(a, b []float64) [][2]float64 {
	a, b = stat.Sorted(a), stat.Sorted(b)
	k := min(len(a), len(b), maxQQPoints)
	out := make([][2]float64, 0, k)
	for i := 0; i < k; i++ {
		p := (float64(i) + 0.5) / float64(k)
		out = append(out, [2]float64{short(stat.Quantile(a, p)), short(stat.Quantile(b, p))})
	}
	return out
}
