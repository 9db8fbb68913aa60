// Package validate compares a coefficient set with recordings of a real engine.
//
// [Run] takes recorded runs with their deployments ([Source]), a coefficient set and, if it exists,
// the fit.json of the fit that made the set. It returns validation.json: errors, compared distributions, gates
// and a verdict, as structs of package result. Three questions are asked, in this order:
//
//  1. Can the recordings be compared with predictions at all? [Inspect] counts losses, compares the clocks and runs the
//     saturation checks. A saturated run is named in the result and excluded from the gates.
//  2. Does a step take as long as the coefficients predict? Each prediction is for the
//     batch that was recorded (teacher-forced), so that errors do not add up over a queue. The medians of measured over
//     predicted step time in blocks of seconds are the drift curve: it separates a machine that changed
//     its speed from a model that is wrong.
//  3. Do requests get the same TTFT, ITL and E2E when the coefficients drive the engine's clock? The
//     recorded arrivals are replayed through package sim and the distributions compared:
//     Kolmogorov-Smirnov distance, Wasserstein distance, medians. There are three replays: plain, which
//     alone is gated, with residual noise, and with noise and the drift curve.
//
// A request arrives in the replay at API ARRIVED plus the predicted overhead, never at QUEUED: QUEUED is
// stamped when the engine loop picks the request up, after a delay that the replay computes itself.
// Requests that failed or were aborted run in the simulator until their recorded end, because they slowed
// the others down, but their own times are not compared.
//
// Package gate compares the errors computed here with thresholds and decides the verdicts.
//
// Files: validate.go runs the parts of a validation in order; judgedrun.go has the steps of one run,
// configerrors.go their errors; requests.go has the recorded requests, phase.go their replay, chance.go what chance alone
// does to it; diagnose.go finds the cause of a failure; inspect.go is the inspection before any fit.
// Times are in us and stamps in ns on one clock per run, unless a name has another unit.
package validate

import (
	"context"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Source is one run to judge. Load is called once for the steps, and once more for a replay after them, possibly from
// another goroutine.
type Source struct {
	ID       string
	Training bool   // its recordings were part of the fit
	Informs  string // why its replay is printed and not gated; empty: it is gated
	Capped   string // why its replay is printed and not gated unless it is of a closed loop; empty: it is gated
	Most     int64  // most rows that one of its targets (step time, or a delay) can have; 0: unknown, not counted
	Config   string // key of its configuration: model, hardware and parallelism
	Stride   int    // one row in so many is judged; 0: Run decides for all sources
	Load     func() (*trace.Run, *deploy.Deployment, error)
	// Extracted are the findings of the extraction, which compared what the files state of the server.
	Extracted []trace.Finding
	Counted   []result.ServerCount  // tokens that the server's log counts, beside those of requests
	Drafts    *Drafts               // of a run with speculative decoding whose steps are fitted without; nil: none
	Cached    *result.CachedShare   // estimate for prompts of which nothing else is known; nil: none
	Levels    []result.LevelHoldout // load levels that are compared in place of requests; nil: requests
	// Inspection makes Run inspect the run as Inspect does, while it has the run and its batches, and call Inspected.
	// It is nil where that is not asked for. Runs of which no steps were recorded, or
	// whose step times no feature covers, are not inspected.
	Inspection *Inspection
	Inspected  func(run *trace.Run, got *result.InspectRun)
	// Steps and Replay are folders written by StoreSteps and StoreReplay under the same options, to be
	// read in place of doing that work; empty: Run does it.
	Steps, Replay string
}

// Run returns the validation of a coefficient set on runs. fit is the report of the fit that made
// the set; without it (nil) gates that need it have no value. The caller adds the header. Errors:
// options out of range, a run that cannot be loaded or whose deployment the features refuse, no run
// at all, a cancelled ctx.
func Run(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) (*result.Validation, error) {
	j, err := newJob(ctx, set, fit, sources, o)
	if err != nil {
		return nil, err
	}
	j.isWhole = true
	if err := j.each(ctx, "steps", func(i int) error { return j.loadSteps(ctx, i) }); err != nil {
		return nil, err
	}
	j.compareRuns()
	if err := j.clean(j.limits()); err != nil {
		return nil, err
	}
	if err := j.each(ctx, "replay", func(i int) error { return j.replay(ctx, i) }); err != nil {
		return nil, err
	}
	return j.document(fit), nil
}

// job is one call of Run.
type job struct {
	set      *coeff.Set // the coefficients that are validated
	o        *Options   // with defaults set
	rules    *gate.Rules
	sources  []Source
	runs     []*judgedRun             // by source, set by loadSteps
	replays  []*runReplay             // by source: replays that began with the steps; nil: they have not begun
	entries  [][]result.ValidationRun // by source, set by replay: one for each phase and split, at least one
	warnings []trace.Finding
	refit    bool            // the coefficients were fitted to the hold-out too
	cross    crossSets       // coefficients for cross-fitted replays
	isWhole  bool            // rows and replays are made, not one of them alone
	done     <-chan struct{} // closed when the caller cancels
}

// newJob checks the arguments of Run and returns the work.
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
	rules, err := gate.NewRules(o.Thresholds)
	if err != nil {
		return nil, err
	}
	j := &job{
		set:      set,
		o:        &o,
		rules:    rules,
		sources:  sources,
		runs:     make([]*judgedRun, len(sources)),
		replays:  make([]*runReplay, len(sources)),
		entries:  make([][]result.ValidationRun, len(sources)),
		warnings: rules.Loosen(o.ThresholdsFrom),
		refit:    set.Refit || fit != nil && fit.Options.RefitAll,
		cross:    crossSetsOf(set, fit, &o),
		done:     ctx.Done(),
	}
	if sources[0].Stride == 0 {
		j.sources = slices.Clone(sources)
		j.warnings = append(j.warnings, RowsJudged(fit, j.sources, o)...)
	}
	return j, nil
}

