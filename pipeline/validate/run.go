// Package validate judges a coefficient set against recordings of a real
// engine. In come a run, its deployment, a coefficient set and, where there is
// one, the fit's own report; out come errors, distribution tests, gates and a
// verdict, as the structs of package result.
//
// Three questions are asked, in this order:
//
//  1. Are the data fit to judge anything? Inspect counts losses, compares the
//     clocks and runs the five saturation checks. A saturated run is named and
//     left out of the gates, never silently.
//  2. Does a step take as long as the coefficients say? The recorded batches are
//     given (teacher-forced), so that no queue can hide or amplify an error.
//     The block medians of measured/predicted are the drift curve: they tell a
//     machine that changed its speed from a model that is wrong.
//  3. Do requests experience the same TTFT, ITL and E2E when the coefficients
//     drive the engine's clock? The recorded arrivals are replayed through
//     package sim and the distributions compared: Kolmogorov-Smirnov distance,
//     Wasserstein distance, medians. Three replays are made: plain (the only one
//     that gates), with residual noise, and with noise and the drift curve.
//
// Arrivals are API ARRIVED plus the overhead alpha, never QUEUED: QUEUED is the
// engine loop's pick-up stamp and already holds the wait for the running step.
// Requests that failed or were aborted load the simulator until their recorded
// end and are left out of the comparison on both sides. Only open phases gate: a
// closed loop reacts to the server, so its recorded arrivals are not independent
// of the speed that is being judged.
//
// Gates have names, thresholds and sources (see Defaults). A gate that cannot be
// decided is null with a note; a required null makes the verdict "insufficient",
// which is not a pass.
package validate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Run judges a coefficient set on runs. fit is the report of the fit that made
// the set; nil when there is none (the gates only it can answer are then null).
// The caller adds the header. Errors: bad options, a run that cannot be loaded or
// whose deployment the features refuse, no run at all, a cancelled ctx.
func Run(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) (*result.Validation, error) {
	j, err := newJob(ctx, set, fit, sources, o)
	if err != nil {
		return nil, err
	}
	if err := j.each(ctx, "steps", j.loadSteps); err != nil {
		return nil, err
	}
	if err := j.clean(j.limits()); err != nil {
		return nil, err
	}
	if err := j.each(ctx, "replay", func(i int) error { return j.replay(ctx, i) }); err != nil {
		return nil, err
	}
	return j.document(fit), nil
}

// checkSplit refuses a hold-out that the fit has seen: its training share may
// not be smaller than the fit's.
func checkSplit(fit *result.Fit, split float64) error {
	if fit == nil || split >= fit.Options.Split {
		return nil
	}
	return trace.Errorf(rows.BadOption, "--split: got %g, want at least the fit's %g: the coefficients have seen the rest", split,
		fit.Options.Split).
		WithHint(fmt.Sprintf("set split: %g under fit in --config FILE and fit again", split))
}

// RowsJudged decides how many rows of each source are judged: of all as many as the fit learned from, unless said
// otherwise. A warning says that rows are left out.
func RowsJudged(fit *result.Fit, sources []Source, o Options) []trace.Finding {
	limit := o.MaxRows
	if limit == fitsRows {
		if limit = rows.DefaultMaxRows; fit != nil {
			limit = rows.RecordedMaxRows(fit.Options.MaxRows)
		}
	}
	most := stat.Map(sources, func(s Source) int64 { return s.Most })
	configs := stat.Map(sources, func(s Source) string { return s.Config })
	strides, found := rows.Strides(most, configs, limit)
	for i := range sources {
		sources[i].Stride = strides[i]
	}
	return found
}

// cut is where the hold-out of a phase begins.
func (t *judgedRun) cut(p *deploy.Phase) int64 {
	for _, part := range t.Parts {
		if part.Name == p.Name {
			return part.CutNs
		}
	}
	return p.EndNs
}

