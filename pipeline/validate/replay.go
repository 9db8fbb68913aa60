package validate

// This file replays the phases of a run: it sets up the simulated engine as the recorded one was,
// decides which requests a replay is judged by, and collects an entry of validation.json for each.

import (
	"cmp"
	"context"
	"math"
	"sync"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// runReplay is the replay of one run.
type runReplay struct {
	instead  func(v *result.ValidationRun) // completes the only entry of a run that is not replayed; nil: it is replayed
	phases   []*phaseReplay
	made     []*replay // those that ran while the rows were made
	findings []trace.Finding
}

// phaseReplay has the replays of one phase.
type phaseReplay struct {
	phase *deploy.Phase
	plain *replayedPhase
	cross *replayedPhase // with cross-fitted coefficients; nil: there are none
}

// both returns the plain phase and, if there is one, the cross-fitted one.
func (p *phaseReplay) both() []*replayedPhase {
	if p.cross == nil {
		return []*replayedPhase{p.plain}
	}
	return []*replayedPhase{p.plain, p.cross}
}

// replays returns the replays of all phases that run after the rows are made, or those that need not.
func (r *runReplay) replays(afterRows bool) (list []*replay) {
	for _, p := range r.phases {
		list = append(list, replaysOf(afterRows, p.both()...)...)
	}
	return list
}

// replay makes the entries of one run, one for each phase and split, or reads those that
// StoreReplay wrote.
func (j *job) replay(ctx context.Context, i int) (err error) {
	t := j.runs[i]
	if dir := j.sources[i].Replay; dir != "" {
		j.entries[i], t.starved, err = restoreReplay(dir)
		return err
	}
	if j.o.StepsOnly {
		v := t.entryWithoutReplay()
		v.Undecided = j.o.Unreplayed
		j.entries[i] = []result.ValidationRun{v}
		return nil
	}
	if levels := j.sources[i].Levels; len(levels) > 0 {
		j.entries[i] = []result.ValidationRun{t.compareLevels(levels, j.o.Seed)}
		return nil
	}
	r := j.replays[i]
	var rest []*replay
	if r == nil {
		run, dep, err := j.sources[i].Load()
		if err != nil {
			return err
		}
		if r, err = j.newReplay(t, i, run, dep); err != nil {
			return err
		}
		rest = r.replays(false)
	}
	j.replays[i] = nil // what is compared is in the entries then
	if r.instead != nil {
		v := t.entryWithoutReplay()
		r.instead(&v)
		j.entries[i] = []result.ValidationRun{v}
		return nil
	}
	for _, p := range r.phases {
		for _, of := range p.both() {
			of.engine.drift = t.drift
			if j.o.Noise == noiseResidual && t.beta != nil {
				of.engine.scatter = scatterOf(t.beta, t.pred, t.drift, p.phase.StartNs, t.cutNs(p.phase), p.phase.EndNs)
			}
		}
	}
	rest = append(rest, r.replays(true)...)
	if err := runAll(ctx, j.o.Workers, rest); err != nil {
		return err
	}
	keepAll(append(r.made, rest...))
	for _, p := range r.phases {
		withNoise := func(of *replayedPhase, splitNs int64) (noisyTimes, error) { // of is p.plain or p.cross
			return j.withNoise(ctx, t, p.plain, of, p.phase, splitNs)
		}
		j.entries[i] = append(j.entries[i], j.phaseEntries(t, p.phase, p.plain, p.cross, withNoise)...)
	}
	if len(j.entries[i]) == 0 {
		j.entries[i] = []result.ValidationRun{t.entryWithoutReplay()}
	}
	first := &j.entries[i][0]
	first.Findings = append(first.Findings, r.findings...)
	return nil
}

// newReplay returns the replay of a run, of which no part has run yet. It needs no rows of the run, but its lag.
func (j *job) newReplay(t *judgedRun, i int, run *trace.Run, dep *deploy.Deployment) (*runReplay, error) {
	phases := rows.PhasesOf(run, dep)
	why := whyNotReplayed(run, dep)
	var drafts *draftReplay
	if why == "" && run.Aggregate != nil && run.Aggregate.Drafts {
		drafts, why = newDraftReplay(run, j.sources[i].Drafts, phases)
	}
	if why != "" {
		return &runReplay{instead: func(v *result.ValidationRun) {
			v.Undecided = why
			v.Findings = append(v.Findings, trace.Findingf(NoReplay, "run %s: %s", run.ID, why))
		}}, nil
	}
	base, findings, err := j.engineOf(t, run, dep)
	if err != nil {
		return nil, err
	}
	requests, found := Requests(run)
	if len(requests) == 0 && len(run.Points) > 0 {
		return &runReplay{instead: func(v *result.ValidationRun) { v.Source = result.SourcePoints }}, nil
	}
	findings = append(findings, found...)
	if t.Source == result.SourceJourneys && dep.Tracing.JourneySampleRate.Or(1) < 1 {
		requests, found = addUnrecorded(run, requests, base.Async)
		findings = append(findings, found...)
	}
	if n := len(requests); len(t.Parts) == 0 && n > 0 { // no steps: the requests bound the phases
		t.Parts = rows.PartsOf(requests[0].ArrivalNs, requests[n-1].ArrivalNs, dep, j.o.Split)
	}
	shared := ContentOf(run, dep, requests, Sharing{PrefixTokens: j.o.SharedPrefix, Estimate: j.sources[i].Cached})
	findings = append(findings, shared.Findings...)
	if drafts != nil {
		findings = append(findings, drafts.finding(run, requests))
		base.Deployment = drafts.dep
	}
	r := &runReplay{findings: findings}
	for k := range phases {
		phase := &phases[k]
		content := shared.Content
		if drafts != nil {
			content = drafts.content(content, phase)
		}
		p := newPhase(requests, phase, content)
		p.engine = base
		p.newEngines = []func() (engine, error){j.engineMaker(base, j.set, dep)}
		p.recordGaps(recordedMarks(run, phase), phase.StartNs, t.cutNs(phase))
		p.undecided = cmp.Or(whyUncounted(run.Aggregate, requests, phase), shared.whyUndecided(requests, phase),
			whyLoadsUnknown(run, dep, p.requests))
		p.priorities = prioritiesOf(run, dep, p.recorded, phase)
		r.phases = append(r.phases, &phaseReplay{phase: phase, plain: p, cross: j.crossFitted(t, p, phase, dep)})
	}
	return r, nil
}

// whyNotReplayed returns why the simulator, which is vLLM's scheduler, cannot replay a run; "" if
// it can.
func whyNotReplayed(run *trace.Run, dep *deploy.Deployment) string {
	if len(run.Iterations) == 0 {
		return ""
	}
	if dep.DP > 1 && dep.Model.IsMoE() {
		return "the passes are those of the slowest of several ranks: steps are judged, and nothing is replayed"
	}
	switch form := run.Iterations[0].Form; form {
	case "", trace.IterationLog, trace.IterationFPM, trace.IterationChunks:
		return ""
	default:
		return "the passes are of " + form + ", whose scheduler is not vLLM's: steps are judged, and nothing is replayed"
	}
}

// withNoise returns the times of the requests of a replay that arrive from splitNs on, with the
// server's own noise: that of its steps, or of its requests if too few steps were recorded. p is
// the replay of the phase with the coefficients of the validation, which of may be too.
//
// For a cross-fitted replay it uses the effect of noise on each request in replays with these
// coefficients: it hardly depends on them, and a noisy replay of every block would cost three times
// as much.
func (j *job) withNoise(ctx context.Context, t *judgedRun, p, of *replayedPhase, phase *deploy.Phase, splitNs int64) (noisyTimes, error) {
	if t.beta != nil {
		if noise := stepNoiseOf(t.beta, t.pred, phase.StartNs, phase.EndNs); noise != nil {
			return p.withStepNoise(ctx, j.o.Workers, noise, splitNs, of.timesOver(p))
		}
	}
	return of.withRequestNoise(p.engine.Seed, splitNs), nil
}

// phaseEntries compares one replayed phase. Of a test run that is the whole phase. Of a training run it is
// the cross-fitted replay (each block of time with coefficients fitted without it), which is gated, the
// hold-out, which is gated where there is no cross-fitted one, and the whole phase in-sample, which is not.
func (j *job) phaseEntries(t *judgedRun, phase *deploy.Phase, p, cross *replayedPhase,
	withNoise func(p *replayedPhase, splitNs int64) (noisyTimes, error)) []result.ValidationRun {
	type compared struct {
		replay *replayedPhase
		fromNs int64 // the requests that arrive from then on
		split  result.Split
	}
	var list []compared
	if !t.training {
		list = append(list, compared{replay: p, fromNs: phase.StartNs, split: result.Split{Kind: result.SplitTestRun, Test: 1}})
	} else {
		if cross != nil {
			const others = float64(result.CrossFolds-1) / result.CrossFolds
			list = append(list, compared{replay: cross, fromNs: phase.StartNs, split: result.Split{Kind: result.SplitCrossFitted, Train: others, Test: 1}})
		}
		if !j.refit { // else nothing was held out
			test := math.Round((1-j.o.Split)*1e9) / 1e9 // without the digits that the subtraction adds
			list = append(list, compared{replay: p, fromNs: t.cutNs(phase), split: result.Split{Kind: result.SplitHoldout, Train: j.o.Split, Test: test}})
		}
		list = append(list, compared{replay: p, fromNs: phase.StartNs, split: result.Split{Kind: result.SplitInSample, Train: j.o.Split, Test: 1}})
	}
	out := make([]result.ValidationRun, len(list))
	starved := make([]starvedRequests, len(list))
	par.Each(j.o.Workers, len(list), func(_, i int) {
		c := list[i]
		v := c.replay.entry(c.fromNs)
		v.Split = c.split
		t.describe(&v, phase)
		if v.Split.Kind == result.SplitHoldout && cross != nil {
			v.MakeFigure()
		}
		if v.Split.Kind == result.SplitInSample && len(list) > 1 {
			v.Figures = nil // the report draws those of the others
		}
		starved[i] = c.replay.starvedFrom(c.fromNs)
		if v.Judged() {
			noisy, err := withNoise(c.replay, c.fromNs)
			if err != nil {
				v.Findings = append(v.Findings, trace.Findingf(NoReplay, "replays with the server's noise: %v", err))
			}
			noisy.fill(j.o.Workers, v.Metrics, c.replay.sample(result.VariantPlain, c.fromNs).real)
		}
		out[i] = v
	})
	if t.starved == nil {
		t.starved = map[string]starvedRequests{}
	}
	for i := range out {
		t.starved[gate.ReplayScope(&out[i])] = starved[i]
	}
	return out
}

// cutNs returns where the hold-out of a phase begins.
func (t *judgedRun) cutNs(phase *deploy.Phase) int64 {
	for _, part := range t.Parts {
		if part.Name == phase.Name {
			return part.CutNs
		}
	}
	return phase.EndNs
}

// engine is how a replay is run: the simulator's configuration, with step times and delays, and the
// residuals of the two noisy replays.
type engine struct {
	sim.Config            // of the plain replay
	lag        int        // steps by which execution lagged behind scheduling in the recording
	residuals  *sim.Noise // ratios measured/predicted of the coefficient set; nil: no replay with noise
	scatter    *scatter   // residual ratios relative to the drift curve; nil: no drift-corrected replay
	drift      *drift     // the machine's speed over time
	// Constants in place of the delays of the coefficient set; nil: those of the set.
	overheadUs, egressUs *float64
}

// engineOf returns how a run is replayed: with the step times of the coefficients or of the latency
// model that the options name, and with the delays of the coefficients or of the options.
func (j *job) engineOf(t *judgedRun, run *trace.Run, dep *deploy.Deployment) (engine, []trace.Finding, error) {
	e := engine{
		Config:     sim.DefaultConfig(dep, nil),
		overheadUs: j.o.OverheadUs,
		egressUs:   j.o.EgressUs,
	}
	e.Seed = j.o.Seed
	e.Done = j.done
	if len(run.Steps) > 0 {
		e.Async = t.IsAsync
		e.lag = t.Lag
	}
	if j.set.Gamma > 0 {
		e.GammaEMA = j.set.Gamma
	}
	findings := j.setIdleDelays(&e, run)
	if err := j.setModels(&e, j.set, dep); err != nil {
		return e, nil, err
	}
	if j.o.Noise == noiseResidual {
		e.residuals = sim.NoiseOf(j.set)
	}
	for _, f := range dep.AssumedInSimulation() {
		findings = append(findings, trace.Findingf(f.Code, "run %s: %s", run.ID, f.Message))
	}
	return e, findings, nil
}

// setIdleDelays sets overhead and egress to those of requests that met an idle server, if the
// options ask for that, and returns findings about it.
func (j *job) setIdleDelays(e *engine, run *trace.Run) []trace.Finding {
	if !j.o.IdleDelays {
		return nil
	}
	if idle, ok := measureIdle(run); ok {
		e.overheadUs = &idle.OverheadUs
		e.egressUs = &idle.EgressUs
		return nil
	}
	if run.Aggregate != nil && j.set.AlphaModel(coeff.Overhead) == nil {
		unknownUs := 0.0 // see the finding below
		e.overheadUs = &unknownUs
	}
	return []trace.Finding{trace.Findingf(ReplayAssumes, "run %s: no request met an idle server", run.ID)}
}

// engineMaker returns a function that makes an engine as e is, with models of its own of a set.
func (j *job) engineMaker(e engine, set *coeff.Set, dep *deploy.Deployment) func() (engine, error) {
	newEngine := func() (engine, error) {
		made := e
		err := j.setModels(&made, set, dep)
		return made, err
	}
	first := sync.OnceValues(newEngine) // what models derive from the deployment is computed once
	return func() (made engine, err error) {
		if made, err = first(); err != nil {
			return made, err
		}
		own, ok := made.WithOwnModels()
		if !ok {
			return newEngine()
		}
		made.Config = own
		return made, nil
	}
}

// setModels sets the step times and the delays outside the engine: constants, or the alphas of a
// set. The models have scratch space of their own, so every engine needs new ones.
func (j *job) setModels(e *engine, set *coeff.Set, dep *deploy.Deployment) (err error) {
	if j.o.Latency == latencyRoofline {
		e.Latency, err = sim.NewRoofline(dep)
	} else {
		e.Latency, err = sim.NewPhysics(set, dep)
	}
	if err != nil {
		return err
	}
	if e.overheadUs != nil {
		e.Overhead = sim.Const(*e.overheadUs)
	} else if e.Overhead, err = sim.NewAlphaDelay(set, coeff.Overhead, dep); err != nil {
		return trace.Errorf(NoReplay, "replay: %v", err).WithHint("give --overhead-us")
	}
	if e.egressUs != nil {
		e.Egress = sim.Const(*e.egressUs)
	} else if set.AlphaModel(coeff.Egress) != nil {
		e.Egress, err = sim.NewAlphaDelay(set, coeff.Egress, dep)
	}
	return err
}