// each runs work for every source on o.Workers goroutines.
func (j *job) each(ctx context.Context, what string, work func(i int) error) error {
	n := len(j.sources)
	labelled := func(i int) error {
		if err := work(i); err != nil {
			return fmt.Errorf("validate %s of run %s: %w", what, j.sources[i].ID, err)
		}
		return nil
	}
	return par.Try(ctx, j.o.Workers, n, labelled, func(done int) {
		j.o.Progress.Report("validate "+what, int64(done), int64(n), "runs")
	})
}

// loadSteps makes the rows of one run, or reads those that StoreSteps wrote. At the same time it makes the replays that
// need no rows, if the run is one of so few that they would leave workers idle.
func (j *job) loadSteps(ctx context.Context, i int) (err error) {
	s := &j.sources[i]
	if s.Steps != "" {
		j.runs[i], err = restoreSteps(s, j.set)
		return err
	}
	run, dep, err := s.Load()
	if err != nil {
		return err
	}
	t := newJudgedRun(run, dep, j.set, j.o, s)
	j.runs[i] = t
	var replays []*replay
	if j.replaysBeside(t, s) {
		if r, err := j.newReplay(t, i, run, dep); err == nil { // an error comes again in replay, which names it
			j.replays[i] = r
			replays = r.replays(false)
			r.made = replays
		}
	}
	parts := partsOf(replays)
	return par.Try(ctx, j.o.Workers, 1+len(parts), func(k int) error {
		if k > 0 {
			parts[k-1].run()
			return nil
		}
		whole := run
		run = nil // its steps are most of the memory of a long recording, and are freed once the rows are made
		return t.addSteps(ctx, whole, j.o, s)
	}, nil)
}

// replaysBeside reports whether a run is replayed while its rows are made.
func (j *job) replaysBeside(t *judgedRun, s *Source) bool {
	isReplayed := !j.o.StepsOnly && len(s.Levels) == 0 && s.Replay == ""
	return j.isWhole && isReplayed && t.knowsLag && len(j.sources) < max(2, j.o.Workers)
}