// entry is an entry without a replay.
func (t *judgedRun) entry() result.ValidationRun {
	kind := result.SplitTestRun
	if t.training {
		kind = result.SplitHoldout
	}
	return t.fillEntry(result.ValidationRun{Split: result.Split{Kind: kind}, Excluded: map[string]int{}, Findings: []trace.Finding{}},
		&deploy.Phase{Load: deploy.LoadOpen})
}

func (t *judgedRun) fillEntry(v result.ValidationRun, p *deploy.Phase) result.ValidationRun {
	sat := t.Saturation.Phase(p.Name)
	v.ID, v.Config, v.Phase, v.Load, v.Source = t.id, t.Deployment.Config(), p.Name, cmp.Or(v.Load, p.Load), t.Source
	v.Informs = t.informs
	if rate := t.Deployment.Tracing.JourneySampleRate; rate.OK {
		v.JourneySampleRate = &rate.V
	}
	v.Saturated, v.SaturationHits = sat.Saturated, sat.Hits()
	v.SaturationChecks = map[string]*float64{}
	for _, c := range sat.Checks {
		v.SaturationChecks[c.Name] = c.Value
	}
	v.Drift = append([]result.DriftPoint{}, t.drift.Points...)
	if v.Replay != nil && t.Quality.Recorded > 0 {
		v.Replay.KnownBatchesShare = t.Quality.KnownShare
		v.Replay.IdenticalBatchesShare = t.Identical
	}
	if v.Findings == nil {
		v.Findings = []trace.Finding{}
	}
	return v
}

// changedTerms names the terms whose value is not that of the fit's report: the
// set was edited, or made by another fit.
func changedTerms(set *coeff.Set, fit *result.Fit) []trace.Finding {
	var out []trace.Finding
	if fit == nil {
		return out
	}
	for i, c := range fit.Beta.Coefficients {
		if i >= len(set.Beta) || set.Beta[i].Name != c.Name || set.Beta[i].Value == c.Value {
			continue
		}
		out = append(out, trace.Findingf(notTheFit, "%s: got %.6g %s, want %.6g as in the fit's report", c.Name, set.Beta[i].Value,
			c.Unit, c.Value))
	}
	return out
}

// loadSteps makes the rows of one run, or reads those that StoreSteps wrote.
func (j *job) loadSteps(i int) (err error) {
	s := &j.sources[i]
	if s.Steps != "" {
		j.all[i], err = restoreSteps(s, j.set)
		return err
	}
	run, dep, err := s.Load()
	if err != nil {
		return err
	}
	if j.all[i], err = newJudgedRun(run, dep, j.set, j.o, s); err == nil {
		j.all[i].informs = s.Informs
		j.all[i].told = s.Levels
	}
	return err
}

// Limits are those of outliers among the rows of one target: of the training runs
// together, as in the fit, or of the test runs together.
type Limits struct {
	Training bool         `json:"training"`
	Target   string       `json:"target"`
	Cells    []rows.Limit `json:"cells"`
}

// tables are the rows that are cleaned together.
func (j *job) tables(training bool, target string) (tables []*rows.Table) {
	for _, t := range j.all {
		if t.training != training || t.Saturation.Run.Saturated || t.beta == nil {
			continue
		}
		for _, table := range append([]*rows.Table{t.beta}, t.alpha...) {
			if table.Target == target {
				tables = append(tables, table)
			}
		}
	}
	return tables
}

// limits are those of all runs.
func (j *job) limits() (out []Limits) {
	how := recipe(j.set.Recipe, j.set.SpecVersion)
	for _, training := range []bool{true, false} {
		for _, target := range append([]string{j.set.BetaTarget}, j.set.AlphaTargets()...) {
			out = append(out, Limits{training, target, rows.LimitsOf(j.tables(training, target), how)})
		}
	}
	return out
}

// clean drops outliers and then predicts.
func (j *job) clean(limits []Limits) error {
	how := recipe(j.set.Recipe, j.set.SpecVersion)
	for _, l := range limits {
		j.warned = append(j.warned, rows.CleanTo(j.tables(l.Training, l.Target), l.Cells, how, !l.Training)...)
	}
	for _, t := range j.all {
		if err := t.predict(); err != nil {
			return err
		}
	}
	return nil
}

// otherEngine says why a run of another engine, or one with drafts, is not replayed; "" for vLLM's.
func otherEngine(run *trace.Run, dep *deploy.Deployment) string {
	if len(run.Iterations) == 0 {
		return ""
	}
	if dep.DP > 1 && dep.Model.IsMoE() {
		return "the passes are those of the slowest of several ranks: steps are judged, and nothing is replayed"
	}
	if run.Aggregate != nil && run.Aggregate.Drafts {
		return "the log does not say what each pass accepted of its drafts: steps are judged, and nothing is replayed"
	}
	switch run.Iterations[0].Form {
	case "", trace.IterationLog, trace.IterationFPM, trace.IterationChunks:
		return ""
	}
	return "the passes are of " + run.Iterations[0].Form + ", whose scheduler is not vLLM's: steps are judged, and nothing is replayed"
}

// replay makes the entries of one run, one per phase and split, or reads those that
// StoreReplay wrote.
func (j *job) replay(ctx context.Context, i int) (err error) {
	t := j.all[i]
	if from := j.sources[i].Replay; from != "" {
		j.entries[i], t.starved, err = restoreReplay(from)
		return err
	}
	if j.o.StepsOnly {
		j.entries[i] = []result.ValidationRun{t.entry()}
		return nil
	}
	if levels := j.sources[i].Levels; len(levels) > 0 {
		j.entries[i] = []result.ValidationRun{t.levels(levels, j.o.Seed)}
		return nil
	}
	run, dep, err := j.sources[i].Load()
	if err != nil {
		return err
	}
	if why := otherEngine(run, dep); why != "" {
		v := t.entry()
		v.Undecided = why
		v.Findings = append(v.Findings, trace.Findingf(NoReplay, "run %s: %s", run.ID, why))
		j.entries[i] = []result.ValidationRun{v}
		return nil
	}
	base, findings, err := j.engine(t, run, dep)
	if err != nil {
		return err
	}
	obs, more := Requests(run)
	if len(obs) == 0 && len(run.Points) > 0 {
		j.entries[i] = []result.ValidationRun{t.entry()}
		j.entries[i][0].Source = result.SourcePoints
		return nil
	}
	findings = append(findings, more...)
	if t.Source == result.SourceJourneys && dep.Tracing.JourneySampleRate.Or(1) < 1 {
		obs, more = withUnrecorded(run, obs, base.Async)
		findings = append(findings, more...)
	}
	if n := len(obs); len(t.Parts) == 0 && n > 0 { // clients alone
		t.Parts = rows.PartsOf(obs[0].ArrivalNs, obs[n-1].ArrivalNs, dep, j.o.Split)
	}
	content := ContentOf(run, dep, obs, j.o.SharedPrefix)
	findings = append(findings, content.Findings...)
	marks := marksOf(run)
	phases := rows.PhasesOf(run, dep)
	passes := run.Aggregate
	run = nil // its steps are most of a long recording
	for _, p := range phases {
		phase := p
		e := base
		if j.o.Noise == "residual" && t.beta != nil {
			e.Spreads = spreadsOf(t.beta, t.pred, t.drift, p.StartNs, t.cut(&phase), p.EndNs)
		}
		rp := replayRun(marks, obs, &phase, content.Content, e)
		rp.undecided = cmp.Or(uncounted(passes, obs, &phase), content.undecided(obs, &phase))
		j.entries[i] = append(j.entries[i], j.phaseEntries(t, &phase, rp, func(splitNs int64) (chance, error) {
			if t.beta != nil {
				if from := stepNoiseOf(t.beta, t.pred, phase.StartNs, phase.EndNs); from != nil {
					return rp.chances(ctx, j.o.Workers, func() (engine, error) { f := e; return f, j.models(&f, dep) }, from, splitNs)
				}
			}
			return rp.requestChances(e.Seed, splitNs), nil
		})...)
	}
	if len(j.entries[i]) == 0 {
		j.entries[i] = []result.ValidationRun{t.entry()}
	}
	first := &j.entries[i][0]
	first.Findings = append(first.Findings, findings...)
	return nil
}

// phaseEntries compares one replayed phase: a training run on its hold-out, which
// decides, and in-sample, which does not; a test run on the whole phase. chances says
// what chance alone does to requests that arrive from a moment on.
func (j *job) phaseEntries(t *judgedRun, p *deploy.Phase, rp *Phase, chances func(splitNs int64) (chance, error)) []result.ValidationRun {
	if t.starved == nil {
		t.starved = map[string]starved{}
	}
	entry := func(kind string, fromNs int64, split result.Split) result.ValidationRun {
		v := rp.Entry(fromNs)
		split.Kind = kind
		v.Split = split
		v = t.fillEntry(v, p)
		t.starved[gate.ReplayScope(&v)] = rp.Starved(fromNs)
		if v.Judged() {
			q, err := chances(fromNs)
			if err != nil {
				v.Findings = append(v.Findings, trace.Findingf(NoReplay, "noisy replays, which tell what chance does: %v", err))
			}
			q.fill(v.Metrics)
		}
		return v
	}
	if !t.training {
		return []result.ValidationRun{entry(result.SplitTestRun, p.StartNs, result.Split{Test: 1})}
	}
	whole := entry(result.SplitInSample, p.StartNs, result.Split{Train: j.o.Split, Test: 1})
	if j.refit { // nothing was held out
		return []result.ValidationRun{whole}
	}
	held := entry(result.SplitHoldout, t.cut(p), result.Split{Train: j.o.Split, Test: math.Round((1-j.o.Split)*1e9) / 1e9})
	whole.Figures = nil
	return []result.ValidationRun{held, whole}
}

// document puts everything together, in the order of the sources.
func (j *job) document(fit *result.Fit) *result.Validation {
	v := &result.Validation{
		Options: result.ValidationOptions{
			Split: j.o.Split, StepsOnly: j.o.StepsOnly, Seed: j.o.Seed, OverheadUs: j.o.OverheadUs,
			EgressUs: j.o.EgressUs, Latency: j.o.Latency, Thresholds: j.rules.Thresholds(),
		},
		Configs: []result.ConfigErrors{}, Diagnoses: []result.Diagnosis{}, Warnings: append([]trace.Finding{}, j.warned...),
	}
	groups := scopes(j.all, configLabels(j.all))
	scored := newScores(groups, j.set, j.o.Workers)
	for _, s := range groups {
		v.Configs = append(v.Configs, scored.config(s))
	}
	v.Configs = append(v.Configs, j.clientConfigs(fit, v.Configs)...)
	v.Steps = scored.steps.Errors()
	j.fillSteps(groups, scored)
	for i := range j.entries {
		j.entries[i][0].Findings = append(j.entries[i][0].Findings, j.all[i].Findings...)
		v.Runs = append(v.Runs, j.entries[i]...)
	}
	if drawn, kept := v.LimitFigures(); drawn > kept {
		v.Warnings = append(v.Warnings, trace.Findingf(figuresLeftOut, "%d of %d comparisons have their curves here: those that gate "+
			"first, then the largest plain KS", kept, drawn))
	}
	v.Figures = scored.steps.Figures(stat.Map(j.set.Beta, func(c coeff.Coefficient) string { return c.Name }))
	j.rules.Decide(v, fit, j.set, j.o.For)
	v.Diagnoses = j.diagnoses(v, groups)
	v.Warnings = append(v.Warnings, changedTerms(j.set, fit)...)
	if j.refit {
		v.Warnings = append(v.Warnings,
			trace.Findingf(notHeldOut, "the coefficients were refitted on all rows: what is called hold-out here is in-sample"))
	}
	return v
}

// fillSteps puts the teacher-forced errors of each run on its first entry.
func (j *job) fillSteps(groups []*scope, scored *scores) {
	for i, t := range j.all {
		if !slices.ContainsFunc(groups, func(s *scope) bool { return slices.Contains(s.runs, t) }) {
			continue
		}
		first := &j.entries[i][0]
		first.Steps = scored.steps.Errors(t.sample)
		first.StepCells = append(scored.steps.Cells(t.sample, false), scored.steps.StressCells(t.sample)...)
		first.Alpha = scored.alphaErrors([]*judgedRun{t})
	}
}

// diagnoses explains every scope that failed by its steps or its replay. What only
// the closed form of waits or a left-out configuration fails has no cause in here.
func (j *job) diagnoses(v *result.Validation, groups []*scope) []result.Diagnosis {
	out := []result.Diagnosis{}
	order, names := gate.FailedByScope(v.Gates)
	slow := map[string]bool{} // runs whose step times failed
	for _, name := range order {
		if t := j.clientRun(name); t != nil && len(t.told) > 0 {
			out = append(out, result.Diagnosis{Scope: name, Gates: names[name], Cause: result.CauseUnknown, Sentence: worstLevels(t.told)})
			continue
		} else if t != nil {
			out = append(out, t.diagnoseRequests(name, names[name]))
			continue
		}
		s := j.scopeNamed(groups, name)
		if s == nil || len(s.runs) == 0 {
			continue
		}
		var d result.Diagnosis
		switch {
		case slices.ContainsFunc(names[name], gate.JudgesSteps):
			d = diagnose(s, names[name], j.lagCandidate(s))
			for _, t := range s.runs {
				slow[t.id] = slow[t.id] || name != gate.ScopeAll
			}
		case !slices.ContainsFunc(names[name], gate.JudgesReplay) || name == gate.ScopeAll:
			continue
		case slow[s.runs[0].id]:
			d = diagnose(s, names[name], j.lagCandidate(s))
		default:
			d = j.diagnoseReplay(v, s.runs[0], name, names[name])
		}
		d.Scope = name
		out = append(out, d)
	}
	return out
}

// scopeNamed finds the rows behind a gate's scope: a configuration or test run,
// a replayed run, or everything.
func (j *job) scopeNamed(groups []*scope, name string) *scope {
	for _, s := range groups {
		if s.name == name {
			return s
		}
	}
	every := &scope{name: name}
	for _, s := range groups {
		for _, t := range s.runs {
			if t.id == gate.RunOf(name) {
				return &scope{name: name, config: s.config, test: s.test, runs: []*judgedRun{t}}
			}
			every.runs = append(every.runs, t)
		}
	}
	if name == gate.ScopeAll {
		return every
	}
	return nil
}

// job is one call of Run.
type job struct {
	set     *coeff.Set
	o       *Options
	rules   *gate.Rules
	sources []Source
	all     []*judgedRun
	entries [][]result.ValidationRun
	warned  []trace.Finding
	refit   bool // the coefficients saw the hold-out too
	done    <-chan struct{}
}

// newJob checks what Run is given.
func newJob(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) (*job, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, trace.Errorf(nothingToJudge, "got no run, want at least one")
	}
	if err := checkSplit(fit, o.Split); err != nil {
		return nil, err
	}
	j := &job{set: set, o: &o, sources: sources, all: make([]*judgedRun, len(sources)), entries: make([][]result.ValidationRun, len(sources))}
	j.rules, _ = gate.NewRules(o.Thresholds)
	j.warned = append(j.warned, j.rules.Loosen(o.ThresholdsFrom)...)
	if sources[0].Stride == 0 {
		j.sources = slices.Clone(sources)
		j.warned = append(j.warned, RowsJudged(fit, j.sources, o)...)
	}
	j.done = ctx.Done()
	j.refit = set.Refit || fit != nil && fit.Options.RefitAll
	return j, nil
}

// each runs work for every source on o.Workers goroutines.
func (j *job) each(ctx context.Context, what string, work func(i int) error) error {
	n := len(j.sources)
	return par.Try(ctx, j.o.Workers, n, func(i int) error {
		if err := work(i); err != nil {
			return fmt.Errorf("validate %s of run %s: %w", what, j.sources[i].ID, err)
		}
		return nil
	}, func(done int) { j.o.Progress.Report("validate "+what, int64(done), int64(n), "runs") })
}

// clientConfigs are the entries of configurations, and of test runs, of which nobody
// recorded steps: coefficients learned from requests have a verdict there by their
// replays alone (spec#replay-of-requests).
func (j *job) clientConfigs(fit *result.Fit, known []result.ConfigErrors) []result.ConfigErrors {
	if fit == nil || fit.Requests == nil {
		return nil
	}
	var out []result.ConfigErrors
	label := configLabels(j.all)
	for _, t := range j.all {
		if t.beta != nil || t.Saturation.Run.Saturated {
			continue
		}
		c := result.ConfigErrors{Scope: t.id, Config: t.Deployment.Config(), Runs: []string{t.id}, Seen: t.seen, TestRun: !t.training}
		if t.training {
			c.Scope, c.Seen = label(c.Config), true
		}
		at := func(o result.ConfigErrors) bool { return o.Scope == c.Scope && o.TestRun == c.TestRun }
		if i := slices.IndexFunc(out, at); i >= 0 {
			out[i].Runs = append(out[i].Runs, t.id)
		} else if !slices.ContainsFunc(known, at) {
			out = append(out, c)
		}
	}
	return out
}

// clientRun is the run without steps that the scope of a replay gate names; nil: none.
func (j *job) clientRun(scope string) *judgedRun {
	for _, t := range j.all {
		if t.beta == nil && t.id == gate.RunOf(scope) {
			return t
		}
	}
	return nil
}

// mostOfError is the share of a replay's error that a regime must hold to be named.
const mostOfError = 0.5

// diagnoseRequests says what requests have in common whose replay fails where no steps
// were recorded (spec#diagnosis).
func (t *judgedRun) diagnoseRequests(scope string, failed []string) result.Diagnosis {
	d := result.Diagnosis{Scope: scope, Gates: failed, Cause: result.CauseUnknown, Figure: "ecdf"}
	s := t.starved[scope]
	if s.ErrorShare < mostOfError || s.SimulatedMs < s.RecordedMs {
		d.Sentence = fmt.Sprintf("no cause can be found without recorded steps; too few KV blocks in run.yaml are not the cause: %d of %d "+
			"requests waited for some in the replay and hold %.0f %% of the error of TTFT", s.Requests, s.Of, 100*s.ErrorShare)
		return d
	}
	blocks, _, _ := t.Deployment.KVBlocks()
	d.Cause = result.CauseScheduler
	d.Regime = "requests that waited for KV blocks"
	d.Evidence = &s.ErrorShare
	d.Sentence = fmt.Sprintf("%d of %d requests waited for KV blocks in the replay and hold %.0f %% of the error of TTFT: %.0f ms in the "+
		"median there, %.0f ms as measured; run.yaml gives the engine %d KV blocks: compare vllm.kv_blocks_total_gpu with "+
		"the server's start-up log",
		s.Requests, s.Of, 100*s.ErrorShare, s.SimulatedMs, s.RecordedMs, blocks)
	return d
}

// Source is one run to judge. Load is called once for the steps and once for
// the replay, possibly from another goroutine.
type Source struct {
	ID       string
	Training bool   // its recordings were part of the fit
	Informs  string // why its replay decides nothing; empty: it decides
	Most     int64  // rows of a target it can have at most; 0: unknown, it counts for none
	Config   string // key of its configuration
	Stride   int    // one row in so many is judged; 0: Run decides for all sources
	Load     func() (*trace.Run, *deploy.Deployment, error)
	Levels   []result.LevelHoldout // what its replay is judged by in place of requests; nil: requests
	// Steps and Replay are folders of StoreSteps and StoreReplay under the same options, in
	// place of that work; "": it is done.
	Steps, Replay string
}

// Options decide a validation. The zero value of a field is its default unless said otherwise.
type Options struct {
	Split      float64  // training share of each phase, (0, 1]; default 0.8
	StepsOnly  bool     // no replay
	Seed       int64    // of the noise; 0 is seed 0, 1 in DefaultOptions
	Noise      string   // residual: make the two noisy replays too; none or empty: do not
	OverheadUs *float64 // constant in place of the overhead alpha, us
	IdleDelays bool     // measure constant overhead and egress from requests that met an idle server
	EgressUs   *float64 // constant in place of the egress alpha, us
	// SharedPrefix is how many leading prompt tokens the requests of a run share
	// whose recording does not say what they share (stock spans, client files).
	SharedPrefix int64
	Thresholds   map[string]float64 // gate name -> threshold
	// ThresholdsFrom says who set a threshold, for the documents; "option" by default.
	ThresholdsFrom map[string]string
	ListGates      bool   // --gate list: the caller prints the gates and validates nothing
	For            string // the purpose that decides: steps, replay, waits, transfer or all; empty: see spec#verdict
	MaxRows        int    // rows of steps judged, at most; 0: all of them, -1: as many as the fit learns from
	Workers        int    // 0: all cores; never changes a result

	// Latency is the step time of replays: physics (that of the coefficients, the default) or roofline.
	Latency string

	Progress trace.Progress // may be nil
}

// fitsRows in place of a number of rows: that of the fit.
const fitsRows = -1

// DefaultOptions are those of the command line.
func DefaultOptions() Options {
	return Options{Split: rows.DefaultSplit, Seed: 1, Noise: "residual", Latency: "physics", MaxRows: fitsRows}
}

// Check refuses options out of their range.
func (o Options) Check() error { _, err := o.resolve(); return err }

func (o Options) resolve() (Options, error) {
	if o.Split == 0 {
		o.Split = rows.DefaultSplit
	}
	if o.Latency == "" {
		o.Latency = "physics"
	}
	switch {
	case !(o.Split > 0 && o.Split <= 1):
		return o, trace.Errorf(rows.BadOption, "--split: got %g, want a share in (0, 1]", o.Split)
	case o.For != "" && !gate.IsPurpose(o.For):
		return o, option.Misusef("--for: got %q, want %s or %s", o.For, strings.Join(coeff.Purposes, ", "), coeff.PurposeAll)
	case o.Noise != "" && o.Noise != "residual" && o.Noise != "none":
		return o, option.Misusef("--noise: got %q, want residual or none", o.Noise)
	case o.Latency != "physics" && o.Latency != "roofline":
		return o, option.Misusef("--latency: got %q, want physics or roofline", o.Latency)
	case o.SharedPrefix < 0:
		return o, trace.Errorf(rows.BadOption, "--shared-prefix-tokens: got %d tokens, want >= 0", o.SharedPrefix)
	case o.OverheadUs != nil && !(*o.OverheadUs >= 0 && *o.OverheadUs < 1e9):
		return o, trace.Errorf(rows.BadOption, "--overhead-us: got %g us, want >= 0 and < 1e9", *o.OverheadUs)
	case o.EgressUs != nil && !(*o.EgressUs >= 0 && *o.EgressUs < 1e9):
		return o, trace.Errorf(rows.BadOption, "--egress-us: got %g us, want >= 0 and < 1e9", *o.EgressUs)
	}
	if o.MaxRows != fitsRows {
		if err := rows.CheckMaxRows(o.MaxRows); err != nil {
			return o, err
		}
	}
	_, err := gate.NewRules(o.Thresholds)
	return o, err
}

// recipe is that of the cleaning: of the coefficients.
func recipe(set string, v features.Version) rows.Recipe {
	switch {
	case set != "":
		return rows.Recipe(set)
	case v == features.V10:
		return rows.Frozen
	}
	return rows.Relative
}

// SetThreshold sets the threshold of a gate and who did so.
func (o *Options) SetThreshold(gate string, limit float64, from string) {
	if o.Thresholds == nil {
		o.Thresholds = map[string]float64{}
		o.ThresholdsFrom = map[string]string{}
	}
	o.Thresholds[gate], o.ThresholdsFrom[gate] = limit, from
}

// Command is the `command` of validation.json: the stage and every option that
// can change its numbers (spec#documents).
func (o Options) Command() string {
	if r, err := o.resolve(); err == nil {
		o = r
	}
	return option.Command("validate", o.Flags())
}
